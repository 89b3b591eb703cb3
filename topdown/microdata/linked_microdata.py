"""Linked microdata: a row per household, and a row per person with the household's key; written, read and checked.

Who is described is made up. Households and persons belong together, and tabulate to what was released of both.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.linked.impossible import CountedCells, counted_at
from topdown.linked.link_text import facts_of
from topdown.linked.record_faults import LinkedRows, record_faults
from topdown.linked.universe import Universe
from topdown.machine.files import file_digest, whole_folder
from topdown.microdata.previous_output import INVENTORY, aside
from topdown.release.archive import STRAY
from topdown.release.linked_release import stated_universe
from topdown.release.manifest import MALFORMED, described_file
from topdown.release.partition import GEOGRAPHY
from topdown.release.whole_counts import Release
from topdown.tables.geography_table import geography_batches, read_geography
from topdown.tables.output_formats import part_name
from topdown.tables.tidy import named_failures, write_json, write_parquet
from topdown.wording import FETCH, listed, shown, shown_path
from topdown.workload.schema import Schema

_VERSION = "1.0"
_PART = part_name(0)
_ROWS_PER_GROUP = 1 << 20
_KEY, _UNIT = "household", "geoid"
STATEMENT = (
    "These rows are post-processing of the release: they were made from its tables alone, and they "
    "cost no budget beyond the release's. Whoever is described by them is made up; tabulated, they give back the "
    "release of both tables exactly."
)


@dataclass(frozen=True)
class LinkedDescription:
    """What linked microdata say of themselves: the ``schemas`` of both tables by name (arguments of
    `Schema.from_mapping`) and the ``link`` as the configuration has it, from which a reader makes the universe; the
    ``releases``' digests by table, and whether they are ``fit`` for release."""

    schemas: Mapping[str, Mapping[str, Any]]
    link: Mapping[str, Any]
    releases: Mapping[str, str] = field(default_factory=dict)
    fit: bool = False

    @property
    def universe(self) -> Universe:
        """The universe of the records. Raises `ConfigError` for a link that cannot be meant."""
        return stated_universe(self.schemas, self.link)


@dataclass(frozen=True, eq=False)
class LinkedMicrodata:
    """Linked microdata in memory: ``rows`` of both tables, and how many vacant units every leaf has (leaves,)."""

    description: LinkedDescription
    geography: Geography
    rows: LinkedRows = field(repr=False)
    vacant: IntArray = field(repr=False)

    def households(self, index: int) -> CountedCells:
        """The households at the nodes of a level, by cell of their schema."""
        return self._at(index, self.rows.leaf, self.rows.cell)

    def persons(self, index: int) -> CountedCells:
        """All persons at the nodes of a level, by cell of their schema."""
        return self._at(index, self.rows.whose, self.rows.person)

    def _at(self, index: int, leaf: IntArray, cells: IntArray) -> CountedCells:
        return CountedCells(ancestors(self.geography, index)[leaf], cells, np.ones(len(cells), np.int64))


def ancestors(geography: Geography, index: int) -> IntArray:
    """Of every leaf the unit of a level that it lies in, numbered from the level's first; (leaves,)."""
    leaves = geography.tree.leaves
    nodes = np.arange(leaves.start, leaves.stop)
    for _ in range(len(geography.levels) - 1 - index):
        nodes = np.asarray(geography.parent)[nodes]
    return np.asarray(nodes - geography.level_offsets[index], np.int64)


@dataclass(frozen=True, eq=False)
class LinkedCheck:
    """What was found in linked microdata.

    ``faults``: by what is wrong with records how many have it, those of none left out. ``results``: impossible and
    improbable results by level: ``level, result, impossible, among, found``.
    """

    households: int
    persons: int
    vacant: int
    faults: Mapping[str, int]
    results: pd.DataFrame

    @property
    def impossible(self) -> int:
        """How many records have a fault, and at how many nodes a result is impossible."""
        return sum(self.faults.values()) + int(self.results.loc[self.results["impossible"], "found"].sum())


def check_linked(microdata: LinkedMicrodata) -> LinkedCheck:
    """Look at every record, and at every unit of every level, for what cannot be and what hardly is."""
    universe, rows = microdata.description.universe, microdata.rows
    faults = {fault.said: int(fault.wrong.sum()) for fault in record_faults(universe, rows)}
    facts = facts_of(microdata.description.link)
    found = []
    for index in range(len(microdata.geography.levels)):
        tables = microdata.households(index), microdata.persons(index)
        found.append(pd.DataFrame(counted_at(universe, microdata.geography, index, *tables, facts)))
    return LinkedCheck(
        len(rows.leaf),
        len(rows.whose),
        int(microdata.vacant.sum()),
        {said: number for said, number in faults.items() if number},
        pd.concat(found, ignore_index=True),
    )


