"""One family of histograms, non-negative: a primal-dual active set, compiled.

The program: with the parent's histogram X (cells,) held, for children c with information matrices P_c,

    min  sum_c 1/2 x_c' P_c x_c - g_c' x_c    s.t.  sum_c x_c = X,  x_c >= 0,  x_ck = 0 where not allowed,
                                                    low_cj <= rows_j' x_c <= high_cj.

Given which cells are free it is linear: x_c = H_c (g_c + l) there, H_c the inverse of P_c on the free cells, with one
multiplier l per cell of the parent, (sum_c H_c) l = X - sum_c H_c g_c. A round drops the free cells that came out
negative and adds those whose multiplier has the wrong sign, all at once (Hintermueller, Ito, Kunisch 2002, "The
primal-dual active set strategy as a semismooth Newton method"); where that makes no progress, one at a time (the backup
rule of Kunisch, Rendl 2003, "An infeasible active set method for quadratic problems with simple bounds"). If it still
cycles, it continues as a primal active set, whose objective falls with every step.

Rows at a bound are held by the method of multipliers (Hestenes, Powell 1969): a row adds a weighted term to P_c, and
its multiplier is updated by the remaining difference, which falls about a hundredfold each time; where it does not even
halve, as where noise is far above the counts, the weights grow. This also works where rows depend on each other or on
the sums, and a round may hold or release rows as it does cells. At the end the multipliers are fitted to the equations
of the cells.

P_c is given by a number per *pattern*: P_c[k, l] = table[c, pattern[k, l]], as an entry depends only on which
attributes of the two cells agree (see `patterns`).

All of it is in one long file, because the cache of compiled loops is only renewed when their own file changes, not when
a file changes whose functions they call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from topdown.machine.compiled import compiled

SOLVED, GIVEN_UP, SINGULAR = 0, 1, 2
"""How a family ended: solved; given up after too many rounds; an information matrix that is not positive definite."""

SIGN = 1e-10
"""Cells, multipliers and slacks of rows beyond this, in units of the noise, have a wrong sign."""

_ROUNDING = 2.0**-46
"""The rounding error relative to the largest term of a sum, in addition."""

_PATIENCE = 5
"""Rounds in which the number of wrong signs may fail to fall before only one is changed at a time."""

_SMALL, _SMALL_OF_MANY, _MANY = 1.0, 2.5, 256
"""Cells below this, in units of the noise, are dropped in the first guess: rounds are then smaller, and cells that were
dropped wrongly come back. With so many cells rounds take so much longer that more is dropped.
"""

_GUESSES = 8
"""The most steps of the first guess, which need not be exact."""

_GUESSED = 1e-2
"""The squared residual of a system, in units of the noise and for every cell, at which a guess is good enough."""

_MOST_ROUNDS = 150
"""Rounds of the primal-dual method before it is given up."""

_MOST_REFINEMENTS = 8
"""The most refinements of the solution of a linear system by its residuals."""

_LARGE = 96
"""Larger matrices are inverted by halves, and factored in panels of so many columns, with products by BLAS."""

_PROBED = 1e-3
"""An inverse by halves must give back a vector of numbers up to 1 with at most this error."""

_UPDATED, _CHANGED, _MOST_UPDATES = 64, 4, 10
"""From so many cells on an inverse is updated where at most one cell in so many changes, and so many times at most,
since rounding adds up."""

_HELD = 1 << 23
"""The most entries of the siblings' different information matrices that are kept at the same time. Beyond this, one
matrix is kept and each is made when it is needed, since those of thousands of siblings would take gigabytes.
"""

_WEIGHT = 1e2
"""The weight of a held row, in units of the child's largest information."""

_HEAVIER, _HEAVIEST = 10.0, 1e8
"""The factor of all weights where what held rows lack does not halve, as where noise is much larger than counts; and
the greatest weight, in the same units as `_WEIGHT`."""

_SURER = 4.0
"""A held row whose multiplier has the wrong sign is released at this part of what it may lack times its weight; at all
of that the certificate would just not hold."""

_MOST_PASSES = 100
"""So many updates of the multipliers of held rows before the rows count as contradictory."""

_NEARLY = 1e4
"""The residual of held rows that is accepted, in units of the tolerance, where it no longer falls."""

_NOTHING = 1e-14
"""A pivot below this part of its diagonal entry counts as 0: its row follows from those before it."""


# Sums and copies of parts of matrices are loops: numba's code for arrays is many times longer, and is compiled again in
# every function that leads to it.


@compiled
def _block(matrix: Any, top: int, bottom: int, left: int, right: int) -> Any:
    """A copy of the rows from ``top`` and the columns from ``left`` on of a matrix."""
    found = np.empty((bottom - top, right - left))
    for i in range(bottom - top):
        for k in range(right - left):
            found[i, k] = matrix[top + i, left + k]
    return found


