"""A family's program of households and persons, compiled, without a matrix of the parent's cells.

The same primal-dual active set as `topdown.projection.histograms.family_kernel`, its rows held by the method of
multipliers, in stages: first with wide tolerances, with which few rounds are needed, then with narrower ones. How a
child's equations on its free cells are solved differs: its information is a diagonal D (answers in which one of them
counts) and few other answers and held rows A with weights S, so that

    (D + A' S A)^-1 = D^-1 - D^-1 A' R (1 + R A D^-1 A' R)^-1 R A D^-1,   R = S^(1/2)      (Woodbury 1950);

where these are as many as the free cells, the matrix of these is inverted. The sums' multipliers are found by conjugate
gradients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from topdown.machine.compiled import compiled
from topdown.projection.histograms.family_kernel import invert

SOLVED, GIVEN_UP, SINGULAR = 0, 1, 2
"""How a family ended, as in `topdown.projection.histograms.family_kernel`."""

_SIGNS, _ROUNDING = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10), 2.0**-46
"""What counts as a wrong sign, in units of the noise, at every stage; and what rounding may be of the largest term."""

_WEIGHT, _MOST_WEIGHT, _HEAVIER = 1e2, 1e6, 10.0
"""What a held row adds along itself, in units of the child's largest information: at first, at most, and by which
factor it grows where what rows lack falls slowly."""

_SLOWLY = 0.2
"""Which part of what held rows lacked should be left, at most, when their multipliers have been moved once."""

_NEAR = 10.0
"""What held rows may lack, in units of what they may in the end of a stage, where the next one begins."""

_SURER = 4.0
"""As in `topdown.projection.histograms.family_kernel`: a multiplier's sign is surer than what its row may lack."""

_MOST_ROUNDS, _PATIENCE, _MOST_STEPS, _MOST_REFINEMENTS = 600, 3, 600, 6
_LEFT, _ENOUGH = 1e-2, 1e-1
"""As a part of what counts as a wrong sign: what may be left of the sums, in units of the noise, when conjugate
gradients end; and the change of a solution that is refined no further."""

_LEAST_LEFT, _LEAST_ENOUGH = 1e-15, 1e-12
"""The least of both: the first as a part of the sums, as rounding leaves it."""

_SMALL, _FEW = 2.5, 64
"""Cells below this, in units of the noise, are dropped in the first round, where there are more than so many: the next
rounds are then smaller, and cells that were dropped wrongly come back."""

_SOME = 0.3
"""Which part of the cells and rows on the wrong side change sides where all of them make no progress."""


class Program(NamedTuple):
    """A family's program as the compiled loops take it.

    ``g`` (children x cells), the linear part; ``unit`` (children x cells), the root of the information's diagonal;
    ``alone`` (children x cells), the precision of what is measured of single cells; ``answers`` (cells x queries), of
    every query the answer in which a cell counts with others, among ``number`` of all queries, -1 for none, and their
    ``precision`` (children x queries); ``total`` (cells,), what the children add up to where they are ``tied``;
    ``allowed`` (children x cells); ``rows`` (cells x rows), between ``low`` and ``high`` (children x rows).
    """

    g: Any
    unit: Any
    alone: Any
    answers: Any
    precision: Any
    number: int
    total: Any
    tied: bool
    allowed: Any
    rows: Any
    low: Any
    high: Any


@compiled
def _no_equations(children: int) -> Any:
    cells, answers = np.empty(0, np.int64), np.empty((0, 0), np.int32)
    return [(cells, np.empty(0), answers, np.empty(0), np.empty((0, 0)), np.empty((0, 0))) for _ in range(children)]


