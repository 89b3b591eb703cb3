"""The smallest budget for stated errors: against cvxpy, brute force and closed forms, and from a file to a file."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import topdown as td
from support.trees import leaves_below
from topdown.geography.tree import Tree
from topdown.planning.budget_allocation import Bound, cheapest, locally_cheapest
from topdown.planning.expected import planned_covariance
from topdown.planning.plan_toml import as_toml
from topdown.planning.precision import Answered, Precisions, kinds
from topdown.planning.targets import Target
from topdown.projection.histograms.components import Components
from topdown.workload import Query

SCHEMA = td.Schema.from_mapping(
    {"sex": ["f", "m"], "age": ["child", "adult", "old"]},
    {"age": {"minor": {"minor": ["child"], "of age": ["adult", "old"]}}},
)
COUNTIES = ["0101", "0102", "0103", "0201", "0202", "0203", "0301", "0401", "0402"]
PLACES = td.Geography.from_geoids(COUNTIES, widths={"state": 2, "county": 4}, root_level="us")
QUERIES = {"us": ["total", "minor"], "state": ["sex * minor"], "county": ["minor", "detailed"]}
MEASURED = tuple(
    (PLACES.levels.index(level), Query.parse(query, SCHEMA)) for level, asked in QUERIES.items() for query in asked
)
COMPONENTS = Components(SCHEMA, tuple(dict.fromkeys(query for _, query in MEASURED)))
FEW = td.Geography.from_geoids(["0101", "0102", "0201"], widths={"state": 2, "county": 4}, root_level="us")
PRECISIONS = Precisions(kinds(PLACES.tree), COMPONENTS, MEASURED, ())


def answered(level: str, query: str) -> Answered:
    return Answered.of(PLACES.levels.index(level), Query.parse(query, SCHEMA), COMPONENTS)


def test_units_whose_surroundings_have_one_shape_are_one_kind() -> None:
    tree, times = kinds(PLACES.tree)
    # States 01 and 02 have three counties each, 03 has one, 04 two.
    assert tree.level_offsets.tolist() == [0, 1, 4, 7]
    assert sorted(times[1:4].tolist()) == [1, 1, 2]
    assert sorted(times[4:].tolist()) == [1, 2, 3]
    deep = Tree.from_family_sizes([[2], [2, 2], [3, 1, 1, 3], [1] * 8])
    assert kinds(deep).tree.level_offsets.tolist() == [0, 1, 2, 4, 6, 8]


@pytest.mark.parametrize("query", ["total", "age", "minor", "detailed", "sex"])
@pytest.mark.parametrize("level", PLACES.levels)
def test_variances_and_slopes_are_those_of_least_squares(level: str, query: str) -> None:
    precision = np.array([0.3, 0.1, 0.2, 0.5, 0.7])

    def exact(at: np.ndarray) -> float:
        variances = {(PLACES.levels[k], q): 1 / p for (k, q), p in zip(MEASURED, at, strict=True)}
        covariance = planned_covariance(PLACES, SCHEMA, variances)
        return float(covariance.variance(Query.parse(query, SCHEMA), PLACES.level_slice(level)).max())

    (found,) = PRECISIONS.worst(precision, [answered(level, query)])
    assert found.variance == pytest.approx(exact(precision), rel=1e-7)
    for k in range(len(precision)):
        step = np.eye(len(precision))[k] * precision[k] * 1e-5
        slope = (exact(precision + step) - exact(precision - step)) / (2 * step[k])
        assert found.gradient[k] == pytest.approx(slope, rel=1e-4, abs=1e-7 * abs(found.gradient).max())


def stated_to_cvxpy(bounds: list[tuple[str, str, float]]) -> float:
    """The least sum of precisions with every c' M(p)^-1 c below its bound, by the information matrix of the leaves."""
    tree = FEW.tree
    below = leaves_below(tree)

    def rows(level: str, query: str) -> np.ndarray:
        return np.kron(below[FEW.level_slice(level)], Query.parse(query, SCHEMA).matrix().toarray())

    p = cp.Variable(len(MEASURED), nonneg=True)
    matrices = [rows(PLACES.levels[level], query.name) for level, query in MEASURED]
    information = sum(p[j] * (m.T @ m) for j, m in enumerate(matrices))
    limits = [
        cp.matrix_frac(row, information) <= most
        for level, query, most in bounds
        for row in np.unique(rows(level, query), axis=0)
    ]
    problem = cp.Problem(cp.Minimize(cp.sum(p)), limits)
    # On some processors it does not get to the 1e-8 that it strives for by itself.
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-7, tol_gap_rel=1e-7, tol_feas=1e-7)
    assert problem.status == "optimal"
    return float(problem.value)


