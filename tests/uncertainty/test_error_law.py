"""The law of pivots against inverted characteristic functions, which know nothing of main terms and rests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import laplace, norm

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, Tree
from topdown.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Law
from topdown.noise.law import pitch_of
from topdown.projection.cells.equality import least_squares
from topdown.uncertainty.laws.error_law import Shape, Term, tail
from topdown.uncertainty.laws.error_moments import main_terms, moments
from topdown.uncertainty.laws.known_noise import KnownNoise, fourth_cumulant
from topdown.uncertainty.laws.shared_laws import groups
from topdown.uncertainty.posterior import noise_at

ALPHAS = np.array([0.10, 0.05, 0.01])


def log_characteristic(law: DiscreteLaplace | DiscreteGaussian, t: FloatArray) -> FloatArray:
    if isinstance(law, DiscreteLaplace):
        a = np.exp(-float(1 / law.scale))
        return -np.log1p(4.0 * a * np.sin(t / 2.0) ** 2 / (1.0 - a) ** 2)
    t = np.abs((t + np.pi) % (2 * np.pi) - np.pi)
    spread = float(law.sigma2)
    terms = [np.exp(-spread * (t + 2 * np.pi * k) ** 2 / 2.0) for k in (-1, 0, 1)]
    return np.log(np.maximum(sum(terms) / (1.0 + 2.0 * np.exp(-2.0 * np.pi**2 * spread)), 1e-300))


def beyond(x: FloatArray, weights: FloatArray, laws: list[Law], sd: float) -> FloatArray:
    """P(sum of weights x noise > x) by Gil-Pelaez's formula for a law that repeats itself 80 deviations away."""
    j = np.arange(1 << 17)
    step = np.pi / (40.0 * sd + 2.0 * x.max())
    t = (2 * j + 1) * step
    pairs = [(round(abs(w), 12), law) for w, law in zip(weights, laws, strict=True)]
    log = sum(pairs.count(one) * log_characteristic(one[1], one[0] * t) for one in set(pairs) if one[0] > 0)
    size = np.exp(log) / (2 * j + 1)
    return np.array([0.5 - 2.0 / np.pi * float((np.sin(t * one) * size).sum()) for one in x])


TREE = Tree.from_family_sizes([[3], [4, 2, 1], [5, 1, 3, 2, 4, 1, 3]])


@pytest.mark.system
@pytest.mark.parametrize("mechanism", [lambda s: DiscreteLaplace(str(1 / s)),
                                       lambda s: DiscreteGaussian.from_variance(str(1 / (2 * s)))],
                         ids=["geometric", "discrete Gaussian"])  # fmt: skip
@pytest.mark.parametrize("top", range(4))
def test_miss_rates_are_nominal_where_one_level_has_nearly_all_of_the_budget(mechanism, top: int) -> None:  # type: ignore[no-untyped-def]
    """Within .001; where the law has a step at the quantile, no more than nominal, and more just before the step."""
    shares = [0.998 if level == top else 0.002 / 3 for level in range(4)]
    laws = [mechanism(share) for share in shares]
    levels = np.repeat(np.arange(4), np.diff(TREE.level_offsets))
    of_level = np.array([law.variance for law in laws])
    cumulants = np.array([fourth_cumulant(law) for law in laws])
    variance = of_level[levels]
    found = moments(variance, cumulants[levels], TREE)
    shapes = groups(found, main_terms(found, variance, of_level, TREE), KnownNoise(tuple(laws)))
    weights = least_squares(np.eye(TREE.n_nodes), np.broadcast_to(variance, (TREE.n_nodes,) * 2), TREE).T
    seen = set()
    for node in range(TREE.n_nodes):
        if (round(found.variance[node], 6), shapes.group[node]) in seen:
            continue
        seen.add((round(found.variance[node], 6), shapes.group[node]))
        law, sd = tail(shapes.shapes[shapes.group[node]]), float(np.sqrt(found.variance[node]))
        reach = law.quantile(ALPHAS / 2) * sd
        before = reach - 4.0 * law.x[1] * sd
        of_all = beyond(np.concatenate([reach, before]), weights[node], [laws[k] for k in levels], sd)
        missed, more = 2.0 * of_all.reshape(2, 3)
        assert (missed <= ALPHAS + 0.001).all(), node
        stepped = more - missed > 0.05 * ALPHAS
        assert (np.where(stepped, more, missed) >= ALPHAS - 0.001).all(), node
    assert len(seen) > 5


