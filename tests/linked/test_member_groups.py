"""Compositions: the rows against dealing by brute force, on small universes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from support.examples import examples
from support.linked import census
from topdown.errors import ConfigError
from topdown.linked.member_groups import Compositions, MemberGroup, MembersTotal


def _held(compositions: Compositions, kind: int) -> set[tuple[int, ...]]:
    """Every composition that a household of a class can hold, counted out."""
    most = compositions.most[kind].tolist()
    found = itertools.product(*(range(m + 1) for m in most))
    return {
        n
        for n in found
        if all(n >= compositions.least[kind])
        and compositions.total_least[kind] <= sum(n) <= compositions.total_most[kind]
    }


def _dealt(compositions: Compositions, households: list[int]) -> set[tuple[int, ...]]:
    """All members by group that households of these classes can have together."""
    sums = {(0,) * len(compositions.groups)}
    for kind in households:
        own = _held(compositions, kind)
        sums = {tuple(np.add(a, b).tolist()) for a in sums for b in own}
    return sums


@st.composite
def toys(draw: st.DrawFn) -> tuple[Compositions, list[int]]:
    """Compositions of three kinds by three sizes, of one to three groups, and up to three households."""
    schema = td.Schema.from_mapping({"kind": ["a", "b", "c"], "size": ["1", "2", "3+"]})
    groups = []
    for number in range(draw(st.integers(1, 3))):
        per = []
        for kind in draw(st.lists(st.sampled_from("abc"), unique=True)):
            least = draw(st.integers(0, 2))
            most = draw(st.none() | st.integers(least, 2))
            per.append(((("kind", (kind,)),), least, most))
        groups.append(MemberGroup(f"group {number}", ((),), tuple(per)))
    compositions = Compositions(schema, tuple(groups), MembersTotal("size", (0, 1, 2), (0, 1, 4)))
    able = np.flatnonzero(compositions.possible).tolist()
    return compositions, draw(st.lists(st.sampled_from(able), max_size=3)) if able else []


@examples(60)
@given(toys())
def test_rows_hold_exactly_of_what_can_be_dealt(given: tuple[Compositions, list[int]]) -> None:
    compositions, households = given
    dealt = _dealt(compositions, households)
    counts = np.bincount(households, minlength=compositions.n_classes)
    most = 1 + max((sum(n) for n in dealt), default=0)
    for n in itertools.product(range(most + 1), repeat=len(compositions.groups)):
        assert bool(compositions.fits(counts, np.array(n))) == (n in dealt), n


@examples(60)
@given(toys())
def test_a_class_is_possible_where_something_is_held(given: tuple[Compositions, list[int]]) -> None:
    compositions, _ = given
    for kind in range(compositions.n_classes):
        assert compositions.possible[kind] == bool(_held(compositions, kind))


def test_a_census_has_seven_rows() -> None:
    rows = census().compositions.rows
    found = sorted((tuple(group), bool(equal)) for group, equal in zip(rows.of_group.tolist(), rows.equal, strict=True))
    assert found == sorted(
        [
            ((1, 0, 0, 0), True),  # spouses are the married households
            ((0, 1, 0, 0), True),
            ((0, 0, 1, 0), False),
            ((0, 0, -1, 0), False),
            ((0, 0, 0, 1), False),  # others fill the places of childless households
            ((0, 0, 1, 1), False),
            ((0, 0, -1, -1), False),
        ]
    )


def test_a_closed_total_is_one_equality() -> None:
    schema = td.Schema.from_mapping({"size": ["1", "2", "3"]})
    whole = MemberGroup("member", ((),), (((), 0, None),))
    rows = Compositions(schema, (whole,), MembersTotal("size", (0, 1, 2), (0, 1, 2))).rows
    assert rows.equal.tolist() == [True]
    assert np.abs(rows.of_class).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("total", "groups", "message"),
    [
        (MembersTotal("size", (0, 1), (0, 1)), 1, "2 numbers for 3 categories"),
        (MembersTotal("size", (0, 1, 2), (0, 1, 2)), 9, "from 1 to 8"),
        (MembersTotal("seize", (0, 1, 2), (0, 1, 2)), 1, "did you mean 'size'"),
    ],
)
def test_what_does_not_fit_is_refused(total: MembersTotal, groups: int, message: str) -> None:
    schema = td.Schema.from_mapping({"size": ["1", "2", "3"]})
    several = tuple(MemberGroup(f"group {k}", ((),), (((), 0, None),)) for k in range(groups))
    with pytest.raises(ConfigError, match=message):
        Compositions(schema, several, total)


def test_numbers_of_members_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 to 1 members"):
        MembersTotal("size", (2,), (1,))
    MembersTotal("size", (2,), (1000,))
    with pytest.raises(ConfigError, match="category 1: 1001 members; give at most 1,000"):
        MembersTotal("size", (2,), (1001,))
    with pytest.raises(ConfigError, match="'child': 100000000000000000000; give at most 1,000"):
        MemberGroup("child", ((),), (((), 10**20, None),))
    with pytest.raises(ConfigError, match="'spouse': 2 to 1"):
        MemberGroup("spouse", ((),), (((), 2, 1),))
