"""The programs stated for any solver, with which the tree engine is compared: for OSQP itself, or by cvxpy.

Every program is the least sum of squares |D x - a|^2 where equations, bounds and limits hold: of the cells alone, over
the whole tree or level by level; of histograms of which queries were measured; of one family of non-negative ones. The
unknowns are differences from a starting point, for cells in units of their standard deviations, so that all numbers of
a solver have the size of the noise whatever the counts are; the right sides of sums are computed exactly before they
are rounded. A solver's result is moved onto its sums and bounds, which solvers meet only to a tolerance. Where
unmeasured nodes leave the minimiser undetermined, it is moved to the one that the tree engine takes.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from topdown.errors import ProjectionError
from topdown.geography.tree import Families, FloatArray, IntArray, Tree
from topdown.measurements.measurements import Answers
from topdown.projection.cells.equality import least_squares, open_leaves
from topdown.projection.cells.nonnegative import project_families
from topdown.projection.check.optimality import own_variance
from topdown.projection.histograms.families import Family, Solved
from topdown.projection.histograms.least_squares import Measured
from topdown.projection.method import CvxpySolver, Problem, Program
from topdown.wording import LONGEST_LIST, unquoted
from topdown.workload import Query, Schema

_EMPTY = 1e-9
"""Families with a total below this many standard deviations count as empty."""

_FAR = 1e4
"""Bounds so many standard deviations away from the measurement are only used if a solution without them violates one;
those of families, the other way round, are left out where a solver finds nothing with them.
"""

_TIGHT: dict[str, dict[str, Any]] = {
    "OSQP": {"eps_abs": 1e-10, "eps_rel": 1e-10, "max_iter": 200_000, "polishing": True, "adaptive_rho_interval": 50},
    "CLARABEL": {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12},
    "SCS": {"eps_abs": 1e-10, "eps_rel": 1e-10, "max_iters": 200_000},
}


_EMPTY_CELL = 1e-4
"""Cells of a solver's result below this, in units of the noise, count as 0."""

_NOTHING = 1e-12
"""Eigenvalues and pivots below this part of the largest one are rounding."""


class Statement(NamedTuple):
    """argmin over e of |``design`` e - ``aims``|^2 where ``equations`` e = ``totals``, e >= ``low`` (-inf where there
    is no bound), and ``rows`` e are from ``least`` to ``most`` (infinite where there is no limit).
    """

    design: Any
    aims: FloatArray
    equations: Any
    totals: FloatArray
    low: FloatArray | None = None
    rows: Any = None
    least: FloatArray | None = None
    most: FloatArray | None = None

    def around(self, centre: FloatArray) -> Statement:
        """The program of the differences from ``centre``."""

        def less(ends: FloatArray | None, part: FloatArray) -> FloatArray | None:
            return None if ends is None else ends - part

        answers = np.zeros(0) if self.rows is None else self.rows @ centre
        return self._replace(
            aims=self.aims - self.design @ centre,
            totals=self.totals - self.equations @ centre,
            low=less(self.low, centre),
            least=less(self.least, answers),
            most=less(self.most, answers),
        )

    def solved(self, solver: CvxpySolver) -> FloatArray:
        """The solution by ``solver``. Raises `ProjectionError` where it is not installed, fails, or does not report an
        optimal solution.
        """
        directly = _DIRECT.get(solver.name) if solver.direct else None
        return self._by_cvxpy(solver) if directly is None else directly(self, _options(solver))

    def _by_cvxpy(self, solver: CvxpySolver) -> FloatArray:
        cp = modelling()
        e = cp.Variable(self.design.shape[1])
        constraints = []
        if self.equations.shape[0]:
            constraints.append(self.equations @ e == self.totals)
        if self.low is not None and np.isfinite(self.low).any():
            bounded = np.flatnonzero(np.isfinite(self.low))
            constraints.append(e[bounded] >= self.low[bounded])
        for sign, ends in ((1.0, self.least), (-1.0, self.most)):
            if ends is not None and np.isfinite(ends).any():
                there = np.flatnonzero(np.isfinite(ends))
                constraints.append(sign * (self.rows[there] @ e) >= sign * ends[there])
        objective = cp.sum_squares(self.design @ e - self.aims) if self.design.shape[0] else cp.Constant(0)
        return run_solver(objective, constraints, e, solver)


