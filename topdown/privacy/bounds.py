"""Which levels draw their counts within bounds, with which law, and what scale and charge that takes.

Sources: Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with Univariate
Bounding Constraints", Definitions 2a and 2b; Croft, Sack, Shi, "Differential Privacy Via a Truncated and Normalized
Laplace Mechanism", Corollary 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topdown.errors import ConfigError, PlanError, suggest
from topdown.neighbours import COUNTS_MOVED
from topdown.noise import (
    BoundaryInflatedDiscreteLaplace,
    DiscreteLaplace,
    LatticeLaw,
    Law,
    Source,
    TruncatedDiscreteLaplace,
)
from topdown.noise.bounded.whole_sets import NormalizedDiscreteLaplace, WholePiece, nearest_within, whole_pieces
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.privacy.bounded_loss import calibrated_scale, charged_epsilon, truncated_loss
from topdown.privacy.mechanism import GEOMETRIC, Mechanism
from topdown.privacy.set_loss import calibrated_scale_on_set, charged_epsilon_on_set, set_loss_bound
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
    """How one level's counts are kept within 0..upper, or within a set of intervals.

    kind         "none": they are not. "boundary-inflated": noise is added and the sum clipped, which is
                 post-processing and costs nothing. "truncated": the noisy count is drawn from the double geometric law
                 around the count, conditioned on the bounds, with the smallest scale that keeps the budget.
                 "normalized": the same law on whole numbers, with the scale 2 sensitivity/epsilon of Croft, Sack, Shi,
                 Corollary 1, which keeps the budget with room to spare.
    upper        a number that is public and that no count of the level passes; None for no upper bound.
    within       in the place of 0..upper: the intervals (low, high) that released counts lie in, None for no end. They
    are
                 public. Clipping takes the nearest number of the set, the lower one of two. The guarantee does not rest
                 on the true counts' lying there.
    calibration  "true-epsilon": the scale just said. "uncorrected": the textbook scale sensitivity/epsilon also for the
                 two truncated kinds, charged what it truly costs, up to twice its budget.

    Raises PlanError for another kind or calibration: it would be charged as another.
    """

    kind: str = NONE
    upper: int | None = None
    calibration: str = CALIBRATED
    within: tuple[WholePiece, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise PlanError(f"unknown bounds {shown(self.kind)}; {suggest(str(self.kind), list(KINDS))}")
        if self.calibration not in CALIBRATIONS:
            raise PlanError(
                f"unknown calibration {shown(self.calibration)}; {suggest(str(self.calibration), list(CALIBRATIONS))}"
            )

    @property
    def pieces(self) -> tuple[WholePiece, ...]:
        """The intervals that released counts lie in."""
        return ((0, self.upper),) if self.within is None else self.within

    @property
    def conditioned(self) -> bool:
        """Whether the law is normalised around every count, so that the plain loss is not the true one."""
        return self.kind in (TRUNCATED, NORMALIZED)

    def scale(self, budget: Fraction, neighbours: str) -> Fraction:
        """The exact scale of noise for a level's ``budget``."""
        plain = COUNTS_MOVED[neighbours] / budget
        if not self.conditioned or self.calibration == UNCORRECTED:
            return plain
        if self.kind == NORMALIZED:
            return 2 * plain
        if len(self.pieces) > 1:
            return calibrated_scale_on_set(budget, neighbours, self.pieces)
        return calibrated_scale(budget, neighbours, self._width)

    def charge(self, budget: Fraction, neighbours: str) -> Fraction:
        """What the level's budget is charged: itself, or for an uncorrected scale the true loss."""
        if not self.conditioned or self.calibration == CALIBRATED:
            return budget
        scale = self.scale(budget, neighbours)
        if len(self.pieces) > 1:
            return charged_epsilon_on_set(scale, neighbours, self.pieces)
        return charged_epsilon(scale, neighbours, self._width)

    def loss(self, budget: Fraction, neighbours: str) -> float:
        """The true loss of the level, to floating-point precision; at most `charge`."""
        if not self.conditioned:
            return float(budget)
        scale = self.scale(budget, neighbours)
        if len(self.pieces) > 1:
            return math.log(set_loss_bound(scale, neighbours, self.pieces))
        return truncated_loss(float(scale), neighbours, self._width)

    @property
    def _width(self) -> int | None:
        """Of one interval, from end to end: what truncation costs depends on nothing else. None where an end is not
        there."""
        low, high = self.pieces[0]
        return None if low is None or high is None else high - low

    def sample(self, counts: NDArray[np.int64], noise: Law, size: tuple[int, ...], source: Source) -> NDArray[Any]:
        """``counts``, broadcast to ``size``, with noise of the law ``noise``, exactly, within the bounds."""
        if self.kind == NONE:
            if isinstance(noise, LatticeLaw):  # narrow draws are less to write and to read again
                return np.asarray(counts + noise.sample(size, source, noise.narrowest))
            return np.asarray(counts + noise.sample(size, source))
        if not isinstance(noise, DiscreteLaplace):
            raise TypeError(f"{noise!r} has no bounded form; `Bounds.check` refuses its mechanism")
        if len(self.pieces) == 1:
            law = TruncatedDiscreteLaplace if self.conditioned else BoundaryInflatedDiscreteLaplace
            return np.asarray(law(counts, noise.scale, *self.pieces[0]).sample(size, source))
        if self.conditioned:
            return np.asarray(NormalizedDiscreteLaplace(counts, noise.scale, self.pieces).sample(size, source))
        return self.nearest(np.asarray(noise.sample(size, source)) + counts)

    def nearest(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Every count's nearest number within the bounds; the counts themselves where there are none."""
        return counts if self.kind == NONE else nearest_within(counts, self.pieces)

    def in_words(self) -> str:
        """How the counts are drawn, for a statement of what is protected."""
        span = " or ".join(map(_span, self.pieces))
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
    def parse(cls, bounds: Any = NONE, upper: Any = None, calibration: str = CALIBRATED, within: Any = None) -> Bounds:
        """From one kind or {level: kind}, one public upper bound or {level: upper}, and {level: intervals}.

        Levels that a mapping leaves out are not bounded, or have no upper bound. Raises PlanError for an unknown
        kind or calibration, an upper bound that is not a whole number from 1 to 2^53, intervals that are none, and
        either of an unbounded level, or both of one level.
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

        sets = _sets(within, {level: kinds.get(level, default) for level in within or ()}, uppers, everywhere)

        def of(kind: str, bound: Any, pieces: tuple[WholePiece, ...] | None = None) -> LevelBounds:
            if kind == NONE:
                return LevelBounds()
            return LevelBounds(kind, _upper(bound), calibration if kind != BOUNDARY_INFLATED else CALIBRATED, pieces)

        levels = dict.fromkeys([*kinds, *uppers, *sets])
        named = tuple(
            (level, of(kinds.get(level, default), uppers.get(level, everywhere), sets.get(level)))
            for level in levels
            if kinds.get(level, default) != default
            or uppers.get(level, everywhere) != everywhere
            or level in kinds
            or level in sets
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


def _sets(
    within: Any, kinds: Mapping[str, str], uppers: Mapping[str, Any], everywhere: Any
) -> dict[str, tuple[WholePiece, ...]]:
    """The intervals of every level that has some. Raises PlanError naming the level where they cannot be meant."""
    if within is None:
        return {}
    if not isinstance(within, Mapping):
        raise PlanError(f"within is {shown(within)}; give {{level: [[low, high], ...]}}")
    sets = {}
    for level, intervals in within.items():
        if kinds[level] == NONE:
            raise PlanError(f"intervals of level {shown(level)}, whose counts are not bounded; set bounds for it")
        if uppers.get(level, everywhere) is not None:
            raise PlanError(f"level {shown(level)} has an upper bound and intervals; give the intervals alone")
        try:
            sets[level] = whole_pieces(intervals)
        except (ConfigError, TypeError) as error:
            said = error if isinstance(error, ConfigError) else "give a list of pairs [low, high]"
            raise PlanError(f"intervals of level {shown(level)}: {said}") from None
        if all(low is not None and low == high for low, high in sets[level]) and len(sets[level]) == 1:
            raise PlanError(
                f"intervals of level {shown(level)}: one number leaves nothing to release; make it invariant"
            )
    return sets


def _span(piece: WholePiece) -> str:
    low, high = piece
    if low is None:
        return "any number" if high is None else f"{high:,} or less"
    return f"{low:,} or more" if high is None else f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _upper(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating) or value != int(value):
        raise PlanError(f"upper bound {shown(value)}; give a whole number that is public, or leave it out")
    if not 1 <= value <= LARGEST_WHOLE:
        raise PlanError(f"upper bound {shown(value)}; give a whole number from 1 to 2^53, or leave it out")
    return int(value)
