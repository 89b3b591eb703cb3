"""The covariances of sums over any nodes, for least squares of any queries, and their covariances with nodes.

In every block of the space of histograms (`projection.components`) the errors of least squares on the tree obey x_c =
G_c x_p + r_c, with rests r of different families uncorrelated and, of the upward estimates z_c with covariances U_c,
r_c = z_c - G_c (the family's sum of z). With b_i = a_i + m_i and m_p = the sum over the children of G_c' b_c, the
covariance of sum a_i x_i is b_0' U_0 b_0 + the sum over families of the sum over children of (b_c - m_p)' U_c (b_c -
m_p), in as many dimensions as a block has. Its covariance J with x goes down the same way: J_0 = U_0 b_0 at the root,
J_c = G_c J_p + U_c (b_c - m_p). A family that is in a sum as a whole adds nothing; only families that the sum cuts do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.geography.unit_sums import UnitSums
from topdown.projection.cells.equality import all_shares, gains_from, open_leaves, upward_gains
from topdown.projection.histograms import vector_least_squares
from topdown.projection.histograms.components import Block, Component, Components
from topdown.projection.histograms.least_squares import EXACT, BlockCovariance, Covariance
from topdown.projection.histograms.vector_least_squares import Spread
from topdown.workload import Query


class Weighted(NamedTuple):
    """So many (``number``) sums over nodes: sum ``of`` (entries,) takes ``node`` (entries,) times ``amount``.

    ``times`` (entries,): for a node that represents several equal ones, how many of these are taken, each with this
    amount; 1 by default.
    """

    of: IntArray
    node: IntArray
    amount: FloatArray
    number: int
    times: IntArray | None = None

    @classmethod
    def many(cls, sums: Sequence[tuple[IntArray, FloatArray]]) -> Weighted:
        """From the nodes and amounts of every sum, each node of a sum once."""
        of = np.repeat(np.arange(len(sums)), [len(nodes) for nodes, _ in sums])
        return cls(of, np.concatenate([n for n, _ in sums]), np.concatenate([a for _, a in sums]), len(sums))

    @classmethod
    def over(cls, units: UnitSums, chosen: IntArray) -> Weighted:
        """Of all nodes of every ``chosen`` unit, each once."""
        return cls.each(chosen).over_nodes(units)

    @classmethod
    def each(cls, nodes: IntArray) -> Weighted:
        """Sums of one node each."""
        return cls(np.arange(len(nodes)), nodes, np.ones(len(nodes)), len(nodes))

    def some(self, sums: slice) -> Weighted:
        """Some of the sums, numbered from 0."""
        return self.chosen(np.arange(sums.start, sums.stop))

    def over_nodes(self, units: UnitSums) -> Weighted:
        """The same sums, of which these nodes are ``units``, over the nodes that these are sums of, each once."""
        sizes = np.diff(units.starts)[self.node]
        entries = np.repeat(units.starts[self.node] - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum()))
        node, many = units.node[entries], int(units.node.max()) + 1
        key, place = np.unique(np.repeat(self.of, sizes) * many + node, return_inverse=True)
        amount = np.bincount(place.reshape(-1), np.repeat(self.amount, sizes), len(key)).astype(np.float64)
        return Weighted(key // many, key % many, amount, self.number)

    def chosen(self, sums: IntArray) -> Weighted:
        """Those of the ``sums``, each named once and in rising order."""
        place = np.full(self.number, -1)
        place[sums] = np.arange(len(sums))
        here = np.flatnonzero(place[self.of] >= 0)
        times = None if self.times is None else self.times[here]
        return Weighted(place[self.of[here]], self.node[here], self.amount[here], len(sums), times)

    @property
    def largest(self) -> FloatArray:
        """The largest amount of every sum (number,), in absolute value; 1 where all are 0."""
        found = np.zeros(self.number)
        np.maximum.at(found, self.of, np.abs(self.amount))
        return np.where(found > 0, found, 1.0)


class Touched(NamedTuple):
    """The nodes of a level that are in sums, or above nodes that are: sum ``of`` (entries,) takes ``node`` (entries,)
    times ``amount`` (0 where it is only above), for ``times`` of the nodes that it represents. ``above``: the place of
    its parent among the entries of the level above.
    """

    of: IntArray
    node: IntArray
    amount: FloatArray
    above: IntArray
    times: IntArray


def touched(asked: Weighted, tree: Tree) -> list[Touched]:
    """The nodes that sums touch, level by level from the root."""
    levels = np.searchsorted(tree.level_offsets, asked.node, side="right") - 1
    found: list[Touched] = []
    of, node = np.empty(0, np.int64), np.empty(0, np.int64)
    for level in range(tree.n_levels - 1, -1, -1):
        here = levels == level
        key = np.concatenate([of * tree.n_nodes + node, asked.of[here] * tree.n_nodes + asked.node[here]])
        known, place = np.unique(key, return_inverse=True)
        place = place.reshape(-1)
        amount = np.bincount(place[len(of) :], asked.amount[here], len(known)).astype(np.float64)
        if found:
            found[-1] = found[-1]._replace(above=place[: len(of)])
        times = np.ones(len(known), np.int64)
        if asked.times is not None:
            times[place[len(of) :]] = asked.times[here]
        mine = Touched(known // tree.n_nodes, known % tree.n_nodes, amount, np.empty(0, np.int64), times)
        found.append(mine)
        of, node = mine.of, tree.parent[mine.node]
    return found[::-1]


class Brought(NamedTuple):
    """The weights of sums on a block's coordinates, at every entry of `Touched`, both (entries, m, m): ``b``, and its
    part from the children, ``m``.
    """

    b: list[FloatArray]
    m: list[FloatArray]


def brought(entries: list[Touched], known: Spread, tree: Tree, size: int) -> Brought:
    """The weights of sums, propagated up to the root."""
    found = Brought([], [])
    m = np.zeros((len(entries[-1].of), size, size))
    for level in range(len(entries) - 1, -1, -1):
        at = entries[level]
        b = at.amount[:, None, None] * np.eye(size) + m
        found.b.append(b)
        found.m.append(m)
        if level:
            gain = known.gains[level - 1][at.node - tree.level(level).start]
            taken = at.times[:, None, None] * (np.swapaxes(gain, 1, 2) @ b)
            m = totals(at.above, taken, len(entries[level - 1].of))
    return Brought(found.b[::-1], found.m[::-1])


def covariances(entries: list[Touched], weights: Brought, known: Spread, tree: Tree, number: int) -> BlockCovariance:
    """The covariances of so many (``number``) sums of a block's coordinates, finite and diffuse parts, both (sums, m,
    m)."""
    size = weights.b[0].shape[-1]
    total = BlockCovariance(*(np.zeros((number, size, size)) for _ in range(2)))
    root, of_root = entries[0], known.levels[0]
    _add(total, root.of, weights.b[0], of_root.finite[root.node], of_root.diffuse[root.node])
    for level in range(1, len(entries)):
        at, above, of_level = entries[level], entries[level - 1], known.levels[level]
        own = at.node - tree.level(level).start
        m = weights.m[level - 1]
        finite, diffuse = (at.times[:, None, None] * part[own] for part in (of_level.finite, of_level.diffuse))
        _add(total, at.of, weights.b[level] - m[at.above], finite, diffuse)
        # The children that are not touched have b = 0, and so the same b - m.
        parents = above.node - tree.level(level - 1).start
        some = (untouched(entries, level, tree) > 0)[:, None, None]
        rest = [
            np.where(
                some,
                getattr(known.sums[level - 1], part)[parents] - totals(at.above, values, len(parents)),
                0.0,
            )
            for part, values in (("finite", finite), ("diffuse", diffuse))
        ]
        _add(total, above.of, m, *rest)
    return total


def untouched(entries: list[Touched], level: int, tree: Tree) -> IntArray:
    """How many children of every entry of the level above ``level`` are not touched; (entries,)."""
    above = entries[level - 1]
    sizes = tree.families(level - 1).counted[above.node - tree.level(level - 1).start]
    at = entries[level]
    return np.asarray(sizes - np.bincount(at.above, at.times, len(above.of)).astype(np.int64))


def with_nodes(entries: list[Touched], weights: Brought, known: Spread, tree: Tree) -> list[FloatArray]:
    """By level the covariances (entries, m, m) of sums with the nodes that they touch; the first coordinate is the
    sum's."""
    found: list[FloatArray] = []
    for level, at in enumerate(entries):
        own = at.node - tree.level(level).start
        u = known.levels[level].finite[own]
        if level == 0:
            found.append(u @ weights.b[0])
            continue
        gap = weights.b[level] - weights.m[level - 1][at.above]
        found.append(known.gains[level - 1][own] @ found[-1][at.above] + u @ gap)
    return [np.swapaxes(one, 1, 2) for one in found]


