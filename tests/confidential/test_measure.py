from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import topdown as td
from topdown.errors import BudgetError, CountsError
from topdown.noise import KeyedSource
from topdown.noise.exact import look_up_kernel, threshold_tables

CELLS = 40_000
SHARES = {"nation": "1/5", "state": "3/10", "county": "1/2"}


@pytest.fixture(scope="module")
def wide() -> td.Counts:
    """Six nodes with very many cells, so that every level gives a sample of the law of its noise."""
    geography = td.Geography.from_geoids(["01001", "01003", "02001"], {"state": 2, "county": 5})
    leaves = np.random.default_rng(1).integers(0, 10**6, (CELLS, 3))
    return td.Counts(geography, tuple(f"c{k}" for k in range(CELLS)), geography.tree.aggregate(leaves).T)


def noise_of(measurements: td.Measurements, counts: td.Counts, level: str) -> np.ndarray:
    nodes = counts.geography.level_slice(level)
    return np.asarray(measurements.values[nodes] - counts.values[nodes], dtype=float)


def discrepancy(sample: np.ndarray, variance: float, kurtosis: float) -> float:
    """By how many standard errors the mean square of ``sample`` differs from ``variance``."""
    return abs(float(np.mean(sample**2)) / variance - 1) / math.sqrt((kurtosis - 1) / sample.size)


PLANS: dict[str, tuple[dict[str, Any], float]] = {
    "geometric": ({"epsilon": 1}, 6.0),
    "laplace": ({"epsilon": 1}, 6.0),
    "discrete-gaussian": ({"rho": "1/2"}, 3.0),
    "gaussian": ({"rho": "1/2"}, 3.0),
}


def scale_of(plan: td.Plan, level: str) -> float:
    return float(plan.scale(level)) if plan.is_pure else math.sqrt(plan.sigma2(level))


@pytest.mark.parametrize("neighbours", ["add-remove", "substitute"])
@pytest.mark.parametrize("mechanism", list(PLANS))
def test_the_noise_of_every_level_has_its_law(wide: td.Counts, mechanism: str, neighbours: str) -> None:
    budget, kurtosis = PLANS[mechanism]
    plan = td.Plan(mechanism=mechanism, shares=SHARES, neighbours=neighbours, **budget)
    measurements = td.measure(wide, plan, source=td.SeededSource(5))
    for level, share in SHARES.items():
        spent = float(Fraction(share)) * float(plan.total)
        l1, squared_l2 = (2.0, 2.0) if neighbours == "substitute" else (1.0, 1.0)
        # From the definitions: scale = L1 / epsilon, sigma^2 = L2^2 / (2 rho).
        scale = l1 / spent if plan.is_pure else math.sqrt(squared_l2 / (2 * spent))
        grid = 2.0**-10 if mechanism in ("laplace", "gaussian") else 1.0

        def variance(scale: float, grid: float = grid) -> float:
            if mechanism in ("discrete-gaussian", "gaussian"):
                return scale**2
            a = math.exp(-grid / scale)
            return grid**2 * 2 * a / (1 - a) ** 2

        sample = noise_of(measurements, wide, level)
        assert discrepancy(sample, variance(scale), kurtosis) < 6
        for wrong in (0.9, 1.1):
            assert discrepancy(sample, variance(wrong * scale), kurtosis) > 6
        nodes = wide.geography.level_slice(level)
        np.testing.assert_allclose(measurements.variance[nodes], variance(scale), rtol=1e-6)
        # Independent from cell to cell and from node to node, centred, and on its grid.
        standard = sample / scale
        assert abs(standard.mean()) * math.sqrt(standard.size / 2) < 6
        assert abs((standard[:, 1:] * standard[:, :-1]).mean()) * math.sqrt(standard.size) / 2 < 6
        if len(standard) > 1:
            assert abs((standard[0] * standard[1]).mean()) * math.sqrt(CELLS) / 2 < 6
        assert np.all(sample / grid == np.round(sample / grid))
        assert np.all(sample == np.round(sample)) == (grid == 1.0)


def test_levels_have_independent_noise(wide: td.Counts) -> None:
    measurements = td.measure(wide, td.Plan(epsilon=1, shares=SHARES), source=td.SeededSource(5))
    noise = [noise_of(measurements, wide, level)[0] for level in wide.geography.levels]
    for above, below in itertools.pairwise(noise):
        assert abs(np.corrcoef(above, below)[0, 1]) * math.sqrt(CELLS) < 6


