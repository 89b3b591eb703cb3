"""How often published intervals hold the truth: counted as they would be one release after the other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.several_queries import LEAVES, SCHEMA, SHARES, TREE
from support.simulated import counts_of, public_root
from support.trees import geography
from topdown.errors import ConfigError
from topdown.projection.cells.equality import least_squares
from topdown.studies.decisions.rules import GroupMean
from topdown.studies.followed import Followed
from topdown.studies.interval_coverage import CoverageOptions, FollowedIntervals, no_coverage
from topdown.studies.one_release import published_example
from topdown.studies.report.sections.coverage import coverage_findings, with_verdicts
from topdown.studies.simulate import simulate
from topdown.uncertainty.margins import margins_of

SIZES = [[2], [3, 4]]
COUNTS = counts_of([[0, 0, 4, 9, 30, 80, 0], [2, 5, 0, 0, 11, 7, 300]], SIZES)
KINDS = ("a", "b", "a", "b", "b", "a", "a")
PLAN = td.Plan(epsilon="1", shares={"0": "0.2", "1": "0.3", "2": "0.5"}).for_levels(COUNTS.geography.levels)
OPTIONS = CoverageOptions("gls-top-down", 0.9, (10, 100), (GroupMean("c1", "kind", KINDS),))


def followed() -> tuple[FollowedIntervals, np.ndarray]:
    truth = COUNTS.values.T.astype(float)
    cells = Followed.of(COUNTS.schema, COUNTS.cells, None)
    return FollowedIntervals.of(OPTIONS, PLAN, COUNTS.geography, cells, truth), truth


def test_what_is_counted_is_what_one_release_after_the_other_publishes() -> None:
    intervals, truth = followed()
    covered, lengths = dict.fromkeys(intervals.classes, 0.0), dict.fromkeys(intervals.classes, 0.0)
    units = dict(covered)
    values, released = [], []
    for seed in range(40):
        measurements = td.measure(COUNTS, PLAN, td.SeededSource(seed))
        release = td.round_counts(td.project(measurements, "gls-top-down"), source=td.SeededSource(seed))
        margins = margins_of(measurements, release, confidence=0.9)
        values.append(measurements.values.T.astype(float))
        released.append(release.values.T.astype(float))
        for one in intervals.classes:
            cell = COUNTS.cells.index(one.cell)
            for node in range(*COUNTS.geography.level_slice(one.level).indices(COUNTS.geography.n_nodes)):
                size = {"true count": truth[cell, node], "published count": release.values[node, cell]}.get(one.by)
                names = ["0", "1 to 9", "10 to 99", "100 and more"]
                label = "all" if size is None else names[np.searchsorted([1, 10, 100], size, side="right")]
                if one.by == "kind":
                    label = KINDS[node - COUNTS.geography.tree.leaves.start]
                if label == one.group:
                    lower, upper = margins.lower[node, cell], margins.upper[node, cell]
                    units[one] += 1
                    covered[one] += lower <= truth[cell, node] <= upper
                    lengths[one] += (upper - lower) / 2
    noise = np.repeat([float(PLAN.variance(level)) for level in COUNTS.geography.levels], [1, 2, 7])
    estimates = least_squares(np.stack(values), noise, COUNTS.geography.tree)
    sums = intervals.counted(estimates, np.stack(released), truth)
    assert sums[0].tolist() == pytest.approx(list(covered.values()))
    assert sums[1].tolist() == pytest.approx(list(units.values()))
    assert sums[5].tolist() == pytest.approx(list(lengths.values()))
    assert any(one.by == "kind" for one in intervals.classes)
    assert sum(units.values()) > sum(covered.values())


def test_the_error_of_a_class_is_that_of_a_ratio_over_replicates() -> None:
    intervals, _ = followed()
    rng = np.random.default_rng(5)
    units = rng.integers(1, 9, (200, len(intervals.classes))).astype(float)
    hits = np.floor(units * rng.uniform(0.5, 1.0, units.shape))
    sums = np.stack(
        [hits.sum(0), units.sum(0), (hits**2).sum(0), (hits * units).sum(0), (units**2).sum(0), 2 * units.sum(0)]
    )
    found = intervals.frame(sums, 200)
    part = hits.sum(0) / units.sum(0)
    error = (hits - part * units).std(axis=0, ddof=1) * np.sqrt(200) / units.sum(0)
    assert found["covered"].tolist() == pytest.approx(part.tolist())
    assert found["covered_se"].tolist() == pytest.approx(error.tolist())
    assert found["moe"].tolist() == pytest.approx([2.0] * len(part))
    assert np.isnan(intervals.frame(sums, 1)["covered_se"]).all()


def test_a_study_finds_what_is_stated_at_every_true_size_and_a_group_s_too() -> None:
    table = simulate(COUNTS, PLAN, ["gls-top-down/rounded"], 4000, 7, coverage=OPTIONS)
    found = table.coverage
    assert found is not None
    promised = found[found["by"] != "published count"]
    error = np.sqrt(0.09 / (promised["units"] * 4000))
    # One unit's interval by itself, so that errors of 5 such deviations hardly ever are by chance.
    assert (promised["covered"] > 0.899 - 5.5 * np.maximum(error, promised["covered_se"])).all()
    assert (found["covered"] < 1).any()
    every = found[(found["by"] == "all") & (found["level"] == "2")].set_index("cell")
    size = found[(found["by"] == "published count") & (found["level"] == "2")]
    assert size.groupby("cell")["units"].sum().to_dict() == pytest.approx({"c0": 7, "c1": 7})
    assert every["units"].tolist() == [7, 7]
    short = simulate(
        COUNTS, PLAN, ["gls-top-down/rounded"], 4000, 7, coverage=CoverageOptions("gls-top-down", 0.6, (10, 100))
    )
    assert short.coverage is not None
    assert (short.coverage["moe"].iloc[:4] < found["moe"].iloc[:4]).all()


def test_the_released_method_need_not_be_studied_and_workers_change_nothing() -> None:
    options = CoverageOptions("gls-top-down", 0.9, (10, 100))
    among = simulate(COUNTS, PLAN, ["raw", "gls-top-down/rounded"], 300, 7, coverage=options).coverage
    alone = simulate(COUNTS, PLAN, ["raw"], 300, 7, coverage=options).coverage
    assert among is not None
    assert alone is not None
    pd.testing.assert_frame_equal(among, alone)
    two = simulate(COUNTS, PLAN, ["raw"], 300, 7, coverage=options, workers=2).coverage
    assert two is not None
    pd.testing.assert_frame_equal(two, alone)


def test_what_is_exact_has_no_interval_to_judge() -> None:
    found = simulate(COUNTS, public_root(below=2), ["raw"], 20, 1, coverage=OPTIONS).coverage
    assert found is not None
    assert set(found["level"]) == {"1", "2"}


def test_a_release_without_margins_has_no_coverage() -> None:
    bounds = td.Plan(epsilon="1", shares={"0": "0.2", "1": "0.3", "2": "0.5"}, bounds="truncated")
    bounds = bounds.for_levels(COUNTS.geography.levels)
    assert "bounded noise" in str(no_coverage(bounds, COUNTS.geography, COUNTS.schema))
    assert no_coverage(PLAN, COUNTS.geography, COUNTS.schema) is None
    with pytest.raises(ConfigError, match="bounded noise"):
        simulate(COUNTS, bounds, ["raw"], 20, 1, coverage=OPTIONS)


PLACES = geography(TREE)
SEVERAL = td.Plan("discrete-gaussian", rho="0.1", shares=SHARES).for_levels(PLACES.levels)
OF_CELLS = td.Plan(epsilon="1", shares={"level 0": "0.2", "level 1": "0.3", "level 2": "0.5"}).for_levels(PLACES.levels)


def table_of_several() -> td.Counts:
    frame = pd.DataFrame(LEAVES, columns=list(SCHEMA.cells())).assign(geoid=list(PLACES.geoid[TREE.leaves]))
    return td.Counts.from_table(frame, PLACES, geoid="geoid", cells=list(SCHEMA.cells()), schema=SCHEMA)


@pytest.mark.parametrize("plan", [SEVERAL, td.Plan("geometric", epsilon="2", shares=SHARES), OF_CELLS])
@pytest.mark.parametrize("limited", [False, True])
def test_of_queries_what_is_counted_is_what_releases_would_publish(plan: td.Plan, limited: bool) -> None:
    """Other draws than a release's, of the same laws: the replicates' intervals are those of `td.margins`."""
    counts, plan, asked = table_of_several(), plan.for_levels(PLACES.levels), ["total", "age"]
    limits = None
    if limited:
        row = {"geoid": [PLACES.geoid[3]], "query": ["sex"], "answer": ["f"], "lower": [40], "upper": [60]}
        limits = td.AnswerLimits.from_table(row, PLACES, SCHEMA)
    followed = Followed.of(SCHEMA, SCHEMA.cells(), asked)
    answers = followed.answers(counts.values.T)
    options = CoverageOptions("gls-top-down", 0.9, (10, 100))
    intervals = FollowedIntervals.of(options, plan, PLACES, followed, answers.astype(float))
    estimates, released, lower, upper = [], [], [], []
    for seed in range(3):
        measurements = td.measure(counts, plan, td.SeededSource(seed))
        release = td.project_whole(measurements, constraints=limits, source=td.SeededSource(seed))
        found = td.margins(measurements, release, queries=asked)
        parts = [found[found["query"] == query] for query in asked]
        for into, column in ((estimates, "estimate"), (lower, "lower"), (upper, "upper")):
            into.append(np.concatenate([p[column].to_numpy().reshape(PLACES.n_nodes, -1).T for p in parts]))
        released.append(followed.answers(release.values.T).astype(float))
    bounds = intervals.bounds(np.stack(estimates), np.stack(released))
    np.testing.assert_array_equal(bounds.lower, np.stack(lower))
    np.testing.assert_array_equal(bounds.upper, np.stack(upper))
    table = simulate(
        counts, plan, ["gls-top-down/rounded"], 60, 7, queries=asked, limits=limits, coverage=options, workers=1
    )
    assert table.coverage is not None
    assert set(table.coverage["cell"]) == set(followed.labels)
    every = table.coverage[table.coverage["by"] == "all"]
    assert every["units"].tolist() == [units for units in (1, 2, 5) for _ in followed.labels]
    error = np.maximum(every["covered_se"], np.sqrt(0.09 / (60 * every["units"])))
    assert (every["covered"] > 0.899 - 5.5 * error).all()
    alone = simulate(counts, plan, ["raw"], 60, 7, queries=asked, limits=limits, coverage=options).coverage
    assert alone is not None
    pd.testing.assert_frame_equal(alone, table.coverage)


def test_within_limits_the_cells_coverage_is_measured_too() -> None:
    counts = table_of_several()
    row = {"geoid": [PLACES.geoid[3]], "query": ["sex"], "answer": ["f"], "lower": [40], "upper": [60]}
    limits = td.AnswerLimits.from_table(row, PLACES, SCHEMA)
    options = CoverageOptions("gls-top-down", 0.9, (10, 100))
    found = simulate(counts, OF_CELLS, ["raw"], 300, 7, limits=limits, coverage=options).coverage
    assert found is not None
    assert set(found["cell"]) == set(SCHEMA.cells())
    promised = found[found["by"] != "published count"]
    error = np.maximum(promised["covered_se"], np.sqrt(0.09 / (300 * promised["units"])))
    assert (promised["covered"] > 0.899 - 5.5 * error).all()
    short = CoverageOptions("gls-top-down", 0.6, (10, 100))
    shorter = simulate(counts, OF_CELLS, ["raw"], 300, 7, limits=limits, coverage=short).coverage
    assert shorter is not None
    assert shorter["moe"].mean() < 0.7 * found["moe"].mean()


def test_what_is_published_of_queries_is_a_release_with_its_margins() -> None:
    counts = table_of_several()
    followed = Followed.of(SCHEMA, SCHEMA.cells(), ["age", "total"])
    example = published_example(counts, SEVERAL, "gls-top-down", 3, 0.9, followed)
    assert example.values.shape == example.lower.shape == example.sd.shape == (PLACES.n_nodes, 4)
    np.testing.assert_array_equal(example.values[:, :3].sum(axis=1), example.values[:, 3])
    assert ((example.lower <= example.values) & (example.values <= example.upper)).all()
    assert (example.sd > 0).all()


def rows(covered: list[float], by: str = "true count", units: float = 100.0) -> pd.DataFrame:
    n = len(covered)
    return pd.DataFrame(
        {"level": "county", "cell": "x", "by": by, "group": [f"g{k}" for k in range(n)], "units": units}
        | {"covered": covered, "covered_se": 1e-4, "nominal": 0.9, "moe": 3.0}
    )


def test_below_is_what_chance_and_the_law_s_error_do_not_explain() -> None:
    found = with_verdicts(rows([0.85, 0.8995, 0.9, 0.95], units=1e5), 10_000)
    assert found["below"].tolist() == [True, False, False, False]
    # Of few intervals .85 is chance, whatever their replicates have in common.
    assert not with_verdicts(rows([0.85], units=1.0), 20)["below"].any()


def test_the_finding_names_where_fewer_are_covered_than_stated() -> None:
    good, bad = rows([0.9, 0.91]), rows([0.9, 0.8])
    picked = rows([0.5, 0.0], by="published count").assign(units=[16.0, 0.05])

    def said(frame: pd.DataFrame) -> str:
        listed = with_verdicts(frame, 10_000).to_dict("records")
        return coverage_findings({"nominal": 0.9, "rows": listed})[0]

    assert "in the 90 % that they state" in said(good)
    assert "no coverage is stated" not in said(good)
    assert "less often than the 90 %" in said(bad)
    assert "1 of 2 classes; least in county, x in the class “g1” by true count (80" in said(bad)
    assert "least in county, x in the class “g0” by published count (50" in said(pd.concat([good, picked]))
