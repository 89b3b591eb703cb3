"""Continuous Laplace, Gaussian and generalised Gaussian laws, for studies.

A draw is the inverse cdf of a double: it has holes and collisions that depend on the true value, from which
an attacker can learn it (Mironov 2012), so no such law is fit for release. Release with the discrete laws, on
a grid if need be.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gamma, gammainc, gammaincc, gammainccinv, gammaincinv, ndtr, ndtri

from topdown.errors import ConfigError
from topdown.noise.exact_numbers import ExactNumber, exact_fraction
from topdown.noise.quantiles import FloatArray, scalar_or_array
from topdown.noise.randomness import CHUNK_BYTES, Source, require_study_source, uniform
from topdown.noise.sampling import Size, sample_shape

# Squares of these are ordinary doubles.
_SMALLEST = Fraction(1, 10**150)
_LARGEST = Fraction(10**150)


class _ByQuantile(ABC):
    """A law of mean 0, symmetric about it, that is drawn by its inverse cdf."""

    __slots__ = ()

    fit_for_release: ClassVar[bool] = False
    mean: ClassVar[float] = 0.0

    def sample(self, size: Size, source: Source) -> FloatArray:
        """Independent draws of shape ``size``, float64, by the inverse cdf.

        Raises `ConfigError` for a source that is meant for releases.
        """
        drawn = np.empty(sample_shape(size, source), dtype=np.float64)
        require_study_source(source)
        flat = drawn.reshape(-1)
        step = CHUNK_BYTES // 8
        for start in range(0, flat.size, step):
            chunk = flat[start : start + step]
            chunk[:] = self._quantile(uniform(source, chunk.size))
        return drawn

    @abstractmethod
    def cdf(self, x: ArrayLike) -> Any:
        """P(X <= x), elementwise, to full relative accuracy in the lower tail."""

    def sf(self, x: ArrayLike) -> Any:
        """P(X > x), elementwise, to full relative accuracy in the upper tail."""
        return self.cdf(-np.asarray(x, dtype=np.float64))

    def ppf(self, q: ArrayLike) -> Any:
        """The x with cdf(x) = q; -inf at 0, inf at 1, nan outside of [0, 1].

        Args:
            q: probabilities, any shape.
        """
        return scalar_or_array(self._quantile(np.asarray(q, dtype=np.float64)))

    @abstractmethod
    def _quantile(self, q: FloatArray) -> FloatArray:
        """The x with cdf(x) = ``q``."""


@dataclass(frozen=True, slots=True, init=False)
class Laplace(_ByQuantile):
    """The Laplace law of mean 0: density exp(-|x| / scale) / (2 scale).

    Floating-point sampling is not for release. Source: Dwork, McSherry, Nissim, Smith 2006.

    Args:
        scale: above 0, in units of the statistic; ConfigError otherwise. The standard deviation is sqrt(2) times it.

    Examples:
        >>> td.noise.Laplace(scale=10).variance
        200.0
    """

    scale: float

    def __init__(self, scale: ExactNumber) -> None:
        object.__setattr__(self, "scale", _positive_float(scale, "scale"))

    @property
    def variance(self) -> float:
        """2 scale^2."""
        return 2.0 * self.scale**2

    @property
    def std(self) -> float:
        """The square root of the variance."""
        return math.sqrt(2.0) * self.scale

    @property
    def mean_abs(self) -> float:
        """E|X| = scale."""
        return self.scale

    def pdf(self, x: ArrayLike) -> Any:
        """The density at ``x``, elementwise."""
        z = np.abs(np.asarray(x, dtype=np.float64)) / self.scale
        return scalar_or_array(np.exp(-z) / (2.0 * self.scale))

    def cdf(self, x: ArrayLike) -> Any:
        """P(X <= x), elementwise, to full relative accuracy in the lower tail."""
        z = np.asarray(x, dtype=np.float64) / self.scale
        tail = np.exp(-np.abs(z)) / 2.0
        return scalar_or_array(np.where(z < 0.0, tail, 1.0 - tail))

    def _quantile(self, q: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            # 1 - q is exact from 1/2 on; doubling is exact, so q and 1 - q give exactly opposite values.
            magnitude = -np.log(2.0 * np.minimum(q, 1.0 - q)) * self.scale
            return np.where(q < 0.5, -magnitude, magnitude)


@dataclass(frozen=True, slots=True, init=False)
class Gaussian(_ByQuantile):
    """The normal law of mean 0.

    Floating-point sampling is not for release.

    Args:
        sigma: the standard deviation, above 0, in units of the statistic; ConfigError otherwise.

    Examples:
        >>> round(td.noise.Gaussian(sigma=3).cdf(3.0), 4)
        0.8413
    """

    sigma: float

    def __init__(self, sigma: ExactNumber) -> None:
        object.__setattr__(self, "sigma", _positive_float(sigma, "sigma"))

    @property
    def variance(self) -> float:
        """sigma^2."""
        return self.sigma**2

    @property
    def std(self) -> float:
        """sigma."""
        return self.sigma

    @property
    def mean_abs(self) -> float:
        """E|X| = sigma sqrt(2 / pi)."""
        return self.sigma * math.sqrt(2.0 / math.pi)

    def pdf(self, x: ArrayLike) -> Any:
        """The density at ``x``, elementwise."""
        z = np.asarray(x, dtype=np.float64) / self.sigma
        return scalar_or_array(np.exp(-z * z / 2.0) / (self.sigma * math.sqrt(2.0 * math.pi)))

    def cdf(self, x: ArrayLike) -> Any:
        """P(X <= x), elementwise, to full relative accuracy in the lower tail."""
        return scalar_or_array(ndtr(np.asarray(x, dtype=np.float64) / self.sigma))

    def _quantile(self, q: FloatArray) -> FloatArray:
        return np.asarray(ndtri(q) * self.sigma, dtype=np.float64)


@dataclass(frozen=True, slots=True, init=False)
class GeneralizedGaussian(_ByQuantile):
    """Density proportional to exp(-(|x| / scale)^power), power >= 1: Laplace at 1, Gaussian of sigma scale/sqrt(2) at
    2.

    The larger the power, the lighter the tails; only power 1 gives pure epsilon-differential privacy. Its privacy cost
    is computed by :func:`topdown.noise.generalized_gaussian_delta`. Floating-point sampling is not for release.

    Args:
        scale: above 0, in units of the statistic; ConfigError otherwise.
        power: from 1 to 100; ConfigError otherwise.

    Source: Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with
    Univariate Bounding Constraints", Equation 3.

    Examples:
        >>> law = td.noise.GeneralizedGaussian(scale=10, power=1)  # Laplace's
        >>> round(law.variance, 6)
        200.0
    """

    scale: float
    power: float

    def __init__(self, scale: ExactNumber, power: ExactNumber) -> None:
        object.__setattr__(self, "scale", _positive_float(scale, "scale"))
        object.__setattr__(self, "power", checked_power(power))

    @property
    def variance(self) -> float:
        """scale^2 Gamma(3/power) / Gamma(1/power)."""
        return self.scale**2 * math.exp(math.lgamma(3 / self.power) - math.lgamma(1 / self.power))

    @property
    def std(self) -> float:
        """The square root of the variance."""
        return math.sqrt(self.variance)

    @property
    def mean_abs(self) -> float:
        """E|X| = scale Gamma(2/power) / Gamma(1/power)."""
        return self.scale * math.exp(math.lgamma(2 / self.power) - math.lgamma(1 / self.power))

    def pdf(self, x: ArrayLike) -> Any:
        """The density at ``x``, elementwise: power exp(-(|x|/scale)^power) / (2 scale Gamma(1/power))."""
        z = np.abs(np.asarray(x, dtype=np.float64)) / self.scale
        largest = self.power / (2.0 * self.scale * math.gamma(1 / self.power))
        with np.errstate(over="ignore"):
            return scalar_or_array(largest * np.exp(-(z**self.power)))

    def cdf(self, x: ArrayLike) -> Any:
        """P(X <= x), elementwise, to full relative accuracy in the lower tail."""
        z = np.asarray(x, dtype=np.float64) / self.scale
        tail = power_beyond(self.power, np.abs(z)) / 2.0
        return scalar_or_array(np.where(z < 0.0, tail, 1.0 - tail))

    def _quantile(self, q: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):
            # 1 - q is exact from 1/2 on; doubling is exact, so q and 1 - q give exactly opposite values.
            tail = 2.0 * np.minimum(q, 1.0 - q)
            magnitude = power_quantile(self.power, 1.0 - tail, tail) * self.scale
            return np.where(q < 0.5, -magnitude, magnitude)


_NEAR = 1e-17
"""Below it a z^power changes no digit of exp(-z^power); z itself may be as large as 0.67, while z^power underflows."""


def power_within(power: float, z: FloatArray, moment: int = 0) -> FloatArray:
    """E(|N|^moment; |N| < z) / E|N|^moment for the generalised Gaussian N of scale 1, to full relative accuracy."""
    order = (moment + 1) / power
    with np.errstate(over="ignore"):
        raised = z**power
        near = np.minimum(z, 1.0) ** (moment + 1) / gamma(order + 1.0)
        return np.where(raised < _NEAR, near, gammainc(order, raised))


def power_beyond(power: float, z: FloatArray) -> FloatArray:
    """P(|N| > z) for the generalised Gaussian N of scale 1, to full relative accuracy."""
    with np.errstate(over="ignore"):
        raised = z**power
        return np.where(raised < _NEAR, 1.0 - power_within(power, z), gammaincc(1 / power, raised))


def power_quantile(power: float, within: FloatArray, beyond: FloatArray) -> FloatArray:
    """The z with P(|N| < z) = ``within`` = 1 - ``beyond``, by the smaller of the two."""
    order = 1 / power
    near = within * gamma(order + 1.0)
    raised = np.where(within < beyond, gammaincinv(order, within), gammainccinv(order, beyond))
    return np.where(near**power < _NEAR, near, raised**order)


def checked_power(power: ExactNumber) -> float:
    """A power of the generalised Gaussian law, from 1 to 100; ConfigError for any other."""
    exact = exact_fraction(power)
    if not 1 <= exact <= 100:
        raise ConfigError(f"power {power!r}: give a number from 1 (Laplace) to 100; 2 is Gaussian")
    return float(exact)


def _positive_float(value: ExactNumber, name: str) -> float:
    exact = exact_fraction(value)
    if not _SMALLEST <= exact <= _LARGEST:
        raise ConfigError(f"{name} {value!r}: give a number between 1e-150 and 1e150")
    return float(exact)
