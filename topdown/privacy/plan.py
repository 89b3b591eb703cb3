"""The plan of a release: mechanism, budget, how it is divided, what is protected and what is not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any

from topdown import additions
from topdown.errors import BudgetError, ConfigError, PlanError, disagreement, suggest
from topdown.neighbours import COUNTS_MOVED
from topdown.noise import Law
from topdown.privacy.accounting import Event, ExactEvent, PureEvent
from topdown.privacy.bounds import CALIBRATED, NONE, Bounds
from topdown.privacy.budget_numbers import Number
from topdown.privacy.guarantees import Guarantee, guarantee
from topdown.privacy.mechanism import EPSILON, GEOMETRIC, MECHANISMS, Mechanism
from topdown.privacy.plan_inputs import invariant_queries, level_names, require_no_share, total_budget
from topdown.privacy.plan_record import arguments_of, record_of
from topdown.privacy.shares import Shares
from topdown.privacy.statement import describe_plan
from topdown.wording import figure, listed, shown
from topdown.workload import DETAILED, Query, Schema, normal_name

if TYPE_CHECKING:
    import pandas as pd

    from topdown.geography.geography import Geography

MAX_GRID_BITS = 32
MEASURE, MOVE_UP = "measure", "move-up"
ONLY_CHILD = (MEASURE, MOVE_UP)
"""What is done with a unit that is its parent's only child."""