@pytest.mark.parametrize(
    "bounds",
    [
        [("county", "detailed", 9.0)],
        [("county", "total", 4.0), ("state", "sex", 5.0), ("us", "total", 6.0)],
        [("county", "age", 5.0), ("us", "detailed", 3.0)],
    ],
)
def test_the_convex_program_has_the_optimum_that_cvxpy_finds(bounds: list[tuple[str, str, float]]) -> None:
    precisions = Precisions(kinds(FEW.tree), COMPONENTS, MEASURED, ())
    found = cheapest(precisions, [Bound(answered(level, query), most) for level, query, most in bounds])
    assert found.least is not None
    assert found.least <= found.price <= found.least * (1 + 1.1e-4)
    assert found.price == pytest.approx(stated_to_cvxpy(bounds), rel=3e-4)


COUNTS = td.Schema.of_cells(["n"])
CELL = Query.parse("detailed", COUNTS)
LEVELS = Precisions(
    kinds(Tree.from_family_sizes([[6], [1, 3, 3, 8, 20, 60]])),
    Components(COUNTS, (CELL,)),
    tuple((level, CELL) for level in range(3)),
    (),
)
LIMITS = [Bound(Answered.of(2, CELL, LEVELS.components), 100.0), Bound(Answered.of(1, CELL, LEVELS.components), 180.0)]


def spent(precision: np.ndarray) -> np.ndarray:
    return 2 * np.arcsinh(np.sqrt(precision / 2))


def slope(precision: np.ndarray) -> np.ndarray:
    return 1 / (np.sqrt(2 * precision) * np.sqrt(1 + precision / 2))


def by_brute_force(precision_of) -> float:  # type: ignore[no-untyped-def]
    """The least budget over a grid of shares, each with the least budget that meets the bounds."""

    def met(budget: float, shares: np.ndarray) -> bool:
        found = LEVELS.worst(precision_of(budget * shares), [limit.asked for limit in LIMITS])
        return all(one.variance <= limit.most for one, limit in zip(found, LIMITS, strict=True))

    best = 10.0
    for root in np.linspace(0, 0.4, 17):
        for state in np.linspace(0, 0.9 - root, 31):
            shares = np.maximum([root, state, 1 - root - state], 1e-7)
            if not met(best, shares):  # nor for less
                continue
            low, high = 1e-4, best
            while high / low > 1 + 1e-5:
                middle = math.sqrt(low * high)
                low, high = (low, middle) if met(middle, shares) else (middle, high)
            best = high
    return best


def test_the_gaussian_optimum_is_no_worse_than_brute_force() -> None:
    best = by_brute_force(lambda budget: budget)
    found = cheapest(LEVELS, LIMITS)
    assert found.least is not None
    assert found.least <= best
    assert found.price <= best * (1 + 1e-4)
    assert found.price > 0.99 * best


def test_the_geometric_solution_is_no_worse_than_brute_force() -> None:
    best = by_brute_force(lambda budget: 2 * np.sinh(budget / 2) ** 2)
    found = locally_cheapest(LEVELS, LIMITS, spent, slope)
    assert found.least is None
    assert found.price <= best * (1 + 1e-4)
    assert found.price > 0.97 * best


# -- plans ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["geometric", "discrete-gaussian", "laplace", "gaussian"])
def test_targets_hold_and_one_percent_less_does_not_meet_them(mechanism: str) -> None:
    start = {"rho": 1} if "gaussian" in mechanism else {"epsilon": 1}
    plan = td.Plan(
        mechanism, **start, shares={k: dict.fromkeys(v, "1/5") for k, v in QUERIES.items()}, neighbours="substitute"
    )
    targets = ["county: 60 at 90 %", "state, total: 45 at 95 %", "us, minor: 40 at 99 %"]
    found = td.smallest_budget(plan, PLACES, targets, SCHEMA)

    def margins(of: td.Plan) -> list[float]:
        return [
            of.errors(PLACES, SCHEMA, queries=[query], confidence=confidence)
            .set_index("level")
            .loc[level, "margin_largest"]
            for level, query, confidence in (
                ("county", "detailed", 0.9),
                ("state", "total", 0.95),
                ("us", "minor", 0.99),
            )
        ]

    assert [margin for _, margin in found.targets] == margins(found.plan)
    assert all(margin <= most for margin, most in zip(margins(found.plan), (60, 45, 40), strict=True))
    assert found.plan.shares is not None
    assert sum(found.plan.shares.values()) == 1
    currency = "epsilon" if found.plan.is_pure else "rho"
    less = td.Plan(
        mechanism, **{currency: found.plan.total * Fraction(99, 100)}, shares=found.plan.shares, neighbours="substitute"
    )
    assert any(margin > most for margin, most in zip(margins(less), (60, 45, 40), strict=True))
    if found.least is None:
        assert "there may be a smaller one" in found.words
    else:
        # A single draw of whole numbers within 40 is like normal noise within 40.5; the grid of the other is fine.
        wider = (40.5 / 40) ** 2 if mechanism == "discrete-gaussian" else 1.0
        assert found.least <= float(found.plan.total) <= 1.003 * wider * found.least


