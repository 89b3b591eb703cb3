"""The laws of the errors of answers to queries at every node, by columns of answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray
from topdown.measurements.measurements import Measurements
from topdown.projection.histograms import vector_least_squares
from topdown.uncertainty.laws.answer_errors import AnswerErrors, Mix
from topdown.uncertainty.laws.error_law import Shape
from topdown.uncertainty.laws.error_moments import NO_NOISE, laws_of_nodes
from topdown.uncertainty.laws.known_noise import answer_noise
from topdown.uncertainty.laws.shared_laws import mixed
from topdown.uncertainty.laws.sum_errors import Weighted
from topdown.workload import Query

_ALIKE = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.15, 0.2, 0.3, 0.4, 0.8, 1.6)
"""By which part the covariances of nodes that share a law may differ: the least that leaves few laws."""
_MOST_LAWS = 500
"""So many nodes with laws of their own are few."""
_MANY_SHAPES = 1 << 15
_NUMBERS = 2.0
"""By how much more the numbers of children and siblings may differ, on which little depends but these."""


def copies_of(columns: Sequence[tuple[Query, int]], possible: IntArray) -> IntArray:
    """Of how many ``possible`` cells every one of these answers to queries is the sum (columns,)."""
    queries = dict.fromkeys(query for query, _ in columns)
    sizes = {query: np.bincount(query.answers_of(possible), minlength=query.n_answers) for query in queries}
    return np.array([sizes[query][answer] for query, answer in columns], np.int64)


def sum_of(shape: Shape, copies: int) -> Shape:
    """The shape of the sum of so many independent errors of one shape, those of cells at one node; of none, of 0."""
    if not copies:
        return Shape((), 0.0)
    terms = tuple(term._replace(number=term.number * copies) for term in shape.terms)
    return Shape(terms, shape.excess / copies)


class ColumnLaws(NamedTuple):
    """The laws of columns of answers. Nodes fall into groups (``group``, (nodes,)) and columns into kinds (``kind``,
    (columns,)); ``number`` (groups x kinds): which of ``shapes`` their errors have. ``negligible`` (columns,): a
    variance up to which is rounding, and the answer exact.
    """

    group: npt.NDArray[np.integer]
    kind: IntArray
    number: IntArray
    shapes: tuple[Shape, ...]
    negligible: FloatArray

    def tiled(self, times: int) -> ColumnLaws:
        """Those of all columns, so many ``times``."""
        return self._replace(kind=np.tile(self.kind, times), negligible=np.tile(self.negligible, times))

    def settled(self, variance: FloatArray) -> FloatArray:
        """``variance`` (nodes x columns), with 0 for what is rounding."""
        return np.where(variance <= self.negligible, 0.0, variance)

    def places(self, nodes: slice, noisy: npt.NDArray[np.bool_]) -> Iterator[tuple[Shape, IntArray]]:
        """Every shape, with those of the places (flat, of nodes x columns) that are ``noisy`` and have it."""
        if len(self.shapes) == 1:
            yield self.shapes[0], np.flatnonzero(noisy)
            return
        kinds = np.unique(self.kind[noisy.any(axis=0)]) if self.number.shape[1] > 1 else np.zeros(1, np.int64)
        if len(kinds) == 1:  # of a node all columns have one law
            rows = np.flatnonzero(noisy.any(axis=1))
            for shape, members in self._sorted(self.number[self.group[nodes][rows], kinds[0]], rows):
                places = (members[:, None] * len(self.kind) + np.arange(len(self.kind))).reshape(-1)
                yield shape, places if noisy.shape[1] == 1 else places[noisy.reshape(-1)[places]]
            return
        places = np.flatnonzero(noisy)
        row, column = np.divmod(places, len(self.kind))
        yield from self._sorted(self.number[self.group[nodes][row], self.kind[column]], places)

    def _sorted(self, number: IntArray, members: IntArray) -> Iterator[tuple[Shape, IntArray]]:
        """Every shape by its ``number``, with those of ``members`` that have it, both (members,)."""
        # Whole numbers of 16 bits are sorted by their digits, in a fifth of the time.
        order = np.argsort(number.astype(np.int16) if len(self.shapes) < _MANY_SHAPES else number, kind="stable")
        ends = np.cumsum(np.bincount(number, minlength=1))
        for one in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            yield self.shapes[one], members[order[ends[one - 1] if one else 0 : ends[one]]]


@dataclass(frozen=True, eq=False)
class AnswerLaws:
    """The laws of the errors of all answers, of nodes in groups (``group``, (nodes,)). Where the cells alone were
    measured every group's of a cell, ``of_cells``, and the ``variance`` of a cell at every node (nodes,); else those of
    ``errors`` at one node of every group, its ``representative`` (groups,), of whose covariances others' differ by up
    to a part (``differing``). A variance up to ``negligible`` is rounding, and the answer exact. ``possible``: the
    cells that can have records.
    """

    group: npt.NDArray[np.integer]
    negligible: float
    possible: IntArray
    of_cells: tuple[Shape, ...] = ()
    variance: FloatArray | None = None
    errors: AnswerErrors | None = None
    representative: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    differing: float = 0.0

    @classmethod
    def of(cls, measurements: Measurements) -> AnswerLaws:
        """Those of least squares of ``measurements``. Raises `ConfigError` as `margins` does."""
        possible, noise = measurements.schema.possible_cells(), answer_noise(measurements)
        if not measurements.others:
            variance, laws = laws_of_nodes(noise)
            return cls(laws.group, NO_NOISE, possible, laws.shapes, variance)
        alike, few = noise.alike()
        errors = AnswerErrors(few)
        representative, group, differing = alike_nodes(errors)
        return cls(alike.everywhere(group), errors.negligible, possible, (), None, errors, representative, differing)

    def of_first(self, nodes: int) -> AnswerLaws:
        """Those of so many nodes from the root on."""
        if nodes == len(self.group):
            return self
        first = self.group[:nodes]
        there = np.unique(first[first >= 0])
        group = np.where(first >= 0, np.searchsorted(there, first), first)
        return replace(
            self,
            group=group,
            of_cells=tuple(self.of_cells[one] for one in there) if self.of_cells else (),
            variance=None if self.variance is None else self.variance[:nodes],
            representative=self.representative[there] if len(self.representative) else self.representative,
        )

    def variances(self, columns: Sequence[tuple[Query, int]]) -> FloatArray | None:
        """The variances (nodes x columns) of answers to queries, each a column, where the cells alone were measured."""
        if self.variance is None:
            return None
        copies = copies_of(columns, self.possible)
        if (copies == copies[:1]).all() and copies.any():  # one column stands for all
            of_one = self.variance if copies[0] == 1 else self.variance * copies[0]
            return np.broadcast_to(of_one[:, None], (len(self.variance), len(columns)))
        return np.multiply(
            self.variance[:, None], copies, out=np.zeros((len(self.variance), len(columns))), where=copies > 0
        )

    def of_columns(self, columns: Sequence[tuple[Query, int]]) -> ColumnLaws:
        """Those of answers to queries, each a column."""
        if self.errors is None:
            copies = copies_of(columns, self.possible)
            many, kind = np.unique(copies, return_inverse=True)
            shapes = [[sum_of(shape, one) for shape in self.of_cells] for one in many.tolist()]
            negligible = self.negligible * copies.astype(np.float64)
        else:
            kind, shapes = self._of_several(self.errors, columns)
            negligible = np.full(len(columns), self.negligible, np.float64)
        numbers: dict[Shape, int] = {}
        number = np.array([[numbers.setdefault(one, len(numbers)) for one in of_kind] for of_kind in shapes], np.int64)
        return ColumnLaws(self.group, kind.reshape(-1), number.T, tuple(numbers), negligible)

    def _of_several(
        self, errors: AnswerErrors, columns: Sequence[tuple[Query, int]]
    ) -> tuple[IntArray, list[list[Shape]]]:
        """The kinds of ``columns``, and by kind the shape of every group."""
        kinds: dict[tuple[Query, int], int] = {}
        answers: list[tuple[Query, int]] = []
        kind = np.empty(len(columns), np.int64)
        for place, (query, answer) in enumerate(columns):
            key = query, int(errors.components.classes(query).place[answer])
            if key not in kinds:
                kinds[key] = len(answers)
                answers.append((query, answer))
            kind[place] = kinds[key]
        asked = Weighted.each(self.representative)
        variances = {query: errors.variances(asked, query) for query in dict.fromkeys(q for q, _ in answers)}
        variance = np.stack([variances[query][:, answer] for query, answer in answers])
        shapes = errors.shapes(asked, [Mix.of(query, answer) for query, answer in answers], variance)
        # Deviations, and so the steps of laws in units of these, differ by half of what variances do.
        return kind, [[shape._replace(differing=self.differing / 2.0) for shape in of_kind] for of_kind in shapes]


def alike_nodes(errors: AnswerErrors) -> tuple[IntArray, IntArray, float]:
    """Nodes whose errors have nearly the same laws: one of each group (groups,), every node's group (nodes,), and by
    which part the covariances within a group may differ.

    They are of one level, and much the same are their covariances with themselves and with their parents, and how many
    children and siblings they have.
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
        spread = errors.spread(number)
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
