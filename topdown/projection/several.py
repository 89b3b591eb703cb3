"""Projecting measurements of several queries: histograms by least squares, and non-negative ones family by family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from topdown.errors import ConfigError, ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, Tree
from topdown.machine.parallel import thread_pool
from topdown.measurements.measurements import Answers, Measurements
from topdown.projection import information
from topdown.projection.certificate import SOLVER_TOLERANCE, TOLERANCE, Certificate, certify, require_certificate
from topdown.projection.components import Components
from topdown.projection.conditions import Conditions
from topdown.projection.estimate import Estimate
from topdown.projection.families import Check, Descent, Family, Solved, Sparse, descend
from topdown.projection.histograms import covariance as least_squares
from topdown.projection.invariants import Contradiction
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import Method
from topdown.projection.passes import Order, order_by_level, order_of
from topdown.projection.patterns import Patterns
from topdown.projection.upward_start import require_determined, start_of
from topdown.wording import shown
from topdown.workload import DETAILED, Query

EXACT = 1e-12
"""Part of the largest variance below which one is that of an exact value: rounding leaves some 1e-16."""


FAMILY_TOLERANCE = 1e-8
"""The largest residual of a non-negative family, in standard deviations of its own noise, beyond rounding: its
information matrix may have entries that differ by many orders of magnitude."""


def project_histograms(
    measurements: Measurements,
    method: Method,
    *,
    engine: str,
    weights: str,
    solver: str,
    solver_options: dict[str, Any],
) -> Estimate:
    """The histograms by ``method`` without x >= 0.

    Raises `ConfigError` for a method that has no solver of them, `ProjectionError` as `project` does.
    """
    own = method.for_histograms()
    geography, tree = measurements.geography, measurements.geography.tree
    measured = answers_by_level(measurements)
    weighted = [{q: _weighted(a, weights) for q, a in level.items()} for level in measured]
    measurements.schema.require_listable()
    components = Components(measurements.schema, tuple(dict.fromkeys(q for level in measured for q in level)))
    try:
        x, covariance = own.solve(tree, components, weighted)
    except Contradiction as contradiction:
        raise in_words(geography, contradiction) from None
    if engine == "cvxpy":
        from topdown.projection.histogram_reference import solve_histograms

        program = method.stated(own.program, weighted)
        x = solve_histograms(tree, measurements.schema, program, solver, solver_options)
    residuals = own.residuals(x, weighted, components, tree)
    tolerance = SOLVER_TOLERANCE if engine == "cvxpy" else TOLERANCE
    variances = np.concatenate([one.variance for level in weighted for one in level.values()])
    certificate = certify(x.T, residuals, variances, tree, nonnegative=False, tolerance=tolerance)
    require_certificate(certificate, geography, method.name, engine)
    known = weights == "variance" or _one_variance(measured)
    if known and weights != "variance":
        _, covariance = own.solve(tree, components, measured)
    detailed, everywhere = Query.parse(DETAILED, measurements.schema), slice(0, tree.n_nodes)
    # What exact answers settle is exact by every method, also by one that knows no covariance.
    settled = covariance or least_squares(tree, components, [_variances(level) for level in weighted], upward=True)
    of_cells = settled.variance(detailed, everywhere)
    return Estimate(
        geography=geography,
        cells=measurements.cells,
        values=x,
        variance=of_cells if known and covariance is not None else None,
        method=method.name,
        nonnegative=False,
        engine=engine,
        weights=weights,
        certificate=certificate,
        exact=of_cells < EXACT * np.nanmax(np.where(np.isfinite(of_cells), of_cells, 0.0), initial=1.0),
        fit_for_release=measurements.fit_for_release,
        attributes=measurements.attributes,
        covariance=covariance if known else None,
    )


def project_families(
    measurements: Measurements,
    method: Method,
    *,
    engine: str,
    weights: str,
    solver: str,
    solver_options: dict[str, Any],
    limits: AnswerLimits | None = None,
    upward: str | None = None,
    order: Order | None = None,
) -> Estimate:
    """Non-negative histograms from the root, family by family: with what was measured at every node, or where the
    method has an upward pass at and below it, from the level on that ``upward`` names; the answers to the queries of
    ``order`` first (`passes`).

    Raises `ConfigError` for a method that has no solver of families, `ProjectionError` as `project` does.
    """
    own = method.for_families()
    geography, n_cells = measurements.geography, len(measurements.cells)
    if engine == "cvxpy":
        from topdown.projection.family_reference import solve_by_cvxpy

        def by_cvxpy(family: Family) -> Solved:
            return solve_by_cvxpy(method.stated(own.program, family), solver=solver, options=solver_options)

        own = replace(own, solve=by_cvxpy)
    try:
        descent = descent_of(measurements, method, weights, limits, upward, order)
        with thread_pool(None) as pool:
            found, checks = descend(descent, own, pool)
    except Contradiction as contradiction:
        raise in_words(geography, contradiction) from None
    values = dense(found, n_cells)
    tolerance = SOLVER_TOLERANCE if engine == "cvxpy" else FAMILY_TOLERANCE
    certificate = certificate_of(checks, measurements, float(values.max(initial=0.0)), tolerance)
    require_certificate(certificate, geography, method.name, engine)
    return Estimate(
        geography=geography,
        cells=measurements.cells,
        values=values,
        variance=None,
        method=method.name,
        nonnegative=True,
        engine=engine,
        weights=weights,
        certificate=certificate,
        exact=descent.conditions.exact(measurements.schema),
        fit_for_release=measurements.fit_for_release,
        attributes=measurements.attributes,
        upward=upward,
        order=order_by_level(geography.levels, descent.order),
    )


def descent_of(
    measurements: Measurements,
    method: Method,
    weights: str,
    limits: AnswerLimits | None = None,
    upward: str | None = None,
    order: Order | None = None,
) -> Descent:
    """What the way down needs of measurements.

    ``upward``: where the upward pass starts (`upward_start`). ``order``: the queries that are settled first (`passes`).
    Raises `Contradiction` for exact answers and limits that cannot be, `ConfigError` for an ``upward`` or an ``order``
    that makes no sense.
    """
    levels = measurements.geography.levels
    start = start_of(levels, method, upward)
    measured = [{q: _weighted(a, weights) for q, a in level.items()} for level in answers_by_level(measurements)]
    patterns = Patterns(measurements.schema, tuple(dict.fromkeys(q for level in measured for q in level)))
    if upward is not None:
        require_determined(levels, measured, start)
    asked = [{q: bool((a.variance == 0).all()) for q, a in level.items()} for level in measured]
    settled = order_of(levels, asked, measurements.schema, method, order)
    return descent_of_answers(measurements.geography.tree, measured, patterns, start, limits, settled)


def descent_of_answers(
    tree: Tree,
    measured: list[dict[Query, Answers]],
    patterns: Patterns,
    start: int,
    limits: AnswerLimits | None = None,
    order: Sequence[tuple[Query, ...]] = (),
) -> Descent:
    """`descent_of` from answers level by level, with one variance per node; ``patterns``: of all their queries,
    ``start``: the number of the level where the upward pass starts."""
    known = information.known(tree, measured, patterns, start)
    conditions = Conditions.of(tree, measured, None if limits is None else limits.by_query)
    return Descent(tree, known, conditions, patterns, patterns.schema.possible_cells(), tree.leaf_counts, order)


def dense(histograms: list[Sparse], n_cells: int) -> FloatArray:
    """Histograms as an array (nodes x cells)."""
    values = np.zeros((n_cells, len(histograms))).T
    for node, (cells, counts) in enumerate(histograms):
        values[node, cells] = counts
    return values


def certificate_of(
    checks: list[Check], measurements: Measurements, scale: float, tolerance: float = FAMILY_TOLERANCE
) -> Certificate:
    """The certificate of histograms, of which ``scale`` is the largest number, from the checks of all families, the
    root's first."""
    return certificate_of_checks(checks, answers_by_level(measurements), scale, tolerance)


