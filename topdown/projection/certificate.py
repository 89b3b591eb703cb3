"""Whether an estimate solves its program: residuals computed from the program, not from a solver's word.

All residuals are in units of counts, so that they can be read beside the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from topdown.projection.equality import measured_or_zero
from topdown.tree import FloatArray, IntArray, Tree

TOLERANCE = 1e-6
"""The largest residual, in standard deviations of the noise (in counts where those are below 1), of a solution."""

_ROUNDING = 1e-12
"""Part of the largest value that rounding of float64 in long sums may add to that."""


@dataclass(frozen=True)
class Certificate:
    """Residuals of an estimate.

    ``consistency``: largest |sum of a family's children - parent|. ``most_negative``: the smallest value if it is below
    0 and the estimate is to be non-negative, else 0. ``kkt``: largest violation of the program's optimality (Karush,
    Kuhn, Tucker) conditions, as the distance that a projected gradient step moves a value. ``scale``: the largest
    absolute value and ``noise``: the largest standard deviation, by which residuals are to be judged. ``worst_node``:
    where the largest residual stands.
    """

    consistency: float
    most_negative: float
    kkt: float
    scale: float
    noise: float
    worst_node: int

    @property
    def worst(self) -> float:
        """The largest residual, in counts."""
        return max(self.consistency, -self.most_negative, self.kkt)

    def holds(self, tolerance: float = TOLERANCE) -> bool:
        """Whether every residual is at most ``tolerance`` times max(1, ``noise``), up to rounding of ``scale``."""
        return self.worst <= tolerance * max(1.0, self.noise) + _ROUNDING * self.scale


def certify(
    x: FloatArray, optimality: FloatArray, variance: FloatArray, tree: Tree, *, nonnegative: bool
) -> Certificate:
    """The certificate of ``x`` (..., nodes) from the optimality residual of every node, same shape."""
    gaps = np.zeros_like(x)
    for families in tree.families_down():
        gaps[..., families.parents] = np.abs(families.total(x[..., families.children]) - x[..., families.parents])
    below = np.maximum(-x, 0.0) if nonnegative else np.zeros_like(x)
    worst = int(np.argmax(np.maximum(np.maximum(gaps, below), optimality)))
    return Certificate(
        consistency=float(gaps.max()),
        most_negative=-float(below.max()) if below.max() > 0 else 0.0,
        kkt=float(optimality.max()),
        scale=float(np.abs(x).max()),
        noise=float(np.sqrt(variance, where=np.isfinite(variance), out=np.zeros(variance.shape)).max()),
        worst_node=worst % tree.n_nodes,
    )


def family_optimality(
    x: FloatArray,
    values: FloatArray,
    variance: FloatArray,
    tree: Tree,
    lower: FloatArray | None,
    *,
    nonnegative: bool,
) -> FloatArray:
    """Optimality residuals (..., nodes) of the family-by-family projection of ``values``.

    With tau the multiplier of a family's sum, |x - (y - v tau)|, or |x - max(0, y - v tau)| with ``nonnegative``;
    at the root |x - y|, or |x - max(0, y)|.
    """
    variance = np.broadcast_to(variance, x.shape)
    y = measured_or_zero(values, variance)
    if lower is not None and nonnegative:
        x, y = x - lower, y - lower
    target = np.maximum(y, 0.0) if nonnegative else y
    residual = np.abs(x - target)
    residual[..., 0] = np.where(np.isinf(variance[..., 0]), 0.0, residual[..., 0])
    for families in tree.families_down():
        x_c, y_c, v_c = (a[..., families.children] for a in (x, y, variance))
        v_c, free = _finite(v_c)
        # Averages over the support, weighted by x: what is nearly 0 must not speak for the multiplier.
        weight = np.maximum(x_c, 0.0) if nonnegative else np.ones_like(x_c)
        below = families.total(weight * v_c)
        tau = np.divide(families.total(weight * (y_c - x_c)), below, out=np.zeros_like(below), where=below > 0)
        aim = y_c - v_c * families.spread(tau)
        aim = np.maximum(aim, 0.0) if nonnegative else aim
        gap = np.abs(x_c - aim)
        if nonnegative:
            # No non-negative solution is further away than the total; next to nothing has no multiplier to speak of.
            gap = np.where(v_c > 0, np.minimum(gap, families.spread(families.total(np.abs(x_c)))), gap)
        if free is not None:
            is_open = families.spread(families.total(free.astype(np.int64)) > 0)
            gap = np.where(is_open, _open_gap(x_c, y_c, gap, free, nonnegative), gap)
        residual[..., families.children] = gap
    return residual


def _finite(variance: FloatArray) -> tuple[FloatArray, np.ndarray | None]:
    free = np.isinf(variance)
    return (np.where(free, 0.0, variance), free) if free.any() else (variance, None)


def _open_gap(x: FloatArray, y: FloatArray, gap: FloatArray, free: np.ndarray, nonnegative: bool) -> FloatArray:
    """Residual in a family with unmeasured children: these take up the slack and the others keep their values.

    Non-negative, they may also be at 0 themselves and leave the measured ones to the usual condition, ``gap``.
    """
    kept = np.abs(x - (np.maximum(y, 0.0) if nonnegative else y))
    return np.where(free, 0.0, np.minimum(kept, gap) if nonnegative else kept)


def tree_optimality(
    x: FloatArray, values: FloatArray, variance: FloatArray, tree: Tree, *, nonnegative: bool
) -> FloatArray:
    """Optimality residuals (..., nodes) of whole-tree least squares, carried at the leaves and at exact nodes.

    A leaf's gradient g is the sum of (x_a - y_a) / v_a over itself and its ancestors up to the nearest exact one, whose
    multiplier is free; its step is 1 / sum of 1 / v_a. The residual is |step g|, or |x - max(0, x - step g)| with
    ``nonnegative``; at exact nodes |x - y|.
    """
    variance = np.broadcast_to(variance, x.shape)
    y = measured_or_zero(values, variance)
    exact = variance == 0
    weight = np.divide(1.0, variance, out=np.zeros(x.shape), where=~exact)
    gradient, curvature = weight * (x - y), weight
    group = np.broadcast_to(np.where(exact, np.arange(tree.n_nodes), -1), x.shape).copy()
    for families in tree.families_down():
        children, parents = families.children, families.parents
        reset = exact[..., children]
        gradient[..., children] += families.spread(gradient[..., parents]) * ~reset
        curvature[..., children] += families.spread(curvature[..., parents]) * ~reset
        group[..., children] = np.where(reset, group[..., children], families.spread(group[..., parents]))
        # An exact node's own gradient and curvature are 0, so its children start afresh below it.
    residual = np.where(exact, np.abs(x - y), 0.0)
    leaves = tree.leaves
    x_l, free = x[..., leaves], ~exact[..., leaves] & (curvature[..., leaves] > 0)
    step = np.divide(1.0, curvature[..., leaves], out=np.zeros_like(x_l), where=free)
    multiplier, total = _exact_ancestors(x_l, gradient[..., leaves], step, group[..., leaves], nonnegative, tree)
    moved = x_l - step * (gradient[..., leaves] - multiplier)
    moved = np.maximum(moved, 0.0) if nonnegative else moved
    gap = np.abs(x_l - moved)
    # As in a family: no non-negative solution is further away than the exact total.
    gap = np.minimum(gap, total) if nonnegative else gap
    residual[..., leaves] += np.where(free, gap, 0.0)
    return residual


def _exact_ancestors(
    x: FloatArray, gradient: FloatArray, step: FloatArray, group: IntArray, nonnegative: bool, tree: Tree
) -> tuple[FloatArray, FloatArray]:
    """For every leaf its nearest exact ancestor's multiplier and total: 0 and inf where there is none.

    The multiplier is the mean gradient of the ancestor's leaves over the support, weighted as in `family_optimality`.
    """
    multiplier, total = np.zeros_like(x), np.full_like(x, np.inf)
    if (group < 0).all():
        return multiplier, total
    weight = step * (np.maximum(x, 0.0) if nonnegative else 1.0)
    for row in np.ndindex(*x.shape[:-1]):
        below = group[row] >= 0
        key, bins = group[row][below], tree.n_nodes
        support = np.bincount(key, weight[row][below], bins)
        pull = np.bincount(key, (weight[row] * gradient[row])[below], bins)
        multiplier[row][below] = np.divide(pull, support, out=np.zeros(bins), where=support > 0)[key]
        total[row][below] = np.bincount(key, np.abs(x[row])[below], bins)[key]
    return multiplier, total
