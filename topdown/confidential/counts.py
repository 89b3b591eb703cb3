"""`Counts`: the confidential table, aggregated from the leaves. Its repr shows no value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.census.layouts.ppmf_layout import BLOCK, file_of_columns, file_of_schema, names_there, records
from topdown.confidential.count_values import occupied_zero, refuse_zeros, total_of, whole_numbers
from topdown.confidential.entries import Entries
from topdown.confidential.records import batches_of_frame, count_records, held_of_frame, identifiers_of
from topdown.errors import ROW, ConfigError, CountsError, GeographyError, require_known
from topdown.geography.geography import Geography
from topdown.geography.labels import as_frame, code_shown, column
from topdown.geography.tree import IntArray
from topdown.measurements.declared_constraints import Constraints
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.privacy.presets import preset as preset_of
from topdown.tables.readers import read_table, require_file, separated, table_batches, table_columns
from topdown.wording import listed, shown, shown_path
from topdown.workload import Query, Schema

ABSENT = ("refuse", "zero")
"""What a leaf without a row may be."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Confidential counts at every node.

    Only `measure`, the simulation of studies and the pipeline may read them.

    Args:
        geography: the units, leaves and all levels above.
        cells: the names of the cells, in order.
        held: a table (nodes x cells) int64, or the `Entries` that are not 0; non-negative, and every parent the sum of
            its children.
        attributes: the schema whose product the cells are, in its order; None where the cells are one attribute.

    Examples:
        >>> counts.values[0]  # nation: employed, unemployed
        array([193,  22])
        >>> people = td.Counts.from_records(persons, geography, geoid="county", schema=schema)
        >>> people.cells[:3]
        ('female_child', 'female_adult', 'female_old')
    """

    geography: Geography
    cells: Sequence[str]
    held: IntArray | Entries = field(repr=False)
    attributes: Schema | None = None

    @cached_property
    def values(self) -> IntArray:
        """The counts as a table (nodes x cells), made at the first use and kept."""
        if not isinstance(self.held, Entries):
            return self.held
        made = self.table(slice(0, self.geography.n_nodes))
        made.flags.writeable = False
        return made

    def table(self, nodes: slice) -> IntArray:
        """The counts of all cells at ``nodes``, int64; (nodes x cells)."""
        return self.held.table(nodes, len(self.cells)) if isinstance(self.held, Entries) else self.held[nodes]

    def require_sums(self) -> None:
        """Refuse a table that is not one of whole numbers of 0 or more of every node and cell, or in which a parent is
        not the sum of its children: what one record changes would not be known. Entries are summed when they are made.
        Raises `CountsError` naming the node and the cell, without the number.
        """
        if isinstance(self.held, Entries):
            return
        shape = (self.geography.n_nodes, len(self.cells))
        if self.held.shape != shape or self.held.dtype.kind not in "iu":
            raise CountsError(
                f"the counts have shape {self.held.shape} and type {self.held.dtype}; give whole numbers, {shape}"
            )
        if self.held.min() < 0:
            node, cell = (int(k) for k in np.argwhere(self.held < 0)[0])
            raise CountsError(f"{self._place(node, cell)}: a count below 0; correct it")
        wrong = self.geography.tree.not_sums(self.held.T)
        if wrong.any():
            cell, node = (int(k) for k in np.argwhere(wrong)[0])
            raise CountsError(
                f"{self._place(node, cell)}: the count is not the sum of the children's; make the counts of leaves "
                "with Counts.from_table or from_records, which add them up"
            )

    def _place(self, node: int, cell: int) -> str:
        return f"{self.geography.describe(node)}, cell {shown(self.cells[cell])}"

    def with_zeros(self, constraints: Constraints) -> Counts:
        """The counts of a schema that has the zeros of ``constraints``. Raises `CountsError` naming a unit with records
        in one of them.
        """
        schema = constraints.added_to(self.schema)
        _, cells, _ = self.part(slice(0, 1))
        for cell in cells[schema.excluded(cells)][:1]:
            leaves = self.geography.tree.leaves
            rows, own, _ = self.part(leaves)
            node = leaves.start + int(rows[own == cell][0])
            raise occupied_zero(self.geography, node, schema.cells()[int(cell)])
        return replace(self, attributes=schema)

    @property
    def of_root(self) -> IntArray:
        """The root's counts; (cells,), or only those above 0."""
        return self.held.part(slice(0, 1))[2] if isinstance(self.held, Entries) else self.held[0]

    def entries(self, nodes: slice) -> tuple[IntArray, IntArray, IntArray]:
        """For ``nodes``: how many cells of each have records; these cells, in rising order; and their counts."""
        if isinstance(self.held, Entries):
            starts = self.held.starts[nodes.start : nodes.stop + 1]
            within = slice(int(starts[0]), int(starts[-1]))
            return np.diff(starts), self.held.cells[within], self.held.counts[within]
        values = np.ascontiguousarray(self.held[nodes])
        places = np.flatnonzero(values)
        rows, cells = np.divmod(places, len(self.cells))
        return np.bincount(rows, minlength=len(values)), cells, values.ravel()[places]

    def part(self, nodes: slice) -> tuple[IntArray, IntArray, IntArray]:
        """The counts of ``nodes`` that are not 0: rows, cells and counts, as `Entries.part` returns them."""
        sizes, cells, counts = self.entries(nodes)
        return np.repeat(np.arange(len(sizes)), sizes), cells, counts

    def answers(self, query: Query, nodes: slice) -> IntArray:
        """The answers to ``query`` at ``nodes``; (nodes x answers)."""
        if isinstance(self.held, Entries):
            rows, cells, counts = self.held.part(nodes)
            return query.sparse_answers(rows, cells, counts, nodes.stop - nodes.start)
        return np.asarray(query.answers(self.held[nodes]))

    @property
    def schema(self) -> Schema:
        """The schema of the cells; without attributes, they form one attribute, called "cell"."""
        return Schema.of_cells(self.cells) if self.attributes is None else self.attributes

    @classmethod
    def from_records(
        cls,
        frame: Any,
        geography: Geography,
        *,
        geoid: str | Sequence[str] | None = None,
        schema: Schema | None = None,
        separator: str = "/",
        preset: str | None = None,
    ) -> Counts:
        """The counts of a table with one row per record (a person); only cells with records are stored.

        A leaf without a row has 0. Raises `CountsError` naming the row: a unit that is unknown or not a leaf, a
        category that is missing or unknown, a cell that is a structural zero of the schema.

        Args:
            frame: as `from_table` takes it.
            geography: the units; every record lies in a leaf.
            geoid: the column that names the record's leaf, or the columns whose joined path does.
            schema: every attribute is a column of the table, whose values are its categories.
            separator: between the columns of ``geoid``, where there are several.
            preset: in place of ``geoid`` and ``schema``, the name of a preset ("pl94-2020-us"): records have the
                columns and codes of its privacy-protected microdata file, and the leaves are blocks of 15 digits.
        """
        if preset is not None:
            if geoid is not None or schema is not None:
                raise ConfigError("preset determines the columns; leave out geoid and schema, or the preset")
            held, schema = held_of_microdata(frame, geography, preset)
        elif geoid is None or schema is None:
            raise ConfigError("give geoid and schema, or a preset, which determines the columns")
        else:
            held = held_of_frame(frame, geography, geoid, schema, None, separator)
        return cls(geography, schema.cells(), held, schema)

    @classmethod
    def from_long(
        cls,
        frame: Any,
        geography: Geography,
        *,
        geoid: str | Sequence[str],
        schema: Schema,
        count: str,
        separator: str = "/",
    ) -> Counts:
        """The counts of a table with a row per leaf and cell; only cells with records are stored.

        A leaf and cell without a row has 0. Raises `CountsError` as `from_records` does, for a value that is not a
        count, and for two rows of the same leaf and cell.

        Args:
            frame: as `from_table` takes it.
            geography: the units.
            geoid: the column that names the leaf, or the columns whose joined path does.
            schema: every attribute is a column of the table, whose values are its categories.
            count: the column with the counts, whole numbers of 0 or more.
            separator: between the columns of ``geoid``, where there are several.
        """
        held = held_of_frame(frame, geography, geoid, schema, count, separator)
        return cls(geography, schema.cells(), held, schema)

    @classmethod
    def from_table(
        cls,
        frame: Any,
        geography: Geography,
        *,
        geoid: str | Sequence[str],
        cells: Sequence[str],
        separator: str = "/",
        absent: Literal["refuse", "zero"] = "refuse",
        schema: Schema | None = None,
    ) -> Counts:
        """The counts of a table with one row per leaf; every level above is aggregated.

        Args:
            frame: a DataFrame (pandas, polars or any other with an Arrow interface), an Arrow table, a mapping of
                columns, or the path of a file.
            geography: the units; every leaf has one row.
            geoid: the column with the identifiers, or the columns whose joined path they are.
            cells: the columns to count; whole numbers, as numbers or as strings ("1234" or "1,234"). Rows of inner
                nodes are allowed and must agree with their leaves.
            separator: between the columns of ``geoid``, where there are several.
            absent: how a leaf without a row is treated: "refuse" raises an error, "zero" counts 0 in every cell. "zero"
                is for a geography that was made from a public list of units, and not from this table.
            schema: the attributes whose product ``cells`` are (see `Schema.codes`); they are then stored in its order.

        Raises `CountsError` with the node, the level, the value and the remedy: a value that is negative, fractional,
        missing or infinite; a GEOID that is missing, duplicate, or not in the geography; a leaf without a row, unless
        ``absent`` = "zero"; an inner row that contradicts its leaves; a total beyond 2^53. `ConfigError` for another
        ``absent``.
        """
        require_known(absent, ABSENT, "absent")
        if isinstance(frame, str | Path):
            columns = [geoid] if isinstance(geoid, str) else list(geoid)
            frame = read_table(frame, [*columns, *cells])
        frame = as_frame(frame)
        titles = _cell_names(cells)
        if schema is not None:
            place = np.ravel_multi_index(tuple(schema.codes(titles).T), schema.shape)
            titles = tuple(titles[k] for k in np.argsort(place))
        nodes = _rows_to_nodes(frame, geography, geoid, separator, absent)
        tree = geography.tree
        in_order = isinstance(nodes, range)
        inner = np.empty(0, np.int64) if in_order else np.flatnonzero(np.asarray(nodes) < tree.leaves.start)
        values = np.zeros((len(titles), geography.n_nodes), np.int64)
        for index, title in enumerate(titles):
            parsed = whole_numbers(_counted(frame, title), title, nodes, geography)
            values[index, tree.leaves if in_order else nodes] = parsed
            if total_of(values[index, tree.leaves]) > LARGEST_WHOLE:
                raise CountsError(
                    f"{geography.describe(0)}, cell {shown(title)}: the total is more than 2^53 = {LARGEST_WHOLE}, "
                    "beyond which sums are not exact; count in larger units or split the table"
                )
            tree.add_up(values[index])
            if len(inner):
                _refuse_contradictions(values[index], parsed[inner], np.asarray(nodes)[inner], title, geography)
        values.flags.writeable = False
        if schema is not None:
            refuse_zeros(values, schema, geography)
        return cls(geography, titles, values.T, schema)

    def __repr__(self) -> str:
        shape = f"{self.geography.n_nodes:,} nodes x {len(self.cells)} cells"
        return f"Counts({shape}, confidential)"