@pytest.mark.parametrize(("mechanism", "margin"), [("discrete-gaussian", 5), ("discrete-gaussian", 1), ("gaussian", 5)])
def test_the_lower_bound_is_one_for_noise_on_whole_numbers(mechanism: str, margin: int) -> None:
    """With one level measured the budget is the least variance of a single draw, from the sum over its law."""
    plan = td.Plan(mechanism, rho=1, shares={"us": 0, "state": 0, "county": 1}, neighbours="substitute")
    found = td.smallest_budget(plan, PLACES, [f"county: {margin} at 90 %"])

    def within(sigma2: float) -> float:
        if mechanism == "gaussian":
            return float(norm.cdf(margin / sigma2**0.5) - norm.cdf(-margin / sigma2**0.5))
        k = np.arange(-1000, 1001)
        mass = np.exp(-(k**2) / (2 * sigma2))
        return float(mass[np.abs(k) <= margin].sum() / mass.sum())

    largest = brentq(lambda sigma2: within(sigma2) - 0.9, 0.1, 1000)
    assert found.least is not None
    assert found.least == pytest.approx(1 / largest, rel=2e-3)
    assert found.least <= float(found.plan.total) <= 1.003 * found.least
    assert "(0 % below)" not in found.words


@pytest.mark.parametrize(
    "shares", [{"us": 0, "state": 0, "county": 1}, dict.fromkeys(("us", "state", "county"), "1/3")]
)
@pytest.mark.parametrize("target", ["state: 0.5", "state: 0.9", "county: 0.9", "state: 1.5", "state: 2.5", "county: 5"])
def test_it_is_one_where_the_noise_is_mostly_0(shares: dict[str, Any], target: str) -> None:
    """The variance of the discrete law is then far below its parameter, which is what a budget buys."""
    plan = td.Plan("discrete-gaussian", rho=1, shares=shares)
    found = td.smallest_budget(plan, PLACES, [f"{target} at 90 %"])
    assert found.least is not None
    assert found.least <= float(found.plan.total)
    if shares["us"] == 0 and target != "county: 0.9":  # a whole number within 0.9 is 0, as within 0.5
        assert float(found.plan.total) <= 1.003 * found.least


def test_one_level_alone_costs_what_its_law_says() -> None:
    plan = td.Plan("gaussian", rho=1, shares={"us": 0, "state": 0, "county": 1}, neighbours="substitute")
    found = td.smallest_budget(plan, PLACES, ["county: 25 at 95 %"])
    # sigma = 25 / 1.95996, rho = 2 / (2 sigma^2).
    assert float(found.plan.total) == pytest.approx((1.959964 / 25) ** 2, rel=1e-3)


def test_exact_queries_help_and_cost_nothing() -> None:
    shares = {"us": {"detailed": "1/3"}, "state": {"detailed": "1/3"}, "county": {"detailed": "1/3"}}
    targets = ["state, total: 10 at 90 %", "county, total: 30 at 90 %"]
    free = td.smallest_budget(td.Plan("gaussian", rho=1, shares=shares), PLACES, targets, SCHEMA)
    held = td.Plan("gaussian", rho=1, shares=shares, invariants={"state": ["total"]})
    fewer = td.smallest_budget(held, PLACES, targets, SCHEMA)
    assert fewer.plan.exact_queries == (("state", "total"),)
    assert fewer.targets[0][1] == 0
    assert float(fewer.plan.total) < 0.7 * float(free.plan.total)
    assert fewer.least is not None
    assert fewer.least <= float(fewer.plan.total) <= 1.003 * fewer.least
    with pytest.raises(td.errors.ConfigError, match="published exactly"):
        td.smallest_budget(held, PLACES, ["state, total: 10 at 90 %"], SCHEMA)


def test_single_children_that_give_their_share_away_are_refused() -> None:
    plan = td.Plan("gaussian", rho=1, only_child="move-up")
    with pytest.raises(td.errors.ConfigError, match="leave it out of the search"):
        td.smallest_budget(plan, PLACES, ["county: 10 at 90 %"], SCHEMA)


