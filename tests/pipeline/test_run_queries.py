"""A run of several queries from a configuration file: released, checked, derived again, refused where it cannot be."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

import topdown as td
from support import second_solutions
from support.parted import PERSONS_TABLE
from support.places import REPOSITORY
from topdown.config import load_config, load_project
from topdown.errors import BudgetError, ConfigError, CountsError, DataError, ProjectionError, TopdownError
from topdown.machine.files import file_digest
from topdown.pipeline import draw
from topdown.pipeline import project_measurements as derivation
from topdown.pipeline import run as pipeline
from topdown.privacy.ledger import Ledger
from topdown.projection.check import cross_checks
from topdown.release import partition
from topdown.release.manifest import SCHEMA_VERSION
from topdown.tables import output_formats
from topdown.workload.redistricting import PERSONS

RUN = (
    PERSONS_TABLE
    + """
[geography]
units = "units.csv"
widths = { county = 2, block = 4 }

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
)


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


@pytest.mark.parametrize("workers", [1, 2])
def test_families_that_are_solved_otherwise_again_release_nothing(
    workers: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(configured(folder))
    second_solutions.let_them_differ(monkeypatch)
    monkeypatch.setattr(draw, "rehearse", lambda *_: None)
    with pytest.raises(ProjectionError, match=r"non_negative: .* differ by 1e\+06 on .*nothing was released"):
        pipeline.run(config, workers=workers)
    assert [path.name for path in config.output_path.iterdir()] == ["internal"]


def test_families_are_solved_again_while_the_release_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = threading.Event()
    write, solve = output_formats.write_parquet, cross_checks.cross_check_families

    def writing(path: Path, *arguments: Any, **options: Any) -> None:
        write(path, *arguments, **options)
        if path.name == partition.RELEASE:
            written.set()

    def solving(*arguments: Any, **options: Any) -> Any:
        assert written.wait(60)
        return solve(*arguments, **options)

    config = load_config(configured(folder))
    monkeypatch.setattr(draw, "rehearse", lambda *_: None)
    monkeypatch.setattr(output_formats, "write_parquet", writing)
    monkeypatch.setattr(cross_checks, "cross_check_families", solving)
    public = pipeline.run(config, workers=2).public
    assert json.loads((public / "manifest.json").read_text())["projections"]["non_negative"]["cross_check"] is not None


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
    described = REPOSITORY / "docs" / "schemas" / f"manifest-{SCHEMA_VERSION}.json"
    jsonschema.validate(manifest, json.loads(described.read_text(encoding="utf-8")))
    assert {entry["query"] for entry in manifest["privacy"]["budget"]} == {
        "total",
        "age * race",
        "group",
        "detailed",
    }
    assert manifest["projections"]["non_negative"]["cross_check"]["scope"] == "every family"
    measured = pd.read_parquet(public / "measurements.parquet")
    assert set(measured["query"]) == {"total", "age * race", "group", "detailed"}
    again = pipeline.run(load_config(folder / "run.toml"))
    assert again.already_there


def test_estimates_of_every_cell_are_made_on_request(folder: Path) -> None:
    public = pipeline.run(load_config(configured(folder))).public
    assert not (public / "estimates.parquet").exists()
    assert td.read_release(public).estimates is None
    config = load_config(configured(folder, RUN + "[output]\nestimates = true\n"))
    public = pipeline.run(config, folder / "again").public
    estimates = pd.read_parquet(public / "estimates.parquet")
    assert (estimates["variance"] >= 0).all()
    assert td.read_release(public).estimates is not None


def test_its_rows_are_the_cells_that_have_records(folder: Path) -> None:
    public = pipeline.run(load_config(configured(folder))).public
    rows = pd.read_parquet(public / "release.parquet")
    assert list(rows.columns) == ["geoid", "level", "home", "age", "race", "count"]
    assert (rows["count"] > 0).all()
    assert rows.astype(str).equals(pd.read_csv(public / "release.csv", dtype=str))
    found = td.read_release(public)
    assert found.release.to_frame().astype(str).equals(rows.astype(str))
    assert found.release.values.sum() == rows["count"].sum()
    table = found.table("county", "age")
    assert list(table.columns) == ["geoid", "name", "minor", "adult"]
    by = rows[rows["level"] == "county"].groupby(["geoid", "age"], observed=True)["count"].sum()
    assert table.set_index("geoid")["adult"].to_dict() == by.xs("adult", level="age").to_dict()


NORMAL_MARGIN = {0.9: 1.644854, 0.99: 2.575829}
TABLES = '[output]\ntables = ["age * race", "total", "group"]\n'


def test_tables_are_a_row_per_unit_and_add_up(folder: Path) -> None:
    public = pipeline.run(load_config(configured(folder, RUN + TABLES))).public
    verified = td.verify_release(public)
    assert "tables/age_race.parquet" in verified.files
    found = td.read_release(public)
    table = pd.read_parquet(public / "tables" / "age_race.parquet")
    assert list(table.columns[:4]) == ["geoid", "level", "name", "minor_a"]
    assert table["geoid"].tolist() == found.geography.identifiers.to_pylist()
    assert (table.iloc[:, 3:9].sum(axis=1) == table["total"]).all()
    sums = table.groupby("level", observed=True)["total"].sum()
    assert set(sums) == {sums["nation"]}
    for level in found.geography.levels:
        mine = table[table["level"] == level].iloc[:, 3:9].to_numpy()
        assert (mine == found.table(level, "age * race").iloc[:, 2:].to_numpy()).all()
    beside = pd.read_parquet(public / "tables" / "age_race_estimates.parquet")
    known = ["geoid", "level", "name", "column", "value", "unbiased", "sd", "moe", "lower", "upper"]
    assert list(beside.columns) == known
    assert len(beside) == 7 * len(table)
    assert beside["value"].sum() == table.iloc[:, 3:].to_numpy().sum()
    root = beside[(beside["level"] == "nation") & (beside["column"] == "total")].iloc[0]
    assert root["unbiased"] == pytest.approx(root["value"])  # the nation's total is exact
    assert root["sd"] == pytest.approx(0, abs=1e-6)
    assert root["lower"] == root["upper"] == root["value"]
    assert set(json.loads((public / "manifest.json").read_text())["tables"]) == {"age * race", "total", "group"}


@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_the_standard_deviations_in_tables_are_those_of_least_squares(folder: Path, confidence: float) -> None:
    text = RUN + TABLES + ("" if confidence == 0.9 else f"confidence = {confidence}\n")
    public = pipeline.run(load_config(configured(folder, text))).public
    measurements = td.read_release(public).measurements
    estimate = td.project(measurements, "gls")
    beside = pd.read_parquet(public / "tables" / "group_estimates.parquet")
    for level in measurements.geography.levels:
        mine = beside[(beside["level"] == level) & (beside["column"] != "total")]
        answer = estimate.answer(level, "group")
        assert answer.variance is not None
        assert mine["unbiased"].to_numpy() == pytest.approx(answer.values.ravel())
        assert mine["sd"].to_numpy() ** 2 == pytest.approx(answer.variance.ravel(), abs=1e-9)
        # Of the law on a grid, whose quantiles are interpolated: not closer to the normal's than this.
        assert (mine["moe"] / mine["sd"]).dropna().to_numpy() == pytest.approx(NORMAL_MARGIN[confidence], abs=5e-6)
    book = (public / "METHODS.md").read_text(encoding="utf-8")
    assert f"at {100 * confidence:g} %: {NORMAL_MARGIN[confidence]:.4g} sd" in book


@pytest.mark.parametrize("mechanism", ['"discrete-gaussian"\nrho = "1/2"', '"geometric"\nepsilon = "2"'])
def test_every_row_of_a_table_has_an_interval_also_where_nothing_is_released(folder: Path, mechanism: str) -> None:
    text = RUN.replace('"discrete-gaussian"\nrho = "1/2"', mechanism) + TABLES + "confidence = 0.95\n"
    public = pipeline.run(load_config(configured(folder, text))).public
    found = td.read_release(public)
    beside = pd.read_parquet(public / "tables" / "age_race_estimates.parquet")
    expected = td.margins(found.measurements, found.release, confidence=0.95, queries=["age * race", "total"])
    expected["column"] = [cell or "total" for cell in expected["cell"]]
    both = beside.merge(expected, on=["geoid", "level", "column"], suffixes=("", "_asked"))
    assert len(both) == len(beside) == len(expected)
    for name in ("sd", "lower", "upper"):
        assert both[name].to_numpy() == pytest.approx(both[f"{name}_asked"].to_numpy(), abs=1e-6), name
    assert ((beside["lower"] <= beside["value"]) & (beside["value"] <= beside["upper"])).all()
    empty = beside[(beside["value"] == 0) & (beside["sd"] > 1e-3)]
    assert len(empty) > 0
    assert (empty["upper"] > 0).any()
    assert (empty["lower"] == 0).all()
    said = json.loads((public / "manifest.json").read_text())["margins"]
    assert said["confidence"] == 0.95
    assert "## Margins of error" in (public / "METHODS.md").read_text(encoding="utf-8")


def test_tables_of_narrow_noise_have_intervals(folder: Path) -> None:
    """Noise as narrow as this falls in steps, which the law of every answer's error has."""
    text = RUN.replace('"discrete-gaussian"\nrho = "1/2"', '"geometric"\nepsilon = "20"') + TABLES
    public = pipeline.run(load_config(configured(folder, text))).public
    beside = pd.read_parquet(public / "tables" / "group_estimates.parquet")
    assert (beside["lower"] <= beside["upper"]).all()
    assert json.loads((public / "manifest.json").read_text())["margins"]["confidence"] == 0.9


def test_under_geometric_noise_margins_in_tables_are_not_those_of_the_normal_law(folder: Path) -> None:
    text = RUN.replace('"discrete-gaussian"\nrho = "1/2"', '"geometric"\nepsilon = "2"')
    public = pipeline.run(load_config(configured(folder, text + TABLES + "confidence = 0.99\n"))).public
    beside = pd.read_parquet(public / "tables" / "group_estimates.parquet")
    multiples = (beside["moe"] / beside["sd"]).dropna()
    assert (multiples > 2.58).any()
    assert "by the law of its error" in (public / "METHODS.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("at_once", [7, 1 << 16])
@pytest.mark.parametrize(
    ("file", "row", "said"),
    [
        ("age_race.parquet", 0, "nation '.*', column 'minor_a': it has .* add up to"),
        ("age_race.parquet", 8, "block '0004', column 'minor_a': it has .* add up to"),
        ("age_race_estimates.parquet", 50, "block '0003', column 'minor_b': it has"),
        ("age_race_estimates.parquet", None, "its rows are not the units"),
        ("age_race.parquet", None, "its rows are not the units"),
    ],
)
def test_a_table_that_is_not_of_the_release_is_found(
    folder: Path, file: str, row: int | None, said: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topdown.release.verified._ROWS_AT_ONCE", at_once)
    public = pipeline.run(load_config(configured(folder, RUN + TABLES))).public
    td.verify_release(public)
    path = public / "tables" / file
    table = pd.read_parquet(path)
    if row is None:
        table = table.iloc[:-1]
    else:
        table.loc[row, "value" if "value" in table else "minor_a"] += 1
    table.to_parquet(path)
    manifest = json.loads((public / "manifest.json").read_text())
    manifest["files"][f"tables/{file}"] |= {"sha256": file_digest(path), "bytes": path.stat().st_size}
    (public / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=said):
        td.verify_release(public)


def test_what_lies_beside_the_tables_is_no_part_of_the_release(folder: Path) -> None:
    public = pipeline.run(load_config(configured(folder, RUN + TABLES))).public
    (public / "tables" / "other.csv").write_text("1")
    with pytest.raises(DataError, match=r"'tables/other\.csv' is not of this release"):
        td.verify_release(public)


def test_another_release_of_the_same_measurements_may_have_tables(folder: Path) -> None:
    public = pipeline.run(load_config(configured(folder))).public
    text = f'[measurements]\npath = "{public}"\n[output]\ndirectory = "again"\ntables = ["%s"]\n'
    (folder / "again.toml").write_text(text % "age * rase")
    with pytest.raises(ConfigError, match="did you mean 'race'"):
        derivation.project_measurements(load_project(folder / "again.toml"))
    assert not (folder / "again" / "public").exists()
    (folder / "again.toml").write_text(text % "age * race")
    other = derivation.project_measurements(load_project(folder / "again.toml")).public
    assert "tables/age_race.csv" in td.verify_release(other).files


def test_tables_that_cannot_be_are_refused_before_anything_is_drawn(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"output\.tables.*'rase'.*did you mean 'race'"):
        load_config(configured(folder, RUN + '[output]\ntables = ["age * rase"]\n'))
    with pytest.raises(ConfigError, match="attribute 'level' has the same name as a column of the release"):
        pipeline.run(load_config(configured(folder, RUN.replace("race", "level"))))


def test_its_microdata_tabulate_to_it(folder: Path) -> None:
    outcome = pipeline.run(load_config(configured(folder, RUN + "[output]\nmicrodata = true\n")))
    assert outcome.microdata is not None
    records = pd.concat(map(pd.read_parquet, outcome.microdata.files))
    assert list(records.columns) == ["geoid", "home", "age", "race"]
    rows = pd.read_parquet(outcome.public / "release.parquet")
    blocks = rows[rows["level"] == "block"].drop(columns="level").set_index(["geoid", "home", "age", "race"])["count"]
    found = records.astype(str).value_counts()
    assert found.to_dict() == {tuple(map(str, key)): count for key, count in blocks.items()}


FACILITIES = """geoid,query,answer,lower,upper
0003,home,nursing,1,
0003,home,barracks,0,
"""


def with_limits(folder: Path, facilities: str = FACILITIES, closed: str = "[]", text: str = RUN) -> Path:
    (folder / "facilities.csv").write_text(facilities)
    limits = f'[bounds]\npath = "facilities.csv"\nclosed = {closed}\n[output]\nestimates = true\n'
    return configured(folder, text + limits)


def listed(folder: Path) -> str:
    """A list of all that there is, as a public table of facilities would have it."""
    table = pd.read_parquet(folder / "table.parquet")
    there = table[["block", "home"]].drop_duplicates()
    rows = [f"{one.block},home,{one.home},{int(one.home != 'house')}," for one in there.itertuples()]
    return "geoid,query,answer,lower,upper\n" + "\n".join(rows) + "\n"


@pytest.mark.parametrize("shares", [None, "detailed"], ids=["queries", "cells alone"])
def test_limits_are_kept_by_every_release_and_bind_the_units_above(folder: Path, shares: str | None) -> None:
    text = RUN
    if shares is not None:
        begin, end = RUN.index("mechanism"), RUN.index("[projection]")
        text = RUN[:begin] + 'epsilon = "1/2"\n\n' + RUN[end:]
    config = load_config(with_limits(folder, listed(folder), '["home"]', text))
    public = pipeline.run(config).public
    td.verify_release(public)
    manifest = json.loads((public / "manifest.json").read_text())
    assert manifest["limits"]["sha256"] == file_digest(folder / "facilities.csv")
    described = REPOSITORY / "docs" / "schemas" / f"manifest-{SCHEMA_VERSION}.json"
    jsonschema.validate(manifest, json.loads(described.read_text(encoding="utf-8")))
    found = td.read_release(public)
    there = pd.read_parquet(folder / "table.parquet")[["block", "home"]].drop_duplicates()
    homes = found.table("block", "home").set_index("geoid")
    for block, row in homes.iterrows():
        for home, count in row.drop("name").items():
            occupied = ((there["block"] == block) & (there["home"] == home)).any()
            assert count >= 1 if occupied and home != "house" else occupied or count == 0
    estimates = pd.read_parquet(public / "estimates.parquet")
    nursing = estimates[estimates["cell"].str.startswith("nursing") & (estimates["level"] == "block")]
    by_block = nursing.groupby("geoid")["non_negative"].sum()
    assert by_block.drop("0003").abs().max() == 0
    assert by_block["0003"] >= 1 - 1e-6
    assert found.estimates is not None
    margins, counts = found.estimates.margins, found.release.values
    assert ((margins["lower"] <= counts) & (counts <= margins["upper"])).all()
    assert manifest["margins"]["confidence"] == 0.9
    assert manifest["projections"]["non_negative"]["cross_check"]["scope"] == "every family"
    again = pipeline.run(config)
    assert again.already_there


def test_another_release_of_the_same_measurements_keeps_the_same_limits(folder: Path) -> None:
    public = pipeline.run(load_config(with_limits(folder, listed(folder), '["home"]'))).public
    (folder / "again.toml").write_text(
        f'[measurements]\npath = "{public}"\n[projection]\nmethod = "top-down"\n[output]\ndirectory = "again"\n'
    )
    other = derivation.project_measurements(load_project(folder / "again.toml")).public
    td.verify_release(other)
    assert (other / "limits.parquet").read_bytes() == (public / "limits.parquet").read_bytes()
    nursing = td.read_release(other).table("block", "home").set_index("geoid")["nursing"]
    assert nursing["0003"] >= 1
    assert nursing.drop("0003").sum() == 0


def test_other_limits_are_another_release(folder: Path) -> None:
    pipeline.run(load_config(with_limits(folder)))
    with pytest.raises(TopdownError, match="another"):
        pipeline.run(load_config(with_limits(folder, FACILITIES.replace("barracks,0,", "barracks,0,9000"))))


def test_a_table_of_limits_without_a_column_is_named_once(folder: Path) -> None:
    path = with_limits(folder, FACILITIES.replace("answer", "kind"))
    with pytest.raises(DataError, match=r"no column 'answer'") as raised:
        pipeline.run(load_config(path))
    assert str(raised.value).count("facilities.csv") == 1


def test_a_release_outside_its_limits_is_found(folder: Path) -> None:
    public = pipeline.run(load_config(with_limits(folder))).public
    path = public / "limits.parquet"
    pd.DataFrame(
        {"geoid": ["0003"], "query": ["home"], "answer": ["nursing"], "lower": [10**6], "upper": [None]}
    ).to_parquet(path)
    manifest = json.loads((public / "manifest.json").read_text())
    manifest["files"]["limits.parquet"] |= {"sha256": file_digest(path), "bytes": path.stat().st_size}
    (public / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"block '0003', query 'home', answer 'nursing': .* outside its limits"):
        td.verify_release(public)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            "0003,home,nursing,3,2",
            r"facilities\.csv: limits, line 2: block '0003'.*'nursing': the lower limit is above",
        ),
        ("0009,home,nursing,1,", r"facilities\.csv: limits, line 2: no unit '0009' in the geography"),
        ("0003,home,nursery,1,", r"facilities\.csv: limits, line 2: .*'nursery'.*did you mean 'nursing'"),
        ("0003,house,nursing,1,", r"facilities\.csv: limits, line 2: .*'house'"),
        ("0003,home,nursing,-1,", r"line 2: '-1' is no whole number"),
        ("0003,home,nursing,,inf", r"line 2: 'inf' is no whole number"),
        ("0003,home,nursing,1,\n0003,home,nursing,2,", r"limits, line 3: block '0003'.*'nursing' has two rows"),
        (
            "0003,home * age,nursing_minor,1,",
            "block '0003', query 'home \\* age', 'nursing_minor': it must be at least 1, but it is a structural zero",
        ),
        (
            "0003,home,nursing,5,\n00,home,nursing,0,4",
            "county '00', query 'home', 'nursing': it must be at least 5 and at most 4|"
            "county '00': query 'home', 'nursing': it must be at least 5 and at most 4",
        ),
        (
            "0003,home,nursing,5,\n0003,total,total,,4",
            "block '0003': query 'total', 'total': it must be at least 5 and at most 4",
        ),
        ("0000,total,total,1,", "block '0000', query 'total', answer 'total': its count is below its lower limit 1"),
        ("0003,home,nursing,,0", "block '0003', query 'home', answer 'nursing': its count is above its upper limit 0"),
    ],
)
def test_limits_that_cannot_be_are_refused_before_the_budget_is_touched(folder: Path, rows: str, said: str) -> None:
    text = RUN + '[ledger]\npath = "ledger.db"\ndataset = "census"\n'
    config = load_config(with_limits(folder, "geoid,query,answer,lower,upper\n" + rows + "\n", text=text))
    Ledger(folder / "ledger.db").open_account("census", 1)
    before = (folder / "ledger.db").read_bytes()
    for act in (draw.check, pipeline.run):
        with pytest.raises((DataError, CountsError), match=said):
            act(config)
    assert (folder / "ledger.db").read_bytes() == before
    assert not (config.output_path / "public").exists()


