"""Events, which record what was measured, and accountants, which add up what events cost.

An event states facts: the mechanism, its exact parameters, the level and query, the protected unit. Its cost is
computed from these. Budgets are compared as fractions; floats appear only where (epsilon, delta) is quoted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Self, TypeAlias, assert_never

from topdown.errors import BudgetError, suggest
from topdown.neighbours import COUNTS_MOVED
from topdown.privacy.budget_numbers import Number, exact_number, positive_number
from topdown.privacy.conversions import group_delta, group_epsilon, zcdp_to_epsilon
from topdown.wording import LONGEST_LIST, shown, unquoted
from topdown.workload import DETAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceEvent:
    """Laplace noise, discrete or continuous, of exact ``scale`` on counts of L1 sensitivity ``sensitivity``.

    Costs epsilon = sensitivity / scale (Dwork, McSherry, Nissim, Smith 2006; the discrete law, on the integers or
    on the grid 2^-grid_bits, has the same worst ratio) and rho = epsilon^2 / 2 (Bun, Steinke 2016).

    Args:
        level: the level that was measured.
        query: the query that was measured; "detailed" for the cells.
        mechanism: the name of the mechanism.
        scale: of the noise, in counts.
        sensitivity: in the L1 norm, in counts.
        grid_bits: the noise lies on the multiples of 2^-grid_bits; 0 for the integers.
        unit: what is protected, such as "person" or "household".
        neighbours: "add-remove" or "substitute".
        columns: the columns of a statistic of records; empty for counts.
        input: a secret code of the statistic's table, which tells nothing of it.

    Examples:
        >>> event = td.privacy.LaplaceEvent(level="state", scale=Fraction(10))
        >>> event.epsilon, event.rho
        (Fraction(1, 10), Fraction(1, 200))
    """

    kind: ClassVar[str] = "laplace"
    level: str
    query: str = DETAILED
    mechanism: str = "geometric"
    scale: Fraction
    sensitivity: Fraction = Fraction(1)
    grid_bits: int = 0
    unit: str = "person"
    neighbours: str = "add-remove"
    columns: tuple[str, ...] = ()
    input: str = ""

    def __post_init__(self) -> None:
        _check_event(self, "scale", "sensitivity")

    @property
    def epsilon(self) -> Fraction:
        """The pure epsilon that the event costs, exactly."""
        return self.sensitivity / self.scale

    @property
    def rho(self) -> Fraction:
        """The rho of zCDP that the event costs, exactly."""
        return self.epsilon**2 / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianEvent:
    """Gaussian noise, discrete or continuous, of exact parameter ``sigma2`` on counts of squared L2 sensitivity
    ``sensitivity_squared``.

    Costs rho = sensitivity_squared / (2 sigma2) (Bun, Steinke 2016, Proposition 1.6; Canonne, Kamath, Steinke 2020,
    Theorem 14 for the discrete law). It has no pure epsilon.

    Args:
        level: the level that was measured.
        query: the query that was measured; "detailed" for the cells.
        mechanism: the name of the mechanism.
        sigma2: the parameter sigma^2 of the noise, in counts^2.
        sensitivity_squared: in the L2 norm, in counts^2.
        grid_bits: the noise lies on the multiples of 2^-grid_bits; 0 for the integers.
        unit: what is protected, such as "person" or "household".
        neighbours: "add-remove" or "substitute".

    Examples:
        >>> td.privacy.GaussianEvent(level="state", sigma2=Fraction(50)).rho
        Fraction(1, 100)
    """

    kind: ClassVar[str] = "gaussian"
    level: str
    query: str = DETAILED
    mechanism: str = "discrete-gaussian"
    sigma2: Fraction
    sensitivity_squared: Fraction = Fraction(1)
    grid_bits: int = 0
    unit: str = "person"
    neighbours: str = "add-remove"

    def __post_init__(self) -> None:
        _check_event(self, "sigma2", "sensitivity_squared")

    @property
    def epsilon(self) -> None:
        """None: Gaussian noise has no pure epsilon."""
        return None

    @property
    def rho(self) -> Fraction:
        """The rho of zCDP that the event costs, exactly."""
        return self.sensitivity_squared / (2 * self.sigma2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PureEvent:
    """Any mechanism that is charged a stated pure ``epsilon``, such as bounded noise with its true loss.

    Args:
        level: the level that was measured.
        query: the query that was measured; "detailed" for the cells.
        mechanism: the name of the mechanism.
        epsilon: what it is charged.
        unit: what is protected, such as "person" or "household".
        neighbours: "add-remove" or "substitute".
        columns: the columns of a statistic of records; empty for counts.
        input: a secret code of the statistic's table, which tells nothing of it.

    Examples:
        >>> td.privacy.PureEvent(level="county", mechanism="truncated", epsilon=Fraction(1, 2)).epsilon
        Fraction(1, 2)
    """

    kind: ClassVar[str] = "pure"
    level: str
    query: str = DETAILED
    mechanism: str
    epsilon: Fraction
    unit: str = "person"
    neighbours: str = "add-remove"
    columns: tuple[str, ...] = ()
    input: str = ""

    def __post_init__(self) -> None:
        _check_event(self, "epsilon")

    @property
    def rho(self) -> Fraction:
        """The rho of zCDP that the event costs, exactly."""
        return self.epsilon**2 / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactEvent:
    """A level published exactly, an invariant. No budget covers it: accountants list it separately.

    Args:
        level: the level that is published exactly.
        query: the query that is published exactly; "detailed" for the cells.
        mechanism: always "exact".
        unit: what is counted, such as "person" or "household".
        neighbours: "add-remove" or "substitute".

    Examples:
        >>> td.privacy.ExactEvent(level="nation").query
        'detailed'
    """

    kind: ClassVar[str] = "exact"
    level: str
    query: str = DETAILED
    mechanism: str = "exact"
    unit: str = "person"
    neighbours: str = "add-remove"

    def __post_init__(self) -> None:
        _check_event(self)


Event: TypeAlias = LaplaceEvent | GaussianEvent | PureEvent | ExactEvent
"""What an accountant adds up: one use of a mechanism, by the law of its privacy loss."""
_KINDS: dict[str, type[LaplaceEvent] | type[GaussianEvent] | type[PureEvent] | type[ExactEvent]] = {
    kind.kind: kind for kind in (LaplaceEvent, GaussianEvent, PureEvent, ExactEvent)
}


EVENT_VERSION = 1
"""The version of written events; an event without a version has this one. A kind and its fields never change their
meaning; a field that is added gets a default with the meaning of events without it.
"""


def event_to_dict(event: Event) -> dict[str, Any]:
    """The event as JSON-able values; fractions as strings such as "1/5". Fields that only statistics have are left out
    of other events, so that older versions can read these. Raises `BudgetError` for what is no event.

    Args:
        event: one of the four events.

    Examples:
        >>> td.privacy.event_to_dict(td.privacy.LaplaceEvent(level="state", scale=Fraction(10)))["kind"]
        'laplace'
    """
    require_events([event])
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    values = {name: value for name, value in values.items() if value or name not in ("columns", "input")}
    return {"kind": event.kind, "version": EVENT_VERSION} | {
        k: str(v) if isinstance(v, Fraction) else v for k, v in values.items()
    }


def event_from_dict(values: dict[str, Any]) -> Event:
    """The event that ``event_to_dict`` wrote, in this version or an older one. Raises `BudgetError` for a newer
    version, and for a kind or field that is not known.

    Args:
        values: what ``event_to_dict`` returned.

    Examples:
        >>> event = td.privacy.LaplaceEvent(level="state", scale=Fraction(10))
        >>> td.privacy.event_from_dict(td.privacy.event_to_dict(event)) == event
        True
    """
    named = values.get("kind") if isinstance(values, dict) else values
    version = values.get("version", EVENT_VERSION) if isinstance(values, dict) else EVENT_VERSION
    if not isinstance(version, int) or version > EVENT_VERSION:
        raise BudgetError(
            f"an event of version {shown(version)} was written by a newer Topdown, this one knows up to "
            f"{EVENT_VERSION}; update it"
        )
    if not isinstance(named, str) or named not in _KINDS:
        raise BudgetError(f"unknown kind of event {shown(named)}; known: {', '.join(_KINDS)}")
    kind = _KINDS[named]
    try:
        known: dict[str, Any] = {k: v for k, v in values.items() if k not in ("kind", "version")}
        if "columns" in known:
            known["columns"] = tuple(known["columns"])
        return kind(**known)
    except TypeError as error:
        raise BudgetError(f"a {values['kind']} event does not read: {unquoted(str(error), LONGEST_LIST)}") from None


def require_events(events: Iterable[Event]) -> tuple[Event, ...]:
    """``events``, after making sure that each is of a known class. What two moves or a group cost under another class,
    or a subclass, would be a guess. Raises `BudgetError`.
    """
    found = tuple(events)
    for event in found:
        if type(event) not in _KINDS.values():
            raise BudgetError(
                f"{shown(event)} is not a known event; give {', '.join(k.__name__ for k in _KINDS.values())}"
            )
    return found


def parallel(events: Iterable[Event]) -> Event:
    """What the same measurement of disjoint parts costs together: the most expensive of ``events``.

    Parallel composition (McSherry 2009). Under "substitute" one unit may leave one part and enter another, so that two
    parts change: events whose sensitivity covers both moves (L1 of 2, squared L2 of 2) cost as much as the most
    expensive one, others as much as the two most expensive ones together. A stated pure epsilon does not say which
    applies, and is refused. Raises BudgetError for no events, different levels, queries, units or neighbours, different
    kinds, or what is no event that is known.

    Args:
        events: one for each part, of one level, query, unit and kind.

    Examples:
        >>> events = [td.privacy.LaplaceEvent(level="county", scale=Fraction(scale)) for scale in (10, 5)]
        >>> td.privacy.parallel(events).epsilon
        Fraction(1, 5)
    """
    parts = require_events(events)
    if not parts:
        raise BudgetError("parallel composition of no events; give at least one")
    _check_same_protection(parts)
    first = parts[0]
    for part in parts:
        if (part.level, part.query) != (first.level, first.query):
            raise BudgetError(
                f"level {shown(part.level)}, query {shown(part.query)} and level {shown(first.level)}, query "
                f"{shown(first.query)} are not disjoint parts of one measurement; add them with an accountant"
            )
        if part.kind != first.kind:
            raise BudgetError(f"parallel composition of {part.kind} and {first.kind} noise; compose each kind apart")
    if len(parts) > 1 and isinstance(first, PureEvent) and not _covers_both_moves(first):
        raise BudgetError("a substitution may touch two parts: pure events add up; use an accountant")
    by_cost = sorted(parts, key=lambda event: Fraction(0) if isinstance(event, ExactEvent) else event.rho)
    if len(parts) > 1 and not all(map(_covers_both_moves, parts)):
        return _together(by_cost[-1], by_cost[-2])
    return by_cost[-1]


def _covers_both_moves(event: Event) -> bool:
    """Whether the sensitivity of an event covers all parts that one neighbour step changes."""
    moved = COUNTS_MOVED[event.neighbours]
    if moved == 1:
        return True
    match event:
        case LaplaceEvent():
            return event.sensitivity >= moved
        case GaussianEvent():
            return event.sensitivity_squared >= moved
        case PureEvent():
            return False
        case ExactEvent():
            return True  # exact events cost nothing
    assert_never(event)


def _together(one: Event, other: Event) -> Event:
    """The cost of both together, as one event with the noise of the more expensive part."""
    if isinstance(one, LaplaceEvent) and isinstance(other, LaplaceEvent):
        return replace(one, sensitivity=one.scale * (one.epsilon + other.epsilon))
    if isinstance(one, GaussianEvent) and isinstance(other, GaussianEvent):
        return replace(one, sensitivity_squared=2 * one.sigma2 * (one.rho + other.rho))
    raise BudgetError(f"{one.kind} and {other.kind}: what two moves cost together is not known; use an accountant")


@dataclass(frozen=True, slots=True)
class ApproxDP:
    """(epsilon, delta)-differential privacy: P(S) <= e^epsilon P'(S) + delta on neighbouring tables.

    Args:
        epsilon: 0 or more.
        delta: from 0 to 1.

    Examples:
        >>> td.privacy.ApproxDP(epsilon=1.0, delta=1e-6).group(2)
        ApproxDP(epsilon=2.0, delta=3.718281828459046e-06)
    """

    epsilon: float
    delta: float

    def group(self, k: int) -> ApproxDP:
        """The statement for a group of k units (Vadhan 2017, Lemma 2.2).

        Args:
            k: units in the group, 1 or more.
        """
        return ApproxDP(group_epsilon(self.epsilon, k), group_delta(self.epsilon, self.delta, k))


class _Accountant(ABC):
    """A running sum of what was spent; the only mutable object of this module.

    ``limit``: the total that must not be passed; None for no limit.
    """

    currency: ClassVar[str]

    def __init__(self, events: Iterable[Event] = (), *, limit: Number | None = None) -> None:
        self._events: tuple[Event, ...] = ()
        self._limit = None if limit is None else exact_number(limit, f"the limit of {self.currency}")
        self.compose(events)

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything that was composed, in order."""
        return self._events

    @property
    def exact(self) -> tuple[ExactEvent, ...]:
        """The events that were published exactly, which no budget covers."""
        return tuple(event for event in self._events if isinstance(event, ExactEvent))

    @property
    def total(self) -> Fraction:
        """Exact sum of what the noisy measurements cost (sequential composition)."""
        return sum((self._cost(event) for event in self._events), Fraction(0))

    @property
    def remaining(self) -> Fraction | None:
        """What is left below the limit; None without a limit."""
        return None if self._limit is None else self._limit - self.total

    def would_be(self, events: Iterable[Event] | Event) -> Fraction:
        """The total if ``events`` were composed as well; nothing is spent."""
        added = require_events(_as_tuple(events))
        _check_same_protection(self._events + added)
        return self.total + sum((self._cost(event) for event in added), Fraction(0))

    def compose(self, events: Iterable[Event] | Event) -> Self:
        """Spends ``events``, all or none. Raises BudgetError if the limit would be passed."""
        added = _as_tuple(events)
        total = self.would_be(added)
        if self._limit is not None and total > self._limit:
            raise BudgetError(
                f"the release would bring {self.currency} to {total}, beyond the limit of {self._limit}; "
                f"{self.remaining} is left"
            )
        self._events += added
        return self

    @abstractmethod
    def _cost(self, event: Event) -> Fraction:
        """What ``event`` costs in this currency."""