def write_linked(directory: str | Path, microdata: LinkedMicrodata) -> Path:
    """Write ``microdata`` to ``directory``, which appears complete: households/ (a row per unit: ``household, geoid``
    and the attributes, which a vacant unit has none of), persons/ (``household``, empty in a facility, ``geoid`` and
    the attributes), geography.parquet, and what describes them.

    Rows stand by unit, and within by household; keys are numbers in that order. Earlier linked microdata are replaced,
    and nothing else is. Raises `ConfigError` for a directory that holds anything else, `DataError` where it cannot be
    written, and for records with a fault, of which nothing is written.
    """
    directory = Path(directory)
    universe = microdata.description.universe
    for fault in record_faults(universe, microdata.rows):
        if fault.wrong.any():
            raise DataError(f"{shown_path(directory)}: {fault.said}; nothing was written")
    require_replaceable_linked(directory)
    marks = {"statement": STATEMENT, "fit for release": str(microdata.description.fit), "schema version": _VERSION}
    tables = {universe.names[0]: _household_rows(microdata), universe.names[1]: _person_rows(microdata)}
    with named_failures(directory), whole_folder(directory, aside=aside(directory)) as staging:
        files = [staging / GEOGRAPHY]
        write_parquet(files[0], geography_batches(microdata.geography), marks)
        for name, table in tables.items():
            (staging / name).mkdir()
            files.append(staging / name / _PART)
            pq.write_table(
                table.replace_schema_metadata(marks), files[-1], compression="zstd", row_group_size=_ROWS_PER_GROUP
            )
        write_json(
            staging / INVENTORY,
            {
                "schema_version": _VERSION,
                "statement": STATEMENT,
                "linked": {"schemas": microdata.description.schemas, "link": microdata.description.link},
                "releases": dict(microdata.description.releases),
                "fit_for_release": microdata.description.fit,
                "files": {path.relative_to(staging).as_posix(): described_file(path) for path in files},
            },
        )
    if aside(directory).exists():
        shutil.rmtree(aside(directory))
    return directory


def require_replaceable_linked(directory: Path) -> None:
    """Refuse to replace what is no linked microdata of ours, whole and with nothing else in it; neither there nor where
    it is kept while it is replaced."""
    for folder in (aside(directory), directory):
        _require_replaceable(folder)


def _require_replaceable(directory: Path) -> None:
    if not os.path.lexists(directory) or (directory.is_dir() and not any(directory.iterdir())):
        return
    try:
        listed_files = set(_described(directory)["files"]) | {INVENTORY}
    except DataError:
        listed_files = set()
    there = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir()}
    if directory.is_symlink() or not there or there != listed_files:
        raise ConfigError(
            f"{shown_path(directory)} holds other files than linked microdata; move it away, or give another directory"
        )


def _household_rows(microdata: LinkedMicrodata) -> pa.Table:
    universe, rows = microdata.description.universe, microdata.rows
    empty = np.repeat(np.arange(len(microdata.vacant)), microdata.vacant)
    leaf = np.concatenate([rows.leaf, empty])
    order = np.argsort(leaf, kind="stable")
    lived_in = pa.array(order < len(rows.leaf))
    columns = {_KEY: _keys(microdata), _UNIT: _codes(microdata.geography, leaf[order])}
    cells = np.concatenate([rows.cell, np.zeros(len(empty), np.int64)])[order]
    for name, values in _attributes(universe.households, cells).items():
        columns[name] = pc.if_else(lived_in, values, pa.scalar(None, pa.string()))
    return pa.table(columns)


def _keys(microdata: LinkedMicrodata) -> pa.Array:
    """The keys of all units, in the order of their rows."""
    n = len(microdata.rows.leaf) + int(microdata.vacant.sum())
    width = len(str(max(n, 1)))
    return pc.utf8_lpad(pa.array(np.arange(1, n + 1)).cast(pa.string()), width, "0")


