"""Weighted least squares on a tree in two passes, with the variance of every node.

The upward pass gives every node its best estimate z from the measurements at and below it, with variance u; the
downward pass divides, family by family, the difference between the parent's value and the sum of its children's
estimates. Both are O(nodes), vectorised over a level's families and over any leading axes (cells, replicates).

A variance of 0 is an exact value (an invariant), infinity a node that was not measured. Where unmeasured leaves leave
the minimiser undetermined, the one of least norm on those leaves is taken: they share the remainder equally.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from topdown.geography.tree import Families, FloatArray, Tree

Shares: TypeAlias = Callable[[Families], FloatArray]
"""Gives, for some families, the part (..., children) of the family's discrepancy that every child takes on the way
down.
"""


@dataclass(frozen=True, eq=False)
class Gains:
    """The coefficients of the two passes; a function of the variances alone, so one `Gains` serves many replicates.

    ``own`` (..., inner nodes): weight of a node's own measurement in z, against its children's sum. ``shares``: see
    `Shares`; computed family by family where they are used, since storing those of millions of leaves takes longer.
    ``inner`` (..., inner nodes) and ``leaves`` (..., leaves): u, the variance of z.
    """

    own: FloatArray
    shares: Shares
    inner: FloatArray
    leaves: FloatArray

    @property
    def variance(self) -> FloatArray:
        """u of all nodes (..., nodes), in a new array."""
        return np.concatenate([self.inner, self.leaves], axis=-1)


def _shares(variance: FloatArray, unmeasured: FloatArray | None, families: Families) -> FloatArray:
    """Each child's part of its family's variance; among unmeasured children the measured ones take nothing."""
    total = families.total(variance)
    # A division, not a product with an inverse: a child with all of its family's variance must have a share of exactly
    # 1.
    share: FloatArray = variance / families.spread(np.where(total > 0, total, 1.0))
    if unmeasured is not None:
        open_ends = families.spread(families.total(unmeasured))
        share = np.where(open_ends > 0, unmeasured / np.maximum(open_ends, 1.0), share)
    return share


def _split_unmeasured(variance: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Finite variances (0 where unmeasured), and the mask of the unmeasured as numbers, None where there is none."""
    unmeasured = np.isinf(variance)
    if not unmeasured.any():
        return variance, None
    return np.where(unmeasured, 0.0, variance), unmeasured.astype(np.float64)


