"""Noise that keeps counts within bounds: which levels have it, the kind of bounds, the scale and the charge.

Every kind is a value of `BOUND_KINDS`. The kind without bounds is defined here; research adds the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topdown import additions
from topdown.errors import ConfigError, PlanError, suggest
from topdown.neighbours import COUNTS_MOVED
from topdown.noise import Law, Source
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.noise.law import is_lattice_law
from topdown.privacy.mechanism import GEOMETRIC, Mechanism
from topdown.wording import shown

NONE = "none"

CALIBRATED = "true-epsilon"
UNCORRECTED = "uncorrected"
CALIBRATIONS = (CALIBRATED, UNCORRECTED)

WholePiece = tuple[int | None, int | None]
"""A closed interval of whole numbers; None where it has no end."""
Counts = NDArray[np.int64]


def plain_scale(bounds: LevelBounds, budget: Fraction, neighbours: str) -> Fraction:
    """The textbook scale, sensitivity/epsilon."""
    return COUNTS_MOVED[neighbours] / budget


def _own_budget(bounds: LevelBounds, budget: Fraction, neighbours: str) -> Fraction:
    return budget


def _own_loss(bounds: LevelBounds, budget: Fraction, neighbours: str) -> float:
    return float(budget)


def _with_noise(bounds: LevelBounds, counts: Counts, noise: Law, size: tuple[int, ...], source: Source) -> NDArray[Any]:
    if is_lattice_law(noise):  # narrow draws are faster to write and read
        return np.asarray(counts + noise.sample(size, source, noise.narrowest))
    return np.asarray(counts + noise.sample(size, source))


def _as_they_are(bounds: LevelBounds, counts: Counts) -> Counts:
    return counts


def _no_intervals(intervals: Any) -> tuple[WholePiece, ...]:
    raise ConfigError("intervals need a kind of bounds")


def _not_bounded(bounds: LevelBounds) -> str:
    return "not bounded"


@dataclass(frozen=True, slots=True)
class BoundKind:
    """A way to keep counts within bounds, or none, as a value; the defaults are those of counts without bounds.

    Args:
        name: the one that plans, files and messages have.
        conditioned: whether the law is normalised around every count, so that the plain loss is not the true one.
        scale: the exact scale of noise for a level's budget, by its bounds and its neighbours.
        charge: what a level's budget is charged.
        loss: the true loss of a level, to floating-point precision.
        sample: counts with noise of a law, exactly, within the bounds.
        nearest: every count's nearest number within the bounds.
        intervals: reads a level's intervals; raises ConfigError where they are malformed.
        words: describes how counts are drawn, for a statement of what is protected.
    """

    name: str
    conditioned: bool = False
    scale: Callable[[LevelBounds, Fraction, str], Fraction] = plain_scale
    charge: Callable[[LevelBounds, Fraction, str], Fraction] = _own_budget
    loss: Callable[[LevelBounds, Fraction, str], float] = _own_loss
    sample: Callable[[LevelBounds, Counts, Law, tuple[int, ...], Source], NDArray[Any]] = _with_noise
    nearest: Callable[[LevelBounds, Counts], Counts] = _as_they_are
    intervals: Callable[[Any], tuple[WholePiece, ...]] = _no_intervals
    words: Callable[[LevelBounds], str] = _not_bounded


BOUND_KINDS: dict[str, BoundKind] = {NONE: BoundKind(NONE)}


def kind_of(name: Any) -> BoundKind:
    """The kind of bounds of this name. Raises PlanError for an unknown name, whose charge is not known."""
    if name != NONE:
        additions.load("bounds")
    if not isinstance(name, str) or name not in BOUND_KINDS:
        raise PlanError(f"unknown bounds {shown(name)}; {suggest(str(name), list(BOUND_KINDS))}")
    return BOUND_KINDS[name]


@dataclass(frozen=True, slots=True)
class LevelBounds:
    """How one level's counts are kept within 0..upper, or within a set of intervals.

    Args:
        kind: a name in `BOUND_KINDS`; "none" for no bounds.
        upper: a public number that no count of the level exceeds; None for no upper bound.
        within: in place of 0..upper, the public intervals (low, high) that released counts lie in, None for no end.
            Clipping takes the nearest number of the set, the lower one of two. The guarantee holds wherever the true
            counts lie.
        calibration: "true-epsilon": the scale that keeps the budget. "uncorrected": the textbook scale
            sensitivity/epsilon also for conditioned kinds, which are charged their true loss, up to twice the budget.

    Raises PlanError for an unknown kind or calibration, whose charge is not known.
    """

    kind: str = NONE
    upper: int | None = None
    calibration: str = CALIBRATED
    within: tuple[WholePiece, ...] | None = None

    def __post_init__(self) -> None:
        kind_of(self.kind)
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
        return kind_of(self.kind).conditioned

    def scale(self, budget: Fraction, neighbours: str) -> Fraction:
        """The exact scale of noise for a level's ``budget``."""
        return kind_of(self.kind).scale(self, budget, neighbours)

    def charge(self, budget: Fraction, neighbours: str) -> Fraction:
        """What the level's budget is charged: itself, or for an uncorrected scale the true loss."""
        return kind_of(self.kind).charge(self, budget, neighbours)

    def loss(self, budget: Fraction, neighbours: str) -> float:
        """The true loss of the level, to floating-point precision; at most `charge`."""
        return kind_of(self.kind).loss(self, budget, neighbours)

    def sample(self, counts: Counts, noise: Law, size: tuple[int, ...], source: Source) -> NDArray[Any]:
        """``counts``, broadcast to ``size``, with noise of the law ``noise``, drawn exactly within the bounds."""
        return kind_of(self.kind).sample(self, counts, noise, size, source)

    def nearest(self, counts: Counts) -> Counts:
        """Every count's nearest number within the bounds; the counts themselves where there are none."""
        return kind_of(self.kind).nearest(self, counts)

    def in_words(self) -> str:
        """How the counts are drawn, for a statement of what is protected."""
        return kind_of(self.kind).words(self)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of every level: ``default`` where a level is not in ``named``."""

    default: LevelBounds = LevelBounds()
    named: tuple[tuple[str, LevelBounds], ...] = ()

    @classmethod
    def parse(cls, bounds: Any = NONE, upper: Any = None, calibration: str = CALIBRATED, within: Any = None) -> Bounds:
        """From one kind or {level: kind}, one public upper bound or {level: upper}, and {level: intervals}.

        Levels that a mapping leaves out are not bounded, or have no upper bound. Raises PlanError for an unknown kind
        or calibration, an upper bound that is not a whole number from 1 to 2^53, malformed intervals, an upper bound or
        intervals of a level without bounds, and both for one level.
        """
        if isinstance(bounds, Bounds):
            return bounds
        if calibration not in CALIBRATIONS:
            raise PlanError(
                f"unknown calibration {shown(calibration)}; {suggest(str(calibration), list(CALIBRATIONS))}"
            )
        kinds = dict(bounds) if isinstance(bounds, Mapping) else {}
        default = NONE if isinstance(bounds, Mapping) else bounds
        asked = [kind_of(kind) for kind in (default, *kinds.values())]
        uppers = dict(upper) if isinstance(upper, Mapping) else {}
        everywhere = None if isinstance(upper, Mapping) else upper
        for level, value in uppers.items():
            if kinds.get(level, default) == NONE:
                raise PlanError(
                    f"upper bound {shown(value)} of level {shown(level)}, whose counts are not bounded; set bounds"
                )
        if everywhere is not None and all(kind.name == NONE for kind in asked):
            raise PlanError(f"upper bound {shown(upper)}, and no level's counts are bounded; set bounds")
        if calibration == UNCORRECTED and not any(kind.conditioned for kind in asked):
            additions.load("bounds")
            calibrated = " and ".join(kind.name for kind in BOUND_KINDS.values() if kind.conditioned)
            raise PlanError(f"calibration 'uncorrected' is for {calibrated} bounds; leave it out")

        sets = _sets(within, {level: kinds.get(level, default) for level in within or ()}, uppers, everywhere)

        def of(kind: str, bound: Any, pieces: tuple[WholePiece, ...] | None = None) -> LevelBounds:
            if kind == NONE:
                return LevelBounds()
            return LevelBounds(kind, _upper(bound), calibration if kind_of(kind).conditioned else CALIBRATED, pieces)

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
        """The levels that have bounds of their own."""
        return tuple(level for level, _ in self.named)

    def at(self, level: str) -> LevelBounds:
        """The bounds of one level."""
        return dict(self.named).get(level, self.default)

    def check(self, mechanism: Mechanism, invariants: Iterable[str]) -> None:
        """Raises PlanError for bounds with a mechanism that has none, and for bounds of an invariant."""
        if self.any and not mechanism.bounded:
            raise PlanError(
                f"mechanism {shown(mechanism.name)} cannot be bounded; bounds need mechanism {GEOMETRIC.name!r}, or "
                "take bounds = 'none' and project with x >= 0"
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
            sets[level] = kind_of(kinds[level]).intervals(intervals)
        except (ConfigError, TypeError) as error:
            said = error if isinstance(error, ConfigError) else "give a list of pairs [low, high]"
            raise PlanError(f"intervals of level {shown(level)}: {said}") from None
        if all(low is not None and low == high for low, high in sets[level]) and len(sets[level]) == 1:
            raise PlanError(
                f"intervals of level {shown(level)} hold a single number, which leaves nothing to draw; make "
                "the level invariant"
            )
    return sets


def _upper(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating) or value != int(value):
        raise PlanError(f"upper bound {shown(value)}; give a whole number that is public, or leave it out")
    if not 1 <= value <= LARGEST_WHOLE:
        raise PlanError(f"upper bound {shown(value)}; give a whole number from 1 to 2^53, or leave it out")
    return int(value)
