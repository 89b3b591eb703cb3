"""Reads the partitions of noisy measurement files: rows in the layout, checked, by query and sign."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from topdown.census.layouts import noisy_layout as layout
from topdown.errors import ConfigError, DataError
from topdown.geography.tree import FloatArray
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.wording import listed, reason, shown, shown_path, type_name
from topdown.workload import Query

OWN = "topdown"
"""The key in the files' metadata for information that the layout has no place for."""

_ROWS_AT_ONCE = 512
_STATE = "State"


class NoisyRows(NamedTuple):
    """Some units' answers to one query: ``codes`` (units,), ``values`` (units x answers), ``variance`` (units,).

    ``query`` is None for the constraint that states the structural zeros.
    """

    query: Query | None
    sign: str | None
    codes: pa.Array
    values: npt.NDArray[np.int64]
    variance: FloatArray


@dataclass(frozen=True)
class Partition:
    """The files of one part of a state ("" of the nation) at one level of the spine, of one kind."""

    product: layout.Product
    kind: str
    part: str
    folder: Path
    files: tuple[Path, ...]

    def __str__(self) -> str:
        return shown_path(self.folder / layout.partition(self.part))

    def own(self) -> dict[str, Any]:
        """The value of `OWN` in the files' metadata, with "levels" in it; empty in files of other programs."""
        for file in self.files:
            marks = self._schema(file).metadata or {}
            if OWN.encode() in marks:
                try:
                    found = json.loads(marks[OWN.encode()])
                except (ValueError, RecursionError):
                    continue
                if isinstance(found, dict) and isinstance(found.get("levels"), dict):
                    return found
        return {}

    def n_rows(self) -> int:
        """How many rows its files have. Raises `DataError` where one cannot be read."""
        try:
            return sum(pq.read_metadata(file).num_rows for file in self.files)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self}: a file cannot be read: {reason(error)}; fetch it again") from None

    def codes(self) -> pa.Array:
        """The codes of all its units, each once, in code-point order."""
        pieces = []
        for file in self.files:
            self._columns(file)
            pieces += [self._codes(batch.column(0)) for batch in self._batches(file, [layout.GEOCODE])]
        found = pc.unique(pa.chunked_array(pieces, pa.string()))
        if not len(found):
            raise DataError(f"{self}: has no rows; fetch it again")
        return found.take(pc.sort_indices(found))

    def rows(self) -> Iterator[NoisyRows]:
        """Its rows, query by query, in batches of units.

        Raises `DataError` naming the partition, and the unit and query where one is at fault.
        """
        for file in self.files:
            columns = self._columns(file)
            for batch in self._batches(file, columns):
                yield from self._by_query(batch)

    def _schema(self, file: Path) -> pa.Schema:
        try:
            return pq.read_schema(file)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self}: a file cannot be read: {reason(error)}; fetch it again") from None

    def _columns(self, file: Path) -> list[str]:
        """The columns to read, of their kinds. The sign is absent from some partitions of measurements."""
        there = self._schema(file)
        wanted = [layout.NAME, *self.product.schema.names, layout.SHAPE, layout.VALUE, layout.VARIANCE]
        for name in [layout.GEOCODE, *wanted]:
            if there.names.count(name) != 1:
                has = "no column" if name not in there.names else "two columns"
                raise DataError(f"{self}: has {has} {shown(name)}; fetch it again")
            kind = there.field(name).type
            if not _KINDS.get(name, _is_text)(kind):
                raise DataError(f"{self}: column {shown(name)} is of type {type_name(kind)}; fetch it again")
        signed = [layout.SIGN] if layout.SIGN in there.names else []
        if not signed and self.kind == layout.CONSTRAINED:
            raise DataError(f"{self}: has no column {shown(layout.SIGN)}; fetch it again")
        return [layout.GEOCODE, *wanted, *signed]

    def _batches(self, file: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            # By the file's own schema, since the widths of integers differ between files.
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
                    batch.validate(full=True)  # Arrow takes any bytes for text
                    yield batch
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self}: a file cannot be read: {reason(error)}; fetch it again") from None

    def _codes(self, column: pa.Array) -> pa.Array:
        codes = column.cast(pa.string())
        if codes.null_count:
            raise DataError(f"{self}: a row has no geocode; fetch it again")
        others = codes.filter(pc.invert(pc.starts_with(codes, self.part)))
        if len(others):
            wrong = others[0].as_py()
            raise DataError(f"{self}: unit {shown(wrong)} is of another state; fetch it again")
        return codes

    def _by_query(self, batch: pa.RecordBatch) -> Iterator[NoisyRows]:
        names = self._text(batch, layout.NAME)
        signs = self._signs(batch)
        key = pc.binary_join_element_wise(names, pc.fill_null(signs, ""), "\n")
        encoded = key.dictionary_encode()
        place = encoded.indices.to_numpy(zero_copy_only=False)
        for number in range(len(encoded.dictionary)):
            chosen = pa.array(np.flatnonzero(place == number))
            rows = batch.take(chosen)
            name, sign = names[chosen[0].as_py()].as_py(), signs[chosen[0].as_py()].as_py()
            yield self._one(name, sign, rows)

    def _text(self, rows: pa.RecordBatch, name: str) -> pa.Array:
        found = rows.column(name).cast(pa.string())
        if found.null_count:
            raise DataError(f"{self}: a row has no {name}; fetch it again")
        return found

    def _signs(self, batch: pa.RecordBatch) -> pa.Array:
        if layout.SIGN not in batch.schema.names:
            return pa.nulls(len(batch), pa.string())
        signs = batch.column(layout.SIGN).cast(pa.string())
        known = [None] if self.kind == layout.MEASURED else [layout.EXACT, layout.AT_LEAST, layout.AT_MOST]
        for sign in signs.unique().to_pylist():
            if sign not in known:
                what = "measurement" if self.kind == layout.MEASURED else "constraint"
                raise DataError(f"{self}: sign {shown(sign)} of a {what}; fetch it again")
        return signs

    def _one(self, name: str, sign: str | None, rows: pa.RecordBatch) -> NoisyRows:
        """The rows of one query's name and sign."""
        axes: dict[str, str] = {}
        for attribute in self.product.schema.names:
            said = self._text(rows, attribute).unique().to_pylist()
            if len(said) > 1:
                raise DataError(
                    f"{self}, query {shown(name)}: column {shown(attribute)} has several values, {listed(said)}"
                )
            axes[attribute] = said[0]
        query, shape = self._query(name, sign, axes)
        codes = self._codes(rows.column(layout.GEOCODE))
        count = math.prod(shape)
        shapes = self._lists(rows.column(layout.SHAPE), codes, name, layout.SHAPE, len(shape))
        wrong = np.flatnonzero((shapes != shape).any(axis=1))
        if len(wrong):
            raise DataError(
                f"{self}, unit {shown(codes[int(wrong[0])].as_py())}, query {shown(name)}: query_shape is "
                f"{shown(shapes[int(wrong[0])].tolist())}, and its columns say {shown(shape)}; fetch it again"
            )
        values = self._lists(rows.column(layout.VALUE), codes, name, layout.VALUE, count)
        beyond = np.flatnonzero((values > LARGEST_WHOLE).any(axis=1) | (values < -LARGEST_WHOLE).any(axis=1))
        if len(beyond):
            raise DataError(f"{self}, unit {shown(codes[int(beyond[0])].as_py())}, query {shown(name)}: beyond 2^53")
        variance = rows.column(layout.VARIANCE).cast(pa.float64()).to_numpy(zero_copy_only=False)
        if self.kind == layout.MEASURED:
            bad = np.flatnonzero(~((variance > 0) & np.isfinite(variance)))
            if len(bad):
                raise DataError(
                    f"{self}, unit {shown(codes[int(bad[0])].as_py())}, query {shown(name)}: variance "
                    f"{variance[int(bad[0])]} is not above 0; fetch it again"
                )
        return NoisyRows(query, sign, codes, values, np.asarray(variance, dtype=np.float64))

    def _query(self, name: str, sign: str | None, axes: Mapping[str, str]) -> tuple[Query | None, list[int]]:
        zero = self.product.zero
        if zero is not None and dict(axes) == dict(zero[1]) and sign == layout.EXACT:
            return None, [1] * len(axes)
        try:
            query = self.product.query(axes)
        except ConfigError as error:
            raise DataError(f"{self}, query {shown(name)}: {error}") from None
        if self.kind == layout.MEASURED:
            said = name.removesuffix(layout.MEASURED_ENDING)
            try:
                same = Query.parse(said, self.product.schema) == query
            except ConfigError:
                same = False
            if not same:
                raise DataError(
                    f"{self}: query {shown(name)}, but its columns are those of {shown(query.name)}; fetch it again"
                )
        return query, self.product.shape(query)

    def _lists(self, column: pa.Array, codes: pa.Array, name: str, what: str, length: int) -> npt.NDArray[np.int64]:
        """Lists of whole numbers as an array (rows x length)."""
        lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != length)
        if len(wrong):
            row = int(wrong[0])
            has = "none" if lengths[row] < 0 else f"{lengths[row]}"
            raise DataError(
                f"{self}, unit {shown(codes[row].as_py())}, query {shown(name)}: {what} has {has} of {length} numbers; "
                "fetch it again"
            )
        flat = pc.list_flatten(column)
        if flat.null_count:
            raise DataError(f"{self}, query {shown(name)}: {what} has a number that is missing; fetch it again")
        try:
            return np.asarray(flat.cast(pa.int64()).to_numpy().reshape(-1, length))
        except pa.ArrowException:
            said = "beyond 2^53" if pa.types.is_integer(flat.type) else "not whole"
            raise DataError(
                f"{self}, query {shown(name)}: {what} has a number that is {said}; fetch it again"
            ) from None


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain))