@compiled
def _add(matrix: Any, times: float, other: Any) -> None:
    """Add ``other``, ``times`` a number, to a matrix."""
    for i in range(len(matrix)):
        for k in range(matrix.shape[1]):
            matrix[i, k] += times * other[i, k]


@compiled
def _equal(one: Any, other: Any) -> bool:
    """Whether two vectors are the same."""
    k = 0
    while k < len(one) and one[k] == other[k]:
        k += 1
    return k == len(one)


@compiled
def factor(matrix: Any, kept: Any) -> None:
    """The Cholesky factor of a positive semidefinite matrix, in the lower triangle of its place.

    ``kept``: the pivots that are not 0; the columns of the others are 0. Of a large matrix a panel of columns is made
    at a time, and the rest is changed by products of BLAS. In a panel eight columns are made at a time, so that the
    rest of it is loaded and stored once for all eight.
    """
    n = matrix.shape[0]
    start, columns = np.empty(n), np.zeros((8, n))
    for i in range(n):
        start[i] = matrix[i, i]
    for begin in range(0, n, _LARGE):
        end = min(begin + _LARGE, n)
        for first in range(begin, end, 8):
            stop = min(first + 8, end)
            columns[stop - first :] = 0.0
            for j in range(first, stop):
                for p in range(first, j):
                    part = columns[p - first, j]
                    for i in range(j, n):
                        matrix[i, j] -= columns[p - first, i] * part
                kept[j] = matrix[j, j] > _NOTHING * start[j]
                if not kept[j]:
                    matrix[j:, j] = 0.0
                    matrix[j, j] = 1.0
                    columns[j - first, j:] = 0.0
                    continue
                matrix[j, j] = np.sqrt(matrix[j, j])
                for i in range(j + 1, n):
                    matrix[i, j] /= matrix[j, j]
                    columns[j - first, i] = matrix[i, j]
            a, b, c, d, e, f, g, h = columns
            for i in range(stop, n):
                mine, last = matrix[i], i + 1 if i < end else end
                ai, bi, ci, di, ei, fi, gi, hi = a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i]
                for k in range(stop, last):
                    four = mine[k] - ai * a[k] - bi * b[k] - ci * c[k] - di * d[k]
                    mine[k] = four - ei * e[k] - fi * f[k] - gi * g[k] - hi * h[k]
        for left in range(end, n, _LARGE):
            right = min(left + _LARGE, n)
            product = np.dot(_block(matrix, left, n, begin, end), _block(matrix, left, right, begin, end).T)
            for i in range(left, n):
                for k in range(left, right):
                    matrix[i, k] -= product[i - left, k - left]


@compiled
def invert(matrix: Any) -> bool:
    """Invert a positive definite matrix in place; False where it is not positive definite. A large one is inverted by
    its first half and the Schur complement of the second: half the work of an inverse that ignores the symmetry.
    """
    n = matrix.shape[0]
    if n > _LARGE:
        half = n // 2
        first, between = _block(matrix, 0, half, 0, half), _block(matrix, 0, half, half, n)
        if invert(first):
            regression, second = np.dot(first, between), _block(matrix, half, n, half, n)
            _add(second, -1.0, np.dot(between.T, regression))
            if invert(second):
                product = np.dot(regression, second)
                _add(first, 1.0, np.dot(product, regression.T))
                found, probe = np.empty((n, n)), np.empty(n)
                for i in range(n):
                    probe[i] = np.cos(float(i) ** 2)
                    for k in range(n):
                        if i < half:
                            found[i, k] = first[i, k] if k < half else -product[i, k - half]
                        else:
                            found[i, k] = -product[k, i - half] if k < half else second[i - half, k - half]
                again, good = np.dot(matrix, np.dot(found, probe)), True
                for i in range(n):
                    good = good and abs(again[i] - probe[i]) < _PROBED
                if good:
                    for i in range(n):
                        for k in range(n):
                            matrix[i, k] = found[i, k]
                    return True
        # The complement of an ill-conditioned matrix is lost in rounding; its Cholesky factor is not.
    kept = np.zeros(n, np.bool_)
    factor(matrix, kept)
    if not kept.all():
        return False
    # The inverse of the factor row by row, then its product with itself; four rows at a time, as in `factor`.
    other = np.zeros((n, n))
    for i in range(n):
        mine = other[i]
        for k in range(0, i - 3, 4):
            a, b, c, d = matrix[i, k], matrix[i, k + 1], matrix[i, k + 2], matrix[i, k + 3]
            one, two, three, four = other[k], other[k + 1], other[k + 2], other[k + 3]
            for j in range(k + 4):
                mine[j] = mine[j] - a * one[j] - b * two[j] - c * three[j] - d * four[j]
        for k in range(i - i % 4, i):
            for j in range(k + 1):
                mine[j] -= matrix[i, k] * other[k, j]
        mine[i] = 1.0
        for j in range(i + 1):
            mine[j] /= matrix[i, i]
    for i in range(n):
        for j in range(n):
            matrix[i, j] = 0.0
    for k in range(0, n - 3, 4):
        one, two, three, four = other[k], other[k + 1], other[k + 2], other[k + 3]
        for i in range(k + 4):
            a, b, c, d = one[i], two[i], three[i], four[i]
            for j in range(i + 1):
                matrix[i, j] = matrix[i, j] + a * one[j] + b * two[j] + c * three[j] + d * four[j]
    for k in range(n - n % 4, n):
        for i in range(k + 1):
            for j in range(i + 1):
                matrix[i, j] += other[k, i] * other[k, j]
    for i in range(n):
        for j in range(i):
            matrix[j, i] = matrix[i, j]
    return True