def _person_rows(microdata: LinkedMicrodata) -> pa.Table:
    universe, rows = microdata.description.universe, microdata.rows
    empty = np.repeat(np.arange(len(microdata.vacant)), microdata.vacant)
    place = np.empty(len(rows.leaf) + len(empty), np.int64)
    place[np.argsort(np.concatenate([rows.leaf, empty]), kind="stable")] = np.arange(len(place))
    # Persons of a unit by household, those of facilities last; within by cell, of which the first is the householder's.
    of = np.where(rows.of >= 0, place[rows.of] if len(place) else 0, len(place))
    order = np.lexsort((rows.person, of, rows.whose))
    keys = _keys(microdata)
    inside = pa.array(rows.of[order] >= 0)
    if len(place) == 0:
        keys = pa.nulls(1, pa.string())
    taken = keys.take(pa.array(np.minimum(of[order], len(keys) - 1)))
    columns = {
        _KEY: pc.if_else(inside, taken, pa.scalar(None, pa.string())),
        _UNIT: _codes(microdata.geography, rows.whose[order]),
    }
    return pa.table(columns | _attributes(universe.persons, rows.person[order]))


def _codes(geography: Geography, leaf: IntArray) -> pa.Array:
    return geography.identifiers.take(pa.array(leaf + geography.tree.leaves.start))


def _attributes(schema: Schema, cells: IntArray) -> dict[str, pa.Array]:
    places = np.unravel_index(cells, schema.shape)
    return {
        one.name: pa.array(one.categories).take(pa.array(place))
        for one, place in zip(schema.attributes, places, strict=True)
    }


def read_linked(directory: str | Path) -> LinkedMicrodata:
    """The linked microdata in ``directory``, of which every file is what was written.

    Raises `DataError` for what is not: a file that is missing or another, a key twice or of no household, a unit that
    is not in its geography, a category that is not in its schema.
    """
    directory = Path(directory)
    found = _described(directory)
    for name, facts in found["files"].items():
        path = directory / name
        if not path.is_file() or file_digest(path) != facts["sha256"]:
            raise DataError(f"{shown_path(path)}: is not the file that {INVENTORY} lists; {FETCH}")
    files = (path for path in directory.rglob("*") if not path.is_dir() and path.name not in STRAY)
    there = {path.relative_to(directory).as_posix() for path in files}
    foreign = sorted(there - {INVENTORY, *found["files"]})
    if foreign:
        path = shown_path(directory / foreign[0])
        raise DataError(f"{path}: is no file of the microdata; remove it, or put it elsewhere")
    try:
        description = LinkedDescription(
            found["linked"]["schemas"], found["linked"]["link"], found["releases"], found["fit_for_release"]
        )
        universe = description.universe
    except MALFORMED as error:
        raise DataError(
            f"{shown_path(directory / INVENTORY)}: says no universe of both tables: {error}; {FETCH}"
        ) from None
    geography = read_geography(directory / GEOGRAPHY)
    homes = _read(directory / universe.names[0] / _PART, [_KEY, _UNIT, *universe.households.names])
    persons = _read(directory / universe.names[1] / _PART, [_KEY, _UNIT, *universe.persons.names])
    names = [shown_path(directory / name) for name in universe.names]
    vacant = np.logical_and.reduce([np.asarray(homes[name].is_null()) for name in universe.households.names])
    lived_in = homes.filter(pa.array(~vacant))
    leaf, cell = _located(lived_in, universe.households, geography, names[0])
    whose, person = _located(persons, universe.persons, geography, names[1])
    if pc.count_distinct(homes[_KEY], mode="all").as_py() != homes.num_rows or homes[_KEY].null_count:
        raise DataError(f"{names[0]}: a key is missing, or stands twice; {FETCH}")
    of = pc.index_in(persons[_KEY], value_set=lived_in[_KEY].combine_chunks())
    if (np.asarray(of.is_null()) & np.asarray(persons[_KEY].is_valid())).any():
        raise DataError(f"{names[1]}: a row has a key that none of {names[0]} has; {FETCH}")
    empty = _leaves(homes.filter(pa.array(vacant)), geography, names[0])
    return LinkedMicrodata(
        description,
        geography,
        LinkedRows(leaf, cell, whose, person, np.asarray(of.fill_null(-1).combine_chunks(), np.int64)),
        np.bincount(empty, minlength=geography.n_leaves),
    )


def _described(directory: Path) -> dict[str, Any]:
    path = directory / INVENTORY
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["schema_version"].split(".")[0] != _VERSION.split(".")[0] or not isinstance(found["files"], dict):
            raise ValueError
        _ = found["linked"]["link"], found["releases"], found["fit_for_release"]
    except (OSError, *MALFORMED):
        raise DataError(
            f"{shown_path(path)}: does not describe linked microdata of this version; give the folder microdata/ of a "
            "release of linked tables"
        ) from None
    return found


