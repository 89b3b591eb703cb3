"""Confidential counts stored as only those cells that have records: of thousands of cells, a small unit has a few."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import InternalError
from topdown.geography.tree import IntArray, Tree

_FEW_CELLS, _MANY_CELLS = 1 << 15, 1 << 22
"""Up to the first, the numbers of cells fit 16 bits; from the second on, no table over all cells is made, and the cells
that occur are renumbered.
"""

_NARROW, _WIDE = (np.int16, np.int32), (np.int64, np.int64)
"""The integer types of cells and counts."""


class Run(NamedTuple):
    """``counts`` of cells of leaves, sorted by ``keys``: leaf * number of cells + cell."""

    keys: IntArray
    counts: IntArray


class Entries(NamedTuple):
    """The counts above 0 of every node, in the narrowest integer types.

    Node k has ``counts[starts[k]:starts[k + 1]]`` in the ``cells`` of the same places, in rising order, and 0 in all
    others.
    """

    starts: IntArray
    cells: npt.NDArray[Any]
    counts: npt.NDArray[Any]

    @classmethod
    def of_leaves(cls, tree: Tree, n_cells: int, keys: IntArray, counts: IntArray) -> Entries:
        """The entries of all nodes, from those of the leaves: ``counts`` by ``keys``, leaf * ``n_cells`` + cell, leaves
        numbered from the first, in any order; those of one key are added up. Raises as `of_runs` does.
        """
        distinct_keys, place = np.unique(keys, return_inverse=True)
        sums = np.zeros(len(distinct_keys), np.int64)
        np.add.at(sums, place, counts)
        return cls.of_runs(tree, n_cells, [Run(distinct_keys, sums)])

    @classmethod
    def of_runs(cls, tree: Tree, n_cells: int, runs: list[Run]) -> Entries:
        """As `of_leaves`, from sorted runs that follow each other; the list is emptied as they are read.

        Raises `InternalError` where the counts of a level do not add up to those of the leaves.
        """
        from topdown.confidential.entries_kernel import distinct, merged  # with a compiler

        total = sum(int(run.counts.sum()) for run in runs)
        kinds = _NARROW if n_cells <= _FEW_CELLS and total < 1 << 31 else _WIDE
        sizes, parts = np.zeros(tree.n_leaves, np.int64), []
        while runs:
            keys, counts = runs.pop(0)
            kept = counts > 0
            leaves, cells = np.divmod(keys[kept], n_cells)
            if len(leaves):
                own = np.bincount(leaves - leaves[0])
                sizes[leaves[0] : leaves[0] + len(own)] += own
            parts.append((cells.astype(kinds[0]), counts[kept].astype(kinds[1])))
        columns = [[part[k] for part in parts] for k in range(2)]
        del parts
        level = cls(_from_zero(sizes), _joined(columns[0], kinds[0]), _joined(columns[1], kinds[1]))
        del columns
        occurring = None
        if n_cells > _MANY_CELLS:
            occurring, places = np.unique(level.cells, return_inverse=True)
            level, n_cells = level._replace(cells=places), len(occurring)
        levels = [level]
        for index in range(tree.n_levels - 2, -1, -1):
            families = tree.families(index)
            bounds = np.append(families.starts, families.children.stop - families.children.start)
            starts = _from_zero(distinct(level.starts, level.cells, bounds, n_cells))
            above = cls(starts, *(np.empty(starts[-1], kind) for kind in kinds))
            merged(*level, bounds, starts, above.cells, above.counts, n_cells)
            level = above
            levels.append(level)
        if any(int(one.counts.sum(dtype=np.int64)) != total for one in levels):
            raise InternalError(
                "the counts of a level do not add up to the table's: an internal error of topdown; nothing was "
                "released, please report it"
            )
        levels.reverse()
        starts = _from_zero(np.concatenate([np.diff(one.starts) for one in levels]))
        cells, counts = (_joined([one[k] for one in levels], kinds[k - 1]) for k in (1, 2))
        return cls(starts, cells if occurring is None else occurring[cells], counts)

    def part(self, nodes: slice) -> tuple[IntArray, IntArray, IntArray]:
        """Rows (counted from the first of ``nodes``), cells and counts of some nodes, all int64."""
        within = slice(int(self.starts[nodes.start]), int(self.starts[nodes.stop]))
        sizes = np.diff(self.starts[nodes.start : nodes.stop + 1])
        rows = np.repeat(np.arange(len(sizes)), sizes)
        return rows, self.cells[within].astype(np.int64), self.counts[within].astype(np.int64)

    def table(self, nodes: slice, n_cells: int) -> npt.NDArray[np.int64]:
        """The counts of some nodes as a table (nodes x cells)."""
        rows, cells, counts = self.part(nodes)
        found = np.zeros((nodes.stop - nodes.start, n_cells), np.int64)
        found[rows, cells] = counts
        return found


def _from_zero(sizes: IntArray) -> IntArray:
    """Where runs of these ``sizes`` begin, and where the last ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _joined(parts: list[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0, kind), *parts])
