"""Intervals for one shape of law, in standard deviations: which truths a test of each keeps, given the estimate."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import FloatArray
from topdown.uncertainty.error_law import Shape, tail
from topdown.uncertainty.tail_share import tail_share

CAP_PART = 1.0 / 50.0
"""The part of the chance of missing that goes to the limit which a parent sets, where it does."""
_POINTS, _POINT = 512, 1.0 / 16.0


class Interval(NamedTuple):
    """Of laws of one shape, in units of the deviation: the truths ``theta`` (points,) with the estimates from which
    (``enters``) and up to which (``leaves``) each is kept; ``symmetric``, the half-length where s = 1/2; ``cap``, by
    how much a truth may pass its estimate but with probability alpha / 50; ``log_p`` (points,): of P(X >= x) for x =
    0, 1/16, ... .
    """

    theta: FloatArray
    enters: FloatArray
    leaves: FloatArray
    symmetric: float
    cap: float
    log_p: FloatArray

    def lower(self, x: FloatArray) -> FloatArray:
        """The least truth >= 0 that is kept at the estimates ``x``."""
        found = np.interp(x, self.leaves, self.theta)
        return np.where(x > self.leaves[-1], x - self.symmetric, np.where(x < self.leaves[0], 0.0, found))

    def upper(self, x: FloatArray) -> FloatArray:
        """The greatest truth that is kept at the estimates ``x``."""
        found = np.interp(x, self.enters, self.theta)
        return np.where(x > self.enters[-1], x + self.symmetric, found)

    def p_of_zero(self, x: FloatArray) -> FloatArray:
        """P(X >= x) under a truth of 0; 1 for x <= 0, from above."""
        place = np.clip(x / _POINT, 0, _POINTS - 1)
        before = np.minimum(place.astype(np.int64), _POINTS - 2)
        part = place - before
        found = self.log_p[before] * (1.0 - part) + self.log_p[before + 1] * part
        return np.where(x <= 0, 1.0, np.exp(found))


@lru_cache(maxsize=8192)
def interval(shape: Shape, alpha: float) -> Interval:
    """The inversion of the test of every truth theta that accepts x from theta - q(s alpha) to theta + q((1 - s)
    alpha), s = s(theta) as `tail_share` has it, q(p) the upper p-quantile of the law.

    Where a boundary is not monotone the interval is the hull of what is kept.
    """
    law, share = tail(shape), tail_share()
    below, above = law.quantile(share.below * alpha), law.quantile((1.0 - share.below) * alpha)
    if law.has_steps:
        # Between two truths of the table the quantile may step; the larger of both holds for all between.
        below, above = _widest(below), _widest(above)
    enters = np.where(np.isinf(below), -1e12, share.theta - below)
    leaves = share.theta + above
    enters = np.minimum.accumulate(enters[::-1])[::-1]
    leaves = np.maximum.accumulate(leaves)
    symmetric, cap = law.quantile(np.array([alpha / 2.0, alpha * CAP_PART]))
    # Jumps in steps of the law stay jumps: of equal abscissae np.interp takes one, whichever; keep them rising.
    steps = np.arange(len(enters)) * 1e-9
    log_p = law.at_least(np.arange(_POINTS) * _POINT)
    return Interval(share.theta, enters + steps, leaves + steps, float(symmetric), float(cap), log_p)


def _widest(quantile: FloatArray) -> FloatArray:
    """The largest of every entry and its neighbours."""
    padded = np.pad(quantile, 1, mode="edge")
    return np.maximum(np.maximum(padded[:-2], padded[2:]), quantile)
