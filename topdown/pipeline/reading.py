"""From the configuration's table to a geography and confidential counts."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.confidential.counts import Counts
from topdown.confidential.overlap import require_disjoint
from topdown.config import GeographyOptions, RunConfig, StudyConfig
from topdown.errors import ConfigError, DataError, GeographyError
from topdown.geography.construction import as_text, in_one_piece, with_rows
from topdown.geography.geography import DEFAULT_ROOT, Geography
from topdown.machine.allocation import give_back
from topdown.machine.memory import about, available_memory, gibibytes, held_memory, most_held
from topdown.machine.parallel import available_workers
from topdown.machine.progress import Silent, Stages
from topdown.noise.exact.thresholds import prepare
from topdown.pipeline.filling import filled
from topdown.pipeline.memory_estimate import Work, needed_by_stage, peak_memory
from topdown.pipeline.part_estimate import Needed, needed, of_a_row
from topdown.pipeline.part_plan import goes_in_parts, where_to_cut
from topdown.pipeline.record_reading import counts_of_records, unit_rows
from topdown.pipeline.redistricting_reading import counts_of, file_of, units_of
from topdown.pipeline.rehearsal import load_loops
from topdown.privacy.only_child import levels_taken
from topdown.tables import pl94
from topdown.tables.excel import excel_rows
from topdown.tables.format import PLAIN, Format, kind_of
from topdown.tables.parquet_folder import parts_of, table_digest
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
from topdown.workload.answer_tables import answer_tables

_COMPILING = 400 << 20
"""What loops take until they are compiled, at most."""

_EXCEL_WIDTH = 16.0
"""Bytes of a value from a workbook, a short text or a number."""

_ROWS_OF_A_LEAF = {"leaves": 1, "pl94": 7}
"""How many rows stand for a leaf where that is public: of a redistricting file the cells of a block that are not 0."""

_RECORDS_AT_ONCE = 1 << 21
"""Of records, or long rows, so many are held at once, at most."""

_TYPICAL_WIDTH = 16
"""Bytes of a value in a column of counts, for who may not look at the file."""

_LIBRARIES, _LOOPS = 256 << 20, 96 << 20
"""What a process holds before it reads a table: libraries, and the loops that several queries need."""

_LARGEST_SAID = 1 << 40
"""A figure beyond this is of all cells, of which but few can have records: it says nothing of a run."""

_LEAST_BYTES_PER_LEVEL = 13
"""What a row takes at least in every column of units while the tree is built: a text of one letter, and its number."""


def read_input(
    config: RunConfig,
    stages: Stages | None = None,
    *,
    workers: int | None = None,
    part_size: int | None = None,
    loaded: Callable[[], object] | None = None,
) -> tuple[Geography, Counts]:
    """The geography and the confidential counts of ``config``'s table.

    Where there is a public list of units the geography is that list's, and a unit without a row in the table has counts
    of 0. Units are read first, and counts when it is known what memory a run on so many units takes with ``workers``
    threads, or in parts (``part_size``); ``stages`` is told. ``loaded``: what waits until libraries are loaded that the
    run needs, before memory is weighed. Cells that are sums of other cells, and units that are sums of their siblings,
    are refused unless ``config`` calls them disjoint. How many rows were read is said of tables with a row for every
    unit that is published, and of no other: of records, and of a table that may lack units of a list, it is
    confidential. Raises `DataError` (`GeographyError`, `CountsError`) with the
    node, the level, the value and the remedy.
    """
    options, stages = config.geography, stages or Silent()
    identifiers = _identifier_columns(config)
    if config.input.rows == "pl94":
        file = file_of(config, stages)
        geography = units_of(config, file) if config.units_path is None else _listed(config.units_path, config, stages)
        require_memory(config, geography, identifiers, stages, workers, part_size, loaded=loaded)
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
    require_memory(config, geography, path, stages, workers, part_size, known.nbytes, loaded=loaded)
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


def require_memory(
    config: RunConfig,
    geography: Geography,
    path: Sequence[str],
    stages: Stages,
    workers: int | None,
    part_size: int | None = None,
    read: int = 0,
    loaded: Callable[[], object] | None = None,
) -> None:
    """Refuse what needs more memory than there is, before a count is read; tell ``stages`` about how much a run takes.

    ``path``: the columns by which rows are found, of which so many bytes are ``read``, and go when the counts are. Of a
    study only what reading takes is known. ``loaded``: as in `read_input`.
    """
    if loaded is not None:
        loaded()
    in_parts = goes_in_parts(config, geography.n_nodes, part_size)
    if config.by_family and not in_parts and not isinstance(config, StudyConfig):
        # Where an allocation fails within its compiler, nobody can say so: the process ends.
        _refuse_beyond(_COMPILING, config, f"several queries takes, for its compiler alone, {gibibytes(_COMPILING)}")
        load_loops()
    if not isinstance(config, StudyConfig):
        prepare(geography.n_nodes * len(config.input.cells))
    give_back()
    work, held = _work(config, geography, path, workers), held_memory() - read
    if in_parts and len(geography.levels) > 2:
        peak = needed_in_parts(config, geography, part_size).memory(held, work.threads)
        stages.say(f"memory    a run in parts takes {_said_in_parts(config, geography, part_size, work.threads)}")
    elif isinstance(config, StudyConfig):
        peak = held + needed_by_stage(geography.tree, work)["reading"]
    else:
        peak = peak_memory(geography.tree, work, held, most_held())
        stages.say(f"memory    a run takes {_said(config, geography, work)}")
    _refuse_beyond(peak - held, config, f"{geography.n_nodes:,} units x {work.cells} cells takes more than there is")


def _said(config: RunConfig, geography: Geography, work: Work) -> str:
    """How much memory a run takes, in words, from what is public: units, cells and configuration.

    Neither the table's records nor what this process took to read them are in it.
    """
    rows = {"leaves": geography.n_leaves, "pl94": 0}.get(config.input.rows, _RECORDS_AT_ONCE)
    columns = len(config.counted_columns) + len(config.input.where)
    width = _TYPICAL_WIDTH * columns + geography.identifiers.nbytes / geography.n_nodes
    public = replace(work, rows=rows, row_bytes=width)
    return _about(peak_memory(geography.tree, public, held=_held_before(config), most=0))


def _said_in_parts(config: RunConfig, geography: Geography, part_size: int | None, workers: int) -> str:
    """How much memory and disk a run in parts takes, as `_said`, and what every row of the table takes beside."""
    found = needed_in_parts(config, geography, part_size, public=True)
    memory = _about(found.memory(_held_before(config), workers))
    said = f"{memory}, {_about(found.worker)} a worker, and {_about(found.disk)} of disk"
    if config.input.rows in _ROWS_OF_A_LEAF:
        return said
    each, on_disk = of_a_row(csv=config.output.csv)
    return f"{said}; beside that every row of the table takes {each} bytes of memory and {on_disk} of disk"


def _about(size: int) -> str:
    return f"about {about(size)}" if size < _LARGEST_SAID else "as much as the number of cells with records asks for"


def _held_before(config: RunConfig) -> int:
    """What a process holds before it reads a table."""
    return _LIBRARIES + config.by_family * _LOOPS


def needed_in_parts(config: RunConfig, geography: Geography, part_size: int | None, *, public: bool = False) -> Needed:
    """What a run in parts takes of memory and disk; ``public``: with any number of rows, where their number is
    confidential."""
    schema, form = config.schema_of_cells, config.input.rows
    plan = config.plan().for_levels(geography.levels).for_schema(schema)
    columns = sum(len(table.columns) for table in answer_tables(config.output.tables, schema))
    rows: int | None = None
    if form == "pl94" or (public and form in _ROWS_OF_A_LEAF):
        rows = _ROWS_OF_A_LEAF[form] * geography.n_leaves
    elif not public:
        rows = _Extent.of(config.input_path, [], config.input.form).rows
    cut = where_to_cut(geography, None, part_size)
    return needed(geography.tree, schema, plan, geography.levels, cut, rows, csv=config.output.csv, columns=columns)


def _require_memory_for_units(path: Path, config: RunConfig) -> None:
    """Refuse a table whose units alone, however short their names, need more memory than there is."""
    form = config.input.form if path == config.input_path else PLAIN
    require_file(path)
    try:
        rows = _Extent.of(path, [], form).rows
    except UNREADABLE:
        return  # what is wrong with the file is for the reader to say
    # Of rows that are chosen, and of units that have many, nobody knows how many there will be.
    by_row = path == config.units_path or (config.input.rows == "leaves" and not config.input.where)
    levels = len(_identifier_columns(config)) if by_row else 0
    needed = rows * _LEAST_BYTES_PER_LEVEL * levels
    _refuse_beyond(needed, config, "so many rows takes more than there is")


def _refuse_beyond(needed: int, config: RunConfig, what: str) -> None:
    """Refuse a run on ``what`` that needs more memory than there is; how much it needs, nobody is told."""
    available = available_memory()
    if available is not None and needed > available:
        raise DataError(
            f"{shown_path(config.input_path)}: a run on {what} of memory, and {gibibytes(available)} are free; free "
            "some, use a larger machine, or publish fewer cells at once"
        )


def _work(config: RunConfig, geography: Geography, path: Sequence[str], workers: int | None) -> Work:
    """What the run is that ``config`` describes, for `topdown.memory_estimate`."""
    columns = [*config.counted_columns, *config.input.where]
    is_read = config.input.rows != "pl94"  # else it was, and weighed by whoever did it
    extent = _Extent.of(config.input_path, columns, config.input.form) if is_read else _Extent(0, 0.0)
    texts: int = geography.identifiers.nbytes
    plan = config.plan().for_levels(geography.levels)
    variances = [plan.variance(level) for level in geography.levels if not config.asks_queries]
    given = levels_taken(plan, geography) < 0
    # Rows that are chosen, one for every leaf, are a copy beside the table that they are chosen from.
    copied = min(1.0, geography.n_leaves / max(1, extent.rows)) if config.input.where else 0.0
    rows = extent.rows if config.input.rows == "leaves" else min(extent.rows, _RECORDS_AT_ONCE)
    return Work(
        rows=rows,
        row_bytes=extent.row_bytes * (1.0 + copied) + texts / geography.n_nodes,
        cells=len(config.input.cells),
        units_text=texts,
        names_text=0 if geography.names is None else geography.names.nbytes,
        method=config.projection.method,
        csv=config.output.csv,
        bounds=tuple({plan.bounds.at(level).kind for level in geography.levels}),
        on_grid=plan.released_grid_bits > 0,
        invariants=bool(plan.invariants),
        unmeasured=bool(np.isinf(variances).any() or given.any()),
        open_leaves=bool(np.isinf(variances[-1:]).any() or given[geography.tree.leaves].any()),
        margins=not plan.bounds.any and not config.by_family,
        threads=available_workers() if workers is None else workers,
        by_family=config.by_family,
        columns=[len(table.columns) for table in answer_tables(config.output.tables, config.schema_of_cells)],
        redistricting=not is_read,
    )


class _Extent(NamedTuple):
    """About how many ``rows`` a table has, and how many bytes of it are held for a row once columns are read."""

    rows: int
    row_bytes: float

    @classmethod
    def of(cls, path: Path, columns: Sequence[str], form: Format) -> _Extent:
        if kind_of(path) == ".xlsx":
            return cls(excel_rows(path, form), _EXCEL_WIDTH * len(columns))
        if kind_of(path) == ".parquet":
            parts = parts_of(path)
            schema = pq.read_schema(parts[0])
            rows = sum(pq.read_metadata(part).num_rows for part in parts)
            return cls(rows, sum(map(_width, (schema.field(name).type for name in columns))))
        size = path.stat().st_size
        packed_by_gzip = path.suffix.lower() == ".gz"
        if packed_by_gzip:
            with path.open("rb") as packed:
                packed.seek(-4, 2)
                size = max(size, int.from_bytes(packed.read(4), "little"))  # the last thing that gzip writes
        with gzip.open(path) if packed_by_gzip else path.open("rb") as file:
            lines = file.readlines(1 << 16)
        line = max(1.0, sum(map(len, lines)) / max(1, len(lines)))
        return cls(int(size / line), line + 4 * len(columns))


def _width(kind: pa.DataType) -> float:
    """Bytes of a value in a column of counts."""
    try:
        return float(kind.bit_width) / 8
    except ValueError:
        return 16.0  # a text of a number
