"""Persons in the columns of the Bureau's microdata file: the codes, and that they tabulate to the release."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from topdown.errors import DataError
from topdown.release import ppmf
from topdown.workload.redistricting import PERSONS, RACES, RESIDENCES

BLOCKS = ["440010001001000", "440010001001001", "440010001002000"]


def released(codes: list[str], schema: td.Schema = PERSONS) -> td.HistogramRelease:
    geography = td.Geography.from_table({"state": ["44"] * len(codes), "block": codes}, ["state", "block"])
    rng = np.random.default_rng(5)
    leaves = np.zeros((len(codes), schema.n_cells), np.int64)
    for row in leaves[:2]:
        row[rng.choice(schema.possible_cells(), 12, replace=False)] = rng.integers(1, 30, 12)
    truth = geography.tree.aggregate(np.ascontiguousarray(leaves.T)).T
    node, cell = np.nonzero(truth)
    starts = np.searchsorted(node, np.arange(len(truth) + 1))
    return td.HistogramRelease(geography, schema, starts, cell, truth[node, cell], "top-down", None, False)


def test_the_persons_tabulate_to_the_release(tmp_path: Path) -> None:
    release = released(BLOCKS)
    frame = pd.read_csv(td.write_ppmf(release, tmp_path / "persons.csv"), dtype=str, keep_default_na=False)
    assert tuple(frame.columns) == ppmf.PPMF_COLUMNS
    assert frame["EPNUM"].tolist() == [str(k) for k in range(release.answers("state", "total")[0, 0])]
    assert set(frame["SCHEMA_TYPE_CODE"]) == {"MPD"}
    blocks = frame["TABBLKST"] + frame["TABBLKCOU"] + frame["TABTRACTCE"] + frame["TABBLK"]
    assert (frame["TABBLKGRPCE"] == frame["TABBLK"].str[0]).all()
    index = frame[["GQTYPE_PL", "VOTING_AGE", "CENHISP", "CENRACE"]].astype(int)
    # The histogram's index as the Bureau has it.
    cell = ((index["GQTYPE_PL"] * 2 + index["VOTING_AGE"] - 1) * 2 + index["CENHISP"] - 1) * 63 + index["CENRACE"] - 1
    found = np.zeros((3, PERSONS.n_cells), np.int64)
    np.add.at(found, (blocks.map(BLOCKS.index).to_numpy(), cell.to_numpy()), 1)
    assert (found == release.answers("block", "detailed")).all()
    assert ((frame["RTYPE"] == "5") == (frame["GQTYPE_PL"] != "0")).all()
    assert set(frame["CENRACE"].str.len()) == {2}


def test_the_codes_are_those_of_the_layout(tmp_path: Path) -> None:
    geography = td.Geography.from_table({"block": BLOCKS[:1]}, ["block"])
    cell = int(
        np.ravel_multi_index((RESIDENCES.index("nursing facilities"), 1, 0, RACES.index("black")), PERSONS.shape)
    )
    one = np.array([1])
    release = td.HistogramRelease(geography, PERSONS, np.array([0, 1]), np.array([cell]), one, "top-down", None, False)
    text = td.write_ppmf(release, tmp_path / "persons.csv").read_text()
    version = td.__version__
    assert text == ",".join(ppmf.PPMF_COLUMNS) + f"\nMPD,{version},44,001,000100,1,1000,0,5,3,2,1,02\n"


def test_what_does_not_fit_the_layout_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a block of this file has a code of 15 digits"):
        td.write_ppmf(released([*BLOCKS[:2], "44001"]), tmp_path / "persons.csv")
    with pytest.raises(DataError, match="the release's attributes are 'sex'"):
        td.write_ppmf(released(BLOCKS, td.Schema.from_mapping({"sex": [str(k) for k in range(20)]})), tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_records_that_read_back_as_others_do_not_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = ppmf._batches
    monkeypatch.setattr(ppmf, "_batches", lambda *given: (batch.slice(1) for batch in batches(*given)))
    with pytest.raises(DataError, match="do not add up to the release"):
        td.write_ppmf(released(BLOCKS), tmp_path / "persons.csv")
    assert not list(tmp_path.iterdir())
