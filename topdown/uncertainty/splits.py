"""Weights of whole numbers: the weights of sums, and exact draws of the parts given the sum.

The sum of a family whose children have weights h_c(k) has the convolution h_1 * h_2 * ...; it is built in pairs, so
that a drawn sum can be divided between the two halves, and so on down to the children.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import FloatArray, IntArray

NEGLIGIBLE = 1e-18
"""Ends of weights below this part of the largest are cut off."""
_DIRECT = 1 << 22
"""Convolutions of more terms are computed by Fourier transforms, with rounding errors relative to the largest weight.
"""
_ROUNDING = 1e-13
_ROUNDS = 60


class Weights(NamedTuple):
    """Weights of the whole numbers ``first``, ``first`` + 1, ..., the largest of ``mass`` (values,) being 1."""

    first: int
    mass: FloatArray

    @property
    def last(self) -> int:
        """The last number that has a weight."""
        return self.first + len(self.mass) - 1

    def between(self, first: int, last: int) -> FloatArray:
        """The weights of ``first`` to ``last``, 0 where there are none."""
        found = np.zeros(last - first + 1)
        low, high = max(first, self.first), min(last, self.last)
        if low <= high:
            found[low - first : high - first + 1] = self.mass[low - self.first : high - self.first + 1]
        return found


def weights(first: int, mass: FloatArray, least: float = NEGLIGIBLE) -> Weights:
    """Weights scaled so that the largest is 1, without ends below ``least``. ``mass`` has an entry above 0."""
    largest = mass.max()
    kept = mass > least * largest
    low, high = int(kept.argmax()), len(mass) - int(kept[::-1].argmax())
    return Weights(first + low, mass[low:high] / largest)


def added(a: Weights, b: Weights) -> Weights:
    """The weights of the sum of two independent numbers."""
    if len(a.mass) * len(b.mass) <= _DIRECT:
        return weights(a.first + b.first, np.convolve(a.mass, b.mass))
    size = len(a.mass) + len(b.mass) - 1
    length = 1 << (size - 1).bit_length()
    product = np.fft.irfft(np.fft.rfft(a.mass, length) * np.fft.rfft(b.mass, length), length)[:size]
    return weights(a.first + b.first, np.maximum(product, 0.0), _ROUNDING)


class Merged(NamedTuple):
    """The sums of a family: ``layers`` with the weights of its children, of sums of two, of four, ... up to all."""

    layers: tuple[tuple[Weights, ...], ...]

    @property
    def total(self) -> Weights:
        """The weights of the sum of all."""
        return self.layers[-1][0]

    def divided(self, total: int, uniforms: FloatArray) -> IntArray:
        """The children's numbers (children,), drawn given that they add up to ``total``, which has a weight.

        ``uniforms`` (children - 1,) in [0, 1).
        """
        numbers, used = [total], 0
        for layer in self.layers[-2::-1]:
            parts: list[int] = []
            for k, number in enumerate(numbers):
                if 2 * k + 1 == len(layer):
                    parts.append(number)
                    continue
                first = _part(layer[2 * k], layer[2 * k + 1], number, float(uniforms[used]))
                parts += [first, number - first]
                used += 1
            numbers = parts
        return np.array(numbers, dtype=np.int64)


def merged(children: Sequence[Weights]) -> Merged:
    """The sums of ``children``, of whom there is at least one."""
    layers = [tuple(children)]
    while len(layers[-1]) > 1:
        below = layers[-1]
        pairs = [added(below[k], below[k + 1]) for k in range(0, len(below) - 1, 2)]
        layers.append((*pairs, *below[len(below) - len(below) % 2 :]))
    return Merged(tuple(layers))


def tilted(children: Sequence[Weights], target: float) -> tuple[list[Weights], float]:
    """Weights times exp(rate k), with the rate at which the mean of the sum is ``target``; and this rate. Draws given
    the sum do not change. A sum far from its mean, whose weight would be lost in rounding, then has a weight near 1.
    """
    rate, found = 0.0, list(children)
    for _ in range(_ROUNDS):
        mean, variance = 0.0, 0.0
        for one in found:
            part, k = one.mass / one.mass.sum(), np.arange(one.first, one.last + 1)
            mean += (centre := float(part @ k))
            variance += float(part @ (k - centre) ** 2)
        gap = target - mean
        if gap * gap <= variance or variance < 1e-9:
            break
        step = float(np.clip(gap / variance, -1.0 / variance**0.5, 1.0 / variance**0.5))
        rate += step
        found = [_times_exponential(one, rate) for one in children]
    return found, rate


def _times_exponential(one: Weights, rate: float) -> Weights:
    exponent = rate * np.arange(len(one.mass))
    with np.errstate(divide="ignore"):
        logarithm = np.log(one.mass) + exponent
    return weights(one.first, np.exp(logarithm - logarithm.max()))


def _part(a: Weights, b: Weights, total: int, uniform: float) -> int:
    """The part of ``a`` in a ``total`` of both."""
    low, high = max(a.first, total - b.last), min(a.last, total - b.first)
    of_b = b.mass[total - high - b.first : total - low - b.first + 1][::-1]
    below = np.cumsum(a.mass[low - a.first : high - a.first + 1] * of_b)
    return low + min(int(np.searchsorted(below, uniform * below[-1], side="right")), high - low)
