"""Fills in the missing levels of leaves at different depths, before units and counts are read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.config import RunConfig
from topdown.geography.codes import checked_lengths
from topdown.geography.geography import DEFAULT_ROOT
from topdown.geography.labels import as_strings
from topdown.geography.table import repeat_down
from topdown.wording import shown


def filled(table: pa.Table, config: RunConfig) -> pa.Table:
    """``table`` with a column for every level in which no value is missing, if ``config`` asks for this; otherwise
    unchanged.

    Raises `GeographyError` naming the row, as `repeat_down` does, and for codes of another width.
    """
    options = config.geography
    if options.fill is None:
        return table
    levels = options.level_names
    root = pa.array([options.root or DEFAULT_ROOT]).take(pa.array(np.zeros(table.num_rows, np.int64)))
    if options.widths is None:
        parts = [
            as_strings(table[level], f"column {shown(level)}") if level in table.column_names else root
            for level in levels
        ]
    else:
        codes = as_strings(table[config.input.geoid or ""], f"column {shown(config.input.geoid)}")
        lengths = checked_lengths(codes, options.widths)
        none = pa.scalar(None, pa.string())
        pieces = [
            pc.if_else(pa.array(lengths >= width), pc.utf8_slice_codeunits(codes, 0, width), none)
            for width in options.widths.values()
        ]
        parts = [root, *pieces]
    found = repeat_down(parts, levels, by_path=options.separator is not None)
    # If no column names the root, its name is given elsewhere.
    for level, values in list(zip(levels, found, strict=True))[levels[0] not in table.column_names :]:
        if level in table.column_names:
            table = table.set_column(table.column_names.index(level), level, values)
        else:
            table = table.append_column(level, values)
    return table
