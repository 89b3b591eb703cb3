"""project(): from measurements to consistent estimates, by the method and the engine that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, ProjectionError, require_known
from topdown.geography import Geography
from topdown.measurements import Measurements
from topdown.noise.exact import LARGEST_WHOLE
from topdown.projection.certificate import SOLVER_TOLERANCE, TOLERANCE, Certificate, certify, worst_of
from topdown.projection.equality import (
    downward,
    downward_variance,
    family_gains,
    least_squares,
    least_squares_variance,
    measured_or_zero,
    open_leaves,
    upward,
    upward_gains,
)
from topdown.projection.estimate import Estimate
from topdown.projection.invariants import Contradiction, lower_bounds, settle
from topdown.projection.nonnegative import downward_nonnegative, project_tree
from topdown.projection.optimality import FINE, Residuals, family_optimality, tree_optimality
from topdown.projection.problem import Problem, cell_of
from topdown.projection.several import project_histograms
from topdown.tree import FloatArray


def top_down(problem: Problem) -> FloatArray:
    """The root first, then family by family: min sum (x_c - y_c)^2 / v_c s.t. sum x_c = x_parent [, x >= 0].

    Source: the programs (P) and (P+) of Zhu, Van Hentenryck, Fioretto, *Bias and Variance of Post-processing in
    Differential Privacy*, level by level.
    """
    values, variance, tree, nonnegative, lower = problem
    if nonnegative:
        return downward_nonnegative(measured_or_zero(values, variance), variance, tree, lower)
    return downward(measured_or_zero(values, variance), family_gains(variance, tree), tree)


def gls(problem: Problem) -> FloatArray:
    """Generalised least squares on the whole tree: min sum (x_i - y_i)^2 / v_i s.t. every family adds up."""
    return least_squares(problem.values, problem.variance, problem.tree)


def upward_pass(problem: Problem) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Every node's best estimate from what was measured at and below it, its variance (inf where undetermined), and
    the numbers of unmeasured leaves that leave it so.
    """
    values, variance, tree = problem.values, problem.variance, problem.tree
    gains = upward_gains(variance, tree)
    z = upward(measured_or_zero(values, variance), gains, tree)
    open_ends = open_leaves(variance, tree)
    return z, gains.variance if open_ends is None else np.where(open_ends > 0, np.inf, gains.variance), open_ends


def gls_top_down(problem: Problem) -> FloatArray:
    """The upward pass of `gls`, then `top_down` from its estimates and variances; without x >= 0 the same as `gls`."""
    if not problem.nonnegative:
        return gls(problem)
    z, u, open_ends = upward_pass(problem)
    return downward_nonnegative(z, u, problem.tree, problem.lower, open_ends)


def joint(problem: Problem) -> FloatArray:
    """min over the whole tree of sum (x_i - y_i)^2 / v_i s.t. every family adds up [, x >= 0]; without, `gls`."""
    return project_tree(problem.values, problem.variance, problem.tree) if problem.nonnegative else gls(problem)


METHODS: dict[str, Callable[[Problem], FloatArray]] = {
    "top-down": top_down,
    "gls": gls,
    "gls-top-down": gls_top_down,
    "joint": joint,
}

WEIGHTS = ("variance", "uniform")
ENGINES = ("tree", "cvxpy")


