from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topdown.errors import BudgetError
from topdown.noise import DiscreteLaplace
from topdown.privacy import (
    ApproxDP,
    ComposedAccountant,
    Event,
    ExactEvent,
    GaussianEvent,
    LaplaceEvent,
    PureAccountant,
    PureEvent,
    ZCDPAccountant,
    event_from_dict,
    event_to_dict,
    guarantee,
    parallel,
    zcdp_to_epsilon,
)

LAPLACE = LaplaceEvent(level="state", scale=Fraction(10, 3))
GAUSSIAN = GaussianEvent(level="county", sigma2=Fraction(9, 2), sensitivity_squared=Fraction(2))
PURE = PureEvent(level="tract", mechanism="truncated", epsilon=Fraction(1, 7))
EXACT = ExactEvent(level="nation")
fractions = st.fractions(min_value=Fraction(1, 1000), max_value=1000)


def test_what_an_event_costs() -> None:
    assert LAPLACE.epsilon == Fraction(3, 10)
    assert LAPLACE.rho == Fraction(9, 200)
    assert LaplaceEvent(level="a", scale=Fraction(4), sensitivity=Fraction(2)).epsilon == Fraction(1, 2)
    assert GAUSSIAN.rho == Fraction(2, 9)
    assert GAUSSIAN.epsilon is None
    assert PURE.rho == Fraction(1, 98)


@pytest.mark.parametrize("sensitivity", [1, 2])
@pytest.mark.parametrize("scale", [0.7, 5.0])
def test_the_cost_of_a_laplace_event_is_the_worst_ratio_of_its_law(scale: float, sensitivity: int) -> None:
    event = LaplaceEvent(level="a", scale=Fraction(str(scale)), sensitivity=Fraction(sensitivity))
    outputs = np.arange(-20, 21)
    loss = (np.abs(outputs - sensitivity) - np.abs(outputs)) / scale
    assert np.abs(loss).max() == pytest.approx(float(event.epsilon), rel=1e-12)


@pytest.mark.parametrize("shift", [(1,), (1, -1)])
def test_the_cost_of_a_gaussian_event_bounds_every_renyi_divergence(shift: tuple[int, ...]) -> None:
    """D_alpha <= alpha rho for the discrete Gaussian moved by whole numbers, and nearly attained."""
    sigma2 = 2.0
    event = GaussianEvent(level="a", sigma2=Fraction(2), sensitivity_squared=Fraction(sum(s * s for s in shift)))
    k = np.arange(-60, 61)
    log_p = -(k**2) / (2 * sigma2)
    log_p = log_p - np.log(np.exp(log_p).sum())
    for alpha in (1.5, 2.0, 4.0):
        divergence = 0.0
        for step in shift:
            log_q = -((k - step) ** 2) / (2 * sigma2) - np.log(np.exp(-(k**2) / (2 * sigma2)).sum())
            divergence += math.log(np.exp(alpha * log_p + (1 - alpha) * log_q).sum()) / (alpha - 1)
        assert divergence <= alpha * float(event.rho) * (1 + 1e-9)
        assert divergence >= alpha * float(event.rho) * (1 - 1e-3)


def test_pure_accountant_adds_epsilon_exactly() -> None:
    accountant = PureAccountant()
    for _ in range(10):
        accountant.compose(LaplaceEvent(level="a", scale=10))  # type: ignore[arg-type]
    assert accountant.total == 1
    accountant.compose([PURE, EXACT])
    assert accountant.total == Fraction(8, 7)
    assert accountant.exact == (EXACT,)
    assert len(accountant.events) == 12


def test_pure_accountant_refuses_a_gaussian_and_spends_nothing() -> None:
    accountant = PureAccountant([LAPLACE])
    with pytest.raises(BudgetError, match=r"level 'county'.*no pure epsilon.*ZCDPAccountant"):
        accountant.compose([PURE, GAUSSIAN])
    assert accountant.events == (LAPLACE,)


def test_zcdp_accountant_adds_rho() -> None:
    accountant = ZCDPAccountant([LAPLACE, GAUSSIAN, PURE, EXACT])
    assert accountant.total == Fraction(9, 200) + Fraction(2, 9) + Fraction(1, 98)
    assert accountant.approx(1e-6) == ApproxDP(zcdp_to_epsilon(accountant.total, 1e-6), 1e-6)
    assert accountant.approx(1e-6, "bun-steinke").epsilon > accountant.approx(1e-6).epsilon


@given(st.lists(fractions, max_size=8))
def test_would_be_spends_nothing_and_compose_arrives_there(scales: list[Fraction]) -> None:
    events = [LaplaceEvent(level="a", scale=scale) for scale in scales]
    accountant = PureAccountant([LAPLACE])
    expected = accountant.would_be(events)
    assert accountant.total == LAPLACE.epsilon
    assert accountant.compose(events).total == expected == LAPLACE.epsilon + sum(1 / s for s in scales)


