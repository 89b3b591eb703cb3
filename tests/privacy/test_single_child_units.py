"""Units with a single child: who is measured, with which noise, and that nobody loses more privacy for it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from topdown.config import load_config, load_project
from topdown.errors import ConfigError, PlanError
from topdown.pipeline import project_measurements as derivation
from topdown.pipeline import run as pipeline
from topdown.privacy.single_child_units import GIVEN, gain, largest_gains, law_of, levels_taken, variances

LEVELS = ["nation", "state", "county", "tract"]
SHARES = {"nation": "1/10", "state": "2/10", "county": "3/10", "tract": "4/10"}
#            tracts: a1 a2 of county a of state s, b1 of b of t, c1 c2 of c and d1 of d of u
UNITS = {
    "state": ["s", "s", "t", "u", "u", "u"],
    "county": ["a", "a", "b", "c", "c", "d"],
    "tract": ["a1", "a2", "b1", "c1", "c2", "d1"],
}


@pytest.fixture(scope="module")
def geography() -> td.Geography:
    return td.Geography.from_table({"nation": ["US"] * 6, **UNITS}, LEVELS)


@pytest.mark.parametrize("mechanism", ["geometric", "discrete-gaussian"])
def test_shares_add_up_to_the_same_on_every_way_from_the_root(geography: td.Geography, mechanism: str) -> None:
    budget = {"epsilon": 2} if mechanism == "geometric" else {"rho": 2}
    plan = td.Plan(mechanism, **budget, shares=SHARES, only_child="move-up")  # type: ignore[arg-type]
    taken = levels_taken(plan, geography)
    names = geography.identifiers.to_pylist()
    said = dict(zip(names, taken.tolist(), strict=True))
    assert said == {
        "US": 0, "s": 1, "t": 2, "u": 0, "a": GIVEN, "b": GIVEN, "c": 0, "d": 1,
        "a1": 0, "a2": 0, "b1": GIVEN, "c1": 0, "c2": 0, "d1": GIVEN,
    }  # fmt: skip
    tree = geography.tree
    for leaf in range(tree.leaves.start, tree.n_nodes):
        node, spent = leaf, Fraction(0)
        while node >= 0:
            level = LEVELS[tree.level_of(node)]
            if taken[node] != GIVEN:
                spent += plan.budget(level) * gain(plan, LEVELS, level, int(taken[node]))
            node = int(tree.parent[node])
        assert spent == 2
    # With the scale of its whole budget: of state t 9/10 of 2.
    law = law_of(plan, LEVELS, "state", "detailed", 2)
    whole = td.Plan(mechanism, **budget, shares={"a": "9/10", "b": "1/10"}).law("a")  # type: ignore[arg-type]
    assert law is not None
    assert whole is not None
    assert law.variance == whole.variance
    assert largest_gains(plan, geography)["state"] == Fraction(9, 2)


def test_who_is_not_measured_takes_and_gives_nothing(geography: td.Geography) -> None:
    plan = td.Plan("discrete-gaussian", rho=1, shares={**SHARES, "state": 0, "county": "5/10"}, only_child="move-up")
    said = dict(zip(geography.identifiers.to_pylist(), levels_taken(plan, geography).tolist(), strict=True))
    assert (said["s"], said["a"], said["b"], said["b1"], said["d"]) == (0, 0, 1, GIVEN, 1)
    exact = td.Plan(
        "discrete-gaussian",
        rho=1,
        shares=SHARES,
        only_child="move-up",
        invariants={"state": ["total"], "tract": ["total"]},
    )
    spread = variances(exact, geography, "tract", "total")
    assert (spread == 0).all()  # what is exact is so at single children too
    assert np.isinf(variances(exact, geography, "tract")).tolist() == [False, False, True, False, False, True]
    off = td.Plan("discrete-gaussian", rho=1, shares=SHARES)
    assert not levels_taken(off, geography).any()


@pytest.fixture(scope="module")
def counts(geography: td.Geography) -> td.Counts:
    schema = td.Schema.from_mapping({"age": ["young", "old"], "sex": ["f", "m"]})
    rng = np.random.default_rng(4)
    table = {"tract": UNITS["tract"]} | {cell: rng.integers(5, 60, 6) for cell in schema.cells()}
    return td.Counts.from_table(table, geography, geoid="tract", cells=schema.cells(), schema=schema)


BY_QUERY = {
    "nation": {"total": "1/10"},
    "state": {"age": "1/10", "detailed": "1/10"},
    "county": {"total": "2/10", "detailed": "1/10"},
    "tract": {"detailed": "4/10"},
}


def test_the_noise_has_the_variances_that_are_stated(counts: td.Counts) -> None:
    plan = td.Plan("discrete-gaussian", rho="1/8", shares=BY_QUERY, only_child="move-up")
    geography = counts.geography
    truth = td.Query.parse("age", counts.schema).answers(counts.values[geography.level_slice("state")])
    drawn = np.stack(
        [td.measure(counts, plan, td.SeededSource(k))["state", "age"].values - truth for k in range(2_000)]
    )
    stated = variances(plan, geography, "state", "age")
    assert stated[2] / stated[1] == pytest.approx(4.5, rel=0.01)  # state t has 9/10 where u has 2/10
    # 4,000 squares each: a deviation of 2.2 %, one of three beyond 12 % less often than once in 10^6.
    assert drawn.var(axis=(0, 2)) / stated == pytest.approx(1, abs=0.12)
    measured = td.measure(counts, plan, td.SeededSource(1))
    assert np.isinf(measured["county", "total"].variance[:2]).all()
    assert (measured["county", "total"].values[:2] == 0).all()


@pytest.mark.parametrize("method", ["top-down", "gls-top-down"])
def test_histograms_are_made_from_what_is_measured(counts: td.Counts, method: str) -> None:
    plan = td.Plan("discrete-gaussian", rho=1, shares=BY_QUERY, only_child="move-up")
    measurements = td.measure(counts, plan, td.SeededSource(3))
    estimate = td.project(measurements, "gls")
    assert estimate.certificate.holds()
    known = estimate.answer("county", "total")
    above = estimate.answer("state", "total")
    assert known.variance is not None
    assert above.variance is not None
    assert known.values[:2] == pytest.approx(above.values[:2])
    assert known.variance[:2] == pytest.approx(above.variance[:2])
    release = td.project_whole(measurements, method, source=td.SeededSource(1))
    assert release.certificate is not None
    assert release.certificate.holds()
    assert (release.answers("county", "detailed")[:2] == release.answers("state", "detailed")[:2]).all()


RUN = """
[input]
path = "table.csv"
cells = ["x", "y"]
[geography]
levels = ["nation", "state", "county", "tract"]
[privacy]
{budget}
only_child = "move-up"
{shares}
"""
SINGLE = 'epsilon = 1\nshares = { nation = "1/10", state = "2/10", county = "3/10", tract = "4/10" }'
SEVERAL = 'mechanism = "discrete-gaussian"\nrho = 1'
OF_QUERIES = """
[privacy.shares]
nation = { total = "1/10" }
state = { detailed = "2/10" }
county = { total = "2/10", detailed = "1/10" }
tract = { detailed = "4/10" }
"""


@pytest.mark.parametrize(("budget", "shares"), [(SINGLE, ""), (SEVERAL, OF_QUERIES)], ids=["one query", "several"])
def test_a_run_keeps_publishes_and_reads_back_what_was_measured(tmp_path: Path, budget: str, shares: str) -> None:
    pd.DataFrame({"nation": "US", **UNITS, "x": [3, 4, 50, 6, 0, 9], "y": [0, 1, 20, 3, 4, 5]}).to_csv(
        tmp_path / "table.csv", index=False
    )
    (tmp_path / "run.toml").write_text(RUN.format(budget=budget, shares=shares))
    config = load_config(tmp_path / "run.toml")
    public = pipeline.run(config).public
    td.verify_release(public)
    rows = pd.read_parquet(public / "measurements.parquet")
    assert set(rows.loc[rows["level"] == "county", "geoid"]) == {"c", "d"}
    assert set(rows.loc[rows["level"] == "tract", "geoid"]) == {"a1", "a2", "c1", "c2"}
    manifest = json.loads((public / "manifest.json").read_text())
    assert manifest["privacy"]["only_child"] == "move-up"
    assert "Single children: a unit that is the only one in its parent" in manifest["privacy"]["statement"]
    book = (public / "METHODS.md").read_text()
    assert "| state, with single children down 2 levels | detailed |" in book
    assert "| county, single children | detailed | not measured: their parent is | |" in book
    found = td.read_release(public)
    assert found.plan.only_child == "move-up"
    assert found.measurements.to_frame().astype(str).equals(rows.astype(str))
    for path in public.iterdir():
        path.unlink()
    assert pipeline.run(config).public == public  # from the record of the noise
    assert pd.read_parquet(public / "measurements.parquet").equals(rows)
    (tmp_path / "again.toml").write_text('[measurements]\npath = "output/public"\n[output]\ndirectory = "again"\n')
    other = derivation.project_measurements(load_project(tmp_path / "again.toml")).public
    assert pd.read_parquet(other / "measurements.parquet").equals(rows)


def test_what_cannot_be_is_refused(counts: td.Counts) -> None:
    with pytest.raises(PlanError, match=r"unknown only_child 'moveup'.*did you mean 'move-up'"):
        td.Plan(epsilon=1, only_child="moveup")
    with pytest.raises(PlanError, match="for noise without bounds"):
        td.Plan(epsilon=1, only_child="move-up", bounds="truncated")
    with pytest.raises(ConfigError, match="'move-up' is not simulated"):
        td.simulate(counts, td.Plan(epsilon=1, only_child="move-up"), methods=["gls"], replicates=2, seed=1)


def test_a_count_that_too_much_moves_up_to_is_refused() -> None:
    geography = td.Geography.from_table(
        {"nation": ["US"] * 2, "state": ["s", "t"], "county": ["a", "b"]}, ["nation", "state", "county"]
    )
    plan = td.Plan(epsilon=12, shares={"nation": "1/3", "state": "1/3", "county": "1/3"}, only_child="move-up")
    from topdown.privacy.strength import unprotected

    assert not unprotected(plan, geography.levels)
    assert set(unprotected(plan, geography.levels, largest_gains(plan, geography))) == {"state"}


@pytest.mark.parametrize("several", [True, False])
def test_a_release_lacks_no_level_whose_units_all_gave_their_shares(tmp_path: Path, several: bool) -> None:
    """Of such a level there are no rows; its estimates are those of the level above."""
    (tmp_path / "t.csv").write_text("geoid,sex,n\n111,f,5\n111,m,7\n221,f,100\n221,m,90\n")
    share = '{ total = "1/9", detailed = "2/9" }' if several else '"1/3"'
    (tmp_path / "r.toml").write_text(
        f"""
        [input]
        path = "t.csv"
        rows = "long"
        geoid = "geoid"
        count = "n"
        [geography]
        widths = {{ county = 2, tract = 3 }}
        [schema]
        sex = ["f", "m"]
        [privacy]
        epsilon = 1
        only_child = "move-up"
        [privacy.shares]
        nation = {share}
        county = {share}
        tract = {share}
        [output]
        directory = "o"
        estimates = true
        """
    )
    pipeline.run(load_config(tmp_path / "r.toml"))
    found = td.read_release(tmp_path / "o" / "public")
    assert found.measurements.not_kept == ()
    assert found.measurements.geography.levels == ("nation", "county", "tract")
    regions = [td.region(found.measurements, {code: 1.0}) for code in ("11", "111")]
    assert regions[0].sd == pytest.approx(regions[1].sd)
    assert regions[0].estimate == pytest.approx(regions[1].estimate)
