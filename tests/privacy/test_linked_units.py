"""Guarantees of persons and households together: every kind of neighbours of small universes, enumerated."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

import pytest

from topdown.errors import BudgetError
from topdown.privacy import ExactEvent, GaussianEvent, LaplaceEvent, ZCDPAccountant
from topdown.privacy.conversions import zcdp_to_epsilon
from topdown.privacy.ledger import Ledger
from topdown.privacy.linked_units import (
    MOST_OF_A_MOVE,
    USUAL_OF_A_MOVE,
    LinkedGuarantee,
    LinkedNeighbours,
    linked_neighbours,
    move_squared,
)

SEXES = ("f", "m")
ROLES = ("spouse", "other")
LARGEST = 3
RHO = Fraction(64, 25)


class House(NamedTuple):
    """A household: its householder's sex, and the sorted roles and sexes of its other members."""

    head: str
    members: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        return 1 + len(self.members)

    @property
    def married(self) -> bool:
        return any(role == "spouse" for role, _ in self.members)

    def people(self) -> list[tuple[str, str]]:
        return [("householder", self.head), *self.members]


Homes = dict[str, Callable[["House | None"], object]]
"""Queries of households, by name: what a dwelling is counted in, None where it is in none."""
Apart = tuple[int, int]
"""The squared L2 distances between answers of persons, and of households."""
KINDS = tuple(itertools.product(ROLES, SEXES))
HOUSES = tuple(
    House(head, members)
    for head in SEXES
    for n in range(LARGEST)
    for members in itertools.combinations_with_replacement(KINDS, n)
    if sum(role == "spouse" for role, _ in members) <= 1
)
DWELLING = (None, *HOUSES)
"""What may be in a dwelling; None: it is vacant."""
World = tuple[House | None, House | None]
"""Two dwellings: no kind of neighbours touches more. Whatever else there is, is the same in both of two neighbours."""

PERSON_QUERIES: dict[str, Callable[[tuple[str, str]], object]] = {
    "total": lambda person: "",
    "role": lambda person: person[0],
    "sex": lambda person: person[1],
    "role * sex": lambda person: person,
    "members' sex": lambda person: None if person[0] == "householder" else person[1],
}
HOUSEHOLD_QUERIES: Homes = {
    "occupied": lambda house: house is not None,
    "size": lambda house: 0 if house is None else house.size,
    "size * married": lambda house: "vacant" if house is None else (house.size, house.married),
    "detailed": lambda house: "vacant" if house is None else (house.size, house.married, house.head),
}
OF_OCCUPIED: Homes = {
    "households": lambda house: None if house is None else "",
    "size": lambda house: None if house is None else house.size,
    "detailed": lambda house: None if house is None else (house.size, house.married, house.head),
}
ODD_SIZES: Homes = {"odd": lambda house: None if house is None else house.size % 2}
"""A query whose groups of sizes are no ranges: a household that goes from 2 to 1 and one that goes from 2 to 3 look the
same in it."""


def tabulated(world: World, apart: bool, homes: Homes) -> list[Counter[tuple[object, object]]]:
    """The answers to every query, at all nodes: the place of both dwellings, and of each where they are ``apart``.

    Persons' queries come first.
    """
    return _tabulated(world, apart, tuple(homes.values()))


@functools.cache
def _tabulated(
    world: World, apart: bool, homes: tuple[Callable[[House | None], object], ...]
) -> list[Counter[tuple[object, object]]]:
    places = [("all", range(2)), *(((0, (0,)), (1, (1,))) if apart else ())]
    found: list[Counter[tuple[object, object]]] = []
    for person in PERSON_QUERIES.values():
        people = [
            (place, person(one))
            for place, within in places
            for k in within
            if world[k] is not None
            for one in world[k].people()  # type: ignore[union-attr]
        ]
        found.append(Counter(pair for pair in people if pair[1] is not None))
    for home in homes:
        pairs = [(place, home(world[k])) for place, within in places for k in within]
        found.append(Counter(pair for pair in pairs if pair[1] is not None))
    return found


