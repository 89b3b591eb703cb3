"""Text files with columns (CSV and similar), through Arrow, every column as strings."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

import pyarrow as pa
import pyarrow.csv as pacsv

from topdown.errors import DataError
from topdown.machine.memory import available_memory, too_large
from topdown.tables.format import Extent, FileKind, Format
from topdown.wording import shown_path

_LONGEST_HEADER = 1 << 20
_LONGEST_FOOTER = 1 << 16
"""Bytes of the lines below a table, at most."""
_BYTES_AT_ONCE = 1 << 20

_OTHERS = {
    b"PK\x03\x04": "is an Excel workbook (or another zip file); name it .xlsx, or save it as CSV (UTF-8)",
    b"\xd0\xcf\x11\xe0": "is a workbook of an old Excel (.xls); save it as .xlsx or as CSV (UTF-8)",
    b"PAR1": "is a Parquet file; name it .parquet",
}
_GZIP = b"\x1f\x8b"
_SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": "|"}
"""Separators by the ending of the file's name; "|" as in the Census Bureau's text files."""
_END = "\ue001"
"""A private-use character, in every column of a row that is added after the last."""


def text_batches(path: Path, header: Sequence[str], names: Sequence[str], form: Format) -> Iterator[pa.RecordBatch]:
    """The columns called ``names`` of the file whose ``header`` is known, as strings; the first batch has no rows.

    Only empty values are missing: "NA" is the code of Namibia, and columns of counts are checked later.

    Arrow reads an unclosed quote as one value up to the end of the file. This is detected by a row that is added after
    the last one and is then not found. Raises `DataError` naming the line.
    """
    yield pa.RecordBatch.from_pylist([], pa.schema([(name, pa.string()) for name in names]))
    try:
        yield from _rows(path, header, names, form)
        return
    except pa.ArrowInvalid as error:
        is_torn = "columns, got" in str(error)
        if not is_torn and "straddling" not in str(error):
            raise
    wrong = _torn_row(path, header, form) if is_torn else _open_quote(path, form)
    raise DataError(f"{shown_path(path)}: {wrong}")


def _rows(path: Path, header: Sequence[str], names: Sequence[str], form: Format) -> Iterator[pa.RecordBatch]:
    delimiter = _separator(path, form)
    with (
        _plain_bytes(path, form) as stream,
        _parsed(_Ended(stream, header, delimiter, form.footer), header, names, delimiter, form.header - 1) as found,
    ):
        if found.schema.names != list(names):
            raise DataError(f"{shown_path(path)}: the header cannot be read; give it one line with every column's name")
        last = None
        for batch in filter(len, found):
            if last is not None:
                yield last
            last = batch
    if last is None or {value for row in last.slice(len(last) - 1).to_pylist() for value in row.values()} != {_END}:
        raise DataError(f"{shown_path(path)}: {_open_quote(path, form)}")
    if len(last) > 1:
        yield last.slice(0, len(last) - 1)


def text_header(path: Path, form: Format) -> list[str]:
    """The names in the line that ``form`` says, or the first below it that is not empty; a name in quotes may itself
    have several lines.

    Raises `DataError` for a file that is of another kind than its name says, or is not in the encoding that ``form``
    says.
    """
    with _unpacked(path) as stream:
        head = stream.read(_LONGEST_HEADER)
    _require_text(path, head, form)
    if not head.strip():
        raise DataError(f"{shown_path(path)}: the file is empty; it needs a header line and rows")
    text = codecs.getincrementaldecoder(form.codec)().decode(head)
    lines = io.StringIO(text, newline="")
    for _ in range(form.header - 1):
        lines.readline()
    names = next((row for row in csv.reader(lines, delimiter=_separator(path, form)) if row), [])
    if not names and form.header > 1:
        raise DataError(f"{shown_path(path)}: row {form.header:,} and all below it are empty; correct input.header")
    return names


def _require_text(path: Path, head: bytes, form: Format) -> None:
    """Refuse a file that begins like a binary file, or like text in another encoding."""
    what = next((said for begin, said in _OTHERS.items() if head.startswith(begin)), None)
    if what is None and head.startswith(_GZIP):
        what = f"is compressed by gzip; name it {path.name}.gz"
    if what is None and not form.codec.startswith(("utf-16", "utf-32")):
        if _is_wide(head[:400]):
            remedy = 'say input.encoding = "utf-16", or save it as UTF-8' if form.has_settings else "save it as UTF-8"
            what = f'is not UTF-8 text but UTF-16 ("Unicode" in Excel); {remedy}'
        elif 0 < head[:400].count(0) >= len(head[:400]) // 4:
            what = "cannot be read as text: it begins with bytes of 0, as binary or damaged files do; give a text file"
    if what is not None:
        raise DataError(f"{shown_path(path)}: {what}")


def _is_wide(head: bytes) -> bool:
    """Whether the ``head`` of a file is text in UTF-16: it has its mark, or every second byte of many signs is 0."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return True
    high, low = head[0::2].count(0), head[1::2].count(0)
    text = head.decode("utf-16-be" if high > low else "utf-16-le", "replace")
    whole = len(head) % 2 == 0 and all(sign.isprintable() or sign.isspace() for sign in text)
    return whole and 0 < max(high, low) >= len(head) / 4


