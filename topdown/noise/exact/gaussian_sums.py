"""Sums of exp(-k^2 / (2 sigma2)) over integers, as floats, for the discrete Gaussian's pmf, cdf and moments.

Small sigma: the sums themselves. Large sigma: Poisson's summation formula, whose terms are exp(-2 pi^2 sigma2 n^2), or,
for sums over a tail, the Euler-Maclaurin formula.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

FloatArray = NDArray[np.float64]

# Beyond this the asymptotic forms are exact to double precision, below it a table of all terms is small.
_LARGEST_SUMMED_SIGMA = 1024.0
# Slightly more than the largest k / sigma for which exp(-k^2 / (2 sigma2)) is a positive double.
REACH = 39.0


def normalizer(sigma2: float) -> float:
    """Sum of exp(-k^2 / (2 sigma2)) over all integers k."""
    if sigma2 < 0.5:
        return 1.0 + 2.0 * sum(math.exp(-k * k / (2.0 * sigma2)) for k in range(1, 10))
    return math.sqrt(2.0 * math.pi * sigma2) * (1.0 + 2.0 * sum(_dual(sigma2, n) for n in (1, 2)))


def variance(sigma2: float) -> float:
    """Variance of the discrete Gaussian, at most sigma2 (Canonne, Kamath, Steinke 2020, Corollary 9)."""
    if sigma2 < 0.5:
        second = sum(k * k * math.exp(-k * k / (2.0 * sigma2)) for k in range(1, 10))
        return 2.0 * second / normalizer(sigma2)
    # -d/d(1/(2 sigma2)) of the logarithm of Poisson's form.
    curvature = sum(4.0 * math.pi**2 * n * n * _dual(sigma2, n) for n in (1, 2))
    correction = 2.0 * sigma2 * curvature / (1.0 + 2.0 * sum(_dual(sigma2, n) for n in (1, 2)))
    return sigma2 * (1.0 - correction)


def mean_abs(sigma2: float) -> float:
    """E|K| of the discrete Gaussian."""
    sigma = math.sqrt(sigma2)
    if sigma > _LARGEST_SUMMED_SIGMA:
        one_side = sigma2 - 1.0 / 12.0 - 1.0 / (240.0 * sigma2)
    else:
        k = np.arange(math.ceil(REACH * sigma), 0, -1, dtype=np.float64)
        one_side = float(np.sum(k * np.exp(-k * k / (2.0 * sigma2))))
    return 2.0 * one_side / normalizer(sigma2)


def tail(k: FloatArray, sigma2: float) -> FloatArray:
    """P(K >= k) for integers k >= 1, elementwise, to full relative accuracy; nan for nan."""
    sigma = math.sqrt(sigma2)
    if sigma <= _LARGEST_SUMMED_SIGMA:
        sums = _tail_table(sigma2)
        place = np.nan_to_num(np.minimum(k, float(sums.size - 1)), nan=0.0).astype(np.int64)
        return np.where(np.isnan(k), np.nan, sums[place])
    # Midpoint form of Euler-Maclaurin at k - 1/2: integral + f'/24 - 7 f'''/5760, f the normal density.
    z = np.minimum((k - 0.5) / sigma, 1e3)
    density = np.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
    first = -z * density / sigma2
    third = -(z**3 - 3.0 * z) * density / sigma2**2
    return np.asarray(ndtr(-z) + first / 24.0 - 7.0 * third / 5760.0)


@lru_cache(maxsize=16)
def _tail_table(sigma2: float) -> FloatArray:
    """Entry k is P(K >= k), k = 0 .. reach; summed from the far end, so that the smallest are added first."""
    k = np.arange(math.ceil(REACH * math.sqrt(sigma2)) + 1, dtype=np.float64)
    with np.errstate(under="ignore"):
        weights = np.exp(-k * k / (2.0 * sigma2))
    sums = np.append(np.cumsum(weights[::-1])[::-1], 0.0) / normalizer(sigma2)
    sums.flags.writeable = False
    return np.asarray(sums)


def _dual(sigma2: float, n: int) -> float:
    return math.exp(-2.0 * math.pi**2 * sigma2 * n * n)
