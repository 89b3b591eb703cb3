"""Weighted sums of least-squares estimates over any nodes: their variance, covariance, fourth cumulant and law.

On the way down x_c = g_c x_p + r_c, r of different families uncorrelated, cov(r_c, r_d) = u_c [c = d] - u_c u_d / V.
So a sum over nodes at mixed levels costs what its nodes and their ancestors cost, whatever the size of the tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.uncertainty.error_law import NORMAL, Shape
from topdown.uncertainty.known_noise import KindArray, KnownNoise
from topdown.uncertainty.main_parts import Parts, shapes_of
from topdown.uncertainty.moments import Moments, descendants

_SAME = 1e-12


@dataclass(frozen=True, eq=False)
class Pivots:
    """What is known of every node's error: the ``tree``, the ``noise``, the measurements' ``variance`` (nodes,), the
    ``moments``, and ``noisy`` (nodes,), 1 where a measurement has noise, of which ``kind`` (nodes,).
    """

    tree: Tree
    noise: KnownNoise
    variance: FloatArray
    moments: Moments
    noisy: FloatArray
    kind: KindArray
    _below: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, tree: Tree, noise: KnownNoise, variance: FloatArray, found: Moments) -> Pivots:
        """With the marks of what is neither exact nor missing."""
        noisy = ((variance > 0) & np.isfinite(variance)).astype(np.float64)
        return cls(tree, noise, variance, found, noisy, noise.kinds(tree))

    def below(self, level: int) -> tuple[FloatArray, FloatArray]:
        """How many nodes of ``level`` with its kind of noise every node down to there is or has below it, and the mean
        coefficient of their noise in its upward estimate, both (nodes down to there,)."""
        if level not in self._below:
            nodes, tree = self.tree.level(level), self.tree
            like = (self.noisy[nodes] > 0) & (self.kind[nodes] == level)
            self._below[level] = descendants(self.moments.upward.own, like, level, tree)
        return self._below[level]

    def cumulants(self, nodes: IntArray) -> FloatArray:
        """Fourth cumulants of the noise at ``nodes``; 0 where it is exact or not measured."""
        found: FloatArray = self.noisy[nodes] * self.noise.cumulants[self.kind[nodes]]
        return found


class _Families(NamedTuple):
    """The families of one level that a combination touches, ``k`` combinations at once: their ``parents``; their
    touched ``children`` with the ``place`` of their parents; ``gap`` (k, children), b_c - m; ``mean`` (k, parents), m.
    """

    level: int
    parents: IntArray
    children: IntArray
    place: IntArray
    gap: FloatArray
    mean: FloatArray


class Combination(NamedTuple):
    """Weights on nodes, ``k`` combinations at once, brought to the root: ``families`` from the root's down, and
    ``root`` (k,), the weight b of the root's estimate.
    """

    families: tuple[_Families, ...]
    root: FloatArray


def combination(nodes: IntArray, weights: FloatArray, pivots: Pivots) -> Combination:
    """The combinations ``weights`` (k, nodes) of the estimates at ``nodes``, each node once.

    b_i = a_i + m_i, m_i = the sum over the children of g_c b_c.
    """
    tree, share = pivots.tree, pivots.moments.upward.share
    found: list[_Families] = []
    order = np.argsort(nodes)
    nodes, weights = nodes[order], weights[:, order]
    touched, b = np.empty(0, np.int64), np.empty((len(weights), 0))
    for level in range(tree.n_levels - 1, -1, -1):
        here = slice(*np.searchsorted(nodes, [tree.level(level).start, tree.level(level).stop]).tolist())
        parents, place = np.unique(tree.parent[touched], return_inverse=True)
        mean = _sums(share[touched] * b, place, len(parents))
        if len(touched):
            found.append(_Families(level + 1, parents, touched, place, b - mean[:, place], mean))
        union, where = np.unique(np.concatenate([parents, nodes[here]]), return_inverse=True)
        b = _sums(np.concatenate([mean, weights[:, here]], axis=1), where, len(union))
        touched = union
    return Combination(tuple(reversed(found)), b[:, 0] if b.shape[1] else np.zeros(len(weights)))


def _sums(values: FloatArray, place: IntArray, count: int) -> FloatArray:
    return (
        np.stack([np.bincount(place, row, count) for row in values])
        if values.shape[1]
        else np.zeros((len(values), count))
    )


def covariance(found: Combination, pivots: Pivots) -> FloatArray:
    """The covariances (k, k) of the combinations; inf or nan where one is undetermined.

    b_0 b*_0 var_0 + the sum over families of sum_c u_c (b_c - m)(b*_c - m*); untouched children together.
    """
    spread = pivots.moments.variance[0]
    total = _products(found.root[:, None], np.array([spread]))
    u = pivots.moments.upward.variance
    for families in found.families:
        first, last = pivots.tree.child_offsets[families.parents], pivots.tree.child_offsets[families.parents + 1]
        total += _products(families.gap, u[families.children])
        total += _products(families.mean, _untouched(u, families, first, last))
    return total


def _products(values: FloatArray, spread: FloatArray) -> FloatArray:
    """The sum of spread x values x values' over the last axis; inf where a value at an infinite spread is not 0."""
    is_open = np.isinf(spread)
    closed = (values * np.where(is_open, 0.0, spread)) @ values.T
    reached = (np.abs(values) > _SAME) & is_open
    wild = np.asarray(reached.any(axis=1))
    found: FloatArray = np.where(wild[:, None] & wild[None, :], np.inf, closed)
    return found


