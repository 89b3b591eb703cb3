"""A family's program on its support, without a matrix over the cells: for histograms of a million cells.

The program is that of `topdown.projection.histograms.families`: least squares of what was measured at the children, on
the cells that the parent has, adding up to the parent in each, and not below 0. What differs is how it is held. All
children have the same information P = sum of w_q A_q' A_q, and an answer to a query is the sum of its cells: P x is
found query by query. A small family is given to the compiled kernel as a table of patterns of agreement; a large one
is solved by a primal-dual active set whose equations are solved by conjugate gradients in the space of the free cells
with sums of 0 (Gould, Hribar, Nocedal 2001).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray, IntArray
from topdown.projection.check.certificate import Residuals
from topdown.projection.conditions import Rows
from topdown.projection.histograms.families import Family, Solved, optimality_of, solve_compiled, without_rounding
from topdown.projection.histograms.precision_matrices import Gathered

if TYPE_CHECKING:  # compiled, and loaded where it is used
    from topdown.projection.histograms.support_kernel import SupportArrays

DENSE_CELLS, MOST_DENSE_CELLS = 60, 3_000
"""Families of at most so many cells are solved by the compiled kernel, whose time grows with the cube of the cells; and
those of at most so many where conjugate gradients do not end."""

_MOST_QUERIES = 14
"""With more queries there are too many patterns of agreement for a table of them."""

_LEFT, _ROUGH, _MOST_ROUNDS = (1.0, 1e-1, 1e-3, 1e-6, 1e-11), 2, 400
"""What is left of a round's equations, in units of the noise, stage by stage; how many of the stages are rough, since
which cells are free depends on what is left, and the rest would change sides again; and how many rounds there are."""

_NEAR = ((2.0, 40, _ROUGH), (3e-2, 15, _ROUGH + 1), (1e-2, _MOST_ROUNDS, _ROUGH + 1))
"""What sums that are to be nearly right may lack, in units of the noise, before they are held exactly; in how many
rounds a solution should be found from there, or what is nearer is tried; and to which stage the equations are solved
until then."""

_LARGE = 200_000
"""Variables from which on it pays to try with the first of these: small families go in circles more often."""

_SLOWLY, _HEAVY, _MOST_MOVES = 0.8, 4.0, 40
"""At which part of what was lacking before the sums are made more precise; from how many times a cell's precision on
the equations are solved more exactly, too; and how often their multipliers are moved at most."""

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
        from topdown.projection.histograms.support_kernel import apply_queries

        children, cells = x.shape
        every, found = np.tile(np.arange(cells, dtype=np.int32), children), np.empty(x.size)
        starts = cells * np.arange(children + 1)
        apply_queries(
            np.ascontiguousarray(x).reshape(-1), starts, every, *self._by_cell, self.precision, self.single, found
        )
        return found.reshape(x.shape)

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

    def arrays(self, precise: float | None = None) -> SupportArrays:
        """The family for compiled code; with ``precise`` the held sums are answers of this precision."""
        from topdown.projection.histograms.support_kernel import SupportArrays

        (answers, begins), weights, held, coarse = self._by_cell, self.precision, self.held, self._coarse
        if held is not None and precise is not None:
            answers = np.concatenate([answers, (held.group[:, None] + begins[-1]).astype(np.int32)], axis=1)
            begins, weights = np.append(begins, begins[-1] + held.sums.shape[1]), np.append(weights, precise)
            held = None
        coarse = coarse or Coarse(np.zeros((0, len(self.cells)), np.int32), np.zeros(0), 1.0)
        group = np.zeros(len(self.cells), np.int64) if held is None else held.group.astype(np.int64)
        sums = np.zeros((len(self.own), 0)) if held is None else np.require(held.sums, requirements=["C", "W"])
        order = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[order], np.arange(sums.shape[1] + 1))
        total = np.zeros(0) if self.total is None else np.require(self.total, requirements=["C", "W"])
        diagonal = float(self.single + weights.sum())
        return SupportArrays(
            answers, begins, weights, self.single, diagonal, self.total is not None, total, group, sums, order, bounds,
            *coarse,
        )  # fmt: skip

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
        from topdown.projection.histograms.support_kernel import ROUNDING

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
        missed = np.maximum(off - ROUNDING * (1 + self.held.sums) * x.shape[1], 0.0).max(axis=1)
        return found._replace(gap=np.maximum(found.gap, missed))


def solve_by_gradients(family: SupportFamily) -> Solved:
    """The solution of a family's program by an active set, its equations by conjugate gradients. Raises
    `ProjectionError` where it does not end."""
    exact, g = family.arrays(), family.g
    if family.held is None or family.total is None:
        return _active_set(exact, g, family, _begin(family), range(len(_LEFT)))
    failed = ProjectionError("a family's program was not solved")
    for x, rounds in _nearer(family, family.held):
        try:
            return _active_set(exact, g, family, x, range(_ROUGH, len(_LEFT)), rounds)
        except ProjectionError as error:
            failed = error
    raise failed


def _nearer(family: SupportFamily, held: HeldSums) -> Iterator[tuple[FloatArray, int]]:
    """Solutions (children x cells) whose held sums are nearly right, and in how many rounds one should be found from
    there, by the method of multipliers (Hestenes, Powell 1969; accelerated, Güler 1992): the sums are answers like
    others, precise ones, and what they lack is added to what they are said to be.

    Held exactly from the beginning, sums of children and of groups leave so little open that an active set goes round
    in circles. From far away it mostly does not, and where it does what is nearer takes longer.
    """
    x, g, multipliers = _begin(family), family.g, np.zeros(held.sums.shape)
    last, momentum, exact = multipliers, 1.0, False
    precise, heavier, before = family.diagonal, 2.0, np.inf
    arrays, wanted = family.arrays(precise), 0 if family.own.size > _LARGE else 1
    for step in range(_MOST_MOVES):
        near, rounds, stages = _NEAR[wanted]
        stages = max(stages, _ROUGH + exact)
        try:
            said = g + (precise * held.sums + multipliers)[:, held.group]
            x = _active_set(arrays, said, family, x, range(min(step, 1), stages)).x
        except ProjectionError:
            if heavier == 1:
                raise
            precise, heavier = family.diagonal, 1.0  # it goes in circles: back to where it did not
            arrays = family.arrays(precise)
            continue
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
            precise *= heavier
            exact = precise > _HEAVY * family.diagonal
            arrays = family.arrays(precise)
        before = worst
    yield x, _MOST_ROUNDS  # as near as it was possible


def _active_set(
    arrays: SupportArrays, g: FloatArray, family: SupportFamily, x: FloatArray, stages: range, most: int = _MOST_ROUNDS
) -> Solved:
    """The solution of the equations of the last of the ``stages``, sought from ``x`` on. Raises `ProjectionError` where
    it is not found in so many rounds."""
    from topdown.projection.histograms.support_kernel import solve_active_set

    found, of_cell = x.copy(), np.zeros(len(family.cells))
    of_group = np.zeros(arrays.sums.shape)
    left, rough = np.array(_LEFT[stages.start : stages.stop]), _ROUGH - stages.start
    rounds = solve_active_set(arrays, found, g, family.allowed, left, rough, most, of_cell, of_group)
    if not rounds:
        raise ProjectionError(f"a family's program was not solved in {most} rounds")
    return Solved(without_rounding(found, family.total), of_cell, of_group, rounds)


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
