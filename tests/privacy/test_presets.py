"""The presets are production's plans: its shares, its variances, its rho."""

from __future__ import annotations

import functools
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from support.places import SHARED_DATA
from topdown.errors import BudgetError, ConfigError
from topdown.planning.totals import plan_of_total
from topdown.privacy.presets import PRESETS, Preset, preset
from topdown.workload import Query, Schema
from topdown.workload.dhc import DHC_PERSONS, REDISTRICTING
from topdown.workload.query import design
from topdown.workload.redistricting import PERSONS, RACES, UNITS, VOTERS

RUNS = {
    "pl94-2020-us": ("pl94_persons", "US"),
    "pl94-2020-pr": ("pl94_persons", "PR"),
    "pl94-2020-units": ("pl94_units", "US"),
    "pl94-2020-units-pr": ("pl94_units", "PR"),
}
DHC_RUNS = {
    "dhc-2020-us-persons": ("dhc_persons", "US"),
    "dhc-2020-pr-persons": ("dhc_persons", "PR"),
    "dhc-2020-us-units": ("dhc_units", "US"),
    "dhc-2020-pr-units": ("dhc_units", "PR"),
}
SPECIFICATION = SHARED_DATA.parent / "census" / "pl94_dhc_spec.json"


def levels_of(name: str) -> list[str]:
    return list(preset(name).shares)


@pytest.mark.parametrize("name", PRESETS)
def test_shares_add_up_to_one_exactly(name: str) -> None:
    assert sum(s for queries in preset(name).shares.values() for s in queries.values()) == 1
    plan = preset(name).plan(levels_of(name))
    if not preset(name).beside:
        plan = plan.for_schema(preset(name).schema)
    assert plan.rho == preset(name).rho
    assert plan.neighbours == "substitute"


@pytest.mark.skipif(not SPECIFICATION.exists(), reason="the production runs' specification is not here")
@pytest.mark.parametrize("name", RUNS)
def test_variances_and_rho_are_those_of_production(name: str) -> None:
    kind, run = RUNS[name]
    specification: dict[str, Any] = json.loads(SPECIFICATION.read_text())[kind]
    assert str(preset(name).rho) == specification["rho"]
    scale = Fraction(specification["global_scale"])
    plan = preset(name).plan(levels_of(name))
    for theirs, ours in zip(specification[run], levels_of(name), strict=True):
        assert theirs.lower().replace("_", " ") == ours
        queries = specification[run][theirs]["queries"]
        assert set(preset(name).shares[ours]) == set(queries)
        for query, known in queries.items():
            assert float(plan.sigma2(ours, query)) == pytest.approx(known["sigma2"], rel=1e-9)
            exact = scale**2 / (Fraction(specification[run][theirs]["level_share"]) * Fraction(known["share_in_level"]))
            assert plan.sigma2(ours, query) == exact


@pytest.mark.skipif(not SPECIFICATION.exists(), reason="the production runs' specification is not here")
@pytest.mark.parametrize("name", DHC_RUNS)
def test_the_dhc_s_budgets_cells_and_recodes_are_those_of_production(name: str) -> None:
    kind, run = DHC_RUNS[name]
    known: dict[str, Any] = json.loads(SPECIFICATION.read_text())[kind]
    ours = preset(name)
    assert str(ours.rho) == known[run]["rho"]
    assert {level.lower().replace("_", " "): one["queries"].keys() for level, one in known[run]["levels"].items()} == {
        level: queries.keys() for level, queries in ours.shares.items()
    }
    for level, one in known[run]["levels"].items():
        for query, said in one["queries"].items():
            assert ours.shares[level.lower().replace("_", " ")][query] * ours.rho == Fraction(said["rho"])
    schema = ours.schema
    assert schema.n_cells == known["cells"]
    assert [(a.name, len(a.categories)) for a in schema.attributes] == [
        (one["name"], one["size"]) for one in known["attributes"]
    ]
    recodes = {recode.name: recode for recode in schema.recodes}
    # Those of the redistricting file are ours, to tie persons to it.
    assert recodes.keys() - {"hhgq", "votingage"} == known["recodes"].keys()
    for recode, said in known["recodes"].items():
        place = {category: k for k, category in enumerate(schema.attribute(said["attribute"]).categories)}
        assert [[place[one] for one in members] for _, members in recodes[recode].groups] == said["groups"]
    for query, size in known["queries"].items():
        if query not in ours.beside:
            assert Query.parse(query, schema).n_answers == size


def test_the_plan_of_the_total_has_the_variance_that_a_unit_s_measurements_leave_it() -> None:
    schema = Schema.from_mapping(
        {"age": ["0", "1", "2", "3"], "sex": ["f", "m"]},
        {"age": {"two": {"low": ["0", "1", "2"], "high": ["3"]}, "three": {"a": ["0"], "b": ["1", "2"], "c": ["3"]}}},
    )
    shares = {
        "state": {
            "two * sex": Fraction(1, 8),
            "three": Fraction(1, 8),
            "detailed": Fraction(1, 8),
            "x": Fraction(1, 8),
        },
        "county": {"sex": Fraction(1, 4), "age": Fraction(1, 4)},
    }
    known = Preset("mine", "mine", schema, Fraction(3), shares, "person", ("x",))
    plan, total = known.plan(["state", "county"]), plan_of_total(known, ["whole state", "state", "county"])
    for level in shares:
        information = np.zeros((8, 8))
        for name in plan.queries(level):
            if name not in known.beside:
                matrix = functools.reduce(np.kron, design(Query.parse(name, schema)))
                information += matrix.T @ matrix / float(plan.sigma2(level, name))
        ones = np.ones(8)
        wanted = ones @ np.linalg.pinv(information) @ ones
        assert float(total.sigma2(level, "detailed")) == pytest.approx(wanted, rel=1e-6)
    assert total.share("whole state") == 0
    held = plan_of_total(known, ["whole state", "state", "county"], invariants={"whole state": ["total"]})
    assert held.invariants == ("whole state",)
    assert held.sigma2("county", "detailed") == total.sigma2("county", "detailed")