def apart_by_level(one: World, other: World, apart: bool, homes: Homes) -> Apart:
    """The largest squared L2 distance of a persons' query at one level, and of a households'."""
    most = [0, 0]
    before, after = tabulated(one, apart, homes), tabulated(other, apart, homes)
    for k, (x, y) in enumerate(zip(before, after, strict=True)):
        for upper in (True, False):
            keys = {key for key in x | y if (key[0] == "all") == upper}
            squared = sum((x[key] - y[key]) ** 2 for key in keys)
            table = int(k >= len(PERSON_QUERIES))
            most[table] = max(most[table], squared)
    return most[0], most[1]


def without(house: House, k: int) -> House | None:
    """The household when its k-th person has left (0 the householder, who lives alone)."""
    if k == 0:
        return None
    return House(house.head, house.members[: k - 1] + house.members[k:])


def leavers(house: House | None) -> list[int]:
    """Who may leave without anybody's relationship changing."""
    if house is None:
        return []
    return [0] if house.size == 1 else list(range(1, house.size))


def joined(house: House | None) -> Iterator[House]:
    """The households that it may be with one person more, whose attributes are any."""
    if house is None:
        yield from (House(sex) for sex in SEXES)
    elif house.size < LARGEST:
        for kind in KINDS:
            more = House(house.head, tuple(sorted([*house.members, kind])))
            if more in HOUSES:
                yield more


def attributes(world: World) -> Iterator[World]:
    house, other = world
    if house is not None:
        yield from ((House(sex, house.members), other) for sex in SEXES)
        for k in range(len(house.members)):
            for kind in KINDS:
                changed = House(house.head, tuple(sorted([*house.members[:k], kind, *house.members[k + 1 :]])))
                if changed in HOUSES:
                    yield changed, other


def move(world: World) -> Iterator[World]:
    house, other = world
    for k in leavers(house):
        assert house is not None
        yield from ((without(house, k), more) for more in joined(other))


def removed(world: World) -> Iterator[World]:
    house, other = world
    for k in leavers(house):
        assert house is not None
        yield without(house, k), other


def household_removed(most: int) -> Callable[[World], Iterator[World]]:
    def those(world: World) -> Iterator[World]:
        if world[0] is not None and world[0].size <= most:
            yield None, world[1]

    return those


def household_replaced(most: int) -> Callable[[World], Iterator[World]]:
    def those(world: World) -> Iterator[World]:
        if world[0] is not None and world[0].size <= most:
            yield from ((house, world[1]) for house in HOUSES if house.size <= most)

    return those


def household_moved(most: int) -> Callable[[World], Iterator[World]]:
    def those(world: World) -> Iterator[World]:
        if world[0] is not None and world[0].size <= most and world[1] is None:
            yield from ((None, house) for house in HOUSES if house.size <= most)

    return those


def enumerated(neighbours: Callable[[World], Iterator[World]], homes: Homes) -> Apart:
    """The largest distances over all worlds and their neighbours, the dwellings in one place or in two."""
    most = [0, 0]
    for world in itertools.product(DWELLING, repeat=2):
        for other in neighbours(world):
            for apart in (False, True):
                for table, squared in enumerate(apart_by_level(world, other, apart, homes)):
                    most[table] = max(most[table], squared)
    return most[0], most[1]


def row(name: str, most: int | None = None, **settings: object) -> LinkedNeighbours:
    return next(one for one in linked_neighbours(most, **settings) if one.name == name)  # type: ignore[arg-type]


def bounds(name: str, most: int | None = None, **settings: object) -> Apart:
    found = row(name, most, **settings)
    return found.persons, found.households


def test_a_persons_attributes_move_two_answers_of_both_tables() -> None:
    assert enumerated(attributes, HOUSEHOLD_QUERIES) == bounds("attributes") == (2, 2)


def test_a_person_who_moves_changes_two_households_alike_which_is_more_than_four() -> None:
    """Two households of one kind, one of which loses a member that the other gains: -2, 1 and 1."""
    assert enumerated(move, HOUSEHOLD_QUERIES) == bounds("move", moved=USUAL_OF_A_MOVE) == (2, 6)
    assert enumerated(move, OF_OCCUPIED) == (2, 6)


