"""Composition of pure mechanisms at a delta: the advanced theorem, and the optimal bound.

Budgets add up (sequential composition); for pure mechanisms no better bound holds at delta = 0. For a delta above 0
epsilon grows only with the square root of their number, since the losses rarely all have the same sign.

Sources: Dwork, Rothblum, Vadhan 2010, "Boosting and Differential Privacy", Theorem III.3 (advanced); Kairouz, Oh,
Viswanath 2015, "The Composition Theorem for Differential Privacy", Theorems 3.3 and 3.4 (optimal, and the sharper
closed form); Murtagh, Vadhan 2016 (budgets that differ). Groups of k units are in `topdown.privacy.conversions`,
contributions of k records a person in `topdown.confidential.contributions`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Self

from topdown.errors import BudgetError, require_known
from topdown.privacy.accounting import Event, ExactEvent, PureAccountant
from topdown.privacy.budget_numbers import Number, exact_number, float_or_nan
from topdown.wording import figure

COMPOSITIONS = ("optimal", "advanced", "sum")
_MOST_SUMS = 100_000


def advanced_composition(epsilons: Sequence[Number], delta: float, *, form: str = "sharp") -> float:
    """The epsilon at ``delta`` of pure mechanisms used one after the other, each chosen after the earlier outputs.

    ``form="printed"``: sqrt(2 ln(1/delta) sum e_i^2) + sum e_i (exp(e_i) - 1), the theorem as courses have it (for k
    equal ones e sqrt(2 k ln(1/delta)) + k e (exp(e) - 1)). ``"sharp"``: with (exp(e_i) - 1)/(exp(e_i) + 1) in the
    second sum (Kairouz, Oh, Viswanath, Theorem 3.4). Never more than the sum of the epsilons, which holds as well.

    Args:
        epsilons: one for each mechanism, above 0.
        delta: strictly between 0 and 1.
        form: "sharp" or "printed".

    Raises BudgetError for an epsilon that is not positive or a delta outside of (0, 1).

    Examples:
        >>> round(td.privacy.advanced_composition(["1/100"] * 1000, 1e-6), 3)
        1.712
    """
    require_known(form, ("sharp", "printed"), "form")
    parts, slack = _checked(epsilons), _checked_delta(delta)
    each = [float(part) for part in parts]
    # Beyond 700, where e^x nears the range of doubles, the sum is less in any case.
    drift = [e * (math.tanh(e / 2.0) if form == "sharp" else math.expm1(min(e, 700.0))) for e in each]
    spread = math.sqrt(-2.0 * math.log(slack)) * math.hypot(*each)
    return min(spread + sum(drift), _sum(parts))


def optimal_delta(epsilons: Sequence[Number], epsilon: float) -> float:
    """The smallest delta for which every sequence of mechanisms with these pure epsilons is (epsilon, delta)-private.

    Randomised response is the worst mechanism of its epsilon, so that it is the sum over its outputs of
    max(0, p - exp(epsilon) q): outputs whose losses add up to the same total are counted together, with exact totals.

    Args:
        epsilons: one for each mechanism, above 0.
        epsilon: of the composition.

    Raises BudgetError for an epsilon that is not positive, and where more than 100,000 totals are possible; take
    equal budgets, or `advanced_composition`.

    Examples:
        >>> round(td.privacy.optimal_delta(["1/10"] * 10, 0.5), 5)
        0.00993
    """
    parts = _checked(epsilons)
    if not epsilon >= 0:
        raise BudgetError(f"epsilon is {epsilon!r}; give a number of 0 or more")
    return _delta(_losses(parts), epsilon)


def optimal_epsilon(epsilons: Sequence[Number], delta: float) -> float:
    """The smallest epsilon for which every sequence of mechanisms with these pure epsilons is (epsilon, delta)-private.

    The root of `optimal_delta`, rounded up to 1e-12 of it. Raises BudgetError as that does, and for a delta outside of
    (0, 1).

    Args:
        epsilons: one for each mechanism, above 0.
        delta: strictly between 0 and 1.

    Examples:
        >>> round(td.privacy.optimal_epsilon(["1/100"] * 1000, 1e-6), 3)
        1.365
    """
    parts, slack = _checked(epsilons), _checked_delta(delta)
    losses = _losses(parts)
    if _delta(losses, 0.0) <= slack:
        return 0.0
    low, high = 0.0, _sum(parts)
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _delta(losses, middle) <= slack else (middle, high)
    return high


class ComposedAccountant:
    """A running account of pure mechanisms in (epsilon, delta), for one unit.

    Events that are published exactly are listed separately, as in every accountant. The methods hold for budgets that
    were fixed beforehand. To stop when a limit is reached, while later budgets depend on earlier outputs, is valid for
    method "sum" alone; other methods would need composition with filters (Rogers, Roth, Ullman, Vadhan 2016). So a
    limit with another method needs all events at once.

    Args:
        events: what is already spent.
        delta: of the (epsilon, delta) statement.
        method: "optimal", "advanced" or "sum".
        limit: an epsilon at ``delta`` that must not be passed; None for none.

    Examples:
        >>> events = [td.privacy.LaplaceEvent(level="county", query=f"q{k}", scale=Fraction(10)) for k in range(50)]
        >>> account = td.privacy.ComposedAccountant(events, delta=1e-6)
        >>> round(account.epsilon, 3)  # 5 by adding them up
        3.173
    """

    def __init__(
        self, events: Iterable[Event] = (), *, delta: float, method: str = "optimal", limit: Number | None = None
    ) -> None:
        require_known(method, COMPOSITIONS, "method")
        self.delta, self.method = _checked_delta(delta), method
        self._limit = None if limit is None else exact_number(limit, "the limit of epsilon")
        self._pure = PureAccountant()
        self.compose(events)

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything that was composed, in order."""
        return self._pure.events

    @property
    def epsilon(self) -> float:
        """The epsilon at ``delta`` of everything together."""
        return self._together(self.events)

    def would_be(self, events: Iterable[Event]) -> float:
        """The epsilon if ``events`` were composed as well; nothing is spent. Raises BudgetError for what has no pure
        epsilon."""
        added = tuple(events)
        self._pure.would_be(added)
        return self._together(self.events + added)

    def compose(self, events: Iterable[Event]) -> Self:
        """Spends ``events``, all or none. Raises BudgetError where the limit would be passed."""
        added = tuple(events)
        if self._limit is not None and self.method != "sum" and self.events and added:
            raise BudgetError(
                f"a limit by {self.method!r} composition holds for budgets that are fixed beforehand; give all "
                "events at once, or take method='sum'"
            )
        after = self.would_be(added)
        if self._limit is not None and after > self._limit:
            raise BudgetError(
                f"epsilon would come to {after:.6g} at delta {self.delta:g}, beyond the limit of {self._limit}"
            )
        self._pure.compose(added)
        return self

    def _together(self, events: Sequence[Event]) -> float:
        costs = [event.epsilon for event in events if not isinstance(event, ExactEvent) and event.epsilon is not None]
        if not costs:
            return 0.0
        if self.method == "sum":
            return _sum(costs)
        return (optimal_epsilon if self.method == "optimal" else advanced_composition)(costs, self.delta)


