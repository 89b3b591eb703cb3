"""Projecting measurements of several queries: least squares on histograms."""

from __future__ import annotations

from typing import Any

import numpy as np

from topdown.errors import ConfigError, ProjectionError
from topdown.measurements import Answers, Measurements
from topdown.noise.exact import LARGEST_WHOLE
from topdown.projection.certificate import SOLVER_TOLERANCE, TOLERANCE, certify
from topdown.projection.components import Components
from topdown.projection.estimate import Estimate
from topdown.projection.histogram_certificate import histogram_optimality
from topdown.projection.histograms import solve
from topdown.projection.invariants import Contradiction
from topdown.wording import shown
from topdown.workload import DETAILED, Query

EXACT = 1e-12
"""Part of the largest variance below which one is that of an exact value: rounding leaves some 1e-16."""


def project_histograms(
    measurements: Measurements,
    method: str,
    *,
    upward: bool,
    engine: str,
    weights: str,
    solver: str,
    solver_options: dict[str, Any],
) -> Estimate:
    """The least-squares histograms, x >= 0 left out: the whole tree (``upward``), or family by family from the root.

    Raises `ProjectionError` as `project` does.
    """
    geography, tree = measurements.geography, measurements.geography.tree
    measured = _answers(measurements)
    weighted = [{q: _weighted(a, weights) for q, a in level.items()} for level in measured]
    components = Components(measurements.schema, tuple(dict.fromkeys(q for level in measured for q in level)))
    try:
        x, covariance = solve(tree, components, weighted, upward=upward)
    except Contradiction as contradiction:
        raise ProjectionError(
            f"{geography.describe(contradiction.node)}: {contradiction}; correct the exact answers, or give them a "
            "variance above 0"
        ) from None
    if engine == "cvxpy":
        from topdown.projection.histogram_reference import solve_histograms

        x = solve_histograms(tree, measurements.schema, weighted, solver, solver_options, upward=upward)
    residuals = histogram_optimality(x, weighted, components, tree, upward=upward)
    tolerance = SOLVER_TOLERANCE if engine == "cvxpy" else TOLERANCE
    variances = np.concatenate([one.variance for level in weighted for one in level.values()])
    certificate = certify(x.T, residuals, variances, tree, nonnegative=False, tolerance=tolerance)
    if not certificate.holds() or certificate.scale > LARGEST_WHOLE:
        raise ProjectionError(
            f"{method} by {engine}: the certificate does not hold at {geography.describe(certificate.worst_node)}: "
            f"sums off by {certificate.consistency:.3g}, optimality off by {certificate.kkt:.3g}, "
            f"{certificate.deviations:.3g} of the node's own standard deviations; "
            + ("take engine='tree', another solver or tighter options" if engine == "cvxpy" else "please report this")
        )
    known = weights == "variance" or _one_variance(measured)
    if known and weights != "variance":
        _, covariance = solve(tree, components, measured, upward=upward)
    of_cells = covariance.variance(Query.parse(DETAILED, measurements.schema), slice(0, tree.n_nodes))
    return Estimate(
        geography=geography,
        cells=measurements.cells,
        values=x,
        variance=of_cells if known else None,
        method=method,
        nonnegative=False,
        engine=engine,
        weights=weights,
        certificate=certificate,
        exact=of_cells < EXACT * np.nanmax(np.where(np.isfinite(of_cells), of_cells, 0.0), initial=1.0),
        fit_for_release=measurements.fit_for_release,
        attributes=measurements.attributes,
        covariance=covariance if known else None,
    )


def _answers(measurements: Measurements) -> list[dict[Query, Answers]]:
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
            entries[query] = Answers(np.asarray(one.values, dtype=np.float64), np.asarray(variance, dtype=np.float64))
        found.append(entries)
    return found


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
