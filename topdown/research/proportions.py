"""Histograms of proportions that add up to one: re-scaled, or from a tree of noisy layers made consistent.

Sources: Hay, Rastogi, Miklau, Suciu 2010, "Boosting the Accuracy of Differentially Private Histograms Through
Consistency" (the universal histogram); Liu, "Statistical Properties of Sanitized Results from Differentially Private
Laplace Mechanism with Univariate Bounding Constraints", study 2 (what becomes of negative nodes).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def universal_histogram(
    layers: Sequence[ArrayLike], *, root: float = 1.0, branching: int = 2
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Noisy histograms of the layers of a tree, made consistent with each other and with an exact ``root``.

    Returns (upward, consistent): the nodes' estimates from themselves and everything below, and the least-squares
    estimates whose families add up; both layer by layer. If the noise has the same variance in all layers these are
    least squares (Hay et al., Theorem 3).

    Args:
        layers: from below the root to the leaves, the k-th of shape (..., branching^k).
        root: the exact value of the root.
        branching: the number of children of every inner node.

    Examples:
        >>> from topdown.research.proportions import universal_histogram
        >>> upward, consistent = universal_histogram([[0.7, 0.2], [0.3, 0.35, 0.1, 0.2]])
        >>> consistent[1].round(4)
        array([0.3375, 0.3875, 0.0875, 0.1875])
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

    Args:
        layers: as of `universal_histogram`.
        root: the exact value of the root.
        branching: the number of children of every inner node.

    Examples:
        >>> from topdown.research.proportions import nonnegative_histogram
        >>> nonnegative_histogram([[0.9, 0.2], [0.3, 0.6, -0.1, 0.2]]).round(3)
        array([0.283, 0.583, 0.   , 0.133])
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
    """Non-negative numbers divided by their sum, along the last axis; equal shares where all are 0.

    Args:
        proportions: (..., cells), 0 or more.

    Examples:
        >>> from topdown.research.proportions import rescaled
        >>> rescaled([2.0, 1.0, 1.0])
        array([0.5 , 0.25, 0.25])
    """
    given = np.asarray(proportions, dtype=np.float64)
    total = given.sum(axis=-1, keepdims=True)
    return np.where(total > 0, given / np.where(total > 0, total, 1.0), 1.0 / given.shape[-1])


def _families(layer: FloatArray, branching: int) -> FloatArray:
    return layer.reshape(*layer.shape[:-1], -1, branching)
