"""The discrete Laplace (double-sided geometric) and discrete Gaussian laws, drawn exactly, for releases.

Parameters are exact fractions, and no floating-point number decides a draw; ``pmf``, ``cdf`` and the moments are
floats, for the analysis of a release. With ``grid_bits`` = g both are laws on the multiples of 2^-g instead of the
integers.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from topdown.errors import ConfigError
from topdown.noise.exact import gaussian_sums
from topdown.noise.exact.blocks import draw_gaussian, draw_laplace
from topdown.noise.exact.tails import DiscreteNormal, LaplaceBlocks, Tails
from topdown.noise.exact_numbers import ExactNumber, exact_fraction
from topdown.noise.quantiles import FloatArray, integer_quantile, scalar_or_array
from topdown.noise.randomness import Source
from topdown.noise.sampling import Size, fill
from topdown.wording import shown

# exp(-745) is about the smallest positive double.
_REACH = 745.0
# A draw exceeds 128 scales with probability below 1e-55; the largest scale is the largest int64 divided by 128.
_REACHED_SCALES = 128
_NEVER = 1e-55
_LARGEST_SCALE = 1 << 55
_LARGEST_GRID_SCALE = 1 << 46


@dataclass(frozen=True, slots=True, init=False)
class DiscreteLaplace:
    """pmf(k) = (1-a)/(1+a) a^|k| on the integers k, a = exp(-1/scale): the double-sided geometric law.

    With ``grid_bits`` = g > 0 it is the law of K / 2^g, K discrete Laplace of scale 2^g scale: draws are then float64,
    exact multiples of 2^-g. Raises ConfigError for a scale that is not finite and positive, or so large that draws
    might not fit (beyond 2^55; on a grid, beyond 2^(46-g)).

    Args:
        scale: above 0, in units of the statistic: sensitivity / epsilon. It is kept as a Fraction, a float by its
            shortest decimal.
        grid_bits: g, 0 or more; 0 for the integers.

    Source: Ghosh, Roughgarden, Sundararajan 2009 (geometric mechanism); Canonne, Kamath, Steinke 2020,
    Section 5.

    Examples:
        >>> law = td.noise.DiscreteLaplace(scale=10)
        >>> round(law.variance, 2)
        199.83
        >>> law.sample(5, td.SeededSource(1))
        array([  1,  -3, -21,  -7,  22])
    """

    fit_for_release: ClassVar[bool] = True
    mean: ClassVar[float] = 0.0

    scale: Fraction
    grid_bits: int

    def __init__(self, scale: ExactNumber, *, grid_bits: int = 0) -> None:
        exact = exact_fraction(scale)
        object.__setattr__(self, "grid_bits", _checked_grid(grid_bits))
        object.__setattr__(self, "scale", exact)
        _check_scale(exact, self.grid_bits, "scale", scale)

    def sample(self, size: Size, source: Source, kind: DTypeLike | None = None) -> NDArray[Any]:
        """Independent exact draws of shape ``size`` from the bits of ``source``: int64, or float64 on a grid.

        Args:
            kind: the integer type, `narrowest` or wider, by default int64; the numbers are the same.

        Raises `ConfigError` for a narrower type, `OverflowError` if a draw does not fit, with probability below 1e-55
        at the largest scale.
        """
        scale = self.scale * (1 << self.grid_bits)
        of = _checked_kind(kind, self.narrowest)
        return fill(size, source, of, self.grid_bits, lambda drawn: draw_laplace(scale, drawn, source))

    @property
    def narrowest(self) -> np.dtype[Any]:
        """The narrowest of int16, int32 and int64 that a draw exceeds with probability below 1e-55 only; on a grid
        float64.
        """
        return _narrowest(self.scale, self.grid_bits)

    @property
    def tails(self) -> Tails:
        """The law in units of the grid, by its tails."""
        return LaplaceBlocks(1 / (self.scale * (1 << self.grid_bits)), 0)

    @property
    def reach(self) -> float:
        """The magnitude that a draw exceeds with a probability below 2e-55, in units of the statistic."""
        return _reach(self)

    @property
    def variance(self) -> float:
        """2a / (1-a)^2, in squared units of the statistic; below the continuous law's 2 scale^2."""
        rate = self._rate
        return 2.0 * math.exp(-rate) / math.expm1(-rate) ** 2 * 4.0**-self.grid_bits

    @property
    def std(self) -> float:
        """The square root of the variance."""
        return math.sqrt(self.variance)

    @property
    def mean_abs(self) -> float:
        """E|X| = 2a / (1-a^2)."""
        rate = self._rate
        return 2.0 * math.exp(-rate) / -math.expm1(-2.0 * rate) * 2.0**-self.grid_bits

    def pmf(self, x: ArrayLike) -> Any:
        """P(X = x), elementwise; 0 off the grid, nan for nan."""
        k = _grid_units(x, self.grid_bits)
        with np.errstate(over="ignore"):
            mass = math.tanh(self._rate / 2.0) * np.exp(-self._rate * np.abs(k))
        return scalar_or_array(np.where(np.floor(k) == k, mass, np.where(np.isnan(k), np.nan, 0.0)))

    def cdf(self, x: ArrayLike) -> Any:
        """P(X <= x), elementwise, to full relative accuracy in the lower tail."""
        return scalar_or_array(self._at_most(np.floor(_grid_units(x, self.grid_bits))))

    def sf(self, x: ArrayLike) -> Any:
        """P(X > x), elementwise, to full relative accuracy in the upper tail."""
        return scalar_or_array(self._at_most(-np.floor(_grid_units(x, self.grid_bits)) - 1.0))

    def ppf(self, q: ArrayLike) -> Any:
        """The least x with cdf(x) >= q, as a float; -inf at 0, inf at 1, nan outside of [0, 1].

        Args:
            q: probabilities, any shape.
        """
        return integer_quantile(self._at_most, q, _REACH / self._rate, 2.0**-self.grid_bits)

    @property
    def _rate(self) -> float:
        # exp(-1000) is 0 already, and the rate of a tiny scale would overflow a float.
        return float(min(1 / (self.scale * (1 << self.grid_bits)), Fraction(1000)))

    def _at_most(self, k: FloatArray) -> FloatArray:
        """P(K <= k) in grid units: a^n / (1+a) is the tail beyond n-1 on either side."""
        rate = self._rate
        n = np.where(k < 0.0, -k, k + 1.0)
        with np.errstate(over="ignore"):
            tail = np.exp(-rate * n) / (1.0 + math.exp(-rate))
        return np.where(k < 0.0, tail, 1.0 - tail)


