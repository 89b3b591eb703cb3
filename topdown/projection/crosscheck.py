"""A second opinion on an estimate: the same program by cvxpy, on the whole tree or on subtrees of a large one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from topdown.errors import ProjectionError
from topdown.geography import Geography
from topdown.measurements import Measurements
from topdown.projection.estimate import Estimate
from topdown.projection.project import project
from topdown.tree import Tree

WHOLE = 10_000
"""Trees of up to this many nodes are solved a second time as a whole."""

_FAMILIES = 20
_LARGEST_PART = WHOLE // 4
_ROBUST = "CLARABEL"

TOLERANCE = 1e-4
"""The largest difference, in standard deviations of the noise (in counts where those are below 1), that is accepted."""


@dataclass(frozen=True)
class CrossCheck:
    """How far a second solution by cvxpy is from an estimate.

    ``scope``: what was solved again, in words. ``nodes``: how many nodes. ``largest_difference``: in counts.
    ``tolerance``: the difference that is accepted, in counts.
    """

    solver: str
    scope: str
    nodes: int
    largest_difference: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether the two solutions agree within the tolerance."""
        return self.largest_difference <= self.tolerance


def cross_check(
    measurements: Measurements, estimate: Estimate, *, solver: str = "OSQP", rng: np.random.Generator | None = None
) -> CrossCheck:
    """Solve ``estimate``'s program again by cvxpy with ``solver`` and compare.

    A tree of up to 10,000 nodes is solved whole; of a larger one a random sample of subtrees, each with its root held
    at the estimate's value (which leaves the optimum below it unchanged in every method): one of every level where
    subtrees are small enough, and up to 20 families of leaves (2,500 members of a larger one, whose sum is held).
    ``rng`` chooses the sample. A solver that gives up is replaced by Clarabel, which is slower and more robust; the
    result names the one that was used. Raises `ProjectionError` when that fails too.
    """
    try:
        return _checked_by(measurements, estimate, solver, rng)
    except ProjectionError:
        if solver.upper() == _ROBUST:
            raise
        return _checked_by(measurements, estimate, _ROBUST, rng)


def _checked_by(
    measurements: Measurements, estimate: Estimate, solver: str, rng: np.random.Generator | None
) -> CrossCheck:
    tolerance = TOLERANCE * max(1.0, estimate.certificate.noise)
    n_nodes = measurements.geography.n_nodes
    if n_nodes <= WHOLE:
        difference = _difference(measurements, estimate, estimate.values, solver)
        return CrossCheck(solver, "the whole tree", n_nodes, difference, tolerance)
    rng = np.random.default_rng() if rng is None else rng
    worst, checked, roots = 0.0, 0, 0
    for node in _sample_roots(measurements.geography.tree, rng):
        part, nodes = _subtree(measurements, estimate, node, rng)
        worst = max(worst, _difference(part, estimate, _held(part, estimate, nodes), solver))
        checked, roots = checked + len(nodes), roots + 1
    return CrossCheck(solver, f"a random sample of {roots} subtrees", checked, worst, tolerance)


def _difference(measurements: Measurements, estimate: Estimate, values: np.ndarray, solver: str) -> float:
    again = project(
        measurements, estimate.method, nonnegative=estimate.nonnegative, engine="cvxpy", weights=estimate.weights,
        solver=solver,
    )  # fmt: skip
    return float(np.abs(again.values - values).max())


def _held(part: Measurements, estimate: Estimate, nodes: np.ndarray) -> np.ndarray:
    """The estimate's values at the part's nodes, and at its root what is held there."""
    values = np.array(estimate.values[nodes])
    values[0] = part.values[0]
    return values


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
