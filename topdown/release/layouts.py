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
    """A kind of rows, by the ``name`` that manifests have of it. ``batches``: the rows of a release of some nodes, None
    for all, with more columns (nodes x cells). ``divides``: whether rows go in several files where there are many.
    """

    name: str
    batches: Callable[[Release, Sequence[slice] | None, Mapping[str, Any]], Iterator[pa.RecordBatch]]
    divides: bool


def _every_cell(release: Release, nodes: Sequence[slice] | None, more: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, parent, name, cell, value[, variance][, lower, upper, moe, cv, reliability][, total,
    total_lower, total_upper, total_moe]`` of every unit and cell."""
    columns: dict[str, Any] = {"value": release.values}
    if release.exact.any():
        columns["variance"] = lambda nodes: np.where(release.exact[nodes], 0.0, np.nan)
    return tidy_batches(release.geography, release.cells, {**columns, **_read_margins(release), **more}, units=True)


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
    """A number of every unit (nodes x 1) as often as there are cells."""
    return np.repeat(of_units, len(release.cells), axis=1)


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