@dataclass(frozen=True, slots=True, init=False)
class DiscreteGaussian:
    """pmf(k) proportional to exp(-k^2 / (2 sigma2)) on the integers k, sigma2 = sigma^2.

    ``sigma2`` is kept as a Fraction; ``from_variance`` takes it directly, since sigma may be irrational. With
    ``grid_bits`` = g > 0 it is the law of K / 2^g, K discrete Gaussian of 4^g sigma2: draws are then float64, exact
    multiples of 2^-g. Raises ConfigError for a sigma that is not finite and positive, or so large that draws might not
    fit (beyond 2^55; on a grid, beyond 2^(46-g)).

    Args:
        sigma: above 0, in units of the statistic; a float is taken by its shortest decimal.
        grid_bits: g, 0 or more; 0 for the integers.

    Source: Canonne, Kamath, Steinke 2020, Definition 1.

    Examples:
        >>> law = td.noise.DiscreteGaussian(sigma=3)
        >>> round(law.variance, 4), round(law.pmf(0), 4)
        (9.0, 0.133)
    """

    fit_for_release: ClassVar[bool] = True
    mean: ClassVar[float] = 0.0

    sigma2: Fraction
    grid_bits: int

    def __init__(self, sigma: ExactNumber, *, grid_bits: int = 0) -> None:
        exact = exact_fraction(sigma)
        object.__setattr__(self, "grid_bits", _checked_grid(grid_bits))
        object.__setattr__(self, "sigma2", exact * exact)
        _check_scale(exact, self.grid_bits, "sigma", sigma)

    @classmethod
    def from_variance(cls, sigma2: ExactNumber, grid_bits: int = 0) -> DiscreteGaussian:
        """The law of parameter ``sigma2``; its true variance is slightly smaller.

        Args:
            sigma2: above 0, in squared units of the statistic.
            grid_bits: as of the class.
        """
        exact = exact_fraction(sigma2)
        law = object.__new__(cls)
        object.__setattr__(law, "grid_bits", _checked_grid(grid_bits))
        object.__setattr__(law, "sigma2", exact)
        if exact <= 0:
            raise ConfigError(f"sigma2 {shown(sigma2)}: give a positive number")
        _check_scale(Fraction(math.isqrt(math.ceil(exact))), law.grid_bits, "the root of sigma2", sigma2)
        return law

    @property
    def sigma(self) -> float:
        """The root of ``sigma2``, in units of the statistic."""
        return math.sqrt(self.sigma2)

    def sample(self, size: Size, source: Source, kind: DTypeLike | None = None) -> NDArray[Any]:
        """Independent exact draws of shape ``size`` from the bits of ``source``: int64, or float64 on a grid.

        Args:
            kind: the integer type, `narrowest` or wider, by default int64; the numbers are the same.

        Raises `ConfigError` for a narrower type, `OverflowError` if a draw does not fit, with probability below 1e-3000
        at the largest sigma.
        """
        sigma2 = self.sigma2 * (1 << 2 * self.grid_bits)
        of = _checked_kind(kind, self.narrowest)
        return fill(size, source, of, self.grid_bits, lambda drawn: draw_gaussian(sigma2, drawn, source))

    @property
    def narrowest(self) -> np.dtype[Any]:
        """The narrowest of int16, int32 and int64 that a draw exceeds with probability below 1e-3000 only; on a grid
        float64.
        """
        return _narrowest(Fraction(math.isqrt(math.ceil(self.sigma2)) + 1), self.grid_bits)

    @property
    def tails(self) -> Tails:
        """The law in units of the grid, by its tails."""
        return DiscreteNormal(self.sigma2 * (1 << 2 * self.grid_bits))

    @property
    def reach(self) -> float:
        """The magnitude that a draw exceeds with a probability below 2e-55, in units of the statistic."""
        return _reach(self)

    @property
    def variance(self) -> float:
        """The exact law's variance, at most ``sigma2``, in squared units of the statistic."""
        return gaussian_sums.variance(self._sigma2) * 4.0**-self.grid_bits

    @property
    def std(self) -> float:
        """The square root of the variance."""
        return math.sqrt(self.variance)

    @property
    def mean_abs(self) -> float:
        """E|X|."""
        return gaussian_sums.mean_abs(self._sigma2) * 2.0**-self.grid_bits

    def pmf(self, x: ArrayLike) -> Any:
        """P(X = x), elementwise; 0 off the grid, nan for nan."""
        k = _grid_units(x, self.grid_bits)
        with np.errstate(over="ignore"):
            mass = np.exp(-k * k / (2.0 * self._sigma2)) / gaussian_sums.normalizer(self._sigma2)
        return scalar_or_array(np.where(np.floor(k) == k, mass, np.where(np.isnan(k), np.nan, 0.0)))

    def cdf(self, x: ArrayLike) -> Any:
        """P(X <= x), elementwise, to full relative accuracy in the lower tail."""
        return scalar_or_array(self._at_most(np.floor(_grid_units(x, self.grid_bits))))

    def sf(self, x: ArrayLike) -> Any:
        """P(X > x), elementwise, to full relative accuracy in the upper tail."""
        return scalar_or_array(self._at_most(-np.floor(_grid_units(x, self.grid_bits)) - 1.0))

    def ppf(self, q: ArrayLike) -> Any:
        """The least x with cdf(x) >= q, as a float; -inf at 0, inf at 1, nan outside of [0, 1].

        Args:
            q: probabilities, any shape.
        """
        reach = gaussian_sums.REACH * math.sqrt(self._sigma2)
        return integer_quantile(self._at_most, q, reach, 2.0**-self.grid_bits)

    @property
    def _sigma2(self) -> float:
        # In grid units. Below 1e-4 every probability except that of 0 underflows, and 1/sigma2 must not overflow.
        return float(max(self.sigma2 * (1 << 2 * self.grid_bits), Fraction(1, 10**4)))

    def _at_most(self, k: FloatArray) -> FloatArray:
        tail = gaussian_sums.tail(np.where(k < 0.0, -k, k + 1.0), self._sigma2)
        return np.where(k < 0.0, tail, 1.0 - tail)


