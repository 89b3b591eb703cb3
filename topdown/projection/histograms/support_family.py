"""A family's program on its support, without a matrix over the cells: for histograms of a million cells.

The program is that of `topdown.projection.histograms.families`: least squares of what was measured at the children, on
the cells that the parent has, adding up to the parent in each, and not below 0. What differs is how it is held. All
children have the same information P = sum of w_q A_q' A_q, and an answer to a query is the sum of its cells: P x is
found query by query. A small family is given to the compiled kernel as a table of patterns of agreement; a large one
is solved by a primal-dual active set whose equations are solved by conjugate gradients in the space of the free cells
with sums of 0 (Gould, Hribar, Nocedal 2001).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray, IntArray
from topdown.projection.check.certificate import Residuals
from topdown.projection.conditions import Rows
from topdown.projection.histograms.families import Family, Solved, optimality_of, solve_compiled
from topdown.projection.histograms.passes import told_apart
from topdown.projection.histograms.precision_matrices import Gathered

DENSE_CELLS = 600
"""Families of at most so many cells are solved by the compiled kernel, whose time grows with the cube of the cells."""

DENSE_CELLS_HELD, MOST_DENSE_CELLS = 1_000, 3_000
"""The same where sums are known, which the kernel holds better; and the most cells of a family that is given to it
where conjugate gradients do not end."""

_MOST_QUERIES = 14
"""With more queries there are too many patterns of agreement for a table of them."""

_SIGN, _ROUNDING = 1e-10, 2.0**-46
"""What counts as a wrong sign, in units of the noise; and what rounding may be of the largest term."""

_MOST_ROUNDS, _PATIENCE = 400, 10
_COARSE, _FINE, _LOST = 1e-2, 1e-11, 1e-15
"""What is left of a round's equations, in units of the noise, while cells change sides, and when none does; and what
rounding leaves, as a part of the largest term."""

_MOST_STEPS, _MOST_REFINEMENTS = 2000, 5

_SOME = 0.3
"""Which part of the cells with a wrong sign changes sides where all of them make no progress."""

_MANY_CELLS, _COARSE_ANSWERS = 20_000, 256
"""From so many cells on, queries of at most so many answers are summed by classes of cells together."""


class HeldSums(NamedTuple):
    """Sums of cells that are known exactly of every child: ``group`` (cells,), the group of every cell, each with a
    cell; ``sums`` (children x groups), those of a group adding up to the parent's."""

    group: IntArray
    sums: FloatArray

    def of(self, x: FloatArray) -> FloatArray:
        """The sums of ``x`` (children x cells) over the groups; (children x groups)."""
        return np.stack([np.bincount(self.group, row, self.sums.shape[1]) for row in x])


