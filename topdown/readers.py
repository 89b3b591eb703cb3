"""Tables in: Parquet and CSV through Arrow, batch by batch, so that a file takes no more memory than there is.

What a file takes on disk says little: repeated values and compressed text shrink by a factor of a thousand and more.
So every batch is weighed as it is read.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv as pacsv

from topdown.errors import ConfigError, DataError
from topdown.memory import available_memory, gibibytes, most_at_once, too_large
from topdown.parquet import parquet_batches, parquet_columns
from topdown.wording import column_name, column_names, reason, shown, shown_path, unquoted

_LONGEST_HEADER = 1 << 20

Watch = Callable[[int, int], None]
"""Told how many rows were read so far and how many bytes they take; raises where that is too much."""


def read_table(path: str | Path, columns: Sequence[str] | None = None, *, watch: Watch | None = None) -> pa.Table:
    """The table at ``path``: Parquet, or CSV (also .csv.gz), of which every column is read as strings.

    A CSV column is never guessed to be numbers, so a GEOID keeps its leading zeros. ``columns``: what to read, by
    default everything; no other column is decoded. ``watch``: asked after every batch whether to go on, beside the
    rule that what was read may take half of the memory that was free. Raises `DataError` that names the file, and the
    known columns where one is missing.
    """
    path = require_file(path)
    found = table_batches(path, columns, watch=watch)
    first = next(found)
    return pa.Table.from_batches(found, first.schema)


def table_batches(
    path: Path, columns: Sequence[str] | None = None, *, watch: Watch | None = None
) -> Iterator[pa.RecordBatch]:
    """The batches of `read_table`'s table, the first of them an empty one that has its columns."""
    try:
        yield from _watched(_batches(path, columns), path, watch)
        return
    except _UNREADABLE as error:
        said = reason(error)
    # Out of reach of that error, which may hold the data: nothing that prints this one can find it.
    raise _unreadable(path, said)


_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError, EOFError, zlib.error, csv.Error)


def _unreadable(path: Path, said: str) -> DataError:
    return DataError(f"{shown_path(path)}: cannot be read as {unquoted(path.suffix.lstrip('.'))}: {said}")


def table_columns(path: str | Path) -> list[str]:
    """The names of the columns of the table at ``path``. Raises `DataError` as `read_table` does."""
    path = require_file(path)
    try:
        return _columns(path)
    except _UNREADABLE as error:
        said = reason(error)
    raise _unreadable(path, said)


