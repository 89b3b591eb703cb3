"""Ranks with their uncertainty: all true ranks at once within what is said, and what the command prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.places import RUN_TOML, SEVERAL_TOML, Command
from topdown.config import load_config
from topdown.errors import DataError
from topdown.pipeline import run as pipeline

TRUTH = np.array([5, 5, 7, 12, 12, 30, 31, 33, 60, 200, 0, 0])
SCHEMA = td.Schema.from_mapping({"age": ["a", "b"]})


def counts() -> td.Counts:
    codes = [f"{state}{k:02d}" for state in ("1", "2") for k in range(6)]
    frame = pd.DataFrame({"unit": codes, "a": TRUTH, "b": TRUTH // 2})
    geography = td.Geography.from_geoids(codes, {"state": 1, "unit": 3})
    return td.Counts.from_table(frame, geography, geoid="unit", cells=["a", "b"], schema=SCHEMA)


def true_ranks(values: np.ndarray) -> np.ndarray:
    return 1 + (values[None, :] > values[:, None]).sum(axis=1)


@pytest.mark.parametrize("several", [False, True])
def test_all_true_ranks_are_within_at_once_as_often_as_stated(several: bool) -> None:
    counted, trials, held, close = counts(), 80, 0, 0
    shares = {"nation": 0, "state": {"total": "1/4"}, "unit": {"detailed": "1/2", "total": "1/4"}}
    plan = td.Plan("discrete-gaussian", rho="0.05", shares=shares) if several else td.Plan(epsilon="0.3")
    for seed in range(trials):
        measurements = td.measure(counted, plan, source=td.SeededSource(seed))
        release = td.project_whole(measurements, source=td.SeededSource(seed)) if several else td.round_counts(
            td.project(measurements), source=td.SeededSource(seed)
        )  # fmt: skip
        found = td.rank(measurements, release, "unit", cell="a", confidence=0.8).set_index("geoid")
        found = found.loc[[*counted.geography.identifiers.to_pylist()[3:]]]
        true = true_ranks(TRUTH)
        held += bool(((found["rank_lower"] <= true) & (true <= found["rank_upper"])).all())
        close += int((found["rank_lower"] == found["rank_upper"]).any())
        assert ((found["rank_lower"] <= found["rank"]) & (found["rank"] <= found["rank_upper"])).all()
        assert found["rank"].tolist() == true_ranks(found["value"].to_numpy()).tolist()
    assert held >= 0.8 * trials - 2.5 * np.sqrt(0.8 * 0.2 * trials)
    assert close > trials / 2  # and the ranges say something


def test_the_smallest_and_those_below_a_unit_are_ranked_alone() -> None:
    measurements = td.measure(counts(), td.Plan(epsilon="1000"), source=td.SeededSource(1))
    release = td.round_counts(td.project(measurements), source=td.SeededSource(1))
    found = td.rank(measurements, release, "unit", cell="a", within="2", smallest=True)
    assert found["geoid"].tolist() == ["204", "205", "200", "201", "202", "203"]
    for name in ("rank", "rank_lower"):
        assert found[name].tolist() == [1, 1, 3, 4, 5, 6]
    assert found["rank_upper"].tolist() == [2, 2, 3, 4, 5, 6]
    assert td.rank(measurements, release, "state", within="US")["rank"].tolist() == [1, 2]
    with pytest.raises(DataError, match="unit '200' has no units of level 'state' below it"):
        td.rank(measurements, release, "state", within="200")
    with pytest.raises(DataError, match="no unit '9' in this geography"):
        td.rank(measurements, release, "unit", within="9")


@pytest.mark.parametrize("text", [RUN_TOML, SEVERAL_TOML], ids=["cells alone", "several queries"])
def test_the_command_prints_the_ranks(toy_run: Path, topdown: Command, text: str) -> None:
    toy_run.write_text(text)
    public = pipeline.run(load_config(toy_run)).public
    done = topdown("rank", public, "--level", "county", "--first", "2", "--format", "json")
    assert done.returncode == 0
    assert "3 units are ranked; the true ranks of all of them are between" in done.stderr
    found = td.read_release(public)
    expected = td.rank(found.measurements, found.release, "county").head(2)
    rows = json.loads(done.stdout)
    assert [row["geoid"] for row in rows] == expected["geoid"].tolist()
    assert [row["rank_upper"] for row in rows] == expected["rank_upper"].tolist()
    printed = topdown("rank", public, "--level", "county", "--confidence", "0.999999999")
    assert "None" not in printed.stdout  # the units have no names
    assert printed.stderr.endswith("with a probability of at least 0.999999999\n")
    assert topdown("rank", public, "--level", "county").stdout.split()[:3] == ["rank", "rank_lower", "rank_upper"]
    assert "no level 'conty'; the levels are" in topdown("rank", public, "--level", "conty").stderr
