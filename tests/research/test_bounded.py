"""Truncated and boundary-inflated Laplace laws against high-precision values, and their draws against the laws."""

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
from support.places import GOLDEN
from topdown.errors import ConfigError
from topdown.noise.randomness import SeededSource
from topdown.research.bounded.laplace import BoundaryInflatedLaplace, TruncatedLaplace

LAWS = (TruncatedLaplace, BoundaryInflatedLaplace)


def relative(got, want):
    """Largest relative error; a reference below 1e-45 is quadrature noise around an exact 0."""
    got, want = float(got), float(want)
    return abs(got) if abs(want) < 1e-45 else abs(got - want) / abs(want)


@pytest.mark.parametrize("row", GOLDEN["S0_truncated_bit_laplace"]["rows"])
def test_reference_rows(row):
    tolerance = GOLDEN["S0_truncated_bit_laplace"]["rel_tol"]
    law = TruncatedLaplace(row["s"], row["lam"], row["c0"], row["c1"])
    assert relative(law.pdf(row["x"]), row["trunc_pdf_at_x"]) < tolerance
    assert relative(law.cdf(row["x"]), row["trunc_cdf_at_x"]) < tolerance
    assert relative(law.bias, row["trunc_bias"]) < tolerance
    assert relative(law.mse, row["trunc_mse"]) < tolerance
    assert relative(law.variance, row["trunc_var"]) < tolerance
    for q, quantile in row["trunc_quantiles"].items():
        assert relative(law.ppf(float(q)), quantile) < tolerance
    law = BoundaryInflatedLaplace(row["s"], row["lam"], row["c0"], row["c1"])
    assert relative(law.atoms[0], row["bit_mass_c0"]) < tolerance
    assert relative(law.atoms[1], row["bit_mass_c1"]) < tolerance
    assert relative(law.bias, row["bit_bias"]) < tolerance
    assert relative(law.mse, row["bit_mse"]) < tolerance
    assert relative(law.variance, row["bit_var"]) < tolerance


@pytest.mark.parametrize("row", GOLDEN["S0_one_sided"]["rows"])
def test_one_sided_reference_rows(row):
    tolerance = GOLDEN["S0_one_sided"]["rel_tol"]
    for law, prefix in zip(LAWS, ("trunc", "bit"), strict=True):
        noise = law(row["s"], row["lam"], row["c0"], row["c1"])
        assert relative(noise.bias, row[f"{prefix}_bias"]) < tolerance
        assert relative(noise.mse, row[f"{prefix}_mse"]) < tolerance


@pytest.mark.parametrize("row", GOLDEN["S0_variance_release_expected"]["rows"])
def test_a_released_variance_has_the_expected_bias_and_root_mean_squared_error(row):
    for law, prefix in zip(LAWS, ("trunc", "bit"), strict=True):
        noise = law(row["true_var"], row["lam"], row["c0"], row["c1"])
        assert relative(noise.bias, row[f"{prefix}_bias"]) < 1e-9
        assert relative(np.sqrt(noise.mse), row[f"{prefix}_rmse"]) < 1e-9


