"""output.margins: at which levels and for which tables margins of error are written, and what is left as it was."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.places import RUN_TOML, SEVERAL_TOML
from topdown.config import load_config, load_project, load_study
from topdown.errors import ConfigError
from topdown.pipeline import run as pipeline
from topdown.pipeline.project_measurements import project_measurements
from topdown.uncertainty.laws.answer_laws import AnswerLaws

ALONE = RUN_TOML + '[output]\ntables = ["total"]\n'
SEVERAL = SEVERAL_TOML + '[output]\ntables = ["age", "total"]\nestimates = true\nestimates_csv = true\n'
RUNS = pytest.mark.parametrize("text", [ALONE, SEVERAL], ids=["cells alone", "several queries"])
TOTALS = ("total_lower", "total_upper", "total_moe")
MARGINS = ("moe", "lower", "upper", "reliability", *TOTALS)
SOME = 'margins = { levels = ["state"], tables = ["total", "cells"] }\n'


def made(toy_run: Path, text: str) -> Path:
    """The release of ``text``, of the same noise as the one before."""
    toy_run.write_text(text)
    public = toy_run.parent / "output" / "public"
    shutil.rmtree(public, ignore_errors=True)
    return pipeline.run(load_config(toy_run)).public


def tables(public: Path) -> dict[str, pd.DataFrame]:
    found = {str(path.relative_to(public)): pq.read_table(path).to_pandas() for path in public.rglob("*.parquet")}
    return {name: frame for name, frame in found.items() if "level" in frame}


def manifest(public: Path) -> Any:
    return json.loads((public / "manifest.json").read_text(encoding="utf-8"))


def columns_of_margins(name: str, frame: pd.DataFrame) -> list[str]:
    if name.startswith("measurements"):
        return []
    more = {"cv", "total"} if name == "release.parquet" else {"sd"} if name.startswith("estimates") else set()
    return [one for one in frame if one in MARGINS or one in more]


@RUNS
def test_what_is_left_out_is_all(toy_run: Path, text: str) -> None:
    as_ever = {path.name: path.read_bytes() for path in made(toy_run, text).rglob("*") if path.is_file()}
    tables_named = 'tables = ["total", "cells"]' if text == ALONE else 'tables = ["age", "total", "cells"]'
    for said in ("true", '{ levels = ["nation", "state", "county"] }', f"{{ {tables_named} }}"):
        found = {
            path.name: path.read_bytes()
            for path in made(toy_run, f"{text}margins = {said}\n").rglob("*")
            if path.is_file()
        }
        differing = {name for name in as_ever if found[name] != as_ever[name]}
        assert found.keys() == as_ever.keys()
        assert differing <= {"manifest.json", "METHODS.md", "README.md"}
    assert "alone: " not in manifest(made(toy_run, text))["margins"]["statement"]


@RUNS
@pytest.mark.parametrize("level", ["nation", "state", "county"])
def test_at_other_levels_margins_are_missing_and_at_these_the_same(toy_run: Path, text: str, level: str) -> None:
    every, some = (tables(made(toy_run, text + said)) for said in ("", f'margins = {{ levels = ["{level}"] }}\n'))
    assert every.keys() == some.keys()
    seen = 0
    for name, frame in every.items():
        found, named = some[name], columns_of_margins(name, frame)
        assert list(found) == list(frame), name
        # The total is written at every level, and a count of 0 has no coefficient of variation.
        named = [one for one in named if one not in ("cv", "total")]
        here = (frame["level"] == level).to_numpy()
        pd.testing.assert_frame_equal(found[here], frame[here])
        beside = [*named, *({"cv"} & set(frame))]
        pd.testing.assert_frame_equal(found.drop(columns=beside), frame.drop(columns=beside))
        assert "cv" not in found or found.loc[~here, "cv"].isna().all()
        assert found.loc[~here, named].isna().all().all()
        assert frame[named].notna().all().all()
        seen += len(named)
    assert seen >= (9 if text == ALONE else 8)


@RUNS
def test_other_tables_have_no_margins(toy_run: Path, text: str) -> None:
    every = tables(made(toy_run, text))
    for chosen in ("total", "cells"):
        public = made(toy_run, f'{text}margins = {{ tables = ["{chosen}"] }}\n')
        book = json.loads((public / "datapackage.json").read_text(encoding="utf-8"))
        described = {one["path"]: [field["name"] for field in one["schema"]["fields"]] for one in book["resources"]}
        for name, found in tables(public).items():
            frame = every[name]
            has_some = name == "tables/total_estimates.parquet" if chosen == "total" else not name.startswith("tables")
            without = [] if has_some else columns_of_margins(name, frame)
            pd.testing.assert_frame_equal(found, frame.drop(columns=without))
            assert described[name] == list(found)
        assert f"margins: {chosen} (" in manifest(public)["margins"]["statement"]


@RUNS
def test_none_are_computed_where_none_are_written(toy_run: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    every = tables(made(toy_run, text))
    monkeypatch.setattr(AnswerLaws, "of", lambda _: pytest.fail("a law is computed"))
    public = made(toy_run, text + "margins = false\n")
    for name, found in tables(public).items():
        pd.testing.assert_frame_equal(found, every[name].drop(columns=columns_of_margins(name, every[name])))
    said = manifest(public)["margins"]
    assert said["confidence"] is None
    assert "output.margins = false" in said["statement"]
    assert "output.margins = false" in (public / "METHODS.md").read_text(encoding="utf-8")
    assert "| moe |" not in (public / "METHODS.md").read_text(encoding="utf-8")


@RUNS
def test_laws_of_lower_levels_are_not_computed(toy_run: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, of_columns = set[int](), AnswerLaws.of_columns

    def counted(laws: AnswerLaws, columns: Any) -> Any:
        nodes.add(len(laws.group))
        return of_columns(laws, columns)

    monkeypatch.setattr(AnswerLaws, "of_columns", counted)
    geography = td.read_release(made(toy_run, text)).geography
    assert nodes == {geography.n_nodes}
    nodes.clear()
    made(toy_run, text + 'margins = { levels = ["state"] }\n')
    assert nodes == {geography.level_slice("state").stop}


@RUNS
def test_the_manifest_and_the_codebook_say_where_they_are(toy_run: Path, text: str) -> None:
    public = made(toy_run, text + SOME)
    said = manifest(public)
    assert said["margins"]["confidence"] == 0.9
    assert (
        "margins: total, cells (cells: release.* and estimates.*); at these levels alone: state. td"
        in (said["margins"]["statement"])
    )
    assert "at these levels alone: state" in (public / "METHODS.md").read_text(encoding="utf-8")
    assert said["configuration"]["output"]["margins"] == {"levels": ["state"], "tables": ["total", "cells"]}


@RUNS
def test_the_release_is_the_same_one_and_is_read_and_asked_as_ever(toy_run: Path, text: str) -> None:
    every = td.read_release(made(toy_run, text))
    first = td.margins(every.measurements, every.release)
    assert every.manifest["configuration_sha256"]
    some = td.read_release(made(toy_run, text + SOME))
    assert some.manifest["configuration_sha256"] == every.manifest["configuration_sha256"]
    pd.testing.assert_frame_equal(td.margins(some.measurements, some.release), first)
    assert some.estimates is not None
    assert every.estimates is not None
    states = some.geography.level_slice("state")
    for name, values in some.estimates.margins.items():
        np.testing.assert_array_equal(values[states], every.estimates.margins[name][states])
        assert np.isnan(np.delete(values, np.r_[states], axis=0)).all()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ('{ levels = ["count"] }', "output.margins.levels: unknown level 'count': .*county"),
        ('{ tables = ["totl"] }', "output.margins.tables: unknown table 'totl': give 'total', 'cells'.*'total'"),
        ('{ tables = ["adults"] }', "output.margins.tables: unknown table 'adults': give 'total', 'cells'"),
        ('{ level = ["county"] }', "output.margins: unknown key 'level': give 'levels', 'tables'"),
        ("{}", "output.margins: give true, false, or levels and tables"),
        ("{ levels = [], tables = [] }", "output.margins: give levels as a list of at least one name; margins = false"),
        ('{ tables = "total" }', "output.margins: give tables as a list"),
        ('"county"', "output.margins: give true, false, or levels and tables"),
    ],
)
def test_what_is_not_there_is_refused(toy_run: Path, said: str, message: str) -> None:
    toy_run.write_text(f"{ALONE}margins = {said}\n")
    with pytest.raises(ConfigError, match=message):
        load_config(toy_run)


def test_there_are_none_of_cells_whose_estimates_are_not_published(toy_run: Path) -> None:
    text = SEVERAL.replace("estimates = true\nestimates_csv = true\n", "")
    toy_run.write_text(text + 'margins = { tables = ["cells"] }\n')
    with pytest.raises(ConfigError, match="unknown table 'cells': give 'age', 'total'"):
        load_config(toy_run)
    found = tables(made(toy_run, text + 'margins = { levels = ["county"], tables = ["age"] }\n'))
    assert "moe" not in found["tables/total_estimates.parquet"]
    assert set(found["tables/age_estimates.parquet"].dropna(subset=["moe"])["level"]) == {"county"}


def test_a_projection_chooses_its_own(toy_run: Path) -> None:
    public = made(toy_run, ALONE)
    path = toy_run.parent / "again.toml"
    text = '[measurements]\npath = "output/public"\n[output]\ndirectory = "again"\nmargins = { levels = ["%s"] }\n'
    path.write_text(text % "tract")
    with pytest.raises(ConfigError, match=re.escape("output.margins.levels: unknown level 'tract'")):
        project_measurements(load_project(path))
    assert not (toy_run.parent / "again").exists()
    path.write_text(text % "state")
    every, found = (tables(one)["release.parquet"] for one in (public, project_measurements(load_project(path)).public))
    assert set(found.dropna(subset=["upper"])["level"]) == {"state"}
    assert set(every.dropna(subset=["upper"])["level"]) == {"nation", "state", "county"}


def test_a_study_takes_it_and_refuses_what_is_not_there(toy_run: Path) -> None:
    study = "\n[study]\nseed = 1\nreplicates = 2\n"
    toy_run.write_text(ALONE + SOME + study)
    assert load_study(toy_run).output.margins == {"levels": ["state"], "tables": ["total", "cells"]}
    toy_run.write_text(ALONE + SOME.replace("state", "stat") + study)
    with pytest.raises(ConfigError, match="unknown level 'stat'"):
        load_study(toy_run)
