"""The laws of the errors of answers to queries at every node, by columns of answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray
from topdown.geography.unit_sums import UnitSums, published_sums
from topdown.measurements.measurements import Measurements
from topdown.projection.histograms import vector_least_squares
from topdown.projection.sum_errors import Weighted
from topdown.uncertainty.laws.answer_errors import AnswerErrors, Mix
from topdown.uncertainty.laws.error_law import Shape
from topdown.uncertainty.laws.error_moments import NO_NOISE, laws_of_nodes
from topdown.uncertainty.laws.known_noise import answer_noise
from topdown.uncertainty.laws.shared_laws import mixed
from topdown.workload import Query

_ALIKE = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.15, 0.2, 0.3, 0.4, 0.8, 1.6)
"""Relative differences that the covariances of nodes with a common law may have; the smallest with few laws is used."""
_MOST_LAWS = 500
"""More laws than this are too many."""
_MANY_SHAPES = 1 << 15
_NUMBERS = 2.0
"""The numbers of children and siblings may differ by so many times more, since laws depend little on them."""


def copies_of(columns: Sequence[tuple[Query, int]], possible: IntArray) -> IntArray:
    """The number of ``possible`` cells that each of these answers is the sum of (columns,)."""
    queries = dict.fromkeys(query for query, _ in columns)
    sizes = {query: np.bincount(query.answers_of(possible), minlength=query.n_answers) for query in queries}
    return np.array([sizes[query][answer] for query, answer in columns], np.int64)


def sum_of(shape: Shape, copies: int) -> Shape:
    """The shape of the sum of ``copies`` independent errors of one shape, which are those of cells at one node."""
    if not copies:
        return Shape((), 0.0)
    terms = tuple(term._replace(number=term.number * copies) for term in shape.terms)
    return Shape(terms, shape.excess / copies)


class ColumnLaws(NamedTuple):
    """The laws of columns of answers. Nodes fall into groups (``group``, (nodes,)) and columns into kinds (``kind``,
    (columns,)); ``number`` (groups x kinds): which of ``shapes`` their errors have. ``negligible`` (columns,): up to
    this variance an error is rounding, and the answer exact.
    """

    group: npt.NDArray[np.integer]
    kind: IntArray
    number: IntArray
    shapes: tuple[Shape, ...]
    negligible: FloatArray

    def tiled(self, times: int) -> ColumnLaws:
        """The laws of the columns, repeated so many ``times``."""
        return self._replace(kind=np.tile(self.kind, times), negligible=np.tile(self.negligible, times))

    def settled(self, variance: FloatArray) -> FloatArray:
        """``variance`` (nodes x columns), with 0 where it is only rounding."""
        return np.where(variance <= self.negligible, 0.0, variance)

    def places(self, nodes: slice, noisy: npt.NDArray[np.bool_]) -> Iterator[tuple[Shape, IntArray]]:
        """Every shape with the ``noisy`` places (flat, of nodes x columns) that have it."""
        if len(self.shapes) == 1:
            yield self.shapes[0], np.flatnonzero(noisy)
            return
        kinds = np.unique(self.kind[noisy.any(axis=0)]) if self.number.shape[1] > 1 else np.zeros(1, np.int64)
        if len(kinds) == 1:  # all columns of a node have the same law
            rows = np.flatnonzero(noisy.any(axis=1))
            for shape, members in self._sorted(self.number[self.group[nodes][rows], kinds[0]], rows):
                places = (members[:, None] * len(self.kind) + np.arange(len(self.kind))).reshape(-1)
                yield shape, places if noisy.shape[1] == 1 else places[noisy.reshape(-1)[places]]
            return
        places = np.flatnonzero(noisy)
        row, column = np.divmod(places, len(self.kind))
        yield from self._sorted(self.number[self.group[nodes][row], self.kind[column]], places)

    def _sorted(self, number: IntArray, members: IntArray) -> Iterator[tuple[Shape, IntArray]]:
        """Every shape with those of ``members`` that have its ``number``; both (members,)."""
        # 16-bit integers are sorted by radix sort, in a fifth of the time.
        order = np.argsort(number.astype(np.int16) if len(self.shapes) < _MANY_SHAPES else number, kind="stable")
        ends = np.cumsum(np.bincount(number, minlength=1))
        for one in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            yield self.shapes[one], members[order[ends[one - 1] if one else 0 : ends[one]]]


class SumLaws(NamedTuple):
    """The sums ``asked`` whose ``errors`` stand for those of groups of nodes, a sum for each; of their covariances
    those of others in a group differ by up to a part (``differing``)."""

    errors: AnswerErrors
    asked: Weighted
    differing: float = 0.0


@dataclass(frozen=True, eq=False)
class AnswerLaws:
    """The laws of the errors of all answers, for units in groups (``group``, (units,)). Where the cells alone were
    measured: ``of_cells``, the law of a cell in every group, and the ``variance`` of a cell at every unit (units,).
    Else the laws are those of the ``sums`` that represent the groups, in order. Up to the variance ``negligible`` an
    error is rounding, and the answer exact. ``possible``: the cells that can have records.
    """

    group: npt.NDArray[np.integer]
    negligible: float
    possible: IntArray
    of_cells: tuple[Shape, ...] = ()
    variance: FloatArray | None = None
    sums: tuple[SumLaws, ...] = ()

    @classmethod
    def of(cls, measurements: Measurements, units: UnitSums | None = None) -> AnswerLaws:
        """The laws of the errors of least squares of ``measurements``, at ``units``, by default the published ones.
        Raises `ConfigError` as `margins` does.
        """
        possible, noise = measurements.schema.possible_cells(), answer_noise(measurements)
        if not measurements.others:
            variance, laws = laws_of_nodes(noise)
            found = cls(laws.group, NO_NOISE, possible, laws.shapes, variance)
        else:
            alike, few = noise.alike()
            errors = AnswerErrors(few)
            representative, group, differing = alike_nodes(errors)
            of_groups = SumLaws(errors, Weighted.each(representative), differing)
            negligible = errors.sums.negligible
            found = cls(alike.everywhere(group), negligible, possible, sums=(of_groups,))
        units = published_sums(measurements.geography) if units is None else units
        return found if units is None else found._at(units, AnswerErrors(noise))

    def _at(self, units: UnitSums, errors: AnswerErrors) -> AnswerLaws:
        """Those at ``units``: a node's where a unit is one, and else of the sum that it is."""
        group, several = self.group[units.alone], np.flatnonzero(units.alone < 0)
        if not len(several):
            return replace(self, group=group, variance=None if self.variance is None else self.variance[units.alone])
        asked = Weighted.over(units, several)
        if self.variance is None:
            group[several] = sum(one.asked.number for one in self.sums) + np.arange(len(several))
            return replace(self, group=group, sums=(*self.sums, SumLaws(errors, asked)))
        (query,) = errors.noise.queries
        variance, own = self.variance[units.alone], errors.sums.variances(asked, query)[:, 0]
        variance[several] = own
        numbers = {shape: number for number, shape in enumerate(self.of_cells)}
        (shapes,) = errors.shapes(asked, [Mix.of(query, 0)], own[None])
        found = np.array([numbers.setdefault(shape, len(numbers)) for shape in shapes])
        group[several] = np.where((own > 0) & np.isfinite(own), found, -1)
        return replace(self, group=group, of_cells=tuple(numbers), variance=variance)

    def of_first(self, nodes: int) -> AnswerLaws:
        """The laws of the first ``nodes`` units from the root."""
        if nodes == len(self.group):
            return self
        first = self.group[:nodes]
        there = np.unique(first[first >= 0])
        group = np.where(first >= 0, np.searchsorted(there, first), first)
        ends = np.cumsum([0, *(one.asked.number for one in self.sums)]).tolist()
        sums = tuple(
            one._replace(asked=one.asked.chosen(there[(there >= begin) & (there < end)] - begin))
            for one, (begin, end) in zip(self.sums, itertools.pairwise(ends), strict=True)
        )
        of_cells = tuple(self.of_cells[one] for one in there) if self.of_cells else ()
        variance = None if self.variance is None else self.variance[:nodes]
        return replace(self, group=group, of_cells=of_cells, variance=variance, sums=sums)

    def variances(self, columns: Sequence[tuple[Query, int]]) -> FloatArray | None:
        """The variances (nodes x columns) of answers to queries, each a column, where the cells alone were measured."""
        if self.variance is None:
            return None
        copies = copies_of(columns, self.possible)
        if (copies == copies[:1]).all() and copies.any():  # all columns have the same
            of_one = self.variance if copies[0] == 1 else self.variance * copies[0]
            return np.broadcast_to(of_one[:, None], (len(self.variance), len(columns)))
        return np.multiply(
            self.variance[:, None], copies, out=np.zeros((len(self.variance), len(columns))), where=copies > 0
        )

    def of_columns(self, columns: Sequence[tuple[Query, int]]) -> ColumnLaws:
        """The laws of answers to queries, each a column."""
        if not self.sums:
            copies = copies_of(columns, self.possible)
            many, kind = np.unique(copies, return_inverse=True)
            shapes = [[sum_of(shape, one) for shape in self.of_cells] for one in many.tolist()]
            negligible = self.negligible * copies.astype(np.float64)
        else:
            kind, shapes = self._of_several(columns)
            negligible = np.full(len(columns), self.negligible, np.float64)
        numbers: dict[Shape, int] = {}
        number = np.array([[numbers.setdefault(one, len(numbers)) for one in of_kind] for of_kind in shapes], np.int64)
        return ColumnLaws(self.group, kind.reshape(-1), number.T, tuple(numbers), negligible)

    def _of_several(self, columns: Sequence[tuple[Query, int]]) -> tuple[IntArray, list[list[Shape]]]:
        """The kinds of ``columns``, and by kind the shape of every group."""
        kinds: dict[tuple[Query, int], int] = {}
        answers: list[tuple[Query, int]] = []
        kind = np.empty(len(columns), np.int64)
        for place, (query, answer) in enumerate(columns):
            key = query, int(self.sums[0].errors.components.classes(query).place[answer])
            if key not in kinds:
                kinds[key] = len(answers)
                answers.append((query, answer))
            kind[place] = kinds[key]
        mixes, shapes = [Mix.of(query, answer) for query, answer in answers], list[list[Shape]]()
        for errors, asked, differing in self.sums:
            known = {query: errors.sums.variances(asked, query) for query in dict.fromkeys(q for q, _ in answers)}
            variance = np.stack([known[query][:, answer] for query, answer in answers])
            # Standard deviations, and the steps of laws in units of these, differ by half as much as variances.
            found = [
                [shape._replace(differing=differing / 2.0) for shape in of_kind]
                for of_kind in errors.shapes(asked, mixes, variance)
            ]
            shapes = [before + own for before, own in zip(shapes or [[] for _ in found], found, strict=True)]
        return kind, shapes