def combine(pooled: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The weight of a node's own measurement against its children's sum with variance ``pooled``; and the variance of
    the combined estimate.
    """
    measured = np.isfinite(variance)
    with np.errstate(invalid="ignore"):
        weight = np.where(measured & (pooled > 0), pooled / (pooled + variance), 0.0)
        return weight, np.where(measured, weight * variance, pooled)


def gains_from(variance: FloatArray, tree: Tree, start: int) -> Gains:
    """The gains where the upward pass starts at level ``start``: of least squares down to it, of families below it.

    ``variance`` of the result is infinite where the measurements at and below a node, down to ``start``, leave it
    undetermined. With ``start`` the root's, 0, that is the projection family by family, with the leaves' that of the
    whole tree.
    """
    upper = tree.above(start)
    nodes, inner = slice(0, upper.n_nodes), tree.n_families
    above, below = upward_gains(variance[..., nodes], upper), family_gains(variance, tree)
    open_ends = open_leaves(variance[..., nodes], upper)
    own = np.ones((*variance.shape[:-1], inner))
    own[..., : upper.n_families] = above.own
    u = np.array(variance)
    # u is 0 for an undetermined subtree, so that it does not affect its siblings; its own variance is infinite.
    u[..., nodes] = above.variance if open_ends is None else np.where(open_ends > 0, np.inf, above.variance)

    def shares(families: Families) -> FloatArray:
        return (above.shares if families.children.stop <= upper.n_nodes else below)(families)

    return Gains(own, shares, u[..., :inner], u[..., inner:])


def upward_gains(variance: FloatArray, tree: Tree) -> Gains:
    """The gains of the least-squares estimate from measurements with ``variance`` (..., nodes).

    With V the sum of the children's u and v the node's own variance, z = (S v + y V) / (V + v), u = V v / (V + v): the
    upward pass of generalised least squares on a tree, in a form in which v = 0 and v = inf give the right limits.
    """
    leaves, shape = tree.leaves, (*variance.shape[:-1], tree.n_families)
    inner, own = np.empty(shape), np.empty(shape)
    bottom, unmeasured = _split_unmeasured(variance[..., leaves])
    # How many unmeasured leaves leave an inner node undetermined.
    open_inner = None if unmeasured is None else np.zeros(shape)

    def below(families: Families) -> tuple[FloatArray, FloatArray | None]:
        c = families.children
        if c.start < leaves.start:
            return inner[..., c], None if open_inner is None else open_inner[..., c]
        c = slice(c.start - leaves.start, c.stop - leaves.start)
        return bottom[..., c], None if unmeasured is None else unmeasured[..., c]

    for families in tree.parts_up():
        parents, (u, open_ends) = families.parents, below(families)
        v = variance[..., parents]
        weight, combined = combine(families.total(u), v)
        if open_ends is not None and open_inner is not None:
            measured, undetermined = np.isfinite(v), families.total(open_ends)
            weight = np.where(undetermined > 0, measured, weight)
            combined = np.where(undetermined > 0, np.where(measured, v, 0.0), combined)
            open_inner[..., parents] = np.where(measured, 0.0, undetermined)
        own[..., parents], inner[..., parents] = weight, combined
    return Gains(own, lambda families: _shares(*below(families), families), inner, bottom)


def family_gains(variance: FloatArray, tree: Tree) -> Shares:
    """Shares for the per-family projection of the measurements themselves (no upward pass)."""
    return lambda families: _shares(*_split_unmeasured(variance[..., families.children]), families)


def all_shares(shares: Shares, tree: Tree) -> FloatArray:
    """The shares of all nodes (nodes,); the root's is 1."""
    found = np.ones(tree.n_nodes)
    for families in tree.parts_down():
        found[families.children] = shares(families)
    return found


def measured_or_zero(values: FloatArray, variance: FloatArray) -> FloatArray:
    """A copy of ``values`` with 0 in place of values that were not measured (which may be anything, also NaN)."""
    unmeasured = np.isinf(variance)
    return np.where(unmeasured, 0.0, values) if unmeasured.any() else np.array(values)


def upward(values: FloatArray, gains: Gains, tree: Tree) -> FloatArray:
    """z (..., nodes): the best estimate of every node from ``values`` at and below it. ``values`` is overwritten."""
    for families in tree.parts_up():
        children = families.total(values[..., families.children])
        own = gains.own[..., families.parents]
        parents = values[..., families.parents]
        # Where the measurement has the whole weight the estimate is exactly its value, whatever the rounding of the
        # children's sum.
        values[..., families.parents] = np.where(own == 1.0, parents, children + own * (parents - children))
    return values


def downward(values: FloatArray, shares: Shares, tree: Tree) -> FloatArray:
    """x (..., nodes): the root is kept, then each family is moved so that it adds up to its parent. ``values`` is
    overwritten.
    """
    for families in tree.parts_down():
        children = values[..., families.children]
        excess = values[..., families.parents] - families.total(children)
        children += shares(families) * families.spread(excess)
    return values


def downward_variance(variance: FloatArray, shares: Shares, tree: Tree, *, in_place: bool = False) -> FloatArray:
    """The variances of the result of `downward` from independent inputs with ``variance``, with shares in proportion to
    it.

    var x_c = v_c (1 - g_c) + g_c^2 var x_p with g_c = v_c / (sum of the family's v). A single undetermined child of a
    family (variance inf) is its parent less its siblings' sum, which are independent; two or more have infinite
    variance. ``in_place``: the result takes the place of ``variance``.
    """
    result = variance if in_place else np.array(variance)
    any_open = bool(np.isinf(variance).any())
    for families in tree.parts_down():
        v, g = variance[..., families.children], shares(families)
        above = families.spread(result[..., families.parents])
        if not any_open:
            result[..., families.children] = v * (1.0 - g) + g * g * above
            continue
        is_open = np.isinf(v)
        open_ends = families.spread(families.total(is_open.astype(np.int64)))
        known = families.spread(families.total(np.where(is_open, 0.0, v)))
        remainder = np.where(open_ends == 1, above + known, np.inf)
        with np.errstate(invalid="ignore"):
            closed = np.where(g > 0, v * (1.0 - g) + g * g * above, v)
        result[..., families.children] = np.where(is_open, remainder, np.where(open_ends == 0, closed, v))
    return result


def least_squares(values: FloatArray, variance: FloatArray, tree: Tree) -> FloatArray:
    """argmin over x of sum (x_i - y_i)^2 / v_i subject to every family adding up; (..., nodes)."""
    gains = upward_gains(variance, tree)
    return downward(upward(measured_or_zero(values, variance), gains, tree), gains.shares, tree)


def least_squares_variance(variance: FloatArray, tree: Tree) -> FloatArray:
    """Variance (..., nodes) of every node of `least_squares` when the measurements have ``variance``.

    Equals the diagonal of Sigma - Sigma A'(A Sigma A')^-1 A Sigma. Infinite where unmeasured leaves leave it
    undetermined.
    """
    gains = upward_gains(variance, tree)
    open_ends = open_leaves(variance, tree)
    # u is 0 for an undetermined subtree, so that it does not affect its siblings; its own variance is infinite.
    u = gains.variance if open_ends is None else np.where(open_ends > 0, np.inf, gains.variance)
    return downward_variance(u, gains.shares, tree, in_place=True)


def open_leaves(variance: FloatArray, tree: Tree) -> FloatArray | None:
    """Numbers (..., nodes) of unmeasured leaves at and below every node that the measurements there leave undetermined.

    0 at the other nodes; None where every leaf is measured.
    """
    leaves = np.isinf(variance[..., tree.leaves])
    if not leaves.any():
        return None
    counts = np.zeros(variance.shape)
    counts[..., tree.leaves] = leaves
    for families in tree.parts_up():
        below = families.total(counts[..., families.children])
        counts[..., families.parents] = np.where(np.isinf(variance[..., families.parents]), below, 0.0)
    return counts