def _read(path: Path, columns: list[str]) -> pa.Table:
    try:
        table = pq.read_table(path, columns=columns)
    except (pa.ArrowException, OSError, KeyError):
        raise DataError(f"{shown_path(path)}: cannot be read as microdata; {FETCH}") from None
    if table.column_names != columns:
        raise DataError(f"{shown_path(path)}: has not the columns {listed(columns)}; {FETCH}")
    return pa.table({name: table[name].cast(pa.string()) for name in columns})


def _leaves(table: pa.Table, geography: Geography, what: str) -> IntArray:
    nodes = geography.index_of(table[_UNIT].combine_chunks())
    if (nodes < geography.tree.leaves.start).any():
        raise DataError(f"{what}: a unit is no leaf of {GEOGRAPHY}; {FETCH}")
    return np.asarray(nodes - geography.tree.leaves.start, np.int64)


def _located(table: pa.Table, schema: Schema, geography: Geography, what: str) -> tuple[IntArray, IntArray]:
    places = []
    for one in schema.attributes:
        code = pc.index_in(table[one.name], value_set=pa.array(one.categories))
        if code.null_count:
            raise DataError(f"{what}: {shown(one.name)} has a value that is not one of its categories; {FETCH}")
        places.append(np.asarray(code.combine_chunks(), np.int64))
    return _leaves(table, geography, what), np.asarray(np.ravel_multi_index(places, schema.shape), np.int64)


def tabulated(microdata: LinkedMicrodata) -> Iterator[tuple[str, IntArray, IntArray]]:
    """Of both tables the name, and the records as leaf * cells + cell, each once and in rising order, with their
    counts."""
    universe, rows = microdata.description.universe, microdata.rows
    for name, schema, leaf, cells in (
        (universe.names[0], universe.households, rows.leaf, rows.cell),
        (universe.names[1], universe.persons, rows.whose, rows.person),
    ):
        yield name, *np.unique(leaf * schema.n_cells + cells, return_counts=True)


def require_equal(microdata: LinkedMicrodata, releases: Mapping[str, Release]) -> None:
    """Refuse records that do not tabulate to the ``releases`` of both tables, by the tables' names. Raises `DataError`
    naming the unit and the cell."""
    for name, keys, counts in tabulated(microdata):
        release = releases[name]
        leaf, cells, numbers = release.entries_of(release.geography.tree.leaves)
        theirs, n_cells = leaf * release.schema.n_cells + cells, release.schema.n_cells
        place = np.minimum(np.searchsorted(theirs, keys), max(0, len(theirs) - 1))
        known = theirs[place] == keys if len(theirs) else np.zeros(len(keys), bool)
        found = np.zeros(len(theirs), np.int64)
        found[place[known]] = counts[known]
        wrong = np.concatenate([keys[~known], theirs[found != numbers]])
        if len(wrong) or release.geography != microdata.geography:
            unit, cell = divmod(int(wrong.min()), n_cells) if len(wrong) else (0, 0)
            where = release.geography.describe(release.geography.tree.leaves.start + unit)
            raise DataError(
                f"{where}: the records of {name} are not those of the release in cell "
                f"{shown(release.schema.cells(', ')[cell], 120)}; {FETCH}"
            )


def require_units(microdata: LinkedMicrodata, units: IntArray) -> None:
    """Refuse records of other numbers of units, lived in or vacant, than the public ``units`` (nodes,). Raises
    `DataError` naming the unit."""
    leaves = microdata.geography.tree.leaves
    there = np.bincount(microdata.rows.leaf, minlength=len(microdata.vacant)) + microdata.vacant
    wrong = np.flatnonzero(there != units[leaves])
    if len(wrong):
        at, (name, _) = int(wrong[0]), microdata.description.universe.names
        where, public = microdata.geography.describe(leaves.start + at), units[leaves.start + at]
        raise DataError(f"{where}: has {public:,} units, and the records of {name} are of {there[at]:,}; {FETCH}")


def is_linked(directory: str | Path) -> bool:
    """Whether ``directory`` says that it holds linked microdata."""
    try:
        return "linked" in json.loads((Path(directory) / INVENTORY).read_text(encoding="utf-8"))
    except (OSError, *MALFORMED):
        return False
