"""Non-negative histograms from the root down: the program of every family, its solution and its certificate.

Only cells in which the parent has records are used, since a child has none where its parent has none. So time and
memory depend on the number of records, not on the number of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.machine.parallel import map_ordered
from topdown.projection.check.certificate import FAMILY_TOLERANCE, Certificate, Residuals, certify
from topdown.projection.conditions import Conditions, Rows
from topdown.projection.histograms.least_squares import Measured, variances_of
from topdown.projection.histograms.passes import Classes, in_order
from topdown.projection.histograms.patterns import Patterns
from topdown.projection.histograms.precision_matrices import Gathered, Information, Slope
from topdown.projection.histograms.prior import Prior
from topdown.projection.invariants import Contradiction
from topdown.workload import Query

_ROUNDING = 2.0**-43
"""The rounding error of an equation, relative to its largest terms, over all terms and the whole solution."""

_LARGE = 2.0**20
"""In a family with larger counts, rounding of float64 may be seen beside a standard deviation of 1."""

SPOILT = FAMILY_TOLERANCE / 10
"""A solution that is off by more, in standard deviations, is sought once more."""

_ROOM = 2.0**10
"""How far large counts are kept above 0 when a program is solved for the difference from them."""


class Family(NamedTuple):
    """One family's program on the cells that its parent has.

    ``cells``: their numbers. ``known``: the precision and mean of the children (`Gathered`), with those of the
    ``prior``. ``pattern`` (cells x cells). ``total`` (cells,): the parent's histogram, None for the root itself.
    ``conditions``: of the children. ``prior``: None where there is none.
    """

    cells: IntArray
    known: Gathered
    pattern: npt.NDArray[np.int32]
    total: FloatArray | None
    conditions: Rows
    prior: Prior | None = None

    def nearer(self, x: FloatArray) -> Family:
        """The program whose prior is centred at ``x``."""
        if self.prior is None:
            return self
        g = self.known.g + self.prior.precision * (x - self.prior.centre)
        return self._replace(known=self.known._replace(g=g), prior=self.prior._replace(centre=x))


class Solved(NamedTuple):
    """``x`` (children x cells), the multipliers of the sums (cells,) and of the conditions (children x rows), and after
    how many rounds, where the solver says so; ``slope`` at ``x``, where it was found together with other families'."""

    x: FloatArray
    sums: FloatArray
    rows: FloatArray
    rounds: int = 0
    slope: Slope | None = None


def residuals_of(
    lacking: tuple[FloatArray, FloatArray, FloatArray], family: Family, solved: Solved, missed: FloatArray | None = None
) -> Residuals:
    """The residuals of a family's children, from those of their equations (``lacking``, children x equations) with
    their rounding and noise, of which every child's worst counts, and from those of the conditions (``missed``,
    children).
    """
    gap, rounding, deviation = lacking
    worst = np.argmax(np.maximum(gap - rounding, 0.0) / deviation, axis=1)
    at, x = (np.arange(len(gap)), worst), solved.x
    off, allowed = (np.zeros(0), np.zeros(0)) if family.total is None else sums_of(x, family.total)
    gap = gap[at] if missed is None else np.maximum(gap[at], missed)
    least = x.min(axis=1, initial=np.inf)
    found = Residuals.of(least, 0, (gap, rounding[at], deviation[at]), nonnegative=True, sums=(off, allowed, 0))
    return found._replace(largest=float(np.abs(x).max(initial=0.0)))


def sums_of(x: FloatArray, total: FloatArray) -> tuple[FloatArray, FloatArray]:
    """By how much the children ``x`` (children x cells) miss the parent's histogram ``total`` in some cell, and by how
    much rounding may put them off; (1,) each."""
    return np.abs(x.sum(axis=0) - total).max(keepdims=True), np.array([_ROUNDING * len(x) * float(x.max(initial=0.0))])


