"""The continuous laws of studies: closed forms, inversion, frequencies."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from topdown.errors import ConfigError
from topdown.noise import Gaussian, GeneralizedGaussian, Laplace, SeededSource


def _cubic(scale: Any) -> GeneralizedGaussian:
    return GeneralizedGaussian(scale, 3)


ORACLES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (Laplace, stats.laplace),
    (Gaussian, stats.norm),
    (_cubic, partial(stats.gennorm, 3)),
]


@pytest.mark.parametrize(("make", "oracle"), ORACLES)
@pytest.mark.parametrize("scale", [0.01, 1, Fraction(10, 3), "1e6"])
def test_beside_scipy(make: Callable[..., Any], oracle: Callable[..., Any], scale: Any) -> None:
    law, other = make(scale), oracle(scale=float(Fraction(scale)))
    z = np.array([-30.0, -5.0, -0.7, 0.0, 1e-9, 2.0, 30.0]) * float(Fraction(scale))
    q = np.array([1e-300, 1e-5, 0.2, 0.5, 0.9, 1 - 1e-10])
    for name in ("pdf", "cdf", "sf"):
        assert getattr(law, name)(z) == pytest.approx(getattr(other, name)(z), rel=1e-12, abs=0)
    assert law.ppf(q) == pytest.approx(other.ppf(q), rel=1e-12, abs=0)
    assert law.variance == pytest.approx(other.var(), rel=1e-14)
    assert law.std == pytest.approx(other.std(), rel=1e-14)
    x = np.linspace(0.0, 50.0, 500_001) * float(Fraction(scale))
    assert law.mean_abs == pytest.approx(2 * np.trapezoid(x * law.pdf(x), x), rel=1e-8)
    assert law.mean == 0.0


@pytest.mark.parametrize(("make", "oracle"), ORACLES)
def test_frequencies_reject_ten_percent(make: Callable[..., Any], oracle: Callable[..., Any]) -> None:
    drawn = make(10).sample(100_000, SeededSource((1, make.__name__)))
    assert drawn.dtype == np.float64
    assert stats.kstest(drawn, oracle(scale=10).cdf).pvalue > 1e-9
    # The largest difference of the cdfs at 10 % is 0.018, far above the 0.011 of p = 1e-10 at this size.
    assert stats.kstest(drawn, oracle(scale=11).cdf).pvalue < 1e-10
    assert stats.kstest(drawn, oracle(scale=9).cdf).pvalue < 1e-10


@pytest.mark.parametrize("make", [Laplace, Gaussian, _cubic])
def test_the_rest_of_the_contract(make: Callable[..., Any]) -> None:
    law = make(2)
    assert not law.fit_for_release
    assert law == make(2.0) == make("2")
    assert hash(law) == hash(make(2.0))
    assert law.sample((3, 4), SeededSource(0)).shape == (3, 4)
    assert law.sample(size=0, source=SeededSource(0)).shape == (0,)
    assert np.array_equal(law.sample(50_000, SeededSource(1)), law.sample((5, 10_000), SeededSource(1)).ravel())
    assert np.isfinite(law.sample(100_000, SeededSource(2))).all()
    assert law.ppf(0.0) == -math.inf
    assert law.ppf(1.0) == math.inf
    assert np.isnan(law.ppf([-0.1, 1.1, math.nan])).all()
    assert law.cdf([-math.inf, math.inf]).tolist() == [0.0, 1.0]
    assert law.pdf([-math.inf, math.inf]).tolist() == [0.0, 0.0]
    assert isinstance(law.cdf(0), float)
    for bad in (0, -1, math.nan, math.inf, "x", None, 1e200, "1e-400"):
        with pytest.raises(ConfigError):
            make(bad)
    with pytest.raises(ConfigError, match="source"):
        law.sample(3, 7)


def test_draws_are_symmetric_to_the_last_bit() -> None:
    """A uniform number and its complement give opposite draws."""

    class Pair:
        fit_for_release = False

        def read(self, nbytes: int) -> bytes:
            u = np.random.default_rng(5).integers(0, 2**64, nbytes // 16, dtype=np.uint64)
            return np.concatenate([u, ~u]).tobytes()

    drawn = Laplace(3).sample(2000, Pair())
    assert np.array_equal(drawn[:1000], -drawn[1000:])


def test_the_generalised_gaussian_law_is_laplace_at_1_and_gaussian_at_2() -> None:
    x, q = np.linspace(-20.0, 20.0, 41), np.array([1e-12, 0.3, 0.5, 0.99])
    for law, known in (
        (GeneralizedGaussian(3, 1), Laplace(3)),
        (GeneralizedGaussian(3, 2), Gaussian(3 / math.sqrt(2))),
    ):
        for name in ("pdf", "cdf", "sf"):
            assert getattr(law, name)(x) == pytest.approx(getattr(known, name)(x), rel=1e-11)
        assert law.ppf(q) == pytest.approx(known.ppf(q), rel=1e-11)
        assert (law.variance, law.mean_abs) == pytest.approx((known.variance, known.mean_abs))
    for power in (0.99, 101, "x", math.nan):
        with pytest.raises(ConfigError):
            GeneralizedGaussian(1, power)


@pytest.mark.parametrize("power", [40, 100])
def test_a_large_power_is_nearly_uniform_near_0(power: float) -> None:
    law = GeneralizedGaussian(3, power)
    x = np.array([1e-300, 1e-20, 1e-4, 0.0015, 0.03, 0.6])  # (x/3)^100 is below the range of doubles up to 0.0017
    density = law.pdf(0.0)
    assert law.cdf(x) - 0.5 == pytest.approx(density * x, rel=1e-10, abs=2e-16)
    assert law.sf(-x) - 0.5 == pytest.approx(density * x, rel=1e-10, abs=2e-16)
    q = np.array([0.5 + 1e-12, 0.5001, 0.51, 0.6])
    assert law.ppf(q) == pytest.approx((q - 0.5) / density, rel=1e-10)
    assert law.ppf(0.5) == 0.0
