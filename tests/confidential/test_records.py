"""A row per person, or per unit and category, is counted as the table with a row per leaf is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.places import RUN_TOML
from topdown.confidential import records
from topdown.config import RunConfig, load_config
from topdown.errors import ConfigError, CountsError, DataError
from topdown.pipeline import run as pipeline
from topdown.pipeline.input.reading import read_input

SEX, AGE = ["female", "male"], ["child", "adult", "old"]
SCHEMA = f"[schema]\nsex = {json.dumps(SEX)}\nage = {json.dumps(AGE)}\n"
RECORDS = RUN_TOML.replace('cells = ["adults", "children"]', 'rows = "records"') + SCHEMA
LONG = RECORDS.replace('rows = "records"', 'rows = "long"\ncount = "n"')
COUNTIES = ["01001", "01003", "02001", "02999"]


def persons(n: int = 500) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"county": rng.choice(COUNTIES, n), "sex": rng.choice(SEX, n), "age": rng.choice(AGE, n), "n": 1}
    )
    return frame.assign(region=frame["county"].str[:2])


def config_of(tmp_path: Path, table: pd.DataFrame, toml: str, name: str = "table.csv") -> RunConfig:
    table.to_csv(tmp_path / name, index=False) if name.endswith("csv") else table.to_parquet(tmp_path / name)
    (tmp_path / "run.toml").write_text(toml.replace("table.csv", name))
    return load_config(tmp_path / "run.toml")


def tabulated(table: pd.DataFrame) -> np.ndarray:
    """The counts of COUNTIES by sex and age, by pandas."""
    wide = pd.crosstab(table["county"], [table["sex"], table["age"]])
    return wide.reindex(COUNTIES).reindex(columns=pd.MultiIndex.from_product([SEX, AGE]), fill_value=0).to_numpy()


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
@pytest.mark.parametrize("at_once", [7, 1 << 20])
def test_records_are_tabulated_whatever_their_batches(
    tmp_path: Path, name: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_ROWS_AT_ONCE", at_once)
    geography, counts = read_input(config_of(tmp_path, persons(), RECORDS, name))
    assert geography.identifiers[3:].to_pylist() == COUNTIES
    assert counts.cells == td.Schema.from_mapping({"sex": SEX, "age": AGE}).cells()
    assert counts.values[geography.tree.leaves].tolist() == tabulated(persons()).tolist()
    assert counts.values[0].sum() == 500


def test_a_long_table_is_the_same_and_what_it_lacks_is_0(tmp_path: Path) -> None:
    long = persons(40).groupby(["county", "sex", "age"], as_index=False)["n"].sum()
    assert len(long) < len(COUNTIES) * 6
    geography, counts = read_input(config_of(tmp_path, long, LONG))
    assert counts.values[geography.tree.leaves].tolist() == tabulated(persons(40)).tolist()


def test_rows_are_chosen_and_units_have_columns_of_their_own(tmp_path: Path) -> None:
    toml = RECORDS.replace('geoid = "county"', 'where = { region = "02" }').replace(
        "widths = { state = 2, county = 5 }", 'levels = ["nation", "state", "county"]\nroot = "US"\nnames = "title"'
    )
    table = persons().assign(state=lambda f: f["region"], title=lambda f: "County " + f["county"])
    geography, counts = read_input(config_of(tmp_path, table, toml))
    assert geography.names[2:].to_pylist() == ["County 02001", "County 02999"]
    assert counts.values[0].sum() == (table["region"] == "02").sum()
    table.loc[table.index[table["county"] == "02001"][0], "title"] = "another"
    with pytest.raises(DataError, match="column 'title' calls one unit by two names"):
        read_input(config_of(tmp_path, table, toml))


def test_records_alone_are_counted_where_there_are_no_attributes(tmp_path: Path) -> None:
    toml = RUN_TOML.replace('cells = ["adults", "children"]', 'rows = "records"\ncells = ["people"]')
    _, counts = read_input(config_of(tmp_path, persons(), toml))
    assert counts.cells == ("people",)
    assert counts.values[0].tolist() == [500]


def test_a_unit_of_the_list_without_a_record_has_none(tmp_path: Path) -> None:
    pd.DataFrame({"county": [*COUNTIES, "03001"]}).to_csv(tmp_path / "units.csv", index=False)
    toml = RECORDS.replace("[privacy]", 'units = "units.csv"\n[privacy]')
    geography, counts = read_input(config_of(tmp_path, persons(), toml))
    assert geography.identifiers[-1].as_py() == "03001"
    assert counts.values[-1].sum() == 0


def test_a_release_of_records_is_made_and_names_its_cells(tmp_path: Path) -> None:
    public = pipeline.run(config_of(tmp_path, persons(), RECORDS)).public
    manifest = json.loads((public / "manifest.json").read_text())
    assert manifest["cells"][:2] == ["female_child", "female_adult"]
    assert manifest["schema"]["attributes"]["sex"] == SEX


@pytest.mark.parametrize(
    ("toml", "change", "says"),
    [
        (RECORDS, {"sex": "other"}, r"^line 4: 'sex' has a value 'other' that is not one of its categories \('female'"),
        (RECORDS, {"age": None}, r"^line 4: 'age' is missing .*; give every record one of its categories"),
        (RECORDS, {"county": "01"}, r"^line 4: (unit|GEOID) '01' "),
        (RECORDS, {"county": None}, r"(^line 4: the unit in column 'county'|^a row: the GEOID) is missing"),
        (LONG, {"n": -1}, r"county '\d+', cell 'n' \(line 4\): the value is negative"),
        (
            LONG,
            {"county": "01001", "sex": "male", "age": "old"},
            r"a second row of .* categories \(line",
        ),
    ],
)
def test_what_is_no_record_is_refused_with_its_line(
    tmp_path: Path, toml: str, change: dict[str, object], says: str
) -> None:
    long = persons(200).groupby(["county", "sex", "age"], as_index=False)["n"].sum()
    table = (long if toml is LONG else persons(200)).astype(object)
    for name, value in change.items():
        table.loc[2, name] = value
    with pytest.raises(CountsError if "GEOID" not in says else DataError, match=says):
        read_input(config_of(tmp_path, table, toml))


def test_a_second_row_is_found_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_ROWS_AT_ONCE", 1)
    long = persons(200).groupby(["county", "sex", "age"], as_index=False)["n"].sum()
    path = tmp_path / "table.parquet"
    config = config_of(tmp_path, pd.concat([long, long.head(1)]), LONG, "table.parquet")
    pd.concat([long, long.head(1)]).to_parquet(path, row_group_size=3)
    with pytest.raises(CountsError, match=rf"row {len(long) + 1} \(counted from 1\)"):
        read_input(config)


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        (RUN_TOML.replace("[input]", '[input]\nrows = "records"'), r"needs a section \[schema\]"),
        (RECORDS.replace('"records"', '"long"'), "count names the column of counts"),
        (RECORDS.replace('rows = "records"', 'rows = "records"\ncount = "n"'), "count names the column of counts"),
        (RECORDS.replace('rows = "records"', 'rows = "person"'), "input.rows: .*'leaves', 'records', 'long', 'pl94'"),
        (RUN_TOML.replace('cells = ["adults", "children"]', ""), "input.cells is missing"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, toml: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config_of(tmp_path, persons(), toml)
