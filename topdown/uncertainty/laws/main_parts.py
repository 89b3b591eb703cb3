"""The shapes of the laws of errors that are sums of independent noise: the largest parts exactly, and a rest.

So many parts are taken exactly, the largest first, that the rest has little excess and consists of small draws: the
normal-Laplace law of its two moments is then close to it. An error whose parts smooth each other's steps, and that has
no excess, is normal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from topdown.geography.tree import FloatArray, IntArray
from topdown.uncertainty.laws.error_law import LEAST_STEP, is_wide_gaussian, steps
from topdown.uncertainty.laws.error_moments import MainTerms
from topdown.uncertainty.laws.known_noise import KnownNoise
from topdown.uncertainty.laws.shared_laws import ErrorSpread, LawGroups, groups, pitches

_MOST_PARTS = 64
_SAME = 1e-6
"""Coefficients with a smaller relative difference are equal."""
_LEAST_PART = 1e-6
"""Smaller parts of the variance are left out: their standard deviation is below a thousandth of the whole."""
_REGULAR_EXCESS = 0.5
_ROUNDING = 1e-12
_NORMAL_EXCESS = 0.02
"""Up to this excess a normal law has miss rates within .0002 of nominal."""


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
        """The parts of several as one."""
        none = np.empty(0, np.int64)
        of, kind, number, coefficient = zip(cls(none, none, none, np.empty(0)), *some, strict=True)
        return cls(np.concatenate(of), np.concatenate(kind), np.concatenate(number), np.concatenate(coefficient))

    def at(self, places: IntArray) -> Parts:
        """The parts at some places."""
        return Parts(self.of[places], self.kind[places], self.number[places], self.coefficient[places])


def shapes_of(parts: Parts, variance: FloatArray, noise: KnownNoise, cumulant: FloatArray | None = None) -> LawGroups:
    """The shapes of the laws of errors with this ``variance`` (errors,), which are sums of ``parts`` of ``noise`` and,
    where these have less variance, of a normal rest. ``cumulant`` (errors,): the fourth, by default that of the parts.
    """
    known = (variance > 0) & np.isfinite(variance)
    unit = np.where(known, variance, 1.0)
    parts = _within(parts, unit, noise)
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
    drawn = np.maximum(table(main.number.astype(np.float64)), 1.0)
    gaussian = np.array([float(law is not None and is_wide_gaussian(law)) for law in noise.laws])
    wide = table(gaussian[main.kind]) > 0
    step = steps(part, pitch, drawn, wide, _MOST_PARTS)
    is_normal = (excess < _NORMAL_EXCESS) & (step.max(axis=0, initial=0.0) < LEAST_STEP)
    needed = np.where(is_normal, 0, np.clip(_needed(part, fourth, step, excess), 1, _MOST_PARTS))
    kept = rank < needed[main.of]
    shape = (max(1, int(needed.max(initial=0))), len(variance))
    terms = MainTerms(np.zeros(shape, np.int64), np.ones(shape, np.int64), np.zeros(shape), np.zeros(shape))
    for into, column in zip(terms, (main.kind, main.number, main.coefficient, explained), strict=True):
        into[rank[kept], main.of[kept]] = column[kept]
    return groups(ErrorSpread(variance, np.where(is_normal, 0.0, cumulant)), terms, noise, fine=True)


def _within(parts: Parts, variance: FloatArray, noise: KnownNoise) -> Parts:
    """The parts, scaled down where those of an error have more than its variance.

    For nodes that no sum touches only the mean of their covariances is known, which is too large for measured nodes
    whose siblings were not measured.
    """
    found = np.bincount(parts.of, _variances(parts, noise), len(variance))
    share = np.divide(variance, found, out=np.ones_like(variance), where=found > variance)
    return parts._replace(coefficient=parts.coefficient * np.sqrt(share)[parts.of])


def _variances(parts: Parts, noise: KnownNoise) -> FloatArray:
    return np.asarray(parts.number * parts.coefficient**2 * noise.variances[parts.kind])


def _cumulants(parts: Parts, noise: KnownNoise) -> FloatArray:
    return np.asarray(parts.number * parts.coefficient**4 * noise.cumulants[parts.kind])


def _merged(parts: Parts) -> Parts:
    """The parts, with equal ones of an error merged; coefficients without their signs."""
    if not len(parts.of):
        return parts
    coefficient = np.abs(parts.coefficient)
    size = np.rint(np.log(coefficient) / _SAME).astype(np.int64)
    order = np.lexsort((size, parts.kind, parts.of))
    keys = np.stack([parts.of, parts.kind, size])[:, order]
    starts = np.flatnonzero(np.diff(keys, axis=1, prepend=-1).any(axis=0))
    found, number = parts.at(order[starts]), np.add.reduceat(parts.number[order], starts)
    return found._replace(number=number, coefficient=coefficient[order[starts]])


def _needed(part: FloatArray, fourth: FloatArray, step: FloatArray, excess: FloatArray) -> IntArray:
    """How many parts of every error are taken exactly (errors,), from each part's share of the variance, of the excess,
    and the steps that it causes; all (parts x errors).
    """
    none = np.zeros((1, part.shape[1]))
    rest = np.maximum(1.0 - np.cumsum(np.concatenate([none, part]), axis=0), 0.0)
    left = np.maximum(excess - np.cumsum(np.concatenate([none, fourth]), axis=0), 0.0)
    highest = np.maximum.accumulate(np.concatenate([step, none])[::-1], axis=0)[::-1]
    regular = (left <= _REGULAR_EXCESS * rest**2 + _ROUNDING) & (highest < LEAST_STEP)
    regular[-1] = True
    return np.asarray(np.argmax(regular, axis=0))
