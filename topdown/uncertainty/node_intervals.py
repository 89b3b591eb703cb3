"""Intervals for every node of a tree: the test of every truth, the parent's limit, the guard, rounding."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import Families, FloatArray, IntArray, Tree, runs
from topdown.machine.parallel import do_all, map_ordered
from topdown.uncertainty.error_law import Shape
from topdown.uncertainty.groups import Groups
from topdown.uncertainty.interval import CAP_PART, Interval, interval

Mask: TypeAlias = npt.NDArray[np.bool_]

CAPPED_BELOW = 0.5
"""A parent limits a child whose standard deviation is more than twice its own."""


_NODES_AT_ONCE = 1 << 17
_TESTED_AT_ONCE = 1 << 19
"""Nodes of one shape are taken together; of fewer of them threads would wait for each other more than they work."""
_ROUNDS = 50


class Bounds(NamedTuple):
    """Intervals of every node and cell, both (cells x nodes); of answers (nodes x columns)."""

    lower: FloatArray
    upper: FloatArray


def node_intervals(
    x: FloatArray,
    variance: FloatArray,
    found: Groups,
    tree: Tree,
    alpha: float,
    released: FloatArray | IntArray | None,
    executor: Executor | None = None,
    out: Bounds | None = None,
) -> Bounds:
    """Intervals from the least-squares estimates ``x`` (cells x nodes) with ``variance`` (nodes,), whose laws are of
    the shapes of ``found``, for nodes of which each misses with at most ``alpha``; with ``released`` values inside.

    Of a node without noise its value; of one that nothing determines from 0 on. ``executor``: threads that work on some
    nodes each. ``out``: arrays for the result.
    """
    inner = Groups(found.shapes, found.group[: tree.n_families])
    caps = inner.of_nodes(np.array([interval(shape, alpha).cap for shape in found.shapes]))
    limits = _limits(x, variance, caps, tree, executor)
    bounds = Bounds(np.empty_like(x), np.empty_like(x)) if out is None else out
    p_of_zero = np.empty_like(x)

    def tested(nodes: slice) -> None:
        # 0 to 0 without noise, 0 to infinity without a measurement.
        bounds.lower[:, nodes], bounds.upper[:, nodes] = 0.0, np.where(np.isinf(variance[nodes]), np.inf, 0.0)
        p_of_zero[:, nodes] = 1.0
        for shape, members in found.members(nodes):
            for those, rule in rules(members, limits.costs[members], shape, alpha):
                for some in np.array_split(those, 1 + len(those) // _NODES_AT_ONCE):
                    sd = np.sqrt(variance[some])
                    seen = x[:, some] / sd
                    bounds.lower[:, some] = rule.lower(seen) * sd
                    bounds.upper[:, some] = rule.upper(seen) * sd
                    p_of_zero[:, some] = rule.p_of_zero(seen)

    do_all(tested, list(runs(slice(0, tree.n_nodes), _TESTED_AT_ONCE)), executor)
    limits.apply(bounds.upper, tree, executor)
    for index in range(tree.n_levels):
        level = tree.level(index)
        surely = _surely(p_of_zero, variance, level, alpha, executor)

        def told(nodes: slice, surely: FloatArray = surely) -> None:
            lower, upper = bounds.lower[:, nodes], bounds.upper[:, nodes]
            lower[p_of_zero[:, nodes] > surely[:, None]] = 0.0
            inside = None if released is None else released[:, nodes]
            lower[...], upper[...] = whole(x[:, nodes], variance[nodes], Bounds(lower, upper), inside)

        do_all(told, list(runs(level, _NODES_AT_ONCE)), executor)
    return bounds


def rules(members: IntArray, costs: Mask, shape: Shape, alpha: float) -> Iterator[tuple[IntArray, Interval]]:
    """``members`` with the rule for them: for those whose parent's limit ``costs`` a part of alpha, the rest of it."""
    if not costs.all():
        yield members[~costs], interval(shape, alpha)
    if costs.any():
        yield members[costs], interval(shape, alpha * (1.0 - CAP_PART))


class _Limits(NamedTuple):
    """What no child of a node can pass because the node does not, but with probability alpha / 50: ``ceiling`` (cells x
    inner nodes); at which nodes that is looked at (``capped``), and at which it ``costs`` this part of alpha: a parent
    that is exact costs nothing.
    """

    ceiling: FloatArray
    capped: Mask
    costs: Mask

    def apply(self, upper: FloatArray, tree: Tree, executor: Executor | None) -> None:
        """Let no ``upper`` (cells x nodes) pass its limit."""

        def of_families(part: Families) -> None:
            capped = self.capped[part.children]
            if capped.any():
                above, below = part.spread(self.ceiling[:, part.parents]), upper[:, part.children]
                np.minimum(below, above, out=below, where=capped)

        for families in tree.families_down():
            do_all(of_families, families.parts(_NODES_AT_ONCE), executor)


