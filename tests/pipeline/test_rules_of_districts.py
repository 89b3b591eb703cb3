"""Rules from TOML alone on real tables: Iowa's four districts, and Arkansas by race and voting age."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from support.places import full_data
from topdown.config import load_study
from topdown.pipeline.study import study

IOWA = """
[input]
path = "counties.csv"
cells = ["white", "black", "hisp", "others"]
[geography]
levels = ["state", "fips"]
[privacy]
epsilon = 1
[study]
replicates = 200
methods = ["gls-top-down/rounded"]
[[study.rules]]
preset = "redistricting"
areas = "districts.csv"
[study.rules.sums]
population = ["white", "black", "hisp", "others"]
minority = ["black", "hisp", "others"]
voting_age = ["white", "black", "hisp", "others"]
[[study.rules]]
preset = "seats"
seats = 21
areas = "districts.csv"
sums = { population = ["white", "black", "hisp", "others"] }
[output]
directory = "out"
"""

ARKANSAS = """
[input]
path = "persons.csv"
rows = "long"
geoid = "geoid"
count = "persons"
[geography]
units = "units.csv"
root = "05"
root_level = "state"
widths = { county = 5, tract = 11, "block group" = 12 }
[schema]
race = ["white", "black", "hispanic", "asian_nhpi", "aian", "other"]
age = ["under 18", "18+"]
[privacy]
mechanism = "discrete-gaussian"
rho = 0.5
[privacy.shares]
state = { "race * age" = 0.1 }
county = { total = 0.1, "race * age" = 0.2 }
tract = { "race * age" = 0.2 }
"block group" = { total = 0.1, "race * age" = 0.3 }
[study]
replicates = 2
queries = ["total", "age", "race * age"]
methods = ["gls-top-down/rounded"]
[[study.rules]]
name = "majority Black, block groups"
eligible = "`black * 18+` > 0.5 * `18+`"
[[study.rules]]
name = "majority Black, counties"
level = "county"
eligible = "`black * 18+` > 0.5 * `18+`"
[output]
directory = "out"
"""


def decided(folder: Path, toml: str) -> pd.DataFrame:
    (folder / "study.toml").write_text(toml)
    rules = pd.read_parquet(study(load_study(folder / "study.toml"), workers=1).directory / "rules.parquet")
    return rules.set_index(["rule", "geoid"])


@pytest.mark.system
def test_iowas_districts_are_as_far_apart_as_the_table_has_them(tmp_path: Path) -> None:
    counties = pd.read_csv(full_data() / "ia_counties_districts_2010.csv", dtype={"fips": str})
    parts = counties[["white", "black", "hisp"]]
    counties = counties.assign(state="19", others=counties["pop"] - parts.sum(axis=1))
    counties.to_csv(tmp_path / "counties.csv", index=False)
    counties[["fips", "cd_2010"]].to_csv(tmp_path / "districts.csv", index=False)
    found = decided(tmp_path, IOWA)
    people = counties.groupby("cd_2010")["pop"].sum()
    assert people.max() - people.min() == 76
    assert found.loc[("range of the districts", "1"), "truth"] == pytest.approx(76 / people.mean(), rel=1e-9)
    for district, persons in people.items():
        truth = found.loc[("deviation of a district", str(district)), "truth"]
        assert truth == pytest.approx(persons / people.mean() - 1, rel=1e-6)
    # 21 of nearly equal districts: one has a seat more, which the noise of some persons may give to another.
    assert sorted(found.loc["seats", "truth"]) == [5, 5, 5, 6]
    assert 0 < found.loc["seats", "mean_absolute_error"].sum() < 1
    assert found.loc[("range of the districts", "1"), "mean_error"] > 0  # noise moves districts apart


@pytest.mark.system
def test_arkansas_majorities_are_those_of_the_table(tmp_path: Path) -> None:
    table = pd.read_csv(full_data() / "ar_blockgroups_race_2020.csv", dtype={"geoid": str})
    races = ["white", "black", "hispanic", "asian_nhpi", "aian", "other"]
    long = pd.concat(
        table[["geoid"]].assign(race=race, age=age, persons=persons)
        for race in races
        for age, persons in (("18+", table[f"{race}_vap"]), ("under 18", table[race] - table[f"{race}_vap"]))
    )
    long[long["persons"] > 0].to_csv(tmp_path / "persons.csv", index=False)
    table[["geoid"]].to_csv(tmp_path / "units.csv", index=False)
    found = decided(tmp_path, ARKANSAS)
    for rule, units in (("block groups", table["geoid"]), ("counties", table["geoid"].str[:5])):
        adults = table.groupby(units)[["black_vap", "vap"]].sum()
        truth = found.loc[f"majority Black, {rule}", "truth"]
        assert truth.to_dict() == (adults["black_vap"] > 0.5 * adults["vap"]).astype(float).to_dict()
    assert (found.loc["majority Black, counties", "truth"].sum(), len(found.loc["majority Black, counties"])) == (6, 75)
