"""What the middle of plausible tables holds of the true counts, on real tables, by size of the count; and the time of a
table.

``python benchmarks/plausible.py [--blocks TABLE] [--cells NAME,NAME] [--tables N] [--epsilon 2] [--json FILE]``

Blocks of Rhode Island by race, of which the repository has some; ``--blocks`` names a table of all, by GEOID, with
columns pop_*. One draw of geometric noise, equal shares by level, and of every cell the tables one after the other.
The part of the true counts within the middle 90 % of the tables, by class, at blocks and at the levels above; beside it
that of the intervals of ``td.margins`` from the same draw.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
from interval_coverage import CLASSES, DATA, EDGES
from record import RESULTS, machine

import topdown as td
from topdown.uncertainty.margins import margins_of
from topdown.uncertainty.plausible_tables import BURN_IN

WIDTHS = {"county": 5, "tract": 11, "block group": 12, "block": 15}


def held(blocks: Path, cell: str, tables: int, epsilon: str) -> dict[str, object]:
    """By level and class of the true count the number of units, and which part of them lies within."""
    frame = pd.read_csv(blocks, dtype={"GEOID": str})
    geography = td.Geography.from_geoids(frame["GEOID"].tolist(), widths=WIDTHS, root="44", root_level="state")
    counts = td.Counts.from_table(frame, geography, geoid="GEOID", cells=[cell])
    plan = td.Plan("geometric", epsilon=epsilon, shares=dict.fromkeys(geography.levels, "1/5"))
    measurements = td.measure(counts, plan, source=td.SeededSource((2026, cell)))
    begun = time.process_time()
    made = td.plausible_tables(measurements, tables, td.SeededSource((2026, cell, "tables")))
    each = (time.process_time() - begun) / (tables + BURN_IN)
    middle = made.quantiles(0.9)
    margins, truth = margins_of(measurements), counts.values[:, 0]
    within = {
        "tables": (middle["lower"].to_numpy() <= truth) & (truth <= middle["upper"].to_numpy()),
        "margins": (margins.lower[:, 0] <= truth) & (truth <= margins.upper[:, 0]),
    }
    code = np.searchsorted(EDGES, truth, side="right")
    found: dict[str, object] = {"processor seconds a table": round(each, 2)}
    for level in geography.levels:
        nodes = geography.level_slice(level)
        for k, name in enumerate(CLASSES):
            there = code[nodes] == k
            if there.any():
                parts = {of: round(float(inside[nodes][there].mean()), 3) for of, inside in within.items()}
                found[f"{level}, {name}"] = {"units": int(there.sum()), **parts}
    return found


def main() -> None:
    """Every cell that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=Path, default=DATA / "small" / "ri_block_race_2010.csv")
    parser.add_argument("--cells", default="pop_white,pop_black,pop_hisp")
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--epsilon", default="2")
    parser.add_argument("--json", type=Path, default=RESULTS / "plausible.json")
    arguments = parser.parse_args()
    figures: dict[str, object] = {}
    for cell in arguments.cells.split(","):
        figures[cell] = held(arguments.blocks, cell, arguments.tables, arguments.epsilon)
        print(cell, json.dumps(figures[cell], indent=1), flush=True)
        known = {"benchmark": "plausible", "machine": machine(), "tables": arguments.tables, "figures": figures}
        arguments.json.write_text(json.dumps(known | {"epsilon": arguments.epsilon}) + "\n")


if __name__ == "__main__":
    main()