def test_a_query_that_takes_losing_and_gaining_for_the_same_has_the_largest_distance() -> None:
    assert enumerated(move, ODD_SIZES) == bounds("move") == (2, MOST_OF_A_MOVE) == (2, 8)


def test_a_person_more_or_less() -> None:
    assert enumerated(removed, HOUSEHOLD_QUERIES) == bounds("add-remove") == (1, 2)


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize(("homes", "vacant"), [(HOUSEHOLD_QUERIES, True), (OF_OCCUPIED, False)])
@pytest.mark.parametrize(
    ("name", "neighbours"),
    [
        ("household add-remove", household_removed),
        ("household replaced", household_replaced),
        ("household moved", household_moved),
    ],
)
def test_households_of_at_most_m_persons(
    name: str,
    neighbours: Callable[[int], Callable[[World], Iterator[World]]],
    most: int,
    homes: Homes,
    vacant: bool,
) -> None:
    assert enumerated(neighbours(most), homes) == bounds(name, most, vacant=vacant)


def losses(query: Callable[[House | None], object]) -> list[tuple[object, object]]:
    return [(query(house), query(without(house, k))) for house in HOUSES for k in leavers(house)]


def test_what_a_move_costs_a_query_is_found_from_what_households_look_like_with_a_member_less() -> None:
    for homes in (HOUSEHOLD_QUERIES, OF_OCCUPIED, ODD_SIZES):
        for name, query in homes.items():
            assert move_squared(losses(query)) == enumerated(move, {name: query})[1], name
    assert move_squared([]) == 0


def test_what_neighbours_cost_is_within_the_row_for_a_whole_set_of_queries() -> None:
    """Two queries of each table with noise of their own, at two levels: the exact cost of the worst neighbours."""
    sigma2 = {0: Fraction(2), 1: Fraction(3)}
    persons = sum((1 / s for s in sigma2.values()), Fraction(0)) * len(PERSON_QUERIES)
    households = sum((1 / s for s in sigma2.values()), Fraction(0)) * len(HOUSEHOLD_QUERIES)
    found = LinkedGuarantee(persons, households, most=LARGEST, moved=USUAL_OF_A_MOVE)
    kinds = {
        "attributes": attributes,
        "move": move,
        "add-remove": removed,
        "household add-remove": household_removed(LARGEST),
        "household replaced": household_replaced(LARGEST),
        "household moved": household_moved(LARGEST),
    }
    assert list(kinds) == [one.name for one in found.rows()]
    for name, neighbours in kinds.items():
        worst = Fraction(0)
        for world in itertools.product(DWELLING, repeat=2):
            before = tabulated(world, True, HOUSEHOLD_QUERIES)
            for other in neighbours(world):
                cost = Fraction(0)
                for x, y in zip(before, tabulated(other, True, HOUSEHOLD_QUERIES), strict=True):
                    for key in x | y:
                        cost += Fraction((x[key] - y[key]) ** 2) / (2 * sigma2[int(key[0] == "all")])  # type: ignore[index]
                worst = max(worst, cost)
        assert 0 < worst <= found.rho(name), name


def test_the_profile_of_productions_budget() -> None:
    found = LinkedGuarantee(RHO, RHO, most=7, moved=USUAL_OF_A_MOVE, delta=1e-10)
    assert found.rho("attributes") == Fraction(128, 25)
    assert found.rho("household replaced") == 128
    assert found.rho("household replaced", 1) == found.rho("attributes")
    assert found.total("person") == found.rho("move") == 4 * RHO
    assert found.total("household") == found.rho("household moved") == 51 * RHO
    assert found.profile() == [(m, (m * m + 2) * RHO) for m in range(1, 8)]


def test_a_persons_total_is_that_of_attributes_where_households_are_not_measured() -> None:
    assert LinkedGuarantee(RHO, Fraction(0), most=2).total("person") == RHO


