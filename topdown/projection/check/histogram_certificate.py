"""Certificates that histograms solve their least-squares program, computed from the queries, independently of the
solver.

The gradient at a node is the sum over its queries of A'(A x - y) / v. The program is solved where multipliers of the
families' sums exist: going up, a family's multiplier must make every child's equation hold; exact answers leave it free
along their own rows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, Tree, runs
from topdown.projection.check.certificate import Residuals, off_sums
from topdown.projection.histograms.components import Block, Component, Components, applied
from topdown.projection.histograms.least_squares import Measured
from topdown.workload import DETAILED, Query

_ROUNDING = 64 * 2.0**-52
"""The relative rounding error of a value that was rotated, rotated back, and added up through the levels."""

_NUMBERS_AT_ONCE = 1 << 22

_NOTHING = 1e-9
"""A projector's eigenvalue (0 or 1, but for rounding) below this counts as 0."""


def histogram_optimality(
    x: FloatArray, measured: Measured, components: Components, tree: Tree, *, upward: bool
) -> Residuals:
    """Residuals of whole-tree (``upward``) or family-by-family least squares at histograms ``x`` (nodes x cells).

    A node's residual is that of its equation in one block, times the variance of what was measured at and below it
    there, which is how far the node would move; of all blocks the one with the most standard deviations counts. At
    exact answers it is the difference from them. A family's sum may be off by the rounding of its members' largest
    cells and measurements.
    """
    gradient, cells = np.zeros_like(x), math.sqrt(x.shape[1])
    size = np.abs(x).max(axis=1)
    found = _Lacking.of(size, cells)
    for index, level in enumerate(measured):
        nodes = tree.level(index)
        for query, (values, variance) in level.items():
            gap = np.where(np.isfinite(variance)[:, None], query.answers(x[nodes]) - values, 0.0)
            missed = np.where(variance == 0, np.abs(gap).max(axis=1), 0.0)
            found.gap[nodes] = np.maximum(found.gap[nodes], missed)
            gradient[nodes] += query.spread(gap * _precision(variance)[:, None])
            said = np.where(np.isfinite(variance), np.abs(values).max(axis=1), 0.0)
            # A query's answers are sums of cells, whose rounding they carry.
            found.hear(nodes, variance, said, cells / math.sqrt(query.n_answers) * size[nodes] + said)
    allowed = found.allow_for_sums(cells, tree)
    detailed = Query.parse(DETAILED, components.schema)
    rotated = components.rotated(detailed, gradient)
    for component in components:
        taken = components.taken(detailed, rotated, component)
        for block in component.blocks:
            found.take_worse(taken @ block.basis, block, measured, tree, upward=upward)
    return found.judged(x.T, allowed, tree)


def component_optimality(
    coordinates: FloatArray,
    component: Component,
    taken: list[dict[Query, FloatArray]],
    measured: Measured,
    largest: list[dict[Query, FloatArray]],
    components: Components,
    tree: Tree,
) -> Residuals:
    """As `histogram_optimality`, over the whole tree, of one component's ``coordinates`` (nodes, copies, m).

    ``largest``: the largest absolute value that was measured at every node (`largest_of`). ``taken``: by level the
    answers in the component's coordinates, from which the gradient is computed, independently of the solution.
    """
    size = np.abs(coordinates).max(axis=(1, 2), initial=0.0)
    cells = math.sqrt(components.schema.n_cells)
    found = _Lacking.of(size, cells)
    for index, level in enumerate(taken):
        nodes = tree.level(index)
        for query in level:
            said = math.sqrt(query.n_answers) * largest[index][query]
            lost = (cells * size[nodes] + said) * cells / math.sqrt(query.n_answers)
            found.hear(nodes, measured[index][query].variance, said, lost)
    allowed = found.allow_for_sums(cells, tree)
    for block in component.blocks:
        own = applied(coordinates, block.basis)
        gradient = np.zeros_like(own)
        for index, level in enumerate(taken):
            nodes = tree.level(index)
            for query, answers in level.items():
                if query not in block.rows:
                    continue
                rows, variance = block.rows[query], measured[index][query].variance
                here = own[nodes]
                exact = np.flatnonzero(variance == 0)
                if len(exact):
                    missed = here[exact] @ rows.T - answers[exact] @ _range_of(rows)
                    at = found.gap[nodes.start + exact]
                    found.gap[nodes.start + exact] = np.maximum(at, np.abs(missed).max(axis=(1, 2), initial=0.0))
                slope = applied(here, rows.T @ rows) - applied(answers, rows)
                gradient[nodes] += slope * _precision(variance)[:, None, None]
        found.take_worse(gradient, block, measured, tree, upward=True)
    return found.judged(coordinates.reshape(tree.n_nodes, -1).T, allowed, tree)


