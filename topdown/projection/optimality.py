"""What a table lacks of the optimality conditions of its program, node by node, and what rounding may account for.

Every family's multiplier is chosen so that all conditions are missed as little as they can be, each in units of its own
(multipliers.py; docs/mathematics.md, "Certificates").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import Families, FloatArray, Tree
from topdown.projection.equality import measured_or_zero, open_leaves, upward_gains
from topdown.projection.multipliers import EPS, OWN, BoolArray, Conditions, InnerNodes, pool

FINE = 2e-11
"""The slack at which residuals are read at first: a solution to rounding is seen to be one."""

_LOST = 16 * EPS
"""Part of a value that a child may have or not have without its being seen."""


class Residuals(NamedTuple):
    """What every node lacks, in counts; all (..., nodes) but ``sums``, (..., families).

    ``gap``: how far the node is from where its condition puts it. ``rounding``: how much of that float64 may account
    for. ``deviation``: what the node's own standard deviation amounts to in the same sense; 0 at an exact value.
    ``sums``: how far rounding may put a family's sum off.
    """

    gap: FloatArray
    rounding: FloatArray
    deviation: FloatArray
    sums: FloatArray


def family_optimality(
    x: FloatArray,
    values: FloatArray,
    variance: FloatArray,
    tree: Tree,
    lower: FloatArray | None,
    *,
    nonnegative: bool,
    slack: float = FINE,
) -> Residuals:
    """Residuals of ``x`` (..., nodes) as the family-by-family projection of ``values``.

    With tau the multiplier of a family's sum, |x - (y - v tau)|, or |x - max(0, y - v tau)| with ``nonnegative``; at
    the root |x - y|, or |x - max(0, y)|. ``lower``: bounds in place of 0. ``slack``: by how many of its own standard
    deviations a node's condition may be missed where the multiplier is read; the residuals say whether it was.
    """
    variance = np.broadcast_to(variance, x.shape)
    unit = own_variance(variance, tree)
    gap, rounding, deviation = (np.empty(x.shape) for _ in range(3))
    found = Residuals(gap, rounding, deviation, np.zeros((*x.shape[:-1], tree.n_families)))
    for part in (None, *tree.parts_down()):
        # A family's conditions are of its own: a group of families, with what their parents have before them.
        nodes = [slice(0, 1)] if part is None else [part.parents, part.children]
        own = _Stated.of(x, values, variance, unit, lower, nodes, nonnegative=nonnegative)
        local = None if part is None else part.alone()
        _of_families(own, local, tree, found, nodes, nonnegative=nonnegative, slack=slack)
    return found


class _Stated(NamedTuple):
    """Some nodes' values, measurements, variances and bounds; all (..., nodes) but ``floor``, which may be ()."""

    x: FloatArray
    y: FloatArray
    size: FloatArray
    variance: FloatArray
    unit: FloatArray
    rounding: FloatArray
    floor: FloatArray

    @classmethod
    def of(
        cls,
        x: FloatArray,
        values: FloatArray,
        variance: FloatArray,
        unit: FloatArray,
        lower: FloatArray | None,
        nodes: list[slice],
        *,
        nonnegative: bool,
    ) -> _Stated:
        x, values, variance, unit = (_joined(array, nodes) for array in (x, values, variance, unit))
        y = measured_or_zero(values, variance)
        size = np.abs(x)
        rounding, floor = OWN * (size + np.abs(y)), np.zeros(())
        if lower is not None and nonnegative:
            bound = _joined(lower, nodes)
            floor = OWN * (size + np.abs(bound))
            rounding += OWN * np.abs(bound)
            x, y = x - bound, y - bound
        return cls(x, y, size, variance, unit, rounding, floor)


def _joined(array: FloatArray, nodes: list[slice]) -> FloatArray:
    return np.concatenate([array[..., some] for some in nodes], axis=-1)


def _of_families(
    own: _Stated,
    part: Families | None,
    tree: Tree,
    found: Residuals,
    nodes: list[slice],
    *,
    nonnegative: bool,
    slack: float,
) -> None:
    """Residuals of the children of a group of families, into ``found``; without ``part``, of the root."""
    x, y, size, variance, unit, rounding, floor = own
    deviation = np.sqrt(unit)
    if part is None:
        gap = np.abs(x - (np.maximum(y, 0.0) if nonnegative else y))
        found.gap[..., :1] = np.where(np.isinf(variance), 0.0, gap)
        found.rounding[..., :1], found.deviation[..., :1] = rounding, deviation
        return
    empty = np.zeros(x.shape, np.bool_)
    if nonnegative:
        allowed = None if slack <= FINE else np.maximum(rounding + slack * deviation, floor)
        empty = _empty(x, size, rounding, allowed, floor, [part], nested=False)
    c, (above, below) = part.children, nodes
    here = Conditions.of(
        x[..., c], y[..., c], variance[..., c], unit[..., c], rounding[..., c], deviation[..., c], empty[..., c]
    )
    tau = pool(here.claims(slack), part, size, tree)
    found.gap[..., below] = here.gap(part.spread(tau.center()))
    found.rounding[..., below] = rounding[..., c] + unit[..., c] * part.spread(tau.width)
    found.deviation[..., below] = deviation[..., c]
    found.sums[..., above] = tau.sums


