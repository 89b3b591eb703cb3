"""Least squares on a tree of small vectors: a block of a workload that does not split into scalars.

Every node has an unknown vector (m,), a family's vectors add up, and at a node linear measurements b'x of it were made
with their variances. The estimate of a vector is a mean z and a covariance ``finite`` + kappa ``diffuse`` with kappa
going to infinity: ``diffuse`` holds the directions that were not measured. Measurements are processed one at a time by
the exact initial Kalman filter (Koopman, Durbin 2000, "Fast Filtering and Smoothing for Multivariate State Space
Models"), which handles variances of 0 (exact) and unmeasured directions without dividing by 0 and without a large
number in place of infinity; sums over families and the downward pass are the limits of the usual formulas.

Arrays have nodes first: vectors (nodes, copies, m), one covariance (nodes, m, m) for all copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from topdown.geography.tree import Families, FloatArray, IntArray, Tree
from topdown.projection.invariants import Contradiction

_NOTHING = 1e-11
"""A direction with less than this part of a covariance's size has a variance of 0; rounding leaves about 1e-15."""

_INDEPENDENT = 1e-9
"""Rows below this part of the largest strength depend on other rows."""

_CONTRADICTION = 1e-6
"""Exact values may disagree by this much, in counts; two whole numbers that differ do by more."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Linear measurements at the nodes of one level: ``rows`` (k, m), ``values`` (nodes, copies, k), ``variance``
    (nodes, k), 0 for an exact value and inf for one that was not made.
    """

    rows: FloatArray
    values: FloatArray
    variance: FloatArray


@dataclass(eq=False)
class Known:
    """Estimates of the vectors of some nodes: mean (nodes, copies, m), covariances (nodes, m, m). ``scale`` (nodes,):
    the size of the variances that were used; a covariance below its rounding is 0.
    """

    mean: FloatArray
    finite: FloatArray
    diffuse: FloatArray
    scale: FloatArray

    @classmethod
    def nothing(cls, nodes: int, copies: int, size: int) -> Known:
        """Estimates without any information."""
        eye = np.broadcast_to(np.eye(size), (nodes, size, size))
        return cls(np.zeros((nodes, copies, size)), np.zeros((nodes, size, size)), np.array(eye), np.zeros(nodes))

    @classmethod
    def together(cls, pieces: Sequence[Known]) -> Known:
        """The estimates of several pieces, one after another."""
        return cls(*(np.concatenate([getattr(one, part) for one in pieces]) for part in PARTS))

    def totals(self, families: Families) -> Known:
        """The estimates of the sums of ``families``, whose children these are."""
        return Known(*(families.total_rows(getattr(self, part)) for part in PARTS))


PARTS = ("mean", "finite", "diffuse", "scale")


@dataclass(frozen=True, eq=False)
class Spread:
    """How errors propagate down a tree: a child's error is ``gain`` x its parent's plus a rest that is correlated with
    its siblings' rests. ``levels``: by level the estimate of every node from measurements at and below it; ``sums``: by
    level but the last that of every family's sum; ``gains``: by level but the first (nodes, m, m).
    """

    levels: list[Known]
    sums: list[Known]
    gains: list[FloatArray]


def independent(rows: FloatArray, values: FloatArray, variance: FloatArray) -> Measured:
    """Answers as independent measurements of the span of their rows, with one ``variance`` (nodes,). ``rows`` (k, m),
    ``values`` (nodes, copies, k). The rotation does not change the noise.
    """
    left, strength, right = np.linalg.svd(rows, full_matrices=False)
    kept = strength > _INDEPENDENT * strength[0]
    return Measured(
        strength[kept, None] * right[kept],
        values @ left[:, kept],
        np.repeat(variance[:, None], int(kept.sum()), axis=1),
    )