def optimality_of(slope: Slope, strength: FloatArray, family: Family, solved: Solved) -> Residuals:
    """How far ``solved`` is from optimal, from the ``slope`` there.

    ``strength`` (children x cells): the diagonal of the information matrices.
    """
    multipliers, rows = solved.rows, family.conditions.rows
    residual = slope[0] - solved.sums - multipliers @ rows
    size = slope[1] + np.abs(solved.sums) + np.abs(multipliers) @ np.abs(rows)
    gap = _missed_cells(solved.x, residual / strength, family.conditions)
    lacking = gap, _ROUNDING * size / strength, 1 / np.sqrt(strength)
    return residuals_of(lacking, family, solved, _missed_rows(family.conditions, solved.x, multipliers, strength))


def worst_of_passes(passes: Sequence[Residuals]) -> Residuals:
    """The residuals of several passes of one family: for every child the worst."""
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


def residuals_of_nothing(children: int, families: int) -> Residuals:
    """The residuals of children for which no program was solved."""
    zeros, sums = np.zeros(children), np.zeros(families)
    return Residuals(zeros, zeros, np.ones(children), sums, sums, 0.0, 0.0)


def certificate_of(residuals: Sequence[Residuals], measured: Measured, tolerance: float) -> Certificate:
    """The certificate of histograms, from the residuals of all families, the root's first; ``measured``: by level."""
    return certify([Residuals.together(residuals)], variances_of(measured), nonnegative=True, tolerance=tolerance)


class Programs(NamedTuple):
    """How many families' programs were solved, with how many variables, in how many rounds, and the most rounds
    of one.
    """

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
    """Everything that the descent needs: the tree, the precision and mean of every level, the conditions, and
    ``cells``, those that can have records.

    ``leaves`` (nodes,): how many leaves lie below every node, those of subtrees below this tree included. ``order``: by
    level the queries whose answers are made non-negative first (`passes`), () where none are; ``whole_total`` as
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
        """The queries that are made non-negative first in the families whose children are of level ``index``."""
        return self.order[index] if self.order else ()

    def stated(self, index: int, nodes: slice, above: Sparse | None) -> tuple[Family, None]:
        """As `family`; there is no solution, since the method's solver finds it."""
        return self.family(index, nodes, above), None

    def family(self, index: int, nodes: slice, above: Sparse | None) -> Family:
        """The program of the children ``nodes``, numbered from the first of level ``index``, of a parent ``above``."""
        cells = self.cells if above is None else above.cells
        total = None if above is None else above.values.astype(np.float64)
        known = self.information[index].gather(nodes, cells)
        conditions = self.conditions.rows(index, nodes, cells, total)
        precision, least = self.information[index].openness.prior(nodes)
        if not precision:
            return Family(cells, known, self.patterns.of(cells), total, conditions)
        # At first the parent's cells are divided in proportion to the numbers of leaves.
        centre = np.zeros(known.g.shape) if total is None else self._parts(index, nodes)[:, None] * total
        known = Gathered(known.table + precision * self.patterns.same, known.g + precision * centre)
        return Family(cells, known, self.patterns.of(cells), total, conditions, Prior(precision, least, centre))

    def check(self, index: int, nodes: slice, family: Family, solved: Solved) -> Residuals:
        """The residuals of ``solved``, computed from the measurements themselves."""
        strength = family.known.table[:, np.diagonal(family.pattern)]
        return optimality_of(self._slope(index, nodes, family, solved.x, solved.slope), strength, family, solved)

    def check_pass(self, index: int, nodes: slice, family: Family, classes: Classes, solved: Solved) -> Residuals:
        """As `check`, for a pass on ``classes`` of the family's cells, computed from the measurements themselves: at
        the histograms of which the classes are sums, the slope must be equal within every class, and must solve the
        program of the classes.
        """
        multipliers, rows, program, of_cell = solved.sums, solved.rows, classes.program, classes.of_cell
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

    def _slope(
        self, index: int, nodes: slice, family: Family, x: FloatArray, of_measured: Slope | None = None
    ) -> Slope:
        """P x - g from the measurements, given as ``of_measured`` or computed, and the sizes of its terms."""
        slope, size = of_measured or self.information[index].slopes([(x, nodes, family.cells)])[0]
        if family.prior is None:
            return slope, size
        precision, _, centre = family.prior
        return slope + precision * (x - centre), size + precision * (np.abs(x) + np.abs(centre))

    def _parts(self, index: int, nodes: slice) -> FloatArray:
        """The numbers of leaves of some nodes, divided by their family's."""
        leaves = self.leaves[self.tree.level(index)][nodes].astype(np.float64)
        return np.asarray(leaves / leaves.sum())


