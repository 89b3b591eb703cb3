"""A table in Parquet files: one, or a folder of them, read one after the other in the order of their names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.machine.files import file_digest
from topdown.tables.format import Extent, FileKind, Format
from topdown.tables.parquet import parquet_batches, parquet_columns
from topdown.wording import shown, shown_path

_HIDDEN = (".", "_")
"""First characters of the names of files that programs leave beside the parts (_SUCCESS, ._part.crc)."""


_MOST_ENTRIES = 100_000
"""The most files and folders of a table; a folder with more is probably a whole disk, and takes minutes to search."""


def parts_of(path: Path) -> list[Path]:
    """The Parquet files of the table at ``path``: the file itself, or all files in the folder and its subfolders, by
    name. Raises `OSError` for a folder that cannot be read, and `DataError` for one with too many files.
    """
    if not path.is_dir():
        return [path]
    seen: list[Path] = []
    entries = 0
    for folder, folders, files in os.walk(path, onerror=_fail):
        entries += len(folders) + len(files)
        if entries > _MOST_ENTRIES:
            raise DataError(f"{shown_path(path)}: has over {_MOST_ENTRIES:,} files; give the folder of one table")
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        seen += [Path(folder, name) for name in files if _is_part(name)]
    return sorted((part for part in seen if part.is_file()), key=lambda part: part.relative_to(path).as_posix())


def _is_part(name: str) -> bool:
    return name.lower().endswith(".parquet") and not name.startswith(_HIDDEN)


def _fail(error: OSError) -> NoReturn:
    raise error


def table_digest(path: Path) -> str:
    """SHA-256 of a file's content; of a folder that of its parts' names and digests. Raises `OSError`."""
    if not path.is_dir():
        return file_digest(path)
    told = "".join(f"{part.relative_to(path).as_posix()}\0{file_digest(part)}\n" for part in parts_of(path))
    return hashlib.sha256(os.fsencode(told)).hexdigest()  # names may be no text


def folder_columns(path: Path, _: Format) -> list[str]:
    """The columns of all files. Raises `DataError` naming one that has others than the first."""
    first, *rest = parts_of(path)
    known = parquet_columns(first)
    for part in rest:
        other = parquet_columns(part)
        if set(other) != set(known):
            wrong = next(name for name in [*known, *other] if (name in known) != (name in other))
            having, lacking = (first, part) if wrong in known else (part, first)
            raise DataError(
                f"{shown_path(path)}: {shown(having.name)} has a column {shown(wrong)}, and {shown(lacking.name)} has "
                "none; give the files of one table"
            )
    return known


def folder_batches(path: Path, _: Sequence[str], names: Sequence[str], __: Format) -> Iterator[pa.RecordBatch]:
    """The batches of all files, as `parquet_batches` gives those of each; the first has no rows.

    Raises `DataError` naming a file whose columns are of another kind than the first's.
    """
    schema: pa.Schema | None = None
    for part in parts_of(path):
        batches = parquet_batches(part, names)
        empty = next(batches)
        if schema is None:
            schema = empty.schema
            yield empty
        wrong = next((f.name for f, own in zip(schema, empty.schema, strict=True) if f.type != own.type), None)
        if wrong is not None:
            raise DataError(
                f"{shown_path(path)}: column {shown(wrong)} of {shown(part.name)} has another type than in the first "
                "file; write all files with the same types"
            )
        yield from batches


def _extent(path: Path, columns: Sequence[str], _: Format) -> Extent:
    parts = parts_of(path)
    schema = pq.read_schema(parts[0])
    rows = sum(pq.read_metadata(part).num_rows for part in parts)
    return Extent(rows, sum(_width(schema.field(name).type) for name in columns))


def _width(kind: pa.DataType) -> float:
    """Bytes of a value in a column of counts."""
    try:
        return float(kind.bit_width) / 8
    except ValueError:
        return 16.0  # a text of a number


def _row_named(path: Path, row: int, _: Format) -> str:
    """The number of a row, from 1, in its file, which is named where there are several."""
    if not path.is_dir():
        return f"row {row + 1:,} (counted from 1)"
    part = path
    for part in parts_of(path):
        rows = pq.read_metadata(part).num_rows
        if row < rows:
            break
        row -= rows
    return f"row {row + 1:,} (counted from 1) of {shown_path(part.relative_to(path))}"


PARQUET = FileKind((".parquet",), (), folder_columns, folder_batches, _extent, _row_named)
