"""Dealing: every household gets members that it can have, and everything is dealt that the rows say can be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from support.linked import census
from support.linked_families import populated
from topdown.errors import DataError
from topdown.linked.dealing import NodeCells, dealt, members_by_class
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


def test_what_cannot_be_dealt_is_refused() -> None:
    spouse = UNIVERSE.of_persons(np.ravel_multi_index((1, 1, 0, 0, 0), UNIVERSE.persons.shape))
    with pytest.raises(DataError, match="node 7"):
        dealt(UNIVERSE, iter([(7, NodeCells(np.array([spouse]), np.array([1])))]))


def test_nothing_is_dealt_of_no_node() -> None:
    assert [len(array) for array in dealt(UNIVERSE, iter([]))] == [0] * 5
