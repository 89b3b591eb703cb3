"""`topdown query`: what it prints is what td.region says, for units and for districts."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

import topdown as td
from support.places import Command
from topdown.cli.received.query_command import digits_of_shares
from topdown.config import load_config
from topdown.pipeline import run as pipeline


@pytest.fixture
def public(toy_run: Path) -> Path:
    return pipeline.run(load_config(toy_run)).public


def test_a_sum_has_the_margin_of_its_region(public: Path, topdown: Command) -> None:
    done = topdown("query", public, "--sum", "01001,02001", "--cell", "adults", "--format", "json")
    (row,) = json.loads(done.stdout)
    measurements = td.read_release(public).measurements
    expected = td.region(measurements, {"01001": 1, "02001": 1}, cell="adults")
    assert (row["region"], row["cell"]) == ("01001+02001", "adults")
    for name, value in expected._asdict().items():
        assert row[name] == (pytest.approx(value) if name != "note" else value), name


def test_differences_shares_and_confidence_reach_the_region(public: Path, topdown: Command) -> None:
    measurements = td.read_release(public).measurements
    for options, asked in (
        (["--sum", "01", "--minus", "01001"], {"weights": {"01": 1}, "minus": {"01001": 1}}),
        (["--sum", "01", "--share-of", "US"], {"weights": {"01": 1}, "share_of": {"US": 1}}),
        (["--sum", "01", "--cell", "adults", "--share-of", "total", "--confidence", "0.99"],
         {"weights": {"01": 1}, "cell": "adults", "share_of": "total", "confidence": 0.99}),
    ):  # fmt: skip
        done = topdown("query", public, *options, "--format", "csv")
        row = pd.read_csv(StringIO(done.stdout)).iloc[0]
        expected = td.region(measurements, **asked)  # type: ignore[arg-type]
        assert [row["estimate"], row["lower"], row["upper"]] == pytest.approx(
            [expected.estimate, expected.lower, expected.upper]
        )


@pytest.mark.parametrize(
    ("deviations", "digits"),
    [([0.03, 0.2], 4), ([0.01, 3.1e-5], 6), ([0.0, float("nan"), 0.0009], 5), ([0.0], 4), ([1e-30], 12)],
    ids=["large", "small", "one exact", "all exact", "next to nothing"],
)
def test_shares_have_as_many_decimals_as_their_deviations_need(deviations: list[float], digits: int) -> None:
    assert digits_of_shares(deviations) == digits


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--sum", "01,02", "--minus", "02001,01003"], "01+02 - 02001+01003"),
        (["--sum", "01", "--cell", "adults", "--share-of", "total"], "01 of total"),
        (["--sum", "01", "--minus", "01001", "--share-of", "US"], "01 - 01001 of US"),
        (["--sum", "US", "--minus", "01,02,01001,01003,02001"], "US - 5 units"),
    ],
    ids=["difference", "share", "both", "many"],
)
def test_a_row_is_called_by_all_that_its_number_is_of(
    public: Path, topdown: Command, options: list[str], name: str
) -> None:
    done = topdown("query", public, *options, "--format", "json")
    assert json.loads(done.stdout)[0]["region"] == name


def test_districts_come_from_an_assignment_file(public: Path, topdown: Command, tmp_path: Path) -> None:
    (tmp_path / "districts.csv").write_text("BLOCKID,DISTRICT\n01001,07\n01003,08\n02,07\n")  # of several levels
    done = topdown("query", public, "--regions", tmp_path / "districts.csv", "--format", "csv")
    found = pd.read_csv(StringIO(done.stdout), dtype={"region": str}).set_index("region")
    assert found.index.tolist() == ["07", "08"]
    measurements = td.read_release(public).measurements
    expected = td.region(measurements, {"01001": 1, "02": 1})
    assert found.loc["07", ["lower", "upper"]].tolist() == [expected.lower, expected.upper]
    assert done.stderr == ""


def test_units_in_no_district_are_said(public: Path, topdown: Command, tmp_path: Path) -> None:
    (tmp_path / "districts.csv").write_text("BLOCKID,DISTRICT\n01001,07\n01003,\n02,07\n")
    done = topdown("query", public, "--sum", "US", "--regions", tmp_path / "districts.csv", "--format", "csv")
    assert done.returncode == 0
    assert pd.read_csv(StringIO(done.stdout))["region"].tolist() == ["US", "07"]
    assert done.stderr == "note: 1 of 3 units of level 'county' are in no district\n"


def test_a_table_is_printed_for_people(public: Path, topdown: Command) -> None:
    done = topdown("query", public, "--sum", "01001", "--cell", "adults", "--cell", "children")
    assert done.stdout.split()[:7] == ["region", "query", "cell", "estimate", "sd", "lower", "upper"]
    assert len(done.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ([], 2, "no units are given"),
        (["--sum", "99999"], 3, "no unit '99999'"),
        (["--sum", "01,01"], 2, "given twice"),
        (["--sum", "01", "--cell", "adulds"], 2, "did you mean 'adults'"),
        (["--sum", "01", "--confidence", "95"], 2, "above 0.5 and below 1"),
        (["--regions", "there.csv"], 3, "no such file"),
        (["--sum", "01,"], 3, "'01,': nothing stands beside a comma"),
        (["--sum", "01", "--minus", ""], 3, "'': nothing stands beside a comma"),
        (["--sum", "01", "--minus", ","], 3, "',': nothing stands beside a comma"),
        (["--sum", "01", "--cell", "adults", "--cell", "adults"], 2, "cells 'adults', 'adults': name each once"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    public: Path, topdown: Command, options: list[str], code: int, words: str
) -> None:
    done = topdown("query", public, *options)
    assert done.returncode == code
    assert words in done.stderr


def test_a_unit_of_two_districts_is_refused(public: Path, topdown: Command, tmp_path: Path) -> None:
    (tmp_path / "districts.csv").write_text("block,district\n01001,7\n01001,8\n")
    done = topdown("query", public, "--regions", tmp_path / "districts.csv")
    assert done.returncode == 3
    assert "unit '01001' is assigned twice" in done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("BLOCKID|DISTRICT\n", "cd.txt: has no unit with a district; give a row for every unit"),
        ("BLOCKID|DISTRICT\n01001|\n", "cd.txt: has no unit with a district; give a row for every unit"),
        ("01001|7\n01003|8\n", "cd.txt: its first line has unit '01001' in place of names of columns; put a line"),
        ("UNIT|DISTRICT\n01001|7\n01009|8\n", "no unit '01009' in this geography"),
    ],
    ids=["no units", "no districts", "no names", "unknown"],
)
def test_districts_that_cannot_be_meant_are_refused(
    public: Path, topdown: Command, tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "cd.txt").write_text(text)
    done = topdown("query", public, "--regions", tmp_path / "cd.txt")
    assert done.returncode == 3
    assert says in done.stderr


@pytest.mark.parametrize(
    ("units", "note"),
    [
        ("US,01", "unit '01' lies in 'US' and is counted twice"),
        ("01001,02,01", "unit '01001' lies in '01' and is counted twice"),
        ("01001,US", "unit '01001' lies in 'US' and is counted twice"),
        ("01,02001", ""),
    ],
)
def test_a_unit_within_another_one_of_the_sum_is_said_to_count_twice(
    public: Path, topdown: Command, units: str, note: str
) -> None:
    done = topdown("query", public, "--sum", units, "--format", "json")
    assert json.loads(done.stdout)[0]["note"] == note
