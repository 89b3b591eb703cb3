"""Reads units and confidential counts from a table with many rows per leaf, records or long, in two passes over its
batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from topdown.confidential.counts import Counts
from topdown.confidential.records import count_records
from topdown.config import RunConfig
from topdown.errors import DataError, GeographyError
from topdown.geography.labels import as_strings, as_text, plain, with_rows
from topdown.machine.progress import Stages
from topdown.pipeline.input.unit_reading import (
    InputShape,
    Units,
    as_said,
    file_or_folder_digest,
    geography_of,
    identifier_columns,
    name_columns,
    path_columns,
    present,
    require_input_columns,
    require_memory_for_units_of,
    require_rows,
    root_column,
    rows_by_line,
    rows_chosen,
)
from topdown.tables.readers import require_file, table_batches, table_columns
from topdown.wording import listed, shown, shown_path

_UNITS_AT_ONCE = 1 << 20


def unit_rows(config: RunConfig, identifiers: Sequence[str], names: Sequence[str]) -> pa.Table:
    """One row for every unit of the table: its ``identifiers`` and ``names``.

    Raises `GeographyError` for a unit with two names.
    """
    wanted = list(dict.fromkeys([*identifiers, *names]))
    others = [name for name in wanted if name not in identifiers]
    held: list[pa.Table] = []
    most = _UNITS_AT_ONCE
    for batch in chosen_batches(config, wanted):
        texts = {name: as_text if name in others else plain for name in wanted}
        held.append(
            _each_once(pa.table({name: read(batch[name], f"column {shown(name)}") for name, read in texts.items()}))
        )
        if sum(one.num_rows for one in held) > most:
            held = [_each_once(pa.concat_tables(held))]
            # The limit is doubled, so that many units are merged only a few times.
            most = max(_UNITS_AT_ONCE, 2 * held[0].num_rows)
    found = _each_once(pa.concat_tables(held))
    units = found.group_by(list(identifiers)).aggregate([(name, how) for name in others for how in ("min", "max")])
    for name in others:
        if not pc.all(pc.fill_null(pc.equal(units[f"{name}_min"], units[f"{name}_max"]), True)).as_py():
            raise GeographyError(f"column {shown(name)} calls one unit by two names; give it one in all of its rows")
    columns = [*(units[name] for name in identifiers), *(units[f"{name}_min"] for name in others)]
    return pa.table(columns, [*identifiers, *others])


def _each_once(table: pa.Table) -> pa.Table:
    """The rows of ``table``, each once. Raises `GeographyError` naming a column of what Arrow cannot compare."""
    try:
        return table.group_by(table.column_names).aggregate([])
    except pa.ArrowNotImplementedError:
        pass
    for name in table.column_names:
        as_strings(table[name], f"column {shown(name)}")
    raise GeographyError(f"columns {listed(table.column_names)} cannot be compared; give text")


def _units(config: RunConfig, _: None) -> Units:
    require_memory_for_units_of(config.input_path, config)
    units = present(config, config.input_path, [root_column(config), *identifier_columns(config)])
    table = unit_rows(config, units, name_columns(config.geography))
    with rows_by_line(config, of_file=False):
        geography = geography_of(table, config)
    return Units(geography, path_columns(config, table.column_names), pa.table({}))


def _counts(config: RunConfig, units: Units, _: None, __: Stages) -> Counts:
    geography, path, _ = units
    wanted = list(dict.fromkeys([*path, *config.counted_columns]))
    if config.input.rows == "records":
        _require_no_counts(config, wanted)
    schema = config.schema_of_cells if config.has_schema else None
    cells = tuple(config.input.cells) if schema is None or not config.on_supports else schema.cells()
    held = count_records(
        chosen_batches(config, wanted),
        geography,
        geoid=path,
        cells=cells,
        schema=schema,
        count=config.input.count,
        separator="/" if config.geography.separator is None else config.geography.separator,
    )
    return Counts(geography, cells, held, schema)


_COUNT_WORDS = ("count", "counts", "n", "freq", "frequency", "cases", "persons", "people", "population", "pop")
"""Usual names of columns with the number of records that a row stands for."""


def _require_no_counts(config: RunConfig, used: Sequence[str]) -> None:
    """Refuse a table of records that has a column of counts above 1: each row would count as one record, and the noise
    would protect one record where the row stands for many. Raises `DataError`.
    """
    known = table_columns(config.input_path, config.input.form)
    for name in known:
        if name in used or name.lower() not in _COUNT_WORDS:
            continue
        for batch in chosen_batches(config, [name]):
            if pa.types.is_integer(batch[name].type):
                numbers = batch[name]
            else:
                text = as_text(batch[name], f"column {shown(name)}")
                numbers = pc.if_else(pc.fill_null(pc.utf8_is_digit(text), False), text, None)
            if pc.any(pc.greater(pc.cast(numbers, pa.float64()), 1)).as_py():
                raise DataError(
                    f"{shown_path(config.input_path)}: rows are records, each of which counts once, and column "
                    f'{shown(name)} holds numbers above 1: if it says how many a row stands for, write rows = "long" '
                    f"and count = {shown(name)}; if not, leave the column out of the table"
                )


def chosen_batches(config: RunConfig, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns ``wanted`` of the chosen rows, converted by `as_said`, batch by batch."""
    path, by = require_file(config.input_path), config.input.chosen_by
    columns = list(dict.fromkeys([*wanted, *by]))
    rows, met = 0, set[tuple[str, str]]()
    for batch in table_batches(path, columns, form=config.input.form, kept=False):
        table = pa.Table.from_batches([batch])
        mask, also = rows_chosen(table, config)
        if mask is not None:
            table = with_rows(table, mask)
        met |= also
        rows += table.num_rows
        chosen = as_said(table.select(list(wanted)), config)
        yield from chosen.to_batches() or [pa.RecordBatch.from_pylist([], chosen.schema)]
    if by:
        require_rows(rows, met, config)


RECORDS = InputShape(require_input_columns, _units, _counts, file_or_folder_digest)
"""A row for every record, or, with a column of counts, for every unit and category; its batches are read twice."""
