"""Confidential counts kept as the cells that have records: of thousands of cells a small unit has a few."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import IntArray, Tree


class Entries(NamedTuple):
    """Counts above 0 of every node, all int64.

    The node k has ``counts[starts[k]:starts[k + 1]]`` in the ``cells`` beside, in rising order; in all others 0.
    """

    starts: IntArray
    cells: IntArray
    counts: IntArray

    @classmethod
    def of_leaves(cls, tree: Tree, n_cells: int, keys: IntArray, counts: IntArray) -> Entries:
        """The entries of all nodes, from those of the leaves: ``counts`` by ``keys``, leaf * ``n_cells`` + cell, leaves
        numbered from the first; each once, in any order.
        """
        kept = counts > 0
        order = np.argsort(keys[kept], kind="stable")
        own, numbers = keys[kept][order], counts[kept][order]
        levels = [(own, numbers)]
        for index in range(tree.n_levels - 2, -1, -1):
            nodes, cells = np.divmod(levels[-1][0], n_cells)
            families = tree.families(index)
            parent = np.repeat(np.arange(len(families.sizes)), families.sizes)[nodes]
            above, place = np.unique(parent * n_cells + cells, return_inverse=True)
            sums = np.zeros(len(above), np.int64)
            np.add.at(sums, place.reshape(-1), levels[-1][1])
            levels.append((above, sums))
        found = [
            (keys // n_cells + tree.level(tree.n_levels - 1 - k).start, keys % n_cells, numbers)
            for k, (keys, numbers) in enumerate(levels)
        ][::-1]
        nodes, cells, counts = (np.concatenate([level[part] for level in found]) for part in range(3))
        return cls(np.searchsorted(nodes, np.arange(tree.n_nodes + 1)), cells, counts)

    def part(self, nodes: slice) -> tuple[IntArray, IntArray, IntArray]:
        """Rows (counted from the first of ``nodes``), cells and counts of some nodes."""
        within = slice(int(self.starts[nodes.start]), int(self.starts[nodes.stop]))
        sizes = np.diff(self.starts[nodes.start : nodes.stop + 1])
        return np.repeat(np.arange(len(sizes)), sizes), self.cells[within], self.counts[within]

    def block(self, cells: slice, nodes: slice) -> npt.NDArray[np.int64]:
        """The counts as a table (cells x nodes), of some of both."""
        rows, places, counts = self.part(nodes)
        first, stop = cells.start or 0, cells.stop
        chosen = (places >= first) & (places < stop)
        found = np.zeros((stop - first, nodes.stop - nodes.start), np.int64)
        found[places[chosen] - first, rows[chosen]] = counts[chosen]
        return found