def _missed_cells(x: FloatArray, step: FloatArray, conditions: Rows) -> FloatArray:
    """The distance of every cell from the solution of its own equation, with everything else fixed: ``step`` lower, but
    not below 0.
    """
    return np.where(conditions.allowed, np.abs(x - np.maximum(x - step, 0.0)), np.where(x == 0, 0.0, np.inf))


def _missed_rows(conditions: Rows, x: FloatArray, multipliers: FloatArray, strength: FloatArray) -> FloatArray:
    """By how much every child (children,) violates a condition, or has a multiplier of the wrong sign at one."""
    if not len(conditions.rows):
        return np.zeros(len(x))
    answers = x @ conditions.rows.T
    short, beyond = conditions.low - answers, answers - conditions.high
    missed = np.maximum(np.maximum(short, beyond) - _ROUNDING * (1 + np.abs(answers)) * x.shape[1], 0.0)
    # A positive multiplier where the answer is not at its least, or a negative one where it is not at its most.
    unit = multipliers / strength.max(axis=1, keepdims=True)
    wrong = np.minimum(np.abs(unit), np.maximum(np.where(unit > 0, -short, -beyond), 0.0))
    return np.asarray(np.maximum(missed, wrong).max(axis=1))


def solve_compiled(family: Family) -> Solved:
    """The family's program by the compiled active set. Raises `ProjectionError` where the conditions contradict each
    other.

    Rounding of a large count is, through the multipliers, rounding of the small counts of its siblings. Where it spoils
    the solution, the program is solved once more for the difference from large counts near the first solution.
    """
    from topdown.projection.histograms.family_kernel import SOLVED

    solved, ended = _by_active_set(family)
    if family.total is not None and family.total.max() > _LARGE and (ended != SOLVED or _spoilt(family, solved)):
        away = large_parts(solved.x)
        if away.any() and (away.sum(axis=0) < family.total).all():
            differences, ended_again = _by_active_set(_moved(family, away, family.total))
            # Where they are above 0 it does not matter that they may not be below it, though counts might.
            if ended_again == SOLVED and (differences.x[away > 0] > 0).all():
                solved, ended = differences._replace(x=differences.x + away), SOLVED
    if ended != SOLVED:
        raise ProjectionError("a family's program was not solved: its conditions contradict each other")
    return solved._replace(x=without_rounding(solved.x, family.total))


def large_parts(x: FloatArray) -> FloatArray:
    """The whole numbers that may be taken from large counts near ``x``, so that what is left is small and above 0."""
    return np.where(x > 2 * _ROOM, np.rint(x) - _ROOM, 0.0)


def _by_active_set(family: Family) -> tuple[Solved, int]:
    """The solution, whose cells rounding may leave below 0, and how it ended."""
    from topdown.projection.histograms import family_kernel

    (table, g), conditions, total = family.known, family.conditions, family.total
    x, sums, rows, ended, rounds = family_kernel.solve_family(
        table,
        # In one type and memory layout: for every other one the loops would be compiled anew, for many seconds.
        np.ascontiguousarray(family.pattern, np.int32),
        np.ascontiguousarray(g),
        np.ones(len(family.cells)) if total is None else np.ascontiguousarray(total),
        total is not None,
        np.ascontiguousarray(conditions.allowed),
        np.ascontiguousarray(conditions.rows, np.float64),
        np.ascontiguousarray(conditions.low),
        np.ascontiguousarray(conditions.high),
    )
    return Solved(x, sums, rows, rounds), ended


def _times(family: Family, x: FloatArray) -> FloatArray:
    """P x (children x cells)."""
    return np.stack([entries[family.pattern] @ own for entries, own in zip(family.known.table, x, strict=True)])


