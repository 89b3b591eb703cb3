"""Workbooks (.xlsx): the cells of one sheet, text as text and numbers as numbers.

A code that Excel keeps as text has its leading zeros; one that it keeps as a number has lost them, and is refused where
codes are expected, as a column of numbers is.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from topdown.errors import DataError
from topdown.machine.memory import most_at_once, too_large
from topdown.tables.format import Extent, FileKind, Format
from topdown.wording import escaped, listed, shown, shown_path

_PER_BYTE = 3
"""Bytes of memory for a byte of the unpacked workbook, since every number becomes an object."""

_MOST_ROWS = 1 << 20
"""Of a sheet, by the format."""

_ROW = re.compile(rb"<(?:\w+:)?row[ />]")

_WIDTH = 16.0
"""Bytes of a value, a short text or a number."""


def excel_header(path: Path, form: Format) -> list[str]:
    """The names in the sheet's first row, as far as there are any. Raises `DataError`."""
    with _sheet(path, form) as sheet:
        return _header(path, _rows(path, sheet), form)


def _extent(path: Path, columns: Sequence[str], form: Format) -> Extent:
    with _sheet(path, form) as sheet, sheet._get_source() as content:
        rows = sum(len(_ROW.findall(piece)) for piece in iter(lambda: content.read(1 << 20), b""))
    return Extent(rows, _WIDTH * len(columns))


def excel_batches(path: Path, _: Sequence[str], names: Sequence[str], form: Format) -> Iterator[pa.RecordBatch]:
    """The columns called ``names`` of the sheet, to its last row that is not empty; the first batch has no rows.

    Raises `DataError` for rows and cells that are not in order, whose place is unclear.
    """
    with _sheet(path, form) as sheet:
        rows = _rows(path, sheet)
        header = _header(path, rows, form)
        places = [header.index(name) for name in names]
        columns: list[list[Any]] = [[] for _ in names]
        before, ends = form.header, [0]  # how many values there are before each row that is not empty
        for number, values in rows:
            if all(value is None or value == "" for value in values.values()):
                continue
            for column, place in zip(columns, places, strict=True):
                column.extend([None] * (number - before - 1))
                column.append(values.get(place))
            ends.append(ends[-1] + number - before)
            before = number
    kept = ends[-1 - min(form.footer, len(ends) - 1)]
    table = pa.table([_array(column[:kept]) for column in columns], list(names))
    yield pa.RecordBatch.from_pylist([], table.schema)
    yield from table.to_batches()


def _rows(path: Path, sheet: Any) -> Iterator[tuple[int, dict[int, Any]]]:
    """The number, from 1, of every row that the sheet holds, and its values by column, from 0.

    The size that the sheet states (``<dimension>``) is not used, since programs do not keep it right. openpyxl's own
    rows end there, and leave out rows and cells whose numbers do not ascend.
    """
    from openpyxl.worksheet._reader import WorkSheetParser

    book, before = sheet.parent, 0
    with sheet._get_source() as content:
        parser = WorkSheetParser(
            content,
            sheet._shared_strings,
            data_only=True,
            epoch=book.epoch,
            date_formats=book._date_formats,
            timedelta_formats=book._timedelta_formats,
        )
        for number, cells in parser.parse():
            values = {cell["column"] - 1: cell["value"] for cell in cells}
            if not before < number <= _MOST_ROWS or len(values) < len(cells) or {c["row"] for c in cells} - {number}:
                raise DataError(
                    f"{shown_path(path)}: after row {before:,} the sheet's rows or cells are not in order; open it "
                    "in a spreadsheet program and save it again"
                )
            before = number
            yield number, values


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


def _header(path: Path, rows: Iterator[tuple[int, dict[int, Any]]], form: Format) -> list[str]:
    """The names in the row that ``form`` says, which is taken from ``rows`` with those above it."""
    number, values = next((row for row in rows if row[0] >= form.header), (0, {}))
    names = ["" if values.get(k) is None else str(values[k]) for k in range(max(values, default=-1) + 1)]
    while names and not names[-1]:
        names.pop()
    if not names or number != form.header:
        which = "the first row" if form.header == 1 else f"row {form.header:,}"
        raise DataError(
            f"{shown_path(path)}: {which} of the sheet is empty; give the row of the columns' names as input.header"
        )
    return names


@contextmanager
def _sheet(path: Path, form: Format) -> Iterator[Any]:
    """The sheet that ``form`` names, or the only one."""
    from openpyxl import load_workbook

    with zipfile.ZipFile(path) as packed:
        size = sum(entry.file_size for entry in packed.infolist())
    most = most_at_once()
    if most is not None and _PER_BYTE * size > most:
        raise too_large(path, "when it is unpacked", most)
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


WORKBOOK = FileKind(
    (".xlsx",),
    ("sheet", "header", "footer"),
    excel_header,
    excel_batches,
    _extent,
    lambda _, row, form: f"row {row + form.header + 1:,} of the sheet",
    unreadable=(zipfile.BadZipFile, KeyError, ValueError, TypeError, SyntaxError),
)


def write_sheets(path: Path, sheets: Mapping[str, pd.DataFrame]) -> None:
    """Write a workbook with a sheet for each of ``sheets``, its header first; what is not a finite number is empty."""
    from openpyxl import Workbook

    book = Workbook(write_only=True)
    for title, frame in sheets.items():
        sheet = book.create_sheet(title)
        sheet.freeze_panes = "A2"
        for row in [list(frame.columns), *frame.itertuples(index=False)]:
            sheet.append([text_cell(sheet, one) for one in row])
    book.save(path)


def text_cell(sheet: Any, value: Any) -> Any:
    """A value as a cell of ``sheet``: a text is marked as text, whatever it begins with; a number that is not finite is
    empty.
    """
    if not isinstance(value, str):
        return None if isinstance(value, float) and not math.isfinite(value) else value
    from openpyxl.cell import WriteOnlyCell

    cell = WriteOnlyCell(sheet, escaped(value))
    cell.data_type = "s"
    cell.number_format = "@"
    return cell
