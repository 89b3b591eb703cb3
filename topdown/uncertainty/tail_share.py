"""Which part of the chance of missing lies below: short intervals where counts are small, with the same coverage.

An interval inverts a test of every truth theta, which accepts x from theta - q(s alpha) to theta + q((1 - s) alpha).
Any share s(theta) in [0, 1] covers; here it is the one whose acceptance regions have the least probability under a
prior of what counts are, which makes intervals short where the prior has its mass (Pratt 1961; Yu and Hoff, Biometrika
105:319, "FAB").
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from topdown.geography.tree import FloatArray

SPIKE = 0.3
"""The prior's probability of an empty unit."""
SCALE = 4.0
"""The scale of the half-Cauchy law of the others, in standard deviations."""
ALPHA = 0.1
"""The chance of missing for which the share is best; it is used for every other, which costs length and no coverage."""
TAPER = (8.0, 12.0)
"""From the first number of standard deviations on the share falls to 1/2, where it is at the second: intervals of large
counts are symmetric."""
_LAST, _STEP = 14.0, 0.05


class TailShare(NamedTuple):
    """``theta``: truths in standard deviations, in equal steps. ``below``: the share s of alpha there; 1/2 beyond."""

    theta: FloatArray
    below: FloatArray


@lru_cache(maxsize=1)
def tail_share() -> TailShare:
    """s(theta) for normal errors of deviation 1 and the prior SPIKE at 0, half-Cauchy of SCALE else.

    s(0) = 0: at an empty unit everything low is accepted, so that 0 stays in the interval of every small number.
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
    # The half-Cauchy law by its quantiles' midpoints: theta = SCALE tan(pi p / 2).
    points = 1500
    theta = SCALE * np.tan(np.pi / 2.0 * (np.arange(points) + 0.5) / points)
    spread = np.zeros_like(x)
    for part in np.array_split(theta, 20):
        spread += ndtr(x[:, None] - part).sum(axis=1)
    return x, SPIKE * ndtr(x) + (1.0 - SPIKE) * spread / points
