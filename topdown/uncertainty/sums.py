"""One sum with its margin of error: the test of every truth that a sum of counts may have, or of any number."""

from __future__ import annotations

import numpy as np

from topdown.geography.tree import FloatArray
from topdown.uncertainty.error_law import Shape
from topdown.uncertainty.interval import interval

_ROUNDING = 1e-9


def sum_margin(
    estimate: float, variance: float, shape: Shape, weights: FloatArray, alpha: float, *, signed: bool
) -> tuple[float, float, float, float, str]:
    """The ``estimate`` of a sum of counts with these ``weights``, its standard deviation, the ends of its interval, and
    what has to be known of it.

    ``shape``: of the law of its error. Where it may be negative (``signed``, or a weight is) the interval is symmetric.
    """
    estimate += 0.0  # -0.0 becomes 0
    if np.isinf(variance) or np.isnan(variance):
        return (estimate, np.inf, -np.inf if signed else 0.0, np.inf, "not determined by what was measured")
    sd = float(np.sqrt(max(variance, 0.0)))
    if sd <= _ROUNDING * max(float(np.abs(weights).max(initial=0.0)), abs(estimate)):
        exact = float(np.rint(estimate)) + 0.0 if _whole(weights) else estimate
        return (exact, 0.0, exact, exact, "exact")
    rule = interval(shape, alpha)
    if signed or (weights < 0).any():
        lower, upper = estimate - rule.symmetric * sd, estimate + rule.symmetric * sd
    else:
        lower = float(rule.lower(np.array(estimate / sd))) * sd
        upper = float(rule.upper(np.array(estimate / sd))) * sd
    if _whole(weights):
        slack = _ROUNDING * max(1.0, abs(estimate))
        inward = float(np.ceil(lower - slack)) + 0.0, float(np.floor(upper + slack)) + 0.0
        lower, upper = inward if inward[0] <= inward[1] else (float(np.rint(estimate)),) * 2
    return (estimate, sd, lower, upper, "")


def _whole(weights: FloatArray) -> bool:
    return bool((weights == np.rint(weights)).all())
