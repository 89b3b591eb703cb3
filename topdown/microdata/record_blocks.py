"""Makes records from counts, block by block: in the units' order, or shuffled on disk.

A block is an int64 array with the place of every record's cell in ``Occupied``. The memory in use depends on the size
of a block and of the release, not on the number of records.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from topdown.errors import ConfigError
from topdown.microdata.leaves import Leaves
from topdown.noise import Source
from topdown.noise.randomness import read_exactly
from topdown.wording import shown
from topdown.workload.schema import Schema

Order = Literal["sorted", "shuffled"]
IntArray = npt.NDArray[np.int64]

BLOCK = 1 << 20
"""The number of records of a row group."""
PART = 1 << 22
"""The number of records of a file."""
MOST_SCATTERED = 500
"""The most files of shuffled records: all are open while records are distributed to them."""
# Without Arrow's own schema in the file, every reader sees plain strings; dictionaries remain an encoding.
_FORMAT = {"compression": "zstd", "compression_level": 1, "store_schema": False}


@dataclass(frozen=True, eq=False)
class Occupied:
    """The cells with a count above zero, one entry each, by leaf and then cell.

    ``leaf`` int32; ``codes`` (attributes x entries) int32, categories by attribute; ``count`` int64 and its running sum
    ``ends``.
    """

    leaf: npt.NDArray[np.int32] = field(repr=False)
    codes: npt.NDArray[np.int32] = field(repr=False)
    count: IntArray = field(repr=False)
    ends: IntArray = field(repr=False)

    @classmethod
    def of(cls, leaves: Leaves, schema: Schema) -> Occupied:
        """The entries of ``leaves``, whose cells ``schema`` splits."""
        codes = np.ascontiguousarray(schema.codes(leaves.cells).T)
        return cls(leaves.leaf, codes[:, leaves.cell], leaves.count, np.cumsum(leaves.count))

    @property
    def records(self) -> int:
        """The number of records."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def between(self, begin: int, end: int) -> IntArray:
        """The entries of the records ``begin`` to ``end`` in order, one element per record."""
        first = int(np.searchsorted(self.ends, begin, side="right"))
        last = int(np.searchsorted(self.ends, end, side="left"))
        upper = np.minimum(self.ends[first : last + 1], end)
        lower = np.maximum(self.ends[first : last + 1] - self.count[first : last + 1], begin)
        return np.repeat(np.arange(first, last + 1), upper - lower)


@dataclass(frozen=True, eq=False)
class RecordLayout:
    """The records to be written: the ``cells`` of the units ``geoids`` in ``order``, in files of ``rows_per_file``."""

    cells: Occupied
    geoids: pa.Array
    schema: Schema
    order: Order
    rows_per_file: int

    @classmethod
    def of(cls, leaves: Leaves, schema: Schema, order: Order, rows_per_file: int) -> RecordLayout:
        """The layout of the records of ``leaves``, which are sorted here if ``order`` asks for it."""
        arranged = leaves.sorted() if order == "sorted" else leaves
        return cls(Occupied.of(arranged, schema), arranged.geoids, schema, order, rows_per_file)


def parts_in_order(cells: Occupied, part: int = PART) -> Iterator[Iterator[IntArray]]:
    """The records by leaf and cell: for each file its blocks."""
    for begin in range(0, max(cells.records, 1), part):
        end = min(begin + part, cells.records)
        yield (cells.between(a, min(a + BLOCK, end)) for a in range(begin, end, BLOCK))


def parts_shuffled(cells: Occupied, source: Source, scratch: Path, part: int = PART) -> Iterator[Iterator[IntArray]]:
    """The records in a uniformly random order: for each file its blocks; ``scratch`` is a folder for temporary files.

    Every record goes to a file drawn for it, then every file is permuted in memory: the files one after another are
    then a uniform permutation (Rao 1961, "Generation of Random Permutation of Given Number of Elements Using Random
    Sampling Numbers"; Sandelius 1962, "A Simple Randomization Procedure").
    """
    # The order is a function of the release and of coins of its own, so it cannot reveal more than the release does: a
    # fast generator with a new seed is enough.
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(read_exactly(source, 32), "little")))
    parts = min(-(-max(cells.records, 1) // part), MOST_SCATTERED)
    kind = scattered_kind(cells)
    scratch.mkdir()
    try:
        with ExitStack() as stack:
            files = [stack.enter_context((scratch / str(k)).open("wb")) for k in range(parts)]
            for begin in range(0, cells.records, BLOCK):
                block = cells.between(begin, min(begin + BLOCK, cells.records)).astype(kind)
                drawn = rng.integers(0, parts, len(block), dtype=np.uint16)
                block = block[np.argsort(drawn, kind="stable")]
                bounds = np.cumsum(np.bincount(drawn, minlength=parts))
                for file, piece in zip(files, np.split(block, bounds[:-1]), strict=True):
                    file.write(piece.data)  # numpy's tofile would hide the cause of an error
        for k in range(parts):
            records = rng.permutation(np.fromfile(scratch / str(k), dtype=kind))
            (scratch / str(k)).unlink()
            yield (records[a : a + BLOCK].astype(np.int64) for a in range(0, len(records), BLOCK))
        scratch.rmdir()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def scattered_kind(cells: Occupied) -> npt.DTypeLike:
    """The integer type of the place of a record's cell while records are distributed to files."""
    return np.uint32 if len(cells.count) < 1 << 32 else np.int64


def part_writer(sink: Any, layout: RecordLayout) -> pq.ParquetWriter:
    """A writer of records to ``sink``, a path or a file."""
    # In sorted records, readers find a unit's row groups by their statistics; in shuffled ones statistics are useless,
    # and would take half the time.
    statistics = ["geoid"] if layout.order == "sorted" else False
    return pq.ParquetWriter(sink, arrow_schema(layout.schema), write_statistics=statistics, **_FORMAT)


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns of the records: ``geoid`` and one per attribute, dictionaries of strings."""
    kinds = {name: pa.dictionary(pa.int32(), pa.string()) for name in ("geoid", *schema.names)}
    return pa.schema(list(kinds.items()))


def batch(block: IntArray, layout: RecordLayout) -> pa.RecordBatch:
    """One block as Arrow columns; the dictionary of GEOIDs has only those of the block's records."""
    cells, schema = layout.cells, layout.schema
    leaf = cells.leaf[block]
    low = int(leaf.min())
    present = np.zeros(int(leaf.max()) - low + 1, dtype=bool)
    present[leaf - low] = True
    rank = (np.cumsum(present, dtype=np.int32) - np.int32(1))[leaf - low]
    named = layout.geoids.take(pa.array(np.flatnonzero(present) + low))
    columns = [pa.DictionaryArray.from_arrays(pa.array(rank), named)]
    for attribute, code in zip(schema.attributes, cells.codes, strict=True):
        columns.append(pa.DictionaryArray.from_arrays(pa.array(code[block]), pa.array(attribute.categories)))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def require_order(order: str) -> Order:
    """``order``, if it is "sorted" or "shuffled"; raises `ConfigError` otherwise."""
    if order == "sorted":
        return "sorted"
    if order == "shuffled":
        return "shuffled"
    raise ConfigError(f"order {shown(order)}: give 'sorted' (by GEOID) or 'shuffled'")
