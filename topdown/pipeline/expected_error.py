"""How far from the truth a release's numbers will be, level by level, by the plan alone: no count is looked at."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from topdown.geography.geography import Geography
from topdown.noise import Law
from topdown.privacy.only_child import variances
from topdown.privacy.plan import Plan
from topdown.projection.equality import least_squares_variance
from topdown.wording import unquoted

_NORMAL = 1.959964
"""The quantile of 97.5 % of the normal law."""


def expected_errors(plan: Plan, geography: Geography) -> Iterator[str]:
    """One line per level, root first: the error that 95 % of its measured counts stay within, and what least squares
    over all levels makes of it, for the level's median unit (normal law of its exact variance).

    ``plan``: one that measures the cells themselves, as `measurable` gives it. A non-negative projection is biased
    upwards where counts are small, which `topdown study` shows; within bounds the errors are those of unbounded noise.
    """
    variance = np.empty(geography.n_nodes)
    for level in geography.levels:
        variance[geography.level_slice(level)] = variances(plan, geography, level)
    projected = least_squares_variance(variance, geography.tree)
    for level in geography.levels:
        law = plan.law(level)
        deviation = math.sqrt(float(np.median(projected[geography.level_slice(level)])))
        if plan.is_exact(level) or deviation == 0:
            yield f"error     {unquoted(level)}: none, published exactly"
            continue
        measured = "not measured" if law is None else f"95 % of measured counts within {_within(law):,} of the truth"
        yield f"error     {unquoted(level)}: {measured}; by least squares within {_NORMAL * deviation:,.1f}"


def _within(law: Law) -> int:
    """The smallest whole number that 95 % of the draws do not pass."""
    most = 1
    while 2 * float(law.sf(most)) > 0.05:
        most *= 2
    least = 0
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if 2 * float(law.sf(middle)) <= 0.05 else (middle + 1, most)
    return least
