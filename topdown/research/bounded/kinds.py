"""The kinds of bounds that plans of counts may ask for, which importing this adds to `BOUND_KINDS`.

"boundary-inflated"  noise is added and the sum clipped, which is post-processing and costs nothing.
"truncated"          the noisy count is drawn from the double geometric law around the count, conditioned on the bounds,
                     with the smallest scale that keeps the budget.
"normalized"         the same law on whole numbers, with the scale 2 sensitivity/epsilon of Croft, Sack, Shi, Corollary
                     1, which keeps the budget with room to spare.

Sources: Liu, "Statistical Properties of Sanitized Results from Differentially Private Laplace Mechanism with Univariate
Bounding Constraints", Definitions 2a and 2b; Croft, Sack, Shi, "Differential Privacy Via a Truncated and Normalized
Laplace Mechanism", Corollary 1.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topdown.noise.exact.discrete import DiscreteLaplace
from topdown.noise.law import Law
from topdown.noise.randomness import Source
from topdown.privacy.bounds import (
    BOUND_KINDS,
    CALIBRATED,
    UNCORRECTED,
    BoundKind,
    Counts,
    LevelBounds,
    WholePiece,
    plain_scale,
)
from topdown.research.bounded.bounded_loss import calibrated_scale, charged_epsilon, truncated_loss
from topdown.research.bounded.discrete_laplace import BoundaryInflatedDiscreteLaplace, TruncatedDiscreteLaplace
from topdown.research.bounded.set_loss import calibrated_scale_on_set, charged_epsilon_on_set, set_loss_bound
from topdown.research.bounded.whole_sets import NormalizedDiscreteLaplace, nearest_within, whole_pieces


def _truncated_scale(bounds: LevelBounds, budget: Fraction, neighbours: str) -> Fraction:
    if bounds.calibration == UNCORRECTED:
        return plain_scale(bounds, budget, neighbours)
    if len(bounds.pieces) > 1:
        return calibrated_scale_on_set(budget, neighbours, bounds.pieces)
    return calibrated_scale(budget, neighbours, _width(bounds))


def _normalized_scale(bounds: LevelBounds, budget: Fraction, neighbours: str) -> Fraction:
    return plain_scale(bounds, budget, neighbours) * (1 if bounds.calibration == UNCORRECTED else 2)


def _true_charge(bounds: LevelBounds, budget: Fraction, neighbours: str) -> Fraction:
    """The budget itself, or for an uncorrected scale the true loss."""
    if bounds.calibration == CALIBRATED:
        return budget
    scale = bounds.scale(budget, neighbours)
    if len(bounds.pieces) > 1:
        return charged_epsilon_on_set(scale, neighbours, bounds.pieces)
    return charged_epsilon(scale, neighbours, _width(bounds))


def _true_loss(bounds: LevelBounds, budget: Fraction, neighbours: str) -> float:
    scale = bounds.scale(budget, neighbours)
    if len(bounds.pieces) > 1:
        return math.log(set_loss_bound(scale, neighbours, bounds.pieces))
    return truncated_loss(float(scale), neighbours, _width(bounds))


def _width(bounds: LevelBounds) -> int | None:
    """Of one interval, from end to end: what truncation costs depends on nothing else. None where an end is not
    there."""
    low, high = bounds.pieces[0]
    return None if low is None or high is None else high - low


def _scale_of(noise: Law) -> Fraction:
    if not isinstance(noise, DiscreteLaplace):
        raise TypeError(f"{noise!r} has no bounded form; `Bounds.check` refuses its mechanism")
    return noise.scale


def _conditioned(
    bounds: LevelBounds, counts: Counts, noise: Law, size: tuple[int, ...], source: Source
) -> NDArray[Any]:
    scale = _scale_of(noise)
    if len(bounds.pieces) == 1:
        return np.asarray(TruncatedDiscreteLaplace(counts, scale, *bounds.pieces[0]).sample(size, source))
    return np.asarray(NormalizedDiscreteLaplace(counts, scale, bounds.pieces).sample(size, source))


def _clipped(bounds: LevelBounds, counts: Counts, noise: Law, size: tuple[int, ...], source: Source) -> NDArray[Any]:
    scale = _scale_of(noise)
    if len(bounds.pieces) == 1:
        return np.asarray(BoundaryInflatedDiscreteLaplace(counts, scale, *bounds.pieces[0]).sample(size, source))
    return _nearest(bounds, np.asarray(noise.sample(size, source)) + counts)


def _nearest(bounds: LevelBounds, counts: Counts) -> Counts:
    return nearest_within(counts, bounds.pieces)


def _spans(bounds: LevelBounds) -> str:
    return " or ".join(map(_span, bounds.pieces))


def _span(piece: WholePiece) -> str:
    low, high = piece
    if low is None:
        return "any number" if high is None else f"{high:,} or less"
    return f"{low:,} or more" if high is None else f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _in_words(bounds: LevelBounds, calibrated: str) -> str:
    how = f"drawn within {_spans(bounds)} by conditioning the noise on the bounds"
    if bounds.calibration == UNCORRECTED:
        return f"{how}, with the uncorrected textbook scale, which is charged its true loss"
    return f"{how}, with {calibrated}"


BOUNDARY_INFLATED = BoundKind(
    "boundary-inflated",
    sample=_clipped,
    nearest=_nearest,
    intervals=whole_pieces,
    words=lambda bounds: f"clipped to {_spans(bounds)}, which costs nothing",
)
TRUNCATED = BoundKind(
    "truncated",
    conditioned=True,
    scale=_truncated_scale,
    charge=_true_charge,
    loss=_true_loss,
    sample=_conditioned,
    nearest=_nearest,
    intervals=whole_pieces,
    words=lambda bounds: _in_words(bounds, "the scale at which that costs no more than the budget"),
)
NORMALIZED = BoundKind(
    "normalized",
    conditioned=True,
    scale=_normalized_scale,
    charge=_true_charge,
    loss=_true_loss,
    sample=_conditioned,
    nearest=_nearest,
    intervals=whole_pieces,
    words=lambda bounds: _in_words(bounds, "twice the textbook scale"),
)
BOUND_KINDS |= {kind.name: kind for kind in (BOUNDARY_INFLATED, TRUNCATED, NORMALIZED)}
