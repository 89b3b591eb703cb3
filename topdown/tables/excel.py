"""Workbooks (.xlsx): the cells of one sheet, text as text and numbers as numbers.

A code that Excel keeps as text has its leading zeros; one that it keeps as a number has lost them, and is refused where
codes are expected, as a column of numbers is.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from topdown.errors import DataError
from topdown.machine.memory import gibibytes, most_at_once, too_large
from topdown.tables.format import Format
from topdown.wording import listed, shown, shown_path

_PER_BYTE = 3
"""Bytes in this process for one of the unpacked workbook: a number of some letters is an object."""

UNREADABLE = (zipfile.BadZipFile, KeyError, ValueError, TypeError, SyntaxError)
"""What a damaged workbook raises beside `OSError`."""


def excel_header(path: Path, form: Format) -> list[str]:
    """The names in the sheet's first row, as far as there are any. Raises `DataError`."""
    with _sheet(path, form) as sheet:
        return _header(path, sheet)


def excel_rows(path: Path, form: Format) -> int:
    """How many rows the sheet says that it has; 0 where it does not say."""
    with _sheet(path, form) as sheet:
        return int(sheet.max_row or 0)


def excel_batches(path: Path, names: Sequence[str], form: Format) -> Iterator[pa.RecordBatch]:
    """The columns called ``names`` of the sheet, to its last row that is not empty; the first batch has no rows."""
    with _sheet(path, form) as sheet:
        places = [_header(path, sheet).index(name) for name in names]
        columns: list[list[Any]] = [[] for _ in names]
        empty = 0
        for row in sheet.iter_rows(min_row=2, values_only=True):
            if all(value is None or value == "" for value in row):
                empty += 1
                continue
            for column, place in zip(columns, places, strict=True):
                column.extend([None] * empty)
                column.append(row[place] if place < len(row) else None)
            empty = 0
    table = pa.table([_array(column) for column in columns], list(names))
    yield pa.RecordBatch.from_pylist([], table.schema)
    yield from table.to_batches()


def _array(values: list[Any]) -> pa.Array:
    """Numbers where all are numbers, else text, in which a whole number is written without a point."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} or kinds <= {int, float}:
        try:
            return pa.array(values, pa.int64() if kinds <= {int} else pa.float64())
        except (OverflowError, pa.ArrowException):
            pass
    return pa.array([None if value is None or value == "" else _text(value) for value in values], pa.string())


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _header(path: Path, sheet: Any) -> list[str]:
    row = next(sheet.iter_rows(min_row=1, max_row=1, values_only=True), ())
    names = ["" if value is None else str(value) for value in row]
    while names and not names[-1]:
        names.pop()
    if not names:
        raise DataError(f"{shown_path(path)}: the first row of the sheet is empty; it needs a row of columns' names")
    return names


@contextmanager
def _sheet(path: Path, form: Format) -> Iterator[Any]:
    """The sheet that ``form`` names, or the only one."""
    from openpyxl import load_workbook

    with zipfile.ZipFile(path) as packed:
        size = sum(entry.file_size for entry in packed.infolist())
    most = most_at_once()
    if most is not None and _PER_BYTE * size > most:
        raise too_large(path, f"about {gibibytes(_PER_BYTE * size)} when it is unpacked", most)
    book = load_workbook(path, read_only=True, data_only=True)
    try:
        names = [sheet.title for sheet in book.worksheets]
        if form.sheet is None and len(names) != 1:
            raise DataError(f"{shown_path(path)}: has {len(names)} sheets; say which in input.sheet: {listed(names)}")
        if form.sheet is not None and form.sheet not in names:
            raise DataError(f"{shown_path(path)}: no sheet {shown(form.sheet)}; it has {listed(names)}")
        yield book[names[0] if form.sheet is None else form.sheet]
    finally:
        book.close()