def project(
    measurements: Measurements,
    method: str = "top-down",
    *,
    nonnegative: bool | None = None,
    engine: str = "tree",
    weights: str = "variance",
    solver: str = "OSQP",
    solver_options: dict[str, Any] | None = None,
) -> Estimate:
    """The consistent values nearest to the measurements, in the sense of ``method``.

    ``method``: "top-down" (family by family from the root), "gls" (whole tree, unbiased, no non-negativity),
    "gls-top-down" (the upward pass of gls, then family by family), "joint" (whole tree). ``nonnegative``: with x >= 0;
    by default wherever the method has it. ``engine``: "tree" (exact, vectorised) or "cvxpy" (the same program stated in
    cvxpy and given to ``solver``, any that is installed, with ``solver_options``). ``weights``: "variance" weighs by
    1 / variance, "uniform" alike (what is exact stays exact and what was not measured stays out).

    Returns an `Estimate` whose certificate was computed from the program. Raises `ConfigError` for an unknown name,
    `ProjectionError` naming the node when exact values contradict each other, when a solver fails, or when it says that
    it succeeded and the certificate does not hold.
    """
    require_known(method, METHODS, "method")
    require_known(engine, ENGINES, "engine")
    require_known(weights, WEIGHTS, "weights")
    if method == "gls" and nonnegative:
        raise ConfigError(
            "method 'gls' is unbiased because it allows negative values; for non-negative ones take 'gls-top-down' or "
            "'joint'"
        )
    nonnegative = method != "gls" if nonnegative is None else nonnegative
    if measurements.others:
        if nonnegative:
            raise ConfigError(
                f"{len({query for _, query in measurements.keys})} queries were measured, and x >= 0 is there for the "
                "detailed query alone; project with nonnegative=False"
            )
        return project_histograms(
            measurements,
            method,
            upward=method != "top-down",
            engine=engine,
            weights=weights,
            solver=solver,
            solver_options=solver_options or {},
        )
    geography, n_cells = measurements.geography, len(measurements.cells)
    values = np.empty((n_cells, geography.n_nodes))
    parts = []
    for cells in geography.tree.blocks(n_cells):
        problem = stated(measurements, weights, nonnegative=nonnegative, cells=cells)
        if engine == "cvxpy":
            from topdown.projection import reference

            x = reference.solve(problem, method, solver, solver_options or {})
        else:
            x = METHODS[method](problem)
        values[cells] = x
        tolerance = SOLVER_TOLERANCE if engine == "cvxpy" else TOLERANCE
        parts.append(_part(measurements, cells, problem, certified(problem, x, method, tolerance), method, weights))
    certificate = worst_of([part.certificate for part in parts])
    # A variance by node is the same for every cell.
    parts = parts if measurements.node_variance.ndim == 2 else parts[:1]
    _require_certificate(certificate, geography, method, engine)
    shape = (geography.n_nodes, n_cells)
    variance = _all_cells([part.variance for part in parts])
    return Estimate(
        geography=geography,
        cells=measurements.cells,
        values=values.T,
        variance=None if variance is None else np.broadcast_to(variance, shape),
        method=method,
        nonnegative=nonnegative,
        engine=engine,
        weights=weights,
        certificate=certificate,
        exact=np.broadcast_to(_all_cells([part.exact for part in parts]), shape),
        fit_for_release=measurements.fit_for_release,
        attributes=measurements.attributes,
    )


def stated(measurements: Measurements, weights: str, *, nonnegative: bool, cells: slice = slice(None)) -> Problem:
    """Measurements of some cells as a kernel's input: cells first, exact values settled, weights as asked.

    Raises `ProjectionError` naming the node when exact values contradict each other.
    """
    geography = measurements.geography
    values = np.ascontiguousarray(measurements.values.T[cells], dtype=np.float64)
    variance = _of_cells(measurements.node_variance, cells)
    if weights == "uniform":
        variance = np.where((variance > 0) & np.isfinite(variance), 1.0, variance)
    try:
        values, variance = settle(values, variance, geography.tree, nonnegative=nonnegative)
    except Contradiction as contradiction:
        raise ProjectionError(
            f"{geography.describe(contradiction.node)}: {contradiction}; correct the exact values, or give them a "
            "variance above 0"
        ) from None
    lower = lower_bounds(values, variance, geography.tree) if nonnegative else None
    return Problem(values, variance, geography.tree, nonnegative, lower)


class _Part(NamedTuple):
    """What is kept of a block of cells beside its values; ``variance`` and ``exact`` (nodes, 1) or (nodes, cells)."""

    certificate: Certificate
    variance: FloatArray | None
    exact: npt.NDArray[np.bool_]


