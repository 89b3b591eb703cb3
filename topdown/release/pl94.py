"""A release as a redistricting file (P.L. 94-171), in the layout of 2020."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from topdown.errors import DataError
from topdown.machine.files import whole_folder
from topdown.release.histograms import HistogramRelease
from topdown.tables.pl94 import HEADER, LEVELS, LINK, SEGMENTS, write_members
from topdown.wording import FAILED, listed, reason, shown_path
from topdown.workload.redistricting import (
    PERSONS,
    UNITS,
    hispanic_table,
    quarters_table,
    race_table,
)

_WIDTHS = {"state": 2, "county": 5, "tract": 11, "block group": 12, "block": 15}

_CODES = """
01=AL 02=AK 04=AZ 05=AR 06=CA 08=CO 09=CT 10=DE 11=DC 12=FL 13=GA 15=HI 16=ID 17=IL 18=IN 19=IA 20=KS 21=KY
22=LA 23=ME 24=MD 25=MA 26=MI 27=MN 28=MS 29=MO 30=MT 31=NE 32=NV 33=NH 34=NJ 35=NM 36=NY 37=NC 38=ND 39=OH
40=OK 41=OR 42=PA 44=RI 45=SC 46=SD 47=TN 48=TX 49=UT 50=VT 51=VA 53=WA 54=WV 55=WI 56=WY 72=PR
"""

_STATES = dict(pair.split("=") for pair in _CODES.split())
"""Postal abbreviations by state code."""


def write_pl94(
    release: HistogramRelease, folder: str | Path, *, units: HistogramRelease | None = None, year: int = 2020
) -> Path:
    """Write ``release``, of one state's persons, as the four members of a redistricting file; returns the folder.

    ``folder``: made; it must not exist. ``units``: the release of its housing units on the same geography, for table
    H1; without, H1 and HU100 are 0. The levels are state, county, tract, block group and block, by GEOIDs of 2, 5, 11,
    12 and 15 digits, as far down as they go. Raises `DataError` for another schema, level or width.
    """
    folder = Path(folder)
    _require_layout(release, units)
    geography = release.geography
    state = geography.identifiers[0].as_py()
    abbreviation = _STATES.get(state)
    if abbreviation is None:
        raise DataError(f"{geography.describe(0)}: no state has this code; give the geography of one state")
    members: dict[str, list[list[str]]] = {"geo": [], **{segment: [] for segment in SEGMENTS}}
    record = 0
    for level in geography.levels:
        tables = _tables(release, units, level)
        for row in range(len(tables["P1"])):
            node = geography.level_slice(level).start + row
            record += 1
            header = _header(geography.identifiers[node].as_py(), level, abbreviation)
            names = geography.names
            header |= {
                "LOGRECNO": str(record),
                "NAME": (names[node].as_py() if names is not None else None) or "",
                "POP100": str(tables["P1"][row, 0]),
                "HU100": str(tables["H1"][row, 0]),
            }
            members["geo"].append([header.get(name, "") for name in HEADER])
            for segment, within in SEGMENTS.items():
                link = dict(zip(LINK, ("PLST", abbreviation, "000", segment, str(record)), strict=True))
                members[segment].append(
                    [*link.values(), *(str(value) for table in within for value in tables[table][row])]
                )
    stem = abbreviation.lower()
    names_of = {"geo": f"{stem}geo{year}.pl", **{s: f"{stem}000{s}{year}.pl" for s in SEGMENTS}}
    try:
        with whole_folder(folder) as staging:
            write_members(staging, names_of, members)
    except OSError as error:
        raise DataError(
            f"{shown_path(folder)}: cannot be written: {reason(error, FAILED)}; free the space or correct the path"
        ) from None
    return folder


def _require_layout(release: HistogramRelease, units: HistogramRelease | None) -> None:
    if release.schema.attributes != PERSONS.attributes:
        raise DataError(
            f"the release's attributes are {listed(release.schema.names)}, and a redistricting file is made of "
            f"{listed(PERSONS.names)} with their categories (topdown.workload.redistricting.PERSONS)"
        )
    if units is not None and units.schema.attributes != UNITS.attributes:
        raise DataError(f"units: the attributes are {listed(units.schema.names)}; table H1 is made of 'h1'")
    geography = release.geography
    if units is not None and not units.geography.identifiers.equals(geography.identifiers):
        raise DataError("units: their geography is another one than that of the persons; give the same")
    spine = list(_WIDTHS)
    if (
        list(geography.levels) != [level for level in spine if level in geography.levels]
        or geography.levels[0] != "state"
    ):
        raise DataError(
            f"the levels are {listed(geography.levels)}; a redistricting file has {listed(spine)}, from the state down"
        )
    for node, code in enumerate(geography.identifiers.to_pylist()):
        level = geography.levels[geography.tree.level_of(node)]
        if len(code) != _WIDTHS[level] or not code.isdecimal():
            raise DataError(f"{geography.describe(node)}: a {level} of the file has a code of {_WIDTHS[level]} digits")


def _tables(release: HistogramRelease, units: HistogramRelease | None, level: str) -> dict[str, npt.NDArray[np.int64]]:
    both = release.answers(level, "votingage * hispanic * cenrace").reshape(-1, 2, 2, 63)
    everybody, adults = both.sum(axis=1), both[:, 1]
    occupied = np.zeros((len(both), 2), np.int64) if units is None else units.answers(level, "h1")[:, ::-1]
    return {
        "P1": race_table(everybody.sum(axis=1)),
        "P2": hispanic_table(everybody),
        "P3": race_table(adults.sum(axis=1)),
        "P4": hispanic_table(adults),
        "H1": np.concatenate([occupied.sum(axis=1, keepdims=True), occupied], axis=1),
        "P5": quarters_table(release.answers(level, "hhgq")),
    }


def _header(code: str, level: str, abbreviation: str) -> dict[str, str]:
    summary = next(number for number, name in LEVELS.items() if name == level)
    parts = {"STATE": code[:2], "COUNTY": code[2:5], "TRACT": code[5:11], "BLKGRP": code[11:12], "BLOCK": code[11:15]}
    if level == "block group":
        del parts["BLOCK"]
    return {
        "FILEID": "PLST",
        "STUSAB": abbreviation,
        "SUMLEV": summary,
        "GEOVAR": "00",
        "GEOCOMP": "00",
        "CHARITER": "000",
        "CIFSN": "00",
        "GEOID": f"{summary}0000US{code}",
        "GEOCODE": code,
        **parts,
    }
