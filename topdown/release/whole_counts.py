"""Release: whole, non-negative, consistent counts, kept as a table or as entries, and checked when it is made."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from topdown.errors import DataError, ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.geography.unit_sums import UnitSums
from topdown.machine.memory import gibibytes, most_at_once
from topdown.projection.check.certificate import Certificate
from topdown.release.layouts import EVERY_CELL, WITH_RECORDS, Layout, wide_batches
from topdown.tables.tidy import ArrowTable, to_arrow, to_frame
from topdown.wording import shown
from topdown.workload import Query, Schema
from topdown.workload.answer_tables import answer_columns

BoolArray = npt.NDArray[np.bool_]

_BYTES_OF_COUNT = 18
"""Bytes for a cell at a node in a table of counts: the count, whether it is exact, and the work of adding up."""


_ENTRIES_AT_ONCE, _READ, _BETWEEN = 1 << 24, 1 << 22, 1 << 12
"""Of sums of nodes so many entries are added up at once; so many are read at once, about, and so many that are not
asked for are read where they are between others."""


class Fault(NamedTuple):
    """A count that is not allowed in a release: its node and cell, and what is wrong in words, or how much more its
    children have (``gap``).
    """

    node: int
    cell: int
    words: str = ""
    gap: int = 0


class Held(Protocol):
    """The counts of a release: a table, or entries, which are the cells that have records, node by node, in rising
    order of cells.
    """

    @property
    def starts(self) -> IntArray:
        """The number of every node's first entry, and how many entries there are; (nodes + 1,)."""

    @property
    def dense(self) -> IntArray | None:
        """All counts (nodes x cells), where they are kept as a table; else None."""

    def entries(self, numbers: slice) -> tuple[IntArray, IntArray]:
        """The cells and counts of some entries."""

    def at(self, units: UnitSums, n_cells: int) -> Held:
        """The counts of ``units``, which are sums of the nodes."""

    def fault(self, tree: Tree, n_cells: int) -> Fault | None:
        """A count that is not allowed in a release; None where all are."""


@dataclass(frozen=True, eq=False)
class DenseCounts:
    """Counts as a table: ``dense`` (nodes x cells) int64."""

    dense: IntArray = field(repr=False)

    @cached_property
    def starts(self) -> IntArray:
        """As `Held` has it."""
        return np.concatenate([[0], np.cumsum(np.count_nonzero(self.dense, axis=1))])

    def entries(self, numbers: slice) -> tuple[IntArray, IntArray]:
        """As `Held` has it."""
        first = int(np.searchsorted(self.starts, numbers.start, side="right")) - 1
        some = self.dense[first : int(np.searchsorted(self.starts, numbers.stop, side="left"))]
        rows, cells = np.nonzero(some)
        here = slice(numbers.start - int(self.starts[first]), numbers.stop - int(self.starts[first]))
        return cells[here], some[rows[here], cells[here]]

    def at(self, units: UnitSums, n_cells: int) -> DenseCounts:
        """As `Held` has it."""
        return DenseCounts(units.summed(self.dense))

    def fault(self, tree: Tree, n_cells: int) -> Fault | None:
        """As `Held` has it. Raises `ProjectionError` for counts of another type or shape."""
        values = self.dense
        if values.dtype != np.int64 or values.shape != (tree.n_nodes, n_cells):
            raise ProjectionError(
                f"a release holds int64 values of shape {(tree.n_nodes, n_cells)}, and got {values.dtype} of shape "
                f"{values.shape}"
            )
        if values.min(initial=0) < 0:
            node, cell = (int(k) for k in np.argwhere(values < 0)[0])
            return Fault(node, cell, f"{values[node, cell]} is negative")
        for cells in tree.blocks(n_cells):
            by_cell = values.T[cells]
            for families in tree.families_down():
                gap = families.total(by_cell[..., families.children]) - by_cell[..., families.parents]
                wrong = np.argwhere(gap != 0)
                if len(wrong):
                    cell, family = (int(k) for k in wrong[0])
                    node = families.parents.start + family
                    return Fault(node, cells.start + cell, gap=int(gap[cell, family]))
        return None


