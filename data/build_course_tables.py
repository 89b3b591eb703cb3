"""Derive data/course_penguins.csv and data/course_diamonds.csv from the packages that have the full tables.

``pip install palmerpenguins plotnine && python data/build_course_tables.py [FOLDER]``. Both packages are needed to
derive the tables and not to use them.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent


def table_of(package: str, name: str) -> pd.DataFrame:
    """A table that an installed package has among its files; the package itself is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"the package {package} is not installed; pip install it")
    return pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / name)


def build(folder: Path = HERE) -> None:
    """The 333 penguins without a missing value, by species, island and sex; how many diamonds weigh how much."""
    penguins = table_of("palmerpenguins", "penguins.csv").dropna()
    penguins[["species", "island", "sex"]].to_csv(folder / "course_penguins.csv", index=False, lineterminator="\n")
    carats = table_of("plotnine", "diamonds.csv")["carat"].value_counts().sort_index()
    carats.rename("diamonds").to_csv(folder / "course_diamonds.csv", lineterminator="\n")


if __name__ == "__main__":
    build(*map(Path, sys.argv[1:]))
