"""Intervals of answers to queries at every node, some nodes at a time: the rule of `node_intervals` by columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from topdown.geography.tree import FloatArray, IntArray, Tree, runs
from topdown.measurements.measurements import Measurements
from topdown.projection.several import EXACT
from topdown.uncertainty.error_law import AnyShape, Shape
from topdown.uncertainty.groups import Groups
from topdown.uncertainty.histogram_margins import shape_of_answers
from topdown.uncertainty.interval import interval
from topdown.uncertainty.known_noise import known_noise
from topdown.uncertainty.laws import NO_NOISE, laws_of_nodes
from topdown.uncertainty.node_intervals import CAPPED_BELOW, Bounds, Mask, rejected_up_to, rules, whole
from topdown.workload import Query

Estimated: TypeAlias = Callable[[slice], tuple[FloatArray, FloatArray]]
"""Of some nodes the estimates of columns and their variances, both (nodes x columns)."""

_NUMBERS_AT_ONCE = 1 << 20


def copies_of(columns: Sequence[tuple[Query, int]]) -> IntArray:
    """Of how many cells every one of these answers to queries is the sum (columns,)."""
    queries = dict.fromkeys(query for query, _ in columns)
    sizes = {query: np.bincount(query.answers_of(np.arange(query.schema.n_cells))) for query in queries}
    return np.array([sizes[query][answer] for query, answer in columns], np.int64)


def sum_of(shape: Shape, copies: int) -> Shape:
    """The shape of the sum of so many independent errors of one shape, those of cells at one node."""
    terms = tuple(term._replace(number=term.number * copies) for term in shape.terms)
    return Shape(terms, shape.excess / copies)


@dataclass(frozen=True, eq=False)
class AnswerLaws:
    """The laws of the errors of all answers: of one ``shape``, or, where the cells alone were measured, of every node's
    own in ``of_cells``. A variance up to ``negligible`` is rounding, and the answer exact.
    """

    shape: AnyShape | None
    of_cells: Groups | None
    negligible: float

    @classmethod
    def of(cls, measurements: Measurements) -> AnswerLaws:
        """Those of least squares of ``measurements``. Raises `ConfigError` as `margins` does."""
        if not measurements.others:
            return cls(None, laws_of_nodes(measurements, known_noise(measurements))[1], NO_NOISE)
        shape = shape_of_answers(measurements)
        geography = measurements.geography
        variances = [v for level in geography.levels for _, v in measurements.at(level).values()]
        largest = max((v.max(where=np.isfinite(v), initial=0.0) for v in variances), default=0.0)
        return cls(shape, None, EXACT * float(largest))

    def of_columns(self, columns: Sequence[tuple[Query, int]]) -> ColumnLaws:
        """Those of answers to queries, each a column."""
        return ColumnLaws(self, copies_of(columns))


class ColumnLaws(NamedTuple):
    """``laws`` of columns that are sums of so many (``copies`` (columns,)) cells."""

    laws: AnswerLaws
    copies: IntArray

    def settled(self, variance: FloatArray) -> FloatArray:
        """``variance`` (nodes x columns), with 0 for what is rounding."""
        most = self.laws.negligible * (1 if self.laws.of_cells is None else self.copies)
        return np.where(variance <= most, 0.0, variance)

    def places(self, nodes: slice, noisy: Mask) -> Iterator[tuple[AnyShape, IntArray]]:
        """Every shape, with those of the places (flat, of nodes x columns) that are ``noisy`` and have it."""
        if self.laws.of_cells is None:
            assert self.laws.shape is not None  # nosec B101 # narrows a type: one of the two is there
            yield self.laws.shape, np.flatnonzero(noisy)
            return
        group, flat = self.laws.of_cells.group[nodes], noisy.reshape(-1)
        order = np.argsort(group, kind="stable")
        numbers, starts = np.unique(group[order], return_index=True)
        columns = [(many, np.flatnonzero(self.copies == many)) for many in np.unique(self.copies).tolist()]
        for number, members in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            for many, here in columns:
                places = (members[:, None] * len(self.copies) + here).reshape(-1)
                places = places[flat[places]]
                if len(places):
                    yield sum_of(self.laws.of_cells.shapes[number], many), places


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
        shape = tree.n_families, len(laws.copies)
        found = cls(
            tree, laws, alpha, np.empty(shape), np.full(shape, np.inf), np.empty((tree.n_levels, len(laws.copies)))
        )
        for index in range(tree.n_levels):
            nodes = tree.level(index)
            low: list[list[FloatArray]] = [[] for _ in laws.copies]
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
