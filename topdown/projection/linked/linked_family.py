"""One family of nodes with households and persons: what was measured, and what must hold, on the parent's cells.

With the parent's whole solution X, the answers y_cq of the children c to partial queries q (every cell counts in one
answer of a query, or in none) and their precisions w_cq,

    min  sum_c sum_q 1/2 w_cq |B_q x_c - y_cq|^2   s.t.  sum_c x_c = X,  x >= 0,  low_c <= rows x_c <= high_c:

the family's program of histograms, whose certificate it shares. The rows are those of the members of
households (`topdown.linked.member_groups`), the number of units, where it is public, and a facility's persons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from topdown.errors import ConfigError, ProjectionError
from topdown.geography.tree import FloatArray, IntArray
from topdown.linked.universe import LinkedQuery, PublicFigures, Universe
from topdown.measurements.measurements import Answers
from topdown.projection.check.certificate import FAMILY_TOLERANCE, Residuals
from topdown.projection.conditions import Rows
from topdown.projection.histograms.families import SPOILT, Family, Solved, large_parts, optimality_of, without_rounding
from topdown.projection.histograms.precision_kernel import add_said, add_slope
from topdown.projection.histograms.precision_matrices import Gathered
from topdown.projection.histograms.prior import Prior, without_pull
from topdown.wording import shown

if TYPE_CHECKING:
    from topdown.projection.linked.linked_kernel import FamilyArrays

_MOST_QUERIES = 62
_PRIOR_OF_LEAST, _PRIOR_OF_GREATEST = 1e-4, 1e-8
"""The precision, as a part of the least and of the greatest that was measured, of the prior for cells that no detailed
query covers: at first the parent's are shared out evenly."""

_ATTEMPTS = 30
"""How often a program is solved, each time with other random numbers, before it counts as unsolved."""

_BY_DIFFERENCES = 3
"""After how many attempts that failed the program of the differences from large counts is tried."""

_INSIDE_FIRST, _MOST_INSIDE = 1_000_000, 20_000_000
"""Children x cells x cells of families that are solved from inside where the first attempt fails, and where all do."""

_DEPENDENT = 1e-12
"""Multipliers of combinations of rows that weigh less than this part of the largest change nothing, or only what the
sums' multipliers change; they are not moved."""


class FamilyRows(NamedTuple):
    """The rows of nodes on some cells: ``coefficients`` (rows x cells), ``low`` and ``high`` (nodes x rows), and which
    cells are ``allowed`` (nodes x cells). The first rows, ``members`` of them, are the members'."""

    coefficients: FloatArray
    low: FloatArray
    high: FloatArray
    allowed: npt.NDArray[np.bool_]
    members: int

    @classmethod
    def of(cls, universe: Universe, figures: PublicFigures, cells: IntArray) -> FamilyRows:
        """Those of the nodes of ``figures``."""
        rows, nodes = universe.compositions.rows, len(figures.facilities)
        household, group, facility = universe.is_household(cells), universe.group_of(cells), universe.facility_of(cells)
        members = np.zeros((len(rows.equal), len(cells)))
        members[:, household] = rows.of_class[:, universe.compositions.class_of(cells[household])]
        members[:, group >= 0] = rows.of_group[:, group[group >= 0]]
        counted = [number for number, one in enumerate(universe.facilities) if one.counted]
        kinds = (facility == np.array(counted, np.int64)[:, None]).astype(np.float64)
        found = [members, kinds]
        low = [np.zeros((nodes, len(members))), figures.facilities.astype(np.float64)]
        high = [np.where(rows.equal, 0.0, np.full((nodes, len(members)), np.inf)), np.full(low[1].shape, np.inf)]
        if figures.units is not None:
            found.append(universe.is_unit(cells).astype(np.float64)[None])
            low.append(figures.units.astype(np.float64)[:, None])
            high.append(low[-1])
        allowed = np.ones((nodes, len(cells)), np.bool_)
        for inside, there in zip(kinds > 0, figures.facilities.T, strict=True):
            allowed[:, inside] &= (there > 0)[:, None]
        return cls(
            np.concatenate(found), np.concatenate(low, axis=1), np.concatenate(high, axis=1), allowed, len(members)
        )

    def with_sums(self, total: FloatArray | None) -> FamilyRows:
        """The same rows, of children that add up to ``total`` (cells,): where what they have at least adds up to it,
        they have no more.

        The multipliers of such a row may rise for all children at once, so that their signs say nothing.
        """
        if total is None:
            return self
        tight = self.coefficients @ total == self.low.sum(axis=0)
        return self._replace(high=np.where(tight, self.low, self.high))

    def conditions(self) -> Rows:
        """What the engine takes: rows that are about any cell, their largest coefficient 1."""
        largest = np.abs(self.coefficients).max(axis=1, initial=0.0)
        kept = largest > 0
        scale = largest[kept]
        rows = np.ascontiguousarray(self.coefficients[kept] / scale[:, None])
        return Rows(self.allowed, rows, self.low[:, kept] / scale, self.high[:, kept] / scale)