class _Lacking(NamedTuple):
    """The residuals of nodes, (nodes,) each, as in `Residuals`; updated in place.

    ``most``: the largest number at every node; ``lost``: the rounding error of its gradient; ``is_exact``: whether it
    has an exact answer.
    """

    gap: FloatArray
    rounding: FloatArray
    deviation: FloatArray
    most: FloatArray
    lost: FloatArray
    is_exact: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, size: FloatArray, cells: float) -> _Lacking:
        """Residuals of 0, for numbers of a ``size`` (nodes,), with a root of so many ``cells``."""
        nothing = (np.zeros_like(size) for _ in range(3))
        gap, deviation, lost = nothing
        return cls(gap, _ROUNDING * cells * size, deviation, np.array(size), lost, np.zeros(len(size), np.bool_))

    def hear(self, nodes: slice, variance: FloatArray, said: FloatArray, lost: FloatArray) -> None:
        """Take into account a query's answers at ``nodes``: their size, and the size of their terms in the gradient."""
        self.rounding[nodes] += _ROUNDING * said
        self.most[nodes] = np.maximum(self.most[nodes], said)
        self.is_exact[nodes] |= variance == 0
        self.lost[nodes] += _ROUNDING * lost * _precision(variance)

    def allow_for_sums(self, cells: float, tree: Tree) -> FloatArray:
        """How much families' sums (families,) may be off by rounding, and, in place, the same for exact values. A sum
        of 0 may have been computed from large measurements below, beside and above it.
        """
        made, allowed = np.array(self.most), np.zeros(tree.n_families)
        for families in tree.families_up():
            below = families.total(made[families.children])
            allowed[families.parents] = _ROUNDING * cells * (made[families.parents] + below)
            made[families.parents] = np.maximum(made[families.parents], below)
        near = np.array(made)
        for families in tree.families_down():
            near[families.children] = np.maximum(made[families.children], families.spread(made[families.parents]))
        self.rounding[:] += np.where(self.is_exact, _ROUNDING * cells * near, 0.0)
        return allowed

    def take_worse(self, gradient: FloatArray, block: Block, measured: Measured, tree: Tree, *, upward: bool) -> None:
        """Take a block's residuals at the nodes where they are more standard deviations."""
        gap, variance = _block_residual(gradient, block, measured, tree, upward=upward)
        rounding, deviation = variance * _lost(self.lost, tree, upward=upward), np.sqrt(variance)
        more = (gap - rounding) * self.deviation > np.maximum(self.gap - self.rounding, 0.0) * deviation
        more |= (self.deviation == 0) & (self.gap <= self.rounding)
        for array, new in ((self.gap, gap), (self.rounding, rounding), (self.deviation, deviation)):
            array[:] = np.where(more, new, array)

    def judged(self, x: FloatArray, allowed: FloatArray, tree: Tree) -> Residuals:
        """The residuals, with those of the sums of ``x`` (..., nodes), which may be off by what is ``allowed``
        (families,).
        """
        off = np.zeros(tree.n_families)
        for part in tree.parts_down():
            off[part.parents] = off_sums(x, part).max(axis=0)
        lacking = self.gap, self.rounding, self.deviation
        return Residuals.of(x, 0, lacking, nonnegative=False, sums=(off, allowed, 0))


def _precision(variance: FloatArray) -> FloatArray:
    """1 / variance; 0 for exact values."""
    return np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0)


def largest_of(measured: Measured) -> list[dict[Query, FloatArray]]:
    """The largest absolute value of all measured answers at a node (nodes,), by level; 0 where there are none."""
    return [
        {query: np.where(np.isfinite(variance), _furthest(values), 0.0) for query, (values, variance) in level.items()}
        for level in measured
    ]


