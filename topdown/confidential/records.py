"""Counts of person records, and of long tables with one row per unit and category."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.confidential.count_values import whole_numbers
from topdown.confidential.counting import Dense, SparseTally
from topdown.confidential.entries import Entries
from topdown.errors import ROW, CountsError, GeographyError
from topdown.geography.geography import Geography
from topdown.geography.labels import as_frame, as_strings, as_text, code_shown, column, places_among, plain
from topdown.geography.tree import IntArray
from topdown.machine.parallel import map_ordered, thread_pool
from topdown.machine.system import processors
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.tables.readers import require_file, table_batches
from topdown.wording import listed, of_the_value, shown
from topdown.workload import Schema

_ROWS_AT_ONCE = 1 << 20
_MOST_AT_WORK = 4
"""Tables of rows that are looked up at the same time: counting them, one after the other, takes a fourth as long."""
_MANY_UNITS = 0.75
"""If more than this share of the rows have another unit than the row before, comparing neighbours saves nothing."""
SPARSE_FROM = 64
"""From so many cells on, of which most are empty, only those that have records are stored."""


def count_records(
    batches: Iterator[pa.RecordBatch],
    geography: Geography,
    *,
    geoid: Sequence[str],
    cells: Sequence[str],
    schema: Schema | None,
    count: str | None = None,
    separator: str = "/",
) -> IntArray | Entries:
    """The counts at every node of a table with many rows per leaf, whose batches are read once and not stored.

    ``geoid``: the columns whose joined path is the leaf. ``schema``: the attributes, each a column of the table, whose
    product the cells are, in its order; without it, there is one cell for all rows. ``count``: the column of counts, in
    which case every leaf and cell has one row at most; without it, a row is one record. A leaf or cell without a row
    has 0.

    Raises `CountsError` with the row: an unknown or missing unit, a category that the schema does not list, a value
    that is not a count, a second row of the same leaf and cell; and for a total beyond 2^53.
    """
    leaves, n_cells = geography.tree.leaves, len(cells)
    if geography.n_leaves * n_cells >= 1 << 63:
        raise CountsError(
            f"{geography.n_leaves:,} leaves x {n_cells:,} cells are more than 2^63, the most that can be numbered; "
            "leave out an attribute"
        )
    tally: Dense | SparseTally = (SparseTally if n_cells >= SPARSE_FROM else Dense)(geography.n_leaves, n_cells)
    begin = 0

    def placed(table: pa.Table) -> tuple[IntArray, IntArray, IntArray | None]:
        nodes = nodes_of_rows(table, geography, geoid, separator)
        place = (nodes - leaves.start) * n_cells + cells_of_rows(table, schema)
        return nodes, place, None if count is None else whole_numbers(column(table, count), count, nodes, geography)

    with thread_pool(min(processors(), _MOST_AT_WORK)) as pool:
        try:
            for nodes, place, numbers in map_ordered(placed, _gathered(batches), pool):
                again = tally.add(place, numbers)
                if again is not None:
                    raise CountsError(
                        f"{geography.describe(int(nodes[again]))}: a second row of the same unit and categories "
                        f"({ROW}); sum them",
                        row=again,
                    )
                begin += len(place)
        except CountsError as error:
            if error.row is None:
                raise
            raise error.of_row(begin + error.row) from None
    if tally.total > LARGEST_WHOLE:
        raise CountsError(f"{geography.describe(0)}: the total is more than 2^53; split the table")
    return tally.held(geography, cells, schema)


def batches_of_frame(frame: Any, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The ``wanted`` columns of a table in memory. Raises `CountsError` for one that does not exist or is not plain."""
    found = as_frame(frame)
    try:
        table = pa.table({name: plain(column(found, name), f"column {shown(name)}") for name in wanted})
    except GeographyError as error:
        raise CountsError(str(error)) from None
    return iter(table.to_batches())


