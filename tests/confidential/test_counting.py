"""Rows are counted batch by batch into the same counts, in whatever order and pieces they come."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import topdown as td
from topdown.confidential.counting import SparseTally
from topdown.confidential.entries import Entries
from topdown.confidential.records import count_records
from topdown.errors import CountsError

SCHEMA = td.Schema((td.Attribute("a", tuple(f"a{k}" for k in range(10))), td.Attribute("b", tuple("01234567"))))
CODES = [f"{county:02d}{block:04d}" for county in range(5) for block in range(40)]


@pytest.fixture(scope="module")
def geography() -> td.Geography:
    return td.Geography.from_geoids(CODES, {"county": 2, "block": 6})


@pytest.fixture(scope="module")
def keys() -> np.ndarray:
    return np.sort(np.random.default_rng(3).choice(len(CODES) * SCHEMA.n_cells, 900, replace=False))


def counted(geography: td.Geography, pieces: list[np.ndarray], numbers: np.ndarray | None) -> Entries:
    tally = SparseTally(geography.n_leaves, SCHEMA.n_cells)
    for piece in pieces:
        assert tally.add(piece, None if numbers is None else numbers[piece]) is None
    return tally.held(geography, SCHEMA.cells(), SCHEMA)


def same(one: Entries, other: Entries) -> bool:
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


@pytest.mark.parametrize("order", ["rising", "falling", "random"])
@pytest.mark.parametrize("size", [1, 7, 900])
def test_counts_do_not_depend_on_the_order_of_rows_nor_on_batches(
    geography: td.Geography, keys: np.ndarray, order: str, size: int
) -> None:
    numbers = np.random.default_rng(4).integers(0, 9, len(CODES) * SCHEMA.n_cells)
    whole = np.zeros((geography.n_leaves, SCHEMA.n_cells), np.int64)
    whole.reshape(-1)[keys] = numbers[keys]
    rows = {"rising": keys, "falling": keys[::-1], "random": np.random.default_rng(5).permutation(keys)}[order]
    found = counted(geography, [rows[k : k + size] for k in range(0, len(rows), size)], numbers)
    nodes = slice(0, geography.n_nodes)
    np.testing.assert_array_equal(found.table(nodes, SCHEMA.n_cells).T, geography.tree.aggregate(whole.T))
    assert all((np.diff(found.cells[lo:hi]) > 0).all() for lo, hi in zip(found.starts, found.starts[1:], strict=False))
    assert (found.counts > 0).all()


def test_records_of_one_unit_in_several_batches_are_added_up(geography: td.Geography, keys: np.ndarray) -> None:
    rng = np.random.default_rng(6)
    records = np.sort(rng.choice(keys, 5000))
    once = counted(geography, [records], None)
    for some in (records, rng.permutation(records)):
        assert same(counted(geography, np.array_split(some, 37), None), once)


@pytest.mark.parametrize("first", [0, 400, 899])
def test_a_second_row_is_told_by_its_place_whatever_came_between(
    geography: td.Geography, keys: np.ndarray, first: int
) -> None:
    ones = np.ones(len(CODES) * SCHEMA.n_cells, np.int64)
    for rows in (keys, np.random.default_rng(8).permutation(keys)):
        tally = SparseTally(geography.n_leaves, SCHEMA.n_cells)
        for piece in np.array_split(rows, 13):
            tally.add(piece, ones[piece])
        fresh = np.setdiff1d(np.arange(200), keys)[:3]
        assert tally.add(np.array([*fresh, rows[first], rows[1]]), np.ones(5, np.int64)) == len(fresh)


def test_units_are_found_in_rows_that_stand_together_and_a_missing_one_is_told(geography: td.Geography) -> None:
    def batches(codes: list[str | None]) -> pa.Table:
        n = len(codes)
        return pa.table({"unit": codes, "a": ["a1"] * n, "b": ["2"] * n})

    def entries(codes: list[str | None]) -> Entries:
        found = count_records(
            iter(batches(codes).to_batches()), geography, geoid=["unit"], cells=SCHEMA.cells(), schema=SCHEMA
        )
        assert isinstance(found, Entries)
        return found

    together = [CODES[3]] * 5 + [CODES[9]] * 4 + [CODES[3]] * 2
    assert same(entries(together), entries(sorted(together)))
    assert entries(together).counts[0] == 11
    with pytest.raises(CountsError, match="unit in column 'unit' is missing") as caught:
        entries([*together, None, None, CODES[9]])
    assert caught.value.row == len(together)
