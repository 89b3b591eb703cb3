"""Non-negative projections: of every family at once, and of the whole tree, both exact.

One family: min sum (x_c - y_c)^2 / v_c subject to sum x_c = total and x >= 0 has x = max(0, y - v tau); Michelot's
iteration finds tau by dropping what is negative, and needs 2 to 5 rounds on ordinary data. The whole tree: the same
argument, carried from one family to all of them (docs/mathematics.md, "The clamp is exact").
"""

from __future__ import annotations

import numpy as np

from topdown.geography.tree import Families, FloatArray, IntArray, Tree
from topdown.projection.cells.equality import combine, downward, measured_or_zero, upward, upward_gains

_CHILDREN_AT_ONCE = 1 << 15


def project_families(
    values: FloatArray, totals: FloatArray, sizes: IntArray, variance: FloatArray | None = None
) -> FloatArray:
    """argmin of sum (x_c - y_c)^2 / v_c over x >= 0 with every family's sum equal to its total.

    ``values`` (children,): y, the families one after another. ``totals`` (families,): non-negative. ``sizes``
    (families,): numbers of children, at least 1. ``variance`` (children,): v, finite; None where it is the same within
    every family. A child with v = 0 keeps its value; where such children alone exceed the total there is no solution,
    and the sum of what is returned says so. A total of 0 gives zeros. Source: Michelot, A finite algorithm for finding
    the projection of a point onto the canonical simplex.
    """
    slope = np.ones_like(values) if variance is None else variance
    starts = np.cumsum(sizes) - sizes
    tau = _thresholds(values, totals, sizes, starts, variance)
    x = values - slope * np.repeat(tau, sizes)
    np.maximum(x, 0.0, out=x)
    x[np.repeat(totals == 0, sizes) & (slope > 0)] = 0.0
    # The thresholds are differences of large sums; one correction on the support makes the sums right to rounding.
    free = np.where(x > 0, slope, 0.0)
    room = np.add.reduceat(free, starts)
    missing = totals - np.add.reduceat(x, starts)
    step = np.divide(missing, room, out=np.zeros_like(missing), where=room > 0)
    x += free * np.repeat(step, sizes)
    np.maximum(x, 0.0, out=x)
    return x


def _thresholds(
    values: FloatArray, totals: FloatArray, sizes: IntArray, starts: IntArray, variance: FloatArray | None
) -> FloatArray:
    """Michelot's tau of every family; each round continues with the families and children that are not settled."""
    room = sizes.astype(np.float64) if variance is None else np.add.reduceat(variance, starts)
    excess = np.add.reduceat(values, starts) - totals
    tau: FloatArray = np.divide(excess, room, out=np.zeros(len(sizes)), where=room > 0)
    family, y, v, size = np.arange(len(sizes)), values, variance, sizes
    while len(family):
        threshold = np.repeat(tau[family], size)
        keep = y >= (threshold if v is None else v * threshold)
        first = np.cumsum(size) - size
        kept = np.add.reduceat(keep.astype(np.int64), first)
        # Rounding may drop the last child of a family whose total is nearly 0; its threshold is then kept.
        again = (kept < size) & (kept > 0)
        chosen = keep & np.repeat(again, size)
        family, size, y = family[again], kept[again], y[chosen]
        v = None if v is None else v[chosen]
        if len(family) == 0:
            break
        first = np.cumsum(size) - size
        room = size.astype(np.float64) if v is None else np.add.reduceat(v, first)
        excess = np.add.reduceat(y, first) - totals[family]
        # Dropping raises tau; rounding of the sums may not lower it, which would let dropped children in again.
        before = tau[family]
        tau[family] = np.maximum(before, np.divide(excess, room, out=before.copy(), where=room > 0))
    return tau


