"""Whole-number noise on sets with gaps, exact, for releases: the double geometric law on a union of intervals.

The discrete twin of :mod:`topdown.research.bounded.normalized`: counts that are public to be 0 or at least 10, say.
Which interval a draw falls into is decided by integers that enclose the intervals' masses, as many bits as that takes;
within it the draw is that of :class:`topdown.noise.TruncatedDiscreteLaplace`.

Source: Croft, Sack, Shi, "Differential Privacy Via a Truncated and Normalized Laplace Mechanism", Formulae 4 to 6, on
the integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import ConfigError
from topdown.noise.exact_numbers import LARGEST_WHOLE, enclose_exp, exact_fraction
from topdown.noise.parameters import (
    LARGEST_COUNT,
    FloatArray,
    FloatOrArray,
    IntArray,
    IntOrArray,
    as_given,
    broadcast_shape,
    whole_as_given,
    whole_numbers,
)
from topdown.noise.randomness import Source, uint64
from topdown.noise.sampling import Size
from topdown.privacy.bounds import WholePiece
from topdown.research.bounded.discrete_laplace import TruncatedDiscreteLaplace
from topdown.wording import shown

_BITS = 64
_CHUNK = 1 << 16
"""Draws that are made at once, so that what they take beside the result stays small."""


def whole_pieces(pieces: Iterable[Any]) -> tuple[WholePiece, ...]:
    """Closed intervals (low, high) of whole numbers in order, those that touch merged; None or an infinity: no end.

    Raises ConfigError for an invalid pair, for ends that are out of order or not whole, and if there is no interval.
    """
    found: list[tuple[float, float]] = []
    for piece in pieces:
        try:
            low, high = piece
            ends = (-np.inf if low is None else _whole(low), np.inf if high is None else _whole(high))
        except (TypeError, ValueError, ConfigError):
            raise ConfigError(
                f"interval {shown(piece)}: give a pair of whole numbers (low, high), None or inf for no end"
            ) from None
        if any(abs(end) > LARGEST_WHOLE and abs(end) != np.inf for end in ends):
            raise ConfigError(
                f"interval {shown(piece)}: give ends of at most 2^53 in magnitude, None or inf for no end"
            )
        if not ends[0] <= ends[1] or ends[0] == np.inf or ends[1] == -np.inf:
            raise ConfigError(f"interval {shown(piece)}: give low <= high")
        found.append(ends)
    if not found:
        raise ConfigError("no interval is given: nothing could be released; give at least one")
    merged: list[tuple[float, float]] = []
    for low, high in sorted(found):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple((None if low == -np.inf else int(low), None if high == np.inf else int(high)) for low, high in merged)


def nearest_within(values: IntArray, pieces: tuple[WholePiece, ...]) -> IntArray:
    """Every value's nearest number in the set; of two that are equally near the lower one."""
    best = _clipped(values, pieces[0])
    for piece in pieces[1:]:
        other = _clipped(values, piece)
        best = np.where(np.abs(other - values) < np.abs(best - values), other, best)
    return best


