"""Integer laws given by their tail probabilities, enclosed between integers at any precision.

A tail is an iterator of pairs (lower, upper) with lower <= 2^precision q <= upper. ``above`` gives q = P(X > k) for k =
0, 1, ..., ``below`` gives q = P(X < -k) for k = 0, 1, .... Every q is positive and irrational (by Lindemann and
Weierstrass it is a non-constant rational function of powers of e with rational exponents), so that `threshold_tables`
can decide a floor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, TypeAlias

from topdown.noise.exact_numbers import enclose_exp

Enclosures: TypeAlias = Iterator[tuple[int, int]]


class Tails(Protocol):
    """A law on the integers; hashable, so that its thresholds can be cached."""

    def above(self, precision: int) -> Enclosures:
        """2^precision P(X > k) for k = 0, 1, ...; finite if the law is bounded above."""
        ...

    def below(self, precision: int) -> Enclosures:
        """2^precision P(X < -k) for k = 0, 1, ...; empty if the law is non-negative."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LaplaceBlocks:
    """floor(X / m), X discrete Laplace with pmf proportional to exp(-rate |x|), m = 2^block_bits.

    With a = exp(-rate): P(. > k) = a^(m(k+1)) / (1+a) and P(. < -k) = a^(mk+1) / (1+a). For m = 1 it is X
    itself.
    """

    rate: Fraction
    block_bits: int

    def above(self, precision: int) -> Enclosures:
        return self._powers(self.rate * (1 << self.block_bits), precision)

    def below(self, precision: int) -> Enclosures:
        return self._powers(self.rate, precision)

    def _powers(self, first: Fraction, precision: int) -> Enclosures:
        one = 1 << precision
        a_lower, a_upper = enclose_exp(self.rate, precision)
        step_lower, step_upper = enclose_exp(self.rate * (1 << self.block_bits), precision)
        q_lower, q_upper = enclose_exp(first, precision)
        q_lower = (q_lower << precision) // (one + a_upper)
        q_upper = -((-q_upper << precision) // (one + a_lower))
        while True:
            yield q_lower, q_upper
            q_lower = q_lower * step_lower >> precision
            q_upper = -(-q_upper * step_upper >> precision)


@dataclass(frozen=True, slots=True)
class GeometricDigit:
    """One digit in base 2^bits of a geometric variable: pmf proportional to exp(-rate d), 0 <= d < 2^bits."""

    rate: Fraction
    bits: int

    def above(self, precision: int) -> Enclosures:
        step_lower, step_upper = enclose_exp(self.rate, precision)
        w_lower = w_upper = 1 << precision
        weights = []
        for _ in range(1 << self.bits):
            weights.append((w_lower, w_upper))
            w_lower = w_lower * step_lower >> precision
            w_upper = -(-w_upper * step_upper >> precision)
        sums = _sums_beyond(weights, 0)
        return iter(_divide(sums, sums[0][0] + weights[0][0], sums[0][1] + weights[0][1], precision))

    def below(self, precision: int) -> Enclosures:
        return iter(())


@dataclass(frozen=True, slots=True)
class DiscreteNormal:
    """pmf proportional to exp(-x^2 / (2 sigma2)), on all integers or, ``one_sided``, on x >= 0."""

    sigma2: Fraction
    one_sided: bool = False

    def above(self, precision: int) -> Enclosures:
        one = 1 << precision
        ratio_lower, ratio_upper = enclose_exp(1 / (2 * self.sigma2), precision)
        step_lower, step_upper = enclose_exp(1 / self.sigma2, precision)
        w_lower = w_upper = one
        weights = []
        # 2^16 units are far more than the rounding error of the recursion and far less than the distance of any two
        # thresholds.
        while w_upper > 1 << 16:
            weights.append((w_lower, w_upper))
            w_lower = w_lower * ratio_lower >> precision
            w_upper = -(-w_upper * ratio_upper >> precision)
            ratio_lower = ratio_lower * step_lower >> precision
            ratio_upper = -(-ratio_upper * step_upper >> precision)
        # The ratios fall, so what is left is below a geometric series. It ends the list: that tail is far
        # below any floor's unit, and a reader stops at the first floor of 0.
        rest = -((-w_upper << precision) // max(1, one - ratio_upper))
        sums = _sums_beyond(weights, rest)
        sides = 1 if self.one_sided else 2
        divided = _divide(sums, one + sides * sums[0][0], one + sides * sums[0][1], precision)
        return iter(divided)

    def below(self, precision: int) -> Enclosures:
        return iter(()) if self.one_sided else self.above(precision)


def _sums_beyond(weights: list[tuple[int, int]], rest: int) -> list[tuple[int, int]]:
    """Sums of the weights after each one; without ``rest`` nothing follows the last, which gets no entry."""
    lower, upper = 0, rest
    sums = [(lower, upper)] if rest else []
    for w_lower, w_upper in reversed(weights[1:]):
        lower += w_lower
        upper += w_upper
        sums.append((lower, upper))
    return sums[::-1]


def _divide(tails: list[tuple[int, int]], lower: int, upper: int, precision: int) -> list[tuple[int, int]]:
    return [((q[0] << precision) // upper, -((-q[1] << precision) // lower)) for q in tails]