def test_the_limit_is_exact() -> None:
    accountant = PureAccountant(limit="3/10")
    accountant.compose(LAPLACE)
    assert accountant.remaining == 0
    tiny = PureEvent(level="a", mechanism="m", epsilon=Fraction(1, 10**30))
    with pytest.raises(BudgetError, match="beyond the limit of 3/10; 0 is left"):
        accountant.compose(tiny)
    assert accountant.total == Fraction(3, 10)
    accountant.compose(EXACT)
    assert ZCDPAccountant([GAUSSIAN]).remaining is None


def test_events_that_protect_different_things_do_not_add() -> None:
    household = dataclasses.replace(LAPLACE, unit="household")
    with pytest.raises(BudgetError, match="household"):
        PureAccountant([LAPLACE, household])
    with pytest.raises(BudgetError, match="substitute"):
        ZCDPAccountant([LAPLACE]).compose(dataclasses.replace(LAPLACE, neighbours="substitute"))
    with pytest.raises(BudgetError, match="household"):
        PureAccountant([LAPLACE]).would_be([household])


def test_parallel_takes_the_most_expensive_part() -> None:
    parts = [LaplaceEvent(level="state", scale=Fraction(s)) for s in (4, 2, 8)]
    assert parallel(parts) == parts[1]
    sharp = dataclasses.replace(GAUSSIAN, sigma2=Fraction(1))
    assert parallel([GAUSSIAN, sharp]) == sharp
    assert parallel([EXACT, EXACT]) == EXACT


def worst_log_ratio(scales: list[Fraction]) -> float:
    """Over outputs of two disjoint counts with exact discrete Laplace noise, one person moved from one to the other."""
    first, second = (DiscreteLaplace(scale) for scale in scales)
    k = np.arange(-40, 41)
    one = np.log(first.pmf(k))[:, None] + np.log(second.pmf(k))[None, :]
    other = np.log(first.pmf(k + 1))[:, None] + np.log(second.pmf(k - 1))[None, :]
    return float(np.abs(one - other).max())


@pytest.mark.parametrize("scales", [(1, 1), (1, 2), ("1/2", 3)])
def test_a_substitution_pays_for_both_parts_that_it_touches(scales: tuple[Any, Any]) -> None:
    """By the exact ratio of the probabilities of every output."""
    exact = [Fraction(scale) for scale in scales]
    parts = [LaplaceEvent(level="state", scale=scale, neighbours="substitute") for scale in exact]
    assert float(parallel(parts).epsilon) == pytest.approx(worst_log_ratio(exact), rel=1e-12)
    cheap = LaplaceEvent(level="state", scale=Fraction(100), neighbours="substitute")
    assert parallel([cheap, *parts, cheap]).epsilon == sum(1 / scale for scale in exact)
    gaussian = [GaussianEvent(level="state", sigma2=scale, neighbours="substitute") for scale in exact]
    assert parallel(gaussian).rho == sum(1 / (2 * scale) for scale in exact)


def test_a_sensitivity_that_covers_both_moves_is_not_paid_twice() -> None:
    part = LaplaceEvent(level="state", scale=Fraction(4), sensitivity=Fraction(2), neighbours="substitute")
    assert parallel([part, part]) == part
    smooth = GaussianEvent(level="state", sigma2=Fraction(4), sensitivity_squared=Fraction(2), neighbours="substitute")
    assert parallel([smooth, smooth]) == smooth


def test_parallel_refuses_what_is_not_disjoint() -> None:
    with pytest.raises(BudgetError, match="no events"):
        parallel([])
    with pytest.raises(BudgetError, match="not disjoint parts"):
        parallel([LAPLACE, dataclasses.replace(LAPLACE, level="county")])
    with pytest.raises(BudgetError, match="not disjoint parts"):
        parallel([LAPLACE, dataclasses.replace(LAPLACE, query="age")])
    with pytest.raises(BudgetError, match="each kind apart"):
        parallel([GAUSSIAN, dataclasses.replace(EXACT, level="county")])
    moved = dataclasses.replace(PURE, neighbours="substitute")
    with pytest.raises(BudgetError, match="two parts"):
        parallel([moved, moved])
    assert parallel([PURE, PURE]) == PURE


