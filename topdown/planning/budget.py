"""The smallest budget, with its shares, under which every target holds: found by a search, then rounded up and checked
against the exact variances.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pandas as pd

from topdown.errors import ConfigError, require_list
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.planning.budget_allocation import Bound, Found, cheapest, locally_cheapest
from topdown.planning.expected import Expected, deviations_within, expected_errors, members, noise_margin
from topdown.planning.precision import Answered, Precisions, kinds
from topdown.planning.sum_precision import SummedAnswers, SumPrecisions
from topdown.planning.targets import Target
from topdown.privacy.plan import MEASURE, Plan
from topdown.privacy.shares import Key, Shares
from topdown.projection.histograms.components import Components
from topdown.tables.assignments import Files, Given, areas_of
from topdown.wording import shown
from topdown.workload import DETAILED, Query, Schema

_DIGITS = 4
"""How many significant digits the budget has, and how many decimals the shares have."""

_LEFT_OUT = (1e-3, 1e-5)
"""A query whose part of the budget is smaller is not measured, provided that the total cost grows by no more than the
factor `_ALLOWED`.
"""

_ALLOWED = 1.002

_CLOSE = 1e-4
"""How closely a variance is looked for, as a part of it."""


@dataclass(frozen=True, eq=False)
class SmallestBudget:
    """A ``plan`` under which ``targets`` hold: pairs of a target and the margin that the plan gives. ``least``: a lower
    bound of the budget of all plans with the same queries that meet the targets; None where the search is local.
    ``errors``: the table of `expected_errors` of its cells, at every level.
    """

    plan: Plan
    targets: tuple[tuple[Target, float], ...]
    least: float | None
    errors: pd.DataFrame = field(repr=False)

    @property
    def undetermined(self) -> tuple[str, ...]:
        """The levels at which the plan does not determine every cell."""
        return tuple(row["level"] for row in self.errors.to_dict("records") if math.isinf(row["sd_largest"]))

    @property
    def words(self) -> str:
        """States how close the budget is to the smallest possible one."""
        total = float(self.plan.total)
        if self.least is None:
            return (
                "the smallest that was found from several starts: for Laplace noise the problem is not convex, and "
                "there may be a smaller one"
            )
        above = 100.0 * max(total / self.least - 1.0, 0.0)
        return f"no shares of these queries meet the targets with less than {self.least:.5g} ({above:.2g} % below)"


def smallest_budget(
    plan: Plan,
    geography: Geography,
    targets: Iterable[Target | str],
    schema: Schema | None = None,
    *,
    areas: Files | Mapping[str, Given] = (),
) -> SmallestBudget:
    """The smallest budget, with its shares, under which all answers of every target are as close to the truth as the
    target states.

    Errors are those of `expected_errors`: of unbiased least squares, at the worst unit of the target's level.

    For the Gaussian mechanisms it is the global minimum, to within 0.01 % before rounding, because precision is linear
    in the share and 1 / variance is concave in precision; for noise on whole numbers and margins of a few counts
    ``least`` may be well below it (`_least`). For the Laplace mechanisms it is the best local minimum from several
    starting points. Shares are exact fractions; the budget has four significant digits and is rounded up until every
    target holds.

    Args:
        plan: the mechanism, the neighbours, what is exact, and the queries among which the budget is divided (all
            that it gives a share; the cells of every level where it has no shares); its own budget does not matter.
        geography: the tree that noise is measured on.
        targets: such as "county: 25 at 90 %" or "county, total: 25 at 90 %".
        schema: of the cells.
        areas: as of `expected_errors`: a target may be of a kind of areas, such as "school: 10 at 90 %".

    Raises `ConfigError` for targets that cannot be read or that no division of the budget meets, for noise within
    bounds or by neither Laplace's nor a Gaussian law, and where single children move up; `BudgetError` where plan,
    levels and schema disagree.

    Examples:
        >>> found = td.smallest_budget(plan, geography, ["county: 10 at 90 %"])
        >>> round(float(found.plan.total), 3)
        0.219
    """
    if plan.bounds.any:
        raise ConfigError("the errors of noise within bounds depend on the counts; give a plan without bounds")
    if plan.only_child != MEASURE:
        raise ConfigError("only_child = 'move-up' gives units of one level different noise; leave it out of the search")
    # Otherwise the cost of precision, or the quantiles of sums, are not known.
    plan.noise.is_normal()
    expected = Expected.of(plan, geography, schema, areas=areas_of(areas, geography))
    require_list(targets, "targets")
    asked = [one if isinstance(one, Target) else Target.parse(one, expected.kinds, expected.schema) for one in targets]
    if not asked:
        raise ConfigError("no target was given; state one, such as 'county: 25 at 90 %'")
    _require_determined(expected, asked)
    wanted = [one for one in asked if _largest(expected, one) > 0]
    if not wanted:
        raise ConfigError("every target is about what is published exactly; state one of what is measured")
    found = _searched(expected, wanted)
    budgets = dict(zip(_keys(expected.plan), _bought(expected.plan, found.precision).tolist(), strict=True))
    least = None if found.least is None else _least(expected, wanted, found.least)
    best: Plan | None = None
    for part in _LEFT_OUT:
        try:
            rounded = _rounded(expected, budgets, part, wanted)
        except ConfigError:
            continue
        if best is None or rounded.total < best.total:
            best = rounded
        if rounded.total <= _ALLOWED * sum(budgets.values()):
            break
    if best is None:
        raise ConfigError("the targets differ by so much that four digits do not meet them; state fewer at once")
    judged = _judge(expected, best)
    errors = expected_errors(best, geography, expected.schema, queries=[DETAILED])
    return SmallestBudget(best, tuple((one, _margin(judged, one)) for one in asked), least, errors)


def _keys(plan: Plan) -> list[Key]:
    """The pairs of a level and a query among which the budget is divided."""
    return [] if plan.shares is None else [key for key, share in plan.shares.items_ if share > 0]


def _searched(expected: Expected, targets: list[Target], wider: Sequence[float] = ()) -> Found:
    """The precisions that meet the ``targets``; where variances may be larger, by which factors (``wider``)."""
    plan, schema, levels = expected.plan, expected.schema, expected.geography.levels
    measured = tuple((levels.index(level), Query.parse(query, schema)) for level, query in _keys(plan))
    exact = tuple(
        (number, Query.parse(query, schema))
        for number, level in enumerate(levels)
        for query in plan.queries(level)
        if plan.is_exact(level, query)
    )
    components = Components(schema, tuple(dict.fromkeys(query for _, query in (*measured, *exact))))
    sums = None
    if any(one.level in expected.areas for one in targets):
        sums = SumPrecisions(expected.alike.tree, components, measured, exact)
    precisions = Precisions(kinds(expected.geography.tree), components, measured, exact, sums)

    def asked(one: Target) -> Answered | SummedAnswers:
        query = Query.parse(one.query, schema)
        if one.level in expected.areas:
            return SummedAnswers(query, members(expected.areas[one.level], expected.alike))
        return Answered.of(levels.index(one.level), query, components)

    bounds = [
        Bound(
            asked(one),
            factor * (one.margin / deviations_within(one.confidence, gaussian=plan.noise.is_normal())) ** 2,
        )
        for one, factor in zip(targets, wider or [1.0] * len(targets), strict=True)
    ]
    if plan.noise.is_normal():
        return cheapest(precisions, bounds)
    return locally_cheapest(precisions, bounds, lambda p: _bought(plan, p), lambda p: _price_slope(plan, p))


def _least(expected: Expected, targets: list[Target], searched: float) -> float:
    """A lower bound of every budget that meets the ``targets``, from ``searched``, that of the sum of the precisions by
    the normal law.

    For noise on whole numbers it is lower: an answer that is one draw keeps to its margin at a larger variance
    (`_wider`); and the variance of the law is below its parameter sigma^2, which is what a budget buys, where sigma is
    small. No draw of a plan with the budget T has a smaller sigma^2 than T buys, so that T times that ratio is at least
    the bound by the normal law.
    """
    plan, wider = expected.plan, [_wider(expected, one) for one in targets]
    if max(wider) > 1.0:
        searched = _searched(expected, targets, wider).least or 0.0
    normal = searched / _per_budget(plan)

    def reaches(total: float) -> bool:
        parameter = 1.0 / (_per_budget(plan) * total)
        law = plan.noise.law(Fraction(parameter), plan.grid_bits, continuous=False)
        return total * max(parameter / law.variance, 1.0) >= normal

    low, high = 0.0, normal
    while high - low > _CLOSE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return low


def _wider(expected: Expected, target: Target) -> float:
    """By which factor the variance of a target's answers may be larger than by the normal law where each has the noise
    of a single measurement, which takes whole numbers alone: more of it is within them than of the normal law."""
    plan, query = expected.plan, Query.parse(target.query, expected.schema).name
    if target.level in expected.areas or query not in plan.queries(target.level):
        return 1.0
    normal = (target.margin / deviations_within(target.confidence, gaussian=True)) ** 2

    def holds(factor: float) -> bool:
        law = plan.noise.law(Fraction(normal * factor), plan.grid_bits, continuous=False)
        return noise_margin(law, target.confidence) <= target.margin

    low, high = 0.5, 1.0
    while holds(high):
        low, high = high, 2 * high
    while high > 1.0 and high - low > _CLOSE * low:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def _per_budget(plan: Plan) -> float:
    """The precision that one unit of rho buys: 2 / the squared sensitivity."""
    return 2.0 / float(plan.sensitivity_squared)


def _bought(plan: Plan, precision: FloatArray) -> FloatArray:
    """The budgets that buy ``precision``. For Gaussian noise they are proportional to it (the variance of the discrete
    law is no larger). For discrete Laplace noise 1/p = 1 / (2 sinh^2(epsilon / 2 sensitivity)), in units of the grid.
    """
    if plan.noise.is_normal():
        return np.asarray(precision / _per_budget(plan))
    step = 2.0**-plan.released_grid_bits
    return np.asarray(2.0 * float(plan.sensitivity) / step * np.arcsinh(step * np.sqrt(precision / 2.0)))


def precision_of(plan: Plan, budgets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The precisions that ``budgets`` buy, and their derivatives; the inverse of `_bought`."""
    if plan.noise.is_normal():
        return budgets * _per_budget(plan), np.full(len(budgets), _per_budget(plan))
    step = 2.0**-plan.released_grid_bits
    unit = step / (2.0 * float(plan.sensitivity))
    x = unit * budgets
    return 2.0 * np.sinh(x) ** 2 / step**2, 2.0 * np.sinh(2.0 * x) * unit / step**2


