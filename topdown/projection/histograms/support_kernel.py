"""The active set of a family on its support, compiled: which cells are free, and the equations on them by conjugate
gradients in the space of the directions along which no sum that is known changes (Gould, Hribar, Nocedal 2001). It is
found by rounds in which all that is wrong changes sides, or where these go in circles, by steps that only go down.

Nothing is a matrix over the cells, and what is free is held as *entries*, child after child, each a cell: most cells of
most children are 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from topdown.machine.compiled import compiled
from topdown.projection.histograms.family_kernel import factor, invert, substitute

_NOTHING = 1e-14
"""What rounding leaves of a slope, as a part of it."""

_SIGN, ROUNDING = 1e-10, 2.0**-46
"""What counts as a wrong sign, in units of the noise; and what rounding may be of the largest term."""

_HARDLY_ANY, _LOST, _PATIENCE, _SOME = 0.01, 1e-15, 10, 0.3
"""Which part of the free cells are few; what rounding leaves of the largest term; after how many rounds without
progress only some of the cells with a wrong sign change sides, and which part of them."""

_MOST_STEPS, _MOST_REFINEMENTS = 2000, 5

_MOST_OPENED = 1024
"""How many cells become free at once, at most, in `solve_descending`."""


_FACTOR, _STEP = np.uint64(6364136223846793005), np.uint64(1442695040888963407)


class JoinedQueries(NamedTuple):
    """Queries in sets: cells that have the same answer in all queries of a set are added up once, as a joint answer.

    ``answers`` (cells x sets): the joint answers of every cell among those of all sets, which begin at ``begins`` (sets
    + 1,). A set of one query has its answers, and the query's weight in ``weights`` (sets,). Of a set of several, whose
    weight is 1, the joint answers begin ``at`` (sets,) a row of ``within`` (rows x most queries), which has their
    answers among those of all such queries, and the queries' weights are in ``each`` (sets x most queries), 0 beyond
    them; of a set of one, -1.
    """

    answers: Any
    begins: Any
    weights: Any
    at: Any
    within: Any
    each: Any


class SupportArrays(NamedTuple):
    """A family, for compiled code.

    ``queries``: what was measured beside the cells; ``single``, the weight of the cells themselves, and ``diagonal``,
    of P. ``total`` (cells,): the children's sums, where they are ``tied``. ``group`` (cells,): of every cell, with the
    ``sums`` (children x groups) of its cells, which are known where there are groups; ``by_group`` (cells,), the cells
    by group, whose groups begin at ``bounds`` (groups + 1,) among them. ``coarse`` (coarse queries x cells), ``roots``
    and ``coarse_diagonal``: as `coarse_inverse` takes them; no rows where there are none.
    """

    queries: JoinedQueries
    single: float
    diagonal: float
    tied: bool
    total: Any
    group: Any
    sums: Any
    by_group: Any
    bounds: Any
    coarse: Any
    roots: Any
    coarse_diagonal: float


@compiled
def apply_queries(queries: Any, single: float, x: Any, starts: Any, cells: Any, into: Any) -> None:
    """``into`` = P ``x`` (entries,): ``single`` x, and of every query its weight times the sum over the entries of the
    same child that count in the same answer.

    ``starts`` (children + 1,): where the entries of every child begin; ``cells`` (entries,): the cell of each.
    """
    apply_elsewhere(queries, x, starts, cells, starts, cells, into)
    for e in range(len(x)):
        into[e] += single * x[e]


@compiled
def apply_elsewhere(queries: Any, x: Any, starts: Any, cells: Any, there: Any, others: Any, into: Any) -> None:
    """As `apply_queries`, without what the cells say of themselves: ``into`` (other entries,), at the entries of the
    cells ``others``, of which those of every child begin ``there`` (children + 1,)."""
    answers, begins, weights, at = queries.answers, queries.begins, queries.weights, queries.at
    sums, parts, sets = np.zeros(begins[-1]), _parts(queries), len(weights)
    for c in range(len(starts) - 1):
        for q in range(sets):
            if at[q] >= 0 or begins[q + 1] - begins[q] < 2 * (there[c + 1] - there[c]):
                sums[begins[q] : begins[q + 1]] = 0.0
            else:
                for e in range(there[c], there[c + 1]):
                    sums[answers[others[e], q]] = 0.0
        for e in range(starts[c], starts[c + 1]):
            k, value = cells[e], x[e]
            for q in range(sets):
                sums[answers[k, q]] += value
        for q in range(sets):
            _through_joined(queries, q, begins[q], sums, parts)
        for e in range(there[c], there[c + 1]):
            k, found = others[e], 0.0
            for q in range(sets):
                found += weights[q] * sums[answers[k, q]]
            into[e] = found


@compiled
def _parts(queries: Any) -> Any:
    """Room for the sums of all answers of queries that are in sets of several."""
    return np.empty(queries.within.max() + 1 if queries.within.size > 0 else 0)


@compiled
def _through_joined(queries: Any, q: int, first: int, sums: Any, parts: Any) -> None:
    """The ``sums`` (from ``first`` on) of the joint answers of the set ``q`` become, of each, the weighted sum of its
    answers in the set's queries; nothing changes where it is a set of one. ``parts``: as `_parts` gives them."""
    at, within, each = queries.at[q], queries.within, queries.each
    if at < 0:
        return
    for j in range(len(parts)):
        parts[j] = 0.0
    size = queries.begins[q + 1] - queries.begins[q]
    for j in range(size):
        if sums[first + j] != 0:
            for k in range(each.shape[1]):
                parts[within[at + j, k]] += sums[first + j]
    for j in range(size):
        found = 0.0
        for k in range(each.shape[1]):
            found += each[q, k] * parts[within[at + j, k]]
        sums[first + j] = found


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