def test_what_no_measurement_determines_is_refused() -> None:
    plan = td.Plan("gaussian", rho=1, shares={"us": {"total": 1}, "state": {"total": 0}, "county": {"total": 0}})
    with pytest.raises(td.errors.ConfigError, match="query 'sex' at level 'county'; give it, or a finer query"):
        td.smallest_budget(plan, PLACES, ["county, sex: 10 at 90 %"], SCHEMA)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("county 25 at 90 %", "cannot be read; write 'LEVEL: MARGIN at PERCENT %'"),
        ("county: 25", "cannot be read"),
        ("county: 2.5.1 at 90 %", "cannot be read"),
        ("county,: 25 at 90 %", "cannot be read"),
        ("county: 0 at 90 %", "the margin is above 0"),
        ("county: 0.001 at 99.999 %", "counts are whole"),
        ("county: 0.49 at 90 %", "give a margin of 0.5 or more"),
        ("county: 25 at 0 %", "a probability above 0 and up to 99.9999999 %"),
        ("county: 25 at 100 %", "a probability above 0 and up to 99.9999999 %"),
        ("county: 25 at 99.99999999999999 %", "a probability above 0 and up to 99.9999999 %"),
        ("countie: 25 at 90 %", "did you mean 'county'"),
        ("county, sexx: 25 at 90 %", "did you mean 'sex'"),
    ],
)
def test_a_target_that_cannot_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(td.errors.ConfigError, match=said):
        Target.parse(text, PLACES.levels, SCHEMA)


def test_targets_are_read_as_they_are_written() -> None:
    for text in ("county: 25 at 90 %", "state, sex * minor: 0.5 at 99.9 %"):
        assert str(Target.parse(text, PLACES.levels, SCHEMA)) == text
    assert Target.parse("state,total:3 at 95%", PLACES.levels, SCHEMA) == Target("state", "total", 3.0, 0.95)
    assert Target.parse("a: b, c: 3 at 95 %", ["a: b, c"], SCHEMA) == Target("a: b, c", "detailed", 3.0, 0.95)


# -- the command ------------------------------------------------------------------------------------------------------


HEAD = """
[input]
path = "table.csv"
geoid = "county"
cells = ["f_child", "f_adult", "f_old", "m_child", "m_adult", "m_old"]

[geography]
widths = { state = 2, county = 4 }
root_level = "us"

[schema]
sex = ["f", "m"]
age = ["child", "adult", "old"]
"""


@pytest.mark.parametrize("mechanism", ["discrete-gaussian", "geometric"])
def test_what_is_printed_can_be_pasted_and_is_confirmed(tmp_path: Path, topdown, mechanism: str) -> None:  # type: ignore[no-untyped-def]
    rows = "".join(f"{geoid},1,2,3,4,5,6\n" for geoid in COUNTIES)
    (tmp_path / "table.csv").write_text("county,f_child,f_adult,f_old,m_child,m_adult,m_old\n" + rows)
    privacy = f'\n[privacy]\nmechanism = "{mechanism}"\ninvariants = {{ us = ["total"] }}\n[privacy.shares]\n'
    shares = 'us = { "sex * age" = 0.1 }\nstate = { total = 0.1, sex = 0.2 }\ncounty = { age = 0.1, detailed = 0.5 }\n'
    (tmp_path / "ask.toml").write_text(HEAD + privacy + shares)
    asked = ("--target", "county: 60 at 90 %", "--target", "state, sex: 50 at 90 %")
    done = topdown("plan", tmp_path / "ask.toml", *asked)
    assert done.returncode == 0, done.stderr
    (tmp_path / "run.toml").write_text(HEAD + done.stdout)
    checked = topdown("check", tmp_path / "run.toml", "--errors")
    assert checked.returncode == 0, checked.stderr
    largest = {
        tuple(line.split()[:2]): float(line.split()[-1])
        for line in checked.stdout.splitlines()
        if line.startswith("  ") and line.split()[0] in ("state", "county")
    }
    assert 59 < largest["county", "detailed"] <= 60 or 49 < largest["state", "sex"] <= 50
    assert largest["county", "detailed"] <= 60
    assert largest["state", "sex"] <= 50
    assert "us  " in checked.stdout


def test_a_plan_that_does_not_measure_the_root_names_the_method_that_it_needs() -> None:
    plan = td.Plan("geometric", epsilon=1, shares=dict.fromkeys(QUERIES, "1/3"))
    found = td.smallest_budget(plan, PLACES, ["county: 60 at 90 %"], SCHEMA)
    assert not found.plan.queries("us")
    said = 'level us has no share of the budget: take projection.method = "gls-top-down"'
    assert said in as_toml(found)
    assert said not in as_toml(td.smallest_budget(plan, PLACES, ["us: 3 at 90 %", "county: 60 at 90 %"], SCHEMA))


def test_a_preset_and_no_target_are_refused(tmp_path: Path, topdown) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "run.toml").write_text(HEAD + '\n[privacy]\npreset = "pl94-2020-us"\n')
    done = topdown("plan", tmp_path / "run.toml", "--target", "county: 3 at 90 %")
    assert done.returncode == 2
    assert topdown("plan", tmp_path / "run.toml").returncode == 2
