"""What a list of events guarantees as a whole, level by level, in exact numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, assert_never

from topdown.errors import BudgetError, suggest
from topdown.neighbours import COUNTS_MOVED
from topdown.privacy.accounting import (
    ApproxDP,
    Event,
    ExactEvent,
    GaussianEvent,
    LaplaceEvent,
    PureAccountant,
    PureEvent,
    ZCDPAccountant,
    require_events,
)
from topdown.privacy.conversions import zcdp_to_epsilon
from topdown.wording import shown

# Moving one unit, or changing its cell, takes one away and puts one in. Under "substitute" that is one step;
# under "add-remove" it doubles the L1 and the squared L2 sensitivity, since the two counts are different ones.
_STEPS_OF_A_MOVE = {neighbours: 2 // moved for neighbours, moved in COUNTS_MOVED.items()}


@dataclass(frozen=True, slots=True)
class Loss:
    """An amount of privacy loss: pure ``epsilon`` (None if there is none), ``rho``, epsilon at the stated delta.

    Examples:
        >>> plan.guarantee().total.rho
        Fraction(19, 100)
    """

    epsilon: Fraction | None
    rho: Fraction
    approx: ApproxDP | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: exact numbers as texts like "1/2", and epsilon at a delta rounded to floats."""
        return {
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "rho": str(self.rho),
            "approximate": None
            if self.approx is None
            else {"epsilon": self.approx.epsilon, "delta": self.approx.delta},
        }


