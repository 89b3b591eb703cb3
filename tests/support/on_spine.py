"""A small configuration that measures on a spine: 569 real blocks, with the districts that their own header names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd

from support.places import SMALL_DATA

KINDS = ("senate", "house", "voting")
FILES = ("ri_pl94_2018_totals.csv", "ri_pl94_2018_blocks.csv", "ri_pl94_2018_persons.csv")
GEOGRAPHY = """
[geography]
units = "ri_pl94_2018_blocks.csv"
root = "44"
root_level = "state"
widths = { county = 5, tract = 11, "block group" = 12, block = 15 }
names = "name"
"""
LEVELS = 'levels = ["county", "senate x county", "pieces x tract"]'
SPINE = f"""
[geography.spine]
{LEVELS}
areas = {{ senate = "senate.csv", house = "house.csv", voting = "voting.csv" }}
cap = "none"
"""
TOTALS = f"""
[input]
path = "ri_pl94_2018_totals.csv"
geoid = "block"
cells = ["persons"]
{GEOGRAPHY}{SPINE}
[privacy]
mechanism = "discrete-gaussian"
rho = "1/10"

[privacy.shares]
state = "1/10"
county = 0
"senate x county" = "1/5"
"pieces x tract" = "3/10"
block = "2/5"

[output]
wide = true
replicates = 2
"""
QUERIES = f"""
[input]
path = "ri_pl94_2018_persons.csv"
geoid = "block"
rows = "long"
count = "persons"
{GEOGRAPHY}{SPINE}
[schema]
votingage = ["17 and under", "18 and over"]
hispanic = ["hispanic", "not hispanic"]

[privacy]
mechanism = "discrete-gaussian"
rho = 1

[privacy.shares]
state = {{ total = "1/10" }}
county = 0
"senate x county" = {{ hispanic = "1/10", total = "1/10" }}
"pieces x tract" = {{ detailed = "3/10" }}
block = {{ detailed = "3/10", votingage = "1/10" }}

[output]
tables = ["votingage"]
"""


def folder_with(folder: Path, text: str) -> Path:
    """The configuration ``text``, beside its tables."""
    for name in FILES:
        shutil.copy(SMALL_DATA / name, folder / name)
    persons = pd.read_csv(folder / FILES[2], dtype={"block": str})
    by = persons.groupby(["block", "votingage", "hispanic"], as_index=False)["persons"].sum()
    by.to_csv(folder / FILES[2], index=False)
    for kind in KINDS:
        shutil.copy(SMALL_DATA / "ri_pl94_2018_districts" / f"{kind}.csv", folder / f"{kind}.csv")
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


def districts() -> dict[str, dict[str, str]]:
    """The district of every block, by kind."""
    tables = {kind: pd.read_csv(SMALL_DATA / "ri_pl94_2018_districts" / f"{kind}.csv", dtype=str) for kind in KINDS}
    return {kind: dict(zip(one["block"], one["district"].fillna(""), strict=True)) for kind, one in tables.items()}
