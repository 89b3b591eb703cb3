"""Variances that the equality projections leave, in closed form: one family, level by level, and a dense tree."""

from __future__ import annotations

from typing import SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import ConfigError
from topdown.projection.linear.linear_covariance import family_variance, linear_projection_covariance
from topdown.research.theory.noise_laws import NoiseLaw, Scale, checked_count, noise_variance

Array = NDArray[np.float64]


def projected_variance(n: SupportsIndex | SupportsFloat, scale: Scale, law: NoiseLaw = "laplace") -> float:
    """Variance of every child after projecting a family on its public total.

    2 scale^2 (1 - 1/n) for Laplace noise, 2a / (1 - a)^2 (1 - 1/n) with a = exp(-1 / scale) for double geometric
    noise: the more siblings, the less a child gains.

    Args:
        n: the size of the family.
        scale: sensitivity / epsilon, in counts.
        law: "laplace" or "geometric".

    Raises:
        ConfigError: ``n``, ``scale`` or ``law`` is invalid.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy",
    Theorem 6. The paper's Arizona (n = 15, 186.667) and Texas (n = 254, 199.213) at scale 10 are the Laplace values;
    the geometric noise it draws gives 186.511 and 199.047.

    Examples:
        >>> round(td.theory.projected_variance(15, 10.0), 2)
        186.67
    """
    return family_variance(noise_variance(scale, law), checked_count(n, "family size n"))


def level_variances(noise_variances: ArrayLike, family_sizes: ArrayLike) -> Array:
    """Variance at each level after the top-down equality projection of a tree with equal families in each level.

    Var_0 = var_0 and Var_l = var_l (1 - 1/n_l) + Var_{l-1} / n_l^2, for independent noise and equal weights within
    a family.

    Args:
        noise_variances: (levels,) variance of the noise at each level, root first; 0 at the root where its count
            is public.
        family_sizes: (levels - 1,) number of children of a node of each level but the last.

    Returns:
        (levels,) variances.

    Raises:
        ConfigError: the lengths do not fit, a variance is negative or not finite, or a size is below 1.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", Theorem 6,
    applied family by family down the tree.

    Examples:
        >>> td.theory.level_variances([50.0, 20.0, 8.0], [2, 3]).round(2)
        array([50.  , 22.5 ,  7.83])
    """
    noise = _checked_variances(noise_variances)
    sizes = np.atleast_1d(np.asarray(family_sizes, dtype=np.float64))
    if sizes.size != noise.size - 1:
        raise ConfigError(
            f"{noise.size} levels have {noise.size - 1} family sizes, {sizes.size} were given; leave out the last level"
        )
    if np.any(~(sizes >= 1.0)):
        raise ConfigError(f"family sizes {sizes.tolist()} must all be at least 1")
    result = noise.copy()
    for level, n in enumerate(sizes, start=1):
        result[level] = family_variance(noise[level], n) + result[level - 1] / n**2
    return result


def topdown_equality_variance(parent: ArrayLike, variance: ArrayLike) -> Array:
    """Variance of every node after the top-down equality projection with weights 1 / variance.

    In a family with noise variances v_c and V = sum v_c the estimate is x_c = y_c + (v_c / V) (x_p - sum y), so that
    var(x_c) = v_c - v_c^2 / V + (v_c / V)^2 var(x_p). A family measured without noise (V = 0) keeps variance 0.

    Args:
        parent: (nodes,) position of each node's parent, -1 at the root.
        variance: (nodes,) noise variance of each node, or one number; 0 means exact.

    Returns:
        (nodes,) variances.

    Raises:
        ConfigError: ``parent`` is not a tree, or a variance is negative or not finite.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", Theorem 6,
    with unequal weights.

    Examples:
        >>> td.theory.topdown_equality_variance([-1, 0, 0], [50.0, 20.0, 20.0])
        array([50. , 22.5, 22.5])
    """
    up, depth = _checked_tree(parent)
    noise = _checked_variances(variance, nodes=up.size)
    family_variance = np.zeros(up.size)
    below = np.flatnonzero(up >= 0)
    np.add.at(family_variance, up[below], noise[below])
    result = noise.copy()
    for level in range(1, int(depth.max()) + 1):
        node = np.flatnonzero(depth == level)
        total = family_variance[up[node]]
        share = np.divide(noise[node], total, out=np.zeros(node.size), where=total > 0.0)
        result[node] = noise[node] * (1.0 - share) + share**2 * result[up[node]]
    return result


def tree_covariance(parent: ArrayLike, variance: ArrayLike) -> Array:
    """Covariance of the best linear unbiased estimates of a whole tree: Sigma - Sigma A'(A Sigma A')^+ A Sigma.

    A has one row per inner node, the node minus its children; Sigma = diag(variance). Dense, O(nodes^3): the
    reference for small trees.

    Args:
        parent: (nodes,) position of each node's parent, -1 at the root.
        variance: (nodes,) noise variance of each node, or one number; 0 means exact (a public root).

    Returns:
        (nodes, nodes) covariance, in the order of ``parent``.

    Raises:
        ConfigError: ``parent`` is not a tree, or a variance is negative or not finite.

    Source: Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential Privacy", the
    weighted form of program (P).

    Examples:
        >>> td.theory.tree_covariance([-1, 0, 0], [50.0, 20.0, 20.0]).round(2)
        array([[22.22, 11.11, 11.11],
               [11.11, 15.56, -4.44],
               [11.11, -4.44, 15.56]])
    """
    up, _ = _checked_tree(parent)
    sigma = _checked_variances(variance, nodes=up.size)
    inner = np.unique(up[up >= 0])
    constraints = np.zeros((inner.size, up.size))
    constraints[np.arange(inner.size), inner] = 1.0
    below = np.flatnonzero(up >= 0)
    constraints[np.searchsorted(inner, up[below]), below] = -1.0
    return linear_projection_covariance(constraints, sigma)


def _checked_tree(parent: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The parents and every node's depth; ConfigError unless every node reaches the one root."""
    up = np.atleast_1d(np.asarray(parent, dtype=np.int64))
    if up.ndim != 1 or np.count_nonzero(up < 0) != 1 or np.any(up >= up.size):
        raise ConfigError("parent must hold one position per node, and -1 at exactly one root")
    depth = np.zeros(up.size, dtype=np.int64)
    ancestor = up.copy()
    while np.any(ancestor >= 0):
        depth += ancestor >= 0
        if depth.max() >= up.size:
            raise ConfigError("parent holds a cycle; every node must reach the root")
        ancestor = np.where(ancestor >= 0, up[ancestor], -1)
    return up, depth


def _checked_variances(variance: ArrayLike, nodes: int | None = None) -> Array:
    values = np.atleast_1d(np.asarray(variance, dtype=np.float64))
    if nodes is not None and values.size == 1:
        values = np.full(nodes, values[0])
    if values.ndim != 1 or values.size == 0 or (nodes is not None and values.size != nodes):
        raise ConfigError(f"variances have shape {values.shape}; give one per level or per node")
    if np.any(~(np.isfinite(values) & (values >= 0.0))):
        raise ConfigError(f"variances {values.tolist()[:10]} must be finite and at least 0")
    return values.copy()
