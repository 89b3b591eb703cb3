from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from support.places import GOLDEN
from topdown.errors import ConfigError
from topdown.noise import SeededSource
from topdown.research.pmse.comparators import (
    functional_regression,
    noisy_posterior_predictive,
    non_private_synthesis,
    regression_coefficients,
    smooth_histogram,
    smooth_histogram_weight,
)

REFERENCE = GOLDEN["S3_pmse"]
BOUNDS = [(-20.0, 20.0), (-30.0, 30.0)]
RNG = np.random.default_rng(1)
X1 = RNG.normal(2, 3, 4000)
DATA = np.column_stack([X1, RNG.normal(-2.5 + 0.5 * X1, 2)])


def test_the_smooth_histogram_s_weight_is_the_reference_s() -> None:
    for row in REFERENCE["smooth_hist_lambda"]:
        assert smooth_histogram_weight(row["K"], row["n"], row["eps"]) == pytest.approx(row["lam"], rel=1e-12)


@pytest.mark.parametrize(("bins", "n", "epsilon"), [(5, 3, 0.5), (400, 50, 4.0)])
def test_the_weight_is_where_one_draw_has_epsilon_over_n(bins: int, n: int, epsilon: float) -> None:
    w = smooth_histogram_weight(bins, n, epsilon)
    # One record moves into an empty bin: the bin's probability grows from w/K to w/K + (1 - w)/n.
    assert math.log((w / bins + (1 - w) / n) / (w / bins)) == pytest.approx(epsilon / n, rel=1e-9)


def test_the_smooth_histogram_is_the_mixture() -> None:
    data = np.column_stack([np.full(4000, 0.05), np.full(4000, 0.05)])
    bounds = [(0.0, 1.0), (0.0, 1.0)]
    epsilon = 4000 * math.log1p(16 / 4000)
    assert smooth_histogram_weight(16, 4000, epsilon) == pytest.approx(0.5)
    drawn = smooth_histogram(data, epsilon, bounds, 4, source=SeededSource(1))
    inside = ((drawn < 0.25).all(axis=1)).mean()
    wanted, error = 0.5 + 0.5 / 16, math.sqrt(0.25 / 4000)
    assert abs(inside - wanted) < 5 * error
    outside = drawn[(drawn >= 0.25).any(axis=1)]
    assert outside.mean(axis=0) == pytest.approx([(8 - 0.125) / 15] * 2, abs=0.04)
    assert (drawn >= 0).all()
    assert (drawn <= 1).all()
    uniform = smooth_histogram(data, 1e-6, bounds, 4, source=SeededSource(1))
    assert uniform.mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.03)


def test_non_private_synthesis_follows_the_regressions() -> None:
    drawn = non_private_synthesis(DATA, 20_000, source=SeededSource(2))
    assert drawn.mean(axis=0) == pytest.approx(DATA.mean(axis=0), abs=0.25)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(DATA.T), rtol=0.12)
    assert regression_coefficients(drawn) == pytest.approx(regression_coefficients(DATA), abs=0.2)
    assert len(non_private_synthesis(DATA, source=SeededSource(2))) == len(DATA)


def test_the_posterior_predictive_follows_the_data_at_a_large_epsilon_and_not_at_a_small_one() -> None:
    near = noisy_posterior_predictive(DATA, 1000, BOUNDS, 20_000, source=SeededSource(3))
    assert near.mean(axis=0) == pytest.approx(DATA.mean(axis=0), abs=0.25)
    np.testing.assert_allclose(np.cov(near.T), np.cov(DATA.T), rtol=0.12)
    off = [
        abs(noisy_posterior_predictive(DATA, "1/100", BOUNDS, 50, source=SeededSource(k)).mean() - DATA.mean())
        for k in range(8)
    ]
    assert np.mean(off) > 1


@pytest.fixture(scope="module")
def noisy_statistics() -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, 4000 times, of 200 records that stand for 1000 records of 3 between 0 and 100, at 1/100."""
    data, source = np.full(1000, 3.0), SeededSource(4)
    drawn = [noisy_posterior_predictive(data, "1/100", [(0.0, 100.0)], 200, source=source) for _ in range(4000)]
    return np.mean(drawn, axis=(1, 2)) - 3, np.var(drawn, axis=(1, 2))


@pytest.mark.system
@pytest.mark.parametrize("factor", [0.75, 1.0, 4 / 3])
def test_the_noise_of_the_posterior_predictive_is_the_sensitivity_s(
    noisy_statistics: tuple[np.ndarray, np.ndarray], factor: float
) -> None:
    # One column: mean and variance share epsilon, so the scales are R/n and R^2/n over (1/100)/2. Of 200 records
    # the mean and variance are the noisy ones to within a tenth, which the test does not see.
    means, variances = noisy_statistics
    # Half of the noisy variances are below 0, that is next to nothing; the others are exponential.
    positive = variances[variances > 1e-3]
    assert abs(len(positive) - 2000) < 5 * math.sqrt(1000)
    of_means = stats.kstest(means, stats.laplace(0, factor * 100 / 1000 * 200).cdf).pvalue
    of_variances = stats.kstest(positive, stats.expon(0, factor * 100**2 / 1000 * 200).cdf).pvalue
    if factor == 1.0:
        assert min(of_means, of_variances) > 1e-3
    else:
        assert max(of_means, of_variances) < 1e-9


def test_the_functional_mechanism_finds_the_regression_at_a_large_epsilon() -> None:
    exact = regression_coefficients(DATA)
    inside = np.clip(DATA, [-20, -30], [20, 30])
    assert (inside == DATA).all()
    close = functional_regression(DATA[:, :1], DATA[:, 1], 10**6, BOUNDS, source=SeededSource(5))
    assert close == pytest.approx(exact, abs=0.02)
    errors = {}
    for epsilon in (1, 30):
        found = [
            functional_regression(DATA[:, 0], DATA[:, 1], epsilon, BOUNDS, source=SeededSource(k)) for k in range(40)
        ]
        errors[epsilon] = np.abs(np.array(found) - exact).mean()
    assert errors[1] > 3 * errors[30]
    many = functional_regression(DATA[:30, 0], DATA[:30, 1], "1/100", BOUNDS, source=SeededSource(6))
    assert np.isfinite(many).all()


@pytest.mark.parametrize("bounds", [[(0.0, 1.0)], [(0.0, 1.0), (1.0, 1.0)], [(0.0, 1.0), (0.0, math.inf)]])
def test_bounds_that_cannot_be_are_refused(bounds: list[tuple[float, float]]) -> None:
    for call in (noisy_posterior_predictive, smooth_histogram):
        with pytest.raises(ConfigError, match="give \\(lower, upper\\) for each of the 2 columns"):
            call(DATA, 1, bounds, source=SeededSource(1))


def test_what_the_comparators_cannot_take_is_refused() -> None:
    with pytest.raises(ConfigError, match="continuous columns only"):
        non_private_synthesis({"a": ["x", "y"] * 5}, source=SeededSource(1))
    with pytest.raises(ConfigError, match="too few"):
        non_private_synthesis(np.zeros((2, 2)), source=SeededSource(1))
    with pytest.raises(ConfigError, match="epsilon 0"):
        smooth_histogram_weight(4, 4, 0)
