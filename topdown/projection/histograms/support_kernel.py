"""P x of a family on its support, and the directions in which its free cells may change, compiled.

Nothing is a matrix over the cells, and what is free is held as *entries*, child after child, each a cell: most cells of
most children are 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from topdown.machine.compiled import compiled
from topdown.projection.histograms.family_kernel import factor, invert

_NOTHING = 1e-14
"""What rounding leaves of a slope, as a part of it."""


@compiled
def apply_queries(
    x: Any, starts: Any, cells: Any, answers: Any, begins: Any, weights: Any, single: float, into: Any
) -> None:
    """``into`` = P ``x`` (entries,): ``single`` x, and of every query its weight times the sum over the entries of the
    same child that count in the same answer.

    ``starts`` (children + 1,): where the entries of every child begin; ``cells`` (entries,): the cell of each;
    ``answers`` (cells x queries): its answers, among those of all queries, which begin at ``begins`` (queries + 1,).
    """
    sums, queries = np.zeros(begins[-1]), len(weights)
    for c in range(len(starts) - 1):
        first, end = starts[c], starts[c + 1]
        for q in range(queries):
            if begins[q + 1] - begins[q] < 4 * (end - first):
                sums[begins[q] : begins[q + 1]] = 0.0
            else:
                for e in range(first, end):
                    sums[answers[cells[e], q]] = 0.0
        for e in range(first, end):
            own, value = answers[cells[e]], x[e]
            for q in range(queries):
                sums[own[q]] += value
        for e in range(first, end):
            own, found = answers[cells[e]], single * x[e]
            for q in range(queries):
                found += weights[q] * sums[own[q]]
            into[e] = found


@compiled
def coarse_inverse(cells: Any, answers: Any, roots: Any, diagonal: float, inverse: Any) -> None:
    """``inverse`` = (I + R M R)^-1 of M, the numbers of ``cells`` / ``diagonal`` that count in both of two answers, and
    R = ``roots`` (answers,) on its diagonal. ``answers`` (queries x cells): the answers in which a cell counts."""
    inverse[:] = 0.0
    for k in cells:
        for q in range(len(answers)):
            one = answers[q, k]
            for p in range(len(answers)):
                other = answers[p, k]
                inverse[one, other] += roots[one] * roots[other] / diagonal
    for one in range(len(roots)):
        inverse[one, one] += 1.0
    invert(inverse)


@compiled
def coarse_solve(vector: Any, cells: Any, answers: Any, roots: Any, diagonal: float, inverse: Any, into: Any) -> None:
    """``into`` = the solution of (diagonal + B' R R B) x = ``vector`` (cells,), with B the sums over the cells of every
    answer, and what `coarse_inverse` takes and gives."""
    sums = np.zeros(len(roots))
    for q in range(len(answers)):
        for e in range(len(cells)):
            sums[answers[q, cells[e]]] += vector[e]
    pushed = roots * (inverse @ (roots * sums / diagonal))
    for e in range(len(cells)):
        back = vector[e]
        for q in range(len(answers)):
            back -= pushed[answers[q, cells[e]]]
        into[e] = back / diagonal


@compiled
def centre(x: Any, sum_of: Any, count: Any) -> None:
    """Subtract from every entry of ``x`` the mean of all entries of its sum, of which there are ``count`` (sums,)."""
    total = np.zeros(len(count))
    for e in range(len(sum_of)):
        total[sum_of[e]] += x[e]
    for e in range(len(sum_of)):
        x[e] -= total[sum_of[e]] / count[sum_of[e]]


@compiled
def factor_groups(children: Any, order: Any, ends: Any, bounds: Any, factors: Any, kept: Any) -> None:
    """The factors of the equations of `fit`, group by group: of their Schur complement on the children, diag(number of
    entries) - sum over the cells of f f' / (number of the cell's entries), f the indicator of its children.

    ``children`` (entries,): the child of each; ``order`` (entries,): the entries by group and cell; ``ends`` (cells +
    1,): where those of every cell begin in it, the cells by group, whose groups begin at ``bounds`` (groups + 1,) among
    them. ``factors`` (groups x children x children) and ``kept`` (groups x children) are written.
    """
    factors[:] = 0.0
    for g in range(len(bounds) - 1):
        matrix = factors[g]
        for k in range(bounds[g], bounds[g + 1]):
            count = ends[k + 1] - ends[k]
            for i in range(ends[k], ends[k + 1]):
                one = children[order[i]]
                matrix[one, one] += 1.0
                for j in range(ends[k], i + 1):
                    matrix[one, children[order[j]]] -= 1.0 / count
        factor(matrix, kept[g])


@compiled
def _substitute(lower: Any, kept: Any, vector: Any) -> None:
    """Solve with a `factor`, in place; only children that are ``kept`` are not 0, and few of them are."""
    found = np.empty(len(kept))
    for i in range(len(kept)):
        row, left = lower[kept[i]], vector[kept[i]]
        for j in range(i):
            left -= row[kept[j]] * found[j]
        found[i] = left / row[kept[i]]
    vector[:] = 0.0
    for i in range(len(kept) - 1, -1, -1):
        row = lower[kept[i]]
        found[i] /= row[kept[i]]
        for j in range(i):
            found[j] -= row[kept[j]] * found[i]
        vector[kept[i]] = found[i]


@compiled
def _fit_group(
    g: int,
    sums: Any,
    right: Any,
    children: Any,
    order: Any,
    ends: Any,
    bounds: Any,
    factors: Any,
    kept: Any,
    of_cell: Any,
) -> None:
    """`fit` for one group: ``right`` (children,) has the answers before and b after."""
    for k in range(bounds[g], bounds[g + 1]):
        count = ends[k + 1] - ends[k]
        for i in range(ends[k], ends[k + 1]):
            right[children[order[i]]] -= sums[k] / count
    _substitute(factors[g], np.flatnonzero(kept[g]), right)
    for k in range(bounds[g], bounds[g + 1]):
        left = sums[k]
        for i in range(ends[k], ends[k + 1]):
            left -= right[children[order[i]]]
        if ends[k + 1] > ends[k]:
            of_cell[k] += left / (ends[k + 1] - ends[k])


@compiled
def fit(
    sums: Any,
    answers: Any,
    children: Any,
    order: Any,
    ends: Any,
    bounds: Any,
    factors: Any,
    kept: Any,
    of_cell: Any,
    of_group: Any,
) -> None:
    """Add to ``of_cell`` (cells by group,) and ``of_group`` (children x groups) such a and b that a_k + b_cg on the
    entries of the cells k of group g has ``sums`` over the children (cells by group,) and ``answers`` over the cells of
    every group (children x groups)."""
    right = np.empty(len(answers))
    for g in range(len(bounds) - 1):
        right[:] = answers[:, g]
        _fit_group(g, sums, right, children, order, ends, bounds, factors, kept, of_cell)
        of_group[:, g] += right


@compiled
def centre_groups(x: Any, children: Any, order: Any, ends: Any, bounds: Any, factors: Any, kept: Any) -> None:
    """Subtract from the entries ``x`` the a_k + b_cg that has the sums of ``x``, as `fit` finds them."""
    right, sums, of_cell = np.empty(factors.shape[1]), np.empty(len(ends) - 1), np.zeros(len(ends) - 1)
    for g in range(len(bounds) - 1):
        right[:] = 0.0
        for k in range(bounds[g], bounds[g + 1]):
            sums[k] = 0.0
            for i in range(ends[k], ends[k + 1]):
                own = x[order[i]]
                sums[k] += own
                right[children[order[i]]] += own
        _fit_group(g, sums, right, children, order, ends, bounds, factors, kept, of_cell)
        for k in range(bounds[g], bounds[g + 1]):
            for i in range(ends[k], ends[k + 1]):
                x[order[i]] -= of_cell[k] + right[children[order[i]]]


@compiled
def shift_multipliers(
    slope: Any, free: Any, allowed: Any, cells: Any, bounds: Any, of_cell: Any, of_group: Any
) -> None:
    """Shift the multipliers of `fit`, ``of_cell`` (cells,) and ``of_group`` (children x groups), where the free entries
    leave them open, so that no ``slope`` (children x cells) of an ``allowed`` entry that is not ``free`` is below them.

    The children and cells of a group that free entries connect are one part, in which all a_k may rise by as much as
    all b_c fall. Rises t with t(part of k) - t(part of c) <= slope - a_k - b_c are found as shortest paths (Bellman
    1958); where there are none, since a cycle of entries would lower the objective, some slopes stay below. ``cells``:
    by group, whose groups begin at ``bounds`` (groups + 1,).
    """
    children = len(free)
    for g in range(len(bounds) - 1):
        own = cells[bounds[g] : bounds[g + 1]]
        part = np.arange(children + len(own))
        for i in range(len(own)):
            for c in range(children):
                if free[c, own[i]]:
                    one, other = c, children + i
                    while part[one] != one:
                        part[one] = part[part[one]]
                        one = part[one]
                    while part[other] != other:
                        part[other] = part[part[other]]
                        other = part[other]
                    part[max(one, other)] = min(one, other)
        for node in range(len(part)):
            part[node] = part[part[node]]  # a part's number is its least, and lower ones are done
        rise = np.zeros(len(part))
        for _ in range(children):
            changed = False
            for i in range(len(own)):
                k, mine = own[i], part[children + i]
                for c in range(children):
                    theirs = part[c]
                    if mine != theirs and allowed[c, k] and not free[c, k]:
                        most = rise[theirs] + slope[c, k] - of_cell[k] - of_group[c, g]
                        if rise[mine] > most + _NOTHING * abs(slope[c, k]):
                            rise[mine] = most
                            changed = True
            if not changed:
                break
        for i in range(len(own)):
            of_cell[own[i]] += rise[part[children + i]]
        for c in range(children):
            of_group[c, g] -= rise[part[c]]


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
