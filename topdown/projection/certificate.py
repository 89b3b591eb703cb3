"""Whether an estimate solves its program: residuals computed from the program, not from a solver's word.

All residuals are in units of counts, so that they can be read beside the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from topdown.projection.equality import measured_or_zero, open_leaves, upward_gains
from topdown.tree import Families, FloatArray, Tree

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
        noise=_largest_deviation(variance),
        worst_node=worst % tree.n_nodes,
    )


def together(parts: Sequence[Certificate]) -> Certificate:
    """The certificate of a whole from those of its blocks of cells."""
    return Certificate(
        consistency=max(part.consistency for part in parts),
        most_negative=min(part.most_negative for part in parts),
        kkt=max(part.kkt for part in parts),
        scale=max(part.scale for part in parts),
        noise=max(part.noise for part in parts),
        worst_node=max(parts, key=lambda part: part.worst).worst_node,
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
        # Averages over the support, weighted by x: what is nearly 0 must not speak for the multiplier.
        weight = np.maximum(x_c, 0.0) if nonnegative else np.ones_like(x_c)
        y_c, v_c = _without_infinity(x_c, y_c, v_c, weight, families)
        below = families.total(weight * v_c)
        tau = np.divide(families.total(weight * (y_c - x_c)), below, out=np.zeros_like(below), where=below > 0)
        aim = y_c - v_c * families.spread(tau)
        aim = np.maximum(aim, 0.0) if nonnegative else aim
        gap = np.abs(x_c - aim)
        if nonnegative:
            # No non-negative solution is further away than the total; next to nothing has no multiplier to speak of.
            most = families.spread(families.total(np.where(v_c > 0, np.abs(x_c), 0.0)))
            gap = np.where(v_c > 0, np.minimum(gap, most), gap)
        residual[..., families.children] = gap
    return residual


def _without_infinity(
    x: FloatArray, y: FloatArray, v: FloatArray, weight: FloatArray, families: Families
) -> tuple[FloatArray, FloatArray]:
    """Unmeasured children as measured ones that are content with what they have: they hold the multiplier at 0.

    Their variance is their siblings' average, which puts the residual in units of how far these would move.
    """
    free = np.isinf(v)
    if not free.any():
        return y, v
    v = np.where(free, 0.0, v)
    known = families.total(np.where(free, 0.0, weight))
    average = np.divide(families.total(weight * v), known, out=np.ones_like(known), where=known > 0)
    return np.where(free, x, y), np.where(free, families.spread(np.where(average > 0, average, 1.0)), v)


def tree_optimality(
    x: FloatArray, values: FloatArray, variance: FloatArray, tree: Tree, *, nonnegative: bool
) -> FloatArray:
    """Optimality residuals (..., nodes) of whole-tree least squares.

    With tau_p the multiplier of p's family, x is optimal when every leaf is y - v tau_p, or max(0, y - v tau_p) with
    ``nonnegative``, and every inner node i that is not exact has tau_i = tau_p + (x_i - y_i) / v_i (tau_p = 0 above the
    root). Each tau is read off its family; the residual is what these equations lack, times the variance of what was
    measured at and below the node: how far the node would move. At exact nodes it is |x - y|.
    """
    variance = np.broadcast_to(variance, x.shape)
    y = measured_or_zero(values, variance)
    exact = variance == 0
    u = _scale(variance, tree)
    pull = np.divide(u, variance, out=np.zeros(x.shape), where=~exact) * (y - x)
    tau = np.zeros((*x.shape[:-1], tree.n_families))
    read = np.zeros(tau.shape, np.bool_)
    mass = _free_mass(x, exact, tree) if nonnegative else np.ones_like(x)
    small = TOLERANCE * max(1.0, _largest_deviation(variance)) if nonnegative else 0.0
    for families in tree.families_up():
        children, parents = families.children, families.parents
        weight = mass[..., children]
        if children.start < tree.n_families:
            pull[..., children] += u[..., children] * tau[..., children]
            weight = np.where(read[..., children], weight, 0.0)
        room = families.total(weight * u[..., children])
        read[..., parents] = (room > 0) & (mass[..., parents] > small)
        known = read[..., parents]
        total = families.total(weight * pull[..., children])
        tau[..., parents] = np.divide(total, room, out=np.zeros_like(room), where=known)
    residual = np.where(exact, np.abs(x - y), 0.0)
    residual[..., 0] += np.where(exact[..., 0], 0.0, _root_gap(x, pull, u, tau, read, nonnegative=nonnegative))
    above = np.zeros((*x.shape[:-1], 1))
    limit = np.where(exact[..., :1], mass[..., :1], np.inf)
    for families in tree.families_down():
        children, parents = families.children, families.parents
        # A family with nothing in it has no multiplier of its own to read; its parent's equation gives it.
        step = np.divide(
            x[..., parents] - y[..., parents],
            variance[..., parents],
            out=np.zeros_like(above),
            where=~exact[..., parents],
        )
        tau[..., parents] = np.where(
            read[..., parents], tau[..., parents], np.where(exact[..., parents], 0.0, above + step)
        )
        above = families.spread(tau[..., parents])
        # No non-negative solution is further away than what an exact total above it leaves free.
        limit = np.where(exact[..., children], mass[..., children], families.spread(limit))
        move = pull[..., children] - u[..., children] * above
        if children.start < tree.n_families:
            move = np.where(read[..., children], move, 0.0)
        elif nonnegative:
            move = np.maximum(x[..., children] + move, 0.0) - x[..., children]
        gap = np.minimum(np.abs(move), limit) if nonnegative else np.abs(move)
        residual[..., children] += np.where(exact[..., children], 0.0, gap)
    return residual


def _largest_deviation(variance: FloatArray) -> float:
    return float(np.sqrt(variance.max(initial=0.0, where=np.isfinite(variance))))


def _free_mass(x: FloatArray, exact: npt.NDArray[np.bool_], tree: Tree) -> FloatArray:
    """What of every node's value stands at leaves that are free to move, no exact node in between."""
    mass = np.maximum(x, 0.0)
    mass[..., tree.leaves][exact[..., tree.leaves]] = 0.0
    for families in tree.families_up():
        children = families.children
        mass[..., families.parents] = families.total(np.where(exact[..., children], 0.0, mass[..., children]))
    return mass


def _root_gap(
    x: FloatArray, pull: FloatArray, u: FloatArray, tau: FloatArray, read: npt.NDArray[np.bool_], *, nonnegative: bool
) -> FloatArray:
    if tau.shape[-1]:
        return np.where(read[..., 0], np.abs(pull[..., 0] + u[..., 0] * tau[..., 0]), 0.0)
    moved = x[..., 0] + pull[..., 0]
    return np.abs((np.maximum(moved, 0.0) if nonnegative else moved) - x[..., 0])


def _scale(variance: FloatArray, tree: Tree) -> FloatArray:
    """The variance of what was measured at and below every node; the siblings' largest where that is undetermined."""
    u = upward_gains(variance, tree).variance
    open_ends = open_leaves(variance, tree)
    if open_ends is None:
        return u
    for families in tree.families_down():
        is_open = open_ends[..., families.children] > 0
        largest = np.maximum.reduceat(u[..., families.children], families.starts, axis=-1)
        largest = np.where(largest > 0, largest, np.where(u[..., families.parents] > 0, u[..., families.parents], 1.0))
        u[..., families.children] = np.where(is_open, families.spread(largest), u[..., families.children])
    return u
