"""Where a tree is cut: siblings with all below them make a part, as many as a part may hold."""

from __future__ import annotations

import numpy as np

from topdown.geography.tree import Tree


def parts_of(tree: Tree, level: int, leaves: int) -> list[slice]:
    """Runs of siblings at ``level`` with at most so many ``leaves`` below them together, or one sibling with more.

    In the order of their nodes. ``level`` is below the root and above the leaves.
    """
    below = tree.leaf_counts
    found: list[slice] = []
    families = tree.families(level - 1)
    for start, size in zip(families.starts + families.children.start, families.sizes, strict=True):
        first, held = int(start), 0
        for node in range(int(start), int(start + size)):
            if node > first and held + below[node] > leaves:
                found.append(slice(first, node))
                first, held = node, 0
            held += int(below[node])
        found.append(slice(first, int(start + size)))
    return found


def level_to_cut(tree: Tree, leaves: int) -> int:
    """The highest level below the root whose largest subtree has at most so many ``leaves``; the lowest that may be cut
    where there is none."""
    lowest = max(1, tree.n_levels - 2)
    for index in range(1, lowest):
        if np.max(tree.leaf_counts[tree.level(index)]) <= leaves:
            return index
    return lowest
