"""The variances of sums, such as areas, as smooth functions of the precisions that a plan buys, with their gradients.

The derivative of a variance by the precision of a query at a level is minus the sum of the squares of the covariances
with all its answers there (Var = c' M^-1 c, M linear in the precisions). A sum's covariances K with nodes go down as
K_c = G_c K_p + U_c (b_c - m) (`projection.sum_errors`). Nodes that no sum touches are taken together by
their family: below a child their squares are a quadratic form of its own covariance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import FloatArray, Tree
from topdown.projection.histograms.components import Block, Components
from topdown.projection.histograms.vector_least_squares import Spread
from topdown.projection.sum_errors import (
    SumErrors,
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


class SummedAnswers(NamedTuple):
    """The answers to ``query`` of sums over nodes."""

    query: Query
    sums: Weighted


class Slopes(NamedTuple):
    """The ``variance`` of every class of answers of sums (sums x classes), and its derivative ``slope`` by the
    precisions (sums x classes x measured).
    """

    variance: FloatArray
    slope: FloatArray


@dataclass(frozen=True, eq=False)
class SumPrecisions:
    """The variances of sums on ``tree`` as a function of the precisions of ``measured``, pairs of the number of a level
    and a query; ``exact`` measurements have no error.
    """

    tree: Tree
    components: Components
    measured: tuple[tuple[int, Query], ...]
    exact: tuple[tuple[int, Query], ...] = ()

    def errors(self, precision: FloatArray) -> SumErrors:
        """The errors at these precisions (measured,), which are all above 0."""
        levels: list[dict[Query, FloatArray]] = [{} for _ in range(self.tree.n_levels)]
        of_measured = zip(self.measured, (1.0 / precision).tolist(), strict=True)
        for (level, query), variance in [*of_measured, *((one, 0.0) for one in self.exact)]:
            nodes = self.tree.level(level)
            levels[level][query] = np.full(nodes.stop - nodes.start, variance)
        return SumErrors(self.tree, self.components, levels)

    def worst(self, precision: FloatArray, asked: SummedAnswers) -> tuple[float, FloatArray]:
        """The largest variance at these precisions, and its gradient (measured,)."""
        errors = self.errors(precision)
        variance, _ = errors.variances_by_class(asked.sums, asked.query)
        number, answer = np.unravel_index(int(np.argmax(variance)), variance.shape)
        found = self.slopes(errors, SummedAnswers(asked.query, asked.sums.some(slice(int(number), int(number) + 1))))
        return float(found.variance[0, answer]), found.slope[0, answer]

    def slopes(self, errors: SumErrors, asked: SummedAnswers, entries: list[Touched] | None = None) -> Slopes:
        """The variances at the precisions of ``errors``, and their derivatives; ``entries``: the nodes that the sums
        contain, if they are known already.
        """
        entries = touched(asked.sums, self.tree) if entries is None else entries
        seen, first, _ = self.components.classes(asked.query)
        variance = np.zeros((asked.sums.number, len(first)))
        slope = np.zeros((*variance.shape, len(self.measured)))
        for component, rows in zip(self.components, seen, strict=True):
            if not rows.matters:
                continue
            start = self.components.first_block(component)
            for number, block in enumerate(component.blocks, start):
                known = errors.spread(number)
                weights = brought(entries, known, self.tree, block.size)
                of_sums = covariances(entries, weights, known, self.tree, asked.sums.number).finite
                place = rows.place[first]
                sees = (rows.rows @ block.basis)[place] * np.sqrt(rows.weight[place])[:, None]
                variance += np.einsum("ki,nij,kj->nk", sees, of_sums, sees)
                joint = [np.swapaxes(one, 1, 2) for one in with_nodes(entries, weights, known, self.tree)]
                for column, squares in self._squares(block, entries, joint, weights.m, known, asked.sums.number):
                    slope[:, :, column] -= np.einsum("ki,nij,kj->nk", sees, squares, sees)
        return Slopes(variance, slope)

    def _squares(
        self,
        block: Block,
        entries: list[Touched],
        joint: list[FloatArray],
        m: list[FloatArray],
        known: Spread,
        number: int,
    ) -> Iterator[tuple[int, FloatArray]]:
        """For every measured query, by its number, the sums (sums, m, m) of the squares of the covariances ``joint``
        with its answers at its level.
        """
        for column, (level, query) in enumerate(self.measured):
            if query not in block.rows:
                continue
            at, rows = entries[level], block.rows[query]
            told = rows @ joint[level]
            found = totals(at.of, at.times[:, None, None] * (np.swapaxes(told, 1, 2) @ told), number)
            nodes = self.tree.level(level)
            form = np.broadcast_to(rows.T @ rows, (nodes.stop - nodes.start, block.size, block.size))
            for below in range(level, 0, -1):
                families, gain, own = self.tree.families(below - 1), known.gains[below - 1], known.levels[below].finite
                turned, spread = np.swapaxes(gain, 1, 2) @ form, own @ form
                parts = (turned @ gain, turned @ own, spread @ own)
                under, above = entries[below], entries[below - 1]
                parents = above.node - self.tree.level(below - 1).start
                children = under.node - self.tree.level(below).start
                some = (untouched(entries, below, self.tree) > 0)[:, None, None]
                sums = [families.total_rows(part) for part in parts]
                a, b, c = (
                    np.where(
                        some,
                        total[parents] - totals(under.above, under.times[:, None, None] * part[children], len(parents)),
                        0.0,
                    )
                    for total, part in zip(sums, parts, strict=True)
                )
                k, back = joint[below - 1], m[below - 1]
                mixed = np.swapaxes(k, 1, 2) @ b @ back
                rest = np.swapaxes(k, 1, 2) @ a @ k - mixed - np.swapaxes(mixed, 1, 2)
                found += totals(above.of, rest + np.swapaxes(back, 1, 2) @ c @ back, number)
                form = sums[0]
            yield column, found
