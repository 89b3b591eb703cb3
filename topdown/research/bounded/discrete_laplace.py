"""Exact whole-number noise within bounds, for releases: the double geometric law, truncated or clipped.

The discrete versions of :mod:`topdown.research.bounded.laplace`, for counts that must not be negative or not exceed a
public total. The draws come from the exact discrete Laplace sampler (Canonne, Kamath, Steinke, "The Discrete Gaussian
for Differential Privacy") and from comparisons of integers: no floating-point number decides a draw.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import ConfigError
from topdown.noise.exact.discrete import DiscreteLaplace
from topdown.noise.exact_numbers import exact_fraction
from topdown.noise.parameters import (
    LARGEST_COUNT,
    SMALLEST,
    UNBOUNDED,
    FloatArray,
    FloatOrArray,
    IntArray,
    IntOrArray,
    as_given,
    broadcast_shape,
    whole_as_given,
    whole_bound,
    whole_numbers,
)
from topdown.noise.randomness import Source, uint64
from topdown.noise.sampling import Size
from topdown.research.bounded.geometric_sums import reaches, sum0, sum1, sum2
from topdown.wording import figure

# With counts up to 2^60 every sum fits an int64, and noise of a scale up to this one passes an absent bound (2^62) with
# a probability below exp(-700).
LARGEST_SCALE = 2**52


@dataclass(frozen=True, slots=True, eq=False)
class TruncatedDiscreteLaplace:
    """The double geometric law around ``location``, conditioned on lower..upper.

    P(X = k) proportional to exp(-|k - location| / scale) on the whole numbers from ``lower`` to ``upper``, 0 elsewhere.
    A location outside of the bounds gives the same law as the nearest bound. Discrete version of Liu, Definition 2a.

    Truncation is not post-processing: at scale sensitivity/epsilon it loses more than epsilon. Take the scale from
    ``calibrate(..., law="geometric")``, and charge ``privacy_loss(..., law="geometric")``.

    Args:
        location: whole numbers, any shape.
        scale: one number above 0, kept exactly (a float by its shortest decimal form).
        lower: whole numbers that broadcast with the location; None or -inf for no bound.
        upper: whole numbers that broadcast with the location; None or inf for no bound.

    Raises ConfigError for a scale that is not positive or passes 2^52, fractions, ``lower > upper``, and magnitudes
    beyond 2^60.

    Examples:
        >>> law = td.noise.TruncatedDiscreteLaplace(location=2, scale=Fraction(3), lower=0, upper=10)
        >>> law.sample(5, td.SeededSource(1))
        array([2, 1, 1, 0, 9])
    """

    location: IntOrArray = field(repr=False)
    scale: Fraction
    lower: IntOrArray | None = None
    upper: IntOrArray | None = None

    fit_for_release: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _set_parameters(self)

    @property
    def mean(self) -> FloatOrArray:
        """E X."""
        near, bias, _ = self._moments()
        return as_given(near.astype(np.float64) + bias)

    @property
    def bias(self) -> FloatOrArray:
        """E X - location."""
        near, bias, _ = self._moments()
        return as_given(bias + (near - np.asarray(self.location)))

    @property
    def mse(self) -> FloatOrArray:
        """E (X - location)^2."""
        near, bias, mse = self._moments()
        moved = (near - np.asarray(self.location)).astype(np.float64)
        return as_given(mse + 2.0 * moved * bias + moved * moved)

    @property
    def variance(self) -> FloatOrArray:
        """E (X - E X)^2."""
        _, bias, mse = self._moments()
        return as_given(mse - bias * bias)

    def pmf(self, k: ArrayLike) -> FloatOrArray:
        """P(X = k), 0 for k outside of the bounds or not whole."""
        at, rest = _floors(k)
        s, lower, upper = self._near()
        possible = (at >= lower) & (at <= upper) & (rest == 0.0)
        mass = np.where(possible, np.exp(-np.abs(at - s) / float(self.scale)), 0.0)
        return as_given(mass / self._total(s - lower, upper - s))

    def cdf(self, k: ArrayLike) -> FloatOrArray:
        """P(X <= k), with full relative precision towards the lower bound."""
        at, rest = _floors(k)
        s, lower, upper = self._near()
        return as_given(np.where(np.isnan(rest), np.nan, self._mass_below(at, s, lower, upper)))

    def sf(self, k: ArrayLike) -> FloatOrArray:
        """P(X > k), with full relative precision towards the upper bound."""
        at, rest = _floors(k)
        s, lower, upper = self._near()
        return as_given(np.where(np.isnan(rest), np.nan, self._mass_below(-at - 1, -s, -upper, -lower)))

    def sample(self, size: Size | None, source: Source) -> IntOrArray:
        """Exact draws of shape ``size`` from the bits of ``source``, to which the parameters broadcast; None: one per
        location.

        By rejection, with two proposals of which each has an acceptance of at least 0.43 where it is used: the
        untruncated law where the bounds are far apart, and a uniform number between them where they are within two
        scales. The second keeps k if a geometric variable of the same ratio reaches |k - location|, which has
        exactly the probability exp(-|k - location|/scale). How many rounds it takes depends on the location: do not
        publish timings.
        """
        shape = broadcast_shape(size, np.shape(self.location), source)
        location, lower, upper = (np.broadcast_to(a, shape).ravel() for a in _bounds(self))
        near = np.clip(location, lower, upper)
        low, high = lower - near, upper - near
        draws = np.empty(near.shape, dtype=np.int64)
        noise = DiscreteLaplace(self.scale)
        narrow = high.astype(np.float64) - low.astype(np.float64) < 2.0 * float(self.scale)
        for proposal, chosen in ((_propose_uniform, narrow), (_propose_untruncated, ~narrow)):
            pending = np.flatnonzero(chosen)
            while pending.size:
                proposed, accepted = proposal(low[pending], high[pending], noise, source)
                draws[pending[accepted]] = proposed[accepted]
                pending = pending[~accepted]
        return whole_as_given((near + draws).reshape(shape))

    def _near(self) -> tuple[IntArray, IntArray, IntArray]:
        """Location moved into the bounds, the bounds."""
        location, lower, upper = _bounds(self)
        return np.clip(location, lower, upper), lower, upper

    def _total(self, below: IntArray, above: IntArray) -> FloatArray:
        """Sum of exp(-|k - location|/scale) over the numbers at most so far below and above."""
        total: FloatArray = 1.0 + sum0(_length(below), self.scale) + sum0(_length(above), self.scale)
        return total

    def _moments(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """(location moved into the bounds, bias and mse about it)."""
        s, lower, upper = self._near()
        below, above = s - lower, upper - s
        near, gap, sign = _asymmetry(below, above)
        first = near * sum0(gap, self.scale) + sum1(gap, self.scale)
        total = self._total(below, above)
        bias = sign * np.exp(-near / float(self.scale)) * first / total
        return s, bias, (sum2(_length(above), self.scale) + sum2(_length(below), self.scale)) / total

    def _mass_below(self, k: IntArray, s: IntArray, lower: IntArray, upper: IntArray) -> FloatArray:
        """P(X <= k) for a location of ``s`` within the bounds."""
        theta = 1.0 / float(self.scale)
        left = np.exp(-theta * np.maximum(s - k - 1, 0)) * sum0(_length(np.maximum(k - lower + 1, 0)), self.scale)
        beyond = sum0(_length(np.clip(k - s, 0, upper - s)), self.scale)
        right = sum0(_length(s - lower), self.scale) + 1.0 + beyond
        return np.where(k < lower, 0.0, np.where(k < s, left, right) / self._total(s - lower, upper - s))


@dataclass(frozen=True, slots=True, eq=False)
class BoundaryInflatedDiscreteLaplace:
    """``clip(location + DiscreteLaplace(scale), lower, upper)`` on whole numbers.

    Clipping is post-processing: at scale sensitivity/epsilon the law keeps epsilon. Discrete version of Liu, Definition
    2b.

    Args:
        location: whole numbers, any shape.
        scale: one number above 0, kept exactly (a float by its shortest decimal form).
        lower: whole numbers that broadcast with the location; None or -inf for no bound.
        upper: whole numbers that broadcast with the location; None or inf for no bound.

    Raises ConfigError as :class:`TruncatedDiscreteLaplace` does.

    Examples:
        >>> law = td.noise.BoundaryInflatedDiscreteLaplace(location=2, scale=Fraction(3), lower=0, upper=10)
        >>> law.sample(5, td.SeededSource(1))
        array([2, 1, 0, 0, 9])
    """

    location: IntOrArray = field(repr=False)
    scale: Fraction
    lower: IntOrArray | None = None
    upper: IntOrArray | None = None

    fit_for_release: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _set_parameters(self)

    @property
    def atoms(self) -> tuple[FloatOrArray, FloatOrArray]:
        """(P(X = lower), P(X = upper)): the mass of the unclipped law at and beyond each bound."""
        location, lower, upper = _bounds(self)
        one_point = lower == upper
        return (
            as_given(np.where(one_point, 1.0, reaches(_length(location - lower), self.scale))),
            as_given(np.where(one_point, 1.0, reaches(_length(upper - location), self.scale))),
        )

    @property
    def mean(self) -> FloatOrArray:
        """E X."""
        near, bias, _ = self._moments()
        return as_given(near.astype(np.float64) + bias)

    @property
    def bias(self) -> FloatOrArray:
        """E X - location."""
        near, bias, _ = self._moments()
        return as_given(bias + (near - np.asarray(self.location)))

    @property
    def mse(self) -> FloatOrArray:
        """E (X - location)^2."""
        near, bias, mse = self._moments()
        moved = (near - np.asarray(self.location)).astype(np.float64)
        return as_given(mse + 2.0 * moved * bias + moved * moved)

    @property
    def variance(self) -> FloatOrArray:
        """E (X - E X)^2."""
        _, bias, mse = self._moments()
        return as_given(mse - bias * bias)

    def pmf(self, k: ArrayLike) -> FloatOrArray:
        """P(X = k), the atoms included; 0 for k outside of the bounds or not whole."""
        at, rest = _floors(k)
        location, lower, upper = _bounds(self)
        at_lower, at_upper = self.atoms
        theta = 1.0 / float(self.scale)
        between = np.tanh(0.5 * theta) * np.exp(-theta * np.abs(at - location))
        mass = np.where(at == lower, at_lower, np.where(at == upper, at_upper, between))
        return as_given(np.where((at >= lower) & (at <= upper) & (rest == 0.0), mass, 0.0))

    def cdf(self, k: ArrayLike) -> FloatOrArray:
        """P(X <= k)."""
        at, rest = _floors(k)
        location, lower, upper = _bounds(self)
        inside = reaches((location - at).astype(np.float64), self.scale)
        return as_given(np.where(np.isnan(rest), np.nan, np.where(at < lower, 0.0, np.where(at >= upper, 1.0, inside))))

    def sf(self, k: ArrayLike) -> FloatOrArray:
        """P(X > k)."""
        at, rest = _floors(k)
        location, lower, upper = _bounds(self)
        inside = reaches((at + 1 - location).astype(np.float64), self.scale)
        return as_given(np.where(np.isnan(rest), np.nan, np.where(at < lower, 1.0, np.where(at >= upper, 0.0, inside))))

    def sample(self, size: Size | None, source: Source) -> IntOrArray:
        """Exact draws of shape ``size`` from the bits of ``source``, to which the parameters broadcast; None: one per
        location.
        """
        shape = broadcast_shape(size, np.shape(self.location), source)
        location, lower, upper = _bounds(self)
        draws = np.asarray(DiscreteLaplace(self.scale).sample(shape, source), dtype=np.int64)
        # The noise is clipped before it is added, since the sum of any noise and any location need not fit.
        return whole_as_given(np.asarray(np.clip(draws, lower - location, upper - location) + location))

    def _moments(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """(nearest whole number of the bounds to the location, bias and mse about it)."""
        location, lower, upper = _bounds(self)
        s = np.clip(location, lower, upper)
        below, above = s - lower, upper - s
        near, gap, sign = _asymmetry(below, above)
        theta = 1.0 / float(self.scale)
        # Outside, X leaves the near bound only if the noise first covers the distance to it.
        covered = np.exp(-theta * np.abs(location - s))
        side = np.where(location == s, sign * np.exp(-theta * near), np.where(location < s, covered, -covered))
        one_plus_a = 1.0 + np.exp(-theta)
        bias = side * sum0(gap, self.scale) / one_plus_a
        squares = sum(2.0 * sum1(m, self.scale) - sum0(m, self.scale) for m in (_length(below), _length(above)))
        return s, bias, np.asarray(covered * squares / one_plus_a)


def _set_parameters(law: TruncatedDiscreteLaplace | BoundaryInflatedDiscreteLaplace) -> None:
    scale = exact_fraction(law.scale)
    if not SMALLEST <= scale <= LARGEST_SCALE:
        raise ConfigError(f"scale {figure(str(law.scale))}: give a number from {SMALLEST:g} to 2^52")
    location = whole_numbers("location", law.location, shown=False)
    lower = whole_bound("lower", law.lower, -UNBOUNDED)
    upper = whole_bound("upper", law.upper, UNBOUNDED)
    try:
        location, lower, upper = np.broadcast_arrays(location, lower, upper)
    except ValueError:
        raise ConfigError("location, lower and upper do not broadcast: give equal shapes") from None
    if (lower > upper).any():
        at = np.flatnonzero(lower > upper)[0]
        raise ConfigError(f"bounds [{lower.flat[at]}, {upper.flat[at]}]: give lower <= upper")
    object.__setattr__(law, "scale", scale)
    for name, array in (("location", location), ("lower", lower), ("upper", upper)):
        array.flags.writeable = False
        absent = array.ndim == 0 and abs(int(array)) == UNBOUNDED
        object.__setattr__(law, name, None if absent else whole_as_given(array))


def _bounds(law: TruncatedDiscreteLaplace | BoundaryInflatedDiscreteLaplace) -> tuple[IntArray, IntArray, IntArray]:
    return (
        np.asarray(law.location),
        np.asarray(-UNBOUNDED if law.lower is None else law.lower),
        np.asarray(UNBOUNDED if law.upper is None else law.upper),
    )


def _propose_untruncated(
    low: IntArray, high: IntArray, noise: DiscreteLaplace, source: Source
) -> tuple[IntArray, NDArray[np.bool_]]:
    draws = np.asarray(noise.sample(low.size, source), dtype=np.int64)
    return draws, (draws >= low) & (draws <= high)


def _propose_uniform(
    low: IntArray, high: IntArray, noise: DiscreteLaplace, source: Source
) -> tuple[IntArray, NDArray[np.bool_]]:
    count = (high - low + 1).astype(np.uint64)
    bits = uint64(source, low.size)
    # The last 2^64 mod count values would make the remainder uneven.
    full = np.uint64(2**64 - 1)
    even = bits <= full - (full % count + np.uint64(1)) % count
    draws = low + (bits % count).astype(np.int64)
    # X for X >= 0 and -X - 1 for X < 0 is geometric: P(G >= d) = exp(-d/scale), whichever sign X has.
    reach = np.asarray(noise.sample(low.size, source), dtype=np.int64)
    return draws, even & ((reach ^ (reach >> 63)) >= np.abs(draws))


def _asymmetry(below: IntArray, above: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(shorter distance to a bound, longer minus shorter, sign of above - below); without bounds (0, 0, 0)."""
    near, far = np.minimum(below, above), np.maximum(below, above)
    bounded = near <= 2 * LARGEST_COUNT
    gap = np.where(np.isinf(_length(far)), np.inf, far - near)
    return (
        np.where(bounded, near, 0).astype(np.float64),
        np.where(bounded, gap, 0.0),
        np.where(above > below, 1.0, -1.0),
    )


