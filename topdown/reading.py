"""From the configuration's table to a geography and confidential counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.config import GeographyOptions, RunConfig
from topdown.construction import as_text, with_rows
from topdown.counts import Counts
from topdown.errors import ConfigError, DataError, GeographyError
from topdown.files import file_digest
from topdown.geography import Geography
from topdown.memory import available_memory
from topdown.readers import read_table, require_file, table_columns
from topdown.wording import reason, shown, shown_path, unquoted

_BYTES_PER_ROW = 150
_BYTES_PER_CELL = 120
"""Peak memory of a run, as measured on 8 million leaves, by leaf and by leaf and cell."""


def read_input(config: RunConfig) -> tuple[Geography, Counts]:
    """The geography and the confidential counts of ``config``'s table.

    Where there is a public list of units the geography is that list's, and a unit without a row in the table has counts
    of 0. Raises `DataError` (`GeographyError`, `CountsError`) with the node, the level, the value and the remedy.
    """
    options = config.geography
    identifiers = _identifier_columns(config)
    require_memory(config.input_path, len(config.input.cells))
    if config.units_path is None:
        wanted = [*identifiers, *config.input.cells, *_name_columns(options), *config.input.where]
        table = read_table(config.input_path, _present(config, config.input_path, wanted))
        table = _filtered(table, config)
        geography = _geography(table, config)
        path = _path_columns(config, table.column_names)
    else:
        geography = _listed(config.units_path, config)
        path = _path_columns(config, identifiers)
        wanted = [*path, *config.input.cells, *config.input.where]
        table = _filtered(read_table(config.input_path, _present(config, config.input_path, wanted)), config)
    # What only the geography needed is let go.
    table = table.select(list(dict.fromkeys([*path, *config.input.cells])))
    counts = Counts.from_table(
        table,
        geography,
        geoid=path if len(path) > 1 else path[0],
        cells=config.input.cells,
        separator=options.separator or "/",
        absent="refuse" if config.units_path is None else "zero",
        schema=config.schema_of_cells if config.has_schema else None,
    )
    return geography, counts


def _geography(table: pa.Table, config: RunConfig) -> Geography:
    """The geography of ``table``'s units."""
    options = config.geography
    if options.levels is not None:
        return Geography.from_table(
            table, options.levels, root=options.root, name=options.names, separator=options.separator
        )
    names = _name_columns(options)
    return Geography.from_geoids(
        table[_identifier_columns(config)[0]],
        options.widths or {},
        root=options.root,
        root_level=options.root_level,
        names=table[names[0]] if names else None,
    )


def _listed(path: Path, config: RunConfig) -> Geography:
    """The geography of the public list of units at ``path``, which has the columns that identify and name them."""
    options = config.geography
    require_memory(path, len(config.input.cells))
    wanted = [*_identifier_columns(config), *_name_columns(options)]
    table = read_table(path, _present(config, path, wanted))
    try:
        return _geography(table, config)
    except GeographyError as error:
        raise GeographyError(f"{shown_path(path)}: {error}") from None


def _name_columns(options: GeographyOptions) -> list[str]:
    """The columns that hold names."""
    if isinstance(options.names, dict):
        return list(options.names.values())
    return [] if options.names is None else [options.names]


def _path_columns(config: RunConfig, known: Sequence[str]) -> list[str]:
    """The columns whose values, joined where there are several, identify a row's leaf."""
    identifiers = _identifier_columns(config)
    if config.geography.separator is None:
        return identifiers[-1:]
    return [name for name in identifiers[1:] if name in known] or identifiers[-1:]


def _identifier_columns(config: RunConfig) -> list[str]:
    """The columns that identify a row's unit: all the levels', or the one with codes."""
    if config.geography.levels is not None:
        if config.input.geoid not in (None, config.geography.levels[-1]):
            raise ConfigError(
                f"input.geoid is {shown(config.input.geoid)}, and with geography.levels the leaves are identified by "
                f"their column {shown(config.geography.levels[-1])}; leave input.geoid out"
            )
        return config.geography.levels
    if config.input.geoid is None:
        raise ConfigError("input.geoid is missing: with widths, name the column that holds the codes")
    return [config.input.geoid]


def _present(config: RunConfig, path: Path, wanted: Sequence[str]) -> list[str]:
    """``wanted``, each once, without what the table may lack: the root's column; those of ``input.where`` are missed
    later.
    """
    known = set(table_columns(path))
    dispensable = {*(config.geography.levels or [])[:1], *config.input.where}
    return [name for name in dict.fromkeys(wanted) if name in known or name not in dispensable]


def _filtered(table: pa.Table, config: RunConfig) -> pa.Table:
    """The rows whose columns have the values of ``input.where``."""
    for name, value in config.input.where.items():
        if name not in table.column_names:
            raise DataError(
                f"{shown_path(config.input_path)}: no column {shown(name)}, by which input.where chooses rows"
            )
        table = with_rows(table, pc.equal(as_text(table[name], f"input.where: column {shown(name)}"), value))
        if table.num_rows == 0:
            raise DataError(
                f"{shown_path(config.input_path)}: no row has {unquoted(name)} = {shown(value)}; correct input.where"
            )
    return table


def input_digest(config: RunConfig) -> str:
    """SHA-256 of the input file. Raises `DataError` where it cannot be read."""
    try:
        return file_digest(require_file(config.input_path))
    except OSError as error:
        raise DataError(
            f"{shown_path(config.input_path)}: cannot be read: {reason(error)}; correct input.path"
        ) from None


def units_digest(config: RunConfig) -> str | None:
    """SHA-256 of the public list of units, None where there is none. Raises `DataError` where it cannot be read."""
    if config.units_path is None:
        return None
    try:
        return file_digest(require_file(config.units_path))
    except OSError as error:
        raise DataError(
            f"{shown_path(config.units_path)}: cannot be read: {reason(error)}; correct geography.units"
        ) from None


def require_memory(path: Path, cells: int) -> None:
    """Refuse a table for which a run would need more memory than there is, before any work is done.

    The need is estimated from the number of rows, which a CSV file does not tell: there from its size.
    """
    require_file(path)
    try:
        rows = pq.ParquetFile(path).metadata.num_rows if path.suffix == ".parquet" else _csv_rows(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return  # what is wrong with the file is for the reader to say
    needed = rows * (_BYTES_PER_ROW + _BYTES_PER_CELL * cells)
    available = available_memory()
    if available is not None and needed > available:
        raise DataError(
            f"{shown_path(path)}: a run on about {rows:,} rows x {cells} cells needs about {needed / 2**30:.1f} GiB of "
            f"memory, and {available / 2**30:.1f} GiB are free; free some, use a larger machine, or publish fewer "
            "cells at once"
        )


def _csv_rows(path: Path) -> int:
    """About how many rows a CSV file has: its size over the mean length of its first lines."""
    if path.suffix == ".gz":
        return path.stat().st_size // 4
    with path.open("rb") as file:
        lines = file.readlines(1 << 16)
    return path.stat().st_size * len(lines) // max(1, sum(map(len, lines)))
