"""The errors of sums over any nodes where several queries were measured: their covariances, and with whose they go.

In every block of the space of histograms (`projection.components`) the errors of least squares on the tree obey x_c =
G_c x_p + r_c, with rests r of different families uncorrelated and, of the upward estimates z_c with covariances U_c,
r_c = z_c - G_c (the family's sum of z). With b_i = a_i + m_i and m_p = the sum over the children of G_c' b_c, the
covariance of sum a_i x_i is b_0' U_0 b_0 + the sum over families of the sum over children of (b_c - m_p)' U_c (b_c -
m_p): `uncertainty.combination` in as many dimensions as a block has. Its covariance J with x goes down the same way:
J_0 = U_0 b_0 at the root, J_c = G_c J_p + U_c (b_c - m_p).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.projection.histograms.least_squares import BlockCovariance
from topdown.projection.histograms.vector_least_squares import Spread


class Weighted(NamedTuple):
    """So many (``number``) sums over nodes: sum ``of`` (entries,) takes ``node`` (entries,) times ``amount``."""

    of: IntArray
    node: IntArray
    amount: FloatArray
    number: int

    @classmethod
    def many(cls, sums: Sequence[tuple[IntArray, FloatArray]]) -> Weighted:
        """Of the nodes and amounts of every sum, each node of a sum once."""
        of = np.repeat(np.arange(len(sums)), [len(nodes) for nodes, _ in sums])
        return cls(of, np.concatenate([n for n, _ in sums]), np.concatenate([a for _, a in sums]), len(sums))

    @classmethod
    def each(cls, nodes: IntArray) -> Weighted:
        """Of one node each."""
        return cls(np.arange(len(nodes)), nodes, np.ones(len(nodes)), len(nodes))

    def some(self, sums: slice) -> Weighted:
        """Some of the sums, numbered from 0."""
        here = np.flatnonzero((self.of >= sums.start) & (self.of < sums.stop))
        return Weighted(self.of[here] - sums.start, self.node[here], self.amount[here], sums.stop - sums.start)

    @property
    def largest(self) -> FloatArray:
        """The largest amount of every sum (number,), in absolute value; 1 where all are 0."""
        found = np.zeros(self.number)
        np.maximum.at(found, self.of, np.abs(self.amount))
        return np.where(found > 0, found, 1.0)


class Touched(NamedTuple):
    """The nodes of a level that sums take, or that are above such: sum ``of`` (entries,) takes ``node`` (entries,)
    times ``amount``, 0 where it is above alone. ``above``: the place of its parent among the entries of the level
    above.
    """

    of: IntArray
    node: IntArray
    amount: FloatArray
    above: IntArray


def touched(asked: Weighted, tree: Tree) -> list[Touched]:
    """What sums touch, level by level from the root."""
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
        mine = Touched(known // tree.n_nodes, known % tree.n_nodes, amount, np.empty(0, np.int64))
        found.append(mine)
        of, node = mine.of, tree.parent[mine.node]
    return found[::-1]


class Brought(NamedTuple):
    """The weights of sums on a block's coordinates, at every entry of `Touched`, both (entries, m, m): ``b``, and what
    of it comes from the children, ``m``."""

    b: list[FloatArray]
    m: list[FloatArray]


def brought(entries: list[Touched], known: Spread, tree: Tree, size: int) -> Brought:
    """The weights of sums, brought to the root."""
    found = Brought([], [])
    m = np.zeros((len(entries[-1].of), size, size))
    for level in range(len(entries) - 1, -1, -1):
        at = entries[level]
        b = at.amount[:, None, None] * np.eye(size) + m
        found.b.append(b)
        found.m.append(m)
        if level:
            gain = known.gains[level - 1][at.node - tree.level(level).start]
            m = totals(at.above, np.swapaxes(gain, 1, 2) @ b, len(entries[level - 1].of))
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
        _add(total, at.of, weights.b[level] - m[at.above], of_level.finite[own], of_level.diffuse[own])
        # The children that take no part have b = 0, and so all the same b - m.
        parents = above.node - tree.level(level - 1).start
        some = (untouched(entries, level, tree) > 0)[:, None, None]
        rest = [
            np.where(
                some,
                getattr(known.sums[level - 1], part)[parents] - totals(at.above, values[own], len(parents)),
                0.0,
            )
            for part, values in (("finite", of_level.finite), ("diffuse", of_level.diffuse))
        ]
        _add(total, above.of, m, *rest)
    return total


def untouched(entries: list[Touched], level: int, tree: Tree) -> IntArray:
    """How many children of every entry (entries,) of the level above ``level`` no entry of ``level`` is."""
    above = entries[level - 1]
    sizes = tree.families(level - 1).counted[above.node - tree.level(level - 1).start]
    return np.asarray(sizes - np.bincount(entries[level].above, minlength=len(above.of)))


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
