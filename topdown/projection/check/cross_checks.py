"""Second solutions: the programs of a release are solved again by another solver, all or a sample, and must agree.

OSQP is called itself, which saves the time to load cvxpy; every other solver is called through cvxpy.

For cells the tree is solved again as a whole, or subtrees of a large one; for histograms families are solved again, all
of a small tree and some of a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import NamedTuple, Protocol

import numpy as np

from topdown.errors import ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.machine.progress import Stages
from topdown.measurements.measurements import Measurements
from topdown.noise import KeyedSource
from topdown.projection.cells.equality import measured_or_zero
from topdown.projection.check.multipliers import EPS
from topdown.projection.check.optimality import own_variance, pooled_variance
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.families import Family, Solved, Sparse
from topdown.projection.histograms.passes import in_order
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import CvxpySolver, Method, Problem, method_named
from topdown.projection.solver_inputs import descent_of, stated
from topdown.workload import Query

WHOLE = 10_000
"""Trees of up to this many nodes are solved a second time as a whole."""

_MOST_NODES, _PART_OF_RUN = 60_000, 120
"""The most nodes, counted for every cell that is solved again: about half a second. For a large release one in so many
of all counts: about a tenth of the release's time. The larger of both limits the number of cells.
"""
_A_PROGRAM = 1_000
"""The fixed cost of a program, in nodes."""

_BOUNDED: dict[str, dict[str, int]] = {
    "OSQP": {"max_iter": 2_000},
    "SCS": {"max_iters": 20_000},
    "HIGHS": {"qp_iteration_limit": 5_000},
}
"""Limits on the steps of solvers. OSQP usually needs a few hundred; where it does not end, its last values are
compared, or another solver is tried.
"""
_SHORT, _LEAST = 200, 0.2
"""A family of more numbers than the first has fewer steps in proportion, down to this part of the limit: its steps take
longer, and where many of them do not end, another solver is done in fewer.
"""

_FAMILIES = 20
_LARGEST_PART = WHOLE // 4
_PARTS_AGAIN = 4
"""In so many parts of a release families are solved again, however many parts there are."""

_VARIABLES, _MOST_VARIABLES, _PART_OF_FAMILIES = 1_500, 3_000, 3_000
"""Children times cells of the families that are solved again: at least the first number, which takes a second; for a
large release one in so many (the third) of all, up to the second.
"""
_LARGEST_FAMILY = 1_000
"""The most children times cells of a single family; or half of all of them, where that is more."""

ROBUST = ("CLARABEL", "HIGHS", "SCS")
"""The solvers that are tried, in order, where a solver fails or disagrees: slower, but more exact on hard programs. An
interior-point method, an active-set method, whose accuracy does not suffer from variances that differ by many orders of
magnitude, and operator splitting.
"""

TOLERANCE = 1e-4
"""The largest difference beyond rounding, in standard deviations of the node's own noise, that is accepted."""

HISTOGRAM_TOLERANCE = 1e-3
"""The largest accepted difference of a child's histogram, in standard deviations: the root of d' P d, which counts only
directions that were measured.
"""


