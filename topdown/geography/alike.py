"""Trees in which one leaf represents all equal leaves of its family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import IntArray, Tree


@dataclass(frozen=True, eq=False)
class Alike:
    """``tree``: the tree with one leaf in place of several equal ones, and their number. ``nodes``: the number in the
    whole tree of every node of it; ``number`` (its nodes,): how many nodes each represents.
    """

    tree: Tree
    nodes: IntArray
    number: IntArray

    @classmethod
    def of(cls, tree: Tree, *marks: npt.NDArray[Any]) -> Alike:
        """Merge consecutive leaves of a family that agree in all ``marks`` (leaves,)."""
        leaves = tree.leaves
        begins = np.ones(tree.n_leaves, bool)
        begins[1:] = False
        for mark in marks:
            begins[1:] |= mark[1:] != mark[:-1]
        above = tree.level(-2).start if tree.n_levels > 1 else 0
        begins[tree.child_offsets[above:-1] - leaves.start] = True
        first = np.flatnonzero(begins)
        levels, children = tree.level_offsets.copy(), tree.child_offsets.copy()
        levels[-1] = leaves.start + len(first)
        families = slice(above, len(children)) if tree.n_levels > 1 else slice(0, 0)
        children[families] = leaves.start + np.searchsorted(first, children[families] - leaves.start)
        nodes = np.concatenate([np.arange(leaves.start), leaves.start + first])
        counted = np.diff(np.append(first, tree.n_leaves))
        number = np.concatenate([np.ones(leaves.start, np.int64), counted])
        return cls(Tree(levels, children, number), nodes, number)

    def everywhere(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """``values`` of its nodes (nodes of its tree,) at all nodes of the whole tree."""
        return np.repeat(values, self.number)