def _cell_names(cells: Sequence[str]) -> tuple[str, ...]:
    titles = (cells,) if isinstance(cells, str) else tuple(cells)
    if not titles or len(set(titles)) != len(titles):
        raise CountsError(f"cells {listed(titles)}: name at least one column of counts, and each only once")
    return titles


def _counted(frame: Any, title: str) -> Any:
    try:
        return column(frame, title)
    except GeographyError as error:
        raise CountsError(str(error)) from None


def _rows_to_nodes(
    frame: Any, geography: Geography, geoid: str | Sequence[str], separator: str, absent: str
) -> IntArray | range:
    """The node of every row, after refusing rows and leaves that do not match one to one. It is a range where the rows
    are the leaves in the geography's order, which is usual for a large table.
    """
    names = [geoid] if isinstance(geoid, str) else list(geoid)
    identifiers = identifiers_of(frame, names, separator)
    if identifiers.null_count:
        row = int(np.flatnonzero(np.asarray(pc.is_null(identifiers)))[0])
        raise CountsError(f"{ROW}: the GEOID in column {shown(names[0])} is missing; give every row its GEOID", row=row)
    if geography.are_leaves(identifiers):
        return range(geography.tree.leaves.start, geography.tree.leaves.stop)
    nodes = geography.index_of(identifiers)
    unknown = np.flatnonzero(nodes < 0)
    if len(unknown):
        code = identifiers[int(unknown[0])].as_py()
        hint = _unknown_hint(code, geography)
        # If there is a hint, the code is nearly one of the geography's, and may be shown.
        said = shown(code) if hint else code_shown(code, identifiers)
        raise CountsError(
            f"{ROW}: GEOID {said} is not in the geography; "
            + (hint or f"correct it, or add the unit to the {'list of units' if absent == 'zero' else 'geography'}"),
            row=int(unknown[0]),
        )
    seen = np.bincount(nodes, minlength=geography.n_nodes)
    repeated = np.flatnonzero(seen > 1)
    if len(repeated):
        node = int(repeated[0])
        raise CountsError(
            f"{geography.describe(node)}: duplicate GEOID, there are several rows; give every unit one row (sum "
            "them, or make their categories cells)"
        )
    unseen = np.flatnonzero(seen[geography.tree.leaves] == 0)
    if len(unseen) and absent == "refuse":
        node = int(unseen[0]) + geography.tree.leaves.start
        raise CountsError(
            f"{geography.describe(node)}: the table has no row for it; add the row, with "
            'zeros where nothing was counted, leave the unit out of the geography, or give absent="zero"'
        )
    return nodes