# -- the directions of free cells along which no known sum changes ----------------------------------------------------


@compiled
def _entries(free: Any) -> Any:
    """Where the ``free`` cells (children x cells) of every child begin (children + 1,); their children and cells."""
    children, cells = free.shape
    starts = np.zeros(children + 1, np.int64)
    for c in range(children):
        count = 0
        for k in range(cells):
            count += free[c, k]
        starts[c + 1] = starts[c] + count
    row, cell, e = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int32), 0
    for c in range(children):
        for k in range(cells):
            if free[c, k]:
                row[e], cell[e] = c, k
                e += 1
    return starts, row, cell


class Space(NamedTuple):
    """The free entries, and what `_applied` and `_onto` need of them: where those of every child begin (``starts``),
    and the child and the cell of each (``row``, ``cell``). The ``answers`` (entries x sets of queries) in which it
    counts, numbered within its child, which has so many (``sizes``).

    Where sums of one kind are known: the sum of every entry and how many each has. Where the children's sums and those
    of groups are, group by group: the entries by cell (``order``, with ``ends`` in it), the children that have some
    (``members``, from ``firsts``), the ``place`` of each entry's child among them, in this order, and the ``factors``
    (from ``squares``) of the equations' Schur complement on the children, diag(number of entries) - sum over the cells
    of f f' / (number of the cell's entries), f the indicator of its children.
    """

    starts: Any
    row: Any
    cell: Any
    answers: Any
    sizes: Any
    sum_of: Any
    count: Any
    order: Any
    ends: Any
    members: Any
    firsts: Any
    place: Any
    squares: Any
    factors: Any
    kept: Any


