"""Whole households and persons of one family, which always exist.

Whole households first: a flow that keeps units, households, sizes and classes at the floor or the ceiling of what the
program says, then swaps that bring the numbers of members which the households ask for nearer to the program's. The
rows are additive over children, so whatever whole split of the parent's households this is, the parent's members can
follow it. Then the persons: the program again with the households held; whole numbers of members by child and group
by a flow through the classes of households, which has a solution and hence a whole one; and cells, group by group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray, IntArray
from topdown.linked.member_groups import Compositions
from topdown.linked.universe import BoolArray, Universe
from topdown.noise.randomness import Source
from topdown.projection.check.certificate import Residuals
from topdown.projection.histograms.families import Solved
from topdown.projection.histograms.flow import nearest, network
from topdown.projection.linked.linked_family import LinkedFamily

_CANDIDATES = 24
"""Cells of a child's households that are looked at when some are swapped: those furthest above the program's."""

_PERSONS, _GROUPS, _OCCUPIED, _ANSWERS, _OWN = 1.0, 0.3, 0.5, 0.3, 0.15
"""The weights of a swap's objective: members in all, members by group, households, answers to a query, cells."""

_FEW = 60
"""Answers of a query that swaps keep near the program's; more are kept by cells."""

_STEPS = 2
"""Whole numbers on either side of a number of members that have a cost of their own; beyond, it grows no steeper."""

_SMALL = 2e-5
"""What of a cell counts as nothing where it is made whole: many such would add up."""

_EXACT = 1e-9
"""By how much a sum may be off."""

SolveFamily = Callable[[LinkedFamily], tuple[Solved, Residuals]]


class WholeFamily(NamedTuple):
    """``counts`` (children x cells), and what the persons' program, with the households held, lacks."""

    counts: IntArray
    residuals: Residuals | None


def whole_family(
    universe: Universe, family: LinkedFamily, x: FloatArray, solve: SolveFamily, source: Source
) -> WholeFamily:
    """Whole counts near the solution ``x`` of a family; ``source`` breaks ties. Raises `ProjectionError` where they are
    not what they must be, which would be a defect."""
    unit = universe.is_unit(family.cells)
    counts = np.zeros(x.shape, np.int64)
    counts[:, unit] = _units(universe, family, x, unit, source)
    residuals = None
    if (~unit).any():
        persons = family.given(counts, unit)
        solved, residuals = solve(persons)
        counts[:, ~unit] = _members(universe, family, counts, unit, solved.x, source)
    _require(family, counts)
    return WholeFamily(counts, residuals)


def _cleaned(x: FloatArray, total: FloatArray | None, group: IntArray) -> FloatArray:
    """``x`` without what is nothing: every cell's sum as it was, where there is a ``total``, and every child's sum over
    each ``group`` (cells,) of cells, since such a sum may be a whole number that must stay."""
    found = np.where(x < _SMALL, 0.0, x)
    if total is not None:
        gone = x.sum(axis=0) - found.sum(axis=0)
        found[np.argmax(found, axis=0), np.arange(x.shape[1])] += gone + total - x.sum(axis=0)
    for own in np.unique(group):
        cells = np.flatnonzero(group == own)
        lacks = x[:, cells].sum(axis=1) - found[:, cells].sum(axis=1)
        if total is None:
            largest = cells[np.argmax(found[:, cells], axis=1)]
            found[np.arange(len(x)), largest] += lacks
            continue
        # From who has too much to who has too little, in cells that both have, one child after the other.
        while lacks.max() > _EXACT and lacks.min() < -_EXACT:
            giver, taker = np.argmin(lacks), np.argmax(lacks)
            has, lot = found[giver, cells], min(-lacks[giver], lacks[taker])
            able = np.minimum(has, found[taker, cells])
            cell = np.argmax(able if able.any() else has)
            lot = min(lot, has[cell])
            found[giver, cells[cell]] -= lot
            found[taker, cells[cell]] += lot
            lacks[giver] += lot
            lacks[taker] -= lot
    return found


