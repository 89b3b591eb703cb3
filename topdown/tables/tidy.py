"""Writes tables: tidy rows by node and cell as Parquet and CSV through Arrow; files appear only when they are
complete.
"""

from __future__ import annotations

import base64
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.machine.files import whole_file
from topdown.tables.spreadsheet import as_plain_table
from topdown.wording import FAILED, escaped_json, reason, shown_path

_ROWS_PER_GROUP = 1 << 18
_TEXT_PER_GROUP = 1 << 24
_CSV_ROWS_AT_ONCE = 1 << 16
_TEXTS = ("geoid", "name")
"""Columns that name a row's unit: text for readers, stored as numbers with a dictionary where a unit has many rows."""
_REPEATED = ("variance", "sd", "lower", "upper", "moe", "cv", "total_lower", "total_upper", "total_moe")
"""Floating-point columns with the same numbers in many rows. For others, and for identifiers, a dictionary is useless.
"""
_SOUGHT = ("geoid", "level", "parent", "query")
"""Columns by which rows are ordered: statistics of row groups let readers skip other groups."""


def tidy_batches(
    geography: Geography,
    cells: Sequence[str],
    columns: Mapping[str, Any],
    *,
    rows: npt.NDArray[np.bool_] | None = None,
    units: bool = False,
    numbered_texts: bool | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, [parent, name,] cell, *columns`` for every node and cell, node by node, in batches.

    ``columns``: for each a (nodes x cells) array, what gives it, or its rows, for an array of nodes, or a string that
    stands in every row. NaN becomes null. ``rows`` (nodes,) leaves nodes out. ``units``: whether to give the units'
    parents, null at the root, and names, null where unknown. ``numbered_texts``: whether these texts and ``geoid`` are
    numbers with a dictionary, by default where there are several cells.
    """
    as_numbers = len(cells) > 1 if numbered_texts is None else numbered_texts
    chosen = None if rows is None or rows.all() else np.flatnonzero(rows)
    n_chosen = geography.n_nodes if chosen is None else len(chosen)
    step = _nodes_at_once(geography, len(cells), units=units)
    for begin in range(0, n_chosen, step):
        bounds = slice(begin, min(begin + step, n_chosen))
        nodes = bounds if chosen is None else chosen[bounds]
        yield _tidy_batch(geography, cells, columns, nodes, units=units, as_numbers=as_numbers)


def _nodes_at_once(geography: Geography, n_cells: int, *, units: bool) -> int:
    """The number of nodes in a batch, such that its rows, identifiers and names are bounded in size."""
    texts: int = geography.identifiers.nbytes + (geography.names.nbytes if units and geography.names is not None else 0)
    rows = min(_ROWS_PER_GROUP, _TEXT_PER_GROUP * geography.n_nodes // max(1, texts))
    return max(1, rows // n_cells)


def _tidy_batch(
    geography: Geography,
    cells: Sequence[str],
    columns: Mapping[str, Any],
    nodes: slice | IntArray,
    *,
    units: bool,
    as_numbers: bool,
) -> pa.RecordBatch:
    """The rows of some nodes. A slice of nodes takes one copy of a value, an array of them two."""
    n_cells = len(cells)
    numbers = np.arange(nodes.start, nodes.stop) if isinstance(nodes, slice) else nodes
    level = levels_of(geography, nodes)
    n_rows = len(numbers) * n_cells
    arrays = {
        "geoid": text_of(geography.identifiers, numbers, n_cells, as_numbers=as_numbers),
        "level": pa.DictionaryArray.from_arrays(pa.array(np.repeat(level, n_cells)), pa.array(geography.levels)),
    }
    if units:
        arrays["parent"] = parents_of(geography, nodes, n_cells)
        known = geography.names
        unnamed = pa.nulls(n_rows, pa.string())
        arrays["name"] = unnamed if known is None else text_of(known, numbers, n_cells, as_numbers=as_numbers)
    for name, values in columns.items():
        if name == "cell":
            continue
        if isinstance(values, str):
            same = pa.array(np.zeros(n_rows, np.int8))
            arrays[name] = pa.DictionaryArray.from_arrays(same, pa.array([values]))
        else:
            chosen = values(nodes) if callable(values) else values[nodes]
            is_made = isinstance(chosen, pa.Array)
            arrays[name] = chosen if is_made else pa.array(np.ascontiguousarray(chosen).reshape(-1), from_pandas=True)
    index = np.tile(np.arange(n_cells, dtype=np.int32), len(numbers))
    arrays["cell"] = pa.DictionaryArray.from_arrays(pa.array(index), pa.array(list(cells)))
    first = [name for name in ("geoid", "level", "parent", "name", "query", "cell") if name in arrays]
    order = [*first, *(name for name in arrays if name not in first)]
    return pa.RecordBatch.from_arrays([arrays[name] for name in order], order)


def with_plain_strings(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with its dictionary columns as strings, for a table whose batches have different dictionaries."""
    plain = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(plain, batch.schema.names)


class ArrowTable(ABC):
    """A table that polars, DuckDB, pyarrow and others can read through Arrow's PyCapsule interface."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """The table."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table as a stream of Arrow's C interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def to_frame(batches: Iterator[pa.RecordBatch]) -> pd.DataFrame:
    """``batches`` as one DataFrame."""
    frame: pd.DataFrame = to_arrow(batches).to_pandas()
    return frame


def to_arrow(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    """``batches`` as one Arrow table."""
    return pa.Table.from_batches(map(_with_texts, batches))


def _with_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    kept = [name for name in _TEXTS if name in batch.schema.names and pa.types.is_dictionary(batch[name].type)]
    for name in kept:
        batch = batch.set_column(batch.schema.get_field_index(name), name, batch[name].dictionary_decode())
    return batch


def text_of(values: pa.Array, nodes: IntArray, times: int, *, as_numbers: bool) -> pa.Array:
    """``values``, text, at ``nodes``, each repeated so many times, as numbers with a dictionary or as text."""
    if len(nodes) and nodes[-1] - nodes[0] + 1 == len(nodes):
        chosen = values.slice(int(nodes[0]), len(nodes))
    else:
        chosen = values.take(pa.array(nodes.astype(np.int32 if len(values) < 1 << 31 else np.int64)))
    places = np.repeat(np.arange(len(nodes), dtype=np.int32), times)
    return numbered(chosen, places) if as_numbers else chosen if times == 1 else chosen.take(pa.array(places))


def numbered(values: pa.Array, places: npt.NDArray[np.int32]) -> pa.DictionaryArray:
    """``values``, text, at ``places``, as numbers with a dictionary; without null, which dictionaries of Parquet cannot
    have.
    """
    missing = None
    if values.null_count:
        missing = values.is_null().to_numpy(zero_copy_only=False)[places]
        values = values.fill_null("")
    return pa.DictionaryArray.from_arrays(pa.array(places, mask=missing), values)


def parents_of(geography: Geography, nodes: slice | IntArray, times: int = 1) -> pa.DictionaryArray:
    """The GEOIDs of the parents of ``nodes``, in ascending order, each so many times; of the root null."""
    bounds = geography.tree.child_offsets
    index: npt.NDArray[np.int32]
    # Parents are in the same order as their children, so that a dictionary of them needs no search.
    if isinstance(nodes, slice):
        first, last = (int(np.searchsorted(bounds, node, side="right")) - 1 for node in (nodes.start, nodes.stop - 1))
        inside = np.clip(bounds[max(first, 0) : last + 2], max(nodes.start, 1), nodes.stop)
        below = np.repeat(np.arange(len(inside) - 1, dtype=np.int32), np.diff(inside))
        index = np.repeat(np.concatenate([np.full(int(first < 0), -1, np.int32), below]), times)
        first, last = max(first, 0), max(last, 0)
    else:
        parent = np.searchsorted(bounds, nodes, side="right") - 1
        first, last = int(np.maximum(parent, 0).min()), max(0, int(parent.max()))
        index = np.repeat((parent - first).astype(np.int32), times)
    return pa.DictionaryArray.from_arrays(
        pa.array(index, mask=index < 0), geography.identifiers.slice(first, last - first + 1)
    )


def levels_of(geography: Geography, nodes: slice | IntArray) -> npt.NDArray[Any]:
    """The number of the level of each of ``nodes``, as a byte where that is enough."""
    bounds = geography.level_offsets
    kind = np.int8 if len(geography.levels) <= 1 << 7 else np.int64
    if isinstance(nodes, slice):
        inside = np.clip(bounds, nodes.start, nodes.stop)
        return np.repeat(np.arange(len(inside) - 1, dtype=kind), inside[1:] - inside[:-1])
    return (np.searchsorted(bounds, nodes, side="right") - 1).astype(kind)


def write_parquet(
    path: Path, batches: Iterator[pa.RecordBatch], metadata: Mapping[str, str], *, private: bool = False
) -> None:
    """``batches`` as a Parquet file at ``path`` with ``metadata`` in its schema, a row group a batch.

    ``private``: readable by its owner alone, as in `whole_file`.
    """
    batch = next(batches)
    schema = batch.schema
    once = [f.name for f in schema if pa.types.is_floating(f.type) or (f.name, f.type) == ("geoid", pa.string())]
    repeats = [name for name in schema.names if name not in once or name in _REPEATED]
    with (
        whole_file(path, private=private) as partial,
        pq.ParquetWriter(
            partial,
            schema,
            compression="zstd",
            use_dictionary=repeats,
            write_statistics=[name for name in schema.names if name in _SOUGHT],
            store_schema=False,
        ) as writer,
    ):
        writer.add_key_value_metadata(_said_to_readers(schema, metadata))
        while batch is not None:
            writer.write_batch(_each_once(batch))
            del batch  # Before the next one is made.
            batch = next(batches, None)


def _each_once(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with dictionaries without repeated texts, which names of units may have. For a dictionary with repeats
    Arrow writes a page as long as all of its texts but with each text only once: the rest of the page would be
    uninitialised memory of the process, which may be confidential.
    """
    for place, column in enumerate(batch.columns):
        if pa.types.is_dictionary(column.type):
            known = column.dictionary.dictionary_encode()
            if len(known.dictionary) < len(column.dictionary):
                # Missing indices stay missing.
                again = pa.DictionaryArray.from_arrays(known.indices.take(column.indices), known.dictionary)
                batch = batch.set_column(place, batch.schema.names[place], again)
    return batch


def _said_to_readers(schema: pa.Schema, metadata: Mapping[str, str]) -> dict[str, str]:
    """``metadata``, and Arrow's record of the columns' types, in which identifiers and names are text."""
    plain = pa.schema([field.with_type(pa.string()) if field.name in _TEXTS else field for field in schema])
    kinds = plain.with_metadata(dict(metadata)).serialize().to_pybytes()
    return {**metadata, "ARROW:schema": base64.b64encode(kinds).decode()}


def write_csv(path: Path, batches: Iterator[pa.RecordBatch], *, private: bool = False) -> None:
    """``batches`` as a CSV file with a header at ``path``, text by `CSV_TEXT_RULE`; ``private``: as `write_parquet`."""
    with whole_file(path, private=private) as partial, partial.open("wb") as file:
        _write_csv(file, batches)


def csv_text(frame: pd.DataFrame) -> str:
    """``frame`` as `write_csv` would write it."""
    content = io.BytesIO()
    _write_csv(content, frame_batches(frame))
    return content.getvalue().decode()


def frame_batches(frame: pd.DataFrame) -> Iterator[pa.RecordBatch]:
    """``frame`` without its index in batches, of which there is one at least."""
    table = pa.Table.from_pandas(frame, preserve_index=False).combine_chunks()
    return iter(table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)])


def _write_csv(file: IO[bytes], batches: Iterator[pa.RecordBatch]) -> None:
    batch = next(batches)
    with pacsv.CSVWriter(file, as_plain_table(pa.Table.from_batches([], batch.schema)).schema) as writer:
        while batch is not None:
            for begin in range(0, batch.num_rows, _CSV_ROWS_AT_ONCE):
                part = batch.slice(begin, _CSV_ROWS_AT_ONCE)
                writer.write_table(as_plain_table(pa.Table.from_batches([part])))
                del part
            del batch  # Before the next one is made.
            batch = next(batches, None)


@contextmanager
def named_failures(path: Path, remedy: str = "free the space or correct the path") -> Iterator[None]:
    """Turns errors of the system while ``path`` is written into a `DataError` that names it and ends in ``remedy``."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{shown_path(path)}: cannot be written: {reason(error, FAILED)}; {remedy}") from None


def json_text(value: Any) -> str:
    """``value`` as indented JSON, without characters that control a terminal."""
    return escaped_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n"


def records_text(frame: pd.DataFrame) -> str:
    """The rows of ``frame`` as JSON records, as `json_text` writes them; missing and infinite values are null."""
    text = frame.to_json(orient="records", indent=2, double_precision=15, force_ascii=False)
    return escaped_json(str(text)) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as `json_text` to ``path``; the file appears complete or not at all."""
    write_text(path, json_text(value))


def write_text(path: Path, text: str) -> None:
    """Write ``text`` in UTF-8 to ``path``, with the same line ends on every system; the file appears complete or not at
    all.
    """
    with whole_file(path) as partial:
        partial.write_bytes(text.encode())
