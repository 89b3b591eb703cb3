"""Assignments of units to districts: block assignment files, as the Census Bureau and mapping programs write them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.geography.labels import as_frame, as_strings, as_text, column
from topdown.geography.tree import IntArray
from topdown.tables.readers import read_table, separated, table_columns
from topdown.wording import column_names, joined, shown, shown_path

Given = str | Path | Mapping[str, str] | Any
"""A file, the district of every unit, or a table of two columns: units and their districts."""
Files = str | Path | Sequence[str | Path]
"""One file or several, each called as it is without its suffix."""


class Assignment(NamedTuple):
    """Which district every unit of one ``level`` is in: the ``districts`` by name and the ``nodes`` of each, the nodes
    of the level that are ``unassigned``, and how many units of the file are ``unknown`` to the release.
    """

    name: str
    level: str
    districts: tuple[str, ...]
    nodes: tuple[IntArray, ...]
    unassigned: IntArray
    unknown: int

    def notes(self, n_units: int) -> list[str]:
        """Sentences on what the reader has to know; ``n_units``: how many units the level has."""
        found = []
        if len(self.unassigned):
            found.append(
                f"{self.name}: {len(self.unassigned):,} of {n_units:,} units of level {shown(self.level)} are assigned "
                "to no district; their sum is the row without a region"
            )
        if self.unknown:
            found.append(f"{self.name}: units that are not in the release and were left out: {self.unknown:,}")
        return found


class UnitsAndDistricts(NamedTuple):
    """The rows of an assignment, Arrow text without blanks around it: every ``unit``, and its ``district`` ("" where it
    has none)."""

    unit: pa.Array
    district: pa.Array


def assigned_units(path: Path, geography: Geography, district: Sequence[str] = ()) -> UnitsAndDistricts:
    """An assignment's units and districts: of the first column, and of the second, or of a table of more columns those
    called ``district``, joined.

    Text may be separated by "|", commas, tabs or semicolons. Raises `DataError` for a table of one column, of more than
    two where none is named, for a unit of ``geography`` in the place of the first column's name, and for one that is
    given twice.
    """
    form = separated(path)
    columns = table_columns(path, form)
    first = columns[0].strip()
    if geography.index_of([first])[0] >= 0:
        raise DataError(
            f"{shown_path(path)}: its first line has unit {shown(first)} in place of names of columns; put a line of "
            "names above it, such as unit|district"
        )
    # Files with two columns leave no choice, whatever columns are named for others.
    wanted = list(district) if district and len(columns) > 2 else columns[1:2]
    if len(columns) < 2:
        raise DataError(f"{shown_path(path)}: has one column; give units in the first and districts in the second")
    if len(columns) > 2 and not district:
        raise DataError(
            f"{shown_path(path)}: has {column_names(columns)}, and it is not clear which of them has the districts; "
            "give a table of units and their districts alone (topdown aggregate: or name one or several columns of "
            "districts, such as --district COUNTYFP --district DISTRICT)"
        )
    table = read_table(path, [columns[0], *wanted], form=form)
    unit, *parts = (
        _stripped(as_text(table[name], f"{shown_path(path)}: column {shown(name)}")) for name in [columns[0], *wanted]
    )
    joined_parts = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "")
    rows = UnitsAndDistricts(unit, joined_parts)
    if pc.count_distinct(unit).as_py() < len(unit):
        counted = pc.value_counts(unit)
        again = pc.struct_field(counted, "values").filter(pc.greater(pc.struct_field(counted, "counts"), 1))
        raise DataError(f"{shown_path(path)}: unit {shown(again[0].as_py())} is assigned twice; assign every unit once")
    return rows


def _stripped(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.utf8_trim_whitespace(column), "")


def assignment(
    name: str, given: Given, geography: Geography, *, district: Sequence[str] = (), skip_unknown: bool = False
) -> Assignment:
    """The assignment ``given`` of units of one level of ``geography``; a unit without a district is unassigned.

    Raises `DataError` as `assigned_units`, and naming one for units that are not in the geography, unless
    ``skip_unknown``, and for units of several levels.
    """
    if isinstance(given, Mapping):
        where = f"assignment {shown(name)}"
        rows = UnitsAndDistricts(as_strings([*given], where), _stripped(as_text([*given.values()], where)))
    elif isinstance(given, str | Path):
        rows, where = assigned_units(Path(given), geography, district), shown_path(Path(given))
    else:
        where = f"assignment {shown(name)}"
        rows = _of_table(given, where)
    if not len(rows.unit):
        raise DataError(f"{where}: has no units; give a row for every unit")
    nodes = geography.index_of(rows.unit)
    missing = nodes < 0
    if missing.all() or (missing.any() and not skip_unknown):
        unit = shown(rows.unit[int(np.argmax(missing))].as_py())
        if missing.all():
            raise DataError(
                f"{where}: none of its units, such as {unit}, is in the geography; give its GEOIDs, as text with their "
                "leading zeros"
            )
        raise DataError(
            f"{where}: {int(missing.sum()):,} of {len(nodes):,} units are not in the geography, such as {unit}; "
            "correct the file, or leave them out (topdown aggregate: by --skip-unknown)"
        )
    kept, found = nodes[~missing], rows.district.dictionary_encode()
    levels = np.searchsorted(geography.level_offsets, kept, side="right") - 1
    if (levels != levels[0]).any():
        among = joined([geography.levels[k] for k in np.unique(levels)])
        raise DataError(f"{where}: its units are of several levels ({among}); assign those of one level")
    level = geography.levels[int(levels[0])]
    code = found.indices.to_numpy(zero_copy_only=False)[~missing]
    # Districts are in the order of their names, whatever the order of the rows; "" is none.
    texts_of = found.dictionary.to_pylist()
    there = np.bincount(code, minlength=len(texts_of)) > 0
    names = sorted(text for text, has in zip(texts_of, there.tolist(), strict=True) if text and has)
    rank = {text: number for number, text in enumerate(names)}
    place = np.array([rank.get(text, -1) for text in texts_of], np.int64)[code]
    order = np.argsort(place, kind="stable")
    cuts = np.searchsorted(place[order], np.arange(len(names) + 1))
    members = tuple(kept[order[begin:end]] for begin, end in itertools.pairwise(cuts.tolist()))
    part = geography.level_slice(level)
    has = np.zeros(part.stop - part.start, np.bool_)
    has[kept[place >= 0] - part.start] = True
    return Assignment(name, level, tuple(names), members, part.start + np.flatnonzero(~has), int(missing.sum()))


def _of_table(given: Any, where: str) -> UnitsAndDistricts:
    """The rows of a table in memory: of "leaf" and "area", or of two columns of any name. Raises `DataError`."""
    table = as_frame(given)
    names = list(table.column_names) if isinstance(table, pa.Table) else list(getattr(table, "columns", ()))
    chosen = ["leaf", "area"] if {"leaf", "area"} <= {*names} else names
    if len(chosen) != 2:
        raise DataError(
            f"{where}: give a file, {{unit: district}}, or a table of two columns, units and their districts"
            + (f"; this one has {column_names(names)}" if names else f", not a {type(given).__name__}")
        )
    unit, own = (column(table, name) for name in chosen)
    return UnitsAndDistricts(as_strings(unit, where), _stripped(as_text(own, where)))


def assignments(
    given: Files | Mapping[str, Given],
    geography: Geography,
    *,
    district: Sequence[str] = (),
    skip_unknown: bool = False,
) -> list[Assignment]:
    """One `assignment` or several, by their names; the name of a file is its name without the suffix. Raises
    `ConfigError` where none is given, or two have the same name.
    """
    if isinstance(given, Mapping):
        named = list(given.items())
    else:
        files = [given] if isinstance(given, str | Path) else list(given)
        named = [(kind_of(Path(one)), one) for one in files]
    if not named:
        raise ConfigError("no assignment is given; name at least one file of units and their districts")
    names = [name for name, _ in named]
    twice = next((name for k, name in enumerate(names) if name in names[:k]), None)
    if twice is not None:
        raise ConfigError(f"two assignments are called {shown(twice)}; rename one of the files")
    return [assignment(name, one, geography, district=district, skip_unknown=skip_unknown) for name, one in named]


def kind_of(path: Path) -> str:
    """What the areas in a file are called: as the file is, without its suffix."""
    return path.name.split(".")[0]


def areas_of(given: Files | Mapping[str, Given], geography: Geography) -> list[Assignment]:
    """The `assignments` of areas of several kinds, each with at least one area; empty where none is given.

    Raises `ConfigError` and `DataError` as these, `ConfigError` for a kind that is called as a level is, and
    `DataError` for one without an area.
    """
    return _with_areas(assignments(given, geography) if given else [], geography)


def areas_in(paths: Mapping[str, Path], geography: Geography) -> list[Assignment]:
    """As `areas_of`, of a table for every kind: of one of more than two columns the one that is called as the kind."""
    return _with_areas([assignment(kind, path, geography, district=[kind]) for kind, path in paths.items()], geography)


def _with_areas(found: list[Assignment], geography: Geography) -> list[Assignment]:
    for one in found:
        if one.name in geography.levels:
            raise ConfigError(
                f"areas {shown(one.name)} are called as a level is; give the table of these areas another name"
            )
        if not one.districts:
            raise DataError(f"areas {shown(one.name)}: has no unit with an area; give a row for every unit")
    return found