def _part(
    measurements: Measurements, cells: slice, problem: Problem, certificate: Certificate, method: str, weights: str
) -> _Part:
    variance = None
    if not problem.nonnegative and (cells.start == 0 or problem.variance.ndim == 2):
        variance = _variance(problem, _of_cells(measurements.node_variance, cells), method, weights)
    return _Part(certificate, None if variance is None else _by_node(variance), _by_node(problem.variance == 0))


def _require_certificate(certificate: Certificate, geography: Geography, method: str, engine: str) -> None:
    if not certificate.holds() or certificate.scale > LARGEST_WHOLE:
        raise ProjectionError(
            f"{method} by {engine}: the certificate does not hold at {geography.describe(certificate.worst_node)}: "
            f"sums off by {certificate.consistency:.3g}, most negative {certificate.most_negative:.3g}, optimality off "
            f"by {certificate.kkt:.3g}, {certificate.deviations:.3g} of the node's own standard deviations; "
            + ("take engine='tree', another solver or tighter options" if engine == "cvxpy" else "please report this")
        )


def _of_cells(variance: FloatArray, cells: slice) -> FloatArray:
    """(nodes,), or of (nodes, cells) those of some cells, cells first."""
    return np.ascontiguousarray(variance.T[cells]) if variance.ndim == 2 else variance


def _all_cells(parts: Sequence[Any]) -> Any:
    """Arrays (nodes, cells of a block) side by side; None where one is None."""
    return None if any(part is None for part in parts) else np.concatenate(parts, axis=1)


def certified(problem: Problem, x: FloatArray, method: str, tolerance: float = TOLERANCE) -> Certificate:
    """The certificate of ``x`` (cells x nodes) as the solution of ``method``'s program, cell by cell."""
    return worst_of([_certified(cell_of(problem, cell), x[cell], method, tolerance) for cell in range(len(x))])


def _certified(problem: Problem, x: FloatArray, method: str, tolerance: float) -> Certificate:
    """The certificate of one cell: as what is optimal to rounding, or else as what a solver found to its tolerance."""
    for slack in (FINE, tolerance / 2):
        residuals = _residuals(problem, x, method, slack)
        certificate = certify(
            x, residuals, problem.variance, problem.tree, nonnegative=problem.nonnegative, tolerance=tolerance
        )
        if certificate.holds():
            break
    return certificate


def _residuals(problem: Problem, x: FloatArray, method: str, slack: float) -> Residuals:
    values, variance, tree, nonnegative, lower = problem
    if method == "top-down":
        return family_optimality(x, values, variance, tree, lower, nonnegative=nonnegative, slack=slack)
    if method != "gls-top-down" or not nonnegative:
        return tree_optimality(x, values, variance, tree, nonnegative=nonnegative, slack=slack)
    z, u, _ = upward_pass(problem)
    found = family_optimality(x, z, u, tree, lower, nonnegative=True, slack=slack)
    # The upward pass is the program's own statement; what is exact is so by the measurements.
    exact = variance == 0
    inner = slice(0, tree.n_families)
    found.gap[exact] = np.maximum(found.gap, np.abs(x - values))[exact]
    found.rounding[inner] += np.where(exact[inner], found.sums, 0.0)
    return found


def _by_node(array: Any) -> Any:
    """(nodes,) or (cells, nodes) as (nodes, 1) or (nodes, cells)."""
    return array[:, None] if array.ndim == 1 else array.T


def _variance(problem: Problem, true: FloatArray, method: str, weights: str) -> FloatArray | None:
    """The estimate's variance, where it has a closed form: with weights 1 / variance."""
    if weights == "uniform" and not _same_weights(problem.variance, true):
        return None
    settled = np.where(problem.variance == 0, 0.0, true)
    if method == "top-down":
        return downward_variance(settled, family_gains(settled, problem.tree), problem.tree)
    return least_squares_variance(settled, problem.tree)


def _same_weights(variance: FloatArray, true: FloatArray) -> bool:
    """Whether uniform weights are those of the variances: all finite positive variances are the same."""
    noisy = (variance > 0) & np.isfinite(variance)
    values = np.broadcast_to(true, noisy.shape)[noisy]
    return bool(values.size == 0 or (values == values[0]).all())