@dataclass(frozen=True, slots=True, init=False)
class Plan:
    """What a release will spend at which levels and queries, and whom it protects.

    Inside a level the nodes and cells are disjoint, so one unit counts once (parallel composition); levels
    and queries add up (sequential composition). All budgets are exact fractions: a float is taken by its
    shortest decimal, 0.1 is 1/10.

    Args:
        mechanism: "geometric": discrete Laplace on the integers, pure epsilon-DP (Ghosh, Roughgarden, Sundararajan
            2009); "laplace": the same law on the grid 2^-grid_bits when released, continuous in studies;
            "discrete-gaussian": rho-zCDP (Canonne, Kamath, Steinke 2020, Theorem 14); "gaussian": the same on the
            grid when released, continuous in studies.
        epsilon: total pure budget, for the two Laplace mechanisms. With ``delta``, a Gaussian mechanism takes it as
            a target: rho is then the largest (rounded down to 12 digits) whose conversion stays within it, and
            ``plan.epsilon`` is None.
        rho: total budget in zero-concentrated differential privacy, for the two Gaussian mechanisms.
        shares: {level: share} or {level: {query: share}}, adding up to exactly 1; 0 means that a level is not
            measured. None: equal shares over the levels that are not invariant, once ``for_levels`` is called.
        neighbours: "add-remove" (L1 = L2 = 1 at every level) or "substitute" (L1 = 2, L2 = sqrt 2).
        invariants: levels published exactly, or {level: [queries]}: they cost nothing and they are not protected.
        delta: the delta of the (epsilon, delta) statement of a Gaussian plan, 1e-10 unless stated.
        unit: what one neighbour step adds, removes or changes: "person", "household". Words only: the table must count
            every unit in one cell of one leaf.
        grid_bits: the step of the grid of "laplace" and "gaussian" is 2^-grid_bits counts; 2^-10 by default.
        bounds: "none", or noise that keeps counts at 0 or more, for the geometric mechanism: "boundary-inflated"
            (clipped), "truncated" or "normalized" (conditioned on the bounds), see
            `topdown.privacy.bounds.LevelBounds`; one for all levels or {level: bounds}.
        upper: a public number that no count of a bounded level exceeds, or {level: upper}.
        within: {level: [(low, high), ...]}: public intervals that a bounded level's released counts lie in, gaps
            between them; None or inf for no end. They replace 0..upper.
        calibration: "true-epsilon": conditioned noise gets the scale that keeps its level's budget. "uncorrected":
            the textbook scale; the level is then charged its true loss, up to twice its budget.
        exact_queries: (level, query) that are published exactly at levels that are otherwise noisy; another way to give
            these than ``invariants``.
        only_child: "measure", or "move-up": a unit that is its parent's only child, and so has the parent's counts, is
            not measured, and the parent gets its share.

    Raises BudgetError, naming the level, the value and the remedy, for a plan that is not well defined.

    Examples:
        >>> plan = td.Plan("geometric", epsilon=1, shares={"nation": "1/5", "state": "3/10", "county": "1/2"})
        >>> plan.scale("county"), round(plan.variance("county"), 2)
        (Fraction(2, 1), 7.84)
        >>> shares = {"nation": 0.5, "state": {"total": 0.25, "sex": 0.25}}
        >>> td.Plan("discrete-gaussian", rho="1/2", shares=shares).queries("state")
        ('total', 'sex')
    """

    mechanism: str
    epsilon: Fraction | None
    rho: Fraction | None
    shares: Shares | None
    neighbours: str
    invariants: tuple[str, ...]
    exact_queries: tuple[tuple[str, str], ...]
    delta: float | None
    unit: str
    grid_bits: int
    bounds: Bounds
    only_child: str

    def __init__(
        self,
        mechanism: str = GEOMETRIC.name,
        epsilon: Number | None = None,
        rho: Number | None = None,
        shares: Mapping[Any, Any] | None = None,
        neighbours: str = "add-remove",
        invariants: Iterable[str] | Mapping[str, Iterable[str]] = (),
        *,
        delta: Number | None = None,
        unit: str = "person",
        grid_bits: int = 10,
        bounds: str | Mapping[str, str] | Bounds = NONE,
        upper: int | Mapping[str, int] | None = None,
        within: Mapping[str, Iterable[Any]] | None = None,
        calibration: str = CALIBRATED,
        exact_queries: Iterable[tuple[str, str]] = (),
        only_child: str = MEASURE,
    ) -> None:
        if mechanism not in MECHANISMS:
            additions.load("mechanisms")
        if mechanism not in MECHANISMS:
            raise PlanError(f"unknown mechanism {shown(mechanism)}; {suggest(mechanism, list(MECHANISMS))}")
        if neighbours not in COUNTS_MOVED:
            raise PlanError(f"unknown neighbours {shown(neighbours)}; {suggest(neighbours, list(COUNTS_MOVED))}")
        if not isinstance(unit, str) or not unit.strip():
            raise PlanError(f"unit is {shown(unit)}; name what is protected, such as 'person' or 'household'")
        if isinstance(grid_bits, bool) or not isinstance(grid_bits, int) or not 0 <= grid_bits <= MAX_GRID_BITS:
            raise PlanError(f"grid_bits is {shown(grid_bits)}; give a whole number from 0 to {MAX_GRID_BITS}")
        pure_epsilon, gaussian_rho, stated_delta = total_budget(MECHANISMS[mechanism], epsilon, rho, delta)
        exact, single = invariant_queries(invariants)
        single = tuple(dict.fromkeys([*single, *exact_queries]))
        parsed = None if shares is None else Shares.parse(shares)
        bounded = Bounds.parse(bounds, upper, calibration, within)
        bounded.check(MECHANISMS[mechanism], exact)
        if only_child not in ONLY_CHILD:
            raise PlanError(f"unknown only_child {shown(only_child)}; {suggest(only_child, list(ONLY_CHILD))}")
        if only_child == MOVE_UP and bounded.any:
            raise PlanError(f"only_child = {MOVE_UP!r} is for noise without bounds; leave one of the two out")
        require_no_share(parsed, exact, single)
        values = {
            "mechanism": mechanism,
            "epsilon": pure_epsilon,
            "rho": gaussian_rho,
            "shares": parsed,
            "neighbours": neighbours,
            "invariants": exact,
            "exact_queries": single,
            "delta": stated_delta,
            "unit": unit.strip(),
            "grid_bits": grid_bits,
            "bounds": bounded,
            "only_child": only_child,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        unsaid = {
            "bounds": not self.bounds.any,
            "exact_queries": not self.exact_queries,
            "only_child": self.only_child == MEASURE,
        }
        shown = [f.name for f in fields(self) if not unsaid.get(f.name, False)]
        return f"Plan({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def is_pure(self) -> bool:
        """Whether the budget is a pure epsilon (otherwise it is rho of zero-concentrated privacy)."""
        return self.noise.currency == EPSILON

    @property
    def noise(self) -> Mechanism:
        """The mechanism as a value."""
        return MECHANISMS[self.mechanism]

    @property
    def total(self) -> Fraction:
        """The total budget: epsilon of a pure plan, rho of a Gaussian one."""
        total = self.epsilon if self.is_pure else self.rho
        assert total is not None  # nosec B101 # narrows a type: a plan without its budget is refused on creation
        return total

    @property
    def sensitivity(self) -> Fraction:
        """L1 sensitivity of one level: the most that one neighbour step moves its counts, summed."""
        return Fraction(COUNTS_MOVED[self.neighbours])

    @property
    def sensitivity_squared(self) -> Fraction:
        """Square of the L2 sensitivity of one level; the square is kept because it is exact."""
        return Fraction(COUNTS_MOVED[self.neighbours])

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels that the plan names, invariant ones first."""
        named = () if self.shares is None else self.shares.levels
        return tuple(dict.fromkeys(self.invariants + tuple(level for level, _ in self.exact_queries) + named))

    def check_levels(self, levels: Iterable[str]) -> None:
        """Raises BudgetError unless the plan names exactly these ``levels`` of a geography."""
        known = level_names(levels)
        for level in dict.fromkeys(self.levels + self.bounds.levels):
            if level not in known:
                raise PlanError(
                    f"the plan names level {shown(level)}, which the geography does not have; "
                    f"{disagreement(level, known)}"
                )
        if self.shares is None:
            if all(level in self.invariants for level in known):
                raise PlanError("every level is invariant: nothing is left to measure; make one level noisy")
            return
        for level in known:
            if level not in self.levels:
                raise PlanError(
                    f"level {shown(level)} has no share and is not invariant; give it a share (0 = not measured) or "
                    f"add it to invariants (the plan names {listed(self.levels)})"
                )

    def for_levels(self, levels: Iterable[str]) -> Plan:
        """The plan for a geography with these ``levels``, root first: checked, with equal shares where it has none."""
        known = level_names(levels)
        self.check_levels(known)
        if self.shares is not None:
            return self
        return replace(self, shares=Shares.equal(tuple(level for level in known if level not in self.invariants)))

    def for_schema(self, schema: Schema) -> Plan:
        """The plan with its queries named as ``schema`` names them.

        Raises BudgetError naming the level for a query that the schema does not know, and for one that a level names
        twice, also where it is written in two ways.
        """
        if self.shares is None:
            return self
        named: dict[tuple[str, str], Fraction] = {}
        for (level, text), share in self.shares.items_:
            key = (level, _query_name(level, text, schema))
            if key in named:
                raise PlanError(f"level {shown(level)} names query {shown(key[1])} twice; give it one share")
            named[key] = share
        exact = tuple((level, _query_name(level, text, schema)) for level, text in self.exact_queries)
        return replace(self, shares=Shares(tuple(named.items())), exact_queries=exact)

    def share(self, level: str, query: str = DETAILED) -> Fraction:
        """Share of the budget that ``query`` of ``level`` gets: 0 if it is invariant or not measured."""
        query = normal_name(query)
        if (level, query) in self.exact_queries:
            return Fraction(0)
        if level in self.invariants:
            self._check_query((DETAILED,), level, query)
            return Fraction(0)
        shares = self._resolved_shares()
        if level not in shares.levels:
            if level in self.levels:  # some of its queries are exact, and no other is measured
                self._check_query(self.queries(level), level, query)
            raise PlanError(f"the plan has no level {shown(level)}; {suggest(level, list(self.levels))}")
        self._check_query(shares.queries(level), level, query)
        return shares[level, query]

    def budget(self, level: str, query: str = DETAILED) -> Fraction:
        """Exact budget of ``query`` of ``level``, in the plan's currency (epsilon, or rho): share times total."""
        return self.share(level, query) * self.total

    def charged(self, level: str, query: str = DETAILED) -> Fraction:
        """What ``query`` of ``level`` costs, in the plan's currency: its budget, except for truncated noise of an
        uncorrected scale, which costs its true loss (rounded up to 13 digits).
        """
        budget = self.budget(level, query)
        return self.bounds.at(level).charge(budget, self.neighbours) if budget else budget

    @property
    def charged_total(self) -> Fraction:
        """What all levels and queries cost together; the total budget unless a scale is uncorrected."""
        if self.shares is None:
            return self.total
        return sum((self.charged(level, query) for (level, query), _ in self.shares.items_), Fraction(0))

    def scale(self, level: str, query: str = DETAILED) -> Fraction:
        """Exact scale of the (discrete) Laplace noise of ``query`` at ``level``, in counts: L1 sensitivity / epsilon,
        more where the noise is conditioned on bounds.

        0 for an invariant. Raises BudgetError for a level that is not measured and for a Gaussian plan.
        """
        if not self.is_pure:
            raise BudgetError(f"mechanism {shown(self.mechanism)} has no Laplace scale; ask for sigma2")
        return self.parameter(level, query)

    def sigma2(self, level: str, query: str = DETAILED) -> Fraction:
        """Exact parameter sigma^2 of the (discrete) Gaussian noise of ``query`` at ``level``, in counts^2: L2^2 / (2
        rho).

        0 for an invariant. Raises BudgetError for a level that is not measured and for a Laplace plan.
        """
        if self.is_pure:
            raise BudgetError(f"mechanism {shown(self.mechanism)} has no sigma2; ask for scale")
        return self.parameter(level, query)

    def smooth_law(self, level: str, query: str = DETAILED) -> Law:
        """The continuous law of the same parameter as the noise of ``query`` at ``level``. Raises BudgetError where it
        is not measured.
        """
        return self.noise.smooth(self.parameter(level, query))

    def law(self, level: str, query: str = DETAILED, *, continuous: bool = False) -> Law | None:
        """The law of the noise on every count of ``query`` at ``level``; None if it is invariant or not measured.

        ``continuous=True`` gives the law that studies use: it differs for "laplace" and "gaussian", which are drawn on
        a grid in a release, and is the same for the integer mechanisms. Where the counts are bounded it is the
        unbounded law of the same scale, since the law within bounds depends on the count.
        """
        if self.share(level, query) == 0:
            return None
        try:
            return self.noise.law(self.parameter(level, query), self.grid_bits, continuous=continuous)
        except ConfigError as error:
            raise BudgetError(
                f"level {shown(level)} has a budget of {figure(str(self.budget(level, query)))}: {error}"
            ) from None

    def variance(self, level: str, query: str = DETAILED, *, continuous: bool = False) -> float:
        """Variance of the noise on every count of ``query`` at ``level``, in counts^2: 0 for an invariant, inf if not
        measured. ``continuous=True`` gives that of the law that studies use.

        Where the counts are bounded it is that of the unbounded law of the same scale: the true variance and bias
        depend on the count and are not public.
        """
        law = self.law(level, query, continuous=continuous)
        if law is not None:
            return float(law.variance)
        return 0.0 if self.is_exact(level, query) else math.inf

    def is_exact(self, level: str, query: str = DETAILED) -> bool:
        """Whether ``query`` of ``level`` is published exactly."""
        return level in self.invariants or (level, query) in self.exact_queries

    def queries(self, level: str) -> tuple[str, ...]:
        """The queries that are measured at ``level`` or published exactly, as the plan names them: "detailed" for an
        invariant level.
        """
        if level in self.invariants:
            return (DETAILED,)
        exact = tuple(query for where, query in self.exact_queries if where == level)
        shared = () if self.shares is None else self.shares.queries(level)
        return exact + tuple(query for query in shared if self.share(level, query))

    def events(self, levels: Iterable[str] | None = None) -> tuple[Event, ...]:
        """What a release under this plan measures: one event per level and query, for an accountant.

        In the order of ``levels`` (root first), checked against them; without, in the plan's own order.
        """
        if levels is None:
            plan, names = self, self.levels
            plan._resolved_shares()
        else:
            names = tuple(level_names(levels))
            plan = self.for_levels(names)
        return tuple(event for level in names for event in level_events(plan, level))

    def guarantee(self, levels: Iterable[str] | None = None) -> Guarantee:
        """What the whole release guarantees, in numbers, level by level.

        With the geography's ``levels``, root first, also what every level reveals beside those above and below.
        """
        names = None if levels is None else level_names(levels)
        return guarantee(self.events(names), self.delta, levels=names)

    def describe(self, levels: Iterable[str] | None = None) -> str:
        """What is protected, by how much, and what is not, in words; by level, in the order of ``levels``."""
        names = None if levels is None else level_names(levels)
        return describe_plan(self if names is None else self.for_levels(names), self.guarantee(names), names)

    def errors(
        self,
        geography: Geography,
        schema: Schema | None = None,
        *,
        queries: Iterable[str] | None = None,
        confidence: float = 0.90,
        upward: str | None = None,
        areas: Any = (),
    ) -> pd.DataFrame:
        """The errors that a release under this plan will have, by level, kind of areas and query.

        Args:
            geography: the units; this and the other arguments are those of `topdown.expected_errors`.
            schema: of the cells.
            queries: whose errors are computed; by default those that the plan names.
            confidence: of the margins.
            upward: where the upward pass starts.
            areas: kinds of areas, which get rows as levels do.
        """
        # Imported by name: expected errors need least squares, which is in a room that imports this one.
        frame: pd.DataFrame = import_module("topdown.planning.expected").expected_errors(
            self, geography, schema, queries=queries, confidence=confidence, upward=upward, areas=areas
        )
        return frame

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-able values, for a manifest: exact fractions as strings such as "1/5"."""
        return record_of(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Plan:
        """The plan that was written as ``record`` by `to_dict`.

        Raises `BudgetError` where the plan is not well defined, `KeyError` or `TypeError` where it is no record of a
        plan.
        """
        return cls(**arguments_of(record))

    def parameter(self, level: str, query: str = DETAILED) -> Fraction:
        """The exact parameter of the noise of ``query`` at ``level``, a scale or sigma^2; bounds may make it larger; 0
        for an invariant.

        Raises BudgetError for a level that is not measured.
        """
        if self.is_exact(level, query):
            return Fraction(0)
        spent = self._spent(level, query)
        bounded = self.bounds.at(level)
        if bounded.conditioned:
            return bounded.scale(spent, self.neighbours)
        return self.noise.scaled(spent, self.sensitivity, self.sensitivity_squared)

    @property
    def released_grid_bits(self) -> int:
        """Releases draw multiples of 2^-released_grid_bits: 0, whole numbers, for the integer mechanisms."""
        return self.noise.grid_bits(self.grid_bits)

    def _resolved_shares(self) -> Shares:
        if self.shares is None:
            raise PlanError("the plan has no shares yet; give shares, or call for_levels(levels) for equal ones")
        return self.shares

    def _check_query(self, known: tuple[str, ...], level: str, query: str) -> None:
        if query not in known:
            raise PlanError(f"level {shown(level)} has no query {shown(query)}; {suggest(query, list(known))}")

    def _spent(self, level: str, query: str) -> Fraction:
        budget = self.budget(level, query)
        if budget == 0:
            raise PlanError(
                f"level {shown(level)} is not measured (its share is 0), so it has no noise; ask for variance"
            )
        return budget


def _query_name(level: str, text: str, schema: Schema) -> str:
    try:
        return Query.parse(text, schema).name
    except ConfigError as error:
        raise PlanError(f"level {shown(level)}: {error}") from None


def level_events(plan: Plan, level: str) -> list[Event]:
    """One event for every query of a level, in the plan's order. The plan must have its shares."""
    labels: dict[str, Any] = {"level": level, "unit": plan.unit, "neighbours": plan.neighbours}
    if level in plan.invariants:
        return [ExactEvent(query=DETAILED, **labels)]
    events: list[Event] = []
    for query in plan.queries(level):
        if plan.is_exact(level, query):
            events.append(ExactEvent(query=query, **labels))
            continue
        bounded = plan.bounds.at(level)
        named = plan.mechanism if bounded.kind == NONE else f"{bounded.kind} {plan.mechanism}"
        if bounded.conditioned:
            charge = plan.charged(level, query)
            events.append(PureEvent(query=query, mechanism=named, epsilon=charge, **labels))
            continue
        parameter, bits = plan.parameter(level, query), plan.released_grid_bits
        moved = plan.sensitivity, plan.sensitivity_squared
        events.append(plan.noise.event(parameter, *moved, query=query, mechanism=named, grid_bits=bits, **labels))
    return events
