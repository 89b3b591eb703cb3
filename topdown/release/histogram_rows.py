"""The rows of a release of several queries, cells that have records and no others, read back."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

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
        parts = [_Rows.read(part, schema) for part in parts_of(path)]
        texts = pa.chunked_array([part.units for part in parts])
        places = _places(texts, geography.identifiers, "a unit that the release does not have")
        ends = np.cumsum([len(part.units) for part in parts])
        nodes = np.concatenate(
            [places[end - len(part.units) : end][part.unit] for part, end in zip(parts, ends, strict=True)]
        )
        cells = np.concatenate([part.cells for part in parts]).astype(np.int64)
        counts = np.concatenate([part.counts for part in parts])
        del parts
        key = nodes * schema.n_cells + cells
        if path.is_dir():  # parts have the rows of their own units, level by level
            order = np.argsort(key)
            nodes, cells, counts, key = nodes[order], cells[order], counts[order], key[order]
            del order
        if (np.diff(key) <= 0).any():
            raise ValueError("the rows do not go by unit and cell, each once")
        del key
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise DataError(f"{shown_path(path)}: cannot be read as a release of records: {reason(error)}") from None
    starts = np.searchsorted(nodes, np.arange(geography.n_nodes + 1))
    try:
        return HistogramRelease(geography, schema, starts, cells, counts, method, None, fit_for_release)
    except TopdownError as error:
        raise DataError(f"{shown_path(path)}: is no release: {error}") from None


class _Rows(NamedTuple):
    """The rows of one file: every row's ``unit`` as its place among ``units``, its cell and its count."""

    units: pa.Array
    unit: IntArray
    cells: IntArray
    counts: IntArray

    @classmethod
    def read(cls, path: Path, schema: Schema) -> _Rows:
        """Raises `ValueError` for a category that is not the schema's and for counts that are not whole."""
        texts = ["geoid", *schema.names]
        table = pq.read_table(path, columns=row_columns(schema), read_dictionary=texts).unify_dictionaries()
        kind = table["count"].type
        if not pa.types.is_integer(kind) or table["count"].null_count:
            raise ValueError(f"count holds {kind}, and not whole numbers in every row")
        coded = {name: _coded(table[name]) for name in texts}
        cells = np.zeros(table.num_rows, np.int32)
        for attribute in schema.attributes:
            known, code = pa.array(list(attribute.categories)), coded[attribute.name]
            otherwise = f"a category that {attribute.name!r} does not have"
            if code.null_count:
                raise ValueError(otherwise)
            places = _places(code.dictionary, known, otherwise).astype(np.int32)
            cells = cells * np.int32(len(known)) + places[code.indices.to_numpy()]
        unit = coded["geoid"]
        if unit.null_count:
            raise ValueError("a row without a unit")
        return cls(unit.dictionary, unit.indices.to_numpy(), cells, table["count"].to_numpy().astype(np.int64))


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """A column as one array that has each of its texts once."""
    whole = column.combine_chunks()
    if not pa.types.is_dictionary(whole.type):
        whole = whole.cast(pa.string()).dictionary_encode()
    return whole


def _places(column: pa.Array | pa.ChunkedArray, known: pa.Array, otherwise: str) -> IntArray:
    texts = column.cast(pa.string())
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    place = pc.index_in(texts, value_set=known.cast(pa.string()))
    if place.null_count:
        raise ValueError(otherwise)
    return np.asarray(place.to_numpy(), dtype=np.int64)
