from __future__ import annotations

import dataclasses
import json
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topdown.errors import BudgetError
from topdown.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from topdown.privacy import ExactEvent, GaussianEvent, LaplaceEvent, Plan, PureAccountant, ZCDPAccountant
from topdown.privacy.conversions import zcdp_to_epsilon

SHARES = {"nation": 0.2, "state": 0.3, "county": 0.5}
LEVELS = ["nation", "state", "county"]


def geometric(**changes: Any) -> Plan:
    return Plan(**({"mechanism": "geometric", "epsilon": 1.0, "shares": SHARES} | changes))


def gaussian(**changes: Any) -> Plan:
    return Plan(**({"mechanism": "discrete-gaussian", "rho": 0.5, "shares": SHARES} | changes))


def test_the_documented_call() -> None:
    plan = Plan(mechanism="geometric", epsilon=1.0, shares=dict(SHARES), neighbours="add-remove", invariants=())
    assert plan.epsilon == 1
    assert isinstance(plan.epsilon, Fraction)
    assert plan.rho is None
    assert plan.delta is None
    assert plan.is_pure
    assert [plan.budget(level) for level in LEVELS] == [Fraction(1, 5), Fraction(3, 10), Fraction(1, 2)]
    assert [plan.scale(level) for level in LEVELS] == [Fraction(5), Fraction(10, 3), Fraction(2)]
    assert plan.budget("county", "detailed") == Fraction(1, 2)


def test_a_gaussian_plan() -> None:
    plan = gaussian()
    assert plan.rho == Fraction(1, 2)
    assert plan.epsilon is None
    assert plan.delta == 1e-10
    assert not plan.is_pure
    assert plan.sigma2("nation") == 5
    assert gaussian(neighbours="substitute").sigma2("nation") == 10


def test_substitution_doubles_the_sensitivities() -> None:
    plan = geometric(neighbours="substitute")
    assert plan.sensitivity == 2
    assert plan.sensitivity_squared == 2
    assert plan.scale("county") == 4
    assert plan.budget("county") == Fraction(1, 2)


@pytest.mark.parametrize(
    "shares",
    [
        {"a": 0.1, "b": 0.2, "c": 0.7},
        {"a": "1/10", "b": "0.2", "c": "7/10"},
        {"a": Fraction(1, 10), "b": Decimal("0.2"), "c": np.float64(0.7)},
        {"a": {"detailed": "1/10"}, "b": {"detailed": 0.2}, "c": 0.7},
        {("a", "detailed"): "1/10", ("b", "detailed"): 0.2, "c": 0.7},
    ],
)
def test_every_form_of_shares_is_exact(shares: dict[Any, Any]) -> None:
    plan = geometric(shares=shares)
    assert plan.shares == {
        ("a", "detailed"): Fraction(1, 10),
        ("b", "detailed"): Fraction(1, 5),
        ("c", "detailed"): Fraction(7, 10),
    }
    assert plan.shares is not None
    assert plan.shares["a"] == Fraction(1, 10)
    assert plan.shares.levels == ("a", "b", "c")


def test_several_queries_of_a_level() -> None:
    plan = geometric(shares={"county": {"detailed": "1/3", "age": "1/6"}, "state": "1/2"})
    assert plan.budget("county", "age") == Fraction(1, 6)
    assert [(e.level, e.query) for e in plan.events(["state", "county"])] == [
        ("state", "detailed"),
        ("county", "detailed"),
        ("county", "age"),
    ]
    with pytest.raises(BudgetError, match=r"level 'county' has no query 'sex'.*'age'"):
        plan.budget("county", "sex")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(any), st.fractions(Fraction(1, 100), 100))
def test_the_parts_add_up_to_the_total_exactly(weights: list[int], epsilon: Fraction) -> None:
    names = [f"level{i}" for i in range(len(weights))]
    shares = {name: Fraction(w, sum(weights)) for name, w in zip(names, weights, strict=True)}
    plan = Plan(mechanism="geometric", epsilon=epsilon, shares=shares)
    assert sum(plan.budget(name) for name in names) == epsilon
    assert PureAccountant(plan.events(names)).total == epsilon
    gaussian_plan = Plan(mechanism="gaussian", rho=epsilon, shares=shares, neighbours="substitute")
    assert ZCDPAccountant(gaussian_plan.events(names)).total == epsilon


