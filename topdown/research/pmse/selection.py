"""Draw one of a few candidates by its score, exactly: the exponential mechanism and permute-and-flip.

Both draw from rational exponents x_k >= 0 and random bits; no floating-point number decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.noise import Source
from topdown.noise.exact_numbers import enclose_exp
from topdown.noise.randomness import uint64

_BATCH = 4096


def draw_exponential(exponents: Sequence[Fraction], source: Source) -> int:
    """k with probability exactly exp(-x_k) / sum of exp(-x_j): a uniform k is taken with probability exp(-x_k).

    ``exponents``: rational, not negative; subtract the least, since the expected number of attempts is the number of
    candidates over the sum of the exp(-x_k). Source of the law: McSherry, Talwar, "Mechanism Design via Differential
    Privacy".
    """
    enclosures = _Enclosures(exponents)
    while True:
        for k in _uniform(len(exponents), _BATCH, source).tolist():
            if enclosures.bernoulli(k, source):
                return int(k)


def draw_permute_and_flip(exponents: Sequence[Fraction], source: Source) -> int:
    """The first k, in a uniformly random order, that a coin with probability exp(-x_k) takes; one x_k must be 0.

    Never worse than the exponential mechanism in expectation, at the same epsilon. Source: McKenna, Sheldon,
    "Permute-and-Flip: A New Mechanism for Differentially Private Selection", Algorithm 1.
    """
    if min(exponents, default=1) != 0:
        raise ConfigError("permute-and-flip needs a candidate whose exponent is 0: subtract the least")
    enclosures = _Enclosures(exponents)
    waiting = list(range(len(exponents)))
    while True:
        place = int(_uniform(len(waiting), 1, source)[0])
        waiting[place], waiting[-1] = waiting[-1], waiting[place]
        k = waiting.pop()
        if enclosures.bernoulli(k, source):
            return k


def exponential_probabilities(exponents: Sequence[Fraction]) -> npt.NDArray[np.float64]:
    """The law of `draw_exponential`, in floating point: for tests and pictures."""
    weights = np.exp(-np.array([float(x) for x in exponents]))
    law: npt.NDArray[np.float64] = weights / weights.sum()
    return law


class _Enclosures:
    """Coins with probability exp(-x_k), thrown with as many bits as they need."""

    def __init__(self, exponents: Sequence[Fraction]) -> None:
        if not exponents or min(exponents) < 0:
            raise ConfigError("give at least one candidate, and exponents that are not negative")
        self._exponents = exponents
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def _bounds(self, k: int, bits: int) -> tuple[int, int]:
        if (k, bits) not in self._known:
            self._known[k, bits] = enclose_exp(self._exponents[k], bits)
        return self._known[k, bits]

    def bernoulli(self, k: int, source: Source) -> bool:
        """Whether a uniform number lies below exp(-x_k)."""
        bits, drawn = 0, 0
        while True:
            bits, drawn = bits + 64, drawn << 64 | int(uint64(source, 1)[0])
            lower, upper = self._bounds(k, bits)
            # The number lies in [drawn, drawn + 1) 2^-bits.
            if drawn < lower:
                return True
            if drawn >= upper:
                return False


def _uniform(n: int, count: int, source: Source) -> npt.NDArray[np.uint64]:
    """``count`` independent uniform integers in [0, n), from words of which the last incomplete round is refused."""
    limit = (1 << 64) - (1 << 64) % n
    kept: list[npt.NDArray[np.uint64]] = []
    while sum(map(len, kept)) < count:
        words = uint64(source, count)
        kept.append(words if limit == 1 << 64 else words[words < np.uint64(limit)])
    found: npt.NDArray[np.uint64] = np.concatenate(kept)[:count] % np.uint64(n)
    return found
