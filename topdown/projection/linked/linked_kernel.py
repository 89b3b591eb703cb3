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
_LEFT, _LEAST_LEFT, _ENOUGH = 1e-1, 1e-15, 1e-11
"""What may be left of the sums when conjugate gradients end, as a part of what counts as a wrong sign, and at least, as
a part of the sums, as rounding leaves it; and the change of a solution, in units of the noise, that is refined no
further."""

_SMALL, _FEW = 2.5, 64
"""Cells below this, in units of the noise, are dropped in the first round, where there are more than so many: the next
rounds are then smaller, and cells that were dropped wrongly come back."""

_FEWER = 0.8
"""The inverse is made of the answers that weigh where there are fewer than so many for every free cell."""

_SOME = 0.3
"""Which part of the cells and rows on the wrong side change sides, on average, where all of them make no progress: in
every round another part, since one may go in circles where another does not."""

_NONE = 2**32 - 1
"""The number of no answer. Numbers of answers have no sign, so that they are not looked at whether they are below 0."""


class FamilyArrays(NamedTuple):
    """A family's program as the compiled loops take it.

    Several cells count in an *answer*: to a query, or, with coefficients, to a row.

    ``g`` (children x cells), the linear part; ``unit`` (children x cells), the root of the information's diagonal;
    ``alone`` (children x cells), the precision of what is measured of single cells; ``answers`` (cells x places),
    those in which a cell counts, first of every query and then of rows, the number of all where there is none;
    ``parts`` (cells x places after the queries'), its coefficients in the rows; ``first``, the number of queries'
    answers; ``precision`` (children x queries); ``total`` (cells,), what the children add up to where they are
    ``tied``; ``allowed`` (children x cells); ``low`` and ``high`` (children x rows), between which the rows'
    answers are.
    """

    # The class's name stays: it is in the caches of compiled loops, which numba reads before it looks whether they are
    # those of this file.
    g: Any
    unit: Any
    alone: Any
    answers: Any
    parts: Any
    first: int
    precision: Any
    total: Any
    tied: bool
    allowed: Any
    low: Any
    high: Any


class Begin(NamedTuple):
    """Where the rounds begin. They change it.

    ``free`` (children x cells): the cells that may be above 0; ``side`` (children x rows): the bound at which a row is
    held, -1 below, 1 above, 2 where both are one, 0 for neither; the multipliers of the ``sums`` (cells,) and of the
    ``rows`` (children x rows); ``stage``, of the tolerances.
    """

    free: Any
    side: Any
    sums: Any
    rows: Any
    stage: int

    @classmethod
    def from_nothing(cls, program: FamilyArrays) -> Begin:
        """Every cell free, and rows held only where they have no choice."""
        side = np.where(program.low == program.high, 2, 0).astype(np.int8)
        return cls(program.allowed.copy(), side, np.zeros_like(program.total), np.zeros_like(program.low), 0)

    @classmethod
    def near(cls, program: FamilyArrays, x: Any, sums: Any, rows: Any) -> Begin:
        """At the solution of a program that differs little: ``x`` (children x cells) and its multipliers."""
        side = np.where(program.low == program.high, 2, -np.sign(rows)).astype(np.int8)
        return cls(program.allowed & (x > 0), side, sums.copy(), rows.copy(), len(_SIGNS) - 1)


@compiled
def _no_equations(children: int) -> Any:
    cells, answers = np.empty(0, np.int64), np.empty((0, 0), np.uint32)
    return [(cells, np.empty(0), answers, np.empty((0, 0)), np.empty((0, 0))) for _ in range(children)]


@compiled
def _weights(program: Any, side: Any, weight: float, c: Any) -> Any:
    """The weights of a child's answers: of those of queries, by place (queries,), and of rows (rows + 1,), which weigh
    if they are held; the last one is that of none, 0."""
    rows = np.zeros(side.shape[1] + 1)
    for h in range(side.shape[1]):
        if side[c, h] != 0:
            rows[h] = weight
    return program.precision[c], rows


