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

from topdown.files import whole_file
from topdown.geography import Geography

_ROWS_PER_GROUP = 1 << 20


def tidy_batches(
    geography: Geography,
    cells: Sequence[str],
    columns: Mapping[str, Any],
    *,
    rows: npt.NDArray[np.bool_] | None = None,
    names: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, [name,] cell, *columns`` for every node and cell, node by node, in batches.

    ``columns``: for each a (nodes x cells) array, what gives it for an array of nodes, or a string that stands in every
    row. NaN becomes null. ``rows`` (nodes,) leaves nodes out. ``names``: whether to give the units' names, null where
    unknown.
    """
    n_cells = len(cells)
    chosen = np.arange(geography.n_nodes) if rows is None else np.flatnonzero(rows)
    step = max(1, _ROWS_PER_GROUP // n_cells)
    titles = pa.array(geography.levels)
    for begin in range(0, len(chosen), step):
        nodes = chosen[begin : begin + step]
        repeated = np.repeat(nodes, n_cells)
        level = (np.searchsorted(geography.level_offsets, repeated, side="right") - 1).astype(np.int8)
        arrays = {
            "geoid": _pick(geography.identifiers, repeated),
            "level": pa.DictionaryArray.from_arrays(pa.array(level), titles),
        }
        if names:
            known = geography.names
            arrays["name"] = _pick(known, repeated) if known is not None else pa.nulls(len(repeated), pa.string())
        for name, values in columns.items():
            if name == "cell":
                continue
            if isinstance(values, str):
                same = pa.array(np.zeros(len(repeated), np.int8))
                arrays[name] = pa.DictionaryArray.from_arrays(same, pa.array([values]))
            else:
                chosen_values = values(nodes) if callable(values) else values[nodes]
                arrays[name] = pa.array(np.ascontiguousarray(chosen_values).reshape(-1), from_pandas=True)
        index = np.tile(np.arange(n_cells, dtype=np.int32), len(nodes))
        cell = pa.DictionaryArray.from_arrays(pa.array(index), pa.array(list(cells)))
        first = [name for name in ("geoid", "level", "name", "query") if name in arrays]
        rest = [name for name in arrays if name not in first]
        yield pa.RecordBatch.from_arrays(
            [*(arrays[n] for n in first), cell, *(arrays[n] for n in rest)], [*first, "cell", *rest]
        )


def to_frame(batches: Iterator[pa.RecordBatch]) -> pd.DataFrame:
    """``batches`` as one DataFrame."""
    frame: pd.DataFrame = pa.Table.from_batches(batches).to_pandas()
    return frame


def _pick(values: pa.Array, nodes: npt.NDArray[np.int64]) -> pa.Array:
    """``values`` at ``nodes``; a slice, without a copy, where these are consecutive."""
    if len(nodes) and nodes[-1] - nodes[0] + 1 == len(nodes):
        return values.slice(int(nodes[0]), len(nodes))
    return values.take(pa.array(nodes))


def write_parquet(
    path: Path, batches: Iterator[pa.RecordBatch], metadata: Mapping[str, str], *, private: bool = False
) -> None:
    """``batches`` as a Parquet file at ``path`` with ``metadata`` in its schema, a row group a batch.

    ``private``: readable by its owner alone, as in `whole_file`.
    """
    first = next(batches)
    schema = first.schema.with_metadata(dict(metadata))
    with whole_file(path, private=private) as partial, pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        for batch in _chain(first, batches):
            writer.write_batch(batch.replace_schema_metadata(dict(metadata)))


def write_csv(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """``batches`` as a CSV file with a header at ``path``."""
    first = next(batches)
    plain = pa.schema([(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in first.schema])
    with whole_file(path) as partial, pacsv.CSVWriter(partial, plain) as writer:
        for batch in _chain(first, batches):
            writer.write_table(pa.Table.from_batches([batch]).cast(plain))


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def write_json(path: Path, value: Any) -> None:
    """``value`` as indented JSON at ``path``, whole or not at all."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
