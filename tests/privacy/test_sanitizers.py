"""Laplace and Gaussian sanitizers of vectors, clipped sums and means."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from support.places import GOLDEN
from topdown.errors import BudgetError, ConfigError
from topdown.noise.continuous import Gaussian, Laplace
from topdown.noise.randomness import SeededSource
from topdown.privacy.sanitizers import (
    gaussian_sanitizer,
    laplace_sanitizer,
    sanitized_mean,
    sanitized_sum,
)

SOURCE = SeededSource(1)


@pytest.mark.parametrize("row", GOLDEN["S4_gaussian"]["rows"])
def test_gaussian_sigmas_of_the_reference(row):
    tolerance = GOLDEN["S4_gaussian"]["rel_tol"]
    epsilon, delta = row["eps"], row["delta"]
    released = gaussian_sanitizer(5.0, row["Delta2"], epsilon, delta, SOURCE)
    assert released.noise.sigma == pytest.approx(row["sigma_analytic"], rel=tolerance)
    if epsilon < 1:
        classical = gaussian_sanitizer(5.0, row["Delta2"], epsilon, delta, SOURCE, calibration="classical")
        assert classical.noise.sigma == pytest.approx(row["sigma_classical"], rel=tolerance)
        return
    with pytest.raises(BudgetError, match="epsilon"):
        gaussian_sanitizer(5.0, row["Delta2"], epsilon, delta, SOURCE, calibration="classical")


def test_what_a_release_records():
    released = laplace_sanitizer([10.0, 20.0, 30.0], 2, 0.5, SOURCE)
    assert isinstance(released.noise, Laplace)
    assert released.noise.scale == 4.0
    assert (released.sensitivity, released.epsilon, released.delta) == (2.0, 0.5, 0.0)
    assert released.value.shape == (3,)
    assert isinstance(laplace_sanitizer(10, 2, 0.5, SOURCE).value, float)
    released = gaussian_sanitizer(np.zeros((2, 3)), 1, 0.5, 1e-6, SOURCE)
    assert isinstance(released.noise, Gaussian)
    assert released.value.shape == (2, 3)
    assert released.delta == 1e-6
    with pytest.raises(dataclasses.FrozenInstanceError):
        released.delta = 0.0


def test_clipped_sums_and_their_scales():
    values = [0.0, 7.0, 25.0, 9.0]  # clipped to [6, 10]: 6 + 7 + 10 + 9
    released = sanitized_sum(values, 6, 10, 1e9, SOURCE)
    assert released.value == pytest.approx(32.0, abs=1e-6)
    assert released.sensitivity == 10.0
    assert sanitized_sum(values, 6, 10, 2.0, SOURCE).noise.scale == 5.0
    assert sanitized_sum(values, 6, 10, 2.0, SOURCE, neighbours="substitute").noise.scale == 2.0
    gaussian = sanitized_sum(values, 6, 10, 0.5, SOURCE, delta=1e-5, calibration="classical")
    assert gaussian.noise.sigma == pytest.approx(10 * math.sqrt(2 * math.log(1.25e5)) / 0.5, rel=1e-12)
    assert sanitized_sum([], 6, 10, 1e9, SOURCE).value == pytest.approx(0.0, abs=1e-6)


def test_clipped_means_and_their_scales():
    values = [0.0, 7.0, 25.0, 9.0]
    released = sanitized_mean(values, 6, 10, 1e9, SOURCE)
    assert released.value == pytest.approx(8.0, abs=1e-6)
    assert released.sensitivity == 1.0
    assert sanitized_mean(values, 6, 10, 0.25, SOURCE).noise.scale == 4.0
    # By default n is public, as it has to be, and neighbours are of that size: also one value alone can be changed.
    assert sanitized_mean([7.0], 6, 10, 1.0, SOURCE).sensitivity == 4.0
    with pytest.raises(ConfigError, match="n 1"):
        sanitized_mean([7.0], 6, 10, 1.0, SOURCE, neighbours="add-remove")
    assert isinstance(sanitized_mean(values, 6, 10, 0.25, SOURCE, delta=1e-9).noise, Gaussian)
    with pytest.raises(ConfigError, match="n 0"):
        sanitized_mean([], 6, 10, 1.0, SOURCE)


def test_the_noise_has_the_law_and_not_one_of_another_scale():
    zeros = np.zeros(50_000)
    laplace = laplace_sanitizer(zeros, 3.0, 1.5, SeededSource(3)).value
    gaussian = gaussian_sanitizer(zeros, 1.0, 1.0, 1e-7, SeededSource(4)).value
    for wrong, accepted in ((1.0, True), (0.9, False), (1.1, False)):
        assert (stats.kstest(laplace, stats.laplace(scale=2.0 * wrong).cdf).pvalue > 1e-9) == accepted
        sigma = 4.678663060910852 * wrong
        assert (stats.kstest(gaussian, stats.norm(scale=sigma).cdf).pvalue > 1e-9) == accepted
    # Elements are independent.
    assert abs(np.corrcoef(laplace[:-1], laplace[1:])[0, 1]) < 6 / math.sqrt(50_000)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: laplace_sanitizer(1.0, 1.0, 0.0, SOURCE), BudgetError, r"epsilon 0\.0"),
        (lambda: laplace_sanitizer(1.0, -1.0, 1.0, SOURCE), ConfigError, r"sensitivity -1\.0"),
        (lambda: laplace_sanitizer([1.0, np.nan], 1.0, 1.0, SOURCE), ConfigError, "nan at position 1"),
        (lambda: gaussian_sanitizer(1.0, 1.0, 1.0, 0.0, SOURCE), BudgetError, "delta"),
        (lambda: gaussian_sanitizer(1.0, 1.0, 1.0, 1e-6, SOURCE, calibration="x"), ConfigError, "calibration 'x'"),
        (lambda: sanitized_sum([1.0], 3, 2, 1.0, SOURCE), ConfigError, "lower < upper"),
        (lambda: sanitized_sum([1.0], 0, math.inf, 1.0, SOURCE), ConfigError, "by any amount; give two"),
        (lambda: sanitized_sum(["secret"], 1, 2, 1.0, SOURCE), ConfigError, "values: give a real number"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()