@compiled
def _refresh(program: Any, free: Any, side: Any, weight: Any, stale: Any, equations: Any) -> bool:
    """Make the ``equations`` of the children that are ``stale``; False where they have no solution.

    A child's are its free cells (n,), 1 / D (n,), the answers that weigh (n x the most that a cell has, then the number
    of all) and their coefficients times the roots of their weights (of the same shape), and the inverse: of
    1 + R A D^-1 A' R, or that of the cells, where no answers are given.
    """
    answers, parts, places = program.answers, program.parts, program.answers.shape[1]
    every = program.first + side.shape[1]
    size, number = np.empty(every + 1, np.int64), np.empty(every + 1, np.uint32)
    before: Any = -1
    for c in np.flatnonzero(stale):
        stale[c] = False
        if before >= 0 and _same(program, free, side, weight, before, c):
            equations[c] = equations[before]  # as in the first round
            continue
        before = c
        (precision, held), alone = _weights(program, side, weight[c], c), program.alone[c]
        index = np.flatnonzero(free[c])
        n, queries = len(index), len(precision)
        size[:] = 0
        for k in index:
            for p in range(places):
                size[answers[k, p]] += 1
        size[every] = 0
        diagonal, own, part = np.empty(n), np.full((n, places), _NONE, np.uint32), np.zeros((n, places))
        weigh, widest = 0, 0
        for e in range(n):
            k, width = index[e], 0
            diagonal[e] = alone[k]
            for p in range(places):
                a = answers[k, p]
                own_weight = precision[p] if p < queries else held[np.int64(a) - program.first]
                if size[a] == 0 or own_weight == 0:
                    continue
                own_part = 1.0 if p < queries else parts[k, p - queries]
                if size[a] == 1:
                    diagonal[e] += own_weight * own_part**2
                    continue
                if size[a] > 0:
                    number[a] = weigh
                    size[a] = -1
                    weigh += 1
                own[e, width] = number[a]
                part[e, width] = own_part * np.sqrt(own_weight)
                width += 1
            widest = max(widest, width)
        own, part = own[:, :widest].copy(), part[:, :widest].copy()
        if weigh < _FEWER * n:
            for e in range(n):
                for p in range(widest):
                    if own[e, p] == _NONE:
                        own[e, p] = weigh
            inverse = _of_answers(1 / diagonal, own, part, weigh)
        else:
            inverse = _of_cells(diagonal, own, part, weigh)
            own, part = np.empty((0, 0), np.uint32), np.empty((0, 0))
        if len(inverse) and not invert(inverse):
            return False
        equations[c] = index, 1 / diagonal, own, part, inverse
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
def _of_answers(spread: Any, own: Any, part: Any, weigh: int) -> Any:
    """1 + R A D^-1 A' R."""
    found = np.zeros((weigh, weigh))
    for e in range(len(spread)):
        for p in range(own.shape[1]):
            one, times = own[e, p], spread[e] * part[e, p]
            if one == weigh:
                break  # and so are the rest
            for q in range(p + 1):
                other = own[e, q]
                found[max(one, other), min(one, other)] += times * part[e, q]
    for a in range(weigh):
        found[a, a] += 1.0
        for b in range(a):
            found[b, a] = found[a, b]
    return found


