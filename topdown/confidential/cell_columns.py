"""Counts cell by cell, for the search for sums among them, from a table or from only those cells that have records. In
the latter case no array of all cells times leaves is made: of thousands of cells, a block has records in few.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from topdown.confidential.counts import Counts
from topdown.confidential.entries import Entries
from topdown.geography.tree import Families, FloatArray, IntArray, Tree

LEAST_COUNT = 20
"""Families whose largest unit counts less are ignored: small numbers often agree by chance, and depend on each other.
"""

_ENTRIES_AT_ONCE = 1 << 20


class CellColumns(Protocol):
    """Columns of ``cells`` (k,), which include all that have records; the methods number cells by their place in it."""

    cells: IntArray
    n_leaves: int

    @property
    def totals(self) -> IntArray:
        """Every cell's count at the root; (k,)."""
        ...

    def sum(self, cells: IntArray) -> IntArray:
        """The sum of some cells in every leaf; (leaves,)."""
        ...

    def in_groups(self, cells: IntArray, starts: IntArray) -> IntArray:
        """Sums over groups of leaves that begin at ``starts``, the first at 0; (cells x groups)."""
        ...

    def halves(self, families: Families) -> tuple[IntArray, FloatArray]:
        """The children that have half of their parent's count in every cell, and the evidence for each in bits.
        Families are left out where fewer than two siblings have a count, or where all counts are small.
        """
        ...


def columns_of(counts: Counts) -> CellColumns:
    """The columns of ``counts``."""
    tree = counts.geography.tree
    return _OfEntries(tree, counts.held) if isinstance(counts.held, Entries) else _OfTable(tree, counts.held.T)


class _OfTable:
    """The columns of a table (cells x nodes)."""

    def __init__(self, tree: Tree, by_cell: IntArray) -> None:
        self.by_cell, self.leaves = by_cell, tree.leaves
        self.cells, self.n_leaves = np.arange(len(by_cell)), tree.n_leaves

    @property
    def totals(self) -> IntArray:
        return self.by_cell[:, 0]

    def sum(self, cells: IntArray) -> IntArray:
        total = np.zeros(self.n_leaves, np.int64)
        for cell in cells:
            total += self.by_cell[cell, self.leaves]
        return total

    def in_groups(self, cells: IntArray, starts: IntArray) -> IntArray:
        return np.stack([np.add.reduceat(self.by_cell[cell, self.leaves], starts) for cell in cells])

    def halves(self, families: Families) -> tuple[IntArray, FloatArray]:
        return _halves(self.by_cell, families)


class _OfEntries:
    """The columns of counts that are stored as those that are not 0."""

    def __init__(self, tree: Tree, entries: Entries) -> None:
        self.tree, self.entries, self.n_leaves = tree, entries, tree.n_leaves
        # The root has every cell that any leaf has, in rising order.
        root = slice(0, int(entries.starts[1]))
        self.cells, self._totals = entries.cells[root].astype(np.int64), entries.counts[root].astype(np.int64)

    @property
    def totals(self) -> IntArray:
        return self._totals

    def sum(self, cells: IntArray) -> IntArray:
        wanted = np.zeros(int(self.cells.max(initial=0)) + 1, bool)
        wanted[self.cells[cells]] = True
        total = np.zeros(self.n_leaves, np.int64)
        for leaves, own, counts in self._of_leaves():
            chosen = wanted[own]
            np.add.at(total, leaves[chosen], counts[chosen])
        return total

    def in_groups(self, cells: IntArray, starts: IntArray) -> IntArray:
        place = np.full(int(self.cells.max(initial=0)) + 1, -1)
        place[self.cells[cells]] = np.arange(len(cells))
        found = np.zeros((len(cells), len(starts)), np.int64)
        for leaves, own, counts in self._of_leaves():
            group = np.searchsorted(starts, leaves, side="right") - 1
            chosen = place[own] >= 0
            np.add.at(found, (place[own][chosen], group[chosen]), counts[chosen])
        return found

    def _of_leaves(self) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        """Leaves, numbered from the first, cells and counts, some leaves at a time."""
        leaves = self.tree.leaves
        at = self.entries.starts[leaves.start : leaves.stop + 1]
        wanted = np.arange(at[0], at[-1] + _ENTRIES_AT_ONCE, _ENTRIES_AT_ONCE)
        bounds = np.unique([0, *np.searchsorted(at, wanted), self.n_leaves]).clip(0, self.n_leaves)
        for first, stop in itertools.pairwise(bounds.tolist()):
            rows, cells, counts = self.entries.part(slice(leaves.start + first, leaves.start + stop))
            yield rows + first, cells, counts

    def halves(self, families: Families) -> tuple[IntArray, FloatArray]:
        above = families.spread(self._sizes(families.parents))
        own = self._sizes(families.children)
        places = np.flatnonzero((2 * own == above) & (own >= LEAST_COUNT))
        nodes, bits = [np.empty(0, np.int64)], [np.empty(0)]
        for family in np.unique(np.searchsorted(families.starts, places, side="right") - 1).tolist():
            first = families.children.start + int(families.starts[family])
            siblings = slice(first, first + int(families.sizes[family]))
            parent = families.parents.start + family
            found, said = _halves(self._family(parent, siblings), _alone(siblings.stop - first))
            nodes.append(found - 1 + first)
            bits.append(said)
        return np.concatenate(nodes), np.concatenate(bits)

    def _sizes(self, nodes: slice) -> IntArray:
        """The totals of some nodes over all cells."""
        rows, _, counts = self.entries.part(nodes)
        total = np.zeros(nodes.stop - nodes.start, np.int64)
        np.add.at(total, rows, counts)
        return total

    def _family(self, parent: int, siblings: slice) -> IntArray:
        """The counts of a parent and its children in the cells where the parent has records; (cells x nodes)."""
        _, cells, counts = self.entries.part(slice(parent, parent + 1))
        rows, own, numbers = self.entries.part(siblings)
        found = np.zeros((len(cells), 1 + siblings.stop - siblings.start), np.int64)
        found[:, 0] = counts
        found[np.searchsorted(cells, own), 1 + rows] = numbers
        return found


def _alone(children: int) -> Families:
    """One family, the parent first."""
    return Families(slice(0, 1), slice(1, 1 + children), np.zeros(1, np.int64), np.array([children]))


def _halves(by_cell: npt.NDArray[np.int64], families: Families) -> tuple[IntArray, FloatArray]:
    """As `CellColumns.halves`, for counts (cells x nodes)."""
    children, parents = families.children, families.parents
    holds = np.ones(children.stop - children.start, bool)
    most = np.zeros(len(holds), np.int64)
    for values in by_cell:
        own = values[children]
        holds &= 2 * own == families.spread(values[parents])
        most = np.maximum(most, own)
        if not holds.any():
            break
    place = np.flatnonzero(holds & (most >= LEAST_COUNT))
    if not len(place):
        return place, np.empty(0)
    family = np.searchsorted(families.starts, place, side="right") - 1
    counted = np.max([families.total((values[children] > 0).astype(np.int64))[family] for values in by_cell], axis=0)
    place = place[counted > 2]
    # In one cell the size of a unit is free; in the others it follows the shares of its siblings.
    bits = 0.5 * np.log2(1.0 + most[place])
    for values in by_cell:
        bits += 0.5 * np.log2(1.0 + values[children][place])
    return children.start + place, bits
