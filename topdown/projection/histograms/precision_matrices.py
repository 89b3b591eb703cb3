"""The precision and the mean of every node's histogram from measurements, before its parent's histogram is known, level
by level.

From the node's own answers alone (`own`), or with what was measured below it (`known`): the upward pass of least
squares, component by component. Exact answers are not part of them: they are conditions, see `conditions`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import Families, FloatArray, IntArray, Tree
from topdown.measurements.measurements import Answers
from topdown.projection.histograms.components import Block, Component, Components
from topdown.projection.histograms.patterns import Patterns
from topdown.projection.histograms.vector_least_squares import Known, independent, inverse, update
from topdown.workload import DETAILED, Query

_PRIOR_OF_LEAST, _PRIOR_OF_GREATEST, _PRIOR_AT_MOST, _DIGITS = 1e-6, 1e-8, 1e-2, 1e-12
"""The precision of the prior for what no measurement determines (the parent's cells are divided by the numbers of
leaves): the first part of the least precision that was measured, or the second of the greatest if this is more, which
leaves float64 enough digits. At most the third of the least, since in that part a step towards the solution without a
prior fails, but never below the fourth of the greatest, with which the program could not be solved.
"""


class _Openness(NamedTuple):
    """Which nodes are not fully determined by measurements, and the least and the greatest measured precision above 0
    of each, 1 where there is none; (nodes,) each.
    """

    is_open: npt.NDArray[np.bool_]
    least: FloatArray
    greatest: FloatArray

    @classmethod
    def of(cls, is_open: npt.NDArray[np.bool_], strengths: list[FloatArray]) -> _Openness:
        """From ``strengths``, (nodes, ...) each, of all that was measured."""
        each = [one.reshape(len(is_open), -1) for one in strengths]
        found = np.concatenate([*each, np.zeros((len(is_open), 1))], axis=1)
        least = np.where(found > 0, found, np.inf).min(axis=1)
        return cls(is_open, np.where(np.isinf(least), 1.0, least), np.where(np.isinf(least), 1.0, found.max(axis=1)))

    def prior(self, nodes: slice) -> tuple[float, float]:
        """The precision of the prior in a family, ``nodes``, 0 where the measurements determine everything; and the
        least precision that was measured. They depend on the family alone, so that a family's program does not depend
        on others.
        """
        least, greatest = float(self.least[nodes].min()), float(self.greatest[nodes].max())
        if not self.is_open[nodes].any():
            return 0.0, least
        most = max(_PRIOR_AT_MOST * least, _DIGITS * greatest)
        return min(max(_PRIOR_OF_LEAST * least, _PRIOR_OF_GREATEST * greatest), most), least


Slope = tuple[FloatArray, FloatArray]
"""P x - g (nodes x cells), and the sum of the sizes of its terms."""

At = tuple[FloatArray, slice, IntArray]
"""Histograms of some nodes, numbered from their level's first, on some cells: ``x`` (nodes x cells), nodes, cells."""


class Gathered(NamedTuple):
    """The information on the histograms of some nodes on some cells: 1/2 x' P x - g' x, P[k, l] = table[pattern[k, l]].

    ``table`` (nodes x patterns); ``g`` (nodes x cells).
    """

    table: FloatArray
    g: FloatArray


@dataclass(frozen=True, eq=False)
class Own:
    """The information of the answers at the nodes of one level on these nodes."""

    answers: Mapping[Query, Answers]
    precision: Mapping[Query, FloatArray]
    entries: Mapping[Query, FloatArray]
    patterns: Patterns
    openness: _Openness

    @classmethod
    def of(cls, answers: Mapping[Query, Answers], n_nodes: int, patterns: Patterns) -> Own:
        """From the ``answers`` of a level of so many nodes, without exact and unmeasured ones."""
        precision = {}
        for query, (_, variance) in answers.items():
            made = (variance > 0) & np.isfinite(variance)
            if made.any():
                precision[query] = np.divide(1.0, variance, out=np.zeros_like(variance), where=made)
        detailed = next((p for q, p in precision.items() if q.name == DETAILED), None)
        is_open = np.ones(n_nodes, np.bool_) if detailed is None else ~(detailed > 0)
        entries = {query: patterns.of_query(query) for query in precision}
        return cls(answers, precision, entries, patterns, _Openness.of(is_open, list(precision.values())))

    def gather(self, nodes: slice, cells: IntArray) -> Gathered:
        """For ``nodes`` of the level, numbered from its first, and some ``cells``."""
        from topdown.projection.histograms.precision_kernel import add_said

        count = nodes.stop - nodes.start
        table, g = np.zeros((count, self.patterns.count)), np.zeros((count, len(cells)))
        for query, precision in self.precision.items():
            table += precision[nodes, None] * self.entries[query]
            add_said(precision[nodes], _said(self.answers[query], nodes, query.answers_of(cells)), g)
        return Gathered(table, g)

    def slopes(self, asked: Sequence[At]) -> list[Slope]:
        """P x - g at each of ``asked``, from the queries themselves."""
        return [self._slope(*one) for one in asked]

    def _slope(self, x: FloatArray, nodes: slice, cells: IntArray) -> Slope:
        if not self.precision:
            return np.zeros_like(x), np.zeros_like(x)
        from topdown.projection.histograms.precision_kernel import add_slope

        x = np.ascontiguousarray(x)
        found, size = np.zeros(x.shape), np.zeros(x.shape)
        for query, precision in self.precision.items():
            answer = query.answers_of(cells)
            said = _said(self.answers[query], nodes, answer)
            add_slope(x, answer, np.empty(query.n_answers), said, precision[nodes], found, size)
        return found, size


