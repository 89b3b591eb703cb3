"""The Bureau's metrics of one release, worked by hand, and results that cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest

import topdown as td
from topdown.config import load_study
from topdown.errors import ConfigError
from topdown.pipeline.study import study
from topdown.studies.census_metrics import METRICS, census_metrics, impossible_results, metrics_of, production


def test_metrics_are_the_definitions() -> None:
    truth, released = np.array([100, 200, 0, 0, 50]), np.array([103, 190, 2, 0, 350])
    found = metrics_of(truth, released)
    d = [3, -10, 2, 0, 300]
    percent = [3, -5, 200, 0, 600]
    assert tuple(found) == METRICS
    assert found["ME"] == pytest.approx(sum(d) / 5)
    assert found["MAE"] == pytest.approx(sum(map(abs, d)) / 5)
    assert found["RMSE"] == pytest.approx((sum(x * x for x in d) / 5) ** 0.5)
    assert found["MAPE"] == pytest.approx(sum(map(abs, percent)) / 5)
    assert found["MALPE"] == pytest.approx(sum(percent) / 5)
    assert found["CV"] == pytest.approx(100 * found["RMSE"] / 70)
    shares = [abs(r / 645 - t / 350) for t, r in zip(truth, released, strict=True)]
    assert found["TAES"] == pytest.approx(sum(shares))
    assert [found[name] for name in ("2 to 5 %", "above 5 %", "above 10 %", "above 200")] == [2, 2, 2, 1]
    assert (found["median |d|"], found["max |d|"]) == (3, 300)
    empty = metrics_of(np.zeros(3, int), np.zeros(3, int))
    assert np.isnan(empty["CV"])
    assert np.isnan(empty["TAES"])
    assert empty["MAPE"] == 0


def counties() -> tuple[td.Geography, np.ndarray]:
    frame = pd.DataFrame({"n": "US", "county": [f"c{k}" for k in range(4)], "total": [500, 1000, 60_000, 999]})
    geography = td.Geography.from_table(frame, ["n", "county"])
    return geography, td.Counts.from_table(frame, geography, geoid="county", cells=["total"]).values


def test_size_classes_and_production_s_figures_stand_beside() -> None:
    geography, truth = counties()
    released = truth + np.array([[0], [1], [-2], [3], [4]])
    found = census_metrics(geography, ["total"], truth, released)
    rows = {(r["level"], r["size"]): r for r in found.to_dict("records")}
    assert set(rows) == {
        ("n", "all"),
        *(("county", size) for size in ("all", "below 1,000", "1,000 to 4,999", "50,000 to 99,999")),
    }
    small = rows["county", "below 1,000"]
    assert (small["units"], small["MAE"]) == (2, 2.5)
    assert rows["county", "all"]["production MAE"] == 1.86
    assert rows["county", "below 1,000"]["production MAE"] == production()["county", "total"]["below 1,000", "MAE"]
    assert np.isnan(rows["n", "all"]["production MAE"])
    other = census_metrics(geography, ["cats"], truth, released)
    assert other["production MAE"].isna().all()


def test_the_figures_of_production_are_those_that_were_published() -> None:
    """Known from the Bureau's tables: county 1.86, tract 1.94, urban and rural blocks 4.23 and 1.61."""
    published = production()
    assert published["county", "total"]["all", "MAE"] == 1.86
    assert published["tract", "total"]["all", "MAE"] == 1.94
    assert published["block", "total"]["urban", "MAE"] == 4.23
    assert published["block", "total"]["rural", "MAE"] == 1.61
    assert published["place", "total"]["100,000 and more", "MAE"] == 12.41
    white = {
        level: published[level, "Hispanic or Latino, White alone"]["all", "MAE"]
        for level in ("state", "county", "tract")
    }
    assert white == {"state": 8.43, "county": 11.15, "tract": 3.16}


def test_results_that_cannot_be_are_counted_in_truth_and_release() -> None:
    frame = pd.DataFrame({"n": "US", "b": list("wxyz"), "young": [3, 0, 5, 1], "all": [9, 4, 8, 2]})
    geography = td.Geography.from_table(frame, ["n", "b"])
    truth = td.Counts.from_table(frame, geography, geoid="b", cells=["young", "all"]).values
    released = truth.copy()
    released[1:, 1] = [3, 4, 5, 2]
    conditions = {"all minors": "young == `all` and `all` > 0"}
    found = impossible_results(geography, ["young", "all"], truth, released, conditions)
    assert found[found["level"] == "b"].to_dict("records") == [
        {"level": "b", "condition": "all minors", "units": 4, "truth": 0, "released": 2}
    ]
    with pytest.raises(ConfigError, match=r"impossible, 'x': names 'old'"):
        impossible_results(geography, ["young"], truth, released, {"x": "old > 1"})


TOML = """
[input]
path = "counts.csv"
cells = ["young", "older"]
[geography]
levels = ["nation", "county"]
[privacy]
epsilon = 1
[study]
replicates = 20
metrics = "census"
impossible = {{ "=nobody is old" = {condition} }}
[output]
directory = "out"
"""


def toml(folder: Path, condition: str) -> Path:
    frame = pd.DataFrame({"nation": "US", "county": ["a", "b"], "young": [3, 900], "older": [40, 2000]})
    frame.to_csv(folder / "counts.csv", index=False)
    path = folder / "study.toml"
    path.write_text(TOML.format(condition=condition))
    return path


def test_a_study_writes_them_as_a_workbook_of_text_and_numbers(tmp_path: Path) -> None:
    outcome = study(load_study(toml(tmp_path, '"older == 0 and young > 0"')))
    path = outcome.directory / "census_metrics.xlsx"
    assert path.stat().st_mode & 0o077 == 0
    book = openpyxl.load_workbook(path)
    header, *rows = book["metrics"].iter_rows(values_only=True)
    assert header[:4] == ("level", "cell", "size", "units")
    assert {row[0] for row in rows} == {"nation", "county"}
    cell = book["impossible results"]["B2"]
    assert (cell.value, cell.data_type) == ("=nobody is old", "s")
    page = outcome.report.read_text(encoding="utf-8")
    assert '<h2 id="census">' in page
    assert "=nobody is old" in page


@pytest.mark.parametrize(("condition", "said"), [('"old > 1"', "names 'old'"), ('"older >"', "cannot be read")])
def test_a_condition_that_makes_no_sense_is_refused_before_anything_is_simulated(
    condition: str, said: str, tmp_path: Path
) -> None:
    path = toml(tmp_path, condition)
    with pytest.raises(ConfigError, match=said):
        study(load_study(path))
    assert not (tmp_path / "out" / "internal").exists()
