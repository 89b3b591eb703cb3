"""Records counted back into a table: how many lie in every unit and cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.wording import shown, shown_path
from topdown.workload.schema import Schema


def tabulate(
    directory: str | Path,
    geoids: Any,
    cells: Sequence[str],
    schema: Schema | Mapping[str, Sequence[str]] | None = None,
) -> npt.NDArray[np.int64]:
    """(units x cells): how many of the directory's records lie in every unit of ``geoids`` and cell of ``cells``.

    Reads one row group at a time. Raises `DataError` for a record of a unit or category that is not among them.
    """
    schema = as_schema(schema, tuple(cells))
    units = geoids if isinstance(geoids, pa.Array) else pa.array(geoids, pa.string())
    place = np.empty(schema.shape, dtype=np.int64)
    place[tuple(schema.codes(cells).T)] = np.arange(len(cells))
    weights = [int(w) for w in np.cumprod((1, *schema.shape[:0:-1]))[::-1]]
    found = np.zeros(len(units) * len(cells), dtype=np.int64)
    paths = sorted(Path(directory).glob("part-*.parquet"))
    if not paths:
        raise DataError(f"{shown_path(directory)} holds no part-*.parquet; give the directory of the microdata")
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
                _add(found, leaf * len(cells) + place.reshape(-1)[cell])
    return found.reshape(len(units), len(cells))


def _codes(column: pa.ChunkedArray, known: pa.Array, path: Path, name: str) -> npt.NDArray[np.int64]:
    """The place of every value in ``known``, found through the dictionary."""
    pieces = []
    for chunk in column.chunks:
        place = pc.index_in(chunk.dictionary, value_set=known)
        if place.null_count or chunk.null_count:
            raise DataError(f"{shown_path(path)}: column {shown(name)} has a value that the release does not know")
        pieces.append(place.to_numpy()[chunk.indices.to_numpy()].astype(np.int64))
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)


def _add(found: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]) -> None:
    """Count ``codes`` into ``found``; the cost depends on how many there are, not on how far they are spread."""
    if not len(codes):
        return
    low, high = int(codes.min()), int(codes.max()) + 1
    if high - low <= 4 * len(codes):
        found[low:high] += np.bincount(codes - low, minlength=high - low)
    else:
        which, times = np.unique(codes, return_counts=True)
        found[which] += times


def as_schema(schema: Schema | Mapping[str, Sequence[str]] | None, cells: Sequence[str]) -> Schema:
    """The schema that is meant: without one, that of ``cells`` themselves."""
    if schema is None:
        return Schema.of_cells(cells)
    return schema if isinstance(schema, Schema) else Schema.from_mapping(schema)
