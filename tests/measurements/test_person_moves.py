"""What a person's move costs the table of households, found from compositions: against households written out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from support.linked import census, rhode_island
from topdown.linked.universe import LinkedQuery, Universe
from topdown.measurements.person_moves import _losses, moved_squared

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