@dataclass(frozen=True, eq=False)
class SparseCounts:
    """Counts as entries: ``starts`` (nodes + 1,), ``cells`` and ``counts`` (entries,) int64: node k has
    ``counts[starts[k]:starts[k+1]]`` records in the cells of the same places, in rising order, and none in other cells.
    """

    starts: IntArray = field(repr=False)
    cells: IntArray = field(repr=False)
    counts: IntArray = field(repr=False)
    dense = None

    def entries(self, numbers: slice) -> tuple[IntArray, IntArray]:
        """As `Held` has it."""
        return self.cells[numbers], self.counts[numbers]

    def at(self, units: UnitSums, n_cells: int) -> SparseCounts:
        """As `Held` has it."""
        return SparseCounts.one_after_another([summed(self, units, n_cells, run) for run in sum_runs(self, units)])

    @classmethod
    def of_nodes(cls, nodes: Sequence[tuple[IntArray, FloatArray | IntArray]]) -> SparseCounts:
        """From the cells and the counts, whole numbers of any type, of every node."""
        cells, counts = (np.concatenate([one[k] for one in nodes]) for k in range(2))
        starts = np.concatenate([[0], np.cumsum([len(one[0]) for one in nodes])])
        return cls(starts, cells, np.rint(counts).astype(np.int64))

    @classmethod
    def one_after_another(cls, parts: Sequence[SparseCounts]) -> SparseCounts:
        """The entries of several tables, the nodes of one after those of another."""
        sizes = np.concatenate([np.diff(one.starts) for one in parts])
        cells, counts = (np.concatenate([getattr(one, name) for one in parts]) for name in ("cells", "counts"))
        return cls(np.concatenate([[0], np.cumsum(sizes)]), cells, counts)

    def fault(self, tree: Tree, n_cells: int) -> Fault | None:
        """As `Held` has it."""
        nodes = nodes_of(self.starts)
        wrong = np.flatnonzero((self.counts <= 0) | (self.cells < 0) | (self.cells >= n_cells))
        if len(wrong):
            place = int(wrong[0])
            words = f"{self.counts[place]} records; every entry of a release has at least one, in a cell of the schema"
            return Fault(int(nodes[place]), int(self.cells[place]), words)
        for families in tree.families_down():
            mine = (nodes >= families.parents.start) & (nodes < families.parents.stop)
            below = (nodes >= families.children.start) & (nodes < families.children.stop)
            keys = (
                np.concatenate([nodes[mine], tree.parent[nodes[below]]]),
                np.concatenate([self.cells[mine], self.cells[below]]),
            )
            owed = np.concatenate([self.counts[mine], -self.counts[below]])
            order = np.lexsort((keys[1], keys[0]))
            begins = np.flatnonzero(
                np.diff(keys[0][order], prepend=-1).astype(bool) | np.diff(keys[1][order], prepend=-1).astype(bool)
            )
            gap = np.add.reduceat(owed[order], begins) if len(begins) else np.zeros(0, np.int64)
            if gap.any():
                first = int(np.flatnonzero(gap)[0])
                place = order[begins[first]]
                return Fault(int(keys[0][place]), int(keys[1][place]), gap=-int(gap[first]))
        return None


