"""The door: confidential counts go in, protected measurements come out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from topdown.counts import Counts
from topdown.errors import BudgetError, CountsError
from topdown.measurements import Measurements
from topdown.noise import DiscreteLaplace, SecureSource, Source
from topdown.noise.exact import LARGEST_WHOLE
from topdown.privacy.plan import Plan
from topdown.privacy.shares import DETAILED
from topdown.wording import shown

_LARGEST_STANDARD_DEVIATION = 2.0**45
"""Noise of this size still stays below 2^53, with a probability of failure that cannot be met."""


_DEVIATIONS = 50.0
"""No draw of the laws here is this many standard deviations away with a probability that can be met."""


def measurable(plan: Plan, levels: Iterable[str]) -> Plan:
    """``plan`` for a geography with these levels, equal shares filled in, after making sure that it can be measured.

    Raises `BudgetError` when the plan and the levels disagree, when a share belongs to a query other than "detailed"
    (it would be accounted for and not spent), or when the noise would not fit a float64.
    """
    plan = plan.for_levels(levels)
    for level, query in plan.shares or ():
        if query != DETAILED:
            raise BudgetError(
                f"level {shown(level)} gives a share to query {shown(query)}, and only {DETAILED!r} is measured; give "
                "the level its whole share"
            )
        law = plan.law(level)
        if law is not None and law.variance > _LARGEST_STANDARD_DEVIATION**2:
            raise BudgetError(
                f"level {shown(level)}: noise with a standard deviation of {law.variance**0.5:.3g} does not fit whole "
                "numbers up to 2^53; give the level a larger budget, or a share of 0 to leave it out"
            )
    return plan


def require_room(counts: Counts, plan: Plan) -> None:
    """Refuse counts so near to 2^53 that their noisy values, or sums of these, might pass it. ``plan``: `measurable`.

    Raises `CountsError`, before anything is drawn: afterwards the budget would be spent on numbers that float64 cannot
    hold.
    """
    geography = counts.geography
    noise = sum(
        float(plan.variance(level)) * (geography.level_slice(level).stop - geography.level_slice(level).start)
        for level in geography.levels
        if np.isfinite(plan.variance(level))
    )
    room = LARGEST_WHOLE - int(counts.values[0].max(initial=0))
    if room < _DEVIATIONS * noise**0.5:
        raise CountsError(
            f"{geography.describe(0)}: the total is so near to 2^53 that with noise (standard deviations of "
            f"{noise**0.5:.3g} in all) it may pass it; count in larger units or split the table"
        )


def measure(counts: Counts, plan: Plan, source: Source | None = None) -> Measurements:
    """Every count plus independent noise of its level's law under ``plan``; invariant levels exactly.

    Draws are exact and on the integers (or on a grid of 2^-k for "laplace" and "gaussian"); where the plan bounds a
    level, they depend on the count and stay within its bounds. ``source``: where the
    random bits come from, by default operating-system entropy; a seeded source gives measurements that are marked as
    not fit for release. Raises `BudgetError` as `measurable` does, `CountsError` as `require_room` does.
    """
    source = SecureSource() if source is None else source
    geography = counts.geography
    plan = measurable(plan, geography.levels)
    require_room(counts, plan)
    laws = {level: plan.law(level, DETAILED) for level in geography.levels}
    whole = plan.released_grid_bits == 0
    values = np.zeros((len(counts.cells), geography.n_nodes), np.int64 if whole else np.float64)
    variance = np.empty(geography.n_nodes)
    for level, law in laws.items():
        nodes = geography.level_slice(level)
        variance[nodes] = plan.variance(level, DETAILED)
        if law is None:
            if level in plan.invariants:
                values[:, nodes] = counts.values[nodes].T
            continue
        shape = (len(counts.cells), nodes.stop - nodes.start)
        exact, bounds = counts.values[nodes].T, plan.bounds.at(level)
        if isinstance(law, DiscreteLaplace):
            values[:, nodes] = bounds.sample(exact, law, shape, source)
        else:
            drawn = law.sample(shape, source)
            drawn += exact
            values[:, nodes] = drawn
    return Measurements(geography, counts.cells, values.T, variance, plan, source.fit_for_release)
