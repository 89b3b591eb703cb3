"""A family's program on its support, without a matrix over the cells: for histograms of a million cells.

The program is that of `topdown.projection.histograms.families`: least squares of what was measured at the children, on
the cells that the parent has, adding up to the parent in each, and not below 0. What differs is how it is held. All
children have the same information P = sum of w_q A_q' A_q, and an answer to a query is the sum of its cells: P x is
found query by query. A small family is given to the compiled kernel as a table of patterns of agreement; a large one
is solved by a primal-dual active set whose equations are solved by conjugate gradients in the space of the free cells
with sums of 0 (Gould, Hribar, Nocedal 2001), and where that goes in circles, by a primal one, which always ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray, IntArray, runs
from topdown.projection.check.certificate import Residuals
from topdown.projection.conditions import Rows
from topdown.projection.histograms.families import (
    SPOILT,
    Family,
    Solved,
    large_parts,
    optimality_of,
    solve_compiled,
    sums_of,
    without_rounding,
)
from topdown.projection.histograms.precision_matrices import Gathered

if TYPE_CHECKING:  # compiled, and loaded where it is used
    from topdown.projection.histograms.support_kernel import JoinedQueries, SupportArrays

DENSE_CELLS = 60
"""Families of at most so many cells are solved by the compiled kernel, whose time grows with the cube of the cells."""

_MOST_QUERIES = 14
"""With more queries there are too many patterns of agreement for a table of them."""

_LEFT, _ROUGH = (1.0, 1e-1, 1e-3, 1e-6, 1e-11), 2
"""What is left of a round's equations, in units of the noise, stage by stage; and how many of the stages are rough,
since which cells are free depends on what is left, and the rest would change sides again."""

_BEFORE_EXCHANGES, _MOST_EXCHANGES = 100, 1_000_000
"""In how many rounds an active set should end, or exchanges are made; and how many rounds these are given."""

_NEAR = ((2.0, 40, _ROUGH), (3e-2, 15, _ROUGH + 1), (1e-2, 100, _ROUGH + 1))
"""What sums that are to be nearly right may lack, in units of the noise, before they are held exactly; in how many
rounds a solution should be found from there, or what is nearer is tried; and to which stage the equations are solved
until then."""

_LARGE = 200_000
"""Variables from which on it pays to try with the first of these: small families go in circles more often."""

_ENTRIES_OF_ANSWER = 8
"""Queries are joined in large families where their joint answers have so many of a child's cells each."""

_NUMBERS_AT_ONCE = 1 << 19
"""How many numbers of a family are checked at once."""

_SLOWLY, _HEAVY, _MOST_MOVES = 0.8, 4.0, 40
"""At which part of what was lacking before the sums are made more precise; from how many times a cell's precision on
the equations are solved more exactly, too; and how often their multipliers are moved at most."""

_COARSE_ANSWERS = 256
"""A query of at most so many answers is coarse."""


def _sums_by(group: npt.NDArray[np.integer[Any]], x: FloatArray, size: int) -> FloatArray:
    """The sums of ``x`` (children x cells) over so many groups, of which every cell has one; (children x groups)."""
    return np.stack([np.bincount(group, row, size) for row in x])


class HeldSums(NamedTuple):
    """Sums of cells that are known exactly of every child: ``group`` (cells,), the group of every cell, each with a
    cell; ``sums`` (children x groups), those of a group adding up to the parent's."""

    group: IntArray
    sums: FloatArray

    def of(self, x: FloatArray) -> FloatArray:
        """The sums of ``x`` (children x cells) over the groups; (children x groups)."""
        return _sums_by(self.group, x, self.sums.shape[1])


class Coarse(NamedTuple):
    """The queries of a root that have few answers, as `support_kernel.coarse_inverse` takes them: the number of every
    cell's answer among all of theirs (``answers``, queries x cells), the root of every answer's precision (``roots``),
    and the ``diagonal`` of what the other queries and the cells themselves say."""

    answers: npt.NDArray[np.int32]
    roots: FloatArray
    diagonal: float


