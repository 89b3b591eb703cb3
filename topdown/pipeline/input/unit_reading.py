"""Reads the units of a geography from the columns of a table, for every kind of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.confidential.counts import Counts
from topdown.config import GeographyOptions, RunConfig
from topdown.errors import ConfigError, DataError, GeographyError, nearest
from topdown.geography.geography import DEFAULT_ROOT, Geography
from topdown.geography.labels import as_text, code_shown, places_among, with_rows, without_decimals
from topdown.machine.progress import Stages
from topdown.pipeline.input.filling import filled
from topdown.pipeline.memory_needed import require_memory_for_units
from topdown.tables.format import PLAIN
from topdown.tables.number_marks import without_marks
from topdown.tables.parquet_folder import table_digest
from topdown.tables.readers import (
    UNREADABLE,
    extent_of,
    read_table,
    require_columns,
    require_file,
    row_named,
    table_columns,
)
from topdown.wording import reason, shown, shown_path, unquoted


class Units(NamedTuple):
    """The units of a run: their ``geography``; ``path``, the columns that identify a row's leaf; ``read``, those of
    these columns that were read already and are in memory until the counts are read.
    """

    geography: Geography
    path: Sequence[str]
    read: pa.Table


class InputShape(NamedTuple):
    """How tables with one kind of rows are read.

    ``opened``: opens the file and refuses an unsuitable one before anything is read; its result is passed to the
    others. ``units``: reads the units of the table itself, where there is no public list. ``counts``: reads the counts
    of these units, or of listed ones. ``digest``: of the file's content.
    """

    opened: Callable[[RunConfig, Stages], Any]
    units: Callable[[RunConfig, Any], Units]
    counts: Callable[[RunConfig, Units, Any, Stages], Counts]
    digest: Callable[[Path], str]


def file_or_folder_digest(path: Path) -> str:
    """SHA-256 of the table at ``path``, a file or a folder of Parquet files. Raises `DataError`, `OSError`."""
    return table_digest(require_file(path))


def digest_of(path: Path, setting: str, digest: Callable[[Path], str] = file_or_folder_digest) -> str:
    """The ``digest`` of what is at ``path``. Raises `DataError`, which names the ``setting``, where it cannot be
    read."""
    try:
        return digest(path)
    except OSError as error:
        raise DataError(f"{shown_path(path)}: cannot be read: {reason(error)}; correct {setting}") from None


def require_input_columns(config: RunConfig, _: Stages | None = None) -> None:
    """Refuse a table that lacks a counted column, or a column by which rows are chosen. Raises `DataError`."""
    wanted = present(config, config.input_path, [*config.counted_columns, *config.input.chosen_by])
    known = table_columns(config.input_path, config.input.form) if config.input.labels else []
    for name in config.input.labels:
        if name not in known:
            raise DataError(
                f"{shown_path(config.input_path)}: no column {shown(name)}, whose values input.labels explains"
                f"{nearest(name, known)}; correct the name, or take the labels out"
            )
    require_columns(config.input_path, wanted, config.input.form)


def geography_of(table: pa.Table, config: RunConfig) -> Geography:
    """The geography of ``table``'s units."""
    root, name = _root(table, config)
    if name is None:
        return _beneath(root, table, config)
    geography = _beneath(root, table.drop_columns([root_column(config)]), config)
    others = pa.nulls(geography.n_nodes, pa.string()) if geography.names is None else geography.names
    return dataclasses.replace(geography, names=pa.concat_arrays([pa.array([name]), others.slice(1)]))


def _beneath(root: str | None, table: pa.Table, config: RunConfig) -> Geography:
    """The geography of ``table``'s units beneath a ``root``; None where a column of its level names it."""
    options = config.geography
    if options.fill is not None and options.widths is not None:
        return Geography.from_table(table, options.level_names, root=root or DEFAULT_ROOT, name=options.names)
    if options.levels is not None:
        return Geography.from_table(table, options.levels, root=root, name=options.names, separator=options.separator)
    codes, widths = table[identifier_columns(config)[0]], options.widths or {}
    by_level = options.names if isinstance(options.names, dict) else {}
    of_leaves = by_level.get(next(reversed(widths))) if by_level else options.names
    geography = Geography.from_geoids(
        codes,
        widths,
        root=root or DEFAULT_ROOT,
        root_level=options.root_level,
        names=None if not isinstance(of_leaves, str) else table[of_leaves],
    )
    for level, name in by_level.items():
        if name != of_leaves:
            geography = _named(geography, level, widths[level], codes, table[name], name)
    return geography


