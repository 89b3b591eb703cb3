"""Warnings about budgets that are so large that they protect nobody."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topdown.privacy.plan import Plan


LARGE_EPSILON = 20.0
"""From this total epsilon on an attacker who knows all other records is nearly certain of the last one."""

MOST_UNTOUCHED = 0.99
"""A level with more than this part of its counts unchanged by noise is not protected."""


def untouched(plan: Plan, level: str, query: str, gain: Fraction = Fraction(1)) -> float:
    """The probability that noise leaves a count of a level's query unchanged after rounding to a whole number.

    ``gain``: how many times its share the count has. It is computed for the unbounded law; bounds never move a count
    further. 0 where the level is not measured or is invariant.
    """
    if plan.is_exact(level, query) or plan.share(level, query) == 0:
        return 0.0
    law = plan.noise.law(plan.parameter(level, query) / gain, plan.grid_bits, continuous=False)
    # P(|X| < 1/2): noise of an integer law is then 0, and noise on a grid or of a density is rounded to 0.
    return 1.0 - 2.0 * float(law.sf(0.5))


def unprotected(plan: Plan, levels: Sequence[str], gains: Mapping[str, Fraction] | None = None) -> dict[str, float]:
    """The levels at which noise leaves more than 99 % of the counts of some query unchanged, with that part.

    ``gains``: by level the largest multiple of its share that a unit has, where shares of single children were moved
    up.
    """
    most = gains or {}
    found = {
        level: max(
            (untouched(plan, level, query, most.get(level, Fraction(1))) for query in plan.queries(level)), default=0.0
        )
        for level in levels
    }
    return {level: part for level, part in found.items() if part > MOST_UNTOUCHED}


def large_budget(plan: Plan, epsilon: float) -> str | None:
    """A sentence on what an attacker may learn at a total ``epsilon`` of 20 or more (in zero-concentrated privacy, at
    the plan's delta); None below.
    """
    if epsilon < LARGE_EPSILON:
        return None
    wrong = math.exp(-epsilon)
    chance = f"once in {1 / wrong:,.0f}" if wrong > 1e-15 else "less than once in 10^15"
    return (
        f"a total epsilon of {epsilon:.6g} protects nobody: an attacker who knows all other records, and for whom two "
        f"records of one {plan.unit} (or its absence) are equally likely, may learn from the release which it is and "
        f"be wrong only {chance}"
        + ("" if plan.is_pure else f", beside delta = {plan.delta:g}")
        + "; an epsilon of a few units protects against that"
    )


def in_words(plan: Plan, levels: Sequence[str], gains: Mapping[str, Fraction] | None = None) -> list[str]:
    """A sentence for every level whose counts noise leaves nearly all unchanged."""
    return [
        f"NOT PROTECTED: at level {level!r} the noise is 0 for {part:.4%} of the counts, so that true counts are "
        "published."
        for level, part in unprotected(plan, levels, gains).items()
    ]


def spent_on_sums(plan: Plan, levels: Sequence[str]) -> list[str]:
    """A sentence for every level above one that is published exactly, since its counts are sums of exact counts."""
    exact = next(
        (
            level
            for level in reversed(levels)
            if plan.queries(level) and all(plan.is_exact(level, q) for q in plan.queries(level))
        ),
        None,
    )
    above = levels[: levels.index(exact)] if exact is not None else []
    return [
        f"NOT PROTECTED: level {level!r} lies above level {exact!r}, which is published exactly: its counts are sums "
        "of exact counts, and its share of the budget is wasted."
        for level in above
        if any(plan.share(level, query) > 0 and not plan.is_exact(level, query) for query in plan.queries(level))
    ]
