"""Tables in and out: Parquet and CSV through Arrow, tidy rows by node and cell, files that appear whole."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.files import whole_file
from topdown.geography import Geography

_ROWS_PER_GROUP = 1 << 20
_LONGEST_HEADER = 1 << 20


def read_table(path: str | Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The table at ``path``: Parquet, or CSV (also .csv.gz), of which every column is read as strings.

    A CSV column is never guessed to be numbers, so a GEOID keeps its leading zeros. ``columns``: what to read, by
    default everything. Raises `DataError` that names the file, and the known columns where one is missing.
    """
    path = require_file(path)
    try:
        return _read(path, columns)
    except (pa.ArrowException, OSError, UnicodeDecodeError, EOFError, zlib.error, csv.Error) as error:
        said = str(error)
    # Out of reach of that error, which may hold the data: nothing that prints this one can find it.
    raise DataError(f"{path}: cannot be read as {path.suffix.lstrip('.')}: {said}")


def _read(path: Path, columns: Sequence[str] | None) -> pa.Table:
    if path.suffix == ".parquet":
        known = pq.read_schema(path).names
        _require(columns, known, path)
        table = pq.read_table(path, columns=list(columns) if columns is not None else None)
        # Parquet does not check that strings are UTF-8, nor that the file is what was written.
        table.validate(full=True)
        return table
    if path.name.endswith((".csv", ".csv.gz")):
        return _read_csv(path, columns)
    raise DataError(f"{path}: unknown kind of file; give .parquet, .csv or .csv.gz")


def require_file(path: str | Path) -> Path:
    """``path``, after making sure that a file is there. Raises `DataError`."""
    path = Path(path)
    try:
        found = path.is_file()
    except OSError as error:
        raise DataError(f"{str(path)[:200]}: cannot be read: {error.strerror}; correct the path") from None
    if not found:
        what = f"{str(path)[:200]!r}: no such file" if "\0" in str(path) else f"{path}: no such file"
        raise DataError(what + (" (it is a directory)" if path.is_dir() else "") + "; correct the path")
    return path


def _require(columns: Sequence[str] | None, known: Sequence[str], path: Path) -> None:
    repeated = [name for name in known if list(known).count(name) > 1]
    if repeated:
        raise DataError(f"{path}: two columns are called {repeated[0]!r}; rename one of them")
    for name in columns or ():
        if name not in known:
            raise DataError(f"{path}: no column {name!r}; it has {', '.join(map(repr, known))}")


def _read_csv(path: Path, columns: Sequence[str] | None) -> pa.Table:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if not data.strip():
        raise DataError(f"{path}: the file is empty; it needs a header line and rows")
    header = _csv_header(data)
    _require(columns, header, path)
    try:
        table = _parsed_csv(data, header, columns)
    except pa.ArrowInvalid as error:
        if "columns, got" not in str(error):
            raise
        torn = True
    else:
        torn = False
    if torn:
        raise DataError(f"{path}: {_torn_row(data, header)}; put values with commas or line breaks into quotes")
    if table.column_names != (list(columns) if columns is not None else header):
        raise DataError(f"{path}: the header cannot be read; give it one line with every column's name")
    return table


def _csv_header(data: bytes) -> list[str]:
    """The names in the first line that is not empty; a name in quotes may itself have several."""
    text = codecs.getincrementaldecoder("utf-8-sig")().decode(data[:_LONGEST_HEADER])
    return next((row for row in csv.reader(io.StringIO(text, newline="")) if row), [])


def _torn_row(data: bytes, header: Sequence[str]) -> str:
    """Which row has too many or too few columns. Arrow's own message shows the row, and with it confidential counts."""
    try:
        # One thread knows how many rows came before.
        _parsed_csv(data, header, None, use_threads=False)
    except pa.ArrowInvalid as error:
        found = re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", str(error))
        if found is not None:
            number, wanted, given = found.groups()
            return f"row {number or '?'} has {given} columns, and the header (row 1) {wanted}"
    return "a row has more or fewer columns than the header"


def _parsed_csv(
    data: bytes, header: Sequence[str], columns: Sequence[str] | None, *, use_threads: bool = True
) -> pa.Table:
    return pacsv.read_csv(
        io.BytesIO(data),
        read_options=pacsv.ReadOptions(use_threads=use_threads),
        parse_options=pacsv.ParseOptions(newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            column_types={name: pa.string() for name in header},
            include_columns=list(columns) if columns is not None else None,
            null_values=["", "NA", "N/A", "NaN", "nan", "null", "NULL"],
            strings_can_be_null=True,
        ),
    )


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
    row. NaN becomes null. ``rows`` (nodes,) leaves nodes out. ``names``: whether to give the units' names, null where unknown.
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
