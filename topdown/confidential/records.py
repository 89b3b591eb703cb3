"""Counts of person records, and of long tables with one row per unit and category."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from topdown.confidential.counts import Counts, refuse_zeros, whole_numbers
from topdown.errors import ROW, CountsError, GeographyError
from topdown.geography.construction import as_strings, as_text, code_shown, column
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.wording import listed, of_the_value, shown
from topdown.workload import Schema

_ROWS_AT_ONCE = 1 << 20


def count_records(
    batches: Iterator[pa.RecordBatch],
    geography: Geography,
    *,
    geoid: Sequence[str],
    cells: Sequence[str],
    schema: Schema | None,
    count: str | None = None,
    separator: str = "/",
) -> Counts:
    """The counts at every node of a table with many rows per leaf, whose batches are read once and not kept.

    ``geoid``: the columns whose joined path is the leaf. ``schema``: the attributes, each a column of the table, whose
    product the cells are, in its order; without, there is one cell, in which every row is. ``count``: the column of
    how many a row stands for, of which every leaf and cell has one row at most; without, a row is one record. A leaf
    or cell without a row has 0.

    Raises `CountsError` with the row: an unknown or missing unit, a category that the schema does not list, a value
    that is no count, a second row of the same leaf and cells; and for a total beyond 2^53.
    """
    leaves = geography.tree.leaves
    n_leaves, n_cells = geography.n_leaves, len(cells)
    bottom = np.zeros(n_cells * n_leaves, np.int64)
    seen = np.zeros(len(bottom) if count is not None else 0, bool)
    begin = 0
    for table in _gathered(batches):
        try:
            nodes = _nodes(table, geography, geoid, separator)
            place = _cells(table, schema) * n_leaves + nodes - leaves.start
            if count is None:
                places, numbers = np.unique(place, return_counts=True)
            else:
                places, numbers = place, whole_numbers(column(table, count), count, nodes, geography)
                _refuse_second(places, seen, nodes, geography)
        except CountsError as error:
            if error.row is None:
                raise
            raise error.of_row(begin + error.row) from None
        bottom[places] += numbers
        begin += table.num_rows
    if bottom.sum(dtype=np.float64) > LARGEST_WHOLE:
        raise CountsError(f"{geography.describe(0)}: the total is more than 2^53; split the table")
    values = geography.tree.aggregate(bottom.reshape(n_cells, n_leaves))
    values.flags.writeable = False
    if schema is not None:
        refuse_zeros(values, schema, geography)
    return Counts(geography, tuple(cells), values.T, schema)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """``batches`` in tables of about a million rows: to find units costs as much for a few rows as for many."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= _ROWS_AT_ONCE:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _nodes(table: pa.Table, geography: Geography, geoid: Sequence[str], separator: str) -> IntArray:
    try:
        parts = [as_strings(column(table, name), f"column {shown(name)}") for name in geoid]
    except GeographyError as error:
        raise CountsError(str(error)) from None
    codes = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, separator)
    nodes = geography.index_of(codes)
    wrong = np.flatnonzero(nodes < geography.tree.leaves.start)
    if len(wrong):
        row = int(wrong[0])
        code = codes[row].as_py()
        if code is None:
            raise CountsError(f"{ROW}: the unit in column {shown(geoid[0])} is missing; give every record one", row=row)
        what = "is not in the geography" if nodes[row] < 0 else "is no leaf"
        raise CountsError(f"{ROW}: unit {code_shown(code, codes)} {what}; correct it, or list the unit", row=row)
    return nodes


def _cells(table: pa.Table, schema: Schema | None) -> IntArray:
    """The cell of every row, in the product's order."""
    if schema is None:
        return np.zeros(table.num_rows, np.int64)
    place = np.zeros(table.num_rows, np.int64)
    for attribute in schema.attributes:
        try:
            text = as_text(column(table, attribute.name), f"column {shown(attribute.name)}")
        except GeographyError as error:
            raise CountsError(str(error)) from None
        code = pc.fill_null(pc.index_in(text, value_set=pa.array(attribute.categories)), -1)
        found = np.asarray(code, dtype=np.int64)
        wrong = np.flatnonzero(found < 0)
        if len(wrong):
            row = int(wrong[0])
            value = text[row].as_py()
            said = "is missing" if value is None else f"has a value{of_the_value(value)} that is none of its categories"
            raise CountsError(
                f"{ROW}: {shown(attribute.name)} {said} ({listed(attribute.categories)}; {len(wrong):,} such rows at "
                "least); correct it, or list the category in [schema]",
                row=row,
            )
        place = place * len(attribute.categories) + found
    return place


def _refuse_second(places: IntArray, seen: npt.NDArray[np.bool_], nodes: IntArray, geography: Geography) -> None:
    """Refuse a second row of the same leaf and cell; marks what is ``seen``."""
    order: Any = np.argsort(places, kind="stable")
    again = np.zeros(len(places), bool)
    again[order[1:]] = places[order[1:]] == places[order[:-1]]
    again |= seen[places]
    if again.any():
        row = int(np.flatnonzero(again)[0])
        raise CountsError(
            f"{geography.describe(int(nodes[row]))}: a second row of the same unit and categories ({ROW}); sum them",
            row=row,
        )
    seen[places] = True
