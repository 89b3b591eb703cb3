"""td.aggregate and `topdown aggregate`: districts of units, each with the released sum and the margin of its region."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.places import SEVERAL_TOML, Command
from topdown.analysis.aggregation import AGGREGATE_COLUMNS
from topdown.config import load_config
from topdown.errors import ConfigError, DataError
from topdown.pipeline import run as pipeline


@pytest.fixture
def public(toy_run: Path) -> Path:
    return pipeline.run(load_config(toy_run)).public


@pytest.fixture
def of_queries(toy_run: Path) -> Path:
    toy_run.write_text(SEVERAL_TOML)
    return pipeline.run(load_config(toy_run)).public


@pytest.fixture
def wards(tmp_path: Path) -> Path:
    path = tmp_path / "wards.txt"
    path.write_text("BLOCKID|DISTRICT\n01001|07\n01003|08\n02001|07\n")
    return path


@pytest.fixture
def schools(tmp_path: Path) -> Path:
    path = tmp_path / "schools.csv"
    path.write_text("geoid,area\n01001,\n01003,East\n02001,East\n")
    return path


def test_every_district_has_its_released_sum_and_the_margin_of_its_region(
    public: Path, wards: Path, schools: Path
) -> None:
    found = td.aggregate(public, [wards, schools], cells=["adults", "children"])
    table = found.table
    assert tuple(table.columns) == AGGREGATE_COLUMNS
    assert table[["assignment", "region", "units"]].drop_duplicates().to_numpy(na_value="").tolist() == [
        ["wards", "07", 2],
        ["wards", "08", 1],
        ["schools", "East", 2],
        ["schools", "", 1],
    ]
    published = td.read_release(public)
    released = published.release.to_frame().set_index(["geoid", "cell"])["value"]
    members = {"07": ["01001", "02001"], "08": ["01003"], "East": ["01003", "02001"]}
    for _, row in table.dropna(subset="region").iterrows():
        units = members[row["region"]]
        expected = td.region(published.measurements, dict.fromkeys(units, 1), cell=row["cell"])
        assert row["value"] == sum(released[unit, row["cell"]] for unit in units)
        assert [row["estimate"], row["sd"], row["lower"], row["upper"]] == pytest.approx(list(expected[:4]))
    (unassigned,) = table[table["region"].isna() & (table["cell"] == "adults")].to_dict("records")
    assert (unassigned["value"], unassigned["note"]) == (released["01001", "adults"], "assigned to no district")
    assert found.notes == (
        "schools: 1 of 3 units of level 'county' are assigned to no district; their sum is the row without a region",
    )


def test_the_rows_of_an_assignment_add_up_to_the_release(public: Path, schools: Path) -> None:
    table = td.aggregate(public, schools).table
    published = td.read_release(public)
    assert table["value"].sum() == published.release.values[0].sum()
    whole = td.region(published.measurements, {"US": 1})
    assert table["estimate"].sum() == pytest.approx(whole.estimate)


def test_several_queries_have_the_margins_of_their_regions(of_queries: Path, wards: Path) -> None:
    table = td.aggregate(of_queries, wards, query="age", confidence=0.95).table
    assert table["cell"].tolist() == ["adults", "children"] * 2
    published = td.read_release(of_queries)
    assert published.measurements.others
    expected = td.region(
        published.measurements, {"01001": 1, "02001": 1}, query="age", cell="children", confidence=0.95
    )
    row = table.iloc[1]
    assert [row["estimate"], row["sd"], row["lower"], row["upper"]] == pytest.approx(list(expected[:4]))
    counted = published.table("county", "age").set_index("geoid")["children"]
    assert row["value"] == counted["01001"] + counted["02001"]


def test_without_margins_the_released_sums_stand_and_the_note_says_why(
    toy_run: Path, tmp_path: Path, wards: Path
) -> None:
    toy_run.write_text(toy_run.read_text() + '\n[noise]\nbounds = "truncated"\n')
    public = pipeline.run(load_config(toy_run)).public
    table = td.aggregate(public, wards).table
    assert table["value"].sum() == td.read_release(public).release.values[0].sum()
    assert table[["estimate", "sd", "lower", "upper"]].isna().all(axis=None)
    assert table["note"].str.startswith("no margin: level 'nation' has bounded noise").all()


def test_districts_may_be_given_from_python_and_named_by_several_columns(public: Path, tmp_path: Path) -> None:
    given = td.aggregate(public, {"mine": {"01001": "a", "01003": "b", "02001": "a"}}).table
    path = tmp_path / "votes.txt"
    path.write_text("BLOCKID|COUNTYFP|DISTRICT\n01001|001|1\n01003|003|1\n02001|001|1\n")
    found = td.aggregate(public, {"mine": path}, district=["COUNTYFP", "DISTRICT"]).table
    assert found["region"].tolist() == ["0011", "0031"]
    assert found["value"].tolist() == given["value"].tolist()


def test_files_of_two_columns_go_with_files_of_three(public: Path, tmp_path: Path) -> None:
    (tmp_path / "cd.txt").write_text("BLOCKID|CD\n01001|1\n01003|2\n02001|1\n")
    (tmp_path / "vtd.txt").write_text("BLOCKID|COUNTYFP|DISTRICT\n01001|001|1\n01003|003|1\n02001|001|1\n")
    found = td.aggregate(public, [tmp_path / "cd.txt", tmp_path / "vtd.txt"], district=["COUNTYFP", "DISTRICT"]).table
    assert found["region"].tolist() == ["1", "2", "0011", "0031"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("unit,district\n1001,7\n1003,8\n", "none of its units, such as '1001', is in the geography.*leading zeros"),
        ("unit,district\n01001,7\n01009,8\n", "1 of 2 units are not in the geography, such as '01009'.*--skip-unknown"),
        ("unit,district\n01001,7\n01,8\n", "its units are of several levels .state, county."),
        ("unit,district\n01001,7\n01001,8\n", "unit '01001' is assigned twice"),
        ("01001,7\n01003,8\n", "its first line has unit '01001' in place of names of columns"),
        (
            "unit,part,district\n01001,1,7\n",
            "it is not clear which of them has the districts; give a table of units and their districts alone",
        ),
        ("unit\n01001\n", "has one column"),
        ("unit,district\n", r"cd\.csv: has no units; give a row for every unit"),
    ],
    ids=["lost zeros", "unknown", "levels", "twice", "no names", "columns", "one column", "empty"],
)
def test_an_assignment_that_cannot_be_meant_is_refused(public: Path, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "cd.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        td.aggregate(public, tmp_path / "cd.csv")


def test_a_pipe_is_called_what_it_is(public: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cd.csv")
    with pytest.raises(DataError, match=r"cd\.csv: is a pipe or a device; give a file"):
        td.aggregate(public, tmp_path / "cd.csv")


def test_unknown_units_are_left_out_where_that_is_asked_for_and_said(public: Path, tmp_path: Path) -> None:
    (tmp_path / "cd.csv").write_text("unit,district\n01001,7\n01003,7\n02001,8\n99999,8\n")
    found = td.aggregate(public, tmp_path / "cd.csv", skip_unknown=True)
    assert found.table["units"].tolist() == [2, 1]
    assert found.notes == ("cd: units that are not in the release and were left out: 1",)


def test_no_assignment_and_two_of_one_name_are_refused(public: Path, wards: Path) -> None:
    with pytest.raises(ConfigError, match="no assignment is given"):
        td.aggregate(public, [])
    with pytest.raises(ConfigError, match="two assignments are called 'wards'"):
        td.aggregate(public, [wards, wards])


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_prints_what_python_has_and_says_what_is_unassigned(
    public: Path, wards: Path, schools: Path, topdown: Command
) -> None:
    expected = td.aggregate(public, [wards, schools]).table
    done = topdown("aggregate", public, "--by", wards, "--by", schools, "--format", "csv")
    found = pd.read_csv(StringIO(done.stdout), dtype={"region": str})
    columns = ["region", "value", "lower"]
    pd.testing.assert_frame_equal(found[columns], expected[columns], check_dtype=False)
    assert "note: schools: 1 of 3 units of level 'county' are assigned to no district" in done.stderr
    rows = json.loads(topdown("aggregate", public, "--by", schools, "--format", "json").stdout)
    assert [row["region"] for row in rows] == ["East", None]
    shown = topdown("aggregate", public, "--by", wards).stdout.splitlines()
    assert shown[0].split() == list(AGGREGATE_COLUMNS[:-1])


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_the_command_writes_files_that_hold_the_table(
    public: Path, schools: Path, tmp_path: Path, topdown: Command, kind: str
) -> None:
    expected = td.aggregate(public, schools).table
    path = tmp_path / f"sums.{kind}"
    done = topdown("aggregate", public, "--by", schools, "-o", path)
    assert (done.returncode, done.stdout) == (0, "")
    if kind == "parquet":
        found = pq.read_table(path).to_pandas()
        assert b"no district" in pq.read_schema(path).metadata[b"notes"]
    elif kind == "csv":
        found = pd.read_csv(path, dtype={"region": str}, keep_default_na=False, na_values={"region": [""]})
    else:
        found = pd.read_json(path, dtype={"region": str})
    assert found["region"].fillna("").tolist() == expected["region"].fillna("").tolist()
    assert found["estimate"].tolist() == pytest.approx(expected["estimate"].tolist())
    assert found["value"].tolist() == expected["value"].tolist()


def test_an_unknown_kind_of_file_is_refused(public: Path, schools: Path, topdown: Command) -> None:
    done = topdown("aggregate", public, "--by", schools, "-o", "sums.xls")
    assert done.returncode == 2
    assert "unknown kind of file; give .csv, .parquet, .json" in done.stderr