def alike_nodes(errors: AnswerErrors) -> tuple[IntArray, IntArray, float]:
    """Groups of nodes whose errors have nearly the same laws: one node of each group (groups,), every node's group
    (nodes,), and the relative amount by which covariances within a group may differ.

    Nodes of a group are of one level and have nearly the same variances, covariances with their parents, and numbers of
    children and siblings.
    """
    tree, noise = errors.tree, errors.noise
    parent = np.maximum(tree.parent, 0)
    same: list[IntArray] = [np.repeat(np.arange(tree.n_levels), np.diff(tree.level_offsets))]
    near: list[FloatArray] = []
    children = np.zeros(tree.n_nodes)
    for families in tree.families_down():
        children[families.parents] = families.counted
    near += [np.log1p(counted) / _NUMBERS for counted in (children, children[parent])]
    for number in range(len(errors.components.blocks)):
        spread = errors.sums.spread(number)
        known = [one.finite for one in vector_least_squares.settled(tree, spread)]
        above = [known[0]]
        for index, gain in enumerate(spread.gains):
            place = tree.parent[tree.level(index + 1)] - tree.level(index).start
            above.append(gain @ known[index][place])
        for matrix in (np.concatenate(known), np.concatenate(above)):
            size = np.abs(matrix).max(axis=(1, 2))
            near.append(np.log(np.maximum(size, 1e-300)))
            near += list((matrix / np.where(size > 0, size, 1.0)[:, None, None]).reshape(len(matrix), -1).T)
    for level, kinds in enumerate(noise.kind):
        for kind in kinds.values():
            if len(np.unique(kind)) > 1:
                mine = np.zeros(tree.n_nodes, np.int64)
                mine[tree.level(level)] = kind
                same += [mine, np.where(tree.parent < 0, 0, mine[parent])]
    for step in _ALIKE:
        rounded = np.stack([*same, *(np.rint(values / step).astype(np.int64) for values in near)])
        _, first, group = np.unique(mixed(rounded), return_index=True, return_inverse=True)
        if len(first) <= _MOST_LAWS:
            break
    return first, group.reshape(-1), step if step > _ALIKE[0] else 0.0
