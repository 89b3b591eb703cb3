"""Fieller's set: which shares A / B are within the margin of what was estimated of A and B (Fieller 1954)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import FloatArray
from topdown.uncertainty.combination import Combination, Pivots, covariance, error_of, law_of_sum
from topdown.uncertainty.error_law import tail

UNDETERMINED = "undetermined: every share from 0 to 1 is within the margin"
_SHARES = 2001
_LAWS_OF_SHARES = 9
_NEAR = 12.0
_ROUNDING = 1e-9


class Ratio(NamedTuple):
    """Two estimates, the ``part`` A and the ``whole`` B, the variances of their errors, and the covariance."""

    part: float
    whole: float
    of_part: float
    of_whole: float
    of_both: float


def ratio_of(
    found: Combination, known: Pivots, part: float, whole: float, numbers: tuple[int, int, int], alpha: float
) -> tuple[float, float, float, float, str]:
    """`fieller` of two combinations.

    ``numbers``: of cells that both have, that A alone has, and that B alone has; their errors are independent with the
    same law.
    """
    spread = covariance(found, known)
    in_both, in_part, in_whole = numbers
    counted = np.array([in_both + in_part, in_both + in_whole, in_both])
    # What no cell is summed of is 0, also where nothing determines a cell.
    spreads = np.multiply(counted, spread[[0, 1, 0], [0, 1, 1]], out=np.zeros(3), where=counted > 0)
    ratio = Ratio(part, whole, *spreads.tolist())
    return fieller(ratio, lambda share: _reach(found, known, share, numbers, alpha))


def fieller(ratio: Ratio, reach_at: Callable[[float], float]) -> tuple[float, float, float, float, str]:
    """The estimate of the share A / B, its standard deviation, the ends of the set, cut to [0, 1], and what has to be
    known of it.

    ``reach_at``: of a share, how many of its standard deviations A - share x B stays within.
    """
    part, whole, of_part, of_whole, of_both = ratio
    estimate = part / whole + 0.0 if whole > 0 else float("nan")  # -0.0 becomes 0
    # None of anybody; of nobody it stays undetermined.
    if part == of_part == 0 and (whole != 0 or of_whole != 0):
        return (0.0, 0.0, 0.0, 0.0, "exact")
    if not np.isfinite([of_part, of_whole, of_both]).all():
        return (estimate, np.inf, 0.0, 1.0, UNDETERMINED)
    sd_of_share = float("inf")
    if whole > 0:
        sd_of_share = max(of_part - 2.0 * estimate * of_both + estimate**2 * of_whole, 0.0) ** 0.5 / whole
    shares = np.linspace(0.0, 1.0, _SHARES)
    if np.isfinite(sd_of_share):
        near = estimate + sd_of_share * np.linspace(-_NEAR, _NEAR, _SHARES)
        shares = np.unique(np.concatenate([shares, near[(near >= 0.0) & (near <= 1.0)]]))
    sd = np.sqrt(np.maximum(of_part - 2.0 * shares * of_both + shares**2 * of_whole, 0.0))
    some = np.linspace(0.0, 1.0, _LAWS_OF_SHARES)
    reach = np.interp(shares, some, [reach_at(share) for share in some.tolist()])
    kept = np.abs(part - shares * whole) <= reach * sd + _ROUNDING
    if kept.all():
        return (estimate, sd_of_share, 0.0, 1.0, UNDETERMINED)
    if not kept.any():
        nearest = float(np.clip(estimate, 0.0, 1.0)) if whole > 0 else float(part > 0)
        return (estimate, sd_of_share, nearest, nearest, "no share from 0 to 1 is within the margin")
    # The hull of what is kept, to the next point of the grid on either side.
    places = np.flatnonzero(kept)
    lower, upper = max(places[0] - 1, 0), min(places[-1] + 1, len(shares) - 1)
    ends = [_crossing(shares, np.abs(part - shares * whole) - reach * sd, k, m) for k, m in
            ((lower, places[0]), (upper, places[-1]))]  # fmt: skip
    return (estimate, sd_of_share, ends[0], ends[1], "")


def _crossing(shares: FloatArray, beyond: FloatArray, out: int, within: int) -> float:
    """Where what is ``beyond`` the margin passes 0 between two neighbouring shares."""
    if out == within:
        return float(shares[within])
    part = beyond[within] / (beyond[within] - beyond[out])
    return float(shares[within] + np.clip(part, 0.0, 1.0) * (shares[out] - shares[within]))


def _reach(found: Combination, known: Pivots, share: float, numbers: tuple[int, int, int], alpha: float) -> float:
    """The upper alpha / 2 quantile of A - share x B in its standard deviations."""
    mixes = np.array([[1.0, -share], [1.0, 0.0], [0.0, -share]])
    law = law_of_sum(
        [error_of(found, known, mix, number) for mix, number in zip(mixes, numbers, strict=True)], known.noise
    )
    return float(tail(law.shape).quantile(np.array([alpha / 2.0]))[0]) if law.variance > 0 else 0.0