BAD: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": 0}, "epsilon is 0; give a number above 0"),
    ({"epsilon": -1}, "epsilon is -1"),
    ({"epsilon": math.nan}, "epsilon is nan"),
    ({"epsilon": math.inf}, "epsilon is inf"),
    ({"epsilon": "much"}, "epsilon is 'much'"),
    ({"epsilon": "1/0"}, "epsilon is '1/0'"),
    ({"epsilon": True}, "epsilon is True"),
    ({"epsilon": None}, "needs epsilon"),
    ({"rho": 1}, "spends epsilon and rho = 1 was given"),
    ({"delta": 1e-6}, "leave out delta"),
    ({"mechanism": "discrete-gaussian"}, "a delta with epsilon"),
    ({"mechanism": "discrete-gaussian", "rho": 1}, "both given"),
    ({"mechanism": "gaussian", "epsilon": None}, "needs rho"),
    ({"mechanism": "gaussian", "epsilon": None, "rho": 0}, "rho is 0"),
    ({"mechanism": "gaussian", "delta": 1}, "delta is 1"),
    ({"mechanism": "geometrical"}, "unknown mechanism 'geometrical'.*did you mean 'geometric'"),
    ({"mechanism": "discrete-gausian"}, "did you mean 'discrete-gaussian'"),
    ({"neighbours": "add-or-remove"}, "unknown neighbours 'add-or-remove'.*did you mean 'add-remove'"),
    ({"unit": ""}, "unit is ''"),
    ({"grid_bits": -1}, "grid_bits is -1"),
    ({"grid_bits": 1.5}, "grid_bits is 1.5"),
    ({"grid_bits": 33}, "grid_bits is 33"),
    ({"shares": {"a": 0.5, "b": 0.4}}, "add up to 0.9, not to exactly 1"),
    ({"shares": {"a": 0.1 * 3, "b": 0.7}}, r"add up to 1\.00000000000000004.*\"3/10\" for level 'a'"),
    ({"shares": {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}}, r"write \"1/3\" for level 'a'"),
    ({"shares": {"a": "1/3", "b": "1/3"}}, "add up to 2/3, not"),
    ({"shares": {"a": -0.5, "b": 1.5}}, "share of level 'a' is -0.5"),
    ({"shares": {"a": math.nan, "b": 1}}, "share of level 'a' is nan"),
    ({"shares": {"a": "half", "b": "1/2"}}, "share of level 'a' is 'half'"),
    ({"shares": {"a": None, "b": 1}}, "share of level 'a' is None"),
    ({"shares": {"a": True}}, "share of level 'a' is True"),
    ({"shares": {}}, "no level at all"),
    ({"shares": {3: 1}}, "key 3"),
    ({"shares": {"a": {"detailed": -1}, "b": 2}}, "share of level 'a' is -1"),
    ({"shares": {"a": {2: 1}}}, "have the key 2"),
    ({"shares": {"a": 0.5, ("a", "detailed"): 0.5}}, "level 'a' has two shares"),
    ({"shares": [0.5, 0.5]}, "mapping from level to share"),
    ({"invariants": ("state",)}, "level 'state' is invariant and has a share of 3/10"),
    ({"invariants": "nation"}, "give a list of level names"),
    ({"invariants": ("us", "us")}, "names level 'us' twice"),
    ({"invariants": (1,)}, "contains 1"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_a_bad_plan_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BudgetError, match=message):
        geometric(**changes)


def test_levels_are_checked() -> None:
    plan = geometric()
    plan.check_levels(LEVELS)
    with pytest.raises(BudgetError, match="level 'tract' has no share"):
        plan.check_levels([*LEVELS, "tract"])
    with pytest.raises(
        BudgetError,
        match=r"names level 'county', which the geography does not have.*write 'county' and 'counties' alike",
    ):
        plan.check_levels(["nation", "state", "counties"])
    with pytest.raises(BudgetError, match=r"no level 'countie'.*did you mean 'county'"):
        plan.budget("countie")
    with pytest.raises(BudgetError, match="names level 'block'"):
        geometric(invariants=["block"]).check_levels(LEVELS)
    with pytest.raises(BudgetError, match="list of level names"):
        plan.check_levels("nation")
    with pytest.raises(BudgetError, match="has no share"):
        plan.describe([*LEVELS, "tract"])