def _furthest(values: npt.NDArray[Any]) -> FloatArray:
    """The largest absolute value of each node's ``values``; in batches, since they may be in files."""
    found = np.empty(len(values))
    for nodes in runs(slice(0, len(values)), max(1, _NUMBERS_AT_ONCE // values.shape[1])):
        some = values[nodes]
        found[nodes] = np.maximum(some.max(axis=1), -some.min(axis=1))
    return found


def _range_of(rows: FloatArray) -> FloatArray:
    """The projector (k, k) onto the answers that a block's coordinates can give; the rest belongs to other blocks."""
    return np.asarray(rows @ np.linalg.pinv(rows))


def _lost(lost: FloatArray, tree: Tree, *, upward: bool) -> FloatArray:
    """The rounding error of the equations (nodes,), from that of every node's gradient. A family's multiplier is an
    average over its children's equations, with everything below them.
    """
    below = np.array(lost)
    found = np.array(lost)
    for families in tree.families_up():
        most = np.maximum.reduceat(below[families.children], families.starts)
        found[families.children] = below[families.children] + families.spread(most)
        if upward:
            below[families.parents] += most
    found[0] = below[0]
    return found


def _block_residual(
    gradient: FloatArray,
    block: Block,
    measured: Measured,
    tree: Tree,
    *,
    upward: bool,
) -> tuple[FloatArray, FloatArray]:
    """The residuals (nodes,) of one block, whose gradient is (nodes, copies, m), and its approximate variance."""
    information, exact = _strength(block, measured, tree)
    variance = _variance_below(information, exact, tree, upward=upward)
    eye = np.eye(block.size)
    bound = _range(exact) if upward else _settled(_range(exact), tree)
    residual = np.zeros(tree.n_nodes)
    needed, binding = -gradient, eye - bound
    for index in range(tree.n_levels - 2, -1, -1):
        families = tree.families(index)
        children, parents = families.children, families.parents
        projected = np.einsum("nij,ncj->nci", binding[children], needed[children])
        together = np.add.reduceat(binding[children], families.starts, axis=0)
        multiplier = np.einsum(
            "nij,ncj->nci",
            np.linalg.pinv(together, rcond=_NOTHING, hermitian=True),
            np.add.reduceat(projected, families.starts, axis=0),
        )
        above = np.repeat(multiplier, families.sizes, axis=0)
        lacking = np.einsum("nij,ncj->nci", binding[children], above) - projected
        residual[children] = np.abs(lacking).max(axis=(1, 2)) * variance[children]
        if upward:
            needed[parents] = multiplier - gradient[parents]
            binding[parents] = eye - _range(eye - _range(together) + bound[parents])
    residual[0] = np.abs(np.einsum("ij,cj->ci", binding[0], needed[0])).max() * variance[0]
    return residual, variance


def _settled(bound: FloatArray, tree: Tree) -> FloatArray:
    """``bound``, where a node is also exact in directions in which all its children are exact, since it is determined
    before them.
    """
    eye, found = np.eye(bound.shape[-1]), np.array(bound)
    for families in tree.families_up():
        free = _range(np.add.reduceat(eye - found[families.children], families.starts, axis=0))
        found[families.parents] = _range(found[families.parents] + eye - free)
    return found


def _strength(block: Block, measured: Measured, tree: Tree) -> tuple[FloatArray, FloatArray]:
    """The information per coordinate (nodes,) of noisy answers, and that of exact answers as matrices (nodes, m, m)."""
    information = np.zeros(tree.n_nodes)
    exact = np.zeros((tree.n_nodes, block.size, block.size))
    for index, level in enumerate(measured):
        nodes = tree.level(index)
        for query, (_, variance) in level.items():
            if query in block.rows:
                matrix = block.rows[query].T @ block.rows[query]
                information[nodes] += _precision(variance) * np.trace(matrix) / block.size
                exact[nodes] += (variance == 0)[:, None, None] * matrix
    return information, exact


def _variance_below(information: FloatArray, exact: FloatArray, tree: Tree, *, upward: bool) -> FloatArray:
    """The approximate variance (nodes,) of a coordinate from what was measured at and, with ``upward``, below every
    node.
    """
    with np.errstate(divide="ignore"):
        variance = 1.0 / information
    if upward:
        for families in tree.families_up():
            below = families.total(variance[families.children])
            with np.errstate(divide="ignore"):
                variance[families.parents] = 1.0 / (information[families.parents] + 1.0 / below)
    finite = variance[np.isfinite(variance)]
    return np.where(np.isfinite(variance), variance, finite.max(initial=0.0) or 1.0)


def _range(matrix: FloatArray) -> FloatArray:
    """Projectors onto the ranges of symmetric matrices (n, m, m)."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > _NOTHING * np.maximum(1.0, values[:, -1:])
    return np.asarray((vectors * kept[:, None, :]) @ vectors.transpose(0, 2, 1))
