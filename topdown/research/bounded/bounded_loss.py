"""The privacy loss of one level of truncated counts, and the exact scale that keeps its budget.

The counts of a level belong to disjoint cells of nodes; each is a whole number, at least 0 and, optionally, at most a
public number U. With noise of the truncated double geometric law of scale b
(:class:`topdown.noise.TruncatedDiscreteLaplace`) a count that changes by 1 loses 1/b, and, if it starts at a bound,
also

    x = ln(1 + a (1 - a)(1 - q)/(1 - a^2 q)),   a = exp(-1/b),   q = exp(-(U - 1)/b),   q = 0 without U,

which is :func:`topdown.noise.privacy_loss` with sensitivity 1. Adding or removing one person changes one count: 1/b +
x. Changing one person increases one count and decreases another; the first loses x only at 0, the second only at U: 2/b
+ x without U, 2/b + 2x with it. A single count of sensitivity 2 would lose more.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from topdown.neighbours import COUNTS_MOVED
from topdown.noise.exact_numbers import enclose_exp
from topdown.research.bounded.calibration import privacy_loss

PRECISION = 256
DIGITS = Context(prec=13, rounding=ROUND_CEILING)


def truncated_loss(scale: float, neighbours: str, upper: int | None = None) -> float:
    """The exact epsilon of a level of truncated counts, to floating-point precision."""
    moved = COUNTS_MOVED[neighbours]
    meets = _bounds_met(neighbours, upper)
    one = float(privacy_loss(scale, 1, 0, upper, law="geometric"))
    return (moved - meets) / scale + meets * one


def keeps(scale: Fraction, epsilon: Fraction, neighbours: str, upper: int | None = None) -> bool:
    """Whether truncated noise of this scale provably loses at most ``epsilon``.

    Decided by integers that enclose the exponentials, so that rounding has no influence; False within 2^-250 of
    equality.
    """
    rest = epsilon - COUNTS_MOVED[neighbours] / scale
    if rest < 0:
        return False
    if upper == 1:
        return True
    one = 1 << PRECISION
    a_low, a_high = (Fraction(end, one) for end in enclose_exp(1 / scale, PRECISION))
    q_low, q_high = Fraction(0), Fraction(0)
    if upper is not None:
        q_low, q_high = (Fraction(end, one) for end in enclose_exp((upper - 1) / scale, PRECISION))
    room = 1 - a_high**2 * q_high
    if room <= 0:
        return False
    most = 1 + a_high * (1 - a_low) * (1 - q_low) / room
    return most ** _bounds_met(neighbours, upper) <= Fraction(one, enclose_exp(rest, PRECISION)[1])


@lru_cache(maxsize=1024)
def calibrated_scale(epsilon: Fraction, neighbours: str, upper: int | None = None) -> Fraction:
    """The smallest scale at which truncated counts keep ``epsilon``, rounded up to 13 digits, verified by `keeps`."""
    plain = COUNTS_MOVED[neighbours] / epsilon
    if keeps(plain, epsilon, neighbours, upper):
        return plain
    # exp(|s - s'|/b) bounds the ratio of the normalisers on any bounds, so that twice the plain scale suffices.
    unsafe, safe = float(plain), 2.0 * float(plain)
    for _ in range(60):
        middle = 0.5 * (unsafe + safe)
        if truncated_loss(middle, neighbours, upper) <= float(epsilon):
            safe = middle
        else:
            unsafe = middle
    return Fraction(least_that_holds(Decimal(safe), lambda scale: keeps(scale, epsilon, neighbours, upper)))


@lru_cache(maxsize=1024)
def charged_epsilon(scale: Fraction, neighbours: str, upper: int | None = None) -> Fraction:
    """The true loss of truncated counts of this scale, rounded up to 13 digits and verified by `keeps`."""
    plain = COUNTS_MOVED[neighbours] / scale
    if keeps(scale, plain, neighbours, upper):
        return plain
    loss = Decimal(truncated_loss(float(scale), neighbours, upper))
    return Fraction(least_that_holds(loss, lambda epsilon: keeps(scale, epsilon, neighbours, upper)))


def _bounds_met(neighbours: str, upper: int | None) -> int:
    """The number of bounds at which the counts of one step may start at the same time."""
    return 1 if upper is None else COUNTS_MOVED[neighbours]


def least_that_holds(start: Decimal, holds: Callable[[Fraction], bool]) -> Decimal:
    """The first number of 13 digits, from ``start`` on, for which ``holds`` is true."""
    value = DIGITS.plus(start)
    while not holds(Fraction(value)):
        value = DIGITS.next_plus(value)
    return value