@compiled
def substitute(lower: Any, kept: Any, vector: Any) -> None:
    """Solve with a `factor`, in place; entries of pivots that were not kept become 0."""
    n = lower.shape[0]
    for i in range(n):
        found = vector[i]
        for k in range(i):
            found -= lower[i, k] * vector[k]
        vector[i] = found / lower[i, i] if kept[i] else 0.0
    for i in range(n - 1, -1, -1):
        found = vector[i]
        for k in range(i + 1, n):
            found -= lower[k, i] * vector[k]
        vector[i] = found / lower[i, i] if kept[i] else 0.0


@compiled
def _response(
    information: Any, free: Any, rows: Any, held: Any, weight: float, before: Any
) -> tuple[Any, Any, Any, int, bool]:
    """For one child the numbers of its free cells, P and H on them, after how many updates, and whether its
    ``information`` is positive definite. ``weight``: of every held row; ``before``: the first four for other cells.
    """
    index = np.flatnonzero(free)
    n = len(index)
    own, row = _part(information, index, index), np.empty(n)
    if not held.any() and n >= _UPDATED and before[3] < _MOST_UPDATES:
        inverse, is_updated = _updated(own, index, free, before[0], before[2])
        if is_updated:
            return index, own, inverse, before[3] + 1, True
    inverse = own.copy()
    for number in np.flatnonzero(held):
        for j in range(n):
            row[j] = rows[number, index[j]]
        for i in range(n):
            if row[i] != 0:
                part = weight * row[i]
                for j in range(n):
                    inverse[i, j] += part * row[j]
    # An inverse with held rows is not updated.
    return index, own, inverse, _MOST_UPDATES if held.any() else 0, n == 0 or invert(inverse)


@compiled
def _part(matrix: Any, rows: Any, columns: Any) -> Any:
    """Some ``rows`` and ``columns`` of a matrix."""
    found = np.empty((len(rows), len(columns)))
    for i in range(len(rows)):
        whole = matrix[rows[i]]
        for j in range(len(columns)):
            found[i, j] = whole[columns[j]]
    return found


@compiled
def _updated(own: Any, index: Any, free: Any, old: Any, before: Any) -> tuple[Any, bool]:
    """H on the ``free`` cells, whose numbers are ``index`` and on which P is ``own``, from H on the ``old`` cells
    (``before``): cells are removed and added by the inverse of a block matrix. False where too many change.
    """
    was = np.zeros(len(free), np.bool_)
    was[old] = True
    stays, left = np.flatnonzero(free[old]), np.flatnonzero(~free[old])
    place, new = np.flatnonzero(was[index]), np.flatnonzero(~was[index])
    if (len(left) + len(new)) * _CHANGED > len(index):
        return own, False
    rest, found = _part(before, stays, stays), np.empty_like(own)
    if len(left):
        across, corner = _part(before, stays, left), _part(before, left, left)
        if not invert(corner):
            return own, False
        _add(rest, -1.0, np.dot(np.dot(across, corner), across.T))
    if len(new):
        across, corner = _part(own, place, new), _part(own, new, new)
        towards = np.dot(rest, across)
        _add(corner, -1.0, np.dot(across.T, towards))
        if not invert(corner):
            return own, False
        turned = np.dot(towards, corner)
        _add(rest, 1.0, np.dot(turned, towards.T))
        _put(found, place, new, -1.0, turned)
        _put(found, new, place, -1.0, turned.T)
        _put(found, new, new, 1.0, corner)
    _put(found, place, place, 1.0, rest)
    return found, True


@compiled
def _put(matrix: Any, rows: Any, columns: Any, times: float, part: Any) -> None:
    """Write ``part``, ``times`` a number, into some ``rows`` and ``columns`` of a matrix."""
    for i in range(len(rows)):
        whole = matrix[rows[i]]
        for j in range(len(columns)):
            whole[columns[j]] = times * part[i, j]