@dataclass(frozen=True)
class CrossCheck:
    """How far a second solution is from an estimate.

    ``scope``: what was solved again, in words. ``nodes``: how many nodes. ``largest_difference``: the difference in
    counts at the node where it is largest relative to the tolerance. ``tolerance``: the accepted difference there, in
    counts.
    """

    solver: str
    scope: str
    nodes: int
    largest_difference: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether the two solutions agree within the tolerance, at every node."""
        return self.largest_difference <= self.tolerance

    @classmethod
    def together(cls, checks: Sequence[CrossCheck]) -> CrossCheck:
        """The checks of pieces of one release as one, with the numbers of the piece whose difference is largest
        relative to its tolerance.
        """
        worst = max(checks, key=lambda one: Difference(one.largest_difference, one.tolerance).ratio)
        return replace(
            worst,
            solver=", ".join(dict.fromkeys(name for one in checks for name in one.solver.split(", "))),
            scope="; ".join(one.scope for one in checks),
            nodes=sum(one.nodes for one in checks),
        )


class Difference(NamedTuple):
    """A difference and its tolerance, in counts."""

    counts: float
    accepted: float

    @property
    def ratio(self) -> float:
        """The difference relative to its tolerance; infinite for NaN."""
        if np.isnan(self.counts):
            return np.inf
        return self.counts / self.accepted if self.accepted > 0 else np.inf if self.counts > 0 else 0.0


_Problem = Callable[[str], Difference]
"""Solves a program again by the solver of a given name, and returns the difference that is largest relative to its
tolerance. Raises `ProjectionError` where the solver fails.
"""


def _solved_again(problems: Sequence[_Problem], solver: str, scope: str, nodes: int) -> CrossCheck:
    """Solve all ``problems`` by ``solver``, or another one of `_by_any`, and return the largest difference relative to
    its tolerance. Raises `ProjectionError` where all solvers fail at one.
    """
    found = [_by_any(problem, solver.upper()) for problem in problems] or [(Difference(0, 0), solver.upper())]
    worst, _ = max(found, key=lambda one: one[0].ratio)
    solvers = ", ".join(dict.fromkeys(name for _, name in found))
    return CrossCheck(solvers, scope, nodes, worst.counts, worst.accepted)


def _by_any(problem: _Problem, solver: str) -> tuple[Difference, str]:
    """The difference by ``solver``, with its name. Where it fails or disagrees those of `ROBUST` are tried, and the
    smallest difference is returned. Raises `ProjectionError` where all fail.
    """
    best: tuple[Difference, str] | None = None
    failed: ProjectionError | None = None
    for name in dict.fromkeys([solver, *ROBUST]):
        try:
            found = problem(name)
        except ProjectionError as error:
            # Its traceback would keep what all callers hold alive.
            failed = failed or error.with_traceback(None)
            continue
        if best is None or found.ratio < best[0].ratio:
            best = found, name
        if found.ratio <= 1:
            break
    if best is None:
        assert failed is not None  # nosec B101 # narrows a type: every solver that finds no difference fails
        raise failed
    return best


def _bounded(solver: str, numbers: int = 0) -> CvxpySolver:
    part = max(_LEAST, _SHORT / max(numbers, _SHORT))
    return CvxpySolver(
        solver, {name: ceil(limit * part) for name, limit in _BOUNDED.get(solver, {}).items()}, direct=True
    )


def cross_check(
    measurements: Measurements,
    estimate: Estimate,
    *,
    limits: AnswerLimits | None = None,
    solver: str = "OSQP",
    rng: np.random.Generator | None = None,
) -> CrossCheck:
    """Solve ``estimate``'s program again by ``solver`` and compare: of the cells alone, or non-negative
    histograms of several queries or within ``limits``, family by family (`cross_check_families`).

    A tree of up to 10,000 nodes is solved whole; of a larger one a random sample of subtrees, each with its root held
    at the estimate's value (which leaves the optimum below it unchanged in every method): one of every level where
    subtrees are small enough, and up to 20 families of leaves (2,500 members of a larger one, whose sum is held). Of
    many cells only some are solved: as many as take half a second or, for a large release, a tenth of its time,
    estimated from the numbers of nodes and cells. ``rng`` chooses the sample. Differences are judged node by node,
    relative to the node's noise and to the rounding of float64 there. Raises `ConfigError` for a method that cannot
    state its program, `ProjectionError` when all solvers fail.
    """
    seed, method = np.random.default_rng() if rng is None else rng, method_named(estimate.method)
    if measurements.others or limits is not None:
        descent = descent_of(measurements, method, estimate.weights, limits, estimate.upward, estimate.order)
        above = [Sparse(np.flatnonzero(row), row[row > 0]) for row in estimate.values[: descent.tree.n_families]]
        return cross_check_families(descent, method, above, solver=solver, rng=seed)
    trees = list(_parts(measurements, estimate, seed))
    # A structural zero is 0, and has no program.
    possible = measurements.schema.possible_cells()
    cells = _some_cells(possible, [part.geography.tree for part, _ in trees], measurements.geography.n_nodes, seed)
    parts = [_problem_of(part, estimate, nodes, cells) for part, nodes in trees]
    whole = measurements.geography.n_nodes <= WHOLE
    scope = "the whole tree" if whole else f"a random sample of {len(parts)} subtrees"
    if len(cells) < len(possible):
        scope += f" for {len(cells):,} of {len(possible):,} cells"
    problems = [
        partial(_cells_apart, problem.of_cells(slice(k, k + 1)), values[k : k + 1], method)
        for problem, values in parts
        for k in range(len(values))
    ]
    return _solved_again(problems, solver, scope, sum(problem.tree.n_nodes for problem, _ in parts))


def _some_cells(possible: IntArray, trees: Sequence[Tree], n_nodes: int, rng: np.random.Generator) -> IntArray:
    """Which of the ``possible`` cells of a release of ``n_nodes`` are solved again on ``trees``: all, or a random
    sample, one at least. How many depends on sizes alone, so that every computer chooses the same."""
    a_cell = sum(tree.n_nodes + _A_PROGRAM * tree.n_levels for tree in trees)
    count = max(1, max(_MOST_NODES, n_nodes * len(possible) // _PART_OF_RUN) // a_cell)
    return possible if len(possible) <= count else np.sort(rng.choice(possible, count, replace=False))


class StatedFamilies(Protocol):
    """What states the program of every family of a tree, as `Descent` does."""

    @property
    def tree(self) -> Tree:
        """The nodes."""
        ...

    @property
    def cells(self) -> IntArray:
        """The cells of the root."""
        ...

    @property
    def whole_total(self) -> bool:
        """As `in_order` takes it."""
        ...

    def first(self, index: int) -> tuple[Query, ...]:
        """The queries that are made non-negative first in the families whose children are of level ``index``."""
        ...

    def stated(self, index: int, nodes: slice, above: Sparse | None) -> tuple[Family, Solved | None]:
        """The program of the children ``nodes``, numbered from the first of level ``index``, of a parent ``above``, and
        its solution as a release has it before rounding; None where the method's solver finds it."""
        ...