# -- the cells alone ---------------------------------------------------------------------------------------------------


def solve_cells(program: Program[Problem], solver: CvxpySolver) -> FloatArray:
    """x (cells x nodes) of a program of the cells alone; one statement per level, or one for the whole tree.

    Raises `ProjectionError` as `Statement.solved` does.
    """
    problem = program.given
    values, variance = problem.values, np.broadcast_to(problem.variance, problem.values.shape)
    parts = np.broadcast_to(1.0 if program.open_leaves is None else program.open_leaves, values.shape)
    x = np.empty(values.shape)
    for cell in range(len(values)):
        lower = problem.lower[cell] if problem.lower is not None else np.zeros(values.shape[1])
        if program.by_family:
            x[cell] = _level_by_level(values[cell], variance[cell], parts[cell], problem, lower, solver)
        else:
            x[cell] = _whole_tree(values[cell], variance[cell], problem, lower, solver)
    return x


def _level_by_level(
    y: FloatArray, v: FloatArray, parts: FloatArray, problem: Problem, lower: FloatArray, solver: CvxpySolver
) -> FloatArray:
    x, tree = np.array(y), problem.tree
    x[0] = max(y[0], lower[0]) if problem.nonnegative else y[0]
    unit, unmeasured = own_variance(v, tree), np.isinf(v)
    small = _EMPTY * _largest_deviation(v)
    for families in tree.families_down():
        c, totals = families.children, x[families.parents]
        near, var, bound = y[c], v[c], None
        if problem.nonnegative:
            bound = lower[c]
            near, var = _settle_empty(near, var, bound, families.spread(totals - families.total(bound) <= small))
        near = _centred(near, np.isfinite(var), totals, families)
        found = _quadratic(near, var, unit[c], _sums(families.sizes), totals, bound, solver)
        found = _onto_sums(found, v[c], totals, bound, families)
        # For unmeasured children the program determines only the sum: take the values nearest to ``y`` with this sum.
        found, share = np.where(unmeasured[c], y[c], found), np.where(unmeasured[c], parts[c], 0.0)
        if bound is None:
            open_ends = np.maximum(families.total(share), 1.0)
            x[c] = found + share * families.spread((totals - families.total(found)) / open_ends)
        else:
            rest = np.maximum(totals - families.total(bound), 0.0)
            x[c] = project_families(found - bound, rest, families.sizes, share) + bound
    return x


def _centred(y: FloatArray, known: npt.NDArray[np.bool_], totals: FloatArray, families: Families) -> FloatArray:
    """A starting point: ``y`` with an equal share of the family's remainder for each child that is not ``known``. The
    program has no term for these children.
    """
    unknown = families.total((~known).astype(np.int64))
    rest = np.maximum(totals - families.total(np.where(known, y, 0.0)), 0.0) / np.maximum(unknown, 1)
    return np.where(known, y, families.spread(rest))


def _onto_sums(
    x: FloatArray, v: FloatArray, totals: FloatArray, lower: FloatArray | None, families: Families
) -> FloatArray:
    """``x`` (children,) within its bounds, with each family's difference divided among the children inside their
    bounds, in proportion to their variances.
    """
    x = x if lower is None else np.maximum(x, lower)
    inside = np.ones(len(x), np.bool_) if lower is None else x > lower
    # A family with all of its children at their bounds has nearly nothing left; any child may have it.
    inside |= families.spread(families.total((inside & (v > 0)).astype(np.int64)) == 0)
    unmeasured = inside & np.isinf(v)
    some = families.spread(families.total(unmeasured.astype(np.int64)) > 0)
    room = np.where(some, unmeasured, np.where(inside & np.isfinite(v), v, 0.0))
    whole = families.total(room)
    step = np.divide(totals - families.total(x), whole, out=np.zeros_like(whole), where=whole > 0)
    x = x + room * families.spread(step)
    return x if lower is None else np.maximum(x, lower)