def high_precision(law, s, lam, c0, c1):
    """(bias, mse, variance) by the exponential forms at the precision that is set, location inside or outside."""
    s, lam, c0, c1 = (mp.mpf(v) for v in (s, lam, c0, c1))
    if law is TruncatedLaplace:
        kept, first, second = mp.mpf(0), mp.mpf(0), mp.mpf(0)
        for low, high, sign in ((c0, min(s, c1), 1), (max(s, c0), c1, -1)):
            if low < high:
                # Antiderivatives of t^k exp(sign t / lam) at t = x - s.
                def parts(x, sign=sign):
                    t, e = x - s, mp.e ** (sign * (x - s) / lam)
                    r = sign * lam
                    return mp.matrix([r * e, r * e * (t - r), r * e * (t * t - 2 * r * t + 2 * r * r)])

                piece = parts(high) - parts(low)
                kept, first, second = kept + piece[0], first + piece[1], second + piece[2]
        bias, mse = first / kept, second / kept
        return bias, mse, mse - bias**2

    def tail(z):
        return mp.e ** (-z) / 2 if z >= 0 else 1 - mp.e**z / 2

    # E f(X) by integrating the tails of clip(s + L) on both sides of a reference point: c0.
    first, second = mp.mpf(0), mp.mpf(0)
    for low, high in ((c0, min(max(s, c0), c1)), (min(max(s, c0), c1), c1)):
        if low < high:
            rising = high <= s

            def parts(x, rising=rising):
                e = mp.e ** ((x - s) / lam) / 2 if rising else mp.e ** (-(x - s) / lam) / 2
                y = x - c0
                if rising:
                    return mp.matrix([y - lam * e, y * y / 2 - lam * e * (y - lam)])
                return mp.matrix([-lam * e, -lam * e * (y + lam)])

            piece = parts(high) - parts(low)
            first, second = first + piece[0], second + 2 * piece[1]
    bias = c0 + first - s
    variance = second - first**2
    return bias, variance + bias**2, variance


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("ratio", [1e-6, 1e-3, 0.03, 0.5, 1.0, 3.0, 1e3, 1e6])
def test_moments_from_a_millionth_to_a_million_widths(law, ratio):
    with mp.workdps(600):
        for s, (c0, c1) in itertools.product(
            (0.0, 1e-9, 0.3, 0.5 - 1e-9, 0.50001, 0.97, 1.0, 1.7, -0.2), ((0.0, 1.0), (-0.25, 1.5))
        ):
            noise = law(s, ratio * (c1 - c0), c0, c1)
            bias, mse, variance = high_precision(law, s, ratio * (c1 - c0), c0, c1)
            assert abs(noise.bias - bias) <= 1e-10 * abs(bias) + mp.mpf("1e-300")
            assert abs(noise.mse - mse) <= 1e-10 * mse
            assert abs(noise.variance - variance) <= 1e-10 * variance + mp.mpf("1e-300")
            assert relative(noise.mean, s + bias) < 1e-10 or abs(noise.mean - (s + bias)) < 1e-15


@pytest.mark.parametrize("ratio", [1e-3, 0.2, 1.0, 50.0, 1e6])
def test_cdf_quantile_and_density_agree_at_high_precision(ratio):
    with mp.workdps(60):
        for s in (0.0, 0.2, 0.5, 0.9, 1.0):
            law = TruncatedLaplace(s, ratio, 0.0, 1.0)
            kept = 2 - mp.e ** (-mp.mpf(s) / ratio) - mp.e ** (-(1 - mp.mpf(s)) / ratio)
            for x in (1e-12, 0.01, 0.2, 0.45, 0.9, 1 - 1e-9):
                t = mp.mpf(x) - mp.mpf(s)
                density = mp.e ** (-abs(t) / ratio) / (ratio * kept)
                below = (
                    mp.e ** (t / ratio) - mp.e ** (-mp.mpf(s) / ratio)
                    if t <= 0
                    else 2 - mp.e ** (-mp.mpf(s) / ratio) - mp.e ** (-t / ratio)
                ) / kept
                if density < 1e-290:
                    continue
                assert relative(law.pdf(x), density) < 1e-10
                assert relative(law.cdf(x), below) < 1e-10
                assert abs(law.sf(x) - (1 - below)) < 1e-15
                if 1e-14 < below < 1 - 1e-6:
                    assert relative(law.ppf(float(below)), x) < 1e-10


def test_quantiles_near_both_ends_stay_within_bounds_and_in_order():
    q = np.concatenate([[0.0], np.geomspace(1e-300, 0.5, 200), 1 - np.geomspace(0.5, 1e-16, 200), [1.0]])
    for law, scale, s in itertools.product(LAWS, (1e-6, 1e-2, 1.0, 1e6), (-1.0, 0.0, 0.3, 1.0, 2.0)):
        x = law(s, scale, 0.0, 1.0).ppf(q)
        assert np.all(np.diff(x) >= 0)
        assert x[0] == 0.0
        assert x[-1] == 1.0