def _price_slope(plan: Plan, precision: FloatArray) -> FloatArray:
    """The derivative of `_bought` for Laplace noise."""
    step = 2.0**-plan.released_grid_bits
    root = np.sqrt(precision / 2.0)
    return np.asarray(float(plan.sensitivity) / (2.0 * root * np.sqrt(1.0 + (step * root) ** 2)))


def _rounded(expected: Expected, budgets: Mapping[Key, float], left_out: float, targets: list[Target]) -> Plan:
    """The plan with exact shares and the smallest budget of four digits under which the targets hold.

    Raises `ConfigError` where a query that was left out is needed.
    """
    total = sum(budgets.values())
    kept = {key: b / total for key, b in budgets.items() if b >= left_out * total}
    parts = 10 ** max(_DIGITS, 2 - math.floor(math.log10(min(kept.values()))))
    shares = {key: max(1, round(share / sum(kept.values()) * parts)) for key, share in kept.items()}
    shares[max(shares, key=lambda key: shares[key])] += parts - sum(shares.values())
    exact = {key: Fraction(share, parts) for key, share in shares.items()}
    for level in expected.geography.levels:
        if level not in expected.plan.invariants and not any(where == level for where, _ in exact):
            exact[level, DETAILED] = Fraction(0)
    levels = expected.geography.levels
    exact = {key: exact[key] for key in sorted(exact, key=lambda key: levels.index(key[0]))}
    digits = _DIGITS - 1 - math.floor(math.log10(total))

    def plan_of(number: int) -> Plan:
        amount, shares = Fraction(number) / Fraction(10) ** digits, Shares.parse(exact)
        if expected.plan.is_pure:
            return replace(expected.plan, epsilon=amount, shares=shares)
        return replace(expected.plan, rho=amount, shares=shares)

    def holds(number: int) -> bool:
        judged = _judge(expected, plan_of(number))
        return all(_margin(judged, one) <= one.margin for one in targets)

    high = 10 ** (_DIGITS - 1)
    while not holds(high):
        if high > 100 * 10**_DIGITS:
            raise ConfigError("what is left out is needed")
        high *= 2
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return plan_of(high)


def _judge(expected: Expected, plan: Plan) -> Expected:
    return Expected.of(plan, expected.geography, expected.schema, areas=[*expected.areas.values()])


def _largest(expected: Expected, target: Target) -> float:
    """The largest standard deviation of a target's answers."""
    return float(np.sqrt(expected.answer_variances(target.level, target.query)[0].max()))


def _margin(expected: Expected, target: Target) -> float:
    return expected.margin(target.level, target.query, _largest(expected, target), target.confidence)[0]


def _require_determined(expected: Expected, targets: list[Target]) -> None:
    for one in targets:
        if not math.isfinite(_largest(expected, one)):
            raise ConfigError(
                f"target {shown(str(one))}: nothing that the plan measures determines query {shown(one.query)} at "
                f"level {shown(one.level)}; give it, or a finer query at or below the level, a share"
            )
