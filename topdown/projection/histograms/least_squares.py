"""Weighted least squares on a tree of histograms, where any queries were measured at any level.

The space splits into components and these into blocks (`components`): scalars are solved by the two passes of
`equality`, all copies at once, the few others by `vector_least_squares`. Variances of any query's answers are computed
from the blocks' covariances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, Tree
from topdown.measurements.measurements import Answers
from topdown.projection.cells.equality import (
    downward,
    downward_variance,
    family_gains,
    gains_from,
    least_squares,
    least_squares_variance,
    measured_or_zero,
)
from topdown.projection.cells.equality import upward as climbed
from topdown.projection.histograms import vector_least_squares
from topdown.projection.histograms.components import AnswerRows, Block, Component, Components, applied
from topdown.projection.invariants import Contradiction, settle
from topdown.workload.query import Query

_EXACT_ROUNDING = 1e-6
"""Exact values may disagree by this much, in counts; two whole numbers that differ do by more."""

_OPEN = 1e-9
"""A variance is infinite where more than this part of a direction's length is undetermined."""


EXACT = 1e-12
"""Variances below this part of the largest are those of exact values; rounding leaves about 1e-16."""

Measured = Sequence[Mapping[Query, Answers]]
"""The answers that were measured, level by level, root first."""


def queries_of(measured: Sequence[Mapping[Query, object]]) -> tuple[Query, ...]:
    """The queries that were measured at any level."""
    return tuple(dict.fromkeys(query for level in measured for query in level))


def variances_of(measured: Measured) -> FloatArray:
    """The variances of all that was measured, one after another."""
    return np.concatenate([np.zeros(0), *(one.variance for level in measured for one in level.values())])


class BlockCovariance(NamedTuple):
    """The covariances of a block's coordinates: ``finite`` + infinity * ``diffuse``, both (nodes, m, m)."""

    finite: FloatArray
    diffuse: FloatArray


@dataclass(frozen=True, eq=False)
class Covariance:
    """The errors of a least-squares estimate of histograms: one covariance per node and block.

    ``blocks``: for every component those of its blocks.
    """

    components: Components
    blocks: tuple[tuple[BlockCovariance, ...], ...]

    def variance(self, query: Query, nodes: slice) -> FloatArray:
        """Variance (nodes x answers) of the estimate's answers to ``query``; inf where they are undetermined."""
        classes, place = self.variance_by_class(query, nodes)
        return classes[:, place]

    def variance_by_class(self, query: Query, nodes: slice) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """The variances (nodes x classes) of `variance`, and the class (answers,) of every answer: answers of one class
        have one variance at every node."""
        seen, first, place = self.components.classes(query)
        begins, run = self._runs
        own = run[nodes]
        one_of_each = begins[own[0] : own[-1] + 1] if len(own) else begins[:0]
        found = np.zeros((len(one_of_each), len(first)))
        for component, rows, blocks in zip(self.components, seen, self.blocks, strict=True):
            of_component = _in_component(rows, component, blocks, one_of_each)
            # A weight of 0 stays 0, also where the component is undetermined.
            matters = rows.weight > _OPEN
            found += np.where(matters, rows.weight * np.where(matters, of_component, 0.0), 0.0)[:, rows.place[first]]
        # The variance of an exact answer is a rounding error around 0.
        return np.maximum(found, 0.0)[own - own[:1]], place

    @cached_property
    def _runs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Runs of consecutive nodes with equal covariances, as siblings mostly have: where they begin, and the run of
        each node.
        """
        return vector_least_squares.equal_runs([table for blocks in self.blocks for one in blocks for table in one])


def _in_component(
    rows: AnswerRows, component: Component, known: Sequence[BlockCovariance], nodes: npt.NDArray[np.int64]
) -> FloatArray:
    """The variances (nodes x classes) of the answers' ``rows`` in a component."""
    found = np.zeros((len(nodes), len(rows.weight)))
    least = _OPEN * float((rows.rows**2).sum(axis=1).max())
    for block, one in zip(component.blocks, known, strict=True):
        seen = rows.rows @ block.basis
        finite = np.einsum("ki,nij,kj->nk", seen, one.finite[nodes], seen)
        unbound = np.einsum("ki,nij,kj->nk", seen, one.diffuse[nodes], seen)
        found += np.where(unbound > least, np.inf, finite)
    return found


