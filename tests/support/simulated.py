"""Small tables and plans whose simulated errors are known exactly."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import topdown as td
from topdown.geography.tree import Tree


def counts_of(leaves: object, sizes: list[list[int]], levels: tuple[str, ...] | None = None) -> td.Counts:
    """Counts (leaves,) or (cells, leaves) on the tree of these family sizes; levels "0", "1", ..."""
    tree = Tree.from_family_sizes(sizes)
    values = tree.aggregate(np.atleast_2d(np.asarray(leaves, dtype=np.int64)))
    levels = levels or tuple(str(k) for k in range(tree.n_levels))
    names = [f"n{k:05d}" for k in range(tree.n_nodes)]
    geography = td.Geography(levels, tree, pa.array(names))
    return td.Counts(geography, tuple(f"c{k}" for k in range(len(values))), values.T)


def family(values: list[int]) -> td.Counts:
    return counts_of(values, [[len(values)]])


def public_root(mechanism: str = "geometric", epsilon: float = 1.0, below: int = 1) -> td.Plan:
    """A plan that spends ``epsilon`` on each of the levels below a public root."""
    shares = {str(k): f"1/{below}" for k in range(1, below + 1)}
    return td.Plan(mechanism, epsilon=epsilon * below, shares=shares, invariants=("0",))
