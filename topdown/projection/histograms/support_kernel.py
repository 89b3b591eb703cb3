"""P x of a family on its support, compiled: query by query, without a matrix of the cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from topdown.machine.compiled import compiled
from topdown.projection.histograms.family_kernel import factor, substitute


@compiled
def apply_queries(
    x: Any, answers: Any, sizes: Any, weights: Any, single: float, classes: Any, of_class: Any, coarse: Any, into: Any
) -> None:
    """``into`` = P ``x`` (children x cells): ``single`` x, and of every query its weight times the sum over the cells
    that count in the same answer.

    ``answers`` (queries x cells): of some queries the answer of every cell, below ``sizes`` (queries,). Of the others,
    by ``classes`` of cells that count in the same answers (cells,), ``of_class`` (queries x classes): the answer of
    every class, below the number of classes; with the weights ``coarse``.
    """
    children, cells = x.shape
    n_classes = of_class.shape[1]
    sums = np.empty(max(sizes.max() if len(sizes) else 1, n_classes))
    added, moved = np.empty(n_classes), np.empty(n_classes)
    for c in range(children):
        for k in range(cells):
            into[c, k] = single * x[c, k]
        for q in range(len(sizes)):
            sums[: sizes[q]] = 0.0
            for k in range(cells):
                sums[answers[q, k]] += x[c, k]
            for k in range(cells):
                into[c, k] += weights[q] * sums[answers[q, k]]
        if n_classes:
            added[:] = 0.0
            moved[:] = 0.0
            for k in range(cells):
                added[classes[k]] += x[c, k]
            for q in range(len(coarse)):
                sums[:n_classes] = 0.0
                for j in range(n_classes):
                    sums[of_class[q, j]] += added[j]
                for j in range(n_classes):
                    moved[j] += coarse[q] * sums[of_class[q, j]]
            for k in range(cells):
                into[c, k] += moved[classes[k]]


@compiled
def factor_groups(free: Any, order: Any, starts: Any, summed: bool, factors: Any, kept: Any) -> None:
    """The factors of the equations of `fit`, group by group: of their Schur complement on the children, diag(number of
    free cells) - sum over the cells of f f' / (number of children that have it free), f their indicator.

    ``free`` (children x cells); ``order`` (cells,): the cells by group, whose groups begin at ``starts`` (groups + 1,);
    ``factors`` (groups x children x children) and ``kept`` (groups x children) are written.
    """
    children = free.shape[0]
    own = np.empty(children, np.int64)
    factors[:] = 0.0
    for g in range(len(starts) - 1):
        matrix = factors[g]
        for place in range(starts[g], starts[g + 1]):
            k, count = order[place], 0
            for c in range(children):
                if free[c, k]:
                    own[count] = c
                    matrix[c, c] += 1.0
                    count += 1
            if summed:
                for i in range(count):
                    for j in range(i + 1):
                        matrix[own[i], own[j]] -= 1.0 / count
        factor(matrix, kept[g])


@compiled
def fit(
    sums: Any,
    answers: Any,
    free: Any,
    order: Any,
    starts: Any,
    summed: bool,
    factors: Any,
    kept: Any,
    of_cell: Any,
    of_group: Any,
) -> None:
    """Add to ``of_cell`` (cells,) and ``of_group`` (children x groups) such a and b that the array of a_k + b_cg on the
    free cells k of group g has ``sums`` over the children (cells,), where ``summed``, and ``answers`` over the cells
    of every group (children x groups)."""
    children = free.shape[0]
    right = np.empty(children)
    for g in range(len(starts) - 1):
        right[:] = answers[:, g]
        if summed:
            for place in range(starts[g], starts[g + 1]):
                k, count = order[place], 0
                for c in range(children):
                    count += free[c, k]
                for c in range(children):
                    if free[c, k]:
                        right[c] -= sums[k] / count
        substitute(factors[g], kept[g], right)
        of_group[:, g] += right
        if summed:
            for place in range(starts[g], starts[g + 1]):
                k, count, left = order[place], 0, sums[order[place]]
                for c in range(children):
                    if free[c, k]:
                        count += 1
                        left -= right[c]
                if count:
                    of_cell[k] += left / count


@compiled
def centre(x: Any, free: Any, tied: bool) -> None:
    """Set ``x`` (children x cells) to 0 where not ``free``, and where ``tied`` subtract from every cell its mean over
    the children that have it free, so that its sum is 0."""
    children, cells = x.shape
    for k in range(cells):
        total, count = 0.0, 0
        for c in range(children):
            if free[c, k]:
                total += x[c, k]
                count += 1
        mean = total / count if tied and count else 0.0
        for c in range(children):
            x[c, k] = x[c, k] - mean if free[c, k] else 0.0


@compiled
def agreement(answers: Any, pattern: Any) -> None:
    """``pattern`` (cells x cells): for two cells the queries, as bits, to which both count in the same answer."""
    queries, cells = answers.shape
    for k in range(cells):
        for j in range(k + 1):
            found = 0
            for q in range(queries):
                if answers[q, k] == answers[q, j]:
                    found |= 1 << q
            pattern[k, j] = found
            pattern[j, k] = found
