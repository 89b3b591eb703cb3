"""The errors of least squares where several queries were measured: sums of answers as sums of independent noise.

The estimates are x = C A' V^-1 y, so the coefficient of the measured answer y_k in any estimate is cov(x, A_k x) / v_k:
its covariance with the estimate of that answer over the variance of the noise. So the covariances of an estimate with
all measured answers give its error as a sum of noise. The covariances with the children of a unit add up to the
covariance with the unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray, Tree, runs
from topdown.projection.histograms.components import Components
from topdown.projection.sum_errors import (
    SumErrors,
    Touched,
    Weighted,
    brought,
    totals,
    touched,
    untouched,
    with_nodes,
)
from topdown.uncertainty.laws.answer_forms import answer_forms
from topdown.uncertainty.laws.error_law import NORMAL, Shape
from topdown.uncertainty.laws.error_moments import Upward, upward_moments
from topdown.uncertainty.laws.known_noise import AnswerNoise
from topdown.uncertainty.laws.main_parts import Parts, shapes_of
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
        """Its covariances with classes of answers to ``query``: the number of answers in a class (classes,), and the
        form (classes x width).
        """
        number, form = answer_forms(components, self.answers, query)
        return number, np.tensordot(self.weight, form, 1)


class ErrorParts(NamedTuple):
    """The errors of sums as sums of ``parts``, and their fourth ``cumulant`` (sums,), where it is known without
    these.
    """

    parts: Parts
    cumulant: FloatArray | None

    def times(self, copies: int) -> ErrorParts:
        """The sum of so many independent errors of this kind."""
        parts = self.parts._replace(number=self.parts.number * copies)
        return ErrorParts(parts, None if self.cumulant is None else self.cumulant * copies)

    def and_also(self, other: ErrorParts) -> ErrorParts:
        """The sum of these errors and independent ones of the same sums."""
        parts = Parts.together([self.parts, other.parts])
        if self.cumulant is None or other.cumulant is None:
            return ErrorParts(parts, None)
        return ErrorParts(parts, self.cumulant + other.cumulant)


class _Seen(NamedTuple):
    """The ``blocks`` on which mixes depend, and for every mix, by query, its ``Mix.form`` in these."""

    blocks: list[int]
    forms: list[dict[Query, tuple[IntArray, FloatArray]]]


class _Sources(NamedTuple):
    """Nodes of one ``level`` whose noise enters sums. An entry is for the sum ``of`` (entries,) and a group of
    ``counted`` nodes, whose covariances with it add up to ``joint`` (entries x width). By query: the ``number`` of
    these nodes with noise of the ``kind``; both (entries,).
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

    @cached_property
    def components(self) -> Components:
        """The components of the measured queries."""
        return Components(self.noise.schema, self.noise.queries)

    @property
    def tree(self) -> Tree:
        """The nodes."""
        return self.noise.tree

    @cached_property
    def sums(self) -> SumErrors:
        """The covariances of sums."""
        return SumErrors(self.noise.tree, self.components, self.noise.variance)

    def covariance(self, asked: Weighted, one: tuple[Query, int], other: tuple[Query, int]) -> float:
        """The covariance of two answers to queries that are summed over the same nodes (one sum); finite parts only."""
        largest = float(asked.largest[0])
        joint = self.sums.joint(asked._replace(amount=asked.amount / largest))
        form = answer_forms(self.components, [one], *other).form[0, 0]
        return float(form @ joint) * largest**2

    def shapes(
        self, asked: Weighted, mixes: Sequence[Mix], variance: FloatArray, copies: Sequence[int] = ()
    ) -> list[list[Shape]]:
        """The shapes of the laws of the errors of sums of every one of ``mixes``, with ``copies`` independent copies
        (mixes,) of each, by default one, and this ``variance`` (mixes x sums). A sum without error, or one that is not
        determined, has the shape of a normal law.
        """
        found: list[list[Shape]] = [[] for _ in mixes]
        copies = copies or [1] * len(mixes)
        for some in runs(slice(0, asked.number), _SUMS_AT_ONCE):
            made = self.made(asked.some(some), mixes)
            for into, one, number, of_mix in zip(found, made, copies, variance[:, some], strict=True):
                into += self.shapes_of(one.times(number), of_mix)
        return found

    def shapes_of(self, made: ErrorParts, variance: FloatArray) -> list[Shape]:
        """As `shapes`, for errors whose parts are known."""
        laws = shapes_of(made.parts, variance, self.noise.known, made.cumulant)
        return [laws.shapes[number] if number >= 0 else NORMAL for number in laws.group.tolist()]

    def made(self, asked: Weighted, mixes: Sequence[Mix]) -> Iterator[ErrorParts]:
        """The errors of sums of every one of ``mixes`` as sums of noise.

        Nodes that no sum touches get the mean of their covariances; those among them whose noise differs from most of
        their level are left out, since they contribute little variance. For one answer of one query the cumulant is
        exact; then all untouched nodes of a level are left out where some would be, since the mean does not hold for
        the rest.
        """
        seen = self._seen(mixes)
        entries = touched(asked, self.tree)
        cumulant = self._cumulants(entries, asked.number) if self.moments is not None else None
        for parts in self._parts(entries, seen):
            yield ErrorParts(parts, cumulant)

    @cached_property
    def moments(self) -> tuple[Upward, FloatArray, FloatArray] | None:
        """Where only one answer was measured: the moments of the nodes' upward estimates, the fourth cumulants of their
        noise, and for every family the sum of its children's cumulants (inner nodes,). Else None.
        """
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
        assert self.moments is not None  # nosec B101 # narrows a type: the caller asks
        upward, noise, of_families = self.moments
        weights = brought(entries, self.sums.spread(0), self.tree, 1)
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
        """How ``mixes`` depend on what was measured."""
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
                    known = (drawn > 0) & (kind >= 0)
                    rows = np.flatnonzero(known if self.moments is None else known & (drawn == one.counted))
                    coefficient = (one.joint[rows] @ form) / (variances[kind[rows]] * one.counted[rows])[:, None]
                    each = np.repeat(rows, len(number))
                    counted = (drawn[rows, None] * number).reshape(-1)
                    found.append(Parts(one.of[each], kind[each].astype(np.int64), counted, coefficient.reshape(-1)))
            yield Parts.together(found)

    def _sources(self, entries: list[Touched], blocks: list[int]) -> Iterator[_Sources]:
        """All nodes that have noise, in groups by their relation to sums."""
        noise = self.noise
        joint = self._joint(entries, blocks)
        for level, at in enumerate(entries):
            own, single = at.node - self.tree.level(level).start, np.ones(len(at.of), np.int64)
            of_node = {query: (single, kind[own]) for query, kind in noise.kind[level].items()}
            yield _Sources(at.of, level, joint[level], single, of_node)
            if level + 1 == len(entries):
                break
            # The children that no sum touches, and everything below them.
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
        """By level the covariances (entries x width) of sums with the nodes that they touch, for some blocks."""
        found: list[list[FloatArray]] = [[np.empty((len(at.of), 0))] for at in entries]
        for number in blocks:
            known, (_, block) = self.sums.spread(number), self.components.blocks[number]
            weights = brought(entries, known, self.tree, block.size)
            for level, one in enumerate(with_nodes(entries, weights, known, self.tree)):
                found[level].append(one.reshape(len(one), block.size**2))
        return [np.concatenate(level, axis=1) for level in found]