@dataclass(frozen=True, slots=True)
class LevelGuarantee:
    """One level.

    own          what the level's own measurements add to those of the levels above (None: published exactly, all of it)
    cumulative   this level and all above it, the noisy ones (None: the order of the levels was not given)
    given_above  bounds what can be learned about where one unit is, from this level down, by somebody who knows
                 the unit's node at the level above: the measurements of this level and of all below, for one unit
                 that moves. None: no bound, because this level or one below is published exactly, or the
                 order of the levels was not given.
    exact_queries  those of its queries that are published exactly

    Examples:
        >>> [(level.level, level.own.epsilon) for level in plan.guarantee().levels]
        [('nation', Fraction(1, 5)), ('state', Fraction(3, 10)), ('county', Fraction(1, 2))]
    """

    level: str
    own: Loss | None
    cumulative: Loss | None
    given_above: Loss | None
    exact_queries: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the level is published exactly."""
        return self.own is None


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What a release guarantees to one unit, over all noisy levels, and which levels are outside of it.

    total    for two neighbouring tables
    change   for two tables in which one unit has another record: any attribute, any place. None if a level
             is published exactly, because the change may show there.
    levels   root first if the order was given, else in the order of the events

    Examples:
        >>> found = td.privacy.guarantee(plan.events(), delta=1e-10)
        >>> found.total.epsilon
        Fraction(1, 1)
    """

    unit: str
    neighbours: str
    delta: float | None
    total: Loss
    change: Loss | None
    levels: tuple[LevelGuarantee, ...]

    @property
    def exact_levels(self) -> tuple[str, ...]:
        """The levels published exactly, which the guarantee does not cover."""
        return tuple(level.level for level in self.levels if level.exact)

    @property
    def exact_queries(self) -> tuple[tuple[str, str], ...]:
        """The (level, query) pairs published exactly beside noisy ones, which the guarantee does not cover either."""
        return tuple((level.level, query) for level in self.levels if not level.exact for query in level.exact_queries)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; fractions as strings."""
        return {
            "unit": self.unit,
            "neighbours": self.neighbours,
            "delta": self.delta,
            "total": self.total.to_dict(),
            "change_of_one_record": None if self.change is None else self.change.to_dict(),
            "exact_levels": list(self.exact_levels),
            "exact_queries": [list(pair) for pair in self.exact_queries],
            "levels": [
                {
                    "level": level.level,
                    "published_exactly": level.exact,
                    "own": None if level.own is None else level.own.to_dict(),
                    "cumulative": None if level.cumulative is None else level.cumulative.to_dict(),
                    "given_above": None if level.given_above is None else level.given_above.to_dict(),
                }
                for level in self.levels
            ],
        }


def guarantee(events: Iterable[Event], delta: float | None = None, *, levels: Iterable[str] | None = None) -> Guarantee:
    """Adds ``events`` into a statement; epsilon at ``delta`` by Canonne, Kamath, Steinke 2020.

    ``levels`` are the levels of the geography, root first; what a level tells beside those above and below it is
    stated only with them, for a wrong order would claim a bound that does not hold.

    Where the total is pure, the epsilon beside delta is the smaller of the pure and the converted one. The
    reading of ``given_above`` follows Kifer, Abowd, Ashmead, Cumings-Menon, Leclerc, Machanavajjhala, Sexton,
    Zhuravlev 2022, Bayesian and Frequentist Semantics for Common Variations of Differential Privacy.
    Raises BudgetError for no events, for what is no event, for events with different units or neighbours,
    for a level not in ``levels``.

    Examples:
        >>> found = td.privacy.guarantee(plan.events())
        >>> found.total.epsilon, [level.level for level in found.levels]
        (Fraction(1, 1), ['nation', 'state', 'county'])
    """
    everything = require_events(events)
    if not everything:
        raise BudgetError("nothing is measured, so there is nothing to guarantee; give at least one event")
    unit, neighbours = everything[0].unit, everything[0].neighbours
    steps = _STEPS_OF_A_MOVE[neighbours]
    ZCDPAccountant(everything)  # refuses events that protect different things
    order = None if levels is None else tuple(levels)
    measured = tuple(dict.fromkeys(event.level for event in everything))
    if order is not None:
        for name in measured:
            if name not in order:
                raise BudgetError(f"level {shown(name)} is measured and not in levels; {suggest(name, list(order))}")
        measured = tuple(name for name in order if name in measured)
    return Guarantee(
        unit=unit,
        neighbours=neighbours,
        delta=delta,
        total=_loss(everything, delta),
        change=None if _any_exact(everything) else _loss(everything, delta, steps),
        levels=tuple(
            _level(name, everything, None if order is None else measured[: rank + 1], delta, steps)
            for rank, name in enumerate(measured)
        ),
    )


def _level(
    name: str, events: tuple[Event, ...], down_to: tuple[str, ...] | None, delta: float | None, steps: int
) -> LevelGuarantee:
    own = [event for event in events if event.level == name]
    exact = all(isinstance(event, ExactEvent) for event in own)
    exact_queries = tuple(event.query for event in own if isinstance(event, ExactEvent))
    if down_to is None:
        return LevelGuarantee(name, None if exact else _loss(own, delta), None, None, exact_queries)
    above = [event for event in events if event.level in down_to]
    from_here = [event for event in events if event.level == name or event.level not in down_to]
    return LevelGuarantee(
        level=name,
        own=None if exact else _loss(own, delta),
        cumulative=_loss(above, delta),
        given_above=None if _any_exact(from_here) else _loss(from_here, delta, steps),
        exact_queries=exact_queries,
    )


def _any_exact(events: Iterable[Event]) -> bool:
    return any(isinstance(event, ExactEvent) for event in events)


def _loss(events: Iterable[Event], delta: float | None, steps: int = 1) -> Loss:
    noisy = [event for event in events if not isinstance(event, ExactEvent)]
    epsilon = None
    if all(event.epsilon is not None for event in noisy):
        epsilon = steps * PureAccountant(noisy).total
    rho = sum((_rho(event, steps) for event in noisy), Fraction(0))
    approx = None
    if delta is not None:
        converted = zcdp_to_epsilon(float(rho), delta)
        approx = ApproxDP(converted if epsilon is None else min(converted, float(epsilon)), delta)
    return Loss(epsilon, rho, approx)


def _rho(event: LaplaceEvent | GaussianEvent | PureEvent, steps: int) -> Fraction:
    """What an event costs in rho where a unit moves, in so many ``steps``."""
    match event:
        case LaplaceEvent() | GaussianEvent():
            return event.rho * steps  # the two counts that a move touches carry independent noise
        case PureEvent():
            return event.rho * steps**2  # nothing is said of counts: the k^2 of group privacy
    assert_never(event)
