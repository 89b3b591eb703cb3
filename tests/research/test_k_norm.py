"""Regression by K-norm noise: the law of the noise, the sensitivity, and that more epsilon brings the coefficients
nearer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from topdown.errors import ConfigError
from topdown.noise import SeededSource
from topdown.research.pmse.comparators import regression_coefficients
from topdown.research.pmse.k_norm import NORMS, k_norm_noise, k_norm_regression, sufficient_statistics


@pytest.mark.parametrize("norm", NORMS)
def test_the_norm_of_the_noise_is_gamma_of_its_dimension(norm: str) -> None:
    """A density proportional to exp(-|v|/scale) in dimension d gives |v| the Gamma(d) law of that scale."""
    draws = np.array([k_norm_noise(norm, 4, 2.5, source=SeededSource(i)) for i in range(4000)])
    size = np.abs(draws).sum(axis=1) if norm == "l1" else np.abs(draws).max(axis=1)
    assert stats.kstest(size, stats.gamma(4, scale=2.5).cdf).pvalue > 1e-6
    assert stats.kstest(size, stats.gamma(4, scale=2.9).cdf).pvalue < 1e-6
    assert np.abs(draws.mean(axis=0)).max() < 6 * draws.std() / math.sqrt(4000)


def test_one_record_moves_every_statistic_by_2_at_most() -> None:
    rng = np.random.default_rng(2)
    worst = np.zeros(8)
    for _ in range(2000):
        one, other = rng.choice([-1.0, 0.0, 1.0], (2, 1, 3))
        worst = np.maximum(worst, np.abs(sufficient_statistics(one) - sufficient_statistics(other)))
    assert worst.tolist() == [2.0] * 8


@pytest.mark.parametrize("norm", NORMS)
def test_coefficients_come_near_with_epsilon(norm: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(2, 3, (5000, 2))
    y = 1.0 + x @ [0.5, -1.0] + rng.normal(0, 1, 5000)
    true = regression_coefficients(np.column_stack([x, y]))
    limits = [(-10, 14), (-10, 14), (-30, 30)]
    errors = [
        np.mean(
            [
                np.abs(k_norm_regression(x, y, epsilon, limits, norm=norm, source=SeededSource(i)) - true).max()
                for i in range(20)
            ]
        )
        for epsilon in (1, 100)
    ]
    assert errors[1] < errors[0] / 20
    assert np.abs(k_norm_regression(x, y, 10**9, limits, norm=norm, source=SeededSource(1)) - true).max() < 1e-3


def test_the_maximum_norm_needs_less_noise_here() -> None:
    """The comparison of the source: with 8 statistics of which one record moves all, L1 pays for every one."""
    spread = {
        norm: np.std(
            [k_norm_noise(norm, 8, 2.0 * (1 if norm == "linf" else 8), source=SeededSource(i)) for i in range(500)]
        )
        for norm in NORMS
    }
    assert spread["linf"] < 0.7 * spread["l1"]


def test_an_unknown_norm_is_named() -> None:
    with pytest.raises(ConfigError, match="did you mean 'linf'"):
        k_norm_regression([[1.0]], [1.0], 1, [(0, 1), (0, 1)], norm="lin", source=SeededSource(1))
