"""Checks the arguments of a plan: level names, invariants, and the one budget that its mechanism spends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from topdown.errors import BudgetError, PlanError
from topdown.privacy.budget_numbers import Number, exact_number, positive_number
from topdown.privacy.conversions import conservative_rho
from topdown.privacy.mechanism import EPSILON, Mechanism
from topdown.privacy.shares import Shares
from topdown.wording import figure, shown
from topdown.workload import DETAILED, normal_name

DEFAULT_DELTA = 1e-10
LARGEST_DELTA = 1e-3
"""A larger delta would allow to publish a thousandth of the records as they are."""


def level_names(levels: Iterable[str]) -> list[str]:
    if isinstance(levels, str):
        raise PlanError(f"levels is the text {shown(levels)}; give a list of level names, root first")
    return list(levels)


def invariant_levels(invariants: Iterable[str]) -> tuple[str, ...]:
    if isinstance(invariants, str):
        raise PlanError(
            f"invariants is the text {shown(invariants)}; give a list of level names, [{shown(invariants)}]"
        )
    names = tuple(invariants)
    for position, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise PlanError(f"invariants contains {shown(name)}; give names of levels")
        if name in names[:position]:
            raise PlanError(f"invariants names level {shown(name)} twice; name it once")
    return names


def invariant_queries(
    invariants: Iterable[str] | Mapping[str, Iterable[str]],
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The levels that are exact as a whole, and the (level, query) pairs that are exact at noisy levels."""
    if not isinstance(invariants, Mapping):
        return invariant_levels(invariants), ()
    whole, single = [], []
    for level, queries in invariants.items():
        names = [queries] if isinstance(queries, str) else list(queries)
        if not names or not all(isinstance(name, str) and name.strip() for name in names):
            raise PlanError(
                f"invariants of level {shown(level)}: {shown(queries)}; give a list of queries, such as ['total']"
            )
        names = [normal_name(name) for name in names]
        if DETAILED in names:
            whole.append(level)
        else:
            single += [(level, name) for name in dict.fromkeys(names)]
    return invariant_levels(whole), tuple(single)


def require_no_share(shares: Shares | None, levels: Iterable[str], queries: Iterable[tuple[str, str]]) -> None:
    """Refuse a share of the budget for a level or a query that is published exactly."""
    if shares is None:
        return
    for level in levels:
        if shares.of_level(level) > 0:
            raise PlanError(
                f"level {shown(level)} is invariant and has a share of {figure(str(shares.of_level(level)))}; an "
                "invariant level is published exactly and takes no budget: drop it from one of the two"
            )
    for key in queries:
        if shares.get(key):
            raise PlanError(
                f"level {shown(key[0])}, query {shown(key[1])} is invariant and has a share of {figure(shares[key])}; "
                "what is published exactly takes no budget: drop it from one of the two"
            )


def total_budget(
    mechanism: Mechanism, epsilon: Number | None, rho: Number | None, delta: Number | None
) -> tuple[Fraction | None, Fraction | None, float | None]:
    """The (epsilon, rho, delta) of a plan, of which the mechanism uses either epsilon or rho."""
    stated_delta = None if delta is None else float(exact_number(delta, "delta"))
    if stated_delta is not None and not 0 < stated_delta < 1:
        raise BudgetError(f"delta is {figure(delta)}; give a number above 0 and below 1, such as 1e-10")
    if stated_delta is not None and stated_delta > LARGEST_DELTA:
        raise BudgetError(
            f"delta is {figure(delta)}: such a delta would allow to publish every record with that probability; "
            f"give one far below 1 over the number of records, such as 1e-10 ({LARGEST_DELTA:g} at most)"
        )
    name = mechanism.name
    if mechanism.currency == EPSILON:
        if rho is not None:
            raise BudgetError(
                f"mechanism {shown(name)} spends epsilon and rho = {figure(rho)} was given; give epsilon, or take "
                "mechanism 'discrete-gaussian'"
            )
        if stated_delta is not None:
            raise BudgetError(f"mechanism {shown(name)} gives pure epsilon; leave out delta = {figure(delta)}")
        if epsilon is None:
            raise BudgetError(f"mechanism {shown(name)} needs epsilon, the total budget, above 0")
        return positive_number(epsilon, "epsilon"), None, None
    if rho is not None and epsilon is not None:
        raise BudgetError(f"epsilon = {figure(epsilon)} and rho = {figure(rho)} were both given; give one of them")
    if rho is not None:
        return None, positive_number(rho, "rho"), stated_delta or DEFAULT_DELTA
    if epsilon is None:
        raise BudgetError(f"mechanism {shown(name)} needs rho, the total budget, or epsilon and delta")
    if stated_delta is None:
        raise BudgetError(
            f"mechanism {shown(name)} has no pure epsilon; give rho, or a delta with epsilon = {figure(epsilon)}"
        )
    return None, conservative_rho(float(positive_number(epsilon, "epsilon")), stated_delta), stated_delta