def _spoilt(family: Family, solved: Solved) -> bool:
    """Whether the solution misses its equations by more than a certificate should have to allow."""
    released = solved._replace(x=without_rounding(solved.x, family.total))
    product, g = _times(family, released.x), family.known.g
    strength = family.known.table[:, np.diagonal(family.pattern)]
    return optimality_of((product - g, np.abs(product) + np.abs(g)), strength, family, released).worst > SPOILT


def _moved(family: Family, away: FloatArray, total: FloatArray) -> Family:
    """The program, whose children add up to ``total`` (cells,), of the differences from ``away`` (children x cells)."""
    known, conditions = family.known, family.conditions
    answers = away @ conditions.rows.T
    return family._replace(
        known=known._replace(g=known.g - _times(family, away)),
        total=total - away.sum(axis=0),
        conditions=conditions._replace(low=conditions.low - answers, high=conditions.high - answers),
    )


def without_rounding(x: FloatArray, total: FloatArray | None) -> FloatArray:
    """``x`` (children x cells) without what rounding leaves below 0, adding up to ``total`` (cells,) where it is given:
    the remaining error of the sums goes to the largest child, where it matters least."""
    x = np.maximum(x, 0.0)
    if total is not None:
        x[np.argmax(x, axis=0), np.arange(len(total))] += total - x.sum(axis=0)
    return x


@dataclass(frozen=True)
class FamilySolver:
    """How a projection method makes histograms non-negative, family by family from the root.

    ``solve``: a family's program, which may have limits of answers in it. Raises `ProjectionError` where it has no
    solution. ``check``: how far a solution is from optimal, from the measurements and not from how it was solved; given
    the `Descent`, the level, the children's numbers in it, the program and the solution. ``program``: the program that
    ``solve`` solves, as least squares of what is known of the children, for any other solver; None where it cannot be
    stated so, and there is then no second solution. ``check_pass``: as ``check``, for a pass that makes some queries
    non-negative first, whose program ``solve`` solves, too; None where it takes no order of queries.
    """

    solve: Callable[[Family], Solved]
    check: Callable[[Descent, int, slice, Family, Solved], Residuals]
    program: Callable[[Family], Family] | None
    check_pass: Callable[[Descent, int, slice, Family, Classes, Solved], Residuals] | None = None


def _as_it_is(family: Family) -> Family:
    return family


LEAST_SQUARES = FamilySolver(solve_compiled, Descent.check, _as_it_is, Descent.check_pass)
"""The least squares of what is known of a family's children, by the compiled active set."""


Settle = Callable[[int, slice, Family, FloatArray], FloatArray]
"""Changes a family's solution before its children are solved, as `descend` takes it."""


class Descended(NamedTuple):
    """Every node's histogram, root first; the residuals of every family, the root's first; and statistics of the
    programs.
    """

    histograms: list[Sparse]
    residuals: list[Residuals]
    programs: Programs


def descend(
    descent: Descent,
    solver: FamilySolver,
    executor: Executor | None = None,
    settle: Settle | None = None,
    roots: Sequence[Sparse] | None = None,
) -> Descended:
    """The histograms of all nodes, family by family from the root.

    ``settle``: changes a family's solution before its children are solved, for example to whole numbers; given the
    level, the children's numbers in it, the program and the solution. ``roots``: the histograms of the root's children,
    where the root is only a placeholder for another piece of the tree; they are not checked, and the root's own is
    empty.
    """
    if roots is None:
        levels, lowest = [_OneLevel.of(_several(descent, solver, settle, 0, [(slice(0, 1), None)]))], 0
    else:
        nothing = Sparse(np.zeros(0, np.int64), np.zeros(0))
        levels, lowest = (
            [
                _OneLevel([nothing], [residuals_of_nothing(1, 0)], []),
                _OneLevel([*roots], [residuals_of_nothing(len(roots), 1)], []),
            ],
            2,
        )
    tried: set[tuple[int, int, int]] = set()
    while (index := len(levels)) < descent.tree.n_levels:
        above = levels[-1].histograms
        try:
            levels.append(_below(descent, solver, executor, settle, index, above))
        except Contradiction:
            wrong = [] if settle is None else _without(descent, solver, executor, index, above)
            if not _mended(descent, levels, lowest, wrong, tried):
                raise
    return Descended(
        [node for level in levels for node in level.histograms],
        [family for level in levels for family in level.residuals],
        Programs.together([family for level in levels for family in level.programs]),
    )


