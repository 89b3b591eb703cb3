"""Studies of queries: what is followed, non-negative and whole histograms, exact variances of linear methods."""

from __future__ import annotations

import numpy as np
import pytest

import topdown as td
from topdown.measurements.measurements import Measurements
from topdown.studies import simulate as simulate_module
from topdown.studies.draws import draw_answers
from topdown.studies.followed import Followed
from topdown.studies.replicates import _by_families
from topdown.workload import Query

SCHEMA = td.Schema.from_mapping(
    {"sex": ["f", "m"], "age": ["0", "1", "2"]}, {"age": {"minor": {"y": ["0"], "n": ["1", "2"]}}}
)
PLACES = td.Geography.from_geoids(
    [f"{s:02d}{c:02d}" for s in range(3) for c in range(2 + 2 * s)], widths={"state": 2, "county": 4}, root_level="us"
)
LEAVES = PLACES.geoid[PLACES.tree.leaves]
FRAME = {"county": LEAVES} | {
    cell: np.random.default_rng(k).integers(0, 9, len(LEAVES)) for k, cell in enumerate(SCHEMA.cells())
}
COUNTS = td.Counts.from_table(FRAME, PLACES, geoid="county", cells=SCHEMA.cells(), schema=SCHEMA)
SHARES = {
    "us": {"total": "1/10", "detailed": "1/10"},
    "state": {"sex": "1/5", "minor": "1/10"},
    "county": {"minor * sex": "1/10", "detailed": "2/5"},
}
PLAN = td.Plan("discrete-gaussian", rho="1/4", shares=SHARES).for_levels(PLACES.levels).for_schema(SCHEMA)
FOLLOWED = ["total", "sex", "minor", "sex * minor"]


def at(table: td.ErrorTable, query: str) -> list[int]:
    return [k for k, other in enumerate(table.of_query) if other == query]


def test_answers_are_called_by_their_query_and_categories() -> None:
    followed = Followed.of(SCHEMA, SCHEMA.cells(), FOLLOWED)
    assert followed.labels[:5] == ("total", "sex: f", "sex: m", "minor: y", "minor: n")
    assert followed.labels[-1] == "sex * minor: m × n"
    found = followed.answers(COUNTS.values.T)
    for query in followed.queries:
        np.testing.assert_array_equal(found[followed.columns(query.name)].T, query.answers(COUNTS.values))


@pytest.mark.parametrize(
    ("queries", "said"), [(["total", "total"], "each only once"), (["sexx"], "did you mean 'sex'")]
)
def test_queries_that_cannot_be_followed_are_refused(queries: list[str], said: str) -> None:
    with pytest.raises(td.errors.ConfigError, match=said):
        td.simulate(COUNTS, PLAN, ["gls"], 2, 1, queries=queries)


def test_linear_methods_have_the_variance_that_theory_gives_every_answer() -> None:
    table = td.simulate(COUNTS, PLAN, ["raw", "gls", "top-down/equality"], 1500, 2, queries=FOLLOWED)
    for method in ("gls", "top-down/equality"):
        known, error = np.isfinite(table.theory[method]), table[method, "variance_se"]
        # Family by family nothing says how a state's sexes and ages go together.
        cross = np.zeros(known.shape, bool)
        cross[PLACES.level_slice("state"), at(table, "sex * minor")[0] :] = method != "gls"
        assert known[~cross & (PLACES.tree.leaf_counts[:, None] > 1)].all()
        assert not known[cross].any()
        score = ((table[method, "variance"] - table.theory[method]) / error)[known]
        assert np.abs(score).max() < 5.3
        assert np.abs(score + 0.2 * (table.theory[method] / error)[known]).max() > 5.3
        assert np.abs(table[method, "bias"] / table[method, "bias_se"])[known].max() < 5.3
    estimate = td.project(td.measure(COUNTS, PLAN, td.SeededSource(1)), "gls")
    exact = np.concatenate([estimate.answer(level, "sex").variance for level in PLACES.levels])
    np.testing.assert_allclose(table.theory["gls"][:, at(table, "sex")], exact)
    frame = table.to_frame()
    np.testing.assert_allclose(frame[frame["method"] == "gls"]["predicted_variance"], table.theory["gls"].reshape(-1))


def test_every_answer_is_compared_with_its_own_noise_and_with_none_where_it_has_none() -> None:
    table = td.simulate(COUNTS, PLAN, ["raw", "gls"], 3000, 3, queries=FOLLOWED)
    for level in PLACES.levels:
        nodes = PLACES.level_slice(level)
        for query in FOLLOWED:
            columns = at(table, query)
            distance = table["raw", "wasserstein_corrected"][nodes][:, columns]
            if query not in PLAN.queries(level):
                assert np.isinf(table.noise_variances[nodes][:, columns]).all()
                assert np.isnan(distance).all()
                assert np.isnan(table["raw", "bias"][nodes][:, columns]).all()
                assert np.isfinite(table["gls", "bias"][nodes][:, columns]).all()
                continue
            variance = PLAN.variance(level, query)
            np.testing.assert_allclose(table.noise_variances[nodes][:, columns], variance)
            assert np.abs(distance).max() < 0.1 * variance**0.5
            # Of Gaussian noise a linear estimate's distance is known: what least squares takes away.
            least = table.theory["gls"][nodes][:, columns]
            apart = np.abs(np.sqrt(least) - variance**0.5) * np.sqrt(2 / np.pi)
            measured = table["gls", "wasserstein"][nodes][:, columns]
            assert np.abs(measured - apart).max() < 0.08 * variance**0.5


