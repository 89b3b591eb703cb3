"""Random and mean-concentrated differential privacy of Laplace noise within bounds, against quadrature and closed
forms."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad

from support.examples import examples
from topdown.errors import BudgetError, ConfigError
from topdown.research.bounded.calibration import privacy_loss
from topdown.research.bounded.laplace import BoundaryInflatedLaplace, TruncatedLaplace
from topdown.research.bounded.relaxations import (
    concentration,
    gaussian_concentration,
    loss_distribution,
    random_dp_gamma,
    worst_loss,
)

LAWS = (TruncatedLaplace, BoundaryInflatedLaplace)
PAIRS = [(0.0, 0.7, 1.0, 0.0, 2.0), (1.4, 0.3, 0.5, 0.0, 2.0), (0.4, 1.0, 2.0, 0.0, None), (0.5, -0.5, 1.0, None, None)]


def expectation(law: Any, other: Any, function: Any) -> float:
    """E function(loss) by adaptive quadrature between the locations, and the atoms' share beside it."""
    total = 0.0
    atoms = (0.0, 0.0)
    if isinstance(law, BoundaryInflatedLaplace):
        atoms = law.atoms
        for mass, opposite in zip(atoms, other.atoms, strict=True):
            total += mass * function(math.log(mass / opposite)) if mass else 0.0
    low, high = max(law.lower, -60.0), min(law.upper, 60.0)
    cuts = sorted({low, high, float(law.location), float(other.location)})
    for start, stop in itertools.pairwise(cuts):
        total += quad(
            lambda x: law.pdf(x) * function(math.log(law.pdf(x) / other.pdf(x))), start, stop, epsabs=1e-13, limit=200
        )[0]
    return total


@pytest.mark.parametrize("make", LAWS)
@pytest.mark.parametrize(("s", "other", "scale", "lower", "upper"), PAIRS)
def test_the_distribution_of_the_loss_beside_quadrature(
    make: Any, s: float, other: float, scale: float, lower: float | None, upper: float | None
) -> None:
    pair = make(s, scale, lower, upper), make(other, scale, lower, upper)
    loss, mass = loss_distribution(*pair)
    assert mass.sum() == pytest.approx(1.0, abs=1e-12)
    for function in (lambda v: v, lambda v: v * v, lambda v: math.exp(2 * v), lambda v: math.exp(-v)):
        assert mass @ [function(v) for v in loss] == pytest.approx(expectation(*pair, function), abs=1e-9)
    assert mass @ np.exp(-loss) == pytest.approx(1.0, abs=1e-12)  # the other law adds up to 1
    assert np.abs(loss).max() == pytest.approx(worst_loss(*pair), abs=1e-2)


@pytest.mark.parametrize("make", LAWS)
def test_the_worst_loss_is_the_largest_over_a_grid_and_the_mechanisms_epsilon(make: Any) -> None:
    s, other = np.meshgrid(np.linspace(0, 2, 9), np.linspace(0, 2, 9))
    found = worst_loss(make(s, 0.8, 0.0, 2.0), make(other, 0.8, 0.0, 2.0))
    x = np.linspace(1e-9, 2 - 1e-9, 4001)[:, None, None]
    grid = np.abs(np.log(make(s, 0.8, 0.0, 2.0).pdf(x) / make(other, 0.8, 0.0, 2.0).pdf(x))).max(axis=0)
    assert found == pytest.approx(grid, abs=2e-3)
    assert (found >= grid - 1e-12).all()
    near = np.abs(s - other) <= 0.75
    expected = privacy_loss(0.8, 0.75, 0.0, 2.0) if make is TruncatedLaplace else 0.75 / 0.8
    assert found[near].max() == pytest.approx(expected, rel=1e-9)


def test_plain_laplace_noise_in_closed_form() -> None:
    for epsilon in (0.1, 1.0, 3.0):
        pair = BoundaryInflatedLaplace(0.0, 2.0), BoundaryInflatedLaplace(2.0 * epsilon, 2.0)
        mean, spread = concentration(*pair)
        assert worst_loss(*pair) == pytest.approx(epsilon)
        assert mean == pytest.approx(epsilon + math.expm1(-epsilon), rel=1e-9)
        # Dwork, Rothblum: what is epsilon-private has a mean of at most epsilon (e^epsilon - 1)/2, a spread of epsilon.
        assert mean <= epsilon * math.expm1(epsilon) / 2
        loss, mass = loss_distribution(*pair)
        assert math.sqrt(mass @ (loss - mean) ** 2) - 1e-12 <= spread <= epsilon


