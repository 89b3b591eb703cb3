"""From the configuration's table to a geography and confidential counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.confidential.counts import Counts
from topdown.confidential.overlap import require_disjoint
from topdown.config import GeographyOptions, RunConfig
from topdown.errors import ConfigError, DataError, GeographyError
from topdown.geography.construction import as_text, in_one_piece, with_rows
from topdown.geography.geography import DEFAULT_ROOT, Geography
from topdown.machine.progress import Silent, Stages
from topdown.pipeline.filling import filled
from topdown.pipeline.memory_needed import Extent, require_memory_for_units
from topdown.pipeline.record_reading import counts_of_records, unit_rows
from topdown.pipeline.redistricting_reading import counts_of, file_of, units_of
from topdown.tables import pl94
from topdown.tables.format import PLAIN
from topdown.tables.parquet_folder import table_digest
from topdown.tables.readers import (
    UNREADABLE,
    changed,
    read_table,
    require_columns,
    require_file,
    row_named,
    table_columns,
)
from topdown.wording import reason, shown, shown_path, unquoted


def read_input(
    config: RunConfig,
    stages: Stages | None = None,
    *,
    before_counts: Callable[[Geography, int], object] | None = None,
) -> tuple[Geography, Counts]:
    """The geography and the confidential counts of ``config``'s table.

    Where there is a public list of units the geography is that list's, and a unit without a row in the table has counts
    of 0. Units are read first. ``before_counts``: what is called then, before a count is read, with the geography and
    the bytes that are held until the counts are read; it may refuse. Cells that are sums of other cells, and units that
    are sums of their siblings, are refused unless ``config`` calls them disjoint. How many rows were read is said of
    tables with a row for every unit that is published, and of no other: of records, and of a table that may lack units
    of a list, it is confidential. Raises `DataError` (`GeographyError`, `CountsError`) with the node, the level, the
    value and the remedy.
    """
    options, stages = config.geography, stages or Silent()
    identifiers = _identifier_columns(config)
    if config.input.rows == "pl94":
        file = file_of(config, stages)
        geography = units_of(config, file) if config.units_path is None else _listed(config.units_path, config, stages)
        if before_counts is not None:
            before_counts(geography, 0)
        return geography, counts_of(config, file, geography)
    wanted = _present(config, config.input_path, [*config.counted_columns, *config.input.where])
    require_columns(config.input_path, wanted, config.input.form)
    known = pa.table({})  # columns by which the rows of counts are found
    if config.units_path is None:
        _require_memory_for_units(config.input_path, config)
        wanted = [_root_column(config), *identifiers, *_name_columns(options), *config.input.where]
        if config.input.rows == "leaves":
            table = _in_one_piece(_input_table(config, wanted))
            with _rows_by_line(config):
                table = filled(table, config)
        else:
            units = [_root_column(config), *identifiers]
            table = unit_rows(config, _present(config, config.input_path, units), _name_columns(options))
        with _rows_by_line(config, of_file=config.input.rows == "leaves"):
            geography = _geography(table, config)
        path = _path_columns(config, table.column_names)
        if config.input.rows == "leaves" and options.fill is None:
            known = table.select([name for name in path if name not in config.input.where])
        del table
    else:
        geography = _listed(config.units_path, config, stages)
        path = _path_columns(config, identifiers)
    if before_counts is not None:
        before_counts(geography, known.nbytes)
    if config.input.rows != "leaves":
        with _rows_by_line(config):
            counts = counts_of_records(config, geography, path)
        _require_disjoint(config, counts)
        return geography, counts
    wanted = [*(path if options.fill is None else identifiers), *config.input.cells, *config.input.where]
    table = _input_table(config, [name for name in wanted if name not in known.column_names])
    if known.num_columns and known.num_rows != table.num_rows:
        raise changed(config.input_path)
    if config.units_path is None:
        chosen = ", as input.where chooses" if config.input.where else ""
        stages.say(f"rows      {table.num_rows:,} of {shown_path(config.input_path)}{chosen}")
    for name in known.column_names:
        table = table.append_column(name, known[name])
    with _rows_by_line(config):
        table = filled(table, config)
        counts = Counts.from_table(
            table,
            geography,
            geoid=path if len(path) > 1 else path[0],
            cells=config.input.cells,
            separator=options.separator or "/",
            absent="refuse" if config.units_path is None else "zero",
            schema=config.schema_of_cells if config.has_schema else None,
        )
    del table, known
    _require_disjoint(config, counts)
    return geography, counts


def _require_disjoint(config: RunConfig, counts: Counts) -> None:
    # A record in a row of its own is in one cell whatever the counts are.
    if not config.input.assume_disjoint and config.input.rows != "records":
        require_disjoint(counts)


def _geography(table: pa.Table, config: RunConfig) -> Geography:
    """The geography of ``table``'s units."""
    options, root = config.geography, _root(table, config)
    if options.fill is not None and options.widths is not None:
        return Geography.from_table(table, options.level_names, root=root or DEFAULT_ROOT, name=options.names)
    if options.levels is not None:
        return Geography.from_table(table, options.levels, root=root, name=options.names, separator=options.separator)
    names = _name_columns(options)
    return Geography.from_geoids(
        table[_identifier_columns(config)[0]],
        options.widths or {},
        root=root or DEFAULT_ROOT,
        root_level=options.root_level,
        names=table[names[0]] if names else None,
    )