def test_equal_shares_once_the_levels_are_known() -> None:
    plan = geometric(shares=None, invariants=["nation"])
    with pytest.raises(BudgetError, match="for_levels"):
        plan.budget("state")
    with pytest.raises(BudgetError, match="for_levels"):
        plan.events()
    resolved = plan.for_levels(LEVELS)
    assert resolved.shares == {("state", "detailed"): Fraction(1, 2), ("county", "detailed"): Fraction(1, 2)}
    assert resolved.for_levels(LEVELS) is resolved
    assert plan.events(LEVELS) == resolved.events(LEVELS)
    assert plan.describe(LEVELS) == resolved.describe(LEVELS)
    with pytest.raises(BudgetError, match="every level is invariant"):
        geometric(shares=None, invariants=["nation"]).for_levels(["nation"])


def test_invariant_and_unmeasured_levels() -> None:
    plan = geometric(shares={"state": 0, "county": 1}, invariants=["nation"])
    assert plan.budget("nation") == plan.budget("state") == 0
    assert plan.law("nation") is None
    assert plan.law("state") is None
    assert plan.variance("nation") == 0.0
    assert plan.variance("state") == math.inf
    assert plan.scale("nation") == 0
    with pytest.raises(BudgetError, match="level 'state' is not measured"):
        plan.scale("state")
    assert [type(event) for event in plan.events(LEVELS)] == [ExactEvent, LaplaceEvent]
    gaussian_plan = gaussian(shares={"county": 1}, invariants=["nation"])
    assert gaussian_plan.sigma2("nation") == 0


def test_a_level_may_be_invariant_with_a_share_of_zero() -> None:
    plan = geometric(shares={"nation": 0, "state": "1/2", "county": "1/2"}, invariants=["nation"])
    assert plan.variance("nation") == 0.0
    assert [event.kind for event in plan.events(LEVELS)] == ["exact", "laplace", "laplace"]


def test_the_scale_belongs_to_the_family() -> None:
    with pytest.raises(BudgetError, match="ask for sigma2"):
        gaussian().scale("nation")
    with pytest.raises(BudgetError, match="ask for scale"):
        geometric().sigma2("nation")


def test_laws() -> None:
    law = geometric().law("nation")
    assert isinstance(law, DiscreteLaplace)
    assert law.scale == 5
    a = math.exp(-0.2)
    assert geometric().variance("nation") == pytest.approx(2 * a / (1 - a) ** 2, rel=1e-12)
    assert geometric().law("nation", continuous=True) == law
    law = gaussian().law("nation")
    assert isinstance(law, DiscreteGaussian)
    assert law.sigma2 == 5
    assert gaussian().variance("nation") == pytest.approx(5.0, rel=1e-9)


def test_laws_on_a_grid_and_continuous() -> None:
    plan = geometric(mechanism="laplace", grid_bits=4)
    law = plan.law("nation")
    assert isinstance(law, DiscreteLaplace)
    assert (law.scale, law.grid_bits) == (5, 4)
    a = math.exp(-0.2 / 16)
    assert plan.variance("nation") == pytest.approx(2 * a / (1 - a) ** 2 / 256, rel=1e-12)
    assert isinstance(plan.law("nation", continuous=True), Laplace)
    assert plan.variance("nation", continuous=True) == pytest.approx(50.0, rel=1e-12)
    plan = gaussian(mechanism="gaussian")
    law = plan.law("nation")
    assert isinstance(law, DiscreteGaussian)
    assert (law.sigma2, law.grid_bits) == (5, 10)
    assert isinstance(plan.law("nation", continuous=True), Gaussian)
    assert plan.variance("nation", continuous=True) == pytest.approx(5.0, rel=1e-12)


def test_a_budget_too_small_to_draw_for_names_the_level() -> None:
    with pytest.raises(BudgetError, match=r"level 'nation' has a budget of 1/5\d*: "):
        geometric(epsilon="1e-30").law("nation")


