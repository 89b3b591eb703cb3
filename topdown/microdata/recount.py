"""Tabulates records: how many are in every unit and cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.tables.output_formats import ANY_PART
from topdown.wording import shown, shown_path
from topdown.workload.schema import Schema

IntArray = npt.NDArray[np.int64]


def tabulate(
    directory: str | Path,
    geoids: Any,
    cells: Sequence[str],
    schema: Schema | Mapping[str, Sequence[str]] | None = None,
) -> npt.NDArray[np.int64]:
    """(units x cells): how many of the directory's records are in every unit of ``geoids`` and cell of ``cells``.

    Reads one row group at a time. Raises `DataError` for a record of a unit or category that is not among them.
    """
    units = geoids if isinstance(geoids, pa.Array) else pa.array(geoids, pa.string())
    found = np.zeros(len(units) * len(cells), dtype=np.int64)
    for keys, times in recounted(Path(directory), units, cells, as_schema(schema, tuple(cells))):
        found[keys] += times
    return found.reshape(len(units), len(cells))


def recounted(
    directory: Path, units: pa.Array, cells: Sequence[str], schema: Schema
) -> Iterator[tuple[IntArray, IntArray]]:
    """For every row group, the cells of units in which it has records, each once, in rising order, and their counts; a
    cell of a unit is given by its number in a table of ``units`` x ``cells``. Raises `DataError` as `tabulate` does.
    """
    place = np.empty(schema.shape, dtype=np.int64)
    place[tuple(schema.codes(cells).T)] = np.arange(len(cells))
    weights = [int(w) for w in np.cumprod((1, *schema.shape[:0:-1]))[::-1]]
    paths = sorted(directory.glob(ANY_PART))
    if not paths:
        raise DataError(f"{shown_path(directory)} contains no {ANY_PART}; give the directory of the microdata")
    columns = ["geoid", *schema.names]
    for path in paths:
        with pq.ParquetFile(path, read_dictionary=columns) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=columns)
                leaf = _codes(table["geoid"], units, path, "geoid")
                cell = np.zeros(len(leaf), dtype=np.int64)
                for attribute, weight in zip(schema.attributes, weights, strict=True):
                    values = pa.array(attribute.categories)
                    cell += weight * _codes(table[attribute.name], values, path, attribute.name)
                yield _counted(leaf * len(cells) + place.reshape(-1)[cell])


def _codes(column: pa.ChunkedArray, known: pa.Array, path: Path, name: str) -> npt.NDArray[np.int64]:
    """The place of every value in ``known``, found through the dictionary."""
    pieces = []
    for chunk in column.chunks:
        place = pc.index_in(chunk.dictionary, value_set=known)
        if place.null_count or chunk.null_count:
            raise DataError(f"{shown_path(path)}: column {shown(name)} has a value that does not occur in the release")
        pieces.append(place.to_numpy()[chunk.indices.to_numpy()].astype(np.int64))
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)


def _counted(keys: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct ``keys``, and how often each occurs; the cost depends on their number, not on their range."""
    if not len(keys):
        return keys, keys
    low, high = int(keys.min()), int(keys.max()) + 1
    if high - low > 4 * len(keys):
        return np.unique(keys, return_counts=True)
    times = np.bincount(keys - low, minlength=high - low)
    there = np.flatnonzero(times)
    return low + there, times[there]


def as_schema(schema: Schema | Mapping[str, Sequence[str]] | None, cells: Sequence[str]) -> Schema:
    """``schema``, or without one, the schema of the ``cells`` as one attribute."""
    if schema is None:
        return Schema.of_cells(cells)
    return schema if isinstance(schema, Schema) else Schema.from_mapping(schema)