@dataclass(frozen=True, eq=False)
class Release(ArrowTable):
    """Counts fit to be published: whole, non-negative, every family adding up in every cell.

    Args:
        geography: the units.
        schema: the cells.
        held: the counts, as a table or as the cells that have records (`of_values`, `of_entries`).
        layout: the rows that the release is written in.
        method: the projection that they come from.
        fit_for_release: whether noise and rounding were drawn exactly, from operating-system entropy.
        exactness: which cells (nodes x cells) are published exactly, or a function that finds them.
        certificate: of the programs that they were rounded from, where it is known.
        margins: the published intervals by column (``lower, upper, moe, cv``, each (nodes x cells), and of the
            total (nodes x 1)), of a release that was read from files which have them.
        names: the names of the cells, where these are not the schema's.

    Raises `ProjectionError` naming the node where the counts are not such.

    Examples:
        >>> release.to_frame().head(2)
          geoid   level parent name        cell  value
        0    US  nation    NaN  NaN    employed    198
        1    US  nation    NaN  NaN  unemployed     16
        >>> release.fit_for_release
        False
    """

    geography: Geography
    schema: Schema
    held: Held = field(repr=False)
    layout: Layout
    method: str
    fit_for_release: bool
    exactness: BoolArray | Callable[[], BoolArray] | None = field(default=None, repr=False)
    certificate: Certificate | None = None
    margins: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)
    names: Sequence[str] | None = field(default=None, repr=False)

    @classmethod
    def of_values(
        cls,
        geography: Geography,
        cells: Sequence[str],
        values: IntArray,
        exact: BoolArray | None = None,
        *,
        method: str,
        fit_for_release: bool,
        schema: Schema | None = None,
        margins: Mapping[str, FloatArray] | None = None,
    ) -> Release:
        """A release of a table of counts.

        Args:
            geography: the units.
            cells: the names of the cells.
            values: (nodes x cells), whole, 0 or more, every family adding up.
            exact: (nodes x cells) which values are published exactly; by default none.
            method: the projection that they come from.
            fit_for_release: whether noise and rounding were drawn exactly, from operating-system entropy.
            schema: of which the cells are the product; by default they are one attribute.
            margins: the published intervals, as of the class.
        """
        return cls(
            geography,
            Schema.of_cells(cells) if schema is None else schema,
            DenseCounts(values),
            EVERY_CELL,
            method,
            fit_for_release,
            exact,
            margins=margins or {},
            names=cells,
        )

    @classmethod
    def of_entries(
        cls,
        geography: Geography,
        schema: Schema,
        entries: SparseCounts,
        *,
        method: str,
        fit_for_release: bool,
        exact: Callable[[], BoolArray] | None = None,
        certificate: Certificate | None = None,
    ) -> Release:
        """A release of the counts that are not 0.

        Args:
            geography: the units.
            schema: the cells.
            entries: the cells that have records, node by node.
            method: the projection that they come from.
            fit_for_release: whether noise and rounding were drawn exactly, from operating-system entropy.
            exact: finds which cells are published exactly, (nodes x cells); by default none are.
            certificate: of the programs that they were rounded from.
        """
        return cls(geography, schema, entries, WITH_RECORDS, method, fit_for_release, exact, certificate)

    def __post_init__(self) -> None:
        fault = self.held.fault(self.geography.tree, self.schema.n_cells)
        if fault is None:
            return
        words = fault.words
        if fault.gap:
            has = int(self.values_of(slice(fault.node, fault.node + 1))[0, fault.cell])
            above = int(np.searchsorted(self.geography.level_offsets, fault.node, side="right")) - 1
            level = shown(self.geography.levels[above + 1])
            words = f"it has {has}, and its units of level {level} add up to {has + fault.gap}"
        raise ProjectionError(f"{self.described(fault.node, fault.cell)}: {words}")

    def __repr__(self) -> str:
        return f"Release({self.geography.n_nodes:,} nodes x {self.schema.n_cells:,} cells, {self.method})"

    def described(self, node: int, cell: int) -> str:
        """``cell`` at ``node`` in words, for messages."""
        if not 0 <= cell < self.schema.n_cells:
            return f"{self.geography.describe(node)}, cell number {cell}"
        return f"{self.geography.describe(node)}, cell {shown(self.cells[cell])}"

    @property
    def cells(self) -> Sequence[str]:
        """The names of the cells."""
        return self.schema.cells() if self.names is None else self.names

    @property
    def starts(self) -> IntArray:
        """The number of every node's first entry, and how many entries there are; (nodes + 1,)."""
        return self.held.starts

    def entries(self, numbers: slice) -> tuple[IntArray, IntArray]:
        """The cells and counts of the entries ``numbers``, counted node by node; cells of a node in rising order."""
        return self.held.entries(numbers)

    def entries_of(self, nodes: slice) -> tuple[IntArray, IntArray, IntArray]:
        """The entries of ``nodes``: of each its node, numbered from the first of them, its cell and its count."""
        starts = self.starts[nodes.start : nodes.stop + 1]
        return nodes_of(starts), *self.entries(slice(int(starts[0]), int(starts[-1])))

    @cached_property
    def values(self) -> IntArray:
        """The counts of every cell (nodes x cells); made from the entries when it is first asked for.

        Raises `DataError` where they do not fit in memory.
        """
        if self.held.dense is not None:
            return self.held.dense
        n_nodes, n_cells, most = self.geography.n_nodes, self.schema.n_cells, most_at_once()
        if most is not None and _BYTES_OF_COUNT * n_nodes * n_cells > most:
            raise DataError(
                f"a table of {n_nodes:,} units x {n_cells:,} cells takes more than the {gibibytes(most)} that can be "
                "given to it here; ask for one level or one query at a time, or use a larger machine"
            )
        return self.values_of(slice(0, n_nodes))

    def values_of(self, nodes: slice) -> IntArray:
        """The counts of every cell at ``nodes``; (nodes x cells)."""
        if self.held.dense is not None:
            return self.held.dense[nodes]
        rows, cells, counts = self.entries_of(nodes)
        values = np.zeros((self.schema.n_cells, nodes.stop - nodes.start), np.int64)
        values[cells, rows] = counts
        return values.T

    @cached_property
    def exact(self) -> BoolArray:
        """Which cells (nodes x cells) are published exactly: invariants, and what they imply."""
        if self.exactness is None:
            return np.broadcast_to(np.zeros((), np.bool_), (self.geography.n_nodes, self.schema.n_cells))
        return self.exactness() if callable(self.exactness) else self.exactness

    def at(self, units: UnitSums) -> Release:
        """The counts of ``units``, which are sums of this release's nodes."""
        known = self.exactness is not None
        exact, counts = (lambda: units.all_of(self.exact)) if known else None, self.held.at(units, self.schema.n_cells)
        return replace(self, geography=units.geography, held=counts, exactness=exact, margins={})

    @property
    def variance(self) -> FloatArray | None:
        """Marks the exact values: 0 there, NaN (not known) elsewhere, (nodes x cells); None where nothing is exact.

        Non-negative and rounded values have no variance in closed form, so this only says what is exact (invariants,
        and what they imply). The estimates by least squares have variances.
        """
        return np.where(self.exact, 0.0, np.nan) if self.exact.any() else None

    def answers(self, level: str, query: str) -> IntArray:
        """The answers to any ``query`` at every node of ``level``; (nodes of the level x answers).

        Raises `GeographyError` for an unknown level, `ConfigError` with the nearest known name for an unknown query.
        """
        return self.answers_of(self.geography.level_slice(level), Query.parse(query, self.schema))

    def answers_of(self, nodes: slice, asked: Query) -> IntArray:
        """The answers to ``asked``, of a schema with the same cells, at ``nodes``; (nodes x answers)."""
        if self.held.dense is not None:
            return np.asarray(asked.answers(self.held.dense[nodes]))
        return np.asarray(asked.sparse_answers(*self.entries_of(nodes), nodes.stop - nodes.start))

    def table(self, level: str, query: str) -> pd.DataFrame:
        """The answers to a query at a level as a wide table: ``geoid, name`` and a column for every answer.

        Args:
            level: whose units the rows are.
            query: a query, or a table of the redistricting file or one of its fields ("P1", "P0010003"), where the
                schema has the attributes of that table.

        Raises the errors of `answers`.
        """
        nodes = self.geography.level_slice(level)
        columns = answer_columns(query, self.schema)
        known = {asked: self.answers_of(nodes, asked) for asked in dict.fromkeys(column.query for column in columns)}
        names, count = self.geography.names, nodes.stop - nodes.start
        units = {
            "geoid": self.geography.identifiers.slice(nodes.start, count).to_pandas(),
            "name": (pa.nulls(count, pa.string()) if names is None else names.slice(nodes.start, count)).to_pandas(),
        }
        values = np.stack([known[column.query][:, column.answer] for column in columns], axis=1)
        return pd.concat([pd.DataFrame(units), pd.DataFrame(values, columns=[c.name for c in columns])], axis=1)

    def batches(
        self, nodes: Sequence[slice] | None = None, more: Mapping[str, Any] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of its file in Arrow batches: for every cell ``geoid, level, parent, name, cell, value[, variance]``
        and the margins, if any; or, for cells with records, ``geoid, level``, a column per attribute and ``count``.

        Args:
            nodes: whose rows are given, in the layout of cells with records; by default all.
            more: columns (nodes x cells) after those of every cell.

        Raises `ConfigError` for an attribute that has the name of another column.
        """
        return self.layout.batches(self, nodes, more or {})

    def to_frame(self) -> pd.DataFrame:
        """The rows of `batches` as one table."""
        return to_frame(self.batches())

    def to_arrow(self) -> pa.Table:
        """The rows of `batches` as one Arrow table."""
        return to_arrow(self.batches())

    def wide(self) -> pd.DataFrame:
        """The counts with one row per unit: ``geoid, level, parent, name, *cells[, total]``."""
        return to_frame(wide_batches(self))


def sum_runs(held: Held, units: UnitSums) -> list[slice]:
    """``units`` in runs whose sums are found at once: of so many entries of ``held``, or a single unit of more."""
    size = np.diff(held.starts)[units.node]
    ends = np.concatenate([[0], np.cumsum(size)])[units.starts[1:]]
    stops, begun = list[int](), 0
    while not stops or stops[-1] < len(ends):
        first = stops[-1] if stops else 0
        stops.append(max(first + 1, int(np.searchsorted(ends, begun + _ENTRIES_AT_ONCE, side="right"))))
        begun = int(ends[stops[-1] - 1])
    return [slice(first, stop) for first, stop in itertools.pairwise([0, *stops])]


def summed(held: Held, units: UnitSums, n_cells: int, run: slice) -> SparseCounts:
    """The entries of a ``run`` of ``units``, which are sums of the nodes of ``held``: of these the entries that are
    asked for are read alone, nearly."""
    starts, some = held.starts, slice(int(units.starts[run.start]), int(units.starts[run.stop]))
    node, place = np.unique(units.node[some], return_inverse=True)
    sizes = starts[node + 1] - starts[node]
    cells, counts = _entries_of(held, node)
    began, of = np.cumsum(sizes) - sizes, units.of[some] - run.start
    sizes, began = sizes[place], began[place]
    entries = np.repeat(began - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
    keys, place = np.unique(np.repeat(of, sizes) * n_cells + cells[entries], return_inverse=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, place.reshape(-1), counts[entries])
    unit, cell = np.divmod(keys, n_cells)
    return SparseCounts(np.searchsorted(unit, np.arange(run.stop - run.start + 1)), cell, total)


def _entries_of(held: Held, nodes: IntArray) -> tuple[IntArray, IntArray]:
    """The cells and counts of ascending ``nodes``, one node after another."""
    begin, end = held.starts[nodes], held.starts[nodes + 1]
    # Nodes that are near each other are read together, with what is between them.
    breaks = np.flatnonzero((begin[1:] - end[:-1] > _BETWEEN) | (begin[1:] // _READ > begin[:-1] // _READ)) + 1
    found = []
    for some in itertools.pairwise([0, *breaks.tolist(), len(nodes)]):
        first, last = (np.asarray(one[slice(*some)]) for one in (begin, end))
        cells, counts = held.entries(slice(int(first[0]), int(last[-1])))
        sizes = last - first
        wanted = np.repeat(first - first[0] - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
        found.append((cells[wanted], counts[wanted]))
    cells, counts = (np.concatenate(one) for one in zip(*found, strict=True))
    return cells, counts


def nodes_of(starts: IntArray) -> IntArray:
    """The node of every entry, numbered from 0."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))
