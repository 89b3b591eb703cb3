"""Intervals for one shape of law, in standard deviations: the true values that a test of each does not reject.

The test of a true value theta accepts x from theta - q(s alpha) to theta + q((1 - s) alpha). The intervals cover for
any choice of s(theta) in [0, 1], the lower tail's share of alpha. The choice here has the acceptance regions of least
probability under a prior for counts, which makes intervals short where the prior has its mass (Pratt 1961; Yu and Hoff,
Biometrika 105:319, "FAB").
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from topdown.geography.tree import FloatArray
from topdown.uncertainty.laws.error_law import Shape, tail

CAP_PART = 1.0 / 50.0
"""The part of alpha for the limit that a parent sets, where there is one."""
_POINTS, _POINT = 512, 1.0 / 16.0
SPIKE = 0.3
"""The prior's probability of an empty unit."""
SCALE = 4.0
"""The scale of the prior's half-Cauchy law for other units, in standard deviations."""
ALPHA = 0.1
"""The alpha for which s is optimal; it is used for every other alpha, too, which costs length but no coverage."""
TAPER = (8.0, 12.0)
"""Between these numbers of standard deviations s goes to 1/2, so that intervals of large counts are symmetric."""
_LAST, _STEP = 14.0, 0.05


class TailShare(NamedTuple):
    """``theta``: true values in standard deviations, in equal steps. ``below``: the share s of alpha there; 1/2
    beyond.
    """

    theta: FloatArray
    below: FloatArray


@lru_cache(maxsize=1)
def tail_share() -> TailShare:
    """s(theta) for normal errors of standard deviation 1 and the prior: SPIKE at 0, else half-Cauchy with SCALE.

    s(0) = 0: the test of 0 rejects no low estimate, so that 0 is in the interval of every small estimate.
    """
    theta: FloatArray = np.arange(round(_LAST / _STEP) + 1, dtype=np.float64) * _STEP
    x, below_x = _prior_predictive()
    s = np.linspace(0.0, 1.0, 4001)
    lower, upper = -ndtri(s * ALPHA), -ndtri((1.0 - s) * ALPHA)
    best = np.empty_like(theta)
    for k, truth in enumerate(theta):
        mass = np.interp(truth + upper, x, below_x) - np.interp(truth - lower, x, below_x)
        best[k] = s[np.argmin(mass)]
    best[0] = 0.0
    fall = np.clip((TAPER[1] - theta) / (TAPER[1] - TAPER[0]), 0.0, 1.0)
    found = TailShare(theta, 0.5 + (best - 0.5) * fall)
    for array in found:
        array.flags.writeable = False
    return found


def _prior_predictive() -> tuple[FloatArray, FloatArray]:
    """P(X <= x) of a noisy count X = theta + normal, theta from the prior, on a grid of x."""
    x = np.arange(-16.0, 40.0, 0.04)
    # The half-Cauchy law by the midpoints of its quantiles: theta = SCALE tan(pi p / 2).
    points = 1500
    theta = SCALE * np.tan(np.pi / 2.0 * (np.arange(points) + 0.5) / points)
    spread = np.zeros_like(x)
    for part in np.array_split(theta, 20):
        spread += ndtr(x[:, None] - part).sum(axis=1)
    return x, SPIKE * ndtr(x) + (1.0 - SPIKE) * spread / points


class Interval(NamedTuple):
    """The tests for one shape of law, in units of the standard deviation: the true values ``theta`` (points,) with the
    estimates from which (``enters``) and up to which (``leaves``) each is accepted; ``symmetric``, the half-length
    where s = 1/2; ``cap``, the excess of a true value over its estimate that has probability alpha / 50; ``log_p``
    (points,), the logarithm of P(X >= x) for x = 0, 1/16, ... .
    """

    theta: FloatArray
    enters: FloatArray
    leaves: FloatArray
    symmetric: float
    cap: float
    log_p: FloatArray

    def lower(self, x: FloatArray) -> FloatArray:
        """The least true value >= 0 that is accepted at the estimates ``x``."""
        found = np.interp(x, self.leaves, self.theta)
        return np.where(x > self.leaves[-1], x - self.symmetric, np.where(x < self.leaves[0], 0.0, found))

    def upper(self, x: FloatArray) -> FloatArray:
        """The greatest true value that is accepted at the estimates ``x``."""
        found = np.interp(x, self.enters, self.theta)
        return np.where(x > self.enters[-1], x + self.symmetric, found)

    def p_of_zero(self, x: FloatArray) -> FloatArray:
        """An upper bound of P(X >= x) where the true value is 0; 1 for x <= 0."""
        place = np.clip(x / _POINT, 0, _POINTS - 1)
        before = np.minimum(place.astype(np.int64), _POINTS - 2)
        part = place - before
        found = self.log_p[before] * (1.0 - part) + self.log_p[before + 1] * part
        return np.where(x <= 0, 1.0, np.exp(found))


@lru_cache(maxsize=8192)
def interval(shape: Shape, alpha: float) -> Interval:
    """The inversion of the tests of all true values theta: x is accepted from theta - q(s alpha) to theta + q((1 - s)
    alpha), with s(theta) of `tail_share` and q(p) the upper p-quantile of the law.

    Where a boundary is not monotone the interval is the hull of the accepted values.
    """
    law, share = tail(shape), tail_share()
    below, above = law.quantile(share.below * alpha), law.quantile((1.0 - share.below) * alpha)
    if law.has_steps:
        # Between two true values of the table the quantile may have a step; the larger of both is valid for all
        # between.
        below, above = _widest(below), _widest(above)
    enters = np.where(np.isinf(below), -1e12, share.theta - below)
    leaves = share.theta + above
    enters = np.minimum.accumulate(enters[::-1])[::-1]
    leaves = np.maximum.accumulate(leaves)
    symmetric, cap = law.quantile(np.array([alpha / 2.0, alpha * CAP_PART]))
    # Steps of the law stay steps: np.interp needs increasing abscissae, and takes any one of equal ones.
    steps = np.arange(len(enters)) * 1e-9
    log_p = law.at_least(np.arange(_POINTS) * _POINT)
    return Interval(share.theta, enters + steps, leaves + steps, float(symmetric), float(cap), log_p)


def _widest(quantile: FloatArray) -> FloatArray:
    """The largest of every entry and its neighbours."""
    padded = np.pad(quantile, 1, mode="edge")
    return np.maximum(np.maximum(padded[:-2], padded[2:]), quantile)