@compiled
def _no_responses(children: int) -> Any:
    """An empty container for the results of `_refresh`: of every child what `_response` says."""
    nothing = np.empty(0, np.int64), np.empty((0, 0)), np.empty((0, 0)), _MOST_UPDATES
    return [nothing for _ in range(children)]


@compiled
def _refresh(information: Any, free: Any, rows: Any, side: Any, weights: Any, stale: Any, responses: Any) -> bool:
    """The responses of the children whose free cells or held rows have changed; False where one has none.

    A child that equals the one before it shares its arrays.
    """
    which = information[2]
    held = len(information[3]) > which[-1]
    for c in range(len(which)):
        if not stale[c]:
            continue
        stale[c] = False
        alike = c > 0 and which[c] == which[c - 1]
        if alike and _equal(free[c], free[c - 1]) and _equal(side[c], side[c - 1]):
            responses[c] = responses[c - 1]
            continue
        matrix = _matrix(information, c) if held else _some_rows(information, c, free[c])
        found = _response(matrix, free[c], rows, side[c] != 0, weights[c], responses[c])
        if not found[4]:
            return False
        responses[c] = found[:4]
    return True


@compiled
def _information(table: Any, pattern: Any) -> tuple[Any, Any, Any, Any, Any]:
    """The information matrices of the children, as `_matrix` and `_diagonal` take them: ``table``, ``pattern``,
    ``which`` of the different matrices every child has (children,), an array for matrices, and which of them it holds.
    Siblings mostly have the same; a child is compared with the one before it.
    """
    children, cells = len(table), len(pattern)
    which, count = np.empty(children, np.int64), 0
    for c in range(children):
        if c == 0 or not _equal(table[c], table[c - 1]):
            count += 1
        which[c] = count - 1
    room = count if count * cells * cells <= _HELD else 1
    return table, pattern, which, np.empty((room, cells, cells)), np.full(room, -1)


@compiled
def _matrix(information: Any, c: int) -> Any:
    """The information matrix (cells x cells) of one child; valid until another's is made."""
    table, pattern, which, room, inside = information
    place = which[c] % len(room)
    if inside[place] != which[c]:
        matrix, entries = room[place], table[c]
        for j in range(len(pattern)):
            for k in range(len(pattern)):
                matrix[j, k] = entries[pattern[j, k]]
        inside[place] = which[c]
    return room[place]


@compiled
def _some_rows(information: Any, c: int, wanted: Any) -> Any:
    """As `_matrix`, where only the rows are needed in which ``wanted`` (cells,) is not 0: where matrices are not kept,
    the other rows hold anything."""
    table, pattern, which, room, inside = information
    place = which[c] % len(room)
    if len(room) > which[-1] or inside[place] == which[c]:
        return _matrix(information, c)
    matrix, entries = room[place], table[c]
    inside[place] = -1
    for j in range(len(pattern)):
        if wanted[j]:
            for k in range(len(pattern)):
                matrix[j, k] = entries[pattern[j, k]]
    return matrix


@compiled
def _diagonal(information: Any, c: int, k: int) -> float:
    """An entry of its diagonal."""
    table, pattern, _, _, _ = information
    return float(table[c, pattern[k, k]])


@compiled
def _slope(matrix: Any, x: Any, g: Any, rows: Any, push: Any, into: Any, sizes: Any) -> None:
    """P x - g - rows' n of one child, ``matrix`` being P and n what its rows add (`_pushes`), and the sum of the sizes
    of its terms, to which its rounding error is relative."""
    for k in range(len(x)):
        into[k], sizes[k] = -g[k], abs(g[k])
    for j in range(len(x)):
        part = x[j]
        if part != 0:
            row = matrix[j]
            for k in range(len(x)):
                term = row[k] * part
                into[k] += term
                sizes[k] += abs(term)
    for j in range(len(rows)):
        part = push[j]
        if part != 0:
            row = rows[j]
            for k in range(len(x)):
                term = part * row[k]
                into[k] -= term
                sizes[k] += abs(term)


@compiled
def _pushes(x: Any, rows: Any, side: Any, low: Any, high: Any, weight: float, others: Any, into: Any) -> None:
    """What every held row adds to one child's equations: its multiplier, and its weight times the difference from its
    bound.
    """
    for j in range(len(rows)):
        into[j] = 0.0
        if side[j] != 0:
            into[j] = high[j] if side[j] > 0 else low[j]
    for k in range(len(x)):
        if x[k] != 0:  # most cells of a family are 0 in a child
            for j in range(len(rows)):
                if side[j] != 0:
                    into[j] -= x[k] * rows[j, k]
    for j in range(len(rows)):
        if side[j] != 0:
            into[j] = others[j] + weight * into[j]


