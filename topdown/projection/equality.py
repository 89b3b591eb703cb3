"""Weighted least squares on a tree in two passes, with the variance of every node.

The upward pass gives every node its best estimate z from the measurements at and below it, with variance u; the
downward pass shares out, family by family, what the parent has and its children's estimates lack. Both are O(nodes),
vectorised over a level's families and over any leading axes (cells, replicates).

A variance of 0 is an exact value (an invariant), infinity a node that was not measured. Where unmeasured leaves leave
the minimiser open, the one of least norm on those leaves is taken: they share the remainder equally.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from topdown.geography.tree import Families, FloatArray, Tree


@dataclass(frozen=True, eq=False)
class Gains:
    """What the two passes multiply by; a function of the variances alone, so one `Gains` serves many replicates.

    ``own`` (..., inner nodes): weight of a node's own measurement in z, against its children's sum.
    ``share`` (..., nodes): part of its family's discrepancy that a node takes on the way down (the root's is unused).
    ``variance`` (..., nodes): u, the variance of z.
    """

    own: FloatArray
    share: FloatArray
    variance: FloatArray


def _shares(variance: FloatArray, unmeasured: FloatArray | None, families: Families) -> FloatArray:
    """Each child's part of its family's variance; among unmeasured children the measured ones take nothing."""
    total = families.total(variance)
    inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    share: FloatArray = variance * families.spread(inverse)
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
    """The weight of a node's own measurement against its children's sum with variance ``pooled``; both's variance."""
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
    nodes = slice(0, upper.n_nodes)
    above = upward_gains(variance[..., nodes], upper)
    open_ends = open_leaves(variance[..., nodes], upper)
    own = np.ones((*variance.shape[:-1], tree.n_families))
    own[..., : upper.n_families] = above.own
    share, u = family_gains(variance, tree), np.array(variance)
    share[..., nodes] = above.share
    # u is 0 for an undetermined subtree, whose siblings it must not reach; its own variance is infinite.
    u[..., nodes] = above.variance if open_ends is None else np.where(open_ends > 0, np.inf, above.variance)
    return Gains(own, share, u)


def upward_gains(variance: FloatArray, tree: Tree) -> Gains:
    """The gains of the least-squares estimate from measurements with ``variance`` (..., nodes).

    With V the sum of the children's u and v the node's own variance, z = (S v + y V) / (V + v), u = V v / (V + v): the
    upward pass of generalised least squares on a tree, written so that v = 0 and v = inf are limits and not accidents.
    """
    u = np.array(variance)
    share = np.empty_like(u)
    own = np.empty((*u.shape[:-1], tree.n_families))
    leaves = tree.leaves
    unmeasured: FloatArray | None = None
    if np.isinf(u[..., leaves]).any():
        unmeasured = np.zeros(u.shape)
        u[..., leaves], unmeasured[..., leaves] = _split_unmeasured(u[..., leaves])
    for families in tree.parts_up():
        children, parents = families.children, families.parents
        below = None if unmeasured is None else unmeasured[..., children]
        share[..., children] = _shares(u[..., children], below, families)
        pooled = families.total(u[..., children])
        v = variance[..., parents]
        weight, combined = combine(pooled, v)
        if below is not None and unmeasured is not None:
            measured = np.isfinite(v)
            open_ends = families.total(below)
            weight = np.where(open_ends > 0, measured, weight)
            combined = np.where(open_ends > 0, np.where(measured, v, 0.0), combined)
            unmeasured[..., parents] = np.where(measured, 0.0, open_ends)
        own[..., parents] = weight
        u[..., parents] = combined
    share[..., 0] = 1.0
    return Gains(own, share, u)


def family_gains(variance: FloatArray, tree: Tree) -> FloatArray:
    """Shares (..., nodes) for the per-family projection of the measurements themselves (no upward pass)."""
    share = np.empty_like(variance)
    share[..., 0] = 1.0
    for families in tree.parts_down():
        finite, unmeasured = _split_unmeasured(variance[..., families.children])
        share[..., families.children] = _shares(finite, unmeasured, families)
    return share


def measured_or_zero(values: FloatArray, variance: FloatArray) -> FloatArray:
    """A copy of ``values`` with 0 in place of what was not measured (where anything, NaN too, may stand)."""
    unmeasured = np.isinf(variance)
    return np.where(unmeasured, 0.0, values) if unmeasured.any() else np.array(values)


def upward(values: FloatArray, gains: Gains, tree: Tree) -> FloatArray:
    """z (..., nodes): the best estimate of every node from ``values`` at and below it. ``values`` is overwritten."""
    for families in tree.parts_up():
        children = families.total(values[..., families.children])
        own = gains.own[..., families.parents]
        parents = values[..., families.parents]
        # A measurement that is all of the estimate stays as it is, whatever the children's sum is rounded to.
        values[..., families.parents] = np.where(own == 1.0, parents, children + own * (parents - children))
    return values


def downward(values: FloatArray, share: FloatArray, tree: Tree) -> FloatArray:
    """x (..., nodes): the root kept, then each family moved onto its parent's value. ``values`` is overwritten."""
    for families in tree.parts_down():
        children = values[..., families.children]
        excess = values[..., families.parents] - families.total(children)
        children += share[..., families.children] * families.spread(excess)
    return values


def downward_variance(variance: FloatArray, share: FloatArray, tree: Tree) -> FloatArray:
    """The variances of what `downward` gives from independent inputs with ``variance``, shared out in proportion to it.

    var x_c = v_c (1 - g_c) + g_c^2 var x_p with g_c = v_c / (sum of the family's v). The one undetermined child of a
    family (variance inf) is what its parent has less its siblings' sum, independent of each other; of two or more the
    variance is infinite.
    """
    result = np.array(variance)
    any_open = bool(np.isinf(variance).any())
    for families in tree.parts_down():
        v, g = variance[..., families.children], share[..., families.children]
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
    return downward(upward(measured_or_zero(values, variance), gains, tree), gains.share, tree)


def least_squares_variance(variance: FloatArray, tree: Tree) -> FloatArray:
    """Variance (..., nodes) of every node of `least_squares` when the measurements have ``variance``.

    Equals the diagonal of Sigma - Sigma A'(A Sigma A')^-1 A Sigma. Infinite where unmeasured leaves leave it open.
    """
    gains = upward_gains(variance, tree)
    open_ends = open_leaves(variance, tree)
    # u is 0 for an undetermined subtree, whose siblings it must not reach; its own variance is infinite.
    u = gains.variance if open_ends is None else np.where(open_ends > 0, np.inf, gains.variance)
    return downward_variance(u, gains.share, tree)


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
