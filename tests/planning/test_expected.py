"""Expected errors against dense least squares, against simulated noise, and against the laws of single draws."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import topdown as td
from support.trees import leaves_below
from topdown.planning.expected import deviations_within, noise_margin

SCHEMA = td.Schema.from_mapping(
    {"sex": ["f", "m"], "age": ["child", "adult", "old"]},
    {"age": {"minor": {"minor": ["child"], "of age": ["adult", "old"]}}},
)
PLACES = td.Geography.from_geoids(["0101", "0102", "0103", "0201"], widths={"state": 2, "county": 4}, root_level="us")
SHARES = {
    "us": {"total": "1/10"},
    "state": {"total": "1/10", "sex * minor": "1/5"},
    "county": {"minor": "1/10", "detailed": "1/2"},
}
PLAN = td.Plan("discrete-gaussian", rho="1/50", shares=SHARES)


def dense_variances(plan: td.Plan, geography: td.Geography, schema: td.Schema, level: str, query: str) -> np.ndarray:
    """The variances (nodes x answers) by the normal equations of the leaves' cells."""
    tree, k = geography.tree, schema.n_cells
    below = leaves_below(tree)
    information = np.zeros((tree.n_leaves * k, tree.n_leaves * k))
    for where in geography.levels:
        for name in plan.queries(where):
            matrix = td.Query.parse(name, schema).matrix().toarray()
            rows = np.kron(below[geography.level_slice(where)], matrix)
            information += rows.T @ rows / plan.variance(where, name)
    asked = np.kron(below[geography.level_slice(level)], td.Query.parse(query, schema).matrix().toarray())
    return np.diag(asked @ np.linalg.solve(information, asked.T)).reshape(-1, td.Query.parse(query, schema).n_answers)


