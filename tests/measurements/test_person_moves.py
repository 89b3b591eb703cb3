"""What a person's move costs the table of households, found from compositions: against households written out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import topdown as td
from support.linked import census, rhode_island
from topdown.errors import ConfigError
from topdown.linked.link_text import universe_of
from topdown.linked.universe import LinkedQuery, Universe
from topdown.measurements.person_moves import _losses, moved_squared
from topdown.privacy.linked_units import linked_neighbours

SMALL = census(races=2, ages=2, largest=8)


def compositions(universe: Universe, kind: int) -> Iterator[tuple[int, ...]]:
    """The members by group of a class of households, one by one."""
    known = universe.compositions
    ranges = [range(low, high + 1) for low, high in zip(known.least[kind], known.most[kind], strict=True)]
    for members in itertools.product(*ranges):
        if known.total_least[kind] <= sum(members) <= known.total_most[kind]:
            yield members


@pytest.mark.parametrize(
    "text", ["households: total", "households: size", "households: type", "households: size * type"]
)
def test_losses_are_those_of_households_written_out(text: str) -> None:
    query = LinkedQuery.parse(text, SMALL)
    cells = np.arange(SMALL.n_household_cells)
    kinds = SMALL.compositions.class_of(cells)
    cell_of = {int(kind): int(np.flatnonzero(kinds == kind)[0]) for kind in np.unique(kinds)}
    held: dict[tuple[int, ...], list[int]] = {}
    for kind in cell_of:
        if SMALL.compositions.possible[kind]:
            for members in compositions(SMALL, kind):
                held.setdefault(members, []).append(kind)

    def answer(kind: int) -> int | None:
        found = int(query.answers_of(np.array([cell_of[kind]]))[0])
        return None if found < 0 else found

    expected = {(answer(kind), None) for kind in held[0, 0, 0, 0]}
    for members, kinds_before in held.items():
        for group, number in enumerate(members):
            less = (*members[:group], number - 1, *members[group + 1 :])
            for one, other in itertools.product(kinds_before, held.get(less, []) if number else []):
                expected.add((answer(one), answer(other)))
    assert _losses(query) == expected


def test_the_census_moves_six() -> None:
    queries = [
        LinkedQuery.parse(f"households: {text}", rhode_island()) for text in ("total", "size", "type", "detailed")
    ]
    assert [moved_squared([query]) for query in queries] == [2, 6, 6, 6]
    assert moved_squared(queries) == 6
    assert moved_squared([LinkedQuery.parse("persons: sex", rhode_island())]) == 0


def test_a_query_of_odd_sizes_moves_eight() -> None:
    universe = rhode_island()
    odd = {"odd": ["1", "3", "5", "7+"], "even": ["2", "4", "6"]}
    schema = universe.households
    recoded = type(schema).from_mapping(schema.to_mappings()["attributes"], {"size": {"parity": odd}})
    other = Universe(
        recoded,
        universe.persons,
        universe.groups,
        universe.members_total,
        universe.householder,
        universe.facilities,
    )
    assert moved_squared([LinkedQuery.parse("households: parity", other)]) == 8


def brute_force(query: LinkedQuery, losses: list[tuple[int | None, int | None]]) -> int:
    """The largest squared distance where a household leaves one cell for another and a second one the other way."""
    most = 0
    for (before, after), (joined, not_joined) in itertools.product(losses, repeat=2):
        change = np.zeros(query.n_answers)
        for cell, sign in ((before, -1), (after, 1), (not_joined, -1), (joined, 1)):
            if cell is not None:
                change[query.answers_of(np.array([cell]))[0]] += sign
        most = max(most, int(change @ change))
    return most


@pytest.mark.parametrize(
    ("text", "found", "squared"), [("total", 1, 2), ("size", 5, 5), ("kind", 2, 2), ("detailed", 5, 5)]
)
def test_the_last_member_of_a_school_leaves_it_empty(text: str, found: int, squared: int) -> None:
    """Without a householder, nobody but the members is in a household: with one of them left it is vacant next."""
    schemas = {
        "schools": td.Schema.from_mapping({"size": ["1", "2+"], "kind": ["a", "b"]}),
        "pupils": td.Schema.from_mapping({"sex": ["f", "m"]}),
    }
    link = {
        "households": "schools",
        "persons": "pupils",
        "members": [{"group": "pupil", "persons": [], "per": "rest"}],
        "members_total": {"size": "size", "open": "2+", "largest": 5},
    }
    universe = universe_of(schemas, link)
    query = LinkedQuery.parse(f"schools: {text}", universe)
    cells = {(number, kind): 2 * min(number - 1, 1) + kind for number in range(1, 6) for kind in (0, 1)}
    losses = [(cell, cells.get((number - 1, kind))) for (number, kind), cell in cells.items()]
    assert (brute_force(query, losses), moved_squared([query])) == (found, squared)


def mixed(depending: list[str], zeros: Sequence[dict[str, str]] = ()) -> Universe:
    """Households of one person or more, of which it is said whether both sexes live there, and of which sex the
    householder is."""
    schemas = {
        "households": td.Schema.from_mapping(
            {"size": ["1", "2+"], "mixed": ["no", "yes"], "hsex": ["f", "m"]}, zeros=zeros
        ),
        "persons": td.Schema.from_mapping({"relationship": ["head", "other"], "sex": ["f", "m"]}),
    }
    link = {
        "householder": {"persons": "relationship = head", "same": {"sex": "hsex"}},
        "members": [{"group": "other"}],
        "members_total": {"size": "size - 1", "open": "2+", "largest": 5},
        "depend_on_members": depending,
    }
    return universe_of(schemas, link)


def test_what_depends_on_members_without_a_rule_changes_with_them() -> None:
    universe = mixed(["mixed"])
    shape = universe.households.shape

    def cell(head: int, women: int, men: int) -> int:
        both = bool(women or head == 0) and bool(men or head == 1)
        return int(np.ravel_multi_index((min(women + men, 1), int(both), head), shape))

    losses: list[tuple[int | None, int | None]] = []
    for head, women, men in itertools.product(range(2), range(5), range(5)):
        if women + men <= 4:
            losses += [(cell(head, women, men), cell(head, women - 1, men))] if women else []
            losses += [(cell(head, women, men), cell(head, women, men - 1))] if men else []
            losses += [] if women + men else [(cell(head, 0, 0), None)]
    found = {}
    for text in ("total", "size", "size * mixed", "detailed"):
        query = LinkedQuery.parse(f"households: {text}", universe)
        found[text] = brute_force(query, losses), moved_squared([query])
    assert found == {"total": (1, 2), "size": (5, 5), "size * mixed": (6, 8), "detailed": (6, 8)}
    # Undeclared, it is taken to stay the same, which the statement says.
    assert moved_squared([LinkedQuery.parse("households: detailed", mixed([]))]) == 5
    assert (universe.kept_by_moves, mixed([]).kept_by_moves) == ((), ("mixed",))


def test_what_stays_the_same_when_a_person_moves_is_stated() -> None:
    (move,) = (row for row in linked_neighbours(None, kept=("mixed", "tenure")) if row.name == "move")
    assert move.words.endswith("the others have the same attributes, and the households the same 'mixed', 'tenure'")
    with pytest.raises(ConfigError, match=r"'size' of households is said to depend on members besides"):
        mixed(["size"])
    with pytest.raises(ConfigError, match=r"'hsex' of households is said to depend on members besides"):
        mixed(["hsex"])
    with pytest.raises(ConfigError, match=r"link\.depend_on_members.*'tenure'"):
        mixed(["tenure"])


def test_what_a_zero_ties_to_the_size_changes_with_it() -> None:
    """Both sexes are in no household of one: who leaves a household of two changes that too."""
    tied = mixed([], [{"size": "1", "mixed": "yes"}])
    assert (tied.changed_by_moves, tied.kept_by_moves) == (("mixed",), ())
    assert moved_squared([LinkedQuery.parse("households: detailed", tied)]) == 8
    of_the_householder = mixed([], [{"size": "1", "hsex": "f"}, {"hsex": "f", "mixed": "yes"}])
    assert of_the_householder.kept_by_moves == ("mixed",)
