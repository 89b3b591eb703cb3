"""What study 2 releases and how it is combined: the universal histogram, re-scaling, and several syntheses.

Sources: Hay, Rastogi, Miklau, Suciu 2010, "Boosting the Accuracy of Differentially Private Histograms Through
Consistency" (the universal histogram); Liu 2017, on combining syntheses that are released for a part of the budget
each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm, t

FloatArray = NDArray[np.float64]


def universal_histogram(
    layers: Sequence[ArrayLike], *, root: float = 1.0, branching: int = 2
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Noisy histograms of a tree's layers, made consistent with each other and with an exact ``root``.

    ``layers``: from below the root to the leaves, the k-th of shape (..., branching^k). Gives (upward, consistent): the
    nodes' estimates from themselves and everything below, and the least-squares estimates whose families add up; both
    layer by layer. With noise of one variance in all layers these are least squares (Hay et al., Theorem 3).
    """
    noisy = [np.asarray(layer, dtype=np.float64) for layer in layers]
    upward = [noisy[-1]]
    for height, layer in enumerate(reversed(noisy[:-1]), start=2):
        below = _families(upward[0], branching).sum(axis=-1)
        whole, part = branching**height, branching ** (height - 1)
        upward.insert(0, ((whole - part) * layer + (part - 1) * below) / (whole - 1))
    above = np.broadcast_to(float(root), (*noisy[0].shape[:-1], 1))
    consistent = []
    for layer in upward:
        families = _families(layer, branching)
        gap = above - families.sum(axis=-1)
        above = (families + gap[..., None] / branching).reshape(layer.shape)
        consistent.append(above)
    return upward, consistent


def nonnegative_histogram(layers: Sequence[ArrayLike], *, root: float = 1.0, branching: int = 2) -> FloatArray:
    """The leaves of `universal_histogram` with negative nodes set to 0 and their family scaled to its parent.

    Layer by layer from the root; a family of zeros shares its parent equally.
    """
    upward, _ = universal_histogram(layers, root=root, branching=branching)
    above = np.broadcast_to(float(root), (*upward[0].shape[:-1], 1))
    for layer in upward:
        families = _families(layer, branching)
        gap = above - families.sum(axis=-1)
        kept = np.maximum(families + gap[..., None] / branching, 0.0)
        above = (rescaled(kept) * above[..., None]).reshape(layer.shape)
    return above


def rescaled(proportions: ArrayLike) -> FloatArray:
    """Non-negative numbers divided by their sum, along the last axis; equal shares where all are 0."""
    given = np.asarray(proportions, dtype=np.float64)
    total = given.sum(axis=-1, keepdims=True)
    return np.where(total > 0, given / np.where(total > 0, total, 1.0), 1.0 / given.shape[-1])


@dataclass(frozen=True)
class Combined:
    """Several syntheses of one statistic as one estimate."""

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
    """
    q, u = np.asarray(estimates, dtype=np.float64), np.asarray(variances, dtype=np.float64)
    m = q.shape[-1]
    within, between = u.mean(axis=-1), q.var(axis=-1, ddof=1)
    total = within + between / m
    apart = between > 0
    degrees = np.where(apart, (m - 1) * (1.0 + m * within / np.where(apart, between, 1.0)) ** 2, np.inf)
    tail = (1.0 + confidence) / 2.0
    quantile = np.where(apart, t.ppf(tail, np.where(apart, degrees, 1.0)), norm.ppf(tail))
    mean, reach = q.mean(axis=-1), quantile * np.sqrt(total)
    return Combined(mean, within, between, total, degrees, mean - reach, mean + reach)


def _families(layer: FloatArray, branching: int) -> FloatArray:
    return layer.reshape(*layer.shape[:-1], -1, branching)
