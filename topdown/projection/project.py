"""project(): consistent estimates from measurements, by a method and an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, require_known, require_type
from topdown.geography.tree import FloatArray
from topdown.measurements.declared_constraints import Constraints
from topdown.measurements.measurements import Measurements
from topdown.projection.check.certificate import (
    FAMILY_TOLERANCE,
    SOLVER_TOLERANCE,
    TOLERANCE,
    Certificate,
    certify,
    require_certificate,
    worst_of,
)
from topdown.projection.check.optimality import FINE
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.components import Components
from topdown.projection.histograms.families import dense
from topdown.projection.histograms.least_squares import EXACT, Covariance, queries_of, variances_of
from topdown.projection.histograms.least_squares import covariance as least_squares
from topdown.projection.histograms.passes import Order, order_by_level
from topdown.projection.histograms.whole import histograms_down
from topdown.projection.invariants import Contradiction, require_zeros
from topdown.projection.limits import AnswerLimits, settled
from topdown.projection.method import CellSolver, CvxpySolver, Method, Problem, method_named, nonnegative_methods
from topdown.projection.solver_inputs import answers_by_level, are_one, in_words, of_cells, stated
from topdown.wording import shown
from topdown.workload import DETAILED, Query

WEIGHTS = ("variance", "uniform")
ENGINES = ("tree", "cvxpy")

_VALUES_AT_ONCE = 1 << 16
"""Cells times nodes that are certified together."""


def project(
    measurements: Measurements,
    method: str = "top-down",
    *,
    nonnegative: bool | None = None,
    engine: str = "tree",
    weights: str = "variance",
    solver: str = "OSQP",
    solver_options: dict[str, Any] | None = None,
    constraints: Constraints | AnswerLimits | None = None,
    upward: str | None = None,
    order: Order | None = None,
) -> Estimate:
    """The consistent values nearest to the measurements, in the sense of ``method``.

    Args:
        measurements: the noisy values.
        method: "top-down" (family by family from the root), "gls" (whole tree, unbiased, no non-negativity),
            "gls-top-down" (the upward pass of gls, then family by family), "joint" (whole tree).
        nonnegative: with x >= 0; by default wherever the method has it.
        engine: "tree" (exact, vectorised) or "cvxpy" (the same program stated in cvxpy and given to ``solver``).
        weights: "variance" weighs by 1 / variance, "uniform" weighs all measurements the same (exact values stay exact,
            and unmeasured nodes have no weight).
        solver: of engine "cvxpy", the name of any solver that cvxpy has installed.
        solver_options: of engine "cvxpy", by name, given to the solver.
        constraints: structural zeros, and bounds of queries' answers by node, which the estimate keeps; bounds only for
            methods that go family by family. Of bounds alone also the `AnswerLimits` that were read.
        upward: "from LEVEL", for "gls-top-down" with x >= 0 and several queries: the level where its upward pass
            starts, by default the leaves. Measurements below it then divide its counts among its units, and do not
            change them.
        order: for "top-down" and "gls-top-down" with x >= 0 and several queries: the names of the queries whose answers
            are made non-negative first, one after the other, at every level or by level; each keeps its answers when
            the next follows. ``[]`` makes all cells non-negative at once. By default the total comes first at the root,
            if it is measured there and not exact, since x >= 0 over many empty cells would raise it.

    Returns an `Estimate` whose certificate was computed from the program. Raises `ConfigError` for an unknown name,
    `ProjectionError` naming the node when exact values contradict each other or the schema's zeros, when a solver
    fails, or when it reports success and the certificate does not hold.

    Examples:
        >>> estimate = td.project(measurements, "gls-top-down", nonnegative=True)
        >>> estimate.values[:3].round(1)
        array([[197.7,  16.4],
               [162.8,  13.3],
               [ 34.9,   3.1]])
        >>> unbiased = td.project(measurements, "gls")
        >>> unbiased.variance[:3].round(2)
        array([[13.4 , 13.4 ],
               [ 7.93,  7.93],
               [ 7.93,  7.93]])
    """
    require_type(Measurements, measurements, "measurements")
    chosen = method_named(method)
    require_known(engine, ENGINES, "engine")
    require_known(weights, WEIGHTS, "weights")
    if nonnegative is not None and not isinstance(nonnegative, bool | np.bool_):
        raise ConfigError(f"nonnegative is {shown(nonnegative)}; give True or False, or None for what the method does")
    if nonnegative and not chosen.nonnegative:
        raise ConfigError(
            f"method {method!r} has no x >= 0 ({chosen.words}); for non-negative values take "
            f"{' or '.join(map(repr, nonnegative_methods()))}"
        )
    nonnegative = chosen.nonnegative if nonnegative is None else nonnegative
    measurements, limits = settled(measurements, constraints)
    if limits is not None and not nonnegative:
        raise ConfigError("limits are kept where x >= 0 is; project with nonnegative=True, or leave limits out")
    require_zeros(measurements)
    several = bool(measurements.others) or limits is not None
    if several:
        chosen.require_root_measured(measurements)
    for name, given in (("upward", upward), ("order", order or None)):
        if given is not None and not (several and nonnegative):
            raise ConfigError(
                f"{name} = {shown(given)} is for non-negative histograms of several queries, or within limits, which "
                f"are made family by family; leave {name} out"
            )
    by = CvxpySolver(solver, solver_options or {})
    asked = _Asked(measurements, chosen, nonnegative, engine, weights, by)
    try:
        if not several:
            found = _of_cells(asked)
        elif nonnegative:
            found = _of_families(asked, limits, upward, order)
        else:
            found = _of_histograms(asked)
    except Contradiction as contradiction:
        raise in_words(measurements.geography, contradiction) from None
    require_certificate(found.certificate, measurements.geography, method, engine)
    return Estimate(
        geography=measurements.geography,
        cells=measurements.cells,
        method=method,
        nonnegative=nonnegative,
        engine=engine,
        weights=weights,
        upward=upward,
        fit_for_release=measurements.fit_for_release,
        attributes=measurements.attributes,
        **found._asdict(),
    )


@dataclass(frozen=True, eq=False)
class _Asked:
    """The arguments of a projection."""

    measurements: Measurements
    method: Method
    nonnegative: bool
    engine: str
    weights: str
    solver: CvxpySolver

    def tolerance(self, exact: float = TOLERANCE) -> float:
        """The tolerance of the certificate: ``exact``, or that of a solver."""
        return SOLVER_TOLERANCE if self.engine == "cvxpy" else exact


class _Solution(NamedTuple):
    """The fields of `Estimate` that depend on the shape of the workload."""

    values: FloatArray
    certificate: Certificate
    exact: npt.NDArray[np.bool_]
    variance: FloatArray | None = None
    covariance: Covariance | None = None
    order: Mapping[str, Sequence[str]] = {}


def _of_cells(asked: _Asked) -> _Solution:
    """For measurements of the cells alone: block by block, without structural zeros."""
    own, measurements = asked.method.for_cells(), asked.measurements
    shape = (measurements.geography.n_nodes, len(measurements.cells))
    blocks = list(measurements.blocks())
    values = np.zeros(shape[::-1])
    certificates, variances, exact = [], [], list[Any]()
    for cells in blocks:
        problem = stated(measurements, asked.weights, nonnegative=asked.nonnegative, cells=cells)
        if asked.engine == "cvxpy":
            from topdown.projection.check.cvxpy_programs import solve_cells

            x = solve_cells(asked.method.stated(own.program, problem), asked.solver)
        else:
            x = own.solve(problem)
        if len(x) == shape[1]:
            values = x
        else:
            values[cells] = x
        certificates.append(certified(problem, x, own, asked.tolerance()))
        # A variance by node is the same for every cell.
        if not exact or measurements.node_variance.ndim == 2:
            variances.append(_variance(problem, of_cells(measurements.node_variance, cells), own, asked.weights))
            exact.append(_by_node(problem.variance == 0))
    known = [_by_node(one) for one in variances if one is not None]
    return _Solution(
        values.T,
        worst_of(certificates),
        _of_all_cells(exact, blocks, shape, impossible=True),
        _of_all_cells(known, blocks, shape, impossible=0.0) if len(known) == len(variances) else None,
    )


def _of_histograms(asked: _Asked) -> _Solution:
    """Several queries without x >= 0: least squares of the histograms."""
    own, measurements = asked.method.for_histograms(), asked.measurements
    tree, schema = measurements.geography.tree, measurements.schema
    measured, weighted = (answers_by_level(measurements, weights) for weights in ("variance", asked.weights))
    schema.require_listable()
    components = Components(schema, queries_of(measured))
    x, covariance = own.solve(tree, components, weighted)
    if asked.engine == "cvxpy":
        from topdown.projection.check.cvxpy_programs import solve_histograms

        x = solve_histograms(tree, schema, asked.method.stated(own.program, weighted), asked.solver)
    residuals = own.residuals(x, weighted, components, tree)
    certificate = certify([residuals], variances_of(weighted), nonnegative=False, tolerance=asked.tolerance())
    known = asked.weights == "variance" or are_one(variances_of(measured))
    if known and asked.weights != "variance":
        _, covariance = own.solve(tree, components, measured)
    # What exact answers determine is exact by every method, also by one without a covariance.
    settled = covariance or least_squares(
        tree, components, [{q: one.variance for q, one in level.items()} for level in weighted], upward=True
    )
    of_cells = settled.variance(Query.parse(DETAILED, schema), slice(0, tree.n_nodes))
    exact = of_cells < EXACT * np.nanmax(np.where(np.isfinite(of_cells), of_cells, 0.0), initial=1.0)
    if not known or covariance is None:
        return _Solution(x, certificate, exact)
    return _Solution(x, certificate, exact, of_cells, covariance)


def _of_families(asked: _Asked, limits: AnswerLimits | None, upward: str | None, order: Order | None) -> _Solution:
    """Several queries, or answers within limits, with x >= 0: histograms family by family from the root."""
    own, measurements, method = asked.method.for_families(), asked.measurements, asked.method
    program = own.program
    if asked.engine == "cvxpy":
        from topdown.projection.check.cvxpy_programs import solve_family

        own = replace(own, solve=lambda family: solve_family(method.stated(program, family), asked.solver))
    tolerance = asked.tolerance(FAMILY_TOLERANCE)
    found = histograms_down(
        measurements, replace(method, families=own), asked.weights, limits, upward, order, tolerance=tolerance
    )
    return _Solution(
        dense(found.histograms, len(measurements.cells)),
        found.certificate,
        found.descent.conditions.exact(measurements.schema),
        order=order_by_level(measurements.geography.levels, found.descent.order),
    )


def _of_all_cells(parts: Sequence[Any], blocks: Sequence[slice], shape: tuple[int, int], impossible: Any) -> Any:
    """A table (nodes, cells) from the values of ``blocks`` of cells, each (nodes, 1) or (nodes, cells of the block),
    and one value for the cells that are in no block.
    """
    if sum(cells.stop - cells.start for cells in blocks) == shape[1]:
        return np.broadcast_to(np.concatenate(parts, axis=1), shape)
    found = np.full(shape, impossible)
    for number, cells in enumerate(blocks):
        found[:, cells] = parts[min(number, len(parts) - 1)]
    return found


def _by_node(array: Any) -> Any:
    """(nodes,) or (cells, nodes) as (nodes, 1) or (nodes, cells)."""
    return array[:, None] if array.ndim == 1 else array.T


def _variance(problem: Problem, true: FloatArray, own: CellSolver, weights: str) -> FloatArray | None:
    """The estimate's variance, where it has a closed form: without x >= 0, with weights 1 / variance."""
    exact = problem.variance == 0
    true = np.where(exact, 0.0, true) if exact.any() else true
    if own.variance is None or problem.nonnegative or not (weights == "variance" or are_one(true)):
        return None
    return own.variance(true, problem.tree)