def covariance(
    tree: Tree,
    components: Components,
    variances: Sequence[Mapping[Query, FloatArray]],
    *,
    upward: bool,
    start: int | None = None,
) -> Covariance:
    """The covariance of `solve` from the measurements' variances alone: (nodes of the level,) by level and query.

    ``start``: of an upward pass the level where it starts (`upward_start`), that of the leaves by default.
    """
    known = []
    measured = [{q: Answers(np.zeros((len(v), 0)), v) for q, v in level.items()} for level in variances]
    for component in components:
        blocks = []
        for block in component.blocks:
            # A problem without copies has no values, but the same covariance.
            taken = [
                {q: np.zeros((len(v), 0, len(block.rows[q]))) for q, v in level.items() if q in block.rows}
                for level in variances
            ]
            solver = _scalar if block.size == 1 else _vector
            blocks.append(solver(tree, 0, block, taken, measured, upward, start)[1])
        known.append(tuple(blocks))
    return Covariance(components, tuple(known))


def solve(tree: Tree, components: Components, measured: Measured, *, upward: bool) -> tuple[FloatArray, Covariance]:
    """The least-squares histograms (nodes x cells) and the covariance of their errors.

    ``upward``: argmin over the whole tree of the sum over nodes and queries of |A_q x_i - y_iq|^2 / v_iq subject to
    every family adding up; without, the root first and then family by family. What no measurement determines is divided
    equally among the leaves. The answers may have a leading axis of replicates, which the histograms then have too.
    Raises `Contradiction` for exact values that no table has.
    """
    lead = next((a.values.shape[:-2] for level in measured for a in level.values()), ())
    times = math.prod(lead)
    rotated = [{q: components.rotated(q, finite(a)) for q, a in level.items()} for level in measured]
    found = np.zeros((times * tree.n_nodes, *components.shape))
    known = []
    for component in components:
        taken = [
            {q: _side_by_side(components.taken(q, level[q], component), times) for q in level if q in component.queries}
            for level in rotated
        ]
        coordinates, blocks = solve_blocks(tree, component, times * component.copies, taken, measured, upward=upward)
        apart = coordinates.reshape(tree.n_nodes, times, component.copies, -1).swapaxes(0, 1)
        components.put(apart.reshape(-1, component.copies, apart.shape[-1]), component, found)
        known.append(blocks)
    x = components.back(found).reshape(*lead, tree.n_nodes, components.schema.n_cells)
    return x, Covariance(components, tuple(known))


def solve_blocks(
    tree: Tree,
    component: Component,
    copies: int,
    taken: list[dict[Query, FloatArray]],
    measured: Measured,
    *,
    upward: bool,
) -> tuple[FloatArray, tuple[BlockCovariance, ...]]:
    """A component's coordinates (nodes, copies, m) by least squares, and the covariances of its blocks.

    ``taken``: by level the queries' answers in its coordinates (`Components.taken`). Raises `Contradiction`.
    """
    coordinates = np.zeros((tree.n_nodes, copies, component.size))
    blocks = []
    for block in component.blocks:
        solver = _scalar if block.size == 1 else _vector
        mean, covariance = solver(tree, copies, block, taken, measured, upward)
        coordinates += applied(mean, block.basis.T)
        blocks.append(covariance)
    return coordinates, tuple(blocks)


def finite(answers: Answers) -> FloatArray:
    """The values (all nodes x answers), with 0 in place of what was not measured, where anything may stand."""
    made = np.isfinite(answers.variance)
    values = answers.values if made.all() else np.where(made[:, None], answers.values, 0.0)
    values = np.asarray(values, dtype=np.float64)
    return values.reshape(-1, values.shape[-1])