@compiled
def _all_pushes(x: Any, rows: Any, side: Any, low: Any, high: Any, weights: Any, others: Any) -> Any:
    """`_pushes` of all children (children x rows)."""
    found = np.empty_like(others)
    for c in range(len(x)):
        _pushes(x[c], rows, side[c], low[c], high[c], weights[c], others[c], found[c])
    return found


@compiled
def _fit_pushes(information: Any, g: Any, x: Any, multiplier: Any, rows: Any, side: Any, pushes: Any) -> None:
    """Change ``pushes`` (children x rows), those of `_all_pushes`, to those that leave least of the equations of the
    cells above 0: they have the rounding of the rows' answers, times the weight.
    """
    slope, size = np.empty(x.shape[1]), np.empty(x.shape[1])
    for c in range(len(x)):
        held = np.flatnonzero(side[c])
        if len(held) == 0:
            continue
        _slope(_some_rows(information, c, x[c]), x[c], g[c], rows, pushes[c], slope, size)
        equations, step, kept = np.zeros((len(held), len(held))), np.zeros(len(held)), np.empty(len(held), np.bool_)
        for k in range(len(slope)):
            if x[c, k] == 0:
                continue
            weight = 1 / _diagonal(information, c, k)
            for i in range(len(held)):
                part = weight * rows[held[i], k]
                if part != 0:
                    step[i] += part * (slope[k] - multiplier[k])
                    for j in range(i + 1):
                        equations[i, j] += part * rows[held[j], k]
        factor(equations, kept)
        substitute(equations, kept, step)
        for i in range(len(held)):
            pushes[c, held[i]] += step[i]


@compiled
def _free_slope(own: Any, index: Any, x: Any, g: Any, rows: Any, push: Any, into: Any) -> None:
    """As `_slope`, for the free cells alone, whose numbers are ``index`` and on which P is ``own``."""
    n = len(index)
    for k in range(n):
        into[k] = -g[index[k]]
    for j in range(n):
        part = x[index[j]]
        if part != 0:
            for k in range(n):
                into[k] += own[j, k] * part
    for j in range(len(rows)):
        if push[j] != 0:
            for k in range(n):
                if rows[j, index[k]]:
                    into[k] -= push[j] * rows[j, index[k]]


@compiled
def _add_product(matrix: Any, vector: Any, index: Any, into: Any) -> None:
    """Add matrix times vector, both of the free cells, to their entries of ``into``; the matrix is symmetric."""
    n = len(index)
    found = np.empty(n)
    for k in range(n):
        found[k] = into[index[k]]
    for j in range(n):
        part = vector[j]
        for k in range(n):
            found[k] += matrix[j, k] * part
    for k in range(n):
        into[index[k]] = found[k]


@compiled
def _couple(responses: Any, matrix: Any, kept: Any) -> None:
    """The `factor` of sum_c H_c, in place of ``matrix`` (cells x cells; empty where children are independent), with the
    pivots that are ``kept`` (cells,)."""
    if not len(matrix):
        return
    matrix[:] = 0.0
    for index, _, inverse, _ in responses:
        for i in range(len(index)):
            for j in range(i + 1):
                matrix[index[i], index[j]] += inverse[i, j]
    factor(matrix, kept)


@compiled
def _restore_sums(responses: Any, matrix: Any, kept: Any, step: Any, change: Any) -> None:
    """Add to ``change`` (children x cells) what a step of the sums' multipliers does, so that the children's changes
    add up to ``step`` (cells,), in whose place the multipliers' step then is."""
    cells = len(step)
    for c in range(len(change)):
        for k in responses[c][0]:
            step[k] -= change[c, k]
    substitute(matrix, kept, step)
    own = np.empty(cells)
    for c in range(len(change)):
        index, _, inverse, _ = responses[c]
        for k in range(len(index)):
            own[k] = step[index[k]]
        _add_product(inverse, own, index, change[c])


