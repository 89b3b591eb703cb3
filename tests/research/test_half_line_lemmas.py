"""The lemmas of Croft, Sack, Shi on one infinite constraint, each beside the guarantee itself or its derivative."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from support.examples import examples
from topdown.errors import ConfigError
from topdown.research.bounded.half_line import (
    AT_BORDER,
    half_line_scale,
    lambert_input,
    lambert_scales,
    lambert_slopes,
)

SETTINGS = [(1.0, 1.0), (0.3, 2.0), (4.0, 0.5)]
"""Pairs of epsilon and sensitivity."""


def distances(epsilon: float, sensitivity: float) -> np.ndarray:
    """From next to the border to 60 sensitivity/epsilon, the turn left out."""
    below = np.geomspace(1e-4, 0.999, 60)
    return np.concatenate([below, np.geomspace(1.001, 60.0, 60)]) * sensitivity / epsilon


def weight(scale: float | np.ndarray, distance: float) -> float | np.ndarray:
    """One over the density at the border of the law at a distance: b (2 exp(distance/b) - 1)."""
    return scale * (2.0 * np.exp(distance / scale) - 1.0)


@given(
    epsilon=st.floats(0.1, 4),
    sensitivity=st.floats(0.2, 5),
    part=st.floats(0.01, 20),
    border=st.floats(0.5, 4),
    scale=st.floats(0.02, 20),
)
@examples(300)
def test_lemma_1_formulae_28_and_29_are_what_the_guarantee_leaves(
    epsilon: float, sensitivity: float, part: float, border: float, scale: float
) -> None:
    """Formula 25, p_0/p_x <= exp(epsilon distance/sensitivity) at the border, holds within the two and nowhere else."""
    unit = sensitivity / epsilon
    x, b0, b = part * unit, border * unit, scale * unit
    kept = weight(b, x) <= b0 * math.exp(part) if x / b < 600 else False
    found = lambert_scales(x, epsilon, sensitivity, border_scale=b0)
    if min(abs(b / found.lower - 1), abs(b / found.principal - 1)) < 1e-6:
        return
    assert kept == bool(found.lower <= b <= found.principal)


@pytest.mark.parametrize(("epsilon", "sensitivity"), SETTINGS)
def test_lemma_1_formulae_30_and_31_leave_every_location_beyond_a_scale(epsilon: float, sensitivity: float) -> None:
    unit = sensitivity / epsilon

    def least_room(scale: float, x: float) -> float:
        """The least over locations y beyond x of the room that the guarantee between x and y leaves, in logarithms."""

        def room(y: float) -> float:
            best = minimize_scalar(lambda v: math.log(weight(math.exp(v) * y, y)), bounds=(-4, 8), method="bounded")
            return math.log(weight(scale, x)) + (y - x) / unit - float(best.fun)

        return min(room(y) for y in x + unit * np.append(np.linspace(0.0, 3.0, 301), max(1 - x / unit, 0.0)))

    for x in np.array([0.05, 0.4, 0.8]) * unit:
        low, high = lambert_scales(x, epsilon, sensitivity)
        for scale, left in ((0.98 * low, True), (1.02 * low, False), (0.98 * high, False), (1.02 * high, True)):
            assert (least_room(scale, x) > 0) == left
    # At the border there is one span alone: b_0 of Formula 32 or more.
    assert least_room(1.001 * AT_BORDER * unit, 1e-9 * unit) > 0 > least_room(0.999 * AT_BORDER * unit, 1e-9 * unit)


@pytest.mark.parametrize(("epsilon", "sensitivity"), SETTINGS)
def test_lemma_2_the_scale_is_one_of_the_two(epsilon: float, sensitivity: float) -> None:
    x = distances(epsilon, sensitivity)
    low, high = lambert_scales(x, epsilon, sensitivity)
    used = np.where(x * epsilon / sensitivity < 1, high, low)
    assert half_line_scale(x, epsilon, sensitivity) == pytest.approx(used, rel=1e-8)
    for b in (low[low * 600 > x], high[high * 600 > x]):
        at = x[np.isin(low, b) | np.isin(high, b)]
        wanted = AT_BORDER * sensitivity / epsilon * np.exp(at * epsilon / sensitivity)
        assert weight(b, at) == pytest.approx(wanted, rel=1e-7)


@pytest.mark.parametrize(("epsilon", "sensitivity"), SETTINGS)
def test_lemma_3_the_denominator_is_negative_on_the_principal_branch_alone(epsilon: float, sensitivity: float) -> None:
    _, denominator = lambert_slopes(distances(epsilon, sensitivity), epsilon, sensitivity)
    assert (denominator.principal < 0).all()
    assert (denominator.lower > 0).all()


@pytest.mark.parametrize("branch", [-1, 0])
def test_numerator_and_denominator_make_the_derivative(branch: int) -> None:
    epsilon, sensitivity = 0.7, 1.3
    x = np.array([0.01, 0.3, 0.9, 1.2, 3.0, 8.0]) * sensitivity / epsilon
    numerator, denominator = (part[1 + branch] for part in lambert_slopes(x, epsilon, sensitivity))
    with mp.workdps(50):
        unit = mp.mpf(sensitivity) / mp.mpf(epsilon)
        b0 = -unit / (mp.e * mp.lambertw(-1 / (2 * mp.e)))

        def scale(at: mp.mpf) -> mp.mpf:
            tau = at * mp.exp(-at / unit) / b0
            return mp.re(-at / (mp.lambertw(-2 * tau * mp.exp(-tau), branch) + tau))

        exact = [float(mp.diff(scale, mp.mpf(float(at)))) for at in x]
    assert numerator / denominator == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "sensitivity"), SETTINGS)
def test_lemmas_4_and_6_one_turn_a_minimum_on_the_principal_branch_a_maximum_on_the_other(
    epsilon: float, sensitivity: float
) -> None:
    x = distances(epsilon, sensitivity)
    before = x < sensitivity / epsilon
    numerator, _ = lambert_slopes(x, epsilon, sensitivity)
    for one in numerator:  # above 0 up to the turn, below it from there on
        assert (one[before] > 0).all()
        assert (one[~before] < 0).all()
    low, high = lambert_scales(x, epsilon, sensitivity)
    at_turn = lambert_scales(sensitivity / epsilon, epsilon, sensitivity)
    for values, sign, turn in ((high, -1, at_turn.principal), (low, 1, at_turn.lower)):
        steps = sign * np.diff(values)
        assert (steps[: before.sum() - 1] > 0).all()
        assert (steps[before.sum() :] < 0).all()
        assert (sign * values < sign * turn).all()
        assert turn == pytest.approx(1.30201713557 * sensitivity / epsilon, rel=1e-7)


@pytest.mark.parametrize(("epsilon", "sensitivity"), SETTINGS)
def test_lemma_5_the_input_falls_from_0_to_its_one_turn_and_rises(epsilon: float, sensitivity: float) -> None:
    x = np.sort(np.append(distances(epsilon, sensitivity), sensitivity / epsilon))
    values = lambert_input(x, epsilon, sensitivity)
    steps = np.diff(values)
    turn = int(np.searchsorted(x, sensitivity / epsilon))
    assert (steps[:turn] < 0).all()
    assert (steps[turn:] > 0).all()
    assert values[turn] == pytest.approx(-math.exp(-1), rel=1e-12)
    assert lambert_input(1e-12, epsilon, sensitivity) == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize(("epsilon", "sensitivity"), SETTINGS)
def test_theorem_1_scales_fall_with_the_distance(epsilon: float, sensitivity: float) -> None:
    """The part of Theorem 1 that holds; that it is not pure is in test_normalized.py."""
    x = np.linspace(0.0, 80.0, 4001) * sensitivity / epsilon
    assert (np.diff(half_line_scale(x, epsilon, sensitivity)) < 0).all()


def test_distances_that_the_lambert_function_cannot_take_are_refused() -> None:
    for x in (0.0, -1.0, 701.0):
        with pytest.raises(ConfigError, match="above 0"):
            lambert_scales([0.5, x], 1.0, 1.0)
    assert np.isnan(lambert_scales(1.0, 1.0, 1.0, border_scale=1.2).principal)