def test_without_a_largest_household_there_is_no_guarantee_for_households() -> None:
    found = LinkedGuarantee(RHO, RHO, most=None)
    assert {one.unit for one in found.rows()} == {"person"}
    assert found.profile() == []
    with pytest.raises(BudgetError, match="no guarantee for households: how many persons one may have is not stated"):
        found.total("household")
    assert "One household: no guarantee." in "\n".join(found.describe())
    assert found.to_dict()["largest_household"] is None


@pytest.mark.parametrize("most", [0, -1, 2.0, True, "7"])
def test_a_largest_household_is_a_whole_number(most: object) -> None:
    with pytest.raises(BudgetError, match="give a whole number of 1 or more"):
        LinkedGuarantee(RHO, RHO, most=most)  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [1001, 10**9, 10**20, 10**400])
def test_a_largest_household_has_at_most_1000_persons(most: int) -> None:
    with pytest.raises(BudgetError, match="guarantees are stated for households of at most 1,000 persons"):
        LinkedGuarantee(RHO, RHO, most=most)
    found = LinkedGuarantee(RHO, RHO, most=1000)
    assert len(found.profile()) == 1000
    told = [line for line in found.describe() if line.startswith("  at most ")]
    assert (len(told), told[-1].split(":")[0]) == (24, "  at most 500")


def test_names_that_are_not_known() -> None:
    found = LinkedGuarantee(RHO, RHO, most=2)
    with pytest.raises(BudgetError, match="unknown unit 'family'"):
        found.total("family")
    with pytest.raises(BudgetError, match="nothing is said of 'divorce'; there are attributes, move"):
        found.rho("divorce")
    with pytest.raises(BudgetError, match="rho_households is -1"):
        LinkedGuarantee(RHO, Fraction(-1), most=2)


def test_words_and_json_tell_every_row() -> None:
    found = LinkedGuarantee(RHO, RHO, most=3, moved=USUAL_OF_A_MOVE, delta=1e-10)
    text = "\n".join(found.describe())
    told = found.to_dict()
    for one, as_told in zip(found.rows(), told["neighbours"], strict=True):
        assert one.words in text
        assert Fraction(as_told["loss"]["rho"]) == found.rho(one.name)
        assert as_told["loss"]["approximate"]["epsilon"] == zcdp_to_epsilon(float(found.rho(one.name)), 1e-10)
    assert "One household with at most 3 persons: rho = 704/25 (28.16)" in text
    assert [entry["largest_household"] for entry in told["profile"]] == [1, 2, 3]
    assert told["profile"][1]["household replaced"]["rho"] == str(5 * RHO)
    assert "approximate" not in found.rows()[0].words


def some_events() -> tuple[list[GaussianEvent], list[GaussianEvent]]:
    persons = [GaussianEvent(level=level, query="persons: sex", sigma2=1 / RHO * 2) for level in ("state", "block")]
    return persons, [GaussianEvent(level="block", query="households: size", sigma2=1 / RHO)]


def test_the_ledger_charges_either_unit(tmp_path: object) -> None:
    found = LinkedGuarantee(RHO, RHO, most=7, moved=USUAL_OF_A_MOVE)
    ledger = Ledger(tmp_path / "ledger.sqlite")  # type: ignore[operator]
    for dataset, unit in (("people", "person"), ("homes", "household")):
        events = found.events(unit, *some_events())
        assert ZCDPAccountant(events).total == found.total(unit)
        ledger.open_account(dataset, 1000, "rho", unit=found.unit_name(unit), neighbours="substitute")
        assert ledger.reserve(dataset, "first", events).spent == found.total(unit)
    with pytest.raises(BudgetError, match="accounted for one person under 'substitute', and the release protects one"):
        ledger.reserve("people", "second", found.events("household", *some_events()))


def test_only_gaussian_noise_is_charged_and_what_is_exact_stays_exact() -> None:
    found = LinkedGuarantee(RHO, RHO, most=7)
    exact = ExactEvent(level="state", query="households: units")
    assert found.events("household", [], [exact])[0].unit == "household of at most 7 persons"
    with pytest.raises(BudgetError, match="with Gaussian noise, and this is geometric"):
        found.events("person", [LaplaceEvent(level="state", scale=Fraction(1))], [])
