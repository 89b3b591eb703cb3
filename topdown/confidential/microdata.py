"""Records in the columns of the Census Bureau's privacy-protected microdata, counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from topdown.confidential.entries import Entries
from topdown.confidential.records import batches_of_frame, count_records
from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.privacy.presets import preset as preset_of
from topdown.tables.ppmf import BLOCK, file_of_columns, file_of_schema, records
from topdown.tables.readers import require_file, separated, table_batches, table_columns
from topdown.wording import shown, shown_path
from topdown.workload import Schema


def held_of_microdata(frame: Any, geography: Geography, preset: str) -> tuple[IntArray | Entries, Schema]:
    """The counts of records of the schema of ``preset``, in a table in memory or at a path, and that schema.

    Raises `ConfigError` for a preset whose schema has no such file, `DataError` for what is not of the layout.
    """
    schema = preset_of(preset).schema
    file = file_of_schema(schema)
    if file is None:
        raise ConfigError(
            f"preset {shown(preset)} has no privacy-protected microdata file of its schema; name the columns"
        )
    wanted = [name for name in file.columns if name != "EPNUM"]
    what = shown_path(frame) if isinstance(frame, str | Path) else "the records"
    if isinstance(frame, str | Path):
        path = require_file(frame)
        form = separated(path)
        file_of_columns(table_columns(path, form), what)
        batches: Iterator[pa.RecordBatch] = table_batches(path, wanted, form=form, kept=False)
    else:
        batches = batches_of_frame(frame, wanted)
    counted = count_records(records(file, batches, what), geography, geoid=[BLOCK], cells=schema.cells(), schema=schema)
    return counted, schema