@dataclass(frozen=True, slots=True, eq=False)
class NormalizedDiscreteLaplace:
    """P(X = k) proportional to exp(-|k - location| / scale) on the whole numbers of ``pieces``, 0 elsewhere.

    Normalising is no post-processing: at scale sensitivity/epsilon it costs up to twice epsilon; a `topdown.Plan`
    takes the scale that keeps it.

    Args:
        location: whole numbers, in the set or not.
        scale: one number, kept exactly.
        pieces: closed intervals (low, high), None for no end, in any order.

    Raises ConfigError for a scale that is not positive or passes 2^52, and for invalid pieces.

    Examples:
        >>> law = td.noise.NormalizedDiscreteLaplace(location=12, scale=Fraction(3), pieces=((0, 0), (10, None)))
        >>> law.sample(5, td.SeededSource(1))
        array([12, 10, 12, 16, 12])
    """

    location: IntOrArray = field(repr=False)
    scale: Fraction
    pieces: tuple[WholePiece, ...]

    fit_for_release: ClassVar[bool] = True

    def __post_init__(self) -> None:
        location = whole_numbers("location", self.location, shown=False)
        pieces = whole_pieces(self.pieces)
        scale = TruncatedDiscreteLaplace(0, self.scale).scale
        location.flags.writeable = False
        for name, value in (("location", whole_as_given(location)), ("scale", scale), ("pieces", pieces)):
            object.__setattr__(self, name, value)

    @property
    def mean(self) -> FloatOrArray:
        """E X."""
        near, bias, _ = self._moments()
        return as_given(near + bias)

    @property
    def bias(self) -> FloatOrArray:
        """E X - location."""
        near, bias, _ = self._moments()
        return as_given(bias + (near - np.asarray(self.location)))

    @property
    def mse(self) -> FloatOrArray:
        """E (X - location)^2."""
        return as_given(np.asarray(self.variance) + np.asarray(self.bias) ** 2)

    @property
    def variance(self) -> FloatOrArray:
        """E (X - E X)^2."""
        return as_given(self._moments()[2])

    def pmf(self, k: ArrayLike) -> FloatOrArray:
        """P(X = k), 0 for k outside of the set or not whole."""
        return as_given(self._mixture([np.asarray(law.pmf(k)) for law in self._laws()]))

    def cdf(self, k: ArrayLike) -> FloatOrArray:
        """P(X <= k)."""
        return as_given(self._mixture([np.asarray(law.cdf(k)) for law in self._laws()]))

    def sf(self, k: ArrayLike) -> FloatOrArray:
        """P(X > k)."""
        return as_given(self._mixture([np.asarray(law.sf(k)) for law in self._laws()]))

    def sample(self, size: Size | None, source: Source) -> IntOrArray:
        """Exact draws of shape ``size`` from the bits of ``source``, to which the location broadcasts; None: one per
        location.
        """
        shape = broadcast_shape(size, np.shape(self.location), source)
        location = np.broadcast_to(np.asarray(self.location), shape).ravel()
        draws = np.empty(location.shape, np.int64)
        for start in range(0, location.size, _CHUNK):
            chunk, places = draws[start : start + _CHUNK], location[start : start + _CHUNK]
            chosen = self._choose(places, source)
            for number, (low, high) in enumerate(self.pieces):
                here = np.flatnonzero(chosen == number)
                if here.size:
                    chunk[here] = TruncatedDiscreteLaplace(places[here], self.scale, low, high).sample(None, source)
        return whole_as_given(draws.reshape(shape))

    def _choose(self, location: IntArray, source: Source) -> NDArray[np.intp]:
        """The piece of every draw, with exactly its probability."""
        if len(self.pieces) == 1 or location.size == 0:
            return np.zeros(location.size, np.intp)
        places, index = np.unique(location, return_inverse=True)
        ends = [_thresholds(int(place), self.scale, self.pieces, _BITS) for place in places]
        top = 2**_BITS - 1
        low, high = (np.array([[min(cut[end], top) for cut in cuts] for cuts in ends], np.uint64) for end in (0, 1))
        bits = uint64(source, location.size)
        passed = bits[:, None] > high[index]
        chosen: NDArray[np.intp] = passed.sum(axis=1)
        for draw in np.flatnonzero((~passed & (bits[:, None] >= low[index])).any(axis=1)):
            chosen[draw] = _decide(int(bits[draw]), int(location[draw]), self.scale, self.pieces, source)
        return chosen

    def _moments(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """(the number of the set that is nearest to the location, bias about it, variance). Seen from there every
        interval has the same law, and no large numbers cancel."""
        near = nearest_within(np.asarray(self.location), self.pieces)
        laws = [TruncatedDiscreteLaplace(near, self.scale, low, high) for low, high in self.pieces]
        biases = [np.asarray(law.bias) for law in laws]
        bias = self._mixture(biases)
        spread = [np.asarray(law.variance) + (own - bias) ** 2 for law, own in zip(laws, biases, strict=True)]
        return near, bias, self._mixture(spread)

    def _laws(self) -> list[TruncatedDiscreteLaplace]:
        return [TruncatedDiscreteLaplace(self.location, self.scale, low, high) for low, high in self.pieces]

    def _mixture(self, values: list[FloatArray]) -> FloatArray:
        location = np.asarray(self.location)
        masses = np.empty((len(self.pieces), location.size))
        for column, place in enumerate(location.ravel()):
            masses[:, column] = [low / 2.0**_BITS for low, _ in _masses(int(place), self.scale, self.pieces, _BITS)]
        masses = (masses / masses.sum(axis=0)).reshape((len(self.pieces), *location.shape))
        return np.asarray(sum(mass * value for mass, value in zip(masses, values, strict=True)), dtype=np.float64)


def _masses(place: int, scale: Fraction, pieces: tuple[WholePiece, ...], precision: int) -> list[tuple[int, int]]:
    """Enclosures of every piece's mass around ``place``, in units that all have in common, at 2^precision."""
    nearest = min(_distance(place, piece) for piece in pieces)

    def power(distance: int | None) -> tuple[int, int]:
        # In units of the nearest number's weight, so that a place far from the set loses no digits.
        return (0, 0) if distance is None else enclose_exp(Fraction(distance - nearest) / scale, precision)

    masses = []
    for low, high in pieces:
        # With a = exp(-1/scale): a^first - a^(last + 1) is (1 - a) times the sum of a^d over the distances first..last.
        terms = []
        if low is None or place >= low:
            above = high if high is not None and high < place else place
            terms.append((place - above, None if low is None else place - low + 1))
        if high is None or place < high:
            below = low if low is not None and low > place else place + 1
            terms.append((below - place, None if high is None else high - place + 1))
        ends = [(power(first), power(stop)) for first, stop in terms]
        masses.append(
            (sum(max(0, a[0] - b[1]) for a, b in ends), sum(max(0, a[1] - b[0]) for a, b in ends)),
        )
    return masses


@lru_cache(maxsize=1 << 16)
def _thresholds(place: int, scale: Fraction, pieces: tuple[WholePiece, ...], bits: int) -> list[tuple[int, int]]:
    """Enclosures of 2^bits P(X in the first pieces), for all but the last."""
    masses = _masses(place, scale, pieces, bits + 64)
    least, most = (sum(mass[end] for mass in masses) for end in (0, 1))
    cuts, low, high = [], 0, 0
    for mass in masses[:-1]:
        low, high = low + mass[0], high + mass[1]
        cuts.append(((low << bits) // most, -((-high << bits) // least)))
    return cuts


def _decide(known: int, place: int, scale: Fraction, pieces: tuple[WholePiece, ...], source: Source) -> int:
    """The piece of a uniform number whose first 64 bits are ``known`` and do not tell."""
    bits = _BITS
    while True:
        bits += 64
        known = known << 64 | int(uint64(source, 1)[0])
        cuts = _thresholds(place, scale, pieces, bits)
        if all(known > high or known < low for low, high in cuts):
            return sum(known > high for _, high in cuts)


def _distance(place: int, piece: WholePiece) -> int:
    low, high = piece
    return max(0, 0 if low is None else low - place, 0 if high is None else place - high)


def _clipped(values: IntArray, piece: WholePiece) -> IntArray:
    low, high = piece
    return np.asarray(np.clip(values, -LARGEST_COUNT if low is None else low, LARGEST_COUNT if high is None else high))


def _whole(end: Any) -> float:
    """A whole number up to 2^53, an infinity, or for a larger number 2^54."""
    if isinstance(end, float | np.floating) and np.isinf(end):
        return float(end)
    if isinstance(end, bool):
        raise ConfigError("not a number")
    number = exact_fraction(end)
    if number.denominator != 1:
        raise ConfigError("not a whole number")
    beyond = 2.0 * LARGEST_WHOLE
    return float(number) if abs(number) <= LARGEST_WHOLE else beyond if number > 0 else -beyond