def test_integer_mechanisms_give_integers(counts: td.Counts) -> None:
    assert td.measure(counts, td.Plan(epsilon=1)).values.dtype == np.int64
    assert td.measure(counts, td.Plan("laplace", epsilon=1)).values.dtype == np.float64


def test_invariants_are_exact_and_a_share_of_zero_is_not_measured(counts: td.Counts) -> None:
    plan = td.Plan(epsilon=1, shares={"state": 0, "county": 1}, invariants=["nation"])
    measurements = td.measure(counts, plan, source=td.SeededSource(1))
    assert measurements.values[0].tolist() == [30, 7]
    assert measurements.variance[0].tolist() == [0.0, 0.0]
    assert np.isinf(measurements.variance[1:3]).all()
    assert not measurements.values[1:3].any()  # nothing of the counts is in what was not measured
    assert set(measurements.to_frame()["level"]) == {"nation", "county"}


def test_a_seed_repeats_and_is_not_fit_for_release(counts: td.Counts) -> None:
    plan = td.Plan(epsilon=1)
    once, again = (td.measure(counts, plan, source=td.SeededSource(7)) for _ in range(2))
    other = td.measure(counts, plan, source=td.SeededSource(8))
    assert once.values.tolist() == again.values.tolist() != other.values.tolist()
    assert once.fit_for_release is False
    release = td.round_counts(td.project(once))
    assert release.fit_for_release is False


def test_entropy_is_the_default_and_is_fit_for_release(wide: td.Counts) -> None:
    plan = td.Plan(epsilon=1)
    once, again = td.measure(wide, plan), td.measure(wide, plan)
    assert (once.values != again.values).any(axis=1).all()
    assert once.fit_for_release is True
    assert td.project(once).fit_for_release is True
    assert td.measure(wide, plan, KeyedSource(bytes(32))).fit_for_release is True


def test_it_carries_the_plan_with_its_equal_shares(counts: td.Counts) -> None:
    measurements = td.measure(counts, td.Plan(epsilon=1))
    assert measurements.plan is not None
    assert measurements.plan.budget("state") == Fraction(1, 3)
    assert measurements.cells == counts.cells
    assert measurements.geography is counts.geography


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (td.Plan(epsilon=1, shares={"nation": 1}), "level 'state' has no share"),
        (td.Plan(epsilon=1, shares={"nation": 0.5, "tract": 0.5}), "level 'tract', which the geography does not have"),
        (td.Plan(epsilon=1, invariants=["nation", "state", "county"]), "every level is invariant"),
        (
            td.Plan(epsilon=1, shares={"nation": 0.2, "state": 0.3, "county": {"detailed": 0.4, "age": 0.1}}),
            "level 'county': unknown part of query 'age'",
        ),
        (
            td.Plan(epsilon="1e-13", shares={"nation": "98/100", "state": "1/100", "county": "1/100"}),
            "level 'state': noise with a standard deviation",
        ),
    ],
)
def test_plans_that_cannot_be_measured_are_refused(counts: td.Counts, plan: td.Plan, says: str) -> None:
    with pytest.raises(BudgetError, match=says):
        td.measure(counts, plan)


def test_a_total_that_noise_could_push_beyond_2_53_is_refused_before_any_draw() -> None:
    geography = td.Geography.from_edges(["a", "b"], ["r", "r"])
    plan = td.Plan("geometric", 1, shares={"level 0": "1/2", "level 1": "1/2"})
    near = td.Counts.from_table({"g": ["a", "b"], "n": [2**53 - 20, 0]}, geography, geoid="g", cells=["n"])
    with pytest.raises(CountsError, match=r"'r': the total is so near to 2\^53"):
        td.measure(near, plan, td.SeededSource(1))
    further = td.Counts.from_table({"g": ["a", "b"], "n": [2**53 - 2000, 0]}, geography, geoid="g", cells=["n"])
    td.project(td.measure(further, plan, td.SeededSource(1)), "gls")


# -- several queries --------------------------------------------------------------------------------------------------


@pytest.fixture
def histogram(geography: td.Geography) -> td.Counts:
    minor = {"y": ["0"], "n": ["1", "2"]}
    schema = td.Schema.from_mapping({"sex": ["f", "m"], "age": ["0", "1", "2"]}, {"age": {"minor": minor}})
    leaves = geography.geoid[geography.tree.leaves]
    columns = {cell: np.arange(len(leaves)) * 7 + k for k, cell in enumerate(schema.cells())}
    return td.Counts.from_table(
        {"county": leaves, **columns}, geography, geoid="county", cells=schema.cells(), schema=schema
    )