def _named(
    geography: Geography, level: str, width: int, codes: pa.ChunkedArray, names: pa.ChunkedArray, column: str
) -> Geography:
    """``geography`` with the names that rows give to the units of an inner ``level``, by the prefixes of their codes.
    Raises `GeographyError` for a unit with two names.
    """
    units = pa.table(
        {"unit": pc.utf8_slice_codeunits(codes, 0, width), "name": as_text(names, f"column {shown(column)}")}
    ).filter(pc.greater_equal(pc.utf8_length(codes), width))
    each = units.group_by("unit").aggregate([("name", "min"), ("name", "max")])
    twice = np.flatnonzero(~np.asarray(pc.fill_null(pc.equal(each["name_min"], each["name_max"]), True)))
    if len(twice):
        unit = each["unit"][int(twice[0])].as_py()
        raise GeographyError(
            f"{unquoted(level)} {code_shown(unit, each['unit'].combine_chunks())} has two names in column "
            f"{shown(column)}; give it one in all of its rows"
        )
    known = geography.names if geography.names is not None else pa.nulls(geography.n_nodes, pa.string())
    found = each["name_min"].combine_chunks().take(pc.index_in(geography.identifiers, value_set=each["unit"]))
    here = np.zeros(geography.n_nodes, bool)
    here[geography.level_slice(level)] = True
    return dataclasses.replace(geography, names=pc.if_else(pa.array(here), found, known))


def _root(table: pa.Table, config: RunConfig) -> tuple[str | None, str | None]:
    """The identifier of the root and, where a column of its level has it, its name.

    The identifier is given by the configuration, or by the column, which may not contradict it. If all codes of the
    level below begin with the configuration's value, that value is the root's code, and the column's value its name (37
    and North Carolina).
    """
    options = config.geography
    level = root_column(config)
    if level not in table.column_names:
        if options.levels is not None and options.root is None:
            raise GeographyError(
                f"no column {shown(level)}, which geography.levels names for the root; correct the name, or where the "
                f'table has no such column, give the root\'s own name, as geography.root = "{DEFAULT_ROOT}"'
            )
        return options.root, None
    if options.levels is not None and options.root is None:
        return None, None
    said = pc.unique(as_text(table[level], f"column {shown(level)}"))
    if not len(said):
        return options.root, None
    if len(said) != 1 or not said[0].is_valid:
        if options.root is not None:
            return options.root, None
        values = f"{len(said):,} values" if said.null_count == 0 else "rows in which it is missing"
        raise GeographyError(
            f"column {shown(level)} is of the root's level and has {values}; give the root's name in "
            "geography.root, and where the column is something else, its level another name in geography.root_level"
        )
    name = str(said[0].as_py())
    if options.root in (None, name):
        return name, None
    # A code that was stored as a number.
    if name.removesuffix(".0") == options.root:
        return options.root, options.root
    below = identifier_columns(config)[0 if options.levels is None else min(1, len(options.levels) - 1)]
    codes = pc.unique(as_text(table[below], f"column {shown(below)}").drop_null())
    if below != level and pc.all(pc.starts_with(codes, str(options.root))).as_py():
        return options.root, name
    raise GeographyError(
        f"geography.root is {shown(options.root)}, but column {shown(level)} has another value; leave "
        f"geography.root out, "
        f"correct one of them, or where the root lies above {shown(level)}, give its level another name in "
        "geography.root_level"
    )


def listed_units(path: Path, config: RunConfig, stages: Stages) -> Geography:
    """The geography of the public list of units at ``path``, which has the columns that identify and name them."""
    options = config.geography
    require_memory_for_units_of(path, config)
    wanted = [root_column(config), *identifier_columns(config), *name_columns(options)]
    table = read_table(path, present(config, path, wanted))
    stages.say(f"rows      {table.num_rows:,} of {shown_path(path)}")
    try:
        return geography_of(filled(as_said(table, config), config), config)
    except GeographyError as error:
        said = error if error.row is None else error.at(row_named(path, error.row))
        raise GeographyError(f"{shown_path(path)}: {said}") from None


def name_columns(options: GeographyOptions) -> list[str]:
    """The columns that hold names."""
    if isinstance(options.names, dict):
        return list(options.names.values())
    return [] if options.names is None else [options.names]


def path_columns(config: RunConfig, known: Sequence[str]) -> list[str]:
    """The columns whose values, joined where there are several, identify a row's leaf."""
    identifiers = identifier_columns(config)
    if config.geography.fill is not None:
        identifiers = config.geography.level_names
    if config.geography.separator is None:
        return identifiers[-1:]
    return [name for name in identifiers[1:] if name in known] or identifiers[-1:]


def identifier_columns(config: RunConfig) -> list[str]:
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


def present(config: RunConfig, path: Path, wanted: Sequence[str]) -> list[str]:
    """``wanted``, each once, without columns that the table may lack: the root's, and those by which rows are chosen,
    which are checked later.
    """
    known = set(table_columns(path, config.input.form if path == config.input_path else PLAIN))
    dispensable = {root_column(config), *config.input.chosen_by}
    return [name for name in dict.fromkeys(wanted) if name in known or name not in dispensable]


def root_column(config: RunConfig) -> str:
    """The column that may name the root."""
    options = config.geography
    return options.root_level if options.levels is None else options.levels[0]


