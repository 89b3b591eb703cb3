"""The privacy loss of one bounded statistic on a grid with truncated noise, and the exact scale that keeps its budget.

In units of the grid the statistic is a whole number s from 0 to the width D, and a neighbour's differs by at most K.
With noise of the double geometric law of scale b, truncated to 0..D, and a = exp(-1/b), the worst pair is (0, K):

    loss = K/b + ln(1 + a (1 - a^K)(1 - a^(D - K)) / (1 - a^(D + 1))),

:func:`topdown.noise.privacy_loss` of the geometric law. Source: as of :mod:`topdown.research.bounded.calibration`.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from topdown.noise.exact_numbers import enclose_exp
from topdown.research.bounded.bounded_loss import PRECISION, least_that_holds
from topdown.research.bounded.calibration import calibrate


def keeps_on_grid(scale: Fraction, epsilon: Fraction, reach: int, width: int) -> bool:
    """Whether truncated noise of this scale (in steps of the grid) provably loses at most ``epsilon``.

    ``reach``: the largest difference to a neighbour's statistic; ``width``: of the bounds; both in steps. Decided by
    integers.
    """
    moved = min(reach, width)
    rest = epsilon - moved / scale
    if rest < 0:
        return False
    one = 1 << PRECISION

    def power(steps: int) -> tuple[Fraction, Fraction]:
        low, high = enclose_exp(steps / scale, PRECISION)
        return Fraction(low, one), Fraction(high, one)

    least = 1 - power(width + 1)[1]
    if least <= 0:
        return False
    excess = power(1)[1] * (1 - power(moved)[0]) * (1 - power(width - moved)[0]) / least
    return 1 + excess <= Fraction(one, enclose_exp(rest, PRECISION)[1])


@lru_cache(maxsize=256)
def calibrated_scale_on_grid(epsilon: Fraction, reach: int, width: int) -> Fraction:
    """The smallest scale, in steps of the grid, that keeps ``epsilon``, rounded up to 13 digits and verified."""
    plain = Fraction(min(reach, width)) / epsilon
    if keeps_on_grid(plain, epsilon, reach, width):
        return plain
    start = Decimal(float(calibrate(float(epsilon), reach, 0, width, law="geometric"))) * (1 - Decimal(10) ** -12)
    return Fraction(least_that_holds(start, lambda scale: keeps_on_grid(scale, epsilon, reach, width)))
