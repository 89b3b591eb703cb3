"""Writes a release as a redistricting file (P.L. 94-171), in the layout of 2020."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from topdown.census.layouts.redistricting_layout import (
    HEADER,
    LEVELS,
    LINK,
    SEGMENTS,
    WIDTHS,
    read_header,
    require_text,
    write_member,
)
from topdown.errors import ConfigError, DataError
from topdown.geography.geography import Geography
from topdown.machine.files import whole_folder
from topdown.release.whole_counts import Release
from topdown.tables.tidy import named_failures
from topdown.wording import listed, shown, shown_path
from topdown.workload import Query, Schema
from topdown.workload.redistricting import (
    PERSONS,
    UNITS,
    field_names,
    hispanic_table,
    quarters_table,
    race_table,
    spine_level,
)

_CODES = """
01=AL 02=AK 04=AZ 05=AR 06=CA 08=CO 09=CT 10=DE 11=DC 12=FL 13=GA 15=HI 16=ID 17=IL 18=IN 19=IA 20=KS 21=KY
22=LA 23=ME 24=MD 25=MA 26=MI 27=MN 28=MS 29=MO 30=MT 31=NE 32=NV 33=NH 34=NJ 35=NM 36=NY 37=NC 38=ND 39=OH
40=OK 41=OR 42=PA 44=RI 45=SC 46=SD 47=TN 48=TX 49=UT 50=VT 51=VA 53=WA 54=WV 55=WI 56=WY 72=PR
"""

STATES = dict(pair.split("=") for pair in _CODES.split())
"""Postal abbreviations by state code."""

_RECORDS_AT_ONCE = 1 << 13


class _LevelRecords(NamedTuple):
    """Records of one ``level``: their ``nodes`` and the fields of the ``header``, LOGRECNO among them."""

    level: str
    nodes: npt.NDArray[np.int64]
    header: dict[str, pa.Array]


def write_pl94(
    release: Release,
    folder: str | Path,
    *,
    units: Release | None = None,
    header: str | Path | None = None,
    state: str | None = None,
    year: int = 2020,
) -> Path:
    """Write a release as the four members of one state's redistricting file; returns the folder.

    The levels are state, county, tract, block group and block, by GEOIDs of 2, 5, 11, 12 and 15 digits, as far down
    as they go.

    Args:
        release: of persons, by the attributes of the redistricting file.
        folder: made; it must not exist.
        units: the release of its housing units on the same geography, for table H1; without, H1 and HU100 are 0.
        header: a redistricting file, or its geographic header, from which every record takes what a release does not
            know (areas, names, other codes, record numbers); POP100 and HU100 are the release's.
        state: which state of a nation.
        year: the year in the names of the members.

    Raises `ConfigError` for another schema, `DataError` for another level or width, a unit that the header lacks, and
    names that the file's encoding does not have.

    Examples:
        >>> noisy = td.read_noisy_measurements("nmf", state="44")
        >>> whole = td.project_whole(noisy.measurements, constraints=noisy.limits, source=td.SeededSource(1))
        >>> folder = td.write_pl94(td.tabulated_release(whole), "released.pl")
        >>> sorted(path.name for path in folder.iterdir())
        ['ri000012020.pl', 'ri000022020.pl', 'ri000032020.pl', 'rigeo2020.pl']
    """
    folder = Path(folder)
    abbreviation, parts = _header(release.geography, release.schema, units, header, state)
    stem = abbreviation.lower()
    with named_failures(folder), whole_folder(folder) as staging:
        write_member(staging / f"{stem}geo{year}.pl", _batches(release, units, parts, None))
        for segment in SEGMENTS:
            write_member(staging / f"{stem}000{segment}{year}.pl", _batches(release, units, parts, segment))
    return folder


def require_pl94(
    geography: Geography,
    schema: Schema,
    *,
    units: Release | None = None,
    header: str | Path | None = None,
    state: str | None = None,
) -> None:
    """Refuse, before there are counts, what `write_pl94` would of a release of ``schema`` on ``geography``."""
    _header(geography, schema, units, header, state)


def _header(
    geography: Geography,
    schema: Schema,
    units: Release | None,
    header: str | Path | None,
    state: str | None,
) -> tuple[str, list[_LevelRecords]]:
    """The state's abbreviation and the records' geographic header."""
    _require_schemas(geography, schema, units)
    parts = _records(geography, state)
    abbreviation = STATES[geography.identifiers[int(parts[0].nodes[0])].as_py()]
    if geography.names is not None:
        require_text(geography.names, "name")
    parts = [_described(geography, part, abbreviation) for part in parts]
    return abbreviation, _numbered(parts) if header is None else _with_header(geography, parts, Path(header))


def _require_schemas(geography: Geography, schema: Schema, units: Release | None) -> None:
    if schema.attributes != PERSONS.attributes:
        raise ConfigError(
            f"the release's attributes are {listed(schema.names)}, and a redistricting file is made of "
            f"{listed(PERSONS.names)} with their categories (topdown.workload.redistricting.PERSONS)"
        )
    if units is not None and units.schema.attributes != UNITS.attributes:
        raise ConfigError(f"units: the attributes are {listed(units.schema.names)}; table H1 is made of 'h1'")
    if units is not None and not units.geography.identifiers.equals(geography.identifiers):
        raise DataError("units: their geography is another one than that of the persons; give the same")


def _records(geography: Geography, state: str | None) -> list[_LevelRecords]:
    """The units of one state, level by level, after making sure that they are the file's."""
    called = {spine_level(level): level for level in geography.levels if spine_level(level) != "us"}
    if list(called) != [level for level in WIDTHS if level in called] or next(iter(called), "") != "state":
        raise DataError(
            f"the levels are {listed(geography.levels)}; a redistricting file has {listed(list(WIDTHS))}, from the "
            "state down"
        )
    states = geography.level_slice(called["state"])
    known = geography.identifiers[states.start : states.stop].to_pylist()
    if state is None and len(known) > 1:
        raise DataError(f"the release has {len(known)} states, and a redistricting file is of one; name it with state")
    if state is not None and state not in known:
        raise DataError(f"the release has no state {shown(state)}; it has {listed(known)}")
    code = known[0] if state is None else state
    if code not in STATES:
        node = states.start + known.index(code)
        raise DataError(f"{geography.describe(node)}: no state has this code; give the geography of one state")
    found = []
    for level, name in called.items():
        nodes = geography.level_slice(name)
        codes = geography.identifiers[nodes.start : nodes.stop]
        mine = nodes.start + np.flatnonzero(pc.starts_with(codes, code).to_numpy(zero_copy_only=False))
        right = pc.match_substring_regex(geography.identifiers.take(pa.array(mine)), f"^[0-9]{{{WIDTHS[level]}}}$")
        wrong = np.flatnonzero(~right.to_numpy(zero_copy_only=False))
        if len(wrong) or (state is None and len(mine) < nodes.stop - nodes.start):
            node = int(mine[wrong[0]]) if len(wrong) else int(np.setdiff1d(np.arange(nodes.start, nodes.stop), mine)[0])
            raise DataError(
                f"{geography.describe(node)}: a {level} of state {code} in the file has a code of {WIDTHS[level]} "
                "digits that begins with the state's"
            )
        found.append(_LevelRecords(level, mine, {}))
    return found