@given(
    make=st.sampled_from(LAWS),
    s=st.floats(0, 3),
    moved=st.floats(0.05, 1),
    scale=st.floats(0.2, 5),
    upper=st.sampled_from([3.0, None]),
)
@example(make=TruncatedLaplace, s=2e-311, moved=1.0, scale=1.0, upper=3.0)
@examples(40)
def test_the_spread_is_sub_gaussian_and_the_smallest(
    make: Any, s: float, moved: float, scale: float, upper: Any
) -> None:
    other = s + moved if upper is None else min(s + moved, 3.0) if s < 2.9 else s - moved
    pair = make(s, scale, 0.0, upper), make(other, scale, 0.0, upper)
    mean, spread = concentration(*pair)
    loss, mass = loss_distribution(*pair)
    rates = np.concatenate([-np.geomspace(0.02, 300, 200), np.geomspace(0.02, 300, 200)]) / np.ptp(loss)
    log_mgf = np.array([np.log(mass @ np.exp(rate * (loss - mean))) for rate in rates])
    assert (log_mgf <= (rates * spread) ** 2 / 2 * (1 + 1e-6) + 1e-13).all()
    reached = max((2 * log_mgf / rates**2).max(), float(mass @ (loss - mean) ** 2))
    assert reached >= (0.999 * spread) ** 2
    for t in (0.5, 1.0, 2.0):
        assert mass[loss > mean + t * spread].sum() <= math.exp(-(t**2) / 2)
    assert mean >= 0  # a Kullback-Leibler divergence


def test_gaussian_noise_is_the_concentrated_law() -> None:
    """Its loss is normal with that mean and spread, by draws."""
    sensitivity, sigma = 1.5, 2.0
    mean, spread = gaussian_concentration(sensitivity, sigma)
    x = np.random.default_rng(3).normal(0.0, sigma, 400_000)
    loss = stats.norm.logpdf(x, 0.0, sigma) - stats.norm.logpdf(x, sensitivity, sigma)
    assert stats.kstest(loss, stats.norm(mean, spread).cdf).pvalue > 1e-6
    assert stats.kstest(loss, stats.norm(mean, 1.05 * spread).cdf).pvalue < 1e-6
    for wrong in ((0.0, 1.0), (1.0, -1.0)):
        with pytest.raises(ConfigError):
            gaussian_concentration(*wrong)


def test_truncation_costs_more_than_clipping_in_both_senses() -> None:
    for s, other in ((0.0, 0.5), (0.2, 0.7)):
        cut, clipped = ([make(at, 1.0, 0.0, 2.0) for at in (s, other)] for make in LAWS)
        assert worst_loss(*cut) > worst_loss(*clipped)
    # Clipping is post-processing: it loses no more than the noise without bounds, on average either.
    plain = concentration(BoundaryInflatedLaplace(0.0, 1.0), BoundaryInflatedLaplace(0.5, 1.0))
    clipped_pair = concentration(
        BoundaryInflatedLaplace(0.0, 1.0, 0.0, 2.0), BoundaryInflatedLaplace(0.5, 1.0, 0.0, 2.0)
    )
    assert clipped_pair.mean < plain.mean


def test_random_differential_privacy_of_a_mean_of_uniform_values() -> None:
    """Of the mean of n uniform values, one of which is drawn anew, |s - s'| > t/n has probability (1 - t)^2."""
    rng, n, epsilon = np.random.default_rng(7), 20, 1.0
    data = rng.random((200_000, n))
    before = data.mean(axis=1)
    after = before + (rng.random(len(data)) - data[:, 0]) / n
    scale = 1.0 / (n * epsilon)  # of sensitivity 1/n: epsilon for the worst pair
    pair = BoundaryInflatedLaplace(before, scale, 0.0, 1.0), BoundaryInflatedLaplace(after, scale, 0.0, 1.0)
    assert random_dp_gamma(*pair, epsilon) == 0.0
    for part in (0.9, 0.5, 0.2):
        exact = (1 - part) ** 2
        assert random_dp_gamma(*pair, part * epsilon) == pytest.approx(exact, abs=5 * math.sqrt(exact / len(data)))


def test_refusals() -> None:
    law = TruncatedLaplace(0.0, 1.0, 0.0, 1.0)
    for other in (TruncatedLaplace(0.5, 2.0, 0.0, 1.0), BoundaryInflatedLaplace(0.5, 1.0, 0.0, 1.0)):
        with pytest.raises(ConfigError, match="one mechanism at two locations"):
            worst_loss(law, other)
        with pytest.raises(ConfigError, match="one mechanism at two locations"):
            concentration(law, other)
    with pytest.raises(ConfigError, match="lower and upper are equal"):
        worst_loss(BoundaryInflatedLaplace(0.0, 1.0, 1.0, 1.0), BoundaryInflatedLaplace(1.0, 1.0, 1.0, 1.0))
    with pytest.raises(ConfigError, match="one number for each law"):
        concentration(TruncatedLaplace([0.0, 1.0], 1.0), TruncatedLaplace([1.0, 2.0], 1.0))
    with pytest.raises(BudgetError, match="epsilon"):
        random_dp_gamma(law, law, 0.0)
