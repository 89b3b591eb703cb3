"""The multipliers of families' sums: the intervals in which the conditions of the children put them.

Every family's sum has a multiplier tau. Each node of the family gives an interval in which tau has to lie for the
node's own condition to hold up to a slack; the intervals intersect if and only if one tau suits all nodes. Slacks are
in units of each node's own standard deviation plus the rounding of float64 at the node, so that neither a sibling with
a large variance nor a large number elsewhere hides an error (docs/mathematics.md, "Certificates").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import Families, FloatArray, Tree

BoolArray = npt.NDArray[np.bool_]

EPS = float(np.finfo(np.float64).eps)
OWN = 4 * EPS
"""The relative rounding error of a difference and a product of a value and its measurement."""

_INSIDE = 64 * EPS


class Claims(NamedTuple):
    """The intervals, from ``low`` to ``high``, in which children put their family's multiplier; all (..., children).

    ``reach``: how far the multiplier has moved the child. ``tried``: the child's value before, where that was below 0.
    ``room``: the child's variance, 0 where it does not move.
    """

    low: FloatArray
    high: FloatArray
    reach: FloatArray
    tried: FloatArray
    room: FloatArray


class Multiplier(NamedTuple):
    """The interval of every family's multiplier, with the rounding of its sum (``sums``) and of itself (``width``).

    ``mass``: how much was added up on the way to the sum.
    """

    low: FloatArray
    high: FloatArray
    sums: FloatArray
    width: FloatArray
    mass: FloatArray

    def center(self) -> FloatArray:
        """The middle; the one end that there is; 0 where there is none."""
        return _center(self.low, self.high)


def _center(low: FloatArray, high: FloatArray) -> FloatArray:
    """The middle of intervals; of one without an upper end a point just inside; 0 without ends."""
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isinf(high), low + _INSIDE * np.abs(low), 0.5 * (low + high))
    return np.where(np.isfinite(middle), middle, 0.0)


def pool(claims: Claims, families: Families, above: FloatArray, below: FloatArray, tree: Tree) -> Multiplier:
    """The intersection of the children's intervals, widened by the effect that rounding of their sum has on the
    multiplier.

    ``above`` (..., families) and ``below`` (..., children): the absolute values of parents and children.
    """
    room = families.total(claims.room)
    # Where no child is above 0, the sum was matched with the children's values before they were set to 0.
    moved = families.total(claims.reach)
    if claims.tried.ndim:
        moved = np.maximum(moved, families.largest(claims.tried))
    mass = above + families.total(below) + moved
    # numpy adds in pairs; variances carry the rounding of the levels below them.
    sums = EPS * (8.0 + tree.n_levels + np.log2(families.sizes)) * mass
    width = np.divide(sums, room, out=np.zeros_like(sums), where=room > 0)
    low, high = families.largest(claims.low) - width, families.smallest(claims.high) + width
    # Where the ends have crossed, a point just inside the upper end, which children above 0 determine.
    crossed = low > high
    inside = high - 0.5 * width
    return Multiplier(np.where(crossed, inside, low), np.where(crossed, inside, high), sums, width, mass)


class NodeConditions(NamedTuple):
    """x = y - v tau, or x = max(0, y - v tau), at nodes; all arrays (..., nodes).

    ``aim``: y - x, 0 where not measured. ``unit``: v; where not measured, the variance that the node is given; 0 where
    exact; ``unmeasured``: which are, None where every node is measured with noise. ``rounding`` of the condition,
    ``deviation`` of the node. ``empty``: which count as 0.
    """

    x: FloatArray
    aim: FloatArray
    unit: FloatArray
    unmeasured: BoolArray | None
    rounding: FloatArray
    deviation: FloatArray
    empty: BoolArray

    @classmethod
    def of(
        cls,
        x: FloatArray,
        y: FloatArray,
        variance: FloatArray,
        unit: FloatArray,
        rounding: FloatArray,
        deviation: FloatArray,
        empty: BoolArray,
    ) -> NodeConditions:
        aim, unmeasured = y - x, np.isinf(variance)
        if not unmeasured.any() and (variance > 0).all():
            return cls(x, aim, unit, None, rounding, deviation, empty)
        aim = np.where(unmeasured, 0.0, aim)
        return cls(x, aim, unit, unmeasured, np.where(unmeasured, 0.0, rounding), deviation, empty)

    def at(self, nodes: slice) -> NodeConditions:
        """The conditions of some nodes."""
        return NodeConditions(*(None if a is None else a[..., nodes] for a in self))  # type: ignore[arg-type]

    def claims(self, slack: float) -> Claims:
        """The intervals in which nodes, as children, put their families' multipliers. An empty node only needs tau to
        be large enough; an unmeasured one needs tau = 0; an exact one allows any tau.
        """
        width = self.rounding + slack * self.deviation
        reach, room = np.abs(self.aim), self.unit
        if self.unmeasured is None:
            inverse = 1.0 / self.unit
            low, high = (self.aim - width) * inverse, (self.aim + width) * inverse
        else:
            inexact = self.unit > 0
            inverse = np.divide(1.0, self.unit, out=np.zeros_like(self.unit), where=inexact)
            low = np.where(inexact, (self.aim - width) * inverse, -np.inf)
            high = np.where(inexact, (self.aim + width) * inverse, np.inf)
            reach, room = np.where(inexact, reach, 0.0), np.where(self.unmeasured, np.inf, room)
        if not self.empty.any():
            return Claims(low, high, reach, np.zeros(()), room)
        tried = np.where(self.empty, reach, 0.0)
        reach = np.where(self.empty & (self.x <= 0), 0.0, reach)
        return Claims(low, np.where(self.empty, np.inf, high), reach, tried, np.where(self.empty, 0.0, room))

    def gap(self, tau: FloatArray) -> FloatArray:
        """The distance of nodes from y - v tau; for those that count as 0, only how much larger they should be."""
        lack = self.aim - self.unit * tau
        if not self.empty.any():
            return np.abs(lack)
        return np.where(self.empty & (self.unit > 0), np.maximum(lack, 0.0), np.abs(lack))


class InnerNodes(NamedTuple):
    """The inner nodes of a whole-tree program; all (..., inner nodes).

    ``exact``: which are. ``away``: |x - y|. ``weight``: 1 / v, 0 where exact or unmeasured; ``loose``: what a deviation
    of the node is to the multiplier. ``step``: (x - y) / v, by which a node's own multiplier is above the one of the
    family that it belongs to. ``own``: the rounding of the step, times v. ``low`` to ``high``: where the node's
    multiplier is; ``width``, ``mass``, ``room``, ``tried``: as in `Multiplier` and `Claims`. ``tau``: the multiplier
    that is chosen, and with it ``gap``, what the node's equation lacks, ``rounding`` of that, and ``vague``, how far
    off its children's multiplier is if its value is off by rounding; all in units of the multiplier.
    """

    exact: BoolArray
    away: FloatArray
    weight: FloatArray
    loose: FloatArray
    step: FloatArray
    own: FloatArray
    low: FloatArray
    high: FloatArray
    width: FloatArray
    room: FloatArray
    mass: FloatArray
    tried: FloatArray
    vague: FloatArray
    tau: FloatArray
    gap: FloatArray
    rounding: FloatArray

    @classmethod
    def of(
        cls, x: FloatArray, y: FloatArray, variance: FloatArray, unit: FloatArray, rounding: FloatArray
    ) -> InnerNodes:
        exact = variance == 0
        weight = np.divide(1.0, variance, out=np.zeros(x.shape), where=~exact)
        away = np.where(np.isfinite(variance), np.abs(x - y), 0.0)
        # Without a measurement of its own a node is as loose as what is measured below it.
        unmeasured = np.isinf(variance) & (unit > 0)
        loose = np.sqrt(np.divide(1.0, unit, out=np.array(weight), where=unmeasured))
        return cls(exact, away, weight, loose, weight * (x - y), rounding, *(np.zeros(x.shape) for _ in range(10)))

    def keep(self, nodes: slice, found: Multiplier, room: FloatArray, tried: FloatArray) -> None:
        """Keep the intervals of the children of ``nodes``."""
        self.low[..., nodes], self.high[..., nodes] = found.low, found.high
        self.width[..., nodes], self.room[..., nodes] = found.width, room
        self.mass[..., nodes], self.tried[..., nodes] = found.mass, tried

    def _own_rounding(self, nodes: slice, center: FloatArray) -> FloatArray:
        """The rounding error of a node's equation, in units of the multiplier."""
        arithmetic = OWN * (np.abs(center) + np.abs(self.step[..., nodes]))
        return self.weight[..., nodes] * (self.own[..., nodes] + OWN * self.mass[..., nodes]) + arithmetic

    def claims(self, nodes: slice, slack: float) -> Claims:
        """The intervals in which inner nodes, as children, put their own family's multiplier."""
        weight, step = self.weight[..., nodes], self.step[..., nodes]
        low, high, exact = self.low[..., nodes], self.high[..., nodes], self.exact[..., nodes]
        center, mass = _center(low, high), self.mass[..., nodes]
        width = self._own_rounding(nodes, center) + slack * self.loose[..., nodes]
        with np.errstate(divide="ignore"):
            room = 1.0 / (1.0 / self.room[..., nodes] + np.where(exact, np.inf, weight))
        return Claims(
            np.where(exact, -np.inf, low - step - width),
            np.where(exact, np.inf, high - step + width),
            np.where(np.isfinite(room), np.where(np.isfinite(room), room, 0.0) * np.abs(center - step), mass),
            np.where(room > 0, 0.0, np.maximum(self.away[..., nodes], self.tried[..., nodes])),
            room,
        )

    def settle(self, nodes: slice, above: FloatArray, width: FloatArray, vague: FloatArray, slack: float) -> None:
        """Choose the multipliers of ``nodes``' own families, given the one ``above`` with its rounding.

        The value lies between the children's interval and the node's own equation, in proportion to the slack of
        either.
        """
        low, high, exact = self.low[..., nodes], self.high[..., nodes], self.exact[..., nodes]
        target = above + self.step[..., nodes]
        center = _center(low, high)
        rounding = self._own_rounding(nodes, center) + width + OWN * np.abs(target)
        own = rounding + slack * self.loose[..., nodes]
        half = np.maximum(0.5 * (high - low), 0.0)
        bounded = np.isfinite(half)
        half = np.where(bounded, half, 0.0)
        part = np.divide(half, half + own, out=np.zeros_like(half), where=half + own > 0)
        tau = np.where(bounded, center + (target - center) * part, np.maximum(target, center))
        self.tau[..., nodes] = np.where(exact, center, tau)
        self.gap[..., nodes] = np.abs(tau - target)
        self.rounding[..., nodes] = rounding + np.where(bounded, 0.0, vague)
        # The node's value is off by its variance times the rounding of both equations, and the children share that.
        room = self.room[..., nodes]
        passed = 1.0 / (1.0 + np.where(np.isfinite(room), room, 0.0) * self.weight[..., nodes])
        self.vague[..., nodes] = np.where(exact | ~np.isfinite(room), 0.0, passed * (rounding + vague))