def _described(geography: Geography, part: _LevelRecords, abbreviation: str) -> _LevelRecords:
    """``part`` with the header's fields that follow from its codes."""
    level, count = part.level, len(part.nodes)
    code = geography.identifiers.take(pa.array(part.nodes))
    summary = next(number for number, name in LEVELS.items() if name == level)
    same = {
        "FILEID": "PLST",
        "STUSAB": abbreviation,
        "SUMLEV": summary,
        "GEOVAR": "00",
        "GEOCOMP": "00",
        "CHARITER": "000",
        "CIFSN": "00",
    }
    places = {"STATE": (0, 2), "COUNTY": (2, 5), "TRACT": (5, 11), "BLKGRP": (11, 12), "BLOCK": (11, 15)}
    fields = {name: pa.repeat(text, count) for name, text in same.items()}
    fields["GEOID"] = pc.binary_join_element_wise(pa.repeat(f"{summary}0000US", count), code, "")
    fields["GEOCODE"] = code
    for name, place in places.items():
        if place[1] <= WIDTHS[level]:
            fields[name] = pc.utf8_slice_codeunits(code, *place)
    if geography.names is not None:
        fields["NAME"] = geography.names.take(pa.array(part.nodes)).fill_null("")
    return part._replace(header=fields)


def _numbered(parts: list[_LevelRecords]) -> list[_LevelRecords]:
    """``parts`` with record numbers, from 1."""
    found, begin = [], 1
    for part in parts:
        numbers = pa.array(np.arange(begin, begin + len(part.nodes))).cast(pa.string())
        found.append(part._replace(header=part.header | {"LOGRECNO": numbers}))
        begin += len(part.nodes)
    return found