def _checked_grid(grid_bits: int) -> int:
    try:
        bits = operator.index(grid_bits)
    except TypeError:
        bits = -1
    if not 0 <= bits <= 40:
        raise ConfigError(
            f"grid_bits {shown(grid_bits)}: give a whole number from 0 (integers) to 40 (multiples of 2^-40)"
        )
    return bits


def _check_scale(exact: Fraction, grid_bits: int, name: str, given: object) -> None:
    if exact <= 0:
        raise ConfigError(f"{name} {shown(given)}: give a positive number")
    if exact * (1 << grid_bits) > (_LARGEST_GRID_SCALE if grid_bits else _LARGEST_SCALE):
        size = f"{float(exact):.3g}" if exact < 10**300 else "above 1e300"
        raise ConfigError(
            f"{name} {size} is too large for draws of 64 bits (grid_bits {grid_bits}); give a smaller one, by a larger "
            "budget"
        )


def _narrowest(scale: Fraction, grid_bits: int) -> np.dtype[Any]:
    if grid_bits:
        return np.dtype(np.float64)
    kinds = (np.int16, np.int32)
    return np.dtype(next((kind for kind in kinds if scale * _REACHED_SCALES <= np.iinfo(kind).max), np.int64))


@lru_cache(maxsize=1024)
def _reach(law: DiscreteLaplace | DiscreteGaussian) -> float:
    return float(abs(law.ppf(_NEVER)))


def _checked_kind(kind: DTypeLike | None, narrowest: np.dtype[Any]) -> np.dtype[Any]:
    given = np.dtype(np.float64 if narrowest.kind == "f" else np.int64) if kind is None else np.dtype(kind)
    if given.kind != narrowest.kind or given.itemsize < narrowest.itemsize or given.byteorder not in "=|":
        raise ConfigError(f"kind {given}: draws of this law need {narrowest} or a wider type of that kind")
    return given


def _grid_units(x: ArrayLike, grid_bits: int) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.asarray(x, dtype=np.float64) * 2.0**grid_bits
