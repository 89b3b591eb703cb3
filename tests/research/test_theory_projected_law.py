"""Theorem 5: the law of one projected coordinate, for Laplace and for double geometric noise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from support.examples import examples
from support.places import GOLDEN
from topdown.errors import ConfigError
from topdown.research.theory import projected_geometric, projected_laplace, projected_variance

sizes = st.integers(2, 400)
scales = st.floats(0.05, 50.0)


@pytest.mark.parametrize("row", GOLDEN["S2_marginal_distribution"]["rows"], ids=lambda r: f"n={r['n']}")
def test_density_and_tail_equal_the_reference(row: dict) -> None:
    law = projected_laplace(row["n"], row["lam"])
    np.testing.assert_allclose(law.pdf(row["x"]), row["pdf"], rtol=1e-10)
    np.testing.assert_allclose(law.sf(row["x"]), row["sf"], rtol=1e-10)
    assert law.mean_abs == pytest.approx(row["mean_abs"], rel=1e-10)
    wide = projected_laplace(n=row["n"], scale=Fraction(37, 10))
    np.testing.assert_allclose(wide.sf(np.array(row["x"]) * 3.7), row["sf"], rtol=1e-10)
    np.testing.assert_allclose(wide.pdf(np.array(row["x"]) * 3.7) * 3.7, row["pdf"], rtol=1e-10)


@pytest.mark.parametrize("row", GOLDEN["S2_marginal_variance"]["rows"], ids=lambda r: f"n={r['n']}")
def test_variance_correlation_and_kurtosis_equal_the_reference(row: dict) -> None:
    law = projected_laplace(row["n"], row["lam"])
    assert law.variance == pytest.approx(row["var_laplace"], rel=1e-12)
    assert law.correlation == pytest.approx(row["corr_between_components"], rel=1e-12)
    assert law.kurtosis == pytest.approx(row["excess_kurtosis_laplace"], rel=1e-12)
    assert projected_geometric(row["n"], 1.0 / row["eps"]).variance == pytest.approx(row["var_geometric"], rel=1e-12)
    assert projected_variance(row["n"], row["lam"]) == pytest.approx(row["var_laplace"], rel=1e-12)
    assert projected_variance(row["n"], row["lam"], "geometric") == pytest.approx(row["var_geometric"], rel=1e-12)


@pytest.mark.parametrize(
    ("n", "laplace", "geometric"), [(15, 186.667, 186.511), (254, 199.213, 199.047)], ids=["Arizona", "Texas"]
)
def test_the_papers_two_states(n: int, laplace: float, geometric: float) -> None:
    assert projected_variance(n, 10) == pytest.approx(laplace, abs=5e-4)
    assert projected_variance(n, 10, law="geometric") == pytest.approx(geometric, abs=5e-4)


@pytest.mark.parametrize("n", [2, 3, 4, 19, 21, 22, 254])
def test_density_is_the_inverse_of_the_characteristic_function(n: int) -> None:
    law, al, be = projected_laplace(n, 1.0), 1.0 - 1.0 / n, 1.0 / n

    def phi(t: float) -> float:
        return float(np.exp(-np.log1p((al * t) ** 2) - (n - 1) * np.log1p((be * t) ** 2)))

    for x in (0.0, 0.3, 1.7):
        if x == 0.0:
            value = integrate.quad(phi, 0.0, math.inf, epsabs=1e-12, limit=400)[0] / math.pi
        else:
            value = integrate.quad(phi, 0.0, math.inf, weight="cos", wvar=x, epsabs=1e-11, limlst=400)[0] / math.pi
        assert float(law.pdf(x)) == pytest.approx(value, rel=1e-7)


@pytest.mark.parametrize("n", [2, 3, 5, 33, 2000])
def test_moments_of_the_density_are_the_closed_forms(n: int) -> None:
    law = projected_laplace(n, 2.0)
    x, weight = np.polynomial.legendre.leggauss(60)
    edges = np.concatenate((np.linspace(0.0, 4.0, 33), np.linspace(4.5, 140.0, 140)))
    half = 0.5 * np.diff(edges)[:, None]
    points = (edges[:-1, None] + half * (1.0 + x)).ravel()
    mass = (half * weight).ravel() * law.pdf(points)
    assert 2.0 * mass.sum() == pytest.approx(1.0, rel=1e-12)
    assert 2.0 * mass @ points == pytest.approx(law.mean_abs, rel=1e-12)
    assert 2.0 * mass @ points**2 == pytest.approx(law.variance, rel=1e-12)
    assert 2.0 * mass @ points**4 / law.variance**2 - 3.0 == pytest.approx(law.kurtosis, rel=1e-10)
    assert float(law.excess(1.5)) == pytest.approx(mass @ np.maximum(points - 1.5, 0.0), rel=1e-11)


@given(n=sizes, scale=scales, q=st.floats(1e-12, 1.0 - 1e-12))
@examples(60)
def test_quantile_inverts_the_distribution(n: int, scale: float, q: float) -> None:
    law = projected_laplace(n, scale)
    assert float(law.cdf(law.ppf(q))) == pytest.approx(q, rel=1e-12)


@given(n=sizes, scale=scales, x=st.floats(-300.0, 300.0))
@examples(60)
def test_laplace_law_is_symmetric_and_adds_up(n: int, scale: float, x: float) -> None:
    law = projected_laplace(n, scale)
    assert float(law.pdf(x)) == float(law.pdf(-x))
    assert float(law.cdf(-x)) == float(law.sf(x))
    assert float(law.cdf(x) + law.sf(x)) == pytest.approx(1.0, rel=1e-15)


def test_extreme_quantiles_and_sizes_stay_exact() -> None:
    for n in (2, 3, 20, 254, 5000, 10**6):
        law = projected_laplace(n, 10.0)
        q = np.array([1e-300, 1e-30, 0.25, 0.4999])
        np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-12)
        assert float(law.sf(0.0)) == pytest.approx(0.5, rel=1e-14)  # A + sum of d_j
    assert projected_laplace(3, 1.0).ppf([0.0, 0.5, 1.0]).tolist() == [-math.inf, 0.0, math.inf]


def test_large_families_tend_to_the_noise_law() -> None:
    law = projected_laplace(10**6, 1.0)
    x = np.array([0.05, 0.5, 1.0, 4.0])
    np.testing.assert_allclose(law.sf(x), stats.laplace.sf(x), rtol=1e-5)
    assert law.kurtosis == pytest.approx(3.0, abs=1e-5)


def test_sample_of_the_projection_follows_the_law_and_no_scale_10_percent_off() -> None:
    generator = np.random.default_rng(20240611)
    for n in (2, 7, 40):
        eta = generator.laplace(scale=3.0, size=(40_000, n))
        residual = eta[:, 0] - eta.mean(axis=1)
        assert stats.kstest(residual, projected_laplace(n, 3.0).cdf).pvalue > 1e-9
        for wrong in (2.7, 3.3):
            assert stats.kstest(residual, projected_laplace(n, wrong).cdf).pvalue < 1e-9
        if n < 40:  # beyond, 40,000 draws cannot tell the noise law itself
            assert stats.kstest(residual, stats.laplace(scale=3.0).cdf).pvalue < 1e-9


def test_shapes_scalars_and_missing_values() -> None:
    law = projected_laplace(4, 1)
    assert np.ndim(law.pdf(0.5)) == 0
    assert law.pdf([[0.0, 1.0], [2.0, 3.0]]).shape == (2, 2)
    assert law.pdf([]).shape == (0,)
    assert math.isnan(float(law.cdf(math.nan)))
    assert [float(law.cdf(x)) for x in (-math.inf, math.inf)] == [0.0, 1.0]
    assert law == projected_laplace(4, 1.0)
    assert law.mean == 0.0


def test_family_of_one_is_the_point_0() -> None:
    for law in (projected_laplace(1, 5.0), projected_geometric(1, 5.0)):
        assert law.variance == 0.0
        assert law.mean_abs == 0.0
        assert law.cdf([-0.1, 0.0, 0.1]).tolist() == [0.0, 1.0, 1.0]
        assert law.sf([-0.1, 0.0, 0.1]).tolist() == [1.0, 0.0, 0.0]
        assert float(law.ppf(0.3)) == 0.0
        assert math.isnan(law.correlation)
    assert projected_geometric(1, 5.0).pmf([0, 1]).tolist() == [1.0, 0.0]
    assert projected_variance(1, 5.0) == 0.0


@pytest.mark.parametrize("make", [projected_laplace, projected_geometric, projected_variance])
@pytest.mark.parametrize(
    ("n", "scale", "message"),
    [
        (0, 1.0, "below 1"),
        (-3, 1.0, "below 1"),
        (2.5, 1.0, "not whole"),
        ("x", 1.0, "not a number"),
        (3, 0.0, "positive"),
        (3, -1.0, "positive"),
        (3, math.nan, "positive"),
        (3, math.inf, "positive"),
        (3, "wide", "not a number"),
    ],
)
def test_arguments_that_cannot_be_meant_are_named(make: object, n: object, scale: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(n, scale)  # type: ignore[operator]


def test_levels_outside_of_0_and_1_are_refused() -> None:
    for law in (projected_laplace(3, 1.0), projected_geometric(3, 1.0)):
        with pytest.raises(ConfigError, match="outside"):
            law.ppf(1.5)


def lattice_law_by_convolution(n: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """n e_1 = (n - 1) k_1 - sum of the others, by plain convolutions of the truncated noise."""
    reach = math.ceil(45.0 * scale)
    k = np.arange(-reach, reach + 1)
    noise = np.exp(-np.abs(k) / scale) * math.tanh(0.5 / scale)
    spread = np.zeros((n - 1) * 2 * reach + 1)
    spread[:: n - 1] = noise
    law = spread
    for _ in range(n - 1):
        law = np.convolve(law, noise)
    top = (law.size - 1) // 2
    return np.arange(-top, top + 1), law


@pytest.mark.parametrize(("n", "scale"), [(2, 1.0), (3, 0.4), (3, 4.0), (4, 2.0), (7, 1.0), (12, 0.15)])
def test_geometric_law_equals_plain_convolution(n: int, scale: float) -> None:
    z, mass = lattice_law_by_convolution(n, scale)
    law = projected_geometric(n, scale)
    np.testing.assert_allclose(law.pmf(z / n), mass, rtol=1e-10, atol=1e-18)
    np.testing.assert_allclose(law.cdf(z / n), np.cumsum(mass), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(law.sf(z / n), np.cumsum(mass[::-1])[::-1] - mass, rtol=1e-9, atol=2e-15)
    assert law.mean_abs == pytest.approx(float(mass @ np.abs(z)) / n, rel=1e-12)
    assert law.variance == pytest.approx(float(mass @ z.astype(float) ** 2) / n**2, rel=1e-12)


@pytest.mark.parametrize("row", GOLDEN["S2_wasserstein1_geometric"]["rows"], ids=lambda r: f"{r['eps']}-{r['n']}")
def test_geometric_variance_and_mean_abs_equal_the_reference(row: dict) -> None:
    law = projected_geometric(row["n"], 1.0 / row["eps"])
    assert law.variance == pytest.approx(row["var"], rel=1e-10)
    assert law.mean_abs == pytest.approx(row["mean_abs"], rel=1e-10)
    points = law.support(1e-20)
    mass = law.pmf(points)
    assert mass.sum() == pytest.approx(1.0, rel=1e-12)
    assert mass @ points**2 == pytest.approx(row["var"], rel=1e-10)
    assert mass @ np.abs(points) == pytest.approx(row["mean_abs"], rel=1e-10)


@given(n=st.integers(2, 60), scale=st.floats(0.05, 20.0), q=st.floats(1e-9, 1.0 - 1e-9))
@examples(60)
def test_geometric_quantile_is_the_first_point_that_reaches_the_level(n: int, scale: float, q: float) -> None:
    law = projected_geometric(n, scale)
    x = float(law.ppf(q))
    assert float(law.cdf(x)) >= q
    assert float(law.cdf(x - law.spacing)) < q
    assert float(law.cdf(-x)) == pytest.approx(float(law.sf(x) + law.pmf(x)), rel=1e-9, abs=1e-15)


def test_geometric_tail_continues_beyond_its_table() -> None:
    law, a = projected_geometric(3, 2.0), math.exp(-0.5)
    far = np.array([200.0, 400.0, 600.0]) / 3 * 2  # whole blocks of n - 1 = 2 lattice points
    ratio = law.pmf(far[1:]) / law.pmf(far[:-1])
    np.testing.assert_allclose(ratio, a**200.0, rtol=1e-10)
    np.testing.assert_allclose(law.sf(far[1:]) / law.sf(far[:-1]), a**200.0, rtol=1e-10)


def test_points_off_the_lattice_have_no_mass() -> None:
    law = projected_geometric(3, 1.0)
    assert law.pmf([0.5, 0.1, 1.0 / 3.0 + 1e-3]).tolist() == [0.0, 0.0, 0.0]
    assert float(law.cdf(0.5)) == float(law.cdf(1.0 / 3.0))
    assert float(law.cdf(1.0 / 3.0)) > float(law.cdf(0.3))
    assert all(float(law.pmf(k / 3)) > 0.0 for k in range(-50, 51))


def test_sample_of_geometric_projection_follows_the_law_and_no_scale_10_percent_off() -> None:
    generator = np.random.default_rng(5)
    n, epsilon, draws = 5, 0.5, 40_000
    p = -math.expm1(-epsilon)
    noise = generator.geometric(p, (draws, n)) - generator.geometric(p, (draws, n))
    residual = n * noise[:, 0] - noise.sum(axis=1)
    edges = np.arange(-60, 61, 5)  # lattice units
    seen = np.histogram(residual, bins=np.concatenate(([-np.inf], edges + 0.5, [np.inf])))[0]
    for scale, right in ((2.0, True), (1.8, False), (2.2, False)):
        below = projected_geometric(n, scale).cdf(edges / n)
        expected = draws * np.diff(np.concatenate(([0.0], below, [1.0])))
        assert bool(stats.chisquare(seen, expected).pvalue > 1e-9) is right


def test_a_lattice_beyond_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match="lattice points"):
        projected_geometric(10, 1e7).pmf(0.0)