@given(
    s=st.floats(-5, 5),
    scale=st.floats(1e-6, 1e6),
    low=st.floats(-5, 4.9),
    width=st.floats(1e-3, 10),
)
@examples(200)
def test_propositions_of_the_source(s, scale, low, width):
    high = low + width
    s = min(max(s, low), high)
    truncated, inflated = (law(s, scale, low, high) for law in LAWS)
    side = np.sign(Fraction(low) + Fraction(high) - 2 * Fraction(s))
    for noise in (truncated, inflated):
        # A distance of more than 700 scales underflows to no bias at all.
        assert np.sign(noise.bias) == side or min(s - low, high - s) > 700 * scale
        assert noise.mse <= 2 * scale**2 * (1 + 1e-12)
        assert low <= noise.mean <= high
        assert 0 <= noise.variance <= width**2 / 4 * (1 + 1e-12)
    assert abs(inflated.bias) <= abs(truncated.bias) * (1 + 1e-12)


@given(s=st.floats(0, 5), scale=st.floats(0.01, 1e4))
@examples(100)
def test_one_bound_alone_biases_away_from_it_and_truncation_more(s, scale):
    """Liu, Remark 3: above 0 for [0, inf), the mirror image for (-inf, 0], by Equations 9 and 10."""
    a = np.exp(-s / scale)
    for sign, (low, high) in ((1, (0.0, None)), (-1, (None, 0.0))):
        truncated, inflated = (law(sign * s, scale, low, high) for law in LAWS)
        assert sign * truncated.bias == pytest.approx((scale + s) * a / (2 - a), rel=1e-9)
        assert sign * inflated.bias == pytest.approx(scale * a / 2, rel=1e-9)
        assert sign * truncated.bias >= sign * inflated.bias > 0


def test_wide_noise_tends_to_the_uniform_law_and_to_two_equal_atoms():
    truncated, inflated = (law(0.2, 1e140, 0.0, 1.0) for law in LAWS)
    assert relative(truncated.mean, 0.5) < 1e-14
    assert relative(truncated.variance, 1 / 12) < 1e-12
    assert relative(truncated.cdf(0.25), 0.25) < 1e-14
    assert relative(truncated.pdf(0.25), 1.0) < 1e-12
    assert inflated.atoms == (0.5, 0.5)
    assert relative(inflated.mean, 0.5) < 1e-14


def test_clipped_noise_of_a_tiny_ratio_keeps_its_square():
    # Wider than 1e160 times the interval: the ratio squared is 0 in a double, the square of the width is not.
    width = 1e-15
    noise = BoundaryInflatedLaplace(0.5 * width, 1e150, 0.0, width)
    assert relative(noise.mse, width**2 / 4) < 1e-12
    assert relative(BoundaryInflatedLaplace(0.0, 1e150, 0.0, width).variance, width**2 / 4) < 1e-12


def test_extreme_arguments_give_finite_ordered_results():
    for law, scale, s, (c0, c1) in itertools.product(
        LAWS,
        (1e-150, 1e-30, 1.0, 1e30, 1e150),
        (-1e150, -1.0, 0.0, 1e-300, 1e10, 1e150),
        ((0.0, 1.0), (0.0, None), (None, 1.0), (None, None), (-1e150, 1e150), (1.0, np.nextafter(1.0, 2.0))),
    ):
        noise = law(s, scale, c0, c1)
        low, high = (-np.inf if c0 is None else c0), (np.inf if c1 is None else c1)
        moments = np.array([noise.mean, noise.bias, noise.mse, noise.variance])
        assert np.isfinite(moments).all()
        assert low <= noise.mean <= high
        assert noise.mse >= noise.variance * (1 - 1e-12)
        assert noise.variance >= 0
        quantiles = noise.ppf(np.linspace(0.001, 0.999, 21))
        assert np.isfinite(quantiles).all()
        assert (np.diff(quantiles) >= 0).all()
        cdf = noise.cdf(np.sort(np.concatenate([quantiles, [-np.inf, np.inf]])))
        assert (np.diff(cdf) >= 0).all()
        assert cdf[0] == 0
        assert cdf[-1] == 1
        assert noise.sf(np.inf) == 0
        assert noise.sf(-np.inf) == 1