@compiled
def _of_cells(diagonal: Any, own: Any, part: Any, weigh: int) -> Any:
    """D + A' S A."""
    n, places = own.shape
    found, begins = np.zeros((n, n)), np.zeros(weigh + 1, np.int64)
    for e in range(n):
        found[e, e] = diagonal[e]
        for p in range(places):
            if own[e, p] != _NONE:
                begins[own[e, p] + 1] += 1
    begins = np.cumsum(begins)
    # The free cells of every answer, and with which coefficients.
    cells, parts, ends = np.empty(begins[-1], np.int64), np.empty(begins[-1]), begins[:-1].copy()
    for e in range(n):
        for p in range(places):
            a = own[e, p]
            if a != _NONE:
                cells[ends[a]], parts[ends[a]] = e, part[e, p]
                ends[a] += 1
    for a in range(weigh):
        for i in range(begins[a], begins[a + 1]):
            mine, times = found[cells[i]], parts[i]
            for j in range(begins[a], begins[a + 1]):
                mine[cells[j]] += times * parts[j]
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
    index, spread, own, part, inverse = child
    n, places = len(index), own.shape[1]
    found = np.empty(n)
    for e in range(n):
        found[e] = vector[index[e]]
    if len(inverse) == n:
        return _times(inverse, found)
    sums = np.zeros(len(inverse) + 1)
    for e in range(n):
        found[e] *= spread[e]
        for p in range(places):
            sums[own[e, p]] += part[e, p] * found[e]
    turned = _times(inverse, sums[:-1])
    for j in range(len(turned)):
        sums[j] = turned[j]
    for e in range(n):
        back = 0.0
        for p in range(places):
            back += part[e, p] * sums[own[e, p]]
        found[e] -= spread[e] * back
    return found


@compiled
def _slope(
    program: Any,
    x: Any,
    c: int,
    index: Any,
    wanted: Any,
    side: Any,
    weight: float,
    others: Any,
    sums: Any,
    push: Any,
    into: Any,
) -> None:
    """P x - g - what the rows add (cells,), of the child ``c``, on the ``wanted`` cells; its free ones are ``index``.
    ``push`` (rows,): what every row adds, its multiplier; ``sums`` (answers + 1,) is room to work in, in which the
    rows' answers are left."""
    answers, parts, precision = program.answers, program.parts, program.precision[c]
    alone, g, first, low, high = program.alone[c], program.g[c], program.first, program.low[c], program.high[c]
    queries, of_rows = answers[:, : len(precision)], answers[:, len(precision) :]
    sums[:] = 0.0
    for k in index:
        for q in range(queries.shape[1]):
            sums[queries[k, q]] += precision[q] * x[k]
        for p in range(of_rows.shape[1]):
            sums[of_rows[k, p]] += parts[k, p] * x[k]
    rows = sums[first:].copy()
    sums[-1] = 0.0
    for h in range(len(push)):
        push[h] = 0.0
        if side[h] != 0:
            bound = high[h] if side[h] > 0 else low[h]
            push[h] = others[h] + weight * (bound - rows[h])
        sums[first + h] = -push[h]
    for k in wanted:
        found = alone[k] * x[k] - g[k]
        for q in range(queries.shape[1]):
            found += sums[queries[k, q]]
        for p in range(of_rows.shape[1]):
            found += parts[k, p] * sums[of_rows[k, p]]
        into[k] = found
    for h in range(len(rows)):
        sums[first + h] = rows[h]


@compiled
def _begun(program: Any, equations: Any, side: Any, weight: Any) -> tuple[Any, Any]:
    """What `_nearly` takes: the sum over children of 1 / D (cells,), and of every answer (answers + 1,) 1 / the sum of
    the variances."""
    (cells, places), queries, answers = program.answers.shape, program.precision.shape[1], program.answers
    scale, known = np.zeros(cells), np.zeros(program.first + side.shape[1] + 1)
    there = np.full(len(known), -1, np.int64)
    for c in range(len(equations)):
        (precision, held), alone = _weights(program, side, weight[c], c), program.alone[c]
        for k in equations[c][0]:
            scale[k] += 1 / alone[k]
            for p in range(places):
                a = answers[k, p]
                if there[a] != c:
                    there[a] = c
                    own_weight = precision[p] if p < queries else held[np.int64(a) - program.first]
                    known[a] += 1 / own_weight if own_weight > 0 else np.inf
    for a in range(len(known)):
        known[a] = 1 / known[a] if known[a] > 0 else 0.0
    return scale, known