def _units(universe: Universe, family: LinkedFamily, x: FloatArray, unit: BoolArray, source: Source) -> IntArray:
    """Whole households and vacant units (children x cells)."""
    compositions, cells = universe.compositions, family.cells[unit]
    if not len(cells):
        return np.zeros((len(x), 0), np.int64)
    total = None if family.total is None else family.total[unit]
    lived = universe.is_household(cells)
    kind = np.where(lived, compositions.class_of(np.where(lived, cells, 0)), compositions.n_classes)
    sizes = np.append(compositions.total_least, -1)[kind]
    held = np.ascontiguousarray(_cleaned(x[:, unit], total, np.zeros(len(cells), np.int64)))
    groups = [np.zeros(len(cells), np.int64), lived.astype(np.int64), sizes + 1, kind, np.arange(len(cells))]
    h = nearest(network(held, total, groups), source)
    if len(h) > 1:
        features, weights = _features(compositions, kind, lived)
        off = np.ascontiguousarray((h - held) @ features.T)
        answers = _few_answers(family.measured.answers[:, unit])
        _swap(h, held, features, weights, off, answers)
    return h


def _features(compositions: Compositions, kind: IntArray, lived: BoolArray) -> tuple[FloatArray, FloatArray]:
    """What households ask for (features x cells): members in all and of every group at least, and households; and
    their weights."""
    n = len(compositions.groups)
    low = [compositions.bounds(np.arange(n) == g)[0] for g in range(n)]
    asked = np.stack([compositions.total_least, *low]).astype(np.float64)
    found = np.where(lived, np.concatenate([asked, np.zeros((n + 1, 1))], axis=1)[:, kind], 0.0)
    weights = np.array([_PERSONS, *[_GROUPS] * n, _OCCUPIED])
    return np.ascontiguousarray(np.concatenate([found, lived[None].astype(np.float64)])), weights