@compiled
def _numbered(queries: Any, starts: Any, cells: Any) -> Any:
    """The answers (entries x sets) in which the entries count, with numbers of their child's own, so that sums of them
    are few and near; and how many every child has (children,). A set of several queries keeps all of its answers."""
    answers, begins, sets = queries.answers, queries.begins, len(queries.weights)
    own, sizes = np.empty((len(cells), sets), np.int32), np.zeros(len(starts) - 1, np.int64)
    seen, first = np.full(begins[-1], -1, np.int32), 0
    for q in range(sets):
        if queries.at[q] >= 0:
            for j in range(begins[q], begins[q + 1]):
                seen[j] = first
                first += 1
    for c in range(len(sizes)):
        sizes[c] = first
        for e in range(starts[c], starts[c + 1]):
            for q in range(sets):
                answer = answers[cells[e], q]
                if seen[answer] < 0:
                    seen[answer] = sizes[c]
                    sizes[c] += 1
                own[e, q] = seen[answer]
        for e in range(starts[c], starts[c + 1]):
            for q in range(sets):
                if queries.at[q] < 0:
                    seen[answers[cells[e], q]] = -1
    return own, sizes


@compiled
def _applied(family: Any, space: Any, x: Any, into: Any) -> None:
    """As `apply_queries`, at the free entries."""
    queries, answers, starts, sizes = family.queries, space.answers, space.starts, space.sizes
    weights, single, sets = queries.weights, family.single, len(queries.weights)
    sums, parts = np.empty(sizes.max()), _parts(queries)
    for c in range(len(sizes)):
        for j in range(sizes[c]):
            sums[j] = 0.0
        for e in range(starts[c], starts[c + 1]):
            value = x[e]
            for q in range(sets):
                sums[answers[e, q]] += value
        first = 0
        for q in range(sets):
            if queries.at[q] >= 0:
                _through_joined(queries, q, first, sums, parts)
                first += queries.begins[q + 1] - queries.begins[q]
        for e in range(starts[c], starts[c + 1]):
            found = single * x[e]
            for q in range(sets):
                found += weights[q] * sums[answers[e, q]]
            into[e] = found


@compiled
def _space(family: Any, starts: Any, row: Any, cell: Any) -> Any:
    """The `Space` of the free entries, as `_entries` gives them."""
    children, groups, nothing = len(starts) - 1, family.sums.shape[1], np.zeros(0, np.int64)
    both, (answers, sizes) = family.tied and groups > 0, _numbered(family.queries, starts, cell)
    sum_of = cell if family.tied else family.group[cell].astype(np.int32) if groups > 0 else np.zeros(0, np.int32)
    count = np.zeros(len(family.total) if family.tied else groups, np.int64)
    if not both:
        for e in range(len(sum_of)):
            count[sum_of[e]] += 1
        empty, none, no = np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.bool_)
        return Space(
            starts, row, cell, answers, sizes, sum_of, count,
            nothing, nothing, nothing, nothing, empty, nothing, none, no,
        )  # fmt: skip
    places = np.empty(len(family.by_group), np.int64)
    for k in range(len(places)):
        places[family.by_group[k]] = k
    ends = np.zeros(len(places) + 1, np.int64)
    for e in range(len(cell)):
        ends[places[cell[e]] + 1] += 1
    for k in range(len(places)):
        ends[k + 1] += ends[k]
    order, filled = np.empty(len(cell), np.int64), ends[:-1].copy()
    for e in range(len(cell)):
        k = places[cell[e]]
        order[filled[k]] = e
        filled[k] += 1
    place, at = np.empty(len(cell), np.int32), np.full(children, -1)
    members, firsts = np.empty(len(cell), np.int64), np.zeros(groups + 1, np.int64)
    squares, found = np.zeros(groups + 1, np.int64), 0
    for g in range(groups):
        for i in range(ends[family.bounds[g]], ends[family.bounds[g + 1]]):
            c = row[order[i]]
            if at[c] < 0:
                at[c] = found - firsts[g]
                members[found] = c
                found += 1
            place[i] = at[c]
        for j in range(firsts[g], found):
            at[members[j]] = -1
        firsts[g + 1] = found
        squares[g + 1] = squares[g] + (found - firsts[g]) ** 2
    factors, kept = np.zeros(squares[-1]), np.zeros(found, np.bool_)
    for g in range(groups):
        size = firsts[g + 1] - firsts[g]
        matrix = factors[squares[g] : squares[g + 1]].reshape((size, size))
        for k in range(family.bounds[g], family.bounds[g + 1]):
            several = ends[k + 1] - ends[k]
            for i in range(ends[k], ends[k + 1]):
                one = place[i]
                matrix[one, one] += 1.0
                for j in range(ends[k], i + 1):
                    other = place[j]
                    matrix[max(one, other), min(one, other)] -= 1.0 / several
        factor(matrix, kept[firsts[g] : firsts[g + 1]])
    return Space(
        starts, row, cell, answers, sizes, sum_of, count, order, ends, members, firsts, place, squares, factors, kept
    )  # fmt: skip


