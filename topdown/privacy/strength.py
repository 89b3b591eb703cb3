"""What a budget is worth to the people in the table: where it is so large that it protects nobody."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topdown.privacy.plan import Plan


LARGE_EPSILON = 20.0
"""From this epsilon on, in all, whoever knows all other records need not guess."""

MOST_UNTOUCHED = 0.99
"""More than this part of a level's counts without noise is no protection."""


def untouched(plan: Plan, level: str, query: str, gain: Fraction = Fraction(1)) -> float:
    """The probability that a count of a level's query is published as it is, once it is rounded to a whole number.

    ``gain``: how many times its share the count has. Of the unbounded law; within bounds no count is moved more. 0
    where the level is not measured, or is invariant and called so.
    """
    if plan.is_exact(level, query) or plan.share(level, query) == 0:
        return 0.0
    law = plan.noise.law(plan.parameter(level, query) / gain, plan.grid_bits, continuous=False)
    # P(|X| < 1/2): a law of whole numbers has nothing between 0 and 1, a grid or a density is rounded.
    return 1.0 - 2.0 * float(law.sf(0.5))


def unprotected(plan: Plan, levels: Sequence[str], gains: Mapping[str, Fraction] | None = None) -> dict[str, float]:
    """The levels of which more than 99 % of the counts of some query would be published as they are, and how many.

    ``gains``: by level how many times its share a unit has at most, where single children's were moved up.
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
    """What an attacker learns at ``epsilon`` in all (of zero-concentrated privacy, at the plan's delta), from 20 up."""
    if epsilon < LARGE_EPSILON:
        return None
    wrong = math.exp(-epsilon)
    chance = f"once in {1 / wrong:,.0f}" if wrong > 1e-15 else "less than once in 10^15"
    return (
        f"epsilon = {epsilon:.6g} in all bounds nothing that matters: an attacker who knows all other records, and for "
        f"whom two records of one {plan.unit} (or none) are as likely as each other, may learn from the release which "
        f"it is and be wrong only {chance}"
        + ("" if plan.is_pure else f", beside delta = {plan.delta:g}")
        + "; an epsilon of a few units keeps that open"
    )


def in_words(plan: Plan, levels: Sequence[str], gains: Mapping[str, Fraction] | None = None) -> list[str]:
    """A sentence for every level whose counts are published as they are, though noise was drawn for them."""
    return [
        f"NOT PROTECTED: at level {level!r} the noise is 0 for {part:.4%} of the counts, so that true counts are "
        "published."
        for level, part in unprotected(plan, levels, gains).items()
    ]


def spent_on_sums(plan: Plan, levels: Sequence[str]) -> list[str]:
    """A sentence for every level above one that is published exactly: its counts are sums of exact ones."""
    exact = next(
        (level for level in reversed(levels) if all(plan.is_exact(level, q) for q in plan.queries(level))), None
    )
    above = levels[: levels.index(exact)] if exact is not None else []
    return [
        f"NOT PROTECTED: level {level!r} lies above level {exact!r}, which is published exactly: its counts are sums "
        "of published ones, and its share of the budget buys nothing."
        for level in above
        if any(plan.share(level, query) > 0 and not plan.is_exact(level, query) for query in plan.queries(level))
    ]