def _untouched(
    values: FloatArray, families: _Families, first: IntArray, last: IntArray, times: FloatArray | None = None
) -> FloatArray:
    """The sum of ``values``, or of these ``times`` others, over every family's children that are not touched."""
    sizes = last - first
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    members = np.arange(int(sizes.sum())) - np.repeat(starts - first, sizes)
    kept = values[members] if times is None else values[members] * times[members]
    kept[np.searchsorted(members, families.children)] = 0.0
    return np.asarray(np.add.reduceat(kept, starts))


class Law(NamedTuple):
    """The error of one combination: its ``variance`` and the ``shape`` of its law."""

    variance: float
    shape: Shape


class Error(NamedTuple):
    """The error of one combination: its ``variance``, fourth ``cumulant``, and the noise of which it is the sum
    (``parts``)."""

    variance: float
    cumulant: float
    parts: list[Parts]


def law_of(found: Combination, pivots: Pivots, mix: FloatArray, copies: int = 1) -> Law:
    """The law of ``mix`` (k,) of the combinations, summed over so many ``copies`` (cells) with noise of their own."""
    return law_of_sum([error_of(found, pivots, mix, copies)], pivots.noise)


def law_of_sum(errors: list[Error], noise: KnownNoise) -> Law:
    """The law of the sum of independent errors: as `main_parts.shapes_of`."""
    variance, cumulant = sum(one.variance for one in errors), sum(one.cumulant for one in errors)
    if not 0 < variance < np.inf:
        return Law(variance, NORMAL)
    parts = Parts.together([part for one in errors for part in one.parts])
    laws = shapes_of(parts, np.array([variance]), noise, np.array([cumulant]))
    return Law(variance, laws.shapes[0])


def error_of(found: Combination, pivots: Pivots, mix: FloatArray, copies: int = 1) -> Error:
    """What the error of ``mix`` (k,) of the combinations is made of, summed over so many ``copies`` (cells).

    The noise of node i has the coefficient k_i e_i, e_root = b_0, e_c = b_c - m + (1 - k_p) e_p; that of an untouched
    child and all below it e z. Of what is not touched the mean coefficient of a level below a node is taken.
    """
    if not copies:
        return Error(0.0, 0.0, [])
    upward, tree = pivots.moments.upward, pivots.tree
    variance = copies * float(mix @ covariance(found, pivots) @ mix)
    parts: list[Parts] = []
    cumulant, level = 0.0, 0
    touched, e = np.zeros(1, np.int64), np.array([float(mix @ found.root)])

    def enter(kind: KindArray | int, number: FloatArray, coefficient: FloatArray) -> None:
        counted = np.rint(number).astype(np.int64) * copies
        some = np.flatnonzero((counted > 0) & (np.abs(coefficient) > 0))
        kinds = np.broadcast_to(kind, counted.shape)[some].astype(np.int64)
        parts.append(Parts(np.zeros(len(some), np.int64), kinds, counted[some], coefficient[some]))

    for families in (*found.families, None):
        parents = np.empty(0, np.int64) if families is None else families.parents
        own, noise = upward.own[touched] * e, pivots.cumulants(touched)
        cumulant += float((own**4) @ noise)
        enter(pivots.kind[touched], pivots.noisy[touched], own)
        # Of a node without touched children, with what lies below it.
        ends = ~np.isin(touched, parents, assume_unique=True)
        below = np.maximum(upward.cumulant[touched] - upward.own[touched] ** 4 * noise, 0.0)
        cumulant += float((e[ends] ** 4) @ below[ends])
        for lower in range(level + 1, tree.n_levels):
            number, mean = pivots.below(lower)
            enter(lower, number[touched[ends]], e[ends] * mean[touched[ends]])
        if families is None:
            break
        from_above = (1.0 - upward.own[parents]) * e[np.searchsorted(touched, parents)]
        outer = from_above - mix @ families.mean
        first, last = tree.child_offsets[parents], tree.child_offsets[parents + 1]
        cumulant += float((outer**4) @ _untouched(upward.cumulant, families, first, last))
        level, touched = families.level, families.children
        for lower in range(level, tree.n_levels):
            number, mean = pivots.below(lower)
            counted = _untouched(number, families, first, last)
            total = _untouched(number, families, first, last, mean)
            enter(lower, counted, outer * total / np.maximum(counted, 1.0))
        e = mix @ families.gap + from_above[families.place]
    return Error(variance, cumulant * copies, parts)