@compiled
def _onto(family: Any, space: Any, x: Any, known: bool, of_cell: Any, of_group: Any) -> None:
    """Add to the entries ``x`` the a_k + b_cg that gives them the sums that are ``known``, or sums of 0; and a to
    ``of_cell`` (cells,), b to ``of_group`` (children x groups).

    That is the nearest x with these sums. b is found first, by the equations of `Space`.
    """
    sum_of, count, order, ends, members, firsts, place, squares, factors, kept = space[5:]
    groups = family.sums.shape[1]
    if not (family.tied and groups > 0):
        if len(count) == 0:
            return
        shift = np.zeros(len(count))
        if known:
            sums = family.total if family.tied else family.sums[0]
            for k in range(len(count)):
                shift[k] = sums[k]
        for e in range(len(x)):
            shift[sum_of[e]] -= x[e]
        for k in range(len(count)):
            shift[k] /= max(count[k], 1)
        for e in range(len(x)):
            x[e] += shift[sum_of[e]]
        if family.tied:
            of_cell += shift
        else:
            of_group[0] += shift
        return
    own = np.empty(len(x))
    for g in range(groups):
        size, first, end = firsts[g + 1] - firsts[g], family.bounds[g], family.bounds[g + 1]
        if size == 0:
            continue
        lacks, right, begin = np.zeros(end - first), np.zeros(size), ends[first]
        if known:
            for k in range(first, end):
                lacks[k - first] = family.total[family.by_group[k]]
            for j in range(size):
                right[j] = family.sums[members[firsts[g] + j], g]
        for k in range(first, end):
            lack = lacks[k - first]
            for i in range(ends[k], ends[k + 1]):
                own[i - begin] = x[order[i]]  # the entries are far apart, and read once
                lack -= own[i - begin]
            lacks[k - first] = lack
            lack /= max(ends[k + 1] - ends[k], 1)
            for i in range(ends[k], ends[k + 1]):
                right[place[i]] -= own[i - begin] + lack
        matrix = factors[squares[g] : squares[g + 1]].reshape((size, size))
        substitute(matrix, kept[firsts[g] : firsts[g + 1]], right)
        for k in range(first, end):
            if ends[k + 1] == ends[k]:
                continue
            left = lacks[k - first]
            for i in range(ends[k], ends[k + 1]):
                left -= right[place[i]]
            left /= ends[k + 1] - ends[k]
            of_cell[family.by_group[k]] += left
            for i in range(ends[k], ends[k + 1]):
                x[order[i]] = own[i - begin] + (left + right[place[i]])
        for j in range(size):
            of_group[members[firsts[g] + j], g] += right[j]


