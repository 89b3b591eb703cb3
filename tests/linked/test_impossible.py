"""Impossible and improbable results: none in what is true, each where it was made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.linked import rhode_island
from support.places import SMALL_DATA
from topdown.errors import ConfigError
from topdown.linked.impossible import CountedCells, PersonFacts, Result, counted, results_of
from topdown.linked.member_groups import MemberGroup, MembersTotal
from topdown.linked.universe import Universe
from topdown.workload import Schema

UNIVERSE = rhode_island()
FACTS = PersonFacts("age", "sex", "race")

Person = tuple[str, str, str, str, str]
HEAD = ("householder", "35-44", "female", "not Hispanic", "White")
SPOUSE = ("spouse", "35-44", "male", "not Hispanic", "White")
CHILD = ("own child under 18", "5-17", "male", "not Hispanic", "White")
OTHER = ("other in household", "45-54", "male", "not Hispanic", "White")
STUDENT = ("college", "18-24", "male", "not Hispanic", "White")
ALONE = ("1", "other, without", "owner", *HEAD[1:])
COUPLE = ("2", "married, without", "owner", *HEAD[1:])
FAMILY = ("3", "married, with own children", "owner", *HEAD[1:])


def cell(schema: Schema, values: tuple[str, ...]) -> int:
    places = [one.categories.index(value) for one, value in zip(schema.attributes, values, strict=True)]
    return int(np.ravel_multi_index(places, schema.shape))


def table(schema: Schema, nodes: list[dict[tuple[str, ...], int]]) -> CountedCells:
    rows = [(row, cell(schema, values), n) for row, node in enumerate(nodes) for values, n in node.items()]
    return CountedCells(*(np.array([one[k] for one in rows], np.int64) for k in range(3)))


def found_at(households: dict[tuple[str, ...], int], persons: dict[Person, int]) -> tuple[set[str], set[str]]:
    """The names of the impossible and of the improbable results of one node."""
    results = results_of(
        UNIVERSE, table(UNIVERSE.households, [households]), table(UNIVERSE.persons, [persons]), 1, FACTS
    )
    for one in results:
        assert not (one.found & ~one.among).any() or one.name.endswith("dealt into the households"), one.name
    there = [one for one in results if one.found[0]]
    return {one.name for one in there if one.impossible}, {one.name for one in there if not one.impossible}


RACES = "more households with a householder of one race than persons of it"
DEALT = "persons who cannot be dealt into the households"
HEADS = "not one householder for each household"
OF_ATTRIBUTES = {
    f"more households with a householder of one {name} than persons of it"
    for name in ("age", "sex", "hispanic", "race")
}


@pytest.mark.parametrize(
    ("households", "persons"),
    [
        ({ALONE: 1}, {HEAD: 1}),
        ({COUPLE: 2, FAMILY: 1}, {HEAD: 3, SPOUSE: 3, CHILD: 1}),
        ({}, {STUDENT: 40}),
        ({}, {}),
    ],
)
def test_what_can_be_has_no_impossible_result(
    households: dict[tuple[str, ...], int], persons: dict[Person, int]
) -> None:
    assert found_at(households, persons) == (set(), set())


CASES: dict[str, tuple[dict[tuple[str, ...], int], dict[Person, int], set[str]]] = {
    "people without a household": (
        {},
        {OTHER: 2},
        {"persons in households, and no households", DEALT},
    ),
    "households without people": (
        {ALONE: 2},
        {STUDENT: 1},
        {
            "households, and no persons in them",
            "fewer persons than households",
            "fewer persons than the sizes of households need",
            HEADS,
            *OF_ATTRIBUTES,
        },
    ),
    "fewer than sizes need": (
        {COUPLE: 2},
        {HEAD: 2, SPOUSE: 1},
        {
            "fewer persons than the sizes of households need",
            "more households with 'spouse' than there are",
            DEALT,
        },
    ),
    "householders of another race": (
        {ALONE: 1},
        {(*HEAD[:4], "Asian"): 1},
        {RACES},
    ),
    "more with children than children": (
        {FAMILY: 2},
        {HEAD: 2, SPOUSE: 2, CHILD: 1, OTHER: 1},
        {"more households with 'own child under 18' than there are", DEALT},
    ),
    "more members than places": (
        {ALONE: 1},
        {HEAD: 1, OTHER: 1},
        {DEALT},
    ),
    "a household that cannot be": (
        {("1", "married, without", *COUPLE[2:]): 1},
        {HEAD: 1},
        {"households that cannot be", "more households with 'spouse' than there are"},
    ),
    "a person who cannot be": (
        {COUPLE: 1},
        {HEAD: 1, ("spouse", "5-17", *SPOUSE[2:]): 1},
        {"persons who cannot be"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_impossible_result_is_found_where_it_is(name: str) -> None:
    households, persons, expected = CASES[name]
    assert found_at(households, persons)[0] == expected


def ages(*persons: tuple[str, str, str, int], relationship: str = "other in household") -> dict[Person, int]:
    """Persons by age, sex and race."""
    return {(relationship, age, sex, "not Hispanic", race): n for age, sex, race, n in persons}


@pytest.mark.parametrize(
    ("persons", "expected"),
    [
        (ages(("5-17", "male", "White", 3)), {"persons, none in a facility, all of them below 18"}),
        (ages(("5-17", "male", "White", 3), ("18-24", "male", "White", 1)), set()),
        (
            ages(("5-17", "male", "White", 100), ("5-17", "female", "White", 100), ("25-34", "female", "White", 1))
            | ages(("0-4", "male", "White", 4)),
            {"200 below 18, and an age of them by sex that nobody has"},
        ),
        (
            ages(("0-4", "male", "Asian", 5), ("25-34", "female", "White", 1)),
            {"5 below 5 of a race, and no woman of 18 to 44 of it"},
        ),
        (ages(("0-4", "male", "Asian", 5), ("25-34", "female", "Asian", 1)), set()),
        (
            ages(("25-34", "male", "Asian", 5), ("75+", "female", "Asian", 5)),
            {"5 men and 5 women of a race, whose median ages are 20 years apart"},
        ),
        (ages(("25-34", "male", "Asian", 5), ("35-44", "female", "Asian", 5)), set()),
        (ages(("25-34", "male", "Asian", 4), ("75+", "female", "Asian", 5)), set()),
    ],
)
def test_improbable_results(persons: dict[Person, int], expected: set[str]) -> None:
    households = {("7+", "other, without", *ALONE[2:]): 30}
    assert found_at(households, persons)[1] == expected


def test_crowded_households_are_improbable() -> None:
    name = "more than 10 persons for each household"
    assert found_at({COUPLE: 1}, {HEAD: 1, OTHER: 10})[1] == {name}
    assert found_at({COUPLE: 1}, {HEAD: 1, OTHER: 9})[1] == set()


def test_medians_are_straight_within_a_class_of_ages() -> None:
    """Ten men of 25 to 34 have the median 30; so have women with a median of 50 when half of them are older."""
    men = ages(("25-34", "male", "Asian", 10))
    at_50 = ages(("45-54", "female", "Asian", 10))
    below = ages(("45-54", "female", "Asian", 10), ("18-24", "female", "Asian", 1))
    name = "5 men and 5 women of a race, whose median ages are 20 years apart"
    households = {("7+", "other, without", *ALONE[2:]): 9}
    assert found_at(households, men | at_50)[1] == {name}
    assert found_at(households, men | below)[1] == set()


@pytest.fixture(scope="module")
def truth() -> tuple[CountedCells, CountedCells, int]:
    """The synthetic blocks as both tables."""
    made = []
    blocks: dict[str, int] = {}
    for name, schema in (("households", UNIVERSE.households), ("persons", UNIVERSE.persons)):
        read = pq.read_table(SMALL_DATA / "ri_linked" / f"{name}.parquet").to_pandas()
        for code in read["geoid"].unique():
            blocks.setdefault(code, len(blocks))
        places = [
            read[one.name].map({category: k for k, category in enumerate(one.categories)}).to_numpy()
            for one in schema.attributes
        ]
        cells = np.ravel_multi_index(places, schema.shape)
        rows = read["geoid"].map(blocks).to_numpy()
        made.append(CountedCells(rows, cells, np.ones(len(rows), np.int64)))
    return made[0], made[1], len(blocks)


def test_the_truth_has_no_impossible_result(truth: tuple[CountedCells, CountedCells, int]) -> None:
    results = results_of(UNIVERSE, *truth, FACTS)
    assert len([one for one in results if one.impossible]) == 15
    assert [one.name for one in results if one.impossible and one.found.any()] == []
    assert {one["among"] for one in counted(results) if one["result"] == RACES} == {truth[2]}


def test_tables_that_are_changed_apart_have_many(truth: tuple[CountedCells, CountedCells, int]) -> None:
    households, persons, n = truth
    rng = np.random.default_rng(1)
    kept = rng.random(len(households.rows)) < 0.7
    apart = CountedCells(*(one[kept] for one in households))
    by_name = {one["result"]: one for one in counted(results_of(UNIVERSE, apart, persons, n))}
    assert by_name[HEADS]["found"] > n // 2
    assert by_name[DEALT]["found"] > n // 2


def test_schools_without_householders() -> None:
    universe = Universe(
        td.Schema.from_mapping({"size": ["0", "1", "2+"]}),
        td.Schema.from_mapping({"grade": ["low", "high"]}),
        (MemberGroup("pupil", ((),), (((), 0, None),)),),
        MembersTotal("size", (0, 1, 2), (0, 1, 900)),
        names=("schools", "pupils"),
    )

    def names(schools: dict[tuple[str, ...], int], pupils: dict[tuple[str, ...], int]) -> set[str]:
        results = results_of(universe, table(universe.households, [schools]), table(universe.persons, [pupils]), 1)
        return {one.name for one in results if one.impossible and one.found[0]}

    assert names({("0",): 2}, {}) == set()
    assert names({("2+",): 1}, {("low",): 1, ("high",): 1}) == set()
    assert names({("1",): 1}, {}) == {
        "schools, and no pupils in them",
        "fewer pupils than the sizes of schools need",
        "pupils who cannot be dealt into the schools",
    }


def test_facts_that_are_not_there() -> None:
    nothing = CountedCells(*(np.zeros(0, np.int64) for _ in range(3)))
    for facts, message in (
        (PersonFacts("years"), "unknown attribute of persons: 'years'"),
        (PersonFacts("race"), "attribute 'race', category 'White': is no age; give ages such as '0-4'"),
        (replace(FACTS, women="woman"), "unknown category of 'sex': 'woman'"),
    ):
        with pytest.raises(ConfigError, match=message):
            results_of(UNIVERSE, nothing, nothing, 1, facts)


def test_a_result_is_counted() -> None:
    one = Result("x", True, np.array([True, True, False]), np.array([True, False, False]))
    assert counted([one]) == [{"result": "x", "impossible": True, "among": 2, "found": 1}]
