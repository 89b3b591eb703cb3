"""The error of least squares on a tree, node by node: its variance, its fourth cumulant, and its largest terms.

x_i - truth_i is a fixed linear combination of independent noise e, whatever the truth is: the pivot of every margin. A
node's estimate is x = alpha z + (1 - alpha) m, where z is the estimate from what was measured at and below it and m the
estimate from all the rest; so two passes over the tree give the pivot's moments in O(nodes).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import Families, FloatArray, IntArray, Tree
from topdown.projection.cells.equality import open_leaves, upward_gains
from topdown.uncertainty.laws.known_noise import AnswerNoise, KindArray
from topdown.uncertainty.laws.shared_laws import FEW_NODES, LawGroups, groups

NO_NOISE = 1e-20
"""A variance in counts^2 so small that the noise never changes a whole number: such counts are exact."""

MAIN_TERMS = 3
_LARGEST_SUM = 4
"""The most draws of a main term in a large tree; sums of more draws are smooth."""


class Upward(NamedTuple):
    """The upward estimate z of every node, each (nodes,): ``own`` k, the weight of its own measurement; ``variance`` u,
    inf where what is below is undetermined; ``cumulant``, the fourth of z less truth.
    """

    own: FloatArray
    variance: FloatArray
    cumulant: FloatArray


class Moments(NamedTuple):
    """The pivot x - truth of every node, each (nodes,): ``variance`` (inf: undetermined), fourth ``cumulant``,
    ``inner``, the weight alpha of what was measured at and below the node, and ``parent``, the coefficient of the
    parent's own noise. ``upward``: what the inner part consists of.
    """

    variance: FloatArray
    cumulant: FloatArray
    inner: FloatArray
    parent: FloatArray
    upward: Upward


def moments(variance: FloatArray, cumulant: FloatArray, tree: Tree) -> Moments:
    """The moments of every node's pivot, from the noise's ``variance`` and fourth ``cumulant`` (both (nodes,)).

    Variances of 0 (exact) and inf (not measured) are limits; `least_squares_variance` is the same variance. Derived
    from independence of z and m: tau^2 = variance of m, alpha = tau^2 / (tau^2 + u).
    """
    below = upward_moments(variance, cumulant, tree)
    outer, outer_cumulant, parent = _downward(variance, cumulant, below, tree)
    with np.errstate(invalid="ignore", divide="ignore"):
        inner = np.where(
            np.isinf(below.variance), 0.0, np.where(np.isinf(outer), 1.0, outer / (outer + below.variance))
        )
        inner = np.where((outer == 0) & (below.variance == 0), 1.0, inner)
        spread = np.where(np.isinf(below.variance), outer, inner * below.variance)
    rest = 1.0 - inner
    found = inner**4 * below.cumulant + rest**4 * np.where(rest > 0, outer_cumulant, 0.0)
    return Moments(spread, np.where(np.isfinite(spread), found, 0.0), inner, rest * parent, below)


def upward_moments(variance: FloatArray, cumulant: FloatArray, tree: Tree) -> Upward:
    """The moments of z less truth: kz = (1 - k)^4 (the children's sum of kz) + k^4 (the noise's)."""
    gains = upward_gains(variance, tree)
    open_ends = open_leaves(variance, tree)
    spread = gains.variance if open_ends is None else np.where(open_ends > 0, np.inf, gains.variance)
    measured = np.isfinite(variance)
    own = np.empty(tree.n_nodes)
    own[: tree.n_families] = gains.own
    own[tree.leaves] = measured[tree.leaves]
    found = np.where(measured, cumulant, 0.0)
    for families in tree.families_up():
        k = own[families.parents]
        pooled = families.total(found[families.children])
        found[families.parents] = (1.0 - k) ** 4 * pooled + k**4 * np.where(
            measured[families.parents], cumulant[families.parents], 0.0
        )
    return Upward(own, spread, found)


def _downward(
    variance: FloatArray, cumulant: FloatArray, below: Upward, tree: Tree
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Variance tau^2 (inf where nothing was measured outside) and fourth cumulant of m, and the coefficient in it of
    the parent's own noise, each (nodes,).
    """
    outer, found, parent = np.full(tree.n_nodes, np.inf), np.zeros(tree.n_nodes), np.zeros(tree.n_nodes)
    for families in tree.families_down():
        v, t = variance[families.parents], outer[families.parents]
        with np.errstate(invalid="ignore", divide="ignore"):
            weight = np.where(np.isinf(v), 0.0, np.where(np.isinf(t) | (v == 0), 1.0, t / (t + v)))
        known = np.where(np.isinf(v), t, np.where(weight > 0, weight, 0.0) * np.where(np.isinf(v), 0.0, v))
        above = weight**4 * cumulant[families.parents] + (1.0 - weight) ** 4 * found[families.parents]
        u, kz = below.variance[families.children], below.cumulant[families.children]
        parent[families.children] = families.spread(weight)
        is_open = np.isinf(u)
        finite = np.where(is_open, 0.0, u)
        others_open = families.spread(families.total(is_open.astype(np.int64))) - is_open
        siblings = _others(finite, families)
        outer[families.children] = np.where(others_open > 0, np.inf, families.spread(known) + siblings)
        found[families.children] = families.spread(above) + _others(np.where(is_open, 0.0, kz), families)
    return outer, found, parent


def _others(values: FloatArray, families: Families) -> FloatArray:
    """For every child the sum over its siblings."""
    is_single = families.counted == 1
    return np.where(families.spread(is_single), 0.0, np.maximum(families.spread(families.total(values)) - values, 0.0))


