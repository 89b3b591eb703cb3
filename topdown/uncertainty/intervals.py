"""Intervals for every node of a tree: the inverted tests, the limit that a parent sets, the guard of small counts,
rounding.

Columns are answers to queries, or cells; cells that were measured alone all have the same laws. Levels are processed
from the root, some nodes at a time: the guard needs all tests of 0 on a level before it gives the level's intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray, Tree, runs
from topdown.machine.parallel import do_all, map_ordered
from topdown.uncertainty.interval import CAP_PART, interval
from topdown.uncertainty.laws.answer_laws import ColumnLaws

Released: TypeAlias = Callable[[slice], FloatArray | IntArray]
"""Gives the released counts of columns at some nodes; (nodes x columns)."""

Estimated: TypeAlias = Callable[[slice], tuple[FloatArray, FloatArray]]
"""Gives the estimates of columns at some nodes and their variances; both (nodes x columns)."""

CAPPED_BELOW = 0.5
"""A parent limits a child whose standard deviation is more than twice its own."""

_NUMBERS_AT_ONCE = 1 << 18
"""So many numbers at once; with fewer, threads would spend more time waiting than working."""
_ROUNDS = 50


class IntervalEnds(NamedTuple):
    """Intervals, both (nodes x columns)."""

    lower: FloatArray
    upper: FloatArray


class _Low(NamedTuple):
    """The tests of a true value of 0 at some nodes, by column: how many were made (``tried``), how many p-values are so
    small that they are rejected whatever the others are (``sure``), and the other p-values up to alpha.
    """

    tried: IntArray
    sure: IntArray
    others: list[FloatArray]


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals of columns at any nodes, each of which misses with at most ``alpha``.

    What intervals need from other nodes is kept. For inner nodes: the standard deviations ``above``, and the
    ``ceiling``, which the true values of the node and so of its children exceed with probability alpha / 50 at most;
    both (inner nodes x columns). For every level: the largest p-value at which a true value of 0 is ``rejected``
    (levels x columns).
    """

    tree: Tree
    laws: ColumnLaws
    alpha: float
    above: FloatArray = field(repr=False)
    ceiling: FloatArray = field(repr=False)
    rejected: FloatArray = field(repr=False)

    @classmethod
    def begun(cls, laws: ColumnLaws, tree: Tree, alpha: float) -> Intervals:
        """Intervals before any node was processed."""
        shape = tree.n_families, len(laws.kind)
        return cls(tree, laws, alpha, np.empty(shape), np.full(shape, np.inf), np.empty((tree.n_levels, shape[1])))

    @classmethod
    def of(
        cls, estimated: Estimated, laws: ColumnLaws, tree: Tree, alpha: float, levels: Container[int] | None = None
    ) -> Intervals:
        """The intervals of the columns that ``estimated`` gives, at the nodes of ``laws``, which are whole levels;
        ``levels``: the numbers of those at which intervals are needed, None for all.
        """
        found = cls.begun(laws, tree, alpha)
        for index in range(tree.level_of(len(laws.group) - 1) + 1):
            level = tree.level(index)
            if levels is None or index in levels:
                found._reject(index, [found._told(part, level, *estimated(part)) for part in found.parts(level)])
                continue
            for part in found.parts(level):
                x, variance = estimated(part)
                found._keep(part, x, laws.settled(variance))
        return found

    def parts(self, nodes: slice) -> Iterator[slice]:
        """``nodes`` in order, in ranges that bound the memory."""
        return runs(nodes, max(1, _NUMBERS_AT_ONCE // max(len(self.laws.kind), 1)))

    def _told(self, nodes: slice, level: slice, x: FloatArray, variance: FloatArray) -> _Low:
        """The tests of 0 at ``nodes`` of a ``level``; keeps what their children need."""
        variance = self.laws.settled(variance)
        deviation = np.sqrt(variance)
        self._keep(nodes, x, variance)
        p, known = np.ones(x.shape), (deviation > 0) & np.isfinite(deviation)
        seen = np.divide(x, deviation, out=np.zeros(x.shape), where=known).reshape(-1)
        for shape, places in self.laws.places(nodes, known):
            p.reshape(-1)[places] = interval(shape, self.alpha).p_of_zero(seen[places])
        return self._low(p, variance, level)

    def _keep(self, nodes: slice, x: FloatArray, variance: FloatArray) -> None:
        """Keep what the children of ``nodes`` need."""
        if nodes.start >= self.tree.n_families:
            return
        deviation, caps = np.sqrt(variance), np.zeros(x.shape)
        known = np.isfinite(deviation)
        for shape, places in self.laws.places(nodes, known & (deviation > 0)):
            caps.reshape(-1)[places] = interval(shape, self.alpha).cap
        self.above[nodes] = deviation
        # A parent that is not determined has the limit of its own parent.
        own = x + caps * np.where(known, deviation, 0.0)
        self.ceiling[nodes] = np.where(known, own, self._of_parents(self.ceiling, nodes))

    def _low(self, p: FloatArray, variance: FloatArray, level: slice) -> _Low:
        at_once = p <= self.alpha / (level.stop - level.start)
        some = (p <= self.alpha) & ~at_once
        return _Low(
            np.count_nonzero(variance > 0, axis=0),
            np.count_nonzero(at_once, axis=0),
            [of_column[low] for of_column, low in zip(p.T, some.T, strict=True)],
        )

    def _reject(self, index: int, found: list[_Low]) -> None:
        """Keep the largest p-value at which a true value of 0 is rejected on a level, at a false discovery rate of
        alpha (Benjamini and Hochberg 1995): at all other nodes 0 stays in the interval. Exact nodes are not tested.
        """
        for k in range(len(self.laws.kind)):
            tried, sure = sum(int(one.tried[k]) for one in found), sum(int(one.sure[k]) for one in found)
            p = np.concatenate([one.others[k] for one in found])
            self.rejected[index, k] = rejected_up_to(p, self.alpha, tried, sure)

    def _of_parents(self, values: FloatArray, nodes: slice) -> FloatArray:
        """The parents' ``values`` (nodes x columns); infinite at the root, which has none."""
        parent = self.tree.parent[nodes]
        if not len(values):
            return np.full((len(parent), values.shape[1]), np.inf)  # the root alone
        return np.where(parent[:, None] < 0, np.inf, values[np.maximum(parent, 0)])

    def _test(self, nodes: slice, x: FloatArray, variance: FloatArray, bounds: IntervalEnds, p: FloatArray) -> None:
        """Fill ``bounds`` with the ends of the accepted values at ``nodes``, within the limits of their parents, and
        ``p`` with P(X >= x) for a true value of 0. ``upper`` is infinite where nothing limits it; without noise both
        ends are 0.
        """
        deviation, (lower, upper) = np.sqrt(variance), bounds
        known = (deviation > 0) & np.isfinite(deviation)
        above = self._of_parents(self.above, nodes)
        capped = (above < CAPPED_BELOW * deviation) | np.isinf(deviation)
        costs = (capped & (above > 0)).reshape(-1)
        lower[...], upper[...], p[...] = 0.0, np.where(np.isinf(deviation), np.inf, 0.0), 1.0
        flat, sd = x.reshape(-1), deviation.reshape(-1)
        for shape, places in self.laws.places(nodes, known):
            for part, alpha in self._alphas(places, costs):
                rule, of_part = interval(shape, alpha), sd[part]
                seen = flat[part] / of_part
                lower.reshape(-1)[part] = rule.lower(seen) * of_part
                upper.reshape(-1)[part] = rule.upper(seen) * of_part
                p.reshape(-1)[part] = rule.p_of_zero(seen)
        if capped.any():
            np.minimum(upper, self._of_parents(self.ceiling, nodes), out=upper, where=capped)

    def _alphas(self, places: IntArray, costs: npt.NDArray[np.bool_]) -> Iterator[tuple[IntArray, float]]:
        """``places`` with the alpha that is left to them: the rest, where the limit of their parent ``costs`` a part of
        it.
        """
        dear = costs[places]
        if not dear.any():
            yield places, self.alpha
            return
        yield places[dear], self.alpha * (1.0 - CAP_PART)
        if not dear.all():
            yield places[~dear], self.alpha

    def at(
        self, nodes: slice, x: FloatArray, variance: FloatArray, released: FloatArray | IntArray | None = None
    ) -> IntervalEnds:
        """The intervals at ``nodes`` from their estimates ``x`` with ``variance``; with ``released`` values inside.

        All (nodes x columns). ``upper`` is infinite where nothing limits it.
        """
        variance = self.laws.settled(variance)
        bounds, p = IntervalEnds(np.empty(x.shape), np.empty(x.shape)), np.empty(x.shape)
        self._test(nodes, x, variance, bounds, p)
        level = np.searchsorted(self.tree.level_offsets, np.arange(nodes.start, nodes.stop), side="right") - 1
        bounds.lower[p > self.rejected[level]] = 0.0
        return _whole(x, variance, bounds, released)


def intervals(
    x: FloatArray,
    variance: FloatArray,
    laws: ColumnLaws,
    tree: Tree,
    alpha: float,
    released: Released | None = None,
    executor: Executor | None = None,
    levels: Container[int] | None = None,
) -> IntervalEnds:
    """The intervals of all nodes, from their estimates ``x`` with ``variance``, 0 where they are exact; each misses
    with probability ``alpha`` at most; widened to hold the ``released`` values. All (nodes x columns); ``executor``:
    threads that may work on it.

    ``levels``: the numbers of the levels that get intervals, None for all of ``x``. The interval of a node without
    noise is its value; that of a node that is not determined begins at 0 and has no end. It does the same as
    `Intervals`, but keeps the tests of a level until its intervals are made.
    """
    found = Intervals.begun(laws, tree, alpha)
    bounds, p = IntervalEnds(np.empty(x.shape), np.empty(x.shape)), np.empty(x.shape)
    for index in range(tree.level_of(len(x) - 1) + 1):
        level = tree.level(index)
        parts = list(found.parts(level))
        if levels is not None and index not in levels:
            do_all(lambda part: found._keep(part, x[part], variance[part]), parts, executor)
            continue

        def tested(part: slice, level: slice = level) -> _Low:
            found._keep(part, x[part], variance[part])
            found._test(part, x[part], variance[part], IntervalEnds(bounds.lower[part], bounds.upper[part]), p[part])
            return found._low(p[part], variance[part], level)

        found._reject(index, list(map_ordered(tested, parts, executor)))

        def told(part: slice, index: int = index) -> None:
            lower, upper = bounds.lower[part], bounds.upper[part]
            lower[p[part] > found.rejected[index]] = 0.0
            inside = None if released is None else released(part)
            lower[...], upper[...] = _whole(x[part], variance[part], IntervalEnds(lower, upper), inside)

        do_all(told, parts, executor)
    return bounds


def rejected_up_to(p: FloatArray, alpha: float, tried: int, sure: int = 0) -> float:
    """The largest p-value that the procedure of Benjamini and Hochberg (1995) may reject: alpha / ``tried`` times the
    number of rejected ones; -1 if none is.

    ``p``: the p-values, without those above ``alpha`` and without ``sure`` ones that are at most alpha / ``tried``.
    Values above alpha / tried times the number that can still be rejected are dropped, round by round, before the rest
    is sorted.
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


def _whole(
    x: FloatArray, variance: FloatArray, bounds: IntervalEnds, released: FloatArray | IntArray | None
) -> IntervalEnds:
    """Round inwards to whole numbers of 0 or more; to the whole number nearest to the estimate where none lies within;
    and widen to hold the ``released`` values.
    """
    tolerance = 1e-9 * np.maximum(1.0, np.abs(x))
    lower, upper = np.ceil(bounds.lower - tolerance), np.floor(bounds.upper + tolerance)
    nearest = np.maximum(np.rint(x), 0.0)
    neither = (lower > upper) | (variance == 0)
    lower, upper = np.where(neither, nearest, np.maximum(lower, 0.0)), np.where(neither, nearest, upper)
    if released is not None:
        lower, upper = np.minimum(lower, released), np.maximum(upper, released)
    return IntervalEnds(lower, upper)