class Classed(NamedTuple):
    """The queries of a family as `support_kernel.apply_queries` takes them."""

    answers: npt.NDArray[np.int32]
    sizes: IntArray
    weights: FloatArray
    classes: npt.NDArray[np.int32]
    of_class: npt.NDArray[np.int32]
    coarse: FloatArray


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
    """

    cells: IntArray
    answers: npt.NDArray[np.int32]
    said: Sequence[IntArray]
    precision: FloatArray
    single: float
    own: IntArray
    total: FloatArray | None
    held: HeldSums | None = None

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

    @cached_property
    def _classes(self) -> Classed:
        """The coarse queries by classes of cells, where this saves more than it takes."""
        sizes = np.array([said.shape[1] for said in self.said], np.int64)
        coarse = sizes <= _COARSE_ANSWERS
        if len(self.cells) < _MANY_CELLS or coarse.sum() < 2:
            coarse[:] = False
        first, classes = told_apart(list(self.answers[coarse])) if coarse.any() else (np.zeros(0, np.int64), sizes)
        of_class = np.ascontiguousarray(self.answers[coarse][:, first])
        return Classed(
            np.ascontiguousarray(self.answers[~coarse]), sizes[~coarse], self.precision[~coarse],
            classes.astype(np.int32), of_class, self.precision[coarse],
        )  # fmt: skip

    def times(self, x: FloatArray) -> FloatArray:
        """P x (children x cells)."""
        from topdown.projection.histograms.support_kernel import apply_queries

        found, by = np.empty_like(x), self._classes
        apply_queries(x, by.answers, by.sizes, by.weights, self.single, by.classes, by.of_class, by.coarse, found)
        return found

    def nearly_inverse(self, free: npt.NDArray[np.bool_]) -> Callable[[FloatArray], FloatArray]:
        """For a root (1 x cells), the inverse on the ``free`` cells of the part of P that the coarse queries and the
        diagonal make (Woodbury 1950); the identity for anything else."""
        by = self._classes
        if self.total is not None or self.held is not None or not len(by.coarse):
            return lambda vector: vector
        from scipy.linalg import cho_factor, cho_solve

        diagonal = float(self.single + by.weights.sum())
        width = int(by.of_class.max()) + 1
        numbers = (by.of_class + width * np.arange(len(by.coarse))[:, None]).astype(np.int64)
        used, rows = np.unique(numbers, return_inverse=True)
        rows = rows.reshape(numbers.shape)
        roots = np.sqrt(by.coarse)[used // width]
        members = np.bincount(by.classes[free[0]], minlength=by.of_class.shape[1]) / diagonal
        gram = np.eye(len(used))
        for mine, theirs in itertools.product(rows, rows):
            both = np.bincount(mine * len(used) + theirs, members, len(used) ** 2)
            gram += np.outer(roots, roots) * both.reshape(gram.shape)
        factor = cho_factor(gram)

        def apply(vector: FloatArray) -> FloatArray:
            added = np.bincount(by.classes, vector[0], by.of_class.shape[1])
            sums = np.zeros(len(used))
            for mine in rows:
                sums += np.bincount(mine, added, len(used))
            pushed = roots * cho_solve(factor, roots * sums / diagonal)
            back = sum(pushed[mine] for mine in rows)
            return np.where(free, (vector - back[by.classes]) / diagonal, 0.0)

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
        elif tabled and size <= (DENSE_CELLS if self.held is None else DENSE_CELLS_HELD):
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
    children, unless it is a root, and those of groups."""

    def __init__(self, family: SupportFamily, free: npt.NDArray[np.bool_]) -> None:
        from topdown.projection.histograms.support_kernel import factor_groups

        self.family, self.free, self.summed = family, free, family.total is not None
        if family.held is not None:
            children, groups = family.held.sums.shape
            self.order = np.argsort(family.held.group, kind="stable")
            self.starts = np.searchsorted(family.held.group[self.order], np.arange(groups + 1))
            self.factors = np.empty((groups, children, children))
            self.kept = np.empty((groups, children), np.bool_)
            factor_groups(free, self.order, self.starts, self.summed, self.factors, self.kept)

    def _fit(self, sums: FloatArray, answers: FloatArray, of_cell: FloatArray, of_group: FloatArray) -> None:
        from topdown.projection.histograms.support_kernel import fit

        equations = self.free, self.order, self.starts, self.summed, self.factors, self.kept
        fit(sums, answers, *equations, of_cell, of_group)

    def multipliers(self, vector: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Those of the cells' sums (cells,) and of the groups (children x groups) that fit a ``vector`` best."""
        held = self.family.held
        if held is None:
            count = np.maximum(self.free.sum(axis=0), 1)
            mean = np.where(self.free, vector, 0.0).sum(axis=0) / count
            return mean if self.summed else np.zeros_like(mean), np.zeros((len(vector), 0))
        of_cell, of_group = np.zeros(vector.shape[1]), np.zeros(held.sums.shape)
        for _ in range(2):  # the second time what rounding left
            rest = np.where(self.free, vector - of_cell - of_group[:, held.group], 0.0)
            self._fit(rest.sum(axis=0), held.of(rest), of_cell, of_group)
        return of_cell, of_group

    def centred(self, vector: FloatArray) -> FloatArray:
        """The part of ``vector`` (children x cells) in this space; it may be written into."""
        from topdown.projection.histograms.support_kernel import centre

        held = self.family.held
        if held is None:
            centre(vector, self.free, self.summed)
            return vector
        of_cell, of_group = self.multipliers(vector)
        return np.where(self.free, vector - of_cell - of_group[:, held.group], 0.0)

    def moved(self, x: FloatArray) -> FloatArray:
        """``x`` on the free cells, changed as little as gives it the sums that are known."""
        family, x = self.family, np.where(self.free, x, 0.0)
        if family.held is None:
            if family.total is not None:
                x += np.where(self.free, (family.total - x.sum(axis=0)) / self.free.sum(axis=0), 0.0)
            return x
        for _ in range(2):
            of_cell, of_group = np.zeros(x.shape[1]), np.zeros(family.held.sums.shape)
            sums = np.zeros(x.shape[1]) if family.total is None else family.total - x.sum(axis=0)
            self._fit(sums, family.held.sums - family.held.of(x), of_cell, of_group)
            x += np.where(self.free, of_cell + of_group[:, family.held.group], 0.0)
        return x

    def impossible(self, x: FloatArray) -> npt.NDArray[np.bool_]:
        """The groups whose free cells cannot have the sums that are known, which ``x`` would have if they could."""
        held = self.family.held
        if held is None:
            return np.zeros(0, np.bool_)
        off = np.abs(held.of(x) - held.sums).max(axis=0)
        if self.family.total is not None:
            by_cell = np.abs(x.sum(axis=0) - self.family.total)
            off = np.maximum(off, np.bincount(held.group, by_cell, held.sums.shape[1]))
        return np.asarray(off > 1e-7 * (1 + held.sums.max(axis=0)))


def solve_by_gradients(family: SupportFamily) -> Solved:
    """The solution of a family's program by an active set, its equations by conjugate gradients. Raises
    `ProjectionError` where it does not end."""
    g, tied, allowed = family.g, family.total is not None, family.allowed
    free, unit, scale = allowed.copy(), np.sqrt(family.diagonal), float(np.abs(g).max(initial=1.0))
    x = _proportional(family)
    fewest, patience, left, rounds = np.iinfo(np.int64).max, _PATIENCE, _COARSE, 0
    while rounds < _MOST_ROUNDS:
        rounds += 1
        space = _Space(family, free)
        begun = space.moved(x)
        lost = space.impossible(begun)
        if lost.any() and family.held is not None:
            # All of their cells are free again: then what the parent has can be divided as the groups ask.
            free = free | (allowed & lost[family.held.group])
            space = _Space(family, free)
            begun = space.moved(x)
        x, slope = _equations(space, g, begun, left * unit + _LOST * scale)
        sums, of_group = space.multipliers(slope)
        pushed = sums if family.held is None else sums + of_group[:, family.held.group]
        most = np.abs(x).max(axis=1, keepdims=True)
        fine = left == _FINE
        slack = _SIGN if fine else _COARSE
        wrong = free & (x * unit < -slack - _ROUNDING * most * unit)
        terms = np.abs(g) + np.abs(pushed) + family.diagonal * most
        wrong |= allowed & ~free & (slope - pushed < -slack * unit - _ROUNDING * terms)
        count = int(np.count_nonzero(wrong))
        if count == 0:
            if fine:
                return _ended(family, x, sums, of_group, rounds)
            left, fewest, patience = _FINE, np.iinfo(np.int64).max, _PATIENCE
            continue
        if count < fewest:
            fewest, patience = count, _PATIENCE
        elif patience > 0:
            patience -= 1
        else:
            # No progress, as where known sums leave multipliers open: only some change, others in every round.
            wrong &= np.random.default_rng(rounds).random(wrong.shape) < _SOME
        free = free ^ wrong
        if tied:
            free |= allowed & ~free.any(axis=0)
    raise ProjectionError(f"a family's program was not solved in {_MOST_ROUNDS} rounds")


def _proportional(family: SupportFamily) -> FloatArray:
    """Where the search begins: what is known, divided in proportion."""
    count, total, held = len(family.own), family.total, family.held
    if total is None:
        return np.zeros((1, len(family.cells)))
    if held is None:
        return np.tile(total / count, (count, 1))
    return np.asarray((held.sums / held.of(total[None]))[:, held.group] * total)


def _ended(family: SupportFamily, x: FloatArray, sums: FloatArray, of_group: FloatArray, rounds: int) -> Solved:
    x = np.maximum(x, 0.0)
    if family.total is not None:
        # The remaining error of the sums goes to the largest child, where it matters least.
        x[np.argmax(x, axis=0), np.arange(x.shape[1])] += family.total - x.sum(axis=0)
    return Solved(x, sums, of_group, rounds)


def _equations(space: _Space, g: FloatArray, x: FloatArray, enough: float) -> tuple[FloatArray, FloatArray]:
    """The minimum over the free cells with the sums that are known, from ``x`` on, which has them, to a residual of
    ``enough``; and the slope P x - g there."""
    family = space.family
    nearly = family.nearly_inverse(space.free)
    steps, slope = 0, family.times(x) - g
    for _ in range(_MOST_REFINEMENTS):
        lacks = space.centred(-slope)
        if np.abs(lacks).max(initial=0.0) <= enough:
            break
        towards = nearly(lacks).copy()
        size = _product(lacks, towards)
        while np.abs(lacks).max(initial=0.0) > enough and steps < _MOST_STEPS:
            turned = family.times(towards)
            length = size / _product(towards, turned)
            x = x + length * towards
            lacks = space.centred(lacks - length * turned)
            changed = nearly(lacks)
            size, last = _product(lacks, changed), size
            towards = changed + size / last * towards
            steps += 1
        slope = family.times(x) - g  # afresh, since the steps' rounding adds up
    return x, slope


def _product(one: FloatArray, other: FloatArray) -> float:
    """The sum of products; not by BLAS, whose threads would wait for those that work on other families."""
    return float(np.einsum("ij,ij->", one, other))