def update(known: Known, measured: Measured, first: int) -> None:
    """Update ``known`` by ``measured``, in place. ``first``: the number of its first node, for `Contradiction`.

    Covariances do not depend on the values: those of consecutive nodes that are equal are updated once.
    """
    begins, run = equal_runs([known.finite, known.diffuse, known.scale, measured.variance])
    finite, diffuse, scale = known.finite[begins], known.diffuse[begins], known.scale[begins]
    start = np.trace(diffuse, axis1=1, axis2=2)
    eye = np.eye(known.mean.shape[-1])
    for k, row in enumerate(measured.rows):
        v = measured.variance[begins, k]
        made = np.isfinite(v)
        if not made.any():
            continue
        length = float(row @ row)
        scale = np.maximum(scale, np.trace(finite, axis1=1, axis2=2))
        towards, open_towards = finite @ row, diffuse @ row
        spread, open_spread = towards @ row, open_towards @ row
        is_open = made & (open_spread > _NOTHING * length * start)
        total = np.where(made, spread + v, 1.0)
        is_closed = made & ~is_open & (total > _NOTHING * length * scale * (v == 0))
        gain = np.where(is_open[:, None], open_towards / np.where(is_open, open_spread, 1.0)[:, None], 0.0)
        gain = np.where(is_closed[:, None], towards / np.where(is_closed, total, 1.0)[:, None], gain)
        gap = measured.values[:, :, k] - known.mean @ row
        if not made.all():
            gap = np.where(made[run, None], gap, 0.0)
        settled = made & ~is_open & ~is_closed
        if settled.any():
            wrong = settled[run] & (np.abs(gap).max(axis=1, initial=0.0) > _CONTRADICTION * (1 + np.abs(row).sum()))
            if wrong.any():
                raise Contradiction(first + int(np.argmax(wrong)), "its exact values contradict each other")
        known.mean += gap[:, :, None] * gain[run, None, :]
        left = eye - gain[:, :, None] * row
        noise = np.where(made, v, 0.0)[:, None, None] * gain[:, :, None] * gain[:, None, :]
        finite = left @ finite @ left.transpose(0, 2, 1) + noise
        diffuse = left @ diffuse @ left.transpose(0, 2, 1)
        scale = np.maximum(scale, np.where(made, v, 0.0) / length)
        gone = np.trace(diffuse, axis1=1, axis2=2) <= _NOTHING * start
        diffuse[gone] = 0.0
    known.finite, known.diffuse, known.scale = finite[run], diffuse[run], scale[run]


def equal_runs(tables: Sequence[FloatArray]) -> tuple[IntArray, IntArray]:
    """Runs of consecutive nodes with equal ``tables``, (nodes, ...) each: where they begin, and every node's run."""
    differs = np.zeros(len(tables[0]), np.bool_)
    differs[:1] = True
    for table in tables:
        differs[1:] |= (table[1:] != table[:-1]).any(axis=tuple(range(1, table.ndim)))
    return np.flatnonzero(differs), np.cumsum(differs) - 1


