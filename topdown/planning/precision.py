"""The variances of least squares as smooth functions of the precisions that a plan buys, with their gradients.

A node's answer has the variance c' M(p)^-1 c, where the information matrix M is linear in the precisions p = 1 /
variance of the noise, by level and query. So 1 / variance is concave in p: it is the minimum over x of x' M(p) x
subject to c'x = 1.

Nodes with equal subtrees and equal surroundings have equal variances. They are computed once, on a tree of the kinds of
nodes, with the number of each in its family.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import Families, FloatArray, IntArray, Tree
from topdown.planning.sum_precision import SummedAnswers, SumPrecisions
from topdown.projection.histograms.components import AnswerRows, Components
from topdown.workload import Query

Measured = tuple[int, Query]
"""The measurements: the number of a level, and a query."""

_NOTHING, _EXACT = 1e-9, 1e7
"""The precisions, relative to the mean precision that a plan buys, that stand for no measurement and for an exact
value. They are approximate, which is enough for a search: its result is checked against the exact variances.
"""


class Kinds(NamedTuple):
    """A tree with one node for all siblings with equal subtrees; ``times`` (nodes,): how many siblings each node stands
    for.
    """

    tree: Tree
    times: FloatArray


def kinds(tree: Tree) -> Kinds:
    """The kinds of nodes of ``tree``."""
    shapes: list[list[int]] = [[0] * tree.n_leaves]
    made_of: list[list[tuple[tuple[int, int], ...]]] = []
    for families in tree.families_up():
        known: dict[tuple[tuple[int, int], ...], int] = {}
        below, here = shapes[-1], []
        for start, size in zip(families.starts.tolist(), families.sizes.tolist(), strict=True):
            # Parents of leaves differ only in how many children they have.
            counted = {0: size} if len(shapes) == 1 else Counter(below[start : start + size])
            here.append(known.setdefault(tuple(sorted(counted.items())), len(known)))
        shapes.append(here)
        made_of.append(list(known))
    nodes, times, sizes = shapes[-1], [1.0], []
    for of_shape in made_of[::-1]:
        sizes.append([len(of_shape[node]) for node in nodes])
        times += [float(count) for node in nodes for _, count in of_shape[node]]
        nodes = [shape for node in nodes for shape, _ in of_shape[node]]
    return Kinds(Tree.from_family_sizes(sizes), np.array(times))


class Worst(NamedTuple):
    """The largest variance of the answers to a query at a level, and its gradient by the precisions (measured,)."""

    variance: float
    gradient: FloatArray


@dataclass(frozen=True, eq=False)
class Answered:
    """How the answers to a query at a level depend on the components: an `AnswerRows` for each, and the first answer of
    every class of answers with equal variances.
    """

    level: int
    rows: tuple[AnswerRows, ...]
    first: IntArray

    @classmethod
    def of(cls, level: int, query: Query, components: Components) -> Answered:
        """The answers to a query at the level with this number."""
        rows = tuple(components.answer_rows(query, component) for component in components)
        _, first = np.unique(np.stack([one.place for one in rows]), axis=1, return_index=True)
        return cls(level, rows, first)


@dataclass(frozen=True, eq=False)
class Precisions:
    """The variances on a tree of ``kinds`` as a function of the precisions of ``measured``; ``exact`` measurements have
    no error. ``sums``: the variances of sums, on a tree of the nodes themselves.
    """

    kinds: Kinds
    components: Components
    measured: tuple[Measured, ...]
    exact: tuple[Measured, ...]
    sums: SumPrecisions | None = None

    def worst(self, precision: FloatArray, asked: Sequence[Answered | SummedAnswers]) -> list[Worst]:
        """The largest variance of each of ``asked`` at these precisions (measured,), which are 0 or more; for sums
        above 0.
        """
        of_units = iter(self._of_units(precision, [one for one in asked if isinstance(one, Answered)]))
        return [
            next(of_units)
            if isinstance(one, Answered) or self.sums is None
            else Worst(*self.sums.worst(precision, one))
            for one in asked
        ]

    def _of_units(self, precision: FloatArray, asked: Sequence[Answered]) -> list[Worst]:
        unit = float(precision.mean())
        variances = [np.zeros((self._size(one.level), len(one.first))) for one in asked]
        slopes = [np.zeros((*v.shape, len(self.measured))) for v in variances]
        for number, component in enumerate(self.components):
            for number_of_block, block in enumerate(component.blocks, self.components.first_block(component)):
                wanted = [k for k, one in enumerate(asked) if (one.rows[number].weight > 1e-9).any()]
                if not wanted:
                    continue
                covariance, slope = self._block(*self._information[number_of_block], precision, unit)
                for k in wanted:
                    rows, nodes = asked[k].rows[number], self.kinds.tree.level(asked[k].level)
                    place = rows.place[asked[k].first]
                    seen = (rows.rows @ block.basis)[place] * np.sqrt(rows.weight[place])[:, None]
                    # Products of small matrices: planning a contraction takes longer than they do.
                    variances[k] += np.sum((covariance[nodes] @ seen.T) * seen.T, axis=-2)
                    slopes[k] += np.swapaxes(np.sum((slope[nodes] @ seen.T) * seen.T, axis=-2), 1, 2)
        found = []
        for variance, slope in zip(variances, slopes, strict=True):
            at = np.unravel_index(int(np.argmax(variance)), variance.shape)
            found.append(Worst(float(variance[at]), slope[at]))
        return found

    @cached_property
    def _information(self) -> list[tuple[FloatArray, FloatArray]]:
        """The information on the coordinates of every block: of each measurement with a precision of 1 (levels,
        measured, m, m), and of all exact ones (levels, m, m).
        """
        found, levels = list[tuple[FloatArray, FloatArray]](), self.kinds.tree.n_levels
        for _, block in self.components.blocks:
            turned = np.zeros((levels, len(self.measured), block.size, block.size))
            exact = np.zeros((levels, block.size, block.size))
            for number, (level, query) in enumerate(self.measured):
                if query in block.rows:
                    turned[level, number] = block.rows[query].T @ block.rows[query]
            for level, query in self.exact:
                if query in block.rows:
                    exact[level] += block.rows[query].T @ block.rows[query]
            found.append((turned, exact))
        return found

    def _size(self, level: int) -> int:
        nodes = self.kinds.tree.level(level)
        return int(nodes.stop - nodes.start)

    def _block(
        self, turned: FloatArray, exact: FloatArray, precision: FloatArray, unit: float
    ) -> tuple[FloatArray, FloatArray]:
        """The covariance (nodes, m, m) of a block's coordinates, of which ``turned`` and ``exact`` are its
        `_information`, and its slope (nodes, measured, m, m).
        """
        (tree, times), (_, d, m, _) = self.kinds, turned.shape
        n = tree.n_nodes
        own = np.einsum("d,ldij->lij", precision, turned) + _EXACT * unit * exact
        nothing = _NOTHING * unit * np.eye(m)
        # Upward: the covariance of the estimate of every node from the measurements at and below it, and its
        # derivative.
        spread, bend = np.empty((n, m, m)), np.empty((n, d, m, m))
        spread[tree.leaves] = _inverse(own[-1] + nothing)
        bend[tree.leaves] = -_around(spread[tree.leaves], turned[-1])
        sums: list[tuple[FloatArray, FloatArray]] = []
        for index in range(tree.n_levels - 2, -1, -1):
            families = tree.families(index)
            total, bent = (_total(families, times, part) for part in (spread, bend))
            sums.append((total, bent))
            inner = _inverse(total)
            informed = _inverse(inner + own[index])
            spread[families.parents] = informed
            bend[families.parents] = -_around(informed, turned[index] - _around(inner, bent))
        # Downward: the information on every node from outside of its subtree, through its parent and siblings.
        outside, turn = np.zeros((n, m, m)), np.zeros((n, d, m, m))
        covariance, slope = np.empty_like(spread), np.empty_like(bend)
        covariance[0], slope[0] = spread[0], bend[0]
        for index in range(tree.n_levels - 1):
            families = tree.families(index)
            total, bent = sums.pop()
            above = _inverse(outside[families.parents] + own[index] + nothing)
            above_bent = -_around(above, turn[families.parents] + turned[index])
            children = families.children
            beside = np.repeat(above + total, families.sizes, axis=0) - spread[children]
            beside_bent = np.repeat(above_bent + bent, families.sizes, axis=0) - bend[children]
            outside[children] = _inverse(beside)
            turn[children] = -_around(outside[children], beside_bent)
            inner = _inverse(spread[children])
            covariance[children] = _inverse(inner + outside[children])
            slope[children] = -_around(covariance[children], turn[children] - _around(inner, bend[children]))
        return covariance, slope


def _inverse(matrices: FloatArray) -> FloatArray:
    """The inverses of (nodes, m, m)."""
    if matrices.shape[-1] == 1:
        return 1.0 / matrices
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)


def _around(outer: FloatArray, inner: FloatArray) -> FloatArray:
    """outer inner outer, of (nodes, m, m) and (nodes, d, m, m) or (d, m, m)."""
    return np.asarray(outer[:, None] @ inner @ outer[:, None])


def _total(families: Families, times: FloatArray, values: FloatArray) -> FloatArray:
    """The sums over families of the children's values (nodes, ...), each multiplied by how many nodes it stands for."""
    weight = times[families.children].reshape(-1, *[1] * (values.ndim - 1))
    return families.total_rows(weight * values[families.children])
