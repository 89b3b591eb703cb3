"""The whole tree rounded at once: the consistent whole numbers nearest to an estimate, over all its nodes.

Convex costs on a tree have convex optimal costs, which are represented by marginal costs: the cost of one more unit at
a node. The marginal costs of siblings are merged by sorting, and the node's own are added. Only a window around the
estimate is kept; a solution that stays inside its windows is optimal (docs/mathematics.md, "Whole numbers").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import Families, FloatArray, IntArray, Tree
from topdown.noise.randomness import Source, read_exactly
from topdown.projection.cells.rounding import SNAP

BoolArray = npt.NDArray[np.bool_]

_UNIT_BITS = 20
_UNIT = 1 << _UNIT_BITS
"""Costs are integers in units of 2^-20, so that costs that differ only by rounding of float64 are exact ties."""

_COST_BITS = 42
_NEVER = (1 << (_COST_BITS - 1)) - 1
_ALWAYS = -(1 << (_COST_BITS - 1))
_CHILDREN_AT_ONCE = 1 << 16


def round_whole_tree(
    values: FloatArray, tree: Tree, source: Source, exact: BoolArray | None = None, *, window: int = 3
) -> IntArray:
    """argmin over whole r >= 0 with every family adding up of sum over all nodes (r_i - x_i)^2; (cells, nodes).

    ``values`` (cells, nodes): x, non-negative and consistent. ``exact`` (cells, nodes): values that are whole already
    and stay. ``window``: how many units on either side of x are considered first; it grows until no r_i lies at the
    edge, which proves the optimum. Optimal to 2^-20 a unit; ``source`` breaks ties.
    """
    result = np.empty(values.shape, np.int64)
    for cell in range(len(values)):
        known = np.zeros(values.shape[1], np.bool_) if exact is None else exact[cell]
        size, found = window, None
        while found is None:
            found = _within_windows(np.maximum(values[cell], 0.0), known, tree, source, size)
            size *= 2
        result[cell] = found
    return result


class _Windows(NamedTuple):
    """Marginal costs are kept for the steps from ``center`` - size to ``center`` + size; all arrays (nodes,).

    ``fraction``: x - center in cost units.
    """

    center: IntArray
    fraction: IntArray
    exact: BoolArray
    size: int

    def own(self, nodes: slice) -> IntArray:
        """(r + 1 - x)^2 - (r - x)^2 at every step of the windows of ``nodes``; (nodes, 2 size)."""
        steps = np.arange(-self.size, self.size)
        return (2 * steps + 1) * _UNIT - 2 * self.fraction[nodes, None]

    def close(self, costs: IntArray, nodes: slice) -> IntArray:
        """``costs`` in place, with every step of an exact node either taken or not."""
        fixed = np.flatnonzero(self.exact[nodes])
        if len(fixed):
            costs[fixed, : self.size] = _ALWAYS
            costs[fixed, self.size :] = _NEVER
        return costs

    def leaves(self, nodes: slice) -> IntArray:
        """Marginal costs of leaves: every step below 0 is taken."""
        costs = self.own(nodes)
        low = np.flatnonzero(self.center[nodes] < self.size)
        below = np.arange(-self.size, self.size) < -self.center[nodes][low, None]
        costs[low] = np.where(below, _ALWAYS, costs[low])
        return self.close(costs, nodes)

    def inner(self, nodes: slice, merged: IntArray) -> IntArray:
        """Marginal costs of inner nodes, from those of all their children."""
        costs = np.where((merged > _ALWAYS) & (merged < _NEVER), merged + self.own(nodes), merged)
        return self.close(costs, nodes)


def _windows(x: FloatArray, exact: BoolArray, tree: Tree, size: int) -> _Windows:
    center = np.where(exact, np.rint(x), np.floor(x + SNAP)).astype(np.int64)
    for families in tree.families_up():
        parents = families.parents
        below = families.total(center[families.children])
        inside = np.clip(center[parents], below, below + families.sizes - 1)
        center[parents] = np.where(exact[parents], center[parents], inside)
    return _Windows(center, np.rint((x - center) * _UNIT).astype(np.int64), exact, size)


def _within_windows(x: FloatArray, exact: BoolArray, tree: Tree, source: Source, size: int) -> IntArray | None:
    """The optimum among values inside the windows; None where it touches an edge."""
    windows = _windows(x, exact, tree, size)
    merged = np.empty((tree.n_families, 2 * size), np.int64)
    offset = np.empty(tree.n_families, np.int64)

    def costs(nodes: slice) -> IntArray:
        return windows.inner(nodes, merged[nodes]) if nodes.start < tree.n_families else windows.leaves(nodes)

    for families in tree.families_up():
        for part in families.parts(_CHILDREN_AT_ONCE):
            merged[part.parents], offset[part.parents] = _merge(costs(part.children), part, windows)
    whole = np.empty(len(x), np.int64)
    root = costs(slice(0, 1))[0]
    tied = np.count_nonzero(root == 0) and read_exactly(source, 1)[0] & 1
    whole[0] = windows.center[0] - size + np.count_nonzero(root < 0) + tied
    if _touches(whole, windows, slice(0, 1)):
        return None
    for families in tree.families_down():
        for part in families.parts(_CHILDREN_AT_ONCE):
            parents, children = part.parents, part.children
            # Units that the family's children take beyond the lower edges of their windows.
            units = whole[parents] - part.total(windows.center[children] - size)
            rank = np.clip(units - 1 - offset[parents], 0, 2 * size - 1)
            last = merged[parents][np.arange(len(rank)), rank]
            taken = _distribute(costs(children), units, last, part, source)
            whole[children] = windows.center[children] - size + taken
            if _touches(whole, windows, children):
                return None
    return whole


def _touches(whole: IntArray, windows: _Windows, nodes: slice) -> bool:
    return bool((np.abs(whole[nodes] - windows.center[nodes]) >= windows.size).any())


def _merge(costs: IntArray, families: Families, windows: _Windows) -> tuple[IntArray, IntArray]:
    """Each family's marginal costs in order, cut to its parent's window; and how many of them come before."""
    size = windows.size
    family = np.repeat(np.arange(len(families.sizes)), families.sizes)
    # One sortable number: the family, then the cost.
    key = (costs - _ALWAYS).astype(np.uint64) | (family.astype(np.uint64) << np.uint64(_COST_BITS))[:, None]
    ordered = np.sort(key.reshape(-1))
    left = windows.center[families.parents] - families.total(windows.center[families.children])
    offset = np.clip(size * families.sizes + left - size, 0, 2 * size * (families.sizes - 1))
    at = (2 * size * families.starts + offset)[:, None] + np.arange(2 * size)
    low = np.uint64((1 << _COST_BITS) - 1)
    return (ordered[at] & low).astype(np.int64) + _ALWAYS, offset


def _distribute(costs: IntArray, units: IntArray, last: IntArray, families: Families, source: Source) -> IntArray:
    """How many steps every child takes when its family takes the ``units`` cheapest, the ``last`` of which is given."""
    bound = families.spread(last)[:, None]
    # Where the last one is a step that is always taken, all such steps are taken, and no others.
    taken: IntArray = np.count_nonzero(costs < np.maximum(bound, _ALWAYS + 1), axis=1)
    need = units - families.total(taken)
    tied = ((costs == bound) & (bound > _ALWAYS)).any(axis=1) & families.spread(need > 0)
    child = np.flatnonzero(tied)
    if len(child):
        family = np.repeat(np.arange(len(need)), families.sizes)[child]
        coins = np.frombuffer(read_exactly(source, 4 * len(child)), np.uint32)
        chosen = np.argsort((family.astype(np.uint64) << np.uint64(32)) | coins)
        rank = np.arange(len(child)) - np.searchsorted(family, family)
        taken[child[chosen[rank < need[family]]]] += 1
    return taken