def _length(distance: IntArray) -> FloatArray:
    """A distance between two whole numbers, infinite to an absent bound.

    Distances are taken before they become floats, which beyond 2^53 do not hold all whole numbers. What lies farther
    than any two numbers that are given can (2^61) adds nothing to a sum of doubles, at the largest scale neither.
    """
    return np.where(distance > 2 * LARGEST_COUNT, np.inf, distance)


def _floors(k: ArrayLike) -> tuple[IntArray, FloatArray]:
    """floor(k), and what it leaves of k (nan for nan); a number beyond all bounds is moved to beside the absent one."""
    given = np.asarray(k)
    rest = np.zeros(given.shape)
    if given.dtype.kind == "u":
        whole = np.minimum(given.astype(np.uint64), np.uint64(UNBOUNDED)).astype(np.int64)
    elif given.dtype.kind == "i":
        whole = given.astype(np.int64)
    else:
        given = np.clip(np.asarray(k, dtype=np.float64), -UNBOUNDED, UNBOUNDED)
        rest = given - np.floor(given)
        whole = np.where(np.isnan(given), 0.0, np.floor(given)).astype(np.int64)
    # Short of it, so that k - lower + 1 fits an int64 for every lower.
    return np.clip(whole, 2 - UNBOUNDED, UNBOUNDED - 2), rest