def test_without_bounds_both_are_the_laplace_law():
    x = np.linspace(-9, 9, 7)
    for law, absent in itertools.product(LAWS, ((None, None), (-np.inf, np.inf))):
        noise = law(0.5, 2.0, *absent)
        reference = stats.laplace(0.5, 2.0)
        np.testing.assert_allclose(noise.pdf(x), reference.pdf(x), rtol=1e-14)
        np.testing.assert_allclose(noise.cdf(x), reference.cdf(x), rtol=1e-14)
        np.testing.assert_allclose(noise.sf(x), reference.sf(x), rtol=1e-14)
        np.testing.assert_allclose(noise.ppf([0.1, 0.5, 0.9]), reference.ppf([0.1, 0.5, 0.9]), rtol=1e-14)
        assert (noise.bias, noise.mse, noise.variance) == (0.0, 8.0, 8.0)


def test_a_truncated_law_depends_on_an_outside_location_through_the_nearest_bound_only():
    outside, border = TruncatedLaplace(-3.0, 0.7, 0.0, 2.0), TruncatedLaplace(0.0, 0.7, 0.0, 2.0)
    x = np.linspace(-1, 3, 21)
    np.testing.assert_array_equal(outside.pdf(x), border.pdf(x))
    np.testing.assert_array_equal(outside.ppf([0.1, 0.8]), border.ppf([0.1, 0.8]))
    assert outside.mean == border.mean
    assert outside.bias == border.bias + 3.0


def test_atoms_and_density_add_up():
    grid = np.linspace(0.0, 1.0, 200_001)
    for s, scale in ((0.3, 0.5), (-0.4, 0.3), (1.2, 2.0)):
        noise = BoundaryInflatedLaplace(s, scale, 0.0, 1.0)
        assert abs(np.trapezoid(noise.pdf(grid), grid) + sum(noise.atoms) - 1.0) < 1e-9
        assert noise.cdf(0.0) == pytest.approx(noise.atoms[0], rel=1e-14)
        assert noise.sf(np.nextafter(1.0, 0.0)) == pytest.approx(noise.atoms[1], rel=1e-12)
    assert noise.pdf(-0.1) == 0.0
    assert BoundaryInflatedLaplace(5.0, 1.0, 0.0, None).atoms[1] == 0.0


def test_parameters_broadcast_and_match_the_scalars():
    locations = np.array([0.0, 0.4, 3.0])
    for law in LAWS:
        many = law(locations, [[0.5], [2.0]], 0, [1.0, 1.0, 2.5])
        assert many.mean.shape == (2, 3)
        for i, j in itertools.product(range(2), range(3)):
            one = law(locations[j], (0.5, 2.0)[i], 0, (1.0, 1.0, 2.5)[j])
            for name in ("mean", "bias", "mse", "variance"):
                assert getattr(many, name)[i, j] == getattr(one, name)
                assert isinstance(getattr(one, name), float)
            assert many.ppf(0.3)[i, j] == one.ppf(0.3)
            assert many.cdf(0.3)[i, j] == one.cdf(0.3)
        assert law([0, 1], 1, Fraction(0), Fraction(7, 2)).mean.shape == (2,)


def test_bounds_of_one_point():
    point = BoundaryInflatedLaplace([0.0, -4.0], 1.0, 0.0, 0.0)
    np.testing.assert_array_equal(point.mean, [0.0, 0.0])
    np.testing.assert_array_equal(point.variance, [0.0, 0.0])
    np.testing.assert_array_equal(point.bias, [0.0, 4.0])
    np.testing.assert_array_equal(point.sample(None, SeededSource(1)), [0.0, 0.0])
    with pytest.raises(ConfigError, match="lower < upper"):
        TruncatedLaplace(0.0, 1.0, 0.0, 0.0)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 0.0, 0, 1), "scale 0.0"),
        ((0.0, -1.0, 0, 1), "scale -1.0"),
        ((0.0, np.inf, 0, 1), "scale inf"),
        ((0.0, np.nan, 0, 1), "scale: nan"),
        ((0.0, 1e-200, 0, 1), "scale 1e-200"),
        ((np.nan, 1.0, 0, 1), "location: nan at position 0"),
        (([0.0, np.inf], 1.0, 0, 1), "location at position 1"),
        ((0.0, 1.0, 2, 1), r"bounds \[2.0, 1.0\]"),
        ((0.0, 1.0, np.inf, None), "lower inf"),
        ((0.0, 1.0, None, -np.inf), "upper -inf"),
        ((0.0, 1.0, 0, "x"), "upper 'x'"),
        ((0.0, 1.0, 0, 10**400), "upper 1000"),
        (([777.0, [1.0]], 1.0, 0, 1), "location: give a real number"),
        (([0.0, 1.0], [1.0, 1.0, 1.0], 0, 1), "do not broadcast"),
    ],
)
def test_refusals_name_the_value(law, arguments, message):
    with pytest.raises(ConfigError, match=message):
        law(*arguments)


