"""Laplace noise that respects bounds: truncated to an interval, or clipped onto it (boundary-inflated).

The two laws of Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with
Univariate Bounding Constraints", on an interval [lower, upper] of which one or both ends may be infinite. Every
formula is a sum of positive terms in the regularised incomplete gamma functions P(k, z), so that neither a
scale far below nor far above the width of the interval costs digits.

Drawing them takes floating-point logarithms, whose holes leak the location: they are for studies. A release draws
from the integer laws of :mod:`topdown.research.bounded.discrete_laplace`. What truncation costs in privacy is
:func:`topdown.research.bounded.calibration.privacy_loss`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from topdown.errors import ConfigError
from topdown.noise.parameters import (
    LARGEST,
    FloatArray,
    FloatOrArray,
    as_given,
    bound,
    broadcast_shape,
    probabilities,
    real_numbers,
    scales,
)
from topdown.noise.randomness import Source, uniform
from topdown.noise.sampling import Size
from topdown.research.bounded.incomplete_gamma import (
    WIDE,
    laplace_tail,
    lower_gamma,
    lower_quantile,
    scaled_distances,
    second_moment,
)


@dataclass(frozen=True, slots=True, eq=False)
class TruncatedLaplace:
    """The Laplace law around ``location``, conditioned on [lower, upper] (Liu, Definition 2a and Equation 4).

    Density proportional to exp(-|x - location| / scale) on [lower, upper] and 0 elsewhere. A location outside of the
    bounds gives the same law as the nearest bound: an exponential law cut at the other end. All four parameters
    broadcast against each other, and are in units of the statistic.

    Liu's Definition 2a calls the mechanism epsilon-differentially private at scale sensitivity/epsilon. It is not:
    resampling until the draw fits is no post-processing, see :func:`topdown.noise.privacy_loss` for what it
    costs and :func:`topdown.noise.calibrate` for the scale that keeps epsilon.

    Args:
        location: any shape, of magnitude up to 1e150.
        scale: above 0, from 1e-150 to 1e150.
        lower: the lower bound; None or -inf for none.
        upper: the upper bound; None or inf for none.

    Raises ConfigError for a scale that is not positive, for nan, for ``lower >= upper``, and for a magnitude outside of
    [1e-150, 1e150] (scale) or beyond 1e150 (location, finite bounds).

    Examples:
        >>> law = td.noise.TruncatedLaplace(location=0.1, scale=0.3, lower=0.0, upper=1.0)
        >>> round(float(law.bias), 4)
        0.1839
    """

    location: FloatOrArray = field(repr=False)
    scale: FloatOrArray
    lower: FloatOrArray | None = None
    upper: FloatOrArray | None = None

    fit_for_release: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _set_parameters(self, point_allowed=False)

    @property
    def mean(self) -> FloatOrArray:
        """E X, shape of the parameters."""
        inside, _, _, lower, upper, bias, _ = self._moments()
        return as_given(np.clip(inside + bias, lower, upper))

    @property
    def bias(self) -> FloatOrArray:
        """E X - location (Liu, Equation 6; Equation 9 for a half-line), to full relative precision."""
        inside, location, _, _, _, bias, _ = self._moments()
        return as_given(bias + (inside - location))

    @property
    def mse(self) -> FloatOrArray:
        """E (X - location)^2; at most 2 scale^2 for a location within the bounds (Liu, Proposition 2)."""
        inside, location, _, _, _, bias, mse = self._moments()
        moved = inside - location
        # (X - location)^2 = (X - inside)^2 + 2 moved (X - inside) + moved^2, all of one sign when moved is not 0.
        return as_given(mse + 2.0 * moved * bias + moved * moved)

    @property
    def variance(self) -> FloatOrArray:
        """E (X - E X)^2."""
        *_, bias, mse = self._moments()
        return as_given(mse - bias * bias)

    def pdf(self, x: ArrayLike) -> FloatOrArray:
        """Density at ``x``, which broadcasts against the parameters."""
        return as_given(np.exp(self._log_density(x)))

    def logpdf(self, x: ArrayLike) -> FloatOrArray:
        """Logarithm of the density at ``x``, -inf outside of the bounds; finite far in the tails where the density is
        0.
        """
        return as_given(self._log_density(x))

    def cdf(self, x: ArrayLike) -> FloatOrArray:
        """P(X <= x), with full relative precision towards the lower bound."""
        return as_given(self._mass_below(np.asarray(x, dtype=np.float64), mirrored=False))

    def sf(self, x: ArrayLike) -> FloatOrArray:
        """P(X > x), with full relative precision towards the upper bound."""
        return as_given(self._mass_below(-np.asarray(x, dtype=np.float64), mirrored=True))

    def ppf(self, q: ArrayLike) -> FloatOrArray:
        """The quantile: the x with P(X <= x) = q; q = 0 and 1 give the bounds. Raises ConfigError outside of [0, 1]."""
        q = probabilities(q)
        s, lam, c0, c1 = self._standard()
        below, above = lower_gamma(1, (s - c0) / lam), lower_gamma(1, (c1 - s) / lam)
        left, right = q * (below + above), (1.0 - q) * (below + above)
        lower_half = np.clip(lower_quantile(left, below - left, s, lam, c0), c0, s)
        upper_half = np.clip(-lower_quantile(right, left - below, -s, lam, -c1), s, c1)
        return as_given(np.where(left <= below, lower_half, upper_half))

    def sample(self, size: Size | None, source: Source) -> FloatOrArray:
        """Draws by the inverse cdf, of shape ``size``, to which the parameters broadcast; None: one per location.

        For studies: floating-point draws leak in a release, so a source for releases is refused by ConfigError.
        """
        shape = broadcast_shape(size, np.shape(self.location), source)
        return self.ppf(uniform(source, int(np.prod(shape))).reshape(shape))

    def _standard(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Location moved to the nearest bound (the law is the same), scale, bounds; the scale cut at WIDE widths."""
        s, lam, c0, c1 = arrays_of(self)
        with np.errstate(over="ignore"):
            return np.clip(s, c0, c1), np.minimum(lam, WIDE * (c1 - c0)), c0, c1

    def _moments(self) -> tuple[FloatArray, ...]:
        """(location within the bounds, location, scale, bounds, bias and mse about the location within)."""
        s, lam, c0, c1 = self._standard()
        za, zc, d = scaled_distances(s, lam, c0, c1)
        kept = lower_gamma(1, zc) + lower_gamma(1, za)
        near = np.minimum(za, zc)
        # P(2, zc) - P(2, za) without a difference: with d = zc - za > 0 it is exp(-za) (za P(1, d) + P(2, d)).
        bias = lam * np.sign(d) * np.exp(-near) * (near * lower_gamma(1, np.abs(d)) + lower_gamma(2, np.abs(d))) / kept
        mse = 2.0 * lam * lam * ((lower_gamma(3, zc) + lower_gamma(3, za)) / kept)
        return s, arrays_of(self)[0], lam, c0, c1, bias, mse

    def _log_density(self, x: ArrayLike) -> FloatArray:
        x = np.asarray(x, dtype=np.float64)
        s, lam, c0, c1 = self._standard()
        kept = lower_gamma(1, (s - c0) / lam) + lower_gamma(1, (c1 - s) / lam)
        inside = (x >= c0) & (x <= c1)
        with np.errstate(invalid="ignore"):
            return np.where(inside, -np.abs(x - s) / lam - np.log(kept) - np.log(lam), -np.inf)

    def _mass_below(self, x: FloatArray, *, mirrored: bool) -> FloatArray:
        s, lam, c0, c1 = self._standard()
        if mirrored:
            s, c0, c1 = -s, -c1, -c0
        x = np.clip(x, c0, c1)
        below, above = lower_gamma(1, (s - c0) / lam), lower_gamma(1, (c1 - s) / lam)
        with np.errstate(invalid="ignore"):
            depth = np.maximum(s - x, 0.0) / lam
            left = np.exp(-depth) * lower_gamma(1, np.maximum(x - c0, 0.0) / lam)
            beyond = lower_gamma(1, np.maximum(x - s, 0.0) / lam)
        total = np.where(x <= s, left, below + beyond) / (below + above)
        # At an infinite bound the distances above are inf - inf.
        return np.where(x > c0, np.where(x < c1, total, 1.0), np.where(np.isnan(x), np.nan, 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class BoundaryInflatedLaplace:
    """``clip(location + Laplace(scale), lower, upper)`` (Liu, Definition 2b and Equation 5).

    An atom on each finite bound and the plain Laplace density between them. Clipping is post-processing: with scale
    sensitivity/epsilon the law keeps epsilon. The parameters broadcast as in :class:`TruncatedLaplace`; ``lower ==
    upper`` is allowed and puts all mass there (this happens when the bounds are themselves releases).

    Args:
        location: any shape, of magnitude up to 1e150.
        scale: above 0, from 1e-150 to 1e150.
        lower: the lower bound; None or -inf for none.
        upper: the upper bound; None or inf for none.

    Raises ConfigError as :class:`TruncatedLaplace` does, for ``lower > upper`` only.

    Examples:
        >>> law = td.noise.BoundaryInflatedLaplace(location=0.1, scale=0.3, lower=0.0, upper=1.0)
        >>> round(float(law.bias), 4)
        0.1
    """

    location: FloatOrArray = field(repr=False)
    scale: FloatOrArray
    lower: FloatOrArray | None = None
    upper: FloatOrArray | None = None

    fit_for_release: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _set_parameters(self, point_allowed=True)

    @property
    def atoms(self) -> tuple[FloatOrArray, FloatOrArray]:
        """(P(X = lower), P(X = upper)): what the plain Laplace law has below and above, 0 for an infinite bound."""
        s, lam, c0, c1 = arrays_of(self)
        return as_given(laplace_tail((s - c0) / lam)), as_given(laplace_tail((c1 - s) / lam))

    @property
    def mean(self) -> FloatOrArray:
        """E X, shape of the parameters."""
        near, lower, upper, bias, _ = self._moments()
        return as_given(np.clip(near + bias, lower, upper))

    @property
    def bias(self) -> FloatOrArray:
        """E X - location (Liu, Equation 7; Equation 10 for a half-line), to full relative precision."""
        near, _, _, bias, _ = self._moments()
        return as_given(bias + (near - arrays_of(self)[0]))

    @property
    def mse(self) -> FloatOrArray:
        """E (X - location)^2; at most 2 scale^2 for a location within the bounds (Liu, Proposition 2)."""
        near, _, _, bias, mse = self._moments()
        moved = near - arrays_of(self)[0]
        return as_given(mse + 2.0 * moved * bias + moved * moved)

    @property
    def variance(self) -> FloatOrArray:
        """E (X - E X)^2."""
        *_, bias, mse = self._moments()
        return as_given(mse - bias * bias)

    def pdf(self, x: ArrayLike) -> FloatOrArray:
        """Density between the atoms, exp(-|x - location| / scale) / (2 scale) on [lower, upper], 0 elsewhere.

        Its integral and the two ``atoms`` add up to 1.
        """
        x = np.asarray(x, dtype=np.float64)
        s, lam, c0, c1 = arrays_of(self)
        return as_given(np.where((x >= c0) & (x <= c1), np.exp(-np.abs(x - s) / lam) / (2.0 * lam), 0.0))

    def cdf(self, x: ArrayLike) -> FloatOrArray:
        """P(X <= x): the Laplace cdf on [lower, upper), 0 below and 1 from ``upper`` on."""
        x = np.asarray(x, dtype=np.float64)
        s, lam, c0, c1 = arrays_of(self)
        return as_given(np.where(x < c0, 0.0, np.where(x >= c1, 1.0, laplace_tail((s - x) / lam))))

    def sf(self, x: ArrayLike) -> FloatOrArray:
        """P(X > x), with full relative precision towards the upper bound."""
        x = np.asarray(x, dtype=np.float64)
        s, lam, c0, c1 = arrays_of(self)
        return as_given(np.where(x < c0, 1.0, np.where(x >= c1, 0.0, laplace_tail((x - s) / lam))))

    def ppf(self, q: ArrayLike) -> FloatOrArray:
        """The quantile: the least x with P(X <= x) >= q. Raises ConfigError outside of [0, 1]."""
        q = probabilities(q)
        s, lam, c0, c1 = arrays_of(self)
        with np.errstate(divide="ignore"):
            noise = np.where(q <= 0.5, np.log(2.0 * q), -np.log(2.0 * (1.0 - q)))
            return as_given(np.clip(s + lam * noise, c0, c1))

    def sample(self, size: Size | None, source: Source) -> FloatOrArray:
        """Draws by the inverse cdf, of shape ``size``, to which the parameters broadcast; None: one per location.

        For studies: floating-point draws leak in a release, so a source for releases is refused by ConfigError.
        """
        shape = broadcast_shape(size, np.shape(self.location), source)
        return self.ppf(uniform(source, int(np.prod(shape))).reshape(shape))

    def _moments(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
        """(nearest point of the bounds to the location, bounds, bias and mse about that point)."""
        s, lam, c0, c1 = arrays_of(self)
        near = np.clip(s, c0, c1)
        za, zc, d = scaled_distances(near, lam, c0, c1)
        width = np.maximum(za, zc)
        # Outside, X leaves the near bound only if the noise first covers the distance to it.
        reached = np.exp(-np.abs(s - near) / lam)
        inside = s == near
        bias = (
            0.5
            * lam
            * np.where(
                inside,
                np.sign(d) * np.exp(-np.minimum(za, zc)) * lower_gamma(1, np.abs(d)),
                np.where(s < near, 1.0, -1.0) * reached * lower_gamma(1, width),
            )
        )
        # The nearer bound is at distance 0 for a location outside, and adds nothing.
        mse = np.where(inside, 1.0, reached) * (second_moment(near - c0, lam) + second_moment(c1 - near, lam))
        return near, c0, c1, bias, mse


def _set_parameters(law: TruncatedLaplace | BoundaryInflatedLaplace, *, point_allowed: bool) -> None:
    location = real_numbers("location", law.location, shown=False)
    if (np.abs(location) > LARGEST).any():
        at = int(np.flatnonzero(np.abs(location) > LARGEST)[0])
        raise ConfigError(f"location at position {at}: its magnitude passes {LARGEST:g}; use other units")
    scale = scales(law.scale)
    lower, upper = bound("lower", law.lower, absent=-np.inf), bound("upper", law.upper, absent=np.inf)
    try:
        location, scale, lower, upper = np.broadcast_arrays(location, scale, lower, upper)
    except ValueError:
        shapes = [np.shape(a) for a in (location, scale, lower, upper)]
        raise ConfigError(f"location, scale, lower and upper of shapes {shapes} do not broadcast") from None
    wrong = lower > upper if point_allowed else lower >= upper
    if wrong.any():
        low, high = float(lower[wrong].flat[0]), float(upper[wrong].flat[0])
        remedy = "give lower <= upper" if point_allowed else "give lower < upper: one point has no density"
        raise ConfigError(f"bounds [{low!r}, {high!r}]: {remedy}")
    for name, array in (("location", location), ("scale", scale), ("lower", lower), ("upper", upper)):
        array.flags.writeable = False
        object.__setattr__(law, name, as_given(array))


def arrays_of(law: TruncatedLaplace | BoundaryInflatedLaplace) -> tuple[FloatArray, ...]:
    """Location, scale, lower and upper bound, of one shape."""
    return tuple(np.asarray(a) for a in (law.location, law.scale, law.lower, law.upper))
