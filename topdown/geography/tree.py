"""The shape of a geography as two integer arrays.

Nodes are numbered level by level, the root first, and the children of a node are contiguous. A sum over
families is then one ``np.add.reduceat`` and a broadcast to children one ``np.repeat``. Kernels take a `Tree` and
arrays whose *last* axis runs over its nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import GeographyError

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_VALUES_AT_ONCE = 1 << 20
_CHILDREN_AT_ONCE = 1 << 17


def runs(nodes: slice, at_once: int) -> Iterator[slice]:
    """``nodes`` in order, in ranges of so many."""
    for begin in range(nodes.start, nodes.stop, at_once):
        yield slice(begin, min(begin + at_once, nodes.stop))


class Families(NamedTuple):
    """The families whose parents stand at one level.

    ``parents`` and ``children`` are slices of node numbers, ``starts`` the first child of every family counted
    from ``children.start``, ``sizes`` the number of children of every family (at least 1).
    """

    parents: slice
    children: slice
    starts: IntArray
    sizes: IntArray
    number: IntArray | None = None

    @property
    def counted(self) -> IntArray:
        """How many children every family has, including those that another leaf represents."""
        return self.sizes if self.number is None else np.add.reduceat(self.number, self.starts)

    def total(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum over each family of ``values``, whose last axis runs over the children."""
        if self.number is not None:
            values = values * self.number
        return np.add.reduceat(values, self.starts, axis=-1)

    def total_rows(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum over each family of ``values``, whose first axis runs over the children; of whole numbers as int64."""
        if values.dtype.kind == "i" and values.ndim == 2 and self.number is None:
            from topdown.geography.sums import sums_of_rows

            # numpy would convert narrow numbers one by one before adding them.
            return sums_of_rows(values, self.starts)
        if self.number is not None:
            values = values * self.number.reshape(-1, *(1,) * (values.ndim - 1))
        return np.add.reduceat(values, self.starts, axis=0, dtype=np.int64 if values.dtype.kind == "i" else None)

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Each parent's entry of ``values`` (last axis), repeated for its children."""
        return np.repeat(values, self.sizes, axis=-1)

    def largest(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Maximum over each family of ``values``, whose last axis runs over the children."""
        return np.maximum.reduceat(values, self.starts, axis=-1)

    def smallest(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Minimum over each family of ``values``, whose last axis runs over the children."""
        return np.minimum.reduceat(values, self.starts, axis=-1)

    def parts(self, children: int = 1 << 16) -> list[Families]:
        """The families in groups of about so many ``children``, for work that is to stay in the cache."""
        n = int(self.children.stop - self.children.start)
        if n <= children:
            return [self]
        bounds = np.searchsorted(self.starts, np.arange(0, n + children, children))
        bounds[-1] = len(self.sizes)
        ends = np.append(self.starts, n)
        parts = []
        for first, last in itertools.pairwise(np.unique(bounds).tolist()):
            above = slice(self.parents.start + first, self.parents.start + last)
            below = slice(self.children.start + int(ends[first]), self.children.start + int(ends[last]))
            number = None if self.number is None else self.number[int(ends[first]) : int(ends[last])]
            parts.append(Families(above, below, self.starts[first:last] - ends[first], self.sizes[first:last], number))
        return parts

    def repeated(self, times: int) -> Families:
        """The families of so many equal trees, one after another, in an array of their parents and in one of their
        children."""
        n_parents, n_children = self.parents.stop - self.parents.start, self.children.stop - self.children.start
        starts = (np.arange(times)[:, None] * n_children + self.starts).reshape(-1)
        return Families(
            slice(0, times * n_parents),
            slice(0, times * n_children),
            starts,
            np.tile(self.sizes, times),
            None if self.number is None else np.tile(self.number, times),
        )

    def alone(self) -> Families:
        """The same families in arrays that hold only their parents followed by their children."""
        n_parents, n_children = self.parents.stop - self.parents.start, self.children.stop - self.children.start
        children = slice(n_parents, n_parents + n_children)
        return self._replace(parents=slice(0, n_parents), children=children)


@dataclass(frozen=True, eq=False)
class Tree:
    """A rooted tree whose leaves all stand at the last level.

    ``level_offsets`` (L + 1,) bounds the levels; ``child_offsets`` (inner nodes + 1,) bounds the children of every
    inner node. ``number`` (nodes,): how many nodes each represents in sums (one of several equal leaves may represent
    all of them); None where each represents itself. Raises `GeographyError` where these do not describe such a tree.
    """

    level_offsets: IntArray
    child_offsets: IntArray
    number: IntArray | None = None

    def __post_init__(self) -> None:
        levels, children = self.level_offsets, self.child_offsets
        inner = int(levels[-2])
        sound = (
            levels[0] == 0
            and levels[1] == 1
            and bool(np.all(np.diff(levels) > 0))
            and len(children) == inner + 1
            and children[0] == 1
            and children[-1] == levels[-1]
            and bool(np.all(np.diff(children) > 0))
            and bool(np.array_equal(children[levels[:-1]], levels[1:]))
        )
        if not sound:
            raise GeographyError(
                "these offsets do not describe a tree with one root, contiguous families and every leaf at the "
                "last level; build it with one of Geography's constructors"
            )
        for array in (levels, children):
            array.flags.writeable = False

    @classmethod
    def from_family_sizes(cls, sizes: Sequence[npt.ArrayLike]) -> Tree:
        """The tree whose k-th entry of ``sizes`` lists the numbers of children of the nodes at level k."""
        per_level = [np.atleast_1d(np.asarray(entry, dtype=np.int64)) for entry in sizes]
        level_sizes = [1, *(int(entry.sum()) for entry in per_level)]
        flat = np.concatenate([np.empty(0, np.int64), *per_level])
        return cls(
            level_offsets=np.concatenate([[0], np.cumsum(level_sizes)]).astype(np.int64),
            child_offsets=np.concatenate([[1], 1 + np.cumsum(flat)]).astype(np.int64),
        )

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return int(self.level_offsets[-1])

    @property
    def n_levels(self) -> int:
        """Number of levels, the root's included."""
        return len(self.level_offsets) - 1

    @property
    def n_families(self) -> int:
        """Number of families, which is the number of inner nodes."""
        return len(self.child_offsets) - 1

    @property
    def leaves(self) -> slice:
        """The leaves: the nodes of the last level."""
        return self.level(-1)

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return int(self.level_offsets[-1] - self.level_offsets[-2])

    def level(self, index: int) -> slice:
        """The nodes of level ``index`` (the root is level 0; -1 is the leaves)."""
        index = range(self.n_levels)[index]
        return slice(int(self.level_offsets[index]), int(self.level_offsets[index + 1]))

    def within(self, nodes: slice, levels: Iterable[int]) -> Iterator[slice]:
        """The parts of ``nodes`` at those of ``levels`` that have some of them."""
        for level in map(self.level, levels):
            part = slice(max(nodes.start, level.start), min(nodes.stop, level.stop))
            if part.start < part.stop:
                yield part

    def families(self, index: int) -> Families:
        """The families whose parents stand at level ``index`` (0 to L - 2)."""
        parents, children = self.level(index), self.level(index + 1)
        bounds = self.child_offsets[parents.start : parents.stop + 1]
        number = None if self.number is None else self.number[children]
        return Families(parents, children, bounds[:-1] - children.start, np.diff(bounds), number)

    def families_down(self) -> Iterator[Families]:
        """The families level by level, from the root's."""
        return (self.families(index) for index in range(self.n_levels - 1))

    def parts_down(self) -> Iterator[Families]:
        """As `families_down`, each level in groups of families small enough to stay in the cache."""
        return (part for families in self.families_down() for part in families.parts(_CHILDREN_AT_ONCE))

    def parts_up(self) -> Iterator[Families]:
        """As `families_up`, in the groups of `parts_down`."""
        return (part for families in self.families_up() for part in families.parts(_CHILDREN_AT_ONCE))

    def families_up(self) -> Iterator[Families]:
        """The families level by level, from those of the leaves."""
        return (self.families(index) for index in range(self.n_levels - 2, -1, -1))

    @cached_property
    def parent(self) -> IntArray:
        """The parent of every node, -1 at the root; (nodes,)."""
        parent = np.empty(self.n_nodes, np.int64)
        parent[0] = -1
        parent[1:] = np.repeat(np.arange(self.n_families), np.diff(self.child_offsets))
        parent.flags.writeable = False
        return parent

    @cached_property
    def leaf_counts(self) -> IntArray:
        """How many leaves lie below every node, a leaf itself being one; (nodes,)."""
        counts = self.aggregate(np.ones(self.n_leaves, np.int64))
        counts.flags.writeable = False
        return counts

    def level_of(self, node: int) -> int:
        """The level at which ``node`` stands."""
        return int(np.searchsorted(self.level_offsets, node, side="right")) - 1

    def children(self, node: int) -> slice:
        """The children of ``node``; empty for a leaf."""
        if node >= self.n_families:
            return slice(self.n_nodes, self.n_nodes)
        return self.children_of(slice(node, node + 1))

    def children_of(self, nodes: slice) -> slice:
        """The children of some consecutive inner nodes."""
        return slice(int(self.child_offsets[nodes.start]), int(self.child_offsets[nodes.stop]))

    def aggregate(self, leaves: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sums of ``leaves`` (..., leaves) at every node, in the same dtype; (..., nodes)."""
        values = np.empty((*leaves.shape[:-1], self.n_nodes), leaves.dtype)
        values[..., self.leaves] = leaves
        self.add_up(values)
        return values

    def add_up(self, values: npt.NDArray[Any]) -> None:
        """Make every inner node's entry of ``values`` (..., nodes) the sum of the leaves' below it, in place."""
        for families in self.families_up():
            values[..., families.parents] = families.total(values[..., families.children])

    def not_sums(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """At which inner nodes the entry of ``values`` (..., nodes) is not the sum of the children's; (..., inner
        nodes).
        """
        found = np.zeros((*values.shape[:-1], self.n_families), np.bool_)
        for families in self.families_up():
            sums = families.total(values[..., families.children])
            found[..., families.parents] = sums != values[..., families.parents]
        return found

    def blocks(self, n_cells: int) -> Iterator[slice]:
        """The cells in blocks of about a million values at all nodes, at least one cell each.

        Kernels need ten times the memory of their input. Cells are independent of each other, so a table of many cells
        is processed block by block, and the kernels need ten times a block.
        """
        step = max(1, _VALUES_AT_ONCE // self.n_nodes)
        return (slice(first, min(first + step, n_cells)) for first in range(0, n_cells, step))

    def subtree(self, node: int) -> tuple[Tree, IntArray]:
        """The subtree below ``node`` as a tree of its own, and the numbers of its nodes in this one."""
        sizes, ranges = self._below(node, node + 1)
        return Tree.from_family_sizes(sizes), np.concatenate(ranges)

    def above(self, index: int) -> Tree:
        """The tree down to level ``index``, whose nodes are its leaves; all numbers are those in this one."""
        inner = int(self.level_offsets[index])
        return Tree(self.level_offsets[: index + 2].copy(), self.child_offsets[: inner + 1].copy())

    def part(self, siblings: slice) -> tuple[Tree, IntArray]:
        """Some ``siblings`` with all that is below them and their parent as the root, as a tree of its own, and the
        numbers of its nodes in this one."""
        sizes, ranges = self._below(siblings.start, siblings.stop)
        root = self.parent[siblings.start : siblings.start + 1]
        return Tree.from_family_sizes([[siblings.stop - siblings.start], *sizes]), np.concatenate([root, *ranges])

    def _below(self, lo: int, hi: int) -> tuple[list[IntArray], list[IntArray]]:
        """Nodes ``lo`` to ``hi`` of a level and everything below them, level by level: the sizes of their families
        (inner nodes only), and their numbers.
        """
        ranges, sizes = [np.arange(lo, hi)], []
        for _ in range(self.level_of(lo), self.n_levels - 1):
            sizes.append(np.diff(self.child_offsets[lo : hi + 1]))
            lo, hi = int(self.child_offsets[lo]), int(self.child_offsets[hi])
            ranges.append(np.arange(lo, hi))
        return sizes, ranges