@pytest.mark.parametrize("level", ["us", "state", "county"])
@pytest.mark.parametrize("query", ["total", "age", "minor", "sex * minor", "sex * age"])
def test_deviations_are_those_of_dense_least_squares(level: str, query: str) -> None:
    found = PLAN.errors(PLACES, SCHEMA, queries=[query]).set_index("level").loc[level]
    dense = np.sqrt(dense_variances(PLAN, PLACES, SCHEMA, level, query))
    ordered = np.sort(dense, axis=None)
    assert found["answers"] == dense.shape[1]
    assert found["units"] == dense.shape[0]
    wanted = [ordered[0], ordered[(ordered.size - 1) // 2], ordered[-1]]
    np.testing.assert_allclose([found["sd_least"], found["sd"], found["sd_largest"]], wanted, rtol=1e-9)
    assert found["margin"] == pytest.approx(1.6448536 * found["sd"], rel=1e-6)
    assert found["margin_largest"] == pytest.approx(1.6448536 * found["sd_largest"], rel=1e-6)


def test_every_query_of_the_plan_is_answered_at_every_level_measured_or_not() -> None:
    table = PLAN.errors(PLACES, SCHEMA).set_index(["level", "query"])
    assert list(table.index) == [
        (level, query) for level in PLACES.levels for query in ("total", "sex * minor", "minor", "detailed")
    ]
    assert np.isnan(table.loc[("us", "detailed"), "noise_sd"])
    assert table.loc[("county", "detailed"), "noise_sd"] == pytest.approx(math.sqrt(50.0), rel=1e-6)
    assert (table["sd_largest"] <= table["noise_sd"].fillna(np.inf) * (1 + 1e-12)).all()
    assert set(table["law"]) == {"normal"}


@pytest.mark.parametrize("plan", [PLAN, td.Plan("geometric", epsilon="1/5", shares=SHARES)])
def test_margins_cover_what_they_say_in_a_simulation(plan: td.Plan) -> None:
    frame = pd.DataFrame({"county": PLACES.geoid[-4:], **dict.fromkeys(SCHEMA.cells(), 1000)})
    counts = td.Counts.from_table(frame, PLACES, geoid="county", cells=SCHEMA.cells(), schema=SCHEMA)
    draws = 100
    levels = (0.9, 0.99)
    tables = {c: plan.errors(PLACES, SCHEMA, confidence=c).set_index(["level", "query"]) for c in levels}
    inside = dict.fromkeys(((c, key) for c in levels for key in tables[c].index), 0.0)
    for seed in range(draws):
        estimate = td.project(td.measure(counts, plan, td.SeededSource(seed)), "gls")
        for confidence, (level, query) in inside:
            truth = td.Query.parse(query, SCHEMA).answers(counts.values[PLACES.level_slice(level)])
            error = np.abs(estimate.answer(level, query).values - truth)
            margin = tables[confidence].loc[(level, query), "margin_largest"]
            inside[confidence, (level, query)] += (error <= margin).mean() / draws
    for (confidence, key), found in inside.items():
        # Means of correlated answers: at worst as few trials as draws. 5 deviations of a share.
        assert found > confidence - 5 * math.sqrt(confidence * (1 - confidence) / draws), key
    law = "Laplace or normal" if plan.is_pure else "normal"
    assert {*tables[0.9]["law"]} == {law}


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_sums_of_laplace_noise_stay_within_the_longer_of_the_two_margins(confidence: float) -> None:
    """Exact tails of weighted sums of two and three Laplace laws, by partial fractions of their transform."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        scale = np.sort(rng.uniform(0.05, 1.0, rng.integers(2, 4)))
        if (np.diff(scale) < 0.02).any():
            continue
        parts = [np.prod([s**2 / (s**2 - t**2) for t in scale if t != s]) for s in scale]
        reach = deviations_within(confidence, gaussian=False) * math.sqrt(2 * (scale**2).sum())
        outside = float(sum(p * math.exp(-reach / s) for p, s in zip(parts, scale, strict=True)))
        assert outside <= 1 - confidence + 1e-12


def test_what_only_its_own_noise_says_has_its_laws_own_margin() -> None:
    plan = td.Plan("geometric", epsilon=1, shares={"us": 0, "state": 0, "county": 1})
    row = plan.errors(PLACES).set_index("level").loc["county"]
    law = plan.law("county")
    assert (row["law"], row["margin"]) == ("its own noise", row["noise_margin"])
    assert 2 * law.sf(row["margin"]) <= 0.1 < 2 * law.sf(row["margin"] - 1)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("mechanism", ["laplace", "geometric", "discrete-gaussian", "gaussian"])
def test_the_margin_of_a_draw_is_the_laws_quantile(mechanism: str, confidence: float) -> None:
    budget = {"rho": "1/3"} if "gaussian" in mechanism else {"epsilon": "1/3"}
    law = td.Plan(mechanism, **budget, shares={"a": 1}).law("a")
    assert noise_margin(law, confidence) == pytest.approx(float(law.ppf((1 + confidence) / 2)), abs=1e-9)


def test_exact_and_undetermined_levels_say_so() -> None:
    plan = td.Plan(epsilon=1, shares={"state": 1, "county": 0}, invariants=["us"])
    table = plan.errors(PLACES).set_index("level")
    assert table["law"].tolist() == ["exact", "Laplace or normal", "undetermined"]
    assert table.loc["us", ["sd", "margin", "noise_sd"]].tolist() == [0, 0, 0]
    # The second state's only county is what its state is.
    assert table.loc["county", "sd_least"] == table.loc["state", "sd"]
    assert table.loc["county", "margin_largest"] == np.inf


def test_what_exact_answers_imply_is_exact_and_not_nearly_so() -> None:
    one = td.Geography.from_geoids(["0101", "0102", "0103"], widths={"state": 2, "county": 4}, root_level="us")
    shares = {"us": {"minor": "1/4"}, "state": {"total": "1/8", "age": "1/8"}, "county": {"detailed": "1/2"}}
    plan = td.Plan("discrete-gaussian", rho="1/9", shares=shares, invariants={"us": ["total"]})
    table = plan.errors(one, SCHEMA, queries=["total", "sex"]).set_index(["level", "query"])
    assert table.loc[("state", "total"), ["sd", "margin_largest", "law"]].tolist() == [0, 0, "exact"]
    assert table.loc[("state", "sex"), "sd"] > 1


def test_the_total_of_cells_that_are_measured_alone_is_known_by_the_schema() -> None:
    plan = td.Plan("discrete-gaussian", rho=1, shares={"us": 0, "state": 0, "county": 1})
    table = plan.errors(PLACES, SCHEMA, queries=["total", "detailed"]).set_index(["level", "query"])
    ratio = table.loc[("county", "total"), "sd"] / table.loc[("county", "detailed"), "sd"]
    assert ratio == pytest.approx(math.sqrt(SCHEMA.n_cells))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"queries": ["sexx"], "schema": SCHEMA}, "did you mean 'sex'"),
        ({}, "the plan asks several queries, whose answers the schema says; give schema"),
        ({"confidence": 1.0, "schema": SCHEMA}, "give a number between 0 and 1"),
    ],
)
def test_what_cannot_be_said_is_refused(arguments: dict, said: str) -> None:
    with pytest.raises(td.errors.ConfigError, match=said):
        PLAN.errors(PLACES, **arguments)


# -- the command ------------------------------------------------------------------------------------------------------


TOML = """
[input]
path = "table.csv"
geoid = "county"
cells = ["f_child", "f_adult", "f_old", "m_child", "m_adult", "m_old"]

[geography]
widths = { state = 2, county = 4 }
root_level = "us"

[schema]
sex = ["f", "m"]
age = ["child", "adult", "old"]

[privacy]
mechanism = "discrete-gaussian"
rho = "1/50"

[privacy.shares]
us = { total = "1/10" }
state = { total = "1/10", sex = "1/5" }
county = { age = "1/10", detailed = "1/2" }
"""


@pytest.fixture
def several(tmp_path: Path) -> Path:
    rows = "".join(f"{geoid},1,2,3,4,5,6\n" for geoid in PLACES.geoid[-4:])
    (tmp_path / "table.csv").write_text("county,f_child,f_adult,f_old,m_child,m_adult,m_old\n" + rows)
    (tmp_path / "run.toml").write_text(TOML)
    return tmp_path / "run.toml"


def test_check_prints_and_writes_the_errors(several: Path, topdown) -> None:  # type: ignore[no-untyped-def]
    for ending in ("csv", "json"):
        done = topdown(
            "check", several, "--errors", "--errors-to", several.parent / f"e.{ending}", "--confidence", "0.95"
        )
        assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.split()[:2] == ["county", "detailed"])
    schema = td.Schema.from_mapping({"sex": ["f", "m"], "age": ["child", "adult", "old"]})
    plan = td.Plan(
        "discrete-gaussian",
        rho="1/50",
        shares={
            "us": {"total": "1/10"},
            "state": {"total": "1/10", "sex": "1/5"},
            "county": {"age": "1/10", "detailed": "1/2"},
        },
    )
    wanted = plan.errors(PLACES, schema, confidence=0.95)
    row = wanted.set_index(["level", "query"]).loc[("county", "detailed")]
    assert line.split()[2:] == ["6", *(f"{row[name]:.4g}" for name in ("noise_sd", "sd", "margin", "margin_largest"))]
    frame = pd.read_csv(several.parent / "e.csv")
    np.testing.assert_allclose(frame["sd"], wanted["sd"])
    records = json.loads((several.parent / "e.json").read_text())
    assert records[0]["confidence"] == 0.95
    assert [one["noise_sd"] is None for one in records] == wanted["noise_sd"].isna().tolist()
    assert sorted(path.name for path in several.parent.iterdir()) == ["e.csv", "e.json", "run.toml", "table.csv"]


def test_check_rehearses_a_run_of_several_queries(several: Path, topdown, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from topdown.config import load_config
    from topdown.pipeline import draw

    seen = []
    monkeypatch.setattr(draw, "rehearse", lambda *given: seen.append(given))
    draw.check(load_config(several))
    assert len(seen) == 1


def test_a_table_of_another_kind_is_refused_before_anything_is_read(several: Path, topdown) -> None:  # type: ignore[no-untyped-def]
    done = topdown("check", several, "--errors-to", "errors.xlsx")
    assert done.returncode == 2
    assert "errors.xlsx: unknown kind of file; give .csv, .json" in done.stderr
    assert topdown("check", several, "--errors", "--confidence", "2").returncode == 2


def test_laplace_quantiles_are_the_laws() -> None:
    assert deviations_within(0.99, gaussian=False) == pytest.approx(stats.laplace.ppf(0.995) / math.sqrt(2))
    assert deviations_within(0.9, gaussian=False) == deviations_within(0.9, gaussian=True)
