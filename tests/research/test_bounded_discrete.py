"""Whole-number laws with bounds: exact probabilities, moments, and exact draws that can be released."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from support.examples import examples
from topdown.errors import ConfigError
from topdown.noise.exact.discrete import DiscreteLaplace
from topdown.noise.randomness import SecureSource, SeededSource
from topdown.research.bounded.discrete_laplace import BoundaryInflatedDiscreteLaplace, TruncatedDiscreteLaplace

LAWS = (TruncatedDiscreteLaplace, BoundaryInflatedDiscreteLaplace)


def masses(law, s, scale, low, high):
    """P(X = k) for k in low..high at the working precision, from the definition."""
    a = mp.e ** (-1 / mp.mpf(scale))
    inner = [(1 - a) / (1 + a) * a ** abs(k - s) for k in range(low, high + 1)]
    if law is TruncatedDiscreteLaplace:
        total = mp.fsum(inner)
        return [m / total for m in inner]

    def reach(d):
        return a**d / (1 + a) if d > 0 else 1 - a ** (1 - d) / (1 + a)

    inner[0], inner[-1] = reach(s - low), reach(high - s)
    return inner if low < high else [mp.mpf(1)]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [0.05, 0.7, 3, 40.0, 1e6, 1e12])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 8), (0, 60), (5, 5)])
def test_probabilities_and_moments_from_the_definition(law, scale, low, high):
    with mp.workdps(400):
        for s in (low - 7, low, low + 1, (low + high) // 2, high - 1, high, high + 30):
            noise = law(s, scale, low, high)
            exact = masses(law, s, scale, low, high)
            k = np.arange(low, high + 1)
            pmf = np.atleast_1d(noise.pmf(k))
            for got, want in zip(pmf, exact, strict=True):
                assert abs(got - want) <= 1e-12 * want + mp.mpf("1e-300")
            bias = mp.fsum(m * (int(i) - s) for m, i in zip(exact, k, strict=True))
            mse = mp.fsum(m * (int(i) - s) ** 2 for m, i in zip(exact, k, strict=True))
            assert abs(noise.bias - bias) <= 1e-12 * abs(bias) + mp.mpf("1e-16") * (low == high or bias == 0)
            assert abs(noise.mse - mse) <= 1e-12 * mse
            assert abs(noise.variance - (mse - bias**2)) <= 1e-11 * (mse - bias**2) + mp.mpf("1e-300")
            assert abs(noise.mean - (s + bias)) <= 1e-12 * max(1, abs(s + bias))
            for i in range(high - low):
                below, above = mp.fsum(exact[: i + 1]), mp.fsum(exact[i + 1 :])
                assert abs(noise.cdf(low + i) - below) <= 1e-12 * below + mp.mpf("1e-16")
                assert abs(noise.sf(low + i) - above) <= 1e-12 * above + mp.mpf("1e-16")
                if law is TruncatedDiscreteLaplace:
                    assert abs(noise.cdf(low + i) - below) <= 1e-12 * below + mp.mpf("1e-300")
                    assert abs(noise.sf(low + i + 0.5) - above) <= 1e-12 * above + mp.mpf("1e-300")
            assert noise.cdf(high) == 1 == noise.sf(low - 1)
            assert noise.cdf(low - 1) == 0 == noise.sf(high)
            assert np.all(np.asarray(noise.pmf([low - 1, high + 1, low + 0.5])) == 0)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("centre", [2**53, -(2**53) - 1, 2**59 + 1, 2**60 - 40])
@pytest.mark.parametrize("scale", [0.7, 3, 1e6])
def test_laws_far_from_0_are_exact_too(law, centre, scale):
    with mp.workdps(60):
        for s, low, high in itertools.product((0, 1, 5, -9, 30), (0, -2, 3), (3, 7)):
            noise = law(centre + s, scale, centre + low, centre + high)
            exact = masses(law, s, scale, low, high)
            numbers = range(low, high + 1)
            bias = mp.fsum(m * (i - s) for m, i in zip(exact, numbers, strict=True))
            mse = mp.fsum(m * (i - s) ** 2 for m, i in zip(exact, numbers, strict=True))
            assert noise.bias == pytest.approx(float(bias), rel=1e-11, abs=1e-15)
            assert noise.mse == pytest.approx(float(mse), rel=1e-11)
            assert noise.variance == pytest.approx(float(mse - bias**2), rel=1e-10, abs=1e-15)
            assert noise.mean == pytest.approx(centre + s + float(bias), rel=1e-15)
            for number, mass in enumerate(exact):
                k = centre + low + number
                assert noise.pmf(k) == pytest.approx(float(mass), rel=1e-12)
                assert noise.cdf(np.int64(k)) == pytest.approx(float(mp.fsum(exact[: number + 1])), rel=1e-11)
                assert noise.sf([k]) == pytest.approx(float(mp.fsum(exact[number + 1 :])), rel=1e-11, abs=1e-15)
            assert noise.pmf(np.array([centre + low - 1, centre + high + 1])).tolist() == [0, 0]


@pytest.mark.parametrize("law", LAWS)
def test_far_bounds_that_differ_by_1_are_not_equally_far(law):
    noise = law(0, 2**52, -(2**59), 2**59 + 1)
    mirrored = law(0, 2**52, -(2**59) - 1, 2**59)
    one_side = law(2**59, 2**52, 0, 2**60 - 1)
    assert 0 < noise.bias == -mirrored.bias == -one_side.bias


def test_tails_beyond_all_bounds_that_can_be_given():
    for law in LAWS:
        noise = law(0, 2**52)
        with mp.workdps(30):
            tail = float(mp.exp(-mp.mpf(2.5 * 2**60) / 2**52) / (1 + mp.exp(-(mp.mpf(2) ** -52))))
        assert noise.sf(2.5 * 2**60) == pytest.approx(tail, rel=1e-10)
        assert noise.cdf(-2.5 * 2**60) == pytest.approx(tail, rel=1e-10)


def test_numbers_beyond_all_bounds_and_no_numbers():
    far = [-np.inf, np.inf, 1e300, np.nan]
    for law in LAWS:
        for noise in (law(2**60, 2**52), law(-(2**60), 2**52, -(2**60)), law(3, 2, 0, 9)):
            assert noise.pmf(far).tolist() == [0, 0, 0, 0]
            np.testing.assert_array_equal(noise.cdf(far), [0, 1, 1, np.nan])
            np.testing.assert_array_equal(noise.sf(far), [1, 0, 0, np.nan])
            assert noise.cdf(np.uint64(2**64 - 1)) == 1 == noise.sf(np.int64(-(2**63)))


@pytest.mark.parametrize("scale", [0.3, 5.0, 2000.0])
def test_half_lines_are_the_limit_of_far_bounds_and_no_bounds_the_plain_law(scale):
    far = int(60 * scale) + 100
    for law, s in itertools.product(LAWS, (-2, 0, 7)):
        for half, finite in (((0, None), (0, far)), ((None, 9), (-far, 9)), ((-np.inf, 9), (-far, 9))):
            one, other = law(s, scale, *half), law(s, scale, *finite)
            for name in ("bias", "mse", "variance", "mean"):
                assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-12)
            np.testing.assert_allclose(one.pmf(np.arange(9)), other.pmf(np.arange(9)), rtol=1e-12)
        plain, open_law = DiscreteLaplace(scale), law(s, scale)
        assert open_law.bias == 0
        assert open_law.mse == pytest.approx(plain.variance, rel=1e-12)
        np.testing.assert_allclose(open_law.pmf(s + np.arange(-4, 5)), plain.pmf(np.arange(-4, 5)), rtol=1e-12)
        np.testing.assert_allclose(open_law.cdf(s + np.arange(-4, 5)), plain.cdf(np.arange(-4, 5)), rtol=1e-12)


def test_atoms_hold_everything_beyond_the_bounds():
    noise = BoundaryInflatedDiscreteLaplace([3, -2, 40], 4, 0, 20)
    plain = DiscreteLaplace(4)
    np.testing.assert_allclose(noise.atoms[0], plain.cdf([-3, 2, -40]), rtol=1e-13)
    np.testing.assert_allclose(noise.atoms[1], plain.sf([16, 21, -21]), rtol=1e-13)
    assert BoundaryInflatedDiscreteLaplace(3, 4, 0).atoms[1] == 0.0


@given(s=st.integers(-50, 50), scale=st.floats(0.01, 1e5), low=st.integers(-50, 49), width=st.integers(1, 100))
@examples(150)
def test_signs_and_ranges(s, scale, low, width):
    s = min(max(s, low), low + width)
    for law in LAWS:
        noise = law(s, scale, low, low + width)
        side = np.sign(2 * low + width - 2 * s)
        assert np.sign(noise.bias) == side or min(s - low, low + width - s) > 700 * scale
        assert low <= noise.mean <= low + width
        assert 0 <= noise.variance <= width**2 / 4 * (1 + 1e-12)
    clipped, truncated = (law(s, scale, low, low + width) for law in reversed(LAWS))
    assert abs(clipped.bias) <= abs(truncated.bias) * (1 + 1e-12)


def p_value(draws, noise):
    """Chi-square of the draws against the law, sparse cells joined at the ends."""
    k = np.arange(draws.min(), draws.max() + 1)
    expected = draws.size * noise.pmf(k)
    inside = np.flatnonzero(expected >= 10)
    first, last = k[inside[0]], k[inside[-1]]
    observed = np.bincount(np.clip(draws, first, last) - first)
    probability = np.asarray(noise.pmf(np.arange(first, last + 1))).copy()
    probability[0], probability[-1] = noise.cdf(first), noise.sf(last - 1)
    return stats.chisquare(observed, draws.size * probability).pvalue


CASES = [
    (3, 10.0, 0, None),  # a count on a half-line: the untruncated proposal
    (3, 10.0, 0, 12),  # bounds within two scales: the uniform proposal
    (12, 10.0, 0, 12),
    (-40, 10.0, 0, 12),  # a location far outside
    (500, 300.0, 0, 599),  # just inside two scales
    (500, 300.0, 0, 600),  # at two scales
    (1, Fraction(7, 3), 0, 30),
    (-9, 4.0, None, 0),
]


@pytest.mark.parametrize(("s", "scale", "low", "high"), CASES)
@pytest.mark.parametrize("law", LAWS)
def test_draws_have_the_law_and_not_one_of_another_scale(law, s, scale, low, high):
    draws = law(s, scale, low, high).sample(200_000, SeededSource((3, s)))
    assert draws.dtype == np.int64
    assert p_value(draws, law(s, scale, low, high)) > 1e-9
    if s < -30 and law is BoundaryInflatedDiscreteLaplace:
        return  # almost all mass on one bound
    for wrong in (Fraction(8, 10), Fraction(12, 10)):
        assert p_value(draws, law(s, Fraction(scale) * wrong, low, high)) < 1e-9


def test_secure_draws_have_the_law():
    for law in LAWS:
        assert p_value(law(2, 6, 0, 9).sample(100_000, SecureSource()), law(2, 6, 0, 9)) > 1e-12


class Counting:
    """A source that counts what is asked of it."""

    fit_for_release = False

    def __init__(self):
        self.source, self.nbytes = SeededSource(2), 0

    def read(self, nbytes):
        self.nbytes += nbytes
        return self.source.read(nbytes)


def test_every_location_of_a_long_array_gets_its_own_law():
    locations = np.tile([0, 2, 30, -5], 100_000)
    for law in LAWS:
        draws = law(locations, 8, 0, np.tile([10, 10, 40, np.inf], 100_000)).sample(None, SeededSource(4))
        assert draws.shape == locations.shape
        for i, (s, high) in enumerate([(0, 10), (2, 10), (30, 40), (-5, None)]):
            assert p_value(draws[i::4], law(s, 8, 0, high)) > 1e-9


def test_narrow_bounds_do_not_stall_and_a_million_locations_are_quick():
    source = Counting()
    draws = TruncatedDiscreteLaplace(np.arange(1000), 10**9, 0, 1).sample(None, source)
    assert set(np.unique(draws)) == {0, 1}
    # An untruncated proposal would be accepted once in 10^9 times.
    assert source.nbytes < 1000 * 200
    source = Counting()
    many = TruncatedDiscreteLaplace(np.arange(1_000_000) % 50, 10, 0, None).sample(None, source)
    assert many.min() == 0
    assert source.nbytes < 10_000_000


def test_small_intervals_exactly():
    # Two points, a = exp(-1/scale): P(other)/P(location) = a, over many independent draws.
    for scale in (1, 5, 1000):
        draws = TruncatedDiscreteLaplace(1, scale, 0, 1).sample(400_000, SeededSource(scale))
        zero = 1 / (1 + np.exp(1 / scale))
        assert stats.binomtest(int((draws == 0).sum()), draws.size, zero).pvalue > 1e-9
    three = TruncatedDiscreteLaplace(0, 10**6, 0, 2).sample(300_000, SeededSource(8))
    assert stats.chisquare(np.bincount(three)).pvalue > 1e-9
    assert TruncatedDiscreteLaplace(99, 3, 4, 4).sample(5, SeededSource(1)).tolist() == [4] * 5


def test_extreme_parameters_do_not_overflow():
    top = 2**60
    for law in LAWS:
        draws = law([top, -top, 0], 2**52, None, None).sample((100, 3), SeededSource(1))
        assert (draws[:, 0] > 0).all()
        assert (draws[:, 1] < 0).all()
        draws = law([top, -top, 0], 2**52, -top, top).sample((100, 3), SeededSource(1))
        assert np.abs(draws).max() <= top
        draws = law(3, "1/100000", 0, 10).sample(1000, SeededSource(1))
        assert (draws == 3).all()
        for scale in ("1e-100", 0.001, 2**52):
            noise = law([-top, 0, top], scale, 0, None)
            assert np.isfinite([noise.mean, noise.bias, noise.mse, noise.variance]).all()
            assert np.isfinite(noise.pmf([0, 1, 2])).all()
            assert np.isfinite(noise.cdf([0, 1, 2])).all()


def test_noise_at_the_ends_of_int64_is_clipped_before_it_is_added(monkeypatch):
    ends = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    monkeypatch.setattr(DiscreteLaplace, "sample", lambda self, size, source: ends)
    draws = BoundaryInflatedDiscreteLaplace([-(2**60), 2**60], 5, -(2**60), 2**60).sample(None, SeededSource(1))
    assert draws.tolist() == [-(2**60), 2**60]


def test_argument_forms_and_shapes():
    for law in LAWS:
        noise = law(np.array([1.0, 2.0]), "1/3", 0.0, [5, np.inf])
        assert noise.scale == Fraction(1, 3)
        assert noise.fit_for_release is True
        assert noise.sample((4, 2), SeededSource(1)).shape == (4, 2)
        assert isinstance(law(1, 0.1).sample(None, SeededSource(1)), int)
        assert law(1, 0.1).scale == Fraction(1, 10)
        assert law(1, 0.1).lower is None
        assert law(7, 0.1, np.int32(0), np.uint8(9)).upper == 9
        assert isinstance(law(1, 2, 0, 3).mean, float)
        assert "765" not in repr(law(765, 1, 0, None))
        with pytest.raises(dataclasses.FrozenInstanceError):
            noise.scale = 1


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 0, 0, 1), "scale 0"),
        ((1, -2, 0, 1), "scale -2"),
        ((1, float("nan"), 0, 1), "nan"),
        ((1, 2**53, 0, 1), "2\\^52"),
        ((1.5, 1, 0, 1), "location at position 0"),
        (([0, np.nan], 1, 0, 1), "location at position 1"),
        ((2**61, 1, 0, 1), "location at position 0"),
        ((1, 1, 0.5, 1), r"lower 0\.5"),
        ((1, 1, 2, 1), r"bounds \[2, 1\]"),
        ((1, 1, None, -np.inf), "upper -inf"),
        ((True, 1, 0, 1), "not bool"),
        (([777, [1]], 1, 0, 10), "location: give a whole number or an array of them"),
        ((1, 1, [0, [777]], 10), "lower: give a whole number or an array of them"),
        ((1, 1, 0, [[777], 10]), "upper: give a whole number or an array of them"),
        (([2**53 + 1, 0.0], 1, 0, None), "location: .* beyond 2\\^53, no number is a float"),
        (([0, 0], 1, 0, [2**60 - 1, np.inf]), "upper: .* beyond 2\\^53, no number is a float"),
        (([1, 2], 1, [0, 0, 0], 1), "do not broadcast"),
    ],
)
def test_refusals(law, arguments, message):
    with pytest.raises(ConfigError, match=message) as raised:
        law(*arguments)
    assert "777" not in str(raised.value)