@pytest.mark.parametrize("event", [LAPLACE, GAUSSIAN, PURE, EXACT, *(
    dataclasses.replace(event, columns=("income", "age"), input="0123") for event in (LAPLACE, PURE)
)])  # fmt: skip
def test_events_go_through_json(event: Event) -> None:
    written: dict[str, Any] = json.loads(json.dumps(event_to_dict(event)))
    # Older versions read what they know.
    assert ({"columns", "input"} <= set(written)) == bool(getattr(event, "columns", ()))
    assert event_from_dict(written) == event
    assert written.pop("version") == 1
    assert event_from_dict(written) == event  # as it was written before events had versions
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.level = "other"  # type: ignore[misc]


def test_events_that_do_not_read() -> None:
    with pytest.raises(BudgetError, match="unknown kind of event 'noise'"):
        event_from_dict({"kind": "noise"})
    with pytest.raises(BudgetError, match="colour"):
        event_from_dict({"kind": "laplace", "level": "a", "scale": "1", "colour": "red"})
    with pytest.raises(BudgetError, match="version 2 was written by a newer Topdown"):
        event_from_dict({"kind": "laplace", "version": 2, "level": "a", "scale": "1"})
    with pytest.raises(BudgetError, match="scale is 0"):
        event_from_dict({"kind": "laplace", "level": "a", "scale": "0"})
    with pytest.raises(BudgetError, match="sigma2 is -1"):
        GaussianEvent(level="a", sigma2=Fraction(-1))
    with pytest.raises(BudgetError, match="epsilon is 0"):
        PureEvent(level="a", mechanism="m", epsilon=Fraction(0))


def test_group_of_an_approximate_statement() -> None:
    group = ApproxDP(0.5, 1e-6).group(3)
    assert group.epsilon == 1.5
    assert group.delta == pytest.approx(1e-6 * (1 + math.exp(0.5) + math.exp(1)), rel=1e-12)


LEVELS = ["nation", "state", "county"]


def test_guarantee_of_a_pure_release_by_level() -> None:
    events = [LaplaceEvent(level=level, scale=Fraction(s)) for level, s in zip(LEVELS, (5, 4, 2), strict=True)]
    stated = guarantee(events, levels=LEVELS)
    assert stated.total.epsilon == Fraction(19, 20)
    assert stated.total.approx is None
    assert stated.change is not None
    assert stated.change.epsilon == Fraction(19, 10)
    assert [level.own.epsilon for level in stated.levels if level.own] == [Fraction(1, s) for s in (5, 4, 2)]
    cumulative = [level.cumulative.epsilon for level in stated.levels if level.cumulative]
    assert cumulative == [Fraction(1, 5), Fraction(9, 20), Fraction(19, 20)]
    below = [level.given_above.epsilon for level in stated.levels if level.given_above]
    assert below == [Fraction(19, 10), Fraction(3, 2), Fraction(1)]


def test_a_move_is_one_step_under_substitution() -> None:
    event = LaplaceEvent(level="state", scale=Fraction(4), sensitivity=Fraction(2), neighbours="substitute")
    stated = guarantee([event], levels=["state"])
    assert stated.change == stated.total
    assert stated.total.epsilon == Fraction(1, 2)


def test_a_move_doubles_rho_for_counts_and_quadruples_it_for_a_stated_epsilon() -> None:
    one = dataclasses.replace(GAUSSIAN, sensitivity_squared=Fraction(1))
    stated = guarantee([one])
    assert stated.change is not None
    assert stated.change.rho == 2 * one.rho
    stated = guarantee([PURE])
    assert stated.change is not None
    assert stated.change.rho == (2 * PURE.epsilon) ** 2 / 2


def test_exact_levels_are_never_hidden() -> None:
    state = dataclasses.replace(EXACT, level="state")
    county = LaplaceEvent(level="county", scale=Fraction(2))
    nation = LaplaceEvent(level="nation", scale=Fraction(5))
    stated = guarantee([county, state, nation], levels=LEVELS)
    assert stated.exact_levels == ("state",)
    assert [level.level for level in stated.levels] == LEVELS
    assert stated.change is None
    assert stated.total.epsilon == Fraction(7, 10)
    by_name = {level.level: level for level in stated.levels}
    assert by_name["state"].exact
    assert by_name["state"].given_above is None
    assert by_name["nation"].given_above is None
    assert by_name["county"].given_above is not None
    assert by_name["county"].given_above.epsilon == 1
    written = json.loads(json.dumps(stated.to_dict()))
    assert written["exact_levels"] == ["state"]
    assert written["change_of_one_record"] is None
    assert written["total"]["epsilon"] == "7/10"


def test_without_an_order_no_bound_that_needs_one_is_claimed() -> None:
    stated = guarantee([LAPLACE, dataclasses.replace(LAPLACE, level="county")])
    assert all(level.given_above is None and level.cumulative is None for level in stated.levels)


