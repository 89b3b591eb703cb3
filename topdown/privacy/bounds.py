"""Which levels draw their counts within bounds, with which law, and what scale and charge that takes.

Sources: Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with Univariate
Bounding Constraints", Definitions 2a and 2b; Croft, Sack, Shi, "Differential Privacy Via a Truncated and Normalized
Laplace Mechanism", Corollary 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topdown.errors import PlanError, suggest
from topdown.neighbours import COUNTS_MOVED
from topdown.noise import BoundaryInflatedDiscreteLaplace, DiscreteLaplace, Law, Source, TruncatedDiscreteLaplace
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.privacy.bounded_loss import calibrated_scale, charged_epsilon, truncated_loss
from topdown.privacy.mechanism import GEOMETRIC, Mechanism
from topdown.wording import shown

NONE = "none"
BOUNDARY_INFLATED = "boundary-inflated"
TRUNCATED = "truncated"
NORMALIZED = "normalized"
KINDS = (NONE, BOUNDARY_INFLATED, TRUNCATED, NORMALIZED)

CALIBRATED = "true-epsilon"
UNCORRECTED = "uncorrected"
CALIBRATIONS = (CALIBRATED, UNCORRECTED)


@dataclass(frozen=True, slots=True)
class LevelBounds:
    """How one level's counts are kept within 0..upper.

    kind         "none": they are not. "boundary-inflated": noise is added and the sum clipped, which is
                 post-processing and costs nothing. "truncated": the noisy count is drawn from the double geometric law
                 around the count, conditioned on the bounds, with the smallest scale that keeps the budget.
                 "normalized": the same law on whole numbers, with the scale 2 sensitivity/epsilon of Croft, Sack, Shi,
                 Corollary 1, which keeps the budget with room to spare.
    upper        a number that is public and that no count of the level passes; None for no upper bound.
    calibration  "true-epsilon": the scale just said. "uncorrected": the textbook scale sensitivity/epsilon also for the
                 two truncated kinds, charged what it truly costs, up to twice its budget.
    """

    kind: str = NONE
    upper: int | None = None
    calibration: str = CALIBRATED

    @property
    def conditioned(self) -> bool:
        """Whether the law is normalised around every count, so that the plain loss is not the true one."""
        return self.kind in (TRUNCATED, NORMALIZED)

    def scale(self, budget: Fraction, neighbours: str) -> Fraction:
        """The exact scale of noise for a level's ``budget``."""
        plain = COUNTS_MOVED[neighbours] / budget
        if not self.conditioned or self.calibration == UNCORRECTED:
            return plain
        return 2 * plain if self.kind == NORMALIZED else calibrated_scale(budget, neighbours, self.upper)

    def charge(self, budget: Fraction, neighbours: str) -> Fraction:
        """What the level's budget is charged: itself, or for an uncorrected scale the true loss."""
        if not self.conditioned or self.calibration == CALIBRATED:
            return budget
        return charged_epsilon(self.scale(budget, neighbours), neighbours, self.upper)

    def loss(self, budget: Fraction, neighbours: str) -> float:
        """The true loss of the level, to floating-point precision; at most `charge`."""
        if not self.conditioned:
            return float(budget)
        return truncated_loss(float(self.scale(budget, neighbours)), neighbours, self.upper)

    def sample(self, counts: NDArray[np.int64], noise: Law, size: tuple[int, ...], source: Source) -> NDArray[Any]:
        """``counts``, broadcast to ``size``, with noise of the law ``noise``, exactly, within the bounds."""
        if self.kind == NONE:
            noisy = noise.sample(size, source)
            noisy += counts
            return noisy
        if not isinstance(noise, DiscreteLaplace):
            raise TypeError(f"{noise!r} has no bounded form; `Bounds.check` refuses its mechanism")
        law = TruncatedDiscreteLaplace if self.conditioned else BoundaryInflatedDiscreteLaplace
        return np.asarray(law(counts, noise.scale, 0, self.upper).sample(size, source))

    def in_words(self) -> str:
        """How the counts are drawn, for a statement of what is protected."""
        span = "0 or more" if self.upper is None else f"0 to {self.upper:,}"
        if self.kind == BOUNDARY_INFLATED:
            return f"clipped to {span}, which costs nothing"
        how = f"drawn within {span} by conditioning the noise on the bounds"
        if self.calibration == UNCORRECTED:
            return f"{how}, with the uncorrected textbook scale, which is charged its true loss"
        if self.kind == NORMALIZED:
            return f"{how}, with twice the textbook scale"
        return f"{how}, with the scale at which that costs no more than the budget"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of every level: ``default`` where a level is not in ``named``."""

    default: LevelBounds = LevelBounds()
    named: tuple[tuple[str, LevelBounds], ...] = ()

    @classmethod
    def parse(cls, bounds: Any = NONE, upper: Any = None, calibration: str = CALIBRATED) -> Bounds:
        """From one kind or {level: kind}, and one public upper bound or {level: upper}.

        Levels that a mapping leaves out are not bounded, or have no upper bound. Raises PlanError for an unknown
        kind or calibration, an upper bound that is not a whole number from 1 to 2^53, and one of an unbounded level.
        """
        if isinstance(bounds, Bounds):
            return bounds
        if calibration not in CALIBRATIONS:
            raise PlanError(
                f"unknown calibration {shown(calibration)}; {suggest(str(calibration), list(CALIBRATIONS))}"
            )
        kinds = dict(bounds) if isinstance(bounds, Mapping) else {}
        default = NONE if isinstance(bounds, Mapping) else bounds
        for kind in (default, *kinds.values()):
            if kind not in KINDS:
                raise PlanError(f"unknown bounds {shown(kind)}; {suggest(str(kind), list(KINDS))}")
        uppers = dict(upper) if isinstance(upper, Mapping) else {}
        everywhere = None if isinstance(upper, Mapping) else upper
        for level, value in uppers.items():
            if kinds.get(level, default) == NONE:
                raise PlanError(
                    f"upper bound {shown(value)} of level {shown(level)}, whose counts are not bounded; set bounds"
                )
        if everywhere is not None and all(kind == NONE for kind in (default, *kinds.values())):
            raise PlanError(f"upper bound {shown(upper)}, and no level's counts are bounded; set bounds")
        if calibration == UNCORRECTED and not any(
            kind in (TRUNCATED, NORMALIZED) for kind in (default, *kinds.values())
        ):
            raise PlanError("calibration 'uncorrected' is for truncated and normalized bounds; leave it out")

        def of(kind: str, bound: Any) -> LevelBounds:
            if kind == NONE:
                return LevelBounds()
            return LevelBounds(kind, _upper(bound), calibration if kind != BOUNDARY_INFLATED else CALIBRATED)

        levels = dict.fromkeys([*kinds, *uppers])
        named = tuple(
            (level, of(kinds.get(level, default), uppers.get(level, everywhere)))
            for level in levels
            if kinds.get(level, default) != default or uppers.get(level, everywhere) != everywhere or level in kinds
        )
        return cls(of(default, everywhere), named)

    @property
    def any(self) -> bool:
        """Whether a level is bounded."""
        return any(one.kind != NONE for one in (self.default, *dict(self.named).values()))

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels that are named."""
        return tuple(level for level, _ in self.named)

    def at(self, level: str) -> LevelBounds:
        """The bounds of one level."""
        return dict(self.named).get(level, self.default)

    def check(self, mechanism: Mechanism, invariants: Iterable[str]) -> None:
        """Raises PlanError for bounds with a mechanism that has none, and for bounds of an invariant."""
        if self.any and not mechanism.bounded:
            raise PlanError(
                f"mechanism {shown(mechanism.name)} cannot be bounded; bounds are for counts of mechanism "
                f"{GEOMETRIC.name!r}, or take bounds = 'none' and project with x >= 0"
            )
        for level in invariants:
            if level in self.levels and self.at(level).kind != NONE:
                raise PlanError(
                    f"level {shown(level)} is invariant and has bounds; an exact level has no noise to bound"
                )


def _upper(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating) or value != int(value):
        raise PlanError(f"upper bound {shown(value)}; give a whole number that is public, or leave it out")
    if not 1 <= value <= LARGEST_WHOLE:
        raise PlanError(f"upper bound {shown(value)}; give a whole number from 1 to 2^53, or leave it out")
    return int(value)
