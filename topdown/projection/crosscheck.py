"""A second opinion on an estimate: the same program by cvxpy, on the whole tree or on subtrees of a large one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from topdown.errors import ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, Tree
from topdown.measurements.measurements import Measurements
from topdown.projection.estimate import Estimate
from topdown.projection.method import Method, method_named
from topdown.projection.problem import Problem, cell_of
from topdown.projection.project import stated
from topdown.projection.resolution import resolution

WHOLE = 10_000
"""Trees of up to this many nodes are solved a second time as a whole."""

_FAMILIES = 20
_LARGEST_PART = WHOLE // 4
ROBUST = ("CLARABEL", "SCS")
"""Who is asked, one after the other, where a solver gives up or disagrees: slower, each exact where others are not."""

TOLERANCE = 1e-4
"""The largest difference beyond rounding, in standard deviations of the node's own noise, that is accepted."""


@dataclass(frozen=True)
class CrossCheck:
    """How far a second solution by cvxpy is from an estimate.

    ``scope``: what was solved again, in words. ``nodes``: how many nodes. ``largest_difference``: in counts, where it
    comes nearest to what is accepted. ``tolerance``: the difference that is accepted there, in counts.
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
        """Those of pieces of one release as one: its numbers are those of the piece that comes nearest to what is
        accepted, or exceeds it most."""
        worst = max(checks, key=lambda one: _Difference(one.largest_difference, one.tolerance).ratio)
        return replace(
            worst,
            solver=", ".join(dict.fromkeys(one.solver for one in checks)),
            scope="; ".join(one.scope for one in checks),
            nodes=sum(one.nodes for one in checks),
        )


class _Difference(NamedTuple):
    """A difference beside what is accepted for it."""

    counts: float
    accepted: float

    @property
    def ratio(self) -> float:
        """What is not a number agrees with nothing."""
        if np.isnan(self.counts):
            return np.inf
        return self.counts / self.accepted if self.accepted > 0 else np.inf if self.counts > 0 else 0.0


def cross_check(
    measurements: Measurements, estimate: Estimate, *, solver: str = "OSQP", rng: np.random.Generator | None = None
) -> CrossCheck:
    """Solve ``estimate``'s program again by cvxpy with ``solver`` and compare.

    A tree of up to 10,000 nodes is solved whole; of a larger one a random sample of subtrees, each with its root held
    at the estimate's value (which leaves the optimum below it unchanged in every method): one of every level where
    subtrees are small enough, and up to 20 families of leaves (2,500 members of a larger one, whose sum is held).
    ``rng`` chooses the sample. Differences are judged node by node, beside its own noise and what float64 resolves
    there. Where a solver gives up or disagrees others are asked, Clarabel and SCS; the result names the one that came
    nearest. Raises `ProjectionError` when all fail.
    """
    seed = np.random.default_rng() if rng is None else rng
    # An impossible cell is 0, and has no program.
    cells = measurements.schema.possible_cells()
    parts = [_problem_of(part, estimate, nodes, cells) for part, nodes in _parts(measurements, estimate, seed)]
    n_nodes = measurements.geography.n_nodes
    scope = "the whole tree" if n_nodes <= WHOLE else f"a random sample of {len(parts)} subtrees"
    nodes = sum(problem.tree.n_nodes for problem, _ in parts)
    best: tuple[_Difference, str] | None = None
    failed: ProjectionError | None = None
    for name in dict.fromkeys([solver.upper(), *ROBUST]):
        found = _checked_by(parts, method_named(estimate.method), name)
        if isinstance(found, ProjectionError):
            failed = failed or found
            continue
        if best is None or found.ratio < best[0].ratio:
            best = found, name
        if found.ratio <= 1:
            break
    if best is None:
        assert failed is not None  # nosec B101 # narrows a type: every solver that finds no difference fails
        raise failed
    return CrossCheck(best[1], scope, nodes, best[0].counts, best[0].accepted)


def _parts(
    measurements: Measurements, estimate: Estimate, rng: np.random.Generator
) -> Iterator[tuple[Measurements, np.ndarray]]:
    """What is solved again: measurements on trees, and the numbers of their nodes."""
    if measurements.geography.n_nodes <= WHOLE:
        yield measurements, np.arange(measurements.geography.n_nodes)
        return
    for node in _sample_roots(measurements.geography.tree, rng):
        yield _subtree(measurements, estimate, node, rng)


def _problem_of(
    part: Measurements, estimate: Estimate, nodes: np.ndarray, cells: np.ndarray
) -> tuple[Problem, FloatArray]:
    """The part's program of some ``cells`` (cells x nodes), and the estimate's values there; its root's are held."""
    values = np.array(estimate.values[nodes].T[cells])
    if len(nodes) < estimate.geography.n_nodes:
        values[:, 0] = part.values[0, cells]
    return stated(part, estimate.weights, nonnegative=estimate.nonnegative, cells=cells), values


def _checked_by(parts: list[tuple[Problem, FloatArray]], method: Method, solver: str) -> _Difference | ProjectionError:
    """The difference that comes nearest to what is accepted, or exceeds it most; the error if the solver failed."""
    from topdown.projection import reference

    found = []
    try:
        for problem, values in parts:
            again = reference.solve(problem, method, solver, {})
            found += [
                _difference(cell_of(problem, cell), values[cell], again[cell], method) for cell in range(len(values))
            ]
    except ProjectionError as error:
        return error
    return max(found, key=lambda difference: difference.ratio)


def _difference(problem: Problem, values: FloatArray, again: FloatArray, method: Method) -> _Difference:
    """The difference at the node where it is largest beside what is accepted."""
    y, v, tree = problem.values, problem.variance, problem.tree
    resolved = resolution(values, y, v, tree, by_family=not method.upward)
    accepted = TOLERANCE * resolved.deviation + resolved.rounding
    apart = np.abs(again - values)
    ratio = np.divide(apart, accepted, out=np.where(apart > 0, np.inf, 0.0), where=accepted > 0)
    node = int(np.argmax(ratio))
    return _Difference(float(apart[node]), float(accepted[node]))


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
) -> tuple[Measurements, np.ndarray]:
    """The measurements below ``node``, whose own value is held at the estimate's, and the nodes' numbers.

    Of a family of leaves that is too large to solve, some members, whose sum is held: nothing else binds them.
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
