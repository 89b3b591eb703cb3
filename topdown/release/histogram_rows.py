"""The rows of a release of several queries, cells that have records and no others, read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError, TopdownError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.release.histograms import HistogramRelease
from topdown.release.sparse_rows import row_columns
from topdown.tables.parquet_folder import parts_of
from topdown.wording import reason, shown_path
from topdown.workload import Schema


def read_histograms(
    path: Path, geography: Geography, schema: Schema, method: str, *, fit_for_release: bool
) -> HistogramRelease:
    """The release whose rows `HistogramRelease.batches` gave, in a Parquet file at ``path``, or a folder of its parts.

    Raises `DataError` naming the file, and the unit where there is one, for rows that are not of these units and cells,
    each once and in their order, for counts that are not whole and above 0, and where a family does not add up.
    """
    try:
        columns = row_columns(schema)
        table = pa.concat_tables(pq.read_table(part, columns=columns) for part in parts_of(path)).combine_chunks()
        kind = table["count"].type
        if not pa.types.is_integer(kind) or table["count"].null_count:
            raise ValueError(f"count holds {kind}, and not whole numbers in every row")
        nodes = _places(table["geoid"], geography.identifiers, "a unit that the release does not have")
        cells = np.zeros(len(nodes), np.int64)
        for attribute in schema.attributes:
            known = pa.array(list(attribute.categories))
            place = _places(table[attribute.name], known, f"a category that {attribute.name!r} does not have")
            cells = cells * len(known) + place
        key = nodes * schema.n_cells + cells
        if path.is_dir():  # parts have the rows of their own units, level by level
            order = np.argsort(key)
            table, nodes, cells, key = table.take(pa.array(order)), nodes[order], cells[order], key[order]
        if (np.diff(key) <= 0).any():
            raise ValueError("the rows do not go by unit and cell, each once")
        counts = table["count"].to_numpy().astype(np.int64)
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise DataError(f"{shown_path(path)}: cannot be read as a release of records: {reason(error)}") from None
    starts = np.searchsorted(nodes, np.arange(geography.n_nodes + 1))
    try:
        return HistogramRelease(geography, schema, starts, cells, counts, method, None, fit_for_release)
    except TopdownError as error:
        raise DataError(f"{shown_path(path)}: is no release: {error}") from None


def _places(column: pa.ChunkedArray, known: pa.Array, otherwise: str) -> IntArray:
    place = pc.index_in(column.cast(pa.string()).combine_chunks(), value_set=known.cast(pa.string()))
    if place.null_count:
        raise ValueError(otherwise)
    return np.asarray(place.to_numpy(), dtype=np.int64)
