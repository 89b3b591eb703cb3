"""Consistency, population parameters, back-transformation and bounds under a sum: Liu's Definition 3, Propositions 2
and 3, Lemma A.1 and Remark 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import linprog

from support.examples import examples
from topdown.errors import ConfigError
from topdown.noise.randomness import SeededSource
from topdown.privacy.sensitivity import largest_variance, variance_sensitivity
from topdown.research.bounded.laplace import BoundaryInflatedLaplace, TruncatedLaplace
from topdown.research.bounded.sanitized_statistics import (
    BackTransformed,
    about_parameter,
    bounds_within_sum,
    exceedance,
)

LAWS = (TruncatedLaplace, BoundaryInflatedLaplace)
SIZES = np.array([10, 100, 1_000, 10_000, 100_000])
BOUNDS = [(0.0, 1.0), (0.0, None), (None, 1.0), (None, None)]


@pytest.mark.parametrize("make", LAWS)
def test_exceedance_is_the_share_of_draws(make: Any) -> None:
    law = make([0.0, 0.2, 0.9], 0.3, 0.0, 1.0)
    draws = law.sample((200_000, 3), SeededSource(4))
    for distance in (0.05, 0.2, 0.5):
        share = (np.abs(draws - law.location) > distance).mean(axis=0)
        assert exceedance(law, distance) == pytest.approx(share, abs=0.006)
    # What is clipped to a bound is exactly as far as the bound, and no farther.
    assert exceedance(BoundaryInflatedLaplace(0.25, 0.3, 0.0, 0.5), 0.25) == 0.0


@pytest.mark.parametrize("make", LAWS)
@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
@pytest.mark.parametrize("s", [0.0, 0.3, 1.0])
def test_definition_3_a_scale_that_tends_to_0_makes_it_consistent_and_another_does_not(
    make: Any, lower: float | None, upper: float | None, s: float
) -> None:
    for distance in (0.2, 0.01):
        missed = exceedance(make(s, 1.0 / SIZES, lower, upper), distance)
        assert (np.diff(missed) <= 0).all()
        assert missed[-1] < 1e-6
        constant = exceedance(make(s, np.full(SIZES.shape, 0.1), lower, upper), distance)
        assert (constant == constant[0]).all()
        assert constant[0] > 0.05
    bias = np.abs(make(s, 1.0 / SIZES, lower, upper).bias)
    assert bias[-1] <= 1.0 / SIZES[-1]  # asymptotically unbiased


@pytest.mark.parametrize("make", LAWS)
@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
@given(s=st.floats(0, 1), epsilon=st.floats(0.05, 5), constant=st.floats(0.1, 10))
@examples(25)
def test_proposition_2_the_error_falls_as_the_inverse_square_of_the_size(
    make: Any, lower: float | None, upper: float | None, s: float, epsilon: float, constant: float
) -> None:
    """With a sensitivity of constant/n: at most 2 (constant/(n epsilon))^2, and of that very order."""
    n = np.array([10.0**k for k in range(2, 9)])
    law = make(s, constant / (n * epsilon), lower, upper)
    unit = (constant / epsilon) ** 2
    assert (n**2 * law.mse <= 2 * unit * (1 + 1e-12)).all()
    # From a scale far below the distance to the bounds on, or at a bound, n^2 MSE is a constant above 0.
    settled = n**2 * law.mse / unit
    assert settled[-1] > 0.99
    slope = np.diff(np.log(law.mse))[-1] / np.diff(np.log(n))[-1]
    assume(min(s, 1 - s) == 0 or min(s, 1 - s) > 1e-3)
    assert slope == pytest.approx(-2.0, abs=1e-3)
    assert np.diff(np.log(make(s, np.sqrt(constant / n), lower, upper).mse))[-1] / np.log(10) > -1.5


@pytest.mark.parametrize("make", LAWS)
def test_proposition_3_a_sanitised_proportion_for_the_populations(make: Any) -> None:
    """Exactly, over all samples of n: bias and error tend to 0, with the sample's own as the limit of their ratio."""
    theta, epsilon = 0.1, 0.5
    found = []
    for n in (10, 100, 1_000, 10_000):
        k = np.arange(n + 1)
        law = make(k / n, 1 / (n * epsilon), 0.0, 1.0)
        error = about_parameter(law, theta, stats.binom.pmf(k, n, theta))
        missed = stats.binom.pmf(k, n, theta) @ (law.cdf(theta - 0.05) + law.sf(theta + 0.05))  # P(|s* - theta| > 0.05)
        found.append((abs(error.bias), error.mse, missed, error.mse / (theta * (1 - theta) / n)))
    bias, mse, missed, ratio = np.array(found).T
    assert (np.diff(bias) < 1e-15).all()
    assert bias[0] > 0.05
    assert bias[-1] < 1e-15  # (a)
    assert (np.diff(missed) < 0).all()
    assert missed[-1] < 1e-12  # (b)
    assert (np.diff(mse) < 0).all()
    assert (np.diff(ratio) < 0).all()
    assert 1 < ratio[-1] < 1.05