@compiled
def _refresh(program: Any, free: Any, side: Any, weight: Any, stale: Any, equations: Any) -> bool:
    """Make the ``equations`` of the children that are ``stale``; False where they have no solution.

    A child's are its free cells (n,), 1 / D (n,), the answers that weigh (n x queries, -1 for none), the roots of their
    weights and of the held rows' times these (n x rows), and the inverse: of 1 + R A D^-1 A' R, or that of the cells,
    where there are no weights.
    """
    queries = program.answers.shape[1]
    size, number = np.zeros(program.number, np.int64), np.empty(program.number, np.int32)
    root = np.empty(program.number)
    before: Any = -1
    for c in np.flatnonzero(stale):
        stale[c] = False
        precision = program.precision[c]
        if before >= 0 and _same(program, free, side, weight, before, c):
            equations[c] = equations[before]  # as in the first round, and in families without free rows
            continue
        before = c
        index = np.flatnonzero(free[c])
        n = len(index)
        size[:] = 0
        for k in index:
            for q in range(queries):
                if program.answers[k, q] >= 0 and precision[q] > 0:
                    size[program.answers[k, q]] += 1
        diagonal, own, weigh = np.empty(n), np.full((n, queries), -1, np.int32), 0
        for e in range(n):
            diagonal[e] = program.alone[c, index[e]]
            for q in range(queries):
                a = program.answers[index[e], q]
                if a < 0 or size[a] == 0:
                    continue
                if size[a] == 1:
                    diagonal[e] += precision[q]
                    continue
                if size[a] > 0:
                    number[a], root[weigh] = weigh, np.sqrt(precision[q])
                    size[a] = -1
                    weigh += 1
                own[e, q] = number[a]
        held = np.flatnonzero(side[c])
        pushed = np.empty((n, len(held)))
        for e in range(n):
            for h in range(len(held)):
                pushed[e, h] = program.rows[index[e], held[h]] * np.sqrt(weight[c])
        if weigh + len(held) < n:
            inverse, roots = _of_answers(1 / diagonal, own, root[:weigh], pushed), root[:weigh].copy()
        else:
            inverse, roots = _of_cells(diagonal, own, precision, pushed), np.empty(0)
            pushed = np.empty((n, 0))
        if len(inverse) and not invert(inverse):
            return False
        equations[c] = index, 1 / diagonal, own, roots, pushed, inverse
    return True


@compiled
def _same(program: Any, free: Any, side: Any, weight: Any, one: Any, other: Any) -> bool:
    """Whether two children have the same equations."""
    if weight[one] != weight[other]:
        return False
    for q in range(program.precision.shape[1]):
        if program.precision[one, q] != program.precision[other, q]:
            return False
    for h in range(side.shape[1]):
        if (side[one, h] == 0) != (side[other, h] == 0):
            return False
    for k in range(free.shape[1]):
        if free[one, k] != free[other, k] or program.alone[one, k] != program.alone[other, k]:
            return False
    return True


@compiled
def _of_answers(spread: Any, own: Any, root: Any, pushed: Any) -> Any:
    """1 + R A D^-1 A' R."""
    weigh, held = len(root), pushed.shape[1]
    found = np.zeros((weigh + held, weigh + held))
    for e in range(len(spread)):
        for q in range(own.shape[1]):
            one = own[e, q]
            if one < 0:
                continue
            part = spread[e] * root[one]
            for p in range(own.shape[1]):
                other = own[e, p]
                if other >= 0:
                    found[one, other] += part * root[other]
            for h in range(held):
                found[one, weigh + h] += part * pushed[e, h]
        for h in range(held):
            for i in range(held):
                found[weigh + h, weigh + i] += spread[e] * pushed[e, h] * pushed[e, i]
    for h in range(weigh, weigh + held):
        for one in range(weigh):
            found[h, one] = found[one, h]
    for one in range(weigh + held):
        found[one, one] += 1.0
    return found