def _row_named(path: Path, row: int, form: Format) -> str:
    """The line, from 1, on which row number ``row`` (from 0, below the header) begins; its number where none does."""
    for number, (line, _) in enumerate(_records(path, form)):
        if number == row + 1:
            return f"line {line:,}"
    return f"row {row + 1:,} (counted from 1)"


def _extent(path: Path, columns: Sequence[str], form: Format) -> Extent:
    """By the size of the file and of its first lines."""
    size = path.stat().st_size
    if path.suffix.lower() == ".gz":
        with path.open("rb") as packed:
            packed.seek(-4, 2)
            size = max(size, int.from_bytes(packed.read(4), "little"))  # the last thing that gzip writes
    with _unpacked(path) as stream:
        lines = stream.read(1 << 16).splitlines(keepends=True)
    line = max(1.0, sum(map(len, lines)) / max(1, len(lines)))
    return Extent(int(size / line), line + 4 * len(columns))


def separator_meant(header: Sequence[str], path: Path, form: Format) -> str:
    """A hint where the header is a single name with a common separator in it; else empty."""
    found = [sign for sign in ";\t|," if sign != _separator(path, form) and len(header) == 1 and sign in header[0]]
    if not found:
        return ""
    sign = "\\t" if found[0] == "\t" else found[0]
    said = f'; its columns seem to be separated by "{sign}": '
    return said + (f'say input.delimiter = "{sign}"' if form.has_settings else "separate them by commas")


def _torn_row(path: Path, header: Sequence[str], form: Format) -> str:
    """Which line has too many or too few columns. Arrow's own message shows it, and with it confidential counts."""
    remedy = "put values with the delimiter or line breaks in them into quotes"
    said, many, first = "", 0, 0
    for line, width in _records(path, form):
        if width is not None and width != len(header):
            first = first or line
            said = said or f"line {line} has {width} columns, and the header {len(header)}; {remedy}"
            many += 1
        elif said:
            return said
    if said and many == _lines_from(path, form, first):
        # Not how many: they may be the records.
        notes = "say in input.footer how many lines they are" if form.has_settings else "remove these"
        return f"{said}, or where notes stand below the table from there on, {notes}"
    if said:
        return said
    return f"a row has more or fewer columns than the header; {remedy}"


def _lines_from(path: Path, form: Format, first: int) -> int:
    """How many lines of a text are not empty, from the ``first`` (from 1) on."""
    with _as_text(path, form) as text:
        return sum(bool(line.strip()) for number, line in enumerate(text, 1) if number >= first)


def _open_quote(path: Path, form: Format) -> str:
    """Where the last record begins, or one that is too long: an open quote makes one record of all that follows."""
    line = deque((line for line, _ in _records(path, form)), maxlen=1)[0]
    return f"the row that begins in line {line:,} does not end: close the quote in it, or remove the quote"


def _records(path: Path, form: Format) -> Iterator[tuple[int, int | None]]:
    """The line on which every record begins, and its width, empty lines left out; the header is the first. The last has
    no width where a value is too long, as after an unclosed quote.
    """
    before = form.header - 1
    with _as_text(path, form) as text:
        for _ in range(before):
            text.readline(_BYTES_AT_ONCE)
        reader = csv.reader(_lines(text), delimiter=_separator(path, form))
        try:
            for record in reader:
                if record:
                    yield before + 1, len(record)
                before = reader.line_num + form.header - 1
        except csv.Error:
            yield before + 1, None


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """The lines of ``text``. Raises `csv.Error` for one that is longer than what is read at once."""
    while line := text.readline(_BYTES_AT_ONCE):
        if len(line) == _BYTES_AT_ONCE:
            raise csv.Error
        yield line


