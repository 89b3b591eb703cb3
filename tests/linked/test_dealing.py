"""Dealing: every household gets members that it can have, and everything is dealt that the rows say can be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import topdown as td
from support.linked import census
from support.linked_families import populated
from topdown.errors import DataError
from topdown.linked.dealing import NodeCells, dealt, members_by_class
from topdown.linked.member_groups import Compositions, MemberGroup, MembersTotal
from topdown.linked.record_faults import record_faults

UNIVERSE = census(races=3, ages=3)


def test_what_is_dealt_has_no_fault_and_tabulates_to_what_was_given() -> None:
    counts, _ = populated(UNIVERSE, np.array([0, 3, 20, 1]), np.random.default_rng(1), facilities=0.5)
    nodes = [(n, NodeCells(counts.cells[counts.nodes == n], counts.counts[counts.nodes == n])) for n in range(4)]
    rows = dealt(UNIVERSE, iter(nodes))
    for fault in record_faults(UNIVERSE, rows):
        assert not fault.wrong.any(), fault.said
    heads = UNIVERSE.persons.holds(rows.person, UNIVERSE.householder.persons)
    for leaf, (cells, numbers) in nodes:
        given = np.repeat(cells, numbers)
        found = [rows.cell[rows.leaf == leaf], UNIVERSE.of_persons(rows.person[(rows.whose == leaf) & ~heads])]
        assert np.array_equal(np.sort(np.concatenate(found)), np.sort(given[given != UNIVERSE.vacant]))


@pytest.mark.parametrize("seed", range(30))
def test_all_is_dealt_that_the_rows_allow(seed: int) -> None:
    rng, compositions = np.random.default_rng(seed), UNIVERSE.compositions
    able = np.flatnonzero(compositions.possible)
    households = np.bincount(rng.choice(able, rng.integers(0, 4)), minlength=compositions.n_classes)
    # Near what is needed, so that both answers occur.
    least = households @ compositions.least
    for more in itertools.product(range(-1, 4), repeat=len(UNIVERSE.groups)):
        members = least + np.array(more)
        if (members < 0).any():
            continue
        plan = members_by_class(compositions, households, members)
        assert (plan is not None) == bool(compositions.fits(households, members)), more
        if plan is not None:
            assert (plan.sum(axis=0) == members).all()
            assert (plan >= compositions.least * households[:, None]).all()
            assert (plan <= compositions.most * households[:, None]).all()


@pytest.mark.parametrize(
    ("households", "members"),
    [
        ([0, 3_000_000], [6_000_005, 0]),
        ([2_500_000, 5_000_000], [2_000_000, 8_000_000]),
        ([2_500_000, 5_000_000], [2_500_000_000, 1_999_999_999]),
        ([1, 5_000_000], [5_000_000_003, 0]),
    ],
)
def test_many_large_households_are_dealt(households: list[int], members: list[int]) -> None:
    """What they have room for, and in some cases what is dealt, is more than 32 bits hold."""
    schema = td.Schema.from_mapping({"size": ["1-3", "1+"]})
    attribute = td.Schema.from_mapping({"kind": ["a", "b"]})
    groups = tuple(
        MemberGroup(kind, ((("kind", (kind,)),),), (((), 0, None),)) for kind in attribute.attribute("kind").categories
    )
    compositions = Compositions(schema, groups, MembersTotal("size", (1, 1), (3, 1000)))
    given, persons = np.array(households), np.array(members)
    for more in (0, 5_000_000_000):
        plan = members_by_class(compositions, given, persons + more)
        assert (plan is not None) == bool(compositions.fits(given, persons + more)) == (more == 0)
        if plan is not None:
            assert (plan.sum(axis=0) == persons).all()
            assert ((plan.sum(axis=1) >= given) & (plan.sum(axis=1) <= [3, 1000] * given)).all()
            assert (plan >= 0).all()


def test_what_cannot_be_dealt_is_refused() -> None:
    spouse = UNIVERSE.of_persons(np.ravel_multi_index((1, 1, 0, 0, 0), UNIVERSE.persons.shape))
    with pytest.raises(DataError, match="node 7"):
        dealt(UNIVERSE, iter([(7, NodeCells(np.array([spouse]), np.array([1])))]))


def test_nothing_is_dealt_of_no_node() -> None:
    assert [len(array) for array in dealt(UNIVERSE, iter([]))] == [0] * 5
