"""A release as a workbook (.xlsx): codes are text, and a sheet of its own says what the reader has to know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from topdown.analysis.stated_numbers import StatedNumbers
from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import runs
from topdown.machine.files import whole_file
from topdown.tables.excel import text_cell

FILE = "release.xlsx"

_MOST_ROWS = (1 << 20) - 1
"""The most rows that a sheet can have beneath its header."""

_COLUMNS_OF_A_SHEET = 2000
"""Counts on a sheet, each with five more columns: a sheet can have 16,384."""


def require_workbook(geography: Geography) -> None:
    """Refuse more units than a sheet has rows. Raises `DataError`."""
    if geography.n_nodes > _MOST_ROWS:
        raise DataError(
            f"{geography.n_nodes:,} units do not fit on a sheet of a workbook, which has {_MOST_ROWS:,} rows; choose "
            "another format"
        )


def write_workbook(numbers: StatedNumbers, path: Path, about: Sequence[tuple[str, str]]) -> Path:
    """Write a row per unit, its counts and their margins, and ``about`` the release in two columns, into ``path``.

    Cells with text are marked as text, so that no spreadsheet reads them as a formula or number. Raises `DataError` as
    `require_workbook` does.
    """
    from openpyxl import Workbook

    require_workbook(numbers.geography)
    book = Workbook(write_only=True)
    sheet = book.create_sheet("About")
    for name, text in about:
        sheet.append([text_cell(sheet, name), text_cell(sheet, text)])
    for number, places in enumerate(runs(slice(0, len(numbers.names)), _COLUMNS_OF_A_SHEET), 1):
        sheet = book.create_sheet("Numbers" if number == 1 else f"Numbers {number}")
        sheet.freeze_panes = "E2"
        for row in _rows(numbers, range(places.start, places.stop)):
            sheet.append([text_cell(sheet, one) for one in row])
    with whole_file(path) as partial:
        book.save(partial)
    return path


def _rows(numbers: StatedNumbers, places: Sequence[int]) -> Iterator[list[Any]]:
    """The rows of a sheet with the columns at ``places``, its header first."""
    for number, batch in enumerate(numbers.wide_batches(places)):
        if number == 0:
            yield batch.schema.names
        yield from map(list, zip(*(_values(column) for column in batch.columns), strict=True))


def _values(column: pa.Array) -> list[Any]:
    """The values of a column; what is not finite is missing."""
    found = column.to_pylist()
    return [None if value in (float("inf"), float("-inf")) else value for value in found]
