"""Of errors that are sums of much independent noise the shapes of their laws: the largest parts exactly, and a rest.

As many parts are taken exactly, the largest first, as leave a rest of little excess whose draws are small beside it: a
rest that the normal-Laplace law of its two moments is close to. An error whose parts' steps are lost in each other, and
that has no excess, is normal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topdown.geography.tree import FloatArray, IntArray
from topdown.uncertainty.groups import Groups, Spread, groups, pitches
from topdown.uncertainty.known_noise import KnownNoise
from topdown.uncertainty.moments import MainTerms

_MOST_PARTS = 64
_SAME = 1e-6
"""Coefficients that differ by this part are the same."""
_LEAST_PART = 1e-6
"""Of the variance: what is smaller is within a thousandth of a standard deviation."""
_REGULAR_EXCESS = 0.5
_ROUNDING = 1e-12
_NORMAL_EXCESS = 0.02
"""Of an error's law: a normal law then misses within .0002 of nominal."""
_HARMLESS_STEPS = 0.004
"""Steps of this height, in standard deviations, move a miss rate by 3e-4."""


class Parts(NamedTuple):
    """Independent parts of errors, each (parts,): error ``of`` has the sum of ``number`` draws of noise of a ``kind``,
    times ``coefficient``.
    """

    of: IntArray
    kind: IntArray
    number: IntArray
    coefficient: FloatArray

    @classmethod
    def together(cls, some: list[Parts]) -> Parts:
        """All of them."""
        none = np.empty(0, np.int64)
        of, kind, number, coefficient = zip(cls(none, none, none, np.empty(0)), *some, strict=True)
        return cls(np.concatenate(of), np.concatenate(kind), np.concatenate(number), np.concatenate(coefficient))

    def at(self, places: IntArray) -> Parts:
        """Some of them."""
        return Parts(self.of[places], self.kind[places], self.number[places], self.coefficient[places])


def shapes_of(parts: Parts, variance: FloatArray, noise: KnownNoise, cumulant: FloatArray | None = None) -> Groups:
    """The shapes of the laws of errors with this ``variance`` (errors,), which are made of ``parts`` of ``noise``, and
    where these lack some of it of a normal rest. ``cumulant`` (errors,): the fourth, by default that of the parts.
    """
    known = (variance > 0) & np.isfinite(variance)
    unit = np.where(known, variance, 1.0)
    if cumulant is None:
        cumulant = np.bincount(parts.of, _cumulants(parts, noise), len(variance)).astype(np.float64)
    large = known[parts.of] & (_variances(parts, noise) > _LEAST_PART * unit[parts.of])
    main = _merged(parts.at(np.flatnonzero(large)))
    main = main.at(np.lexsort((-_variances(main, noise), main.of)))
    explained = _variances(main, noise)
    rank = np.arange(len(main.of)) - np.searchsorted(main.of, main.of)
    shape = (int(rank.max(initial=-1)) + 1, len(variance))

    def table(column: FloatArray) -> FloatArray:
        found = np.zeros(shape)
        found[rank, main.of] = column
        return found

    part = table(explained / unit[main.of])
    fourth = table(_cumulants(main, noise) / unit[main.of] ** 2)
    pitch = table(main.coefficient * pitches(noise)[main.kind] / np.sqrt(unit[main.of]))
    excess = cumulant / unit**2
    is_normal = (excess < _NORMAL_EXCESS) & (_largest_step(part, pitch) < _HARMLESS_STEPS)
    needed = np.where(is_normal, 0, np.clip(_needed(part, fourth, pitch, excess), 1, _MOST_PARTS))
    kept = rank < needed[main.of]
    shape = (max(1, int(needed.max(initial=0))), len(variance))
    terms = MainTerms(np.zeros(shape, np.int64), np.ones(shape, np.int64), np.zeros(shape), np.zeros(shape))
    for into, column in zip(terms, (main.kind, main.number, main.coefficient, explained), strict=True):
        into[rank[kept], main.of[kept]] = column[kept]
    return groups(Spread(variance, np.where(is_normal, 0.0, cumulant)), terms, noise, fine=True)


def _variances(parts: Parts, noise: KnownNoise) -> FloatArray:
    return np.asarray(parts.number * parts.coefficient**2 * noise.variances[parts.kind])


def _cumulants(parts: Parts, noise: KnownNoise) -> FloatArray:
    return np.asarray(parts.number * parts.coefficient**4 * noise.cumulants[parts.kind])


def _merged(parts: Parts) -> Parts:
    """The parts, those of one error whose draws are alike as one; coefficients without their signs."""
    if not len(parts.of):
        return parts
    coefficient = np.abs(parts.coefficient)
    size = np.rint(np.log(coefficient) / _SAME).astype(np.int64)
    order = np.lexsort((size, parts.kind, parts.of))
    keys = np.stack([parts.of, parts.kind, size])[:, order]
    starts = np.flatnonzero(np.diff(keys, axis=1, prepend=-1).any(axis=0))
    found, number = parts.at(order[starts]), np.add.reduceat(parts.number[order], starts)
    return found._replace(number=number, coefficient=coefficient[order[starts]])


def _needed(part: FloatArray, fourth: FloatArray, pitch: FloatArray, excess: FloatArray) -> IntArray:
    """How many parts of every error (errors,) are to be exact, from those of the variance, of the excess, and the
    distances of their values, all (parts x errors), in deviations."""
    none = np.zeros((1, part.shape[1]))
    rest = np.maximum(1.0 - np.cumsum(np.concatenate([none, part]), axis=0), 0.0)
    left = np.maximum(excess - np.cumsum(np.concatenate([none, fourth]), axis=0), 0.0)
    widest = np.maximum.accumulate(np.concatenate([pitch, none])[::-1], axis=0)[::-1]
    regular = (left <= _REGULAR_EXCESS * rest**2 + _ROUNDING) & (widest <= np.sqrt(rest) + _ROUNDING)
    regular[-1] = True
    return np.asarray(np.argmax(regular, axis=0))


def _largest_step(part: FloatArray, pitch: FloatArray) -> FloatArray:
    """About how high the steps (errors,) are that are left in the law: a lattice's pitch times exp(-2 pi^2 s^2 /
    pitch^2), s^2 being the variance of all whose values lie at most half as far apart."""
    found = np.zeros(part.shape[1])
    for own in pitch[:_MOST_PARTS]:
        if own.max() < _HARMLESS_STEPS:  # it cannot be higher than its pitch
            continue
        smooth = np.maximum(1.0 - np.where(pitch > 0.5 * own, part, 0.0).sum(axis=0), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = own * np.exp(-2.0 * np.pi**2 * smooth / own**2)
        found = np.fmax(found, step)
    return found
