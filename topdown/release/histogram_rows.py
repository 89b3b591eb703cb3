"""The rows of a release of several queries, cells that have records and no others, read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError, TopdownError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.release.histograms import HistogramRelease
from topdown.release.sparse_rows import row_columns
from topdown.tables.parquet import longest_text, require_texts
from topdown.tables.parquet_folder import parts_of
from topdown.wording import reason, shown_path
from topdown.workload import Schema

_ROWS_AT_ONCE = 1 << 17
_NOT_IN_ORDER = "the rows do not go by unit and cell, each once"


def read_histograms(
    path: Path, geography: Geography, schema: Schema, method: str, *, fit_for_release: bool
) -> HistogramRelease:
    """The release whose rows `HistogramRelease.batches` gave, in a Parquet file at ``path``, or a folder of its parts.

    Raises `DataError` naming the file, and the unit where there is one, for rows that are not of these units and cells,
    each once and in their order, for counts that are not whole and above 0, and where a family does not add up.
    """
    if geography.n_nodes * schema.n_cells >= 1 << 63:
        raise DataError(
            f"{shown_path(path)}: {geography.n_nodes:,} units x {schema.n_cells:,} cells are more than 2^63"
        )
    try:
        parts = [_Rows.read(part, geography, schema) for part in parts_of(path)]
        texts = pa.concat_arrays([part.units for part in parts])
        places = _places(texts, geography.identifiers, "a unit that the release does not have")
        nodes = np.repeat(places, np.concatenate([part.sizes for part in parts]))
        cells = np.concatenate([part.cells for part in parts]).astype(np.int64)
        counts = np.concatenate([part.counts for part in parts])
        del parts
        key = nodes * schema.n_cells + cells
        if path.is_dir():  # parts have the rows of their own units, level by level
            order = np.argsort(key)
            nodes, cells, counts, key = nodes[order], cells[order], counts[order], key[order]
            del order
        if (np.diff(key) <= 0).any():
            raise ValueError(_NOT_IN_ORDER)
        del key
    except DataError:
        raise
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise DataError(f"{shown_path(path)}: cannot be read as a release of records: {reason(error)}") from None
    starts = np.searchsorted(nodes, np.arange(geography.n_nodes + 1))
    try:
        return HistogramRelease(geography, schema, starts, cells, counts, method, None, fit_for_release)
    except TopdownError as error:
        raise DataError(f"{shown_path(path)}: is no release: {error}") from None


class _Rows(NamedTuple):
    """The rows of one file: its ``units``, each with so many rows after each other (``sizes``), and every row's cell
    and count.
    """

    units: pa.Array
    sizes: IntArray
    cells: npt.NDArray[Any]
    counts: IntArray

    @classmethod
    def read(cls, path: Path, geography: Geography, schema: Schema) -> _Rows:
        """Some rows at a time, so that a file that repeats its rows is not read to its end.

        Raises `ValueError` for a category that is not the schema's, for counts that are not whole, and for rows that
        are not in order.
        """
        texts = ["geoid", *schema.names]
        known = {attribute.name: pa.array(list(attribute.categories)) for attribute in schema.attributes}
        require_texts(
            path, {"geoid": longest_text(geography.identifiers)} | {k: longest_text(v) for k, v in known.items()}
        )
        n_units = 0
        units, sizes, cells, counts = list[pa.Array](), list[IntArray](), list[npt.NDArray[Any]](), list[IntArray]()
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            kind = file.schema_arrow.field("count").type
            if not pa.types.is_integer(kind):
                raise ValueError(f"count holds {kind}, and not whole numbers")
            row_columns(schema)
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=["geoid", *schema.names, "count"]):
                coded = {name: _coded(batch[name]) for name in texts}
                if any(code.null_count for code in coded.values()) or batch["count"].null_count:
                    raise ValueError("a row without its unit, a category or its count")
                cell = np.zeros(len(batch), np.int64)
                for name, categories in known.items():
                    places = _places(coded[name].dictionary, categories, f"a category that {name!r} does not have")
                    cell = cell * len(categories) + places[coded[name].indices.to_numpy()]
                unit = coded["geoid"].indices.to_numpy()
                begins = np.concatenate([[0], 1 + np.flatnonzero(np.diff(unit))])
                rises = np.diff(cell) > 0
                rises[begins[1:] - 1] = True
                if not rises.all() or len(np.unique(unit[begins])) < len(begins):
                    raise ValueError(_NOT_IN_ORDER)
                units.append(coded["geoid"].dictionary.take(pa.array(unit[begins])))
                sizes.append(np.diff(begins, append=len(batch)))
                cells.append(cell.astype(np.int32 if schema.n_cells < 1 << 31 else np.int64))
                counts.append(batch["count"].to_numpy().astype(np.int64))
                n_units += len(begins)
                if n_units > geography.n_nodes + len(units):  # a unit's rows may go on in the next batch
                    raise ValueError(_NOT_IN_ORDER)
        none = np.zeros(0, np.int64)
        return cls(
            pa.concat_arrays([pa.array([], pa.string()), *units]),
            np.concatenate([none, *sizes]),
            np.concatenate([none.astype(np.int32), *cells]),
            np.concatenate([none, *counts]),
        )


def _coded(column: pa.Array) -> pa.DictionaryArray:
    """A column as an array that has each of its texts once."""
    if not pa.types.is_dictionary(column.type):
        return column.cast(pa.string()).dictionary_encode()
    return column.cast(pa.dictionary(pa.int32(), pa.string()))


def _places(texts: pa.Array, known: pa.Array, otherwise: str) -> IntArray:
    place = pc.index_in(texts, value_set=known.cast(pa.string()))
    if place.null_count:
        raise ValueError(otherwise)
    return np.asarray(place.to_numpy(), dtype=np.int64)
