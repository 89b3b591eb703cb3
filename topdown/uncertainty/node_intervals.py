"""Intervals for every node of a tree: the test of every truth, the parent's limit, the guard, rounding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.uncertainty.error_law import Shape
from topdown.uncertainty.groups import Groups
from topdown.uncertainty.interval import CAP_PART, Interval, interval

Mask: TypeAlias = npt.NDArray[np.bool_]

CAPPED_BELOW = 0.5
"""A parent limits a child whose standard deviation is more than twice its own."""


_NODES_AT_ONCE = 1 << 18


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
    deviation, reach = np.sqrt(variance), np.zeros_like(variance)
    for shape, members in found.members():
        reach[members] = interval(shape, alpha).cap * deviation[members]
    limits = _limits(x, deviation, reach, tree)
    bounds = _unbounded(x, variance)
    p_of_zero = np.ones_like(x)
    for shape, members in found.members():
        costs = limits.costs[members]
        for nodes, rule in _rules(members, costs, shape, alpha):
            sd = deviation[nodes]
            seen = x[:, nodes] / sd
            bounds.lower[:, nodes] = rule.lower(seen) * sd
            bounds.upper[:, nodes] = rule.upper(seen) * sd
            p_of_zero[:, nodes] = rule.p_of_zero(seen)
    return _finished(x, variance, bounds, limits, p_of_zero, tree, alpha, released)


def intervals_of_one_law(
    x: FloatArray, variance: FloatArray, shape: Shape, tree: Tree, alpha: float, released: FloatArray | None
) -> Bounds:
    """As `node_intervals`, where all errors have a law of one ``shape``; ``variance`` (cells x nodes)."""
    deviation = np.sqrt(variance)
    known = (variance > 0) & np.isfinite(variance)
    limits = _limits(x, deviation, np.where(known, interval(shape, alpha).cap * deviation, 0.0), tree)
    bounds = _unbounded(x, variance)
    p_of_zero = np.ones_like(x)
    places = np.flatnonzero(known)
    for at, rule in _rules(places, limits.costs.ravel()[places], shape, alpha):
        where = np.unravel_index(at, x.shape)
        sd = deviation[where]
        seen = x[where] / sd
        bounds.lower[where], bounds.upper[where] = rule.lower(seen) * sd, rule.upper(seen) * sd
        p_of_zero[where] = rule.p_of_zero(seen)
    return _finished(x, variance, bounds, limits, p_of_zero, tree, alpha, released)


def _rules(members: IntArray, costs: Mask, shape: Shape, alpha: float) -> Iterator[tuple[IntArray, Interval]]:
    """``members`` with the rule for them: for those whose parent's limit ``costs`` a part of alpha, the rest of it."""
    if not costs.all():
        yield members[~costs], interval(shape, alpha)
    if costs.any():
        yield members[costs], interval(shape, alpha * (1.0 - CAP_PART))


def _unbounded(x: FloatArray, variance: FloatArray) -> Bounds:
    """0 to 0 without noise, 0 to infinity without a measurement; the others are yet to come."""
    return Bounds(np.zeros_like(x), np.broadcast_to(np.where(np.isinf(variance), np.inf, 0.0), x.shape).copy())


def _finished(
    x: FloatArray,
    variance: FloatArray,
    bounds: Bounds,
    limits: _Limits,
    p_of_zero: FloatArray,
    tree: Tree,
    alpha: float,
    released: FloatArray | None,
) -> Bounds:
    np.minimum(bounds.upper, limits.limit, out=bounds.upper, where=limits.capped)
    bounds.lower[_guarded(p_of_zero, variance, tree, alpha)] = 0.0
    for begin in range(0, x.shape[1], _NODES_AT_ONCE):
        nodes = slice(begin, begin + _NODES_AT_ONCE)
        inside = None if released is None else released[:, nodes]
        lower, upper = bounds.lower[:, nodes], bounds.upper[:, nodes]
        lower[...], upper[...] = _whole(x[:, nodes], variance[..., nodes], Bounds(lower, upper), inside)
    return bounds


class _Limits(NamedTuple):
    """What every node cannot pass because its parent does not, but with probability alpha / 50 (cells x nodes); at
    which nodes that is looked at, and at which it costs this part of alpha: a parent that is exact costs nothing.
    """

    limit: FloatArray
    capped: Mask
    costs: Mask


def _limits(x: FloatArray, deviation: FloatArray, reach: FloatArray, tree: Tree) -> _Limits:
    """From how far truths may pass their estimates (``reach``); ``deviation`` and this (nodes,) or (cells x nodes)."""
    own = x + np.where(np.isfinite(deviation), reach, np.inf)
    limit = np.full_like(x, np.inf)
    capped, costs = np.zeros(deviation.shape, bool), np.zeros(deviation.shape, bool)
    for families in tree.families_down():
        parents, children = families.parents, families.children
        above = families.spread(deviation[..., parents])
        below = deviation[..., children]
        capped[..., children] = (above < CAPPED_BELOW * below) | ~np.isfinite(below)
        # A parent that nothing determines is limited by its own parent.
        known = np.where(np.isfinite(deviation[..., parents]), own[:, parents], limit[:, parents])
        limit[:, children] = families.spread(known)
        costs[..., children] = capped[..., children] & (above > 0)
    return _Limits(limit, capped, costs)


def _guarded(p_of_zero: FloatArray, variance: FloatArray, tree: Tree, alpha: float) -> Mask:
    """Where 0 stays in the interval: at all nodes but those whose truth is above 0 at a false discovery rate of
    ``alpha`` within their level and cell (Benjamini and Hochberg 1995).
    """
    kept = np.ones(p_of_zero.shape, bool)
    noisy = np.broadcast_to(variance > 0, p_of_zero.shape)
    for index in range(tree.n_levels):
        nodes = tree.level(index)
        # What is exact stands behind all others and is not counted.
        p = np.where(noisy[:, nodes], p_of_zero[:, nodes], 2.0)
        order = np.sort(p, axis=1)
        tried = np.maximum(noisy[:, nodes].sum(axis=1, keepdims=True), 1)
        passed = order <= alpha * np.arange(1, p.shape[1] + 1) / tried
        passed &= order <= 1.0
        last = p.shape[1] - 1 - np.argmax(passed[:, ::-1], axis=1)
        threshold = np.where(passed.any(axis=1), np.take_along_axis(order, last[:, None], axis=1)[:, 0], -1.0)
        kept[:, nodes] = p > threshold[:, None]
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