def test_every_query_of_a_level_is_measured_with_its_own_noise(histogram: td.Counts) -> None:
    state = {"sex*minor": "1/8", "detailed": "1/8"}
    shares = {"nation": {"total": "1/4"}, "state": state, "county": {"detailed": "1/2"}}
    plan = td.Plan(epsilon=1, shares=shares, invariants={"state": ["total"]})
    measured = td.measure(histogram, plan, td.SeededSource(4))
    assert measured.keys == (
        ("nation", "total"),
        ("state", "total"),
        ("state", "sex * minor"),
        ("state", "detailed"),
        ("county", "detailed"),
    )
    states = histogram.values[histogram.geography.level_slice("state")]
    exact = measured["state", "total"]
    assert exact.values[:, 0].tolist() == states.sum(axis=1).tolist()
    assert not exact.variance.any()
    by_minor = measured["state", "minor * sex"]
    assert by_minor.values.shape == (2, 4)
    assert by_minor.variance[0, 0] == pytest.approx(td.noise.DiscreteLaplace(8).variance)
    assert measured["nation", "total"].variance[0, 0] == pytest.approx(td.noise.DiscreteLaplace(4).variance)
    assert np.isinf(measured.variance[0]).all()
    with pytest.raises(KeyError, match="no query 'detailed' at level 'nation'"):
        measured["nation", "detailed"]
    frame = measured.to_frame()
    rows = frame[(frame["level"] == "state") & (frame["query"] == "sex * minor")]
    assert rows["cell"].tolist() == ["f_y", "f_n", "m_y", "m_n"] * 2


def test_exact_and_noisy_answers_of_one_level_are_said_to_be_both(histogram: td.Counts) -> None:
    plan = td.Plan(
        epsilon=1,
        shares={"nation": {"total": "1/2"}, "state": 0, "county": {"detailed": "1/2"}},
        invariants={"county": ["sex"]},
    )
    guarantee = plan.guarantee(histogram.geography.levels)
    assert guarantee.exact_levels == ()
    assert guarantee.exact_queries == (("county", "sex"),)
    assert guarantee.change is None
    said = plan.describe(histogram.geography.levels)
    assert "Published exactly: query sex of county" in said
    assert "query sex: published exactly, without noise; not protected" in said
    with pytest.raises(BudgetError, match="query 'sex' is invariant and has a share of 1/2"):
        td.Plan(epsilon=1, shares={"county": {"sex": "1/2", "detailed": "1/2"}}, invariants={"county": ["sex"]})


def test_two_spellings_of_a_query_are_one(histogram: td.Counts) -> None:
    shares = {"nation": 0, "state": 0, "county": {"sex * age": "1/2", "detailed": "1/2"}}
    with pytest.raises(BudgetError, match="level 'county' names query 'detailed' twice"):
        td.measure(histogram, td.Plan(epsilon=1, shares=shares))


def test_a_million_measurements_are_looked_up_by_compiled_loops_and_are_the_same_ones(
    wide: td.Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = td.Plan(mechanism="discrete-gaussian", rho=1)
    loops = look_up_kernel.kernel()
    assert loops is not None
    found = {}
    for made in (loops, None):
        asked: list[int] = []
        monkeypatch.setattr(threshold_tables, "_asked", threshold_tables.COMPILED_FROM - 6 * CELLS)
        monkeypatch.setattr(threshold_tables, "kernel", lambda made=made, asked=asked: asked.append(0) or made)
        found[made is None] = td.measure(wide, plan, source=td.SeededSource(1)).values
        assert asked
    assert np.array_equal(found[True], found[False])


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ([[10], [3], [6]], r"nation 'US', cell 'n': the count is not the sum of the children's"),
        ([[2], [3], [-1]], r"state '2', cell 'n': a count below 0"),
        ([[3.0], [1.5], [1.5]], r"shape \(3, 1\) and type float64; give whole numbers"),
        ([[3, 0], [1, 0], [2, 0]], r"shape \(3, 2\) .* \(3, 1\)"),
    ],
)
def test_a_table_of_ones_own_that_does_not_add_up_is_refused(held: list[list[float]], says: str) -> None:
    geography = td.Geography.from_table({"nation": ["US", "US"], "state": ["1", "2"]}, ["nation", "state"])
    with pytest.raises(CountsError, match=says) as error:
        td.measure(td.Counts(geography, ("n",), np.array(held)), td.Plan("geometric", epsilon=1))
    assert "10" not in str(error.value)