@pytest.mark.parametrize("method", ["gls-top-down", "top-down"])
def test_a_replicate_is_what_a_projection_makes_of_its_draw(method: str) -> None:
    followed = Followed.of(SCHEMA, SCHEMA.cells(), FOLLOWED)
    methods = simulate_module.parse_methods([method, f"{method}/rounded"])
    study = simulate_module._study(COUNTS, PLAN, methods, (), 4, 1, False, followed)
    drawn = draw_answers(study.queries, study.tree, study.truth, 3, (4, 0), slice(0, 3))
    answers = {
        (level, query.name): (one.values[2], one.variance)
        for level, measured in zip(PLACES.levels, drawn, strict=True)
        for query, one in measured.items()
    }
    measurements = Measurements.from_answers(PLACES, SCHEMA, answers)
    estimate = td.project(measurements, method)
    found = _by_families(study, methods[0], drawn, 2, bytes(32))
    np.testing.assert_allclose(found, followed.answers(estimate.values.T), atol=1e-7)
    whole = _by_families(study, methods[1], drawn, 2, bytes(32))
    assert (whole == np.rint(whole)).all()
    assert whole.min() >= 0
    for families in PLACES.tree.families_down():
        np.testing.assert_array_equal(families.total(whole[:, families.children]), whole[:, families.parents])


def test_whole_histograms_are_biased_and_their_errors_add_up() -> None:
    rules = [td.FundShare("total")]
    table = td.simulate(COUNTS, PLAN, ["gls-top-down", "gls-top-down/rounded"], 40, 5, queries=FOLLOWED, rules=rules)
    for method in table.methods:
        bias = table[method, "bias"]
        for families in PLACES.tree.families_down():
            np.testing.assert_allclose(families.total_rows(bias[families.children]), bias[families.parents], atol=1e-8)
        np.testing.assert_allclose(bias[:, at(table, "sex")].sum(axis=1), bias[:, 0], atol=1e-8)
    assert np.isnan(table.to_frame()["predicted_variance"]).all()
    # Within a third of a count of each other: rounding moves little.
    assert np.abs(table["gls-top-down", "bias"] - table["gls-top-down/rounded", "bias"]).max() < 0.5


def test_the_result_does_not_depend_on_the_workers() -> None:
    methods = ["raw", "gls", "gls-top-down/rounded"]
    one, two = (td.simulate(COUNTS, PLAN, methods, 16, 6, queries=["total", "sex"], workers=w) for w in (1, 2))
    for method in methods:
        for name in ("bias", "mse", "wasserstein"):
            np.testing.assert_array_equal(one[method, name], two[method, name])


def test_histograms_stay_within_limits_also_where_the_cells_alone_are_measured() -> None:
    leaf = PLACES.tree.leaves.start + 1
    known = int(Query.parse("sex", SCHEMA).answers(COUNTS.values)[leaf, 0])
    row = {"geoid": [PLACES.geoid[leaf]], "query": ["sex"], "answer": ["f"], "lower": [known], "upper": [known]}
    limits = td.AnswerLimits.from_table(row, PLACES, SCHEMA)
    for plan in (PLAN, td.Plan(epsilon=1, shares={"us": 0, "state": 0, "county": 1})):
        table = td.simulate(COUNTS, plan, ["gls", "gls-top-down/rounded"], 20, 7, queries=["sex"], limits=limits)
        assert table["gls-top-down/rounded", "mse"][leaf, 0] == 0
        assert table["gls-top-down/rounded", "mse"][leaf, 1] > 0
        assert table["gls", "mse"][leaf, 0] > 0


def test_what_is_exact_has_no_error_and_what_it_implies_neither() -> None:
    plan = td.Plan(
        "discrete-gaussian",
        rho=1,
        shares={"us": 0, "state": {"total": "1/2"}, "county": "1/2"},
        invariants={"us": ["sex"]},
    )
    table = td.simulate(COUNTS, plan, ["raw", "gls", "gls-top-down/rounded"], 10, 8, queries=["total", "sex", "minor"])
    assert table.noise_variances[0].tolist() == [0, 0, 0, np.inf, np.inf]
    for method in table.methods:
        np.testing.assert_allclose(table[method, "mse"][0, :3], 0, atol=1e-12)
    assert (table["gls", "mse"][0, 3:] > 0).all()
    assert np.isnan(table["raw", "mse"][0, 3:]).all()


def test_a_method_that_does_not_go_by_families_is_refused() -> None:
    with pytest.raises(td.errors.ConfigError, match=r"method 'joint' .* has no solver of several queries"):
        td.simulate(COUNTS, PLAN, ["joint"], 10, 1)