class _Unpacked(io.BufferedIOBase):
    """The text in a .gz file, limited to the memory that was free when it was opened."""

    def __init__(self, path: Path) -> None:
        self._path, self._most, self._read = path, available_memory(), 0
        self._file = gzip.GzipFile(path)

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._file.read(-1 if size is None else size)
        self._read += len(data)
        if self._most is not None and self._read > self._most:
            raise too_large(self._path, "when it is unpacked", self._most)
        return data

    read1 = read

    def close(self) -> None:
        self._file.close()
        super().close()


class _Recoded(io.BufferedIOBase):
    """A stream in some encoding as UTF-8."""

    def __init__(self, stream: IO[bytes] | _Unpacked, codec: str) -> None:
        self._stream, self._decoder, self._ready = stream, codecs.getincrementaldecoder(codec)(), b""

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = _BYTES_AT_ONCE if size is None or size < 0 else size
        while len(self._ready) < wanted:
            data = self._stream.read(_BYTES_AT_ONCE)
            self._ready += self._decoder.decode(data, final=not data).encode()
            if not data:
                break
        data, self._ready = self._ready[:wanted], self._ready[wanted:]
        return data


class _Ended(io.BufferedIOBase):
    """UTF-8 text of columns, after which a row of `_END` in every column comes; the last ``footer`` lines that are not
    empty, and what is empty beside them, are left out."""

    def __init__(self, stream: _Stream, header: Sequence[str], delimiter: str, footer: int) -> None:
        self._stream, self._rest = stream, f"\n{delimiter.join([_END] * len(header))}\n".encode()
        self._footer, self._held, self._ended = footer, b"", False

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        if self._footer:
            return self._before_footer(-1 if size is None else size)
        data = self._stream.read(-1 if size is None else size)
        if not data:
            data, self._rest = self._rest, b""
        return data

    def _before_footer(self, size: int) -> bytes:
        """At most so many bytes that certainly come before the lines below the table."""
        most = _BYTES_AT_ONCE if size < 0 else size
        while not self._ended and len(self._held) < most + _LONGEST_FOOTER:
            data = self._stream.read(_BYTES_AT_ONCE)
            self._held += data
            if not data:
                lines = self._held.splitlines(keepends=True)
                full = [place for place, line in enumerate(lines) if line.strip()]
                # In a file with fewer lines the names of the columns are kept.
                kept = full[-min(self._footer, len(full) - 1)] if len(full) > 1 else len(lines)
                self._held, self._ended = b"".join(lines[:kept]) + self._rest, True
        ready = len(self._held) if self._ended else len(self._held) - _LONGEST_FOOTER
        data, self._held = self._held[: min(most, ready)], self._held[min(most, ready) :]
        return data


_Stream: TypeAlias = IO[bytes] | _Unpacked | _Recoded | _Ended


def _unpacked(path: Path) -> IO[bytes] | _Unpacked:
    return _Unpacked(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _as_text(path: Path, form: Format) -> io.TextIOWrapper:
    """The file's text; characters that are not of its encoding are replaced."""
    stream: Any = _unpacked(path)  # a stream without a name will do
    return io.TextIOWrapper(stream, form.codec, errors="replace", newline="")


@contextmanager
def _plain_bytes(path: Path, form: Format) -> Iterator[_Stream]:
    """The file's text as UTF-8."""
    with _unpacked(path) as stream:
        yield stream if form.codec == "utf-8-sig" else _Recoded(stream, form.codec)


def _parsed(
    stream: _Stream, header: Sequence[str], columns: Sequence[str], delimiter: str, skipped: int
) -> pacsv.CSVStreamingReader:
    return pacsv.open_csv(
        stream,
        read_options=pacsv.ReadOptions(use_threads=True, skip_rows=skipped),
        parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            column_types={name: pa.string() for name in header},
            include_columns=list(columns),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


def _separator(path: Path, form: Format) -> str:
    """The separator of the columns of the file at ``path``."""
    if form.delimiter is not None:
        return form.delimiter
    return next(sign for ending, sign in _SEPARATORS.items() if path.name.lower().removesuffix(".gz").endswith(ending))


TEXT = FileKind(
    (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt"),
    ("delimiter", "encoding", "header", "footer"),
    text_header,
    text_batches,
    _extent,
    _row_named,
    unreadable=(UnicodeDecodeError, EOFError, zlib.error, csv.Error),
    separators=",|\t;",
)