def _with_limits(
    y: FloatArray, v: FloatArray, parts: FloatArray | None, totals: FloatArray, families: Families
) -> tuple[FloatArray, FloatArray]:
    """The families' problem with finite variances that has the same solution as v -> inf at unmeasured children.

    Where the measured children leave a remainder, they keep max(y, 0) and the unmeasured ones share it, in proportion
    to ``parts`` (by default equally); otherwise the unmeasured ones are 0.
    """
    unmeasured = np.isinf(v)
    clipped = np.where(unmeasured, 0.0, np.maximum(y, 0.0))
    rest = totals - families.total(clipped) >= 0
    roomy = families.spread(rest & (families.total(unmeasured.astype(np.int64)) > 0))
    slope = np.where(unmeasured, 1.0 if parts is None else parts, 0.0)
    return (
        np.where(roomy, np.where(unmeasured, y, clipped), np.where(unmeasured, 0.0, y)),
        np.where(roomy, slope, np.where(unmeasured, 0.0, v)),
    )


def downward_nonnegative(
    values: FloatArray,
    variance: FloatArray,
    tree: Tree,
    lower: FloatArray | None = None,
    open_ends: FloatArray | None = None,
) -> FloatArray:
    """x (..., nodes): the root at max(0, y), then family by family the projection onto x >= 0 with the parent's sum.

    ``values`` and ``variance``, both (..., nodes), are y and v: the measurements for the per-level projection, or what
    the upward pass of least squares gave. ``lower`` (..., nodes): bounds in place of 0, see `invariants.lower_bounds`.
    ``open_ends`` (..., nodes): in what proportion unmeasured siblings share, see `equality.open_leaves`; None: equally.
    """
    variance = np.broadcast_to(variance, values.shape)
    y = values if lower is None else values - lower
    x = np.maximum(y, 0.0)
    for families in tree.parts_down():
        totals = x[..., families.parents]
        if lower is not None:
            slack = lower[..., families.parents] - families.total(lower[..., families.children])
            totals = totals + slack
        parts = None if open_ends is None else open_ends[..., families.children]
        x[..., families.children] = _project_level(
            y[..., families.children], variance[..., families.children], parts, totals, families
        )
    return x if lower is None else x + lower


def _project_level(
    y: FloatArray, v: FloatArray, parts: FloatArray | None, totals: FloatArray, families: Families
) -> FloatArray:
    if np.isinf(v).any():
        y, v = _with_limits(y, v, parts, totals, families)
    flat = project_families(
        np.ascontiguousarray(y).reshape(-1),
        np.ascontiguousarray(totals).reshape(-1),
        np.broadcast_to(families.sizes, totals.shape).reshape(-1),
        None if _constant_within(v, families) else np.ascontiguousarray(v).reshape(-1),
    )
    return flat.reshape(y.shape)


def _constant_within(variance: FloatArray, families: Families) -> bool:
    """Whether all children of a family have the same, positive variance, so that weights drop out."""
    first = np.take(variance, families.starts, axis=-1)
    return bool(np.all(first > 0)) and bool(np.array_equal(variance, families.spread(first)))


def project_tree(values: FloatArray, variance: FloatArray, tree: Tree) -> FloatArray:
    """argmin of sum over the whole tree of (x_i - y_i)^2 / v_i with x >= 0 and every family adding up; (..., nodes).

    Repeats least squares in two passes and fixes every leaf that comes out negative at 0: such a leaf is 0 at the
    optimum, because the inverse of the problem's Hessian in the leaves, and that of all its principal submatrices, is
    an M-matrix, so that fixing a leaf lowers the others (docs/mathematics.md). 4 to 6 rounds on ordinary data.
    """
    y = measured_or_zero(values, variance)
    v = np.array(np.broadcast_to(variance, y.shape))
    if tree.n_families == 0:
        return np.maximum(y, 0.0)
    x = _clamp_open(y, v, tree) if np.isinf(v[..., tree.leaves]).any() else _clamp(y, v, tree)
    # What is left below zero is rounding at exact nodes; the certificate measures it.
    return np.maximum(x, 0.0, out=x)


def _clamp_open(y: FloatArray, v: FloatArray, tree: Tree) -> FloatArray:
    """The rounds of `project_tree`, directly as described there; ``y`` and ``v`` are overwritten."""
    leaves = tree.leaves
    while True:
        gains = upward_gains(v, tree)
        x = downward(upward(y.copy(), gains, tree), gains.shares, tree)
        negative = (x[..., leaves] < 0) & (v[..., leaves] > 0)
        if not negative.any():
            return x
        y[..., leaves][negative] = 0.0
        v[..., leaves][negative] = 0.0


