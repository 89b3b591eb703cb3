"""The same programs stated in cvxpy, for any solver: what the tree engine is compared with.

Programs are stated in the residuals in units of their standard deviations, e = (x - y) / sqrt(v), so that all numbers
that a solver sees are of the size of the noise whatever the counts are; what sums lack is added up exactly before it is
rounded. What a solver finds is moved onto its sums and bounds, which solvers meet to a tolerance only. Where unmeasured
nodes leave the minimiser open, it is moved to the one that the tree engine takes.
"""

from __future__ import annotations

from typing import Any

import cvxpy
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from topdown.errors import ProjectionError
from topdown.geography.tree import Families, FloatArray, IntArray, Tree
from topdown.projection import equality
from topdown.projection.centring import centred, centred_tree, lacking, onto_sums
from topdown.projection.method import Method
from topdown.projection.nonnegative import project_families
from topdown.projection.optimality import own_variance
from topdown.projection.problem import Problem
from topdown.wording import LONGEST_LIST, unquoted

cp: Any = cvxpy  # ships no usable types

_EMPTY = 1e-9
"""Families with less than this many deviations to share out have nothing to share out."""

_FAR = 1e4
"""Bounds so many deviations away from the measurement are looked at only if a solution without them breaks one."""

_TIGHT: dict[str, dict[str, Any]] = {
    "OSQP": {"eps_abs": 1e-10, "eps_rel": 1e-10, "max_iter": 200_000, "polishing": True, "adaptive_rho_interval": 50},
    "CLARABEL": {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12},
    "SCS": {"eps_abs": 1e-10, "eps_rel": 1e-10, "max_iters": 200_000},
}


def solve(problem: Problem, method: Method, solver: str, options: dict[str, Any]) -> FloatArray:
    """x (cells x nodes) of ``method`` by cvxpy with ``solver``; one program per level, or one for the whole tree.

    Raises `ConfigError` for a method that cannot state its program, `ProjectionError` when the solver is not installed,
    fails, or does not report an optimal solution.
    """
    program = method.stated(method.for_cells().program, problem)
    values, variance = program.values, program.variance
    parts = np.ones(values.shape) if program.open_leaves is None else program.open_leaves
    x = np.empty(values.shape)
    for cell in range(len(values)):
        lower = problem.lower[cell] if problem.lower is not None else np.zeros(values.shape[1])
        if program.by_family:
            x[cell] = _level_by_level(values[cell], variance[cell], parts[cell], problem, lower, solver, options)
        else:
            x[cell] = _whole_tree(values[cell], variance[cell], problem, lower, solver, options)
    return x


def _level_by_level(
    y: FloatArray,
    v: FloatArray,
    parts: FloatArray,
    problem: Problem,
    lower: FloatArray,
    solver: str,
    options: dict[str, Any],
) -> FloatArray:
    x = np.array(y)
    x[0] = max(y[0], lower[0]) if problem.nonnegative else y[0]
    unit = own_variance(v, problem.tree)
    small = _EMPTY * _largest_deviation(v)
    for families in problem.tree.families_down():
        children = families.children
        sums = _family_sums(families.sizes)
        bound = lower[children] if problem.nonnegative else None
        near, var = y[children], v[children]
        if problem.nonnegative:
            spare = x[families.parents] - families.total(lower[children])
            near, var = _settle_empty(near, var, lower[children], families.spread(spare <= small))
        near = centred(near, np.isfinite(var), x[families.parents], families)
        x[children] = _quadratic(near, var, unit[children], sums, x[families.parents], bound, solver, options)
        x[children] = onto_sums(x[children], v[children], x[families.parents], bound, families)
        x[children] = _level_family(x[children], y[children], v[children], parts[children], bound, families)
    return x