@compiled
def _of_cells(diagonal: Any, own: Any, precision: Any, pushed: Any) -> Any:
    """D + A' S A."""
    n, queries = own.shape
    found = np.zeros((n, n))
    for e in range(n):
        for f in range(e):
            agree = 0.0
            for q in range(queries):
                if own[e, q] >= 0 and own[e, q] == own[f, q]:
                    agree += precision[q]
            for h in range(pushed.shape[1]):
                agree += pushed[e, h] * pushed[f, h]
            found[e, f] = found[f, e] = agree
        found[e, e] = diagonal[e]
        for q in range(queries):
            if own[e, q] >= 0:
                found[e, e] += precision[q]
        for h in range(pushed.shape[1]):
            found[e, e] += pushed[e, h] * pushed[e, h]
    return found


@compiled
def _times(matrix: Any, vector: Any) -> Any:
    """A symmetric matrix times a vector; not by BLAS, whose threads would wait for those of other families."""
    found = np.zeros(len(vector))
    for j in range(len(vector)):
        part = vector[j]
        for k in range(len(vector)):
            found[k] += matrix[j, k] * part
    return found


@compiled
def _product(one: Any, other: Any) -> float:
    found = 0.0
    for k in range(len(one)):
        found += one[k] * other[k]
    return found


@compiled
def _solution(child: Any, vector: Any) -> Any:
    """The inverse of a child's information times a ``vector`` (cells,), on its free cells (n,)."""
    index, spread, own, root, pushed, inverse = child
    n, queries = own.shape
    weigh, held = len(root), pushed.shape[1]
    found = np.empty(n)
    for e in range(n):
        found[e] = vector[index[e]]
    if n and len(inverse) == n and weigh + held == 0:
        return _times(inverse, found)
    sums = np.zeros(weigh + held)
    for e in range(n):
        found[e] *= spread[e]
        for q in range(queries):
            if own[e, q] >= 0:
                sums[own[e, q]] += found[e]
        for h in range(held):
            sums[weigh + h] += pushed[e, h] * found[e]
    sums[:weigh] *= root
    sums = _times(inverse, sums)
    sums[:weigh] *= root
    for e in range(n):
        back = 0.0
        for q in range(queries):
            if own[e, q] >= 0:
                back += sums[own[e, q]]
        for h in range(held):
            back += pushed[e, h] * sums[weigh + h]
        found[e] -= spread[e] * back
    return found


@compiled
def _row_answers(program: Any, x: Any, free: Any, found: Any, terms: Any) -> None:
    """The rows times ``x`` (children x rows), and the sum of the sizes of the terms."""
    found[:], terms[:] = 0.0, 0.0
    for c in range(len(x)):
        for k in range(x.shape[1]):
            if free[c, k]:
                for h in range(program.rows.shape[1]):
                    part = x[c, k] * program.rows[k, h]
                    found[c, h] += part
                    terms[c, h] += abs(part)


@compiled
def _pushes(program: Any, answers: Any, side: Any, weight: Any, others: Any, into: Any) -> None:
    """What every row, whose ``answers`` these are, adds to the equations (children x rows)."""
    for c in range(len(answers)):
        for h in range(answers.shape[1]):
            into[c, h] = 0.0
            if side[c, h] != 0:
                bound = program.high[c, h] if side[c, h] > 0 else program.low[c, h]
                into[c, h] = others[c, h] + weight[c] * (bound - answers[c, h])


@compiled
def _slope(program: Any, x: Any, c: int, index: Any, wanted: Any, push: Any, sums: Any, into: Any) -> None:
    """P x - g - rows' push (cells,) of the child ``c`` on the ``wanted`` cells; its free ones are ``index``. ``sums``
    (answers,) is room to work in, 0 before and after."""
    queries = program.answers.shape[1]
    for k in index:
        for q in range(queries):
            if program.answers[k, q] >= 0:
                sums[program.answers[k, q]] += x[k] * program.precision[c, q]
    for k in wanted:
        found = program.alone[c, k] * x[k] - program.g[c, k]
        for q in range(queries):
            if program.answers[k, q] >= 0:
                found += sums[program.answers[k, q]]
        for h in range(len(push)):
            found -= push[h] * program.rows[k, h]
        into[k] = found
    for k in index:
        for q in range(queries):
            if program.answers[k, q] >= 0:
                sums[program.answers[k, q]] = 0.0


