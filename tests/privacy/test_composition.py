"""Composition beyond sums: against all outcomes of randomised response, and against the theorems' closed forms."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

import topdown as td
from topdown.confidential.contributions import bound_contributions
from topdown.errors import BudgetError, ConfigError, CountsError
from topdown.privacy import (
    ComposedAccountant,
    ExactEvent,
    GaussianEvent,
    LaplaceEvent,
    advanced_composition,
    optimal_delta,
    optimal_epsilon,
    zcdp_to_epsilon,
)


def by_enumeration(epsilons: list[float], epsilon: float) -> float:
    """sum over the outputs of randomised responses of max(0, p - exp(epsilon) q)."""
    delta = 0.0
    for answers in product((True, False), repeat=len(epsilons)):
        p = math.prod(math.exp(e * told) / (1 + math.exp(e)) for e, told in zip(epsilons, answers, strict=True))
        q = math.prod(math.exp(e * (not told)) / (1 + math.exp(e)) for e, told in zip(epsilons, answers, strict=True))
        delta += max(0.0, p - math.exp(epsilon) * q)
    return delta


@pytest.mark.parametrize("epsilons", [[1.0], [0.5] * 6, [0.1, 0.2, 0.7], [2.0, 2.0, 0.3, 0.3, 1.0]])
def test_the_optimal_delta_is_that_of_all_outcomes(epsilons: list[float]) -> None:
    for epsilon in (0.0, 0.3, 0.8, 1.9, sum(epsilons)):
        assert optimal_delta(epsilons, epsilon) == pytest.approx(
            by_enumeration(epsilons, epsilon), rel=1e-11, abs=1e-15
        )
    for delta in (1e-6, 0.01, 0.2):
        found = optimal_epsilon(epsilons, delta)
        assert by_enumeration(epsilons, found) <= delta * (1 + 1e-9)
        assert found == 0 or by_enumeration(epsilons, found * (1 - 1e-9)) > delta * (1 - 1e-6)


def test_equal_budgets_are_the_theorem_of_kairouz_oh_viswanath() -> None:
    k, e = 9, 0.4
    for i in range(k // 2 + 1):
        terms = [math.comb(k, j) * (math.exp((k - j) * e) - math.exp((k - 2 * i + j) * e)) for j in range(i)]
        expected = sum(terms) / (1 + math.exp(e)) ** k
        assert optimal_delta([e] * k, (k - 2 * i) * e) == pytest.approx(expected, rel=1e-10, abs=1e-16)


def test_many_small_budgets_cost_far_less_than_their_sum() -> None:
    epsilons, delta = [Fraction(1, 100)] * 1000, 1e-6
    best, sharp, printed = (
        optimal_epsilon(epsilons, delta),
        advanced_composition(epsilons, delta),
        advanced_composition(epsilons, delta, form="printed"),
    )
    assert best < sharp < printed < 10
    assert printed == pytest.approx(0.01 * math.sqrt(2000 * math.log(1e6)) + 10 * math.expm1(0.01))
    assert best < zcdp_to_epsilon(1000 * 0.01**2 / 2, delta)  # what the same budgets cost by way of zCDP
    assert advanced_composition([1, 1], 1e-9) == 2.0  # never beyond the sum


@pytest.mark.parametrize("method", ["optimal", "advanced", "sum"])
def test_an_accountant(method: str) -> None:
    events = [LaplaceEvent(level="county", query=f"q{i}", scale=Fraction(20)) for i in range(40)]
    account = ComposedAccountant([*events, ExactEvent(level="state")], delta=1e-6, method=method)
    expected = {"optimal": optimal_epsilon, "advanced": advanced_composition, "sum": lambda e, _: float(sum(e))}[method]
    assert account.epsilon == pytest.approx(expected([Fraction(1, 20)] * 40, 1e-6))
    assert account.would_be(events) > account.epsilon
    assert ComposedAccountant(delta=1e-6, method=method).epsilon == 0.0
    with pytest.raises(BudgetError, match="beyond the limit of 1"):
        ComposedAccountant(events * 3, delta=1e-6, method=method, limit=1)
    with pytest.raises(BudgetError, match="no pure epsilon"):
        account.compose([GaussianEvent(level="county", sigma2=Fraction(1))])


def test_a_limit_beyond_sums_is_not_for_an_account_that_grows() -> None:
    events = [LaplaceEvent(level="county", scale=Fraction(20))]
    account = ComposedAccountant(events, delta=1e-6, limit=1)
    with pytest.raises(BudgetError, match="fixed beforehand"):
        account.compose(events)
    assert ComposedAccountant(events, delta=1e-6, limit=1, method="sum").compose(events).epsilon == 0.1


@pytest.mark.parametrize("form", ["sharp", "printed"])
def test_large_budgets_add_up(form: str) -> None:
    assert advanced_composition([800, 1e200], 1e-6, form=form) == 1e200
    assert advanced_composition([709.5, 709.5], 1e-6, form=form) == 1419.0
    assert optimal_epsilon([800, 800], 1e-6) == pytest.approx(1600.0 + math.log1p(-1e-6), rel=1e-12)


def test_bad_budgets_are_named() -> None:
    for call in (
        lambda: optimal_epsilon([10**320], 1e-6),
        lambda: advanced_composition([1e308, 1e308], 1e-6),
        lambda: ComposedAccountant([LaplaceEvent(level="a", scale=Fraction(1, 10**320))], delta=1e-6, method="sum"),
        lambda: optimal_epsilon([0, 1], 1e-6),
        lambda: optimal_epsilon([1], 1),
        lambda: optimal_delta([1], -1),
        lambda: optimal_epsilon([Fraction(1, n) for n in range(1, 40)], 1e-6),
    ):
        with pytest.raises(BudgetError):
            call()
    with pytest.raises(ConfigError, match="did you mean 'optimal'"):
        ComposedAccountant(delta=0.1, method="optima")


RECORDS = pd.DataFrame({"who": ["a"] * 5 + ["b"] + ["c"] * 3, "place": list("xyzxyzxyz")})


def test_nobody_has_more_records_than_k() -> None:
    found = bound_contributions(RECORDS, "who", 2, td.SeededSource(1))
    assert found.records["who"].value_counts().to_dict() == {"a": 2, "c": 2, "b": 1}
    assert (found.dropped, found.people_cut, found.people) == (4, 2, 3)
    assert found.records.index.is_monotonic_increasing
    assert repr(found) == "BoundedContributions(most=2)"  # how much was dropped is confidential
    assert len(bound_contributions(RECORDS, "who", 9).records) == 9


def test_which_records_stay_is_left_to_chance() -> None:
    kept = np.zeros(9)
    for seed in range(2000):
        kept[bound_contributions(RECORDS, "who", 2, td.SeededSource(seed)).records.index] += 1
    expected = np.array([0.4] * 5 + [1.0] + [2 / 3] * 3)
    assert (np.abs(kept / 2000 - expected) < 6 * 0.5 / math.sqrt(2000)).all()


def test_a_person_moves_counts_by_k_at_most() -> None:
    """One person more: at most k counts more, whoever else is there; and so epsilon/k for records is epsilon for
    people."""
    for seed in range(50):
        with_, without = (
            bound_contributions(table, "who", 2, td.SeededSource(seed)).records
            for table in (RECORDS, RECORDS[RECORDS["who"] != "a"])
        )
        others = with_[with_["who"] != "a"]["who"].value_counts().to_dict()
        assert others == without["who"].value_counts().to_dict()
        assert len(with_) - len(without) == 2
    assert td.privacy.group_epsilon(Fraction(1, 4), 2) == Fraction(1, 2)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"person": "whose"}, ConfigError, "no column 'whose'"),
        ({"most": 0}, ConfigError, "most is 0"),
        ({"records": pd.DataFrame({"who": ["a", None]})}, CountsError, "row 1 has no 'who'"),
    ],
)
def test_records_of_nobody_are_named(changed: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        bound_contributions(**({"records": RECORDS, "person": "who", "most": 1} | changed))