def cross_check_families(
    descent: StatedFamilies,
    method: Method,
    histograms: Sequence[Sparse],
    *,
    solver: str = "OSQP",
    rng: np.random.Generator | None = None,
) -> CrossCheck:
    """Solve families of ``method`` again by ``solver``, each beneath its parent's of ``histograms``, and
    compare. In a family where some queries are made non-negative first, every pass is solved again, given the passes
    before it.

    Families are taken in random order up to 1,500 variables together (children times cells), none of more than 1,000;
    for a large release in proportion to its size, up to 3,000 and 1,500. The root alone counts as a family. Raises as
    `cross_check` does.
    """
    programs, total, largest = _programs(descent, histograms, np.random.default_rng() if rng is None else rng)
    scope = "every family"
    if len(programs) < total:
        scope = f"{len(programs):,} of {total:,} families, none of more than {largest:,} children times cells"
    problems = [partial(_family_apart, program, descent.whole_total, method) for program in programs]
    return _solved_again(problems, solver, scope, sum(len(program.family.known.g) for program in programs))


def solved_again(
    measurements: Measurements,
    estimates: Mapping[str, Estimate],
    solver: str | None,
    ties: KeyedSource,
    limits: AnswerLimits | None = None,
) -> dict[str, CrossCheck]:
    """A second solution of every program by ``solver``, where there is one. Raises `ProjectionError` where
    they disagree.

    The sample of a large tree is drawn from streams of its own under the key of ``ties``, so that the same release,
    written again, has the same bytes, and the bits that break ties do not change.
    """
    checks = {}
    for name, estimate in estimates.items() if solver is not None else ():
        # The certificate of least-squares histograms is computed from the queries, independently of the solution.
        if estimate.nonnegative or not measurements.others:
            rng = generator(ties.spawn("cross-check", name))
            within = limits if estimate.nonnegative else None
            checks[name] = cross_check(measurements, estimate, limits=within, solver=solver or "", rng=rng)
    require_agreement(checks)
    return checks


def families_again(
    descent: StatedFamilies,
    method: Method,
    histograms: Sequence[Sparse],
    solver: str,
    ties: KeyedSource,
    piece: tuple[str, tuple[int, ...]] = ("", ()),
) -> CrossCheck:
    """A second solution of families beneath whole ``histograms``, root first, as `solved_again` of estimates.

    ``piece``: a description of the piece of the tree, and the name of the stream that chooses the sample there. Raises
    `ConfigError` for a method that cannot state its program, `ProjectionError` where they disagree.
    """
    called, name = piece
    rng = generator(ties.spawn("cross-check", "non_negative", *name))
    check = cross_check_families(descent, method, histograms[: descent.tree.n_families], solver=solver, rng=rng)
    check = replace(check, scope=f"{check.scope} of {called}" if called else check.scope)
    require_agreement({"non_negative": check})
    return check


def parts_again(n_parts: int, ties: KeyedSource) -> frozenset[int]:
    """Which parts of a release have families solved again: four of them, or all where there are fewer, chosen by a
    stream of its own under the key of ``ties``.
    """
    rng = generator(ties.spawn("cross-check", "parts"))
    return frozenset(rng.permutation(n_parts)[:_PARTS_AGAIN].tolist())


def require_agreement(checks: Mapping[str, CrossCheck]) -> None:
    """Refuse a second solution that disagrees with the first. Raises `ProjectionError`."""
    for name, found in checks.items():
        if not found.agrees:
            raise ProjectionError(
                f"{name}: the tree engine and {found.solver} differ by {found.largest_difference:.3g} on "
                f"{found.scope}, more than {found.tolerance:.3g}; nothing was released. Try another projection.solver"
            )


