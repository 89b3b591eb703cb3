"""A family's program on its support, without a matrix over the cells: for histograms of a million cells.

The program is that of `topdown.projection.histograms.families`: least squares of what was measured at the children, on
the cells that the parent has, adding up to the parent in each, and not below 0. What differs is how it is held. All
children have the same information P = sum of w_q A_q' A_q, and an answer to a query is the sum of its cells: P x is
found query by query. A small family is given to the compiled kernel as a table of patterns of agreement; a large one
is solved by a primal-dual active set whose equations are solved by conjugate gradients in the space of the free cells
with sums of 0 (Gould, Hribar, Nocedal 2001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray, IntArray
from topdown.machine.parallel import available_workers, do_all
from topdown.projection.check.certificate import Residuals
from topdown.projection.conditions import Rows
from topdown.projection.histograms.families import Family, Solved, optimality_of, solve_compiled, without_rounding
from topdown.projection.histograms.precision_matrices import Gathered

DENSE_CELLS, MOST_DENSE_CELLS = 60, 3_000
"""Families of at most so many cells are solved by the compiled kernel, whose time grows with the cube of the cells; and
those of at most so many where conjugate gradients do not end."""

_MOST_QUERIES = 14
"""With more queries there are too many patterns of agreement for a table of them."""

_SIGN, _ROUNDING = 1e-10, 2.0**-46
"""What counts as a wrong sign, in units of the noise; and what rounding may be of the largest term."""

_MOST_ROUNDS, _PATIENCE = 400, 10
_LEFT, _LOST = (1.0, 1e-1, 1e-3, 1e-6, 1e-11), 1e-15
"""What is left of a round's equations, in units of the noise: the next where no cell changes sides any more; and what
rounding leaves, as a part of the largest term."""

_ROUGH, _HARDLY_ANY = 2, 0.01
"""In so many of these stages the next begins when the cells that change sides are at most this part of the free ones:
which are free depends on what is left, and the rest would change sides again."""

_MOST_STEPS, _MOST_REFINEMENTS = 2000, 5

_NEAR = ((1.0, 40, _ROUGH), (1e-2, _MOST_ROUNDS, _ROUGH + 1))
"""What sums that are to be nearly right may lack, in units of the noise, before they are held exactly; in how many
rounds a solution should be found from there, or what is nearer is tried; and to which stage the equations are solved
until then."""

_LARGE = 200_000
"""Variables from which on it pays to try where sums are not so near yet: small families go in circles more often."""

_SLOWLY, _MOST_MOVES = 0.8, 40
"""At which part of what was lacking before the sums are made more precise; and how often their multipliers are moved at
most."""

_SOME = 0.3
"""Which part of the cells with a wrong sign changes sides where all of them make no progress."""

_SHARED = 50_000
"""With more entries that are not 0 than this threads share the children of a family."""

_COARSE_ANSWERS = 256
"""A query of at most so many answers is coarse."""


class HeldSums(NamedTuple):
    """Sums of cells that are known exactly of every child: ``group`` (cells,), the group of every cell, each with a
    cell; ``sums`` (children x groups), those of a group adding up to the parent's."""

    group: IntArray
    sums: FloatArray

    def of(self, x: FloatArray) -> FloatArray:
        """The sums of ``x`` (children x cells) over the groups; (children x groups)."""
        return np.stack([np.bincount(self.group, row, self.sums.shape[1]) for row in x])


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
        threads: share the children of a large family; None for one.
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
    threads: Executor | None = None

    @cached_property
    def g(self) -> FloatArray:
        """The linear term (children x cells)."""
        found = self.single * self.own.astype(np.float64)
        for answers, said, weight in zip(self.answers, self.said, self.precision.tolist(), strict=True):
            found += weight * said[:, answers]
        return found

    @property
    def diagonal(self) -> float:
        """The diagonal of P, the same in all cells."""
        return float(self.single + self.precision.sum())

    def times(self, x: FloatArray) -> FloatArray:
        """P x (children x cells)."""
        children, cells = x.shape
        every = np.tile(np.arange(cells, dtype=np.int32), children)
        return self.times_entries(x.reshape(-1), cells * np.arange(children + 1), every).reshape(x.shape)

    def times_entries(self, x: FloatArray, starts: IntArray, cells: npt.NDArray[np.int32]) -> FloatArray:
        """P x (entries,) of an x that is 0 elsewhere, as `support_kernel.apply_queries` takes it."""
        from topdown.projection.histograms.support_kernel import apply_queries

        found, own = np.empty_like(x), (*self._by_cell, self.precision, self.single)

        def part(first: int, end: int) -> None:
            apply_queries(x, starts[first : end + 1], cells, *own, found)

        self.in_parts(part, starts)
        return found

    def in_parts(self, part: Callable[[int, int], None], entries: IntArray) -> None:
        """Call ``part`` with the first of some children, or groups, and the one after the last, for all of them, which
        begin at these ``entries`` (all + 1,): in threads, where there are many."""
        count = available_workers() if self.threads is not None and entries[-1] > _SHARED else 1
        cuts = np.searchsorted(entries, np.linspace(0, entries[-1], count + 1)[1:-1])
        bounds = [0, *cuts.tolist(), len(entries) - 1]
        do_all(lambda at: part(*at), pairwise(bounds), self.threads if count > 1 else None)

    @cached_property
    def _sizes(self) -> IntArray:
        return np.array([said.shape[1] for said in self.said], np.int64)

    @cached_property
    def _by_cell(self) -> tuple[npt.NDArray[np.int32], IntArray]:
        """The answers (cells x queries) among those of all queries, which begin there (queries + 1,): what is added up
        for a cell is close together in memory."""
        begins = np.concatenate([[0], np.cumsum(self._sizes)])
        return np.ascontiguousarray((self.answers + begins[:-1, None]).T.astype(np.int32)), begins

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

    def nearly_inverse(self, cells: npt.NDArray[np.int32]) -> Callable[[FloatArray], FloatArray]:
        """For a root, the inverse on the free ``cells`` of the part of P that the coarse queries and the diagonal make
        (Woodbury 1950); the identity for anything else."""
        from topdown.projection.histograms.support_kernel import coarse_inverse, coarse_solve

        by = self._coarse
        if by is None:
            return lambda vector: vector
        inverse = np.empty((len(by.roots), len(by.roots)))
        coarse_inverse(cells, *by, inverse)

        def apply(vector: FloatArray) -> FloatArray:
            found = np.empty_like(vector)
            coarse_solve(vector, cells, *by, inverse, found)
            return found

        return apply

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
            return self.possible
        if self.held is None:
            return np.ones((len(self.own), len(self.cells)), np.bool_)
        return np.asarray(self.held.sums[:, self.held.group] > 0)

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
        tabled = len(self.precision) <= _MOST_QUERIES
        if self.total is not None and len(self.own) == 1:
            solved = self._only_child(self.total)
        elif tabled and size <= DENSE_CELLS:
            solved = solve_compiled(self.program())
        else:
            try:
                solved = solve_by_gradients(self)
            except ProjectionError:
                if not tabled or size > MOST_DENSE_CELLS:
                    raise
                solved = solve_compiled(self.program())
        return solved, self.check(solved)

    def _only_child(self, total: FloatArray) -> Solved:
        x = total[None, :].copy()
        return Solved(x, (self.times(x) - self.g)[0], np.zeros((1, self._groups)), 1)

    @property
    def _groups(self) -> int:
        return 0 if self.held is None else self.held.sums.shape[1]

    def check(self, solved: Solved) -> Residuals:
        """How far ``solved`` is from optimal, from the measurements themselves."""
        x = np.ascontiguousarray(solved.x)
        product, g = self.times(x), self.g
        slope, size = product - g, product + np.abs(g)
        if self.held is not None:
            pushed = solved.rows[:, self.held.group]
            slope, size = slope - pushed, size + np.abs(pushed)
        none = np.zeros((len(x), 0))
        rows = Rows(self.allowed, np.zeros((0, len(self.cells)), np.bool_), none, none)
        program = Family(self.cells, Gathered(none, none), np.zeros((0, 0), np.int32), self.total, rows)
        strength = np.broadcast_to(np.float64(self.diagonal), x.shape)
        found = optimality_of((slope, size), strength, program, solved._replace(rows=none))
        if self.held is None:
            return found
        off = np.abs(self.held.of(x) - self.held.sums)
        missed = np.maximum(off - _ROUNDING * (1 + self.held.sums) * x.shape[1], 0.0).max(axis=1)
        return found._replace(gap=np.maximum(found.gap, missed))


