"""Detects the form of a table's file: encoding, delimiter, the row of names, marks in numbers."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
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
_NUMBER = re.compile("[-+<>]?[0-9][0-9.,'\u2019 \u00a0\u202f\u2009]*%?")
_YEAR = re.compile(r"\s*(1[89]|20)[0-9]{2}\s*")
_NOTE = re.compile(
    r"[^\w\s\"'\u201c]|[0-9a-z]\)|(source|note|quelle|fuente|fonte|nota|notes|stand|hinweis|zdroj|kilde|bron|lahde|lähde|"
    r"kaynak|copyright|last updated|updated|data|based on|see|figures|legend)\b.{0,3}[ :.]",
    re.IGNORECASE,
)
_WITHHELD = frozenset(MISSING.to_pylist()) - {""}
_MOSTLY, _LEAST_ROWS = 0.6, 4
_SPACES = "[ \u00a0\u202f\u2009]"


def completed(path: Path, form: Format) -> Format:
    """``form``, completed from the file at ``path``: encoding, delimiter and row of names."""
    settings = kind_of(path).settings
    if "encoding" in settings and form.codec == PLAIN.codec:
        form = replace(form, encoding=_encoding(path))
    if "delimiter" in settings:
        form = _lines_of(path, form)
        return form if form.footer else replace(form, footer=notes_below(_last_rows(path, form)))
    if "header" in settings and form.header == 1:
        return replace(form, header=_row_of_names(path, form))
    return form


def without_notes(path: Path, table: pa.Table, form: Format) -> tuple[pa.Table, Format]:
    """``table`` without the notes below it, where the file at ``path`` is of a kind that may have some, and ``form``
    with how many there are."""
    if form.footer or "footer" not in kind_of(path).settings:
        return table, form
    tail = table.slice(max(0, table.num_rows - _LINES)).to_pylist()
    rows = [["" if value is None else str(value) for value in row.values()] for row in tail]
    filled = [place for place, row in enumerate(rows) if any(row)]
    found = notes_below([rows[place] for place in filled])
    if not found:
        return table, form
    last = filled[-found - 1]  # with what is empty between it and the notes
    return table.slice(0, table.num_rows - len(rows) + last + 1), replace(form, footer=found)


def notes_below(rows: Sequence[Sequence[str]]) -> int:
    """How many of the last ``rows`` of a table, as text, are notes below it: they have no number where other rows have
    one, and have either another width or only a text in their first column that is no name of a unit. Rows of
    delimiters alone, as spreadsheet programs write empty ones, are counted where they are among or above these.
    """
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    full = [row for row in rows if len(row) == width]
    numeric = [k for k in range(width) if sum(_is_number(row[k]) for row in full) > _MOSTLY * len(full)]
    if width < 2 or not numeric or len(full) < _LEAST_ROWS:
        return 0
    longest = max(len(row[0]) for row in full[: -len(full) // 4 or None])
    found = empty = 0
    for row in reversed(rows):
        filled = [cell.strip() for cell in row if cell.strip()]
        if not filled:
            empty += 1
            continue
        torn = len(row) != width and not any(_is_number(cell) and not _YEAR.fullmatch(cell) for cell in filled)
        apart = len(filled) == 1 and bool(row[0].strip()) and (len(filled[0]) > 1.5 * longest or _NOTE.match(filled[0]))
        words = len(row) == width and not any(_is_number(row[k]) for k in numeric) and bool(_NOTE.match(row[0].strip()))
        if not (torn or apart or words):
            break
        found += 1
    return found + empty


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell.strip()) is not None or cell.strip() in _WITHHELD


def _last_rows(path: Path, form: Format) -> list[list[str]]:
    """The last rows of a text file that are not empty, divided as ``form`` says."""
    with _opened(path) as file:
        if path.suffix.lower() == ".gz":
            tail = b""
            while piece := file.read(_BYTES_AT_ONCE):
                tail = (tail + piece)[-_LOOKED_AT:]
        else:
            file.seek(max(0, path.stat().st_size - _LOOKED_AT) // 4 * 4)  # where a character begins in UTF-16
            tail = file.read()
    codec = "utf-16-le" if form.codec == "utf-16" else form.codec
    lines = codecs.getincrementaldecoder(codec)(errors="replace").decode(tail).splitlines(keepends=True)
    usual = "," if ".csv" in path.name.lower() else "\t" if ".tsv" in path.name.lower() else "|"
    try:
        rows = [row for row in csv.reader(lines[1:], delimiter=form.delimiter or usual) if row]
    except csv.Error:
        return []
    return rows[-_LINES:]


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
    """The encoding: UTF-8 where the file is valid UTF-8, UTF-16 by its first bytes, else windows-1252, as spreadsheet
    programs write in western countries.
    """
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
        named = [cell for cell in row if cell.strip()]
        # A column of row numbers often has no name, and neither has an empty one.
        least = 0.7 if any(map(_is_number, named)) else 0.49
        if len(row) == width and len(named) > least * width:
            names = [place for place, row in rows[: _MOST_TITLES + 1]]
            number = names.index(place)
            return times / len(rows) + width / 1000, names[number + 1] if _named_again(rows, number) else place
    return times / len(rows), 0


def _named_again(rows: Sequence[tuple[int, list[str]]], number: int) -> bool:
    """Whether the row after that of names has longer names: all of its columns have distinct texts, also those with
    numbers below.
    """
    width, below = len(rows[number][1]), [row for _, row in rows[number + 2 :]]
    if len(below) < _LEAST_ROWS or len(rows[number + 1][1]) != width:
        return False
    again, full = [cell.strip() for cell in rows[number + 1][1]], [row for row in below if len(row) == width]
    numeric = [k for k in range(width) if sum(_is_number(row[k]) for row in full) > _MOSTLY * len(full)]
    return bool(numeric) and all(again) and len({*again}) == width and not any(map(_is_number, again))


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
