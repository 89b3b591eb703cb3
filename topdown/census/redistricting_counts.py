"""Reads a redistricting file (P.L. 94-171) as counts: its geography, its tables, and the histogram that they
determine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from topdown.census.layouts.redistricting_layout import (
    HEADER,
    LEVELS,
    SEGMENTS,
    WIDTHS,
    numbers,
    read_members,
    sums_within,
)
from topdown.confidential.counts import Counts
from topdown.errors import CountsError, DataError, require_known
from topdown.geography.geography import Geography
from topdown.wording import listed, shown, shown_path
from topdown.workload.redistricting import FIELD_OF_RACE, PERSONS, RESIDENCES, TABLES, UNITS, VOTERS, field_names
from topdown.workload.schema import Schema

_SEGMENT_OF = {table: segment for segment, tables in SEGMENTS.items() for table in tables}


@dataclass(frozen=True, eq=False)
class Redistricting:
    """The content of a redistricting file; as confidential as any counts.

    ``geography``: the units of the spine down to the lowest summary level that is there, by GEOCODE, with their names.
    ``partial``: a description of the levels of which the file has only some units, so that they do not add up to the
    level above: the records of the upper levels then differ from the sums in ``histogram`` and the geography.
    """

    geography: Geography
    partial: tuple[str, ...]
    _members: dict[str, pa.Table] = field(repr=False)
    _rows: npt.NDArray[np.int64] = field(repr=False)

    def __repr__(self) -> str:
        return f"Redistricting({self.geography!r}, confidential)"

    def table(self, name: str, level: str) -> pd.DataFrame:
        """A table ("P1" to "P5", "H1") at a level as the file has it: ``geoid``, ``name`` and a column for every field,
        called as the documentation calls it (P0010001, ...).

        Raises `ConfigError` for an unknown table, `GeographyError` for an unknown level.
        """
        require_known(name, TABLES, "table")
        nodes = self.geography.level_slice(level)
        known = self.geography.identifiers.slice(nodes.start, nodes.stop - nodes.start).to_pandas()
        names = self.geography.names
        assert names is not None  # nosec B101 # narrows a type: `read_pl94` gives every unit one
        units = pd.DataFrame({"geoid": known, "name": names.slice(nodes.start, len(known)).to_pandas()})
        return pd.concat([units, pd.DataFrame(self._numbers(name, nodes), columns=field_names(name))], axis=1)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table at the lowest level, by name, as `table` has it."""
        return {name: self.table(name, self.geography.levels[-1]) for name in TABLES}

    @property
    def counts(self) -> Counts:
        """Voting age x Hispanic x race (252 cells) of the units of the lowest level, which P1 to P4 determine; every
        level above is their sum.

        Raises `CountsError` naming the unit whose tables contradict each other.
        """
        leaves = self.geography.level_slice(self.geography.levels[-1])
        everybody, adults = self._both("P1", "P2", leaves), self._both("P3", "P4", leaves)
        cells = np.stack([everybody - adults, adults], axis=1)
        wrong = np.flatnonzero((cells < 0).any(axis=(1, 2, 3)))
        if len(wrong):
            raise CountsError(
                f"{self.geography.describe(leaves.start + int(wrong[0]))}: a part of its population is larger than the "
                "whole (tables P1 to P4); correct the file"
            )
        return self._counted(cells, VOTERS)

    def persons(self) -> Counts:
        """The histogram of the disclosure avoidance system (2,016 cells), by a rule, since the file does not determine
        it. Table P5 has the number of people in every kind of group quarters, but not their attributes. Kind by kind,
        in the table's order, people are assigned from those of the unit who are not assigned yet: adults first, in
        juvenile facilities minors first; the others only where these do not suffice, and in nursing facilities never.
        They are taken from every combination of Hispanic origin and race in proportion, by largest remainders, ties to
        the first. The rest lives in households.

        Raises `CountsError` naming a unit that has fewer people than its group quarters.
        """
        leaves = self.geography.level_slice(self.geography.levels[-1])
        voters = self.counts.values[leaves].reshape(-1, 2, 126)
        kinds = self._numbers("P5", leaves)[:, [2, 3, 4, 5, 7, 8, 9]]
        cells = np.zeros((len(voters), 8, 2, 126), np.int64)
        cells[:, 0] = voters
        for unit in np.flatnonzero(kinds.any(axis=1)):
            for kind, wanted in enumerate(kinds[unit], 1):
                first, other = (0, 1) if RESIDENCES[kind] == _OF_MINORS else (1, 0)
                for age in [first] if RESIDENCES[kind] == _OF_ADULTS else [first, other]:
                    taken = _in_proportion(cells[unit, 0, age], int(wanted - cells[unit, kind].sum()))
                    cells[unit, kind, age] += taken
                    cells[unit, 0, age] -= taken
                if cells[unit, kind].sum() != wanted:
                    raise CountsError(
                        f"{self.geography.describe(leaves.start + int(unit))}: table P5 has more people in "
                        f"{RESIDENCES[kind]} than tables P1 and P3 leave for it; correct the file"
                    )
        return self._counted(cells, PERSONS)

    def units(self) -> Counts:
        """Housing units by occupancy (2 cells) of the lowest level, from table H1; every level above is their sum."""
        leaves = self.geography.level_slice(self.geography.levels[-1])
        return self._counted(self._numbers("H1", leaves)[:, [2, 1]], UNITS)

    def _counted(self, cells: npt.NDArray[np.int64], schema: Schema) -> Counts:
        """The counts of all units, from those of the lowest level (units, ...) in the cells of ``schema``."""
        values = self.geography.tree.aggregate(np.ascontiguousarray(cells.reshape(len(cells), -1).T))
        values.flags.writeable = False
        return Counts(self.geography, schema.cells(), values.T, schema)

    def _both(self, all_of: str, by_hispanic: str, nodes: slice) -> npt.NDArray[np.int64]:
        """Counts by Hispanic and race (units x 2 x 63) from two tables, of which one has everybody, the other those who
        are not Hispanic.
        """
        everybody = self._numbers(all_of, nodes)[:, FIELD_OF_RACE]
        rest = self._numbers(by_hispanic, nodes)[:, 2 + FIELD_OF_RACE]
        return np.stack([rest, everybody - rest], axis=1)

    def _numbers(self, name: str, nodes: slice) -> npt.NDArray[np.int64]:
        part = self._members[_SEGMENT_OF[name]].take(pa.array(self._rows[nodes]))
        return numbers(part, field_names(name), f"table {name}")


