"""How a release is laid out in rows: every cell of every unit, or the cells that have records; and one row per unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from topdown.errors import ConfigError
from topdown.geography.tree import IntArray
from topdown.tables.geography_table import geography_batches
from topdown.tables.tidy import levels_of, numbered, tidy_batches
from topdown.wording import shown
from topdown.workload import Schema

if TYPE_CHECKING:
    from topdown.release.whole_counts import Release

TOTAL = "total"
_UNIT = ("geoid", "level", "parent", "name")
_ROWS_AT_ONCE, _NUMBERS_AT_ONCE = 1 << 18, 1 << 22


class Layout(NamedTuple):
    """A kind of rows, by the ``name`` that manifests have of it. ``batches``: the rows of a release of some nodes, None
    for all, with more columns (nodes x cells). ``divides``: whether rows go in several files where there are many.
    """

    name: str
    batches: Callable[[Release, Sequence[slice] | None, Mapping[str, Any]], Iterator[pa.RecordBatch]]
    divides: bool


def _every_cell(release: Release, nodes: Sequence[slice] | None, more: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, parent, name, cell, value[, variance][, lower, upper, moe]`` of every unit and cell."""
    columns: dict[str, Any] = {"value": release.values}
    if release.exact.any():
        columns["variance"] = lambda nodes: np.where(release.exact[nodes], 0.0, np.nan)
    return tidy_batches(release.geography, release.cells, {**columns, **release.margins, **more}, units=True)


def row_columns(schema: Schema) -> list[str]:
    """The columns of rows of cells that have records: the unit, the attributes, the count.

    Raises `ConfigError` for an attribute that is called as one of the others.
    """
    for name in schema.names:
        if name in ("level", "count"):
            raise ConfigError(
                f"attribute {shown(name)} has the same name as a column of the release, whose rows are geoid, level, "
                "the attributes and count; give it another name"
            )
    return ["geoid", "level", *schema.names, "count"]


def _with_records(release: Release, nodes: Sequence[slice] | None, more: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, one column per attribute, count`` of every cell that has records, node by node.

    Raises `ConfigError` as `row_columns` does.
    """
    row_columns(release.schema)
    starts, none = release.starts, True
    for part in [slice(0, release.geography.n_nodes)] if nodes is None else nodes:
        for begin in range(int(starts[part.start]), int(starts[part.stop]), _ROWS_AT_ONCE):
            none = False
            yield _batch(release, slice(begin, min(begin + _ROWS_AT_ONCE, int(starts[part.stop]))))
    if none:
        yield _batch(release, slice(0, 0))


def _batch(release: Release, entries: slice) -> pa.RecordBatch:
    """The rows of some entries."""
    geography, schema = release.geography, release.schema
    first = int(np.searchsorted(release.starts, entries.start, side="right")) - 1
    last = max(first, int(np.searchsorted(release.starts, entries.stop, side="left")) - 1)
    bounds: IntArray = np.clip(release.starts[first : last + 2], entries.start, entries.stop)
    sizes = bounds[1:] - bounds[:-1]
    if entries.start == entries.stop:
        first, last, sizes = 0, 0, np.zeros(1, np.int64)
    place = np.repeat(np.arange(last - first + 1, dtype=np.int32), sizes)
    level = levels_of(geography, slice(first, last + 1))
    columns = {
        "geoid": numbered(geography.identifiers.slice(first, last - first + 1), place),
        "level": pa.DictionaryArray.from_arrays(pa.array(level[place]), pa.array(geography.levels)),
    }
    cells, counts = release.entries(entries)
    places = np.unravel_index(cells, schema.shape)
    for attribute, category in zip(schema.attributes, places, strict=True):
        columns[attribute.name] = pa.DictionaryArray.from_arrays(
            pa.array(category.astype(np.int32)), pa.array(list(attribute.categories))
        )
    columns["count"] = pa.array(counts)
    return pa.RecordBatch.from_pydict(columns)


EVERY_CELL = Layout("every cell", _every_cell, divides=False)
WITH_RECORDS = Layout("cells with records", _with_records, divides=True)
LAYOUTS = {layout.name: layout for layout in (EVERY_CELL, WITH_RECORDS)}
"""Every kind of rows by its name."""


def wide_columns(cells: Sequence[str]) -> list[str]:
    """The columns of a wide table of these cells: the unit, the cells and, of several, their total.

    Raises `ConfigError` for a cell that is called as one of the others.
    """
    found = [*_UNIT, *cells, *([TOTAL] if len(cells) > 1 else [])]
    for cell in cells:
        if found.count(cell) > 1:
            raise ConfigError(
                f"cell {shown(cell)} is called as another column of the wide table; rename it, or leave output.wide out"
            )
    return found


def wide_batches(release: Release) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, parent, name, *cells[, total]`` of every unit, in batches.

    Raises `ConfigError` as `wide_columns` does.
    """
    columns, begin = wide_columns(release.cells), 0
    at_once = max(1, _NUMBERS_AT_ONCE // len(columns))
    every = (
        batch.slice(first, at_once)
        for batch in geography_batches(release.geography)
        for first in range(0, batch.num_rows, at_once)
    )
    for units in every:
        values = release.values_of(slice(begin, begin + units.num_rows))
        begin += units.num_rows
        counts = [pa.array(values[:, k]) for k in range(values.shape[1])]
        if len(counts) > 1:
            counts.append(pa.array(values.sum(axis=1)))
        yield pa.RecordBatch.from_arrays([*units.columns, *counts], columns)