def inverse(matrix: FloatArray, scale: FloatArray | float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Pseudo-inverses of symmetric matrices (n, m, m), and the projectors onto their null spaces. ``scale`` (n,): the
    size of the terms that they were computed from, where these may be larger.
    """
    values, vectors = np.linalg.eigh(matrix)
    kept = values > _NOTHING * np.maximum(np.maximum(values[:, -1], 0.0), scale)[:, None]
    inverted = np.where(kept, 1.0 / np.where(kept, values, 1.0), 0.0)
    return (vectors * inverted[:, None, :]) @ vectors.transpose(0, 2, 1), (
        vectors * (~kept)[:, None, :]
    ) @ vectors.transpose(0, 2, 1)


def _regression(children: Known, total: Known, families: Families) -> FloatArray:
    """The regression of every child on its family's sum: cov(child, sum) cov(sum)^-1 in the limit; (children, m, m).
    With N the diffuse and U the finite covariance of the sum, split by the directions in which N is not 0 (o) and 0
    (c): n N^-1 on o, (u - n N^-1 U_oc) U_cc^-1 on c.
    """
    if not total.diffuse.any():
        inverted, _ = inverse(total.finite, total.scale)
        return np.asarray(children.finite @ np.repeat(inverted, families.sizes, axis=0))
    open_inverse, closed = inverse(total.diffuse)
    inverted, _ = inverse(closed @ total.finite @ closed, total.scale)
    towards_open = children.diffuse @ np.repeat(open_inverse, families.sizes, axis=0)
    rest = children.finite - towards_open @ np.repeat(total.finite, families.sizes, axis=0)
    return np.asarray(towards_open + rest @ np.repeat(closed @ inverted, families.sizes, axis=0))


def _conditioned(children: Known, total: Known, parents: Known, families: Families, gain: FloatArray) -> Known:
    """The children given their parents: each moved by its part of the difference between the parent and the sum."""
    gap = np.repeat(parents.mean - total.mean, families.sizes, axis=0)
    mean = children.mean + gap @ gain.transpose(0, 2, 1)
    stay = np.eye(gain.shape[-1]) - gain

    def spread(own: FloatArray, summed: FloatArray, above: FloatArray) -> FloatArray:
        others = np.repeat(summed, families.sizes, axis=0) - own + np.repeat(above, families.sizes, axis=0)
        return np.asarray(stay @ own @ stay.transpose(0, 2, 1) + gain @ others @ gain.transpose(0, 2, 1))

    diffuse = np.zeros_like(children.diffuse)
    if children.diffuse.any() or parents.diffuse.any():
        diffuse = spread(children.diffuse, total.diffuse, parents.diffuse)
        start = np.trace(children.diffuse, axis1=1, axis2=2)
        diffuse[np.trace(diffuse, axis1=1, axis2=2) <= _NOTHING * np.maximum(start, 1.0)] = 0.0
    return Known(mean, spread(children.finite, total.finite, parents.finite), diffuse, children.scale)


def solve(
    tree: Tree, measured: list[list[Measured]], copies: int, size: int, *, upward: bool, start: int | None = None
) -> Known:
    """The least-squares estimate of every node's vector, with its covariance; (nodes, ...). ``measured``: by level,
    root first. ``upward``: whether measurements below a node are used for it (whole-tree least squares); without,
    families are projected one by one from the root. ``start``: of an upward pass the level where it starts, that of the
    leaves by default; families below it are projected one by one. Where the measurements leave a direction undetermined
    the children share the remainder by their numbers of undetermined leaves, as in `equality.least_squares`. Raises
    `Contradiction` for exact values that no table has.
    """
    starts = _starts(tree, measured, copies, size, 0 if not upward else tree.n_levels - 1 if start is None else start)
    levels, sums = _upward(tree, measured, copies, size, starts)
    found = [levels[0]]
    for index in range(tree.n_levels - 1):
        families, below = tree.families(index), levels[index + 1]
        gain = _regression(below, sums[index], families)
        found.append(_conditioned(below, sums[index], found[index], families, gain))
    return Known.together(found)


def spread(tree: Tree, measured: list[list[Measured]], size: int, start: int | None = None) -> Spread:
    """How the errors of whole-tree least squares, or of least squares whose upward pass starts at level ``start``,
    propagate down the tree; from measurements without copies.
    """
    starts = _starts(tree, measured, 0, size, tree.n_levels - 1 if start is None else start)
    levels, sums = _upward(tree, measured, 0, size, starts)
    gains = [_regression(levels[k + 1], sums[k], tree.families(k)) for k in range(tree.n_levels - 1)]
    return Spread(levels, sums, gains)


def settled(tree: Tree, spread: Spread) -> list[Known]:
    """By level the estimate of every node from all measurements."""
    found = [spread.levels[0]]
    for index, gain in enumerate(spread.gains):
        found.append(
            _conditioned(spread.levels[index + 1], spread.sums[index], found[index], tree.families(index), gain)
        )
    return found


def _starts(tree: Tree, measured: list[list[Measured]], copies: int, size: int, lowest: int) -> list[Known | None]:
    """The initial estimates of nodes that only use their own answers: those of the level ``lowest`` and below it. None
    at other levels.
    """
    if lowest == tree.n_levels - 1:
        return [None] * tree.n_levels
    settled = _settled(tree, measured, copies, size)
    return [one if index >= lowest else None for index, one in enumerate(settled)]


def _upward(
    tree: Tree, measured: list[list[Measured]], copies: int, size: int, starts: list[Known | None]
) -> tuple[list[Known], list[Known]]:
    """The estimates of every level's nodes, and of the sums of every level's families, root first. A node starts from
    its children's sum, or from ``starts`` of its level.
    """
    levels: list[Known] = []
    sums: list[Known] = []
    for index in range(tree.n_levels - 1, -1, -1):
        nodes = tree.level(index)
        known = Known.nothing(nodes.stop - nodes.start, copies, size)
        if levels:
            total = levels[-1].totals(tree.families(index))
            sums.append(total)
            known = Known(*(np.array(getattr(total, part)) for part in PARTS))
        begin = starts[index]
        if begin is not None:
            known = begin
        for one in measured[index]:
            update(known, one, nodes.start)
        levels.append(known)
    return levels[::-1], sums[::-1]


def _settled(tree: Tree, measured: list[list[Measured]], copies: int, size: int) -> list[Known]:
    """The exact values at and below every node, without noisy measurements. Family by family a parent is determined
    before its children, and its value must be one that they can add up to.
    """
    exact = [[Measured(m.rows, m.values, np.where(m.variance == 0, 0.0, np.inf)) for m in level] for level in measured]
    if not any((one.variance == 0).any() for level in exact for one in level):
        return [Known.nothing(len(tree.parent[tree.level(k)]), copies, size) for k in range(tree.n_levels)]
    levels, _ = _upward(tree, exact, copies, size, [None] * tree.n_levels)
    for known in levels:
        known.diffuse = np.eye(size) - inverse(known.diffuse)[1]
    return levels