@compiled
def _impossible(family: Any, space: Any, x: Any, lost: Any) -> bool:
    """Whether ``lost`` (groups,), the groups whose free cells cannot have the sums that are known, has any; the entries
    ``x`` would have them if they could."""
    row, cell = space.row, space.cell
    children, groups = family.sums.shape
    answers, by_cell = family.sums.copy(), family.total.copy()
    for e in range(len(x)):
        answers[row[e], family.group[cell[e]]] -= x[e]
        if family.tied:
            by_cell[cell[e]] -= x[e]
    some = False
    off = np.zeros(groups)
    for k in range(len(by_cell)):
        off[family.group[k]] += abs(by_cell[k])
    for g in range(groups):
        largest = 0.0
        for c in range(children):
            off[g] = max(off[g], abs(answers[c, g]))
            largest = max(largest, family.sums[c, g])
        lost[g] = off[g] > 1e-7 * (1 + largest)
        some = some or lost[g]
    return some


class Search(NamedTuple):
    """What is known of a solution that is sought: ``x``, with the linear term ``g``, the cells ``allowed`` to have
    records, those that are ``free``, and those that go ``around`` a cycle of `_shift_multipliers`, all (children x
    cells); the multipliers of the sums over the children, ``of_cell`` (cells,), and of the groups, ``of_group``
    (children x groups); and of the entries that are allowed, ``starts``, ``row`` and ``cell`` as of `_entries`, what
    each ``lacks``, as `_find_wrong` says it.
    """

    x: Any
    g: Any
    allowed: Any
    free: Any
    around: Any
    of_cell: Any
    of_group: Any
    starts: Any
    row: Any
    cell: Any
    lacks: Any


@compiled
def _search(x: Any, g: Any, allowed: Any, of_cell: Any, of_group: Any) -> Any:
    """The `Search` from ``x`` on."""
    starts, row, cell = _entries(allowed)
    around = np.zeros(x.shape, np.bool_)
    return Search(x, g, allowed, allowed & (x > 0), around, of_cell, of_group, starts, row, cell, np.empty(len(cell)))


@compiled
def _shift_multipliers(family: Any, search: Any, slope: Any) -> None:
    """Shift the multipliers, where the free cells leave them open, so that no ``slope`` (children x cells) of an
    allowed cell that is not free is below them.

    The children and cells of a group that free cells connect are one part, in which all a_k may rise by as much as
    all b_c fall. Rises t with t(part of k) - t(part of c) <= slope - a_k - b_c are found as shortest paths (Bellman
    1958); where there are none, since a cycle of cells would lower the objective, some slopes stay below, and the cells
    of one such cycle of every group are marked as going ``around``.
    """
    free, of_cell, of_group, around, children = (
        search.free, search.of_cell, search.of_group, search.around, len(search.free)
    )  # fmt: skip
    around[:] = False
    for g in range(len(family.bounds) - 1):
        own = family.by_group[family.bounds[g] : family.bounds[g + 1]]
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
        rise, before = np.zeros(len(part)), np.full(len(part), -1)  # the part from which a rise came
        through = np.zeros((len(part), 2), np.int64)  # and the child and the cell
        for _ in range(children):
            changed = -1
            for i in range(len(own)):
                k, mine = own[i], part[children + i]
                for c in range(children):
                    theirs = part[c]
                    if mine != theirs and search.allowed[c, k] and not free[c, k]:
                        most = rise[theirs] + slope[c, k] - of_cell[k] - of_group[c, g]
                        if rise[mine] > most + _NOTHING * abs(slope[c, k]):
                            rise[mine], before[mine] = most, theirs
                            through[mine, 0], through[mine, 1] = c, k
                            changed = mine
            if changed < 0:
                break
        for i in range(len(own)):
            of_cell[own[i]] += rise[part[children + i]]
        for c in range(children):
            of_group[c, g] -= rise[part[c]]
        for _ in range(children):  # what still changed is on a cycle, or was reached from one
            changed = before[changed] if changed >= 0 else -1
        while changed >= 0 and not around[through[changed, 0], through[changed, 1]]:
            around[through[changed, 0], through[changed, 1]] = True
            changed = before[changed]


# -- the active set ---------------------------------------------------------------------------------------------------


