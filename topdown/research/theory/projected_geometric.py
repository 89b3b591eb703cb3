"""The law of one coordinate of the sum-projected residual under double geometric noise.

The residual e_1 = (1 - 1/n) k_1 - (1/n) (k_2 + ... + k_n) lives on the lattice Z / n. With m = n - 1 and
S = k_2 + ... + k_n, n e_1 = m k_1 - S. The mass of S comes from the three-term recurrence that the Fourier
coefficients of (1 - 2 a cos t + a^2)^-m obey, run downwards, where its terms do not cancel; adding m k_1 is one
geometric filter of stride m. Beyond the range of S the mass is exactly geometric in steps of m, so the tail is kept
in closed form and is never cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import ConfigError
from topdown.projection.linear.linear_covariance import family_variance
from topdown.research.theory.noise_laws import Scale, checked_count, checked_scale, noise_variance, shaped

Array = NDArray[np.float64]

# The part of the law of S that is left out; it bounds the absolute error of every probability.
_DROPPED_MASS = 1e-24
_LARGEST_LATTICE = 50_000_000


@dataclass(frozen=True, slots=True)
class _LatticeLaw:
    """pmf and survival at z = 0, 1, ..., of n e_1, and the ratio ``a`` by which blocks of m beyond the end shrink."""

    pmf: Array
    sf: Array
    ratio: float
    stride: int


def _sum_reach(m: int, scale: float) -> int:
    """S beyond which the sum of m double geometrics has less than the dropped mass (Chernoff's bound)."""
    t = np.geomspace(1e-4, 0.999, 400) / scale
    # E exp(t k) = (1 - a)^2 / ((1 - a e^t)(1 - a e^-t)); expm1 keeps the digits at large scales
    log_mgf = (
        2.0 * math.log(-math.expm1(-1.0 / scale))
        - np.log(-np.expm1(t - 1.0 / scale))
        - np.log(-np.expm1(-t - 1.0 / scale))
    )
    reach = float(np.min((m * log_mgf - math.log(_DROPPED_MASS)) / t))
    return math.ceil(reach) + 1


def _sum_pmf(m: int, scale: float) -> Array:
    """P(k_1 + ... + k_m = s) for s = 0 .. reach: the downward recurrence for the ratios of neighbouring masses."""
    a = math.exp(-1.0 / scale)
    reach = _sum_reach(m, scale)
    # An error in the starting ratio shrinks by about a^2 with every step down.
    top = reach + math.ceil(25.0 * scale) + 5
    if top + m > _LARGEST_LATTICE:
        raise ConfigError(
            f"n = {m + 1} children at scale {scale} need {top + m} lattice points, more than {_LARGEST_LATTICE}; "
            "use the Laplace law, which is close at this scale"
        )
    ratios = [1.0] * (reach + 1)
    ratio = a
    both = 1.0 + a * a
    for s in range(top, 0, -1):
        ratio = a * (s - 1 + m) / (both * s - a * (s + 1 - m) * ratio)
        if s <= reach:
            ratios[s] = ratio
    # From the mode (0) outwards the masses only fall, so the product cannot overflow.
    pmf = np.cumprod(np.array(ratios))
    return pmf / float(2.0 * pmf[:0:-1].sum() + pmf[0])


@lru_cache(maxsize=16)
def _lattice_law(n: int, scale: float) -> _LatticeLaw:
    from scipy import signal

    m, a = n - 1, math.exp(-1.0 / scale)
    half = _sum_pmf(m, scale)
    reach = half.size - 1
    law_of_sum = np.concatenate((half[:0:-1], half, np.zeros(m)))  # z = -reach .. reach + m
    rows = -(-law_of_sum.size // m)
    grid = np.zeros(rows * m)
    grid[: law_of_sum.size] = law_of_sum
    # at_or_below(z) = sum over k >= 0 of a^k P(S = z - m k): a filter along the stride, all terms positive
    by_stride = signal.lfilter([1.0], [1.0, -a], grid.reshape(rows, m), axis=0)
    at_or_below = np.asarray(by_stride, dtype=np.float64).ravel()[: law_of_sum.size]
    z = np.arange(reach + m + 1)
    mirrored = np.zeros(z.size)
    mirrored[: reach + 1] = at_or_below[reach::-1][: reach + 1]
    single = np.zeros(z.size)
    single[: reach + 1] = half
    pmf = -math.expm1(-1.0 / scale) / (1.0 + a) * (at_or_below[reach:] + mirrored - single)
    beyond = float(pmf[-m:].sum()) * a / -math.expm1(-1.0 / scale)
    sf = np.cumsum(np.concatenate(([beyond], pmf[:0:-1])))[::-1]
    pmf.setflags(write=False)
    sf.setflags(write=False)
    return _LatticeLaw(pmf, sf, a, m)


def _beyond_the_table(table: Array, z: NDArray[np.int64], law: _LatticeLaw) -> Array:
    """``table`` at z >= 0, continued geometrically in blocks of the stride beyond its end."""
    blocks = np.maximum(0, -(-(z - (table.size - 1)) // law.stride))
    continued: Array = table[z - blocks * law.stride] * law.ratio ** blocks.astype(np.float64)
    return continued


@dataclass(frozen=True, slots=True)
class ProjectedGeometric:
    """Law of one coordinate of the residual of n double geometric draws after projection on their known sum.

    Lives on the multiples of ``spacing`` = 1/n; symmetric about 0; variance 2 a / (1 - a)^2 (1 - 1/n) with
    a = exp(-1 / scale). ``n = 1`` is the point 0. Every probability is exact but for a left-out mass below 1e-24
    and rounding (relative 1e-12 in the upper tail). The first use of a law takes O(lattice) time: about
    (sqrt(2 n) 11 + 60) scale + n points. Source: the geometric analogue of Theorem 5 of Zhu, Van Hentenryck,
    Fioretto, "Bias and Variance of Post-processing in Differential Privacy", whose experiments draw this noise.

    Args:
        n: the number of draws, which is the size of the family.
        scale: 1 / epsilon, in counts.

    Raises:
        ConfigError: ``n`` is not a whole number of at least 1, ``scale`` is not positive and finite, or the
            lattice would pass 50 million points.

    Examples:
        >>> law = td.theory.projected_geometric(5, 10.0)
        >>> round(law.variance, 2)
        159.87
    """

    n: int
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", checked_count(self.n, "family size n"))
        object.__setattr__(self, "scale", checked_scale(self.scale))

    @property
    def spacing(self) -> float:
        """1/n, the distance of neighbouring lattice points."""
        return 1.0 / self.n

    @property
    def mean(self) -> float:
        """0: the projection on a known sum is unbiased (Theorem 3)."""
        return 0.0

    @property
    def variance(self) -> float:
        """2 a / (1 - a)^2 (1 - 1/n), a = exp(-1 / scale)."""
        return family_variance(noise_variance(self.scale, "geometric"), self.n)

    @property
    def std(self) -> float:
        """Standard deviation, in units of the counts."""
        return math.sqrt(self.variance)

    @property
    def correlation(self) -> float:
        """Correlation -1 / (n - 1) of two siblings' residuals; nan for n = 1."""
        return -1.0 / (self.n - 1.0) if self.n > 1 else math.nan

    @property
    def mean_abs(self) -> float:
        """E|e_1| = (2/n) sum over lattice points z >= 0 of P(n e_1 > z), in units of the counts."""
        if self.n == 1:
            return 0.0
        law = _lattice_law(self.n, self.scale)
        # The survival's own tail: blocks of m beyond the table shrink by a.
        beyond = float(law.sf[-law.stride :].sum()) * law.ratio / -math.expm1(-1.0 / self.scale)
        return 2.0 / self.n * (float(law.sf[::-1].sum()) + beyond)

    def support(self, tail: float = 1e-16) -> Array:
        """The lattice points, without the ends that hold less than ``tail`` of the mass each.

        Raises:
            ConfigError: ``tail`` is not strictly between 0 and 1/2.
        """
        if not 0.0 < tail < 0.5:
            raise ConfigError(f"tail {tail!r} is not between 0 and 1/2")
        last = -round(float(self.ppf(tail)) * self.n)
        return np.arange(-last, last + 1, dtype=np.float64) / self.n

    def pmf(self, x: ArrayLike) -> Array:
        """P(e_1 = x); 0 off the lattice (x is on it when n x is whole up to 1e-9)."""
        z, on_lattice, values, shape = self._lattice_index(x)
        if self.n == 1:
            mass = np.where(values == 0.0, 1.0, 0.0)
        else:
            law = _lattice_law(self.n, self.scale)
            mass = np.where(on_lattice, _beyond_the_table(law.pmf, np.abs(z), law), 0.0)
        return shaped(np.where(np.isnan(values), np.nan, mass), shape)

    def sf(self, x: ArrayLike) -> Array:
        """P(e_1 > x), strictly above; accurate in relative terms for x >= 0."""
        z, _, values, shape = self._lattice_index(x)
        return shaped(np.where(np.isnan(values), np.nan, self._lattice_sf(z)), shape)

    def cdf(self, x: ArrayLike) -> Array:
        """P(e_1 <= x), with the mass at x; accurate in relative terms for x <= 0."""
        z, _, values, shape = self._lattice_index(x)
        # P(n e <= z) = P(n e >= -z) = P(n e > -z - 1)
        return shaped(np.where(np.isnan(values), np.nan, self._lattice_sf(-z - 1)), shape)

    def ppf(self, q: ArrayLike) -> Array:
        """The smallest lattice point x with P(e_1 <= x) >= q.

        Raises:
            ConfigError: some q is outside of [0, 1].
        """
        quantiles = np.asarray(q, dtype=np.float64)
        flat = np.atleast_1d(quantiles).ravel()
        if np.any((flat < 0.0) | (flat > 1.0)):
            raise ConfigError(f"quantile level {flat[(flat < 0) | (flat > 1)][0]} is outside of [0, 1]")
        inner = (flat > 0.0) & (flat < 1.0)
        # cdf at z is P(n e > -z - 1); widen until cdf(-span) < q <= cdf(span)
        span = np.full(flat.shape, self.n, dtype=np.int64)
        while np.any(
            wider := inner
            & (span < 2**61)
            & ((self._lattice_sf(span - 1) >= flat) | (self._lattice_sf(-span - 1) < flat))
        ):
            span = np.where(wider, 2 * span, span)
        low, high = -span, span
        while np.any(high - low > 1):
            middle = (low + high) // 2
            reached = self._lattice_sf(-middle - 1) >= flat
            high, low = np.where(reached, middle, high), np.where(reached, low, middle)
        x = np.where(flat == 0.0, -np.inf, np.where(flat == 1.0, np.inf, high / self.n))
        if self.n == 1:
            x = np.zeros(flat.shape)
        return shaped(np.where(np.isnan(flat), np.nan, x), quantiles.shape)

    def lattice_sf(self, z: ArrayLike) -> Array:
        """P(n e_1 > z) at whole numbers ``z``, without the rounding of x = z / n."""
        index = np.asarray(z, dtype=np.int64)
        return shaped(self._lattice_sf(np.atleast_1d(index).ravel()), index.shape)

    def _lattice_sf(self, z: NDArray[np.int64]) -> Array:
        if self.n == 1:
            return np.where(z < 0, 1.0, 0.0)
        law = _lattice_law(self.n, self.scale)
        # P(n e > z) = 1 - P(n e <= z) = 1 - P(n e > -z - 1) for z < 0
        upper = _beyond_the_table(law.sf, np.where(z >= 0, z, -z - 1), law)
        return np.where(z >= 0, upper, 1.0 - upper)

    def _lattice_index(self, x: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.bool_], Array, tuple[int, ...]]:
        array = np.asarray(x, dtype=np.float64)
        values = np.atleast_1d(array).ravel()
        scaled = np.clip(np.where(np.isnan(values), 0.0, values) * self.n, -4e18, 4e18)
        nearest = np.rint(scaled)
        # x = k / n as a float may lie an ulp below the lattice point it means
        on_lattice = np.abs(scaled - nearest) <= 1e-9 * np.maximum(1.0, np.abs(nearest))
        z = np.where(on_lattice, nearest, np.floor(scaled)).astype(np.int64)
        return z, on_lattice, values, array.shape


def projected_geometric(n: int, scale: Scale) -> ProjectedGeometric:
    """Law of one coordinate of the sum-projected residual of double geometric draws.

    Args:
        n: the number of draws, which is the size of the family.
        scale: 1 / epsilon, in counts.

    Returns an object with ``pmf``, ``cdf``, ``sf``, ``ppf`` on the lattice Z / n, ``variance``, ``mean_abs``,
    ``spacing`` and ``support()``.

    Raises:
        ConfigError: ``n`` is not a whole number of at least 1, or ``scale`` is not positive and finite.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy": the
    analogue of Theorem 5 for the noise that its experiments draw.

    Examples:
        >>> round(td.theory.projected_geometric(15, 10.0).variance, 3)
        186.511
    """
    return ProjectedGeometric(checked_count(n, "family size n"), checked_scale(scale))
