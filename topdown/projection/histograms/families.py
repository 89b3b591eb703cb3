"""Histograms from the root down, family by family, non-negative: what each family's program is, solved and certified.

Of a parent's histogram only the cells that it has enter: a child has nothing where its parent has nothing. So work and
memory follow the records and not the number of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.machine.parallel import map_ordered
from topdown.projection.check.certificate import Certificate, Residuals, certify
from topdown.projection.conditions import Conditions, Rows
from topdown.projection.histograms.least_squares import Measured, variances_of
from topdown.projection.histograms.passes import Classes, in_order
from topdown.projection.histograms.patterns import Patterns
from topdown.projection.histograms.precision_matrices import Gathered, Information
from topdown.projection.invariants import Contradiction
from topdown.workload import Query

_ROUNDING = 2.0**-43
"""What rounding may be of the largest terms of an equation, over all its terms and their way through the solution."""


class Family(NamedTuple):
    """One family's program on the cells that its parent has.

    ``cells``: their numbers. ``known``: what is known of the children. ``pattern`` (cells x cells). ``total`` (cells,):
    the parent's, None for the root itself. ``conditions``: what must hold.
    """

    cells: IntArray
    known: Gathered
    pattern: npt.NDArray[np.int32]
    total: FloatArray | None
    conditions: Rows


class Solved(NamedTuple):
    """``x`` (children x cells), the multipliers of the sums (cells,) and of the conditions (children x rows), and after
    how many rounds, where the solver says so."""

    x: FloatArray
    sums: FloatArray
    rows: FloatArray
    rounds: int = 0


def residuals_of(
    lacking: tuple[FloatArray, FloatArray, FloatArray], family: Family, solved: Solved, missed: FloatArray | None = None
) -> Residuals:
    """Those of a family's children, from by how much their equations are ``lacking`` (children x equations), what
    rounding may be of that and the noise, of which every child's worst counts; and from by how much the conditions are
    ``missed`` (children,)."""
    gap, rounding, deviation = lacking
    worst = np.argmax(np.maximum(gap - rounding, 0.0) / deviation, axis=1)
    at, x = (np.arange(len(gap)), worst), solved.x
    off = np.zeros(0) if family.total is None else np.abs(x.sum(axis=0) - family.total).max(keepdims=True)
    allowed = np.full(len(off), _ROUNDING * len(x) * float(x.max(initial=0.0)))
    gap = gap[at] if missed is None else np.maximum(gap[at], missed)
    least = x.min(axis=1, initial=np.inf)
    found = Residuals.of(least, 0, (gap, rounding[at], deviation[at]), nonnegative=True, sums=(off, allowed, 0))
    return found._replace(largest=float(np.abs(x).max(initial=0.0)))


def _worst_of(passes: Sequence[Residuals]) -> Residuals:
    """Of the passes of one family: of every child that which is furthest from solving its program."""
    gap, rounding, deviation = (np.stack(one) for one in list(zip(*passes, strict=True))[:3])
    with np.errstate(divide="ignore", invalid="ignore"):
        worst = np.argmax(np.maximum(gap - rounding, 0.0) / deviation, axis=0), np.arange(gap.shape[1])
    last = max(passes, key=lambda one: float((one.off - one.allowed).max(initial=0.0)))
    return last._replace(
        gap=gap[worst],
        rounding=rounding[worst],
        deviation=deviation[worst],
        smallest=min(one.smallest for one in passes),
        largest=max(one.largest for one in passes),
    )


def _of_nothing(children: int, families: int) -> Residuals:
    """Of children that no program was solved for."""
    zeros, sums = np.zeros(children), np.zeros(families)
    return Residuals(zeros, zeros, np.ones(children), sums, sums, 0.0, 0.0)


def certificate_of(residuals: Sequence[Residuals], measured: Measured, tolerance: float) -> Certificate:
    """The certificate of histograms, from what all families lack, the root's first; ``measured``: by level."""
    return certify([Residuals.together(residuals)], variances_of(measured), nonnegative=True, tolerance=tolerance)


