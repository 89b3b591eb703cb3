"""Theorem 5: the law of one coordinate of the sum-projected residual under Laplace noise.

With eta_1 .. eta_n independent Laplace(b), projecting on a known sum leaves the residual
e_1 = (1 - 1/n) eta_1 - (1/n) (eta_2 + ... + eta_n), whose characteristic function is
1 / [(1 + t^2 al^2) (1 + t^2 be^2)^m], al = b m / n, be = b / n, m = n - 1. Its partial fractions write the law on
x >= 0 as one exponential of scale al and a signed mixture of gamma laws of scale be:

    P(e_1 > x) = A exp(-x / al) + sum_{j=0}^{m-1} d_j Q(j + 1, x / be)

(Q the upper regularised incomplete gamma function). For n >= 3 every d_j is negative and A is about 1/2, so that
neither the coefficients nor the sums cancel. The coefficients come from products of power series with positive
terms, in O(n).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from topdown.errors import ConfigError
from topdown.projection.linear.linear_covariance import family_variance
from topdown.research.theory.noise_laws import Scale, checked_count, checked_scale, noise_variance, shaped

Array = NDArray[np.float64]

# Coefficients below this share of the largest cannot be seen in a double, whatever x is.
_NEGLIGIBLE = 1e-25
_CHUNK = 2_000_000


@dataclass(frozen=True, slots=True)
class _Coefficients:
    """A and the d_j, with their suffix sums: E[d_N], E[sums_N], E[double_sums_N] for N ~ Poisson(x / be)."""

    exponential: float
    gamma: Array
    sums: Array
    double_sums: Array


@lru_cache(maxsize=64)
def _coefficients(n: int) -> _Coefficients:
    from scipy import signal

    if n == 2:
        exponential, gamma = 0.0, np.array([0.25, 0.25])
    else:
        m = n - 1
        exponential = 0.5 * math.exp(-m * math.log1p(-1.0 / m**2))
        # h_i = coefficient of u^i in (2 - u)^-m / ((1 - u m/(m-1)) (1 - u m/(m+1))); the first factor's own
        # coefficients are negative binomial probabilities, built from their largest one downwards.
        i = np.arange(m - 1, 0, -1, dtype=np.float64)
        peak = 0.5 * _central_binomial_mass(m - 1)
        ratios = 2.0 * i / (m + i - 1.0)
        power_series = np.concatenate(([peak], peak * np.cumprod(ratios)))[::-1]
        power_series[power_series < 1e-300] = 0.0
        first = signal.lfilter([1.0], [1.0, -m / (m - 1.0)], power_series)
        both = signal.lfilter([1.0], [1.0, -m / (m + 1.0)], first)
        gamma = -both[::-1] / (float(m) ** 2 - 1.0)
    size = np.abs(gamma)
    gamma = gamma[: int(np.flatnonzero(size > _NEGLIGIBLE * size.max())[-1]) + 1].copy()
    sums = np.cumsum(gamma[::-1])[::-1].copy()
    double_sums = np.cumsum(sums[::-1])[::-1].copy()
    for array in (gamma, sums, double_sums):
        array.setflags(write=False)
    return _Coefficients(exponential, gamma, sums, double_sums)


def _central_binomial_mass(k: int) -> float:
    """C(2k, k) / 4^k, from k = 20 by Stirling's series (error below 1e-15); lgamma would lose log10(k) digits."""
    if k < 20:
        return math.comb(2 * k, k) / 4.0**k
    correction = -1.0 / (8.0 * k) + 1.0 / (192.0 * k**3) - 1.0 / (640.0 * k**5) + 17.0 / (14336.0 * k**7)
    return math.exp(correction) / math.sqrt(math.pi * k)