def _columns(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return parquet_columns(path)
    if path.name.endswith((".csv", ".csv.gz")):
        return _csv_header(path)
    raise DataError(f"{shown_path(path)}: unknown kind of file; give .parquet, .csv or .csv.gz")


def require_file(path: str | Path) -> Path:
    """``path``, after making sure that a file is there. Raises `DataError`."""
    path = Path(path)
    try:
        found = path.is_file()
    except OSError as error:
        raise DataError(f"{shown_path(path)}: cannot be read: {reason(error)}; correct the path") from None
    if not found:
        folder = " (it is a directory)" if path.is_dir() else ""
        raise DataError(f"{shown_path(path)}: no such file{folder}; correct the path")
    return require_encodable(path) if path.suffix == ".parquet" else path


def require_encodable(path: Path) -> Path:
    """``path``, after making sure that every library can open it. Raises `ConfigError` for a name that is no UTF-8.

    Asked before anything is drawn: Arrow opens no such file.
    """
    try:
        is_name = "\0" not in str(path) and bool(str(path).encode())
    except UnicodeError:
        is_name = False
    if not is_name:
        raise ConfigError(f"{shown_path(path)}: the name is not UTF-8; rename the folder, or give another")
    return path


def _batches(path: Path, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    known = _columns(path)
    _require(columns, known, path)
    names = list(columns) if columns is not None else known
    return parquet_batches(path, names) if path.suffix == ".parquet" else _csv_batches(path, known, names)


def _watched(batches: Iterator[pa.RecordBatch], path: Path, watch: Watch | None) -> Iterator[pa.RecordBatch]:
    most = most_at_once()
    rows = held = 0
    for batch in batches:
        rows, held = rows + batch.num_rows, held + batch.nbytes
        if most is not None and held > most:
            raise too_large(path, f"{gibibytes(held)} when {rows:,} rows are read", most)
        if watch is not None:
            watch(rows, held)
        yield batch


def _require(columns: Sequence[str] | None, known: Sequence[str], path: Path) -> None:
    repeated = [name for name, times in Counter(known).items() if times > 1]
    if repeated:
        raise DataError(f"{shown_path(path)}: two columns are called {column_name(repeated[0])}; rename one of them")
    there = set(known)
    for name in columns or ():
        if name not in there:
            raise DataError(f"{shown_path(path)}: no column {shown(name)}; it has {column_names(known)}")


# -- CSV ------------------------------------------------------------------------------------------------------------


def _csv_batches(path: Path, header: Sequence[str], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([], pa.schema([(name, pa.string()) for name in names]))
    try:
        with _unpacked(path) as stream, _parsed_csv(stream, header, names) as found:
            if found.schema.names != names:
                raise DataError(
                    f"{shown_path(path)}: the header cannot be read; give it one line with every column's name"
                )
            yield from found
        return
    except pa.ArrowInvalid as error:
        if "columns, got" not in str(error):
            raise
    raise DataError(f"{shown_path(path)}: {_torn_row(path, header)}; put values with commas or line breaks into quotes")


class _Unpacked(io.BufferedIOBase):
    """The text in a .gz file, which is no longer than the free memory when this was opened."""

    def __init__(self, path: Path) -> None:
        self._path, self._most, self._read = path, available_memory(), 0
        self._file = gzip.GzipFile(path)

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._file.read(-1 if size is None else size)
        self._read += len(data)
        if self._most is not None and self._read > self._most:
            raise too_large(self._path, f"more than {gibibytes(self._read)} when it is unpacked", self._most)
        return data

    def close(self) -> None:
        self._file.close()
        super().close()


def _unpacked(path: Path) -> IO[bytes] | _Unpacked:
    return _Unpacked(path) if path.suffix == ".gz" else path.open("rb")


def _csv_header(path: Path) -> list[str]:
    """The names in the first line that is not empty; a name in quotes may itself have several."""
    with _unpacked(path) as stream:
        head = stream.read(_LONGEST_HEADER)
    if not head.strip():
        raise DataError(f"{shown_path(path)}: the file is empty; it needs a header line and rows")
    text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    return next((row for row in csv.reader(io.StringIO(text, newline="")) if row), [])


def _torn_row(path: Path, header: Sequence[str]) -> str:
    """Which row has too many or too few columns. Arrow's own message shows the row, and with it confidential counts."""
    try:
        # One thread knows how many rows came before.
        with _unpacked(path) as stream, _parsed_csv(stream, header, header[:1], use_threads=False) as found:
            for _ in found:
                pass
    except pa.ArrowInvalid as error:
        said = re.search(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)", str(error))
        if said is not None:
            number, wanted, given = said.groups()
            return f"row {number or '?'} has {given} columns, and the header (row 1) {wanted}"
    return "a row has more or fewer columns than the header"


def _parsed_csv(
    stream: IO[bytes] | _Unpacked, header: Sequence[str], columns: Sequence[str], *, use_threads: bool = True
) -> pacsv.CSVStreamingReader:
    return pacsv.open_csv(
        stream,
        read_options=pacsv.ReadOptions(use_threads=use_threads),
        parse_options=pacsv.ParseOptions(newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            column_types={name: pa.string() for name in header},
            include_columns=list(columns),
            null_values=["", "NA", "N/A", "NaN", "nan", "null", "NULL"],
            strings_can_be_null=True,
        ),
    )
