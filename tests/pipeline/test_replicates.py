"""[output] replicates: whole tables drawn around the estimates, refused beforehand where there can be none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.places import RUN_TOML, SEVERAL_TOML
from topdown.config import load_config, load_project
from topdown.errors import ConfigError, ProjectionError, TopdownError
from topdown.pipeline import derive
from topdown.pipeline import run as pipeline
from topdown.pipeline.project_measurements import project_measurements

ASKED = RUN_TOML + "[output]\nreplicates = 6\n"
REPLICATES = [f"rep{k}" for k in range(1, 7)]


def test_replicates_are_whole_tables_that_add_up(toy_run: Path) -> None:
    toy_run.write_text(ASKED)
    public = pipeline.run(load_config(toy_run)).public
    td.verify_release(public)
    found = pd.read_parquet(public / "replicates.parquet")
    assert list(found) == ["geoid", "level", "parent", "name", "cell", "value", *REPLICATES]
    release = pd.read_parquet(public / "release.parquet")
    for name in ("geoid", "cell", "value"):
        assert found[name].tolist() == release[name].tolist()
    tables = found[REPLICATES].to_numpy()
    assert tables.dtype == np.int64
    assert tables.min() >= 0
    assert len(np.unique(tables, axis=1).T) > 1
    sums = found.groupby(["parent", "cell"], observed=True)[REPLICATES].sum()
    for (parent, cell), row in sums.iterrows():
        own = found[(found["geoid"] == parent) & (found["cell"] == cell)][REPLICATES]
        assert own.to_numpy().tolist() == [row.tolist()]
    text = pd.read_csv(public / "replicates.csv", dtype={"geoid": str, "parent": str})
    assert text[REPLICATES].to_numpy().tolist() == tables.tolist()
    book = json.loads((public / "datapackage.json").read_text(encoding="utf-8"))
    described = {one["path"]: one["schema"]["fields"] for one in book["resources"]}
    assert "not a margin of error" in described["replicates.parquet"][-1]["description"]


LIMITS = """
[bounds]
path = "limits.csv"
"""


def of_records(public: Path) -> pd.DataFrame:
    """The replicates of a release of several queries, with every unit and category."""
    found = pd.read_parquet(public / "replicates.parquet")
    assert list(found) == ["geoid", "level", "age", "count", *REPLICATES]
    assert (found[["count", *REPLICATES]].max(axis=1) > 0).all()
    assert found[REPLICATES].to_numpy().dtype == np.int64
    units = pd.read_parquet(public / "geography.parquet")
    every = units.merge(pd.Series(["adults", "children"], name="age"), how="cross")
    return every.merge(found.drop(columns="level"), how="left", on=["geoid", "age"]).fillna(
        dict.fromkeys(REPLICATES, 0)
    )


def test_of_several_queries_they_are_whole_histograms_that_add_up(toy_run: Path) -> None:
    toy_run.write_text(SEVERAL_TOML + "[output]\nreplicates = 6\n")
    public = pipeline.run(load_config(toy_run)).public
    td.verify_release(public)
    tables = of_records(public).set_index(["geoid", "age"])
    released = pd.read_parquet(public / "release.parquet").set_index(["geoid", "age"])["count"]
    assert tables["count"].dropna()[lambda count: count > 0].sort_index().tolist() == released.sort_index().tolist()
    assert len(np.unique(tables[REPLICATES].to_numpy(), axis=1).T) > 1
    sums = tables.groupby(["parent", "age"])[REPLICATES].sum()
    assert (sums == tables.loc[sums.index.rename(["geoid", "age"]), REPLICATES]).all(axis=None)
    text = pd.read_csv(public / "replicates.csv", dtype={"geoid": str})
    assert (
        text[REPLICATES].to_numpy().tolist()
        == pd.read_parquet(public / "replicates.parquet")[REPLICATES].to_numpy().tolist()
    )
    book = json.loads((public / "datapackage.json").read_text(encoding="utf-8"))
    described = {one["path"]: one["schema"]["fields"] for one in book["resources"]}
    assert described["replicates.parquet"][3]["description"].startswith("the released count in these categories; 0")


def test_what_is_exact_or_has_limits_is_so_in_all_of_them(toy_run: Path) -> None:
    toy_run.write_text(SEVERAL_TOML + 'invariants = { state = ["total"] }\n' + LIMITS + "[output]\nreplicates = 6\n")
    text = "geoid,query,answer,lower,upper\n01003,age,children,0,3\n01003,total,total,20,\n"
    (toy_run.parent / "limits.csv").write_text(text)
    public = pipeline.run(load_config(toy_run)).public
    tables = of_records(public)
    by_unit = tables.groupby("geoid")[REPLICATES].sum()
    truth = pd.read_csv(toy_run.parent / "table.csv", dtype=str)
    for state in ("01", "02"):
        mine = truth[truth["county"].str.startswith(state)][["adults", "children"]].astype(int).to_numpy().sum()
        assert (by_unit.loc[state] == mine).all()
    assert by_unit.loc["01003"].min() >= 20
    assert (tables.set_index(["geoid", "age"]).loc[("01003", "children"), REPLICATES] <= 3).all()


def test_units_that_are_not_measured_have_replicates_too(toy_run: Path) -> None:
    toy_run.write_text(ASKED.replace("county = 0.5", "county = 0").replace("0.3", "0.8"))
    found = pd.read_parquet(pipeline.run(load_config(toy_run)).public / "replicates.parquet")
    assert len(np.unique(found[REPLICATES].to_numpy(), axis=1).T) > 1


def test_a_table_that_cannot_be_certified_names_the_setting(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = derive.made_whole

    def fails(*args: Any, **more: Any) -> Any:
        if more.get("workers") == 1:
            raise ProjectionError("not certified")
        return made(*args, **more)

    monkeypatch.setattr(derive, "made_whole", fails)
    toy_run.write_text(ASKED)
    with pytest.raises(ProjectionError, match=r"output.replicates: not certified; leave replicates out, and run again"):
        pipeline.run(load_config(toy_run))
    assert not (toy_run.parent / "output" / "public").exists()
    monkeypatch.undo()
    toy_run.write_text(RUN_TOML)
    assert pipeline.run(load_config(toy_run)).public.exists()


def test_measurements_whose_noise_is_not_known_have_none(toy_run: Path) -> None:
    toy_run.write_text(RUN_TOML + '[noise]\nbounds = "truncated"\n')
    pipeline.run(load_config(toy_run))
    path = toy_run.parent / "again.toml"
    path.write_text('[measurements]\npath = "output/public"\n[output]\ndirectory = "again"\nreplicates = 2\n')
    with pytest.raises(ConfigError, match=r"output.replicates: level 'nation' has bounded noise"):
        project_measurements(load_project(path))


def test_the_same_noise_gives_the_same_replicates_and_they_change_nothing_else(toy_run: Path) -> None:
    public = toy_run.parent / "output" / "public"
    kept = []
    for text in (ASKED, ASKED, RUN_TOML):
        shutil.rmtree(public, ignore_errors=True)
        toy_run.write_text(text)
        pipeline.run(load_config(toy_run))
        kept.append({path.name: path.read_bytes() for path in public.iterdir()})
    assert kept[0] == kept[1]
    assert kept[0]["release.parquet"] == kept[2]["release.parquet"]
    assert "replicates.parquet" not in kept[2]


def test_another_projection_has_replicates_too(toy_run: Path) -> None:
    pipeline.run(load_config(toy_run))
    path = toy_run.parent / "again.toml"
    path.write_text('[measurements]\npath = "output/public"\n[output]\ndirectory = "again"\nreplicates = 2\n')
    public = project_measurements(load_project(path)).public
    assert list(pd.read_parquet(public / "replicates.parquet"))[-2:] == ["rep1", "rep2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (RUN_TOML + '[noise]\nbounds = "truncated"\n', "level 'nation' has bounded noise"),
    ],
    ids=["bounded noise"],
)
def test_what_cannot_be_drawn_is_refused_before_the_noise_is(toy_run: Path, text: str, words: str) -> None:
    toy_run.write_text(text + "[output]\nreplicates = 3\n")
    with pytest.raises(TopdownError, match=f"output.replicates: .*{words}"):
        pipeline.run(load_config(toy_run))
    output = toy_run.parent / "output"
    assert not (output / "public").exists()
    assert not list(output.rglob("*.key"))


def test_a_number_that_is_none_is_refused(toy_run: Path) -> None:
    toy_run.write_text(RUN_TOML + "[output]\nreplicates = -1\n")
    with pytest.raises(ConfigError, match=r"output\.replicates"):
        load_config(toy_run)
