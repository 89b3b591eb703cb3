"""The same programs stated in cvxpy, for any solver: what the tree engine is compared with.

Programs are stated in the residuals in units of their standard deviations, e = (x - y) / sqrt(v), so that all numbers
that a solver sees are of the size of the noise whatever the counts are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cvxpy
import numpy as np
import scipy.sparse as sp

from topdown.errors import ProjectionError
from topdown.projection import equality
from topdown.tree import FloatArray, IntArray, Tree

if TYPE_CHECKING:
    from topdown.projection.project import Problem

cp: Any = cvxpy  # ships no usable types

_TIGHT: dict[str, dict[str, Any]] = {
    "OSQP": {"eps_abs": 1e-10, "eps_rel": 1e-10, "max_iter": 200_000, "polishing": True},
    "CLARABEL": {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12},
    "SCS": {"eps_abs": 1e-10, "eps_rel": 1e-10, "max_iters": 200_000},
}


def solve(problem: Problem, method: str, solver: str, options: dict[str, Any]) -> FloatArray:
    """x (cells x nodes) of ``method`` by cvxpy with ``solver``; one program per level, or one for the whole tree.

    Raises `ProjectionError` when the solver is not installed, fails, or does not report an optimal solution.
    """
    values = equality.measured_or_zero(problem.values, problem.variance)
    variance = np.broadcast_to(problem.variance, values.shape)
    if method == "gls-top-down" and problem.nonnegative:
        gains = equality.upward_gains(variance, problem.tree)
        variance = gains.variance
        values = equality.upward(values, gains, problem.tree)
    x = np.empty(values.shape)
    for cell in range(len(values)):
        lower = problem.lower[cell] if problem.lower is not None else np.zeros(values.shape[1])
        if method == "top-down" or (method == "gls-top-down" and problem.nonnegative):
            x[cell] = _level_by_level(values[cell], variance[cell], problem, lower, solver, options)
        else:
            x[cell] = _whole_tree(values[cell], variance[cell], problem, solver, options)
    return x


def _level_by_level(
    y: FloatArray, v: FloatArray, problem: Problem, lower: FloatArray, solver: str, options: dict[str, Any]
) -> FloatArray:
    x = np.array(y)
    x[0] = max(y[0], lower[0]) if problem.nonnegative else y[0]
    for families in problem.tree.families_down():
        children = families.children
        sums = _family_sums(families.sizes)
        bound = lower[children] if problem.nonnegative else None
        x[children] = _quadratic(y[children], v[children], sums, x[families.parents], bound, solver, options)
    return x


def _whole_tree(y: FloatArray, v: FloatArray, problem: Problem, solver: str, options: dict[str, Any]) -> FloatArray:
    tree = problem.tree
    if tree.n_families == 0:
        return np.maximum(y, 0.0) if problem.nonnegative else y
    sums = consistency_matrix(tree)
    bound = np.full(len(y), -np.inf)
    if problem.nonnegative:
        bound[tree.leaves] = 0.0
    return _quadratic(y, v, sums, np.zeros(tree.n_families), bound if problem.nonnegative else None, solver, options)


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
    sums: sp.csr_array,
    totals: FloatArray,
    lower: FloatArray | None,
    solver: str,
    options: dict[str, Any],
) -> FloatArray:
    """argmin sum (x - y)^2 / v s.t. sums x = totals [, x >= lower]; v = 0 keeps y, v = inf drops the term."""
    exact = v == 0
    size = np.sqrt(np.where(np.isinf(v), 1.0, v))
    free = np.flatnonzero(~exact)
    if len(free) == 0:
        return y
    e = cp.Variable(len(free))
    scaled = sums[:, free] @ sp.diags_array(size[free])
    # A constraint among exact values only holds or does not hold; the solver has nothing to say about it.
    active = np.flatnonzero(np.diff(scaled.indptr) > 0)
    constraints = [scaled[active] @ e == (totals - sums @ y)[active]] if len(active) else []
    if lower is not None:
        bounded = np.flatnonzero(np.isfinite(lower[free]))
        constraints.append(e[bounded] >= ((lower - y)[free] / size[free])[bounded])
    objective = (
        cp.sum_squares(e[np.flatnonzero(np.isfinite(v[free]))]) if np.isfinite(v[free]).any() else cp.Constant(0)
    )
    program = cp.Problem(cp.Minimize(objective), constraints)
    try:
        program.solve(solver=solver, **(_TIGHT.get(solver, {}) | options))
    except (cp.SolverError, ValueError, ArithmeticError) as error:
        raise ProjectionError(
            f"cvxpy with {solver} failed: {error}; installed solvers are {', '.join(cp.installed_solvers())}"
        ) from error
    if e.value is None or program.status not in ("optimal", "optimal_inaccurate"):
        raise ProjectionError(f"cvxpy with {solver} ended as {program.status!r}; try another solver or engine='tree'")
    x = np.array(y)
    x[free] += size[free] * e.value
    return x
