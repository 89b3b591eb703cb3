"""Wasserstein-1 distances from the projected residual to the noise, and the floor of a sample."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from support.examples import examples
from support.places import GOLDEN
from topdown.errors import ConfigError
from topdown.research.theory import (
    empirical_wasserstein_floor,
    projected_geometric,
    projected_laplace,
    wasserstein_to_noise,
)


@pytest.mark.parametrize("row", GOLDEN["S2_wasserstein1_laplace"]["rows"], ids=lambda r: f"n={r['n']}")
def test_laplace_distance_equals_the_reference(row: dict) -> None:
    assert wasserstein_to_noise(row["n"], 1) == pytest.approx(row["w1"], rel=1e-9)
    assert wasserstein_to_noise(n=row["n"], scale=12.5, law="laplace") == pytest.approx(12.5 * row["w1"], rel=1e-9)


@pytest.mark.parametrize(
    ("n", "value"),
    [
        (2, 0.25),
        (3, 0.141620244864),
        (5, 0.090189506916),
        (15, 0.037368962080),
        (33, 0.018648011292),
        (62, 0.010427052570),
        (254, 0.002717719169),
        (1000, 0.000712440975),
    ],
)
def test_laplace_distance_at_further_sizes(n: int, value: float) -> None:
    assert wasserstein_to_noise(n, 1.0) == pytest.approx(value, abs=6e-13)


def test_laplace_distance_is_the_integral_of_the_difference() -> None:
    law = projected_laplace(4, 1.0)
    for low, high in ((0.0, 0.765847005104537), (0.765847005104537, 60.0)):
        part = integrate.quad(lambda x: float(law.sf(x)) - 0.5 * math.exp(-x), low, high, epsabs=1e-13)[0]
        assert part > 0 if low == 0.0 else part < 0
    total = integrate.quad(
        lambda x: 2.0 * abs(float(law.sf(x)) - 0.5 * math.exp(-x)), 0.0, 60.0, points=[0.765847005104537], epsabs=1e-12
    )[0]
    assert wasserstein_to_noise(4, 1.0) == pytest.approx(total, rel=1e-9)


@given(n=st.integers(2, 3000), scale=st.floats(0.01, 1e4))
@examples(60)
def test_laplace_distance_falls_with_the_family_and_grows_with_the_scale(n: int, scale: float) -> None:
    assert wasserstein_to_noise(n + 1, scale) < wasserstein_to_noise(n, scale)
    assert wasserstein_to_noise(n, scale) == pytest.approx(scale * wasserstein_to_noise(n, 1.0), rel=1e-12)


def test_laplace_distance_tends_to_2_over_e_n() -> None:
    share = [n * wasserstein_to_noise(n, 1.0) * math.e / 2.0 for n in (10**4, 10**5, 10**6)]
    assert share[0] < share[1] < share[2] < 1.0
    assert share[2] == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("row", GOLDEN["S2_wasserstein1_geometric"]["rows"], ids=lambda r: f"{r['eps']}-{r['n']}")
def test_geometric_distances_equal_the_reference(row: dict) -> None:
    n, scale = row["n"], 1.0 / row["eps"]
    assert wasserstein_to_noise(n, scale, "geometric") == pytest.approx(row["w1_vs_double_geometric"], rel=1e-7)
    to_laplace = wasserstein_to_noise(n, scale, law="geometric", reference="laplace")
    assert to_laplace == pytest.approx(row["w1_vs_laplace"], rel=1e-7)


@pytest.mark.parametrize(("n", "scale"), [(2, 0.3), (3, 1.0), (6, 2.0)])
def test_geometric_distance_equals_scipy_on_the_two_lattices(n: int, scale: float) -> None:
    law = projected_geometric(n, scale)
    points = law.support(1e-17)
    k = np.arange(-math.ceil(45 * scale), math.ceil(45 * scale) + 1)
    noise = np.exp(-np.abs(k) / scale)
    expected = stats.wasserstein_distance(points, k, law.pmf(points), noise)
    assert wasserstein_to_noise(n, scale, "geometric") == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("law", ["laplace", "geometric"])
def test_an_only_child_is_as_far_as_the_noise_is_wide(law: str) -> None:
    expected = 4.0 if law == "laplace" else 2.0 * math.exp(-0.25) / (1.0 - math.exp(-0.5))
    assert wasserstein_to_noise(1, 4.0, law) == pytest.approx(expected, rel=1e-14)
    assert wasserstein_to_noise(1, 4.0, law, reference="laplace") == 4.0


def test_a_wide_geometric_law_is_as_far_as_laplace() -> None:
    # Z/n against a continuous law: the lattice's own share is of order 1/n counts
    assert wasserstein_to_noise(10, 500.0, "geometric", reference="laplace") == pytest.approx(
        wasserstein_to_noise(10, 500.0), rel=1e-4
    )


def test_floor_equals_the_reference() -> None:
    block = GOLDEN["S2_empirical_w1_floor"]
    assert empirical_wasserstein_floor(1, 1.0) == pytest.approx(block["const"], rel=1e-12)
    assert empirical_wasserstein_floor(400, 3.0) == pytest.approx(block["const"] * 3.0 / 20.0, rel=1e-12)
    for draws, value in block["exact_finite_N"].items():
        # the reference is a quadrature with about 7 digits
        assert empirical_wasserstein_floor(int(draws), 1.0, method="exact") == pytest.approx(value, rel=2e-7)


def test_exact_floor_of_one_and_two_draws() -> None:
    # N = 1: E integral 2 F (1 - F) = E|X - X'| = 3/2 scale
    assert empirical_wasserstein_floor(1, 2.0, method="exact") == pytest.approx(3.0, rel=1e-13)
    # N = 2: E|B/2 - p| = 2 p (1 - p)^2 for p < 1/2
    p = np.polynomial.legendre.leggauss(20)
    x = 0.25 * (p[0] + 1.0)
    assert empirical_wasserstein_floor(2, 1.0, method="exact") == pytest.approx(
        2.0 * float(0.25 * p[1] @ (2.0 * (1.0 - x) ** 2)), rel=1e-12
    )
    a = math.exp(-0.5)
    k = np.arange(-200, 201)
    noise = np.exp(-np.abs(k) / 2.0) * (1.0 - a) / (1.0 + a)
    below = np.cumsum(noise)
    assert empirical_wasserstein_floor(1, 2.0, "geometric", method="exact") == pytest.approx(
        float(2.0 * (below * (1.0 - below)).sum()), rel=1e-12
    )


@pytest.mark.parametrize("law", ["laplace", "geometric"])
def test_floor_is_what_samples_of_the_noise_show(law: str) -> None:
    generator = np.random.default_rng(3)
    draws, repeats, scale = 60, 2000, 2.0
    if law == "laplace":
        samples = generator.laplace(scale=scale, size=(repeats, draws))
        grid = np.linspace(-60.0, 60.0, 4001)
        truth = stats.laplace(scale=scale).cdf(grid)
    else:
        p = -math.expm1(-1.0 / scale)
        samples = (generator.geometric(p, (repeats, draws)) - generator.geometric(p, (repeats, draws))).astype(float)
        grid = np.arange(-100.0, 100.0)
        truth = stats.dlaplace(1.0 / scale).cdf(grid)
    step = grid[1] - grid[0]
    distance = np.array(
        [np.abs(np.searchsorted(np.sort(s), grid, side="right") / draws - truth).sum() * step for s in samples]
    )
    expected = empirical_wasserstein_floor(draws, scale, law, method="exact")
    error = distance.std(ddof=1) / math.sqrt(repeats)
    assert abs(distance.mean() - expected) < 4.0 * error
    assert abs(distance.mean() - 1.1 * expected) > 6.0 * error
    assert empirical_wasserstein_floor(10**6, scale, law, method="exact") == pytest.approx(
        empirical_wasserstein_floor(10**6, scale, law), rel=1e-2
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wasserstein_to_noise(3, 1.0, "gaussian"), "gaussian"),
        (lambda: wasserstein_to_noise(3, 1.0, reference="normal"), "normal"),
        (lambda: wasserstein_to_noise(0, 1.0), "below 1"),
        (lambda: wasserstein_to_noise(3, 0.0), "positive"),
        (lambda: empirical_wasserstein_floor(0, 1.0), "below 1"),
        (lambda: empirical_wasserstein_floor(5, 1.0, method="fast"), "fast"),
    ],
)
def test_arguments_that_cannot_be_meant_are_named(call: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()  # type: ignore[operator]
