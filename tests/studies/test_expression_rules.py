"""Rules that a user writes: expressions are parsed and never run, and presets give what the law's arithmetic gives."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from topdown.errors import ConfigError
from topdown.studies.decisions.expression_rules import Areas
from topdown.studies.decisions.expressions import Expression
from topdown.studies.decisions.rule_presets import RULE_PRESETS, preset_rules

A, B = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 0.0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + 2 * b", [5, 6, 3]),
        ("-a / 2", [-0.5, -1, -1.5]),
        ("a < b", [1, 0, 0]),
        ("1 <= a < 3", [1, 1, 0]),
        ("a >= 2 and not b == 0", [0, 1, 0]),
        ("a == 1 or b == 0", [1, 0, 1]),
        ("10 if a > b else 20", [20, 20, 10]),
        ("nation(a)", [6, 6, 6]),
        ("a / mean(a)", [0.5, 1, 1.5]),
        ("(highest(a) - lowest(a)) / mean(a)", [1, 1, 1]),
        ("min(a, b) + max(a, 2)", [3, 4, 3]),
        ("brackets(a, [1, 2], [1, 10, 100])", [1, 11, 111]),
        ("`a b` * 2", [14, 16, 18]),
        ("a / b > 0.4", [1, 1, 0]),
        ("a / b < 9 or a / b >= 9 or a / b != 9", [1, 1, 0]),
        ("(b - b) / b > 0", [0, 0, 0]),
        ("a < 1e300 * 1e300", [1, 1, 1]),
        ("5", [5, 5, 5]),
        ("nation(1)", [3, 3, 3]),
        ("highest(3) + brackets(3, [1], [1, 2])", [8, 8, 8]),
        ("nation(c)", [12, 12, 12]),  # one number for all units
        ("(a > 1) + (b > 1)", [1, 2, 1]),
        ("-(a > 1) - (b > 1)", [-1, -2, -1]),
        ("(a > 1) == (b > 1)", [0, 1, 0]),
    ],
)
def test_expressions_are_evaluated_unit_by_unit(text: str, expected: list[float]) -> None:
    values = {"a": A, "b": B, "a b": A + 6, "c": np.array([4.0])}
    np.testing.assert_allclose(Expression.parse(text).of(values), np.array(expected, dtype=float), strict=True)
    stacked = {name: np.stack([one, one]) for name, one in values.items()}
    np.testing.assert_allclose(Expression.parse(text).of(stacked), np.array([expected] * 2, dtype=float), strict=True)


@pytest.mark.parametrize(
    ("text", "tie"),
    [
        ("u > {c} * (u + e)", 0),
        ("{c} * (u + e) < u", 0),
        ("u / (u + e) > {c}", 0),
        ("u - {c} * (u + e) > 0", 0),
        ("0 > ({c} * (u + e) - u) / (u + e)", 0),
        ("u / (u + e) - {c} != 0", 0),
        ("not u / (u + e) <= {c}", 0),
        ("1 if u > {c} * (u + e) else 0", 0),
        ("u >= {c} * (u + e)", 1),
        ("u / (u + e) >= {c}", 1),
        ("u / (u + e) == {c}", 1),
    ],
)
def test_what_is_exactly_reached_is_equal(text: str, tie: int) -> None:
    """57 of 100 is no more than .57, though 0.57 * 100 is 56.99999999999999; one more, or less, of a million is."""
    for cutoff in range(1, 100):
        u = np.array([cutoff, 17 * cutoff, 10_000 * cutoff, 10_000 * cutoff + 1, 10_000 * cutoff - 1], dtype=float)
        everybody = np.array([100, 1_700, 1_000_000, 1_000_000, 1_000_000], dtype=float)
        found = Expression.parse(text.format(c=cutoff / 100)).of({"u": u, "e": everybody - u})
        np.testing.assert_array_equal(found[:3], tie, err_msg=str(cutoff))
        near = {"!=": [1, 1], "==": [0, 0]}.get(next((sign for sign in ("!=", "==") if sign in text), ""), [1, 0])
        np.testing.assert_array_equal(found[3:], near, err_msg=str(cutoff))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "a.real",
        "a[0]",
        "(lambda: 1)()",
        "[x for x in a]",
        "a ** 9",
        "a // b",
        "a % b",
        "'text'",
        "True",
        "1j",
        "f'{a}'",
        "a := 3",
        "open(a)",
        "min(a)",
        "nation(a, b)",
        "min(a, b, key=a)",
        "a +",
        "",
        "a; b",
        "a in b",
        "a is b",
        "[1, 2]",
        "a + [1, 2]",
        "highest([1, 2])",
        "brackets([1, 2], [1], [1, 2])",
        "brackets(a, 10, [1, 2])",
        "brackets(a, [10], a)",
        "brackets(a, [10, a], [1, 2, 3])",
        "brackets(a, [[10]], [1, 2])",
        "1e400 * a",
        "9" * 400,
        "+" * 5_000 + "a",
        "not " * 100 + "a",
        "(" * 300 + "a" + ")" * 300,
    ],
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expression"):
        Expression.parse(text)


@given(st.text(max_size=60))
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    try:
        found = Expression.parse(text)
    except ConfigError:
        return
    assert all(isinstance(name, str) for name in found.names)


def test_a_name_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="asks for 'c'; there are 'a', 'b'"):
        Expression.parse("a + c").of({"a": A, "b": B})


# -- rules ------------------------------------------------------------------------------------------------------------


def counts(rows: dict[str, list[int]], parents: list[str] | None = None) -> td.Counts:
    n = len(next(iter(rows.values())))
    frame = pd.DataFrame({"n": "US", "s": parents or ["A"] * n, "c": [f"c{k}" for k in range(n)], **rows})
    geography = td.Geography.from_table(frame, ["n", "s", "c"])
    return td.Counts.from_table(frame, geography, geoid="c", cells=list(rows))


def outcome(rule: td.Rule, found: td.Counts) -> list[float]:
    return [float(x) for x in rule.outcome(found.values.T.astype(float), found.cells, found.geography.tree)]


def test_a_fund_pays_between_floors_and_ceilings_and_pays_all() -> None:
    found = counts({"x": [10, 20, 70]})
    columns = {"total": np.array([1000.0]), "prior": np.array([300.0, 100.0, 100.0])}
    rule = td.Rule("fund", amount="x", floor="0.9 * prior", ceiling="500", columns=columns)
    # 270 is the first one's floor; of the other 730 the third may have 500; the second has what is left.
    np.testing.assert_allclose(outcome(rule, found), [0.27, 0.23, 0.5], atol=1e-12)
    halved = td.Rule("fund", amount="x", floor="4 * prior", columns=columns)
    np.testing.assert_allclose(outcome(halved, found), [0.6, 0.2, 0.2])  # floors beyond the total, in proportion
    capped = td.Rule("fund", amount="x", ceiling="100", columns=columns)
    np.testing.assert_allclose(outcome(capped, found), [0.1, 0.1, 0.1])  # what nobody may have is not paid


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"eligible": "x > 1000"}, [0, 0, 0]),
        ({"eligible": "x > 1000", "floor": "100"}, [0, 0, 0]),
        ({"eligible": "x > 1000", "ceiling": "100"}, [0, 0, 0]),
        ({"eligible": "x > 10", "floor": "300"}, [0, 0.3, 0.7]),
        ({"eligible": "x > 10", "ceiling": "200"}, [0, 0.2, 0.2]),
        ({"eligible": "x > 10", "floor": "900"}, [0, 0.5, 0.5]),  # floors beyond the total, in proportion
        ({"eligible": "x > 10", "amount": "0"}, [0, 0.5, 0.5]),
        ({"amount": "0"}, [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_a_fund_pays_nothing_to_those_that_are_not_eligible(arguments: dict[str, Any], expected: list[float]) -> None:
    rule = td.Rule("fund", **{"amount": "x", "columns": {"total": np.array([1000.0])}, **arguments})
    np.testing.assert_allclose(outcome(rule, counts({"x": [10, 20, 70]})), expected, atol=1e-12)


@given(
    st.lists(st.integers(0, 1000), min_size=3, max_size=3),
    st.lists(st.integers(0, 200), min_size=3, max_size=3),
    st.integers(1, 2000),
)
def test_what_is_paid_is_the_solution_of_the_law(x: list[int], prior: list[int], total: int) -> None:
    """Each is paid max(floor, lambda amount), all with one lambda, and the sum is what there is."""
    columns = {"total": np.array([float(total)]), "prior": np.array(prior, dtype=float)}
    paid = total * np.array(outcome(td.Rule("fund", amount="x", floor="prior", columns=columns), counts({"x": x})))
    if sum(prior) > total:
        np.testing.assert_allclose(paid, total * np.array(prior) / sum(prior), rtol=1e-9)
        return
    if not any(x):
        np.testing.assert_allclose(paid, prior)
        return
    assert paid.sum() == pytest.approx(total, rel=1e-9)
    above = [p / a for p, a, f in zip(paid, x, prior, strict=True) if a and p > f * (1 + 1e-9) + 1e-9]
    assert all(rate == pytest.approx(above[0], rel=1e-6) for rate in above)
    assert all(p >= f - 1e-9 for p, f in zip(paid, prior, strict=True))


def test_areas_are_sums_of_leaves_and_need_no_level() -> None:
    found = counts({"x": [1, 2, 4, 8]}, ["A", "A", "B", "B"])
    areas = Areas(("east", "west"), np.array([0, 1, 1, -1]))
    rule = td.Rule("half", eligible="x > 0.5 * nation(x)", areas=areas)
    assert outcome(rule, found) == [0, 1]
    table = td.simulate(found, td.Plan(epsilon=1), ["gls"], 50, 1, rules=[rule], distances=False)
    assert table.rule_units("half") == (["east", "west"], None)
    assert set(table.rules_frame()["geoid"]) == {"east", "west"}
    flips = td.fairness.flips(table, "gls", rule)
    assert flips["decision"].tolist() == [False, True]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"figure": "x / y"}, [2, 0, 0]),
        ({"figure": "1 / (x - x)"}, [0, 0, 0]),
        ({"amount": "x / y + 0 * z"}, [1, 0, 0]),
        ({"amount": "z", "floor": "2500 * x / y", "columns": {"total": np.array([10_000.0])}}, [0.5, 0.25, 0.25]),
        ({"amount": "z", "ceiling": "1000 * x / y", "columns": {"total": np.array([10_000.0])}}, [0.2, 0, 0]),
        ({"eligible": "x / y > 1"}, [1, 0, 0]),
    ],
)
def test_a_quotient_with_a_base_of_0_counts_as_0(arguments: dict[str, Any], expected: list[float]) -> None:
    found = counts({"x": [4, 3, 0], "y": [2, 0, 0], "z": [1, 1, 1]})
    np.testing.assert_allclose(outcome(td.Rule("r", **arguments), found), expected)


@pytest.mark.parametrize("figure", ["1", "highest(3)", "total", "nation(price)"])
@pytest.mark.parametrize("areas", [None, Areas(("east", "west"), np.array([0, 1, 1]))])
def test_a_figure_without_counts_is_a_number_for_every_unit(figure: str, areas: Areas | None) -> None:
    units = 3 if areas is None else 2
    columns = {"total": np.array([1.0]), "price": np.ones(units)}
    rule = td.Rule("r", figure=figure, areas=areas, columns=columns)
    expected = {"highest(3)": 3.0, "nation(price)": float(units)}.get(figure, 1.0)
    table = td.simulate(counts({"x": [1, 2, 4]}), td.Plan(epsilon=1), ["gls"], 5, 1, rules=[rule], distances=False)
    assert table.rules["gls", "r"]["truth"].tolist() == [expected] * units
    assert table.rules["gls", "r"]["mean_absolute_error"].tolist() == [0.0] * units


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "r"}, "give eligible"),
        ({"name": "", "eligible": "x > 1"}, "no name"),
        ({"name": "r", "figure": "x", "amount": "x"}, "give eligible"),
        ({"name": "r", "eligible": "x > 1", "floor": "3"}, "of an amount"),
        ({"name": "r", "amount": "x", "floor": "3"}, "needs a column .total."),
        ({"name": "r", "eligible": "x > y"}, "asks for 'y'"),
        ({"name": "r", "figure": "p", "columns": {"p": B[:2]}}, "column 'p' has 2 numbers for 3 units"),
        ({"name": "r", "eligible": "s > 1", "sums": {"s": ("x", "z")}}, "names 'z'"),
        ({"name": "r", "eligible": "s > 1", "sums": {"s": ("x",)}, "columns": {"s": A}}, "a sum and a column"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        outcome(td.Rule(**arguments), counts({"x": [1, 2, 3]}))


# -- presets, by the law's arithmetic in exact fractions ---------------------------------------------------------------

CHILDREN, SCHOOL_AGE = [9, 10, 15, 300, 7000, 800], [90, 600, 100, 1500, 60000, 1800]
SPENDING = [7000, 9000, 10000, 16000, 10000, 12000]
NATIONAL = 10_000


def paid_per_child(k: int) -> Fraction:
    spent = min(max(Fraction(SPENDING[k]), Fraction(8, 10) * NATIONAL), Fraction(12, 10) * NATIONAL)
    return Fraction(4, 10) * spent


def weighted(value: Fraction, limits: list[Fraction], weights: list[Fraction]) -> Fraction:
    total, low = Fraction(0), Fraction(0)
    for limit, weight in zip([*limits, None], weights, strict=True):
        high = value if limit is None else min(value, limit)
        total += weight * max(high - low, Fraction(0))
        low = low if limit is None else limit
    return total


def title_1(kind: str) -> list[Fraction]:
    amounts = []
    for k, (c, n) in enumerate(zip(CHILDREN, SCHOOL_AGE, strict=True)):
        basic = c >= 10 and c > Fraction(2, 100) * n
        if kind == "basic":
            amounts.append(paid_per_child(k) * c if basic else Fraction(0))
        elif kind == "concentration":
            concentrated = basic and (c > 6500 or c > Fraction(15, 100) * n)
            amounts.append(paid_per_child(k) * c if concentrated else Fraction(0))
        else:
            weights = [Fraction(w) for w in ("1", "1.75", "2.5", "3.25", "4")]
            share = weighted(Fraction(c, n), [Fraction(s) for s in ("0.1558", "0.2211", "0.3016", "0.3824")], weights)
            numbers = weighted(
                Fraction(c),
                [Fraction(s) for s in (691, 2262, 7851, 35514)],
                [Fraction(w) for w in ("1", "1.5", "2", "2.5", "3")],
            )
            targeted = c >= 10 and c >= Fraction(5, 100) * n
            amounts.append(paid_per_child(k) * max(share * n, numbers) if targeted else Fraction(0))
    return [amount / sum(amounts) for amount in amounts]


def title_1_rules(**more: Any) -> tuple[list[td.Rule], td.Counts]:
    found = counts({"children": CHILDREN, "school_age": SCHOOL_AGE})
    columns = {"spending": np.array(SPENDING, dtype=float), "national_spending": np.full(6, float(NATIONAL)), **more}
    return preset_rules("title-1", columns=columns), found


@pytest.mark.parametrize("number", [0, 1, 2])
def test_title_1_is_the_statute_s_arithmetic(number: int) -> None:
    rules, found = title_1_rules()
    expected = [float(share) for share in title_1(["basic", "concentration", "targeted"][number])]
    assert expected[0] == 0  # nine children are too few
    np.testing.assert_allclose(outcome(rules[number], found), expected, rtol=1e-12)


def test_title_1_holds_harmless_those_that_are_eligible() -> None:
    """95, 90 or 85 % of what was paid before, by the share of children; what is left is cut for the others."""
    prior = np.array([0.0, 100.0, 200.0, 3000.0, 1000.0, 500.0])
    rules, found = title_1_rules(prior=prior, total=np.array([5000.0]))
    paid = 5000 * np.array(outcome(rules[0], found))
    shares = np.array(CHILDREN) / np.array(SCHOOL_AGE)
    floor = np.where(shares >= 0.3, 0.95, np.where(shares >= 0.15, 0.9, 0.85)) * prior
    eligible = np.array([share > 0 for share in title_1("basic")])
    assert paid.sum() == pytest.approx(5000)
    assert (paid[eligible] >= floor[eligible] - 1e-9).all()
    assert (paid[~eligible] == 0).all()
    assert paid[3] == pytest.approx(0.9 * 3000)


def test_section_203_asks_for_number_or_part_and_for_illiteracy() -> None:
    rows = {
        "limited_english": [400, 600, 10_001, 10_000, 600],
        "voting_age_citizens": [10_000, 10_000, 1_000_000, 1_000_000, 10_000],
        "illiterate": [300, 300, 300, 9_000, 6],
    }
    (rule,) = preset_rules("section-203", columns={"national_illiteracy": np.full(5, 0.0131)})
    assert outcome(rule, counts(rows)) == [0, 1, 1, 0, 0]


def test_seats_are_huntington_and_hill_s() -> None:
    """Against the definition: no seat could move to a unit with a larger priority."""
    people = [105, 3046, 52, 999, 1000, 220]
    (rule,) = preset_rules("seats", seats=20)
    seats = outcome(rule, counts({"population": people}))
    assert sum(seats) == 20
    last = min(p / math.sqrt(s * (s - 1)) for p, s in zip(people, seats, strict=True) if s > 1)
    assert all(p / math.sqrt(s * (s + 1)) <= last for p, s in zip(people, seats, strict=True))
    with pytest.raises(ConfigError, match="5 seats for 6 units"):
        outcome(preset_rules("seats", seats=5)[0], counts({"population": people}))


def test_the_seats_of_2010_are_those_that_were_apportioned() -> None:
    """Three states of the census of 2010 among themselves, worked by hand: 4 seats for 3 units, the last to the one
    with the largest P / sqrt(2)."""
    (rule,) = preset_rules("seats", seats=5)
    # Priorities for the second seat 70.7, 35.4, 28.3; for the third of the first 40.8: two more for it.
    assert outcome(rule, counts({"population": [100, 50, 40]})) == [3, 1, 1]


def test_redistricting_and_cohesion() -> None:
    found = counts({"population": [90, 100, 110], "minority": [30, 50, 60], "voting_age": [70, 90, 100]})
    by_name = {rule.label: outcome(rule, found) for rule in preset_rules("redistricting")}
    assert by_name["range of the districts"] == pytest.approx([0.2] * 3)
    assert by_name["range above 10 %"] == [1, 1, 1]
    assert by_name["deviation of a district"] == pytest.approx([-0.1, 0, 0.1])
    assert by_name["majority"] == [0, 1, 1]
    poor, between = preset_rules("cohesion", columns={"product": np.array([50.0, 80.0, 170.0])})
    regions = counts({"population": [100, 100, 100]})  # the mean is 100 a head
    assert outcome(poor, regions) == [1, 0, 0]
    assert outcome(between, regions) == [0, 1, 0]


def test_suppression_hides_a_second_one_that_would_give_the_first_away() -> None:
    found = counts({"count": [3, 50, 20, 20, 4, 5, 90, 0, 60]}, ["A"] * 4 + ["B"] * 3 + ["C"] * 2)
    (rule,) = preset_rules("suppression", least=10.0)
    # In A one is small, and of the two 20s the first goes with it; in B there are two already; in C none.
    assert outcome(rule, found) == [1, 0, 1, 0, 1, 1, 0, 0, 0]
    stacked = np.stack([found.values.T, found.values.T[:, ::1]]).astype(float)
    assert rule.outcome(stacked, found.cells, found.geography.tree).shape == (2, 9)


def test_every_preset_has_rules_whose_names_it_explains() -> None:
    for name, preset in RULE_PRESETS.items():
        rules = preset_rules(name, **({"seats": 3} if name == "seats" else {}))
        for rule in rules:
            texts = [rule.eligible, rule.amount, rule.figure]
            asked = {one for text in texts if text for one in Expression.parse(text).names}
            assert asked <= set(preset.asks), name
        assert preset.source
    with pytest.raises(ConfigError, match="unknown preset"):
        preset_rules("title-2")


def test_the_bias_of_a_smooth_rule_is_its_curvature_times_the_variance() -> None:
    """f'' v / 2 for a rate per count (Tran and others, 2021): 1 / x at 100 with noise of variance v."""
    found = counts({"x": [100, 120, 110]})
    plan = td.Plan("geometric", epsilon="0.5", invariants=["n"], shares={"s": 0, "c": 1})
    rule = td.Rule("rate", figure="100000 / x")
    table = td.simulate(found, plan, ["raw"], 40_000, 4, rules=[rule], distances=False)
    variance = float(plan.for_levels(["n", "s", "c"]).law("c").variance)
    got = table.rules["raw", "rate"]
    for k, x in enumerate([100, 120, 110]):
        expected = 100_000 / x**3 * variance  # f'' = 2 * 100000 / x^3
        assert got["mean_error"][k] == pytest.approx(expected, abs=4 * got["mean_error_se"][k] + 0.02 * expected)
        assert expected > 2 * got["mean_error_se"][k]
