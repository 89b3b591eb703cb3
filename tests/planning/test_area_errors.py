"""Expected errors of areas against dense least squares, their gradients against differences, and targets of areas."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from support.command import topdown_command
from support.examples import examples
from support.trees import leaves_below
from topdown.errors import ConfigError
from topdown.geography.alike import Alike
from topdown.planning.expected import Expected, members
from topdown.planning.sum_precision import SummedAnswers, SumPrecisions
from topdown.projection.histograms.components import Components
from topdown.tables.assignments import assignment

SCHEMA = td.Schema.from_mapping(
    {"sex": ["f", "m"], "age": ["child", "adult", "old"]},
    {"age": {"minor": {"minor": ["child"], "of age": ["adult", "old"]}}},
)
LEVELS = ("us", "state", "county")
SHARES = {
    "us": {"total": "1/10"},
    "state": {"total": "1/10", "sex * minor": "1/5"},
    "county": {"minor": "1/10", "detailed": "1/2"},
}
QUERIES = ("total", "age", "minor", "sex * minor", "sex * age")


def places(rng: np.random.Generator) -> td.Geography:
    """Up to four states of up to six counties each; some have one."""
    names = [f"{s:02}{c:02}" for s in range(rng.integers(1, 5)) for c in range(rng.integers(1, 7))]
    return td.Geography.from_geoids(names, widths={"state": 2, "county": 4}, root_level="us")


def drawn_areas(geography: td.Geography, rng: np.random.Generator) -> dict[str, str]:
    """One of three areas for nearly every county, and for the first one at least."""
    counties = geography.geoid[geography.tree.leaves]
    return {one: str(rng.integers(3)) for k, one in enumerate(counties) if k == 0 or rng.random() < 0.8}


def dense_variances(expected: Expected, areas: dict[str, str], query: str) -> np.ndarray:
    """The variances (areas x answers) by the normal equations of the leaves' cells; inf where they are open."""
    geography, schema = expected.geography, expected.schema
    tree, k = geography.tree, schema.n_cells
    below = leaves_below(tree)
    information = np.zeros((tree.n_leaves * k, tree.n_leaves * k))
    for (level, asked), variance in expected.noise.items():
        matrix = asked.matrix().toarray()
        for row, v in zip(below[geography.level_slice(level)], variance, strict=True):
            rows = np.kron(row, matrix)
            information += rows.T @ rows / v
    counties = geography.geoid[tree.leaves]
    sums = np.array([[float(areas.get(one) == name) for one in counties] for name in sorted(set(areas.values()))])
    rows = np.kron(sums, td.Query.parse(query, schema).matrix().toarray())
    return np.diag(rows @ np.linalg.solve(information, rows.T)).reshape(len(sums), -1)


