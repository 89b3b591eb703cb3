"""project(): from measurements to consistent estimates, by the method and the engine that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, ProjectionError, require_known
from topdown.geography.tree import FloatArray
from topdown.measurements.measurements import Measurements
from topdown.projection.certificate import (
    SOLVER_TOLERANCE,
    TOLERANCE,
    Certificate,
    certify,
    require_certificate,
    worst_of,
)
from topdown.projection.estimate import Estimate
from topdown.projection.invariants import Contradiction, lower_bounds, require_zeros, settle
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import CellSolver, Method, method_named, nonnegative_methods
from topdown.projection.optimality import FINE
from topdown.projection.passes import Order
from topdown.projection.problem import Problem, cell_of
from topdown.projection.several import project_families, project_histograms
from topdown.wording import shown

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
    limits: AnswerLimits | None = None,
    upward: str | None = None,
    order: Order | None = None,
) -> Estimate:
    """The consistent values nearest to the measurements, in the sense of ``method``.

    ``method``: "top-down" (family by family from the root), "gls" (whole tree, unbiased, no non-negativity),
    "gls-top-down" (the upward pass of gls, then family by family), "joint" (whole tree). ``nonnegative``: with x >= 0;
    by default wherever the method has it. ``engine``: "tree" (exact, vectorised) or "cvxpy" (the same program stated in
    cvxpy and given to ``solver``, any that is installed, with ``solver_options``). ``weights``: "variance" weighs by
    1 / variance, "uniform" alike (what is exact stays exact and what was not measured stays out). ``limits``: of
    queries' answers by node, which the estimate keeps; by the methods that go by families. ``upward``: "from LEVEL",
    of "gls-top-down" with x >= 0 and several queries, the level where its upward pass starts: what is measured below it
    then serves to share out its counts and tells nothing of them. From the leaves where it is left out. ``order``: of
    "top-down" and "gls-top-down" with x >= 0 and several queries, the names of those that are settled first, one after
    the other, in the families of every level, or by level: x >= 0 is asked of a query's answers alone, and these are
    kept when the next is settled. ``[]`` settles all at once. Where it is left out the total goes first at the root, if
    it is measured there and not exact: at once x >= 0 over many empty cells lifts it.

    Returns an `Estimate` whose certificate was computed from the program. Raises `ConfigError` for an unknown name,
    `ProjectionError` naming the node when exact values contradict each other or the schema's zeros, when a solver
    fails, or when it says that it succeeded and the certificate does not hold.
    """
    chosen = method_named(method)
    require_known(engine, ENGINES, "engine")
    require_known(weights, WEIGHTS, "weights")
    if nonnegative and not chosen.nonnegative:
        raise ConfigError(
            f"method {method!r} has no x >= 0 ({chosen.words}); for non-negative values take "
            f"{' or '.join(map(repr, nonnegative_methods()))}"
        )
    nonnegative = chosen.nonnegative if nonnegative is None else nonnegative
    if limits is not None and not nonnegative:
        raise ConfigError("limits are kept where x >= 0 is; project with nonnegative=True, or leave limits out")
    require_zeros(measurements)
    options = solver_options or {}
    if upward is not None and not (nonnegative and (measurements.others or limits is not None)):
        raise ConfigError(
            f"upward = {shown(upward)} is for non-negative histograms of several queries, or within limits, which are "
            "made family by family; leave upward out"
        )
    if order and not (nonnegative and (measurements.others or limits is not None)):
        raise ConfigError(
            f"order = {shown(order)} is for non-negative histograms of several queries, or within limits, which "
            "are made family by family; leave order out"
        )
    if nonnegative and (measurements.others or limits is not None):
        return project_families(
            measurements,
            chosen,
            engine=engine,
            weights=weights,
            solver=solver,
            solver_options=options,
            limits=limits,
            upward=upward,
            order=order,
        )
    if measurements.others:
        return project_histograms(
            measurements, chosen, engine=engine, weights=weights, solver=solver, solver_options=options
        )
    return _project_cells(measurements, chosen, nonnegative, engine, weights, solver, options)


def _project_cells(
    measurements: Measurements,
    method: Method,
    nonnegative: bool,
    engine: str,
    weights: str,
    solver: str,
    options: dict[str, Any],
) -> Estimate:
    """`project` where the cells alone were measured: block by block, and nothing for a cell that is impossible."""
    own = method.for_cells()
    geography, shape = measurements.geography, (measurements.geography.n_nodes, len(measurements.cells))
    blocks = list(measurements.blocks())
    values = np.zeros(shape[::-1])
    parts: list[_Part] = []
    certificates = []
    for cells in blocks:
        problem = stated(measurements, weights, nonnegative=nonnegative, cells=cells)
        if engine == "cvxpy":
            from topdown.projection import reference

            x = reference.solve(problem, method, solver, options)
        else:
            x = own.solve(problem)
        if len(x) == shape[1]:
            values = x
        else:
            values[cells] = x
        tolerance = SOLVER_TOLERANCE if engine == "cvxpy" else TOLERANCE
        certificates.append(certified(problem, x, own, tolerance))
        # A variance by node is the same for every cell.
        if not parts or measurements.node_variance.ndim == 2:
            parts.append(_part(measurements, cells, problem, own, weights))
    certificate = worst_of(certificates)
    require_certificate(certificate, geography, method.name, engine)
    variances = [part.variance for part in parts]
    unknown = any(one is None for one in variances)
    return Estimate(
        geography=geography,
        cells=measurements.cells,
        values=values.T,
        variance=None if unknown else _of_all_cells(variances, blocks, shape, impossible=0.0),
        method=method.name,
        nonnegative=nonnegative,
        engine=engine,
        weights=weights,
        certificate=certificate,
        exact=_of_all_cells([part.exact for part in parts], blocks, shape, impossible=True),
        fit_for_release=measurements.fit_for_release,
        attributes=measurements.attributes,
    )


def stated(measurements: Measurements, weights: str, *, nonnegative: bool, cells: Any = slice(None)) -> Problem:
    """Measurements of some cells, a slice or their numbers, as a kernel's input: cells first, exact values settled,
    weights as asked.

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

    variance: FloatArray | None
    exact: npt.NDArray[np.bool_]


