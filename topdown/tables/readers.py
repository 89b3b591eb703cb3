"""Reads tables (Parquet, text, workbooks and others) batch by batch, so that no file takes more memory than there is.

The size of a file says little about the memory: repeated values and compressed text may be a thousand times larger. So
the memory of every batch is counted as it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from topdown.errors import ConfigError, DataError
from topdown.machine.memory import most_at_once, too_large
from topdown.tables.excel import WORKBOOK
from topdown.tables.format import PLAIN, Extent, FileKind, Format
from topdown.tables.geopackage import GEOPACKAGE
from topdown.tables.labelled import LABELLED
from topdown.tables.parquet_folder import PARQUET, parts_of
from topdown.tables.text import TEXT, separator_meant
from topdown.wording import NOT_UTF8, column_name, column_names, reason, shown, shown_path, unquoted

FILE_KINDS = (PARQUET, TEXT, WORKBOOK, GEOPACKAGE, LABELLED)
"""Every kind of file that tables are read from; endings of names are looked up only here."""

ENDINGS = tuple(ending for kind in FILE_KINDS for ending in kind.endings)
"""The endings of the names of files that can be read, in any case."""

UNREADABLE = (pa.ArrowException, OSError, *(error for kind in FILE_KINDS for error in kind.unreadable))
"""The errors of libraries for a file that is damaged or of another kind."""


def read_table(path: str | Path, columns: Sequence[str] | None = None, *, form: Format = PLAIN) -> pa.Table:
    """The table at ``path``: Parquet (a file, or a folder of files), a workbook (.xlsx), a GeoPackage, a file of Stata
    or SPSS, or CSV (also .tsv, and either as .gz), of which every column is read as strings.

    A CSV column is never guessed to be numbers, so a GEOID keeps its leading zeros. ``columns``: what to read, by
    default everything; no other column is decoded. ``form``: what the file itself does not state. Raises `DataError`
    that names the file, and the known columns where one is missing.
    """
    path = require_file(path)
    found = table_batches(path, columns, form=form)
    first = next(found)
    return pa.Table.from_batches(found, first.schema)


def table_batches(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    form: Format = PLAIN,
    kept: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The batches of `read_table`'s table, the first of them an empty one that has its columns.

    ``kept``: whether the caller keeps all batches; otherwise the table may be larger than the memory.
    """
    try:
        batches = _batches(path, columns, form)
        yield from _watched(batches, path) if kept else batches
        return
    except DataError:
        raise
    except UNREADABLE as error:
        said = _said(error, path, form)
    # Outside of the handler of that error, which may hold data, so that this error has no reference to it.
    raise _unreadable(path, said)


def _said(error: Exception, path: Path, form: Format) -> str:
    said = reason(error)
    if said == NOT_UTF8 and "encoding" in kind_of(path).settings:
        if form.codec != PLAIN.codec:
            return f"it is not text in {unquoted(form.encoding)}; correct input.encoding"
        if not form.has_settings:
            return said
        return f'{said}, or say what it is, such as input.encoding = "windows-1252" (as Excel writes in many countries)'
    return said


def _unreadable(path: Path, said: str) -> DataError:
    return DataError(f"{shown_path(path)}: cannot be read as {unquoted(path.suffix.lstrip('.'))}: {said}")


def table_columns(path: str | Path, form: Format = PLAIN) -> list[str]:
    """The names of the columns of the table at ``path``. Raises `DataError` as `read_table` does."""
    path = require_file(path)
    try:
        return _columns(path, form)
    except DataError:
        raise
    except UNREADABLE as error:
        said = _said(error, path, form)
    raise _unreadable(path, said)


def separated(path: str | Path) -> Format:
    """A `Format` with the separator that gives the first line of the text at ``path`` the most columns; `PLAIN` for a
    file that is no text. Raises `DataError` as `table_columns` does.
    """
    path = require_file(path)
    forms = [Format(delimiter=sign, has_settings=False) for sign in kind_of(path).separators]
    return max(forms, key=lambda form: len(table_columns(path, form)), default=PLAIN)


def require_columns(path: str | Path, columns: Sequence[str], form: Format = PLAIN) -> None:
    """Refuse the table at ``path`` where it lacks one of ``columns``. Raises `DataError` as `read_table` does."""
    _require(columns, table_columns(path, form), Path(path), form)


def row_named(path: Path, row: int, form: Format = PLAIN) -> str:
    """The name of row number ``row`` (from 0) for a reader of the file: its line, or its row in the sheet."""
    return kind_of(path).row_named(path, row, form)