@compiled
def _nearly(program: Any, vector: Any, scale: Any, known: Any, into: Any) -> None:
    """``into`` = what would be the inverse of the sum of the children's inverses, if all had the same free cells, times
    a ``vector`` (cells,): the information of the sum of several measured values, of which the variances add up."""
    sums, parts, count = np.zeros(len(known)), program.parts, program.precision.shape[1]
    queries, of_rows = program.answers[:, :count], program.answers[:, count:]
    for k in range(len(vector)):
        for q in range(queries.shape[1]):
            sums[queries[k, q]] += vector[k]
        for p in range(of_rows.shape[1]):
            sums[of_rows[k, p]] += parts[k, p] * vector[k]
    sums *= known
    sums[-1] = 0.0
    for k in range(len(vector)):
        if scale[k] == 0:
            into[k] = 0.0
            continue
        found = vector[k] / scale[k]
        for q in range(queries.shape[1]):
            found += sums[queries[k, q]]
        for p in range(of_rows.shape[1]):
            found += parts[k, p] * sums[of_rows[k, p]]
        into[k] = found


@compiled
def _solve_sums(program: Any, equations: Any, side: Any, weight: Any, left: Any, least: float) -> Any:
    """By how much the sums' multipliers (cells,) have to rise for the children's sums to change by ``left`` (cells,),
    by conjugate gradients until what is left is the ``least``, the square of its size in units of the noise."""
    scale, known = _begun(program, equations, side, weight)
    cells = len(left)
    found, towards, turned = np.zeros(cells), np.empty(cells), np.empty(cells)
    for k in range(cells):
        if scale[k] == 0:
            left[k] = 0.0
    _nearly(program, left, scale, known, towards)
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
        _nearly(program, left, scale, known, towards)
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
    """``x`` and the sums' ``multiplier`` for the free cells and held rows; in the last stage refined until what is left
    is rounding."""
    children, cells = x.shape
    lacks, sums, push = np.empty_like(x), np.empty(program.first + side.shape[1] + 1), np.empty(side.shape[1])
    largest = program.unit.max()
    for c in range(children):
        for k in range(cells):
            if not free[c, k]:
                x[c, k] = 0.0
    least, last = max(_LEFT * sign, _LEAST_LEFT * np.sqrt(_product(program.total, program.total)) * largest), np.inf
    for _ in range(_MOST_REFINEMENTS if sign == _SIGNS[-1] else 1):
        for c in range(children):
            index, mine = equations[c][0], lacks[c]
            _slope(program, x[c], c, index, index, side[c], weight[c], others[c], sums, push, mine)
            for k in index:
                mine[k] = multiplier[k] - mine[k]
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
            index, own, unit = equations[c][0], _solution(equations[c], lacks[c]), program.unit[c]
            for e in range(len(index)):
                x[c, index[e]] += own[e]
                worst = max(worst, abs(own[e]) * unit[index[e]])
        if worst < _ENOUGH or worst > last / 4:
            break
        last = worst


@compiled
def _slacks(program: Any, x: Any, c: int, index: Any, into: Any) -> None:
    """What rounding may make of the rows' answers (rows,) of a child: its terms are large where one is 0."""
    parts, answers = program.parts, program.answers[:, program.precision.shape[1] :]
    into[:] = 0.0
    for k in index:
        for p in range(answers.shape[1]):
            h = np.int64(answers[k, p]) - program.first
            if h < len(into):
                into[h] += _ROUNDING * abs(parts[k, p] * x[k])