def rows_chosen(table: pa.Table, config: RunConfig) -> tuple[pa.Array | None, set[tuple[str, str]]]:
    """Which rows of ``table`` input.where and input.leave_out choose, None for all; and the values of the latter that
    rows have, each with its column.
    """
    found, met = None, set[tuple[str, str]]()
    for name, value in config.input.where.items():
        one = pc.is_valid(places_among(as_text(table[name], f"input.where: column {shown(name)}"), [value]))
        found = one if found is None else pc.and_(found, one)
    for name, some in config.input.leave_out.items():
        text = pc.fill_null(as_text(table[name], f"input.leave_out: column {shown(name)}"), "")
        values = [some] if isinstance(some, str) else some
        places = places_among(text, values)
        met |= {(name, values[place]) for place in pc.unique(places.drop_null()).to_pylist()}
        one = pc.is_null(places)
        found = one if found is None else pc.and_(found, one)
    return found, met


def as_said(table: pa.Table, config: RunConfig) -> pa.Table:
    """``table`` with codes, labels and numbers converted as the configuration says: codes get their zeros
    (input.pad_zeros), values their labels (input.labels), and counts lose their marks (input.decimal, input.thousands).
    """
    table_input = config.input
    for name, width in table_input.pad_zeros.items():
        if name in table.column_names:
            whole = without_decimals(as_text(table[name], f"input.pad_zeros: column {shown(name)}"))
            longest = pc.max(pc.utf8_length(whole)).as_py() or 0
            if longest > width:
                raise DataError(
                    f"input.pad_zeros of {shown(name)} is {width}, and the column has codes of {longest} characters; "
                    "give the length that all of them have with their zeros"
                )
            table = _replaced(table, name, pc.utf8_lpad(whole, width, "0"))
    for name, labels in table_input.labels.items():
        if name in table.column_names:
            text = as_text(table[name], f"input.labels: column {shown(name)}")
            place = places_among(text, list(labels))
            named = pa.array(list(labels.values())).take(place)
            table = _replaced(table, name, pc.if_else(pc.is_valid(place), named, text))
    counted = table_input.cells if table_input.kind.cells_are_columns else [table_input.count or ""]
    for name in counted if table_input.form != PLAIN else ():
        if name in table.column_names and pa.types.is_string(table[name].type):
            text = as_text(table[name], f"column {shown(name)}")
            table = _replaced(table, name, without_marks(text, table_input.form))
    return table


def _replaced(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def input_table(config: RunConfig, wanted: Sequence[str]) -> pa.Table:
    """The columns ``wanted`` of the confidential table, except those that it may lack; the chosen rows, converted by
    `as_said`.
    """
    path = config.input_path
    table = read_table(path, present(config, path, wanted), form=config.input.form)
    for name in config.input.chosen_by:
        if name not in table.column_names:
            said = "where" if name in config.input.where else "leave_out"
            raise DataError(f"{shown_path(path)}: no column {shown(name)}, by which input.{said} chooses rows")
    chosen, met = rows_chosen(table, config)
    if chosen is not None:
        table = with_rows(table, chosen)
        require_rows(table.num_rows, met, config)
    return as_said(table, config)


def require_rows(rows: int, met: Container[tuple[str, str]], config: RunConfig) -> None:
    """Refuse a choice of rows that leaves none, and values of input.leave_out that no row has: what was to be left out,
    such as totals, would be counted. ``rows``: how many are chosen; ``met``: as of `rows_chosen`. Raises `DataError`.
    """
    for name, some in config.input.leave_out.items():
        for value in [some] if isinstance(some, str) else some:
            if (name, value) not in met:
                raise DataError(
                    f"{shown_path(config.input_path)}: no row has {shown(value)} in column {shown(name)}; correct "
                    "input.leave_out"
                )
    if not rows:
        said = [f"{unquoted(name)} = {shown(value)}" for name, value in config.input.where.items()]
        raise DataError(
            f"{shown_path(config.input_path)}: no row has {' and '.join(said)}; correct input.where"
            if said
            else f"{shown_path(config.input_path)}: every row is left out; correct input.leave_out"
        )


@contextmanager
def rows_by_line(config: RunConfig, *, of_file: bool = True) -> Iterator[None]:
    """Errors about a row of the confidential table name its line in the file, whichever rows were chosen; none where
    the rows are not ``of_file`` but of units that were collected from it.
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
    if config.input.chosen_by:
        chosen, _ = rows_chosen(read_table(path, config.input.chosen_by, form=form), config)
        row = int(np.flatnonzero(np.asarray(chosen))[row])
    raise found.at(row_named(path, row, form))


def require_memory_for_units_of(path: Path, config: RunConfig) -> None:
    """Refuse a table whose units need more memory than is available even with the shortest names."""
    require_file(path)
    # The number of units is not known where rows are chosen, or where units have many rows.
    by_row = path == config.units_path or (config.input.kind.of_leaf == 1 and not config.input.chosen_by)
    if by_row:
        try:
            rows = extent_of(path, [], config.input.form if path == config.input_path else PLAIN).rows
        except UNREADABLE:
            # Errors in the file are reported by its reader.
            return
        require_memory_for_units(config, rows, len(identifier_columns(config)))
