"""The residuals of a table in the optimality conditions of its program, node by node, with the rounding that is
allowed.

Every family's multiplier is chosen so that all conditions are missed as little as they can be, each in units of its own
(multipliers.py; docs/mathematics.md, "Certificates").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import Families, FloatArray, Tree
from topdown.projection.cells.equality import measured_or_zero, open_leaves, upward_gains
from topdown.projection.check.certificate import Residuals, off_sums
from topdown.projection.check.multipliers import EPS, OWN, BoolArray, InnerNodes, NodeConditions, pool

FINE = 2e-11
"""The slack that is tried first, enough for a solution that is exact to rounding."""

_LOST = 16 * EPS
"""The part of a value below which a child's value is lost in rounding."""


def family_optimality(
    x: FloatArray,
    values: FloatArray,
    variance: FloatArray,
    tree: Tree,
    lower: FloatArray | None,
    *,
    nonnegative: bool,
    slack: float = FINE,
) -> Iterator[Residuals]:
    """Residuals of ``x`` (..., nodes) as the family-by-family projection of ``values``.

    With tau the multiplier of a family's sum, |x - (y - v tau)|, or |x - max(0, y - v tau)| with ``nonnegative``; at
    the root |x - y|, or |x - max(0, y)|. ``lower``: bounds in place of 0. ``slack``: by how many of its own standard
    deviations a node's condition may be missed when the multiplier is determined; the residuals show whether it was.
    """
    unit = np.broadcast_to(own_variance(variance, tree), x.shape)
    variance = np.broadcast_to(variance, x.shape)
    bound = lower if nonnegative else None

    def own(nodes: list[slice]) -> tuple[_Own, FloatArray, FloatArray]:
        """Some nodes side by side, the size of their values before bounds were taken off, and where they count as 0."""
        here, y, v, u = (np.concatenate([a[..., some] for some in nodes], axis=-1) for a in (x, values, variance, unit))
        size = np.abs(here)
        if bound is None:
            return _Own.of(here, y, v, u), size, np.zeros(())
        low = np.concatenate([bound[..., some] for some in nodes], axis=-1)
        return _Own.of(here, y, v, u, low), size, OWN * (size + np.abs(low))

    root, _, _ = own([slice(0, 1)])
    gap = np.abs(root.x - (np.maximum(root.y, 0.0) if nonnegative else root.y))
    gap = np.where(np.isinf(root.variance), 0.0, gap)
    yield Residuals.of(x[..., :1], 0, (gap, root.rounding, root.deviation), nonnegative=nonnegative)
    for families in tree.parts_down():
        # A family's conditions are of its own: a group of families, with what their parents have before them.
        (here, size, floor), part = own([families.parents, families.children]), families.alone()
        c = families.children
        if nonnegative:
            allowed = None if slack <= FINE else np.maximum(here.rounding + slack * here.deviation, floor)
            here = here._replace(empty=_empty(here.x, size, here.rounding, allowed, floor, [part], nested=False))
        inside = part.children
        conditions = here.conditions().at(inside)
        tau = pool(conditions.claims(slack), part, size[..., part.parents], size[..., inside], tree)
        rounding = here.rounding[..., inside] + here.unit[..., inside] * part.spread(tau.width)
        lacking = conditions.gap(part.spread(tau.center())), rounding, here.deviation[..., inside]
        sums = off_sums(x, families), tau.sums, families.parents.start
        yield Residuals.of(x[..., c], c.start, lacking, nonnegative=nonnegative, sums=sums)