@compiled
def _solve_free(
    total: Any,
    information: Any,
    g: Any,
    rows: Any,
    side: Any,
    low: Any,
    high: Any,
    weights: Any,
    others: Any,
    responses: Any,
    matrix: Any,
    kept: Any,
    x: Any,
    multiplier: Any,
) -> None:
    """The solution for the given free cells, held rows and their multipliers: ``x`` and ``multiplier``, in place.

    It starts from 0 and adds the solution for the residual until that is rounding, or neither falls any longer:
    inverses of ill-conditioned matrices are right only in the first digits, and solutions where little is known move
    with rounding while the residual still falls. Only free cells have an equation.
    """
    children, cells = g.shape
    table, pattern = information[0], information[1]
    x[:] = 0.0
    multiplier[:] = 0.0
    slope, push = np.empty(cells), np.empty(len(rows))
    change = np.empty((children, cells))
    last, last_lack = np.inf, np.inf
    for _ in range(_MOST_REFINEMENTS):
        change[:] = 0.0
        lack = 0.0
        for c in range(children):
            index, own, inverse, _ = responses[c]
            _pushes(x[c], rows, side[c], low[c], high[c], weights[c], others[c], push)
            _free_slope(own, index, x[c], g[c], rows, push, slope)
            for k in range(len(index)):
                slope[k] = multiplier[index[k]] - slope[k]
                lack = max(lack, abs(slope[k]))
            _add_product(inverse, slope, index, change[c])
        if len(matrix):
            step = total.copy()
            for c in range(children):
                for k in responses[c][0]:
                    step[k] -= x[c, k]
            _restore_sums(responses, matrix, kept, step, change)
            for k in range(cells):
                multiplier[k] += step[k]
        worst = 0.0
        for c in range(children):
            for k in responses[c][0]:
                x[c, k] += change[c, k]
                worst = max(worst, abs(change[c, k]) * np.sqrt(table[c, pattern[k, k]]))
        if worst < SIGN / 10 or (worst > last / 4 and lack > last_lack / 4):
            break
        last, last_lack = worst, lack


@compiled
def _give_back(allowed: Any, free: Any, stale: Any) -> None:
    """A cell of the parent that is free in no child becomes free in all."""
    for k in range(free.shape[1]):
        if not free[:, k].any():
            for c in range(free.shape[0]):
                if allowed[c, k]:
                    free[c, k] = True
                    stale[c] = True


@compiled
def _guess(information: Any, g: Any, total: Any, allowed: Any, free: Any) -> bool:
    """A first guess of the ``free`` cells, in place: those that are positive in the solution without x >= 0. Each
    child's own system is solved by conjugate gradients, preconditioned by the inverse of the first child's matrix,
    which siblings mostly share; then the difference of the sums is divided by the children's precisions. False where
    the matrix is not positive definite.
    """
    children, cells = g.shape
    inverse = _matrix(information, 0).copy()
    if not invert(inverse):
        return False
    x, missing, share = np.zeros((children, cells)), total.copy(), np.empty(children)
    for c in range(children):
        matrix, mine = _matrix(information, c), x[c]
        share[c] = 1 / np.trace(matrix)
        left = g[c].copy()
        towards = np.dot(inverse, left)
        step, size = towards.copy(), np.dot(left, towards)
        enough = _GUESSED * cells
        for _ in range(_GUESSES):
            if size <= enough:
                break
            turned = np.dot(matrix, step)
            length = size / np.dot(step, turned)
            for k in range(cells):
                mine[k] += length * step[k]
                left[k] -= length * turned[k]
            towards = np.dot(inverse, left)
            last, size = size, np.dot(left, towards)
            for k in range(cells):
                step[k] = towards[k] + size / last * step[k]
        for k in range(cells):
            missing[k] -= mine[k]
    whole = share.sum()
    small = _SMALL if cells < _MANY else _SMALL_OF_MANY
    for c in range(children):
        for k in range(cells):
            found = (x[c, k] + share[c] * (missing[k] / whole)) * np.sqrt(_diagonal(information, c, k))
            free[c, k] = allowed[c, k] and found >= small
    return True


@compiled
def _wrong_sign(x: float, free: bool, lack: float, deviation: float, most: float, terms: float) -> bool:
    """Whether a free cell is negative, or an empty one would grow, by more than rounding.

    ``lack``: the residual of its equation; ``deviation``: the root of its information; ``most`` and ``terms``: the
    sizes to which rounding is relative. A free cell shares the rounding of its siblings' sum, which is in ``most``: a
    cell of 0 beside large siblings would be dropped and come back for ever.
    """
    if free:
        return x * deviation < -SIGN - _ROUNDING * most * deviation
    return lack < -SIGN * deviation - _ROUNDING * terms


@compiled
def _row_side(side: int, answer: float, low: float, high: float, push: float, slack: float, least: float) -> int:
    """Where a row should be held: -1 at its least, 1 at its most, 0 at neither, 2 always."""
    if side == 2:
        return 2
    if side == 0:
        return -1 if answer < low - slack else 1 if answer > high + slack else 0
    if side == -1:
        return 0 if push < -least else -1
    return 0 if push > least else 1


