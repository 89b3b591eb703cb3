"""Finite sums over the double geometric law, a = exp(-1/scale), stable from scales far below to far above the count.

The sums of k a^k and k^2 a^k are negative binomial probabilities, that is regularised incomplete beta functions;
their closed forms lose all digits once the scale passes the count. Relative error about 1e-10 at worst (counts of
1e9), 1e-13 for counts up to 1e5.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from scipy.special import betainc

from topdown.noise.parameters import FloatArray


def reaches(distance: FloatArray, scale: Fraction) -> FloatArray:
    """P(DiscreteLaplace >= distance)."""
    theta = 1.0 / float(scale)
    with np.errstate(over="ignore"):
        far = np.exp(-theta * np.maximum(distance, 0.0))
        near = np.exp(-theta * (1.0 - np.minimum(distance, 0.0)))
    return np.asarray(np.where(distance > 0, far, 1.0 + np.exp(-theta) - near) / (1.0 + np.exp(-theta)))


def sum0(count: FloatArray, scale: Fraction) -> FloatArray:
    """Sum of a^k over k = 1..count; ``count`` may be 0 or infinite."""
    theta = 1.0 / float(scale)
    return np.asarray(np.exp(-theta) * np.expm1(-theta * count) / np.expm1(-theta))


def sum1(count: FloatArray, scale: Fraction) -> FloatArray:
    """Sum of k a^k over k = 1..count."""
    theta = 1.0 / float(scale)
    total: FloatArray = np.exp(-theta) * _probability(2, count, theta) / np.expm1(-theta) ** 2
    return total


def sum2(count: FloatArray, scale: Fraction) -> FloatArray:
    """Sum of k^2 a^k over k = 1..count."""
    theta = 1.0 / float(scale)
    total: FloatArray = -2.0 * np.exp(-theta) * _probability(3, count, theta) / np.expm1(-theta) ** 3
    return np.asarray(total - sum1(count, scale))


def _probability(k: int, count: FloatArray, theta: float) -> FloatArray:
    """I_(1 - a)(k, count), 0 for a count of 0 and 1 for an infinite one."""
    finite = np.where(np.isfinite(count) & (count > 0), count, 1.0)
    value: FloatArray = np.asarray(betainc(k, finite, -np.expm1(-theta)))
    return np.where(count > 0, np.where(np.isfinite(count), value, 1.0), 0.0)