@dataclass(frozen=True, eq=False)
class LinkedAnswers:
    """What was measured at the nodes of a level: query to `Answers`, values (nodes x answers) and variance (nodes,).

    Raises `ConfigError` for exact answers, which nothing here holds.
    """

    answers: Mapping[LinkedQuery, Answers]
    n_nodes: int

    def __post_init__(self) -> None:
        if len(self.answers) > _MOST_QUERIES:
            raise ConfigError(f"{len(self.answers)} queries of one level; ask at most {_MOST_QUERIES}")
        for query, (_, variance) in self.answers.items():
            if (np.asarray(variance) == 0).any():
                raise ConfigError(
                    f"query {shown(query.name)} is exact; of linked tables only units and facilities can be: give it a "
                    "share of the budget"
                )

    @cached_property
    def precision(self) -> FloatArray:
        """(nodes x queries), 0 where a query was not asked."""
        found = [np.where(np.isfinite(variance), 1.0 / variance, 0.0) for _, variance in self.answers.values()]
        return np.stack(found, axis=1) if found else np.zeros((self.n_nodes, 0))

    def on(self, nodes: slice, cells: IntArray, total: FloatArray | None) -> MeasuredCells:
        """What was measured of ``nodes``, numbered from the level's first, on ``cells``."""
        count, precision = nodes.stop - nodes.start, self.precision[nodes]
        answers = np.array([query.answers_of(cells) for query in self.answers], np.int64).reshape(-1, len(cells))
        said = []
        covered = np.zeros(len(cells), np.bool_)
        for number, (values, _) in enumerate(self.answers.values()):
            inside = answers[number] >= 0
            own = np.zeros((count, len(cells)))
            own[:, inside] = np.asarray(values[nodes])[:, answers[number][inside]]
            own[precision[:, number] == 0] = 0.0
            said.append(own)
            if (precision[:, number] > 0).all():
                covered[inside] |= np.bincount(answers[number][inside])[answers[number][inside]] == 1
        made = precision[precision > 0]
        least, greatest = (float(made.min()), float(made.max())) if len(made) else (1.0, 1.0)
        prior = np.where(covered, 0.0, max(_PRIOR_OF_LEAST * least, _PRIOR_OF_GREATEST * greatest))
        share = np.zeros(len(cells)) if total is None else total / count
        return MeasuredCells(answers, said, precision, Prior(prior, least, share))


