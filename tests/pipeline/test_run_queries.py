"""A run of several queries from a configuration file: released, checked, derived again, refused where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import topdown as td
from topdown.config import load_config, load_project
from topdown.errors import BudgetError, ConfigError, CountsError, TopdownError
from topdown.pipeline import draw
from topdown.pipeline import project as derivation
from topdown.pipeline import run as pipeline
from topdown.workload.redistricting import PERSONS

RUN = """
[input]
path = "table.parquet"
rows = "long"
geoid = "block"
count = "n"

[geography]
units = "units.csv"
widths = { county = 2, block = 4 }

[schema]
home = ["house", "nursing", "barracks"]
age = ["minor", "adult"]
race = ["a", "b", "c"]

[recodes.home]
group = { private = ["house"], quarters = ["nursing", "barracks"] }

[[zeros]]
home = "nursing"
age = "minor"

[privacy]
mechanism = "discrete-gaussian"
rho = "1/2"
neighbours = "substitute"
invariants = { nation = ["total"] }

[privacy.shares.nation]
detailed = "1/10"
[privacy.shares.county]
total = "2/10"
"age * race" = "1/10"
detailed = "1/10"
[privacy.shares.block]
group = "1/10"
detailed = "4/10"

[projection]
method = "gls-top-down"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    units = [f"{county:02d}{block:02d}" for county in range(3) for block in range(6)]
    rows: list[dict[str, Any]] = []
    for unit in units[1:]:
        for _ in range(6):
            home = str(rng.choice(["house", "house", "house", "barracks"]))
            rows.append({"block": unit, "home": home, "age": "adult", "race": str(rng.choice(list("abc")))})
    rows.append({"block": units[3], "home": "nursing", "age": "adult", "race": "b"})
    table = pd.DataFrame(rows).drop_duplicates()
    table["n"] = rng.integers(1, 30, len(table))
    table.to_parquet(tmp_path / "table.parquet")
    pd.DataFrame({"block": units}).to_csv(tmp_path / "units.csv", index=False)
    return tmp_path


def configured(folder: Path, text: str = RUN) -> Path:
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


def test_a_release_of_several_queries(folder: Path) -> None:
    public = pipeline.run(load_config(configured(folder))).public
    td.verify_release(public)
    table = pd.read_parquet(folder / "table.parquet")
    release = td.read_release(public).release
    cells = dict(zip(release.cells, release.values.T, strict=True))
    assert release.values[0].sum() == table["n"].sum()  # the nation's total is exact
    assert all(cells[f"nursing_minor_{race}"].sum() == 0 for race in "abc")
    manifest = json.loads((public / "manifest.json").read_text())
    assert manifest["fit_for_release"]
    assert manifest["schema"]["zeros"] == [{"home": ["nursing"], "age": ["minor"]}]
    assert {entry["query"] for entry in manifest["privacy"]["budget"]} == {
        "total",
        "age * race",
        "group",
        "detailed",
    }
    assert manifest["projections"]["non_negative"]["cross_check"]["scope"] == "every family"
    measured = pd.read_parquet(public / "measurements.parquet")
    assert set(measured["query"]) == {"total", "age * race", "group", "detailed"}
    estimates = pd.read_parquet(public / "estimates.parquet")
    assert (estimates["variance"] >= 0).all()
    again = pipeline.run(load_config(folder / "run.toml"))
    assert again.already_there


def test_another_release_of_the_same_measurements(folder: Path) -> None:
    public = pipeline.run(load_config(configured(folder))).public
    (folder / "again.toml").write_text(
        f'[measurements]\npath = "{public}"\n[projection]\nmethod = "top-down"\n[output]\ndirectory = "again"\n'
    )
    other = derivation.project_measurements(load_project(folder / "again.toml")).public
    td.verify_release(other)
    assert pd.read_parquet(other / "measurements.parquet").equals(pd.read_parquet(public / "measurements.parquet"))
    assert json.loads((other / "manifest.json").read_text())["projections"]["non_negative"]["method"] == "top-down"


def test_a_preset_from_a_table_of_records(folder: Path) -> None:
    rng = np.random.default_rng(2)
    places = rng.choice(PERSONS.possible_cells(), 300)
    codes = np.unravel_index(places, PERSONS.shape)
    blocks = rng.choice(["440010000001000", "440010000001001", "440010000002000"], 300)
    records = {a.name: np.array(a.categories)[k] for a, k in zip(PERSONS.attributes, codes, strict=True)}
    pd.DataFrame({"block": blocks, **records}).to_parquet(folder / "persons.parquet")
    text = """
[input]
path = "persons.parquet"
rows = "records"
geoid = "block"
[geography]
widths = { county = 5, tract = 11, "block group" = 12, block = 15 }
root = "44"
root_level = "state"
[privacy]
preset = "pl94-2020-us"
[projection]
cross_check = false
[output]
csv = false
"""
    public = pipeline.run(load_config(configured(folder, text))).public
    manifest = json.loads((public / "manifest.json").read_text())
    assert manifest["privacy"]["total"] == "1173587180/471061179"
    assert manifest["schema"]["recodes"]["hhgq"]["hhinstlevels"]["household"] == ["household"]
    assert len(manifest["privacy"]["budget"]) == 11 * 5
    td.verify_release(public)


@pytest.mark.parametrize(
    ("old", "new", "kind", "says"),
    [
        ('method = "gls-top-down"', 'method = "joint"', ConfigError, r"'joint' has x >= 0 where the cells alone"),
        ('age = "minor"\n', 'age = "child"\n', ConfigError, r"category of 'age' in a zero: 'child'"),
        ('"age * race" = "1/10"', '"age * rac" = "1/10"', BudgetError, r"'rac'"),
        ("[privacy]\n", '[privacy]\npreset = "pl94-2020-us"\n', ConfigError, r"preset = .* has its own 'mechanism'"),
        ("[privacy]\n", '[privacy]\npreset = "pl94-2020"\n', ConfigError, r"unknown preset 'pl94-2020'"),
        (
            'invariants = { nation = ["total"] }',
            'invariants = { nation = ["group"], county = ["age"] }',
            ConfigError,
            r"'age' and 'group' are exact or have limits",
        ),
    ],
)
def test_what_cannot_be_released_is_refused_before_anything_is_drawn(
    folder: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, kind: type[TopdownError], says: str
) -> None:
    assert old in RUN
    monkeypatch.setattr(draw, "measure", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(kind, match=says):
        pipeline.run(load_config(configured(folder, RUN.replace(old, new))))
    assert not (folder / "output" / "public").exists()


def test_records_where_none_can_be_are_refused(folder: Path) -> None:
    table = pd.read_parquet(folder / "table.parquet")
    table.loc[len(table)] = ["0102", "nursing", "minor", "a", 987_654]
    table.to_parquet(folder / "table.parquet")
    with pytest.raises(CountsError, match=r"block '0102'.*nursing_minor_a.*zeros") as refused:
        pipeline.run(load_config(configured(folder)))
    assert "987" not in str(refused.value)


def test_tables_too_large_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "_LARGEST_HISTOGRAMS", 100)
    with pytest.raises(ConfigError, match=r"22 nodes x 18 cells are 396 numbers"):
        pipeline.run(load_config(configured(folder)))


def test_check_rehearses_and_draws_nothing(folder: Path) -> None:
    draw.check(load_config(configured(folder)))
    assert not (folder / "output").exists()
