"""Nodes that share the law of their errors: leaves with the same noise, and nodes whose pivots have nearly the same
shape.

Leaves of one family with the same law of noise have the same law of errors, so that one represents all; and nodes of
one shape share one table of the law. So margins for all nodes need few laws.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray
from topdown.noise.law import pitch_of
from topdown.uncertainty.laws.error_law import Shape, Term

if TYPE_CHECKING:
    from topdown.uncertainty.laws.error_moments import MainTerms, Moments
    from topdown.uncertainty.laws.known_noise import KnownNoise

FEW_NODES = 2000
"""Trees of no more nodes have tables of laws of their own for nearly every node; in larger ones similar nodes share
them."""

_STEPS_OF_LOGIT = {True: 1e-4, False: 0.05}
_STEPS_OF_EXCESS = {True: 1e-3, False: 0.02}
"""The steps to which the excess is rounded; fine where there are few nodes."""
_LOGIT_ENDS = (-15.0, 18.0)
_LARGEST_EXCESS = 1e4
_LEAST_PART = {True: 0.02, False: 0.1}
_LEAST_STEP, _LEAST_PART_OF_STEPS = 0.01, 1e-6
"""A further term with a smaller part of the variance is left in the rest, unless its values lie further apart."""


_NODES_AT_ONCE = 1 << 18


class LawGroups(NamedTuple):
    """``shapes`` of laws, and for every node the number of its ``group`` (nodes,); -1 without noise, or where it is not
    determined.
    """

    shapes: tuple[Shape, ...]
    group: npt.NDArray[np.int32]


class ErrorSpread(NamedTuple):
    """The ``variance`` and the fourth ``cumulant`` of errors, both (errors,)."""

    variance: FloatArray
    cumulant: FloatArray


def pitches(noise: KnownNoise) -> FloatArray:
    """The distance between the possible values of every kind of noise (kinds,); 0 for a continuous law."""
    return np.array([0.0 if law is None else pitch_of(law) for law in noise.laws])


def groups(found: Moments | ErrorSpread, terms: MainTerms, noise: KnownNoise, *, fine: bool | None = None) -> LawGroups:
    """Groups of errors, mostly of nodes, with the same kinds and numbers of main terms, nearly the same parts of the
    variance, and nearly the same excess of the rest.

    ``fine``: by default for up to 2,000 errors. Otherwise only the first term is a main one, parts are rounded in the
    logit (to 1/40, finer towards 0 and 1), and the excess to 2 % of 1 + excess: a miss rate changes by less than 2e-4.
    """
    noisy = np.flatnonzero((found.variance > 0) & np.isfinite(found.variance))
    fine = len(found.variance) <= FEW_NODES if fine is None else fine
    group = np.full(len(found.variance), -1, np.int32)
    known: dict[int, int] = {}
    shapes: list[Shape] = []
    for begin in range(0, len(noisy), _NODES_AT_ONCE):
        nodes = noisy[begin : begin + _NODES_AT_ONCE]
        columns = _rounded(found, terms, noise, nodes, fine=fine)
        keys, first, which = np.unique(mixed(columns), return_index=True, return_inverse=True)
        for key, place in zip(keys.tolist(), first.tolist(), strict=True):
            if key not in known:
                known[key] = len(shapes)
                shapes.append(_shape(columns[:, place].tolist(), noise, fine=fine))
        numbers = np.array([known[key] for key in keys.tolist()], np.int32)
        group[nodes] = numbers[which.reshape(-1)]
    return LawGroups(tuple(shapes), group)


def _rounded(
    found: Moments | ErrorSpread, terms: MainTerms, noise: KnownNoise, nodes: IntArray, *, fine: bool
) -> IntArray:
    """Whole numbers that describe the laws of ``nodes``: nodes with the same numbers are of one group."""
    kept = len(terms.kind) if fine else 1
    kind, number, coefficient, explained = (column[:kept, nodes] for column in terms)
    spread = found.variance[nodes]
    part = np.clip(explained / spread, 0.0, 1.0)
    # The size of a step of a draw: a smooth rest would hide the steps of the law.
    stepped = np.abs(coefficient) * pitches(noise)[kind] >= _LEAST_STEP * np.sqrt(spread)
    least = np.where(stepped, _LEAST_PART_OF_STEPS, _LEAST_PART[fine])
    part[1:] = np.where((part < least)[1:] | (part[0] >= 1.0 - 1e-8), 0.0, part[1:])
    rest = np.maximum(1.0 - part.sum(axis=0), 0.0)
    taken = np.where(part > 0, number * coefficient**4 * noise.cumulants[kind], 0.0).sum(axis=0)
    kurtosis = np.maximum(found.cumulant[nodes] - taken, 0.0) / spread**2
    excess = np.divide(kurtosis, rest**2, out=np.zeros_like(rest), where=rest > 1e-8)
    logit = _logit(part)
    place = np.stack([kind, number, np.rint(logit / _STEPS_OF_LOGIT[fine])]).astype(np.int64)
    place[:2, part <= 0] = 0
    last = np.rint(np.log1p(np.minimum(excess, _LARGEST_EXCESS)) / _STEPS_OF_EXCESS[fine]).astype(np.int64)
    return np.concatenate([place.swapaxes(0, 1).reshape(3 * kept, -1), last[None]])


def mixed(columns: IntArray) -> IntArray:
    """A hash of every column of whole numbers; two different columns have the same with a probability of 2^-64."""
    found = np.zeros(columns.shape[1], np.uint64)
    for row in columns:
        found = (found ^ row.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
    return found.view(np.int64)


def _logit(part: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        found: FloatArray = np.clip(np.log(part) - np.log1p(-part), *_LOGIT_ENDS)
    return found


def _shape(place: list[int], noise: KnownNoise, *, fine: bool) -> Shape:
    terms, left = [], 1.0
    for kind, number, logit in zip(place[:-1:3], place[1:-1:3], place[2:-1:3], strict=True):
        law = noise.laws[kind]
        place_of_part = logit * _STEPS_OF_LOGIT[fine]
        if number == 0 or law is None or place_of_part <= _LOGIT_ENDS[0]:
            continue
        part = left if place_of_part >= _LOGIT_ENDS[1] else min(1.0 / (1.0 + math.exp(-place_of_part)), left)
        if part > 0:
            terms.append(Term(law, number, part))
            left -= part
    return Shape(tuple(terms), math.expm1(place[-1] * _STEPS_OF_EXCESS[fine]))
