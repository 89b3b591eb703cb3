"""Generalised Gaussian noise within bounds, and what it costs: against quadrature, and against the laws it contains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats

import topdown as td
from topdown.errors import BudgetError, ConfigError
from topdown.noise import (
    BoundaryInflatedGeneralizedGaussian,
    BoundaryInflatedLaplace,
    SeededSource,
    TruncatedGeneralizedGaussian,
    TruncatedLaplace,
    generalized_gaussian_delta,
    generalized_gaussian_scale,
    privacy_loss,
)
from topdown.privacy import analytic_gaussian_sigma, gaussian_delta
from topdown.research.bounded.generalized_loss import pair_delta

LAWS = [TruncatedGeneralizedGaussian, BoundaryInflatedGeneralizedGaussian]
PLACES = [(0.3, 0.0, 2.0), (1.0, 0.0, 2.0), (0.0, 0.0, 5.0), (4.0, -math.inf, 5.0), (1.0, -3.0, math.inf)]


def expected(law: Any, function: Any) -> float:
    """E function(X), by quadrature of the density and the atoms."""
    low, high = max(law.lower, law.location - 40.0), min(law.upper, law.location + 40.0)
    whole = integrate.quad(
        lambda x: function(x) * law.pdf(x), low, high, points=[law.location], epsabs=1e-13, epsrel=1e-12, limit=200
    )[0]
    ends = zip(getattr(law, "atoms", (0, 0)), (law.lower, law.upper), strict=True)
    return float(whole + sum(mass * function(end) for mass, end in ends if mass > 0))


@pytest.mark.parametrize("power", [1, 1.5, 2, 6])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", LAWS)
def test_moments_and_cdf_beside_quadrature(make: Any, place: tuple[float, float, float], power: float) -> None:
    s, lower, upper = place
    law = make(s, 1.3, power, lower, upper)
    assert expected(law, lambda x: 1.0) == pytest.approx(1.0, abs=1e-10)
    assert law.mean == pytest.approx(expected(law, lambda x: x), abs=1e-9)
    assert law.bias == pytest.approx(law.mean - s, abs=1e-12)
    assert law.mse == pytest.approx(expected(law, lambda x: (x - s) ** 2), abs=1e-9)
    assert law.variance == pytest.approx(expected(law, lambda x: (x - law.mean) ** 2), abs=1e-9)
    for x in (max(lower, s - 1.0) + 0.1, s, min(upper, s + 1.0) - 0.1):
        below = integrate.quad(law.pdf, max(lower, s - 40.0), x, points=[s], epsabs=1e-13, limit=200)[0]
        below += float(getattr(law, "atoms", (0.0, 0.0))[0])
        assert (law.cdf(x), law.sf(x)) == pytest.approx((below, 1 - below), abs=1e-10)
        assert law.ppf(law.cdf(x)) == pytest.approx(x, abs=1e-9)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("make", "known"), list(zip(LAWS, [TruncatedLaplace, BoundaryInflatedLaplace], strict=True)))
def test_power_1_is_laplace(make: Any, known: Any, place: tuple[float, float, float]) -> None:
    s, lower, upper = place
    one, other = make(s, 0.7, 1, lower, upper), known(s, 0.7, lower, upper)
    assert (one.bias, one.mse, one.variance) == pytest.approx((other.bias, other.mse, other.variance), abs=1e-12)
    x = np.linspace(-1.0, 4.0, 11)
    assert one.cdf(x) == pytest.approx(other.cdf(x), abs=1e-12)
    assert one.pdf(x) == pytest.approx(other.pdf(x), abs=1e-12)


@pytest.mark.parametrize("power", [1, 2, 4])
@pytest.mark.parametrize("make", LAWS)
def test_what_the_propositions_say_of_laplace_holds_for_every_power(make: Any, power: float) -> None:
    """No bias in the middle, bias towards it elsewhere, an MSE that the noise without bounds is not below."""
    at = np.linspace(0.0, 2.0, 9)
    law = make(at, 1.1, power, 0.0, 2.0)
    assert np.sign(np.where(np.abs(law.bias) < 1e-14, 0.0, law.bias)).tolist() == np.sign(1.0 - at).tolist()
    assert (law.mse <= td.noise.GeneralizedGaussian(1.1, power).variance * (1 + 1e-12)).all()
    truncated, clipped = (kind(at, 1.1, power, 0.0, 2.0) for kind in LAWS)
    assert (np.abs(clipped.bias) <= np.abs(truncated.bias) + 1e-14).all()


@pytest.mark.parametrize("make", LAWS)
def test_draws_have_the_law(make: Any) -> None:
    law, wider = (make(0.5, scale, 3, 0.0, 2.0) for scale in (1.0, 1.15))
    drawn = law.sample(100_000, SeededSource(5))
    inside = drawn[(drawn > 0) & (drawn < 2)]
    low, high = law.cdf(0.0), law.cdf(np.nextafter(2.0, 0))
    assert stats.kstest(inside, lambda x: (law.cdf(x) - low) / (high - low)).pvalue > 1e-8
    mean, error = drawn.mean(), drawn.std() / math.sqrt(drawn.size)
    assert abs(mean - law.mean) < 6 * error < abs(mean - wider.mean)


def by_quadrature(law: Any, other: Any, epsilon: float, guarantee: str) -> float:
    """The same delta from densities on a fine grid."""
    x = np.linspace(max(law.lower, -12.0), min(law.upper, 14.0), 200_001)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(law.pdf(x)) - np.log(other.pdf(x))
    if guarantee == "probabilistic":
        density = np.where(np.abs(loss) > epsilon, law.pdf(x), 0.0)
    else:
        density = np.maximum(law.pdf(x) - math.exp(epsilon) * other.pdf(x), 0.0)
    found = float(np.trapezoid(density, x))
    for one, two in zip(getattr(law, "atoms", ()), getattr(other, "atoms", ()), strict=True):
        if guarantee == "approximate":
            found += max(0.0, one - math.exp(epsilon) * two)
        elif abs(math.log(one / two)) > epsilon:
            found += one
    return found


@pytest.mark.parametrize("guarantee", ["probabilistic", "approximate"])
@pytest.mark.parametrize("power", [1, 1.5, 2, 3])
@pytest.mark.parametrize("make", LAWS)
def test_the_loss_of_a_pair_beside_quadrature(make: Any, power: float, guarantee: Any) -> None:
    for s, t in ((0.0, 1.0), (1.0, 0.0), (1.2, 1.9), (3.0, 2.0)):
        for epsilon in (0.2, 0.9):
            pair = make(s, 1.5, power, 0.0, 3.0), make(t, 1.5, power, 0.0, 3.0)
            assert pair_delta(*pair, epsilon, guarantee) == pytest.approx(
                by_quadrature(*pair, epsilon, guarantee), abs=2e-5
            )


def test_power_2_is_the_analytic_gaussian() -> None:
    for epsilon, sigma in ((0.5, 1.0), (1.0, 3.0), (3.0, 0.7)):
        found = generalized_gaussian_delta(epsilon, sigma * math.sqrt(2), 2, 1, guarantee="approximate")
        assert found == pytest.approx(gaussian_delta(epsilon, sigma), rel=1e-9)
        upper = stats.norm.sf((epsilon - 0.5 / sigma**2) * sigma)
        lower = stats.norm.cdf((-epsilon - 0.5 / sigma**2) * sigma)
        assert generalized_gaussian_delta(epsilon, sigma * math.sqrt(2), 2, 1) == pytest.approx(upper + lower, rel=1e-9)


@pytest.mark.parametrize("bounding", ["truncated", "boundary-inflated"])
def test_small_deltas_at_large_epsilons_are_the_analytic_gaussian_s(bounding: Any) -> None:
    arguments: dict[str, Any] = {"guarantee": "approximate", "bounding": bounding}
    for epsilon, delta in ((1.0, 1e-17), (10.0, 1e-12), (20.0, 1e-18)):
        scale = generalized_gaussian_scale(epsilon, delta, 2, 1, **arguments)
        assert scale / math.sqrt(2) == pytest.approx(analytic_gaussian_sigma(epsilon, delta), rel=1e-8)
    sigma = 0.4
    found = generalized_gaussian_delta(30.0, sigma * math.sqrt(2), 2, 1, **arguments)
    assert found == pytest.approx(gaussian_delta(30.0, sigma), rel=1e-8, abs=0)
    # exp(800) is beyond the range of doubles.
    assert 0.0 < generalized_gaussian_delta(800.0, 0.03, 2, 1, **arguments) < 1.0


@pytest.mark.parametrize("power", [1.0, 2.0, 30.0, 100.0])
@pytest.mark.parametrize("scale", [1e6, 1e14, 1e100])
def test_a_scale_far_beyond_the_bounds_leaves_the_uniform_law(scale: float, power: float) -> None:
    law = TruncatedGeneralizedGaussian(0.3, scale, power, 0.0, 1.0)
    at = np.array([0.0, 0.1, 0.3, 0.5, 0.999, 1.0])
    for found in (law.cdf(at), law.ppf(at), 1.0 - np.asarray(law.sf(at))):
        assert found == pytest.approx(at, abs=2e-6)
    assert (law.mean, law.variance) == pytest.approx((0.5, 1 / 12), abs=2e-6)
    assert law.pdf(at) == pytest.approx(np.ones(6), abs=2e-6)
    inflated = BoundaryInflatedGeneralizedGaussian(0.3, scale, power, 0.0, 1.0)
    assert inflated.atoms == pytest.approx((0.5, 0.5), abs=2e-6)
    assert inflated.mean == pytest.approx(0.5, abs=2e-6)


def test_both_tails_of_a_truncated_law_keep_their_digits() -> None:
    law = TruncatedGeneralizedGaussian(0.0, 1.0, 2.0, -20.0, 20.0)
    at = np.array([5.0, 10.0, 15.0, 19.0])
    assert law.sf(at) == pytest.approx(special.erfc(at) / 2, rel=1e-12, abs=0)
    assert law.cdf(-at) == pytest.approx(special.erfc(at) / 2, rel=1e-12, abs=0)
    assert law.ppf(law.cdf(-at)) == pytest.approx(-at, rel=1e-12)


def test_power_1_costs_what_laplace_costs() -> None:
    assert generalized_gaussian_delta(0.5, 2, 1, 1) == 0.0  # the loss never passes 1/2
    assert generalized_gaussian_delta(0.499, 2, 1, 1) > 0.5
    assert generalized_gaussian_scale(0.5, 0.01, 1, 1) == pytest.approx(2.0, rel=1e-9)
    assert generalized_gaussian_delta(0.5, 2, 1, 1, guarantee="approximate") == 0.0
    for width in (2, 4):
        loss = float(privacy_loss(1.0, 1, 0, width))
        arguments: dict[str, Any] = {"lower": 0, "upper": width, "bounding": "truncated"}
        assert generalized_gaussian_delta(loss + 1e-7, 1, 1, 1, **arguments) == 0.0
        assert generalized_gaussian_delta(loss - 1e-3, 1, 1, 1, **arguments) > 1e-4


def test_the_smallest_scale_keeps_delta_and_a_smaller_one_does_not() -> None:
    z = stats.norm.ppf(0.01 / 2)
    printed = (math.sqrt(z * z + 2) - z) / 2
    exact = generalized_gaussian_scale(1, 0.01, 2, 1) / math.sqrt(2)
    assert exact < printed  # a half of delta for each side is more than the lower side needs
    assert generalized_gaussian_delta(1, exact * math.sqrt(2), 2, 1) == pytest.approx(0.01, rel=1e-6)
    arguments: dict[str, Any] = {"lower": 0.0, "upper": 3.0, "bounding": "truncated", "guarantee": "approximate"}
    scale = generalized_gaussian_scale(1, 0.05, 3, 1, **arguments)
    assert generalized_gaussian_delta(1, scale, 3, 1, **arguments) <= 0.05
    assert generalized_gaussian_delta(1, 0.98 * scale, 3, 1, **arguments) > 0.05


def test_clipping_keeps_an_approximate_delta_and_can_raise_a_probabilistic_one() -> None:
    free = [generalized_gaussian_delta(0.3, 3, 2, 1, guarantee=kind) for kind in ("approximate", "probabilistic")]
    clipped = [
        generalized_gaussian_delta(0.3, 3, 2, 1, lower=0, upper=4, guarantee=kind)
        for kind in ("approximate", "probabilistic")
    ]
    assert clipped[0] <= free[0] * (1 + 1e-9)
    assert clipped[1] > 1.2 * free[1]


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="outside of its bounds"):
        TruncatedGeneralizedGaussian([0.5, 3.0], 1, 2, 0, 2)
    with pytest.raises(ConfigError, match="lower < upper"):
        BoundaryInflatedGeneralizedGaussian(0, 1, 2, 1, 0)
    with pytest.raises(ConfigError, match=r"power 0\.5"):
        TruncatedGeneralizedGaussian(0, 1, 0.5)
    with pytest.raises(BudgetError, match="delta"):
        generalized_gaussian_scale(1, 1, 2, 1)
    with pytest.raises(ConfigError, match="did you mean 'truncated'"):
        generalized_gaussian_delta(1, 1, 2, 1, bounding="truncate")  # type: ignore[arg-type]
    assert "777" not in repr(TruncatedGeneralizedGaussian(777.0, 1, 2))


def test_a_pair_in_a_sense_that_is_not_known_is_refused() -> None:
    law = TruncatedGeneralizedGaussian(1.0, 2.0, 2.0, 0.0, 10.0)
    with pytest.raises(ConfigError, match="unknown guarantee 'approx'"):
        pair_delta(law, law, 1.0, "approx")  # type: ignore[arg-type]