def _level_family(
    x: FloatArray, y: FloatArray, v: FloatArray, parts: FloatArray, lower: FloatArray | None, families: Families
) -> FloatArray:
    """``x`` with the unmeasured children of a family, of which the program fixes the sum alone, nearest to ``y``."""
    unmeasured = np.isinf(v)
    sizes = families.total(unmeasured.astype(np.int64))
    if sizes.max() < 2:
        return x
    sizes, result = sizes[sizes > 0], np.array(x)
    bound = np.zeros(len(x)) if lower is None else lower
    starts = np.cumsum(sizes) - sizes
    near, part = (y - bound)[unmeasured], parts[unmeasured]
    rest = np.add.reduceat((x - bound)[unmeasured], starts)
    if lower is None:
        missing = (rest - np.add.reduceat(near, starts)) / np.add.reduceat(part, starts)
        result[unmeasured] = near + part * np.repeat(missing, sizes)
    else:
        result[unmeasured] = project_families(near, np.maximum(rest, 0.0), sizes, part) + bound[unmeasured]
    return result


def _settle_empty(
    y: FloatArray, v: FloatArray, lower: FloatArray, empty: npt.NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Nodes that can only be at their lower bounds as exact values: interior-point solvers need room."""
    empty = empty & (v > 0)
    return np.where(empty, lower, y), np.where(empty, 0.0, v)


def _under_full(y: FloatArray, v: FloatArray, lower: FloatArray, tree: Tree) -> npt.NDArray[np.bool_]:
    """Nodes below exact ones that have nothing to spare beyond the exact values below them."""
    full = np.zeros(len(y), np.bool_)
    small = _EMPTY * _largest_deviation(v)
    for families in tree.families_down():
        parents, children = families.parents, families.children
        spare = y[parents] - families.total(lower[children])
        none_left = ((v[parents] == 0) & (spare <= small)) | (full[parents] & (v[parents] > 0))
        full[children] = families.spread(none_left)
    return full


def _largest_deviation(v: FloatArray) -> float:
    return float(np.sqrt(v.max(initial=1.0, where=np.isfinite(v))))


def _whole_tree(
    y: FloatArray, v: FloatArray, problem: Problem, lower: FloatArray, solver: str, options: dict[str, Any]
) -> FloatArray:
    tree, noise = problem.tree, v
    if tree.n_families == 0:
        return np.maximum(y, 0.0) if problem.nonnegative else y
    sums = consistency_matrix(tree)
    bound = np.full(len(y), -np.inf)
    if problem.nonnegative:
        bound[tree.leaves] = 0.0
        if problem.lower is not None:
            y, v = _settle_empty(y, v, lower, _under_full(y, v, lower, tree))
    y, unit = centred_tree(y, v, tree), own_variance(v, tree)
    x = _quadratic(y, v, unit, sums, np.zeros(tree.n_families), bound if problem.nonnegative else None, solver, options)
    x[0] = max(x[0], lower[0]) if problem.nonnegative else x[0]
    for families in tree.families_down():
        c, p = families.children, families.parents
        x[c] = onto_sums(x[c], noise[c], x[p], lower[c] if problem.nonnegative else None, families)
    return _level_leaves(x, v, tree)


def _level_leaves(x: FloatArray, v: FloatArray, tree: Tree) -> FloatArray:
    """``x`` with equal values at the unmeasured leaves of which the program fixes the sum alone: its least norm."""
    counts = equality.open_leaves(v, tree)
    if counts is None:
        return x
    result, group = np.array(x), np.arange(tree.n_nodes)
    group[0] = -1 if counts[0] else 0
    for families in tree.families_down():
        own = group[families.children]
        group[families.children] = np.where(
            counts[families.children] > 0, families.spread(group[families.parents]), own
        )
    leaves = tree.leaves.start + np.flatnonzero(counts[tree.leaves])
    key = group[leaves] + 1
    mean = np.bincount(key, x[leaves]) / np.maximum(np.bincount(key), 1)
    mean[0] = 0.0
    result[leaves] = mean[key]
    for families in tree.families_up():
        sums = families.total(result[families.children])
        result[families.parents] = np.where(counts[families.parents] > 0, sums, result[families.parents])
    return result


def consistency_matrix(tree: Tree) -> sp.csr_array:
    """A (families x nodes) with A x = 0 if and only if every family of x adds up."""
    rows = np.repeat(np.arange(tree.n_families), np.diff(tree.child_offsets))
    ones = np.ones(len(rows))
    shape = (tree.n_families, tree.n_nodes)
    children = sp.coo_array((ones, (rows, np.arange(1, tree.n_nodes))), shape)
    parents = sp.coo_array((np.ones(shape[0]), (np.arange(shape[0]), np.arange(shape[0]))), shape)
    return sp.csr_array(children - parents)


def _family_sums(sizes: IntArray) -> sp.csr_array:
    """S (families x children) with S x the families' sums."""
    n = int(sizes.sum())
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return sp.csr_array((np.ones(n), np.arange(n), indptr), (len(sizes), n))


def _quadratic(
    y: FloatArray,
    v: FloatArray,
    unit: FloatArray,
    sums: sp.csr_array,
    totals: FloatArray,
    lower: FloatArray | None,
    solver: str,
    options: dict[str, Any],
) -> FloatArray:
    """argmin sum (x - y)^2 / v s.t. sums x = totals [, x >= lower]; v = 0 keeps y, v = inf drops the term.

    ``unit``: the variances in which the solver counts.
    """
    size = np.sqrt(unit)
    free = np.flatnonzero(v > 0)
    if len(free) == 0:
        return y
    low = np.full(len(free), -np.inf) if lower is None else ((lower - y) / np.where(size > 0, size, 1.0))[free]
    # Bounds of large counts are far away, and tell a solver of nothing but their size.
    near = low > -_FAR
    e = _solved(y, v, size, free, sums, totals, np.where(near, low, -np.inf), solver, options)
    if (e < low)[~near].any():
        e = _solved(y, v, size, free, sums, totals, low, solver, options)
    x = np.array(y)
    x[free] += size[free] * e
    return x


def _solved(
    y: FloatArray,
    v: FloatArray,
    size: FloatArray,
    free: IntArray,
    sums: sp.csr_array,
    totals: FloatArray,
    low: FloatArray,
    solver: str,
    options: dict[str, Any],
) -> FloatArray:
    """What `_quadratic` solves at its ``free`` nodes, in units of ``size``; ``low``: -inf where there is no bound."""
    e = cp.Variable(len(free))
    scaled = sums[:, free] @ sp.diags_array(size[free])
    # A constraint among exact values only holds or does not hold; the solver has nothing to say about it.
    active = np.flatnonzero(np.diff(scaled.indptr) > 0)
    constraints = []
    if len(active):
        # Every sum in units of its largest residual: a solver's tolerances are absolute.
        largest = scaled[active].max(axis=1).toarray().ravel()
        short = lacking(sums, y, totals)[active]
        constraints = [(sp.diags_array(1.0 / largest) @ scaled[active]) @ e == short / largest]
    bounded = np.flatnonzero(np.isfinite(low))
    if len(bounded):
        constraints.append(e[bounded] >= low[bounded])
    objective = (
        cp.sum_squares(e[np.flatnonzero(np.isfinite(v[free]))]) if np.isfinite(v[free]).any() else cp.Constant(0)
    )
    return run_solver(objective, constraints, e, solver, options)


def run_solver(
    objective: Any, constraints: list[Any], unknown: Any, solver: str, options: dict[str, Any]
) -> FloatArray:
    """What ``unknown`` is where ``objective`` is least. Raises `ProjectionError` where ``solver`` does not find it."""
    program = cp.Problem(cp.Minimize(objective), constraints)
    try:
        _solve(program, solver, _TIGHT.get(solver, {}) | options)
    except (cp.SolverError, ValueError, ArithmeticError) as error:
        raise ProjectionError(
            f"cvxpy with {solver} failed: {unquoted(str(error), LONGEST_LIST)}; installed solvers are "
            f"{', '.join(cp.installed_solvers())}"
        ) from None
    if unknown.value is None or program.status not in ("optimal", "optimal_inaccurate"):
        raise ProjectionError(f"cvxpy with {solver} ended as {program.status!r}; try another solver or engine='tree'")
    return np.asarray(unknown.value)


def _solve(program: cp.Problem, solver: str, options: dict[str, Any]) -> None:
    """``program.solve``, except that an interrupt that the solver took for itself, as OSQP does, is passed on."""
    own = {name: value for name, value in options.items() if name != "verbose"}
    data, chain, inverse = program.get_problem_data(solver, solver_opts=own)
    found = chain.solve_via_data(program, data, verbose=bool(options.get("verbose")), solver_opts=own)
    if getattr(getattr(found, "info", None), "status", None) == "interrupted":
        raise KeyboardInterrupt
    program.unpack_results(found, chain, inverse)