@compiled
def _change_minds(
    program: Any,
    x: Any,
    multiplier: Any,
    weight: Any,
    slack: Any,
    sign: float,
    least_kept: float,
    chance: Any,
    free: Any,
    side: Any,
    others: Any,
    push: Any,
    stale: Any,
) -> int:
    """How many cells and rows are on the wrong side; they are moved to the other, all of them or some: those of which
    ``chance`` (children x (cells + rows)) says so, if it has any. ``slack`` (children x rows): what rows may lack; and
    what every row adds is put into ``push``."""
    children, cells = x.shape
    slope, sums, every, wrong = np.empty(cells), np.empty(program.first + side.shape[1] + 1), np.arange(cells), 0
    for c in range(children):
        index = np.flatnonzero(free[c])
        _slope(program, x[c], c, index, every, side[c], weight[c], others[c], sums, push[c], slope)
        most, strongest, answers = np.abs(x[c]).max(), program.unit[c].max(), sums[program.first :]
        g, units, allowed, total = program.g[c], program.unit[c], program.allowed[c], program.total
        for k in range(cells):
            if not allowed[k]:
                continue
            unit = units[k]
            if free[c, k]:
                # A cell shares the rounding of its siblings' sum.
                largest = max(most, total[k])
                is_wrong = x[c, k] * unit < least_kept - _ROUNDING * largest * unit
            else:
                terms = abs(g[k]) + abs(multiplier[k]) + unit * unit * most
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
            elif to == 0 and answers[h] < program.low[c, h] - slack[c, h]:
                to = -1
            elif to == 0 and answers[h] > program.high[c, h] + slack[c, h]:
                to = 1
            if to != side[c, h]:
                wrong += 1
                if len(chance) == 0 or chance[c, cells + h] < _SOME:
                    # A row that is held from now on is pushed by its weight alone.
                    bound = program.high[c, h] if to > 0 else program.low[c, h]
                    push[c, h] = weight[c] * (bound - answers[h]) if to != 0 else 0.0
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
def solve_linked(program: Any, begin: Any, generator: Any) -> tuple[Any, Any, Any, int, int]:
    """The solution x (children x cells) of a program's `FamilyArrays`, the multipliers of the sums (cells,) and of the
    rows (children x rows), how it ended and in how many rounds, from where these `Begin`. ``generator`` decides who
    changes sides where all of them make no progress."""
    children, cells = program.g.shape
    free, side, multiplier, others, stage = begin
    x, rows, largest = np.zeros_like(program.g), others.shape[1], np.empty(children)
    for c in range(children):
        largest[c] = program.unit[c].max() ** 2
    push, slack = np.empty_like(others), np.empty_like(others)
    equations, stale = _no_equations(children), np.ones(children, np.bool_)
    heavy, lacked, fewest, patience = _WEIGHT, np.inf, np.iinfo(np.int64).max, _PATIENCE
    weight = heavy * largest
    for rounds in range(1, _MOST_ROUNDS + 1):
        sign, last, tired = _SIGNS[stage], stage == len(_SIGNS) - 1, patience == 0
        if not _refresh(program, free, side, weight, stale, equations):
            return x, multiplier, others, SINGULAR, rounds
        _solve_free(program, equations, free, side, weight, others, sign, x, multiplier)
        if not np.isfinite(x.sum()):
            return x, multiplier, others, GIVEN_UP, rounds
        for c in range(children):
            _slacks(program, x[c], c, equations[c][0], slack[c])
            for h in range(rows):
                # What a row lacks is a multiplier times its weight.
                slack[c, h] += sign / np.sqrt(largest[c]) * _WEIGHT / heavy
        chance = generator.random((children, cells + rows)) / (2.0 * generator.random()) if tired else np.empty((0, 0))
        least_kept = _SMALL if rounds == 1 and stage == 0 and program.tied and cells > _FEW else -sign
        wrong = _change_minds(
            program, x, multiplier, weight, slack, sign, least_kept, chance, free, side, others, push, stale
        )
        if wrong == 0 or (tired and not last):
            lacks = 0.0
            for c in range(children):
                for h in range(rows):
                    if side[c, h] != 0:
                        lacks = max(lacks, abs(push[c, h] - others[c, h]) / weight[c] / slack[c, h])
            for c in range(children):
                for h in range(rows):
                    others[c, h] = push[c, h]
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