@pytest.mark.parametrize("make", LAWS)
def test_what_is_said_of_a_parameter_is_what_draws_show(make: Any) -> None:
    n, theta = 30, 0.2
    k = np.arange(n + 1)
    error = about_parameter(make(k / n, 0.1, 0.0, 1.0), theta, 5 * stats.binom.pmf(k, n, theta))
    samples = np.random.default_rng(2).binomial(n, theta, 400_000) / n
    draws = make(samples, 0.1, 0.0, 1.0).sample(None, SeededSource(3)) - theta
    assert draws.mean() == pytest.approx(error.bias, abs=5 * draws.std() / np.sqrt(draws.size))
    assert draws.var() == pytest.approx(error.variance, rel=0.02)
    assert (draws**2).mean() == pytest.approx(error.mse, rel=0.02)
    for wrong in ([1.0], np.zeros(n + 1), -np.ones(n + 1)):
        with pytest.raises(ConfigError, match="weights of shape"):
            about_parameter(make(k / n, 0.1, 0.0, 1.0), theta, wrong)


@pytest.mark.parametrize("make", LAWS)
def test_lemma_a_1_needs_a_bound_on_what_is_integrated(make: Any) -> None:
    """E(E(s*|s)) tends to E(s) where the biases have a common integrable bound; without one it need not."""
    s = (np.arange(200_000) + 0.5) / 200_000  # a uniform statistic
    equal = np.ones(s.size)
    bounded, unbounded = [], []
    for n in (100, 1_000, 10_000):
        # The bias of a location within its bounds is at most the scale: the bound.
        law = make(s, 10 / n, 0.0, None)
        assert np.abs(law.bias).max() <= 10 / n
        bounded.append(about_parameter(law, 0.5, equal).bias)
        # For every s the scale is 1e-9 from some n on, and the bias tends to 0; its mean stays.
        rare = np.where(s < 1 / n, float(n), 1e-9)
        unbounded.append(about_parameter(make(s, rare, 0.0, None), 0.5, equal).bias)
    assert (np.diff(bounded) < 0).all()
    assert 0 < bounded[-1] < 1e-3
    limit = 1.0 if make is TruncatedLaplace else 0.5
    assert unbounded == pytest.approx([limit] * 3, rel=0.05)


def test_a_standard_deviation_by_its_variance() -> None:
    n, epsilon, truth, high = 200, 1.0, 1.0, 4.0
    reach = variance_sensitivity(n, -high, high)
    top = largest_variance(n, -high, high)
    for make in LAWS:
        law = BackTransformed(make(truth**2, reach / epsilon, 0.0, top), np.sqrt)
        assert law.location == truth
        draws = law.sample(400_000, SeededSource(8))
        assert draws.mean() - truth == pytest.approx(law.bias, abs=5 * draws.std() / np.sqrt(draws.size))
        assert draws.var() == pytest.approx(law.variance, rel=0.02)
        assert law.ppf([0.2, 0.9]) == pytest.approx(np.quantile(draws, [0.2, 0.9]), abs=5e-3)
        # Against the standard deviation sanitised at its own sensitivity, which is of the order n^-1/2.
        direct = make(truth, high * 2 / np.sqrt(n) / epsilon, 0.0, np.sqrt(top))
        assert law.mse < 0.2 * direct.mse


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_the_sensitivity_of_a_standard_deviation_is_the_root_of_the_variances(n: int) -> None:
    """By brute force: |sqrt v - sqrt v'| <= sqrt |v - v'|, with equality at v = 0."""
    grid = np.linspace(0.0, 1.0, 5)
    data = np.array(np.meshgrid(*[grid] * n)).reshape(n, -1)
    worst = 0.0
    for value in grid:
        changed = np.concatenate([np.full((1, data.shape[1]), value), data[1:]])
        worst = max(worst, float(np.abs(data.std(axis=0, ddof=1) - changed.std(axis=0, ddof=1)).max()))
    assert worst == pytest.approx(np.sqrt(variance_sensitivity(n, 0.0, 1.0, neighbours="substitute")), rel=1e-12)


