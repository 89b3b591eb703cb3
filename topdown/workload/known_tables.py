"""The tables of the Census Bureau's publications of 2020 by their own names, for schemas that have their attributes:
P1 to P5 and H1 of the redistricting file, and of the persons of the Demographic and Housing Characteristics (DHC) the
tables whose fields are counts of persons by what its schema has.

Sources: the redistricting file's technical documentation; for the DHC the list of its variables (name, label) that the
Bureau's programming interface has at data/2020/dec/dhc/variables.
"""

from __future__ import annotations

import string
from functools import cache
from typing import NamedTuple

from topdown.workload.dhc import DHC_PERSONS
from topdown.workload.redistricting import PERSONS, RACES, RESIDENCES, TABLES, UNITS, field_names
from topdown.workload.schema import Attribute, Recode, Schema

Field = dict[str, int]
"""Who is counted in a field: attributes or recodes, each with the number of a category; {} counts everybody."""


class KnownTable(NamedTuple):
    """A table: its ``name``, its ``fields`` by their names, and the ``recodes`` that these need."""

    name: str
    fields: dict[str, Field]
    recodes: tuple[Recode, ...]


def known_table(name: str, schema: Schema) -> KnownTable | None:
    """The table called ``name``, or that with a field of this name; None where there is none for ``schema``."""
    dhc = all(attribute in schema.attributes for attribute in DHC_PERSONS.attributes)
    tables = _dhc_tables() if dhc else _redistricting_tables()
    found = next((table for table in tables if name == table.name or name in table.fields), None)
    if found is None or dhc:
        return found
    source = UNITS if found.name == "H1" else PERSONS
    return found if all(source.attribute(one) in schema.attributes for one in _ABOUT[found.name]) else None


# -- race, in both ----------------------------------------------------------------------------------------------------

_OF_SIZE = {k: tuple(race for race in RACES if race.count("+") + 1 == k) for k in range(1, 7)}
"""The combinations of races, by the number of races."""

_SEVERAL, _NUMBER, _KIND, _QUARTERS = "several races", "number of races", "kind of quarters", "group quarters"


def _by_race(*, hispanic: bool) -> list[Field]:
    """The fields of a table by race, or by Hispanic origin and race."""
    fields: list[Field] = [
        {},
        {_SEVERAL: 0},
        *({"cenrace": RACES.index(race)} for race in _OF_SIZE[1]),
        {_SEVERAL: 1},
    ]
    for size in range(2, 7):
        fields += [{_NUMBER: size - 1}, *({"cenrace": RACES.index(race)} for race in _OF_SIZE[size])]
    return [{}, {"hispanic": 1}, {"hispanic": 0}, *_all_with({"hispanic": 0}, fields[1:])] if hispanic else fields


def _race_recodes() -> tuple[Recode, ...]:
    more = tuple(race for size in range(2, 7) for race in _OF_SIZE[size])
    words = ("one race", "two races", "three races", "four races", "five races", "six races")
    return (
        Recode(_SEVERAL, "cenrace", (("one race", _OF_SIZE[1]), ("two or more races", more))),
        Recode(_NUMBER, "cenrace", tuple(zip(words, _OF_SIZE.values(), strict=True))),
    )


def _all_with(field: Field, fields: list[Field]) -> list[Field]:
    return [{**field, **one} for one in fields]


# -- the redistricting file -------------------------------------------------------------------------------------------

_ABOUT = {
    "P1": ("cenrace",),
    "P2": ("hispanic", "cenrace"),
    "P3": ("votingage", "cenrace"),
    "P4": ("votingage", "hispanic", "cenrace"),
    "P5": ("hhgq",),
    "H1": ("h1",),
}
"""The attributes of every table."""


@cache
def _redistricting_tables() -> list[KnownTable]:
    recodes = (
        *_race_recodes(),
        Recode(_KIND, "hhgq", PERSONS.recodes[0].groups),
        Recode(_QUARTERS, "hhgq", (("none", RESIDENCES[:1]), ("any", RESIDENCES[1:]))),
    )
    return [
        KnownTable(
            name,
            dict(zip(field_names(name), _redistricting_fields(name), strict=True)),
            tuple(recode for recode in recodes if recode.attribute in _ABOUT[name]),
        )
        for name in TABLES
    ]


def _redistricting_fields(table: str) -> list[Field]:
    """The fields of a table in the file's order."""
    if table == "H1":
        return [{}, {"h1": 1}, {"h1": 0}]
    if table == "P5":
        kinds = [
            [{_KIND: group}, *({"hhgq": k} for k in members)] for group, members in ((1, range(1, 5)), (2, range(5, 8)))
        ]
        return [{_QUARTERS: 1}, *kinds[0], *kinds[1]]
    fields = _by_race(hispanic="hispanic" in _ABOUT[table])
    return _all_with({"votingage": 1}, fields) if "votingage" in _ABOUT[table] else fields


