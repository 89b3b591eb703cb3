"""The change of a sum from one release to another, with its margin; and the share of a sum in itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.places import RUN_TOML, SEVERAL_TOML, Command
from topdown.config import load_config, load_project
from topdown.errors import ConfigError
from topdown.pipeline import run as pipeline
from topdown.pipeline.project_measurements import project_measurements

SHARES = {"nation": 0, "state": 0, "county": {"detailed": "1/2", "total": "1/2"}}


def released(folder: Path, frame: pd.DataFrame, text: str = RUN_TOML) -> Path:
    folder.mkdir()
    frame.to_csv(folder / "table.csv", index=False)
    (folder / "run.toml").write_text(text)
    return pipeline.run(load_config(folder / "run.toml")).public


@pytest.mark.parametrize("several", [False, True])
def test_the_margin_of_a_change_covers_as_often_as_stated(counts: td.Counts, several: bool) -> None:
    """The two releases have other laws of noise: both are in it."""
    plans = (
        (
            td.Plan("discrete-gaussian", rho="0.02", shares=SHARES),
            td.Plan("discrete-gaussian", rho="0.1", shares=SHARES),
        )
        if several
        else (td.Plan(epsilon="0.5"), td.Plan("discrete-gaussian", rho="0.02"))
    )
    trials, held, sd = 200, 0, 0.0
    for seed in range(trials):
        now, before = (td.measure(counts, one, source=td.SeededSource(2 * seed + k)) for k, one in enumerate(plans))
        found = td.region(now, {"01": 1}, cell="adults", minus={"01003": 1}, before=before)
        apart = [td.region(one, {"01": 1}, cell="adults", minus={"01003": 1}) for one in (now, before)]
        assert found.estimate == pytest.approx(apart[0].estimate - apart[1].estimate)
        assert found.sd == pytest.approx(np.hypot(apart[0].sd, apart[1].sd))
        held += found.lower <= 0 <= found.upper  # nothing changed
        sd = found.sd
    assert abs(held / trials - 0.9) < 3 * np.sqrt(0.09 / trials) + 0.02
    assert (found.upper - found.lower) / 2 == pytest.approx(1.645 * sd, rel=0.1)


def test_the_command_takes_an_earlier_release_and_units(tmp_path: Path, frame: pd.DataFrame, topdown: Command) -> None:
    now, before = released(tmp_path / "now", frame), released(tmp_path / "before", frame.assign(adults=[5, 5, 5]))
    expected = td.region(
        td.read_release(now).measurements, {"01": 1}, before=td.read_release(before).measurements, confidence=0.95
    )
    for option in ("--minus", "--minus-release"):
        done = topdown("query", now, "--sum", "01", option, before, "--confidence", "0.95", "--format", "json")
        assert (done.returncode, done.stderr) == (0, "")
        (row,) = json.loads(done.stdout)
        assert row["region"] == f"01, change since {before.as_posix()}"
        assert (row["estimate"], row["lower"], row["upper"]) == pytest.approx(
            (expected.estimate, expected.lower, expected.upper)
        )
    both = topdown("query", now, "--sum", "01", "--minus", "01001", "--minus-release", before, "--format", "json")
    assert json.loads(both.stdout)[0]["region"] == f"01 - 01001, change since {before.as_posix()}"
    twice = topdown("query", now, "--sum", "01", "--minus", before, "--minus-release", before)
    assert "both name a release; give one" in twice.stderr
    share = topdown("query", now, "--sum", "01", "--share-of", "US", "--minus-release", before)
    assert "the change of a share has no margin here" in share.stderr


def test_two_releases_of_one_draw_and_units_of_one_alone_are_refused(
    tmp_path: Path, frame: pd.DataFrame, topdown: Command
) -> None:
    now = released(tmp_path / "now", frame)
    (tmp_path / "again.toml").write_text('[measurements]\npath = "now/output/public"\n[projection]\nmethod = "joint"\n')
    again = project_measurements(load_project(tmp_path / "again.toml")).public
    done = topdown("query", now, "--sum", "01", "--minus-release", again)
    assert done.returncode == 2
    assert "has the same measurements as" in done.stderr
    fewer = released(tmp_path / "fewer", frame.iloc[:2])
    done = topdown("query", now, "--sum", "02", "--minus-release", fewer)
    assert done.returncode == 3
    assert "no unit '02' in this geography" in done.stderr
    assert "units and cells of a change are those of both releases" in done.stderr


def test_the_change_of_a_share_is_refused(counts: td.Counts) -> None:
    measurements = td.measure(counts, td.Plan(epsilon=1), source=td.SeededSource(1))
    with pytest.raises(ConfigError, match="the change of a share has no margin"):
        td.region(measurements, {"01": 1}, share_of="total", cell="adults", before=measurements)


@pytest.mark.parametrize("text", [RUN_TOML, SEVERAL_TOML], ids=["cells alone", "several queries"])
def test_a_share_in_itself_says_so(tmp_path: Path, frame: pd.DataFrame, topdown: Command, text: str) -> None:
    public = released(tmp_path / "run", frame, text)
    for share in ("01", "total"):
        done = topdown("query", public, "--sum", "01", "--share-of", share, "--format", "json")
        (row,) = json.loads(done.stdout)
        assert (row["estimate"], row["lower"], row["upper"]) == (1, 1, 1)
        assert "the part is the whole" in row["note"]
    (row,) = json.loads(topdown("query", public, "--sum", "01", "--share-of", "US", "--format", "json").stdout)
    assert "the part is the whole" not in row["note"]


def test_a_change_between_the_same_measurements_is_refused(tmp_path: Path, frame: pd.DataFrame) -> None:
    """Their difference is 0 whatever changed, and no margin holds for it."""
    public, other = (released(tmp_path / name, frame) for name in ("now", "other"))
    (tmp_path / "again.toml").write_text(f'[measurements]\npath = "{public}"\n[output]\ndirectory = "again"\n')
    projected = project_measurements(load_project(tmp_path / "again.toml")).public
    now = td.read_release(public).measurements
    for before in (now, *(td.read_release(one).measurements for one in (public, projected))):
        with pytest.raises(ConfigError, match="before has the same measurements: a change needs two releases"):
            td.region(now, {"01": 1}, before=before)
    assert td.region(now, {"01": 1}, before=td.read_release(other).measurements).sd > 0


def test_equal_numbers_of_independent_measurements_are_no_reason_to_refuse_a_change(counts: td.Counts) -> None:
    one, other = (td.measure(counts, td.Plan(epsilon=60), source=td.SeededSource(seed)) for seed in (1, 2))
    assert (one.values == other.values).all()
    assert td.region(one, {"01": 1}, before=other).estimate == 0