@pytest.mark.parametrize("make", LAWS)
@pytest.mark.parametrize(("lower", "upper", "scale"), [(0.0, 4.0, 0.5), (0.0, 4.0, 50.0), (0.0, None, 0.3)])
def test_moments_of_what_is_transformed_back_are_those_of_the_law_for_the_identity(
    make: Any, lower: float, upper: float | None, scale: float
) -> None:
    law = make([0.0, 0.01, 2.5], scale, lower, upper)
    same = BackTransformed(law, lambda x: x)
    for name in ("bias", "mse", "variance"):
        assert getattr(same, name) == pytest.approx(getattr(law, name), rel=1e-9)
    assert isinstance(BackTransformed(make(1.0, scale, lower, upper), np.sqrt).bias, float)


@given(
    ends=st.lists(
        st.tuples(st.floats(-5, 5), st.floats(0.1, 4), st.sampled_from([-2.0, 0.5, 1.0, 3.0])), min_size=2, max_size=5
    ),
    part=st.floats(0, 1),
)
@examples(60)
def test_remark_1_the_bounds_that_a_sum_leaves(ends: list[tuple[float, float, float]], part: float) -> None:
    lower, width, weights = (np.array(column) for column in zip(*ends, strict=True))
    upper = lower + width
    extremes = np.sort([weights * lower, weights * upper], axis=0).sum(axis=1)
    total = float(extremes[0] + part * (extremes[1] - extremes[0]))
    low, high = bounds_within_sum(lower, upper, total, weights)
    for i, row in enumerate(np.eye(len(lower))):
        for sign, found in ((1, low[i]), (-1, high[i])):
            best = linprog(sign * row, A_eq=[weights], b_eq=[total], bounds=list(zip(lower, upper, strict=True)))
            if best.status == 0:  # at an extreme of the sum rounding may leave it nothing
                assert sign * best.fun == pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize("make", LAWS)
def test_remark_1_what_is_left_of_a_sum_is_within_its_bounds(make: Any) -> None:
    lower, upper, total = [0.0, 2.0], [10.0, 5.0], 8.0
    low, high = bounds_within_sum(lower, upper, total)
    assert (low.tolist(), high.tolist()) == ([3.0, 2.0], [6.0, 5.0])
    first = make(4.0, 3.0, low[0], high[0]).sample(5_000, SeededSource(1))
    second = total - first
    assert ((second >= lower[1]) & (second <= upper[1])).all()
    wide = total - make(4.0, 3.0, lower[0], upper[0]).sample(5_000, SeededSource(1))
    assert ((wide < lower[1]) | (wide > upper[1])).mean() > 0.2
    assert np.array(bounds_within_sum([0, 0, 0, 0], [np.inf] * 4, 1.0)).tolist() == [[0.0] * 4, [1.0] * 4]


def test_bounds_that_contradict_a_sum_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"total 20\.0.*cannot add up"):
        bounds_within_sum([0.0, 2.0], [10.0, 5.0], 20.0)
    for lower, upper, weights in (([1.0], [0.0], None), ([0.0], [1.0], [0.0]), ([0.0, 0.0], [1.0], None)):
        with pytest.raises(ConfigError, match="lower <= upper"):
            bounds_within_sum(lower, upper, 1.0, weights)
