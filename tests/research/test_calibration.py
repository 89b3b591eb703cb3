"""What truncation costs, against references and brute force, and that calibrated scales keep their epsilon."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from support.places import GOLDEN
from topdown.errors import BudgetError, ConfigError
from topdown.research.bounded.calibration import calibrate, element_budgets, privacy_loss, uncorrected_scale
from topdown.research.bounded.verification import worst_log_ratio

EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


def relative(got, want):
    return abs(got - want) / abs(want)


@pytest.mark.parametrize("row", GOLDEN["S0_S1_interval_epsilon"]["rows"])
def test_reference_rows(row):
    tolerance = GOLDEN["S0_S1_interval_epsilon"]["rel_tol"]
    naive = uncorrected_scale(row["eps"], row["Delta"])
    assert naive == row["Delta"] / row["eps"]
    lost = privacy_loss(naive, row["Delta"], 3.0, 3.0 + row["D"])
    assert relative(lost, row["true_eps_of_naive_scale"]) < tolerance
    scale = calibrate(row["eps"], row["Delta"], -1.0, row["D"] - 1.0)
    assert relative(scale, row["smallest_valid_scale"]) < tolerance


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_half_line_closed_forms(epsilon):
    for bounds in ((0, None), (None, 0.0), (-np.inf, 5), (5, np.inf)):
        assert relative(calibrate(epsilon, 2.0, *bounds), 2.0 / np.log((1 + np.exp(epsilon)) / 2)) < 1e-13
        assert relative(privacy_loss(1 / epsilon, 1, *bounds), np.log(2 * np.exp(epsilon) - 1)) < 1e-13
        whole = calibrate(epsilon, 1, *bounds, law="geometric")
        assert relative(whole, 1 / np.arcsinh(np.expm1(epsilon) / 2)) < 1e-13
    assert calibrate(epsilon, 2.0) == 2.0 / epsilon
    assert privacy_loss(2.0 / epsilon, 2.0) == epsilon
    assert relative(calibrate(epsilon, 2, law="geometric"), 2 / epsilon) < 1e-15


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_interval_closed_forms(epsilon):
    e = np.exp(epsilon)
    assert relative(calibrate(epsilon, 3.0, 0, 3.0), 3.0 / epsilon) < 1e-13
    twice = np.log((e + np.sqrt(e * e + 8 * e)) / 4)
    assert relative(calibrate(epsilon, 3.0, 0, 6.0), 3.0 / twice) < 1e-12
    # A sensitivity beyond the width counts as the width.
    assert calibrate(epsilon, 50.0, 0, 3.0) == calibrate(epsilon, 3.0, 0, 3.0)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("width", [1.0, 1.5, 4.0, None])
def test_a_measured_calibrated_scale_keeps_epsilon_and_is_tight(epsilon, width):
    constraints = [(None, 0.0)] if width is None else [(None, 0.0), (width, None)]
    measured = worst_log_ratio(calibrate(epsilon, 1.0, 0.0, width), constraints, 1.0)
    assert measured <= epsilon + 1e-9
    assert measured >= 0.99 * epsilon
    naive = worst_log_ratio(uncorrected_scale(epsilon, 1.0), constraints, 1.0)
    assert naive == pytest.approx(privacy_loss(1 / epsilon, 1.0, 0.0, width), rel=1e-9)
    assert naive > epsilon * 1.05 or width == 1.0


def brute_force_geometric(scale, sensitivity, points):
    """Worst log ratio over all pairs of locations and outputs of the truncated law on 0..points - 1."""
    k = np.arange(points)
    log_weights = -np.abs(k[:, None] - k) / scale
    log_pmf = log_weights - np.log(np.exp(log_weights).sum(axis=1, keepdims=True))
    return max(
        np.abs(log_pmf[s] - log_pmf[t]).max()
        for s, t in itertools.combinations(range(points), 2)
        if t - s <= sensitivity
    )


@pytest.mark.parametrize("points", [2, 3, 7, 40])
@pytest.mark.parametrize("sensitivity", [1, 2, 5])
def test_discrete_loss_is_the_brute_force_worst_case(points, sensitivity):
    for scale in (0.2, 1.0, 3.0, 50.0):
        lost = privacy_loss(scale, sensitivity, 0, points - 1, law="geometric")
        assert lost == pytest.approx(brute_force_geometric(scale, sensitivity, points), rel=1e-11)
    for epsilon in (0.1, 1.0, 4.0):
        scale = calibrate(epsilon, sensitivity, 0, points - 1, law="geometric")
        measured = brute_force_geometric(scale, sensitivity, points)
        assert epsilon * 0.99 <= measured <= epsilon + 1e-9


def test_discrete_half_line_loss_is_the_limit_of_long_intervals():
    for sensitivity, scale in itertools.product((1, 3), (0.5, 4.0)):
        assert privacy_loss(scale, sensitivity, 0, None, law="geometric") == pytest.approx(
            brute_force_geometric(scale, sensitivity, 400), rel=1e-11
        )


@given(
    epsilon=st.floats(1e-3, 20), sensitivity=st.integers(1, 50), width=st.integers(1, 2000) | st.none(), data=st.data()
)
@examples(200)
def test_the_calibrated_scale_is_the_smallest(epsilon, sensitivity, width, data):
    law = data.draw(st.sampled_from(["laplace", "geometric"]))
    scale = calibrate(epsilon, sensitivity, 0, width, law=law)
    reach = sensitivity if width is None else min(sensitivity, width)
    assert reach / epsilon * (1 - 1e-12) <= scale <= 2 * reach / epsilon
    assert privacy_loss(scale, sensitivity, 0, width, law=law) <= epsilon * (1 + 1e-13)
    assert privacy_loss(scale * 0.999, sensitivity, 0, width, law=law) > epsilon


def test_arguments_broadcast_and_extremes_are_finite():
    scales = calibrate([[0.5], [1.0]], [1, 2, 3], 0, [10, 20, None or np.inf])
    assert scales.shape == (2, 3)
    assert scales[1, 1] == pytest.approx(calibrate(1.0, 2, 0, 20), rel=1e-15)
    assert scales[0, 2] == pytest.approx(calibrate(0.5, 3, 0, None), rel=1e-15)
    assert isinstance(calibrate(Fraction(1, 2), 1, 0, 10), float)
    tiny, huge = calibrate([1e-12, 700.0, 5000.0], 1.0, 0, 10.0), calibrate([1e-12, 700.0, 5000.0], 1.0, 0)
    assert np.all(np.diff(tiny) < 0)
    assert np.all(np.diff(huge) < 0)
    assert np.isfinite(tiny).all()
    assert np.isfinite(huge).all()
    loss = privacy_loss(np.geomspace(1e-3, 1e12, 50), 1.0, 0, 7.0)
    assert np.all(np.diff(loss) < 0)
    # Far beyond the width the law is all but uniform and the loss close to (1 + (W - D)/W) D/b.
    assert privacy_loss(1e12, 1.0, 0, 4.0) == pytest.approx((1 + 3 / 4) * 1e-12, rel=1e-9)


def test_the_textbook_scale_costs_up_to_twice_epsilon():
    epsilon = np.geomspace(1e-3, 10, 20)
    lost = privacy_loss(uncorrected_scale(epsilon, 1.0), 1.0, 0, None)
    assert np.all((lost > epsilon) & (lost < 2 * epsilon))
    assert lost[0] == pytest.approx(2 * epsilon[0], rel=2e-3)


def test_budgets_per_element():
    sequential = element_budgets(1.0, [1.0, 2.0, 5.0])
    np.testing.assert_allclose(sequential, [0.125, 0.25, 0.625], rtol=1e-15)
    # The same noise for all as in the sensitivity of the whole vector.
    np.testing.assert_allclose(uncorrected_scale(sequential, [1.0, 2.0, 5.0]), 8.0, rtol=1e-15)
    np.testing.assert_array_equal(element_budgets(1.0, [1, 1], composition="parallel"), [1.0, 1.0])
    halves = element_budgets(1.0, [1, 1, 1], composition="parallel", neighbours="substitute")
    np.testing.assert_array_equal(halves, [0.5, 0.5, 0.5])
    # Two cells change under substitution: calibrated apart, they lose epsilon together.
    scale = calibrate(halves, 1, 0, 9, law="geometric")
    assert 0.99 < privacy_loss(scale, 1, 0, 9, law="geometric")[:2].sum() <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: calibrate(0.0, 1.0, 0, 1), BudgetError, "epsilon 0.0"),
        (lambda: calibrate(-1.0, 1.0, 0, 1), BudgetError, "epsilon -1.0"),
        (lambda: calibrate(np.inf, 1.0, 0, 1), BudgetError, "epsilon inf"),
        (lambda: calibrate(np.nan, 1.0, 0, 1), ConfigError, "epsilon: nan"),
        (lambda: calibrate(1.0, 0.0, 0, 1), ConfigError, "sensitivity 0.0"),
        (lambda: calibrate(1.0, 1.0, 1, 1), ConfigError, "lower < upper"),
        (lambda: calibrate(1.0, 1.5, 0, 9, law="geometric"), ConfigError, "whole numbers"),
        (lambda: calibrate(1.0, 1, 0.5, 9, law="geometric"), ConfigError, "whole numbers"),
        (lambda: calibrate(1.0, 1.0, 0, 1, law="gaussian"), ConfigError, "law 'gaussian'"),
        (lambda: privacy_loss(0.0, 1.0, 0, 1), ConfigError, "scale 0.0"),
        (lambda: element_budgets(1.0, [1, 0]), ConfigError, "sensitivities 0.0"),
        (lambda: element_budgets(1.0, [1], composition="serial"), ConfigError, "composition 'serial'"),
        (lambda: element_budgets(1.0, [1], neighbours="swap"), ConfigError, "neighbours 'swap'"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()