class _OneLevel(NamedTuple):
    """The histograms of a level's nodes, and of each of its families what it lacks and what was solved."""

    histograms: list[Sparse]
    residuals: list[Residuals]
    programs: list[Programs]

    @classmethod
    def of(cls, families: Iterable[_Descended]) -> _OneLevel:
        """Of all families, in their order."""
        histograms, residuals, programs = zip(*families, strict=True)
        return cls([node for family in histograms for node in family], [*residuals], [*programs])


def _below(
    descent: Descent,
    solver: FamilySolver,
    executor: Executor | None,
    settle: Settle | None,
    index: int,
    above: Sequence[Sparse],
) -> _OneLevel:
    """All families whose children are of level ``index``, of parents that have ``above``."""
    several = map_ordered(partial(_several, descent, solver, settle, index), _tasks(descent, index, above), executor)
    return _OneLevel.of(one for many in several for one in many)


def _tasks(descent: Descent, index: int, above: Sequence[Sparse]) -> list[list[_Task]]:
    """The families whose children are of level ``index``, of parents that have ``above``, in groups."""
    families = descent.tree.families(index - 1)
    tasks = [
        (slice(int(start), int(start + size)), parent)
        for parent, start, size in zip(above, families.starts, families.sizes, strict=True)
    ]
    return list(_together(tasks, descent.patterns.schema.n_cells))


def _without(
    descent: Descent, solver: FamilySolver, executor: Executor | None, index: int, above: Sequence[Sparse]
) -> list[int]:
    """The nodes of the level above ``index`` below which nothing can be."""

    def wrong(tasks: Sequence[_Task]) -> list[int]:
        found = []
        for nodes, parent in tasks:
            try:
                _answer(descent, solver, index, nodes, parent)
            except Contradiction:
                found.append(int(descent.tree.parent[descent.tree.level(index).start + nodes.start]))
        return found

    return [one for many in map_ordered(wrong, _tasks(descent, index, above), executor) for one in many]


def _mended(
    descent: Descent, levels: list[_OneLevel], lowest: int, nodes: Sequence[int], tried: set[tuple[int, int, int]]
) -> bool:
    """Whether what is above could be changed so that there can be something below each of ``nodes``, of the last of
    ``levels``: they and their siblings, or else their parents and theirs, up to level ``lowest``. There ``levels`` then
    ends.

    ``tried``: the families, by their level and parent, that were changed before, and by how many levels below them.
    """
    tree = descent.tree
    for depth in range(1, len(levels) - lowest + 1):
        index, left = len(levels) - depth, []
        parents = list(dict.fromkeys(int(tree.parent[node]) for node in nodes))
        for parent in parents:
            if (index, parent, depth) in tried or not _mended_family(descent, levels, index, parent, depth):
                left.append(parent)
            tried.add((index, parent, depth))
        if not left or (depth > 1 and len(left) < len(parents)):
            del levels[index + 1 :]
            tried -= {one for one in tried if one[0] > index}
            return bool(nodes)
        nodes = left
    return False


def _mended_family(descent: Descent, levels: list[_OneLevel], index: int, parent: int, depth: int) -> bool:
    """Whether the children of ``parent``, of level ``index``, could be changed by what is so many levels (``depth``)
    below them, which they then are; of no parent (-1) the root."""
    from topdown.projection.histograms.mending import mended

    tree = descent.tree
    begin, family = tree.level(index).start, tree.children(parent) if index else slice(0, 1)
    above = levels[index - 1].histograms[parent - tree.level(index - 1).start] if index else None
    cells, total = (descent.cells, None) if above is None else (above.cells, above.values.astype(np.float64))
    nodes = slice(family.start - begin, family.stop - begin)
    x = dense(levels[index].histograms[nodes], descent.patterns.schema.n_cells)[:, cells]
    changed = mended(descent.conditions, index, nodes, cells, total, x, depth)
    if changed is None:
        return False
    levels[index].histograms[nodes] = [Sparse(cells[row > 0], row[row > 0]) for row in changed]
    return True


