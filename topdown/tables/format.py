"""How a table's file is written, as far as the file does not say so itself."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path

from topdown.errors import ConfigError
from topdown.wording import shown

READ = (".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".xlsx")
"""How the names of the files end that are read, in whatever case."""


@dataclass(frozen=True)
class Format:
    """``delimiter`` between the columns of a text file (None: what its name says), its ``encoding`` as Python calls it,
    and the ``sheet`` of a workbook (None: its only one). Raises `ConfigError` for what is no such thing.
    """

    delimiter: str | None = None
    encoding: str = "utf-8"
    sheet: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and (
            len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n\0'
        ):
            raise ConfigError(f'delimiter {shown(self.delimiter)}: give one character, such as ";" or "\\t" for a tab')
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

    def said_in_vain(self, kind: str) -> str:
        """What is said of a file of the ``kind`` (`kind_of`) that files of it say themselves, or have not; "" for
        nothing."""
        known = {".parquet": (), ".xlsx": ("sheet",)}.get(kind, ("delimiter", "encoding"))
        said = {"delimiter": self.delimiter, "encoding": self.codec != PLAIN.codec, "sheet": self.sheet}
        return next((name for name, value in said.items() if value and name not in known), "")

    def separator(self, path: Path) -> str:
        """What stands between the columns of the text file at ``path``."""
        if self.delimiter is not None:
            return self.delimiter
        return _SEPARATORS[kind_of(path)]


_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t", ".txt": "|"}
"""By what a text's name ends in; "|" as in the Census Bureau's text files."""

PLAIN = Format()


def kind_of(path: Path) -> str:
    """Which of `READ` the name of ``path`` ends in; "" for another. A folder is one of Parquet files."""
    if path.is_dir():
        return ".parquet"
    name = path.name.lower()
    return next((kind for kind in sorted(READ, key=len, reverse=True) if name.endswith(kind)), "")