def say_agreement(stages: Stages, checks: Mapping[str, CrossCheck]) -> None:
    """Report the largest difference of every second solution."""
    for name, found in checks.items():
        stages.say(
            f"checked   {name.replace('_', '-')}: solved again by {found.solver}, "
            f"apart by {found.largest_difference:.1e} on {found.scope}"
        )


def generator(source: KeyedSource) -> np.random.Generator:
    """A stream of random numbers that chooses samples, from its key."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(source.read(32), "little")))


def _parts(
    measurements: Measurements, estimate: Estimate, rng: np.random.Generator
) -> Iterator[tuple[Measurements, IntArray]]:
    """The trees that are solved again: their measurements, and the numbers of their nodes."""
    if measurements.geography.n_nodes <= WHOLE:
        yield measurements, np.arange(measurements.geography.n_nodes)
        return
    for node in _sample_roots(measurements.geography.tree, rng):
        yield _subtree(measurements, estimate, node, rng)


def _problem_of(part: Measurements, estimate: Estimate, nodes: IntArray, cells: IntArray) -> tuple[Problem, FloatArray]:
    """The part's program of some ``cells`` (cells x nodes), and the estimate's values there; its root's are held."""
    values = np.array(estimate.values[nodes].T[cells])
    if len(nodes) < estimate.geography.n_nodes:
        values[:, 0] = part.values[0, cells]
    return stated(part, estimate.weights, nonnegative=estimate.nonnegative, cells=cells), values


def _cells_apart(problem: Problem, values: FloatArray, method: Method, solver: str) -> Difference:
    """The largest difference of ``values`` (cells x nodes) from a second solution, relative to its tolerance."""
    from topdown.projection.check import cvxpy_programs

    program = method.stated(method.for_cells().program, problem)
    again = cvxpy_programs.solve_cells(program, _bounded(solver))
    rounding, deviation = resolution(
        values, problem.values, problem.variance, problem.tree, by_family=not method.upward
    )
    accepted, apart = TOLERANCE * deviation + rounding, np.abs(again - values)
    ratio = np.divide(apart, accepted, out=np.where(apart > 0, np.inf, 0.0), where=accepted > 0)
    worst = np.unravel_index(np.argmax(ratio), ratio.shape)
    return Difference(float(apart[worst]), float(accepted[worst]))


class Resolution(NamedTuple):
    """How much two correct solutions of a program may differ at every node, by rounding and by a solver's inexactness.

    ``rounding``: the largest rounding error of a value, in counts; ``deviation``: the standard deviation relative to
    which a solver's inexactness is judged: the node's own, and its share of its parent's. Both (..., nodes).
    """

    rounding: FloatArray
    deviation: FloatArray


def resolution(x: FloatArray, values: FloatArray, variance: FloatArray, tree: Tree, *, by_family: bool) -> Resolution:
    """The resolution of ``x`` (..., nodes), the projection of ``values`` with ``variance``: propagated through the tree
    as the projection propagates errors: up into the estimates of parents, and down as shares of a family's discrepancy.

    ``by_family``: whether children were projected by their own measurements alone, and not by all that is below them.
    """
    variance = np.broadcast_to(variance, x.shape)
    size = np.abs(x) + np.abs(measured_or_zero(values, variance))
    unit = own_variance(variance, tree) if by_family else np.concatenate(pooled_variance(variance, tree), axis=-1)
    error, lost = 4 * EPS * size, np.zeros((*x.shape[:-1], tree.n_families))
    for families in tree.families_up():
        c, p = families.children, families.parents
        # numpy adds in pairs, and variances carry the rounding of the levels below.
        adding = EPS * (8.0 + tree.n_levels + np.log2(families.sizes))
        lost[..., p] = adding * (size[..., p] + families.total(size[..., c])) + families.total(error[..., c])
        if not by_family:
            error[..., p] += _part(unit[..., p], families.total(unit[..., c])) * lost[..., p]
    deviation = np.sqrt(unit)
    for families in tree.families_down():
        c, p = families.children, families.parents
        share = _part(unit[..., c], families.spread(families.total(unit[..., c])))
        error[..., c] += share * families.spread(error[..., p] + lost[..., p])
        deviation[..., c] += share * families.spread(deviation[..., p])
    return Resolution(error, deviation)


