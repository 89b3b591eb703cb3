"""How a table's file is written, as far as it shows: encoding, delimiter, the row of names, marks in numbers."""

from __future__ import annotations

import codecs
import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import DataError
from topdown.guess.column_evidence import MISSING
from topdown.tables.format import PLAIN, Format
from topdown.tables.readers import kind_of, table_columns
from topdown.wording import shown_path

_LOOKED_AT = 1 << 18
_LINES = 60
_MOST_TITLES = 20
_BYTES_AT_ONCE = 1 << 22
_ANY_MARKS = "^[-+]?[0-9][0-9.,'\u2019 \u00a0\u202f\u2009]*$"
_SPACES = "[ \u00a0\u202f\u2009]"


def completed(path: Path, form: Format) -> Format:
    """``form`` with what the file at ``path`` shows where it says nothing: encoding, delimiter and row of names."""
    settings = kind_of(path).settings
    if "encoding" in settings and form.codec == PLAIN.codec:
        form = replace(form, encoding=_encoding(path))
    if "delimiter" in settings:
        return _lines_of(path, form)
    if "header" in settings and form.header == 1:
        return replace(form, header=_row_of_names(path, form))
    return form


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of the file at ``path``, unpacked where its name says that it is packed. Raises `DataError` where it
    cannot be."""
    is_packed = path.suffix.lower() == ".gz"
    try:
        file: Any
        with gzip.open(path) if is_packed else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DataError(
            f"{shown_path(path)}: is damaged, or no gzip file: it cannot be unpacked; give the whole file, or one that "
            "is not compressed"
        ) from None


def _encoding(path: Path) -> str:
    """UTF-8 where it is, UTF-16 by its first bytes, and else what spreadsheet programs write in western countries."""
    with _opened(path) as file:
        head = file.read(_BYTES_AT_ONCE)
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while head:
                decoder.decode(head)
                head = file.read(_BYTES_AT_ONCE)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "windows-1252"
    return "utf-8"


def _lines_of(path: Path, form: Format) -> Format:
    """The delimiter with which most of the first lines have one width, and the first line of that width whose columns
    nearly all have a name."""
    with _opened(path) as file:
        head = file.read(_LOOKED_AT)
    lines = codecs.getincrementaldecoder(form.codec)(errors="replace").decode(head).splitlines(keepends=True)
    if len(head) == _LOOKED_AT:
        lines = lines[:-1]
    if not lines:
        return form
    usual = "," if ".csv" in path.name.lower() else "\t" if ".tsv" in path.name.lower() else "|"
    signs = [form.delimiter] if form.delimiter else [usual, *(sign for sign in ",;\t|" if sign != usual)]
    best: tuple[float, str, int] = (-1.0, signs[0], form.header)
    for sign in signs:
        found = _width(lines[form.header - 1 :], sign)
        if found is not None and found[0] > best[0] + 1e-9:
            best = (found[0], sign, form.header + found[1])
    _, sign, header = best
    given = sign if form.delimiter or sign != usual else None
    return replace(form, delimiter=given, header=header if form.header == 1 else form.header)


def _width(lines: Sequence[str], sign: str) -> tuple[float, int] | None:
    """How well ``sign`` divides ``lines``, and on which of them the names stand (from 0)."""
    rows: list[tuple[int, list[str]]] = []
    reader = csv.reader(lines, delimiter=sign)
    before = 0
    try:
        for row in reader:
            if row:
                rows.append((before, row))
            before = reader.line_num
            if len(rows) >= _LINES:
                break
    except csv.Error:
        return None
    widths = Counter(len(row) for _, row in rows)
    width, times = max(widths.items(), key=lambda one: (one[1] * (one[0] > 1), one[0]), default=(0, 0))
    if width < 2:
        return 0.0, 0
    for place, row in rows[: _MOST_TITLES + 1]:
        if len(row) == width and sum(bool(cell.strip()) for cell in row) > 0.7 * width:
            return times / len(rows) + width / 1000, place
    return times / len(rows), 0


def _row_of_names(path: Path, form: Format) -> int:
    """The first row of a sheet that is as wide as the widest of the first ones."""
    widths: dict[int, int] = {}
    for row in range(1, _MOST_TITLES + 1):
        try:
            widths[row] = sum(bool(name.strip()) for name in table_columns(path, replace(form, header=row)))
        except DataError:
            if row == 1 and not widths:
                continue
    return min((row for row, width in widths.items() if width == max(widths.values())), default=1)


def marks_of(columns: Sequence[pa.Array]) -> tuple[str | None, str | None, list[int]]:
    """The decimal mark and the mark between thousands that numbers in ``columns`` of text have, None where they have
    none; and the places of the columns in which nobody can tell one from the other."""
    decimals: Counter[str] = Counter()
    groups: Counter[str] = Counter()
    unclear: list[int] = []
    unmarked = False
    for place, text in enumerate(columns):
        values = pc.unique(text.drop_null())
        values = values.filter(pc.invert(pc.is_in(values, value_set=MISSING)))
        if not len(values):
            continue
        like = pc.match_substring_regex(values, _ANY_MARKS)
        if pc.mean(like.cast(pa.float64())).as_py() < 0.9:
            continue
        values = values.filter(like)

        def share(pattern: str, values: pa.Array = values) -> float:
            return float(pc.mean(pc.match_substring_regex(values, pattern).cast(pa.float64())).as_py())

        # A decimal mark: before a tail that is no group of three, or after a 0 or four digits.
        for sign in (".", ","):
            mark = "\\" + sign
            if share(rf"^[-+]?[0-9., ]*{mark}([0-9]{{1,2}}|[0-9]{{4,}})$|^[-+]?(0|[0-9]{{4,}}){mark}[0-9]+$"):
                decimals[sign] += 1
        lengths = set(pc.utf8_length(values.filter(pc.match_substring_regex(values, "^[0-9]+$"))).to_pylist())
        unmarked |= share("^[0-9]+$") == 1 and max(lengths) > 3 and len(lengths) > 2  # counts, and no codes
        for sign, mark in ((".", r"\."), (",", ","), (" ", _SPACES), ("'", "['\u2019]")):
            several = share(rf"^[-+]?[0-9]{{1,3}}({mark}[0-9]{{3}}){{2,}}([.,][0-9]+)?$")
            one = share(rf"^[-+]?[1-9][0-9]{{0,2}}{mark}[0-9]{{3}}([.,][0-9]+)?$")
            if several or (one and sign in " '"):
                groups[sign] += 1
            elif one and sign in ".,":
                if sign == ",":
                    groups[sign] += 1
                else:
                    unclear.append(place)
    if unclear and not decimals and groups[","] and not groups["."]:
        return ",", ".", unclear  # both marks stand before three digits: as in most countries with a decimal comma
    decimal = max(decimals, key=decimals.__getitem__, default=None)
    thousands = max((sign for sign in groups if sign != decimal), key=groups.__getitem__, default=None)
    if unclear and decimal is None and unmarked:
        decimal = "."  # thousands stand together elsewhere
    doubtful = unclear if decimal != "." and thousands != "." else []
    if doubtful and decimal == ",":
        return decimal, ".", []
    if doubtful:
        return decimal, thousands or ".", doubtful
    if decimal == "." and thousands in (None, ","):
        return None, None if thousands is None else ",", []
    return decimal, thousands, []