_OF_MINORS, _OF_ADULTS = RESIDENCES[2], RESIDENCES[3]
"""Juvenile facilities; nursing facilities, where no minor lives."""


def _in_proportion(there: npt.NDArray[np.int64], wanted: int) -> npt.NDArray[np.int64]:
    """``wanted`` of those ``there`` (cells,), or all of them, in proportion, by largest remainders."""
    total = int(there.sum())
    if wanted >= total:
        return there.copy()
    exact = there * wanted
    taken = exact // total
    order = np.argsort(-(exact % total), kind="stable")
    taken[order[: wanted - int(taken.sum())]] += 1
    return np.asarray(taken)


def read_pl94(path: str | Path) -> Redistricting:
    """The redistricting file in a folder or ZIP archive, of any vintage in the layout of 2020.

    The units are those of the spine (state, county, tract, block group, block; summary levels 040, 050, 140, 150, 750),
    as far down as the file goes. All subtotals of all tables are checked, and the population that the geographic header
    repeats. Raises `DataError` naming member, field and record for what is not of the layout or does
    not add up, `GeographyError` for units that are no tree.

    Args:
        path: a folder or a ZIP archive with the four members of one state's file.

    Examples:
        >>> found = td.read_pl94("ri.pl")
        >>> found.table("P1", "tract")[["geoid", "P0010001"]]
                 geoid  P0010001
        0  44007000500      2940
        >>> found.counts.geography.levels
        ('state', 'county', 'tract', 'block group', 'block')
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{shown_path(path)}: no such folder or file; correct the path")
    members = _aligned(path, read_members(path))
    _require_sums(path, members)
    geo = members["geo"]
    present = [code for code in LEVELS if pc.any(pc.equal(geo["SUMLEV"], code)).as_py()]
    if not present:
        raise DataError(
            f"{shown_path(path)}: no record of the summary levels {listed(list(LEVELS))}; the spine is wanted"
        )
    geography, rows = _spine(geo, present)
    return Redistricting(geography, _partial(geography, members, rows), members, rows)


def _aligned(path: Path, members: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The members with their records in the header's order."""
    geo = members["geo"]
    key = pc.binary_join_element_wise(geo["STUSAB"], geo["LOGRECNO"], "|")
    found = {"geo": geo.combine_chunks()}
    for segment in SEGMENTS:
        table = members[segment]
        theirs = pc.binary_join_element_wise(table["STUSAB"], table["LOGRECNO"], "|")
        place = pc.index_in(key, theirs.combine_chunks())
        if place.null_count or len(theirs) != len(key) or pc.count_distinct(theirs).as_py() != len(key):
            raise DataError(
                f"{shown_path(path)}: segment {segment} does not have the records of the geographic header, each once, "
                f"by LOGRECNO ({len(theirs):,} and {len(key):,}); give the members of one delivery"
            )
        found[segment] = table.take(place)
    return found


