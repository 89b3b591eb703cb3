"""Measuring the privacy of a bounded law instead of trusting its proof: log ratios on a grid of pairs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from topdown.errors import ConfigError
from topdown.noise.parameters import FloatArray, positive, real_numbers
from topdown.research.bounded.constraints import Constraints, Guarantee, Piece, check_guarantee, feasible_pieces
from topdown.research.bounded.normalized import NormalizedLaplace

# Of pairs closer than this fraction of the sensitivity the rounding of the log ratio, not the law, sets the slope.
_CLOSEST = 1e-4
# Outputs on an infinite piece reach this many scales out; wide enough for the flaw of a location-dependent scale.
_TAIL_SCALES = 60.0


def worst_log_ratio(
    scale: float | Callable[[FloatArray], ArrayLike],
    constraints: Constraints,
    sensitivity: float,
    *,
    guarantee: Guarantee = "adjacent",
    locations: ArrayLike | None = None,
    outputs: ArrayLike | None = None,
) -> float:
    """The largest epsilon that a grid of pairs of locations and of outputs shows for the normalised Laplace law.

    ``"adjacent"``: the largest ln p_s(y)/p_s'(y) over locations s, s' at most ``sensitivity`` apart. ``"metric"``: over
    all pairs, the log ratio times sensitivity/|s - s'|. A lower bound of the true loss, close to it on the default
    grid: 80 locations per feasible piece with its ends, each with partners one sensitivity away; outputs at the
    locations and up to 60 scales out. Above the claimed epsilon (by more than rounding, 1e-9) the claim is refuted: so
    it is for the naive scale sensitivity/epsilon next to a constraint, and for a scale that depends on the location.

    Args:
        scale: one number, or a function from locations to scales.
        constraints: forbidden open spans ``(low, high)``, as of `NormalizedLaplace`.
        sensitivity: above 0, in units of the statistic.
        guarantee: "adjacent" or "metric".
        locations: the locations that are tried; by default a grid.
        outputs: the outputs that are tried; by default a grid.

    Raises ConfigError for an unknown guarantee, and for locations inside forbidden spans.

    Examples:
        >>> round(td.noise.worst_log_ratio(2.0, [(-np.inf, 0.0)], 1.0), 3)
        0.832
    """
    check_guarantee(guarantee)
    reach = positive("sensitivity", sensitivity)
    pieces = feasible_pieces(constraints)
    at = _locations(pieces, reach) if locations is None else np.unique(real_numbers("locations", locations))
    if at.size < 2:
        raise ConfigError(f"locations: {at.size} given; a ratio needs two or more")
    scales = np.broadcast_to(np.asarray(scale(at) if callable(scale) else scale, dtype=np.float64), at.shape)
    law = NormalizedLaplace(at[:, None], scales[:, None], constraints)
    seen = _outputs(at, float(scales.max()), pieces, reach) if outputs is None else real_numbers("outputs", outputs)
    log_density = np.asarray(law.logpdf(seen))
    log_density = log_density[:, np.isfinite(log_density).all(axis=0)]
    worst = -np.inf
    for position, row in zip(at, log_density, strict=True):
        distance = np.abs(at - position)
        ratio = (row - log_density).max(axis=1)
        if guarantee == "adjacent":
            compared = (distance > 0.0) & (distance <= reach * (1.0 + 1e-12))
        else:
            compared = distance >= _CLOSEST * reach
            ratio = ratio * reach / np.where(compared, distance, 1.0)
        worst = max(worst, float(ratio[compared].max(initial=-np.inf)))
    return worst


def _locations(pieces: Sequence[Piece], reach: float) -> FloatArray:
    grid: list[FloatArray] = []
    # Steps this small off the ends show the steepest slope to within a percent.
    steps = reach * np.array([0.001, 0.01, 0.1, 0.5])
    for start, stop in _windows(pieces, reach):
        grid += [np.linspace(start, stop, 40), np.clip(start + steps, start, stop), np.clip(stop - steps, start, stop)]
    base = np.concatenate(grid)
    candidates = np.unique(np.concatenate([base, base + reach, base - reach]))
    return candidates[_feasible(candidates, pieces)]


def _outputs(at: FloatArray, widest: float, pieces: Sequence[Piece], reach: float) -> FloatArray:
    # With one scale the log ratio is constant beyond both locations, so that ends and tails show the worst output; a
    # scale that varies shows in the tails.
    inner = [np.linspace(start, stop, 25) for start, stop in _windows(pieces, reach)]
    tail = widest * np.geomspace(0.1, _TAIL_SCALES, 40)
    candidates = np.concatenate([*inner, at[0] - tail, at[[0, -1]], at[-1] + tail])
    return candidates[_feasible(candidates, pieces)]


def _windows(pieces: Sequence[Piece], reach: float) -> list[Piece]:
    """The pieces, infinite ones cut ten sensitivities from their end."""
    windows = []
    for low, high in pieces:
        start = low if np.isfinite(low) else (high - 10.0 * reach if np.isfinite(high) else -5.0 * reach)
        windows.append((start, high if np.isfinite(high) else start + 10.0 * reach))
    return windows


def _feasible(points: FloatArray, pieces: Sequence[Piece]) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.asarray(np.any([(low <= points) & (points <= high) for low, high in pieces], axis=0))