class MainTerms(NamedTuple):
    """The three largest independent parts of every pivot whose law is known exactly, each (3, nodes), of a large tree
    (1, nodes): ``coefficient`` x
    the sum of ``number`` draws of the ``kind`` of noise; coefficient 0 where there is none. ``explained``: their parts
    of the variance, in counts^2.
    """

    kind: IntArray
    number: IntArray
    coefficient: FloatArray
    explained: FloatArray


NodeLaws: TypeAlias = tuple[FloatArray, LawGroups]
"""The variance of every node's estimate (nodes,), the same in every cell, and the shapes of their laws."""


def laws_of_nodes(noise: AnswerNoise) -> NodeLaws:
    """The laws of the errors of least squares where the cells alone were measured."""
    alike, few = noise.alike()
    (query,) = few.queries
    variance, kind = (np.concatenate([level[query] for level in levels]) for levels in (few.variance, few.kind))
    found = moments(variance, few.known.cumulants[kind], few.tree)
    found = found._replace(variance=np.where(found.variance <= NO_NOISE, 0.0, found.variance))
    most = np.array([level[query] for level in few.most])
    laws = groups(found, main_terms(found, variance, few.known.variances, few.tree, kind, most), few.known)
    return alike.everywhere(found.variance), laws._replace(group=alike.everywhere(laws.group))


def main_terms(
    found: Moments,
    variance: FloatArray,
    kind_variance: FloatArray,
    tree: Tree,
    kind: KindArray | None = None,
    most: IntArray | None = None,
) -> MainTerms:
    """For every node the three largest of these parts: the noise of its own measurement, h = alpha k; its parent's; its
    siblings'; that of its descendants at one level. The coefficients within a set are nearly equal where it dominates;
    their mean is taken. An only child has its parent's pivot, and so its parent's terms.

    ``kind`` (nodes,): of the noise; sums are over the nodes of a level with the level's most frequent kind, ``most``
    (levels,). Both are by default the number of the level. ``kind_variance`` (kinds,): 0 or inf where there is no
    noise. In trees of more than `FEW_NODES` nodes only the largest part is found, of four draws at most.
    """
    most = np.arange(tree.n_levels) if most is None else most
    of_most = np.repeat(most.astype(np.int32), np.diff(tree.level_offsets))
    kind = of_most if kind is None else kind
    noisy = (variance > 0) & np.isfinite(variance)
    like = noisy & (kind == of_most)
    usable = np.where(np.isfinite(kind_variance), kind_variance, 0.0)
    shape = (MAIN_TERMS if tree.n_nodes <= FEW_NODES else 1, tree.n_nodes)
    terms = MainTerms(np.zeros(shape, np.int64), np.ones(shape, np.int64), np.zeros(shape), np.zeros(shape))
    own = np.where(noisy, found.upward.own, 0.0)
    rest = np.where(found.inner < 1.0, 1.0 - found.inner, 0.0)
    for level in range(tree.n_levels):
        nodes = tree.level(level)
        _enter(terms, nodes, kind[nodes], noisy[nodes].astype(np.int64), found.inner[nodes] * own[nodes], usable)
        if level:
            families = tree.families(level - 1)
            siblings = families.spread(families.total(like[nodes].astype(np.int64))) - like[nodes]
            theirs = rest[nodes] * _others(np.where(like, own, 0.0)[nodes], families) / np.maximum(siblings, 1)
            _enter(terms, nodes, of_most[nodes], siblings, theirs, usable)
            above = families.spread(noisy[families.parents].astype(np.int64))
            _enter(terms, nodes, families.spread(kind[families.parents]), above, found.parent[nodes], usable)
        counted, mean = (one[: nodes.start] for one in descendants(found.upward.own, like[nodes], level, tree))
        above_it, of_level = slice(0, nodes.start), np.full(nodes.start, most[level], np.int32)
        _enter(terms, above_it, of_level, counted.astype(np.int64), found.inner[above_it] * mean, usable)
    for families in tree.families_down():
        single = np.flatnonzero(families.counted == 1)
        for column in terms:
            children = families.starts[single] + families.children.start
            column[:, children] = column[:, single + families.parents.start]
    return terms


def _enter(
    terms: MainTerms, nodes: slice, kind: KindArray, number: IntArray, coefficient: FloatArray, variance: FloatArray
) -> None:
    """Insert a candidate among the largest parts of ``nodes``."""
    new: tuple[KindArray | IntArray | FloatArray, ...] = (
        kind,
        number,
        coefficient,
        number * coefficient**2 * variance[kind],
    )
    is_small = len(terms.kind) == MAIN_TERMS
    if not is_small:
        new[3][number > _LARGEST_SUM] = 0.0
    for place in range(MAIN_TERMS if is_small else 1):
        larger = new[3] > terms.explained[place, nodes]
        # The part that it replaces is a candidate for the next place.
        there = [column[place, nodes] for column in terms]
        moved = tuple(np.where(larger, old, one) for old, one in zip(there, new, strict=True))
        for old, one in zip(there, new, strict=True):
            old[...] = np.where(larger, one, old)
        new = moved


def descendants(own: FloatArray, noisy: npt.NDArray[np.bool_], level: int, tree: Tree) -> tuple[FloatArray, FloatArray]:
    """For every node down to ``level``: the number of ``noisy`` nodes of ``level`` below it, itself included, and the
    mean coefficient of their noise in its upward estimate; both (nodes down to ``level``,). ``own``: as in `Upward`.
    """
    nodes = tree.level(level)
    total, counted = np.zeros(nodes.stop), np.zeros(nodes.stop)
    counted[nodes] = noisy
    total[nodes] = np.where(noisy, own[nodes], 0.0)
    for index in range(level - 1, -1, -1):
        families = tree.families(index)
        counted[families.parents] = families.total(counted[families.children])
        total[families.parents] = (1.0 - own[families.parents]) * families.total(total[families.children])
    return counted, total / np.maximum(counted, 1.0)