def extent_of(path: Path, columns: Sequence[str], form: Format) -> Extent:
    """The approximate size of some columns of the table at ``path``, without reading it. Raises `UNREADABLE` errors,
    and `DataError` for an unknown kind of file.
    """
    return kind_of(path).extent(path, columns, form)


def _columns(path: Path, form: Format) -> list[str]:
    kind = kind_of(path)
    idle = form.idle_setting(kind.settings)
    if idle:
        ending = next(one for one in kind.endings if path.is_dir() or path.name.lower().endswith(one))
        raise DataError(f"{shown_path(path)}: input.{idle} does not apply to a {ending} file; leave it out")
    return kind.header(path, form)


def kind_of(path: Path) -> FileKind:
    """The kind of the file at ``path``, by the ending of its name; a folder holds Parquet files. Raises `DataError` for
    an unknown ending.
    """
    if path.is_dir():
        return PARQUET
    for kind in FILE_KINDS:
        if path.name.lower().endswith(kind.endings):
            return kind
    what = "an old Excel's; save it as .xlsx, or" if path.suffix.lower() == ".xls" else f"give {', '.join(ENDINGS)}, or"
    raise DataError(f"{shown_path(path)}: unknown kind of file: {what} save it as CSV (UTF-8)")


def changed(path: Path) -> DataError:
    """The error for a table that changes while it is read."""
    return DataError(f"{shown_path(path)}: it changed while it was read; run again when it is complete")


def require_file(path: str | Path) -> Path:
    """``path``, after making sure that it is a file or a folder of Parquet files. Raises `DataError`."""
    path = Path(path)
    try:
        found = path.is_file() or (path.is_dir() and bool(parts_of(path)))
    except OSError as error:
        raise DataError(f"{shown_path(path)}: cannot be read: {reason(error)}; correct the path") from None
    if not found and not require_regular(path).is_file():
        folder = " (it is a directory without Parquet files)" if path.is_dir() else ""
        raise DataError(f"{shown_path(path)}: no such file{folder}; correct the path{_of_backslashes(path)}")
    return require_encodable(path) if path.is_dir() or path.name.lower().endswith(PARQUET.endings) else path


def require_regular(path: Path) -> Path:
    """``path``, after making sure that it is a file or a folder, if it exists. Raises `DataError`. A pipe can be read
    only once, and reading it, or a device, may never end.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(f"{shown_path(path)}: is a pipe or a device; give a file")
    return path


def _of_backslashes(path: Path) -> str:
    r"""A hint for a path that may have been written with \, which begins an escape in TOML."""
    text = str(path)
    if "\\" not in text and not any(sign in text for sign in "\t\n\r\b\f\x1b"):
        return ""
    return r" (a backslash begins an escape in TOML: write C:/data/table.csv, or 'C:\data\table.csv' in single quotes)"


def require_encodable(path: Path) -> Path:
    """``path``, after making sure that every library can open it. Raises `ConfigError` for a name that is no UTF-8.

    This is checked before anything is drawn, since Arrow cannot open such a file.
    """
    try:
        is_name = "\0" not in str(path) and bool(str(path).encode())
    except UnicodeError:
        is_name = False
    if not is_name:
        raise ConfigError(f"{shown_path(path)}: the name is not UTF-8; rename the folder, or give another")
    return path


def _batches(path: Path, columns: Sequence[str] | None, form: Format) -> Iterator[pa.RecordBatch]:
    known = _columns(path, form)
    _require(columns, known, path, form)
    return kind_of(path).batches(path, known, known if columns is None else list(columns), form)


def _watched(batches: Iterator[pa.RecordBatch], path: Path) -> Iterator[pa.RecordBatch]:
    """``batches``, as long as all of them together fit into half of the free memory."""
    most, held = most_at_once(), 0
    for batch in batches:
        held += batch.nbytes
        if most is not None and held > most:
            raise too_large(path, "when it is read", most)
        yield batch


def _require(columns: Sequence[str] | None, known: Sequence[str], path: Path, form: Format) -> None:
    repeated = [name for name, times in Counter(known).items() if times > 1]
    if repeated:
        called = f"are called {column_name(repeated[0])}; rename one of them"
        raise DataError(f"{shown_path(path)}: two columns {called if repeated[0] else 'have no name; name them'}")
    there = set(known)
    for name in columns or ():
        if name not in there:
            meant = separator_meant(known, path, form) if kind_of(path).separators else ""
            raise DataError(f"{shown_path(path)}: no column {shown(name)}; it has {column_names(known)}{meant}")
