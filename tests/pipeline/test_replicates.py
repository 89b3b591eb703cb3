"""[output] replicates: whole plausible tables beside the release, refused beforehand where there can be none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.parted import AtOnce
from support.places import RUN_TOML, SEVERAL_TOML
from topdown.config import load_config, load_project
from topdown.errors import ConfigError, TopdownError
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
        (SEVERAL_TOML, "several queries were measured"),
        (RUN_TOML + '[noise]\nbounds = "truncated"\n', "this is within bounds"),
        (RUN_TOML.replace("county = 0.5", "county = 0").replace("0.3", "0.8"), "county '01001' was not measured"),
        (RUN_TOML.replace("epsilon = 1.0", "epsilon = 1e-7"), "are too many for plausible tables"),
    ],
    ids=["several queries", "bounded noise", "leaves not measured", "wide noise"],
)
def test_what_cannot_be_drawn_is_refused_before_the_noise_is(toy_run: Path, text: str, words: str) -> None:
    toy_run.write_text(text + "[output]\nreplicates = 3\n")
    with pytest.raises(TopdownError, match=f"output.replicates: .*{words}"):
        pipeline.run(load_config(toy_run))
    output = toy_run.parent / "output"
    assert not (output / "public").exists()
    assert not list(output.rglob("*.key"))


def test_parts_have_none(toy_run: Path) -> None:
    toy_run.write_text(SEVERAL_TOML + "[output]\nreplicates = 3\n")
    with pytest.raises(ConfigError, match=r"output\.replicates"):
        pipeline.run(load_config(toy_run), part_size=1, executor=AtOnce())


def test_a_number_that_is_none_is_refused(toy_run: Path) -> None:
    toy_run.write_text(RUN_TOML + "[output]\nreplicates = -1\n")
    with pytest.raises(ConfigError, match=r"output\.replicates"):
        load_config(toy_run)
