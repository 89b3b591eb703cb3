"""Limits of answers: read, checked, kept by the projections that go by families, and found impossible in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import topdown as td
from topdown.errors import ConfigError, CountsError, DataError, ProjectionError

SCHEMA = td.Schema.from_mapping({"home": ["house", "prison", "dorm"], "age": ["minor", "adult"]})
UNITS = ["a1", "a2", "a3", "b1", "b2"]
QUERIES = ["total", "home", "detailed"]


@pytest.fixture(scope="module")
def geography() -> td.Geography:
    return td.Geography.from_table(
        {"state": ["S"] * 5, "county": ["A", "A", "A", "B", "B"], "block": UNITS}, ["state", "county", "block"]
    )


@pytest.fixture(scope="module")
def measurements(geography: td.Geography) -> td.Measurements:
    rng = np.random.default_rng(3)
    leaves = rng.poisson([[8, 20, 0, 0, 0, 1]], (5, 6))
    leaves[0, 3] = 4  # a prison in a1, a dormitory in b2
    leaves[4, 5] = 9
    truth = geography.tree.aggregate(leaves.T).T
    answers = {}
    for level in geography.levels:
        for name in QUERIES:
            value = td.Query.parse(name, SCHEMA).answers(truth[geography.level_slice(level)])
            answers[level, name] = (value + np.rint(3 * rng.normal(size=value.shape)).astype(int), 9.0)
    return td.Measurements.from_answers(geography, SCHEMA, answers)


FACILITIES: dict[str, list[Any]] = {
    "geoid": ["a1", "b2", "b2"],
    "query": ["home", "home", "home"],
    "answer": ["prison", "dorm", "prison"],
    "lower": [2, 3, None],
    "upper": [None, 12, 0],
}


def with_row(**changes: Any) -> dict[str, list[Any]]:
    return {name: [changes.get(name, values[0]), *values[1:]] for name, values in FACILITIES.items()}


@pytest.fixture(scope="module")
def limits(geography: td.Geography) -> td.AnswerLimits:
    return td.AnswerLimits.from_table(FACILITIES, geography, SCHEMA, closed=["home"])


@pytest.mark.parametrize("method", ["top-down", "gls-top-down"])
def test_limits_are_kept_at_their_nodes_and_bind_those_above(
    measurements: td.Measurements, limits: td.AnswerLimits, method: str
) -> None:
    free = td.project(measurements, method, nonnegative=True).answer("block", "home").values
    assert (free[[1, 2, 3], 1] > 0).any()  # noise puts prisoners where there is no prison
    estimate = td.project(measurements, method, nonnegative=True, constraints=limits)
    assert estimate.certificate.holds()
    whole = td.project_whole(measurements, method, constraints=limits, source=td.SeededSource(1))
    for home in (estimate.answer("block", "home").values, whole.answers("block", "home")):
        assert home[0, 1] >= 2 - 1e-9
        assert np.abs(home[1:, 1]).max() == 0
        assert 3 - 1e-9 <= home[4, 2] <= 12 + 1e-9
        assert np.abs(home[:4, 2]).max() == 0
    county = estimate.answer("county", "home").values
    assert county[0, 1] >= 2 - 1e-9
    assert county[1, 1] == 0
    assert whole.answers("state", "home")[0, 2] >= 3


def test_cvxpy_keeps_them_too(measurements: td.Measurements, limits: td.AnswerLimits) -> None:
    ours = td.project(measurements, "gls-top-down", nonnegative=True, constraints=limits)
    other = td.project(measurements, "gls-top-down", nonnegative=True, constraints=limits, engine="cvxpy")
    np.testing.assert_allclose(ours.values, other.values, atol=1e-5)


def test_a_limit_of_the_detailed_query_alone_is_kept(geography: td.Geography) -> None:
    values = np.zeros((geography.n_nodes, 6))
    alone = td.Measurements.from_arrays(geography, values, 1.0, cells=SCHEMA.cells())
    few = {"geoid": ["a2"], "query": ["detailed"], "answer": ["house"], "lower": [5], "upper": [None]}
    schema = td.Schema.of_cells(SCHEMA.cells())
    few["answer"] = ["house_adult"]
    limits = td.AnswerLimits.from_table(few, geography, schema)
    estimate = td.project(alone, "top-down", nonnegative=True, constraints=limits)
    assert estimate.answer("block", "detailed").values[1, 1] == pytest.approx(5)
    assert estimate.answer("state", "detailed").values[0, 1] == pytest.approx(5)


def test_the_same_from_a_file(geography: td.Geography, limits: td.AnswerLimits, tmp_path: Path) -> None:
    pd.DataFrame(FACILITIES).to_csv(tmp_path / "facilities.csv", index=False)
    pd.DataFrame(FACILITIES).to_parquet(tmp_path / "facilities.parquet")
    home = td.Query.parse("home", SCHEMA)
    for name in ("facilities.csv", "facilities.parquet"):
        again = td.AnswerLimits.from_table(tmp_path / name, geography, SCHEMA, closed=["home"])
        for one, other in zip(again.by_query[home], limits.by_query[home], strict=True):
            assert (one == other).all()
    assert repr(limits) == "AnswerLimits(home)"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"geoid": "a9"}, r"row 0: no unit 'a9' in the geography"),
        ({"query": "hom"}, r"row 0: unknown part of query 'hom'.*did you mean 'home'"),
        ({"answer": "prisn"}, r"row 0: unknown answer of query 'home'.*did you mean 'prison'"),
        ({"lower": -1}, r"row 0: '-1' is no whole number"),
        ({"lower": 1.5}, r"row 0: '1.5' is no whole number"),
        ({"lower": "two"}, r"row 0: 'two' is no whole number"),
        ({"lower": 5, "upper": 4}, r"row 0: block 'a1', 'prison': the lower limit is above the upper"),
        ({"geoid": "b2", "answer": "dorm"}, r"row 1: block 'b2', 'dorm' has two rows"),
    ],
)
def test_what_cannot_be_a_limit_is_named(geography: td.Geography, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        td.AnswerLimits.from_table(with_row(**changes), geography, SCHEMA)


def test_a_missing_column_and_a_closed_query_without_rows_are_named(geography: td.Geography) -> None:
    with pytest.raises(DataError, match=r"no column 'lower'"):
        td.AnswerLimits.from_table(
            {name: FACILITIES[name] for name in ("geoid", "query", "answer", "upper")}, geography, SCHEMA
        )
    with pytest.raises(ConfigError, match=r"closed names query 'age', of which"):
        td.AnswerLimits.from_table(FACILITIES, geography, SCHEMA, closed=["age"])


def test_limits_that_contradict_each_other_or_what_is_exact_name_node_and_both_sides(
    measurements: td.Measurements, geography: td.Geography
) -> None:
    rows = {name: [*values, values[0]] for name, values in FACILITIES.items()}
    rows["geoid"][3], rows["lower"][3], rows["upper"][3] = "A", None, 1
    crossed = td.AnswerLimits.from_table(rows, geography, SCHEMA)
    with pytest.raises(ProjectionError, match=r"county 'A': query 'home', 'prison': .*at least 2 and at most 1"):
        td.project(measurements, "top-down", nonnegative=True, constraints=crossed)
    answers = {key: (measurements[key].values, measurements[key].variance[:, 0]) for key in measurements.keys}
    answers["state", "home"] = (np.array([[90, 1, 9]]), 0.0)
    exact = td.Measurements.from_answers(geography, SCHEMA, answers)
    limits = td.AnswerLimits.from_table(FACILITIES, geography, SCHEMA)
    with pytest.raises(
        ProjectionError, match=r"state 'S': query 'home', 'prison': its exact answer is 1, .*at least 2;"
    ):
        td.project_whole(exact, constraints=limits)


def test_limits_need_non_negativity_and_families(measurements: td.Measurements, limits: td.AnswerLimits) -> None:
    with pytest.raises(ConfigError, match=r"limits are kept where x >= 0 is"):
        td.project(measurements, "gls", constraints=limits)
    with pytest.raises(ConfigError, match=r"'joint' .* has no solver of .*answers within limits"):
        td.project(measurements, "joint", nonnegative=True, constraints=limits)


def exact_totals() -> tuple[td.Measurements, td.AnswerLimits]:
    """Exact totals of two counties, dormitories in the smaller alone, and a state whose noise says otherwise."""
    there = td.Geography.from_table({"state": ["S"] * 2, "county": ["A", "B"]}, ["state", "county"])
    schema = td.Schema.from_mapping({"home": ["house", "prison", "dorm"]})
    measurements = td.Measurements.from_answers(
        there,
        schema,
        {
            ("state", "home"): ([[3, 0, 104]], 1.0),
            ("county", "total"): ([[100], [7]], 0.0),
            ("county", "home"): ([[100, 0, 0], [3, 0, 4]], 1.0),
        },
    )
    table = {
        "geoid": ["A", "B", "B", "B"],
        "query": ["home"] * 4,
        "answer": ["house", "house", "dorm", "prison"],
        "lower": [0, 0, 1, 0],
        "upper": [None, None, None, 0],
    }
    return measurements, td.AnswerLimits.from_table(table, there, schema, closed=["home"])


@pytest.mark.parametrize("method", ["top-down", "gls-top-down"])
def test_exact_totals_below_limit_what_a_parent_may_have(method: str) -> None:
    measurements, limits = exact_totals()
    release = td.project_whole(measurements, method, constraints=limits, source=td.SeededSource(1))
    state = release.table("state", "home").iloc[0, 2:].tolist()
    assert state == [100, 0, 7]  # at least the house of A, at most the dormitory of B
    assert release.table("county", "home").iloc[:, 2:].to_numpy().tolist() == [[100, 0, 0], [0, 0, 7]]


PAIR = td.Geography.from_table({"state": ["S", "S"], "block": ["c", "d"]}, ["state", "block"])


def among_two(rows: list[tuple[str, str, str, int | None, int | None]], state: list[int]) -> td.Release:
    """Whole counts of two blocks within limits, where the state is measured as ``state`` and the blocks as nothing."""
    columns = dict(zip(("geoid", "query", "answer", "lower", "upper"), map(list, zip(*rows, strict=True)), strict=True))
    answers = {("state", "detailed"): (np.array([state]), 1.0), ("block", "detailed"): (np.zeros((2, 6), int), 1e4)}
    return td.project_whole(
        td.Measurements.from_answers(PAIR, SCHEMA, answers),
        constraints=td.AnswerLimits.from_table(columns, PAIR, SCHEMA),
        source=td.SeededSource(1),
    )


def test_a_parent_has_no_more_of_an_answer_than_what_others_leave_of_a_child_s_sum() -> None:
    # Of the 10 in c, 10 are in houses: nobody is in its prison, and 3 at most are in that of d.
    release = among_two(
        [
            ("c", "total", "total", 10, 10),
            ("c", "home", "house", 10, None),
            ("d", "home", "prison", None, 3),
        ],
        [0, 20, 0, 50, 0, 0],
    )
    prison = release.table("state", "home")["prison"]
    assert prison.tolist() == [3]
    assert release.table("block", "home")["prison"].tolist() == [0, 3]


def test_what_is_left_of_a_sum_s_sum_limits_a_parent_too() -> None:
    # Of the 10 in c at least 4 are in houses, so that 6 at most are in its prison, of whom 5 are minors: one adult.
    release = among_two(
        [
            ("c", "total", "total", None, 10),
            ("c", "home", "house", 4, None),
            ("c", "home", "prison", None, 9),
            ("c", "detailed", "prison_minor", 5, None),
            ("d", "total", "total", None, 100),
            ("d", "home", "prison", None, 100),
            ("d", "detailed", "prison_adult", None, 0),
        ],
        [0, 40, 5, 50, 0, 0],
    )
    assert release.table("state", "detailed")["prison_adult"].tolist() == [1]


KINDS = td.Schema.from_mapping({"home": ["house", "prison", "dorm", "ship"], "age": ["minor", "adult"]})


@pytest.mark.parametrize("rounding", ["nearest", "unbiased"])
def test_what_children_ask_of_sums_of_several_answers_is_found_below_and_mended_above(rounding: str) -> None:
    # c may have houses and prisons, d dorms and ships, and their totals are exact: no limit of one answer of A says
    # that its houses and prisons are c's total. Nor does one of S say what is A's and B's.
    geography = td.Geography.from_table(
        {"state": ["S"] * 4, "county": ["A", "A", "B", "B"], "block": ["c", "d", "e", "f"]},
        ["state", "county", "block"],
    )
    closed = {"c": ["dorm", "ship"], "d": ["house", "prison"], "e": ["dorm", "ship"], "f": ["house"]}
    rows = [(unit, "home", kind, None, 0) for unit, kinds in closed.items() for kind in kinds]
    columns = dict(zip(("geoid", "query", "answer", "lower", "upper"), map(list, zip(*rows, strict=True)), strict=True))
    noisy = np.array([[30, 20, 10, 5, 3, 1, 0, 0], [0, 0, 3, 4, 30, 10, 20, 2]])
    answers = {
        ("state", "detailed"): (noisy.sum(axis=0, keepdims=True), 1.0),
        ("county", "detailed"): (noisy, 1.0),
        ("block", "detailed"): (np.zeros((4, 8), int), 1e4),
        ("block", "total"): (np.array([[10], [40], [50], [20]]), 0.0),
    }
    release = td.project_whole(
        td.Measurements.from_answers(geography, KINDS, answers),
        constraints=td.AnswerLimits.from_table(columns, geography, KINDS),
        source=td.SeededSource(1),
        rounding=rounding,
    )
    counts = {level: release.answers(level, "detailed") for level in geography.levels}
    assert counts["block"].sum(axis=1).tolist() == [10, 40, 50, 20]
    homes = release.table("block", "home").set_index("geoid")
    for unit, kinds in closed.items():
        assert (homes.loc[unit, kinds] == 0).all()
    assert (counts["block"].reshape(2, 2, 8).sum(axis=1) == counts["county"]).all()
    assert (counts["county"].sum(axis=0) == counts["state"][0]).all()
    assert counts["county"][0].sum() == 50
    assert (counts["county"] >= 0).all()


def test_what_is_asked_two_levels_below_is_mended_at_the_root() -> None:
    # Both counties may have every kind; that half of each is in houses and prisons is said by their blocks alone.
    places = td.Geography.from_table(
        {"state": ["S"] * 4, "county": ["A", "A", "B", "B"], "block": ["c", "d", "e", "f"]},
        ["state", "county", "block"],
    )
    closed = {"c": ["dorm", "ship"], "d": ["house", "prison"], "e": ["dorm", "ship"], "f": ["house", "prison"]}
    rows = [(unit, "home", kind, None, 0) for unit, kinds in closed.items() for kind in kinds]
    columns = dict(zip(("geoid", "query", "answer", "lower", "upper"), map(list, zip(*rows, strict=True)), strict=True))
    answers = {
        ("state", "detailed"): (np.array([[12, 8, 9, 6, 2, 1, 2, 0]]), 1.0),
        ("county", "detailed"): (np.zeros((2, 8), int), 1e4),
        ("block", "total"): (np.full((4, 1), 10), 0.0),
    }
    release = td.project_whole(
        td.Measurements.from_answers(places, KINDS, answers),
        constraints=td.AnswerLimits.from_table(columns, places, KINDS),
        source=td.SeededSource(1),
    )
    state = release.answers("state", "home")[0]
    assert state[:2].sum() == state[2:].sum() == 20
    assert release.answers("county", "home")[:, :2].sum(axis=1).tolist() == [10, 10]
    assert release.answers("block", "total").reshape(-1).tolist() == [10] * 4


# -- zeros and bounds together -----------------------------------------------------------------------------------------


def constraints() -> td.Constraints:
    """No minor lives in a prison; and the facilities by unit, with a column "category"."""
    bounds = pd.DataFrame({"category" if name == "answer" else name: column for name, column in FACILITIES.items()})
    return td.Constraints(zeros=[{"home": "prison", "age": "minor"}], bounds=bounds, closed=["home"])


def test_constraints_are_zeros_and_limits(
    measurements: td.Measurements, limits: td.AnswerLimits, geography: td.Geography
) -> None:
    found = td.project(measurements, "gls-top-down", constraints=constraints())
    schema = constraints().added_to(SCHEMA)
    prison = schema.cells().index("prison_minor")
    assert (found.values[:, prison] == 0).all()
    assert (td.project(measurements, "gls-top-down").values[:, prison] > 0).any()
    for query, (low, high) in limits.by_query.items():
        answers = query.answers(found.values)
        assert (answers >= low - 1e-9).all()
        assert (answers <= high + 1e-9).all()
    whole = td.project_whole(measurements, constraints=constraints(), source=td.SeededSource(1))
    home = whole.answers("block", "home")
    assert home[geography.index_of(["a1"])[0] - geography.level_slice("block").start, 1] >= 2
    assert (whole.answers("block", "detailed")[:, prison] == 0).all()
    alone = td.Constraints(zeros=[{"home": "prison", "age": ["minor"]}])
    assert (td.project(measurements, "gls", constraints=alone).values[:, prison] == 0).all()
    with pytest.raises(ConfigError, match="constraints: give Constraints, not dict"):
        td.project(measurements, constraints={"zeros": []})  # type: ignore[arg-type]


def test_counts_keep_the_zeros_of_constraints(geography: td.Geography) -> None:
    plan = td.Plan("discrete-gaussian", rho=1, shares={"state": 0, "county": "1/2", "block": "1/2"})
    rows = {"block": ["a1", "b2"], "home": ["prison", "dorm"], "age": ["adult", "minor"], "n": [3, 4]}
    counts = td.Counts.from_long(pd.DataFrame(rows), geography, geoid="block", schema=SCHEMA, count="n")
    found = td.measure(counts, plan, td.SeededSource(1), constraints=constraints())
    assert found.schema == constraints().added_to(SCHEMA)
    assert found.schema.zeros == ((("home", ("prison",)), ("age", ("minor",))),)
    again = td.Constraints(zeros=found.schema.to_mappings()["zeros"])
    assert again.added_to(found.schema) == found.schema
    with pytest.raises(CountsError, match=r"block 'b2': has records in cell 'dorm_minor', which is a structural zero"):
        td.measure(counts, plan, td.SeededSource(1), constraints=td.Constraints(zeros=[{"home": "dorm"}]))
    with pytest.raises(ConfigError, match="hom"):
        td.measure(counts, plan, td.SeededSource(1), constraints=td.Constraints(zeros=[{"hom": "dorm"}]))
