"""Weighted sums of least-squares estimates over any nodes: their variance, covariance, fourth cumulant and law.

On the way down x_c = g_c x_p + r_c, r of different families uncorrelated, cov(r_c, r_d) = u_c [c = d] - u_c u_d / V.
So a sum over nodes at mixed levels costs what its nodes and their ancestors cost, whatever the size of the tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.uncertainty.error_law import Shape, Term
from topdown.uncertainty.known_noise import KindArray, KnownNoise, fourth_cumulant
from topdown.uncertainty.moments import MAIN_TERMS, Moments

_LEAST_PART = 1e-4
_SAME = 1e-12


class Pivots(NamedTuple):
    """What is known of every node's error: the ``tree``, the ``noise``, the measurements' ``variance`` (nodes,), the
    ``moments``, and ``noisy`` (nodes,), 1 where a measurement has noise, of which ``kind`` (nodes,).
    """

    tree: Tree
    noise: KnownNoise
    variance: FloatArray
    moments: Moments
    noisy: FloatArray
    kind: KindArray

    @classmethod
    def of(cls, tree: Tree, noise: KnownNoise, variance: FloatArray, found: Moments) -> Pivots:
        """With the marks of what is neither exact nor missing."""
        noisy = ((variance > 0) & np.isfinite(variance)).astype(np.float64)
        return cls(tree, noise, variance, found, noisy, noise.kinds(tree))

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


def _untouched(values: FloatArray, families: _Families, first: IntArray, last: IntArray) -> FloatArray:
    """The sum of ``values`` over every family's children that are not touched."""
    sizes = last - first
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    members = np.arange(int(sizes.sum())) - np.repeat(starts - first, sizes)
    kept = values[members]
    kept[np.searchsorted(members, families.children)] = 0.0
    return np.asarray(np.add.reduceat(kept, starts))


_Candidate = tuple[float, int, int, float]
"""Explained variance, kind, number, coefficient."""


class Law(NamedTuple):
    """The error of one combination: its ``variance`` and the ``shape`` of its law."""

    variance: float
    shape: Shape


def law_of(found: Combination, pivots: Pivots, mix: FloatArray, copies: int = 1) -> Law:
    """The law of ``mix`` (k,) of the combinations, summed over so many ``copies`` (cells) with noise of their own.

    The noise of node i has the coefficient k_i e_i, e_root = b_0, e_c = b_c - m + (1 - k_p) e_p; that of an untouched
    child and all below it e z. The largest terms exactly, the rest by two moments.
    """
    if not copies:
        return Law(0.0, Shape((), 0.0))
    upward = pivots.moments.upward
    variance = copies * float(mix @ covariance(found, pivots) @ mix)
    candidates: list[_Candidate] = []
    cumulant, level = 0.0, 0
    touched, e = np.zeros(1, np.int64), np.array([float(mix @ found.root)])
    for families in (*found.families, None):
        parents = np.empty(0, np.int64) if families is None else families.parents
        cumulant += _enter(candidates, pivots, touched, e)
        # Of a node without touched children, with what lies below it.
        ends = ~np.isin(touched, parents, assume_unique=True)
        own = upward.own[touched] ** 4 * pivots.cumulants(touched)
        cumulant += float((e[ends] ** 4) @ np.maximum(upward.cumulant[touched] - own, 0.0)[ends])
        if families is None:
            break
        from_above = (1.0 - upward.own[parents]) * e[np.searchsorted(touched, parents)]
        outer = from_above - mix @ families.mean
        first, last = pivots.tree.child_offsets[parents], pivots.tree.child_offsets[parents + 1]
        cumulant += float((outer**4) @ _untouched(upward.cumulant, families, first, last))
        level, touched = families.level, families.children
        if level == pivots.tree.n_levels - 1:
            counted = np.rint(_untouched(pivots.noisy, families, first, last)).astype(np.int64)
            _group(candidates, pivots, level, outer, counted)
        e = mix @ families.gap + from_above[families.place]
    return Law(variance, _shape(candidates, pivots.noise, variance, cumulant * copies, copies))


def _enter(candidates: list[_Candidate], pivots: Pivots, nodes: IntArray, e: FloatArray) -> float:
    """Put the noise of ``nodes`` with coefficients k e among the ``candidates``; its fourth cumulant."""
    own = pivots.moments.upward.own[nodes] * e
    for kind in np.unique(pivots.kind[nodes]).tolist():
        alike = pivots.kind[nodes] == kind
        _group(candidates, pivots, kind, own[alike], pivots.noisy[nodes][alike].astype(np.int64))
    return float((own**4) @ pivots.cumulants(nodes))


def _group(
    candidates: list[_Candidate],
    pivots: Pivots,
    kind: int,
    coefficient: FloatArray,
    number: IntArray,
) -> None:
    """Put terms of nearly the same coefficient together."""
    law = pivots.noise.laws[kind]
    kept = (number > 0) & (np.abs(coefficient) > 0)
    if law is None or not kept.any():
        return
    size = np.abs(coefficient[kept])
    _, place = np.unique(np.round(np.log(size), 6), return_inverse=True)
    counted = np.bincount(place, number[kept])
    mean = np.bincount(place, number[kept] * size) / counted
    explained = counted * mean**2 * float(law.variance)
    candidates += [
        (float(explained[k]), kind, int(counted[k]), float(mean[k])) for k in np.argsort(-explained)[:MAIN_TERMS]
    ]


def _shape(candidates: list[_Candidate], noise: KnownNoise, variance: float, cumulant: float, copies: int) -> Shape:
    terms: list[Term] = []
    left, rest = 1.0, cumulant
    for explained, kind, number, coefficient in sorted(candidates, reverse=True)[:MAIN_TERMS]:
        part = round(min(copies * explained / variance, left), 9) if np.isfinite(variance) and variance > 0 else 0.0
        law = noise.laws[kind]
        if part < _LEAST_PART or law is None:
            continue
        terms.append(Term(law, number * copies, part))
        left -= part
        rest -= copies * number * coefficient**4 * float(noise.cumulants[kind])
    excess = max(rest, 0.0) / (variance * left) ** 2 if variance > 0 and left > 1e-8 else 0.0
    return Shape(tuple(terms), round(excess, 6))


def joined(laws: list[Law]) -> Law:
    """The law of a sum of independent errors."""
    variance = sum(law.variance for law in laws)
    if not 0 < variance < np.inf:
        return Law(variance, Shape((), 0.0))
    terms, cumulant = [], 0.0
    for law in laws:
        cumulant += law.variance**2 * law.shape.excess * law.shape.rest**2
        terms += [term._replace(part=term.part * law.variance / variance) for term in law.shape.terms]
    terms.sort(key=lambda term: -term.part)
    for term in terms[MAIN_TERMS:]:
        cumulant += variance**2 * term.number * term.coefficient**4 * fourth_cumulant(term.law)
    shape = Shape(tuple(terms[:MAIN_TERMS]), 0.0)
    excess = cumulant / (variance * shape.rest) ** 2 if shape.rest > 1e-8 else 0.0
    return Law(variance, shape._replace(excess=round(excess, 6)))