_Task = tuple[slice, Sparse | None]
"""A family: its children, and the histogram of their parent."""

_TOGETHER, _AT_MOST = 1 << 18, 64
"""The most entries of whole histograms, and families, that are processed together; a family with more is processed
alone.
"""


def _together(tasks: Sequence[_Task], n_cells: int) -> Iterator[list[_Task]]:
    """``tasks`` in groups, in their order."""
    group, entries = list[_Task](), 0
    for nodes, above in tasks:
        own = (nodes.stop - nodes.start) * n_cells
        if group and (entries + own > _TOGETHER or len(group) == _AT_MOST):
            yield group
            group, entries = [], 0
        group.append((nodes, above))
        entries += own
    if group:
        yield group


_Descended = tuple[list[Sparse], Residuals, Programs]


def _several(
    descent: Descent, solver: FamilySolver, settle: Settle | None, index: int, tasks: Sequence[_Task]
) -> list[_Descended]:
    """Families whose children are of level ``index``: solved one by one, checked by slopes that are found together."""
    answers = [_answer(descent, solver, index, nodes, above) for nodes, above in tasks]
    asked = [one for one in answers if one is not None]
    at = [(one.solved.x, one.nodes, one.family.cells) for one in asked]
    slopes = iter(descent.information[index].slopes(at) if at else [])
    found = []
    for (nodes, _), answer in zip(tasks, answers, strict=True):
        if answer is None:
            count = nodes.stop - nodes.start
            nothing = Sparse(np.zeros(0, np.int64), np.zeros(0))
            found.append(([nothing] * count, residuals_of_nothing(count, 1), Programs(0, 0, 0, 0)))
        else:
            answer = answer._replace(solved=answer.solved._replace(slope=next(slopes)))
            found.append(_settled(descent, solver, settle, index, answer))
    return found


class _Answer(NamedTuple):
    """A family's program, the passes that led to it, and its solution."""

    nodes: slice
    family: Family
    passes: list[tuple[Classes, Solved]]
    solved: Solved


def _answer(descent: Descent, solver: FamilySolver, index: int, nodes: slice, above: Sparse | None) -> _Answer | None:
    """None for the children of a parent that has nothing."""
    if above is not None and not len(above.cells):
        return None
    family = descent.family(index, nodes, above)
    try:
        passes, family, solved = in_order(family, descent.first(index), solver.solve, whole_total=descent.whole_total)
    except ProjectionError as error:
        raise Contradiction(descent.tree.level(index).start + nodes.start, f"it and its siblings: {error}") from None
    return _Answer(nodes, family, passes, solved)


def _settled(descent: Descent, solver: FamilySolver, settle: Settle | None, index: int, answer: _Answer) -> _Descended:
    """The final solution of a family, and its residuals."""
    nodes, family, passes, solved = answer
    lacking, every = solver.check(descent, index, nodes, family, solved), [solved]
    if solver.check_pass is not None and passes:
        before = [solver.check_pass(descent, index, nodes, family, *one) for one in passes]
        lacking, every = worst_of_passes([*before, lacking]), [solved, *(one for _, one in passes)]
    rounds = sum(one.rounds for one in every)
    programs = Programs(1, sum(one.x.size for one in every), rounds, rounds)
    x = solved.x if settle is None else settle(index, nodes, family, solved.x)
    kept = x > 0
    cells, values = family.cells[np.nonzero(kept)[1]], x[kept]
    ends = np.cumsum(kept.sum(axis=1)).tolist()
    return [Sparse(cells[a:b], values[a:b]) for a, b in zip([0, *ends], ends, strict=False)], lacking, programs
