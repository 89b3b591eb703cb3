"""Intervals for every node of a tree: the test of every truth, the parent's limit, the guard, rounding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topdown.geography.tree import FloatArray, Tree
from topdown.uncertainty.groups import Groups
from topdown.uncertainty.interval import CAP_PART, interval

CAPPED_BELOW = 0.5
"""A parent limits a child whose standard deviation is more than twice its own."""


class Bounds(NamedTuple):
    """Intervals of every node and cell, both (cells x nodes)."""

    lower: FloatArray
    upper: FloatArray


def node_intervals(
    x: FloatArray, variance: FloatArray, found: Groups, tree: Tree, alpha: float, released: FloatArray | None
) -> Bounds:
    """Intervals from the least-squares estimates ``x`` (cells x nodes) with ``variance`` (nodes,), whose laws are of
    the shapes of ``found``, for nodes of which each misses with at most ``alpha``; with ``released`` values inside.

    Of a node without noise its value; of one that nothing determines from 0 on.
    """
    deviation = np.sqrt(variance)
    limit, capped, costs = _limits(x, deviation, found, tree, alpha)
    bounds = Bounds(np.zeros_like(x), np.broadcast_to(np.where(np.isinf(variance), np.inf, 0.0), x.shape).copy())
    p_of_zero = np.ones_like(x)
    for shape, members in found.members():
        plain = interval(shape, alpha)
        for nodes, rule in (
            (members[~costs[members]], plain),
            (members[costs[members]], interval(shape, alpha * (1.0 - CAP_PART)) if costs[members].any() else plain),
        ):
            if not len(nodes):
                continue
            sd = deviation[nodes]
            seen = x[:, nodes] / sd
            bounds.lower[:, nodes] = rule.lower(seen) * sd
            bounds.upper[:, nodes] = rule.upper(seen) * sd
            p_of_zero[:, nodes] = rule.p_of_zero(seen)
    upper = np.where(capped, np.minimum(bounds.upper, limit), bounds.upper)
    lower = np.where(_guarded(p_of_zero, variance, tree, alpha), 0.0, bounds.lower)
    return _whole(x, variance, Bounds(lower, upper), released)


def _limits(
    x: FloatArray, deviation: FloatArray, found: Groups, tree: Tree, alpha: float
) -> tuple[FloatArray, np.ndarray, np.ndarray]:
    """What every node cannot pass because its parent does not, but with probability alpha / 50 (cells x nodes); at
    which nodes that is looked at, and at which it costs this part of alpha: a parent that is exact costs nothing.
    """
    reach = np.zeros_like(deviation)
    for shape, members in found.members():
        reach[members] = interval(shape, alpha).cap * deviation[members]
    own = x + np.where(np.isfinite(deviation), reach, np.inf)
    limit = np.full_like(x, np.inf)
    capped, costs = np.zeros(tree.n_nodes, bool), np.zeros(tree.n_nodes, bool)
    for families in tree.families_down():
        above = families.spread(deviation[families.parents])
        children = families.children
        capped[children] = (above < CAPPED_BELOW * deviation[children]) | ~np.isfinite(deviation[children])
        # A parent that nothing determines is limited by its own parent.
        known = np.where(np.isfinite(deviation[families.parents]), own[:, families.parents], limit[:, families.parents])
        limit[:, children] = families.spread(known)
        costs[children] = capped[children] & (above > 0)
    return limit, capped, costs


def _guarded(p_of_zero: FloatArray, variance: FloatArray, tree: Tree, alpha: float) -> np.ndarray:
    """Where 0 stays in the interval: at all nodes but those whose truth is above 0 at a false discovery rate of
    ``alpha`` within their level and cell (Benjamini and Hochberg 1995).
    """
    kept = np.ones(p_of_zero.shape, bool)
    for index in range(tree.n_levels):
        nodes = tree.level(index)
        noisy = variance[nodes] > 0
        p = p_of_zero[:, nodes][:, noisy]
        if not p.shape[1]:
            continue
        order = np.sort(p, axis=1)
        passed = order <= alpha * np.arange(1, p.shape[1] + 1) / p.shape[1]
        last = p.shape[1] - 1 - np.argmax(passed[:, ::-1], axis=1)
        threshold = np.where(passed.any(axis=1), np.take_along_axis(order, last[:, None], axis=1)[:, 0], -1.0)
        level = kept[:, nodes]
        level[:, noisy] = p > threshold[:, None]
        kept[:, nodes] = level
    return kept


def _whole(x: FloatArray, variance: FloatArray, bounds: Bounds, released: FloatArray | None) -> Bounds:
    """Counts are whole and not negative: the whole numbers within; the nearest to the estimate where there is none."""
    tolerance = 1e-9 * np.maximum(1.0, np.abs(x))
    lower, upper = np.ceil(bounds.lower - tolerance), np.floor(bounds.upper + tolerance)
    nearest = np.maximum(np.rint(x), 0.0)
    neither = (lower > upper) | (variance == 0)
    lower, upper = np.where(neither, nearest, np.maximum(lower, 0.0)), np.where(neither, nearest, upper)
    if released is not None:
        lower, upper = np.minimum(lower, released), np.maximum(upper, released)
    return Bounds(lower, upper)
