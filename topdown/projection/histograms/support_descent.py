"""Whole histograms from the root down where a histogram has too many cells for tables of them: on supports.

The root is solved on every possible cell, and every family on the cells in which its parent has records; only answers
that meet these cells are asked for. The support of a family follows from its parent's whole solution, which was made of
measurements, so that asking is post-processing of the measurements of all answers. Families stand alone: their
program, ties and certificate do not depend on who works when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, ProjectionError
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.machine.tasks import Submits, count_of, elsewhere
from topdown.measurements.touched import TouchedAnswers
from topdown.noise import KeyedSource
from topdown.projection.check.certificate import FAMILY_TOLERANCE, Certificate, Residuals, certify
from topdown.projection.histograms.families import Family, Programs, Solved, Sparse, residuals_of_nothing
from topdown.projection.histograms.flow import chain, network
from topdown.projection.histograms.support_family import HeldSums, SupportFamily
from topdown.projection.invariants import Contradiction
from topdown.projection.limits import OpenAnswers
from topdown.projection.root_down import from_root_down
from topdown.projection.rounding_method import Rounding
from topdown.workload import DETAILED, Query, Schema


class Asked(Protocol):
    """Measurements that are made where they are asked for."""

    def queries(self, index: int) -> Mapping[Query, float]:
        """The queries that are measured at level ``index``, each with its variance, above 0."""
        ...

    def measured(self, index: int, query: Query, nodes: slice, answers: IntArray) -> IntArray:
        """The measured ``answers`` (rising) to ``query`` at ``nodes``, numbered from the level's first; (nodes x
        answers)."""
        ...


class OnSupports(NamedTuple):
    """The whole histogram of every node, root first; the certificate of all families' programs and what they were made
    of; and all answers that were asked for."""

    histograms: list[Sparse]
    certificate: Certificate
    programs: Programs
    touched: list[TouchedAnswers]


@dataclass(frozen=True, eq=False)
class Tied:
    """Answers to a query that every node must have, from a release that is published already: the redistricting file's
    cells, for the persons of the DHC.

    Args:
        query: of the schema that is solved; its answers are numbered as the cells of the release.
        starts, cells, counts: the release's entries by node, root first (`SparseCounts`): node k has ``counts`` of
            ``cells`` from ``starts[k]`` to before ``starts[k + 1]``, and 0 of all others.
    """

    query: Query
    starts: IntArray
    cells: IntArray
    counts: IntArray

    @classmethod
    def of(cls, query: Query, nodes: IntArray, answers: IntArray, counts: IntArray, n_nodes: int) -> Tied:
        """From ``counts`` at ``nodes``, numbered from the root, in ``answers``, which are summed where they are given
        several times."""
        keys, place = np.unique(nodes * query.n_answers + answers, return_inverse=True)
        sums = np.zeros(len(keys), np.int64)
        np.add.at(sums, place.reshape(-1), counts)
        starts = np.searchsorted(keys, np.arange(n_nodes + 1) * query.n_answers)
        return cls(query, starts, keys % query.n_answers, sums)

    def at(self, nodes: slice, answers: IntArray) -> FloatArray:
        """Some ``answers`` (rising) at ``nodes``; (nodes x answers)."""
        within = slice(int(self.starts[nodes.start]), int(self.starts[nodes.stop]))
        rows = np.repeat(np.arange(nodes.stop - nodes.start), np.diff(self.starts[nodes.start : nodes.stop + 1]))
        place = np.searchsorted(answers, self.cells[within])
        there = place < len(answers)
        there[there] = answers[place[there]] == self.cells[within][there]
        found = np.zeros((nodes.stop - nodes.start, len(answers)))
        found[rows[there], place[there]] = self.counts[within][there]
        return found

    def require(self, tree: Tree, possible: IntArray) -> None:
        """Refuse answers of children that do not add up to their parent's, and those that no possible cell counts in.
        Raises `Contradiction` naming the node."""
        if len(self.starts) != tree.n_nodes + 1:
            raise ConfigError(f"a release of {len(self.starts) - 1:,} units is tied to {tree.n_nodes:,}; they differ")
        node = np.repeat(np.arange(tree.n_nodes), np.diff(self.starts))
        able = np.unique(self.query.answers_of(possible))
        wrong = np.flatnonzero((self.counts > 0) & ~np.isin(self.cells, able))
        if len(wrong):
            label = self.query.labels()[int(self.cells[wrong[0]])]
            raise Contradiction(int(node[wrong[0]]), f"the release that it is tied to has records in {label!r}, in "
                                "which there can be none")  # fmt: skip
        keys = node * self.query.n_answers + self.cells
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], self.counts[order]
        inner = node[order] < tree.leaves.start
        below = node[order] > 0
        above = tree.parent[node[order][below]] * self.query.n_answers + self.cells[order][below]
        every, place = np.unique(np.concatenate([keys[inner], above]), return_inverse=True)
        off = np.zeros(len(every), np.int64)
        np.add.at(off, place, np.concatenate([counts[inner], -counts[below]]))
        if off.any():
            at = int(every[np.flatnonzero(off)[0]])
            label = self.query.labels()[at % self.query.n_answers]
            raise Contradiction(
                at // self.query.n_answers,
                f"in the release that it is tied to, its children do not add up to it in {label!r}",
            )


@dataclass(frozen=True, eq=False)
class SupportDescent:
    """Everything that the way down needs.

    Args:
        tree: the nodes.
        schema: the cells.
        cells: those of the root, rising: usually all in which there can be records.
        asked: what was measured. At every level it must have the detailed query, which determines every cell.
        rounding: how a family's solution is made whole.
        tied: answers that every node has exactly, None for none.
        open: the answers in which a node can have records, None where that is not known, or follows from ``tied``.

    Raises `ConfigError` for a level without the detailed query, and for a rounding that takes no histograms,
    `Contradiction` as `Tied.require` does.
    """

    tree: Tree
    schema: Schema
    cells: IntArray
    asked: Asked
    rounding: Rounding
    tied: Tied | None = None
    open: OpenAnswers | None = None
    whole_total = False

    def __post_init__(self) -> None:
        self.rounding.for_families()
        if self.tied is not None:
            self.tied.require(self.tree, self.cells)
        for index in range(self.tree.n_levels):
            if not any(query.name == DETAILED for query in self.asked.queries(index)):
                raise ConfigError(
                    f"level {index + 1} of the tree does not measure {DETAILED!r}, and a histogram of so many cells is "
                    f"solved only where it is measured: give {DETAILED!r} a share there"
                )

    def family(self, index: int, nodes: slice, above: Sparse | None) -> tuple[SupportFamily, list[TouchedAnswers]]:
        """The program of the children ``nodes``, numbered from the first of level ``index``, of a parent ``above``; and
        the answers that it asks for."""
        cells, held, possible = self.cells if above is None else above.cells, None, None
        first = self.tree.level(index).start
        own = slice(first + nodes.start, first + nodes.stop)
        if self.open is not None:
            possible = self.open.there[own][:, self.open.query.answers_of(cells)]
        if self.tied is not None:
            groups, group = np.unique(self.tied.query.answers_of(cells), return_inverse=True)
            held = HeldSums(group.reshape(-1), self.tied.at(own, groups))
            if above is None:
                some = held.sums[0, held.group] > 0
                cells, (kept, group) = cells[some], np.unique(held.group[some], return_inverse=True)
                held = HeldSums(group.reshape(-1), held.sums[:, kept])
        total = None if above is None else above.values.astype(np.float64)
        places, said, precision, touched = list[npt.NDArray[np.int32]](), list[IntArray](), list[float](), []
        single, detailed = 0.0, np.zeros((0, 0), np.int64)
        for query, variance in self.asked.queries(index).items():
            if query.name == DETAILED:
                single, detailed = 1.0 / variance, self.asked.measured(index, query, nodes, cells)
                touched.append(TouchedAnswers(index, query.name, nodes, cells, _narrow(detailed)))
                continue
            answers, place = np.unique(query.answers_of(cells), return_inverse=True)
            values = self.asked.measured(index, query, nodes, answers)
            touched.append(TouchedAnswers(index, query.name, nodes, answers, _narrow(values)))
            places.append(place.reshape(-1).astype(np.int32))
            said.append(values)
            precision.append(1.0 / variance)
        joined = np.stack(places) if places else np.zeros((0, len(cells)), np.int32)
        precise = np.array(precision)
        return SupportFamily(cells, joined, said, precise, single, detailed, total, held, possible), touched

    def first(self, index: int) -> tuple[Query, ...]:
        """As `topdown.projection.check.cross_checks.StatedFamilies` has it: no query is made non-negative first."""
        return ()

    def stated(self, index: int, nodes: slice, above: Sparse | None) -> tuple[Family, Solved]:
        """The program of a family for a second solver, and its solution; nothing is asked for that was not before."""
        family, _ = self.family(index, nodes, above)
        return family.program(), family.solve()[0]


def _narrow(values: IntArray) -> npt.NDArray[np.signedinteger[Any]]:
    """``values`` in the fewest bits in which they fit: of a large tree they are the most that is held."""
    largest = np.abs(values).max(initial=0)
    return values.astype(np.int16 if largest < 1 << 15 else np.int32) if largest < 1 << 31 else values


_Solved = tuple[list[Sparse], Residuals, Programs, list[TouchedAnswers]]


def descend_on_supports(
    descent: SupportDescent, ties: KeyedSource, workers: int | None = None, executor: Submits | None = None
) -> OnSupports:
    """Whole histograms of all nodes, family by family from the root.

    ``ties``: under whose key every family has a stream of its own, which breaks the ties of rounding. ``workers``:
    threads, by default one per processor; with an ``executor`` they measure, and it solves. The result is the same.
    Raises `Contradiction` naming the family's first node where a program is not solved.
    """
    tree = descent.tree
    exact = () if descent.tied is None else (descent.tied.query,)
    count = count_of(executor, workers)
    every = from_root_down(tree, partial(_family, descent, ties, chain(descent.schema, exact), executor), count)
    variances = [variance for index in range(tree.n_levels) for variance in descent.asked.queries(index).values()]
    residuals = Residuals.together([family[1] for family in every])
    certificate = certify([residuals], np.array(variances), nonnegative=True, tolerance=FAMILY_TOLERANCE)
    return OnSupports(
        [node for family in every for node in family[0]],
        certificate,
        Programs.together([family[2] for family in every]),
        [one for family in every for one in family[3]],
    )


def _family(
    descent: SupportDescent,
    ties: KeyedSource,
    groups: list[Query],
    executor: Submits | None,
    index: int,
    nodes: slice,
    above: Sparse | None,
) -> _Solved:
    count, first = nodes.stop - nodes.start, descent.tree.level(index).start + nodes.start
    if above is not None and not len(above.cells):
        nothing = Sparse(np.zeros(0, np.int64), np.zeros(0))
        return [nothing] * count, residuals_of_nothing(count, 1), Programs(0, 0, 0, 0), []
    family, touched = descent.family(index, nodes, above)
    answers = [query.answers_of(family.cells) for query in groups]
    task = family, answers, descent.rounding, ties.spawn("rounding", str(index), str(nodes.start)).key
    try:
        found, lacking, programs = elsewhere(_solved, task, executor, lambda _: f"the family of node {first}")
    except ProjectionError as error:
        raise Contradiction(first, f"it and its siblings: {error}") from None
    return found, lacking, programs, touched


def _solved(task: tuple[SupportFamily, list[IntArray], Rounding, bytes]) -> tuple[list[Sparse], Residuals, Programs]:
    """The whole histograms of a family, with the groups of the cells along the chain of queries, a rounding, and the
    key of the stream that breaks its ties."""
    family, groups, rounding, key = task
    solved, lacking = family.solve()
    net = network(solved.x, family.total, groups)
    whole: FloatArray = np.asarray(rounding.for_families()(net, KeyedSource(key)), np.float64)
    found = [Sparse(family.cells[own > 0], own[own > 0]) for own in whole]
    return found, lacking, Programs(1, solved.x.size, solved.rounds, solved.rounds)
