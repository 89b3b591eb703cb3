"""The report's part on records: the pMSE by method, what the noise makes it, and a release that copies the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import topdown as td
from topdown.research.sections.record_quality import records_chart, records_summary
from topdown.studies.one_release import one_release, records_frame

METHODS = ["raw", "top-down/equality", "top-down", "top-down/rounded", "joint/rounded"]


@pytest.fixture(scope="module")
def study() -> tuple[td.Counts, td.Plan, td.ErrorTable]:
    rng = np.random.default_rng(5)
    counties = [f"{state:02d}{county:03d}" for state in range(1, 5) for county in range(1, 41)]
    frame = pd.DataFrame({"geoid": counties, "a": rng.poisson(300, 160), "b": rng.poisson(80, 160)})
    geography = td.Geography.from_geoids(frame["geoid"], {"state": 2, "county": 5})
    counts = td.Counts.from_table(frame, geography, geoid="geoid", cells=["a", "b"])
    plan = td.Plan("geometric", 0.5, shares={"nation": "1/5", "state": "3/10", "county": "1/2"})
    return counts, plan, td.simulate(counts, plan, METHODS, 400, 1)


def test_one_release_by_every_projection_that_makes_records(study: tuple) -> None:
    counts, plan, table = study
    releases = one_release(counts, plan, table.methods, 1)
    assert list(releases) == ["top-down", "joint"]
    for values in releases.values():
        assert values.dtype == np.int64
        assert values.min() >= 0
        assert (values[0] == values[counts.geography.tree.leaves].sum(axis=0)).all()
    again = one_release(counts, plan, table.methods, 1)
    other = one_release(counts, plan, table.methods, 2)
    assert (again["joint"] == releases["joint"]).all()
    assert (other["joint"] != releases["joint"]).any()


def test_the_pmse_is_what_the_simulated_noise_makes_it_on_average(study: tuple) -> None:
    counts, plan, table = study
    found = []
    for seed in range(40):
        frame = records_frame(table, one_release(counts, plan, ["top-down"], seed))
        found.append(records_summary(table, frame)["rows"][0])
    assert {row["method"] for row in found} == {"top-down"}
    values = np.array([row["pmse"] for row in found])
    error = values.std(ddof=1) / np.sqrt(len(values))
    expected = found[0]["expected"]
    assert abs(values.mean() - expected) < 4 * error + 0.02 * expected
    assert abs(values.mean() - 1.2 * expected) > 4 * error, "the test could not tell 20 % apart"
    assert not any(row["too_good"] for row in found)


def test_a_release_that_copies_the_truth_is_too_good_to_be_private(study: tuple) -> None:
    counts, plan, table = study
    honest = one_release(counts, plan, ["top-down"], 3)["top-down"]
    summary = records_summary(table, records_frame(table, {"top-down": honest, "joint": counts.values}))
    assert [row["too_good"] for row in summary["rows"]] == [False, True]
    assert summary["rows"][1]["pmse"] == 0.0


def test_contributions_name_the_cells_that_differ_most(study: tuple) -> None:
    counts, _, table = study
    released = counts.values.copy()
    node = counts.geography.tree.leaves.start + 7
    released[node, 1] += 500
    summary = records_summary(table, records_frame(table, {"top-down": released}))
    first = summary["contributions"][0]
    assert first["part"] == "01008, b"
    assert first["contribution"] == max(one["contribution"] for one in summary["contributions"])
    assert records_chart({"records": summary}) is not None
    assert records_chart({}) is None


def test_the_frame_holds_truth_and_release_of_every_leaf(study: tuple) -> None:
    counts, plan, table = study
    frame = records_frame(table, one_release(counts, plan, ["joint"], 1))
    assert list(frame.columns) == ["geoid", "name", "cell", "method", "truth", "released", "notice"]
    leaves = counts.values[counts.geography.tree.leaves]
    assert frame["truth"].tolist() == leaves.reshape(-1).tolist()


def test_one_release_of_the_cells_alone_keeps_its_limits(counts: td.Counts) -> None:
    """As the release that is studied does."""
    geography = counts.geography
    rows = {"geoid": list(geography.geoid[-3:]), "query": ["detailed"] * 3, "answer": ["children"] * 3}
    rows |= {"lower": [30, 40, 50], "upper": [None, 40, 60]}
    limits = td.AnswerLimits.from_table(rows, geography, counts.schema)
    plan = td.Plan("geometric", epsilon=1)
    found = one_release(counts, plan, ["top-down", "gls-top-down/rounded"], 1, limits)
    assert set(found) == {"top-down", "gls-top-down"}
    for values in found.values():
        leaves = values[-3:, 1]
        assert leaves[0] >= 30
        assert leaves[1] == 40
        assert 50 <= leaves[2] <= 60
