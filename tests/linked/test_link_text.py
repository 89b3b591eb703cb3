"""The section [link] of a configuration as a universe, and what is refused."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from support.linked import RHODE_ISLAND_LINK, rhode_island
from topdown.errors import ConfigError
from topdown.linked.link_text import condition, universe_of
from topdown.linked.member_groups import MemberGroup, MembersTotal
from topdown.workload import Schema

UNIVERSE = rhode_island()
SCHEMAS = {"households": UNIVERSE.households, "persons": UNIVERSE.persons}


def link(**changes: Any) -> dict[str, Any]:
    return {**tomllib.loads(RHODE_ISLAND_LINK), **changes}


def test_the_section_says_the_universe() -> None:
    assert universe_of(SCHEMAS, link()) == UNIVERSE


def test_the_largest_household_may_be_that_of_the_budget() -> None:
    without = link(members_total={"size": "size - 1", "open": "7+"})
    assert universe_of(SCHEMAS, without, largest=10) == UNIVERSE


SCHOOLS = Schema.from_mapping({"kind": ["primary", "secondary"], "pupils": ["0", "1-20", "21+"]})
PUPILS = Schema.from_mapping(
    {"grade": ["1", "2", "3"]}, recodes={"grade": {"stage": {"low": ["1"], "high": ["2", "3"]}}}
)


def test_tables_of_other_names_without_a_householder() -> None:
    found = universe_of(
        {"schools": SCHOOLS, "pupils": PUPILS},
        {
            "households": "schools",
            "persons": "pupils",
            "members": [
                {"group": "low", "persons": "stage = low", "per": {"kind = primary": "rest"}},
                {"group": "high", "persons": ["grade in [2]", "grade = 3 and stage = high"], "per": [0, "rest"]},
            ],
            "members_total": {"size": "pupils", "open": "21+", "largest": 900},
        },
    )
    assert found.names == ("schools", "pupils")
    assert found.members_total == MembersTotal("pupils", (0, 1, 21), (0, 20, 900))
    assert found.groups == (
        MemberGroup("low", ((("stage", ("low",)),),), (((("kind", ("primary",)),), 0, None),)),
        MemberGroup("high", ((("grade", ("2",)),), (("grade", ("3",)), ("stage", ("high",)))), (((), 0, None),)),
    )


MARRIED = ("married, with own children", "married, without")
WITHOUT = ("married, without", "cohabiting, without", "other, without")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("size = 1", (("size", ("1",)),)),
        ("size in [1, 2,3]", (("size", ("1", "2", "3")),)),
        ("type in [married*] and size = '2'", (("type", MARRIED), ("size", ("2",)))),
        ('type = "other, without" and alone = alone', (("type", ("other, without",)), ("alone", ("alone",)))),
        ("type in [*without, married*]", (("type", (*WITHOUT, MARRIED[0])),)),
    ],
)  # fmt: skip
def test_conditions(text: str, expected: tuple[Any, ...]) -> None:
    assert condition(text, UNIVERSE.households, "here") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size", "here: 'size' is no condition; write it as"),
        ("", "here: '' is no condition"),
        (7, "here: 7 is no condition"),
        ("sizes = 1", "unknown attribute in here: 'sizes': give .*; did you mean 'size'"),
        ("size = 8", "unknown category of 'size' in here: '8'"),
        ("type in [wed*]", "here: no category of 'type' is like 'wed\\*'"),
        ('type = "married', "here: the values '\"married' do not read"),
        ("type in []", "here: the values '' do not read"),
    ],
)
def test_conditions_that_cannot_be_meant(text: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        condition(text, UNIVERSE.households, "here")


def members(**first: Any) -> dict[str, Any]:
    given = link()["members"]
    return link(members=[{**given[0], **first}, *given[1:]])


def total(**changes: Any) -> dict[str, Any]:
    return link(members_total={**tomllib.loads(RHODE_ISLAND_LINK)["members_total"], **changes})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (link(households="dwellings"), "unknown table of \\[schemas\\]: 'dwellings'"),
        (link(member=[]), "unknown key in link: 'member': give .*; did you mean 'members'"),
        (link(members=[]), "link.members names no group of members"),
        (link(members=None), "link.members is missing; write it as \\[\\[link.members\\]\\]"),
        (members(group=""), "link.members 1.group is ''; give a text"),
        (members(group="wife"), "unknown category of 'relationship' in link.members 1: 'wife'"),
        (members(per=-1), "link.members 1.per: -1 is no number of members"),
        (members(per={"type in [married*]": [2, 1]}), "link.members 1.per: \\[2, 1\\] is no number of members"),
        (members(per={"size = 9": 1}), "unknown category of 'size' in link.members 1.per: '9'"),
        (members(persons=3), "link.members 1.persons: give a condition, or a list"),
        (link(members_total=None), "link.members_total is missing"),
        (total(size="sizes - 1"), "unknown attribute: 'sizes'|unknown attribute 'sizes'"),
        (
            total(size="size"),
            "link.members_total.size: whom link.householder describes is no member, and is counted by 'size'",
        ),
        (total(size="tenure - 1", open=None), "category 'owner' of 'tenure' is no number; write it as '3'"),
        (total(open=None), "category '7\\+' is open; say so: open = '7\\+'"),
        (total(largest=None), "'7\\+' is open, and how many one may have at most is not stated; state it"),
        (total(largest=6), "at most 6 is below the open category '7\\+'"),
        (total(largest=5), "category '6' of 'size' has up to 6, and at most 5 is stated; state 6 at least"),
        (total(largest=10**20), "link.members_total.largest is 1000.*; give at most 1,000"),
        (members(per={"type in [married*]": [0, 10**20]}), "members .*: 1000.*; give at most 1,000"),
        (total(largest="many"), "link.members_total.largest is 'many'; give a whole number"),
        (link(householder={"persons": "relationship = householder", "same": 3}), "link.householder.same: give pairs"),
        (link(householder={"persons": "relationship = householder", "same": {}}), "'age' of persons must be said once"),
        (link(facilities=[{"name": "nursing", "counted": "no"}]), "link.facilities 1.counted is 'no'; give true"),
        (link(facilities="nursing"), "link.facilities is 'nursing'; write it as \\[\\[link.facilities\\]\\]"),
        (link(householder=None), "link.members 1.persons is missing; say which persons it has"),
    ],
)  # fmt: skip
def test_links_that_cannot_be_meant(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        universe_of(SCHEMAS, given)


def test_sizes_below_a_householder() -> None:
    schema = Schema.from_mapping({**UNIVERSE.households.to_mappings()["attributes"], "size": ["0", "1"]})
    with pytest.raises(ConfigError, match=r"link\.members_total\.size: a category of 'size' is below 1"):
        universe_of({**SCHEMAS, "households": schema}, total(open=None, largest=None))