@examples(60)
@given(st.integers(0, 2**32 - 1), st.sampled_from(QUERIES), st.sampled_from(["measure", "move-up"]))
def test_areas_have_the_errors_of_dense_least_squares(seed: int, query: str, only_child: str) -> None:
    rng = np.random.default_rng(seed)
    geography = places(rng)
    areas = drawn_areas(geography, rng)
    shares = SHARES if only_child == "measure" else {"us": "1/5", "state": "3/10", "county": "1/2"}
    plan = td.Plan("discrete-gaussian", rho="1/50", shares=shares, only_child=only_child)
    expected = Expected.of(plan, geography, SCHEMA, areas=[assignment("school", areas, geography)])
    dense = np.sqrt(dense_variances(expected, areas, query))
    found = plan.errors(geography, SCHEMA, queries=[query], areas={"school": areas}).set_index("level").loc["school"]
    ordered = np.sort(dense, axis=None)
    wanted = [ordered[0], ordered[(ordered.size - 1) // 2], ordered[-1], dense.mean()]
    np.testing.assert_allclose(found[["sd_least", "sd", "sd_largest", "sd_mean"]].to_list(), wanted, rtol=1e-9)
    assert found["sd_90"] == pytest.approx(ordered[math.ceil(0.9 * ordered.size) - 1], rel=1e-9)
    names = sorted(set(areas.values()))
    assert dense[names.index(found["worst"])].max() == pytest.approx(ordered[-1], rel=1e-9)
    assert (found["units"], found["answers"]) == dense.shape
    assert found["margin_largest"] == pytest.approx(1.6448536 * ordered[-1], rel=1e-6)


def test_an_area_that_is_a_unit_has_its_error_and_one_of_all_units_that_of_the_root() -> None:
    geography = td.Geography.from_geoids(
        ["0101", "0102", "0103", "0201"], widths={"state": 2, "county": 4}, root_level="us"
    )
    plan = td.Plan("geometric", epsilon=1)
    every = dict.fromkeys(["0101", "0102", "0103", "0201"], "all")
    state = dict.fromkeys(["0101", "0102", "0103"], "one")
    table = plan.errors(geography, areas={"everything": every, "as state": state, "named": {"01": "one"}})
    rows = table.set_index("level")
    assert rows.loc["everything", "sd"] == pytest.approx(rows.loc["us", "sd"], rel=1e-12)
    first = math.sqrt(Expected.of(plan, geography).answer_variances("state", "detailed")[0][0, 0])
    assert rows.loc["as state", "sd"] == pytest.approx(first, rel=1e-12)
    assert rows.loc["named", "sd"] == pytest.approx(first, rel=1e-12)


def test_the_errors_of_areas_are_those_of_families_below_where_the_upward_pass_starts() -> None:
    """With the lowest level's noise far above the others' least squares of the whole tree has the same limit."""
    names = [f"{s:02}{c:02}" for s in range(3) for c in range(4)]
    geography = td.Geography.from_geoids(names, widths={"state": 2, "county": 4}, root_level="us")
    areas = {one: "12"[k % 3 == 0] for k, one in enumerate(names)}
    shares = {"us": {"total": "1/4"}, "state": {"detailed": "1/4"}, "county": {"detailed": "1/2"}}
    plan = td.Plan("discrete-gaussian", rho=1, shares=shares)
    started = plan.errors(geography, SCHEMA, queries=["total"], upward="from state", areas={"a": areas})
    tiny = {"us": {"total": "1/2"}, "state": {"detailed": "499999/1000000"}, "county": {"detailed": "1/1000000"}}
    far = td.Plan("discrete-gaussian", rho="1/2", shares=tiny)
    limit = far.errors(geography, SCHEMA, queries=["total"], areas={"a": areas}).set_index("level")
    # Of both what the counties' noise makes of an area is all but a small part, in proportion to their variance.
    ratio = math.sqrt(1e6 / 2.0 * 2.0)
    assert started.set_index("level").loc["a", "sd"] == pytest.approx(limit.loc["a", "sd"] / ratio, rel=0.05)
    whole = started.set_index("level").loc[["us", "state"], "sd"]
    one = plan.errors(
        geography, SCHEMA, queries=["total"], upward="from state", areas={"us again": dict.fromkeys(names, "x")}
    )
    assert one.set_index("level").loc["us again", "sd"] == pytest.approx(whole["us"], rel=1e-9)


@examples(20)
@given(st.integers(0, 2**32 - 1), st.sampled_from(QUERIES))
def test_slopes_are_those_of_differences(seed: int, query: str) -> None:
    rng = np.random.default_rng(seed)
    geography = places(rng)
    measured = tuple(
        (LEVELS.index(level), td.Query.parse(one, SCHEMA)) for level, queries in SHARES.items() for one in queries
    )
    components = Components(SCHEMA, tuple(dict.fromkeys(one for _, one in measured)))
    alike = Alike.of(geography.tree)
    precisions = SumPrecisions(alike.tree, components, measured)
    asked = SummedAnswers(
        td.Query.parse(query, SCHEMA), members(assignment("a", drawn_areas(geography, rng), geography), alike)
    )
    at, step = rng.uniform(0.2, 1.0, len(measured)), 1e-5
    found = precisions.slopes(precisions.errors(at), asked)
    for column in range(len(measured)):
        moved = np.eye(len(measured))[column] * step
        high, low = (precisions.errors(at + sign * moved) for sign in (1, -1))
        difference = sum(
            sign * one.variances_by_class(asked.sums, asked.query)[0] for sign, one in ((1, high), (-1, low))
        ) / (2 * step)
        np.testing.assert_allclose(found.slope[:, :, column], difference, rtol=1e-5, atol=1e-6)


def test_a_target_of_areas_is_met_with_the_least_budget() -> None:
    geography = td.Geography.from_geoids(
        [f"{s:02}{c:02}" for s in range(3) for c in range(5)], widths={"state": 2, "county": 4}, root_level="us"
    )
    areas = {geoid: "ab"[k % 5 < 2] for k, geoid in enumerate(geography.geoid[geography.tree.leaves])}
    plan = td.Plan("discrete-gaussian", rho=1, shares=dict.fromkeys(geography.levels, "1/3"))
    found = td.smallest_budget(plan, geography, ["school: 10 at 90 %", "state: 20 at 90 %"], areas={"school": areas})
    got = found.plan.errors(geography, areas={"school": areas}).set_index("level")
    assert got.loc["school", "margin_largest"] <= 10.0
    assert got.loc["state", "margin_largest"] <= 20.0
    assert float(found.plan.total) <= found.least * 1.002
    # No other division of a budget that is a little smaller does it.
    rng, less = np.random.default_rng(1), float(found.plan.total) * 0.99
    for _ in range(200):
        parts = rng.integers(1, 1000, 3)
        shares = {level: f"{part}/{parts.sum()}" for level, part in zip(geography.levels, parts.tolist(), strict=True)}
        other = td.Plan("discrete-gaussian", rho=str(round(less, 8)), shares=shares)
        margins = other.errors(geography, areas={"school": areas}).set_index("level")["margin_largest"]
        assert margins["school"] > 10.0 or margins["state"] > 20.0


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """A release of six counties, and a table of two school districts that leaves one county out."""
    geoids = ["01001", "01003", "01005", "02013", "02016", "02020"]
    pd.DataFrame({"county": geoids, "people": [120, 80, 50, 70, 90, 10]}).to_csv(tmp_path / "counts.csv", index=False)
    rows = ["BLOCKID,DISTRICT", "01001,east", "01003,west", "01005,west", "02013,west", "02016,east"]
    (tmp_path / "school.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "release.toml").write_text(
        '[input]\npath = "counts.csv"\ngeoid = "county"\ncells = ["people"]\n'
        '[geography]\nwidths = { state = 2, county = 5 }\n[privacy]\nmechanism = "geometric"\nepsilon = 1\n'
    )
    return tmp_path


def test_check_says_the_errors_of_areas_beside_the_levels(
    configuration: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = topdown_command("check", configuration / "release.toml", "--areas", configuration / "school.csv")
    assert code == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next(k for k, line in enumerate(lines) if line.startswith("areas "))
    table = {line.split()[0]: line.split() for line in lines[begin + 2 :] if line.startswith("          ")}
    assert list(table) == ["nation", "state", "county", "school"]
    assert table["school"][2] == "2"
    assert table["school"][-1] == "west"


def test_plan_finds_the_budget_for_areas(configuration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, areas = "school: 30 at 90 %", configuration / "school.csv"
    assert topdown_command("plan", configuration / "release.toml", "--areas", areas, "--target", target) == 0
    said = capsys.readouterr().out
    assert "# school: 30 at 90 %:" in said
    own = tomllib.loads(said)["privacy"]
    shares = own["shares"]
    geography = td.Geography.from_geoids(
        ["01001", "01003", "01005", "02013", "02016", "02020"], widths={"state": 2, "county": 5}
    )
    plan = td.Plan(own["mechanism"], epsilon=own["epsilon"], shares=shares)
    errors = plan.errors(geography, areas=areas).set_index("level")
    assert 29.5 < errors.loc["school", "margin_largest"] <= 30.0


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("01001,east\n01001,west\n", "unit '01001' is assigned twice"),
        ("01001,east\n01999,west\n", "1 of 2 units are not in the geography, such as '01999'"),
        ("01001,east\n01,west\n", "its units are of several levels (state, county)"),
        ("01001,\n01003,\n", "has no unit with an area"),
        ("", "has no units"),
    ],
)
def test_tables_of_areas_that_make_no_sense_are_refused(
    configuration: Path, rows: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (configuration / "school.csv").write_text("BLOCKID,DISTRICT\n" + rows)
    code = topdown_command("check", configuration / "release.toml", "--areas", configuration / "school.csv")
    assert code != 0
    assert said in capsys.readouterr().err


def test_a_kind_of_areas_that_is_called_as_a_level_is_refused() -> None:
    geography = td.Geography.from_geoids(["01001", "01003"], widths={"state": 2, "county": 5})
    with pytest.raises(ConfigError, match="areas 'state' are called as a level is"):
        td.Plan("geometric", epsilon=1).errors(geography, areas={"state": {"01001": "x"}})