@compiled
def _change_minds(
    information: Any,
    g: Any,
    total: Any,
    allowed: Any,
    rows: Any,
    low: Any,
    high: Any,
    weights: Any,
    others: Any,
    x: Any,
    multiplier: Any,
    free: Any,
    side: Any,
    stale: Any,
    single: bool,
) -> int:
    """Count the cells and rows on the wrong side, and move all of them, or only the last, to the other side."""
    children, cells = g.shape
    table, pattern = information[0], information[1]
    held = len(information[3]) > information[2][-1]
    slope, size, push, answers = np.empty(cells), np.empty(cells), np.empty(len(rows)), np.empty(len(rows))
    wrong, last_child, last_cell, last_row, last_side = 0, -1, -1, -1, 0
    for c in range(children):
        _pushes(x[c], rows, side[c], low[c], high[c], weights[c], others[c], push)
        matrix = _matrix(information, c) if held else _some_rows(information, c, x[c])
        _slope(matrix, x[c], g[c], rows, push, slope, size)
        most, every, strongest = 0.0, 0.0, 0.0
        for k in range(cells):
            most, every = max(most, abs(x[c, k])), every + abs(x[c, k])
        for k in range(cells):
            strength = table[c, pattern[k, k]]
            strongest = max(strongest, strength)
            if not allowed[c, k]:
                continue
            deviation, terms = np.sqrt(strength), size[k] + abs(multiplier[k])
            lack, largest = slope[k] - multiplier[k], max(most, total[k])
            if _wrong_sign(x[c, k], free[c, k], lack, deviation, largest, terms):
                wrong, last_child, last_cell = wrong + 1, c, k
                if not single:
                    free[c, k] = not free[c, k]
                    stale[c] = True
        answers[:] = 0.0
        for k in range(cells):
            if x[c, k] != 0:
                for j in range(len(rows)):
                    answers[j] += x[c, k] * rows[j, k]
        for j in range(len(rows)):
            slack = SIGN / np.sqrt(strongest) + _ROUNDING * every
            to = _row_side(
                side[c, j],
                answers[j],
                low[c, j],
                high[c, j],
                push[j],
                slack,
                slack * weights[c] / _SURER + SIGN * np.sqrt(strongest),
            )
            if to != side[c, j]:
                wrong, last_child, last_cell, last_row, last_side = wrong + 1, c, -1, j, to
                if not single:
                    side[c, j] = to
                    others[c, j] = 0.0
                    stale[c] = True
    if single and wrong:
        stale[last_child] = True
        if last_cell >= 0:
            free[last_child, last_cell] = not free[last_child, last_cell]
        else:
            side[last_child, last_row] = last_side
            others[last_child, last_row] = 0.0
    return wrong


@compiled
def _primal(
    information: Any,
    g: Any,
    total: Any,
    allowed: Any,
    rows: Any,
    side: Any,
    low: Any,
    high: Any,
    weights: Any,
    others: Any,
    free: Any,
    x: Any,
    multiplier: Any,
) -> tuple[int, int]:
    """A primal active set with fixed held rows: from a feasible ``x`` the objective falls with every step. Returns how
    it ended, and its steps.
    """
    children, cells = g.shape
    for k in range(cells):
        found = 0.0
        for c in range(children):
            x[c, k] = max(x[c, k], 0.0) if allowed[c, k] else 0.0
            found += x[c, k]
        may = allowed[:, k].sum()
        for c in range(children):
            x[c, k] = x[c, k] * (total[k] / found) if found > 0 else total[k] / may * allowed[c, k]
            free[c, k] = x[c, k] > 0
    responses, stale = _no_responses(children), np.ones(children, np.bool_)
    aim = np.empty_like(x)
    matrix, kept = np.zeros((cells, cells)), np.zeros(cells, np.bool_)
    slope, size, push = np.empty(cells), np.empty(cells), np.empty(len(rows))
    for step in range(20 * children * cells + 1000):
        if not _refresh(information, free, rows, side, weights, stale, responses):
            return SINGULAR, step
        _couple(responses, matrix, kept)
        _solve_free(
            total, information, g, rows, side, low, high, weights, others, responses, matrix, kept, aim, multiplier
        )
        length = 1.0
        for c in range(children):
            for k in range(cells):
                if free[c, k] and aim[c, k] < -_ROUNDING * total[k]:
                    length = min(length, x[c, k] / (x[c, k] - aim[c, k]))
        for c in range(children):
            for k in range(cells):
                if free[c, k]:
                    blocks = aim[c, k] < -_ROUNDING * total[k] and x[c, k] / (x[c, k] - aim[c, k]) <= length
                    x[c, k] += length * (aim[c, k] - x[c, k])
                    if blocks:
                        x[c, k] = 0.0
                        free[c, k] = False
                        stale[c] = True
        if length < 1:
            continue
        worst, child, cell = 1.0, -1, -1
        for c in range(children):
            _pushes(x[c], rows, side[c], low[c], high[c], weights[c], others[c], push)
            own = _some_rows(information, c, x[c])
            _slope(own, x[c], g[c], rows, push, slope, size)
            for k in range(cells):
                if allowed[c, k] and not free[c, k]:
                    limit = SIGN * np.sqrt(_diagonal(information, c, k)) + _ROUNDING * (size[k] + abs(multiplier[k]))
                    wrong = (multiplier[k] - slope[k]) / limit
                    if wrong > worst:
                        worst, child, cell = wrong, c, k
        if child < 0:
            return SOLVED, step
        free[child, cell] = True
        stale[child] = True
    return GIVEN_UP, step