def tree_optimality(
    x: FloatArray,
    values: FloatArray,
    variance: FloatArray,
    tree: Tree,
    *,
    nonnegative: bool,
    slack: float = FINE,
) -> Iterator[Residuals]:
    """Residuals of ``x`` (..., nodes) as the solution of whole-tree least squares.

    With tau_p the multiplier of p's family, x is optimal when every leaf is y - v tau_p, or max(0, y - v tau_p) with
    ``nonnegative``, and every inner node i that is not exact has tau_i = tau_p + (x_i - y_i) / v_i (tau_p = 0 above the
    root). The residual of an inner node's equation is multiplied by the variance of what was measured at and below it,
    which gives how far the node would move. At exact nodes it is |x - y|. ``slack``: as in `family_optimality`.
    """
    own = _WholeTree.of(x, values, variance, tree, nonnegative=nonnegative, slack=slack)
    inner, leaves = slice(0, tree.n_families), tree.leaves.start
    off, allowed = (np.zeros((*x.shape[:-1], tree.n_families)) for _ in range(2))
    top = own.at(inner if tree.n_families else slice(0, 1))
    apart = np.abs(top.x - (np.maximum(top.y, 0.0) if nonnegative else top.y))
    if tree.n_families == 0:
        yield Residuals.of(x, 0, (apart, top.rounding, top.deviation), nonnegative=nonnegative)
        return
    nodes = InnerNodes.of(top.x, top.y, top.variance, top.unit, top.rounding)
    for part in tree.parts_up():
        c, p = part.children, part.parents
        claims = own.at(c).conditions().claims(slack) if c.start >= leaves else nodes.claims(c, slack)
        found = pool(claims, part, np.abs(x[..., p]), np.abs(x[..., c]), tree)
        off[..., p], allowed[..., p] = off_sums(x, part), found.sums
        nodes.keep(p, found, part.total(claims.room), part.largest(claims.tried) if claims.tried.ndim else claims.tried)

    nothing = np.zeros((*x.shape[:-1], 1))
    nodes.settle(slice(0, 1), nothing, nothing, nothing, slack)
    for part in tree.parts_down():
        c, p = part.children, part.parents
        above, width, vague = (part.spread(a[..., p]) for a in (nodes.tau, nodes.width, nodes.vague))
        if c.start < leaves:
            nodes.settle(c, above, width, vague, slack)
            continue
        here = own.at(c)
        rounding = here.rounding + here.unit * (width + np.where(here.empty, vague, 0.0))
        lacking = here.conditions().gap(above), rounding, here.deviation
        yield Residuals.of(here.x, c.start, lacking, nonnegative=nonnegative)
    exact = top.variance == 0
    gap = np.where(exact, apart, top.unit * nodes.gap)
    rounding = np.where(exact, top.rounding + allowed, top.unit * nodes.rounding)
    lacking = gap, rounding, top.unit * nodes.loose
    yield Residuals.of(top.x, 0, lacking, nonnegative=nonnegative, sums=(off, allowed, 0))


class _Own(NamedTuple):
    """Some nodes of a program; all (..., nodes of these)."""

    x: FloatArray
    y: FloatArray
    variance: FloatArray
    unit: FloatArray
    rounding: FloatArray
    deviation: FloatArray
    empty: BoolArray

    @classmethod
    def of(
        cls, x: FloatArray, values: FloatArray, variance: FloatArray, unit: FloatArray, lower: FloatArray | None = None
    ) -> _Own:
        """None of which counts as 0; with ``lower`` bounds taken off where there are some."""
        y = measured_or_zero(values, variance)
        rounding = OWN * (np.abs(x) + np.abs(y))
        if lower is not None:
            rounding += OWN * np.abs(lower)
            x, y = x - lower, y - lower
        return cls(x, y, variance, unit, rounding, np.sqrt(unit), np.zeros(x.shape, np.bool_))

    def conditions(self) -> NodeConditions:
        return NodeConditions.of(*self)


class _WholeTree(NamedTuple):
    """A whole-tree program and a table that may solve it; (..., nodes), but ``unit``, of inner nodes and of leaves.

    ``rounding``, ``empty``: where nodes that count as 0 are sought; None where none are.
    """

    x: FloatArray
    values: FloatArray
    variance: FloatArray
    unit: tuple[FloatArray, FloatArray]
    rounding: FloatArray | None = None
    empty: BoolArray | None = None

    @classmethod
    def of(
        cls,
        x: FloatArray,
        values: FloatArray,
        variance: FloatArray,
        tree: Tree,
        *,
        nonnegative: bool,
        slack: float,
    ) -> _WholeTree:
        inner, leaves = (
            np.broadcast_to(one, (*x.shape[:-1], one.shape[-1])) for one in pooled_variance(variance, tree)
        )
        plain = cls(x, values, np.broadcast_to(variance, x.shape), (inner, leaves))
        if not nonnegative:
            return plain
        all_nodes, size = plain.at(slice(0, tree.n_nodes)), np.abs(x)
        rounding = all_nodes.rounding
        allowed = None if slack <= FINE else rounding + slack * all_nodes.deviation
        del all_nodes
        empty = _empty(x, size, rounding, allowed, np.zeros(()), tree.parts_down(), nested=True)
        return plain._replace(rounding=rounding, empty=empty)

    def at(self, nodes: slice) -> _Own:
        """The values at some nodes, computed when they are needed: writing a table of all takes longer than computing
        it.
        """
        x, variance = self.x[..., nodes], self.variance[..., nodes]
        own = _Own.of(x, self.values[..., nodes], variance, self._units(nodes))
        if self.rounding is None or self.empty is None:
            return own
        return own._replace(rounding=self.rounding[..., nodes], empty=self.empty[..., nodes])

    def _units(self, nodes: slice) -> FloatArray:
        inner, leaves = self.unit
        first = inner.shape[-1]
        if nodes.stop <= first:
            return inner[..., nodes]
        below = leaves[..., max(0, nodes.start - first) : nodes.stop - first]
        return below if nodes.start >= first else np.concatenate([inner[..., nodes.start :], below], axis=-1)


