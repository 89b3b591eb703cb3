"""The formats that tables are written in: the endings of their files' names, their media types, what writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from topdown.errors import ConfigError
from topdown.tables.tidy import frame_batches, records_text, to_frame, write_csv, write_parquet, write_text
from topdown.wording import shown_path

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True)
class OutputFormat:
    """A format of table files.

    ``ending``: of the files' names. ``write``: writes batches with metadata, for the owner alone where the last
    argument is true. ``typed``: whether a file has the types of its columns; one that has not is text.
    """

    ending: str
    media_type: str
    write: Callable[[Path, Iterator[pa.RecordBatch], Mapping[str, str], bool], None]
    typed: bool = False


PARQUET = OutputFormat(
    ".parquet",
    "application/vnd.apache.parquet",
    lambda path, batches, metadata, private: write_parquet(path, batches, metadata, private=private),
    typed=True,
)
CSV = OutputFormat(
    ".csv", "text/csv", lambda path, batches, metadata, private: write_csv(path, batches, private=private)
)
JSON = OutputFormat(
    ".json",
    "application/json",
    lambda path, batches, metadata, private: write_text(path, records_text(to_frame(batches))),
)

OUTPUT_FORMATS = {one.ending: one for one in (CSV, PARQUET, JSON)}
"""Every format by its ending."""


def format_of(path: str | Path, among: Sequence[OutputFormat] = tuple(OUTPUT_FORMATS.values())) -> OutputFormat:
    """The format of the file ``path`` by its ending. Raises `ConfigError` where it is not ``among`` these."""
    ending = Path(path).suffix.lower()
    if OUTPUT_FORMATS.get(ending) not in among:
        endings = ", ".join(one.ending for one in among)
        raise ConfigError(f"{shown_path(Path(path))}: unknown kind of file; give {endings}")
    return OUTPUT_FORMATS[ending]


def names_of(stem: str, *, text: bool = True) -> tuple[str, ...]:
    """The names of the files of a release's table: Parquet and, with ``text``, CSV."""
    return tuple(stem + one.ending for one in (PARQUET, CSV)[: 1 + text])


ANY_PART = f"part-*{PARQUET.ending}"
"""A pattern of the names that `part_name` gives."""


def part_name(number: int) -> str:
    """The name of one file, by its ``number``, of a table in a folder of Parquet files."""
    return ANY_PART.replace("*", f"{number:05d}")


def write_frame(path: Path, frame: pd.DataFrame, metadata: Mapping[str, str], among: Sequence[OutputFormat]) -> None:
    """Write ``frame`` without its index in the format of ``path``. Raises as `format_of`, and `OSError`."""
    format_of(path, among).write(path, frame_batches(frame), metadata, False)
