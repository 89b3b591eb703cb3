"""Intervals of answers to queries, measured or not: the rule of cells, by columns and some nodes at a time."""

from __future__ import annotations

import numpy as np
import pytest

import topdown as td
from support.several_queries import LEAVES, SCHEMA, TREE, measured
from support.trees import geography
from topdown.errors import ConfigError, DataError
from topdown.uncertainty import intervals
from topdown.uncertainty.intervals import rejected_up_to

SHARES = {"level 0": "0.1", "level 1": "0.5", "level 2": "0.4"}


def of_cells(seed: int, shares: dict[str, str] = SHARES, **more: object) -> td.Measurements:
    """Measurements of the cells alone of `several_queries`' table."""
    there = geography(TREE)
    counts = {"geoid": list(there.geoid[TREE.leaves]), **dict(zip(SCHEMA.cells(), LEAVES.T.tolist(), strict=True))}
    whole = td.Counts.from_table(counts, there, geoid="geoid", cells=list(SCHEMA.cells()), schema=SCHEMA)
    plan = td.Plan(**({"mechanism": "geometric", "epsilon": "0.3", "shares": shares} | more))  # type: ignore[arg-type]
    return td.measure(whole, plan, source=td.SeededSource((8, seed)))


@pytest.mark.parametrize(
    ("shares", "more"),
    [
        (SHARES, {}),
        ({"level 0": "0.01", "level 1": "0.98", "level 2": "0.01"}, {}),
        ({"level 0": "1", "level 1": "0", "level 2": "0"}, {}),
        ({"level 1": "1/2", "level 2": "1/2"}, {"invariants": ["level 0"]}),
        ({"level 0": "1/2", "level 1": "1/2", "level 2": "0"}, {}),
        ({"level 0": "1/3", "level 1": "0", "level 2": "2/3"}, {}),
        (SHARES, {"mechanism": "discrete-gaussian", "epsilon": None, "rho": "0.05"}),
    ],
)
def test_intervals_of_single_cells_are_those_of_the_cells(shares: dict[str, str], more: dict[str, object]) -> None:
    for seed in range(3):
        measurements = of_cells(seed, shares, **more)
        release = td.round_counts(td.project(measurements), source=td.SeededSource(seed))
        for simultaneous in (False, True):
            plain = td.margins(measurements, release, simultaneous=simultaneous)
            asked = td.margins(measurements, release, queries=["detailed"], simultaneous=simultaneous)
            for name in ("estimate", "sd", "lower", "upper"):
                np.testing.assert_allclose(asked[name], plain[name].to_numpy(), atol=1e-9, err_msg=name)
            assert asked["geoid"].tolist() == plain["geoid"].tolist()


@pytest.mark.system
def test_sums_of_cells_are_covered_as_often_as_stated_at_all_levels() -> None:
    times, asked = 150, ["total", "sex", "age"]
    cells = TREE.aggregate(LEAVES.T).T
    hits: np.ndarray = np.zeros(0)
    for seed in range(times):
        found = td.margins(of_cells(seed), queries=asked)
        if not len(hits):
            hits = np.zeros(len(found))
            place = geography(TREE).index_of(found["geoid"].tolist())
            parsed = {name: td.Query.parse(name, SCHEMA) for name in asked}
            truth = np.array(
                [
                    parsed[query].answers(cells[[node]])[0, parsed[query].labels().index(cell)]
                    for node, query, cell in zip(place, found["query"], found["cell"], strict=True)
                ]
            )
        hits += ((found["lower"] <= truth) & (truth <= found["upper"])).to_numpy()
    assert len(hits) == 8 * (1 + 2 + 3)
    assert hits.min() / times >= 0.9 - 5.5 * np.sqrt(0.09 / times)
    assert hits[truth > 60].mean() / times < 0.93


@pytest.mark.parametrize("mechanism", ["discrete-gaussian", "geometric"])
def test_answers_that_nobody_measured_have_intervals_and_these_hold_what_is_released(mechanism: str) -> None:
    budget = {"rho": "0.1"} if mechanism == "discrete-gaussian" else {"epsilon": "1"}
    measurements = measured(2, mechanism, **budget)
    release = td.project_whole(measurements, source=td.SeededSource(1))
    found = td.margins(measurements, release, queries=["sex * age", "age", "total"])
    assert len(found) == 8 * (6 + 3 + 1)
    estimate = td.project(measurements, "gls")
    for level in measurements.geography.levels:
        rows = found[(found["level"] == level) & (found["query"] == "age")]
        answer, counts = estimate.answer(level, "age"), release.answers(level, "age").ravel()
        np.testing.assert_allclose(rows["estimate"], answer.values.ravel(), atol=1e-7)
        np.testing.assert_allclose(rows["sd"] ** 2, np.asarray(answer.variance).ravel(), rtol=1e-9, atol=1e-9)
        assert ((rows["lower"] <= counts) & (counts <= rows["upper"])).all()
        region = td.region(measurements, {rows["geoid"].iloc[0]: 1}, query="age", cell=rows["cell"].iloc[0])
        assert region.sd == pytest.approx(rows["sd"].iloc[0], rel=1e-9)
    plain = td.margins(measurements, release)
    both = plain.merge(found, on=["geoid", "query", "cell"], suffixes=("", "_asked"))
    assert len(both) == 1 + 5 + 2 * 3 + 7 * 6  # "total" and all cells at two levels, "age" at one
    assert (both["lower"] == both["lower_asked"]).all()
    assert (both["upper"] == both["upper_asked"]).all()


def test_nodes_in_small_parts_have_the_same_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    for measurements in (of_cells(1), measured(1)):
        expected = td.margins(measurements, queries=["sex", "detailed"])
        with monkeypatch.context() as small:
            small.setattr(intervals, "_NUMBERS_AT_ONCE", 7)
            found = td.margins(measurements, queries=["sex", "detailed"])
        assert found.equals(expected)


def test_what_is_rejected_for_sure_need_not_be_listed() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        p = np.concatenate([rng.uniform(size=rng.integers(0, 60)), rng.uniform(size=rng.integers(0, 60)) ** 6])
        alpha, tried = float(rng.uniform(0.01, 0.4)), max(len(p), 1)
        sure = p <= alpha / tried
        whole = rejected_up_to(p, alpha, tried)
        # By the definition: the largest rank whose p-value is at most alpha / n times it.
        order = np.sort(p)
        passed = np.flatnonzero(order <= alpha * np.arange(1, len(order) + 1) / tried)
        assert (p <= whole).sum() == (passed[-1] + 1 if len(passed) else 0)
        assert rejected_up_to(p[(p <= alpha) & ~sure], alpha, tried, int(sure.sum())) == whole


def test_an_unknown_query_and_a_foreign_release_are_refused() -> None:
    measurements = measured(1)
    with pytest.raises(ConfigError, match="sexx"):
        td.margins(measurements, queries=["sexx"])
    for some in (measurements, of_cells(1)):
        with pytest.raises(ConfigError, match="queries is empty"):
            td.margins(some, queries=[])
        assert td.margins(some, queries="sex").equals(td.margins(some, queries=["sex"]))
    other = of_cells(1)
    foreign = td.Measurements.from_arrays(geography(TREE), other.values[:, :2], 1.0)
    release = td.round_counts(td.project(foreign), source=td.SeededSource(1))
    with pytest.raises(DataError, match="other units or cells"):
        td.margins(measurements, release)