def certificate_of_checks(
    checks: list[Check], measured: list[dict[Query, Answers]], scale: float, tolerance: float = FAMILY_TOLERANCE
) -> Certificate:
    """As `certificate_of`, of histograms of what was ``measured`` at some levels of a tree."""
    gap, rounding, deviation = (np.concatenate([getattr(c, part) for c in checks]) for part in Check._fields[:3])
    variances = np.concatenate([one.variance for level in measured for one in level.values()])
    noise = np.sqrt(variances[np.isfinite(variances)].max(initial=0.0))
    worst = [
        (float(beyond), node) for node, beyond in enumerate(np.maximum(gap - rounding, 0.0) / deviation) if beyond > 0
    ]
    # A sum that is off by more than rounding has no unit in which it might be small.
    worst += [(np.inf, parent) for parent, check in enumerate(checks[1:]) if not check.off <= check.allowed]
    deviations, node = max(worst, default=(0.0, 0))
    return Certificate(
        consistency=max((check.off for check in checks[1:]), default=0.0),
        most_negative=0.0,
        kkt=float(gap.max()),
        scale=scale,
        noise=float(noise),
        deviations=deviations,
        worst_node=node,
        tolerance=tolerance,
    )


def in_words(geography: Geography, contradiction: Contradiction) -> ProjectionError:
    """A contradiction as an error that names its node."""
    return ProjectionError(
        f"{geography.describe(contradiction.node)}: {contradiction}; correct the exact answers, or give them a "
        "variance above 0"
    )


def answers_by_level(measurements: Measurements) -> list[dict[Query, Answers]]:
    """What was measured, level by level, with a variance per node. Raises `ConfigError` for one per answer."""
    found = []
    for level in measurements.geography.levels:
        entries = {}
        for query, one in measurements.at(level).items():
            variance = one.variance
            if variance.ndim == 2:
                if (variance != variance[:, :1]).any():
                    raise ConfigError(
                        f"level {shown(level)}, query {shown(query.name)}: the answers of a node have different "
                        "variances, and several queries are combined with one variance per node and "
                        "query; give every query's own"
                    )
                variance = variance[:, 0]
            # Whole numbers stay as they are: as floating-point numbers they would be held twice.
            entries[query] = Answers(one.values, np.asarray(variance, dtype=np.float64))
        found.append(entries)
    return found


def _variances(level: dict[Query, Answers]) -> dict[Query, FloatArray]:
    return {query: one.variance for query, one in level.items()}


def _weighted(one: Answers, weights: str) -> Answers:
    if weights == "variance":
        return one
    noisy = (one.variance > 0) & np.isfinite(one.variance)
    return Answers(one.values, np.where(noisy, 1.0, one.variance))


def _one_variance(measured: list[dict[Query, Answers]]) -> bool:
    """Whether uniform weights are those of the variances: all finite positive variances are the same."""
    noisy = [one.variance for level in measured for one in level.values()]
    values = np.concatenate(noisy)
    values = values[(values > 0) & np.isfinite(values)]
    return bool(values.size == 0 or (values == values[0]).all())