@compiled
def _product(one: Any, other: Any) -> float:
    # Four sums, which a processor forms beside each other; one after the other would take four times as long.
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    fours = len(one) - len(one) % 4
    for e in range(0, fours, 4):
        a += one[e] * other[e]
        b += one[e + 1] * other[e + 1]
        c += one[e + 2] * other[e + 2]
        d += one[e + 3] * other[e + 3]
    for e in range(fours, len(one)):
        a += one[e] * other[e]
    return (a + b) + (c + d)


@compiled
def _exceeds(vector: Any, enough: float) -> bool:
    """Whether the largest size in ``vector`` is above ``enough``."""
    for value in vector:  # compiled code has no generators  # noqa: SIM110
        if abs(value) > enough:
            return True
    return False


@compiled
def _largest(vector: Any) -> float:
    found = 0.0
    for e in range(len(vector)):
        found = max(found, abs(vector[e]))
    return found


@compiled
def _equations(family: Any, space: Any, g: Any, x: Any, enough: float, within: bool) -> None:
    """The minimum over the free cells with the sums that are known, from the entries ``x`` on, which have them, to a
    residual of ``enough``; ``g`` (entries,), the linear term."""
    cells, of_cell, of_group = space.cell, np.zeros(len(family.group)), np.zeros(family.sums.shape)
    answers = len(family.roots)
    inverse = np.empty((answers, answers))
    if answers > 0:
        coarse_inverse(cells, family.coarse, family.roots, family.coarse_diagonal, inverse)
    lacks, turned = np.empty(len(x)), np.empty(len(x))
    nearly, steps = lacks if answers == 0 else np.empty(len(x)), 0
    for _ in range(_MOST_REFINEMENTS):  # afresh, since the steps' rounding adds up
        _applied(family, space, x, lacks)
        for e in range(len(x)):
            lacks[e] = g[e] - lacks[e]
        for _ in range(2):  # the second time what rounding left
            _onto(family, space, lacks, False, of_cell, of_group)
        if not _exceeds(lacks, enough):
            break
        if answers > 0:
            coarse_solve(lacks, cells, family.coarse, family.roots, family.coarse_diagonal, inverse, nearly)
        towards, size = nearly.copy(), _product(lacks, nearly)
        while steps < _MOST_STEPS and _exceeds(lacks, enough):
            _applied(family, space, towards, turned)
            length = size / _product(towards, turned)
            for e in range(len(x)):
                x[e] += length * towards[e]
                lacks[e] -= length * turned[e]
            if within:
                low = 0.0
                for e in range(len(x)):
                    low = min(low, x[e])
                if low < -ROUNDING * _largest(x):
                    return
            _onto(family, space, lacks, False, of_cell, of_group)
            if answers > 0:
                coarse_solve(lacks, cells, family.coarse, family.roots, family.coarse_diagonal, inverse, nearly)
            last = size
            size = _product(lacks, nearly)
            for e in range(len(x)):
                towards[e] = nearly[e] + size / last * towards[e]
            steps += 1


@compiled
def _taken(table: Any, space: Any) -> Any:
    """The entries of the free cells of ``table`` (children x cells)."""
    found = np.empty(len(space.row))
    for e in range(len(found)):
        found[e] = table[space.row[e], space.cell[e]]
    return found


