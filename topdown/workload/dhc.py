"""The schemas of the Demographic and Housing Characteristics of 2020 (DHC), as the Census Bureau's own system had them.

They are larger than any release is (`schema.MOST_CELLS`); plans over them are known (`privacy.presets`). Source:
uscensusbureau/DAS_2020_DHC_Production_Code, `das_decennial/programs/schema/`.
"""

from __future__ import annotations

import csv
from importlib.resources import files

from topdown.workload.redistricting import PERSONS, RACES, RESIDENCES
from topdown.workload.schema import Attribute, Recode, Schema

BESIDE_HOUSEHOLDS = "tenvacgq"
"""The query of a second histogram beside that of households: housing units and group quarters by kind, 35 cells."""

_RELATIONSHIPS = (
    "householder living alone",
    "householder not living alone",
    "opposite-sex spouse",
    "opposite-sex unmarried partner",
    "same-sex spouse",
    "same-sex unmarried partner",
    "biological son or daughter",
    "adopted son or daughter",
    "stepson or stepdaughter",
    "brother or sister",
    "father or mother",
    "grandchild",
    "parent-in-law",
    "son-in-law or daughter-in-law",
    "other relative",
    "roommate or housemate",
    "foster child",
    "other nonrelative",
)
_QUARTERS = (
    "101", "102", "103", "104", "105", "106", "201", "202", "203", "301", "401", "402",
    "403", "404", "405", "501", "601", "602", "701", "801", "802", "900", "901", "997",
)  # fmt: skip
"""The codes of the kinds of group quarters."""
_SINGLE_YEARS = 116


def _recode(name: str, attribute: Attribute, groups: str) -> Recode:
    """Of groups that are written as the numbers of their first and last categories: "0-17, 18-64"; several parts of a
    group are joined by "+"."""
    found = []
    for group in groups.split(", "):
        members = list[str]()
        for part in group.split("+"):
            first, _, last = part.partition("-")
            members += attribute.categories[int(first) : int(last or first) + 1]
        found.append((members[0] if len(members) == 1 else f"{members[0]} to {members[-1]}", tuple(members)))
    return Recode(name, attribute.name, tuple(found))


def _named(name: str, attribute: Attribute, groups: tuple[str, ...], members: str) -> Recode:
    """As `_recode`, with ``groups`` as the names."""
    found = _recode(name, attribute, members).groups
    return Recode(name, attribute.name, tuple((group, own) for group, (_, own) in zip(groups, found, strict=True)))


def _each(first: int, last: int) -> str:
    """Every number a group of its own."""
    return ", ".join(map(str, range(first, last + 1)))


_RELGQ = Attribute("relgq", (*_RELATIONSHIPS, *(f"group quarters {code}" for code in _QUARTERS)))
_AGE = Attribute("age", tuple(map(str, range(_SINGLE_YEARS))))
_OLDER = (
    "18-19, 20-24, 25-29, 30-34, 35-39, 40-44, 45-49, 50-54, 55-59, 60-61, 62-64, 65-66, 67-69, 70-74, 75-79, 80-84, "
    "85-89, 90-94, 95-99, 100-104, 105-109, 110-115"
)

_AGES_OF: tuple[tuple[str, str], ...] = (
    ("0-5, 18-22", "0-14"),
    ("6-8", "90-115"),
    ("10, 12", "0-29"),
    ("11", "75-115"),
    ("13", "0-14, 90-115"),
    ("16", "21-115"),
    ("23, 31, 34-35", "0-16, 66-115"),
    ("24-26", "26-115"),
    ("27", "0-19"),
    ("32", "0-2, 31-115"),
    ("33", "0-15, 66-115"),
    ("37-38", "0-15"),
    ("39", "0-15, 76-115"),
)
"""Edits of 2020: relationships and kinds of group quarters, and the ages that nobody in them has, by their numbers."""


def _numbered(attribute: Attribute, text: str) -> tuple[str, ...]:
    """The categories with the numbers of ``text``."""
    return tuple(one for _, members in _recode("numbered", attribute, text).groups for one in members)


