"""Reads privacy-protected microdata files as counts; tabulated, they give the release that they were made from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from topdown.census.layouts.ppmf_layout import BLOCK, file_of_columns, names_there, records
from topdown.census.layouts.redistricting_layout import WIDTHS
from topdown.confidential.counts import Counts
from topdown.errors import DataError
from topdown.geography.geography import DEFAULT_ROOT, Geography
from topdown.privacy.presets import PRESETS
from topdown.tables.readers import require_file, separated, table_batches, table_columns
from topdown.wording import shown_path


def read_ppmf(path: str | Path, geography: Geography | None = None) -> Counts:
    """The counts of a privacy-protected microdata file of 2020, of persons (2,016 cells) or of housing units (2).

    A block without a record has 0. Raises `DataError` naming row and column of what is not of the layout,
    `CountsError` for a block that the geography does not have.

    Args:
        path: comma- or "|"-separated text with a header, the older one too (VINTAGE, TABTRACT), or Parquet.
        geography: its leaves are blocks of 15 digits; by default that of the blocks which have a record, from the state
            (or, with several states, the nation) down.

    Examples:
        >>> blocks = {"county": ["44001"], "tract": ["44001030100"], "block": ["440010301001000"]}
        >>> geography = td.Geography.from_table(blocks, levels=["county", "tract", "block"])
        >>> units = td.Schema.from_mapping({"h1": ["vacant", "occupied"]})
        >>> homes = td.Release.of_values(
        ...     geography, units.cells(), np.array([[1, 3]] * 3), method="joint", fit_for_release=False, schema=units
        ... )
        >>> td.read_ppmf(td.write_ppmf(homes, "units.csv")).values[0]
        array([1, 3])
    """
    path = require_file(path)
    form = separated(path)
    named = table_columns(path, form)
    file = file_of_columns(named, shown_path(path))
    preset = next(name for name, one in PRESETS.items() if one.schema.attributes == file.schema.attributes)
    if geography is None:
        batches = table_batches(path, names_there(file, named), form=form, kept=False)
        geography = _geography(path, records(file, batches, shown_path(path)))
    return Counts.from_records(path, geography, preset=preset)


def _geography(path: Path, rows: Iterator[pa.RecordBatch]) -> Geography:
    """The geography of the blocks that have a record among the ``rows`` of the file at ``path``."""
    found: pa.Array = pa.array([], pa.string())
    for batch in rows:
        found = pc.unique(pa.concat_arrays([found, pc.unique(batch[BLOCK])]))
    if not len(found):
        raise DataError(f"{shown_path(path)}: has no records, and so no blocks; give the geography")
    columns = {level: pc.utf8_slice_codeunits(found, 0, width) for level, width in WIDTHS.items()}
    if len(pc.unique(columns["state"])) == 1:
        return Geography.from_table(pa.table(columns), list(WIDTHS))
    return Geography.from_table(pa.table(columns), ["us", *WIDTHS], root=DEFAULT_ROOT)
