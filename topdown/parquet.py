"""Parquet files whose columns are weighed before they are decoded.

A column of a few kilobytes can stand for gigabytes: a text that stands once in a dictionary, and a billion times in the
column as one number that repeats. What a column takes at most is known from the number of its values, from the size of
its pages and from the longest text in its dictionaries; where that is more than there is room for, texts are read as
numbers with their dictionaries, weighed batch by batch and only then written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.memory import address_space_left, gibibytes, most_at_once, too_large

_ROWS_AT_ONCE = 1 << 17
_CAUTIOUS_ROWS_AT_ONCE = 1 << 12
_WIDEST = 16
"""Bytes of a value of a kind whose size Arrow does not tell."""


def parquet_columns(path: Path) -> list[str]:
    """The names of the columns of the Parquet file at ``path``."""
    names: list[str] = pq.read_schema(path).names
    return names


def parquet_batches(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns called ``names``, valid and without dictionaries, in batches; the first has no rows.

    Raises `DataError` where they would take more than `most_at_once`, and what Arrow raises.
    """
    most = most_at_once()
    # A thread that cannot be started for want of address space would be waited for without end.
    threads = address_space_left() is None
    with pq.ParquetFile(path, pre_buffer=False) as file:
        leaves = _leaves(file.schema_arrow, names)
        texts = [leaf.path(file) for leaf in leaves if leaf.is_text]
        sure = most is None or _fits(file, leaves, texts, path, most)
        yield _decoded(pa.RecordBatch.from_pylist([], pa.schema([file.schema_arrow.field(name) for name in names])))
    options: dict[str, Any] = {"pre_buffer": False, "read_dictionary": None if sure else texts}
    rows = _ROWS_AT_ONCE if sure else _CAUTIOUS_ROWS_AT_ONCE
    with pq.ParquetFile(path, **options) as file:
        held = 0
        for batch in file.iter_batches(rows, columns=list(names), use_threads=threads and sure):
            chosen = batch.select(list(names))
            held += _decoded_bytes(chosen)
            if most is not None and held > most:
                raise too_large(path, f"more than {gibibytes(held)} when it is read", most)
            plain = _decoded(chosen)
            # Parquet does not check that texts are UTF-8, nor that the file is what was written.
            plain.validate(full=True)
            yield plain


class _Leaf(NamedTuple):
    """A column as Parquet has it, the ``place``-th; of a nested column of the table there are several."""

    place: int
    kind: pa.DataType
    nested: bool

    @property
    def is_text(self) -> bool:
        return _is_text(self.kind)

    def path(self, file: pq.ParquetFile) -> str:
        name: str = file.schema.column(self.place).path
        return name

    @property
    def width(self) -> int:
        """Bytes of a value that is no text."""
        try:
            return -(-int(self.kind.bit_width) // 8)
        except ValueError:
            return _WIDEST


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


def _leaves(schema: pa.Schema, names: Sequence[str]) -> list[_Leaf]:
    found, index, wanted = [], 0, set(names)
    for field in schema:
        kinds = _kinds(field.type)
        if field.name in wanted:
            nested = kinds != [field.type] and not pa.types.is_dictionary(field.type)
            found += [_Leaf(index + k, kind, nested) for k, kind in enumerate(kinds)]
        index += len(kinds)
    return found


def _kinds(kind: pa.DataType) -> list[pa.DataType]:
    """The kinds of the columns that Parquet makes of a column of an Arrow ``kind``."""
    if isinstance(kind, pa.BaseExtensionType):
        return _kinds(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _kinds(kind.value_type)
    if pa.types.is_nested(kind):
        return [leaf for k in range(kind.num_fields) for leaf in _kinds(kind.field(k).type)]
    return [kind]


def _fits(file: pq.ParquetFile, leaves: Sequence[_Leaf], texts: Sequence[str], path: Path, most: int) -> bool:
    """Whether the columns surely take no more than ``most``. Raises `DataError` where they surely take more."""
    metadata = file.metadata
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    chunks = [[(leaf, group.column(leaf.place)) for leaf in leaves] for group in groups]
    for group in chunks:
        unpacked = sum(chunk.total_uncompressed_size for _, chunk in group)
        if unpacked > most:
            raise too_large(path, f"{gibibytes(unpacked)} when a part of it is unpacked", most)
    least = sum(chunk.num_values * (4 if leaf.is_text else leaf.width) for group in chunks for leaf, chunk in group)
    if least > most:
        raise too_large(path, f"{gibibytes(least)} or more when it is read", most)
    longest = _longest_texts(path, texts, metadata.num_row_groups) if texts else []
    total = least
    for k, group in enumerate(chunks):
        for leaf, chunk in group:
            if leaf.is_text:
                unit = chunk.total_uncompressed_size if leaf.nested else longest[k][leaf.path(file)]
                total += chunk.total_uncompressed_size + chunk.num_values * unit
                if leaf.nested and total > most:
                    raise too_large(path, "an unknown size when it is read", most)
    return bool(total <= most)


def _longest_texts(path: Path, texts: Sequence[str], groups: int) -> list[Mapping[str, int]]:
    """Of every group of rows the longest text in each column's dictionary: reading one row reads the dictionary."""
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
    values = column.dictionary if pa.types.is_dictionary(column.type) else column
    longest: int | None = pc.max(pc.binary_length(values)).as_py()
    return longest or 0


def _decoded_bytes(batch: pa.RecordBatch) -> int:
    """What ``batch`` takes without dictionaries."""
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


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
