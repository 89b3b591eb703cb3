"""Counts that are kept as the cells that have records are the same counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from topdown.confidential.double_counting import require_disjoint, summed_cells
from topdown.confidential.entries import Entries
from topdown.confidential.records import SPARSE_FROM
from topdown.errors import CountsError
from topdown.workload.redistricting import PERSONS

LEAVES = ["a1", "a2", "a3", "b1"]


@pytest.fixture(scope="module")
def geography() -> td.Geography:
    return td.Geography.from_table(
        {"state": ["S"] * 4, "county": ["A", "A", "A", "B"], "block": LEAVES}, ["state", "county", "block"]
    )


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(7)
    cells = rng.choice(rng.choice(PERSONS.possible_cells(), 30), 60)  # so that units have records in the same cells
    places = np.unravel_index(cells, PERSONS.shape)
    frame = {a.name: np.array(a.categories)[k] for a, k in zip(PERSONS.attributes, places, strict=True)}
    found = pd.DataFrame({"block": rng.choice(LEAVES[:3], 60), **frame}).drop_duplicates()
    return found.assign(n=rng.integers(0, 9, len(found)))


@pytest.fixture(scope="module")
def sparse(rows: pd.DataFrame, geography: td.Geography) -> td.Counts:
    return td.Counts.from_long(rows, geography, geoid="block", schema=PERSONS, count="n")


@pytest.fixture(scope="module")
def dense(rows: pd.DataFrame, geography: td.Geography) -> td.Counts:
    whole = np.zeros((4, *PERSONS.shape), np.int64)
    for row in rows.itertuples():
        place = (a.categories.index(getattr(row, a.name)) for a in PERSONS.attributes)
        whole[(LEAVES.index(row.block), *place)] += row.n
    values = geography.tree.aggregate(np.ascontiguousarray(whole.reshape(4, -1).T)).T
    return td.Counts(geography, PERSONS.cells(), values, PERSONS)


def test_they_are_the_same_counts(sparse: td.Counts, dense: td.Counts) -> None:
    assert isinstance(sparse.held, Entries)
    assert PERSONS.n_cells >= SPARSE_FROM
    assert (sparse.held.counts > 0).all()
    assert (sparse.table(slice(1, 5)) == dense.table(slice(1, 5))).all()
    for name in ("total", "hhinstlevels * votingage", "detailed"):
        query = td.Query.parse(name, PERSONS)
        assert (sparse.answers(query, slice(1, 7)) == dense.answers(query, slice(1, 7))).all()
    assert "values" not in vars(sparse)  # no table was made so far
    assert (sparse.values == dense.values).all()
    assert sparse.values.shape == (7, 2016)
    assert repr(sparse) == "Counts(7 nodes x 2016 cells, confidential)"


def test_what_is_counted_twice_is_found_without_a_table_of_all_cells() -> None:
    rng = np.random.default_rng(5)
    codes = [f"{county}{block:02d}" for county in "ABC" for block in range(20)]
    geography = td.Geography.from_geoids(codes, {"county": 1, "block": 3}, root="S", root_level="state")
    size = rng.lognormal(3, 1, len(codes))
    counts = {cell: rng.poisson(size * share) for cell, share in ((1900, 3), (7, 1), (1100, 2))}
    counts[2015] = counts[7] + counts[1900]
    leaf = np.concatenate([np.flatnonzero(column) for column in counts.values()])
    cells = np.concatenate([np.full((column > 0).sum(), cell) for cell, column in counts.items()])
    numbers = np.concatenate([column[column > 0] for column in counts.values()])
    entries = Entries.of_leaves(geography.tree, 2016, leaf * 2016 + cells, numbers)
    sparse = td.Counts(geography, PERSONS.cells(), entries, PERSONS)
    dense = td.Counts(geography, PERSONS.cells(), sparse.values, PERSONS)
    del vars(sparse)["values"]
    found = summed_cells(sparse)
    assert found is not None
    assert {frozenset(side) for side in found} == {
        frozenset([PERSONS.cells()[2015]]),
        frozenset([PERSONS.cells()[7], PERSONS.cells()[1900]]),
    }
    assert summed_cells(dense) == found
    with pytest.raises(CountsError, match="as if they overlapped"):
        require_disjoint(sparse)
    assert "values" not in vars(sparse)


def test_the_same_noise_falls_on_the_same_counts(sparse: td.Counts, dense: td.Counts) -> None:
    plan = td.preset("pl94-2020-us").plan(["state", "county", "block"])
    one, other = (td.measure(counts, plan, td.SeededSource(3)) for counts in (sparse, dense))
    assert (one.values == other.values).all()
    for key in one.keys:
        assert (one[key].values == other[key].values).all()


def test_records_are_rows_of_one(
    rows: pd.DataFrame, geography: td.Geography, sparse: td.Counts, tmp_path: Path
) -> None:
    records = rows.loc[rows.index.repeat(rows["n"])].drop(columns="n").sample(frac=1, random_state=1)
    found = td.Counts.from_records(records, geography, geoid="block", schema=PERSONS)
    assert isinstance(found.held, Entries)
    assert all((mine == other).all() for mine, other in zip(found.held, sparse.held, strict=True))
    records.to_parquet(tmp_path / "records.parquet")
    read = td.Counts.from_records(tmp_path / "records.parquet", geography, geoid="block", schema=PERSONS)
    assert (read.values == found.values).all()


def test_few_cells_are_a_table(geography: td.Geography) -> None:
    schema = td.Schema.from_mapping({"sex": ["f", "m"]})
    counts = td.Counts.from_records({"block": ["a1", "b1"], "sex": ["m", "m"]}, geography, geoid="block", schema=schema)
    assert counts.held.tolist() == counts.values.tolist()  # type: ignore[union-attr]
    assert counts.values.tolist() == [[0, 2], [0, 1], [0, 1], [0, 1], [0, 0], [0, 0], [0, 1]]


def test_bad_rows_are_named(rows: pd.DataFrame, geography: td.Geography) -> None:
    def long(frame: pd.DataFrame) -> None:
        td.Counts.from_long(frame, geography, geoid="block", schema=PERSONS, count="n")

    with pytest.raises(CountsError, match=r"block 'a\d': a second row of the same unit and categories"):
        long(pd.concat([rows, rows.iloc[[5]]]))
    closed = rows.iloc[[0]].assign(hhgq="nursing facilities", votingage="17 and under", n=1)
    with pytest.raises(CountsError, match=r"has records in cell 'nursing facilities_17 and under_.* structural zero"):
        long(pd.concat([rows, closed]))
    with pytest.raises(CountsError, match="'cenrace' has a value"):
        long(pd.concat([rows, rows.iloc[[0]].assign(cenrace="martian")]))
    with pytest.raises(CountsError, match="is missing"):
        long(rows.assign(votingage=None))
    with pytest.raises(CountsError, match="no column 'n'"):
        long(rows.drop(columns="n"))
