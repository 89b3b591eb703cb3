"""Persons in the columns of the Bureau's microdata file: the codes, and that they tabulate to the release."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from topdown.census import ppmf_file
from topdown.census.layouts.ppmf_layout import PERSON_FILE, UNIT_FILE
from topdown.errors import ConfigError, CountsError, DataError
from topdown.release.whole_counts import SparseCounts
from topdown.workload.redistricting import PERSONS, RACES, RESIDENCES, UNITS

BLOCKS = ["440010001001000", "440010001001001", "440010001002000"]


def released(codes: list[str], schema: td.Schema = PERSONS) -> td.Release:
    geography = td.Geography.from_table({"state": ["44"] * len(codes), "block": codes}, ["state", "block"])
    rng = np.random.default_rng(5)
    leaves = np.zeros((len(codes), schema.n_cells), np.int64)
    for row in leaves[:2]:
        row[rng.choice(schema.possible_cells(), min(12, schema.n_cells), replace=False)] = rng.integers(
            1, 30, min(12, schema.n_cells)
        )
    truth = geography.tree.aggregate(np.ascontiguousarray(leaves.T)).T
    return td.Release.of_values(
        geography, schema.cells(), truth, method="top-down", fit_for_release=False, schema=schema
    )


def test_the_persons_tabulate_to_the_release(tmp_path: Path) -> None:
    release = released(BLOCKS)
    frame = pd.read_csv(td.write_ppmf(release, tmp_path / "persons.csv"), dtype=str, keep_default_na=False)
    assert tuple(frame.columns) == PERSON_FILE.columns
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


def test_the_older_header_is_read_as_the_newer_one(tmp_path: Path) -> None:
    """That of the demonstration file of 2021: a vintage, other names of tract and block group, no number of persons."""
    release = released(BLOCKS)
    frame = pd.read_csv(td.write_ppmf(release, tmp_path / "persons.csv"), dtype=str)
    older = frame.drop(columns=["SCHEMA_TYPE_CODE", "SCHEMA_BUILD_ID", "EPNUM"])
    older = older.rename(columns={"TABTRACTCE": "TABTRACT", "TABBLKGRPCE": "TABBLKGRP"})
    older.insert(0, "VINTAGE", "20210428_eps12-2_P")
    older.to_csv(tmp_path / "older.csv", index=False)
    expected = release.answers("block", "detailed")
    for counts in (
        td.read_ppmf(tmp_path / "older.csv", release.geography),
        td.Counts.from_records(older, release.geography, preset="pl94-2020-us"),
    ):
        assert (counts.values[counts.geography.level_slice("block")] == expected).all()
    there = td.read_ppmf(tmp_path / "older.csv")
    assert int(there.values[0].sum()) == int(expected.sum())
    older.drop(columns="TABTRACT").to_csv(tmp_path / "none.csv", index=False)
    with pytest.raises(DataError, match="columns 'TABTRACTCE' are not there"):
        td.read_ppmf(tmp_path / "none.csv")


def test_the_codes_are_those_of_the_layout(tmp_path: Path) -> None:
    geography = td.Geography.from_table({"block": BLOCKS[:1]}, ["block"])
    cell = int(
        np.ravel_multi_index((RESIDENCES.index("nursing facilities"), 1, 0, RACES.index("black")), PERSONS.shape)
    )
    one = np.array([1])
    entries = SparseCounts(np.array([0, 1]), np.array([cell]), one)
    release = td.Release.of_entries(geography, PERSONS, entries, method="top-down", fit_for_release=False)
    text = td.write_ppmf(release, tmp_path / "persons.csv").read_text()
    version = td.__version__
    assert text == ",".join(PERSON_FILE.columns) + f"\nMPD,{version},44,001,000100,1,1000,0,5,3,2,1,02\n"


def test_what_does_not_fit_the_layout_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="blocks of this file have codes of 15 digits"):
        td.write_ppmf(released([*BLOCKS[:2], "44001"]), tmp_path / "persons.csv")
    with pytest.raises(ConfigError, match="the release's attributes are 'sex'"):
        td.write_ppmf(released(BLOCKS, td.Schema.from_mapping({"sex": [str(k) for k in range(20)]})), tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_records_that_read_back_as_others_do_not_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = ppmf_file._batches
    monkeypatch.setattr(ppmf_file, "_batches", lambda *given: (batch.slice(1) for batch in batches(*given)))
    with pytest.raises(DataError, match="do not add up to the release"):
        td.write_ppmf(released(BLOCKS), tmp_path / "persons.csv")
    assert not list(tmp_path.iterdir())


def test_housing_units_have_the_columns_and_codes_of_their_layout(tmp_path: Path) -> None:
    release = released(BLOCKS, UNITS)
    path = td.write_ppmf(release, tmp_path / "units.csv")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert tuple(frame.columns) == UNIT_FILE.columns == (*PERSON_FILE.columns[:7], "RTYPE", "HH_STATUS")
    assert (set(frame["SCHEMA_TYPE_CODE"]), set(frame["RTYPE"])) == ({"MUD"}, {"2"})
    vacant, occupied = release.answers("state", "h1")[0]
    assert frame["HH_STATUS"].value_counts().to_dict() == {"1": occupied, "2": vacant}


@pytest.mark.parametrize("schema", [PERSONS, UNITS], ids=["persons", "housing units"])
@pytest.mark.parametrize("separator", [",", "|"], ids=["commas", "bars"])
def test_a_file_that_is_read_back_counts_to_the_release(tmp_path: Path, schema: td.Schema, separator: str) -> None:
    release = released(BLOCKS, schema)
    path = td.write_ppmf(release, tmp_path / "records.csv")
    path.write_text(path.read_text().replace(",", separator))
    counts = td.read_ppmf(path, release.geography)
    assert counts.schema.attributes == schema.attributes
    assert (counts.values[1:] == release.answers("block", "detailed")).all()
    # The third block has no record, and without a geography there is none of it.
    alone = td.read_ppmf(path).geography
    assert alone.levels == ("state", "county", "tract", "block group", "block")
    assert alone.identifiers.to_pylist()[-2:] == BLOCKS[:2]


def test_records_in_memory_are_counted_by_preset(tmp_path: Path) -> None:
    release = released(BLOCKS)
    frame = pd.read_csv(td.write_ppmf(release, tmp_path / "persons.csv"), dtype=str)
    counts = td.Counts.from_records(frame, release.geography, preset="pl94-2020-us")
    assert (counts.values[1:] == release.answers("block", "detailed")).all()
    with pytest.raises(ConfigError, match="leave out geoid and schema"):
        td.Counts.from_records(frame, release.geography, geoid="TABBLK", preset="pl94-2020-us")
    with pytest.raises(ConfigError, match="give geoid and schema, or a preset"):
        td.Counts.from_records(frame, release.geography)


def test_group_quarters_among_housing_units_are_none(tmp_path: Path) -> None:
    release = released(BLOCKS, UNITS)
    path = td.write_ppmf(release, tmp_path / "units.csv")
    more = f"MUD,x,44,001,{BLOCKS[2][5:11]},2,{BLOCKS[2][11:]},4,0\n"
    path.write_text(path.read_text() + more)
    counts = td.read_ppmf(path, release.geography)
    assert (counts.values[1:] == release.answers("block", "detailed")).all()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        (0, "MUD", "column SCHEMA_TYPE_CODE: row 2 is not 'MPD'; give a file of one kind"),
        (4, "100", "row 2 has no block of 15 digits"),
        (9, "8", "column GQTYPE_PL: row 2 has a code that is none of '0', '1'"),
        (10, "0", "column VOTING_AGE: row 2 has a code that is none of '1', '2'"),
        (11, "", "column CENHISP: row 2 has a code"),
        (12, "64", "column CENRACE: row 2 has a code that is none of '01', '02'"),
        (12, "1", "column CENRACE: row 2 has a code"),
        (6, "9999", "unit .* is not in the geography"),
    ],
    ids=["kind", "zeros", "quarters", "age", "hispanic", "race", "race without zero", "block"],
)
def test_a_code_that_the_layout_does_not_have_is_named(tmp_path: Path, field: int, value: str, words: str) -> None:
    release = released(BLOCKS)
    path = td.write_ppmf(release, tmp_path / "persons.csv")
    lines = path.read_text().splitlines()
    fields = lines[2].split(",")
    fields[field] = value
    path.write_text("\n".join([*lines[:2], ",".join(fields), *lines[3:]]) + "\n")
    with pytest.raises((DataError, CountsError), match=words):
        td.read_ppmf(path, release.geography)


def test_other_files_are_refused_with_the_columns_that_they_lack(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("SCHEMA_TYPE_CODE,TABBLKST,HH_STATUS\nMUD,44,1\n")
    with pytest.raises(DataError, match="is no privacy-protected microdata file of 2020: columns 'SCHEMA_BUILD_ID'"):
        td.read_ppmf(tmp_path / "other.csv")