def tree_optimality(
    x: FloatArray,
    values: FloatArray,
    variance: FloatArray,
    tree: Tree,
    *,
    nonnegative: bool,
    slack: float = FINE,
) -> Residuals:
    """Residuals of ``x`` (..., nodes) as the solution of whole-tree least squares.

    With tau_p the multiplier of p's family, x is optimal when every leaf is y - v tau_p, or max(0, y - v tau_p) with
    ``nonnegative``, and every inner node i that is not exact has tau_i = tau_p + (x_i - y_i) / v_i (tau_p = 0 above the
    root). What an inner node's equation lacks is multiplied by the variance of what was measured at and below it: how
    far the node would move. At exact nodes it is |x - y|. ``slack``: as in `family_optimality`.
    """
    variance = np.broadcast_to(variance, x.shape)
    y = measured_or_zero(values, variance)
    size = np.abs(x)
    rounding = size + np.abs(y)
    rounding *= OWN
    unit = pooled_variance(variance, tree)
    deviation = np.sqrt(unit)
    empty = np.zeros(x.shape, np.bool_)
    if nonnegative:
        allowed = None if slack <= FINE else rounding + slack * deviation
        empty = _empty(x, size, rounding, allowed, np.zeros(()), tree.parts_down(), nested=True)
    inner, leaves = slice(0, tree.n_families), tree.leaves.start
    sums = np.zeros((*x.shape[:-1], tree.n_families))
    if tree.n_families == 0:
        return Residuals(np.abs(x - (np.maximum(y, 0.0) if nonnegative else y)), rounding, deviation, sums)
    gap = np.empty(x.shape)
    gap[..., inner] = np.abs(x[..., inner] - (np.maximum(y[..., inner], 0.0) if nonnegative else y[..., inner]))

    def conditions(nodes: slice) -> Conditions:
        own = x[..., nodes], y[..., nodes], variance[..., nodes], unit[..., nodes], rounding[..., nodes]
        return Conditions.of(*own, deviation[..., nodes], empty[..., nodes])

    nodes = InnerNodes.of(x[..., inner], y[..., inner], variance[..., inner], unit[..., inner], rounding[..., inner])
    for part in tree.parts_up():
        c, p = part.children, part.parents
        claims = conditions(c).claims(slack) if c.start >= leaves else nodes.claims(c, slack)
        found = pool(claims, part, size, tree)
        sums[..., p] = found.sums
        nodes.keep(p, found, part.total(claims.room), part.largest(claims.tried) if claims.tried.ndim else claims.tried)
    nothing = np.zeros((*x.shape[:-1], 1))
    nodes.settle(slice(0, 1), nothing, nothing, nothing, slack)
    for part in tree.parts_down():
        c, p = part.children, part.parents
        above, width, vague = (part.spread(a[..., p]) for a in (nodes.tau, nodes.width, nodes.vague))
        if c.start < leaves:
            nodes.settle(c, above, width, vague, slack)
            continue
        gap[..., c] = conditions(c).gap(above)
        rounding[..., c] += unit[..., c] * (width + np.where(empty[..., c], vague, 0.0))
    exact = variance[..., inner] == 0
    gap[..., inner] = np.where(exact, gap[..., inner], unit[..., inner] * nodes.gap)
    rounding[..., inner] = np.where(exact, rounding[..., inner] + sums, unit[..., inner] * nodes.rounding)
    deviation[..., inner] = unit[..., inner] * nodes.loose
    return Residuals(gap, rounding, deviation, sums)


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


def pooled_variance(variance: FloatArray, tree: Tree) -> FloatArray:
    """The variance of what was measured at and below every node; the siblings' largest where that is undetermined."""
    u = upward_gains(variance, tree).variance
    open_ends = open_leaves(variance, tree)
    if open_ends is None:
        return u
    for families in tree.families_down():
        is_open = open_ends[..., families.children] > 0
        largest = families.largest(u[..., families.children])
        largest = np.where(largest > 0, largest, np.where(u[..., families.parents] > 0, u[..., families.parents], 1.0))
        u[..., families.children] = np.where(is_open, families.spread(largest), u[..., families.children])
    return u
