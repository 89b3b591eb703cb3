"""Geography: which unit lies in which, checked once and then frozen.

All four constructors (from a table, GEOIDs, edges, a networkx tree) give the same numbering: nodes level by level, root
first, every family contiguous, siblings by GEOID in code-point order. The order of the input's rows has no effect,
because a table may be sorted by its counts, and keeping its order would publish that.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import GeographyError, require_list
from topdown.geography import codes, edges, labels, table
from topdown.geography.lookup import FEW, PART, between, place_in
from topdown.geography.tree import IntArray, Tree
from topdown.wording import WITHHELD, joined, listed, may_hold_a_count, shown, unquoted

if TYPE_CHECKING:
    import networkx as nx


DEFAULT_ROOT = "US"
"""The default GEOID of the root of hierarchical codes."""

LONGEST_TEXT = 1_000
"""Bytes of a unit's GEOID or name, at most."""


@dataclass(frozen=True, eq=False, repr=False)
class Geography:
    """A rooted tree of named units whose leaves all stand at the last level.

    Build one with `from_table`, `from_geoids`, `from_edges` or `from_networkx`.

    Args:
        levels: the level names, root first.
        tree: the shape.
        identifiers: the GEOIDs as an Arrow string array in node order, unique over the whole tree, in code-point
            order within every family.
        names: the names of the units, an Arrow string array or None.

    Examples:
        >>> geography.levels, geography.n_leaves
        (('nation', 'state', 'county'), 4)
        >>> by_code = td.Geography.from_geoids(["01001", "01003", "02013"], widths={"state": 2, "county": 5})
        >>> by_code.geoid.tolist()
        ['US', '01', '02', '01001', '01003', '02013']
        >>> by_code.index_of(["02013"])
        array([5])
    """

    levels: tuple[str, ...]
    tree: Tree
    identifiers: pa.Array
    names: pa.Array | None = None

    def __post_init__(self) -> None:
        if len(self.levels) != self.tree.n_levels:
            raise GeographyError(
                f"{len(self.levels)} level names {listed(self.levels)} for a tree of {self.tree.n_levels} levels; "
                "give one name per level, the root's first"
            )
        if len(set(self.levels)) != len(self.levels):
            raise GeographyError(f"level names repeat: {listed(self.levels)}; give every level its own name")
        if len(self.identifiers) != self.tree.n_nodes:
            raise GeographyError(f"{len(self.identifiers)} GEOIDs for {self.tree.n_nodes} nodes")
        for what, texts in (("GEOID", self.identifiers), ("name", self.names)):
            longest = 0 if texts is None else pc.max(pc.binary_length(texts)).as_py() or 0
            if longest > LONGEST_TEXT:
                raise GeographyError(
                    f"a unit has a {what} of {longest:,} bytes, but at most {LONGEST_TEXT:,} are allowed; is a quote "
                    "not closed, or is it the wrong column?"
                )
        self._refuse_unordered()

    def _refuse_unordered(self) -> None:
        """Refuse siblings that do not stand in the order of their identifiers."""
        after_sibling = labels.rises(self.identifiers)
        after_sibling[self.tree.child_offsets[:-1] - 1] = True
        if not after_sibling.all():
            node = int(np.flatnonzero(~after_sibling)[0]) + 1
            raise GeographyError(
                f"{self.describe(node)} stands after its sibling {self._code(node - 1)}; siblings must be "
                "in code-point order of their GEOIDs: build the geography with one of its constructors"
            )

    # -- construction ---------------------------------------------------------------------------------------------

    @classmethod
    def from_table(
        cls,
        frame: Any,
        levels: Sequence[str],
        *,
        root: str | None = None,
        name: str | Mapping[str, str] | None = None,
        separator: str | None = None,
    ) -> Geography:
        """The geography of a table with one row per leaf and one column per level.

        Args:
            frame: a DataFrame (pandas, polars or whatever speaks Arrow), an Arrow table or a mapping of columns.
            levels: the columns, root first; the first may be absent from the table when ``root`` gives the root's
                GEOID, which it may not contradict.
            root: the GEOID of the root, where the table has no column for the first level; by default the column says
                it.
            name: the column with the leaves' names, or a mapping from level to its column of names.
            separator: where units are identified by names that repeat under other parents, join the path from the level
                below the root with it ("OHIO/LAKE"); siblings then go by their path.

        Raises `GeographyError` for a missing identifier (an orphan), one with blanks around it, one of digits that lost
        its leading zero, a unit with two parents or two names, a duplicate leaf, an identifier used at two levels, more
        than one root, names of a level that is not there, an empty separator.
        """
        require_list(levels, "levels")
        return cls(*table.from_table(frame, tuple(levels), root, name, separator))

    @classmethod
    def from_geoids(
        cls,
        geoids: Any,
        widths: Mapping[str, int],
        *,
        root: str = DEFAULT_ROOT,
        root_level: str = "nation",
        names: Any = None,
    ) -> Geography:
        """The geography of hierarchical codes, of which the first ``widths[level]`` characters name the unit there.

        Takes millions of leaves.

        Args:
            geoids: strings, the leaves' (a GEOID of an inner width is accepted when leaves lie below it).
            widths: level to width, in increasing order, without the root's level.
            root: the GEOID of the root.
            root_level: the name of the root's level.
            names: the units' names in the order of ``geoids``.

        Raises `GeographyError` for numbers in place of strings, a wrong width (a lost leading zero is explained), a
        duplicate, a missing value, a unit above the leaf level that has no leaf.
        """
        return cls(*codes.from_geoids(geoids, dict(widths), root, root_level, names))

    @classmethod
    def from_edges(
        cls, child: Any, parent: Any, *, levels: Sequence[str] | None = None, names: Any = None
    ) -> Geography:
        """The geography of explicit pairs (``child[i]`` lies in ``parent[i]``).

        The root is the one node that is nobody's child; a row for it with a missing parent is allowed.

        Args:
            child: identifiers of units, strings, one for each pair.
            parent: the identifier of each one's parent; missing for the root.
            levels: the names of the levels, root first; by default "level 0", "level 1", ...
            names: a mapping from identifier to name, or names in the order of ``child``.

        Raises `GeographyError` for two parents, a repeated pair, a cycle, an orphan, more than one root, a leaf above
        the leaf level.
        """
        return cls(*edges.from_edges(child, parent, levels, names))

    @classmethod
    def from_networkx(cls, tree: nx.DiGraph[Any], *, levels: Sequence[str] | None = None) -> Geography:
        """The geography of a networkx DiGraph with edges parent -> child.

        The nodes' attribute "name" gives names. Raises `GeographyError` as `from_edges` does, and naming the cycle.

        Args:
            tree: a directed graph whose nodes are identifiers.
            levels: the names of the levels, root first; by default the nodes' attribute "level", where every node has
                one, else "level 0", "level 1", ...
        """
        return cls(*edges.from_networkx(tree, levels))

    def to_networkx(self) -> nx.DiGraph[Any]:
        """The tree as a networkx DiGraph, edges parent -> child, node attributes "level" and, where known, "name"."""
        import networkx as nx

        geoids = self.identifiers.to_pylist()
        names = self.names.to_pylist() if self.names is not None else [None] * len(geoids)
        graph: nx.DiGraph[Any] = nx.DiGraph()
        for index, level in enumerate(self.levels):
            for node in range(*self.tree.level(index).indices(self.n_nodes)):
                attributes = {"level": level} | ({"name": names[node]} if names[node] is not None else {})
                graph.add_node(geoids[node], **attributes)
        graph.add_edges_from((geoids[p], geoids[c]) for c, p in enumerate(self.tree.parent.tolist()) if p >= 0)
        return graph

    def part(self, siblings: slice) -> tuple[Geography, IntArray]:
        """A geography of ``siblings`` (nodes of one family), all units below them, and their parent as the root; and
        the number that each of its units has in this geography.
        """
        tree, nodes = self.tree.part(siblings)
        return self._of(self.levels[self.tree.level_of(siblings.start) - 1 :], tree, nodes), nodes

    def top(self, level: str) -> Geography:
        """The units down to ``level``, which are its leaves; their numbers are those in this one."""
        stop = self.level_slice(level).stop
        kept = self.levels.index(level) + 1
        return self._of(self.levels[:kept], self.tree.above(kept - 1), np.arange(stop))

    def _of(self, levels: tuple[str, ...], tree: Tree, nodes: IntArray) -> Geography:
        names = None if self.names is None else self.names.take(nodes)
        return Geography(levels, tree, self.identifiers.take(nodes), names)

    # -- the tree as arrays ---------------------------------------------------------------------------------------

    @cached_property
    def geoid(self) -> npt.NDArray[Any]:
        """The GEOIDs in node order as a numpy array of strings; made on first use."""
        return np.array(self.identifiers.to_pylist(), dtype=np.dtypes.StringDType())

    @property
    def level_offsets(self) -> IntArray:
        """Bounds of the levels in node numbers; (L + 1,)."""
        return self.tree.level_offsets

    @property
    def child_offsets(self) -> IntArray:
        """Bounds of the children of every inner node in node numbers; (inner nodes + 1,)."""
        return self.tree.child_offsets

    @property
    def parent(self) -> IntArray:
        """The parent of every node, -1 at the root; (nodes,)."""
        return self.tree.parent

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.tree.n_nodes

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return self.tree.n_leaves

    def __len__(self) -> int:
        return self.n_nodes

    def level_slice(self, level: str) -> slice:
        """The nodes of the level called ``level``. Raises `GeographyError` for an unknown level."""
        if level not in self.levels:
            raise GeographyError(
                f"no level {shown(level)}; the levels are {joined([unquoted(one) for one in self.levels])}"
            )
        return self.tree.level(self.levels.index(level))

    def level_name(self, node: int) -> str:
        """The name of the level at which ``node`` stands."""
        return self.levels[self.tree.level_of(node)]

    def describe(self, node: int) -> str:
        """``node`` as messages name it: its level, its GEOID and, where known, its name.

        A GEOID or name that may be a count in the wrong column is replaced by the node's number in its level.
        """
        index, code = self.tree.level_of(node), self._code(node)
        if code == WITHHELD:
            return f"{unquoted(self.levels[index])} number {node - self.tree.level(index).start + 1:,} {WITHHELD}"
        name = self.names[node].as_py() if self.names is not None else None
        called = f" ({unquoted(name)})" if name and not may_hold_a_count(name) else ""
        return f"{unquoted(self.levels[index])} {code}{called}"

    def _code(self, node: int) -> str:
        """The GEOID of ``node`` as messages show it."""
        nodes, parent = self.tree.level(self.tree.level_of(node)), int(self.parent[node])
        above = self.identifiers[parent].as_py() if parent >= 0 else None
        return labels.code_shown(self.identifiers[node].as_py(), self.identifiers[nodes], above)

    def are_leaves(self, geoids: pa.Array) -> bool:
        """Whether ``geoids``, text, are the identifiers of all leaves in their order.

        This is true of a table in the geography's own order, the common case; comparing buffers is far cheaper than
        hashing.
        """
        return len(geoids) == self.n_leaves and bool(geoids.equals(self.identifiers[self.tree.leaves.start :]))

    def index_of(self, geoids: Any) -> IntArray:
        """The node of each of ``geoids`` (strings), -1 where there is none."""
        wanted = labels.as_strings(geoids, "geoids")
        leaves = self.tree.leaves
        if self.are_leaves(wanted):
            return np.arange(leaves.start, leaves.stop, dtype=np.int64)
        if 0 < len(wanted) * PART < self.n_nodes and not wanted.null_count and self._in_order[-1]:
            # A part of a table in the geography's own order lies between its first and its last row.
            nodes = between(wanted, self.identifiers, leaves)
            missing = np.flatnonzero(nodes < 0)
            if len(missing) < len(nodes):
                nodes[missing] = self._sought(wanted.take(pa.array(missing))) if len(missing) else -1
                return nodes
        return self._sought(wanted)

    def _sought(self, wanted: pa.Array) -> IntArray:
        """As `index_of`, by a table of all identifiers."""
        if len(wanted) * FEW < self.n_nodes and not wanted.null_count and all(self._in_order):
            return self._searched(wanted)
        found = pc.index_in(wanted, value_set=self.identifiers)
        return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)

    def _searched(self, wanted: pa.Array) -> IntArray:
        """As `index_of`, level by level from the leaves', where every level is in order."""
        nodes = np.full(len(wanted), -1, np.int64)
        for level in range(self.tree.n_levels - 1, -1, -1):
            missing = np.flatnonzero(nodes < 0)
            if len(missing):
                here = self.tree.level(level)
                place = place_in(wanted.take(pa.array(missing)), self.identifiers[here.start : here.stop])
                nodes[missing] = np.where(place >= 0, place + here.start, -1)
        return nodes

    @cached_property
    def _in_order(self) -> tuple[bool, ...]:
        """For every level whether all its units, not only siblings, are in the order of their identifiers."""
        rises = labels.rises(self.identifiers)
        return tuple(bool(rises[lo : hi - 1].all()) for lo, hi in itertools.pairwise(self.level_offsets.tolist()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Geography) and (
            self.levels == other.levels
            and np.array_equal(self.level_offsets, other.level_offsets)
            and np.array_equal(self.child_offsets, other.child_offsets)
            and self.identifiers.equals(other.identifiers)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = np.diff(self.level_offsets)
        return "Geography(" + ", ".join(f"{k:,} {n}" for n, k in zip(self.levels, sizes, strict=True)) + ")"
