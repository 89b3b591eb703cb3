"""A plan for the total alone, derived from a plan of many queries whose cells are too many for a release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from topdown.geography.tree import FloatArray
from topdown.privacy.plan import MEASURE, Plan
from topdown.privacy.plan_inputs import invariant_queries
from topdown.privacy.presets import Preset
from topdown.projection.histograms.components import Components
from topdown.workload import Query

_PARTS = 10**9
"""The budget of a level's total is a multiple of this fraction."""


def plan_of_total(
    preset: Preset,
    levels: Sequence[str],
    *,
    invariants: Iterable[str] | Mapping[str, Iterable[str]] = (),
    only_child: str = MEASURE,
) -> Plan:
    """A plan of one count, a unit's total, with the same variance at every level as the total has under ``preset``.

    This is the variance of the best unbiased estimate of a unit's total from its own measurements under ``preset``,
    1'(sum over queries of A'A / variance)^-1 1, without the queries of a second histogram. The errors of least squares
    of these totals are not smaller than those of least squares of all measurements. ``invariants``: the levels at which
    the total is exact.

    Raises as `Preset.plan`.
    """
    whole, single = invariant_queries(invariants)
    exact = list(dict.fromkeys([*whole, *(level for level, _ in single)]))
    plan = preset.plan(levels, only_child=only_child)
    names = dict.fromkeys(query for of_level in preset.shares.values() for query in of_level)
    queries = {name: Query.parse(name, preset.schema) for name in names if name not in preset.beside}
    components = Components(preset.schema, tuple(queries.values()))
    told = dict[str, FloatArray]()
    for name, query in queries.items():
        rows = components.within_design(query, ())
        told[name] = rows.T @ rows
    total = components.within_design(Query.parse("total", preset.schema), ())[0]
    budgets = dict[str, Fraction]()
    for level in levels:
        measured = [name for name in plan.queries(level) if name in told and plan.share(level, name)]
        budgets[level] = Fraction(0)
        if measured and level not in exact:
            known = sum(told[name] / float(plan.sigma2(level, name)) for name in measured)
            variance = float(total @ np.linalg.solve(known, total))
            bought = float(plan.sensitivity_squared) / (2.0 * variance)
            budgets[level] = Fraction(round(bought * _PARTS), _PARTS)
    rho = sum(budgets.values(), Fraction(0))
    return Plan(
        plan.mechanism,
        rho=rho,
        shares={level: budget / rho for level, budget in budgets.items() if level not in exact},
        neighbours=plan.neighbours,
        unit=plan.unit,
        invariants=exact,
        only_child=only_child,
    )