def _settle_empty(
    y: FloatArray, v: FloatArray, lower: FloatArray, empty: npt.NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Nodes that can only be at their lower bounds as exact values: interior-point solvers need room."""
    empty = empty & (v > 0)
    return np.where(empty, lower, y), np.where(empty, 0.0, v)


def _under_full(y: FloatArray, v: FloatArray, lower: FloatArray, tree: Tree) -> npt.NDArray[np.bool_]:
    """Nodes below exact ones that equal the sum of the exact values below them."""
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


def _whole_tree(y: FloatArray, v: FloatArray, problem: Problem, lower: FloatArray, solver: CvxpySolver) -> FloatArray:
    tree, noise = problem.tree, v
    if tree.n_families == 0:
        return np.maximum(y, 0.0) if problem.nonnegative else y
    sums = consistency_matrix(tree)
    bound = np.full(len(y), -np.inf)
    if problem.nonnegative:
        bound[tree.leaves] = 0.0
        if problem.lower is not None:
            y, v = _settle_empty(y, v, lower, _under_full(y, v, lower, tree))
    # The starting point of an unmeasured node is the remainder of the measured ones.
    y = np.where(np.isinf(v), least_squares(y, np.where(np.isinf(v), v, 0.0), tree), y)
    low = bound if problem.nonnegative else None
    x = _quadratic(y, v, own_variance(v, tree), sums, np.zeros(tree.n_families), low, solver)
    x[0] = max(x[0], lower[0]) if problem.nonnegative else x[0]
    for families in tree.families_down():
        c, p = families.children, families.parents
        x[c] = _onto_sums(x[c], noise[c], x[p], lower[c] if problem.nonnegative else None, families)
    # For unmeasured leaves the program may determine only the sum: they share it equally, and everything else is
    # unchanged.
    open_ends = open_leaves(v, tree)
    if open_ends is None:
        return x
    return np.where(open_ends > 0, least_squares(x, np.where(open_ends > 0, np.inf, 0.0), tree), x)


def consistency_matrix(tree: Tree) -> sp.csr_array:
    """A (families x nodes) with A x = 0 if and only if every family of x adds up."""
    children = _sums(np.diff(tree.child_offsets))
    beside_root = sp.hstack([sp.csr_array((tree.n_families, 1)), children])
    return sp.csr_array(beside_root - sp.eye_array(tree.n_families, tree.n_nodes))


def _sums(sizes: IntArray) -> sp.csr_array:
    """S (families x children) with S x the families' sums."""
    n = int(sizes.sum())
    return sp.csr_array((np.ones(n), np.arange(n), np.concatenate([[0], np.cumsum(sizes)])), (len(sizes), n))


def _lacking(sums: sp.csr_array, y: FloatArray, totals: FloatArray) -> FloatArray:
    """totals - sums y, rounded once: the differences are taken before the solver, which would lose their digits."""
    terms = -sums.data * y[sums.indices]
    bounds = itertools.pairwise(sums.indptr.tolist())
    return np.array(
        [math.fsum([total, *terms[start:stop]]) for total, (start, stop) in zip(totals, bounds, strict=True)]
    )


def _quadratic(
    y: FloatArray,
    v: FloatArray,
    unit: FloatArray,
    sums: sp.csr_array,
    totals: FloatArray,
    lower: FloatArray | None,
    solver: CvxpySolver,
) -> FloatArray:
    """argmin sum (x - y)^2 / v s.t. sums x = totals [, x >= lower]; v = 0 keeps y, v = inf drops the term.

    ``unit``: the variances in which the solver counts.
    """
    size, free = np.sqrt(unit), np.flatnonzero(v > 0)
    if len(free) == 0:
        return y
    low = np.full(len(free), -np.inf) if lower is None else ((lower - y) / np.where(size > 0, size, 1.0))[free]
    scaled = sums[:, free] @ sp.diags_array(size[free])
    # A constraint among exact values either holds or not; no solver is needed.
    active = np.flatnonzero(np.diff(scaled.indptr) > 0)
    # Every sum in units of its largest residual: a solver's tolerances are absolute.
    largest = scaled[active].max(axis=1).toarray().ravel()
    design = sp.eye_array(len(free), format="csr")[np.flatnonzero(np.isfinite(v[free]))]
    equations = sp.diags_array(1.0 / largest) @ scaled[active]
    program = Statement(design, np.zeros(design.shape[0]), equations, _lacking(sums, y, totals)[active] / largest)
    # Bounds of large counts are never active, and their size would only make the program ill-conditioned.
    near = low > -_FAR
    e = program._replace(low=np.where(near, low, -np.inf)).solved(solver)
    if (e < low)[~near].any():
        e = program._replace(low=low).solved(solver)
    x = np.array(y)
    x[free] += size[free] * e
    return x


# -- histograms of which several queries were measured -----------------------------------------------------------------


def solve_histograms(tree: Tree, schema: Schema, program: Program[Measured], solver: CvxpySolver) -> FloatArray:
    """Histograms (nodes x cells) that solve ``program``, by cvxpy with ``solver``.

    Whole tree: one statement in the leaves' histograms. Family by family: one per level, root first. Meant for small
    trees. Raises `ProjectionError` as `Statement.solved` does.
    """
    possible, measured = schema.possible_cells(), program.given
    cells = sp.eye_array(schema.n_cells, format="csc")[:, possible]
    found = np.zeros((tree.n_nodes, schema.n_cells))
    if not program.by_family:
        stacked = [_level_matrix(tree.level(k), _below(tree, k), level, cells) for k, level in enumerate(measured)]
        design, values, variance = _stack(stacked, tree.n_leaves * len(possible))
        leaves = _least_squares(design, values, variance, None, None, solver)
        found[:, possible] = tree.aggregate(leaves.reshape(tree.n_leaves, -1).T).T
        return found
    x = np.zeros((tree.n_nodes, len(possible)))
    for index, level in enumerate(measured):
        nodes = tree.level(index)
        count = nodes.stop - nodes.start
        design, values, variance = _stack(
            [_level_matrix(nodes, sp.eye_array(count, format="csr"), level, cells)], count * len(possible)
        )
        sums = total = None
        if index:
            families = tree.families(index - 1)
            sums = sp.kron(_sums(families.sizes), sp.eye_array(len(possible)), format="csr")
            total = x[families.parents].reshape(-1)
        x[nodes] = _least_squares(design, values, variance, sums, total, solver).reshape(count, -1)
    found[:, possible] = x
    return found


def _below(tree: Tree, index: int) -> Any:
    """Which leaves lie below the nodes of a level."""
    found = sp.eye_array(tree.n_leaves, format="csr")
    for families in tree.families_up():
        if families.parents.start < tree.level(index).start:
            break
        found = _sums(families.sizes) @ found
    return found


def _level_matrix(nodes: slice, below: Any, level: Mapping[Query, Answers], cells: Any) -> list[tuple[Any, Any, Any]]:
    found = []
    for query, (values, variance) in level.items():
        made = np.isfinite(variance)
        matrix = sp.kron(below.tocsr()[np.flatnonzero(made)], query.matrix() @ cells, format="csr")
        found.append((matrix, values[made].reshape(-1), np.repeat(variance[made], query.n_answers)))
    return found


def _stack(levels: list[list[tuple[Any, Any, Any]]], columns: int) -> tuple[Any, FloatArray, FloatArray]:
    parts = [part for level in levels for part in level]
    if not parts:
        return sp.csr_array((0, columns)), np.zeros(0), np.zeros(0)
    matrices, values, variances = zip(*parts, strict=True)
    return sp.vstack(matrices, format="csr"), np.concatenate(values), np.concatenate(variances)


def _least_squares(
    design: Any, values: FloatArray, variance: FloatArray, sums: Any, total: Any, solver: CvxpySolver
) -> FloatArray:
    """argmin |(A x - y) / sqrt v|^2 with what is exact and the families' sums as constraints; of least norm."""
    from scipy.sparse.linalg import lsmr

    exact = variance == 0
    fixed = [design[np.flatnonzero(exact)], *([] if sums is None else [sums])]
    aims = [values[exact], *([] if total is None else [total])]
    binding, aim = sp.vstack(fixed, format="csr"), np.concatenate(aims)
    weight = 1.0 / np.sqrt(variance[~exact])
    noisy = design[np.flatnonzero(~exact)]
    start = lsmr(sp.vstack([noisy, binding]), np.concatenate([values[~exact], aim]), atol=1e-10, btol=1e-10)[0]
    gap = weight * (values[~exact] - noisy @ start)
    program = Statement(sp.diags_array(weight) @ noisy, gap, binding, aim - binding @ start)
    moved = program.solved(solver)
    # Among the minimisers the one of least norm, with the same fitted answers and sums.
    both = sp.vstack([noisy, binding], format="csr")
    found = lsmr(both, both @ (start + moved), atol=1e-14, btol=1e-14, conlim=0, maxiter=100_000)[0]
    return np.asarray(found)


# -- one family of non-negative histograms -----------------------------------------------------------------------------


def solve_family(family: Family, solver: CvxpySolver) -> Solved:
    """The solution of the family's program with its multipliers: from the solver where there are conditions, else from
    the equations of the free cells. Raises `ProjectionError` as `Statement.solved` does.
    """
    x = family_solution(family, solver)
    return Solved(x, *_multipliers(family, x))


def family_solution(family: Family, solver: CvxpySolver) -> FloatArray:
    """The solution (children x cells) of the family's program, stated as least squares of what is known of every child.

    Raises `ProjectionError` as `Statement.solved` does.
    """
    (table, g), conditions = family.known, family.conditions
    halves, aims, centre = [], [], np.zeros(g.shape)
    for child, (own, said) in enumerate(zip(table, g, strict=True)):
        values, vectors = np.linalg.eigh(own[family.pattern])
        kept = values > _NOTHING * values[-1]
        root = np.sqrt(values[kept])
        # |R x - R^-T g|^2 / 2 with R'R = P is 1/2 x'Px - g'x and a constant.
        halves.append(root[:, None] * vectors[:, kept].T)
        aims.append((vectors[:, kept].T @ said) / root)
        centre[child] = vectors[:, kept] @ (aims[-1] / root)
    # Of large counts a solver finds only so many digits: it is asked for the difference from what fits nearly.
    centre = np.where(conditions.allowed, np.maximum(centre, 0.0), 0.0)
    if family.total is not None:
        centre = _with_sums(centre, family.total)
    exact = conditions.low == conditions.high
    program = Statement(
        sp.block_diag(halves, format="csr"),
        np.concatenate(aims),
        *_equations(family, exact),
        low=np.where(conditions.allowed, 0.0, -np.inf).reshape(-1),
        rows=sp.kron(sp.eye_array(len(g)), conditions.rows.astype(np.float64), format="csr"),
        least=np.where(exact, -np.inf, conditions.low).reshape(-1),
        most=np.where(exact, np.inf, conditions.high).reshape(-1),
    )
    program = program.around(centre.reshape(-1))
    found = _solved_or_none(program, solver)
    if found is None:
        far = centre * np.sqrt(table[:, np.diagonal(family.pattern)]) > _FAR
        low = np.where(far | ~conditions.allowed, -np.inf, -centre).reshape(-1)
        found = program._replace(low=low).solved(solver)
        if (found.reshape(g.shape) + centre)[far].min(initial=0.0) < 0:
            raise ProjectionError(f"{solver.name} found no solution within all bounds; try another solver")
    found = found.reshape(g.shape) + centre
    x = np.where(conditions.allowed, np.maximum(found, 0.0), 0.0)
    # A solver's sums are off by its tolerance.
    return x if family.total is None else _with_sums(x, family.total)


def _solved_or_none(program: Statement, solver: CvxpySolver) -> FloatArray | None:
    """The solution; None where ``solver`` finds none. The error is not kept, since it refers to all that was there."""
    try:
        return program.solved(solver)
    except ProjectionError:
        return None


def _with_sums(x: FloatArray, total: FloatArray) -> FloatArray:
    """``x`` (children x cells) in proportion, so that it adds up to ``total`` (cells,) where it is above 0."""
    sums = x.sum(axis=0)
    return np.asarray(x * np.divide(total, sums, out=np.ones_like(sums), where=sums > 0))


def _equations(family: Family, exact: npt.NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Sums, exact answers and closed cells as equations of all cells, without those that follow from others: interior
    point methods need independent equations.
    """
    conditions, count = family.conditions, len(family.known.g)
    cells = len(family.cells)
    parts, aims = [np.zeros((0, count * cells))], [np.zeros(0)]
    if family.total is not None:
        parts.append(np.tile(np.eye(cells), count))
        aims.append(family.total)
    for c, j in zip(*np.nonzero(exact), strict=True):
        parts.append(np.kron(np.eye(count)[c], conditions.rows[j])[None])
        aims.append(conditions.low[c, j][None])
    closed = np.flatnonzero(~conditions.allowed)
    parts.append(np.eye(count * cells)[closed])
    aims.append(np.zeros(len(closed)))
    matrix, aim = np.concatenate(parts), np.concatenate(aims)
    if not len(matrix):
        return matrix, aim
    from scipy.linalg import qr

    _, triangle, order = qr(matrix.T, mode="economic", pivoting=True)
    kept = np.sort(order[: int((np.abs(np.diag(triangle)) > _NOTHING * abs(triangle[0, 0])).sum())])
    return matrix[kept], aim[kept]


def _multipliers(family: Family, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The multipliers with which the equations of the cells that are not empty hold best."""
    (table, g), conditions = family.known, family.conditions
    count, cells = x.shape
    slope = np.stack([table[c][family.pattern] @ x[c] - g[c] for c in range(count)])
    unit = np.sqrt(table[:, np.diagonal(family.pattern)])
    answers, slack = x @ conditions.rows.T, _EMPTY_CELL / unit.max(axis=1, keepdims=True)
    at_least, at_most = answers < conditions.low + slack, answers > conditions.high - slack
    held = at_least | at_most
    free = (x * unit > _EMPTY_CELL) & conditions.allowed
    design, aims = [], []
    places = {(c, j): cells + k for k, (c, j) in enumerate(zip(*np.nonzero(held), strict=True))}
    for c, k in zip(*np.nonzero(free), strict=True):
        row = np.zeros(cells + len(places))
        row[k] = family.total is not None
        for j in np.flatnonzero(conditions.rows[:, k] & held[c]):
            row[places[c, j]] = 1.0
        design.append(row / unit[c, k])
        aims.append(slope[c, k] / unit[c, k])
    matrix, aim = np.array(design).reshape(-1, cells + len(places)), np.array(aims)
    if places:
        from scipy.optimize import lsq_linear

        # Positive where an answer is at its least, negative where it is at its most.
        signs = [(-np.inf if at_most[place] else 0.0, np.inf if at_least[place] else 0.0) for place in places]
        lower, upper = (
            np.array([*[end] * cells, *ends])
            for end, ends in zip((-np.inf, np.inf), zip(*signs, strict=True), strict=True)
        )
        found = lsq_linear(matrix, aim, (lower, upper), method="bvls", tol=1e-14).x
    else:
        found = np.linalg.lstsq(matrix, aim, rcond=None)[0]
    rows = np.zeros(conditions.low.shape)
    for (c, j), place in places.items():
        rows[c, j] = found[place]
    # Where all children are nearly 0, a multiplier that lets none of them grow.
    least = np.where(conditions.allowed, slope - rows @ conditions.rows, np.inf).min(axis=0)
    if family.total is None:
        return np.zeros(cells), rows  # components that no equation determines may be anything in ``found``
    return np.where(free.any(axis=0), found[:cells], least), rows


# -- solvers -----------------------------------------------------------------------------------------------------------


def modelling() -> Any:
    """cvxpy, which takes half a second to load and ships no usable types."""
    import cvxpy

    return cvxpy


def _options(solver: CvxpySolver) -> dict[str, Any]:
    return _TIGHT.get(solver.name, {}) | solver.options


def _by_osqp(statement: Statement, options: dict[str, Any]) -> FloatArray:
    """The solution by OSQP: half of |t|^2 over (e, t) where t = D e - a, and every other condition as a row of e."""
    import osqp

    count, terms = statement.design.shape[1], statement.design.shape[0]
    rows, least = [sp.csr_array(statement.equations)], [statement.totals]
    for matrix, sign, ends in (
        (sp.eye_array(count, format="csr"), 1.0, statement.low),
        (statement.rows, 1.0, statement.least),
        (statement.rows, -1.0, statement.most),
    ):
        if ends is not None:
            there = np.flatnonzero(np.isfinite(ends))
            rows.append(sign * sp.csr_array(matrix)[there])
            least.append(sign * ends[there])
    conditions = sp.vstack(rows)
    fit = sp.hstack([sp.csr_array(statement.design), -sp.eye_array(terms)])
    beside = sp.csr_array((conditions.shape[0], terms))
    program = osqp.OSQP()
    try:
        program.setup(
            sp.csc_matrix(sp.diags_array(np.repeat([0.0, 1.0], [count, terms]))),
            np.zeros(count + terms),
            sp.csc_matrix(sp.vstack([fit, sp.hstack([conditions, beside])])),
            np.concatenate([statement.aims, *least]),
            np.concatenate([statement.aims, statement.totals, np.full(sum(map(len, least[1:])), np.inf)]),
            verbose=False,
            **options,
        )
        found = program.solve(raise_error=False)
    except (osqp.OSQPException, ArithmeticError) as error:
        raise ProjectionError(f"OSQP failed: {unquoted(str(error), LONGEST_LIST)}; try another solver") from None
    status = found.info.status
    if status == "interrupted":
        raise KeyboardInterrupt
    if status not in ("solved", "solved inaccurate"):
        raise ProjectionError(f"OSQP ended as {status!r}; try another solver or engine='tree'")
    return np.array(found.x[:count])


_DIRECT: dict[str, Callable[[Statement, dict[str, Any]], FloatArray]] = {"OSQP": _by_osqp}
"""Solvers that are called without cvxpy, by name."""


def installed_solvers(name: str) -> list[str]:
    """The names of the solvers that are there: of those that need no cvxpy, if ``name`` is one of them, else of all."""
    return list(_DIRECT) if name in _DIRECT else list(modelling().installed_solvers())


def run_solver(objective: Any, constraints: list[Any], unknown: Any, solver: CvxpySolver) -> FloatArray:
    """The value of ``unknown`` at the least ``objective``, by cvxpy. Raises `ProjectionError` where ``solver`` does not
    find it.
    """
    cp = modelling()
    program = cp.Problem(cp.Minimize(objective), constraints)
    try:
        _solve(program, solver.name, _options(solver))
    except (cp.SolverError, ValueError, ArithmeticError) as error:
        raise ProjectionError(
            f"cvxpy with {solver.name} failed: {unquoted(str(error), LONGEST_LIST)}; installed solvers are "
            f"{', '.join(cp.installed_solvers())}"
        ) from None
    if unknown.value is None or program.status not in ("optimal", "optimal_inaccurate"):
        raise ProjectionError(
            f"cvxpy with {solver.name} ended as {program.status!r}; try another solver or engine='tree'"
        )
    return np.asarray(unknown.value)


@contextmanager
def _nothing_printed() -> Iterator[None]:
    """Standard output leads nowhere, also that of compiled code: HiGHS prints its name there, whatever it is asked."""
    output, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(output, 1)
        os.close(nowhere)
        os.close(output)


def _solve(program: Any, solver: str, options: dict[str, Any]) -> None:
    """``program.solve``, except that an interrupt that a solver catches, as OSQP does, is raised again."""
    own = {name: value for name, value in options.items() if name != "verbose"}
    data, chain, inverse = program.get_problem_data(solver, solver_opts=own)
    is_verbose = bool(options.get("verbose"))
    with nullcontext() if is_verbose or solver != "HIGHS" else _nothing_printed():
        found = chain.solve_via_data(program, data, verbose=is_verbose, solver_opts=own)
    if getattr(getattr(found, "info", None), "status", None) == "interrupted":
        raise KeyboardInterrupt
    program.unpack_results(found, chain, inverse)