@compiled
def _begun(program: Any, equations: Any, side: Any, weight: Any) -> tuple[Any, Any, Any]:
    """What `_nearly` takes: the sum over children of 1 / D (cells,), and 1 / the sum of the variances of every answer
    (answers,) and held row (rows,)."""
    (cells, queries), rows = program.answers.shape, program.rows.shape[1]
    scale, said, pushed = np.zeros(cells), np.zeros(program.number), np.zeros(rows)
    there, row_there = np.empty(program.number, np.bool_), np.empty(rows, np.bool_)
    for c in range(len(equations)):
        there[:], row_there[:] = False, False
        for k in equations[c][0]:
            scale[k] += 1 / program.alone[c, k]
            for q in range(queries):
                a = program.answers[k, q]
                if a >= 0 and not there[a]:
                    there[a] = True
                    said[a] += 1 / program.precision[c, q] if program.precision[c, q] > 0 else np.inf
            for h in range(rows):
                row_there[h] |= program.rows[k, h] != 0
        for h in range(rows):
            if row_there[h]:
                pushed[h] += 1 / weight[c] if side[c, h] != 0 else np.inf
    for a in range(program.number):
        said[a] = 1 / said[a] if said[a] > 0 else 0.0
    for h in range(rows):
        pushed[h] = 1 / pushed[h] if pushed[h] > 0 else 0.0
    return scale, said, pushed


@compiled
def _nearly(program: Any, vector: Any, scale: Any, said: Any, pushed: Any, into: Any) -> None:
    """``into`` = what would be the inverse of the sum of the children's inverses, if all had the same free cells, times
    a ``vector`` (cells,): the information of the sum of several measured values, of which the variances add up."""
    sums, push = np.zeros(len(said)), np.zeros(len(pushed))
    for k in range(len(vector)):
        for a in program.answers[k]:
            if a >= 0:
                sums[a] += vector[k]
        for h in range(len(pushed)):
            push[h] += program.rows[k, h] * vector[k]
    sums *= said
    push *= pushed
    for k in range(len(vector)):
        into[k] = 0.0
        if scale[k] == 0:
            continue
        into[k] = vector[k] / scale[k]
        for a in program.answers[k]:
            if a >= 0:
                into[k] += sums[a]
        for h in range(len(pushed)):
            into[k] += program.rows[k, h] * push[h]


@compiled
def _solve_sums(program: Any, equations: Any, side: Any, weight: Any, left: Any, least: float) -> Any:
    """By how much the sums' multipliers (cells,) have to rise for the children's sums to change by ``left`` (cells,),
    by conjugate gradients until what is left is the ``least``, the square of its size in units of the noise."""
    scale, said, pushed = _begun(program, equations, side, weight)
    cells = len(left)
    found, towards, turned = np.zeros(cells), np.empty(cells), np.empty(cells)
    for k in range(cells):
        if scale[k] == 0:
            left[k] = 0.0
    _nearly(program, left, scale, said, pushed, towards)
    step, size = towards.copy(), _product(left, towards)
    for _ in range(_MOST_STEPS):
        if size <= least:
            break
        turned[:] = 0.0
        for c in range(len(equations)):
            index, own = equations[c][0], _solution(equations[c], step)
            for e in range(len(index)):
                turned[index[e]] += own[e]
        length = size / _product(step, turned)
        for k in range(cells):
            found[k] += length * step[k]
            left[k] -= length * turned[k]
        _nearly(program, left, scale, said, pushed, towards)
        last = size
        size = _product(left, towards)
        for k in range(cells):
            step[k] = towards[k] + size / last * step[k]
    return found


