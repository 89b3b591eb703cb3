"""What a level of counts costs whose noise is normalised on a set with gaps, and the exact scale that keeps its budget.

F is a set of whole numbers that is public, the intervals lo_1..hi_1 < lo_2..hi_2 < ...; a count s is drawn from the
double geometric law on F around s. With a = exp(-1/scale), L(s) and R(s) the sums of a^|k - s| over the k <= s and the
k > s of F, the normaliser C = L + R has C(s + 1) = a L + R/a, so that a count that grows by one loses

    ln p_s(k)/p_{s+1}(k) = ln(1 + (1/a^2 - 1) R/(L + R))   at most, over k in F,

whether s is in F or not: the guarantee holds for any table, also for one of which the set is not true. R/(L + R) falls
with s inside an interval and grows inside a gap, so that it is greatest at the first number of F or at the end of a
gap: the candidates. A count that falls by one is the mirror image. One record added or removed moves one count, up or
down: the larger of the two losses. One that changes moves one up and another one down: their sum. Far from every gap
both are 1/scale; within a wide gap either tends to 2/scale, Corollary 1's.

Source: Croft, Sack, Shi, "Differential Privacy Via a Truncated and Normalized Laplace Mechanism", Formulae 13 and 35,
on the integers.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from topdown.neighbours import COUNTS_MOVED
from topdown.noise.exact_numbers import enclose_exp
from topdown.privacy.bounds import WholePiece
from topdown.research.bounded.bounded_loss import PRECISION, least_that_holds

Pieces = tuple[WholePiece, ...]


def set_loss_bound(scale: Fraction, neighbours: str, pieces: Pieces) -> Fraction:
    """exp(the loss of a level), a proved upper bound within 2^-200 of it."""
    up = _worst_step(scale, pieces)
    down = _worst_step(
        scale, tuple((None if b is None else -b, None if a is None else -a) for a, b in reversed(pieces))
    )
    return max(up, down) if COUNTS_MOVED[neighbours] == 1 else up * down


def keeps_on_set(scale: Fraction, epsilon: Fraction, neighbours: str, pieces: Pieces) -> bool:
    """Whether noise of this scale on the set provably costs at most ``epsilon``; no rounding decides."""
    return set_loss_bound(scale, neighbours, pieces) <= Fraction(1 << PRECISION, enclose_exp(epsilon, PRECISION)[1])


@lru_cache(maxsize=1024)
def calibrated_scale_on_set(epsilon: Fraction, neighbours: str, pieces: Pieces) -> Fraction:
    """The smallest scale at which counts on the set keep ``epsilon``, rounded up to 13 digits and proved."""
    plain = COUNTS_MOVED[neighbours] / epsilon
    safe, unsafe = float(2 * plain), 0.0
    for _ in range(60):
        middle = 0.5 * (unsafe + safe)
        kept = middle > 0 and keeps_on_set(Fraction(middle), epsilon, neighbours, pieces)
        safe, unsafe = (middle, unsafe) if kept else (safe, middle)
    return Fraction(least_that_holds(Decimal(safe), lambda scale: keeps_on_set(scale, epsilon, neighbours, pieces)))


@lru_cache(maxsize=1024)
def charged_epsilon_on_set(scale: Fraction, neighbours: str, pieces: Pieces) -> Fraction:
    """The true loss of counts of this scale on the set, rounded up to 13 digits and proved."""
    bound = set_loss_bound(scale, neighbours, pieces)
    start = (Decimal(bound.numerator) / Decimal(bound.denominator)).ln()
    return Fraction(least_that_holds(start, lambda epsilon: keeps_on_set(scale, epsilon, neighbours, pieces)))


def _worst_step(scale: Fraction, pieces: Pieces) -> Fraction:
    """An upper bound of exp(the loss of a count that grows by one), over all counts."""
    one = 1 << PRECISION
    a_low = Fraction(enclose_exp(1 / scale, PRECISION)[0], one)
    first = pieces[0][0]
    # Inside an interval without a lower end both sides are whole geometric sums: 1/scale.
    candidates = [] if first is None else [first]
    candidates += [low - 1 for low, _ in pieces[1:] if low is not None]
    worst = Fraction(1) / a_low if first is None else Fraction(1)
    for count in candidates:
        right_low, right_high, left_low = 0, 0, 0
        for low, high in pieces:
            # Sums of a^distance times (1 - a), as differences of powers.
            if high is None or high > count:
                near = _power(scale, (low if low is not None and low > count else count + 1) - count)
                far = (0, 0) if high is None else _power(scale, high - count + 1)
                right_low, right_high = right_low + max(0, near[0] - far[1]), right_high + near[1] - far[0]
            if low is None or low <= count:
                near = _power(scale, count - (high if high is not None and high < count else count))
                far = (0, 0) if low is None else _power(scale, count - low + 1)
                left_low += max(0, near[0] - far[1])
        # Of R/(L + R) an upper bound: R as large, L as small as may be.
        share = Fraction(right_high, left_low + right_high) if right_high else Fraction(0)
        worst = max(worst, 1 + (1 / a_low**2 - 1) * share)
    return worst


def _power(scale: Fraction, distance: int) -> tuple[int, int]:
    return enclose_exp(distance / scale, PRECISION)
