"""Draws exactly from integer laws too wide for one table: a block number and a place inside the block.

With blocks of m = 2^j integers the block number has a scale of at most 128, which a table takes. For the
discrete Laplace the place is independent of the block and its binary digits are independent of each other.
For the discrete Gaussian the place is uniform and the pair is accepted or rejected, as in von Neumann's
method; almost all are accepted.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topdown.noise.exact.tails import DiscreteNormal, GeometricDigit, LaplaceBlocks
from topdown.noise.exact.threshold_tables import draw, draw_into, put, table
from topdown.noise.exact_numbers import enclose_exp
from topdown.noise.randomness import Source, read_exactly

# The undecided entries of a table increase with the scale; beyond this one, a second table is cheaper.
LARGEST_TABLE_SCALE = 128
_DIGIT_BITS = 8
# gamma below is computed in units of 2^-32 from the first 20 bits of the place.
_PLACE_BITS = 20


def block_bits(scale: Fraction) -> int:
    """The least j >= 0 with scale / 2^j <= 128."""
    j = 0
    while scale > LARGEST_TABLE_SCALE << j:
        j += 1
    return j


def draw_laplace(scale: Fraction, drawn: NDArray[Any], source: Source) -> None:
    """Fill ``drawn``, int16, int32 or int64, with draws of pmf proportional to exp(-|x| / scale), x integer.

    X >= 0 has probability 1/(1+a), a = exp(-1/scale), and X or, below zero, -1 - X is then geometric with pmf
    (1-a) a^g. Writing g in base m, its digits are independent, digit d at place value p having pmf
    proportional to a^(p d).
    """
    rate = 1 / scale
    bits = block_bits(scale)
    law = table(LaplaceBlocks(rate, bits))
    if not bits:
        draw_into(law, drawn, source)
        return
    block = draw(law, drawn.size, source)
    _refuse_overflow(block, bits)
    place = np.zeros(drawn.size, dtype=np.int64)
    for low in range(0, bits, _DIGIT_BITS):
        digit = GeometricDigit(rate * (1 << low), min(_DIGIT_BITS, bits - low))
        place |= draw(table(digit), drawn.size, source) << low
    # Below zero the geometric variable counts downwards from -1, so that its place is the complement.
    place ^= (block >> 63) & ((1 << bits) - 1)
    put(drawn, slice(None), (block << bits) | place)


def draw_gaussian(sigma2: Fraction, drawn: NDArray[Any], source: Source) -> None:
    """Fill ``drawn``, int16, int32 or int64, with draws of pmf proportional to exp(-x^2 / (2 sigma2)), x integer."""
    # The integer just above the root only chooses the block size, never a probability.
    bits = block_bits(Fraction(math.isqrt(sigma2.numerator // sigma2.denominator) + 1))
    if not bits:
        draw_into(table(DiscreteNormal(sigma2)), drawn, source)
        return
    done = 0
    while done < drawn.size:
        accepted = _propose(sigma2, bits, drawn.size - done, source)
        put(drawn, slice(done, done + accepted.size), accepted)
        done += accepted.size


def _propose(sigma2: Fraction, bits: int, count: int, source: Source) -> NDArray[np.int64]:
    """The accepted ones among ``count`` proposals.

    |x| = m Q + R: the block Q is drawn with weight exp(-(m Q)^2 / (2 sigma2)), the place R and the sign are uniform,
    and the pair is kept with probability exp(-gamma), gamma = ((m Q + R)^2 - (m Q)^2) / (2 sigma2). The pair of 0 and a
    minus sign is rejected, since 0 would be proposed twice as often.
    """
    block_sigma2 = sigma2 / (1 << 2 * bits)
    block = draw(table(DiscreteNormal(block_sigma2, one_sided=True)), count, source)
    _refuse_overflow(block, bits)
    word = np.dtype("<u2" if bits < 16 else "<u4" if bits < 32 else "<u8")
    random = np.frombuffer(read_exactly(source, word.itemsize * count), dtype=word).astype(np.uint64)
    place = (random & np.uint64((1 << bits) - 1)).astype(np.int64)
    negative = (random >> np.uint64(8 * word.itemsize - 1)).astype(bool)
    magnitude = (block << bits) | place
    keep = _bernoulli_exp(block, place, bits, block_sigma2, source)
    keep &= ~(negative & (magnitude == 0))
    return np.where(negative, -magnitude, magnitude)[keep]


def _bernoulli_exp(
    block: NDArray[np.int64], place: NDArray[np.int64], bits: int, block_sigma2: Fraction, source: Source
) -> NDArray[np.bool_]:
    """Bernoulli draws of probability exp(-gamma), gamma = (2 Q f + f^2) / (2 block_sigma2), f = place / 2^bits.

    32 bits of a uniform number against 1 - gamma <= exp(-gamma) <= 1 - gamma + gamma^2 / 2 in integers; what
    lies between the two, about gamma^2 / 2 of all, is decided one by one with as many bits as it takes.
    """
    first = np.frombuffer(read_exactly(source, 4 * block.size), dtype="<u4").astype(np.int64)
    # f in [f0, f1] / 2^20, hence (2Qf + f^2) 2^40 in [2^20 Q 2 f0 + f0^2, the same with f1].
    coarse = max(0, bits - _PLACE_BITS)
    f0 = place >> coarse << max(0, _PLACE_BITS - bits)
    f1 = f0 + (1 if coarse else 0)
    # Blocks this far out do not occur in practice; they are decided one by one, so that 64 bits suffice below.
    far = block >= 1 << 20
    q = np.where(far, 0, block) << (_PLACE_BITS + 1)
    # gamma 2^32 = numerator / (2^9 block_sigma2).
    divisor = 512 * block_sigma2
    gamma_lower = (q + f0) * f0 // -(-divisor.numerator // divisor.denominator)
    gamma_upper = (q + f1) * f1 // (divisor.numerator // divisor.denominator) + 1
    one = 1 << 32
    surely = first < one - gamma_upper
    # Above gamma = 1/2, which is very rare, the square would not fit into 64 bits.
    half = np.minimum(gamma_upper, one >> 1)
    surely_not = (gamma_upper == half) & (first > one - gamma_lower + (half * half >> 33))
    keep: NDArray[np.bool_] = surely & ~far
    for i in np.flatnonzero((~surely & ~surely_not) | far):
        f = Fraction(int(place[i]), 1 << bits)
        keep[i] = _below_exp(int(first[i]), (2 * int(block[i]) * f + f * f) / (2 * block_sigma2), source)
    return keep


def _below_exp(u: int, gamma: Fraction, source: Source) -> bool:
    """Whether the uniform number of first 32 bits ``u`` lies below exp(-gamma); fetches bits until decided."""
    if gamma == 0:
        return True
    bits = 32
    while True:
        lower, upper = enclose_exp(gamma, bits)
        if u < lower:
            return True
        if u >= upper:
            return False
        u = u << 64 | int.from_bytes(read_exactly(source, 8), "little")
        bits += 64


def _refuse_overflow(block: NDArray[np.int64], bits: int) -> None:
    limit = 1 << (62 - bits)
    if block.size and max(int(block.max()), -int(block.min())) >= limit:
        raise OverflowError("a draw does not fit into 64 bits: choose a smaller scale")
