"""Generalised Gaussian noise that respects bounds: truncated to an interval, or clipped onto it (boundary-inflated).

The laws of :mod:`topdown.research.bounded.laplace` with density proportional to exp(-(|x - location|/scale)^power) in
the place of Laplace's: at power 1 they are the same. Moments are closed forms in the regularised incomplete gamma
function P: E(|N|^k; 0 < N < t) = scale^k Gamma((k+1)/p)/Gamma(1/p) P((k+1)/p, (t/scale)^p) / 2.

Source: Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with Univariate
Bounding Constraints", Equation 3 with Definition 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from topdown.errors import ConfigError
from topdown.noise.continuous import (
    GeneralizedGaussian,
    checked_power,
    power_beyond,
    power_quantile,
    power_within,
)
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


@dataclass(frozen=True, slots=True, eq=False)
class TruncatedGeneralizedGaussian:
    """The generalised Gaussian law around ``location``, conditioned on [lower, upper].

    Conditioning is no post-processing: what it costs is :func:`topdown.noise.generalized_gaussian_delta` with
    ``bounding="truncated"``.

    Args:
        location: within the bounds, any shape.
        scale: one number above 0, in units of the statistic.
        power: one number from 1 to 100.
        lower: numbers that broadcast with the location; None or -inf for no bound.
        upper: numbers that broadcast with the location; None or inf for no bound.

    Raises ConfigError for a scale or power that cannot be, ``lower >= upper``, and a location outside.

    Examples:
        >>> law = td.noise.TruncatedGeneralizedGaussian(location=0.1, scale=0.3, power=2, lower=0.0, upper=1.0)
        >>> round(float(law.bias), 4)
        0.1111
    """

    location: FloatOrArray = field(repr=False)
    scale: float
    power: float
    lower: FloatOrArray | None = None
    upper: FloatOrArray | None = None

    fit_for_release: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _set_parameters(self)

    @property
    def mean(self) -> FloatOrArray:
        """E X."""
        return as_given(np.asarray(self.location) + np.asarray(self.bias))

    @property
    def bias(self) -> FloatOrArray:
        """E X - location: 0 in the middle of the bounds, and towards the middle elsewhere."""
        below, above = _sides(self)
        return as_given((_moment(self, 1, above) - _moment(self, 1, below)) / self._kept())

    @property
    def mse(self) -> FloatOrArray:
        """E (X - location)^2; at most the variance of the law without bounds."""
        below, above = _sides(self)
        return as_given((_moment(self, 2, above) + _moment(self, 2, below)) / self._kept())

    @property
    def variance(self) -> FloatOrArray:
        """E (X - E X)^2."""
        return as_given(np.asarray(self.mse) - np.asarray(self.bias) ** 2)

    def pdf(self, x: ArrayLike) -> FloatOrArray:
        """Density at ``x``, which broadcasts against the location."""
        x = np.asarray(x, dtype=np.float64)
        inside = (x >= np.asarray(self.lower)) & (x <= np.asarray(self.upper))
        return as_given(np.where(inside, _noise(self).pdf(x - np.asarray(self.location)), 0.0) / self._kept())

    def cdf(self, x: ArrayLike) -> FloatOrArray:
        """P(X <= x), to full relative accuracy in the lower tail."""
        return as_given(self._mass(np.asarray(x, dtype=np.float64) - np.asarray(self.location), *_sides(self)))

    def sf(self, x: ArrayLike) -> FloatOrArray:
        """P(X > x), to full relative accuracy in the upper tail."""
        return as_given(self._mass(np.asarray(self.location) - np.asarray(x, dtype=np.float64), *_sides(self)[::-1]))

    def ppf(self, q: ArrayLike) -> FloatOrArray:
        """The x with P(X <= x) = q. Raises ConfigError for q outside of [0, 1]."""
        q = probabilities(q)
        below, above = (reach / self.scale for reach in _sides(self))
        within = [power_within(self.power, reach) for reach in (below, above)]
        left, right = q * (within[0] + within[1]), (1.0 - q) * (within[0] + within[1])
        is_left = left <= within[0]
        part, end = np.where(is_left, left, right), np.where(is_left, below, above)
        rest = np.maximum(np.where(is_left, within[0], within[1]) - part, 0.0)
        away = self.scale * power_quantile(self.power, rest, np.minimum(power_beyond(self.power, end) + part, 1.0))
        x = np.asarray(self.location) + np.where(is_left, -away, away)
        return as_given(np.clip(x, np.asarray(self.lower), np.asarray(self.upper)))

    def sample(self, size: Size | None, source: Source) -> FloatOrArray:
        """Draws by the inverse cdf from the bits of ``source``, of shape ``size``; None: one per location. For studies,
        not for releases.
        """
        shape = broadcast_shape(size, np.shape(self.location), source)
        return self.ppf(uniform(source, int(np.prod(shape))).reshape(shape))

    def _kept(self) -> FloatArray:
        below, above = _sides(self)
        return _moment(self, 0, below) + _moment(self, 0, above)

    def _mass(self, moved: FloatArray, below: FloatArray, above: FloatArray) -> FloatArray:
        """P(X <= location + moved), with the bounds ``below`` and ``above`` that far away."""
        near = np.clip(-moved, 0.0, below)
        beyond = [power_beyond(self.power, reach / self.scale) for reach in (near, below)]
        # Of two small numbers, as a difference loses the digits of large ones.
        inner = _moment(self, 0, below) - _moment(self, 0, near)
        tail = np.where(beyond[0] < 0.5, 0.5 * (beyond[0] - beyond[1]), inner)
        return np.asarray((tail + _moment(self, 0, np.clip(moved, 0.0, above))) / self._kept())


@dataclass(frozen=True, slots=True, eq=False)
class BoundaryInflatedGeneralizedGaussian:
    """clip(location + generalised Gaussian noise, lower, upper): an atom on each finite bound, the density between.

    Clipping is post-processing: an (epsilon, delta) stays. A probabilistic guarantee need not stay: see
    :func:`topdown.noise.generalized_gaussian_delta`.

    Args:
        location: within the bounds, any shape.
        scale: one number above 0, in units of the statistic.
        power: one number from 1 to 100.
        lower: numbers that broadcast with the location; None or -inf for no bound.
        upper: numbers that broadcast with the location; None or inf for no bound.

    Examples:
        >>> law = td.noise.BoundaryInflatedGeneralizedGaussian(location=0.1, scale=0.3, power=2, lower=0.0, upper=1.0)
        >>> round(float(law.bias), 4)
        0.0439
    """

    location: FloatOrArray = field(repr=False)
    scale: float
    power: float
    lower: FloatOrArray | None = None
    upper: FloatOrArray | None = None

    fit_for_release: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _set_parameters(self)

    @property
    def atoms(self) -> tuple[FloatOrArray, FloatOrArray]:
        """(P(X = lower), P(X = upper)), 0 for an infinite bound."""
        below, above = _sides(self)
        return as_given(np.asarray(_noise(self).sf(below))), as_given(np.asarray(_noise(self).sf(above)))

    @property
    def mean(self) -> FloatOrArray:
        """E X."""
        return as_given(np.asarray(self.location) + np.asarray(self.bias))

    @property
    def bias(self) -> FloatOrArray:
        """E X - location."""
        below, above = _sides(self)
        return as_given(_clipped_moment(self, 1, above) - _clipped_moment(self, 1, below))

    @property
    def mse(self) -> FloatOrArray:
        """E (X - location)^2; at most the variance of the law without bounds."""
        below, above = _sides(self)
        return as_given(_clipped_moment(self, 2, above) + _clipped_moment(self, 2, below))

    @property
    def variance(self) -> FloatOrArray:
        """E (X - E X)^2."""
        return as_given(np.asarray(self.mse) - np.asarray(self.bias) ** 2)

    def pdf(self, x: ArrayLike) -> FloatOrArray:
        """Density at ``x``, between the atoms; its integral and the two ``atoms`` add up to 1."""
        x = np.asarray(x, dtype=np.float64)
        inside = (x >= np.asarray(self.lower)) & (x <= np.asarray(self.upper))
        return as_given(np.where(inside, _noise(self).pdf(x - np.asarray(self.location)), 0.0))

    def cdf(self, x: ArrayLike) -> FloatOrArray:
        """P(X <= x): 0 below ``lower`` and 1 from ``upper`` on."""
        x = np.asarray(x, dtype=np.float64)
        between = np.asarray(_noise(self).cdf(x - np.asarray(self.location)))
        return as_given(np.where(x < np.asarray(self.lower), 0.0, np.where(x >= np.asarray(self.upper), 1.0, between)))

    def sf(self, x: ArrayLike) -> FloatOrArray:
        """P(X > x)."""
        x = np.asarray(x, dtype=np.float64)
        between = np.asarray(_noise(self).sf(x - np.asarray(self.location)))
        return as_given(np.where(x < np.asarray(self.lower), 1.0, np.where(x >= np.asarray(self.upper), 0.0, between)))

    def ppf(self, q: ArrayLike) -> FloatOrArray:
        """The least x with P(X <= x) >= q. Raises ConfigError for q outside of [0, 1]."""
        x = np.asarray(self.location) + _noise(self).ppf(probabilities(q))
        return as_given(np.clip(x, np.asarray(self.lower), np.asarray(self.upper)))

    def sample(self, size: Size | None, source: Source) -> FloatOrArray:
        """Draws by the inverse cdf from the bits of ``source``, of shape ``size``; None: one per location. For studies,
        not for releases.
        """
        shape = broadcast_shape(size, np.shape(self.location), source)
        return self.ppf(uniform(source, int(np.prod(shape))).reshape(shape))


BoundedGeneralizedGaussian = TruncatedGeneralizedGaussian | BoundaryInflatedGeneralizedGaussian


def _noise(law: BoundedGeneralizedGaussian) -> GeneralizedGaussian:
    return GeneralizedGaussian(law.scale, law.power)


def _sides(law: BoundedGeneralizedGaussian) -> tuple[FloatArray, FloatArray]:
    """Distances from the location to the bounds."""
    return np.asarray(law.location) - np.asarray(law.lower), np.asarray(law.upper) - np.asarray(law.location)


def _moment(law: BoundedGeneralizedGaussian, k: int, reach: FloatArray) -> FloatArray:
    """E(N^k; 0 < N < reach) of the noise."""
    p = law.power
    whole = law.scale**k * np.exp(gammaln((k + 1) / p) - gammaln(1 / p)) / 2.0
    return np.asarray(whole * power_within(p, reach / law.scale, k), dtype=np.float64)


def _clipped_moment(law: BoundedGeneralizedGaussian, k: int, reach: FloatArray) -> FloatArray:
    """E(min(N, reach)^k; N > 0) of the noise."""
    atom = np.asarray(_noise(law).sf(reach))
    return _moment(law, k, reach) + np.where(atom > 0, np.where(np.isfinite(reach), reach, 0.0) ** k * atom, 0.0)


def _set_parameters(law: BoundedGeneralizedGaussian) -> None:
    location = real_numbers("location", law.location, shown=False)
    scale = scales(law.scale)
    if scale.ndim:
        raise ConfigError(f"scale of shape {scale.shape}: give one number")
    lower, upper = bound("lower", law.lower, absent=-np.inf), bound("upper", law.upper, absent=np.inf)
    try:
        location, lower, upper = np.broadcast_arrays(location, lower, upper)
    except ValueError:
        shapes = [np.shape(a) for a in (location, lower, upper)]
        raise ConfigError(f"location, lower and upper of shapes {shapes} do not broadcast") from None
    if (lower >= upper).any():
        at = int(np.flatnonzero(lower >= upper)[0])
        raise ConfigError(f"bounds [{float(lower.flat[at])!r}, {float(upper.flat[at])!r}]: give lower < upper")
    outside = np.flatnonzero(~((location >= lower) & (location <= upper) & (np.abs(location) <= LARGEST)))
    if outside.size:
        raise ConfigError(f"location at position {outside[0]} is outside of its bounds: clip it into them first")
    for name, array in (("location", location), ("lower", lower), ("upper", upper)):
        array.flags.writeable = False
        object.__setattr__(law, name, as_given(array))
    object.__setattr__(law, "scale", float(scale))
    object.__setattr__(law, "power", checked_power(law.power))
