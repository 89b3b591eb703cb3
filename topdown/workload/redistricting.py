"""The schemas of the 2020 redistricting file (P.L. 94-171), as in the Census Bureau's production system.

Source: uscensusbureau/DAS_2020_Redistricting_Production_Code, `source/programs/schema/`.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from topdown.workload.schema import Attribute, Recode, Schema

SPINE = ("us", "state", "county", "tract", "block group", "block")
"""The levels of its geography, root first."""
WHOLE_STATE = "whole state"
"""The level of states above a level of parts of states (in American Indian areas and elsewhere); it is not measured."""

_ALSO = {"nation": "us", "united states": "us", "blockgroup": "block group"}
"""Other names of the levels."""


def spine_level(name: str) -> str:
    """The level of the spine that ``name`` means; ``name`` in small letters and without underscores where it means
    none.
    """
    plain = name.strip().lower().replace("_", " ")
    return _ALSO.get(plain, plain)


RESIDENCES = (
    "household",
    "correctional facilities for adults",
    "juvenile facilities",
    "nursing facilities",
    "other institutional",
    "college or university student housing",
    "military quarters",
    "other noninstitutional",
)
"""The household, the four kinds of institutional and the three of noninstitutional group quarters."""

_SINGLE = ("white", "black", "aian", "asian", "nhopi", "sor")
"""White, Black or African American, American Indian and Alaska Native, Asian, Native Hawaiian and Other Pacific
Islander, Some Other Race."""

RACES = tuple("+".join(some) for size in range(1, 7) for some in itertools.combinations(_SINGLE, size))
"""The 63 non-empty sets of the six: alone first, then two, and so on, each size in the order of the six."""

PERSONS = Schema(
    (
        Attribute("hhgq", RESIDENCES),
        Attribute("votingage", ("17 and under", "18 and over")),
        Attribute("hispanic", ("not hispanic", "hispanic")),
        Attribute("cenrace", RACES),
    ),
    (
        Recode(
            "hhinstlevels",
            "hhgq",
            (
                ("household", RESIDENCES[:1]),
                ("institutional", RESIDENCES[1:5]),
                ("noninstitutional", RESIDENCES[5:]),
            ),
        ),
    ),
    ((("hhgq", (RESIDENCES[3],)), ("votingage", ("17 and under",))),),
)
"""2,016 cells: 8 kinds of residence x voting age x Hispanic x 63 races. No minor lives in a nursing facility."""

VOTERS = Schema(PERSONS.attributes[1:])
"""252 cells: what tables P1 to P4 of the published file determine of every unit."""

UNITS = Schema((Attribute("h1", ("vacant", "occupied")),))
"""Housing units by occupancy."""


# -- the published tables -------------------------------------------------------------------------------------------

TABLES = {"P1": 71, "P2": 73, "P3": 71, "P4": 73, "P5": 10, "H1": 3}
"""The tables of the file and how many fields each has: race; Hispanic or not by race; both of adults; group quarters by
kind; occupancy of housing units."""


def _race_fields() -> npt.NDArray[np.int64]:
    """The races that every field of P1 counts, (71 x 63): the total, one race, each race, two or more races, two races,
    ...
    """
    size = np.array([race.count("+") for race in RACES])
    each = np.eye(len(RACES), dtype=np.int64)
    rows = [np.ones((1, len(RACES)), np.int64), (size == 0)[None].astype(np.int64), each[size == 0]]
    rows.append((size > 0)[None].astype(np.int64))
    for several in range(1, 6):
        rows += [(size == several)[None].astype(np.int64), each[size == several]]
    return np.concatenate(rows)


RACE_FIELDS = _race_fields()
"""Which of the 63 races every field of table P1 counts, (71 x 63) of 0 and 1."""

FIELD_OF_RACE = np.array([int(np.flatnonzero((row == RACE_FIELDS).all(axis=1))[-1]) for row in np.eye(63, dtype=int)])
"""For every race the field of P1 (from 0) that counts only this race; (63,)."""


def field_names(table: str) -> list[str]:
    """The names of a table's fields, as the file's documentation has them: P0010001, P0010002, ..."""
    return [f"{table[0]}{int(table[1:]):03d}{field:04d}" for field in range(1, TABLES[table] + 1)]


def race_table(by_race: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """P1 or P3 (units x 71) of counts by race (units x 63)."""
    return np.asarray(by_race @ RACE_FIELDS.T)


def hispanic_table(by_both: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """P2 or P4 (units x 73) of counts by Hispanic and race (units x 2 x 63)."""
    total, hispanic = by_both.sum(axis=(1, 2)), by_both[:, 1].sum(axis=1)
    return np.concatenate([total[:, None], hispanic[:, None], race_table(by_both[:, 0])], axis=1)


def quarters_table(by_residence: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """P5 (units x 10) of counts by kind of residence (units x 8)."""
    institutional, other = by_residence[:, 1:5], by_residence[:, 5:]
    sums = institutional.sum(axis=1, keepdims=True), other.sum(axis=1, keepdims=True)
    return np.concatenate([sums[0] + sums[1], sums[0], institutional, sums[1], other], axis=1)
