"""Reads Parquet files after computing how much memory their columns need.

A column of a few kilobytes can need gigabytes: a text that is once in a dictionary, and a billion times in the column
as one repeated number. The most that a column can need is known from the number of its values, the size of its pages
and the longest text in its dictionaries; where that is more than there is room for, texts are read as numbers with
their dictionaries, measured batch by batch, and only then decoded.

The metadata of columns are first read in a way in which Arrow catches its own errors: with a damaged file
`RowGroupMetaData.column` would end the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.machine.memory import address_space_left, most_at_once, too_large
from topdown.wording import FETCH, shown, shown_path

_CAUTIOUS_ROWS_AT_ONCE = 1 << 12
_WIDEST = 16
"""Bytes of a value of a type whose size Arrow does not state."""
_DISTINCT_OF_BYTE = 16
"""The most distinct texts for a byte of a compressed file; consecutive codes have two."""
_BESIDE, _BESIDE_TEXT = 1 << 20, 16
"""Bytes of a column's unpacked pages beside its texts, and for each text: its length, its number in a dictionary."""


def parquet_columns(path: Path) -> list[str]:
    """The names of the columns of the Parquet file at ``path``."""
    names: list[str] = pq.read_schema(path).names
    return names


def parquet_batches(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns called ``names``, valid and without dictionaries, in batches; the first has no rows.

    Raises `DataError` where they would take more than `most_at_once`, and what Arrow raises.
    """
    most = most_at_once()
    with pq.ParquetFile(path, pre_buffer=False) as file:
        _require_chunks(path, [file.schema.column(place).path for place, _, _ in _places(file, names)])
        way = _way(file, _leaves(file, names), path, most)
        schema = pa.schema([(name, _plain(file.schema_arrow.field(name).type)) for name in names])
        yield pa.RecordBatch.from_pylist([], schema)
    with pq.ParquetFile(path, pre_buffer=False, read_dictionary=way.as_numbers) as file:
        if way.cautious and most is not None:
            _require_held(path, file, names, way, most)
        held = rows = 0
        for batch in _encoded_batches(file, names, way):
            chosen = batch.select(list(names))
            held, rows = held + _decoded_bytes(chosen), rows + batch.num_rows
            if most is not None and held > most:
                raise too_large(path, "when it is read", most)
            plain = _decoded(chosen, schema)
            # Parquet does not check that texts are UTF-8, nor that the file is undamaged.
            plain.validate(full=True)
            yield plain
        # Nor does it check the number of rows, which the file states twice.
        groups = sum(file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups))
        if not rows == groups == file.metadata.num_rows:
            raise DataError(
                f"{shown_path(path)}: has another number of rows than it says; it is damaged: write it again"
            )


def require_distinct(path: Path, count: int) -> None:
    """Refuse a file that is too small for so many distinct units. Raises `DataError`."""
    size = path.stat().st_size
    if count > _DISTINCT_OF_BYTE * size:
        raise DataError(f"{shown_path(path)}: has {size:,} bytes, too few for {count:,} distinct units; {FETCH}")


def longest_text(texts: Iterable[str] | pa.Array) -> int:
    """The bytes of the longest of ``texts``; 0 where there is none."""
    array = texts if isinstance(texts, pa.Array) else pa.array(list(texts), pa.string())
    longest: int | None = pc.max(pc.binary_length(array)).as_py()
    return longest or 0


def require_texts(path: Path, longest: Mapping[str, int]) -> None:
    """Refuse a file in whose columns a text may be longer than ``longest`` says, in bytes by the column's name, before
    a text is written out.

    Texts in a dictionary are examined; others are at most as long as the unpacked pages of the column. Raises
    `DataError`, `KeyError` for a column that is not there, and what Arrow raises.
    """
    with pq.ParquetFile(path, pre_buffer=False) as file:
        missing = [name for name in longest if name not in file.schema_arrow.names]
        if missing:
            raise KeyError(missing[0])
        _require_chunks(path, [file.schema.column(place).path for place, _, _ in _places(file, list(longest))])
        leaves = [leaf for leaf in _leaves(file, list(longest)) if leaf.is_text]
        groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
        wrong = [
            leaf.path
            for leaf in leaves
            if not leaf.weighed
            or sum(group.column(leaf.place).total_uncompressed_size for group in groups)
            > file.metadata.num_rows * (longest[leaf.path] + _BESIDE_TEXT) + _BESIDE
        ]
    if not wrong and leaves:
        for held in _longest_texts(path, [leaf.path for leaf in leaves], len(groups)):
            wrong += [name for name, size in held.items() if size > longest[name]]
    if wrong:
        raise DataError(
            f"{shown_path(path)}: column {shown(wrong[0])} may hold texts of more than {longest[wrong[0]]:,} bytes, "
            f"longer than any in a release; {FETCH}"
        )


def _encoded_batches(file: pq.ParquetFile, names: Sequence[str], way: _Way) -> Iterator[pa.RecordBatch]:
    """The rows of ``file``: one column after the other, or where that may be too much, a few rows of all columns."""
    if way.cautious:
        yield from file.iter_batches(way.rows, columns=list(names), use_threads=False)
        return
    # Arrow would wait forever for a thread that cannot be started for lack of address space.
    threads = address_space_left() is None
    for group in range(file.metadata.num_row_groups):
        yield from file.read_row_group(group, columns=list(names), use_threads=threads).to_batches()


def _require_held(path: Path, file: pq.ParquetFile, names: Sequence[str], way: _Way, most: int) -> None:
    """Before texts are decoded, refuse columns whose decoded texts take more than ``most``."""
    held = 0
    for batch in _encoded_batches(file, names, way):
        held += _decoded_bytes(batch.select(list(names)))
        if held > most:
            raise too_large(path, "when it is read", most)


class _Leaf(NamedTuple):
    """A leaf column of Parquet, the ``place``-th; a nested column of the table has several. ``weighed``: whether its
    texts can be read as numbers with a dictionary; ``flat``: whether every row has one value.
    """

    place: int
    path: str
    kind: pa.DataType
    weighed: bool
    flat: bool

    @property
    def is_text(self) -> bool:
        return _is_text(self.kind)

    @property
    def width(self) -> int:
        """Bytes of a value; for a text those beside its characters."""
        try:
            return 4 if self.is_text else -(-int(self.kind.bit_width) // 8)
        except ValueError:
            return _WIDEST


class _Way(NamedTuple):
    """How a file is read: ``cautious``, ``rows`` at a time, with the texts ``as_numbers`` that are measured first."""

    rows: int
    as_numbers: list[str]
    cautious: bool


def _is_text(kind: pa.DataType) -> bool:
    is_kind = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
    )
    return any(test(kind) for test in is_kind)


def _leaves(file: pq.ParquetFile, names: Sequence[str]) -> list[_Leaf]:
    found: list[_Leaf] = []
    groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
    for place, field, kind in _places(file, names):
        flat = not pa.types.is_nested(field.type) and not isinstance(field.type, pa.BaseExtensionType)
        # Texts that are delta-encoded have no dictionary.
        shared = any("DELTA_BYTE_ARRAY" in group.column(place).encodings for group in groups)
        weighed = flat and _is_text(kind) and not shared
        found.append(_Leaf(place, file.schema.column(place).path, kind, weighed, flat))
    return found


def _places(file: pq.ParquetFile, names: Sequence[str]) -> Iterator[tuple[int, pa.Field, pa.DataType]]:
    """Parquet's columns of the table's columns called ``names``: the place of each, the table's column, its kind."""
    first, wanted = 0, set(names)
    for field in file.schema_arrow:
        kinds = _kinds(field.type)
        if field.name in wanted:
            yield from ((place, field, kind) for place, kind in enumerate(kinds, first))
        first += len(kinds)


class _PageRequested(Exception):
    """Raised when Arrow has understood the metadata and asks for the first page."""


class _FooterOnly:
    """A file for Arrow, whose pages are not read once it is ``shut``."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.shut = False
        self.seek = file.seek
        self.tell = file.tell
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        if self.shut:
            raise _PageRequested
        return self._file.read(size)


def _require_chunks(path: Path, leaves: Sequence[str]) -> None:
    """Raises what Arrow raises where it does not understand the metadata of one of the columns ``leaves``."""
    with path.open("rb") as opened:
        footer_only = _FooterOnly(opened)
        file = pq.ParquetFile(footer_only, pre_buffer=False)
        footer_only.shut = True
        for group in range(file.metadata.num_row_groups):
            for leaf in leaves:
                with suppress(_PageRequested):
                    file.read_row_group(group, columns=[leaf], use_threads=False)


def _kinds(kind: pa.DataType) -> list[pa.DataType]:
    """The kinds of the columns that Parquet makes of a column of an Arrow ``kind``."""
    if isinstance(kind, pa.BaseExtensionType):
        return _kinds(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _kinds(kind.value_type)
    if pa.types.is_nested(kind):
        return [leaf for k in range(kind.num_fields) for leaf in _kinds(kind.field(k).type)]
    return [kind]


def _way(file: pq.ParquetFile, leaves: Sequence[_Leaf], path: Path, most: int | None) -> _Way:
    """How to read ``leaves`` into ``most`` bytes. Raises `DataError` where they certainly need more."""
    plainly = _Way(0, [], False)
    if most is None:
        return plainly
    groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
    chunks = [[(leaf, group.column(leaf.place)) for leaf in leaves] for group in groups]
    unpacked = max((sum(chunk.total_uncompressed_size for _, chunk in group) for group in chunks), default=0)
    if unpacked > most:
        raise too_large(path, "when a part of it is unpacked", most)
    least = sum(chunk.num_values * leaf.width for group in chunks for leaf, chunk in group)
    if least > most:
        raise too_large(path, "when it is read", most)
    weighed = [leaf.path for leaf in leaves if leaf.weighed]
    longest = _longest_texts(path, weighed, len(groups)) if weighed else []
    total, unknown = least, 0
    for k, group in enumerate(chunks):
        for leaf, chunk in group:
            if leaf.is_text:
                # No text is longer than the column's pages together.
                unit = longest[k][leaf.path] if leaf.weighed else chunk.total_uncompressed_size
                total += chunk.total_uncompressed_size + chunk.num_values * unit
                unknown = unknown if leaf.weighed else max(unknown, unit)
    if total <= most:
        return plainly
    if any(leaf.is_text and not leaf.flat for leaf in leaves):
        raise too_large(path, "when its lists are read", most)
    return _Way(max(1, min(_CAUTIOUS_ROWS_AT_ONCE, most // (4 * unknown + 1))), weighed, True)


def _longest_texts(path: Path, texts: Sequence[str], groups: int) -> list[Mapping[str, int]]:
    """For every row group the longest text in each column's dictionary: reading one row reads the dictionary."""
    found: list[Mapping[str, int]] = []
    with pq.ParquetFile(path, read_dictionary=list(texts), pre_buffer=False) as file:
        for group in range(groups):
            first = next(file.iter_batches(1, row_groups=[group], columns=list(texts), use_threads=False), None)
            found.append({name: _longest(first, name) for name in texts})
    return found


def _longest(batch: pa.RecordBatch | None, name: str) -> int:
    if batch is None or name not in batch.schema.names:
        return 0
    column = batch.column(name)
    return longest_text(column.dictionary if pa.types.is_dictionary(column.type) else column)


def _decoded_bytes(batch: pa.RecordBatch) -> int:
    """The bytes of ``batch`` without dictionaries."""
    total = 0
    for column in batch.columns:
        if not pa.types.is_dictionary(column.type):
            total += column.nbytes
        elif _is_text(column.type.value_type):
            lengths = pc.binary_length(column.dictionary)
            total += 4 * len(column) + (pc.sum(lengths.take(column.indices)).as_py() or 0)
        else:
            total += _WIDEST * len(column)
    return total


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _decoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``batch`` without dictionaries, in the kinds of ``schema``."""
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    typed = [c if c.type == kind else c.cast(kind) for c, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(typed, schema=schema)