def _root(table: pa.Table, config: RunConfig) -> str | None:
    """What the root is called: by the configuration, or by a column of its level, which it may not contradict."""
    options = config.geography
    level = _root_column(config)
    if level not in table.column_names:
        if options.levels is not None and options.root is None:
            raise GeographyError(
                f"no column {shown(level)}, which geography.levels names for the root; correct the name, or where the "
                f'table has no such column, give the root\'s own name, as geography.root = "{DEFAULT_ROOT}"'
            )
        return options.root
    if options.levels is not None:
        return options.root
    said = pc.unique(as_text(table[level], f"column {shown(level)}"))
    if not len(said):
        return options.root
    if len(said) != 1 or not said[0].is_valid:
        if options.root is not None:
            return options.root
        raise GeographyError(
            f"column {shown(level)} is of the root's level and has {len(said):,} values; give the root's name in "
            "geography.root, and where the column is something else, its level another name in geography.root_level"
        )
    name = str(said[0].as_py())
    if options.root not in (None, name):
        raise GeographyError(
            f"geography.root is {shown(options.root)}, and column {shown(level)} says otherwise; leave geography.root "
            "out, or correct one of them"
        )
    return name


def _listed(path: Path, config: RunConfig, stages: Stages) -> Geography:
    """The geography of the public list of units at ``path``, which has the columns that identify and name them."""
    options = config.geography
    _require_memory_for_units(path, config)
    wanted = [_root_column(config), *_identifier_columns(config), *_name_columns(options)]
    table = read_table(path, _present(config, path, wanted))
    stages.say(f"rows      {table.num_rows:,} of {shown_path(path)}")
    try:
        return _geography(filled(table, config), config)
    except GeographyError as error:
        said = error if error.row is None else error.at(row_named(path, error.row))
        raise GeographyError(f"{shown_path(path)}: {said}") from None


def _name_columns(options: GeographyOptions) -> list[str]:
    """The columns that hold names."""
    if isinstance(options.names, dict):
        return list(options.names.values())
    return [] if options.names is None else [options.names]


def _path_columns(config: RunConfig, known: Sequence[str]) -> list[str]:
    """The columns whose values, joined where there are several, identify a row's leaf."""
    identifiers = _identifier_columns(config)
    if config.geography.fill is not None:
        identifiers = config.geography.level_names
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
    known = set(table_columns(path, config.input.form if path == config.input_path else PLAIN))
    dispensable = {_root_column(config), *config.input.where}
    return [name for name in dict.fromkeys(wanted) if name in known or name not in dispensable]


def _root_column(config: RunConfig) -> str:
    """The column that may say what the root is called."""
    options = config.geography
    return options.root_level if options.levels is None else options.levels[0]


def _input_table(config: RunConfig, wanted: Sequence[str]) -> pa.Table:
    """The columns ``wanted`` of the confidential table, as far as it may not lack them; the rows that are chosen."""
    path = config.input_path
    table = read_table(path, _present(config, path, wanted), form=config.input.form)
    for name, value in config.input.where.items():
        if name not in table.column_names:
            raise DataError(f"{shown_path(path)}: no column {shown(name)}, by which input.where chooses rows")
        table = with_rows(table, _chosen(table, name, value))
        if table.num_rows == 0:
            raise DataError(f"{shown_path(path)}: no row has {unquoted(name)} = {shown(value)}; correct input.where")
    return table


def _in_one_piece(table: pa.Table) -> pa.Table:
    """``table`` with every text column in one piece: of one in several each of its readers would make a copy."""
    columns = {name: table[name] for name in table.column_names}
    for name, column in columns.items():
        if pa.types.is_string(column.type) and column.nbytes <= np.iinfo(np.int32).max:
            columns[name] = in_one_piece(column.chunks)
    return pa.table(columns)


def _chosen(table: pa.Table, name: str, value: str) -> pa.Array:
    return pc.equal(as_text(table[name], f"input.where: column {shown(name)}"), value)


@contextmanager
def _rows_by_line(config: RunConfig, *, of_file: bool = True) -> Iterator[None]:
    """Errors about a row of the confidential table name its line in the file, whichever rows were chosen; where the
    rows are not ``of_file`` but of units that were gathered from it, none.
    """
    try:
        yield
        return
    except DataError as error:
        if error.row is None:
            raise
        if not of_file:
            raise error.at("a row") from None
        found, row = error, error.row
    path, form = config.input_path, config.input.form
    if config.input.where:
        table = read_table(path, list(config.input.where), form=form)
        chosen = [np.asarray(pc.fill_null(_chosen(table, *one), False)) for one in config.input.where.items()]
        row = int(np.flatnonzero(np.all(chosen, axis=0))[row])
    raise found.at(row_named(path, row, form))


def input_digest(config: RunConfig) -> str:
    """SHA-256 of the input file. Raises `DataError` where it cannot be read."""
    try:
        path = config.input_path
        return pl94.digest(path) if config.input.rows == "pl94" else table_digest(require_file(path))
    except OSError as error:
        raise DataError(
            f"{shown_path(config.input_path)}: cannot be read: {reason(error)}; correct input.path"
        ) from None


def units_digest(config: RunConfig) -> str | None:
    """SHA-256 of the public list of units, None where there is none. Raises `DataError` where it cannot be read."""
    if config.units_path is None:
        return None
    try:
        return table_digest(require_file(config.units_path))
    except OSError as error:
        raise DataError(
            f"{shown_path(config.units_path)}: cannot be read: {reason(error)}; correct geography.units"
        ) from None


def _require_memory_for_units(path: Path, config: RunConfig) -> None:
    """Refuse a table whose units alone, however short their names, need more memory than there is."""
    require_file(path)
    # Of rows that are chosen, and of units that have many, nobody knows how many there will be.
    by_row = path == config.units_path or (config.input.rows == "leaves" and not config.input.where)
    if by_row:
        try:
            rows = Extent.of(path, [], config.input.form if path == config.input_path else PLAIN).rows
        except UNREADABLE:
            return  # what is wrong with the file is for the reader to say
        require_memory_for_units(config, rows, len(_identifier_columns(config)))
