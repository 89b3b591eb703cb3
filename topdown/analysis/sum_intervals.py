"""A sum or a share with its margin of error.

The interval of a sum of counts inverts a test of every possible true value; that of any other sum is symmetric; the set
of a share is Fieller's (Fieller 1954).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import FloatArray
from topdown.uncertainty.interval import interval
from topdown.uncertainty.laws.error_law import Shape

UNDETERMINED = "undetermined: every share from 0 to 1 is within the margin"
OF_ITSELF = "the part is the whole: the share is 1 whatever the counts are"
_SHARES = 2001
_LAWS_OF_SHARES = 9
_NEAR = 12.0
_ROUNDING = 1e-9


class Region(NamedTuple):
    """A sum, difference or share with its margin of error. In counts, or as a share.

    Attributes:
        estimate: the unbiased estimate; of a share the ratio of two of these.
        sd: its standard deviation.
        lower: the lower end of the interval.
        upper: the upper end of the interval.
        note: what the reader has to know about the number, in words; empty where there is nothing.

    Examples:
        >>> td.region(measurements, {"01": 1}, cell="unemployed", minus={"02": 1})._fields
        ('estimate', 'sd', 'lower', 'upper', 'note')
    """

    estimate: float
    sd: float
    lower: float
    upper: float
    note: str = ""


def sum_margin(
    estimate: float, variance: float, shape: Shape, weights: FloatArray, alpha: float, *, signed: bool
) -> Region:
    """The margin of the ``estimate`` of a sum of counts with these ``weights``, whose error has this ``variance``.

    ``shape``: of the law of its error. Where the sum may be negative (``signed``, or a negative weight) the interval is
    symmetric.
    """
    estimate += 0.0  # -0.0 becomes 0
    signed = signed or bool((weights < 0).any())
    if np.isinf(variance) or np.isnan(variance):
        return Region(estimate, np.inf, -np.inf if signed else 0.0, np.inf, "not determined by what was measured")
    sd = float(np.sqrt(max(variance, 0.0)))
    if sd <= _ROUNDING * max(float(np.abs(weights).max(initial=0.0)), abs(estimate)):
        exact = float(np.rint(estimate)) + 0.0 if _whole(weights) else estimate
        return Region(exact, 0.0, exact, exact, "exact")
    rule = interval(shape, alpha)
    if signed:
        lower, upper = estimate - rule.symmetric * sd, estimate + rule.symmetric * sd
    else:
        lower = float(rule.lower(np.array(estimate / sd))) * sd
        upper = float(rule.upper(np.array(estimate / sd))) * sd
    if _whole(weights):
        slack = _ROUNDING * max(1.0, abs(estimate))
        inward = float(np.ceil(lower - slack)) + 0.0, float(np.floor(upper + slack)) + 0.0
        lower, upper = inward if inward[0] <= inward[1] else (float(np.rint(estimate)),) * 2
    return Region(estimate, sd, lower, upper, "")


def _whole(weights: FloatArray) -> bool:
    return bool((weights == np.rint(weights)).all())


class Ratio(NamedTuple):
    """Two estimates, the ``part`` A and the ``whole`` B, with the variances of their errors and their covariance."""

    part: float
    whole: float
    of_part: float
    of_whole: float
    of_both: float


def fieller(ratio: Ratio, reach_at: Callable[[FloatArray], list[float]]) -> Region:
    """The margin of the share A / B: the set, cut to [0, 1].

    ``reach_at``: for shares, the half-length of the margin of A - share x B, in standard deviations.
    """
    part, whole, of_part, of_whole, of_both = ratio
    estimate = part / whole + 0.0 if whole > 0 else float("nan")  # -0.0 becomes 0
    # 0 where the whole is positive; undetermined where the whole is 0.
    if part == of_part == 0 and (whole != 0 or of_whole != 0):
        return Region(0.0, 0.0, 0.0, 0.0, "exact")
    if not np.isfinite([of_part, of_whole, of_both]).all():
        return Region(estimate, np.inf, 0.0, 1.0, UNDETERMINED)
    sd_of_share = float("inf")
    if whole > 0:
        sd_of_share = max(of_part - 2.0 * estimate * of_both + estimate**2 * of_whole, 0.0) ** 0.5 / whole
    shares = np.linspace(0.0, 1.0, _SHARES)
    if np.isfinite(sd_of_share):
        near = estimate + sd_of_share * np.linspace(-_NEAR, _NEAR, _SHARES)
        shares = np.unique(np.concatenate([shares, near[(near >= 0.0) & (near <= 1.0)]]))
    sd = np.sqrt(np.maximum(of_part - 2.0 * shares * of_both + shares**2 * of_whole, 0.0))
    some = np.linspace(0.0, 1.0, _LAWS_OF_SHARES)
    reach = np.interp(shares, some, reach_at(some))
    kept = np.abs(part - shares * whole) <= reach * sd + _ROUNDING
    if kept.all():
        return Region(estimate, sd_of_share, 0.0, 1.0, UNDETERMINED)
    if not kept.any():
        nearest = float(np.clip(estimate, 0.0, 1.0)) if whole > 0 else float(part > 0)
        return Region(estimate, sd_of_share, nearest, nearest, "no share from 0 to 1 is within the margin")
    # The hull of the shares that are kept, to the next point of the grid on either side.
    places = np.flatnonzero(kept)
    lower, upper = max(places[0] - 1, 0), min(places[-1] + 1, len(shares) - 1)
    ends = [_crossing(shares, np.abs(part - shares * whole) - reach * sd, k, m) for k, m in
            ((lower, places[0]), (upper, places[-1]))]  # fmt: skip
    return Region(estimate, sd_of_share, ends[0], ends[1], "")


def _crossing(shares: FloatArray, beyond: FloatArray, out: int, within: int) -> float:
    """The share, between two neighbouring ones, at which the excess over the margin (``beyond``) passes 0."""
    if out == within:
        return float(shares[within])
    part = beyond[within] / (beyond[within] - beyond[out])
    return float(shares[within] + np.clip(part, 0.0, 1.0) * (shares[out] - shares[within]))