def test_limits_belong_to_methods_that_go_by_families(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"'joint' .* has no solver of several queries, or answers within limits"):
        draw.check(load_config(with_limits(folder, text=RUN.replace("gls-top-down", "joint"))))


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
        ('method = "gls-top-down"', 'method = "joint"', ConfigError, r"'joint' .* has no solver of several queries"),
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
    with pytest.raises(CountsError, match=r"block '0102'.*nursing_minor_a.*structural zero") as refused:
        pipeline.run(load_config(configured(folder)))
    assert "987" not in str(refused.value)


def test_check_rehearses_and_draws_nothing(folder: Path) -> None:
    draw.check(load_config(configured(folder)))
    assert not (folder / "output").exists()


@pytest.mark.parametrize("noise", ["discrete-gaussian", "geometric"])
def test_where_the_estimates_of_cells_are_published_they_have_their_intervals(folder: Path, noise: str) -> None:
    text = RUN if noise == "discrete-gaussian" else RUN.replace(
        '"discrete-gaussian"\nrho = "1/2"', '"geometric"\nepsilon = "2"'
    )  # fmt: skip
    public = pipeline.run(
        load_config(configured(folder, text + "[output]\nestimates = true\nconfidence = 0.95\n"))
    ).public
    found = td.read_release(public)
    assert found.estimates is not None
    margins = found.estimates.margins
    counts = found.release.values
    assert ((margins["lower"] <= counts) & (counts <= margins["upper"])).all()
    by_hand = td.margins(found.measurements, found.release, confidence=0.95)
    lowest = found.geography.levels[-1]
    rows = by_hand[(by_hand["level"] == lowest) & (by_hand["query"] == "detailed")]
    nodes = found.geography.level_slice(lowest)
    for name in ("sd", "lower", "upper"):
        assert margins[name][nodes].ravel() == pytest.approx(rows[name].to_numpy(), abs=1e-6), name
    said = json.loads((public / "manifest.json").read_text())["margins"]
    assert said["confidence"] == 0.95
    assert "a fixed combination of the noise" in said["rule"][0]


def test_where_they_are_not_published_the_manifest_says_where_margins_are(folder: Path) -> None:
    public = pipeline.run(load_config(configured(folder, RUN))).public
    said = json.loads((public / "manifest.json").read_text())["margins"]
    assert said["confidence"] is None
    assert "output.estimates" in said["statement"]