def totals(place: IntArray, values: FloatArray, count: int) -> FloatArray:
    """The sums of ``values`` (entries, ...) by place."""
    found = np.zeros((count, math.prod(values.shape[1:])))
    for k, column in enumerate(values.reshape(len(values), found.shape[1]).T):
        found[:, k] = np.bincount(place, column, count)
    return found.reshape(count, *values.shape[1:])


def _add(
    total: BlockCovariance,
    of: IntArray,
    b: FloatArray,
    finite: npt.NDArray[np.float64],
    open_ended: npt.NDArray[np.float64],
) -> None:
    turned = np.swapaxes(b, 1, 2)
    for into, spread in zip(total, (finite, open_ended), strict=True):
        if spread.any():
            into += totals(of, turned @ spread @ b, len(into))


@dataclass(frozen=True, eq=False)
class SumErrors:
    """The covariances of sums over the nodes of ``tree`` by least squares of what is measured: by level and query the
    ``variance`` (nodes of the level,) of every node's answers, inf where they are not measured.

    ``start``: the level where the upward pass starts, that of the leaves by default.
    """

    tree: Tree
    components: Components
    variance: Sequence[Mapping[Query, FloatArray]]
    start: int | None = None
    _spreads: dict[int, Spread] = field(default_factory=dict, repr=False)

    def spread(self, number: int) -> Spread:
        """How the errors of the coordinates of block ``number`` propagate down the tree."""
        if number not in self._spreads:
            _, block = self.components.blocks[number]
            solver = self._scalar_spread if block.size == 1 else self._vector_spread
            self._spreads[number] = solver(block)
        return self._spreads[number]

    def _vector_spread(self, block: Block) -> Spread:
        levels = [
            [
                vector_least_squares.independent(block.rows[q], np.zeros((len(v), 0, len(block.rows[q]))), v)
                for q, v in level.items()
                if q in block.rows
            ]
            for level in self.variance
        ]
        return vector_least_squares.spread(self.tree, levels, block.size, self.start)

    def _scalar_spread(self, block: Block) -> Spread:
        """As `_vector_spread`, of numbers."""
        tree, precision = self.tree, np.zeros(self.tree.n_nodes)
        for index, level in enumerate(self.variance):
            nodes = tree.level(index)
            for query, variance in level.items():
                if query in block.rows:
                    with np.errstate(divide="ignore"):
                        precision[nodes] += float((block.rows[query] ** 2).sum()) / variance
        with np.errstate(divide="ignore"):
            own = 1.0 / precision
        u, unknown, share = _scalar_gains(own, tree, self.start)

        def known(finite: FloatArray, without_end: FloatArray) -> vector_least_squares.Known:
            return vector_least_squares.Known(
                np.zeros((len(finite), 0, 1)), finite[:, None, None], without_end[:, None, None], finite
            )

        levels = [tree.level(index) for index in range(tree.n_levels)]
        families = [tree.families(index) for index in range(tree.n_levels - 1)]
        return Spread(
            [known(u[nodes], unknown[nodes]) for nodes in levels],
            [known(one.total(u[one.children]), one.total(unknown[one.children])) for one in families],
            [share[nodes, None, None] for nodes in levels[1:]],
        )

    @property
    def negligible(self) -> float:
        """A variance below this is that of an exact answer."""
        of_all = (v.max(where=np.isfinite(v), initial=0.0) for level in self.variance for v in level.values())
        return EXACT * float(max(of_all, default=0.0))

    def variances(self, asked: Weighted, query: Query) -> FloatArray:
        """The variances (sums x answers) of the answers to ``query`` of sums; inf where they are not determined."""
        classes, place = self.variances_by_class(asked, query)
        return classes[:, place]

    def variances_by_class(self, asked: Weighted, query: Query) -> tuple[FloatArray, IntArray]:
        """As `variances`, of classes of answers (sums x classes), and the class (answers,) of every answer."""
        largest = asked.largest
        asked = asked._replace(amount=asked.amount / largest[asked.of])
        seen, blocks = self.components.classes(query).seen, []
        entries = touched(asked, self.tree)
        for component, rows in zip(self.components, seen, strict=True):
            blocks.append(tuple(self.of_component(entries if rows.matters else None, component, asked.number)))
        found, place = Covariance(self.components, tuple(blocks)).variance_by_class(query, slice(0, asked.number))
        return np.where(found < self.negligible, 0.0, found) * largest[:, None] ** 2, place

    def joint(self, asked: Weighted) -> FloatArray:
        """The covariances of all coordinates of one single sum, block after block; finite parts alone."""
        entries = touched(asked, self.tree)
        parts = [known for component in self.components for known in self.of_component(entries, component, 1)]
        return np.concatenate([known.finite[0].reshape(-1) for known in parts])

    def of_component(
        self, entries: list[Touched] | None, component: Component, number: int
    ) -> Iterator[BlockCovariance]:
        """Those of so many (``number``) sums of the coordinates of a component's blocks; 0 without ``entries``."""
        first = self.components.first_block(component)
        for place, block in enumerate(component.blocks, first):
            if entries is None:
                empty = np.zeros((number, block.size, block.size))
                yield BlockCovariance(empty, empty)
                continue
            known = self.spread(place)
            yield covariances(entries, brought(entries, known, self.tree, block.size), known, self.tree, number)


def _scalar_gains(variance: FloatArray, tree: Tree, start: int | None) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of all nodes (nodes,) the variance of the upward estimate, how many leaves leave it undetermined, and the share
    of what its family lacks."""
    if start is None:
        gains, open_ends = upward_gains(variance, tree), open_leaves(variance, tree)
        u, unknown = gains.variance, np.zeros(tree.n_nodes) if open_ends is None else open_ends
    else:
        gains, upper = gains_from(variance, tree, start), tree.above(start)
        unknown = np.isinf(variance).astype(np.float64)
        open_ends = open_leaves(variance[: upper.n_nodes], upper)
        unknown[: upper.n_nodes] = 0.0 if open_ends is None else open_ends
        u = np.where(np.isinf(gains.variance), 0.0, gains.variance)
    return u, unknown, all_shares(gains.shares, tree)
