"""Checks that records fit: how many there may be, and whether the disk has enough free space."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import ConfigError, DataError
from topdown.microdata import record_blocks
from topdown.microdata.record_blocks import MOST_SCATTERED, Order, RecordLayout, batch, part_writer, scattered_kind
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.wording import FAILED, reason, shown_path

MOST_FILES = 100_000
"""The most files of sorted records: their names have five digits."""
MOST_IN_MEMORY = 1 << 27
"""The most records of a shuffled file, which is permuted in memory, if there are too many records for files of the
usual size.
"""
_SAMPLED_BLOCKS = 8
_FILE_BYTES = 4096  # a file's footer, its line in the manifest, and the unused rest of its last disk block


def require_countable(count: int, order: Order, rows_per_file: int) -> None:
    """Raises `ConfigError` for more records than the files may hold."""
    if order == "sorted":
        files, rows = MOST_FILES, rows_per_file
    else:
        files, rows = MOST_SCATTERED, max(rows_per_file, MOST_IN_MEMORY)
    if count > min(files * rows, LARGEST_WHOLE):
        raise ConfigError(
            f"{count:,} records are more than {min(files * rows, LARGEST_WHOLE):,}, the most that {files:,} files of "
            f"{rows:,} hold ({order}); nothing was written: publish so many as counts only"
        )


def require_space(layout: RecordLayout, folder: Path) -> None:
    """Raises `DataError` if the disk of ``folder`` has less free space than the records need, estimated from a
    sample.
    """
    disk = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
    try:
        free = shutil.disk_usage(disk).free
    except OSError as error:
        raise DataError(f"{shown_path(folder)}: cannot be written: {reason(error, FAILED)}; correct the path") from None
    # No encoding needs more than this: with so much free space, no sample is needed.
    count, attributes = layout.cells.records, layout.schema.attributes
    longest = [pc.max(pc.binary_length(layout.geoids)).as_py() or 0]
    longest += [max(len(category.encode()) for category in attribute.categories) for attribute in attributes]
    if count * (8 + sum(16 + length for length in longest)) + (count // layout.rows_per_file + 1) * 2**16 < free:
        return
    needed = disk_needed(layout)
    if needed > free:
        raise DataError(
            f"{shown_path(folder)}: {count:,} records ({layout.order}) need about {needed / 2**20:,.1f} MiB of disk, "
            f"and {free / 2**20:,.1f} MiB are free; nothing was written: free some, or write to another disk"
        )


def disk_needed(layout: RecordLayout) -> int:
    """The approximate number of bytes: those of a sample of row groups, scaled to all records, or those of the
    temporary files if that is more.
    """
    cells, count, step = layout.cells, layout.cells.records, record_blocks.BLOCK
    if count == 0:
        return _FILE_BYTES
    files = -(-count // layout.rows_per_file)
    if layout.order == "sorted":
        chosen = np.unique(np.linspace(0, -(-count // step) - 1, _SAMPLED_BLOCKS).astype(np.int64))
        sample = [cells.between(int(k) * step, min((int(k) + 1) * step, count)) for k in chosen]
        least = 0
    else:
        # Only for an estimate: the records themselves are shuffled by another generator.
        drawn = np.random.default_rng(0).integers(0, count, min(count, step))
        sample = [np.searchsorted(cells.ends, drawn, side="right")]
        files, least = min(files, MOST_SCATTERED), np.dtype(scattered_kind(cells)).itemsize
    sink = pa.BufferOutputStream()
    with part_writer(sink, layout) as writer:
        for block in sample:
            writer.write_batch(batch(block, layout))
    each = int(sink.getvalue().size) / sum(map(len, sample))
    return round(count * max(each, least)) + files * _FILE_BYTES