def _clamp(y: FloatArray, v: FloatArray, tree: Tree) -> FloatArray:
    """The same rounds where every leaf is measured, with work at the leaves only in families that drop some.

    A family of leaves enters the passes only by its sum and variance, and the passes give one number for it: the change
    of a leaf per unit of its variance. The family's lowest y / v shows whether a leaf becomes negative.
    """
    upper = Tree(tree.level_offsets[:-1].copy(), tree.child_offsets[: int(tree.level_offsets[-3]) + 1].copy())
    lowest, inner = upper.leaves, slice(0, upper.n_nodes)
    families = tree.families(tree.n_levels - 2)
    leaf_y, leaf_v = (np.ascontiguousarray(a[..., tree.leaves]).reshape(-1) for a in (y, v))
    sizes = np.broadcast_to(families.sizes, (*y.shape[:-1], len(families.sizes))).reshape(-1)
    starts = np.cumsum(sizes) - sizes
    total, room, least = (np.empty(len(sizes)) for _ in range(3))
    changed, price = np.arange(len(sizes)), np.zeros(len(sizes))
    _drop(leaf_y, leaf_v, starts, sizes, changed, None, (total, room, least))
    while len(changed):
        pooled, sums = room.reshape(*y.shape[:-1], -1), total.reshape(*y.shape[:-1], -1)
        own, u = combine(pooled, v[..., lowest])
        upper_y, upper_v = y[..., inner].copy(), v[..., inner].copy()
        upper_y[..., lowest] = np.where(own == 1.0, y[..., lowest], sums + own * (y[..., lowest] - sums))
        upper_v[..., lowest] = u
        gains = upward_gains(upper_v, upper)
        x = downward(upward(upper_y, gains, upper), gains.shares, upper)
        lack = x[..., lowest].reshape(-1) - total
        price = np.divide(lack, room, out=np.zeros(len(sizes)), where=room > 0)
        suspects = np.flatnonzero(least + price < 0)
        changed = _drop(leaf_y, leaf_v, starts, sizes, suspects, price, (total, room, least))
    leaf_x = leaf_y + leaf_v * np.repeat(price, sizes)
    return np.concatenate([x, leaf_x.reshape(*y.shape[:-1], -1)], axis=-1)


def _drop(
    y: FloatArray,
    v: FloatArray,
    starts: IntArray,
    sizes: IntArray,
    chosen: IntArray,
    price: FloatArray | None,
    summary: tuple[FloatArray, FloatArray, FloatArray],
) -> IntArray:
    """Fix at 0 the children of the ``chosen`` families that are negative at the multiplier; returns the families with
    any.

    In place, and with them the families' ``summary``: sum of y, sum of v, least y / v. Family by family in groups that
    stay in the cache.
    """
    ends = np.cumsum(sizes[chosen])
    groups = np.searchsorted(ends, np.arange(_CHILDREN_AT_ONCE, int(ends[-1]) if len(ends) else 0, _CHILDREN_AT_ONCE))
    dropped = np.zeros(len(chosen), np.bool_)
    for group in np.split(np.arange(len(chosen)), np.unique(groups)):
        if len(group) == 0:
            continue
        families = chosen[group]
        size = sizes[families]
        first = np.cumsum(size) - size
        children: IntArray | slice = slice(int(starts[families[0]]), int(starts[families[-1]] + size[-1]))
        if families[-1] - families[0] >= len(families):
            children = np.repeat(starts[families] - first, size) + np.arange(int(size.sum()))
        own_y, own_v = y[children], v[children]
        if price is not None:
            negative = (own_y + own_v * np.repeat(price[families], size) < 0) & (own_v > 0)
            own_y, own_v = np.where(negative, 0.0, own_y), np.where(negative, 0.0, own_v)
            y[children], v[children] = own_y, own_v
            dropped[group] = np.logical_or.reduceat(negative, first)
        summary[0][families] = np.add.reduceat(own_y, first)
        summary[1][families] = np.add.reduceat(own_v, first)
        ratio = np.divide(own_y, own_v, out=np.full(len(own_y), np.inf), where=own_v > 0)
        summary[2][families] = np.minimum.reduceat(ratio, first)
    return chosen[dropped]