@compiled
def _solve_free(
    program: Any,
    equations: Any,
    free: Any,
    side: Any,
    weight: Any,
    others: Any,
    sign: float,
    x: Any,
    multiplier: Any,
) -> None:
    """``x`` and the sums' ``multiplier`` for the free cells and held rows, refined until what is left hardly matters;
    in the last stage, until it is rounding."""
    children, cells = x.shape
    answers, terms, push = np.empty_like(others), np.empty_like(others), np.empty_like(others)
    lacks, sums = np.empty_like(x), np.zeros(program.number)
    largest = 0.0
    for c in range(children):
        for k in range(cells):
            largest = max(largest, program.unit[c, k])
            if not free[c, k]:
                x[c, k] = 0.0
    least, last = max(_LEFT * sign, _LEAST_LEFT * np.sqrt(_product(program.total, program.total)) * largest), np.inf
    for _ in range(_MOST_REFINEMENTS):
        _row_answers(program, x, free, answers, terms)
        _pushes(program, answers, side, weight, others, push)
        for c in range(children):
            index = equations[c][0]
            _slope(program, x[c], c, index, index, push[c], sums, lacks[c])
            for k in index:
                lacks[c, k] = multiplier[k] - lacks[c, k]
        if program.tied:
            left = program.total.copy()
            for c in range(children):
                index, own = equations[c][0], _solution(equations[c], lacks[c])
                for e in range(len(index)):
                    left[index[e]] -= x[c, index[e]] + own[e]
            moved = _solve_sums(program, equations, side, weight, left, least**2)
            for k in range(cells):
                multiplier[k] += moved[k]
            for c in range(children):
                for k in equations[c][0]:
                    lacks[c, k] += moved[k]
        worst = 0.0
        for c in range(children):
            index, own = equations[c][0], _solution(equations[c], lacks[c])
            for e in range(len(index)):
                x[c, index[e]] += own[e]
                worst = max(worst, abs(own[e]) * program.unit[c, index[e]])
        if worst < max(_ENOUGH * sign, _LEAST_ENOUGH) or worst > last / 4:
            break
        last = worst


@compiled
def _change_minds(
    program: Any,
    x: Any,
    multiplier: Any,
    push: Any,
    answers: Any,
    slack: Any,
    weight: Any,
    sign: float,
    least_kept: float,
    chance: Any,
    free: Any,
    side: Any,
    others: Any,
    stale: Any,
) -> int:
    """How many cells and rows are on the wrong side; they are moved to the other, all of them or some: those of which
    ``chance`` (children x (cells + rows)) says so, if it has any."""
    children, cells = x.shape
    slope, sums, every, wrong = np.empty(cells), np.zeros(program.number), np.arange(cells), 0
    for c in range(children):
        _slope(program, x[c], c, np.flatnonzero(free[c]), every, push[c], sums, slope)
        most, strongest = np.abs(x[c]).max(), program.unit[c].max()
        for k in range(cells):
            if not program.allowed[c, k]:
                continue
            unit = program.unit[c, k]
            if free[c, k]:
                # A cell shares the rounding of its siblings' sum.
                largest = max(most, program.total[k]) if program.tied else most
                is_wrong = x[c, k] * unit < least_kept - _ROUNDING * largest * unit
            else:
                terms = abs(program.g[c, k]) + abs(multiplier[k]) + unit * unit * most
                is_wrong = slope[k] - multiplier[k] < -sign * unit - _ROUNDING * terms
            if is_wrong:
                wrong += 1
                if len(chance) == 0 or chance[c, k] < _SOME:
                    free[c, k] = not free[c, k]
                    stale[c] = True
        for h in range(side.shape[1]):
            least = slack[c, h] * weight[c] / _SURER + sign * strongest
            to = side[c, h]
            if to == -1:
                to = 0 if push[c, h] < -least else -1
            elif to == 1:
                to = 0 if push[c, h] > least else 1
            elif to == 0 and answers[c, h] < program.low[c, h] - slack[c, h]:
                to = -1
            elif to == 0 and answers[c, h] > program.high[c, h] + slack[c, h]:
                to = 1
            if to != side[c, h]:
                wrong += 1
                if len(chance) == 0 or chance[c, cells + h] < _SOME:
                    side[c, h] = to
                    others[c, h] = 0.0
                    stale[c] = True
    return wrong