def _few_answers(answers: IntArray) -> IntArray:
    """Of queries' ``answers`` (queries x cells) those of queries of few, each with numbers of its own from 0 on."""
    found, first = [np.zeros((0, answers.shape[1]), np.int64)], 0
    for answer in answers:
        known = np.unique(answer[answer >= 0])
        if 1 < len(known) <= min(_FEW, answers.shape[1] // 2):
            found.append(np.where(answer >= 0, first + np.searchsorted(known, answer), -1)[None])
            first += len(known)
    return np.ascontiguousarray(np.concatenate(found))


def _swap(
    h: IntArray, x: FloatArray, features: FloatArray, weights: FloatArray, off: FloatArray, answers: IntArray
) -> None:
    from topdown.projection.linked.household_kernel import swap

    places = min(_CANDIDATES, h.shape[1])
    order = np.argsort(np.where(h > 0, x - h, np.inf), axis=1, kind="stable")[:, :places]
    candidates = np.where(np.take_along_axis(h, order, axis=1) > 0, order, -1)
    said = np.zeros((len(h), int(answers.max(initial=-1)) + 1))
    for answer in answers:
        np.add.at(said.T, answer[answer >= 0], (h - x)[:, answer >= 0].T)
    swap(h, x, features, weights, off, _OWN, np.ascontiguousarray(candidates), answers, said, _ANSWERS)


def _members(
    universe: Universe,
    family: LinkedFamily,
    counts: IntArray,
    unit: BoolArray,
    x: FloatArray,
    source: Source,
) -> IntArray:
    """Whole persons that are no householders (children x their cells), with the households of ``counts``."""
    from topdown.projection.linked.household_kernel import move_members

    cells = family.cells[~unit]
    total = None if family.total is None else family.total[~unit]
    compositions, n = universe.compositions, len(universe.groups)
    group, facility = universe.group_of(cells), universe.facility_of(cells)
    place = np.where(group >= 0, group, n + facility)
    held = _cleaned(x, total, place)
    r = nearest(network(held, total, [np.zeros(len(cells), np.int64), place, np.arange(len(cells))]), source)
    lived = universe.is_household(family.cells)
    households = np.zeros((len(counts), compositions.n_classes), np.int64)
    np.add.at(households.T, compositions.class_of(family.cells[lived]), counts[:, lived].T)
    inside = np.arange(n)[:, None] == group
    sums = held @ inside.T
    if compositions.fits(households, r @ inside.T).all():
        return r
    wanted = targets(compositions, households, sums, None if total is None else r.sum(axis=0) @ inside.T)
    for g in range(n):
        own = np.flatnonzero(inside[g])
        excess = r[:, own].sum(axis=1) - wanted[:, g]
        if not excess.any():
            continue
        part, near = np.ascontiguousarray(r[:, own]), np.ascontiguousarray(held[:, own])
        if total is None:  # a root, whose numbers are its own: there is a second child that has what is missing
            spare = np.full((1, len(own)), abs(int(excess[0])), np.int64)
            part, near = np.concatenate([part, spare]), np.concatenate([near, spare.astype(np.float64)])
            excess = np.concatenate([excess, -excess])
        move_members(part, near, excess)
        r[:, own] = part[: len(r)]
    return r


def targets(compositions: Compositions, households: IntArray, near: FloatArray, total: IntArray | None) -> IntArray:
    """Whole numbers of members (children x groups) that can be dealt into ``households`` (children x classes), add up
    to ``total`` (groups,) where it is given, and are nearest to ``near``, in all and by group, in squares that grow
    straight on from some steps away.

    A flow from children through the classes of their households to groups, by a linear program whose vertices are
    whole. Raises `ProjectionError` where there are none.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    (children, n), arcs = near.shape, _FlowArcs()
    child, kind = np.nonzero(households)
    count = households[child, kind]
    # Equations: one per (child, class), per (child, group), per child, and per group where it has a total.
    of_pair = np.arange(len(child))
    of_group = len(child) + np.arange(children * n).reshape(children, n)
    of_child = len(child) + children * n + np.arange(children)
    of_total = len(child) + children * (n + 1) + np.arange(n)
    total_low, total_high = compositions.total_least[kind] * count, compositions.total_most[kind] * count
    arcs.add(of_child[child], of_pair, total_low, total_high)
    for g in range(n):
        low, high = compositions.least[kind, g] * count, compositions.most[kind, g] * count
        arcs.add(of_pair, of_group[child, g], low, high)
    for g in range(n):
        arcs.add_convex(of_group[:, g], np.full(children, of_total[g]), near[:, g])
    arcs.add_convex(np.full(children, -1), of_child, near.sum(axis=1))
    tail, head, low, high, cost = arcs.joined()
    number = np.arange(len(tail))
    row = np.concatenate([tail, head])
    entries = np.concatenate([-np.ones(len(tail)), np.ones(len(head))])
    kept = row >= 0
    equations = int(of_total[-1]) + 1
    flow = csr_array((entries[kept], (row[kept], np.tile(number, 2)[kept])), shape=(equations, len(tail)))
    held = equations if total is not None else equations - n
    aim = np.zeros(held) if total is None else np.concatenate([np.zeros(equations - n), total])
    equalities: Any = flow[:held]
    limits = np.stack([low, high], axis=1).tolist()
    found = linprog(cost, A_eq=equalities, b_eq=aim, bounds=limits, method="highs-ds")
    if found.status != 0:
        raise ProjectionError("no whole numbers of members fit: internal error; please report it")
    vertex = np.rint(np.asarray(found.x))
    sums = np.zeros((children, n))
    for g in range(n):
        own = (tail >= 0) & np.isin(head, of_group[:, g])
        np.add.at(sums[:, g], head[own] - of_group[0, g] if n == 1 else (head[own] - of_group[0, 0]) // n, vertex[own])
    return sums.astype(np.int64)


class _FlowArcs:
    """Arcs of a network as they are added: tail, head (-1: outside), least, most and cost."""

    def __init__(self) -> None:
        self.parts: list[tuple[npt.NDArray[Any], ...]] = []

    def add(self, tail: IntArray, head: IntArray, low: FloatArray | IntArray, high: FloatArray | IntArray) -> None:
        self.parts.append((tail, head, low.astype(float), high.astype(float), np.zeros(len(tail))))

    def add_convex(self, tail: IntArray, head: IntArray, near: FloatArray) -> None:
        """Arcs whose sum costs its squared distance from ``near``, a whole unit at a time."""
        first = np.maximum(np.floor(near) - _STEPS, 0.0)
        # Up to the first whole number; every unit costs less than the next.
        slope = 2 * (first - near) - 1
        self.parts.append((tail, head, np.zeros(len(tail)), first, slope))
        for step in range(2 * _STEPS + 1):
            last = step == 2 * _STEPS
            slope = 2 * (first + step - near) + 1
            most = np.full(len(tail), np.inf if last else 1.0)
            self.parts.append((tail, head, np.zeros(len(tail)), most, slope))

    def joined(self) -> tuple[npt.NDArray[Any], ...]:
        return tuple(np.concatenate(one) for one in zip(*self.parts, strict=True))


def _require(family: LinkedFamily, counts: IntArray) -> None:
    """Refuse counts that are not what they must be: signs, sums, rows, and cells that are not allowed."""
    rows = family.rows
    answers = counts @ rows.coefficients.T
    wrong = (counts < 0).any() or counts[~rows.allowed].any()
    wrong |= bool(((answers < rows.low) | (answers > rows.high)).any())
    if family.total is not None:
        wrong |= bool((counts.sum(axis=0) != np.rint(family.total)).any())
    if wrong:
        raise ProjectionError("whole numbers of both tables break their rows: internal error; please report it")