def test_the_quoted_epsilon_is_the_smaller_one() -> None:
    cheap, dear = Fraction(1000), Fraction(1, 50)
    assert guarantee([LaplaceEvent(level="a", scale=dear)], 1e-10).total.approx == ApproxDP(50.0, 1e-10)
    many = [LaplaceEvent(level="a", query=str(i), scale=cheap) for i in range(5000)]
    total = guarantee(many, 1e-3).total
    assert total.approx is not None
    assert total.epsilon == 5
    assert total.approx.epsilon < 1


def test_guarantee_of_nothing_or_of_mixtures_is_refused() -> None:
    with pytest.raises(BudgetError, match="nothing is measured"):
        guarantee([])
    with pytest.raises(BudgetError, match="household"):
        guarantee([LAPLACE, dataclasses.replace(PURE, unit="household")])
    with pytest.raises(BudgetError, match=r"'state' is measured but not in levels.*did you mean 'states'"):
        guarantee([LAPLACE], levels=["nation", "states"])
    with pytest.raises(BudgetError, match="unknown neighbours 'next-door'"):
        guarantee([dataclasses.replace(LAPLACE, neighbours="next-door")])


@pytest.mark.parametrize(("epsilons", "delta"), [((0.1, 0.2, 0.3), 1e-6), ((1.0, 1.5), 1e-10)])
def test_beside_dp_accounting(epsilons: tuple[float, ...], delta: float) -> None:
    oracle = pytest.importorskip("dp_accounting")
    pld = oracle.pld.PLDAccountant()
    for epsilon in epsilons:
        pld.compose(oracle.LaplaceDpEvent(1 / epsilon))
    ours = PureAccountant([LaplaceEvent(level="a", scale=1 / Fraction(str(e))) for e in epsilons])
    # The numerically exact composition never exceeds the sum, and at a tiny delta it is close to it.
    assert pld.get_epsilon(delta) <= float(ours.total) * (1 + 1e-3)
    assert pld.get_epsilon(1e-12) == pytest.approx(float(ours.total), rel=0.02)


def test_composed_gaussians_beside_dp_accounting() -> None:
    oracle = pytest.importorskip("dp_accounting")
    events = [GaussianEvent(level="a", query=str(s), sigma2=Fraction(s)) for s in (2, 5, 9)]
    rdp = oracle.rdp.RdpAccountant(orders=[1 + t / 1000 for t in range(100, 100_000, 7)])
    for event in events:
        rdp.compose(oracle.GaussianDpEvent(math.sqrt(event.sigma2)))
    assert ZCDPAccountant(events).approx(1e-8).epsilon == pytest.approx(rdp.get_epsilon(1e-8), rel=1e-5)


# -- what nobody told the accountant of -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unheard:
    """An event that looks like one, of noise whose cost for two moves nobody stated here."""

    kind = "unheard"
    level: str = "state"
    query: str = "detailed"
    mechanism: str = "unheard"
    unit: str = "person"
    neighbours: str = "substitute"
    epsilon: Fraction = Fraction(1, 10)
    rho: Fraction = Fraction(1, 200)
    scale: Fraction = Fraction(10)
    sensitivity: Fraction = Fraction(1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Heavier(LaplaceEvent):
    """A kind of Laplace noise, of which the accountant knows the other kind alone."""


UNHEARD: list[Any] = [Unheard(), Heavier(level="state", scale=Fraction(10), neighbours="substitute"), "state", None]


@pytest.mark.parametrize("event", UNHEARD)
@pytest.mark.parametrize(
    "charge",
    [
        lambda event: parallel([event]),
        lambda event: parallel([event, event]),
        lambda event: PureAccountant([event]),
        lambda event: ZCDPAccountant().would_be([event]),
        lambda event: ComposedAccountant([event], delta=1e-9),
        lambda event: guarantee([event]),
        lambda event: guarantee([event], 1e-9, levels=["state"]),
        event_to_dict,
    ],
)
def test_an_unknown_event_is_refused_and_never_charged_as_another(charge: Callable[[Any], object], event: Any) -> None:
    with pytest.raises(BudgetError, match=r"is not a known event; give .*LaplaceEvent"):
        charge(event)


@pytest.mark.parametrize("event", [LAPLACE, GAUSSIAN, PURE, EXACT])
def test_an_event_of_neighbours_that_are_not_known_is_refused(event: Event) -> None:
    with pytest.raises(BudgetError, match=r"unknown neighbours 'either'; known: 'add-remove', 'substitute'"):
        dataclasses.replace(event, neighbours="either")
    with pytest.raises(BudgetError, match="unknown neighbours 'add-remov'"):
        event_from_dict(event_to_dict(event) | {"neighbours": "add-remov"})