def _part(measurements: Measurements, cells: slice, problem: Problem, own: CellSolver, weights: str) -> _Part:
    variance = None
    if not problem.nonnegative:
        variance = _variance(problem, _of_cells(measurements.node_variance, cells), own, weights)
    return _Part(None if variance is None else _by_node(variance), _by_node(problem.variance == 0))


def _of_cells(variance: FloatArray, cells: Any) -> FloatArray:
    """(nodes,), or of (nodes, cells) those of some cells, cells first."""
    return np.ascontiguousarray(variance.T[cells]) if variance.ndim == 2 else variance


def _of_all_cells(parts: Sequence[Any], blocks: Sequence[slice], shape: tuple[int, int], impossible: Any) -> Any:
    """What is known of ``blocks`` of cells, each (nodes, 1) or (nodes, cells of the block), one for all of them or one
    for each, and what is true of the cells that are in none: (nodes, cells)."""
    if sum(cells.stop - cells.start for cells in blocks) == shape[1]:
        return np.broadcast_to(np.concatenate(parts, axis=1), shape)
    found = np.full(shape, impossible)
    for number, cells in enumerate(blocks):
        found[:, cells] = parts[min(number, len(parts) - 1)]
    return found


def certified(problem: Problem, x: FloatArray, own: CellSolver, tolerance: float = TOLERANCE) -> Certificate:
    """The certificate of ``x`` (cells x nodes) as the solution of a method's own program, cell by cell."""
    return worst_of([_certified(cell_of(problem, cell), x[cell], own, tolerance) for cell in range(len(x))])


def _certified(problem: Problem, x: FloatArray, own: CellSolver, tolerance: float) -> Certificate:
    """The certificate of one cell: as what is optimal to rounding, or else as what a solver found to its tolerance."""
    for slack in (FINE, tolerance / 2):
        residuals = own.residuals(problem, x, slack)
        certificate = certify(
            x, residuals, problem.variance, problem.tree, nonnegative=problem.nonnegative, tolerance=tolerance
        )
        if certificate.holds():
            break
    return certificate


def _by_node(array: Any) -> Any:
    """(nodes,) or (cells, nodes) as (nodes, 1) or (nodes, cells)."""
    return array[:, None] if array.ndim == 1 else array.T


def _variance(problem: Problem, true: FloatArray, own: CellSolver, weights: str) -> FloatArray | None:
    """The estimate's variance, where it has a closed form: with weights 1 / variance."""
    if own.variance is None or (weights == "uniform" and not _same_weights(problem.variance, true)):
        return None
    exact = problem.variance == 0
    return own.variance(np.where(exact, 0.0, true) if exact.any() else true, problem.tree)


def _same_weights(variance: FloatArray, true: FloatArray) -> bool:
    """Whether uniform weights are those of the variances: all finite positive variances are the same."""
    noisy = (variance > 0) & np.isfinite(variance)
    values = np.broadcast_to(true, noisy.shape)[noisy]
    return bool(values.size == 0 or (values == values[0]).all())