def _limits(x: FloatArray, variance: FloatArray, caps: FloatArray, tree: Tree, executor: Executor | None) -> _Limits:
    """From how many deviations truths of inner nodes may pass their estimates (``caps``, (inner nodes,)); ``variance``
    (nodes,).
    """
    above = np.sqrt(variance[: tree.n_families])
    is_known = np.isfinite(above)
    ceiling = x[:, : tree.n_families] + np.where(is_known, caps * np.where(is_known, above, 0.0), np.inf)
    capped, costs = np.zeros(variance.shape, bool), np.zeros(variance.shape, bool)

    def of_families(part: Families) -> None:
        parents, children = part.parents, part.children
        below, is_exact = np.sqrt(variance[children]), part.spread(above[parents] == 0)
        capped[children] = part.spread(CAPPED_BELOW**-1 * above[parents]) < below
        capped[children] |= ~np.isfinite(below)
        costs[children] = capped[children] & ~is_exact
        if children.stop <= tree.n_families:
            # A parent that nothing determines is limited by its own parent.
            own = ceiling[:, children]
            ceiling[:, children] = np.where(is_known[children], own, part.spread(ceiling[:, parents]))

    for families in tree.families_down():
        do_all(of_families, families.parts(_NODES_AT_ONCE), executor)
    return _Limits(ceiling, capped, costs)


def _surely(
    p_of_zero: FloatArray, variance: FloatArray, level: slice, alpha: float, executor: Executor | None
) -> FloatArray:
    """Up to which p of a truth of 0 (cells,) the truths at the nodes of a ``level`` are above 0, at a false discovery
    rate of ``alpha`` (Benjamini and Hochberg 1995): at all others 0 stays in the interval. What is exact is not tried.
    """
    tried = int(np.count_nonzero(variance[level] > 0))
    at_once = alpha / max(tried, 1)  # so small that they are rejected whatever the others are

    def seen(nodes: slice) -> list[tuple[FloatArray, int]]:
        """Of every cell the p that are neither that small nor too large, and how many are that small."""
        found = []
        for p in p_of_zero[:, nodes]:
            low = p[p <= alpha]
            open_yet = low[low > at_once]
            found.append((open_yet, len(low) - len(open_yet)))
        return found

    by_cell = zip(*map_ordered(seen, list(runs(level, _NODES_AT_ONCE)), executor), strict=True)
    return np.array(
        [
            rejected_up_to(np.concatenate([p for p, _ in cell]), alpha, tried, sum(sure for _, sure in cell))
            for cell in by_cell
        ]
    )


def rejected_up_to(p: FloatArray, alpha: float, tried: int, sure: int = 0) -> float:
    """Up to where p-values are rejected by the procedure of Benjamini and Hochberg (1995): alpha / ``tried`` times the
    number that is; -1 if none is.

    ``p``: the p-values, of which those above ``alpha`` may be left out, and so many (``sure``) that are at most alpha /
    ``tried``. What is above alpha / tried times the number that may yet be rejected is never rejected; where that
    leaves all that there are, it is all. Sorting is for the rest that some rounds leave.
    """
    tried = max(tried, 1)
    left = p[p <= alpha]
    for _ in range(_ROUNDS):
        fewer = left[left <= alpha * (sure + len(left)) / tried]
        if len(fewer) == len(left):
            rejected = sure + len(left)
            return alpha * rejected / tried if rejected else -1.0
        left = fewer
    order = np.sort(left)
    passed = np.flatnonzero(order <= alpha * (sure + np.arange(1, len(order) + 1)) / tried)
    rejected = sure + (int(passed[-1]) + 1 if len(passed) else 0)
    return alpha * rejected / tried if rejected else -1.0


def whole(x: FloatArray, variance: FloatArray, bounds: Bounds, released: FloatArray | IntArray | None) -> Bounds:
    """Counts are whole and not negative: the whole numbers within; the nearest to the estimate where there is none.
    With ``released`` values inside.
    """
    tolerance = 1e-9 * np.maximum(1.0, np.abs(x))
    lower, upper = np.ceil(bounds.lower - tolerance), np.floor(bounds.upper + tolerance)
    nearest = np.maximum(np.rint(x), 0.0)
    neither = (lower > upper) | (variance == 0)
    lower, upper = np.where(neither, nearest, np.maximum(lower, 0.0)), np.where(neither, nearest, upper)
    if released is not None:
        lower, upper = np.minimum(lower, released), np.maximum(upper, released)
    return Bounds(lower, upper)