class MeasuredCells(NamedTuple):
    """What was measured of some nodes on some cells.

    ``answers`` (queries x cells): the answer in which a cell counts, -1 for none; ``said``: of every query what was
    measured of that (nodes x cells); ``precision`` (nodes x queries); ``prior``: its precision (cells,) is 0 where a
    detailed query was asked.
    """

    answers: IntArray
    said: list[FloatArray]
    precision: FloatArray
    prior: Prior

    def gathered(self) -> tuple[Gathered, npt.NDArray[np.int32]]:
        """The information matrices as `Family` has them, a number per pattern of the queries in which two cells agree,
        and the pattern (cells x cells) of every pair."""
        cells = len(self.prior.precision)
        code = np.zeros((cells, cells), np.int64)
        for number, answer in enumerate(self.answers):
            code |= ((answer[:, None] == answer) & (answer >= 0)).astype(np.int64) << number
        code[np.diag_indices(cells)] |= (self.prior.precision > 0).astype(np.int64) << len(self.answers)
        patterns = np.unique(pd.unique(code.reshape(-1)))  # few: all entries are hashed, and not sorted
        bits = ((patterns >> np.arange(len(self.answers) + 1)[:, None]) & 1).astype(np.float64)
        strength = np.full((len(self.precision), 1), self.prior.precision.max(initial=0.0))
        table = np.concatenate([self.precision, strength], axis=1) @ bits
        return Gathered(table, self.g()), np.searchsorted(patterns, code).astype(np.int32)

    def g(self) -> FloatArray:
        """The linear part of the program (nodes x cells)."""
        # In one memory layout: for every other one the solver's loops would be compiled anew, for many seconds.
        found = np.empty((len(self.precision), len(self.prior.precision)))
        found[:] = self.prior.precision * self.prior.centre
        for precision, said in zip(self.precision.T, self.said, strict=True):
            add_said(np.ascontiguousarray(precision), said, found)
        return found

    def diagonal(self) -> FloatArray:
        """The diagonal of the information matrices (nodes x cells)."""
        return np.asarray(self.precision @ (self.answers >= 0) + self.prior.precision)

    def slope(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """P x - g at ``x`` (nodes x cells), query by query from what was measured, and the sizes of its terms."""
        x = np.ascontiguousarray(x)
        prior, _, centre = self.prior
        found, size = prior * (x - centre), prior * (np.abs(x) + np.abs(centre))
        for answer, precision, said in zip(self.answers, self.precision.T, self.said, strict=True):
            room = np.empty(int(answer.max(initial=0)) + 1)
            add_slope(x, answer, room, said, np.ascontiguousarray(precision), found, size)
        return found, size


class LinkedFamily(NamedTuple):
    """A family's program: ``cells``, what was ``measured``, the parent's ``total`` (cells,), None for a root, and the
    ``rows`` that hold of every child."""

    cells: IntArray
    measured: MeasuredCells
    total: FloatArray | None
    rows: FamilyRows

    @classmethod
    def of(
        cls,
        universe: Universe,
        answers: LinkedAnswers,
        figures: PublicFigures,
        nodes: slice,
        cells: IntArray,
        total: FloatArray | None,
    ) -> LinkedFamily:
        """The program of ``nodes``, numbered from the first of their level, whose ``answers`` and ``figures`` these
        are."""
        rows = FamilyRows.of(universe, figures.at(nodes), cells).with_sums(total)
        return cls(cells, answers.on(nodes, cells, total), total, rows)

    def moved(self, away: FloatArray) -> LinkedFamily:
        """The program of the differences from the whole numbers ``away`` (children x cells)."""
        answers, said, precision, prior = self.measured
        rest, some = [], away.any(axis=0)
        for answer, found in zip(answers, said, strict=True):
            sums = np.zeros((len(away), int(answer.max(initial=0)) + 2))
            np.add.at(sums.T, answer[some], away[:, some].T)
            sums[:, -1] = 0.0  # what counts in no answer
            rest.append(np.ascontiguousarray(found - sums[:, answer]))
        fixed = away @ self.rows.coefficients.T
        return self._replace(
            measured=MeasuredCells(answers, rest, precision, prior._replace(centre=prior.centre - away)),
            total=None if self.total is None else self.total - away.sum(axis=0),
            rows=self.rows._replace(low=self.rows.low - fixed, high=self.rows.high - fixed),
        )

    def given(self, counts: IntArray, held: npt.NDArray[np.bool_]) -> LinkedFamily:
        """The program of the other cells where those that are ``held`` (cells,) have their ``counts`` (children x
        cells)."""
        left, program = ~held, self.moved(np.where(held, counts.astype(np.float64), 0.0))
        answers, said, precision, prior = program.measured
        rest = [np.ascontiguousarray(found[:, left]) for found in said]
        answers = np.ascontiguousarray(answers[:, left])
        prior = Prior(prior.precision[left], prior.least, prior.centre[:, left])
        measured = MeasuredCells(answers, rest, precision, prior)
        total = None if self.total is None else self.total[left]
        coefficients, low, high, allowed, members = program.rows
        rows = FamilyRows(coefficients[:, left], low, high, allowed[:, left], members).with_sums(total)
        return LinkedFamily(self.cells[left], measured, total, rows)

    def dense(self) -> Family:
        """The program as the engine of histograms takes it, with matrices (cells x cells)."""
        known, pattern = self.measured.gathered()
        return Family(self.cells, known, pattern, self.total, self.rows.conditions())

    @property
    def prior(self) -> Prior:
        """The weak term for what no measurement determines."""
        return self.measured.prior

    def nearer(self, x: FloatArray) -> Self:
        """The program whose prior is centred at ``x``."""
        return self._replace(measured=self.measured._replace(prior=self.prior._replace(centre=x)))

    def solve(self) -> tuple[Solved, Residuals]:
        """The solution, and how far it is from optimal. Raises `ProjectionError` where there is none."""
        return self.centred()[1]

    def centred(self) -> tuple[LinkedFamily, tuple[Solved, Residuals]]:
        """The program with its prior where it moves nothing measured, and what `solve` finds."""
        return without_pull(self, LinkedFamily._checked, lambda found: found[0].x)

    def _checked(self, near: tuple[Solved, Residuals] | None = None) -> tuple[Solved, Residuals]:
        solved = self._solved(near=None if near is None else near[0])
        found = self.check(solved)
        if found.worst > FAMILY_TOLERANCE:
            again = self._solved_by_differences(solved.x, solved.rounds) or self._solved_inside(solved.rounds)
            solved, found = (solved, found) if again is None else (again, self.check(again))
        return solved, found

    def _solved(self, attempts: int = _ATTEMPTS, near: Solved | None = None) -> Solved:
        """The solution; the first of so many ``attempts`` begins ``near`` one, if there is one."""
        from topdown.projection.linked import linked_kernel

        program = self._arrays()
        if (program.alone <= 0).any():
            raise ProjectionError("a family's program was not solved: what was measured does not determine it")
        rounds = 0 if near is None else near.rounds
        for attempt in range(attempts):
            if near is not None and attempt == 0:
                begin = linked_kernel.Begin.near(program, near.x, near.sums, near.rows)
            else:
                begin = linked_kernel.Begin.from_nothing(program)
            generator = np.random.default_rng(attempt)
            x, sums, rows, ended, more = linked_kernel.solve_linked(program, begin, generator)
            rounds += more
            if ended == linked_kernel.SINGULAR:
                raise ProjectionError("a family's program was not solved: what was measured does not determine it")
            if ended == linked_kernel.SOLVED:
                return self._fitted(Solved(without_rounding(x, self.total), sums, rows, rounds))
            if attempt < min(_BY_DIFFERENCES, attempts - 1):
                by_differences = self._solved_by_differences(without_rounding(x, self.total), rounds)
                if by_differences is not None:
                    return by_differences
            if attempt == (0 if self._size() <= _INSIDE_FIRST else _ATTEMPTS - 1):
                inside = self._solved_inside(rounds)
                if inside is not None:
                    return inside
        raise ProjectionError(f"a family's program was not solved in {rounds} rounds")

    def _size(self) -> int:
        """The number of entries of all children's information matrices."""
        return self.rows.allowed.size * len(self.cells)

    def _solved_by_differences(self, x: FloatArray, rounds: int) -> Solved | None:
        """The solution near ``x`` (children x cells), after so many ``rounds``, as the difference from large counts
        there, whose rounding is, through the multipliers, that of their siblings' small counts; None where there are
        none, or where it is not exact."""
        away = large_parts(x)
        if not away.any() or (self.total is not None and not (away.sum(axis=0) <= self.total).all()):
            return None
        try:
            found = self.moved(away)._solved(1)
        except ProjectionError:
            return None
        # Where the differences are above 0 it does not matter that they may not be below it, though counts might.
        if not (found.x[away > 0] > 0).all():
            return None
        solved = found._replace(x=without_rounding(found.x + away, self.total), rounds=rounds + found.rounds)
        return solved if self.check(solved).worst <= SPOILT else None

    def _solved_inside(self, rounds: int) -> Solved | None:
        """The solution by `solve_inside` after so many ``rounds``; None where it is too large or not exact."""
        from topdown.projection.linked.interior import solve_inside

        if self._size() > _MOST_INSIDE:
            return None
        try:
            solved = solve_inside(self)
        except ProjectionError:
            return None
        if self.check(solved).worst <= SPOILT:
            return solved._replace(rounds=rounds + solved.rounds)
        return self._solved_by_differences(solved.x, rounds + solved.rounds)

    def _arrays(self) -> FamilyArrays:
        from topdown.projection.linked import linked_kernel

        measured, conditions = self.measured, self.rows.conditions()
        precision, (children, cells) = np.ascontiguousarray(measured.precision), conditions.allowed.shape
        alone, first = np.tile(measured.prior.precision, (children, 1)), 0
        own = np.full((cells, len(measured.answers)), -1, np.int64)
        for number, answer in enumerate(measured.answers):
            inside = np.flatnonzero(answer >= 0)
            _, place, size = np.unique(answer[inside], return_inverse=True, return_counts=True)
            single = size[place] == 1
            alone[:, inside[single]] += precision[:, [number]]
            found, place = np.unique(place[~single], return_inverse=True)
            own[inside[~single], number] = first + place
            first += len(found)
        # The rows that are about a cell, one after the other.
        row, cell = np.nonzero(conditions.rows)
        order = np.argsort(cell, kind="stable")
        row, cell = row[order], cell[order]
        place = np.arange(len(cell)) - np.searchsorted(cell, cell)
        of_rows = np.full((cells, int(place.max(initial=-1)) + 1), -1, np.int64)
        of_rows[cell, place] = first + row
        answers = np.concatenate([own, of_rows], axis=1)
        parts = np.zeros(of_rows.shape)
        parts[cell, place] = conditions.rows[row, cell]
        answers[answers < 0] = first + len(conditions.rows)
        return linked_kernel.FamilyArrays(
            measured.g(),
            np.sqrt(measured.diagonal()),
            alone,
            answers.astype(np.uint32),
            parts,
            first,
            precision,
            np.zeros(cells) if self.total is None else np.ascontiguousarray(self.total),
            self.total is not None,
            np.ascontiguousarray(conditions.allowed),
            np.ascontiguousarray(conditions.low),
            np.ascontiguousarray(conditions.high),
        )

    def _fitted(self, solved: Solved) -> Solved:
        """The solution with multipliers of the held rows and of the sums moved together to where the equations of the
        free cells ask for them.

        An engine has them as a large weight times what a row lacks, of which rounding is too much where a cell is
        known by little but the row.
        """
        rows, found = self.rows.conditions().rows, solved.rows.copy()
        # What an equation lacks counts times 1 / sqrt(precision). Its square weighs so once more, since one of a cell
        # that is known by little would otherwise give way to thousands of others.
        weight = np.where(solved.x > 0, self.measured.diagonal() ** -2.0, 0.0)
        total = weight.sum(axis=0)
        share = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
        if self.total is None:
            share[:] = 0.0
        lack = self.measured.slope(solved.x)[0] - solved.sums - found @ rows
        child, row = np.nonzero(found)
        if len(child):
            own = weight[child] * rows[row]
            # The sums' multipliers follow from the rows': they take the weighted mean over children of what is left.
            matrix = np.where(child[:, None] == child, own @ rows[row].T, 0.0)
            scale = np.sqrt(np.diagonal(matrix))
            scale = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
            matrix = (matrix - (own * share) @ own.T) * scale * scale[:, None]
            aims = scale * (own * (lack - (weight * lack).sum(axis=0) * share)[child]).sum(axis=1)
            matrix[np.diag_indices(len(child))] += _DEPENDENT
            found[child, row] += scale * np.linalg.solve(matrix, aims)
            lack -= (found - solved.rows) @ rows
        return solved._replace(rows=found, sums=solved.sums + (weight * lack).sum(axis=0) * share)

    def check(self, solved: Solved) -> Residuals:
        """How far ``solved`` is from optimal, by what was measured and not by how it was solved."""
        nothing = Gathered(np.zeros((0, 0)), np.zeros((0, 0)))
        program = Family(self.cells, nothing, np.zeros((0, 0), np.int32), self.total, self.rows.conditions())
        return optimality_of(self.measured.slope(solved.x), self.measured.diagonal(), program, solved)