@dataclass(frozen=True, eq=False)
class SupportFamily:
    """The program of children on ``cells``.

    Args:
        cells: the numbers of the cells, rising.
        answers: (queries x cells), of every query the place of each cell's answer among those that were asked for.
        said: of every query what was measured (children x answers asked for).
        precision: (queries,), 1/variance of each.
        single: the precision of the cells themselves, above 0, whose measured values are ``own`` (children x cells).
        total: the parent's histogram (cells,), None for a root.
        held: sums of cells that are known exactly, None where there are none.
        possible: the cells (children x cells) in which a child can have records, None where the ``held`` sums say so.
    """

    cells: IntArray
    answers: npt.NDArray[np.int32]
    said: Sequence[IntArray | FloatArray]
    precision: FloatArray
    single: float
    own: IntArray
    total: FloatArray | None
    held: HeldSums | None = None
    possible: npt.NDArray[np.bool_] | None = None

    @cached_property
    def g(self) -> FloatArray:
        """The linear term (children x cells)."""
        # In C order, as all that compiled code takes: another order would be compiled once more.
        found = self.single * self.own.astype(np.float64, order="C")
        for answers, said, weight in zip(self.answers, self.said, self.precision.tolist(), strict=True):
            found += weight * said[:, answers]
        return found

    @property
    def diagonal(self) -> float:
        """The diagonal of P, the same in all cells."""
        return float(self.single + self.precision.sum())

    def times(self, x: FloatArray) -> FloatArray:
        """P x (children x cells)."""
        from topdown.projection.histograms.support_kernel import apply_queries

        children, cells = x.shape
        every, found = np.tile(np.arange(cells, dtype=np.int32), children), np.empty(x.size)
        starts, flat = cells * np.arange(children + 1), np.ascontiguousarray(x).reshape(-1)
        apply_queries(self._queries, self.single, flat, starts, every, found)
        return found.reshape(x.shape)

    def nearest(self, x: FloatArray) -> FloatArray:
        """The nearest to ``x`` (children x cells) that is not below 0 and 0 where a child can have no records, with the
        children's sums; at a root, with the sums of its groups, if they are known."""
        if self.total is not None:
            return _on_simplices(np.where(self.allowed, x, -np.inf), self.total)
        if self.held is None:
            return np.where(self.allowed, np.maximum(x, 0.0), 0.0)
        found, group = np.zeros(x.shape), np.where(self.allowed[0], self.held.group, -1)
        order = np.argsort(group, kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
            if group[members[0]] >= 0:
                sums = self.held.sums[:, group[members[0]]]
                found[0, members] = _on_simplices(x[0, members][:, None], sums)[:, 0]
        return found

    @cached_property
    def _sizes(self) -> IntArray:
        return np.array([said.shape[1] for said in self.said], np.int64)

    @cached_property
    def _queries(self) -> JoinedQueries:
        """The queries, in sets whose joint answers are few beside a child's cells where the family is large."""
        from topdown.projection.histograms.support_kernel import JoinedQueries

        sets, joint = [[query] for query in range(len(self.answers))], list(self.answers)
        if self.own.size > _LARGE:
            records = np.inf if self.total is None else self.total.sum() / len(self.own)
            sets, joint = _joined(self.answers, self._sizes, int(min(len(self.cells), records) / _ENTRIES_OF_ANSWER))
        ends = np.cumsum([0, *(int(one.max(initial=-1)) + 1 for one in joint)])
        several = [members for members in sets if len(members) > 1]
        most, firsts = max(map(len, several), default=0), np.cumsum(self._sizes) - self._sizes
        within, each, at = [np.zeros((0, most), np.int64)], np.zeros((len(sets), most)), np.full(len(sets), -1)
        weights = np.array([self.precision[members[0]] if len(members) == 1 else 1.0 for members in sets])
        for number, members in enumerate(sets):
            if len(members) > 1:
                one = np.full((ends[number + 1] - ends[number], most), self._sizes.sum())  # no answer
                for place, query in enumerate(members):
                    one[joint[number], place] = self.answers[query] + firsts[query]
                at[number], each[number, : len(members)] = sum(map(len, within)), self.precision[members]
                within.append(one)
        of_cell = np.array(joint, np.int64).reshape(len(joint), len(self.cells))  # also where there is no query
        answers = np.ascontiguousarray((of_cell + ends[:-1, None]).T.astype(np.int32))
        return JoinedQueries(answers, ends, weights, at, np.concatenate(within), each)

    @cached_property
    def _coarse(self) -> Coarse | None:
        """The coarse queries of a root of which nothing is known exactly; None for anything else."""
        which = self._sizes <= _COARSE_ANSWERS
        if self.total is not None or self.held is not None or not which.any():
            return None
        sizes = self._sizes[which]
        begins = (np.cumsum(sizes) - sizes).astype(np.int32)
        diagonal = float(self.single + self.precision[~which].sum())
        return Coarse(self.answers[which] + begins[:, None], np.repeat(np.sqrt(self.precision[which]), sizes), diagonal)

    def arrays(self, precise: float | None = None) -> SupportArrays:
        """The family for compiled code; with ``precise`` the held sums are answers of this precision."""
        from topdown.projection.histograms.support_kernel import SupportArrays

        queries, held, coarse, diagonal = self._queries, self.held, self._coarse, self.diagonal
        if held is not None and precise is not None:
            begin = queries.begins[-1]
            queries = queries._replace(
                answers=np.concatenate([queries.answers, (held.group[:, None] + begin).astype(np.int32)], axis=1),
                begins=np.append(queries.begins, begin + held.sums.shape[1]),
                weights=np.append(queries.weights, precise),
                at=np.append(queries.at, -1),
                each=np.concatenate([queries.each, np.zeros((1, queries.each.shape[1]))]),
            )
            held, diagonal = None, diagonal + precise
        coarse = coarse or Coarse(np.zeros((0, len(self.cells)), np.int32), np.zeros(0), 1.0)
        group = np.zeros(len(self.cells), np.int64) if held is None else held.group.astype(np.int64)
        sums = np.zeros((len(self.own), 0)) if held is None else np.require(held.sums, requirements=["C", "W"])
        order = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[order], np.arange(sums.shape[1] + 1))
        total = np.zeros(0) if self.total is None else np.require(self.total, requirements=["C", "W"])
        tied = self.total is not None
        return SupportArrays(queries, self.single, diagonal, tied, total, group, sums, order, bounds, *coarse)

    def program(self) -> Family:
        """The program with its matrix, as a table of patterns."""
        from topdown.projection.histograms.support_kernel import agreement

        found = np.empty((len(self.cells), len(self.cells)), np.int32)
        agreement(self.answers, found)
        masks, pattern = np.unique(found, return_inverse=True)
        bits = (masks[:, None] >> np.arange(len(self.precision))) & 1
        table = bits @ self.precision
        # The cells themselves agree in all queries, and so may others: they get a pattern of their own.
        of_pair: npt.NDArray[np.int32] = pattern.reshape(found.shape).astype(np.int32)
        np.fill_diagonal(of_pair, len(masks))
        table = np.append(table, self.diagonal)
        known = Gathered(np.tile(table, (len(self.own), 1)), self.g)
        return Family(self.cells, known, of_pair, self.total, self._rows())

    @cached_property
    def allowed(self) -> npt.NDArray[np.bool_]:
        """The cells (children x cells) in which a child can have records."""
        if self.possible is not None:
            return np.ascontiguousarray(self.possible)
        if self.held is None:
            return np.ones((len(self.own), len(self.cells)), np.bool_)
        return np.ascontiguousarray(self.held.sums[:, self.held.group] > 0)

    def _rows(self) -> Rows:
        if self.held is None:
            none = np.zeros((len(self.own), 0))
            return Rows(self.allowed, np.zeros((0, len(self.cells)), np.bool_), none, none.copy())
        sums = self.held.sums
        rows = self.held.group == np.arange(sums.shape[1])[:, None]
        return Rows(self.allowed, rows, np.where(sums > 0, sums, -np.inf), np.where(sums > 0, sums, np.inf))

    def solve(self) -> tuple[Solved, Residuals]:
        """The solution and its residuals. Raises `ProjectionError` where it is not found."""
        size = len(self.cells)
        if self.total is not None and len(self.own) == 1:
            solved = self._only_child(self.total)
        elif len(self.precision) <= _MOST_QUERIES and size <= DENSE_CELLS:
            solved = solve_compiled(self.program())
        else:
            solved = solve_by_gradients(self)
        found = self.check(solved)
        if found.worst > SPOILT and self.total is not None:
            away = large_parts(solved.x)
            if away.any():
                again = self._by_differences(solved.x, away, self.total)
                solved, found = min((solved, found), (again, self.check(again)), key=lambda one: one[1].worst)
        return solved, found

    def _by_differences(self, x: FloatArray, away: FloatArray, total: FloatArray) -> Solved:
        """The solution near ``x``, sought as the difference from the large counts ``away`` (both children x cells),
        whose rounding is, through the multipliers, rounding of the small counts of their siblings."""
        held = self.held and self.held._replace(sums=self.held.sums - self.held.of(away))
        moved = replace(
            self,
            own=self.own - away.astype(np.int64),
            said=[
                said - _sums_by(answers, away, said.shape[1])
                for answers, said in zip(self.answers, self.said, strict=True)
            ],
            total=total - away.sum(axis=0),
            held=held,
            possible=self.allowed,
        )
        stages = range(_ROUGH, len(_LEFT))
        solved = _active_set(moved.arrays(), moved.g, moved, x - away, stages, _BEFORE_EXCHANGES)
        return solved._replace(x=without_rounding(solved.x + away, total))

    def _only_child(self, total: FloatArray) -> Solved:
        x = total[None, :].copy()
        return Solved(x, (self.times(x) - self.g)[0], np.zeros((1, self._groups)), 1)

    @property
    def _groups(self) -> int:
        return 0 if self.held is None else self.held.sums.shape[1]

    def check(self, solved: Solved) -> Residuals:
        """How far ``solved`` is from optimal, from the measurements themselves."""
        at_once = max(1, _NUMBERS_AT_ONCE // max(1, len(self.cells)))
        pieces = [self._check_of(solved, some) for some in runs(slice(0, len(solved.x)), at_once)]
        found = Residuals.together(pieces)
        if self.total is None:
            return found
        off, allowed = sums_of(solved.x, self.total)
        return found._replace(off=off, allowed=allowed)

    def _check_of(self, solved: Solved, children: slice) -> Residuals:
        """As `check`, of some children, and without the sums over children."""
        from topdown.projection.histograms.support_kernel import ROUNDING

        x, g, multipliers = np.ascontiguousarray(solved.x[children]), self.g[children], solved.rows[children]
        product = self.times(x)
        slope, size = product - g, product + np.abs(g)
        if self.held is not None:
            pushed = multipliers[:, self.held.group]
            slope, size = slope - pushed, size + np.abs(pushed)
        none = np.zeros((len(x), 0))
        rows = Rows(self.allowed[children], np.zeros((0, len(self.cells)), np.bool_), none, none)
        program = Family(self.cells, Gathered(none, none), np.zeros((0, 0), np.int32), None, rows)
        strength = np.broadcast_to(np.float64(self.diagonal), x.shape)
        found = optimality_of((slope, size), strength, program, solved._replace(x=x, rows=none))
        if self.held is None:
            return found
        sums = self.held.sums[children]
        off = np.abs(self.held.of(x) - sums)
        missed = np.maximum(off - ROUNDING * (1 + sums) * x.shape[1], 0.0).max(axis=1)
        return found._replace(gap=np.maximum(found.gap, missed))


def _joined(
    answers: npt.NDArray[np.int32], sizes: IntArray, most: int
) -> tuple[list[list[int]], list[npt.NDArray[np.integer[Any]]]]:
    """Sets of queries with at most so many joint answers, beside those that are alone, and the number of every cell's
    joint answer in each (cells,)."""
    sets: list[list[int]] = []
    joint: list[npt.NDArray[np.integer[Any]]] = []
    for query in np.argsort(sizes, kind="stable").tolist():
        larger = []
        for number, one in enumerate(joint):
            if one.max(initial=0) < most:
                both = np.unique(one * int(sizes[query]) + answers[query], return_inverse=True)[1].reshape(-1)
                larger.append((int(both.max(initial=0)), number, both))
        size, number, both = min(larger, default=(most, 0, answers[query]), key=lambda found: found[0])
        if size < most:
            sets[number].append(query)
            joint[number] = both
        else:
            sets.append([query])
            joint.append(answers[query])
    return sets, joint


def solve_by_gradients(family: SupportFamily) -> Solved:
    """The solution of a family's program by an active set, its equations by conjugate gradients. Raises
    `ProjectionError` where it does not end."""
    exact, g = family.arrays(), family.g
    if family.held is None or family.total is None:
        found = _active_set(exact, g, family, _begin(family), range(len(_LEFT)), _BEFORE_EXCHANGES)
    else:
        for x, rounds in _nearer(family, family.held):
            found = _active_set(exact, g, family, x, range(_ROUGH, len(_LEFT)), rounds)
            if found.rounds:
                break
    return found if found.rounds else solve_by_exchanges(family, found.x)


def _nearer(family: SupportFamily, held: HeldSums) -> Iterator[tuple[FloatArray, int]]:
    """Solutions (children x cells) whose held sums are nearly right, and in how many rounds one should be found from
    there, by the method of multipliers (Hestenes, Powell 1969; accelerated, Güler 1992): the sums are answers like
    others, precise ones, and what they lack is added to what they are said to be.

    Held exactly from the beginning, sums of children and of groups leave so little open that an active set goes round
    in circles. From far away it mostly does not, and where it does what is nearer takes longer.
    """
    x, g, multipliers = _begin(family), family.g, np.zeros(held.sums.shape)
    last, momentum, exact = multipliers, 1.0, False
    precise, before = family.diagonal, np.inf
    arrays, wanted = family.arrays(precise), 0 if family.own.size > _LARGE else 1
    for step in range(_MOST_MOVES):
        near, rounds, stages = _NEAR[wanted]
        stages = max(stages, _ROUGH + exact)
        said = g + (precise * held.sums + multipliers)[:, held.group]
        found = _active_set(arrays, said, family, x, range(min(step, 1), stages), _BEFORE_EXCHANGES)
        x = found.x
        if not found.rounds:
            yield x, _NEAR[1][1]
            return
        lacks = np.where(held.sums > 0, held.sums - held.of(x), 0.0)
        worst = float(np.abs(lacks).max(initial=0.0)) * np.sqrt(family.diagonal)
        if worst <= near:
            yield x, rounds
            wanted += 1
        if wanted == len(_NEAR):
            return
        moved, faster = multipliers + precise * lacks, (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        multipliers, last, momentum = moved + (momentum - 1) / faster * (moved - last), moved, faster
        if worst > _SLOWLY * before:
            precise *= 2.0
            exact = precise > _HEAVY * family.diagonal
            arrays = family.arrays(precise)
        before = worst
    yield x, _BEFORE_EXCHANGES  # as near as it was possible


def _active_set(
    arrays: SupportArrays, g: FloatArray, family: SupportFamily, x: FloatArray, stages: range, most: int
) -> Solved:
    """The solution of the equations of the last of the ``stages``, sought from ``x`` on; where it is not found in so
    many rounds, it has no ``rounds``, and an x that may be below 0."""
    from topdown.projection.histograms.support_kernel import solve_active_set

    found, of_cell, of_group = x.copy(), np.zeros(len(family.cells)), np.zeros(arrays.sums.shape)
    left, rough = np.array(_LEFT[stages.start : stages.stop]), _ROUGH - stages.start
    rounds = solve_active_set(arrays, found, g, family.allowed, left, rough, most, of_cell, of_group)
    return Solved(without_rounding(found, family.total) if rounds else found, of_cell, of_group, rounds)


def solve_by_exchanges(family: SupportFamily, x: FloatArray) -> Solved:
    """The solution, sought from near ``x`` (children x cells) on, where an active set goes round in circles. Raises
    `ProjectionError` where that takes too many rounds."""
    from topdown.projection.histograms.support_kernel import solve_descending

    found, left, arrays = family.nearest(x), np.array(_LEFT[_ROUGH:]), family.arrays()
    if family.total is not None and family.held is not None:
        found = _with_held(found, family.held)
    of_cell, of_group = np.zeros(len(family.cells)), np.zeros(arrays.sums.shape)
    rounds = solve_descending(arrays, found, family.g, family.allowed, left, _MOST_EXCHANGES, of_cell, of_group)
    if not rounds:
        raise ProjectionError(f"a family's program was not solved in {_MOST_EXCHANGES:,} rounds")
    return Solved(without_rounding(found, family.total), of_cell, of_group, rounds)


def _with_held(x: FloatArray, held: HeldSums) -> FloatArray:
    """``x`` (children x cells), which adds up to the parent and is not below 0, with the ``held`` sums: what some
    children have too much in a group goes to those that lack it, of few cells each."""
    x, given = x.copy(), held.of(x)
    keeps = np.minimum(held.sums / np.where(given > 0, given, 1.0), 1.0)
    left = (x * (1 - keeps[:, held.group])).sum(axis=0)
    x *= keeps[:, held.group]
    lacks = np.maximum(held.sums - held.of(x), 0.0)
    for group in np.flatnonzero(lacks.any(axis=0) & (np.bincount(held.group, left, held.sums.shape[1]) > 0)):
        # The parts of a line that begin where a child or a cell does.
        cells, children = np.flatnonzero((held.group == group) & (left > 0)), np.flatnonzero(lacks[:, group])
        ends = np.cumsum(left[cells]), np.cumsum(lacks[children, group])
        points = np.union1d(*ends)
        middle = (points + np.concatenate([[0.0], points[:-1]])) / 2
        cell, child = (np.minimum(np.searchsorted(end, middle), len(end) - 1) for end in ends)
        np.add.at(x, (children[child], cells[cell]), np.diff(points, prepend=0.0))
    return x


def _begin(family: SupportFamily) -> FloatArray:
    """Where the search begins: what was measured of the cells themselves, alone, made to add up over the children, at a
    root over the cells of every group."""
    own = family.own.astype(np.float64)
    if family.total is None and family.held is None:
        return np.where(own * np.sqrt(family.single) > 1, own, 0.0)
    return family.nearest(own)


def _on_simplices(given: FloatArray, total: FloatArray) -> FloatArray:
    """The projection of every column of ``given`` on x >= 0 with its sum in ``total``: what is above 0 is lower by the
    same (Held, Wolfe, Crowder 1974)."""
    falling = -np.sort(-given, axis=0)
    lower = (np.cumsum(falling, axis=0) - total) / np.arange(1, len(given) + 1)[:, None]
    last = (falling > lower).sum(axis=0) - 1
    return np.asarray(np.maximum(given - lower[last, np.arange(given.shape[1])], 0.0), np.float64)
