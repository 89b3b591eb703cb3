"""Tables out: tidy rows by node and cell as Parquet and CSV through Arrow, files that appear whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.machine.files import whole_file
from topdown.machine.memory import give_back
from topdown.tables.spreadsheet import as_plain_table

_ROWS_PER_GROUP = 1 << 18
_TEXT_PER_GROUP = 1 << 24
_CSV_ROWS_AT_ONCE = 1 << 16


def tidy_batches(
    geography: Geography,
    cells: Sequence[str],
    columns: Mapping[str, Any],
    *,
    rows: npt.NDArray[np.bool_] | None = None,
    units: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, [parent, name,] cell, *columns`` for every node and cell, node by node, in batches.

    ``columns``: for each a (nodes x cells) array, what gives it for an array of nodes, or a string that stands in every
    row. NaN becomes null. ``rows`` (nodes,) leaves nodes out. ``units``: whether to give the units' parents, null at
    the root, and names, null where unknown.
    """
    chosen = None if rows is None or rows.all() else np.flatnonzero(rows)
    n_chosen = geography.n_nodes if chosen is None else len(chosen)
    step = _nodes_at_once(geography, len(cells), units=units)
    for begin in range(0, n_chosen, step):
        bounds = slice(begin, min(begin + step, n_chosen))
        yield _tidy_batch(geography, cells, columns, bounds if chosen is None else chosen[bounds], units=units)


def _nodes_at_once(geography: Geography, n_cells: int, *, units: bool) -> int:
    """So many nodes that their rows, and the identifiers and names in these, stay within bounds."""
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
) -> pa.RecordBatch:
    """The rows of some nodes. A slice of nodes takes one copy of a value, an array of them two."""
    n_cells = len(cells)
    numbers = np.arange(nodes.start, nodes.stop) if isinstance(nodes, slice) else nodes
    level = (np.searchsorted(geography.level_offsets, numbers, side="right") - 1).astype(np.int8)
    n_rows = len(numbers) * n_cells
    arrays = {
        "geoid": _pick(geography.identifiers, numbers, n_cells),
        "level": pa.DictionaryArray.from_arrays(pa.array(np.repeat(level, n_cells)), pa.array(geography.levels)),
    }
    if units:
        arrays["parent"] = parents_of(geography, numbers, n_cells)
        known = geography.names
        arrays["name"] = pa.nulls(n_rows, pa.string()) if known is None else _pick(known, numbers, n_cells)
    for name, values in columns.items():
        if name == "cell":
            continue
        if isinstance(values, str):
            same = pa.array(np.zeros(n_rows, np.int8))
            arrays[name] = pa.DictionaryArray.from_arrays(same, pa.array([values]))
        else:
            chosen = values(nodes) if callable(values) else values[nodes]
            arrays[name] = pa.array(np.ascontiguousarray(chosen).reshape(-1), from_pandas=True)
    index = np.tile(np.arange(n_cells, dtype=np.int32), len(numbers))
    arrays["cell"] = pa.DictionaryArray.from_arrays(pa.array(index), pa.array(list(cells)))
    first = [name for name in ("geoid", "level", "parent", "name", "query", "cell") if name in arrays]
    order = [*first, *(name for name in arrays if name not in first)]
    return pa.RecordBatch.from_arrays([arrays[name] for name in order], order)


def with_plain_strings(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with its dictionary columns as strings, for a table whose batches have different dictionaries."""
    plain = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(plain, batch.schema.names)


def to_frame(batches: Iterator[pa.RecordBatch]) -> pd.DataFrame:
    """``batches`` as one DataFrame."""
    frame: pd.DataFrame = pa.Table.from_batches(batches).to_pandas()
    return frame


def to_arrow(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    """``batches`` as one Arrow table."""
    return pa.Table.from_batches(batches)


def _pick(values: pa.Array, nodes: IntArray, times: int) -> pa.Array:
    """``values`` at ``nodes``, each so many times; a slice, without a copy, where these are consecutive."""
    if times == 1 and len(nodes) and nodes[-1] - nodes[0] + 1 == len(nodes):
        return values.slice(int(nodes[0]), len(nodes))
    return values.take(pa.array(np.repeat(nodes.astype(np.int32 if len(values) < 1 << 31 else np.int64), times)))


def parents_of(geography: Geography, nodes: IntArray, times: int = 1) -> pa.DictionaryArray:
    """The GEOIDs of the parents of ``nodes``, in ascending order, each so many times; of the root null."""
    parent = np.searchsorted(geography.tree.child_offsets, nodes, side="right") - 1
    # Parents stand in a row, as their children do: a dictionary of them takes no search.
    first, last = int(np.maximum(parent, 0).min()), max(0, int(parent.max()))
    index = np.repeat((parent - first).astype(np.int32), times)
    return pa.DictionaryArray.from_arrays(
        pa.array(index, mask=index < 0), geography.identifiers.slice(first, last - first + 1)
    )


def write_parquet(
    path: Path, batches: Iterator[pa.RecordBatch], metadata: Mapping[str, str], *, private: bool = False
) -> None:
    """``batches`` as a Parquet file at ``path`` with ``metadata`` in its schema, a row group a batch.

    ``private``: readable by its owner alone, as in `whole_file`.
    """
    batch = next(batches)
    schema = batch.schema.with_metadata(dict(metadata))
    # Identifiers and estimates are others in almost every row: a dictionary of them is made in vain.
    once = {f.name for f in schema if f.name == "geoid" or pa.types.is_floating(f.type)} - {"variance"}
    repeats = [name for name in schema.names if name not in once]
    # Every group of rows has every cell: what the first and the last of them are called leads no reader past one.
    statistics = [name for name in schema.names if name != "cell"]
    with (
        whole_file(path, private=private) as partial,
        pq.ParquetWriter(
            partial, schema, compression="zstd", use_dictionary=repeats, write_statistics=statistics
        ) as writer,
    ):
        while batch is not None:
            writer.write_batch(batch.replace_schema_metadata(dict(metadata)))
            del batch  # Before the next one is made.
            give_back()
            batch = next(batches, None)


def write_csv(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """``batches`` as a CSV file with a header at ``path``, text by `CSV_TEXT_RULE`."""
    batch = next(batches)
    plain = pa.schema([(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in batch.schema])
    with whole_file(path) as partial, pacsv.CSVWriter(partial, plain) as writer:
        while batch is not None:
            for begin in range(0, batch.num_rows, _CSV_ROWS_AT_ONCE):
                part = batch.slice(begin, _CSV_ROWS_AT_ONCE)
                writer.write_table(as_plain_table(pa.Table.from_batches([part])))
            del batch, part  # Before the next one is made.
            give_back()
            batch = next(batches, None)


def write_json(path: Path, value: Any) -> None:
    """``value`` as indented JSON at ``path``, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """``text`` in UTF-8 at ``path``, with the same line ends on every system, whole or not at all."""
    with whole_file(path) as partial:
        partial.write_bytes(text.encode())