def _empty(
    x: FloatArray,
    size: FloatArray,
    rounding: FloatArray,
    allowed: FloatArray | None,
    floor: FloatArray,
    groups: Iterable[Families],
    *,
    nested: bool,
) -> BoolArray:
    """Which nodes count as 0, if ``nested`` with all below them: those at ``floor``, and small ones that might be 0.

    ``size``: |x| before lower bounds were taken off. ``groups``: the families, upper levels first. A node is small that
    has no more than rounding may give or take of its parent, or than what it is ``allowed`` (a solver's zeros are
    inexact). Small siblings count as 0 if together they have no more than that rounding, or than what is allowed to the
    largest sibling that is not small, or where there is none to the parent: then there is something that can hold what
    they are given too much. What they might have without its being seen is added to their ``rounding``.
    """
    empty: BoolArray = x <= floor
    if allowed is not None:
        empty[..., 0] |= x[..., 0] <= allowed[..., 0]
    budget = np.zeros(()) if allowed is None else np.array(allowed)
    unseen = _LOST * size
    for part in groups:
        c, p = part.children, part.parents
        mass, hidden = x[..., c], empty[..., c]
        if nested:
            hidden = hidden | part.spread(empty[..., p])
        free = unseen[..., p]
        lost = own = part.spread(free)
        if allowed is not None:
            own = np.maximum(own, allowed[..., c])
            others = part.largest(np.where(mass <= own, 0.0, own))
            free = np.maximum(free, np.where(others > 0, others, budget[..., p]))
        small = (mass <= own) & ~hidden
        if small.any():
            together = part.total(np.where(small, mass, 0.0))
            hidden = hidden | (small & part.spread(together <= free))
            if allowed is not None and nested:
                share = np.divide(free, together, out=np.zeros_like(free), where=together > 0)
                budget[..., c] = np.where(small, mass * part.spread(share), own)
        empty[..., c] = hidden
        rounding[..., c] += np.where(hidden, lost, 0.0)
        if nested:
            unseen[..., c] = np.where(hidden, lost, unseen[..., c])
    return empty


def own_variance(variance: FloatArray, tree: Tree) -> FloatArray:
    """The variances (..., nodes); of unmeasured nodes their siblings' largest, or else their parent's, or else 1."""
    unmeasured = np.isinf(variance)
    if not unmeasured.any():
        return variance
    own = np.where(unmeasured, 0.0, variance)
    own[..., 0] = np.where(unmeasured[..., 0], 1.0, own[..., 0])
    for families in tree.families_down():
        c, above = families.children, own[..., families.parents]
        largest = families.largest(own[..., c])
        largest = np.where(largest > 0, largest, np.where(above > 0, above, 1.0))
        own[..., c] = np.where(unmeasured[..., c], families.spread(largest), own[..., c])
    return own


def pooled_variance(variance: FloatArray, tree: Tree) -> tuple[FloatArray, FloatArray]:
    """The variance of what was measured at and below every node, of inner nodes and of leaves; the siblings' largest
    where that is undetermined."""
    inner, leaves = slice(0, tree.n_families), tree.leaves
    open_ends = open_leaves(variance, tree)
    if open_ends is None:
        return upward_gains(variance, tree).inner, variance[..., leaves]
    u = upward_gains(variance, tree).variance
    for families in tree.families_down():
        is_open = open_ends[..., families.children] > 0
        largest = families.largest(u[..., families.children])
        largest = np.where(largest > 0, largest, np.where(u[..., families.parents] > 0, u[..., families.parents], 1.0))
        u[..., families.children] = np.where(is_open, families.spread(largest), u[..., families.children])
    return u[..., inner], u[..., leaves]
