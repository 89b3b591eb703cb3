"""The release with one row per unit and one column per cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from topdown.errors import ConfigError
from topdown.release.release import Release
from topdown.tables.geography_table import geography_batches
from topdown.wording import shown

TOTAL = "total"
_UNIT = ("geoid", "level", "parent", "name")


def wide_columns(cells: Sequence[str]) -> list[str]:
    """The columns of a wide table of these cells: the unit, the cells and, of several, their total.

    Raises `ConfigError` for a cell that is called as one of the others.
    """
    found = [*_UNIT, *cells, *([TOTAL] if len(cells) > 1 else [])]
    for cell in cells:
        if found.count(cell) > 1:
            raise ConfigError(
                f"cell {shown(cell)} is called as another column of the wide table; rename it, or leave output.wide out"
            )
    return found


def wide_batches(release: Release) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, parent, name, *cells[, total]`` of every unit, in batches.

    Raises `ConfigError` as `wide_columns` does.
    """
    columns = wide_columns(release.cells)
    begin = 0
    for units in geography_batches(release.geography):
        values = release.values[begin : begin + units.num_rows]
        begin += units.num_rows
        counts = [pa.array(values[:, k]) for k in range(values.shape[1])]
        if len(counts) > 1:
            counts.append(pa.array(values.sum(axis=1)))
        yield pa.RecordBatch.from_arrays([*units.columns, *counts], columns)