def _part(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(part, whole, out=np.zeros(np.broadcast_shapes(part.shape, whole.shape)), where=whole > 0)


def _sample_roots(tree: Tree, rng: np.random.Generator) -> list[int]:
    """One inner node of every level with subtrees small enough to solve, and some families of leaves."""
    sizes = tree.aggregate(np.ones(tree.n_leaves, np.int64))
    roots = []
    for level in range(tree.n_levels - 2):
        nodes = tree.level(level)
        small = nodes.start + np.flatnonzero(sizes[nodes] <= _LARGEST_PART)
        if len(small):
            roots.append(int(rng.choice(small)))
    lowest = tree.level(-2)
    return roots + [int(node) for node in np.unique(rng.integers(lowest.start, lowest.stop, _FAMILIES))]


def _subtree(
    measurements: Measurements, estimate: Estimate, node: int, rng: np.random.Generator
) -> tuple[Measurements, IntArray]:
    """The measurements below ``node``, whose own value is held at the estimate's, and the nodes' numbers.

    Of a family of leaves that is too large to solve, some members, whose sum is held: they have no other constraint.
    """
    whole = measurements.geography
    tree, nodes = whole.tree.subtree(node)
    total = estimate.values[node]
    if tree.n_levels == 2 and tree.n_leaves > _LARGEST_PART:
        members = np.sort(rng.choice(nodes[1:], _LARGEST_PART, replace=False))
        tree, nodes = Tree.from_family_sizes([[_LARGEST_PART]]), np.concatenate([nodes[:1], members])
        total = estimate.values[members].sum(axis=0)
    levels = whole.levels[whole.tree.level_of(node) :]
    geography = Geography(levels, tree, whole.identifiers.take(nodes))
    values = np.array(measurements.values[nodes], dtype=np.float64)
    variance = np.array(measurements.node_variance[nodes])
    values[0], variance[0] = total, 0.0
    return Measurements.from_arrays(geography, values, variance, cells=measurements.cells), nodes


class _Compared(NamedTuple):
    """A family's program, its solution as `StatedFamilies` has it, and the queries made non-negative first in it."""

    family: Family
    solved: Solved | None
    first: tuple[Query, ...]


def _programs(
    descent: StatedFamilies, histograms: Sequence[Sparse], rng: np.random.Generator
) -> tuple[list[_Compared], int, int]:
    """Programs of families in random order, the number of families with records (the root alone included), and the most
    variables of a family that were taken.
    """
    tree = descent.tree
    sizes = np.diff(tree.child_offsets)
    cells = np.array([len(one.cells) for one in histograms[: tree.n_families]], np.int64)
    there = np.flatnonzero(cells)
    variables = sizes * cells
    left = int(np.clip(variables.sum() // _PART_OF_FAMILIES, _VARIABLES, _MOST_VARIABLES))
    largest = max(_LARGEST_FAMILY, left // 2)
    able = there[variables[there] <= largest]
    found: list[_Compared] = []
    # A tree that is a part of another has no real root.
    roots = int(len(histograms) > 0 and len(histograms[0].cells) > 0)
    if roots and len(descent.cells) <= largest:
        left -= len(descent.cells)
        found.append(_program(descent, 0, slice(0, 1), None))
    for parent in rng.permutation(able):
        if variables[parent] <= left:
            left -= int(variables[parent])
            index = tree.level_of(int(parent)) + 1
            children, first = tree.children(int(parent)), tree.level(index).start
            nodes = slice(children.start - first, children.stop - first)
            found.append(_program(descent, index, nodes, histograms[parent]))
    return found, len(there) + roots, largest


def _program(descent: StatedFamilies, index: int, nodes: slice, above: Sparse | None) -> _Compared:
    return _Compared(*descent.stated(index, nodes, above), descent.first(index))


def _family_apart(stated: _Compared, whole_total: bool, method: Method, solver: str) -> Difference:
    """The largest distance between a child's two solutions, in standard deviations, over children and passes."""
    from topdown.projection.check import cvxpy_programs

    own, given = method.for_families(), stated.solved
    solve = own.solve if given is None else lambda _: given
    passes, last, solved = in_order(stated.family, stated.first, solve, whole_total=whole_total)
    found = []
    for program, x in [*((classes.program, one.x) for classes, one in passes), (last, solved.x)]:
        difference = cvxpy_programs.family_solution(method.stated(own.program, program), _bounded(solver, x.size)) - x
        information = program.known.table[:, program.pattern]
        distance = np.sqrt(np.maximum(np.einsum("ck,ckl,cl->c", difference, information, difference), 0.0))
        worst = int(np.argmax(distance))
        counts = float(np.abs(difference[worst]).max())
        found.append(Difference(counts, counts * HISTOGRAM_TOLERANCE / distance[worst] if distance[worst] > 0 else 0.0))
    return max(found, key=lambda one: one.ratio)