def test_levels_of_another_spine_are_refused_with_what_makes_them() -> None:
    with pytest.raises(
        ConfigError, match=r"level 'tract' is not in preset 'dhc-2020-us-persons'.*`topdown spine FILE`"
    ):
        preset("dhc-2020-us-persons").plan(["us", "state", "county", "tract"])
    assert preset("dhc-2020-us-persons").plan(["Tract_Subset_Group"]).sigma2("Tract_Subset_Group", "detailed") == (
        Fraction(10000, 478)
    )


def test_a_standard_deviation_that_is_printed() -> None:
    # Table "Standard deviation" of the production runs: tract, hispanic * cenrace; block, detailed.
    plan = preset("pl94-2020-us").plan(levels_of("pl94-2020-us"))
    assert float(plan.sigma2("tract", "hispanic * cenrace")) ** 0.5 == pytest.approx(2.23, abs=0.005)
    assert float(plan.sigma2("block", "detailed")) ** 0.5 == pytest.approx(3.18, abs=0.005)


def test_without_some_levels_the_others_keep_their_variances_and_rho_falls() -> None:
    whole = preset("pl94-2020-us").plan(levels_of("pl94-2020-us"))
    part = preset("pl94-2020-us").plan(["State", "county", "Tract", "block_group", "block"])
    assert part.rho == Fraction(293764, 114921) * (1 - Fraction(104, 4099))
    assert part.sigma2("block_group", "total") == whole.sigma2("block group", "total")
    assert part.sigma2("State", "detailed") == whole.sigma2("state", "detailed")
    said = preset("pl94-2020-us").says(["state", "county", "tract", "block group", "block"])
    assert "without 'us'" in said
    assert f"{float(part.rho):.4f}" in said
    assert preset("pl94-2020-us").says(levels_of("pl94-2020-us")) == ""


def test_a_level_that_had_no_budget_is_not_measured() -> None:
    plan = preset("pl94-2020-pr").plan(["nation", "state", "county", "tract", "block group", "block"])
    assert plan.rho == preset("pl94-2020-pr").rho
    assert plan.share("nation") == 0


def test_other_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown preset 'pl94-2020'.*did you mean"):
        preset("pl94-2020")
    with pytest.raises(ConfigError, match=r"level 'parish' is not in preset 'pl94-2020-us'"):
        preset("pl94-2020-us").plan(["state", "parish"])
    with pytest.raises(BudgetError, match=r"none of the levels 'us'; it has 'state', 'county'"):
        preset("pl94-2020-pr").plan(["us"])


def test_the_schemas_have_production_s_cells() -> None:
    assert (PERSONS.shape, PERSONS.n_cells) == ((8, 2, 2, 63), 2016)
    assert (VOTERS.n_cells, UNITS.n_cells) == (252, 2)
    assert (RACES[0], RACES[5], RACES[6], RACES[21], RACES[62]) == (
        "white",
        "sor",
        "white+black",
        "white+black+aian",
        "white+black+aian+asian+nhopi+sor",
    )
    sizes = {"total": 1, "cenrace": 63, "hhinstlevels": 3, "hhgq": 8, "hispanic * cenrace": 126, "detailed": 2016}
    for text, size in sizes.items():
        assert Query.parse(text, PERSONS).n_answers == size


def test_what_is_exact_takes_no_share_and_leaves_the_other_variances_as_they_were() -> None:
    levels = ["state", "county", "tract", "block group", "block"]
    production = preset("pl94-2020-us")
    free, held = production.plan(levels), production.plan(levels, invariants={"state": ["total"]})
    assert held.exact_queries == (("state", "total"),)
    assert held.rho is not None
    assert free.rho is not None
    assert held.rho == free.rho - free.budget("state", "total")
    for level in levels:
        for query in free.queries(level):
            if (level, query) != ("state", "total"):
                assert held.variance(level, query) == free.variance(level, query)
    assert held.variance("state", "total") == 0
    with pytest.raises(BudgetError, match="everything that it measures is in invariants"):
        production.plan(["state"], invariants={"state": ["detailed"]})


def test_the_redistricting_file_s_cells_are_answers_to_a_query_of_persons() -> None:
    query = Query.parse(REDISTRICTING, DHC_PERSONS)
    assert query.n_answers == PERSONS.n_cells == 2016
    names = [attribute.categories for attribute in PERSONS.attributes]
    assert [factor.categories for factor in query.factors] == names
    assert len(DHC_PERSONS.possible_cells()) == 905_184
    # A person in a nursing facility (301) is of 18 or over, and a minor there is in no possible cell.
    nursing = Query.parse("relgq * age", DHC_PERSONS)
    place = DHC_PERSONS.attribute("relgq").categories.index("group quarters 301")
    answers = np.unique(nursing.answers_of(DHC_PERSONS.possible_cells()))
    assert set(answers[answers // 116 == place] % 116) == set(range(20, 116))