def test_events_say_what_was_measured() -> None:
    plan = geometric(mechanism="laplace", neighbours="substitute", unit="household", invariants=["us"])
    events = plan.events(["us", *LEVELS])
    assert events[0] == ExactEvent(level="us", unit="household", neighbours="substitute")
    assert events[1] == LaplaceEvent(
        level="nation",
        mechanism="laplace",
        scale=Fraction(10),
        sensitivity=Fraction(2),
        grid_bits=10,
        unit="household",
        neighbours="substitute",
    )
    event = gaussian(neighbours="substitute").events(LEVELS)[2]
    assert event == GaussianEvent(
        level="county", sigma2=Fraction(4), sensitivity_squared=Fraction(2), neighbours="substitute"
    )
    assert [e.level for e in plan.events(["county", "state", "nation", "us"])] == ["county", "state", "nation", "us"]


def test_a_gaussian_plan_for_a_target_epsilon() -> None:
    plan = Plan(mechanism="discrete-gaussian", epsilon=17.14, delta=1e-10, shares=SHARES)
    assert plan.rho is not None
    assert float(plan.rho) == pytest.approx(2.5553177660014468, rel=1e-10)
    assert zcdp_to_epsilon(plan.rho, 1e-10) <= 17.14
    assert plan.epsilon is None
    assert plan.delta == 1e-10


def test_description_of_a_pure_plan() -> None:
    text = geometric(neighbours="substitute", unit="household").describe(LEVELS)
    for words in [
        "Protected: each household",
        "(substitute) if they have the same number of records and differ in the record of one household",
        "L1 = 2, L2 = sqrt 2",
        "Total: epsilon = 1 (pure differential privacy)",
        "e^epsilon = 2.71828",
        "state: epsilon = 3/10 (0.3) of its own, epsilon = 1/2 (0.5) with the levels above",
        "share 3/10, scale 20/3 (6.66667)",
        "  county: epsilon = 1/2 (0.5)",
        "in any attribute or place: epsilon = 1.",
        "Published exactly: no level.",
    ]:
        assert words in text
    assert "NOT protected" not in text
    text = geometric().describe()
    assert "one is the other with the record of one person added or removed" in text
    assert "in any attribute or place: epsilon = 2." in text
    assert "with the levels above" not in text


def test_description_of_a_rho_plan_with_invariants() -> None:
    plan = gaussian(rho=Fraction(293764, 114921), shares={"nation": 0, "county": 1}, invariants=["state"])
    text = plan.describe(LEVELS)
    for words in [
        "Total: rho = 293764/114921 (2.55623)",
        "epsilon = 17.143551 at delta = 1e-10 (Canonne, Kamath, Steinke 2020)",
        "state: published exactly, without noise; not protected",
        "nation: not measured (share 0)",
        "no bound, it may change a count that is published exactly",
        "  state: no bound, this level or one below it is published exactly",
        "Published exactly: state. These counts carry no noise and are NOT protected",
        "only between tables that agree in every count of state",
    ]:
        assert words in text
    assert "state. These" in plan.describe()


def test_a_quoted_epsilon_is_rounded_up() -> None:
    text = gaussian().describe(LEVELS)
    quoted = float(text.split("epsilon = ")[1].split(" ")[0])
    exact = zcdp_to_epsilon(0.5, 1e-10)
    assert exact <= quoted < exact + 1e-6


def test_an_invariant_below_leaves_no_bound_above_in_any_order() -> None:
    plan = geometric(shares={"nation": "1/4", "state": "1/4", "tract": "1/2"}, invariants=["county"])
    assert all(level.given_above is None for level in plan.guarantee().levels)
    stated = {level.level: level for level in plan.guarantee(["nation", "state", "county", "tract"]).levels}
    assert stated["state"].given_above is None
    assert stated["tract"].given_above is not None
    assert stated["tract"].given_above.epsilon == 1


