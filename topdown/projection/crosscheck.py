"""A second opinion on an estimate: the same program by cvxpy, on the whole tree or on subtrees of a large one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from topdown.geography import Geography
from topdown.measurements import Measurements
from topdown.projection.estimate import Estimate
from topdown.projection.project import project
from topdown.tree import Tree

WHOLE = 10_000
"""Trees of up to this many nodes are solved a second time as a whole."""

_FAMILIES = 20

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
    subtrees are small enough, and 20 families of leaves. ``rng`` chooses the sample. Raises `ProjectionError` when the
    solver fails.
    """
    tolerance = TOLERANCE * max(1.0, estimate.certificate.noise)
    n_nodes = measurements.geography.n_nodes
    if n_nodes <= WHOLE:
        difference = _difference(measurements, estimate, estimate.values, solver)
        return CrossCheck(solver, "the whole tree", n_nodes, difference, tolerance)
    rng = np.random.default_rng() if rng is None else rng
    worst, checked, roots = 0.0, 0, 0
    for node in _sample_roots(measurements.geography.tree, rng):
        part, nodes = _subtree(measurements, estimate, node)
        worst = max(worst, _difference(part, estimate, estimate.values[nodes], solver))
        checked, roots = checked + len(nodes), roots + 1
    return CrossCheck(solver, f"a random sample of {roots} subtrees", checked, worst, tolerance)


def _difference(measurements: Measurements, estimate: Estimate, values: np.ndarray, solver: str) -> float:
    again = project(
        measurements, estimate.method, nonnegative=estimate.nonnegative, engine="cvxpy", weights=estimate.weights,
        solver=solver,
    )  # fmt: skip
    return float(np.abs(again.values - values).max())


def _sample_roots(tree: Tree, rng: np.random.Generator) -> list[int]:
    """One inner node of every level with subtrees small enough to solve, and some families of leaves."""
    sizes = tree.aggregate(np.ones(tree.n_leaves, np.int64))
    roots = []
    for level in range(tree.n_levels - 1):
        nodes = tree.level(level)
        small = nodes.start + np.flatnonzero(sizes[nodes] <= WHOLE // 4)
        if len(small):
            roots.append(int(rng.choice(small)))
    lowest = tree.level(-2)
    return roots + [int(node) for node in rng.integers(lowest.start, lowest.stop, _FAMILIES)]


def _subtree(measurements: Measurements, estimate: Estimate, node: int) -> tuple[Measurements, np.ndarray]:
    whole = measurements.geography
    tree, nodes = whole.tree.subtree(node)
    levels = whole.levels[whole.tree.level_of(node) :]
    geography = Geography(levels, tree, whole.identifiers.take(nodes))
    values = np.array(measurements.values[nodes], dtype=np.float64)
    variance = np.array(measurements.node_variance[nodes])
    values[0], variance[0] = estimate.values[node], 0.0
    return Measurements.from_arrays(geography, values, variance, cells=measurements.cells), nodes