DHC_PERSONS = Schema(
    (
        _RELGQ,
        Attribute("sex", ("male", "female")),
        _AGE,
        Attribute("hispanic", ("not hispanic", "hispanic")),
        Attribute("cenrace", RACES),
    ),
    (
        _named("hhgq", _RELGQ, RESIDENCES, "0-17, 18-23, 24-26, 27, 28-32, 33, 34-35, 36-41"),
        _named("votingage", _AGE, PERSONS.attribute("votingage").categories, "0-17, 18-115"),
        _recode("relgq_4_groups", _RELGQ, "0-1, 2-17, 18-32, 33-41"),
        _recode("gq_constr_groups", _RELGQ, "0-17, 32, 18-22, 33+37-41, 23+31+34-35, 24-30+36"),
        _recode("popSehsdTargetsRelship", _RELGQ, f"{_each(0, 17)}, 18-41"),
        _recode(
            "relship_and_eight_level_GQ", _RELGQ, f"{_each(0, 17)}, 18-23, 24-26, 27, 28-32, 33, 34-35, 36-41"
        ),
        _recode("age_18_64_116", _AGE, "0-17, 18-64, 65-115"),
        _recode("age_10_groups", _AGE, "0-2, 3-14, 15, 16, 17, 18-19, 20-24, 25-29, 30-34, 35-115"),
        _recode("age_38_groups", _AGE, f"{_each(0, 14)}, 15-17, {_OLDER}"),
        _recode("age_40_groups", _AGE, f"{_each(0, 17)}, {_OLDER}"),
    ),
    tuple((("relgq", _numbered(_RELGQ, own)), ("age", _numbered(_AGE, ages))) for own, ages in _AGES_OF),
)  # fmt: skip
"""1,227,744 cells: 18 relationships and 24 kinds of group quarters x sex x 116 ages x Hispanic x 63 races; in 905,184
of them there can be a person."""

REDISTRICTING = "hhgq * votingage * hispanic * cenrace"
"""The query whose answers are the 2,016 cells of the redistricting file, in its order."""


def _household_types() -> tuple[Attribute, list[Recode]]:
    """The 522 types of households, by their numbers, and their recodes: a row a type, and a column with its group."""
    text = (files("topdown.workload") / "dhc_household_types.csv").read_text(encoding="utf-8")
    columns, *rows = csv.reader(text.splitlines())
    attribute = Attribute("hhtype_dhch", tuple(row[0] for row in rows))
    recodes = []
    for place, name in enumerate(columns[1:], 1):
        groups: dict[int, list[str]] = {}
        for row in rows:
            groups.setdefault(int(row[place]), []).append(row[0])
        ordered = tuple((f"group {number}", tuple(groups[number])) for number in sorted(groups))
        recodes.append(Recode(name, attribute.name, ordered))
    return attribute, recodes


_TYPE, _OF_TYPE = _household_types()
_TENURE = Attribute("hhtenshort_3lev", ("owned with mortgage", "owned without mortgage", "rented"))

DHC_HOUSEHOLDS = Schema(
    (
        Attribute("sex", ("male", "female")),
        Attribute("hhage", ("15 to 24", "25 to 34", "35 to 44", "45 to 54", "55 to 59", "60 to 64", "65 to 74",
                            "75 to 84", "85 and over")),
        Attribute("hisp", ("not hispanic", "hispanic")),
        Attribute("race", ("white", "black", "aian", "asian", "nhopi", "sor", "two or more")),
        Attribute("elderly", ("none", "60 to 64", "65 to 74", "75 and over")),
        _TENURE,
        _TYPE,
    ),
    (_recode("hhtenshort_2lev", _TENURE, "0-1, 2"), *_OF_TYPE),
)  # fmt: skip
"""1,578,528 cells of households, by the householder's sex, age, Hispanic and race, the presence of elderly persons,
tenure, and 522 types."""