def _require_sums(path: Path, members: dict[str, pa.Table]) -> None:
    """Refuse tables whose subtotals do not add up, or that the header contradicts."""
    geo = members["geo"]
    totals = {}
    for table, segment in _SEGMENT_OF.items():
        values = numbers(members[segment], field_names(table), f"{shown_path(path)}, segment {segment}")
        for whole, parts in sums_within(table):
            wrong = np.flatnonzero(values[:, whole - 1] != values[:, [k - 1 for k in parts]].sum(axis=1))
            if len(wrong):
                names = field_names(table)
                raise DataError(
                    f"{shown_path(path)}, {_record(geo, wrong[0])}: {names[whole - 1]} is not the sum of "
                    f"{names[parts[0] - 1]} to {names[parts[-1] - 1]}; correct the file"
                )
        totals[table] = values[:, 0]
    for one, other in (("P1", "P2"), ("P3", "P4")):
        wrong = np.flatnonzero(totals[one] != totals[other])
        if len(wrong):
            raise DataError(f"{shown_path(path)}, {_record(geo, wrong[0])}: tables {one} and {other} differ in total")
    # HU100 and H1 are not compared: the Census Bureau's own test file has units in the header that table H1 lacks.
    known = numbers(geo, ["POP100"], f"{shown_path(path)}, geographic header")[:, 0]
    wrong = np.flatnonzero(known != totals["P1"])
    if len(wrong):
        raise DataError(
            f"{shown_path(path)}, {_record(geo, wrong[0])}: POP100 of the geographic header is not the total of table "
            "P1; give the members of one delivery"
        )


def _record(geo: pa.Table, row: int) -> str:
    code = geo["GEOCODE"][int(row)].as_py()
    return f"record {geo['LOGRECNO'][int(row)].as_py()} (GEOCODE {shown(code)})"


def _spine(geo: pa.Table, present: list[str]) -> tuple[Geography, npt.NDArray[np.int64]]:
    """The geography of the spine's records, and the record of every node."""
    levels = [LEVELS[code] for code in present]
    lowest = geo.filter(pc.equal(geo["SUMLEV"], present[-1]))
    units = {level: pc.utf8_slice_codeunits(lowest["GEOCODE"], 0, WIDTHS[level]) for level in levels}
    states = pc.unique(units[levels[0]])
    if len(states) > 1:
        raise DataError(
            f"the file holds {len(states)} units of level {levels[0]}, and a tree has one root: give one state's file"
        )
    tree = Geography.from_table(pa.table(units), levels)
    spine = pc.is_in(geo["SUMLEV"], pa.array(present))
    where = np.flatnonzero(spine.combine_chunks().to_numpy(zero_copy_only=False))
    place = pc.index_in(tree.identifiers, geo["GEOCODE"].take(pa.array(where)).combine_chunks())
    if place.null_count:
        node = int(np.flatnonzero(pc.is_null(place).to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{tree.describe(node)}: has no record of its own in the geographic header; correct the file")
    rows = where[place.to_numpy()]
    return Geography(tree.levels, tree.tree, tree.identifiers, geo["NAME"].take(pa.array(rows)).combine_chunks()), rows


def _partial(geography: Geography, members: dict[str, pa.Table], rows: npt.NDArray[np.int64]) -> tuple[str, ...]:
    """A description of the levels whose units do not add up to those above."""
    total = numbers(members["01"].take(pa.array(rows)), field_names("P1")[:1], "table P1")[:, 0]
    off, levels = geography.tree.not_sums(total), geography.levels
    return tuple(
        f"the units of level {shown(levels[index + 1])} do not add up to those of level {shown(levels[index])}: the "
        "file holds a part of them"
        for index in range(len(levels) - 1)
        if off[geography.tree.level(index)].any()
    )


assert len(HEADER) == 97  # nosec B101 # a field more or less would shift all others