@pytest.mark.parametrize("law", LAWS)
def test_a_location_that_is_no_number_is_nowhere_in_the_error(law):
    for location in ("SECRET777", ["SECRET777", 1.0], [777, [1]]):
        with pytest.raises(ConfigError, match="location: give a real number") as raised:
            law(location, 1.0, 0, 1)
        assert raised.value.__context__ is None
    with pytest.raises(ConfigError, match="probability 'a'"):
        law(0.0, 1.0, 0, 1).ppf("a")


@pytest.mark.parametrize("law", LAWS)
def test_confidential_locations_stay_out_of_messages_and_repr(law):
    assert "123456" not in repr(law(123456.0, 1.0, 0, None))
    with pytest.raises(ConfigError) as caught:
        law("123456 persons", 1.0, 0, None)
    assert "123456" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"probability 1\.5"):
        law(0.0, 1.0, 0, None).ppf([0.5, 1.5])


@pytest.mark.parametrize("law", LAWS)
def test_laws_are_frozen_and_not_for_release(law):
    locations = np.array([1.0, 2.0])
    noise = law(locations, 1.0, 0, None)
    locations[0] = 9.0
    assert noise.location[0] == 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        noise.scale = 2.0
    with pytest.raises(ValueError, match="read-only"):
        noise.location[0] = 3.0
    assert noise.fit_for_release is False


@pytest.mark.parametrize("law", LAWS)
def test_sample_shapes(law):
    many, one = law([0.1, 0.2, 0.3], 1.0, 0, 1), law(0.1, 1.0, 0, 1)
    assert many.sample(None, SeededSource(1)).shape == (3,)
    assert many.sample((5, 3), SeededSource(1)).shape == (5, 3)
    assert one.sample(4, SeededSource(1)).shape == (4,)
    assert one.sample(size=0, source=SeededSource(1)).shape == (0,)
    assert isinstance(one.sample(None, SeededSource(1)), float)
    np.testing.assert_array_equal(one.sample(4, SeededSource(1)), one.sample((4,), SeededSource(1)))
    with pytest.raises(ConfigError, match="do not broadcast"):
        many.sample(4, SeededSource(1))


@pytest.mark.parametrize(("s", "low", "high"), [(0.3, 0.0, 4.0), (-2.0, 0.0, 4.0), (0.3, None, 1.0)])
@pytest.mark.parametrize("law", LAWS)
def test_draws_have_the_law_and_not_one_of_another_scale(law, s, low, high):
    draws = law(s, 1.0, low, high).sample(100_000, SeededSource(5))
    assert draws.min() >= (-np.inf if low is None else low)
    assert draws.max() <= (np.inf if high is None else high)

    def p_value(scale):
        # Of a law with atoms the cdf at the draws between them is compared, the atoms as binomial counts beside it.
        noise = law(s, scale, low, high)
        if law is TruncatedLaplace:
            return stats.kstest(draws, noise.cdf).pvalue
        between = draws[(draws > noise.lower) & (draws < noise.upper)]
        kept = 1.0 - sum(noise.atoms)
        smallest = stats.kstest(between, lambda x: (noise.cdf(x) - noise.atoms[0]) / kept).pvalue
        for atom, bound in zip(noise.atoms, (noise.lower, noise.upper), strict=True):
            if atom > 0:
                smallest = min(smallest, stats.binomtest(int((draws == bound).sum()), draws.size, atom).pvalue)
        return smallest

    assert p_value(1.0) > 1e-9
    assert p_value(0.9) < 1e-9
    assert p_value(1.1) < 1e-9
