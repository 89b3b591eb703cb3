"""Sums over any nodes where several queries were measured: exact variances, of many sums at once.

The space of histograms falls into components and blocks (`projection.components`), and in each the errors of least
squares on the tree obey x_c = G_c x_p + r_c, with rests r of different families uncorrelated and, of the upward
estimates z_c with covariances U_c, r_c = z_c - G_c (the family's sum of z). With b_i = a_i + m_i and m_p = the sum over
the children of G_c' b_c, the covariance of sum a_i x_i is b_0' U_0 b_0 + the sum over families of the sum over children
of (b_c - m_p)' U_c (b_c - m_p): `uncertainty.combination` in as many dimensions as a block has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, IntArray, Tree, runs
from topdown.measurements.measurements import Answers, Measurements
from topdown.projection import diffuse
from topdown.projection.components import Block, Component, Components
from topdown.projection.histograms import BlockCovariance, Covariance
from topdown.projection.linear_answers import LinearAnswers, linear_answers
from topdown.projection.several import EXACT, answers_by_level
from topdown.uncertainty.error_law import AnyShape
from topdown.uncertainty.fieller import Ratio
from topdown.uncertainty.histogram_margins import shape_of_answers
from topdown.wording import shown
from topdown.workload import Query

_NUMBERS_AT_ONCE = 1 << 22
_SEEN = 1e-9
"""The weight of a component in a query's answers below which they do not depend on it."""


class Weighted(NamedTuple):
    """So many (``number``) sums over nodes: sum ``of`` (entries,) takes ``node`` (entries,) times ``amount``."""

    of: IntArray
    node: IntArray
    amount: FloatArray
    number: int

    @classmethod
    def many(cls, sums: Sequence[tuple[IntArray, FloatArray]]) -> Weighted:
        """Of the nodes and amounts of every sum, each node of a sum once."""
        of = np.repeat(np.arange(len(sums)), [len(nodes) for nodes, _ in sums])
        return cls(of, np.concatenate([n for n, _ in sums]), np.concatenate([a for _, a in sums]), len(sums))

    @property
    def largest(self) -> FloatArray:
        """The largest amount of every sum (number,), in absolute value; 1 where all are 0."""
        found = np.zeros(self.number)
        np.maximum.at(found, self.of, np.abs(self.amount))
        return np.where(found > 0, found, 1.0)


class Part(NamedTuple):
    """The sum of one answer to a query: ``sum``, its nodes and amounts."""

    sum: tuple[IntArray, FloatArray]
    query: Query
    answer: int


