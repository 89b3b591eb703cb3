"""The errors of least squares where several queries were measured: of which noise those of sums of answers are made.

The noise on one measured answer moves the estimate of anything by their covariance over the noise's variance: with x =
C A' V^-1 y the coefficient of y_k is cov(x, A_k x) / v_k. So the covariances of an estimate with those of all measured
answers say what its error is a sum of. Covariances with the children of a unit add up to that with the unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray, Tree, runs
from topdown.projection.cells.equality import all_shares, open_leaves, upward_gains
from topdown.projection.histograms import vector_least_squares
from topdown.projection.histograms.components import Block, Component, Components
from topdown.projection.histograms.least_squares import EXACT, BlockCovariance, Covariance
from topdown.uncertainty.laws.answer_forms import answer_forms
from topdown.uncertainty.laws.error_law import NORMAL, Shape
from topdown.uncertainty.laws.error_moments import Upward, upward_moments
from topdown.uncertainty.laws.known_noise import AnswerNoise
from topdown.uncertainty.laws.main_parts import Parts, shapes_of
from topdown.uncertainty.laws.sum_errors import (
    Touched,
    Weighted,
    brought,
    covariances,
    totals,
    touched,
    untouched,
    with_nodes,
)
from topdown.workload import Query

_SUMS_AT_ONCE = 1 << 10
_SEEN = 1e-9
"""Entries of forms, and weights of components, below which answers do not depend on a block."""


class Mix(NamedTuple):
    """The sum of ``answers`` to queries times ``weight`` (answers,)."""

    answers: Sequence[tuple[Query, int]]
    weight: FloatArray

    @classmethod
    def of(cls, query: Query, answer: int) -> Mix:
        """One answer."""
        return cls([(query, answer)], np.ones(1))

    def form(self, components: Components, query: Query) -> tuple[IntArray, FloatArray]:
        """How it covaries with classes of answers to ``query``: of how many (classes,), and by what (classes x
        width)."""
        number, form = answer_forms(components, self.answers, query)
        return number, np.tensordot(self.weight, form, 1)


class ErrorParts(NamedTuple):
    """What the errors of sums are made of: ``parts``, and their fourth ``cumulant`` (sums,), where it is known without
    these."""

    parts: Parts
    cumulant: FloatArray | None

    def times(self, copies: int) -> ErrorParts:
        """So many errors of this kind together, each with noise of its own."""
        parts = self.parts._replace(number=self.parts.number * copies)
        return ErrorParts(parts, None if self.cumulant is None else self.cumulant * copies)

    def and_also(self, other: ErrorParts) -> ErrorParts:
        """With another, of the same sums and independent."""
        parts = Parts.together([self.parts, other.parts])
        if self.cumulant is None or other.cumulant is None:
            return ErrorParts(parts, None)
        return ErrorParts(parts, self.cumulant + other.cumulant)


class _Seen(NamedTuple):
    """How mixes see what was measured: the ``blocks`` that matter, and of every mix by query ``Mix.form`` in these."""

    blocks: list[int]
    forms: list[dict[Query, tuple[IntArray, FloatArray]]]


class _Sources(NamedTuple):
    """Nodes of one ``level`` whose noise moves sums: of sum ``of`` (entries,) by nodes of which so many (``counted``)
    have, together, the covariances ``joint`` (entries x width) with it. By query: how many of these have noise of the
    ``kind`` (entries,), both (``number``, ``kind``).
    """

    of: IntArray
    level: int
    joint: FloatArray
    counted: IntArray
    noise: dict[Query, tuple[IntArray, npt.NDArray[np.integer]]]


@dataclass(frozen=True, eq=False)
class AnswerErrors:
    """The errors of least squares from measurements with ``noise``."""

    noise: AnswerNoise
    _spreads: dict[int, vector_least_squares.Spread] = field(default_factory=dict, repr=False)

    @cached_property
    def components(self) -> Components:
        """Of the queries measured."""
        return Components(self.noise.schema, self.noise.queries)

    @property
    def tree(self) -> Tree:
        """The nodes."""
        return self.noise.tree

    def spread(self, number: int) -> vector_least_squares.Spread:
        """How the errors of the coordinates of block ``number`` go down the tree."""
        if number not in self._spreads:
            _, block = self.components.blocks[number]
            solver = self._scalar_spread if block.size == 1 else self._vector_spread
            self._spreads[number] = solver(block)
        return self._spreads[number]

    def _vector_spread(self, block: Block) -> vector_least_squares.Spread:
        levels = [
            [
                vector_least_squares.independent(block.rows[q], np.zeros((len(v), 0, len(block.rows[q]))), v)
                for q, v in level.items()
                if q in block.rows
            ]
            for level in self.noise.variance
        ]
        return vector_least_squares.spread(self.tree, levels, block.size)

    def _scalar_spread(self, block: Block) -> vector_least_squares.Spread:
        """As `_vector_spread`, of numbers."""
        tree, precision = self.tree, np.zeros(self.tree.n_nodes)
        for index, level in enumerate(self.noise.variance):
            nodes = tree.level(index)
            for query, variance in level.items():
                if query in block.rows:
                    with np.errstate(divide="ignore"):
                        precision[nodes] += float((block.rows[query] ** 2).sum()) / variance
        with np.errstate(divide="ignore"):
            gains = upward_gains(1.0 / precision, tree)
            open_ends = open_leaves(1.0 / precision, tree)
        u, share = gains.variance, all_shares(gains.shares, tree)
        unknown = np.zeros(tree.n_nodes) if open_ends is None else open_ends

        def known(finite: FloatArray, without_end: FloatArray) -> vector_least_squares.Known:
            return vector_least_squares.Known(
                np.zeros((len(finite), 0, 1)), finite[:, None, None], without_end[:, None, None], finite
            )

        levels = [tree.level(index) for index in range(tree.n_levels)]
        families = [tree.families(index) for index in range(tree.n_levels - 1)]
        return vector_least_squares.Spread(
            [known(u[nodes], unknown[nodes]) for nodes in levels],
            [known(one.total(u[one.children]), one.total(unknown[one.children])) for one in families],
            [share[nodes, None, None] for nodes in levels[1:]],
        )

    @property
    def negligible(self) -> float:
        """A variance below this is that of an exact answer."""
        of_all = (v.max(where=np.isfinite(v), initial=0.0) for level in self.noise.variance for v in level.values())
        return EXACT * float(max(of_all, default=0.0))

    def variances(self, asked: Weighted, query: Query) -> FloatArray:
        """The variances (sums x answers) of the answers to ``query`` of sums; inf where they are not determined."""
        largest = asked.largest
        asked = asked._replace(amount=asked.amount / largest[asked.of])
        seen, blocks = self.components.classes(query).seen, []
        for component, rows in zip(self.components, seen, strict=True):
            matters = bool((rows.weight > _SEEN).any())
            blocks.append(tuple(self.covariances(asked, component, matters=matters)))
        found = Covariance(self.components, tuple(blocks)).variance(query, slice(0, asked.number))
        return np.asarray(np.where(found < self.negligible, 0.0, found) * largest[:, None] ** 2)

    def covariance(self, asked: Weighted, one: tuple[Query, int], other: tuple[Query, int]) -> float:
        """The covariance of two answers to queries summed over the same nodes, of a single sum; finite parts alone."""
        largest = float(asked.largest[0])
        asked = asked._replace(amount=asked.amount / largest)
        joint = [known.finite[0].reshape(-1) for part in self.components for known in self.covariances(asked, part)]
        form = answer_forms(self.components, [one], *other).form[0, 0]
        return float(form @ np.concatenate(joint)) * largest**2

    def covariances(self, asked: Weighted, component: Component, *, matters: bool = True) -> Iterator[BlockCovariance]:
        """Those of sums of the coordinates of a component's blocks; 0 unless it ``matters``."""
        first = self.components.first_block(component)
        entries = touched(asked, self.tree) if matters else []
        for number, block in enumerate(component.blocks, first):
            if not matters:
                empty = np.zeros((asked.number, block.size, block.size))
                yield BlockCovariance(empty, empty)
                continue
            known = self.spread(number)
            yield covariances(entries, brought(entries, known, self.tree, block.size), known, self.tree, asked.number)

    def shapes(
        self, asked: Weighted, mixes: Sequence[Mix], variance: FloatArray, copies: Sequence[int] = ()
    ) -> list[list[Shape]]:
        """The shapes of the laws of the errors of sums of every one of ``mixes``, so many independent ``copies``
        (mixes,) of each, by default one, with this ``variance`` (mixes x sums); that of a normal law where they have
        none, or are not determined."""
        found: list[list[Shape]] = [[] for _ in mixes]
        copies = copies or [1] * len(mixes)
        for some in runs(slice(0, asked.number), _SUMS_AT_ONCE):
            made = self.made(asked.some(some), mixes)
            for into, one, number, of_mix in zip(found, made, copies, variance[:, some], strict=True):
                into += self.shapes_of(one.times(number), of_mix)
        return found

    def shapes_of(self, made: ErrorParts, variance: FloatArray) -> list[Shape]:
        """As `shapes`, of errors of which it is known what they are made of."""
        laws = shapes_of(made.parts, variance, self.noise.known, made.cumulant)
        return [laws.shapes[number] if number >= 0 else NORMAL for number in laws.group.tolist()]

    def made(self, asked: Weighted, mixes: Sequence[Mix]) -> Iterator[ErrorParts]:
        """Of which noise the errors of sums of every one of ``mixes`` are made.

        Nodes that no sum touches have the mean of their covariances, and those whose noise is not that of most of their
        level are left out: it is little of the variance. Of one answer of one query the cumulant is exact.
        """
        seen = self._seen(mixes)
        entries = touched(asked, self.tree)
        cumulant = self._cumulants(entries, asked.number) if self._upward is not None else None
        for parts in self._parts(entries, seen):
            yield ErrorParts(parts, cumulant)

    @cached_property
    def _upward(self) -> tuple[Upward, FloatArray, FloatArray] | None:
        """Where one answer was measured alone the moments of the nodes' upward estimates, the fourth cumulants of their
        noise, and of every family the sum of its children's, (inner nodes,); else None."""
        if len(self.noise.queries) > 1 or len(self.components.blocks) > 1 or self.noise.schema.n_cells > 1:
            return None
        (query,) = self.noise.queries
        kind, variance = np.full(self.tree.n_nodes, -1, np.int32), np.full(self.tree.n_nodes, np.inf)
        for index, (kinds, variances) in enumerate(zip(self.noise.kind, self.noise.variance, strict=True)):
            if query in kinds:
                kind[self.tree.level(index)], variance[self.tree.level(index)] = kinds[query], variances[query]
        noise = self.noise.known.cumulants[kind]
        found, of_families = upward_moments(variance, noise, self.tree), np.zeros(self.tree.n_families)
        for families in self.tree.families_up():
            of_families[families.parents] = families.total(found.cumulant[families.children])
        return found, noise, of_families

    def _cumulants(self, entries: list[Touched], number: int) -> FloatArray:
        """The fourth cumulants of so many (``number``) sums of one answer.

        The noise of node i has the coefficient k_i e_i, e_root = b_0, e_c = b_c - m + (1 - k_p) e_p; that of an
        untouched child and all below it e z, with its upward estimate z.
        """
        assert self._upward is not None  # nosec B101 # narrows a type: the caller asks
        upward, noise, of_families = self._upward
        weights = brought(entries, self.spread(0), self.tree, 1)
        found, e = np.zeros(number), weights.b[0][:, 0, 0]
        for level, (at, m) in enumerate(zip(entries, weights.m, strict=True)):
            own = upward.own[at.node]
            found += np.bincount(at.of, (own * e) ** 4 * noise[at.node], number)
            if level + 1 == len(entries):
                break
            under = entries[level + 1]
            rest = of_families[at.node] - np.bincount(under.above, upward.cumulant[under.node], len(at.of))
            rest = np.where(untouched(entries, level + 1, self.tree) > 0, np.maximum(rest, 0.0), 0.0)
            outer = (1.0 - own) * e - m[:, 0, 0]
            found += np.bincount(at.of, outer**4 * rest, number)
            e = weights.b[level + 1][:, 0, 0] + outer[under.above]
        return found

    def _seen(self, mixes: Sequence[Mix]) -> _Seen:
        """How ``mixes`` see what was measured."""
        forms = [{query: mix.form(self.components, query) for query in self.noise.queries} for mix in mixes]
        ends = np.cumsum([0] + [block.size**2 for _, block in self.components.blocks])
        seen = np.zeros(ends[-1], bool)
        for form in (form for of_mix in forms for _, form in of_mix.values()):
            seen |= (np.abs(form) > _SEEN).any(axis=0)
        blocks = [k for k in range(len(ends) - 1) if seen[ends[k] : ends[k + 1]].any()]
        columns = np.concatenate([np.arange(0), *(np.arange(ends[k], ends[k + 1]) for k in blocks)])
        return _Seen(
            blocks, [{query: (number, form[:, columns].T) for query, (number, form) in one.items()} for one in forms]
        )

    def _parts(self, entries: list[Touched], seen: _Seen) -> Iterator[Parts]:
        sources, variances = list(self._sources(entries, seen.blocks)), self.noise.known.variances
        for forms in seen.forms:
            found = []
            for one in sources:
                for query, (drawn, kind) in one.noise.items():
                    number, form = forms[query]
                    rows = np.flatnonzero((drawn > 0) & (kind >= 0))
                    coefficient = (one.joint[rows] @ form) / (variances[kind[rows]] * one.counted[rows])[:, None]
                    each = np.repeat(rows, len(number))
                    counted = (drawn[rows, None] * number).reshape(-1)
                    found.append(Parts(one.of[each], kind[each].astype(np.int64), counted, coefficient.reshape(-1)))
            yield Parts.together(found)

    def _sources(self, entries: list[Touched], blocks: list[int]) -> Iterator[_Sources]:
        """All nodes that have noise, by what they have to do with sums."""
        noise = self.noise
        joint = self._joint(entries, blocks)
        for level, at in enumerate(entries):
            own, single = at.node - self.tree.level(level).start, np.ones(len(at.of), np.int64)
            of_node = {query: (single, kind[own]) for query, kind in noise.kind[level].items()}
            yield _Sources(at.of, level, joint[level], single, of_node)
            if level + 1 == len(entries):
                break
            # The children that no sum touches, and all that is below them.
            under = entries[level + 1]
            some = np.flatnonzero(untouched(entries, level + 1, self.tree) > 0)
            rest = joint[level][some] - totals(under.above, joint[level + 1], len(at.of))[some]
            for lower in range(level + 1, len(entries)):

                def left(counts: IntArray, at: Touched = at, under: Touched = under, some: IntArray = some) -> IntArray:
                    of_touched = np.bincount(under.above, counts[under.node], len(at.of))
                    return np.asarray(counts[at.node] - of_touched.astype(np.int64))[some]

                of_most = {
                    query: (left(noise.below(lower, query)), np.full(len(some), kind))
                    for query, kind in noise.most[lower].items()
                }
                yield _Sources(at.of[some], lower, rest, left(noise.below(lower)), of_most)

    def _joint(self, entries: list[Touched], blocks: list[int]) -> list[FloatArray]:
        """By level the covariances (entries x width) of sums with what they touch, of some blocks."""
        found: list[list[FloatArray]] = [[np.empty((len(at.of), 0))] for at in entries]
        for number in blocks:
            known, (_, block) = self.spread(number), self.components.blocks[number]
            weights = brought(entries, known, self.tree, block.size)
            for level, one in enumerate(with_nodes(entries, weights, known, self.tree)):
                found[level].append(one.reshape(len(one), block.size**2))
        return [np.concatenate(level, axis=1) for level in found]