@compiled
def solve_family(
    table: Any,
    pattern: Any,
    g: Any,
    total: Any,
    tied: bool,
    allowed: Any,
    rows: Any,
    low: Any,
    high: Any,
) -> tuple[Any, Any, Any, int, int]:
    """The solution x (children x cells), multipliers of the sums (cells,) and of the rows (children x rows), how it
    ended and in how many rounds.

    ``table`` (children x patterns), ``pattern`` (cells x cells): the information matrices, positive definite; ``g``
    (children x cells). ``total`` (cells,) > 0, where ``tied``; otherwise the children are independent (a root).
    ``allowed`` (children x cells) bool; every cell is allowed for some child. ``rows`` (rows x cells), ``low`` and
    ``high`` (children x rows), infinite where there is no bound. P x - g = l + rows' n + the multipliers of x >= 0.
    """
    children, cells = g.shape
    free, side = allowed.copy(), np.zeros(low.shape, np.int8)
    x, multiplier, others = np.zeros_like(g), np.zeros(cells), np.zeros(low.shape)
    information = _information(table, pattern)
    strengths = np.zeros(children)
    for c in range(children):
        for k in range(cells):
            strengths[c] = max(strengths[c], _diagonal(information, c, k))
        for j in range(low.shape[1]):
            side[c, j] = 2 if low[c, j] == high[c, j] else 0
    weights = _WEIGHT * strengths
    responses, stale, push = _no_responses(children), np.ones(children, np.bool_), np.empty(len(rows))
    matrix, kept = np.zeros((cells, cells)) if tied else np.zeros((0, 0)), np.zeros(cells, np.bool_)
    if tied:
        if not _guess(information, g, total, allowed, free):
            return x, multiplier, others, SINGULAR, 0
        _give_back(allowed, free, stale)
    rounds, passes, fewest, patience = 0, 0, np.iinfo(np.int64).max, _PATIENCE
    idle, least = 0, np.inf
    while passes < _MOST_PASSES:
        if rounds % (_MOST_ROUNDS + 1) == _MOST_ROUNDS:
            if not tied:
                return x, multiplier, others, GIVEN_UP, rounds
            ended, _ = _primal(
                information, g, total, allowed, rows, side, low, high, weights, others, free, x, multiplier
            )
            if ended != SOLVED:
                return x, multiplier, others, ended, rounds
            stale[:] = True
            fewest, patience = np.iinfo(np.int64).max, _PATIENCE
        rounds += 1
        moved = stale.any()
        if not _refresh(information, free, rows, side, weights, stale, responses):
            return x, multiplier, others, SINGULAR, rounds
        if moved:
            _couple(responses, matrix, kept)
        _solve_free(
            total, information, g, rows, side, low, high, weights, others, responses, matrix, kept, x, multiplier
        )
        wrong = _change_minds(
            information,
            g,
            total,
            allowed,
            rows,
            low,
            high,
            weights,
            others,
            x,
            multiplier,
            free,
            side,
            stale,
            patience == 0,
        )
        if wrong == 0:
            passes += 1
            fewest, patience = np.iinfo(np.int64).max, _PATIENCE
            missing = 0.0
            for c in range(children):
                _pushes(x[c], rows, side[c], low[c], high[c], weights[c], others[c], push)
                slack = SIGN / np.sqrt(strengths[c]) + _ROUNDING * np.abs(x[c]).sum()
                for j in range(len(rows)):
                    if side[c, j] != 0:
                        missing = max(missing, abs(push[j] - others[c, j]) / weights[c] / slack)
            idle = 0 if missing < least / 2 else idle + 1
            least = min(least, missing)
            others = _all_pushes(x, rows, side, low, high, weights, others)
            # Where rounding keeps it from falling the certificate decides whether it is good enough.
            if missing <= 1 or (idle > _PATIENCE and missing < _NEARLY):
                _fit_pushes(information, g, x, multiplier, rows, side, others)
                return x, multiplier, others, SOLVED, rounds
            if idle > 1 and missing >= _NEARLY and weights[0] < _HEAVIEST * strengths[0]:
                weights *= _HEAVIER
                stale[:] = True
        elif wrong < fewest:
            fewest, patience = wrong, _PATIENCE
        elif patience > 0:
            patience -= 1
        if tied:
            _give_back(allowed, free, stale)
    return x, multiplier, others, GIVEN_UP, rounds
