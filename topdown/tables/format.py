"""The form of a table's file, where the file itself does not state it, and the interface of kinds of files."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from topdown.errors import ConfigError
from topdown.wording import shown

THOUSANDS = (",", ".", " ", "'")
"""Marks between groups of three digits; a blank stands for those that do not break a line too."""

_MOST_NOTES = 100


@dataclass(frozen=True)
class Format:
    """``delimiter`` between the columns of a text file (None: what its name says), its ``encoding`` as Python calls it,
    the ``sheet`` of a workbook (None: its only one), the ``header``, the number of the row (from 1) with the names of
    the columns, and the ``footer``, the number of lines below the table that are not empty. ``decimal`` and
    ``thousands``: the marks in numbers that are written as text (`number_marks`). Raises `ConfigError` for invalid
    values.

    ``has_settings``: whether whoever gives the table can say all this, as in a TOML file's section [input].
    """

    delimiter: str | None = None
    encoding: str = "utf-8"
    sheet: str | None = None
    header: int = 1
    decimal: str | None = None
    thousands: str | None = None
    footer: int = 0
    has_settings: bool = field(default=True, compare=False)

    def __post_init__(self) -> None:
        if self.delimiter is not None and (
            len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n\0'
        ):
            raise ConfigError(f'delimiter {shown(self.delimiter)}: give one character, such as ";" or "\\t" for a tab')
        if self.header < 1:
            raise ConfigError(f"header {self.header}: give the number of the row with the columns' names, from 1")
        if not 0 <= self.footer <= _MOST_NOTES:
            raise ConfigError(f"footer {self.footer}: give the number of lines below the table, 0 to {_MOST_NOTES}")
        if self.decimal not in (None, ".", ","):
            raise ConfigError(f'decimal {shown(self.decimal)}: give "." or ","')
        if self.thousands not in (None, *THOUSANDS):
            raise ConfigError(f"thousands {shown(self.thousands)}: give one of {', '.join(map(repr, THOUSANDS))}")
        if self.decimal is not None and self.decimal == self.thousands:
            raise ConfigError(f"decimal and thousands are both {shown(self.decimal)}; give two different marks")
        try:
            is_text = codecs.lookup(self.encoding)._is_text_encoding
        except (LookupError, ValueError):
            is_text = False
        if not is_text:
            raise ConfigError(
                f'encoding {shown(self.encoding)}: is not known; give "utf-8", "windows-1252", "latin-1" or "utf-16"'
            )

    @property
    def codec(self) -> str:
        """The codec by which text is decoded; of UTF-8 with or without a mark at its beginning."""
        name = codecs.lookup(self.encoding).name
        return "utf-8-sig" if name == "utf-8" else name

    def idle_setting(self, settings: Sequence[str]) -> str:
        """A setting that was given but does not apply to a kind of file that takes only ``settings``; "" for none."""
        said = {
            "delimiter": self.delimiter,
            "encoding": self.codec != PLAIN.codec,
            "sheet": self.sheet,
            "header": self.header != 1,
            "footer": self.footer != 0,
        }
        return next((name for name, value in said.items() if value and name not in settings), "")


PLAIN = Format()


class Extent(NamedTuple):
    """The approximate number of ``rows`` of a table, and the bytes of memory for a row once columns are read."""

    rows: int
    row_bytes: float


@dataclass(frozen=True)
class FileKind:
    """A kind of file that tables are read from.

    ``endings``: of its files' names, in lower case. ``settings``: the fields of a `Format` that apply to it.
    ``header``: the names of the columns. ``batches``: columns of the file whose header is given, batch by batch, the
    first of them without rows. ``extent``: that of some columns, as far as it can be seen without reading them.
    ``row_named``: the reader's name for a row, given its number from 0, for example its line. ``unreadable``: the
    errors of its libraries for a damaged file, beside `OSError` and Arrow's errors. ``separators``: possible separators
    of its columns.
    """

    endings: tuple[str, ...]
    settings: tuple[str, ...]
    header: Callable[[Path, Format], list[str]]
    batches: Callable[[Path, Sequence[str], Sequence[str], Format], Iterator[pa.RecordBatch]]
    extent: Callable[[Path, Sequence[str], Format], Extent]
    row_named: Callable[[Path, int, Format], str]
    unreadable: tuple[type[Exception], ...] = ()
    separators: str = ""
