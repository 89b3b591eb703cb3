"""Reads units and confidential counts from a table with a row for every leaf."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from topdown.confidential.counts import Counts
from topdown.config import RunConfig
from topdown.geography.labels import in_one_piece
from topdown.machine.progress import Stages
from topdown.pipeline.input.filling import filled
from topdown.pipeline.input.unit_reading import (
    InputShape,
    Units,
    file_or_folder_digest,
    geography_of,
    identifier_columns,
    input_table,
    name_columns,
    path_columns,
    require_input_columns,
    require_memory_for_units_of,
    root_column,
    rows_by_line,
)
from topdown.tables.readers import changed
from topdown.wording import shown_path


def _units(config: RunConfig, _: None) -> Units:
    require_memory_for_units_of(config.input_path, config)
    options = config.geography
    wanted = [root_column(config), *identifier_columns(config), *name_columns(options), *config.input.chosen_by]
    table = _in_one_piece(input_table(config, wanted))
    with rows_by_line(config):
        table = filled(table, config)
        geography = geography_of(table, config)
    path = path_columns(config, table.column_names)
    kept = [] if options.fill is not None else [name for name in path if name not in config.input.chosen_by]
    return Units(geography, path, table.select(kept))


def _counts(config: RunConfig, units: Units, _: None, stages: Stages) -> Counts:
    options, (geography, path, read) = config.geography, units
    identifiers = path if options.fill is None else identifier_columns(config)
    wanted = [*identifiers, *config.input.cells, *config.input.chosen_by]
    table = input_table(config, [name for name in wanted if name not in read.column_names])
    if read.num_columns and read.num_rows != table.num_rows:
        raise changed(config.input_path)
    if config.units_path is None:
        by = [name for name in ("where", "leave_out") if getattr(config.input, name)]
        chosen = f", as {' and '.join(f'input.{name}' for name in by)} choose{'s' * (len(by) == 1)}" if by else ""
        stages.say(f"rows      {table.num_rows:,} of {shown_path(config.input_path)}{chosen}")
    for name in read.column_names:
        table = table.append_column(name, read[name])
    return Counts.from_table(
        filled(table, config),
        geography,
        geoid=path if len(path) > 1 else path[0],
        cells=config.input.cells,
        separator="/" if options.separator is None else options.separator,
        absent="refuse" if config.units_path is None else "zero",
        schema=config.schema_of_cells if config.has_schema else None,
    )


def _in_one_piece(table: pa.Table) -> pa.Table:
    """``table`` with every text column in one piece; each reader of a column in several pieces would copy it."""
    columns = {name: table[name] for name in table.column_names}
    for name, column in columns.items():
        if pa.types.is_string(column.type) and column.nbytes <= np.iinfo(np.int32).max:
            columns[name] = in_one_piece(column.chunks)
    return pa.table(columns)


LEAVES = InputShape(require_input_columns, _units, _counts, file_or_folder_digest)
"""A row for every unit of the lowest level, with a column for every cell."""
