"""The guarantee of a list of events, in total and level by level, in exact numbers."""

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

# Moving one unit, or changing its cell, removes one count and adds another. Under "substitute" that is one step; under
# "add-remove" it doubles the L1 and the squared L2 sensitivity, since the two counts are different ones.
_STEPS_OF_A_MOVE = {neighbours: 2 // moved for neighbours, moved in COUNTS_MOVED.items()}


@dataclass(frozen=True, slots=True)
class Loss:
    """An amount of privacy loss, in three currencies.

    Args:
        epsilon: pure epsilon, None where there is none.
        rho: of zero-concentrated differential privacy.
        approx: epsilon at the stated delta, None where no delta was stated.

    Examples:
        >>> plan.guarantee().total.rho
        Fraction(19, 100)
    """

    epsilon: Fraction | None
    rho: Fraction
    approx: ApproxDP | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: exact numbers as strings like "1/2", and epsilon at a delta as floats."""
        return {
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "rho": str(self.rho),
            "approximate": None
            if self.approx is None
            else {"epsilon": self.approx.epsilon, "delta": self.approx.delta},
        }


@dataclass(frozen=True, slots=True)
class LevelGuarantee:
    """What the measurements of one level reveal.

    Args:
        level: the name of the level.
        own: what the level's own measurements add to those of the levels above; None where all of it is published
            exactly.
        cumulative: the noisy measurements of this level and of all above it; None where the order of the levels was
            not given.
        given_above: bounds what somebody who knows the unit's node at the level above can learn about where the unit
            is, from this level down: the measurements of this level and of all below, for one unit that moves. None
            where there is no bound, because this level or one below is published exactly, or where the order of the
            levels was not given.
        exact_queries: the queries of the level that are published exactly.

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

    Args:
        unit: what is protected, such as "person" or "household".
        neighbours: "add-remove" or "substitute".
        delta: of the (epsilon, delta) statements; None where none was stated.
        total: the loss for two neighbouring tables.
        change: the loss for two tables in which one unit has another record: any attribute, any place. None if a level
            is published exactly, because the change may show there.
        levels: what each level reveals, root first if the order was given, else in the order of the events.

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
    """The guarantee of ``events`` together; epsilon at ``delta`` by Canonne, Kamath, Steinke 2020.

    What a level reveals beside those above and below it is stated only where ``levels`` gives their order: a wrong
    order would claim a bound that does not hold.

    Where the total is pure, the epsilon beside delta is the smaller of the pure and the converted one. The
    reading of ``given_above`` follows Kifer, Abowd, Ashmead, Cumings-Menon, Leclerc, Machanavajjhala, Sexton,
    Zhuravlev 2022, Bayesian and Frequentist Semantics for Common Variations of Differential Privacy.
    Raises BudgetError for no events, for what is no event, for events with different units or neighbours,
    for a level not in ``levels``.

    Args:
        events: what was measured or published exactly.
        delta: of the (epsilon, delta) statement; without it there is none.
        levels: the levels of the geography, root first; without them nothing is said about the order of levels.

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
                raise BudgetError(f"level {shown(name)} is measured but not in levels; {suggest(name, list(order))}")
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
        converted = zcdp_to_epsilon(rho, delta)
        approx = ApproxDP(converted if epsilon is None else min(converted, float(epsilon)), delta)
    return Loss(epsilon, rho, approx)


def _rho(event: LaplaceEvent | GaussianEvent | PureEvent, steps: int) -> Fraction:
    """The cost of an event in rho where a unit moves, which takes ``steps`` neighbour steps."""
    match event:
        case LaplaceEvent() | GaussianEvent():
            return event.rho * steps  # the two counts that a move touches carry independent noise
        case PureEvent():
            return event.rho * steps**2  # nothing is known of the counts: the factor k^2 of group privacy
    assert_never(event)