def test_the_manifest_form() -> None:
    plan = geometric(shares={"state": 0, "county": 1}, invariants=["nation"])
    written = json.loads(json.dumps(plan.to_dict()))
    assert written["epsilon"] == "1"
    assert written["rho"] is None
    assert written["invariants"] == ["nation"]
    assert written["shares"] == [
        {"level": "state", "query": "detailed", "share": "0", "epsilon": "0"},
        {"level": "county", "query": "detailed", "share": "1", "epsilon": "1", "scale": "1"},
    ]
    written = gaussian().to_dict()
    assert (written["rho"], written["delta"], written["grid_bits"]) == ("1/2", 1e-10, 0)
    assert written["shares"][0] == {
        "level": "nation",
        "query": "detailed",
        "share": "1/5",
        "rho": "1/10",
        "sigma2": "5",
    }
    assert geometric(mechanism="laplace").to_dict()["grid_bits"] == 10
    assert geometric(shares=None).to_dict()["shares"] is None


def test_a_plan_is_a_frozen_value() -> None:
    plan = geometric()
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.epsilon = Fraction(2)  # type: ignore[misc]
    assert plan == geometric(epsilon="1", shares={"nation": "1/5", "state": "3/10", "county": "1/2"})
    assert hash(plan) == hash(geometric())
    assert plan != geometric(epsilon=2)
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert dataclasses.replace(plan, epsilon=2).epsilon == 2
    assert dataclasses.replace(gaussian(), unit="household").unit == "household"
    assert "county" in repr(plan)
    assert len(plan.shares or ()) == 3
    with pytest.raises(KeyError):
        plan.shares["tract"]  # type: ignore[index]


# -- as it is recorded --

RECORDED = [
    Plan(epsilon=1, shares={"n": "1/2", "s": "1/2"}),
    Plan("laplace", epsilon="1/3", shares={"n": "1/2", "s": "1/2"}, grid_bits=7, unit="household"),
    Plan(epsilon=1, shares={"s": 1}, invariants=["n"], neighbours="substitute"),
    Plan("discrete-gaussian", rho="1/2", shares={"n": {"total": "1/4", "a": "1/4"}, "s": "1/2"}),
    Plan("discrete-gaussian", rho=1, shares={"n": {"total": "1/4"}, "s": "3/4"}, invariants={"n": ["b", "a"]}),
    Plan("discrete-gaussian", rho=1, shares={"s": 1}, invariants={"n": ["detailed"], "s": ["a"]}, delta=1e-7),
    Plan("gaussian", epsilon=1, delta=1e-6, shares={"s": 1}, invariants=["n"]),
    Plan(epsilon=1, shares={"n": "1/2", "s": "1/2"}, bounds={"s": "truncated"}, upper={"s": 100}),
    Plan(epsilon=1, shares={"n": "1/2", "s": "1/2"}, bounds="normalized", upper=500, calibration="uncorrected"),
    Plan(
        epsilon=1,
        shares={"n": "1/2", "s": "1/2"},
        bounds={"n": "truncated", "s": "boundary-inflated"},
        calibration="uncorrected",
    ),
    Plan(epsilon=2),
]


@pytest.mark.parametrize("plan", RECORDED)
def test_a_plan_is_read_back_from_its_record(plan: Plan) -> None:
    record = json.loads(json.dumps(plan.to_dict()))
    assert Plan.from_dict(record).to_dict() == plan.to_dict()
    if plan.shares is not None:
        assert Plan.from_dict(record).events(["n", "s"]) == plan.events(["n", "s"])


def test_a_record_names_as_exact_what_is_exact_and_nothing_else() -> None:
    plan = Plan(
        "discrete-gaussian",
        rho=1,
        shares={"n": {"total": "1/4", "a": "1/4"}, "s": "1/2"},
        invariants={"n": ["b"], "t": ["detailed"]},
    )
    assert plan.to_dict()["invariants"] == {"n": ["b"], "t": ["detailed"]}


def test_a_level_of_which_some_queries_are_exact_needs_no_share() -> None:
    plan = Plan(epsilon=1, shares={"s": 1}, invariants={"n": ["total"]})
    assert plan.variance("n", "total") == 0
    with pytest.raises(BudgetError, match="level 'n' has no query 'detailed'; known: 'total'"):
        plan.share("n")
    with pytest.raises(BudgetError, match="no level 'm'"):
        plan.share("m")
