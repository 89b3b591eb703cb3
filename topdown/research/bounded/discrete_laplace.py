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
        return as_given(near + bias)

    @property
    def bias(self) -> FloatOrArray:
        """E X - location."""
        near, bias, _ = self._moments()
        return as_given(bias + (near - np.asarray(self.location, dtype=np.float64)))

    @property
    def mse(self) -> FloatOrArray:
        """E (X - location)^2."""
        near, bias, mse = self._moments()
        moved = near - np.asarray(self.location, dtype=np.float64)
        return as_given(mse + 2.0 * moved * bias + moved * moved)

    @property
    def variance(self) -> FloatOrArray:
        """E (X - E X)^2."""
        _, bias, mse = self._moments()
        return as_given(mse - bias * bias)

    def pmf(self, k: ArrayLike) -> FloatOrArray:
        """P(X = k), 0 for k outside of the bounds or not whole."""
        k = np.asarray(k, dtype=np.float64)
        s, below, above, lower, upper = self._distances()
        possible = (k >= lower) & (k <= upper) & (k == np.floor(k))
        return as_given(np.where(possible, np.exp(-np.abs(k - s) / float(self.scale)), 0.0) / self._total(below, above))

    def cdf(self, k: ArrayLike) -> FloatOrArray:
        """P(X <= k), with full relative precision towards the lower bound."""
        s, below, above, lower, _ = self._distances()
        return as_given(self._mass_below(np.floor(np.asarray(k, dtype=np.float64)), s, below, above, lower))

    def sf(self, k: ArrayLike) -> FloatOrArray:
        """P(X > k), with full relative precision towards the upper bound."""
        s, below, above, _, upper = self._distances()
        mirrored = -np.floor(np.asarray(k, dtype=np.float64)) - 1.0
        return as_given(self._mass_below(mirrored, -s, above, below, -upper))

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

    def _distances(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
        """Location moved into the bounds, distances to them, the bounds; an absent bound is infinite."""
        location, lower, upper = (a.astype(np.float64) for a in _bounds(self))
        lower = np.where(lower == -UNBOUNDED, -np.inf, lower)
        upper = np.where(upper == UNBOUNDED, np.inf, upper)
        s = np.clip(location, lower, upper)
        return s, s - lower, upper - s, lower, upper

    def _total(self, below: FloatArray, above: FloatArray) -> FloatArray:
        """Sum of exp(-|k - location|/scale) over the bounds."""
        total: FloatArray = 1.0 + sum0(below, self.scale) + sum0(above, self.scale)
        return total

    def _moments(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(location moved into the bounds, bias and mse about it)."""
        s, below, above, _, _ = self._distances()
        near, gap, sign = _asymmetry(below, above)
        first = near * sum0(gap, self.scale) + sum1(gap, self.scale)
        total = self._total(below, above)
        bias = sign * np.exp(-near / float(self.scale)) * first / total
        return s, bias, (sum2(above, self.scale) + sum2(below, self.scale)) / total

    def _mass_below(
        self, k: FloatArray, s: FloatArray, below: FloatArray, above: FloatArray, lower: FloatArray
    ) -> FloatArray:
        theta = 1.0 / float(self.scale)
        with np.errstate(invalid="ignore"):
            left = np.exp(-theta * np.maximum(s - k - 1.0, 0.0)) * sum0(np.maximum(k - lower + 1.0, 0.0), self.scale)
            beyond = sum0(np.clip(k - s, 0.0, above), self.scale)
            mass = np.where(k < s, left, sum0(below, self.scale) + 1.0 + beyond) / self._total(below, above)
        return np.where(k < lower, 0.0, mass)


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
        location, lower, upper = self._parameters()
        one_point = lower == upper
        return (
            as_given(np.where(one_point, 1.0, reaches(location - lower, self.scale))),
            as_given(np.where(one_point, 1.0, reaches(upper - location, self.scale))),
        )

    @property
    def mean(self) -> FloatOrArray:
        """E X."""
        near, bias, _ = self._moments()
        return as_given(near + bias)

    @property
    def bias(self) -> FloatOrArray:
        """E X - location."""
        near, bias, _ = self._moments()
        return as_given(bias + (near - self._parameters()[0]))

    @property
    def mse(self) -> FloatOrArray:
        """E (X - location)^2."""
        near, bias, mse = self._moments()
        moved = near - self._parameters()[0]
        return as_given(mse + 2.0 * moved * bias + moved * moved)

    @property
    def variance(self) -> FloatOrArray:
        """E (X - E X)^2."""
        _, bias, mse = self._moments()
        return as_given(mse - bias * bias)

    def pmf(self, k: ArrayLike) -> FloatOrArray:
        """P(X = k), the atoms included; 0 for k outside of the bounds or not whole."""
        k = np.asarray(k, dtype=np.float64)
        location, lower, upper = self._parameters()
        at_lower, at_upper = self.atoms
        theta = 1.0 / float(self.scale)
        between = np.tanh(0.5 * theta) * np.exp(-theta * np.abs(k - location))
        mass = np.where((k > lower) & (k < upper) & (k == np.floor(k)), between, 0.0)
        return as_given(np.where(k == lower, at_lower, np.where(k == upper, at_upper, mass)))

    def cdf(self, k: ArrayLike) -> FloatOrArray:
        """P(X <= k)."""
        k = np.floor(np.asarray(k, dtype=np.float64))
        location, lower, upper = self._parameters()
        return as_given(np.where(k < lower, 0.0, np.where(k >= upper, 1.0, reaches(location - k, self.scale))))

    def sf(self, k: ArrayLike) -> FloatOrArray:
        """P(X > k)."""
        k = np.floor(np.asarray(k, dtype=np.float64))
        location, lower, upper = self._parameters()
        return as_given(np.where(k < lower, 1.0, np.where(k >= upper, 0.0, reaches(k + 1.0 - location, self.scale))))

    def sample(self, size: Size | None, source: Source) -> IntOrArray:
        """Exact draws of shape ``size`` from the bits of ``source``, to which the parameters broadcast; None: one per
        location.
        """
        shape = broadcast_shape(size, np.shape(self.location), source)
        location, lower, upper = _bounds(self)
        draws = np.asarray(DiscreteLaplace(self.scale).sample(shape, source), dtype=np.int64)
        # The noise is clipped before it is added, since the sum of any noise and any location need not fit.
        return whole_as_given(np.asarray(np.clip(draws, lower - location, upper - location) + location))

    def _parameters(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        location, lower, upper = (a.astype(np.float64) for a in _bounds(self))
        lower = np.where(lower == -UNBOUNDED, -np.inf, lower)
        return location, lower, np.where(upper == UNBOUNDED, np.inf, upper)

    def _moments(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(nearest whole number of the bounds to the location, bias and mse about it)."""
        location, lower, upper = self._parameters()
        s = np.clip(location, lower, upper)
        below, above = s - lower, upper - s
        near, gap, sign = _asymmetry(below, above)
        theta = 1.0 / float(self.scale)
        # Outside, X leaves the near bound only if the noise first covers the distance to it.
        covered = np.exp(-theta * np.abs(location - s))
        side = np.where(location == s, sign * np.exp(-theta * near), np.where(location < s, covered, -covered))
        one_plus_a = 1.0 + np.exp(-theta)
        bias = side * sum0(gap, self.scale) / one_plus_a
        squares = sum(2.0 * sum1(m, self.scale) - sum0(m, self.scale) for m in (below, above))
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


def _asymmetry(below: FloatArray, above: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(shorter distance to a bound, longer minus shorter, sign of above - below); without bounds (0, 0, 0)."""
    near, far = np.minimum(below, above), np.maximum(below, above)
    bounded = np.isfinite(near)
    near = np.where(bounded, near, 0.0)
    return near, np.where(bounded, far - near, 0.0), np.where(above > below, 1.0, -1.0)
