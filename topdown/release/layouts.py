"""How a release is laid out in rows: every cell of every unit, or the cells that have records; and one row per unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from topdown.errors import ConfigError
from topdown.geography.tree import IntArray
from topdown.tables.count_reliability import classes_of
from topdown.tables.geography_table import geography_batches
from topdown.tables.tidy import levels_of, numbered, tidy_batches
from topdown.wording import shown
from topdown.workload import TOTAL, Schema
from topdown.workload.answer_tables import margin_names, wide_table

if TYPE_CHECKING:
    from topdown.release.whole_counts import Release

_ROWS_AT_ONCE, _NUMBERS_AT_ONCE = 1 << 18, 1 << 22


class Layout(NamedTuple):
    """A layout of rows, with the ``name`` that manifests have for it. ``batches``: the rows of a release for some
    nodes, None for all, with more columns (nodes x cells). ``divides``: whether many rows are divided into several
    files. ``replicates``: the rows of a release with a column for each of some tables of the same units and cells.
    """

    name: str
    batches: Callable[[Release, Sequence[slice] | None, Mapping[str, Any]], Iterator[pa.RecordBatch]]
    divides: bool
    replicates: Callable[[Release, Sequence[Release]], Iterator[pa.RecordBatch]]


def _every_cell(release: Release, nodes: Sequence[slice] | None, more: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, parent, name, cell, value[, variance][, lower, upper, moe, cv, reliability][, total,
    total_lower, total_upper, total_moe]`` of every unit and cell."""
    columns: dict[str, Any] = {"value": release.values}
    if release.exact.any():
        columns["variance"] = lambda nodes: np.where(release.exact[nodes], 0.0, np.nan)
    return tidy_batches(release.geography, release.cells, {**columns, **_read_margins(release), **more}, units=True)


def _every_cell_of(release: Release, tables: Sequence[Release]) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, parent, name, cell, value, rep1, rep2, ...`` of every unit and cell."""
    columns = {"value": release.values, **{f"rep{k}": table.values for k, table in enumerate(tables, 1)}}
    return tidy_batches(release.geography, release.cells, columns, units=True)


def _read_margins(release: Release) -> dict[str, Any]:
    """The columns of margins of a release that was read from files which have them."""
    found: dict[str, Any] = {}
    for name, values in release.margins.items():
        if name == margin_names(TOTAL)[0]:
            found[TOTAL] = lambda nodes: _repeated(release.values_of(nodes).sum(axis=1, keepdims=True), release)
        is_total = name in margin_names(TOTAL)
        found[name] = (lambda nodes, values=values: _repeated(values[nodes], release)) if is_total else values
        if name == "cv":
            has_some = release.margins["lower"]
            found["reliability"] = lambda nodes, cv=values, known=has_some: classes_of(
                cv[nodes], ~np.isnan(known[nodes])
            )
    return found


def _repeated(of_units: npt.NDArray[Any], release: Release) -> npt.NDArray[Any]:
    """The number of every unit (nodes x 1), repeated for every cell."""
    return np.repeat(of_units, len(release.cells), axis=1)


def row_columns(schema: Schema) -> list[str]:
    """The columns of rows of cells that have records: the unit, the attributes, the count.

    Raises `ConfigError` for an attribute that has the name of another column.
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
    first = int(np.searchsorted(release.starts, entries.start, side="right")) - 1
    last = max(first, int(np.searchsorted(release.starts, entries.stop, side="left")) - 1)
    bounds: IntArray = np.clip(release.starts[first : last + 2], entries.start, entries.stop)
    sizes = bounds[1:] - bounds[:-1]
    if entries.start == entries.stop:
        first, last, sizes = 0, 0, np.zeros(1, np.int64)
    place = np.repeat(np.arange(last - first + 1, dtype=np.int32), sizes)
    cells, counts = release.entries(entries)
    return _of_records(release, slice(first, last + 1), place, cells, {"count": counts})


def _with_records_of(release: Release, tables: Sequence[Release]) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, one column per attribute, count, rep1, rep2, ...`` of every cell that has records in the
    release or in any of ``tables``; a count is 0 where it has none there."""
    all_tables, n_cells, n_nodes = (release, *tables), release.schema.n_cells, release.geography.n_nodes
    known = np.sum([table.starts for table in all_tables], axis=0)
    begin = 0
    while begin < n_nodes:
        stop = max(begin + 1, int(np.searchsorted(known, known[begin] + _NUMBERS_AT_ONCE, side="right")) - 1)
        entries = [table.entries_of(slice(begin, stop)) for table in all_tables]
        keys = [node * n_cells + cell for node, cell, _ in entries]
        rows = np.unique(np.concatenate(keys))
        counts = np.zeros((len(all_tables), len(rows)), np.int64)
        for of_table, key, (_, _, count) in zip(counts, keys, entries, strict=True):
            of_table[np.searchsorted(rows, key)] = count
        node, cells = np.divmod(rows, n_cells)
        names = ("count", *(f"rep{k}" for k in range(1, len(all_tables))))
        columns = dict(zip(names, counts, strict=True))
        yield _of_records(release, slice(begin, stop), node.astype(np.int32), cells, columns)
        begin = stop


def _of_records(
    release: Release, nodes: slice, place: npt.NDArray[np.int32], cells: IntArray, counts: Mapping[str, IntArray]
) -> pa.RecordBatch:
    """Rows of ``cells`` of some ``nodes``, numbered from the first of them (``place``), with columns of ``counts``."""
    geography, schema = release.geography, release.schema
    level = levels_of(geography, nodes)
    columns = {
        "geoid": numbered(geography.identifiers.slice(nodes.start, nodes.stop - nodes.start), place),
        "level": pa.DictionaryArray.from_arrays(pa.array(level[place]), pa.array(geography.levels)),
    }
    places = np.unravel_index(cells, schema.shape)
    for attribute, category in zip(schema.attributes, places, strict=True):
        columns[attribute.name] = pa.DictionaryArray.from_arrays(
            pa.array(category.astype(np.int32)), pa.array(list(attribute.categories))
        )
    return pa.RecordBatch.from_pydict(columns | {name: pa.array(one) for name, one in counts.items()})


EVERY_CELL = Layout("every cell", _every_cell, divides=False, replicates=_every_cell_of)
WITH_RECORDS = Layout("cells with records", _with_records, divides=True, replicates=_with_records_of)
LAYOUTS = {layout.name: layout for layout in (EVERY_CELL, WITH_RECORDS)}
"""Every layout by its name."""


def wide_batches(
    release: Release, more: Callable[[slice], Mapping[str, pa.Array]] | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, parent, name, *cells[, total]`` of every unit, in batches; ``more``: columns of some nodes
    that come after these.

    Raises `ConfigError` as `wide_table` does.
    """
    columns, begin = wide_table(release.cells, release.schema).columns, 0
    at_once = max(1, _NUMBERS_AT_ONCE // len(columns))
    every = (
        batch.slice(first, at_once)
        for batch in geography_batches(release.geography)
        for first in range(0, batch.num_rows, at_once)
    )
    for units in every:
        nodes = slice(begin, begin + units.num_rows)
        values = release.values_of(nodes)
        begin = nodes.stop
        counts = [pa.array(values[:, k]) for k in range(values.shape[1])]
        if len(counts) > 1:
            counts.append(pa.array(values.sum(axis=1)))
        known = dict(zip([*units.schema.names, *(one.name for one in columns)], [*units.columns, *counts], strict=True))
        yield pa.RecordBatch.from_pydict(known | ({} if more is None else dict(more(nodes))))
