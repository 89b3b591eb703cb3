"""The public list of units: what it protects, what is refused, and what is said without it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import topdown as td
from support.places import RUN_TOML, Command
from topdown.config import load_config
from topdown.errors import ConfigError, CountsError, DataError, GeographyError
from topdown.machine.files import file_digest
from topdown.machine.progress import Silent
from topdown.pipeline import draw
from topdown.pipeline import run as pipeline
from topdown.pipeline.input.reading import read_input

WITH_UNITS = RUN_TOML.replace("widths =", 'units = "units.csv"\nwidths =')
LIST = ["01001", "01003", "01005", "02001", "48301"]

BY_LEVELS = """
[input]
path = "table.csv"
cells = ["adults", "children"]
[geography]
units = "units.parquet"
levels = ["nation", "state", "county"]
names = { state = "state_name", county = "title" }
[privacy]
epsilon = 1.0
"""


class Said(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def listed(toy_run: Path) -> Path:
    """The small release of `toy_run` with a list of two units more."""
    pd.DataFrame({"county": LIST}).to_csv(toy_run.parent / "units.csv", index=False)
    toy_run.write_text(WITH_UNITS)
    return toy_run


def by_levels(folder: Path, frame: pd.DataFrame, units: dict[str, list[Any]], toml: str = BY_LEVELS) -> Path:
    frame.to_csv(folder / "table.csv", index=False)
    pd.DataFrame(units).to_parquet(folder / "units.parquet", index=False)
    (folder / "run.toml").write_text(toml)
    return folder / "run.toml"


def leaves(counts: td.Counts) -> dict[str, list[int]]:
    start = counts.geography.tree.leaves.start
    geoids = counts.geography.identifiers.to_pylist()[start:]
    return dict(zip(geoids, counts.values[start:].tolist(), strict=True))


# -- the library ----------------------------------------------------------------------------------------------------


def test_leaves_without_a_row_are_zero_where_that_is_said(frame: pd.DataFrame) -> None:
    geography = td.Geography.from_geoids(LIST, {"state": 2, "county": 5})
    with pytest.raises(CountsError, match=r"county '01005': the table has no row for it; .*absent=\"zero\""):
        td.Counts.from_table(frame, geography, geoid="county", cells=["adults", "children"])
    for table in (frame, pa.Table.from_pandas(frame), {name: frame[name].tolist() for name in frame}):
        cells = ["adults", "children"]
        counts = td.Counts.from_table(table, geography, geoid="county", cells=cells, absent="zero")
        assert leaves(counts) == {
            "01001": [10, 1], "01003": [20, 2], "01005": [0, 0], "02001": [0, 4], "48301": [0, 0]
        }  # fmt: skip
        assert counts.values[0].tolist() == [30, 7]


def test_an_empty_table_counts_nobody(frame: pd.DataFrame, geography: td.Geography) -> None:
    counts = td.Counts.from_table(frame[:0], geography, geoid="county", cells=["adults"], absent="zero")
    assert counts.values.tolist() == [[0]] * 6


def test_a_unit_that_is_not_listed_is_refused(frame: pd.DataFrame) -> None:
    geography = td.Geography.from_geoids(["01001", "02001"], {"state": 2, "county": 5})
    with pytest.raises(CountsError, match=r"'01003' is not in the geography; .*add .* to the list of units"):
        td.Counts.from_table(frame, geography, geoid="county", cells=["adults"], absent="zero")


def test_a_row_of_an_inner_unit_must_agree_with_zeros_too(geography: td.Geography) -> None:
    table = {"unit": ["01001", "01"], "n": [3, 3]}
    counts = td.Counts.from_table(table, geography, geoid="unit", cells=["n"], absent="zero")
    assert counts.values[:, 0].tolist() == [3, 3, 0, 3, 0, 0]
    table["n"] = [3, 4]
    with pytest.raises(CountsError, match="state '01', cell 'n': its row contradicts its leaves"):
        td.Counts.from_table(table, geography, geoid="unit", cells=["n"], absent="zero")


def test_what_a_leaf_without_a_row_is_has_two_answers(frame: pd.DataFrame, geography: td.Geography) -> None:
    with pytest.raises(ConfigError, match="unknown absent 'null': give 'refuse', 'zero'"):
        td.Counts.from_table(frame, geography, geoid="county", cells=["adults"], absent="null")  # type: ignore[arg-type]


# -- the main job ---------------------------------------------------------------------------------------------------


def test_units_without_a_row_are_released_as_zeros_plus_noise(listed: Path) -> None:
    _, counts = read_input(load_config(listed))
    assert leaves(counts)["01005"] == leaves(counts)["48301"] == [0, 0]
    public = pipeline.run(load_config(listed)).public
    release = pd.read_parquet(public / "release.parquet")
    assert release["geoid"].drop_duplicates().tolist() == ["US", "01", "02", "48", *LIST]


def test_a_row_of_zeros_and_no_row_are_the_same_input(listed: Path) -> None:
    table = listed.parent / "table.csv"
    before = read_input(load_config(listed))
    table.write_text(table.read_text().replace("US,02,02001,0,4", "US,48,48301,0,0\nUS,02,02001,0,4\nUS,01,01005,0,0"))
    after = read_input(load_config(listed))
    assert after[0] == before[0]
    assert after[1].values.tolist() == before[1].values.tolist()


def test_names_and_nesting_come_from_the_list(tmp_path: Path, frame: pd.DataFrame) -> None:
    units = {
        "nation": ["US"] * 4,
        "state": ["02", "01", "01", "01"],
        "state_name": ["Alaska", "Alabama", "Alabama", "Alabama"],
        "county": ["02001", "01005", "01003", "01001"],
        "title": ["Aleutians", "Barbour", "Baldwin", "Autauga"],
        "remarks": [1, 2, 3, 4],
    }
    # The table needs the column that identifies the leaves, and no other of the list's.
    geography, counts = read_input(load_config(by_levels(tmp_path, frame.drop(columns=["nation", "state"]), units)))
    assert geography.identifiers.to_pylist() == ["US", "01", "02", "01001", "01003", "01005", "02001"]
    assert geography.names is not None
    assert geography.names.to_pylist() == [None, "Alabama", "Alaska", "Autauga", "Baldwin", "Barbour", "Aleutians"]
    assert leaves(counts) == {"01001": [10, 1], "01003": [20, 2], "01005": [0, 0], "02001": [0, 4]}


def test_units_that_are_identified_by_their_path(tmp_path: Path) -> None:
    toml = re.sub(r"names = .*", 'separator = "/"\nroot = "US"', BY_LEVELS)
    frame = pd.DataFrame({"county": ["LAKE", "LAKE"], "state": ["OHIO", "IOWA"], "adults": [3, 4], "children": [1, 2]})
    units = {"state": ["OHIO", "IOWA", "OHIO"], "county": ["LAKE", "LAKE", "ERIE"]}
    _, counts = read_input(load_config(by_levels(tmp_path, frame, units, toml)))
    assert leaves(counts) == {"IOWA/LAKE": [4, 2], "OHIO/ERIE": [0, 0], "OHIO/LAKE": [3, 1]}


def test_a_unit_beyond_the_list_ends_in_one_message_and_its_code(listed: Path, topdown: Command) -> None:
    (listed.parent / "units.csv").write_text("county\n01001\n02001\n")
    for command in ("check", "run"):
        done = topdown(command, listed)
        assert done.returncode == 3
        assert "GEOID '01003' is not in the geography; correct it, or add the unit to the list of units" in (
            done.stderr
        )
    assert not (listed.parent / "output").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("county\n01001\n01003\n1005\n", r"units\.csv: line 4: GEOID '1005' has 4 characters.*'01005' is meant"),
        ("county\n01001\n01001\n", r"units\.csv: county '01001': duplicate GEOID"),
        ("county\n", r"units\.csv: no GEOIDs"),
        ("fips\n01001\n", r"units\.csv: no column 'county'"),
        ("", r"units\.csv: the file is empty"),
        (None, r"units\.csv: no such file"),
    ],
)
def test_lists_that_are_none_are_refused_by_their_file(listed: Path, text: str | None, says: str) -> None:
    units = listed.parent / "units.csv"
    units.unlink() if text is None else units.write_text(text)
    with pytest.raises(DataError, match=says):
        draw.check(load_config(listed))


def test_a_unit_with_two_names_in_the_list_is_refused(tmp_path: Path, frame: pd.DataFrame) -> None:
    units = {
        "nation": ["US"] * 3, "state": ["01", "01", "02"], "county": ["01001", "01003", "02001"],
        "state_name": ["Alabama", "AL", "Alaska"], "title": ["a", "b", "c"],
    }  # fmt: skip
    with pytest.raises(GeographyError, match=r"units\.parquet: state '01' has two names: 'AL' and 'Alabama'"):
        read_input(load_config(by_levels(tmp_path, frame, units)))


def test_the_confidential_table_is_no_public_list(listed: Path) -> None:
    listed.write_text(WITH_UNITS.replace("units.csv", "table.csv"))
    with pytest.raises(ConfigError, match=r"geography.units = 'table.csv' is the confidential table itself"):
        draw.check(load_config(listed))
    (listed.parent / "units.csv").write_bytes((listed.parent / "table.csv").read_bytes())
    listed.write_text(WITH_UNITS)
    with pytest.raises(ConfigError, match=r"geography.units = 'units.csv' is the confidential table itself"):
        pipeline.run(load_config(listed))
    assert not (listed.parent / "output").exists()


def test_a_list_that_changes_while_it_is_read_is_refused(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_and_change(config: Any, *others: Any, **options: Any) -> Any:
        found = read_input(config, *others, **options)
        (listed.parent / "units.csv").write_text("county\n" + "\n".join([*LIST, "48303"]) + "\n")
        return found

    monkeypatch.setattr(draw, "read_input", read_and_change)
    with pytest.raises(DataError, match=r"units\.csv: it changed while it was read"):
        pipeline.run(load_config(listed))


def test_a_changed_list_is_another_release(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units = listed.parent / "units.csv"
    public = pipeline.run(load_config(listed)).public
    before = {path.name: path.read_bytes() for path in public.iterdir()}
    original = units.read_bytes()
    for changed in (["02003", *LIST], list(reversed(LIST))):
        units.write_text("county\n" + "\n".join(changed) + "\n")
        with pytest.raises(ConfigError, match=r"another configuration; .*changed list of units.*another --output"):
            pipeline.run(load_config(listed))
    assert {path.name: path.read_bytes() for path in public.iterdir()} == before
    # The list as it was is the release as it was.
    units.write_bytes(original)
    monkeypatch.setattr(draw, "measure", None)
    assert pipeline.run(load_config(listed)).already_there is True


# -- what is said ---------------------------------------------------------------------------------------------------


def test_the_manifest_names_the_list(listed: Path) -> None:
    config = load_config(listed)
    manifest = json.loads((pipeline.run(config).public / "manifest.json").read_text())
    digest = file_digest(listed.parent / "units.csv")
    assert manifest["units"]["source"] == "a public list"
    assert manifest["units"]["sha256"] == digest
    assert "counts of 0" in manifest["units"]["statement"]
    assert manifest["configuration"]["geography"]["units"] == "units.csv"
    assert manifest["configuration_sha256"] == config.fingerprint(digest) != config.fingerprint()


def test_the_manifest_says_that_without_a_list_the_units_are_not_protected(toy_run: Path) -> None:
    manifest = json.loads((pipeline.run(load_config(toy_run)).public / "manifest.json").read_text())
    assert manifest["units"]["source"] == "the confidential table"
    assert manifest["units"]["sha256"] is None
    assert "taken from the confidential table" in manifest["units"]["statement"]
    assert "not protected" in manifest["units"]["statement"]


@pytest.mark.parametrize("job", [draw.check, lambda config, said: pipeline.run(config, None, said)])
def test_one_line_warns_where_there_is_no_list(toy_run: Path, listed: Path, job: Any) -> None:
    for text, warned in ((RUN_TOML, 1), (WITH_UNITS, 0)):
        toy_run.write_text(text + f'[output]\ndirectory = "output {warned}"\n')
        said = Said()
        job(load_config(toy_run), said)
        assert len([line for line in said.lines if line.startswith("warning") and "not protected" in line]) == warned


def test_check_warns_on_the_terminal(toy_run: Path, topdown: Command) -> None:
    done = topdown("check", toy_run)
    assert done.returncode == 0
    assert "the list of units is taken from the confidential table and is not protected" in done.stdout