class Programs(NamedTuple):
    """How many families' programs were solved, of how many variables, in how many rounds, and in how many at most."""

    families: int
    variables: int
    rounds: int
    most_rounds: int

    @classmethod
    def together(cls, pieces: Sequence[Programs]) -> Programs:
        """Those of several pieces of a tree."""
        families, variables, rounds, most = np.array(pieces, np.int64).reshape(-1, 4).T
        return cls(int(families.sum()), int(variables.sum()), int(rounds.sum()), int(most.max(initial=0)))


class Sparse(NamedTuple):
    """The histogram of one node: ``values`` of the ``cells`` that are not 0."""

    cells: IntArray
    values: FloatArray


def dense(histograms: Sequence[Sparse], n_cells: int) -> FloatArray:
    """Histograms as an array (nodes x cells)."""
    values = np.zeros((n_cells, len(histograms))).T
    for node, (cells, counts) in enumerate(histograms):
        values[node, cells] = counts
    return values


@dataclass(frozen=True, eq=False)
class Descent:
    """Everything that the way down needs: the tree, what is known of every level, what must hold, and ``cells``, all
    that a record can be in.

    ``leaves`` (nodes,): how many leaves lie below every node; in a tree whose leaves are the roots of others, of those.
    ``order``: by level the queries whose answers are settled first (`passes`), () where none are; ``whole_total`` as
    `in_order` takes it.
    """

    tree: Tree
    information: Sequence[Information]
    conditions: Conditions
    patterns: Patterns
    cells: IntArray
    leaves: IntArray
    order: Sequence[tuple[Query, ...]] = ()
    whole_total: bool = False

    def first(self, index: int) -> tuple[Query, ...]:
        """The queries that are settled first in the families whose children are of level ``index``."""
        return self.order[index] if self.order else ()

    def family(self, index: int, nodes: slice, above: Sparse | None) -> Family:
        """The program of the children ``nodes``, numbered from the first of level ``index``, of a parent ``above``."""
        cells = self.cells if above is None else above.cells
        total = None if above is None else above.values.astype(np.float64)
        known = self.information[index].gather(nodes, cells)
        prior = self.information[index].openness.prior(nodes)
        if prior:
            known = _with_prior(known, prior, self._parts(index, nodes), total, self.patterns)
        conditions = self.conditions.rows(index, nodes, cells, total)
        return Family(cells, known, self.patterns.of(cells), total, conditions)

    def check(self, index: int, nodes: slice, family: Family, solved: Solved) -> Residuals:
        """How far ``solved`` is from optimal, by the measurements themselves."""
        x, multipliers = solved.x, solved.rows
        slope, size = self._slope(index, nodes, family, x)
        held = multipliers @ family.conditions.rows
        residual = slope - solved.sums - held
        size = size + np.abs(solved.sums) + np.abs(multipliers) @ family.conditions.rows
        strength = family.known.table[:, np.diagonal(family.pattern)]
        gap = _missed_cells(x, residual / strength, family.conditions)
        lacking = gap, _ROUNDING * size / strength, 1 / np.sqrt(strength)
        return residuals_of(lacking, family, solved, _missed_rows(family.conditions, x, multipliers, strength))

    def check_pass(self, index: int, nodes: slice, family: Family, classes: Classes, solved: Solved) -> Residuals:
        """As `check`, of a pass on ``classes`` of the family's cells, by the measurements themselves: at the histograms
        of which the classes are sums, the slope is one in every class, and solves the program of the classes."""
        (_, multipliers, rows, _), program, of_cell = solved, classes.program, classes.of_cell
        u, x = solved.x, classes.in_cells(solved.x)
        slope, size = self._slope(index, nodes, family, x)
        members = of_cell[:, None] == np.arange(u.shape[1])
        shares = members / members.sum(axis=0)
        size = size + (np.abs(multipliers) + np.abs(rows) @ program.conditions.rows)[:, of_cell]
        residual = slope - (multipliers + rows @ program.conditions.rows)[:, of_cell]
        of_class = residual @ shares
        strength = family.known.table[:, np.diagonal(family.pattern)]
        own = program.known.table[:, np.diagonal(program.pattern)]
        gap = np.maximum(_missed_cells(u, of_class / own, program.conditions), np.abs(x @ members - u))
        apart = np.abs(residual - of_class[:, of_cell]) / strength
        lost = _ROUNDING * (size @ shares / own + np.abs(x) @ members)
        lacking = (
            np.concatenate([gap, apart], axis=1),
            np.concatenate([lost, _ROUNDING * size / strength], axis=1),
            1 / np.sqrt(np.concatenate([own, strength], axis=1)),
        )
        return residuals_of(lacking, program, solved, _missed_rows(program.conditions, u, rows, own))

    def _slope(self, index: int, nodes: slice, family: Family, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """P x - g from the measurements, and the sum of its terms' sizes."""
        slope, size = self.information[index].slope(x, nodes, family.cells)
        prior = self.information[index].openness.prior(nodes)
        if not prior:
            return slope, size
        wanted = _shares(self._parts(index, nodes), family.total, x.shape)
        return slope + prior * (x - wanted), size + prior * (np.abs(x) + wanted)

    def _parts(self, index: int, nodes: slice) -> FloatArray:
        """The numbers of leaves of some nodes, as parts of their family's."""
        leaves = self.leaves[self.tree.level(index)][nodes].astype(np.float64)
        return np.asarray(leaves / leaves.sum())


def _shares(parts: FloatArray, total: FloatArray | None, shape: tuple[int, ...]) -> FloatArray:
    return np.zeros(shape) if total is None else parts[:, None] * total


def _with_prior(
    known: Gathered, prior: float, parts: FloatArray, total: FloatArray | None, patterns: Patterns
) -> Gathered:
    """``known`` and, weakly, that the parent's cells are shared out by the numbers of leaves."""
    return Gathered(known.table + prior * patterns.same, known.g + prior * _shares(parts, total, known.g.shape))


def _missed_cells(x: FloatArray, step: FloatArray, conditions: Rows) -> FloatArray:
    """How far every cell is from where its own equation would put it, everything else as it is: ``step`` lower, but not
    below 0."""
    return np.where(conditions.allowed, np.abs(x - np.maximum(x - step, 0.0)), np.where(x == 0, 0.0, np.inf))


def _missed_rows(conditions: Rows, x: FloatArray, multipliers: FloatArray, strength: FloatArray) -> FloatArray:
    """By how much every child (children,) misses a condition, or holds to one with a multiplier of the wrong sign."""
    if not len(conditions.rows):
        return np.zeros(len(x))
    answers = x @ conditions.rows.T
    short, beyond = conditions.low - answers, answers - conditions.high
    missed = np.maximum(np.maximum(short, beyond) - _ROUNDING * (1 + np.abs(answers)) * x.shape[1], 0.0)
    # A push up where the answer is not at its least, or down where it is not at its most: the smaller of the two.
    unit = multipliers / strength.max(axis=1, keepdims=True)
    wrong = np.minimum(np.abs(unit), np.maximum(np.where(unit > 0, -short, -beyond), 0.0))
    return np.asarray(np.maximum(missed, wrong).max(axis=1))


def solve_compiled(family: Family) -> Solved:
    """The family's program by the compiled active set. Raises `ProjectionError` where it does not solve it."""
    from topdown.projection.histograms import family_kernel

    (table, g), conditions, total = family.known, family.conditions, family.total
    x, sums, rows, ended, rounds = family_kernel.solve_family(
        table,
        family.pattern,
        np.ascontiguousarray(g),  # of one layout, for which alone loops are compiled
        np.ones(len(family.cells)) if total is None else total,
        total is not None,
        conditions.allowed,
        conditions.rows,
        conditions.low,
        conditions.high,
    )
    if ended != family_kernel.SOLVED:
        raise ProjectionError("a family's program was not solved: its conditions contradict each other")
    x = np.maximum(x, 0.0)
    if total is not None:
        # Sums are off by what was refined no further: the largest child feels it least.
        x[np.argmax(x, axis=0), np.arange(len(total))] += total - x.sum(axis=0)
    return Solved(x, sums, rows, rounds)


@dataclass(frozen=True)
class FamilySolver:
    """How a projection method makes histograms non-negative, family by family from the root.

    ``solve``: a family's program, which may have limits of answers in it. Raises `ProjectionError` where it has no
    solution. ``check``: how far a solution is from optimal, from the measurements and not from how it was solved; given
    the `Descent`, the level, the children's numbers in it, the program and the solution. ``program``: the program that
    ``solve`` solves, as least squares of what is known of the children, for any other solver; None where it cannot be
    stated so, and there is then no second solution. ``check_pass``: as ``check``, of a pass that settles some queries
    first, whose program ``solve`` solves, too; None where it takes no order of queries.
    """

    solve: Callable[[Family], Solved]
    check: Callable[[Descent, int, slice, Family, Solved], Residuals]
    program: Callable[[Family], Family] | None
    check_pass: Callable[[Descent, int, slice, Family, Classes, Solved], Residuals] | None = None


def _as_it_is(family: Family) -> Family:
    return family


LEAST_SQUARES = FamilySolver(solve_compiled, Descent.check, _as_it_is, Descent.check_pass)
"""The least squares of what is known of a family's children, by the compiled active set."""


class Descended(NamedTuple):
    """Every node's histogram, root first; what every family lacks, the root's first; and what was solved."""

    histograms: list[Sparse]
    residuals: list[Residuals]
    programs: Programs


def descend(
    descent: Descent,
    solver: FamilySolver,
    executor: Executor | None = None,
    settle: Callable[[int, slice, Family, FloatArray], FloatArray] | None = None,
    roots: Sequence[Sparse] | None = None,
) -> Descended:
    """The histograms of all nodes, family by family from the root.

    ``settle``: what becomes of a family's solution before its children are solved, such as whole numbers; given the
    level, the children's numbers in it, the program and the solution. ``roots``: where the tree's root only stands for
    what is elsewhere, the histograms of its children, of which nothing is then checked; its own is then empty.
    """
    if roots is None:
        histograms, lacking, programs = _one(descent, solver, settle, 0, slice(0, 1), None)
        found, residuals, solved, below = list(histograms), [lacking], [programs], 1
    else:
        found, solved, below = [Sparse(np.zeros(0, np.int64), np.zeros(0)), *roots], [], 2
        residuals = [_of_nothing(1, 0), _of_nothing(len(roots), 1)]
    for index in range(below, descent.tree.n_levels):
        families = descent.tree.families(index - 1)
        above = descent.tree.level(index - 1).start
        tasks = [
            (index, slice(int(start), int(start + size)), found[above + number])
            for number, (start, size) in enumerate(zip(families.starts, families.sizes, strict=True))
        ]
        for histograms, lacking, programs in map_ordered(
            lambda task: _one(descent, solver, settle, *task), tasks, executor
        ):
            found.extend(histograms)
            residuals.append(lacking)
            solved.append(programs)
    return Descended(found, residuals, Programs.together(solved))


def _one(
    descent: Descent,
    solver: FamilySolver,
    settle: Callable[[int, slice, Family, FloatArray], FloatArray] | None,
    index: int,
    nodes: slice,
    above: Sparse | None,
) -> tuple[list[Sparse], Residuals, Programs]:
    count = nodes.stop - nodes.start
    nothing = np.zeros(0, np.int64)
    if above is not None and not len(above.cells):
        return [Sparse(nothing, np.zeros(0))] * count, _of_nothing(count, 1), Programs(0, 0, 0, 0)
    family = descent.family(index, nodes, above)
    try:
        passes, family, solved = in_order(family, descent.first(index), solver.solve, whole_total=descent.whole_total)
    except ProjectionError as error:
        raise Contradiction(descent.tree.level(index).start + nodes.start, f"it and its siblings: {error}") from None
    lacking, every = solver.check(descent, index, nodes, family, solved), [solved]
    if solver.check_pass is not None and passes:
        before = [solver.check_pass(descent, index, nodes, family, *one) for one in passes]
        lacking, every = _worst_of([*before, lacking]), [solved, *(one for _, one in passes)]
    rounds = sum(one.rounds for one in every)
    programs = Programs(1, sum(one.x.size for one in every), rounds, rounds)
    x = solved.x if settle is None else settle(index, nodes, family, solved.x)
    kept = x > 0
    cells, values = family.cells[np.nonzero(kept)[1]], x[kept]
    ends = np.cumsum(kept.sum(axis=1)).tolist()
    return [Sparse(cells[a:b], values[a:b]) for a, b in zip([0, *ends], ends, strict=False)], lacking, programs
