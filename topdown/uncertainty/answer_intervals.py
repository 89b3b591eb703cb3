"""Intervals of answers to queries at every node, some nodes at a time: the rule of `node_intervals` by columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from topdown.geography.tree import FloatArray, IntArray, Tree, runs
from topdown.uncertainty.answer_laws import ColumnLaws
from topdown.uncertainty.interval import interval
from topdown.uncertainty.node_intervals import CAPPED_BELOW, Bounds, rejected_up_to, rules, whole

Estimated: TypeAlias = Callable[[slice], tuple[FloatArray, FloatArray]]
"""Of some nodes the estimates of columns and their variances, both (nodes x columns)."""

_NUMBERS_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class AnswerIntervals:
    """Intervals of columns at any nodes, each of which misses with at most ``alpha``.

    What they need of other nodes is kept: of inner nodes the deviations ``above`` and what no child can pass
    (``ceiling``), both (inner nodes x columns); of every level up to which p of a truth of 0 this is ``rejected``
    (levels x columns).
    """

    tree: Tree
    laws: ColumnLaws
    alpha: float
    above: FloatArray = field(repr=False)
    ceiling: FloatArray = field(repr=False)
    rejected: FloatArray = field(repr=False)

    @classmethod
    def of(cls, estimated: Estimated, laws: ColumnLaws, tree: Tree, alpha: float) -> AnswerIntervals:
        """For the estimates of columns that ``estimated`` gives."""
        shape = tree.n_families, len(laws.kind)
        found = cls(
            tree, laws, alpha, np.empty(shape), np.full(shape, np.inf), np.empty((tree.n_levels, len(laws.kind)))
        )
        for index in range(tree.n_levels):
            nodes = tree.level(index)
            low: list[list[FloatArray]] = [[] for _ in laws.kind]
            tried, sure = np.zeros(shape[1], np.int64), np.zeros(shape[1], np.int64)
            for part in parts(nodes, shape[1]):
                x, variance = estimated(part)
                variance = laws.settled(variance)
                p = found._taken(part, x, np.sqrt(variance))
                tried += (variance > 0).sum(axis=0)
                # So small that they are rejected whatever the others are.
                at_once = p <= alpha / (nodes.stop - nodes.start)
                sure += at_once.sum(axis=0)
                for k in np.flatnonzero(((p <= alpha) & ~at_once).any(axis=0)).tolist():
                    low[k].append(p[(p[:, k] <= alpha) & ~at_once[:, k], k])
            for k, pieces in enumerate(low):
                some = np.concatenate(pieces) if pieces else np.zeros(0)
                found.rejected[index, k] = rejected_up_to(some, alpha, int(tried[k]), int(sure[k]))
        return found

    def _taken(self, nodes: slice, x: FloatArray, deviation: FloatArray) -> FloatArray:
        """P(X >= x) under a truth of 0 at ``nodes``; keeps what their children need of them."""
        p, caps = np.ones(x.shape), np.zeros(x.shape)
        seen = np.divide(x, deviation, out=np.zeros(x.shape), where=deviation > 0).reshape(-1)
        for shape, places in self.laws.places(nodes, (deviation > 0) & np.isfinite(deviation)):
            rule = interval(shape, self.alpha)
            p.reshape(-1)[places] = rule.p_of_zero(seen[places])
            caps.reshape(-1)[places] = rule.cap
        if nodes.start < self.tree.n_families:
            known = np.isfinite(deviation)
            own = x + caps * np.where(known, deviation, 0.0)
            self.above[nodes] = deviation
            # A parent that nothing determines is limited by its own parent.
            self.ceiling[nodes] = np.where(known, own, self._of_parents(self.ceiling, nodes))
        return p

    def _of_parents(self, values: FloatArray, nodes: slice) -> FloatArray:
        """The parents' ``values`` (nodes x columns); infinite at the root, which has none."""
        parent = self.tree.parent[nodes]
        return np.where(parent[:, None] < 0, np.inf, values[np.maximum(parent, 0)])

    def at(
        self, nodes: slice, x: FloatArray, variance: FloatArray, released: FloatArray | IntArray | None = None
    ) -> Bounds:
        """The intervals at ``nodes`` from their estimates ``x`` with ``variance``; with ``released`` values inside.

        All (nodes x columns). ``upper`` is infinite where nothing limits it.
        """
        variance = self.laws.settled(variance)
        deviation = np.sqrt(variance)
        known = (deviation > 0) & np.isfinite(deviation)
        above = self._of_parents(self.above, nodes)
        capped = (above < CAPPED_BELOW * deviation) | np.isinf(deviation)
        costs = (capped & (above > 0)).reshape(-1)
        lower, p = np.zeros(x.shape), np.ones(x.shape)
        upper = np.zeros(x.shape)
        upper[np.isinf(deviation)] = np.inf
        seen = np.divide(x, deviation, out=np.zeros(x.shape), where=known).reshape(-1)
        sd = deviation.reshape(-1)
        for shape, places in self.laws.places(nodes, known):
            for part, rule in rules(places, costs[places], shape, self.alpha):
                lower.reshape(-1)[part] = rule.lower(seen[part]) * sd[part]
                upper.reshape(-1)[part] = rule.upper(seen[part]) * sd[part]
                p.reshape(-1)[part] = rule.p_of_zero(seen[part])
        np.minimum(upper, self._of_parents(self.ceiling, nodes), out=upper, where=capped)
        level = np.searchsorted(self.tree.level_offsets, np.arange(nodes.start, nodes.stop), side="right") - 1
        lower[p > self.rejected[level]] = 0.0
        return whole(x, variance, Bounds(lower, upper), released)


def parts(nodes: slice, columns: int) -> Iterator[slice]:
    """``nodes`` in their order, so many at once that their numbers in so many columns stay within bounds."""
    return runs(nodes, max(1, _NUMBERS_AT_ONCE // max(columns, 1)))


def answer_intervals(
    x: FloatArray,
    variance: FloatArray,
    laws: ColumnLaws,
    tree: Tree,
    alpha: float,
    released: FloatArray | IntArray | None,
) -> Bounds:
    """The intervals of all nodes, from their estimates ``x`` with ``variance``; all (nodes x columns)."""
    found = AnswerIntervals.of(lambda nodes: (x[nodes], variance[nodes]), laws, tree, alpha)
    bounds = Bounds(np.empty(x.shape), np.empty(x.shape))
    for part in parts(slice(0, tree.n_nodes), x.shape[1]):
        inside = None if released is None else released[part]
        bounds.lower[part], bounds.upper[part] = found.at(part, x[part], variance[part], inside)
    return bounds