def _side_by_side(taken: FloatArray, times: int) -> FloatArray:
    """Replicates (times * nodes, copies, rows) as further copies of a problem: (nodes, times * copies, rows)."""
    _, copies, rows = taken.shape
    return taken.reshape(times, -1, copies, rows).swapaxes(0, 1).reshape(-1, times * copies, rows)


def _scalar(
    tree: Tree,
    copies: int,
    block: Block,
    taken: list[dict[Query, FloatArray]],
    measured: Measured,
    upward: bool,
    start: int | None = None,
) -> tuple[FloatArray, BlockCovariance]:
    values = np.zeros((copies, tree.n_nodes))
    variance = np.full(tree.n_nodes, np.inf)
    for index, level in enumerate(taken):
        nodes = tree.level(index)
        pairs = []
        for query, answers in level.items():
            if query in block.rows:
                row = block.rows[query]
                strength = float((row**2).sum())
                mean = applied(answers, row / strength)[:, :, 0]
                pairs.append((mean, measured[index][query].variance / strength))
        if pairs:
            values[:, nodes], variance[nodes] = _pooled(pairs, nodes.start)
    values, settled = settle(values, variance, tree, nonnegative=False)
    variance = settled if settled.ndim == 1 else settled[0]
    if upward and start is not None:
        gains = gains_from(variance, tree, start)
        x = downward(climbed(measured_or_zero(values, variance), gains, tree), gains.shares, tree)
        spread = downward_variance(gains.variance, gains.shares, tree)
    elif upward:
        x, spread = least_squares(values, variance, tree), least_squares_variance(variance, tree)
    else:
        shares = family_gains(variance, tree)
        x = downward(measured_or_zero(values, variance), shares, tree)
        spread = downward_variance(variance, shares, tree)
    is_open = np.isinf(spread)
    finite = np.where(is_open, 0.0, spread)
    return x.T[:, :, None], BlockCovariance(finite[:, None, None], is_open.astype(np.float64)[:, None, None])


def _pooled(pairs: list[tuple[FloatArray, FloatArray]], first: int) -> tuple[FloatArray, FloatArray]:
    """Several measurements of the same scalars, values (nodes, copies) and variances (nodes,), as one."""
    exact = np.array([v == 0 for _, v in pairs])
    precision = np.array([np.divide(1.0, v, out=np.zeros_like(v), where=(v > 0) & np.isfinite(v)) for _, v in pairs])
    weight = np.where(exact.any(axis=0), exact.astype(np.float64), precision)
    total = weight.sum(axis=0)
    share = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    values = sum((w[:, None] * y for w, (y, _) in zip(share, pairs, strict=True)), np.zeros_like(pairs[0][0]))
    for mark, (y, _) in zip(exact, pairs, strict=True):
        wrong = mark & (np.abs(y - values).max(axis=1, initial=0.0) > _EXACT_ROUNDING)
        if wrong.any():
            raise Contradiction(first + int(np.argmax(wrong)), "its exact values contradict each other")
    variance = np.where(exact.any(axis=0), 0.0, np.divide(1.0, total, out=np.full_like(total, np.inf), where=total > 0))
    return values.T, variance


def _vector(
    tree: Tree,
    copies: int,
    block: Block,
    taken: list[dict[Query, FloatArray]],
    measured: Measured,
    upward: bool,
    start: int | None = None,
) -> tuple[FloatArray, BlockCovariance]:
    levels = []
    for index, level in enumerate(taken):
        found = []
        for query, answers in level.items():
            if query in block.rows:
                found.append(
                    vector_least_squares.independent(block.rows[query], answers, measured[index][query].variance)
                )
        levels.append(found)
    known = vector_least_squares.solve(tree, levels, copies, block.size, upward=upward, start=start)
    return known.mean, BlockCovariance(known.finite, known.diffuse)