def held_of_frame(
    frame: Any, geography: Geography, geoid: str | Sequence[str], schema: Schema, count: str | None, separator: str
) -> IntArray | Entries:
    """`count_records` of a table in memory or the path of one. Raises `CountsError` as it does."""
    columns = [geoid] if isinstance(geoid, str) else list(geoid)
    wanted = list(dict.fromkeys([*columns, *schema.names, *([] if count is None else [count])]))
    if isinstance(frame, str | Path):
        batches: Iterator[pa.RecordBatch] = table_batches(require_file(frame), wanted, kept=False)
    else:
        batches = batches_of_frame(frame, wanted)
    return count_records(
        batches, geography, geoid=columns, cells=schema.cells(), schema=schema, count=count, separator=separator
    )


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """``batches`` in tables of about a million rows: looking up units takes as long for a few rows as for many."""
    held: list[pa.RecordBatch] = []
    for batch in filter(len, batches):
        held.append(batch)
        if sum(one.num_rows for one in held) >= _ROWS_AT_ONCE:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def identifiers_of(frame: Any, geoid: Sequence[str], separator: str) -> pa.Array:
    """The identifier of every row: the columns ``geoid``, joined where there are several. Raises `CountsError`."""
    try:
        parts = [as_strings(column(frame, name), f"column {shown(name)}") for name in geoid]
    except GeographyError as error:
        raise CountsError(str(error)) from None
    if len({len(part) for part in parts}) > 1:
        raise CountsError(f"columns {listed(geoid)} have different lengths; give every row its GEOID")
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, separator)


def nodes_of_rows(table: pa.Table, geography: Geography, geoid: Sequence[str], separator: str) -> IntArray:
    """The leaf of every row, by the columns ``geoid`` whose joined path it is. Raises `CountsError` with the row."""
    codes = identifiers_of(table, geoid, separator)
    nodes = _of_neighbours(codes, geography)
    wrong = np.flatnonzero(nodes < geography.tree.leaves.start)
    if len(wrong):
        row = int(wrong[0])
        code = codes[row].as_py()
        if code is None:
            raise CountsError(f"{ROW}: the unit in column {shown(geoid[0])} is missing; give every record one", row=row)
        what = "is not in the geography" if nodes[row] < 0 else "is not a leaf"
        raise CountsError(
            f"{ROW}: unit {code_shown(code, codes)} {what}; correct it, or add the unit to the list", row=row
        )
    return nodes


def _of_neighbours(codes: pa.Array, geography: Geography) -> IntArray:
    """The node of every one of ``codes``, -1 where there is none; adjacent rows of the same unit are looked up once."""
    before, after = codes.slice(0, max(0, len(codes) - 1)), codes.slice(1)
    # A missing code equals no other.
    differs = np.asarray(pc.fill_null(pc.not_equal(after, before), True))
    begins = np.concatenate([np.ones(min(len(codes), 1), bool), differs])
    if begins.sum() > _MANY_UNITS * len(begins):
        return geography.index_of(codes)
    return np.asarray(geography.index_of(codes.filter(pa.array(begins)))[np.cumsum(begins) - 1])


def cells_of_rows(table: pa.Table, schema: Schema | None) -> IntArray:
    """The cell of every row, in the product's order."""
    if schema is None:
        return np.zeros(table.num_rows, np.int64)
    place = np.zeros(table.num_rows, np.int64)
    for attribute in schema.attributes:
        try:
            text = as_text(column(table, attribute.name), f"column {shown(attribute.name)}")
        except GeographyError as error:
            raise CountsError(str(error)) from None
        found = np.asarray(pc.fill_null(places_among(text, attribute.categories), -1), dtype=np.int64)
        wrong = np.flatnonzero(found < 0)
        if len(wrong):
            row = int(wrong[0])
            value = text[row].as_py()
            said = f"has a value{of_the_value(value)} that is not one of its categories"
            remedy = "correct it, or list the category in the schema"
            if value is None:
                said, remedy = (
                    "is missing",
                    "give every record one of its categories, if necessary one for unknown values",
                )
            raise CountsError(
                f"{ROW}: {shown(attribute.name)} {said} ({listed(attribute.categories)}); {remedy}",
                row=row,
            )
        place = place * len(attribute.categories) + found
    return place