def test_a_rest_of_two_moments_is_the_sum_of_a_normal_and_a_laplace_variable() -> None:
    # Excess 1: 12 b^4 = 1 and sigma^2 = 1 - 2 b^2.
    b = (1 / 12) ** 0.25
    s = np.sqrt(1 - 2 * b * b)
    law = tail(Shape((), 1.0))
    for x in (0.5, 1.7, 3.0, 6.0):
        expected, _ = quad(
            lambda t, x=x: norm.pdf(t, scale=s) * laplace.sf(x - t, scale=b), -12 * s, 12 * s, epsabs=1e-14
        )
        assert law.quantile(np.array([expected]))[0] == pytest.approx(x, abs=2e-4)


def test_a_rest_of_more_excess_than_laplace_has_its_moments() -> None:
    law = tail(Shape((), 9.0))
    mass = -np.diff(np.exp(law.log_tail))
    middle = (law.x[1:] + law.x[:-1]) / 2
    assert 2 * (mass * middle**2).sum() == pytest.approx(1.0, abs=1e-3)
    assert 2 * (mass * middle**4).sum() == pytest.approx(12.0, rel=2e-3)


@pytest.mark.parametrize("scale", ["0.7", "3", "40", "2000"])
def test_a_pivot_that_is_one_draw_has_its_quantiles(scale: str) -> None:
    law = DiscreteLaplace(scale)
    p = np.array([0.25, 0.05, 0.005, 1e-6])
    found = tail(Shape((Term(law, 1, 1.0),), 0.0)).quantile(p) * law.std
    exact = np.array([law.ppf(1 - one) for one in p])
    assert (found >= exact - (1e-9 if law.scale < 100 else 0.008) * law.std).all()
    np.testing.assert_allclose(found, exact, atol=1.5 * law.std / 128)


def test_a_sum_of_draws_has_its_quantiles() -> None:
    law = DiscreteLaplace(1)
    k = np.arange(-60, 61)
    two = np.convolve(law.pmf(k), law.pmf(k))
    sf = two[::-1].cumsum()[::-1]
    values = np.arange(-120, 121)
    for p in (0.05, 0.005):
        exact = values[np.argmax(sf <= p) - 1]
        found = tail(Shape((Term(law, 2, 1.0),), 0.0)).quantile(np.array([p]))[0] * np.sqrt(2 * law.variance)
        assert exact <= found <= exact + 0.02


def test_continuous_noise_has_its_quantiles() -> None:
    found = tail(Shape((Term(Laplace(1.0), 1, 1.0),), 0.0)).quantile(np.array([0.05, 1e-6, 0.0]))
    np.testing.assert_allclose(found, [-np.log(0.1) / np.sqrt(2), -np.log(2e-6) / np.sqrt(2), np.inf], rtol=1e-3)


def test_the_chance_of_as_much_or_more_is_never_understated() -> None:
    law = tail(Shape((Term(DiscreteLaplace(2), 1, 1.0),), 0.0))
    unit = 1 / DiscreteLaplace(2).std
    for k in (1, 4, 9):
        exact = np.log(DiscreteLaplace(2).sf(k - 1))
        assert law.at_least(np.array([k * unit]))[0] == pytest.approx(exact, abs=1e-9)
        assert law.at_least(np.array([k * unit + 0.3]))[0] >= np.log(DiscreteLaplace(2).sf(k))


def test_a_law_without_a_lattice_or_a_density_is_neither() -> None:
    """It would be taken for one of any value."""

    class Unheard:
        variance = std = 1.0

    law: Any = Unheard()
    assert (pitch_of(DiscreteLaplace(2, grid_bits=3)), pitch_of(Laplace(1.0)), pitch_of(Gaussian(1.0))) == (0.125, 0, 0)
    with pytest.raises(ConfigError, match="Unheard is neither a law on a lattice nor one with a density"):
        pitch_of(law)
    with pytest.raises(ConfigError, match="Unheard is neither a law on a lattice nor one with a density"):
        noise_at(law, np.zeros(1))
