"""Households and persons of a whole tree, from the root down, family by family, whole and with certificates.

Every family stands alone: its program, its ties and its certificate depend on its own nodes and on its parent's whole
solution, so that nothing depends on who works when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from topdown.errors import ConfigError, ProjectionError
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.linked.dealing import NodeCells
from topdown.linked.universe import LinkedQuery, PublicFigures, Universe
from topdown.machine.tasks import Submits, count_of, elsewhere
from topdown.measurements.measurements import Answers
from topdown.noise import KeyedSource
from topdown.projection.check.certificate import FAMILY_TOLERANCE, Certificate, Residuals, certify
from topdown.projection.histograms.families import (
    Family,
    Programs,
    Solved,
    Sparse,
    residuals_of_nothing,
    worst_of_passes,
)
from topdown.projection.invariants import Contradiction
from topdown.projection.linked.linked_family import LinkedAnswers, LinkedFamily
from topdown.projection.linked.whole_family import whole_family
from topdown.projection.root_down import from_root_down
from topdown.workload import Query
from topdown.workload.schema import MOST_CELLS


@dataclass(frozen=True, eq=False)
class LinkedProgram:
    """Everything that the way down needs.

    Args:
        universe: the cells of households and persons.
        tree: the nodes.
        measured: by level, the root's first, query to `Answers` (values: nodes x answers; variance: nodes).
        figures: what is public of all nodes (`PublicFigures`).

    Raises `ConfigError` for exact answers and for a universe whose root cannot be listed, `Contradiction` naming the
    node where units or facilities of children do not add up, or facilities are below 0.
    """

    universe: Universe
    tree: Tree
    measured: Sequence[Mapping[LinkedQuery, Answers]]
    figures: PublicFigures

    def __post_init__(self) -> None:
        if self.universe.n_cells > MOST_CELLS:
            raise ConfigError(
                f"{self.universe.n_cells:,} cells of {' and '.join(self.universe.names)}, and the root is solved on "
                f"all of them: at most {MOST_CELLS:,}; leave an attribute out, or group its categories"
            )
        units, facilities = self.figures.units, self.figures.facilities
        for what, table in (("units", None if units is None else units[:, None]), ("facilities", facilities)):
            if table is None or not table.shape[1]:
                continue
            if (table < 0).any():
                raise Contradiction(int(np.argmax((table < 0).any(axis=1))), f"its {what} are below 0")
            off = self.tree.not_sums(table.T).any(axis=0)
            if off.any():
                raise Contradiction(int(np.argmax(off)), f"the {what} of its children do not add up to its own")
        _ = self.answers

    @cached_property
    def answers(self) -> list[LinkedAnswers]:
        """What was measured, level by level."""
        sizes = np.diff(self.tree.level_offsets).tolist()
        return [LinkedAnswers(level, size) for level, size in zip(self.measured, sizes, strict=True)]

    def root_cells(self) -> IntArray:
        """The cells that a record can be in; a vacant unit only where something tells how many there are."""
        cells = np.arange(self.universe.n_cells)
        asked = self.figures.units is not None or any(query.vacant for query in self.measured[0])
        return np.asarray(cells[self.universe.possible(cells) & ((cells != self.universe.vacant) | asked)])

    def family(self, index: int, nodes: slice, above: NodeCells | None) -> LinkedFamily:
        """The program of the children ``nodes``, numbered from the first of level ``index``, of a parent ``above``."""
        cells = self.root_cells() if above is None else above.cells
        total: FloatArray | None = None if above is None else above.counts.astype(np.float64)
        own = self.tree.level(index)
        figures = self.figures.at(slice(own.start, own.stop))
        return LinkedFamily.of(self.universe, self.answers[index], figures, nodes, cells, total)


@dataclass(frozen=True, eq=False)
class LinkedFamilies:
    """The families of a ``program`` as a second solver takes them, which
    `topdown.projection.check.cross_checks.StatedFamilies` describes."""

    program: LinkedProgram
    whole_total: bool = False

    @property
    def tree(self) -> Tree:
        """The nodes."""
        return self.program.tree

    @property
    def cells(self) -> IntArray:
        """The cells of the root."""
        return self.program.root_cells()

    def first(self, index: int) -> tuple[Query, ...]:
        """No query is made non-negative first."""
        return ()

    def stated(self, index: int, nodes: slice, above: Sparse | None) -> tuple[Family, Solved]:
        """The program of the children ``nodes`` of a parent ``above``, with matrices, and its solution."""
        parent = None if above is None else NodeCells(above.cells, above.values.astype(np.int64))
        centred, (solved, _) = self.program.family(index, nodes, parent).centred()
        return centred.dense(), solved


class LinkedSolution(NamedTuple):
    """The whole solution of every node, root first, the certificate of all families' programs, and what they were made
    of."""

    nodes: list[NodeCells]
    certificate: Certificate
    programs: Programs


_Solved = tuple[list[NodeCells], Residuals, Programs]


def linked_down(
    program: LinkedProgram, ties: KeyedSource, workers: int | None = None, executor: Submits | None = None
) -> LinkedSolution:
    """Whole households and persons of all nodes, family by family from the root.

    ``ties``: under whose key every family has a stream of its own, which breaks ties. ``workers``: threads, by default
    one per processor; with an ``executor`` it solves what they give it. The result is the same. Raises `Contradiction`
    naming the family's first node where a program has no solution.
    """
    every = from_root_down(program.tree, partial(_family, program, ties, executor), count_of(executor, workers))
    residuals = [lacking for _, lacking, _ in every]
    variance = [
        np.asarray(variance, np.float64).reshape(-1) for level in program.measured for _, variance in level.values()
    ]
    certificate = certify(
        [Residuals.together(residuals)], np.concatenate(variance), nonnegative=True, tolerance=FAMILY_TOLERANCE
    )
    found = [node for nodes, _, _ in every for node in nodes]
    return LinkedSolution(found, certificate, Programs.together([programs for _, _, programs in every]))


def _family(
    program: LinkedProgram,
    ties: KeyedSource,
    executor: Submits | None,
    index: int,
    nodes: slice,
    above: NodeCells | None,
) -> _Solved:
    count, first = nodes.stop - nodes.start, program.tree.level(index).start + nodes.start
    if above is not None and not len(above.cells):
        nothing = NodeCells(np.zeros(0, np.int64), np.zeros(0, np.int64))
        return [nothing] * count, residuals_of_nothing(count, 1), Programs(0, 0, 0, 0)
    task = program.universe, program.family(index, nodes, above), ties.spawn("linked", str(index), str(nodes.start)).key
    try:
        return elsewhere(_solved, task, executor, lambda _: f"the family of node {first}")
    except ProjectionError as error:
        raise Contradiction(first, f"it and its siblings: {error}") from None


def _solved(task: tuple[Universe, LinkedFamily, bytes]) -> _Solved:
    """A family's whole households and persons, with the key of the stream that breaks its ties."""
    universe, family, key = task
    solved, lacking = family.solve()
    counts, again = whole_family(universe, family, solved.x, LinkedFamily.solve, KeyedSource(key))
    found = [NodeCells(family.cells[own > 0], own[own > 0]) for own in counts]
    every = lacking if again is None else worst_of_passes([lacking, again])
    return found, every, Programs(1, solved.x.size, solved.rounds, solved.rounds)