def _unknown_hint(code: str, geography: Geography) -> str:
    if code.strip() != code and geography.index_of([code.strip()])[0] >= 0:
        return "remove the blanks around it"
    padded = "0" + code
    if geography.index_of([padded])[0] >= 0:
        return f"a leading zero was lost: {shown(padded)} is meant; read the column as strings"
    return ""


def _refuse_contradictions(
    aggregated: IntArray, given: IntArray, nodes: IntArray, title: str, geography: Geography
) -> None:
    """Refuse a row of an inner node that is not the sum of its leaves; the message says which is larger. It does not
    say by how much: for a row of 0, the difference would be the count.
    """
    gap = given - aggregated[nodes]
    wrong = np.flatnonzero(gap)
    if len(wrong):
        node = int(nodes[wrong[0]])
        raise CountsError(
            f"{geography.describe(node)}, cell {shown(title)}: its row contradicts its leaves, it is "
            f"{'more' if gap[wrong[0]] > 0 else 'less'} than their sum; correct the table, or leave the rows of inner "
            "units out"
        )


def held_of_microdata(frame: Any, geography: Geography, preset: str) -> tuple[IntArray | Entries, Schema]:
    """The counts of records in the microdata layout of ``preset``, from a table in memory or at a path, and their
    schema. Raises `ConfigError` for a preset without a microdata layout, `DataError` for what does not follow the
    layout.
    """
    schema = preset_of(preset).schema
    file = file_of_schema(schema)
    if file is None:
        raise ConfigError(f"preset {shown(preset)} has no layout of privacy-protected microdata; name the columns")
    what = shown_path(frame) if isinstance(frame, str | Path) else "the records"
    if isinstance(frame, str | Path):
        path = require_file(frame)
        form = separated(path)
        columns = table_columns(path, form)
        file_of_columns(columns, what)
        batches: Iterator[pa.RecordBatch] = table_batches(path, names_there(file, columns), form=form, kept=False)
    else:
        named = [str(name) for name in getattr(frame, "column_names", getattr(frame, "columns", ()))]
        batches = batches_of_frame(frame, names_there(file, named))
    counted = count_records(records(file, batches, what), geography, geoid=[BLOCK], cells=schema.cells(), schema=schema)
    return counted, schema