@compiled
def _find_wrong(family: Any, search: Any, space: Any, found: Any, left: float) -> int:
    """How many of the allowed entries are on the wrong side, and what each lacks, in the slope's units, 0 where it is
    right: a free one is below 0, any other would lower the objective. The multipliers are found, too.

    ``found``: the entries of the solution of the equations of the ``space``, to ``left``.
    """
    x, g, free, of_cell, of_group = search.x, search.g, search.free, search.of_cell, search.of_group
    starts, row, cell, lacks = search.starts, search.row, search.cell, search.lacks
    groups, unit = family.sums.shape[1], np.sqrt(family.diagonal)
    slopes, slope = np.empty(len(cell)), np.zeros(x.shape)
    apply_elsewhere(family.queries, found, space.starts, space.cell, starts, cell, slopes)
    for e in range(len(cell)):
        slope[row[e], cell[e]] = slopes[e] + family.single * x[row[e], cell[e]] - g[row[e], cell[e]]
    pushed = -_taken(slope, space)
    of_cell[:] = 0.0
    of_group[:] = 0.0
    for _ in range(2):  # the second time what rounding left
        _onto(family, space, pushed, False, of_cell, of_group)
    if family.tied and groups > 0:
        _shift_multipliers(family, search, slope)
    slack, count = max(_SIGN, left), 0
    for c in range(len(starts) - 1):
        most = 0.0
        for e in range(starts[c], starts[c + 1]):
            most = max(most, abs(x[c, cell[e]]))
        for e in range(starts[c], starts[c + 1]):
            k = cell[e]
            if free[c, k]:
                lack, much = -x[c, k] * family.diagonal, family.diagonal * most
            else:
                known = of_cell[k] + (of_group[c, family.group[k]] if groups > 0 else 0.0)
                lack, much = known - slope[c, k], abs(g[c, k]) + abs(known) + family.diagonal * most
            lacks[e] = lack if lack > slack * unit + ROUNDING * much else 0.0
            count += lacks[e] > 0
    return count


@compiled
def solve_active_set(
    family: Any, x: Any, g: Any, allowed: Any, left: Any, rough: int, most_rounds: int, of_cell: Any, of_group: Any
) -> int:
    """The solution, sought from ``x`` (children x cells) on, in its place, and the multipliers of the sums over the
    children, ``of_cell`` (cells,), and of the groups, ``of_group`` (children x groups); how many rounds it took, 0
    where it is not found in ``most_rounds``.

    ``g``: the linear term; ``allowed``: the cells that can have records; both (children x cells). ``left`` (stages,):
    what is left of a round's equations, in units of the noise: the next stage where no cell changes sides any more, in
    the first stages, which are ``rough``, where hardly any does.
    """
    cells, groups = x.shape[1], family.sums.shape[1]
    unit, scale = np.sqrt(family.diagonal), max(1.0, np.abs(g).max())
    search = _search(x, g, allowed, of_cell, of_group)
    free, row, cell, lacks = search.free, search.row, search.cell, search.lacks
    lost, coin = np.zeros(groups, np.bool_), np.uint64(1)
    fewest, patience, stage = x.size + 1, _PATIENCE, 0
    for rounds in range(1, most_rounds + 1):
        space = _space(family, *_entries(free))
        for again in range(2):
            found = _taken(x, space)
            for _ in range(2):  # the second time what rounding left
                _onto(family, space, found, True, of_cell, of_group)
            if again == 1 or groups == 0 or not _impossible(family, space, found, lost):
                break
            # The free cells cannot have these groups' sums: all of the groups' cells may.
            for e in range(len(cell)):
                if lost[family.group[cell[e]]]:
                    free[row[e], cell[e]] = True
            space = _space(family, *_entries(free))
        _equations(family, space, _taken(g, space), found, left[stage] * unit + _LOST * scale, False)
        x[:] = 0.0
        for e in range(len(found)):
            x[space.row[e], space.cell[e]] = found[e]
        count = _find_wrong(family, search, space, found, left[stage])
        some = False
        if count == 0 or (stage < rough and count <= _HARDLY_ANY * len(found)):
            if stage == len(left) - 1:
                return rounds
            stage, fewest, patience = stage + 1, x.size + 1, _PATIENCE
        elif count < fewest:
            fewest, patience = count, _PATIENCE
        elif patience > 0:
            patience -= 1
        else:
            # No progress, as where known sums leave multipliers open: only some change, others in every round.
            some = True
        for e in range(len(cell)):
            if lacks[e] > 0:
                coin = coin * _FACTOR + _STEP  # a linear congruential generator (Knuth)
                if not some or coin >> np.uint64(32) < _SOME * 2.0**32:
                    free[row[e], cell[e]] = not free[row[e], cell[e]]
        if family.tied:
            for k in range(cells):
                if not free[:, k].any():
                    for c in range(len(free)):
                        free[c, k] = allowed[c, k]
    return 0


