"""Synthetic firms and their jobs: ``python benchmarks/synthetic_firms.py FOLDER``.

FOLDER gets tables of firms that nobody has, made from a public seed, the same on every machine:

    firms.csv   a row per firm: firm, region, town, sector, size, training, and the manager's sex
                (msex) and pay (mpay)
    jobs.csv    a row per job: firm, region, town, position, sex, pay
    towns.csv   a row per town: region, town, offices (where a firm is or could be)

Every firm has one manager, whom both tables describe, and at most `LARGEST` jobs; a firm that trains has apprentices.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

SEED, LARGEST = 2010_04_01, 30
TOWNS = {
    "coast": ("Ashport", "Brightsea", "Cove"),
    "hills": ("Dale", "Elmwood", "Fernhill", "Glen"),
    "plain": ("Heath", "Ivybridge", "Juniper"),
}
SECTORS, SEXES, PAYS = ("farming", "industry", "trade", "services"), ("female", "male"), ("low", "middle", "high")
SIZES = {"1": 1, "2-4": 4, "5-9": 9, "10+": LARGEST}
"""Kinds of size with the most jobs of each."""


def made() -> dict[str, list[list[object]]]:
    """The rows of the three tables. Only uniform numbers are drawn, which are the same in every version."""
    rng = np.random.Generator(np.random.PCG64(SEED))

    def one_of(names: tuple[str, ...], parts: tuple[float, ...]) -> str:
        return names[int(np.searchsorted(np.cumsum(parts)[:-1], rng.random(), side="right"))]

    firms: list[list[object]] = []
    jobs: list[list[object]] = []
    towns: list[list[object]] = []
    for region, names in TOWNS.items():
        for town in names:
            there = 8 + int(60 * rng.random() ** 3)
            towns.append([region, town, there + int(8 * rng.random())])
            for _ in range(there):
                key, place = f"f{len(firms) + 1:04d}", [region, town]
                size = min(1 + int(-4.5 * np.log1p(-rng.random())), LARGEST)
                trains = size > 1 and rng.random() < 0.3
                apprentices = 1 + int(rng.random() * (size - 1) / 4) if trains else 0
                manager = [one_of(SEXES, (0.3, 0.7)), one_of(PAYS, (0.1, 0.4, 0.5))]
                sector = one_of(SECTORS, (0.15, 0.25, 0.2, 0.4))
                kind = next(name for name, most in SIZES.items() if size <= most)
                firms.append([key, *place, sector, kind, "yes" if trains else "no", *manager])
                jobs.append([key, *place, "manager", *manager])
                for number in range(size - 1):
                    position = "apprentice" if number < apprentices else "employee"
                    pay = "low" if position == "apprentice" else one_of(PAYS, (0.3, 0.5, 0.2))
                    jobs.append([key, *place, position, one_of(SEXES, (0.47, 0.53)), pay])
    return {
        "firms": [["firm", "region", "town", "sector", "size", "training", "msex", "mpay"], *firms],
        "jobs": [["firm", "region", "town", "position", "sex", "pay"], *jobs],
        "towns": [["region", "town", "offices"], *towns],
    }


def write(folder: Path) -> None:
    """The three files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in made().items():
        with (folder / f"{name}.csv").open("w", newline="") as output:
            csv.writer(output, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    write(Path(sys.argv[1]))
    print(", ".join(f"{len(rows) - 1:,} {name}" for name, rows in made().items()))