def _poisson_mean(table: Array, rate: Array) -> Array:
    """E[table_N], N ~ Poisson(rate), 0 beyond the table; terms of one sign, so nothing cancels."""
    k = np.arange(table.size, dtype=np.float64)
    log_factorial = special.gammaln(k + 1.0)
    result = np.empty_like(rate)
    step = max(1, _CHUNK // table.size)
    for start in range(0, rate.size, step):
        y = rate[start : start + step, None]
        result[start : start + step] = np.exp(special.xlogy(k, y) - y - log_factorial) @ table
    return result


@dataclass(frozen=True, slots=True)
class ProjectedLaplace:
    """Law of one coordinate of the residual of n Laplace(scale) draws after projection on their known sum.

    Symmetric about 0, log-concave, variance 2 scale^2 (1 - 1/n). ``n = 1`` is the point 0 (the total fixes the
    child). Methods take numbers or arrays and return the same shape; relative accuracy about 1e-12 for n up to
    10^6. Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy",
    Theorem 5.

    Args:
        n: the number of draws, which is the size of the family.
        scale: sensitivity / epsilon, in counts.

    Raises:
        ConfigError: ``n`` is not a whole number of at least 1, or ``scale`` is not positive and finite.

    Examples:
        >>> law = td.theory.projected_laplace(5, 10.0)
        >>> round(law.variance, 2), round(float(law.pdf(0.0)), 4)
        (160.0, 0.0393)
    """

    n: int
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", checked_count(self.n, "family size n"))
        object.__setattr__(self, "scale", checked_scale(self.scale))

    @property
    def mean(self) -> float:
        """0: the projection on a known sum is unbiased (Theorem 3)."""
        return 0.0

    @property
    def variance(self) -> float:
        """2 scale^2 (1 - 1/n)."""
        return family_variance(noise_variance(self.scale, "laplace"), self.n)

    @property
    def std(self) -> float:
        """Standard deviation, in units of the counts."""
        return math.sqrt(self.variance)

    @property
    def kurtosis(self) -> float:
        """EXCESS kurtosis 3 ((1 - 1/n)^4 + (n - 1) / n^4) / (1 - 1/n)^2; 3 for the noise itself, nan for n = 1."""
        if self.n == 1:
            return math.nan
        q = 1.0 - 1.0 / self.n
        return 3.0 * (q**4 + (self.n - 1.0) / float(self.n) ** 4) / q**2

    @property
    def correlation(self) -> float:
        """Correlation -1 / (n - 1) of two siblings' residuals; nan for n = 1."""
        return -1.0 / (self.n - 1.0) if self.n > 1 else math.nan

    @property
    def mean_abs(self) -> float:
        """E|e_1|, in units of the counts."""
        return 2.0 * float(self.excess(0.0))

    def pdf(self, x: ArrayLike) -> Array:
        """Density at ``x``. For n = 1: infinite at 0 and 0 elsewhere."""
        values, magnitude, shape = self._standardized(x)
        if self.n == 1:
            return shaped(np.where(values == 0.0, np.inf, np.where(np.isnan(values), np.nan, 0.0)), shape)
        c, m = _coefficients(self.n), self.n - 1
        al = m / self.n
        density = c.exponential / al * np.exp(-magnitude / al)
        density += self.n * _poisson_mean(c.gamma, self.n * magnitude)
        return shaped(np.where(np.isnan(values), np.nan, np.maximum(density, 0.0)) / self.scale, shape)

    def sf(self, x: ArrayLike) -> Array:
        """P(e_1 > x), accurate in relative terms for x >= 0."""
        values, magnitude, shape = self._standardized(x)
        return shaped(self._upper(values, magnitude, flip=1.0), shape)

    def cdf(self, x: ArrayLike) -> Array:
        """P(e_1 <= x), accurate in relative terms for x <= 0."""
        values, magnitude, shape = self._standardized(x)
        return shaped(self._upper(values, magnitude, flip=-1.0), shape)

    def ppf(self, q: ArrayLike) -> Array:
        """Quantile: the x with P(e_1 <= x) = q.

        Raises:
            ConfigError: some q is outside of [0, 1].
        """
        quantiles = np.asarray(q, dtype=np.float64)
        flat = np.atleast_1d(quantiles).ravel()
        if np.any((flat < 0.0) | (flat > 1.0)):
            raise ConfigError(f"quantile level {flat[(flat < 0) | (flat > 1)][0]} is outside of [0, 1]")
        if self.n == 1:
            return shaped(np.where(np.isnan(flat), np.nan, 0.0), quantiles.shape)
        tail = np.minimum(flat, 1.0 - flat)
        inner = tail > 0.0
        x = np.where(np.isnan(tail), np.nan, np.inf)
        x[inner] = self._tail_quantile(tail[inner])
        x[flat == 0.5] = 0.0
        return shaped(self.scale * np.where(flat < 0.5, -x, x), quantiles.shape)

    def excess(self, x: ArrayLike) -> Array:
        """E (e_1 - x)_+ = integral of the survival function from x on, in units of the counts."""
        values, magnitude, shape = self._standardized(x)
        if self.n == 1:
            return shaped(self.scale * np.maximum(-values, 0.0), shape)
        c, al = _coefficients(self.n), (self.n - 1) / self.n
        upper = c.exponential * al * np.exp(-magnitude / al)
        upper += _poisson_mean(c.double_sums, self.n * magnitude) / self.n
        # E(e - x)_+ = E(e + x)_+ - x for a symmetric law of mean 0
        return shaped(self.scale * (upper + np.maximum(-values, 0.0)), shape)

    def _standardized(self, x: ArrayLike) -> tuple[Array, Array, tuple[int, ...]]:
        array = np.asarray(x, dtype=np.float64) / self.scale
        flat = np.atleast_1d(array).ravel()
        return flat, np.where(np.isnan(flat), 0.0, np.minimum(np.abs(flat), 1e5)), array.shape

    def _upper(self, values: Array, magnitude: Array, flip: float) -> Array:
        """P(e > x) for flip = 1, P(e <= x) = P(e >= -x) for flip = -1; the law has no atom for n >= 2."""
        if self.n == 1:
            at_or_below = np.where(values >= 0.0, 1.0, 0.0)
            result = at_or_below if flip < 0 else 1.0 - at_or_below
        else:
            c, al = _coefficients(self.n), (self.n - 1) / self.n
            tail = c.exponential * np.exp(-magnitude / al) + _poisson_mean(c.sums, self.n * magnitude)
            tail = np.clip(tail, 0.0, 0.5)
            result = np.where(flip * values >= 0.0, tail, 1.0 - tail)
        return np.where(np.isnan(values), np.nan, result)

    def _tail_quantile(self, tail: Array) -> Array:
        """x >= 0 with P(e > x) = tail, at scale 1.

        Newton on log P(e > x), which is concave (the density is log-concave): started at or right of the root it
        comes down to it without crossing.
        """
        unit = ProjectedLaplace(self.n, 1.0)
        al = (self.n - 1) / self.n
        amplitude = _coefficients(self.n).exponential
        target = np.log(tail)
        if self.n == 2:
            x = -math.log(2.0) - target
            for _ in range(3):  # the root of 2 x = log((1 + x) / (2 tail)), approached from above
                x = 0.5 * (np.log1p(np.maximum(x, 0.0)) - math.log(2.0) - target)
        else:
            x = al * (math.log(amplitude) - target)
        x = np.maximum(x, 0.0)
        for _ in range(60):
            survival = unit.sf(x)
            step = survival * (np.log(survival) - target) / unit.pdf(x)
            x = np.maximum(x + step, 0.0)
            if np.all(np.abs(step) <= 4e-16 * (1.0 + x)):
                break
        return x


def projected_laplace(n: int, scale: Scale) -> ProjectedLaplace:
    """Law of one coordinate of the sum-projected residual of independent Laplace draws.

    Args:
        n: the number of draws, which is the size of the family.
        scale: sensitivity / epsilon, in counts.

    Returns an object with ``pdf``, ``cdf``, ``sf``, ``ppf``, ``variance`` = 2 scale^2 (1 - 1/n), ``kurtosis``
    (excess), ``correlation`` = -1 / (n - 1), ``mean_abs`` and ``mean``.

    Raises:
        ConfigError: ``n`` is not a whole number of at least 1, or ``scale`` is not positive and finite.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy",
    Theorems 5 and 6; as n grows the law tends to Laplace(scale) (Theorem 7).

    Examples:
        >>> round(td.theory.projected_laplace(15, 10.0).variance, 3)
        186.667
    """
    return ProjectedLaplace(checked_count(n, "family size n"), checked_scale(scale))