@compiled
def _staying(space: Any, values: Any, stays: Any) -> Any:
    """The entries of the ``space`` that stay free, as `_entries` gives them, and their ``values``."""
    starts = np.zeros(len(space.starts), np.int64)
    for e in range(len(stays)):
        starts[space.row[e] + 1] += stays[e]
    for c in range(len(starts) - 1):
        starts[c + 1] += starts[c]
    return starts, space.row[stays], space.cell[stays], values[stays]


@compiled
def solve_descending(
    family: Any, x: Any, g: Any, allowed: Any, left: Any, most_rounds: int, of_cell: Any, of_group: Any
) -> int:
    """As `solve_active_set`, but from an ``x`` on that is not below 0 and has the sums that are known, as all later
    ones are and have. The objective falls in every round, so that the search ends (Nocedal, Wright 2006, section
    16.5); it takes many rounds.

    A step goes as far as the first cell that gets to 0, which is no longer free. Where none does, all cells become free
    that would lower the objective. Where the children's sums and those of groups are known, such a step may have no
    length: then the cells of cycles become free, or half as many as before. Where not even these have one, what is left
    is below the accuracy of the stage.
    """
    both = family.tied and family.sums.shape[1] > 0
    unit, scale = np.sqrt(family.diagonal), max(1.0, np.abs(g).max())
    search = _search(x, g, allowed, of_cell, of_group)
    free, around, lacks = search.free, search.around, search.lacks
    space = _space(family, *_entries(free))
    values = _taken(x, space)
    at_once, stage, moved, cycle = _MOST_OPENED, 0, True, False
    for rounds in range(1, most_rounds + 1):
        found = values.copy()
        for _ in range(2):  # the second time what rounding left
            _onto(family, space, found, True, of_cell, of_group)
        _equations(family, space, _taken(g, space), found, left[stage] * unit + _LOST * scale, True)
        nothing, length = ROUNDING * _largest(found), 1.0
        for e in range(len(found)):
            if found[e] < -nothing:
                length = min(length, values[e] / (values[e] - found[e]))
        stays = np.empty(len(found), np.bool_)
        for e in range(len(found)):
            reached = values[e] + length * (found[e] - values[e])
            stays[e] = reached > nothing or (length < 1.0 and found[e] >= -nothing)
            moved = moved or abs(reached - values[e]) > nothing
            found[e] = max(reached, 0.0)
        starts, row, cell, values = _staying(space, found, stays)
        space = _space(family, starts, row, cell)
        if length < 1.0:
            continue
        x[:] = 0.0
        free[:] = False
        for e in range(len(values)):
            x[row[e], cell[e]], free[row[e], cell[e]] = values[e], True
        count = _find_wrong(family, search, space, values, left[stage])
        at_once = min(max(1, 2 * at_once), _MOST_OPENED, count) if moved else at_once // 2
        ends = cycle and not moved
        cycle = bool(both and not moved and around.any())
        if count == 0 or ends or (at_once == 0 and not cycle):
            if stage == len(left) - 1:
                return rounds
            stage, at_once, moved, cycle = stage + 1, _MOST_OPENED, True, False
            continue
        least = np.sort(lacks)[-at_once] if count > at_once else 0.0
        for e in range(len(lacks)):
            if around[search.row[e], search.cell[e]] if cycle else lacks[e] > 0 and lacks[e] >= least:
                free[search.row[e], search.cell[e]] = True
        space, moved = _space(family, *_entries(free)), False
        values = _taken(x, space)
    return 0


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