@compiled
def _give_back(program: Any, free: Any, stale: Any) -> None:
    """Where no child has a cell left that the parent has, all have it again."""
    for k in range(free.shape[1]):
        if not free[:, k].any():
            for c in range(len(free)):
                if program.allowed[c, k]:
                    free[c, k], stale[c] = True, True


@compiled
def solve_linked(program: Any, generator: Any) -> tuple[Any, Any, Any, int, int]:
    """The solution x (children x cells) of a `Program`, the multipliers of the sums (cells,) and of the rows (children
    x rows), how it ended and in how many rounds. ``generator`` decides who changes sides where all of them make no
    progress."""
    children, cells = program.g.shape
    x, multiplier, others = np.zeros_like(program.g), np.zeros(cells), np.zeros_like(program.low)
    free, side = program.allowed.copy(), np.zeros(others.shape, np.int8)
    largest = np.empty(children)
    for c in range(children):
        largest[c] = program.unit[c].max() ** 2
        for h in range(others.shape[1]):
            side[c, h] = 2 if program.low[c, h] == program.high[c, h] else 0
    push, answers, slack = np.empty_like(others), np.empty_like(others), np.empty_like(others)
    equations, stale = _no_equations(children), np.ones(children, np.bool_)
    heavy, stage, lacked, fewest, patience = _WEIGHT, 0, np.inf, np.iinfo(np.int64).max, _PATIENCE
    weight = heavy * largest
    for rounds in range(1, _MOST_ROUNDS + 1):
        sign, last = _SIGNS[stage], stage == len(_SIGNS) - 1
        if not _refresh(program, free, side, weight, stale, equations):
            return x, multiplier, others, SINGULAR, rounds
        _solve_free(program, equations, free, side, weight, others, sign, x, multiplier)
        _row_answers(program, x, free, answers, slack)
        _pushes(program, answers, side, weight, others, push)
        for c in range(children):
            for h in range(others.shape[1]):
                # What a row lacks is a multiplier times its weight; its terms are large where it is 0.
                slack[c, h] = sign / np.sqrt(largest[c]) * _WEIGHT / heavy + _ROUNDING * slack[c, h]
        tired = patience == 0
        chance = generator.random((children, cells + others.shape[1])) if tired and last else np.empty((0, 0))
        least_kept = _SMALL if rounds == 1 and program.tied and cells > _FEW else -sign
        wrong = _change_minds(
            program, x, multiplier, push, answers, slack, weight, sign, least_kept, chance, free, side, others, stale
        )
        if wrong == 0 or (tired and not last):
            lacks = 0.0
            _pushes(program, answers, side, weight, others, push)
            for c in range(children):
                for h in range(others.shape[1]):
                    if side[c, h] != 0:
                        lacks = max(lacks, abs(push[c, h] - others[c, h]) / weight[c] / slack[c, h])
            others[:] = push
            if last and lacks <= 1.0:
                return x, multiplier, others, SOLVED, rounds
            if not last and (tired or lacks <= _NEAR):
                # On to narrower tolerances, even where these make no progress: most of what is left depends on them.
                stage += 1
                lacked = np.inf
            elif lacks > _SLOWLY * lacked and heavy < _MOST_WEIGHT:
                heavy *= _HEAVIER
                weight = heavy * largest
                stale[:] = True
                lacked = np.inf
            else:
                lacked = lacks
            fewest, patience = np.iinfo(np.int64).max, _PATIENCE
        elif wrong < fewest:
            fewest, patience = wrong, _PATIENCE
        elif patience > 0:
            patience -= 1
        if program.tied:
            _give_back(program, free, stale)
    return x, multiplier, others, GIVEN_UP, _MOST_ROUNDS
