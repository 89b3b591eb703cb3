"""Combines several syntheses of the same data, each released for a part of the budget, into one estimate and its
interval.

Source: Liu 2017, "Model-based Differentially Private Data Synthesis and Statistical Inference in Multiply Synthetic
Data Sets".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import ConfigError, require_probability

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Combined:
    """Several syntheses of one statistic as one estimate.

    Args:
        estimate: the mean of the estimates.
        within: W, the mean of their variances.
        between: B, the variance of the estimates.
        total: T, the variance of the combined estimate.
        degrees: nu, the degrees of freedom; infinite where B = 0.
        low: the lower end of the interval.
        high: the upper end of the interval.

    Examples:
        >>> found = td.synthesis.combining.combine([1.0, 1.2, 0.8], [0.04, 0.05, 0.04])
        >>> float(found.low.round(2)), float(found.high.round(2))
        (0.52, 1.48)
    """

    estimate: FloatArray
    within: FloatArray
    between: FloatArray
    total: FloatArray
    degrees: FloatArray
    low: FloatArray
    high: FloatArray


def combine(estimates: ArrayLike, variances: ArrayLike, *, confidence: float = 0.95) -> Combined:
    """m estimates and their variances, each from a release of its own (along the last axis), combined.

    W the mean of the variances, B the variance of the estimates (divisor m - 1): T = W + B/m, degrees of freedom
    nu = (m - 1)(1 + m W/B)^2, interval estimate +- t_nu sqrt(T). Not (1 + 1/m) B, as for imputations: given the data
    the m releases are independent. B = 0 takes the normal quantile.

    Args:
        estimates: (..., m).
        variances: (..., m), of each estimate.
        confidence: of the interval, between 0 and 1.

    Raises ConfigError for fewer than two estimates, shapes that differ, what is not finite, a negative variance, or a
    confidence that is not between 0 and 1.

    Examples:
        >>> found = td.synthesis.combining.combine([1.0, 1.2, 0.8], [0.04, 0.05, 0.04])
        >>> float(found.estimate.round(3)), float(found.total.round(4))
        (1.0, 0.0567)
    """
    from scipy.stats import norm, t

    q, u = np.asarray(estimates, dtype=np.float64), np.asarray(variances, dtype=np.float64)
    if q.shape != u.shape or q.ndim == 0 or q.shape[-1] < 2:
        raise ConfigError(f"estimates of shape {q.shape}, variances of {u.shape}; give two or more of both alike")
    if not (np.isfinite(q).all() and np.isfinite(u).all() and (u >= 0).all()):
        raise ConfigError("an estimate or a variance is not finite, or a variance is negative; correct it")
    require_probability(confidence, "confidence")
    m = q.shape[-1]
    within, between = u.mean(axis=-1), q.var(axis=-1, ddof=1)
    total = within + between / m
    apart = between > 0
    degrees = np.where(apart, (m - 1) * (1.0 + m * within / np.where(apart, between, 1.0)) ** 2, np.inf)
    tail = (1.0 + confidence) / 2.0
    quantile = np.where(apart, t.ppf(tail, np.where(apart, degrees, 1.0)), norm.ppf(tail))
    mean, reach = q.mean(axis=-1), quantile * np.sqrt(total)
    return Combined(mean, within, between, total, degrees, mean - reach, mean + reach)