# -- persons of the DHC -----------------------------------------------------------------------------------------------

_RACE, _AGES, _YEARS, _THREE, _VOTING = "race", "age group", "years", "three ages", "votingage"
_ALONE = ("white alone", "black alone", "aian alone", "asian alone", "nhopi alone", "sor alone", "two or more races")
_GROUPS = (0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85)
"""The ages at which the groups of P12 begin."""
_OLDEST = (*range(101), 105, 110)
"""The ages at which those of PCT12 begin."""


@cache
def _dhc_tables() -> list[KnownTable]:
    recodes = _dhc_recodes()
    race = [{_RACE: k} for k in range(len(_ALONE))]
    tables: dict[str, list[Field]] = {
        "P1": [{}],
        "P3": [{}, *race],
        "P4": [{}, {"hispanic": 0}, {"hispanic": 1}],
        "P5": [{}, *(field for k in (0, 1) for field in ({"hispanic": k}, *_all_with({"hispanic": k}, race)))],
        "P8": _by_race(hispanic=False),
        "P9": _by_race(hispanic=True),
        "P10": _all_with({_VOTING: 1}, _by_race(hispanic=False)),
        "P11": _all_with({_VOTING: 1}, _by_race(hispanic=True)),
        "P18": [{_QUARTERS: 1}, *(field for sex in (0, 1) for field in _quarters_by_age(sex))],
    }
    # Tables by sex and age: of everybody, and A to V of persons of one race or origin, or of both.
    of_group = [*race, {"hispanic": 1}, *_all_with({"hispanic": 0}, race), *_all_with({"hispanic": 1}, race)]
    for name, ages, most in (("P12", _AGES, 22), ("PCT12", _YEARS, 15)):
        count = len(next(recode.groups for recode in recodes if recode.name == ages))
        tables[name] = _by_age(ages, count)
        for letter, group in zip(string.ascii_uppercase, of_group[:most], strict=False):
            tables[name + letter] = _all_with(group, tables[name])
    return [
        KnownTable(name, {f"{name}_{k:03d}N": field for k, field in enumerate(fields, 1)}, recodes)
        for name, fields in tables.items()
    ]


def _by_age(ages: str, count: int) -> list[Field]:
    both = ([{"sex": sex}, *({"sex": sex, ages: k} for k in range(count))] for sex in (0, 1))
    return [{}, *(field for fields in both for field in fields)]


def _quarters_by_age(sex: int) -> list[Field]:
    """Residents of group quarters of one ``sex``: of each of three ages by kind."""
    found: list[Field] = [{"sex": sex, _QUARTERS: 1}]
    for age in range(3):
        own = {"sex": sex, _THREE: age}
        found.append({**own, _QUARTERS: 1})
        for kind, members in ((1, range(1, 5)), (2, range(5, 8))):
            found += [{**own, _KIND: kind}, *({**own, "hhgq": k} for k in members)]
    return found


def _dhc_recodes() -> tuple[Recode, ...]:
    known = {recode.name: recode for recode in DHC_PERSONS.recodes}
    residences = dict(known["hhgq"].groups)
    kinds = tuple(
        (group, tuple(one for residence in members for one in residences[residence]))
        for group, members in PERSONS.recodes[0].groups
    )
    quarters = tuple(one for residence in RESIDENCES[1:] for one in residences[residence])
    alone = [(name, (race,)) for name, race in zip(_ALONE, _OF_SIZE[1], strict=False)]
    several = tuple(race for race in RACES if "+" in race)
    age = DHC_PERSONS.attribute("age")
    return (
        *_race_recodes(),
        Recode(_RACE, "cenrace", (*alone, (_ALONE[-1], several))),
        known["hhgq"],
        Recode(_KIND, "relgq", kinds),
        Recode(_QUARTERS, "relgq", (("none", residences[RESIDENCES[0]]), ("any", quarters))),
        known[_VOTING],
        _ages(_AGES, age, _GROUPS),
        _ages(_YEARS, age, _OLDEST),
        _ages(_THREE, age, (0, 18, 65)),
    )


def _ages(name: str, age: Attribute, begins: tuple[int, ...]) -> Recode:
    """Groups of single years that begin at some ages."""
    ends = (*begins[1:], len(age.categories))
    groups = [age.categories[first:end] for first, end in zip(begins, ends, strict=True)]
    return Recode(name, age.name, tuple((f"{own[0]} to {own[-1]}" if own[1:] else own[0], own) for own in groups))