def _losses(parts: Sequence[Fraction]) -> list[tuple[float, float]]:
    """(total loss, log of its probability) of randomised responses with these epsilons."""
    total = {Fraction(0): 0.0}
    for epsilon, count in Counter(parts).items():
        # Where ``against`` of ``count`` equal responses are the less likely ones, the loss is (count - 2 against)
        # epsilon.
        each = float(epsilon)
        log_true = -math.log1p(math.exp(-each))
        outcomes = [
            (epsilon * (count - 2 * against), _log_choose(count, against) + count * log_true - against * each)
            for against in range(count + 1)
        ]
        if len(total) * len(outcomes) > _MOST_SUMS:
            raise BudgetError(
                f"{len(parts)} budgets have too many different sums; take equal budgets, or advanced_composition"
            )
        merged: dict[Fraction, float] = {}
        for loss, log_mass in total.items():
            for more, log_more in outcomes:
                key, value = loss + more, log_mass + log_more
                known = merged.get(key)
                merged[key] = value if known is None else max(known, value) + math.log1p(math.exp(-abs(known - value)))
        total = merged
    return [(float(loss), log_mass) for loss, log_mass in total.items()]


def _delta(losses: Sequence[tuple[float, float]], epsilon: float) -> float:
    # An output of loss L and probability p has q = p exp(-L) under the neighbour.
    return math.fsum(math.exp(log_mass) * -math.expm1(epsilon - loss) for loss, log_mass in losses if loss > epsilon)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _checked(epsilons: Sequence[Number]) -> list[Fraction]:
    parts = [exact_number(epsilon, "epsilon") for epsilon in epsilons]
    for part in parts:
        if part <= 0:
            raise BudgetError(f"epsilon is {part}; give numbers above 0")
    _sum(parts)
    return parts


def _sum(parts: Iterable[Fraction]) -> float:
    """Their sum; BudgetError where it is beyond the range of doubles."""
    total = sum(parts, Fraction(0))
    found = float_or_nan(total)
    if math.isnan(found):
        raise BudgetError(f"the epsilons add up to {figure(total)}; give numbers whose sum is in the range of doubles")
    return found


def _checked_delta(delta: float) -> float:
    if not 0 < float(delta) < 1:
        raise BudgetError(f"delta is {delta!r}; give a number above 0 and below 1, such as 1e-10")
    return float(delta)
