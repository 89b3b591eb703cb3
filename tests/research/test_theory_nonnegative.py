"""The exact bias and variance of the non-negative sum projection: families, Laplace noise, two levels."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from support.places import GOLDEN
from topdown.errors import ConfigError
from topdown.research.theory import (
    nonnegative_sum_projection,
    nonnegative_sum_projection_laplace,
    nonnegative_top_down_two_level,
    projected_variance,
)
from topdown.research.theory.nonnegative_exact import family_moments
from topdown.research.theory.threshold_law import sum_projection_moments


def simplex(y: np.ndarray, total: np.ndarray | float) -> np.ndarray:
    """Rows of y projected on {v >= 0, sum v = total} by sorting."""
    ordered = -np.sort(-y, axis=1)
    threshold = (np.cumsum(ordered, axis=1) - np.reshape(total, (-1, 1))) / np.arange(1, y.shape[1] + 1)
    last = np.maximum((ordered > threshold).sum(axis=1) - 1, 0)
    return np.maximum(y - threshold[np.arange(y.shape[0]), last][:, None], 0.0)


def double_geometric(generator: np.random.Generator, epsilon: float, size: tuple[int, int]) -> np.ndarray:
    p = -math.expm1(-epsilon)
    return (generator.geometric(p, size) - generator.geometric(p, size)).astype(float)


@pytest.mark.parametrize("row", GOLDEN["S2_nonneg_geometric_exact"]["rows"], ids=lambda r: f"n={len(r['x'])}")
def test_family_equals_the_reference(row: dict) -> None:
    result = nonnegative_sum_projection(row["x"], row["eps"])
    bias, variance = result
    np.testing.assert_allclose(bias, row["bias"], atol=1e-10, rtol=0)
    np.testing.assert_allclose(variance, row["var"], atol=1e-10, rtol=0)
    np.testing.assert_allclose(result.mse, row["mse"], atol=1e-10, rtol=0)
    assert result.bias is bias
    assert result.variance is variance
    assert result[0] is bias
    assert len(result) == 2
    assert result.error < 1e-12


@pytest.mark.parametrize(
    ("x", "total", "scale"),
    [([0, 2], 2, 0.5), ([1, 0, 2], 3, 0.4), ([0, 0, 1], 1, 0.5), ([2, 1, 0], 2.5, 0.4), ([1, 1, 0, 3], 7.3, 0.2)],
)
def test_family_equals_full_enumeration(x: list[int], total: float, scale: float) -> None:
    reach = math.ceil(30.0 * scale)
    k = np.arange(-reach, reach + 1, dtype=float)
    single = np.exp(-np.abs(k) / scale)
    single /= single.sum()
    noise = np.array(list(itertools.product(k, repeat=len(x))))
    mass = np.prod(single[(noise + reach).astype(int)], axis=1)
    error = simplex(noise + x, total) - np.array(x)
    expected = mass @ error
    for result in (
        family_moments(np.array(x, dtype=float), float(total), scale),
        sum_projection_moments(np.array(x, dtype=float), float(total), scale),
    ):
        if isinstance(result, np.ndarray):
            weight, bias, second = result
            np.testing.assert_allclose(weight, 1.0, rtol=1e-13)
        else:
            bias, second = result.bias, result.mse
        np.testing.assert_allclose(bias, expected, atol=2e-11)
        np.testing.assert_allclose(second, mass @ error**2, atol=2e-11)


@pytest.mark.parametrize(
    ("x", "epsilon"), [([0, 0, 2, 9, 400], 0.4), ([3, 1, 0, 0, 0, 0, 5, 12], 1.0), (list(range(0, 60, 3)), 0.1)]
)
def test_family_agrees_with_draws_and_clipping_does_not(x: list[int], epsilon: float) -> None:
    generator = np.random.default_rng(99)
    draws = 60_000
    y = np.array(x) + double_geometric(generator, epsilon, (draws, len(x)))
    exact = nonnegative_sum_projection(x, epsilon)
    error = simplex(y, sum(x)) - np.array(x)
    spread = np.sqrt(exact.variance / draws)
    assert np.all(np.abs(error.mean(axis=0) - exact.bias) < 4.0 * spread)
    fourth = (error - error.mean(axis=0)) ** 2
    assert np.all(np.abs(fourth.mean(axis=0) - exact.variance) < 4.0 * fourth.std(axis=0) / math.sqrt(draws))
    # planted faults: clipping for projecting; a total off by one per child; a sibling forgotten
    clipped = np.maximum(y - (y.sum(axis=1, keepdims=True) - sum(x)) / len(x), 0.0) - np.array(x)
    off = simplex(y, sum(x) + float(len(x))) - np.array(x)
    fewer = simplex(y[:, 1:], sum(x[1:])) - np.array(x[1:])
    assert np.any(np.abs(clipped.mean(axis=0) - exact.bias) > 6.0 * spread)
    assert np.any(np.abs(off.mean(axis=0) - exact.bias) > 6.0 * spread)
    assert np.any(np.abs(fewer.mean(axis=0) - exact.bias[1:]) > 6.0 * spread[1:])


@given(
    x=st.lists(st.one_of(st.integers(0, 12), st.integers(0, 10**7)), min_size=1, max_size=12),
    epsilon=st.sampled_from([0.5, 1.0, 2.5]),
)
@examples(40)
def test_biases_add_up_to_0_and_order_by_count(x: list[int], epsilon: float) -> None:
    result = nonnegative_sum_projection(x, epsilon)
    assert result.error < 1e-12
    assert abs(result.bias.sum()) < 1e-10
    order = np.argsort(x)
    assert np.all(np.diff(result.bias[order]) < 1e-10)  # small counts go up, large ones down
    np.testing.assert_allclose(nonnegative_sum_projection(x[::-1], epsilon).bias, result.bias[::-1], atol=1e-12)
    assert np.all(result.variance >= 0.0)


def test_counts_far_above_the_noise_are_unbiased_with_the_equality_variance() -> None:
    x = 3000 + 7919 * np.arange(254) % 10**6
    result = nonnegative_sum_projection(x, 0.1)
    np.testing.assert_allclose(result.bias, 0.0, atol=1e-12)
    np.testing.assert_allclose(result.variance, projected_variance(254, 10, "geometric"), rtol=1e-12)


def test_two_hundred_small_counties_beside_millions() -> None:
    x = np.concatenate((np.zeros(30), np.arange(1, 224), [10**6, 5 * 10**6])).astype(int)
    result = nonnegative_sum_projection(x, Fraction(1, 10))
    assert result.error < 1e-12
    assert abs(result.bias.sum()) < 1e-9
    assert result.bias[0] > 0.0 > result.bias[-1]
    # a child that is never clipped takes what the threshold takes, whatever its size
    assert result.bias[-1] == pytest.approx(result.bias[-2], abs=1e-12)


def test_a_crowd_of_zeros_splits_a_small_total() -> None:
    result = nonnegative_sum_projection([0] * 253 + [10], 0.1)
    assert result.error < 1e-12
    assert np.ptp(result.bias[:-1]) == 0.0
    assert result.bias[-1] == pytest.approx(-253 * result.bias[0], abs=1e-10)
    assert 0.0 < result.bias[0] < 10 / 254 + 1e-9


def test_strong_budgets_leave_no_error_and_weak_ones_forget_the_counts() -> None:
    assert nonnegative_sum_projection([0, 1, 5, 9], 800.0).error < 1e-14
    exact = nonnegative_sum_projection([0, 1, 5, 9], 60.0)
    np.testing.assert_allclose(exact.bias, 0.0, atol=1e-14)  # rounding of probabilities near 1
    np.testing.assert_allclose(exact.variance, 0.0, atol=1e-14)
    pair = nonnegative_sum_projection([0, 8], 1e-4)
    np.testing.assert_allclose(pair.bias, [4.0, -4.0], atol=2e-3)
    np.testing.assert_allclose(pair.variance, 16.0, rtol=1e-3)


def test_an_only_child_and_an_empty_family_are_exact() -> None:
    for values in ([7], [0], [0, 0], [0, 0, 0]):
        for result in (nonnegative_sum_projection(values, 0.3), nonnegative_sum_projection_laplace(values, 3.0)):
            np.testing.assert_array_equal(result.bias, np.zeros(len(values)))
            np.testing.assert_array_equal(result.variance, np.zeros(len(values)))


@pytest.mark.parametrize("row", GOLDEN["S2_nonneg_n2_laplace"]["rows"], ids=lambda r: str(r["x"]))
def test_laplace_pair_equals_the_reference(row: dict) -> None:
    result = nonnegative_sum_projection_laplace(row["x"], row["lam"])
    bias, variance = result
    np.testing.assert_allclose(bias, row["bias"], rtol=1e-9)
    np.testing.assert_allclose(variance, row["var"], rtol=1e-9)
    np.testing.assert_allclose(result.mse, row["mse"], rtol=1e-9)
    wide = nonnegative_sum_projection_laplace(np.array(row["x"]) * 2.5, Fraction(5, 2))
    np.testing.assert_allclose(wide.bias, 2.5 * np.array(row["bias"]), rtol=1e-9)


@pytest.mark.parametrize("row", GOLDEN["S2_nonneg_laplace"]["rows"], ids=lambda r: f"n={len(r['x'])}")
def test_laplace_family_equals_the_reference_to_its_own_error(row: dict) -> None:
    result = nonnegative_sum_projection_laplace(row["x"], 1)
    # the reference is an extrapolation too, and states its last increment
    np.testing.assert_allclose(result.bias, row["bias"], atol=2.0 * row["err_bias"] + 5e-12, rtol=0)
    np.testing.assert_allclose(result.mse, row["mse"], atol=2.0 * row["err_mse"] + 2e-11, rtol=0)
    np.testing.assert_allclose(result.variance, row["var"], atol=2.0 * row["err_mse"] + 2e-11, rtol=0)
    assert result.error < 1e-10
    assert abs(result.bias.sum()) < 1e-11


def test_laplace_family_scales_and_agrees_with_draws() -> None:
    x = np.array([0.0, 2.5, 75.0])
    exact = nonnegative_sum_projection_laplace(x, 2.5)
    draws = 60_000
    noise = np.random.default_rng(17).laplace(scale=2.5, size=(draws, 3))
    error = simplex(x + noise, x.sum()) - x
    spread = np.sqrt(exact.variance / draws)
    assert np.all(np.abs(error.mean(axis=0) - exact.bias) < 4.0 * spread)
    assert np.any(np.abs(1.1 * error.mean(axis=0) - exact.bias) > 6.0 * spread)
    assert np.any(np.abs(0.9 * error.mean(axis=0) - exact.bias) > 6.0 * spread)


@pytest.mark.parametrize("row", GOLDEN["S2_topdown_two_level_exact"]["rows"], ids=lambda r: str(r["tree"]))
def test_two_levels_equal_the_reference(row: dict) -> None:
    result = nonnegative_top_down_two_level(row["tree"], row["eps_per_level"])
    np.testing.assert_allclose(result.state_bias, row["state_bias"], atol=1e-10, rtol=0)
    np.testing.assert_allclose(result.state_variance, row["state_var"], atol=1e-10, rtol=0)
    np.testing.assert_allclose(result.county_bias, row["county_bias"], atol=1e-10, rtol=0)
    np.testing.assert_allclose(result.county_variance, row["county_var"], atol=1e-10, rtol=0)


def test_two_levels_of_uneven_families_agree_with_draws() -> None:
    tree = [[1, 2, 0], [3], [0, 4]]
    exact = nonnegative_top_down_two_level(tree, 1.5)
    generator = np.random.default_rng(4)
    draws = 60_000
    states = np.array([sum(state) for state in tree])
    projected = simplex(states + double_geometric(generator, 1.5, (draws, 3)), 10)
    counties = np.hstack(
        [
            simplex(np.array(s) + double_geometric(generator, 1.5, (draws, len(s))), projected[:, i])
            for i, s in enumerate(tree)
        ]
    )
    error = counties - np.concatenate([np.array(s) for s in tree])
    assert np.all(np.abs(error.mean(axis=0) - exact.county_bias) < 4.0 * error.std(axis=0) / math.sqrt(draws))
    squares = (error - error.mean(axis=0)) ** 2
    assert np.all(np.abs(squares.mean(axis=0) - exact.county_variance) < 4.0 * squares.std(axis=0) / math.sqrt(draws))
    assert abs(exact.state_bias.sum()) < 1e-12
    # a state's bias is its counties' together
    assert exact.county_bias[:3].sum() == pytest.approx(exact.state_bias[0], abs=1e-12)
    # one state alone is the family of its counties
    alone = nonnegative_top_down_two_level([[1, 2, 0]], 1.5)
    family = nonnegative_sum_projection([1, 2, 0], 1.5)
    np.testing.assert_allclose(alone.county_bias, family.bias, atol=1e-14)
    np.testing.assert_allclose(alone.county_variance, family.variance, atol=1e-14)


@pytest.mark.parametrize(
    ("values", "epsilon", "message"),
    [
        ([], 1.0, "at least one"),
        ([1, -2], 1.0, "-2"),
        ([1, 2.5], 1.0, "2.5"),
        ([1, math.nan], 1.0, "nan"),
        ([1, math.inf], 1.0, "inf"),
        (["a"], 1.0, "not numbers"),
        ([1, 2], 0.0, "epsilon"),
        ([1, 2], -1.0, "epsilon"),
        ([1, 2], math.inf, "epsilon"),
        ([0, 5, 9], 1e-4, "larger epsilon"),
    ],
)
def test_arguments_that_cannot_be_meant_are_named(values: list, epsilon: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        nonnegative_sum_projection(values, epsilon)


def test_laplace_and_two_level_arguments_that_cannot_be_meant_are_named() -> None:
    for values in ([1, -1], [math.nan, 1], [], ["a"]):
        with pytest.raises(ConfigError):
            nonnegative_sum_projection_laplace(values, 1.0)
    with pytest.raises(ConfigError, match="denominators"):
        nonnegative_sum_projection_laplace([0.1234567, 2, 3], 1.0)
    with pytest.raises(ConfigError, match="too fine"):
        nonnegative_sum_projection_laplace([1, 2, 3], 1000.0)
    with pytest.raises(ConfigError, match="too many"):
        nonnegative_top_down_two_level([[1], [2], [3], [4], [5]], 0.1)
    with pytest.raises(ConfigError, match="no state"):
        nonnegative_top_down_two_level([], 1.0)


@pytest.mark.parametrize(("n", "scale"), [(3, 10), (4, 10), (33, 5)])
def test_the_bias_of_one_small_count_decays_with_its_errors_scale(n: int, scale: int) -> None:
    """By e^(-1 / (scale (1 - 1/n))) for every count: a public total takes 1/n of every draw back."""
    small, step = 12 * scale, 2 * scale
    bias = [
        nonnegative_sum_projection([s] + [10**6] * (n - 1), Fraction(1, scale)).bias[0] for s in (small, small + step)
    ]
    assert math.log(bias[0] / bias[1]) == pytest.approx(step / (scale * (1 - 1 / n)), rel=1e-3)
