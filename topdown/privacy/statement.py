"""The guarantee in words, precise enough to be quoted and checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from topdown.neighbours import IN_WORDS
from topdown.privacy.accounting import ExactEvent
from topdown.privacy.guarantees import Guarantee, LevelGuarantee, Loss

if TYPE_CHECKING:
    from topdown.privacy.plan import Plan


def describe_plan(plan: Plan, statement: Guarantee, levels: Sequence[str] | None) -> str:
    """What is protected, by how much in total and at every level, and what is not protected.

    ``levels``: those of the geography, root first; None where they are not known.
    """
    lines = [
        *_what_is_protected(plan),
        *_how_much(plan, statement),
        "",
        "By level:" if levels is None else "By level, root first:",
        *[_level_line(plan, level) for level in statement.levels],
        *_not_measured(plan),
        *_bounded(plan, statement),
        *_only_children(plan),
        *_another_record(statement),
        *_another_place(statement, levels),
        *_not_protected(statement),
    ]
    return "\n".join(lines)


def _what_is_protected(plan: Plan) -> list[str]:
    neighbours = IN_WORDS[plan.neighbours].format(unit=plan.unit)
    noise = plan.noise.words.format(bits=plan.grid_bits)
    squared = plan.sensitivity_squared
    return [
        f"Protected: each {plan.unit}. Two tables are neighbours ({plan.neighbours}) if {neighbours}.",
        f"Mechanism: {plan.mechanism}, {noise}, independent for every count. One {plan.unit} changes the counts "
        f"of a level by L1 = {plan.sensitivity}, L2 = {'1' if squared == 1 else f'sqrt {squared}'}.",
    ]


def _how_much(plan: Plan, statement: Guarantee) -> list[str]:
    covered = "the noisy measurements and everything computed from them alone"
    if plan.is_pure:
        total = statement.total.epsilon
        assert total is not None  # nosec B101 # narrows a type: pure plans have an epsilon
        return [
            f"Total: epsilon = {number_in_words(total)} (pure differential privacy). For neighbouring tables and every "
            f"set of outputs, the probabilities under one and the other differ by a factor of at most e^epsilon = "
            f"{_factor(total)}. This covers {covered}."
        ]
    approx = statement.total.approx
    assert approx is not None  # nosec B101 # narrows a type: Gaussian plans have the conversion
    return [
        f"Total: rho = {number_in_words(plan.total)} (zero-concentrated differential privacy, zCDP). This implies "
        f"(epsilon, delta)-differential privacy with epsilon = {_up(approx.epsilon)} at delta = {approx.delta:g} "
        "(Canonne, Kamath, Steinke 2020): for neighbouring tables and every set of outputs S, "
        f"P(S) <= e^epsilon P'(S) + delta. This covers {covered}."
    ]


def _level_line(plan: Plan, level: LevelGuarantee) -> str:
    if level.own is None:
        return f"  {level.level}: published exactly, without noise; not protected"
    parts = []
    for event in plan.events():
        if event.level != level.level:
            continue
        if isinstance(event, ExactEvent):
            parts.append(f"query {event.query}: published exactly, without noise; not protected")
            continue
        noise = (
            f"scale {number_in_words(plan.scale(level.level, event.query))}"
            if plan.is_pure
            else f"sigma^2 = {number_in_words(plan.sigma2(level.level, event.query))}"
        )
        parts.append(
            f"query {event.query}: share {plan.share(level.level, event.query)}, {noise}, "
            f"variance {plan.variance(level.level, event.query):.6g}"
        )
    together = "" if level.cumulative is None else f", {amount_in_words(level.cumulative)} with the levels above"
    return f"  {level.level}: {amount_in_words(level.own)} of its own{together}; " + "; ".join(parts)


def _not_measured(plan: Plan) -> list[str]:
    shares = () if plan.shares is None else plan.shares.levels
    unmeasured = [
        level
        for level in shares
        if level not in plan.invariants and plan.shares is not None and plan.shares.of_level(level) == 0
    ]
    return [f"  {level}: not measured (share 0); nothing is spent on it" for level in unmeasured]


def _bounded(plan: Plan, statement: Guarantee) -> list[str]:
    measured = [level.level for level in statement.levels if not level.exact]
    lines = [
        f"  {level}: {plan.bounds.at(level).in_words()}" for level in measured if plan.bounds.at(level).kind != "none"
    ]
    if not lines:
        return []
    return [
        "",
        "Counts within bounds:",
        *lines,
        "A count within a few scales of a bound is biased away from the bound, and varies less than unbounded noise. "
        "By how much depends on the true count and is not public: variances stated here and with the measurements "
        "are those of unbounded noise of the same scale, and estimates from bounded counts are not unbiased.",
        *_uncorrected(plan),
    ]


def _only_children(plan: Plan) -> list[str]:
    if plan.only_child == "measure":
        return []
    return [
        "",
        "Single children: a unit that is the only one in its parent has the parent's counts and is not measured. Its "
        "share goes to the parent, which has less noise; in a chain of such units all shares go to the uppermost. The "
        "total is the same. The statements by level are for units without a single child; what a unit with a chain of "
        "them reveals counts for all levels of the chain, and is at most the total.",
    ]


def _uncorrected(plan: Plan) -> list[str]:
    if plan.charged_total == plan.total:
        return []
    return [
        f"The scales are those of a budget of epsilon = {number_in_words(plan.total)} without bounds; the total "
        "above is their true cost within bounds."
    ]


def _another_record(statement: Guarantee) -> list[str]:
    title = f"Any other record in place of one {statement.unit}'s, in any attribute or place: "
    if statement.change is None:
        return ["", title + "no bound, it may change a count that is published exactly."]
    return ["", title + amount_in_words(statement.change) + "."]


def _another_place(statement: Guarantee, levels: Sequence[str] | None) -> list[str]:
    """For every level but the root, which has only one unit."""
    if levels is None:
        return []
    below_root = [level for level in statement.levels if level.level != levels[0]]
    if not below_root:
        return []
    lines = [f"In which unit of a level one {statement.unit} is, to somebody who knows it at the level above:"]
    for level in below_root:
        known = "no bound, this level or one below it is published exactly"
        lines.append(f"  {level.level}: {known if level.given_above is None else amount_in_words(level.given_above)}")
    return lines


def _not_protected(statement: Guarantee) -> list[str]:
    exact = [*statement.exact_levels, *(f"query {query} of {level}" for level, query in statement.exact_queries)]
    if not exact:
        return ["", "Published exactly: no level."]
    names = ", ".join(exact)
    return [
        "",
        f"Published exactly: {names}. These counts carry no noise and are NOT protected by differential privacy: "
        "they cost no budget because no budget covers them, and whoever knows all other records learns from them "
        f"the record of the last {statement.unit}. The guarantee above is for the noisy measurements; for the "
        f"publication as a whole it holds only between tables that agree in every count of {names}.",
    ]


def amount_in_words(loss: Loss) -> str:
    """A loss as an exact number: epsilon where it is pure, else rho and the epsilon that it implies at its delta."""
    if loss.epsilon is not None:
        return f"epsilon = {number_in_words(loss.epsilon)}"
    implied = loss.approx
    beside = "" if implied is None else f" (epsilon = {_up(implied.epsilon)} at delta = {implied.delta:g})"
    return f"rho = {number_in_words(loss.rho)}{beside}"


def number_in_words(value: Fraction) -> str:
    """An exact fraction, and its decimal beside it where it is not whole."""
    return str(value) if value.denominator == 1 else f"{value} ({float(value):.6g})"


def _up(epsilon: float) -> str:
    """Six digits after the point, rounded up: a quoted epsilon must not be smaller than the true one."""
    return f"{math.ceil(epsilon * 1e6) / 1e6:.6f}"


def _factor(epsilon: Fraction) -> str:
    return f"{math.exp(float(epsilon)):.6g}" if epsilon < 700 else f"e^{float(epsilon):.6g}"