class PureAccountant(_Accountant):
    """Adds pure epsilon (Dwork, McSherry, Nissim, Smith 2006). Refuses Gaussian events.

    Args:
        events: what is already spent.
        limit: an epsilon that must not be passed; None for none.

    Examples:
        >>> account = td.privacy.PureAccountant(plan.events(), limit=2)
        >>> account.total, account.remaining
        (Fraction(1, 1), Fraction(1, 1))
    """

    currency = "epsilon"

    def _cost(self, event: Event) -> Fraction:
        if isinstance(event, ExactEvent):
            return Fraction(0)
        if event.epsilon is None:
            raise BudgetError(
                f"level {shown(event.level)}: {unquoted(event.mechanism)} has no pure epsilon; use ZCDPAccountant"
            )
        return event.epsilon


class ZCDPAccountant(_Accountant):
    """Adds rho of zero-concentrated differential privacy (Bun, Steinke 2016, Lemma 1.7).

    A pure event enters as epsilon^2 / 2.

    Args:
        events: what is already spent.
        limit: a rho that must not be passed; None for none.

    Examples:
        >>> account = td.privacy.ZCDPAccountant([td.privacy.GaussianEvent(level="state", sigma2=Fraction(50))])
        >>> account.total, round(account.approx(1e-6).epsilon, 3)
        (Fraction(1, 100), 0.622)
    """

    currency = "rho"

    def _cost(self, event: Event) -> Fraction:
        return Fraction(0) if isinstance(event, ExactEvent) else event.rho

    def approx(self, delta: float, method: str = "cks") -> ApproxDP:
        """The (epsilon, delta) that the total implies, by ``zcdp_to_epsilon`` with this ``delta`` and ``method``."""
        return ApproxDP(zcdp_to_epsilon(self.total, delta, method), delta)


def _as_tuple(events: Iterable[Event] | Event) -> tuple[Event, ...]:
    return (events,) if isinstance(events, (LaplaceEvent, GaussianEvent, PureEvent, ExactEvent)) else tuple(events)


def _check_same_protection(events: Sequence[Event]) -> None:
    for event in events:
        if (event.unit, event.neighbours) != (events[0].unit, events[0].neighbours):
            raise BudgetError(
                f"level {shown(event.level)} protects one {unquoted(event.unit)} under {shown(event.neighbours)}, "
                f"level {shown(events[0].level)} one {unquoted(events[0].unit)} under {shown(events[0].neighbours)}; "
                "their budgets do not add"
            )


def _check_event(event: Event, *names: str) -> None:
    """Refuse neighbours that are not known, and make numbers above 0 of the fields ``names``."""
    if event.neighbours not in COUNTS_MOVED:
        raise BudgetError(
            f"unknown neighbours {shown(event.neighbours)}; {suggest(event.neighbours, list(COUNTS_MOVED))}"
        )
    for name in names:
        object.__setattr__(event, name, positive_number(getattr(event, name), name))
