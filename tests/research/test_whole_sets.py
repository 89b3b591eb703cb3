"""The double geometric law on sets with gaps: its probabilities, its draws, and which sets there are."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from topdown.errors import ConfigError
from topdown.noise import NormalizedDiscreteLaplace, SecureSource, SeededSource, TruncatedDiscreteLaplace
from topdown.research.bounded import whole_sets
from topdown.research.bounded.whole_sets import nearest_within, whole_pieces

SETS = [((0, 0), (10, None)), ((0, 5), (9, 12), (30, 31)), ((None, -3), (4, None)), ((2, 2), (4, 4), (7, 7))]


def members(pieces: Any, reach: int = 400) -> Any:
    k = np.arange(-reach, reach + 1)
    inside = [(k >= (-reach if a is None else a)) & (k <= (reach if b is None else b)) for a, b in pieces]
    return k[np.any(inside, axis=0)]


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(5, 2), 12])
@pytest.mark.parametrize("pieces", SETS)
def test_probabilities_moments_and_sums(pieces: Any, scale: Fraction) -> None:
    k, places = members(pieces), np.array([-2, 0, 5, 7, 29, 40])
    law = NormalizedDiscreteLaplace(places, scale, pieces)
    weight = np.exp((np.abs(k[:, None] - places).min(axis=0) - np.abs(k[:, None] - places)) / float(scale))
    pmf = weight / weight.sum(axis=0)
    assert law.pmf(k[:, None]) == pytest.approx(pmf, rel=1e-11, abs=1e-14)
    assert law.mean == pytest.approx((pmf * k[:, None]).sum(axis=0), rel=1e-9)
    assert law.bias == pytest.approx(law.mean - places, abs=1e-9)
    assert law.mse == pytest.approx((pmf * (k[:, None] - places) ** 2).sum(axis=0), rel=1e-9)
    assert law.variance == pytest.approx((pmf * (k[:, None] - law.mean) ** 2).sum(axis=0), rel=1e-7, abs=1e-9)
    assert law.cdf(4.5) == pytest.approx(pmf[k <= 4].sum(axis=0), abs=1e-12)
    assert law.sf(4.5) == pytest.approx(pmf[k > 4].sum(axis=0), abs=1e-12)
    gaps = np.setdiff1d(np.arange(-50, 51), k)
    assert not np.asarray(law.pmf(gaps[:, None])).any()


@pytest.mark.parametrize("origin", [0, 2**53 - 20])
@pytest.mark.parametrize("away", [10**6, 10**9, 2**59])
def test_moments_of_a_location_far_from_the_set(origin: int, away: int) -> None:
    pieces = [(origin, origin), (origin + 10, origin + 12)]
    near, far = (NormalizedDiscreteLaplace(place, 1, pieces) for place in (origin, origin - away))
    small = NormalizedDiscreteLaplace(0, 1, [(0, 0), (10, 12)])
    assert far.variance == near.variance == pytest.approx(small.variance, rel=1e-12)
    assert near.bias == pytest.approx(small.bias, rel=1e-12)
    assert far.bias == pytest.approx(away + float(small.bias), rel=1e-15)
    assert far.mean == near.mean


@pytest.mark.parametrize("pieces", SETS)
def test_draws_have_the_law_and_not_one_of_another_scale(pieces: Any) -> None:
    for place in (0, 8, 21):
        law = NormalizedDiscreteLaplace(place, 3, pieces)
        drawn = np.asarray(law.sample(40_000, SeededSource((place, len(pieces)))))
        k, count = np.unique(drawn, return_counts=True)
        assert np.isin(drawn, members(pieces)).all()
        for scale, low, high in ((3, 1e-8, 1.0), (Fraction(5, 2), 0.0, 1e-9)):
            expected = np.asarray(NormalizedDiscreteLaplace(place, scale, pieces).pmf(k)) * drawn.size
            often = expected >= 10
            if len(pieces) == 3 and place == 8 and scale != 3:
                continue  # of few and near numbers the scale tells little
            observed = np.append(count[often], drawn.size - count[often].sum())
            rest = np.append(expected[often], drawn.size - expected[often].sum())
            statistic = ((observed - rest) ** 2 / np.maximum(rest, 1e-9))[rest > 5].sum()
            assert low <= stats.chi2.sf(statistic, max(1, (rest > 5).sum() - 1)) <= high


def test_the_interval_alone_is_the_truncated_law() -> None:
    one, other = NormalizedDiscreteLaplace(3, 2, [(0, 9)]), TruncatedDiscreteLaplace(3, 2, 0, 9)
    assert one.pmf(np.arange(-1, 11)) == pytest.approx(other.pmf(np.arange(-1, 11)))
    drawn = np.asarray(one.sample(1000, SecureSource()))
    assert (drawn >= 0).all()
    assert one.fit_for_release


def test_draws_of_which_64_bits_do_not_tell_take_more() -> None:
    """A number of 64 bits on a threshold: the draw goes on to further bits, which decide by the same law."""
    law = NormalizedDiscreteLaplace(5, 2, [(0, 4), (6, 10)])  # symmetric: the threshold is 1/2

    class Ties:
        fit_for_release = True

        def __init__(self) -> None:
            self.rest, self.calls = SeededSource(4), 0

        def read(self, nbytes: int) -> bytes:
            self.calls += 1
            return (2**63).to_bytes(8, "little") * (nbytes // 8) if self.calls == 1 else self.rest.read(nbytes)

    drawn = np.asarray(law.sample(300, Ties()))
    assert set(np.unique(drawn > 5)) <= {True}  # 2^63 and any further bits are at least 1/2
    cut = whole_sets._thresholds(5, Fraction(2), law.pieces, 64)
    assert cut[0][0] <= 2**63 <= cut[0][1]


def test_far_places_lose_no_digits() -> None:
    k = members(SETS[1])
    law = NormalizedDiscreteLaplace([10**6, -(10**6)], 2, SETS[1])
    weight = np.exp(np.stack([(k - 31) / 2, -k / 2]))  # from far away only the way to the nearest number counts
    expected = weight / weight.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.asarray(law.pmf(k[:, None])).T, expected, rtol=1e-9)
    drawn = np.asarray(law.sample((2000, 2), SeededSource(3)))
    assert (drawn[:, 0] >= 30).mean() > 0.9
    assert (drawn[:, 1] <= 5).mean() > 0.9


def test_sets_are_read_in_any_order_and_merged() -> None:
    assert whole_pieces([(10, None), (0, 0), [1, 3]]) == ((0, 3), (10, None))
    assert whole_pieces([(-np.inf, 3), (7.0, np.inf), (8, 9)]) == ((None, 3), (7, None))
    assert whole_pieces([(-(2**53), 2**53)]) == ((-(2**53), 2**53),)
    for large in (2**53 + 1, 10**400, np.int64(2**60)):
        for piece in ((0, large), (-large, None)):
            with pytest.raises(ConfigError, match=r"ends of at most 2\^53"):
                whole_pieces([piece])
    for wrong in ([], [(3, 2)], [(0.5, 2)], [5], [(None, -np.inf)], [("a", 2)], [(True, 2)], [(0, np.nan)]):
        with pytest.raises(ConfigError):
            whole_pieces(wrong)


def test_the_nearest_number_of_a_set() -> None:
    values = np.array([-5, 0, 3, 5, 6, 9, 100])
    assert nearest_within(values, ((0, 0), (10, 20))).tolist() == [0, 0, 0, 0, 10, 10, 20]
    assert nearest_within(values, ((None, 0), (5, None))).tolist() == [-5, 0, 5, 5, 6, 9, 100]
