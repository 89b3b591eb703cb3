"""A small release of several queries on five levels, made of the whole tree and in parts, of the same noise."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from topdown.privacy.ledger import Ledger

PERSONS_TABLE = """
[input]
path = "table.parquet"
rows = "long"
geoid = "block"
count = "n"

[schema]
home = ["house", "nursing", "barracks"]
age = ["minor", "adult"]
race = ["a", "b", "c"]

[recodes.home]
group = { private = ["house"], quarters = ["nursing", "barracks"] }

[[zeros]]
home = "nursing"
age = "minor"
"""
"""Persons in long rows: what a run is told of its table and of their attributes."""

TOML = (
    PERSONS_TABLE
    + """
[geography]
units = "units.csv"
widths = { state = 2, county = 4, tract = 6, block = 8 }

[privacy]
mechanism = "discrete-gaussian"
rho = "1/2"
only_child = "move-up"
invariants = { nation = ["total"] }

[privacy.shares.nation]
detailed = "1/10"
[privacy.shares.state]
detailed = "1/10"
[privacy.shares.county]
total = "1/10"
"age * race" = "1/10"
detailed = "1/10"
[privacy.shares.tract]
total = "1/10"
[privacy.shares.block]
group = "1/10"
detailed = "3/10"

[output]
tables = ["age * race", "total"]
"""
)

# The tracts tell everything that the blocks do.
TRACTS = TOML.replace(
    '[privacy.shares.tract]\ntotal = "1/10"', '[privacy.shares.tract]\ntotal = "1/20"\ndetailed = "1/20"'
)
FROM_TRACT = TRACTS + '[projection]\nupward = "from tract"\n'

LEDGER = """
[ledger]
path = "ledger.db"
dataset = "census"
"""


def made(folder: Path, text: str = TOML) -> Path:
    """The configuration of a release in ``folder``, with its table, its list of units and its ledger."""
    rng = np.random.default_rng(1)
    units = [
        f"{state:02d}{county:02d}{tract:02d}{block:02d}"
        for state in range(3)
        for county in range(int(rng.integers(1, 4)))
        for tract in range(int(rng.integers(1, 4)))
        for block in range(int(rng.integers(1, 9)))
    ]
    rows = [
        (unit, str(rng.choice(["house", "house", "barracks"])), "adult", str(rng.choice(list("abc"))))
        for unit in units[1:]
        for _ in range(6)
    ]
    table = pd.DataFrame(rows, columns=["block", "home", "age", "race"]).drop_duplicates()
    table["n"] = rng.integers(1, 30, len(table))
    table.to_parquet(folder / "table.parquet")
    pd.DataFrame({"block": units}).to_csv(folder / "units.csv", index=False)
    (folder / "run.toml").write_text(text)
    Ledger(folder / "ledger.db").open_account("census", "1/2", currency="rho")
    return folder / "run.toml"


def place_of_the_same_noise(folder: Path, first: Path, name: str) -> Path:
    """A directory for another release whose key is that of the ``first``."""
    there = folder / name
    (there / "internal").mkdir(parents=True, mode=0o700)
    shutil.copy(first / "internal" / "key", there / "internal")
    return there


def tables_of(public: Path) -> dict[str, bytes]:
    """All published tables, by file: counts, units, measurements, estimates with their margins."""
    whole = [path for path in public.rglob("*") if path.suffix in (".parquet", ".csv")]
    return {str(path.relative_to(public)): path.read_bytes() for path in whole}


def counts_of(public: Path) -> dict[str, bytes]:
    """The published counts and units, by file."""
    found = tables_of(public)
    return {name: one for name, one in found.items() if "estimates" not in name and name != "measurements.parquet"}


class AtOnce:
    """An executor that does everything in this process, by nobody's protocol but ``submit`` and ``result``."""

    def __init__(self, before: Callable[[str, Any], None] = lambda *_: None) -> None:
        self.before = before
        self.done: list[tuple[str, Any]] = []

    def submit(self, fn: Callable[..., Any], /, *arguments: Any) -> Any:
        future: Future[Any] = Future()
        try:
            self.before(fn.__name__, arguments[0])
            self.done.append((fn.__name__, arguments[0]))
            future.set_result(fn(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future