class _Space:
    """The directions of the ``free`` cells (children x cells) along which no sum that is known changes: those over the
    children, unless it is a root, and those of groups. A vector has a number for every free cell, child by child."""

    def __init__(self, family: SupportFamily, free: npt.NDArray[np.bool_]) -> None:
        from topdown.projection.histograms.support_kernel import factor_groups

        self.family, self.free = family, free
        rows, cells = np.nonzero(free)
        self.starts = np.searchsorted(rows, np.arange(len(free) + 1))
        self.rows, self.cells = rows.astype(np.int32), cells.astype(np.int32)
        held, total = family.held, family.total
        # Where one kind of sums is known: the sum of every free cell, how many each has, and what they are.
        self.sum_of, self.known = self.cells, np.zeros(0) if total is None else total
        if held is not None:
            self.member = rows * held.sums.shape[1] + held.group[cells]
            if total is None:
                self.sum_of, self.known = self.member, held.sums.reshape(-1)
        self.count = np.bincount(self.sum_of, minlength=len(self.known))
        if held is None or total is None:
            return
        children, groups = held.sums.shape
        self.by_group = np.argsort(held.group, kind="stable")
        place = np.empty_like(self.by_group)
        place[self.by_group] = np.arange(len(place))
        order = np.argsort(place[cells], kind="stable")
        ends = np.concatenate([[0], np.cumsum(self.count[self.by_group])])
        bounds = np.searchsorted(held.group[self.by_group], np.arange(groups + 1))
        self.bounds = bounds
        factors, kept = np.empty((groups, children, children)), np.empty((groups, children), np.bool_)
        factor_groups(self.rows, order, ends, bounds, factors, kept)
        self.equations = self.rows, order, ends, bounds, factors, kept

    def _sums(self, vector: FloatArray) -> FloatArray:
        """Over the children; (cells,)."""
        return np.asarray(np.bincount(self.cells, vector, len(self.family.cells)), np.float64)

    def _answers(self, vector: FloatArray, held: HeldSums) -> FloatArray:
        """Over the cells of every group; (children x groups)."""
        return np.asarray(np.bincount(self.member, vector, held.sums.size).reshape(held.sums.shape), np.float64)

    def _fit(self, sums: FloatArray, answers: FloatArray, of_cell: FloatArray, of_group: FloatArray) -> None:
        from topdown.projection.histograms.support_kernel import fit

        found = np.zeros(len(of_cell))
        fit(sums[self.by_group], answers, *self.equations, found, of_group)
        of_cell[self.by_group] += found

    def _spread(self, of_cell: FloatArray, of_group: FloatArray) -> FloatArray:
        return np.asarray(of_cell[self.cells] + of_group.reshape(-1)[self.member])

    def multipliers(self, vector: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Those of the cells' sums (cells,) and of the groups (children x groups) that fit a ``vector`` best."""
        held, total = self.family.held, self.family.total
        of_cell = np.zeros(len(self.family.cells))
        of_group = np.zeros((len(self.free), 0) if held is None else held.sums.shape)
        if held is None or total is None:
            mean = np.bincount(self.sum_of, vector, len(self.known)) / np.maximum(self.count, 1)
            if total is not None:
                return mean, of_group
            return of_cell, of_group if held is None else mean.reshape(of_group.shape)
        for _ in range(2):  # the second time what rounding left
            rest = vector - self._spread(of_cell, of_group)
            self._fit(self._sums(rest), self._answers(rest, held), of_cell, of_group)
        return of_cell, of_group

    def shift(self, slope: FloatArray, of_cell: FloatArray, of_group: FloatArray) -> None:
        """Shift multipliers where the free cells leave them open, as `support_kernel.shift_multipliers` does."""
        from topdown.projection.histograms.support_kernel import shift_multipliers

        if self.family.held is not None and self.family.total is not None:
            allowed = self.family.allowed
            shift_multipliers(slope, self.free, allowed, self.by_group, self.bounds, of_cell, of_group)

    def centre(self, vector: FloatArray) -> None:
        """Leave of ``vector`` the part in this space."""
        from topdown.projection.histograms.support_kernel import centre, centre_groups

        if self.family.held is not None and self.family.total is not None:
            children, order, ends, bounds, factors, kept = self.equations

            def part(first: int, end: int) -> None:
                some = slice(first, end)
                centre_groups(vector, children, order, ends, bounds[first : end + 1], factors[some], kept[some])

            self.family.in_parts(part, ends[bounds])
        elif len(self.known):
            centre(vector, self.sum_of, self.count)

    def moved(self, x: FloatArray) -> FloatArray:
        """``x`` (children x cells) on the free cells, changed as little as gives it the sums that are known."""
        total, held, found = self.family.total, self.family.held, x[self.free]
        if held is None or total is None:
            if len(self.known):
                lacking = self.known - np.bincount(self.sum_of, found, len(self.known))
                found += (lacking / np.maximum(self.count, 1))[self.sum_of]
            return found
        for _ in range(2):
            of_cell, of_group = np.zeros(len(self.count)), np.zeros(held.sums.shape)
            self._fit(total - self._sums(found), held.sums - self._answers(found, held), of_cell, of_group)
            found += self._spread(of_cell, of_group)
        return found

    def impossible(self, x: FloatArray) -> npt.NDArray[np.bool_]:
        """The groups whose free cells cannot have the sums that are known, which ``x``, a vector, would have if they
        could."""
        held = self.family.held
        if held is None:
            return np.zeros(0, np.bool_)
        off = np.abs(self._answers(x, held) - held.sums).max(axis=0)
        if self.family.total is not None:
            by_cell = np.abs(self._sums(x) - self.family.total)
            off = np.maximum(off, np.bincount(held.group, by_cell, held.sums.shape[1]))
        return np.asarray(off > 1e-7 * (1 + held.sums.max(axis=0)))

    def everywhere(self, vector: FloatArray) -> FloatArray:
        """``vector`` as (children x cells), 0 where nothing is free."""
        found = np.zeros(self.free.shape)
        found[self.free] = vector
        return found


def solve_by_gradients(family: SupportFamily) -> Solved:
    """The solution of a family's program by an active set, its equations by conjugate gradients. Raises
    `ProjectionError` where it does not end."""
    if family.held is None or family.total is None:
        return _active_set(family, _begin(family), range(len(_LEFT)))
    failed = ProjectionError("a family's program was not solved")
    for x, rounds in _nearer(family, family.held):
        try:
            return _active_set(family, x, range(_ROUGH, len(_LEFT)), rounds)
        except ProjectionError as error:
            failed = error
    raise failed


def _nearer(family: SupportFamily, held: HeldSums) -> Iterator[tuple[FloatArray, int]]:
    """Solutions (children x cells) whose held sums are nearly right, and in how many rounds one should be found from
    there, by the method of multipliers (Hestenes, Powell 1969): the sums are answers like others, precise ones, and
    what they lack is added to what they are said to be.

    Held exactly from the beginning, sums of children and of groups leave so little open that an active set goes round
    in circles. From far away it mostly does not, and where it does what is nearer takes longer.
    """
    answers = np.concatenate([family.answers, held.group[None].astype(np.int32)])
    x, multipliers = _begin(family), np.zeros(held.sums.shape)
    precise, heavier, before = family.diagonal, 2.0, np.inf
    wanted = 0 if family.own.size > _LARGE else len(_NEAR) - 1
    for step in range(_MOST_MOVES):
        program = replace(
            family,
            answers=answers,
            said=[*family.said, held.sums + multipliers / precise],
            precision=np.append(family.precision, precise),
            held=None,
            possible=family.allowed,
        )
        near, rounds, stages = _NEAR[wanted]
        try:
            x = _active_set(program, x, range(min(step, 1), stages)).x
        except ProjectionError:
            if heavier == 1:
                raise
            precise, heavier = family.diagonal, 1.0  # it goes in circles: back to where it did not
            continue
        lacks = np.where(held.sums > 0, held.sums - held.of(x), 0.0)
        worst = float(np.abs(lacks).max(initial=0.0)) * np.sqrt(family.diagonal)
        if worst <= near:
            yield x, rounds
            wanted += 1
        if wanted == len(_NEAR):
            return
        multipliers += precise * lacks
        if worst > _SLOWLY * before:
            precise *= heavier
        before = worst
    yield x, _MOST_ROUNDS  # as near as it was possible


def _active_set(family: SupportFamily, x: FloatArray, stages: range, most_rounds: int = _MOST_ROUNDS) -> Solved:
    """The solution of the equations of the last of the ``stages`` of `_LEFT`, sought from ``x`` on. Raises
    `ProjectionError` where it is not found in so many rounds."""
    g, tied, allowed = family.g, family.total is not None, family.allowed
    unit, scale = np.sqrt(family.diagonal), float(np.abs(g).max(initial=1.0))
    free, generator = allowed & (x > 0), np.random.default_rng(0)
    fewest, patience, stage, rounds = np.iinfo(np.int64).max, _PATIENCE, stages[0], 0
    while rounds < most_rounds:
        rounds += 1
        space = _Space(family, free)
        begun = space.moved(x)
        lost = space.impossible(begun)
        if lost.any() and family.held is not None:
            # The free cells cannot have these groups' sums: all of the groups' cells may.
            free = free | (allowed & lost[family.held.group])
            space = _Space(family, free)
            begun = space.moved(x)
        x = space.everywhere(_equations(space, g[free], begun, _LEFT[stage] * unit + _LOST * scale))
        slope = family.times(x)
        slope -= g
        sums, of_group = space.multipliers(slope[free])
        space.shift(slope, sums, of_group)
        pushed = sums if family.held is None else sums + of_group[:, family.held.group]
        most = np.abs(x).max(axis=1, keepdims=True)
        slack = max(_SIGN, _LEFT[stage])
        wrong = free & (x * unit < -slack - _ROUNDING * most * unit)
        cost = slope - pushed
        terms = np.abs(g) + np.abs(pushed) + family.diagonal * most
        wrong |= allowed & ~free & (cost < -slack * unit - _ROUNDING * terms)
        count = int(np.count_nonzero(wrong))
        if count == 0 or (stage < _ROUGH and count <= _HARDLY_ANY * np.count_nonzero(free)):
            if stage == stages[-1]:
                return Solved(without_rounding(x, family.total), sums, of_group, rounds)
            stage, fewest, patience = stage + 1, np.iinfo(np.int64).max, _PATIENCE
        elif count < fewest:
            fewest, patience = count, _PATIENCE
        elif patience > 0:
            patience -= 1
        else:
            # No progress, as where known sums leave multipliers open: only some change, others in every round.
            wrong &= generator.random(wrong.shape) < _SOME
        free = free ^ wrong
        if tied:
            free |= allowed & ~free.any(axis=0)
    raise ProjectionError(f"a family's program was not solved in {most_rounds} rounds")


def _begin(family: SupportFamily) -> FloatArray:
    """Where the search begins: what was measured of the cells themselves, alone, made to add up over the children, at a
    root over the cells of every group."""
    total, held, own = family.total, family.held, family.own
    if total is not None:
        return _on_simplices(np.where(family.allowed, own, -np.inf), total)
    if held is None:
        return np.where(own * np.sqrt(family.single) > 1, own, 0.0)
    found = np.empty(own.shape)
    order = np.argsort(held.group, kind="stable")
    for members in np.split(order, np.cumsum(np.bincount(held.group))[:-1]):
        sums = held.sums[:, held.group[members[0]]]
        found[0, members] = _on_simplices(own[0, members][:, None].astype(np.float64), sums)[:, 0]
    return found


def _on_simplices(given: FloatArray, total: FloatArray) -> FloatArray:
    """The projection of every column of ``given`` on x >= 0 with its sum in ``total``: what is above 0 is lower by the
    same (Held, Wolfe, Crowder 1974)."""
    falling = -np.sort(-given, axis=0)
    lower = (np.cumsum(falling, axis=0) - total) / np.arange(1, len(given) + 1)[:, None]
    last = (falling > lower).sum(axis=0) - 1
    return np.asarray(np.maximum(given - lower[last, np.arange(given.shape[1])], 0.0), np.float64)


def _equations(space: _Space, g: FloatArray, x: FloatArray, enough: float) -> FloatArray:
    """The minimum over the free cells with the sums that are known, from ``x`` on, which has them, to a residual of
    ``enough``."""

    def times(vector: FloatArray) -> FloatArray:
        return space.family.times_entries(vector, space.starts, space.cells)

    nearly, steps = space.family.nearly_inverse(space.cells), 0
    for _ in range(_MOST_REFINEMENTS):  # afresh, since the steps' rounding adds up
        lacks = g - times(x)
        for _ in range(2):  # the second time what rounding left
            space.centre(lacks)
        if np.abs(lacks).max(initial=0.0) <= enough:
            break
        towards = nearly(lacks).copy()
        size = _product(lacks, towards)
        while np.abs(lacks).max(initial=0.0) > enough and steps < _MOST_STEPS:
            turned = times(towards)
            length = size / _product(towards, turned)
            x = x + length * towards
            lacks -= length * turned
            space.centre(lacks)
            changed = nearly(lacks)
            size, last = _product(lacks, changed), size
            towards = changed + size / last * towards
            steps += 1
    return x


def _product(one: FloatArray, other: FloatArray) -> float:
    """The sum of products; not by BLAS, whose threads would wait for those that work on other families."""
    return float(np.einsum("i,i->", one, other))