def certified(problem: Problem, x: FloatArray, own: CellSolver, tolerance: float = TOLERANCE) -> Certificate:
    """The certificate of ``x`` (cells x nodes) as the solution of a method's own program: for batches of cells as
    optimal to rounding, or else, cell by cell, as optimal to a solver's tolerance.
    """
    at_once = max(1, _VALUES_AT_ONCE // x.shape[1])
    certificates = []
    for first in range(0, len(x), at_once):
        cells = range(first, min(first + at_once, len(x)))
        found = _read(problem, x, own, cells, FINE, tolerance)
        if found.holds():
            certificates.append(found)
            continue
        for cell in (range(cell, cell + 1) for cell in cells):
            fine = found if len(cells) == 1 else _read(problem, x, own, cell, FINE, tolerance)
            certificates.append(fine if fine.holds() else _read(problem, x, own, cell, tolerance / 2, tolerance))
    return worst_of(certificates)


def _read(
    problem: Problem, x: FloatArray, own: CellSolver, cells: range, slack: float, tolerance: float
) -> Certificate:
    """The certificate of some cells, whose bounds may be met to ``slack``."""
    part = problem.of_cells(slice(cells.start, cells.stop))
    residuals = own.residuals(part, x[cells.start : cells.stop], slack)
    return certify(residuals, part.variance, nonnegative=problem.nonnegative, tolerance=tolerance)
