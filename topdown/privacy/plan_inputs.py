"""What a plan is given, checked: level names, invariants, and the one budget that its mechanism spends."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from topdown.errors import BudgetError
from topdown.privacy.conversions import conservative_rho
from topdown.privacy.shares import Number, exact_number
from topdown.wording import figure, shown

PURE_MECHANISMS = ("geometric", "laplace")
GAUSSIAN_MECHANISMS = ("discrete-gaussian", "gaussian")
MECHANISMS = PURE_MECHANISMS + GAUSSIAN_MECHANISMS
DEFAULT_DELTA = 1e-10


def level_names(levels: Iterable[str]) -> list[str]:
    if isinstance(levels, str):
        raise BudgetError(f"levels is the text {shown(levels)}; give a list of level names, root first")
    return list(levels)


def invariant_levels(invariants: Iterable[str]) -> tuple[str, ...]:
    if isinstance(invariants, str):
        raise BudgetError(
            f"invariants is the text {shown(invariants)}; give a list of level names, [{shown(invariants)}]"
        )
    names = tuple(invariants)
    for position, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise BudgetError(f"invariants contains {shown(name)}; give names of levels")
        if name in names[:position]:
            raise BudgetError(f"invariants names level {shown(name)} twice; name it once")
    return names


def total_budget(
    mechanism: str, epsilon: Number | None, rho: Number | None, delta: Number | None
) -> tuple[Fraction | None, Fraction | None, float | None]:
    """The (epsilon, rho, delta) to keep, of which the mechanism's family uses either epsilon or rho."""
    stated_delta = None if delta is None else float(exact_number(delta, "delta"))
    if stated_delta is not None and not 0 < stated_delta < 1:
        raise BudgetError(f"delta is {figure(delta)}; give a number above 0 and below 1, such as 1e-10")
    if mechanism in PURE_MECHANISMS:
        if rho is not None:
            raise BudgetError(
                f"mechanism {shown(mechanism)} spends epsilon and rho = {figure(rho)} was given; give epsilon, or take "
                "mechanism 'discrete-gaussian'"
            )
        if stated_delta is not None:
            raise BudgetError(f"mechanism {shown(mechanism)} gives pure epsilon; leave out delta = {figure(delta)}")
        if epsilon is None:
            raise BudgetError(f"mechanism {shown(mechanism)} needs epsilon, the total budget, above 0")
        return _positive(epsilon, "epsilon"), None, None
    if rho is not None and epsilon is not None:
        raise BudgetError(f"epsilon = {figure(epsilon)} and rho = {figure(rho)} were both given; give one of them")
    if rho is not None:
        return None, _positive(rho, "rho"), stated_delta or DEFAULT_DELTA
    if epsilon is None:
        raise BudgetError(f"mechanism {shown(mechanism)} needs rho, the total budget, or epsilon and delta")
    if stated_delta is None:
        raise BudgetError(
            f"mechanism {shown(mechanism)} has no pure epsilon; give rho, or a delta with epsilon = {figure(epsilon)}"
        )
    return None, conservative_rho(float(_positive(epsilon, "epsilon")), stated_delta), stated_delta


def _positive(value: Number, what: str) -> Fraction:
    number = exact_number(value, what)
    if number <= 0:
        raise BudgetError(f"{what} is {figure(value)}; give a number above 0")
    return number