@dataclass(frozen=True, eq=False)
class HistogramSums:
    """Sums of answers over nodes, of measurements of several queries; their errors have laws of one ``shape``.

    Raises `ConfigError` as `histogram_margins.shape_of_answers` does.
    """

    measurements: Measurements
    _estimates: dict[Query, LinearAnswers] = field(default_factory=dict, repr=False)
    _spreads: dict[tuple[int, int], diffuse.Spread] = field(default_factory=dict, repr=False)

    @cached_property
    def shape(self) -> AnyShape:
        """That of the law of every sum's error."""
        return shape_of_answers(self.measurements)

    @cached_property
    def _measured(self) -> list[dict[Query, Answers]]:
        self.shape  # noqa: B018 # refuses what has no margin
        return answers_by_level(self.measurements)

    @cached_property
    def _components(self) -> Components:
        queries = dict.fromkeys(query for level in self._measured for query in level)
        return Components(self.measurements.schema, tuple(queries))

    def sums(self, sums: Sequence[tuple[IntArray, FloatArray]], query: Query) -> tuple[FloatArray, FloatArray]:
        """The answers to ``query`` of every one of ``sums`` (nodes, amounts) by least squares, and their variances;
        both (sums x answers). inf where they are not determined.
        """
        asked = Weighted.many(sums)
        return self._values(asked, query), self._variances(asked, query)

    def share(self, part: Part, whole: Part) -> Ratio:
        """``part`` beside ``whole``: two sums of answers, by least squares, with their variances and covariance.

        Raises `ConfigError` unless both are of one answer of one query, or the whole is of all cells.
        """
        (a,), (of_a,) = (column[:, part.answer] for column in self.sums([part.sum], part.query))
        (b,), (of_b,) = (column[:, whole.answer] for column in self.sums([whole.sum], whole.query))
        if (part.query, part.answer) == (whole.query, whole.answer):
            together, apart = (_combined(part.sum, whole.sum, sign) for sign in (1.0, -1.0))
            of_both = self.sums([together, apart], part.query)[1][:, part.answer] @ np.array([0.25, -0.25])
        elif whole.query.n_answers == 1 and np.array_equal(whole.sum[0], part.sum[0]):
            of_both = self._with_total(part, whole)
        else:
            raise ConfigError(
                f"query {shown(part.query.name)}: a share is of the same answer at other units, or of the total at the "
                f"same units; ask for the two sums"
            )
        return Ratio(float(a), float(b), float(of_a), float(of_b), float(of_both))

    def _with_total(self, part: Part, whole: Part) -> float:
        """The covariance of an answer with the sum of all cells over the same nodes, with the same amounts.

        The sum of all cells deviates in no attribute, so that no other component has any of it.
        """
        asked = Weighted.many([part.sum])
        largest = float(asked.largest[0])
        asked = asked._replace(amount=asked.amount / largest)
        found = 0.0
        for number, component in enumerate(self._components):
            if component.deviating:
                continue
            of_part, of_whole = (self._components.answer_rows(one.query, component) for one in (part, whole))
            for k, block in enumerate(component.blocks):
                a = of_part.rows[of_part.place[part.answer]] @ block.basis
                b = of_whole.rows[of_whole.place[whole.answer]] @ block.basis
                spread = self._in_block(asked, (number, k), component, block)
                found += float(a @ spread.finite[0] @ b)
        return found * largest**2

    def _values(self, asked: Weighted, query: Query) -> FloatArray:
        if query not in self._estimates:
            self._measured  # noqa: B018 # refuses what has no margin
            self._estimates[query] = linear_answers(self.measurements, [query])
        found = np.zeros((asked.number, query.n_answers))
        order = np.argsort(asked.node, kind="stable")
        nodes = asked.node[order]
        step = max(1, _NUMBERS_AT_ONCE // query.n_answers)
        for here in runs(slice(0, self.measurements.geography.n_nodes), step):
            part = order[slice(*np.searchsorted(nodes, [here.start, here.stop]))]
            if len(part):
                values = self._estimates[query].answers_of(here, query).values[asked.node[part] - here.start]
                np.add.at(found, asked.of[part], asked.amount[part, None] * values)
        return found

    def _variances(self, asked: Weighted, query: Query) -> FloatArray:
        largest = asked.largest
        asked = asked._replace(amount=asked.amount / largest[asked.of])
        blocks = []
        for number, component in enumerate(self._components):
            matters = (self._components.answer_rows(query, component).weight > _SEEN).any()
            blocks.append(
                tuple(
                    self._in_block(asked, (number, k), component, block) if matters else _nothing(asked, block)
                    for k, block in enumerate(component.blocks)
                )
            )
        found = Covariance(self._components, tuple(blocks)).variance(query, slice(0, asked.number))
        scale = max(
            (v.max(where=np.isfinite(v), initial=0.0) for level in self._measured for v in _variances_of(level)),
            default=0.0,
        )
        found = np.where(found < EXACT * scale, 0.0, found)
        return np.asarray(found * largest[:, None] ** 2)

    def _in_block(self, asked: Weighted, place: tuple[int, int], component: Component, block: Block) -> BlockCovariance:
        tree = self.measurements.geography.tree
        if place not in self._spreads:
            levels = [
                [
                    diffuse.independent(block.rows[q], np.zeros((len(a.variance), 0, len(block.rows[q]))), a.variance)
                    for q, a in level.items()
                    if q in block.rows
                ]
                for level in self._measured
            ]
            self._spreads[place] = diffuse.spread(tree, levels, block.size)
        return covariances(asked, self._spreads[place], tree, block.size)


def _combined(
    one: tuple[IntArray, FloatArray], other: tuple[IntArray, FloatArray], sign: float
) -> tuple[IntArray, FloatArray]:
    """One sum and ``sign`` times the other, each node once."""
    nodes, place = np.unique(np.concatenate([one[0], other[0]]), return_inverse=True)
    amounts = np.zeros(len(nodes))
    np.add.at(amounts, place.reshape(-1), np.concatenate([one[1], sign * other[1]]))
    return nodes, amounts


def _variances_of(level: dict[Query, Answers]) -> list[FloatArray]:
    return [one.variance for one in level.values()]


def _nothing(asked: Weighted, block: Block) -> BlockCovariance:
    empty = np.zeros((asked.number, block.size, block.size))
    return BlockCovariance(empty, empty)


def covariances(asked: Weighted, known: diffuse.Spread, tree: Tree, size: int) -> BlockCovariance:
    """The covariances of sums of a block's coordinates, finite and diffuse parts, both (sums, m, m)."""
    total = BlockCovariance(*(np.zeros((asked.number, size, size)) for _ in range(2)))
    of, node, b = np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, size, size))
    levels = np.searchsorted(tree.level_offsets, asked.node, side="right") - 1
    for level in range(tree.n_levels - 1, -1, -1):
        here = levels == level
        own = asked.amount[here, None, None] * np.eye(size)
        of, node, b = _collected(
            np.concatenate([of, asked.of[here]]), np.concatenate([node, asked.node[here]]), np.concatenate([b, own])
        )
        first, at = tree.level(level).start, known.levels[level]
        if level == 0:
            _add(total, of, b, at.finite[node], at.diffuse[node])
            break
        gained = np.swapaxes(known.gains[level - 1][node - first], 1, 2) @ b
        sums, parents, m = _collected(of, tree.parent[node], gained)
        key = sums * tree.n_nodes + parents
        place = np.searchsorted(key, of * tree.n_nodes + tree.parent[node])
        _add(total, of, b - m[place], at.finite[node - first], at.diffuse[node - first])
        # The children that take no part have b = 0, and so all the same b - m.
        above = parents - tree.level(level - 1).start
        sizes = np.diff(tree.child_offsets)[parents]
        some = (np.bincount(place, minlength=len(parents)) < sizes)[:, None, None]
        rest = [
            np.where(some, getattr(known.sums[level - 1], part)[above] - _totals(place, values[node - first]), 0.0)
            for part, values in (("finite", at.finite), ("diffuse", at.diffuse))
        ]
        _add(total, sums, m, *rest)
        of, node, b = sums, parents, m
    return total


def _collected(of: IntArray, node: IntArray, b: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Entries by sum and node, each once, their matrices added up."""
    width = int(node.max(initial=0)) + 1
    key, place = np.unique(of * width + node, return_inverse=True)
    return key // width, key % width, _totals(place.reshape(-1), b, len(key))


def _totals(place: IntArray, matrices: FloatArray, count: int | None = None) -> FloatArray:
    """The sums of ``matrices`` (entries, m, m) by place."""
    count = int(place.max(initial=-1)) + 1 if count is None else count
    shape = matrices.shape[1:]
    columns = [np.bincount(place, column, count) for column in matrices.reshape(len(matrices), math.prod(shape)).T]
    return np.asarray(np.stack(columns, axis=1).reshape(count, *shape), dtype=np.float64)


def _add(
    total: BlockCovariance,
    of: IntArray,
    b: FloatArray,
    finite: npt.NDArray[np.float64],
    open_ended: npt.NDArray[np.float64],
) -> None:
    turned = np.swapaxes(b, 1, 2)
    for into, spread in zip(total, (finite, open_ended), strict=True):
        if spread.any():
            into += _totals(of, turned @ spread @ b, len(into))