def _said(answers: Answers, nodes: slice, numbers: IntArray) -> FloatArray:
    """Some of the answers at some nodes (nodes x numbers); read answer by answer, which is their order in memory."""
    return np.ascontiguousarray(np.asarray(answers.values).T[numbers, nodes].T, np.float64)


class _Component(NamedTuple):
    """One component of a level's nodes, its blocks together: precision (nodes, m, m) and mean (nodes, copies, m)."""

    component: Component
    precision: FloatArray
    mean: FloatArray


@dataclass(frozen=True, eq=False)
class FromBelow:
    """The information of everything measured at and below the nodes of one level on these nodes."""

    components: Components
    patterns: Patterns
    parts: tuple[_Component, ...]
    g: FloatArray
    table: FloatArray
    openness: _Openness

    @classmethod
    def of_known(cls, state: list[Known], blocks: Sequence[tuple[Component, Block]], patterns: Patterns) -> FromBelow:
        """From the information on a level's ``blocks``."""
        components, is_open = patterns.components, np.zeros(len(state[0].mean), np.bool_)
        table = np.zeros((len(is_open), patterns.count))
        steps: list[tuple[Component, FloatArray]] = []
        strengths, parts = [], dict[Component, _Component]()
        for (component, block), known in zip(blocks, state, strict=True):
            precision, left_open = _precision(known)
            is_open |= left_open
            strengths.append(np.diagonal(precision, axis1=1, axis2=2))
            table += np.einsum("nij,ijp->np", precision, patterns.of_block(component, block))
            steps.append((component, known.mean @ precision @ block.basis.T))
            part = _Component(component, block.basis @ precision @ block.basis.T, known.mean @ block.basis.T)
            other = parts.get(component)
            if other is not None:
                part = _Component(component, other.precision + part.precision, other.mean + part.mean)
            parts[component] = part
        g = _in_cells(components, steps)
        return cls(components, patterns, tuple(parts.values()), g, table, _Openness.of(is_open, strengths))

    def gather(self, nodes: slice, cells: IntArray) -> Gathered:
        """As `Own.gather`."""
        return Gathered(self.table[nodes], self.g[nodes][:, cells])

    def slopes(self, asked: Sequence[At]) -> list[Slope]:
        """As `Own.slopes`, by the components' coordinates, for all of ``asked`` at once: for a few nodes calls of numpy
        take longer than the computation.
        """
        ends = np.cumsum([0, *(len(x) for x, _, _ in asked)]).tolist()
        rows = [slice(*pair) for pair in itertools.pairwise(ends)]
        nodes = np.concatenate([np.arange(its.start, its.stop) for _, its, _ in asked])
        whole = np.zeros((len(nodes), self.components.schema.n_cells))
        for row, (x, _, cells) in zip(rows, asked, strict=True):
            whole[row, cells] = x
        detailed = Query.parse(DETAILED, self.components.schema)
        turned = self.components.rotated(detailed, whole)
        steps = []
        for component, precision, mean in self.parts:
            gap = self.components.taken(detailed, turned, component) - mean[nodes]
            steps.append((component, gap @ precision[nodes]))
        found = _in_cells(self.components, steps)
        largest = np.abs(self.g[nodes]).max(axis=1) + self.table[nodes].max(axis=1) * np.abs(whole).sum(axis=1)
        return [
            (found[row][:, cells], np.broadcast_to(largest[row, None], x.shape))
            for row, (x, _, cells) in zip(rows, asked, strict=True)
        ]


def _in_cells(components: Components, steps: list[tuple[Component, FloatArray]]) -> FloatArray:
    """Histograms (nodes x cells) from the coordinates (nodes, copies, m) of every block in its component."""
    rotated = np.zeros((len(steps[0][1]), *components.shape))
    for component in components:
        components.put(np.asarray(sum(step for its, step in steps if its is component)), component, rotated)
    return components.back(rotated)


Information = Own | FromBelow


def own(tree: Tree, measured: list[dict[Query, Answers]], patterns: Patterns, first: int = 0) -> list[Information]:
    """The information of every level's own answers, from level ``first`` down."""
    sizes = np.diff(tree.level_offsets)
    return [Own.of(level, int(size), patterns) for level, size in list(zip(measured, sizes, strict=True))[first:]]