def _with_header(geography: Geography, parts: list[_LevelRecords], path: Path) -> list[_LevelRecords]:
    """``parts`` with the fields of the geographic header at ``path``."""
    known = read_header(path)
    found = []
    for part in parts:
        own = known.filter(pc.equal(known["SUMLEV"], part.header["SUMLEV"][0])).combine_chunks()
        place = pc.index_in(part.header["GEOCODE"], value_set=own["GEOCODE"].combine_chunks())
        if place.null_count:
            node = int(part.nodes[int(np.flatnonzero(pc.is_null(place).to_numpy(zero_copy_only=False))[0])])
            raise DataError(
                f"{geography.describe(node)}: {shown_path(path)} has no record of it; give the header of this geography"
            )
        rows = own.take(place)
        found.append(part._replace(header={name: rows[name].combine_chunks() for name in HEADER}))
    return found


def _batches(
    release: Release, units: Release | None, parts: list[_LevelRecords], segment: str | None
) -> Iterator[dict[str, pa.Array]]:
    """The records of a segment, of the geographic header where it is None; texts, and counts as numbers."""
    for part in parts:
        for begin in range(0, len(part.nodes), _RECORDS_AT_ONCE):
            rows = slice(begin, begin + _RECORDS_AT_ONCE)
            nodes = part.nodes[rows]
            fields = {name: array[rows] for name, array in part.header.items()}
            if segment is None:
                tables = _tables(release, units, nodes, ("P1", "H1"))
                fields |= {"POP100": pa.array(tables["P1"][:, 0]), "HU100": pa.array(tables["H1"][:, 0])}
                yield {name: fields[name] if name in fields else pa.repeat("", len(nodes)) for name in HEADER}
                continue
            link = fields | {"CIFSN": pa.repeat(segment, len(nodes))}
            record = {name: link[name] for name in LINK}
            for name, table in _tables(release, units, nodes, SEGMENTS[segment]).items():
                columns = zip(field_names(name), np.ascontiguousarray(table.T), strict=True)
                record |= {field: pa.array(column) for field, column in columns}
            yield record


def _tables(
    release: Release,
    units: Release | None,
    nodes: npt.NDArray[np.int64],
    names: tuple[str, ...],
) -> dict[str, npt.NDArray[np.int64]]:
    """The tables called ``names`` of ``nodes``, side by side."""
    there = slice(int(nodes[0]), int(nodes[-1]) + 1)
    both = np.zeros((len(nodes), 2, 2, 63), np.int64)
    if set(names) & {"P1", "P2", "P3", "P4"}:
        query = Query.parse("votingage * hispanic * cenrace", release.schema)
        both = release.answers_of(there, query).reshape(-1, 2, 2, 63)
    everybody, adults = both.sum(axis=1), both[:, 1]
    found: dict[str, npt.NDArray[np.int64]] = {}
    for name in names:
        if name in ("P1", "P3"):
            found[name] = race_table((everybody if name == "P1" else adults).sum(axis=1))
        elif name in ("P2", "P4"):
            found[name] = hispanic_table(everybody if name == "P2" else adults)
        elif name == "P5":
            found[name] = quarters_table(release.answers_of(there, Query.parse("hhgq", release.schema)))
        else:
            occupied = np.zeros((len(nodes), 2), np.int64)
            if units is not None:
                occupied = units.answers_of(there, Query.parse("h1", units.schema))[:, ::-1]
            found[name] = np.concatenate([occupied.sum(axis=1, keepdims=True), occupied], axis=1)
    return found
