"""The universe of two linked tables: cells there and back, householders as persons, queries of either table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import topdown as td
from support.linked import census, schools
from topdown.errors import ConfigError
from topdown.linked.member_groups import MemberGroup
from topdown.linked.universe import Facility, Householder, LinkedQuery

SMALL = census(races=2, ages=2)
CELLS = np.arange(SMALL.n_cells)


def test_every_cell_is_one_thing() -> None:
    kinds = np.stack([SMALL.is_household(CELLS), SMALL.vacant == CELLS, SMALL.is_member(CELLS)])
    assert (kinds.sum(axis=0) == 1).all()
    assert (SMALL.is_unit(CELLS) == kinds[:2].any(axis=0)).all()


def test_cells_there_and_back() -> None:
    own = np.arange(SMALL.persons.n_cells)
    assert (SMALL.person_of(SMALL.of_persons(own)) == own).all()
    own = np.arange(SMALL.households.n_cells)
    assert (SMALL.household_of(SMALL.of_households(own)) == own).all()
    assert SMALL.person_of(SMALL.vacant) == SMALL.household_of(SMALL.vacant) == -1


def test_a_household_is_its_householder() -> None:
    cells = CELLS[SMALL.is_household(CELLS)]
    person = np.unravel_index(SMALL.person_of(cells), SMALL.persons.shape)
    household = np.unravel_index(cells, SMALL.households.shape)
    assert (person[0] == 0).all()
    for theirs, own in ((1, 3), (2, 4), (3, 5), (4, 6)):
        names = np.array(SMALL.persons.attributes[theirs].categories)[person[theirs]]
        assert (names == np.array(SMALL.households.attributes[own].categories)[household[own]]).all()


def test_groups_and_facilities_are_apart() -> None:
    group, facility = SMALL.group_of(CELLS), SMALL.facility_of(CELLS)
    assert not ((group >= 0) & (facility >= 0)).any()
    members = SMALL.is_member(CELLS) & SMALL.possible(CELLS)
    assert ((group >= 0) | (facility >= 0))[members].all()
    assert set(group.tolist()) == {-1, 0, 1, 2, 3}
    assert set(facility.tolist()) == {-1, 0, 1}


def test_what_cannot_be_is_not_possible() -> None:
    possible = SMALL.possible(CELLS)
    assert possible[SMALL.vacant]
    minor_spouse = SMALL.of_persons(np.ravel_multi_index((1, 0, 0, 0, 0), SMALL.persons.shape))
    householder = SMALL.of_persons(np.ravel_multi_index((0, 1, 0, 0, 0), SMALL.persons.shape))
    married_alone = np.ravel_multi_index((0, 1, 0, 0, 0, 0, 0), SMALL.households.shape)
    assert not possible[[minor_spouse, householder, married_alone]].any()
    alone = np.ravel_multi_index((0, 5, 0, 0, 0, 0, 0), SMALL.households.shape)
    assert possible[alone]


def test_a_zero_of_persons_is_one_of_householders() -> None:
    zeros = ((("relationship", ("householder",)), ("age", ("adult 1",))),)
    universe = replace(SMALL, persons=replace(SMALL.persons, zeros=zeros))
    cells = CELLS[universe.is_household(CELLS)]
    hage = np.unravel_index(cells, universe.households.shape)[3]
    assert not universe.possible(cells)[hage == 0].any()
    assert universe.possible(cells)[hage == 1].any()


def test_persons_are_asked_about_householders_too() -> None:
    query = LinkedQuery.parse("persons: sex", SMALL)
    answers = query.answers_of(CELLS)
    assert (answers == np.where(SMALL.person_of(CELLS) < 0, -1, query.query.answers_of(SMALL.person_of(CELLS)))).all()
    assert (answers >= 0)[SMALL.is_household(CELLS)].all()
    assert answers[SMALL.vacant] == -1


def test_households_are_asked_about_households_alone() -> None:
    query = LinkedQuery.parse("households: size * tenure", SMALL)
    answers = query.answers_of(CELLS)
    assert ((answers >= 0) == SMALL.is_household(CELLS)).all()
    with_vacant = LinkedQuery.parse("households: total + vacant", SMALL)
    assert with_vacant.n_answers == 2
    assert with_vacant.answers_of([0, SMALL.vacant, SMALL.vacant + 1]).tolist() == [0, 1, -1]


@pytest.mark.parametrize("text", ["persons: total", "households: size * hage", "households: total + vacant"])
def test_a_querys_name_is_read_back(text: str) -> None:
    query = LinkedQuery.parse(text, SMALL)
    assert query.name == text
    assert LinkedQuery.parse(query.name, SMALL) == query


def test_answers_are_sums_of_counts() -> None:
    query = LinkedQuery.parse("persons: sex", SMALL)
    male, female = (np.ravel_multi_index((1, 1, sex, 0, 0), SMALL.persons.shape) for sex in (0, 1))
    cells = np.array([SMALL.vacant, 0, *SMALL.of_persons([male, female])])
    found = query.sparse_answers(np.array([0, 0, 0, 1]), cells, np.array([5, 2, 3, 4]), 2)
    assert found.tolist() == [[5, 0], [0, 4]]


def test_schools_have_no_householder() -> None:
    universe = schools()
    cells = np.arange(universe.n_cells)
    assert (universe.person_of(cells)[universe.is_unit(cells)] == -1).all()
    assert universe.describe(0) == "schools: primary, 0"
    assert universe.describe(universe.vacant + 4) == "pupils: high, male"
    assert universe.describe(universe.vacant) == "a vacant unit"
    assert len(universe.compositions.rows.equal) == 4  # all pupils least and most, the low most, the high least


def test_a_large_universe_makes_no_table() -> None:
    many = tuple(map(str, range(10_000)))
    universe = replace(
        schools(),
        households=td.Schema.from_mapping(
            {"a": many, "kind": ["primary", "secondary"], "b": many, "size": ["0", "1", "2+"]}
        ),
        persons=td.Schema.from_mapping({"c": many, "grade": ["low", "high"], "d": many}),
    )
    assert universe.n_cells > 10**8
    assert universe.possible([0, universe.n_cells - 1]).all()
    assert LinkedQuery.parse("pupils: grade", universe).answers_of(universe.n_cells - 1) == 1


def test_persons_in_two_groups_are_refused() -> None:
    both = (*SMALL.facilities, Facility("jail", ((("relationship", ("prison",)),),)))
    with pytest.raises(ConfigError, match="'prison' and in 'jail'"):
        replace(SMALL, facilities=both)


def test_names_of_two_groups_that_are_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="have one name"):
        replace(SMALL, facilities=(*SMALL.facilities, SMALL.facilities[0]))


@pytest.mark.parametrize(
    ("fixed", "same", "message"),
    [
        (
            "householder",
            (("age", "hage"), ("sex", "hsex"), ("hispanic", "hhispanic")),
            "'race' of persons must be said once",
        ),
        (
            "householders",
            (("age", "hage"), ("sex", "hsex"), ("hispanic", "hhispanic"), ("race", "hrace")),
            "did you mean",
        ),
        ("householder", (("age", "hrace"), ("sex", "hsex"), ("hispanic", "hhispanic"), ("race", "hrace")), "has not"),
    ],
)
def test_a_householder_who_is_not_told_is_refused(fixed: str, same: tuple[tuple[str, str], ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(SMALL, householder=Householder((("relationship", (fixed,)),), same))


def test_households_that_hold_nobody_they_must_are_refused() -> None:
    groups = (MemberGroup("spouse", SMALL.groups[0].persons, (((), 20, None),)), *SMALL.groups[1:])
    with pytest.raises(ConfigError, match="no households can have the members"):
        replace(SMALL, groups=groups)


@pytest.mark.parametrize("text", ["person: total", "persons total", "households: size + vacnt"])
def test_a_query_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        LinkedQuery.parse(text, SMALL)


def test_no_vacant_unit_is_a_person() -> None:
    with pytest.raises(ConfigError, match="no vacant unit"):
        LinkedQuery.parse("persons: total + vacant", SMALL)
