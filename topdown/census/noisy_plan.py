"""Finds the plan under which the measurements of noisy measurement files were drawn, from their variances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from topdown.census.layouts import noisy_layout as layout
from topdown.errors import DataError, TopdownError
from topdown.geography.geography import Geography
from topdown.measurements.measurements import Answers, Measurements
from topdown.privacy.mechanism import MECHANISMS
from topdown.privacy.plan import MOVE_UP, Plan
from topdown.privacy.presets import PRESETS
from topdown.privacy.shares import Shares
from topdown.privacy.single_child_units import variances
from topdown.release.manifest import MALFORMED
from topdown.workload import DETAILED, Query
from topdown.workload.redistricting import WHOLE_STATE

_ROUNDING = 1e-6
"""The relative error of a variance with 32 bits."""


def with_plan(
    measurements: Measurements, product: layout.Product, run: str, own: Mapping[str, Any] | None
) -> Measurements:
    """``measurements`` with the plan under which they were drawn, and its exact variances.

    ``own``: Topdown's metadata; without it the plan is that of the production ``run``, if all variances are those of
    the run, where single children are not measured. Raises `DataError` for a plan with other variances.
    """
    if own is None:
        plan = _of_production(measurements, product, run)
        return replace(measurements, mechanism=layout.MECHANISM) if plan is None else _under(measurements, plan)
    try:
        named = {layout_name: str(name) for layout_name, name in own["levels"].items()}
        whole = measurements.geography
        levels = tuple(_own_name(level, named) for level in whole.levels)
        geography = Geography(levels, whole.tree, whole.identifiers, whole.names)
        others = {(_own_name(level, named), query): one for (level, query), one in measurements.others.items()}
        found = replace(
            measurements, geography=geography, others=others, fit_for_release=own["fit_for_release"] is True
        )
        plan = None if own["plan"] is None else Plan.from_dict(own["plan"])
        if plan is None and own["mechanism"] is not None:
            found = replace(found, mechanism=MECHANISMS[own["mechanism"]].name)
    except MALFORMED:
        raise DataError("what Topdown wrote into the files' metadata is damaged; export them again") from None
    if plan is None:
        return found
    if not _is_of(found, plan):
        raise DataError("the variances are not those of the plan in the files' metadata; export them again")
    return _under(found, plan)


def _own_name(level: str, named: Mapping[str, str]) -> str:
    return named.get(layout.LEVELS.get(level, level), level)


def _of_production(measurements: Measurements, product: layout.Product, run: str) -> Plan | None:
    """The plan of the production run with these variances, for these levels; None where there is none."""
    levels = measurements.geography.levels
    exact = {
        level: [query.name for query, one in measurements.at(level).items() if (one.variance == 0).all()]
        for level in levels
    }
    known = [level for level in levels if level != WHOLE_STATE]
    try:
        plan = PRESETS[product.presets[run]].plan(
            known, invariants={level: exact[level] for level in known if exact[level]}, only_child=MOVE_UP
        )
    except TopdownError:
        return None
    if levels[0] not in known:
        plan = _with_level_above(plan, levels[0], exact[levels[0]])
    return plan if _is_of(measurements, plan) else None


def _with_level_above(plan: Plan, level: str, exact: list[str]) -> Plan:
    """``plan`` with a level of which nothing is measured, and the queries ``exact`` are published exactly."""
    assert plan.shares is not None  # nosec B101 # narrows a type: presets have shares
    none = () if exact else (((level, DETAILED), Fraction(0)),)
    single = tuple((level, query) for query in exact)
    return replace(plan, shares=Shares(none + plan.shares.items_), exact_queries=single + plan.exact_queries)


def _is_of(measurements: Measurements, plan: Plan) -> bool:
    """Whether the measurements have the plan's queries and, but for rounding, its variances."""
    geography = measurements.geography
    if set(plan.levels) != set(geography.levels):
        return False
    for level in geography.levels:
        there = {query.name: one.variance for query, one in measurements.at(level).items()}
        for query in {*plan.queries(level), *there}:
            if query not in plan.queries(level):
                return False
            expected = variances(plan, geography, level, query)
            found = there.get(query, np.full(len(expected), np.inf))
            measured = np.isfinite(expected)
            if (measured != np.isfinite(found)).any():
                return False
            if (np.abs(found[measured] - expected[measured]) > _ROUNDING * expected[measured]).any():
                return False
    return True


def _under(measurements: Measurements, plan: Plan) -> Measurements:
    """``measurements`` with the plan, its exact variances, and its order of queries."""
    geography = measurements.geography
    others: dict[tuple[str, str], Answers] = {}
    spread = np.full(geography.n_nodes, np.inf)
    for level in geography.levels:
        for query in plan.queries(level):
            variance = variances(plan, geography, level, query)
            if query == DETAILED:
                spread[geography.level_slice(level)] = variance
            else:
                # A level with only single children has no measurements.
                nothing = np.zeros((len(variance), Query.parse(query, measurements.schema).n_answers), np.int64)
                known = measurements.others.get((level, query))
                others[level, query] = Answers(nothing if known is None else known.values, variance)
    return replace(measurements, plan=plan, node_variance=spread, others=others)
