"""Feasible sets with gaps, and the constant scale that the normalised Laplace law needs on them.

A constraint is a forbidden open span (low, high); an end is None or infinite for a span without an end. The feasible
set F is the complement, a union of closed intervals. Source: Croft, Sack, Shi, "Differential Privacy Via a Truncated
and Normalized Laplace Mechanism". With one scale b for all locations the worst output is the location itself, so that a
pair of locations s, s' loses exactly |s - s'|/b + ln(C(s')/C(s)), where C(s) is the Laplace mass around s within F.

There are two guarantees, by name:

* ``"adjacent"`` is epsilon-differential privacy: locations at most ``sensitivity`` apart lose at most epsilon.
* ``"metric"`` is what the paper proves: any two locations s, s' lose at most epsilon |s - s'| / sensitivity. It
  implies the first one and takes a larger scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np

from topdown.errors import ConfigError
from topdown.noise.parameters import FloatArray, positive, scales

Guarantee = Literal["adjacent", "metric"]
Piece = tuple[float, float]
Constraints = Sequence[tuple[float | None, float | None]]


def forbidden_spans(constraints: Constraints) -> tuple[Piece, ...]:
    """The constraints in order; overlapping and touching ones are merged, and None is written as an infinity.

    Raises ConfigError for a span whose ends are not in order, for nan, and where nothing is feasible.
    """
    spans: list[Piece] = []
    for constraint in constraints:
        try:
            low, high = constraint
            span = (-np.inf if low is None else float(low), np.inf if high is None else float(high))
        except (TypeError, ValueError):
            raise ConfigError(
                f"constraint {constraint!r}: give a pair (low, high), None for an end at infinity"
            ) from None
        if not span[0] < span[1]:
            raise ConfigError(f"constraint {constraint!r}: give low < high")
        spans.append(span)
    merged: list[Piece] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    if merged and merged[0] == (-np.inf, np.inf):
        raise ConfigError("constraints: they forbid every number; leave an interval free")
    return tuple(merged)


def feasible_pieces(constraints: Constraints) -> tuple[Piece, ...]:
    """The closed intervals of the feasible set, from left to right; ends may be infinite."""
    spans = forbidden_spans(constraints)
    lows = [-np.inf, *(high for _, high in spans)]
    highs = [*(low for low, _ in spans), np.inf]
    return tuple((low, high) for low, high in zip(lows, highs, strict=True) if low < high)


def piece_masses(location: FloatArray, scale: FloatArray, pieces: Sequence[Piece]) -> tuple[FloatArray, FloatArray]:
    """Twice the Laplace mass of each piece to the left and to the right of the location, shape (2, pieces, ...).

    Sums of positive terms (Croft, Sack, Shi, Formulae 4 and 5, for the mass within the set), because 1 - L - R would
    lose the digits of a small mass.
    """
    left, right = [], []
    for low, high in pieces:
        left.append(_mass(location - np.minimum(high, location), location - np.minimum(low, location), scale))
        right.append(_mass(np.maximum(low, location) - location, np.maximum(high, location) - location, scale))
    return np.array(left), np.array(right)


def uniform_loss(
    scale: float, constraints: Constraints, sensitivity: float, *, guarantee: Guarantee = "metric"
) -> float:
    """The smallest epsilon that the normalised law with this constant scale keeps, in the sense of ``guarantee``.

    ``"metric"``: the largest slope of |s' - s|/b + ln C(s') at the ends of the pieces, times ``sensitivity``
    (Formula 35 in both directions; Formula 37 follows from it). ``"adjacent"``: the supremum of |s - s'|/b +
    ln(C(s')/C(s)) over feasible s, s' at most ``sensitivity`` apart, found exactly: the loss grows as s and s' move
    apart, so that they are either ``sensitivity`` apart or stopped by a gap each; C is concave on a piece, and
    across a gap the stationary points solve a quadratic.

    Args:
        scale: above 0, in units of the statistic.
        constraints: forbidden open spans ``(low, high)``, as of `NormalizedLaplace`.
        sensitivity: above 0, in units of the statistic.
        guarantee: "metric" or "adjacent".

    Raises ConfigError for a scale or sensitivity that is not positive, and for an unknown guarantee.

    Examples:
        >>> round(td.noise.uniform_loss(2.0, [(0.0, 10.0)], 1.0), 3)
        0.993
    """
    check_guarantee(guarantee)
    b, reach = float(scales(scale)), positive("sensitivity", sensitivity)
    pieces = feasible_pieces(constraints)
    mirrored = tuple((-high, -low) for low, high in reversed(pieces))
    loss = _steepest if guarantee == "metric" else _worst_pair
    return max(loss(pieces, b, reach), loss(mirrored, b, reach))


def uniform_scale(
    constraints: Constraints, epsilon: float, sensitivity: float, *, guarantee: Guarantee = "metric"
) -> float:
    """The constant scale at which the normalised Laplace law keeps epsilon on the feasible set.

    ``guarantee="metric"`` (the paper's) gives the smallest b with Formula 35 at every border, in both directions:
    sensitivity/epsilon without constraints, exactly 2 sensitivity/epsilon with any infinite span (Corollary 1), in
    between for finite ones (Theorems 2 and 3). ``guarantee="adjacent"`` asks for epsilon-differential privacy alone
    and gives a smaller b at which :func:`uniform_loss` is epsilon; on an interval it is
    :func:`topdown.noise.calibrate`.

    Args:
        constraints: forbidden open spans ``(low, high)``, as of `NormalizedLaplace`.
        epsilon: above 0.
        sensitivity: above 0, in units of the statistic.
        guarantee: "metric" or "adjacent".

    Raises ConfigError for constraints that leave nothing and for a sensitivity that is not positive, BudgetError for
    such an epsilon.

    Examples:
        >>> round(td.noise.uniform_scale([(0.0, 10.0)], 1.0, 1.0), 3)
        1.987
    """
    check_guarantee(guarantee)
    from scipy.optimize import brentq

    budget, reach = positive("epsilon", epsilon), positive("sensitivity", sensitivity)
    spans = forbidden_spans(constraints)
    if not spans:
        return reach / budget
    if guarantee == "metric" and (spans[0][0] == -np.inf or spans[-1][1] == np.inf):
        return 2.0 * reach / budget

    def excess(ratio: float) -> float:
        return uniform_loss(ratio * reach / budget, spans, reach, guarantee=guarantee) / budget - 1.0

    # C(s') <= exp(|s - s'|/b) C(s) on any feasible set, so that twice sensitivity/epsilon always suffices. Less
    # than once does where no two feasible locations are a whole sensitivity apart.
    low = 1.0
    while excess(low) <= 0.0:
        low *= 0.5
    return float(brentq(excess, low, 2.0, xtol=1e-15, rtol=1e-15)) * reach / budget


def _steepest(pieces: Sequence[Piece], b: float, reach: float) -> float:
    # Moving right is worst at the left end of an interval, since C is log-concave on it.
    ends = np.array([low for low, _ in pieces if np.isfinite(low)])
    if ends.size == 0:
        return reach / b
    left, right = (masses.sum(axis=0) for masses in piece_masses(ends, np.array(b), pieces))
    return max(reach / b, reach / b * float(np.max(2.0 * right / (left + right))))


def _worst_pair(pieces: Sequence[Piece], b: float, reach: float) -> float:
    pairs = np.array([*_candidate_pairs(pieces, b, reach), (0.0, 0.0)])[:-1]
    if len(pairs) == 0:
        return reach / b
    kept = np.log(sum(masses.sum(axis=0) for masses in piece_masses(pairs.T, np.array(b), pieces)))
    return float(np.max((pairs[:, 1] - pairs[:, 0]) / b + kept[1] - kept[0]))


def _candidate_pairs(pieces: Sequence[Piece], b: float, reach: float) -> Iterator[tuple[float, float]]:
    """Pairs (s, s') with s <= s' that contain the worst pair to the right."""
    for i, (low, high) in enumerate(pieces):
        for low_to, high_to in pieces[i:]:
            if high_to - low <= reach:
                yield low, high_to
            start, stop = max(low, low_to - reach), min(high, high_to - reach)
            if start > stop or (start == -np.inf and stop == np.inf):
                continue
            if start == -np.inf:
                yield stop, stop + reach
                continue
            yield start, start + reach
            if (low, high) != (low_to, high_to):
                yield stop, stop + reach
                for s in _stationary(start, pieces, b, reach):
                    if start < s < stop:
                        yield s, s + reach


def _stationary(start: float, pieces: Sequence[Piece], b: float, reach: float) -> Iterator[float]:
    """Where C(s + reach)/C(s) is stationary: with x = exp((s - start)/b) both are (x - L - R x^2)/x."""
    masses = piece_masses(np.array([start, start + reach]), np.array(b), pieces)
    (left, left_to), (right, right_to) = (0.5 - 0.5 * m.sum(axis=0) for m in masses)
    quadratic = [right - right_to, 2.0 * (right_to * left - left_to * right), left_to - left]
    for root in np.roots(quadratic):
        if abs(root.imag) <= 1e-12 * abs(root) and root.real > 1.0:
            yield start + b * float(np.log(root.real))


def _mass(near: FloatArray, far: FloatArray, scale: FloatArray) -> FloatArray:
    """exp(-near/scale) - exp(-far/scale) for 0 <= near <= far <= inf."""
    with np.errstate(invalid="ignore"):
        width = np.where(near < far, far - near, 0.0)
    mass: FloatArray = np.exp(-near / scale) * -np.expm1(-width / scale)
    return mass


def check_guarantee(guarantee: str) -> None:
    """Raises ConfigError for a guarantee other than ``"adjacent"`` and ``"metric"``."""
    if guarantee not in get_args(Guarantee):
        raise ConfigError(f"guarantee {guarantee!r}: give 'adjacent' or 'metric'")