def _is_list(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(is_list and (pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


_KINDS = {layout.SHAPE: _is_list, layout.VALUE: _is_list, layout.VARIANCE: _is_number}


def partitions(product: layout.Product, top: Path, level: str, kind: str) -> dict[str, Partition]:
    """The partitions of a level by their part of a state, "" for the nation. Raises `DataError` where the folder does
    not exist, or a folder in it is no partition.
    """
    folder = top / layout.level_folder(level) / kind
    if not folder.is_dir():
        return {}
    try:
        scheme = ds.partitioning(pa.schema([(_STATE, pa.string())]), flavor="hive")
        found = ds.dataset(folder, format="parquet", partitioning=scheme, schema=pa.schema([]))
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{shown_path(folder)}: cannot be read: {reason(error)}; fetch it again") from None
    by_part: dict[str, list[Path]] = {}
    for fragment in found.get_fragments():
        by_part.setdefault(_part(fragment, folder, level), []).append(Path(fragment.path))
    return {
        part: Partition(product, kind, part, folder, tuple(sorted(files))) for part, files in sorted(by_part.items())
    }


def _part(fragment: Any, folder: Path, level: str) -> str:
    """The part of a state, three digits, whose file ``fragment`` is; the folders' names may lack zeros."""
    said = ds.get_partition_keys(fragment.partition_expression).get(_STATE)
    if level == "us":
        return ""
    if said is None or not said.isdecimal() or len(said) > 3:
        raise DataError(
            f"{shown_path(folder)}: {shown(Path(fragment.path).parent.name)} is no partition; they are called "
            f"{layout.partition('044')} and so on"
        )
    return str(said).zfill(3)


def chosen_parts(found: Sequence[str], state: str | None) -> list[str]:
    """The parts of ``state`` (two digits, or three for one part), or all."""
    return [part for part in found if state is None or part in (state, "") or part[1:] == state]