def known(tree: Tree, measured: list[dict[Query, Answers]], patterns: Patterns, start: int) -> list[Information]:
    """The information on every level's nodes, root first: from level ``start`` down by their own answers alone, above
    it by what was measured at and below them, down to ``start``. With ``start`` 0 every level has only its own answers.

    Raises `Contradiction` for exact answers that no table has.
    """
    if start == 0:
        return own(tree, measured, patterns)
    upper = climb(tree.above(start), measured[: start + 1], patterns)
    return [*upper, *own(tree, measured, patterns, start + 1)]


def climb(
    tree: Tree,
    measured: list[dict[Query, Answers]],
    patterns: Patterns,
    leaves: list[Known] | None = None,
    highest: int = 0,
) -> list[Information]:
    """`known` with the leaves as the start, from the level ``highest`` down.

    ``leaves``: the information on the leaves, block by block, where they are the roots of subtrees that were processed
    before; it includes their own answers. Raises `Contradiction` for exact answers that no table has.
    """
    blocks = patterns.components.blocks
    found: list[Information] = []
    if leaves is not None:
        found.append(FromBelow.of_known(leaves, blocks, patterns))
    else:
        found.append(Own.of(measured[-1], tree.n_leaves, patterns))
    states = known_above(tree, measured, patterns, leaves, highest)
    found += (FromBelow.of_known(state, blocks, patterns) for state in states)
    return found[::-1]


def known_above(
    tree: Tree,
    measured: list[dict[Query, Answers]],
    patterns: Patterns,
    leaves: list[Known] | None = None,
    highest: int = 0,
) -> Iterator[list[Known]]:
    """The information, block by block, on every level above the leaves, the lowest first, ``highest`` the last.

    ``leaves`` as in `climb`. Raises `Contradiction` for exact answers that no table has.
    """
    components = patterns.components
    state = leaves or []
    for index in range(tree.n_levels - 2, highest - 1, -1):
        families, first = tree.families(index), tree.level(index).start
        here = _rotated(measured[index], components)
        sums = _Leaves.of(measured[-1], families, components) if not state else None
        totals = [
            sums.total(component, block, components) if sums is not None else state[number].totals(families)
            for number, (component, block) in enumerate(components.blocks)
        ]
        for (component, block), known in zip(components.blocks, totals, strict=True):
            _take(known, here, component, block, components, first)
        state = totals
        yield state


_Rotated = dict[Query, Answers]
"""Answers in their split bases: (nodes, ...) for every query, with their variance."""


def _rotated(level: Mapping[Query, Answers], components: Components) -> _Rotated:
    return {
        query: Answers(components.rotated(query, np.where(np.isfinite(a.variance)[:, None], a.values, 0.0)), a.variance)
        for query, a in level.items()
    }


class _Leaves(NamedTuple):
    """The information of the leaves on their families' sums. Where siblings have the same variance per query, the best
    estimate of their sum follows from the sums of their answers, which are added up. Otherwise every leaf is estimated
    by itself.
    """

    rotated: _Rotated
    families: Families
    alike: bool

    @classmethod
    def of(cls, level: Mapping[Query, Answers], families: Families, components: Components) -> _Leaves:
        alike = all((families.largest(a.variance) == families.smallest(a.variance)).all() for a in level.values())
        if alike:
            level = {q: Answers(families.total_rows(a.values), families.total(a.variance)) for q, a in level.items()}
        return cls(_rotated(level, components), families, alike)

    def total(self, component: Component, block: Block, components: Components) -> Known:
        families = self.families
        if self.alike:
            known = Known.nothing(len(families.sizes), component.copies, block.size)
            known.diffuse *= families.sizes[:, None, None]
            _take(known, self.rotated, component, block, components, families.parents.start)
            return known
        known = Known.nothing(int(families.sizes.sum()), component.copies, block.size)
        _take(known, self.rotated, component, block, components, families.children.start)
        return known.totals(families)


def _take(
    known: Known, answers: _Rotated, component: Component, block: Block, components: Components, first: int
) -> None:
    """Update ``known``, whose first node is ``first``, by ``answers`` to a block."""
    for query, (table, variance) in answers.items():
        if query in block.rows:
            taken = components.taken(query, table, component)
            update(known, independent(block.rows[query], taken, variance), first)


def _precision(known: Known) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """The precision (nodes, m, m) in the directions that are determined; and at which nodes (nodes,) some are not. An
    exact direction gets some precision, so that matrices are positive definite; `Conditions` hold its value.
    """
    is_open: npt.NDArray[np.bool_] = np.asarray(known.diffuse.any(axis=(1, 2)))
    closed = np.broadcast_to(np.eye(known.finite.shape[-1]), known.finite.shape)
    if is_open.any():
        _, closed = inverse(known.diffuse)
    precision, nothing = inverse(closed @ known.finite @ closed, known.scale)
    usual = np.divide(1.0, known.scale, out=np.ones_like(known.scale), where=known.scale > 0)
    return precision + usual[:, None, None] * (closed @ nothing @ closed), is_open
