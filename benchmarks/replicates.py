"""How often what readers compute from replicates holds the truth: medians, ratios and ranks, beside plain counts.

``python benchmarks/replicates.py [--epsilon 1] [--draws 20] [--replicates 50] [--json FILE]``

US counties by employment (two cells, three levels). Every draw measures anew and makes as many replicates; a statistic
of the true counts is held where it is within the middle 90 % of the same statistic of the replicates. Statistics: every
county's count by size; of every state the median over its counties of the unemployed; every county's share of the
unemployed; every county's rank within its state by the unemployed. After +- the standard error over draws.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from interval_coverage import DATA
from record import RESULTS, machine

import topdown as td

CLASSES = {"1-99": (1, 99), "100-999": (100, 999), "1,000 and more": (1000, np.inf)}
TABLE = DATA / "us_counties_labor_force_2009.parquet"


def medians(values: npt.NDArray[np.int64], families: list[slice]) -> npt.NDArray[np.float64]:
    """Of every state the median of its counties, (states, ...)."""
    return np.stack([np.median(values[one], axis=0) for one in families])


def ranks(values: npt.NDArray[np.int64], families: list[slice]) -> npt.NDArray[np.float64]:
    """Of every county its rank in its state, 1 + how many have more; (counties, ...)."""
    return np.concatenate([1.0 + (values[one][None] > values[one][:, None]).sum(axis=1) for one in families])


def held(truth: npt.NDArray[np.float64], tables: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Whether statistics (n,) are within the middle 90 % of those of replicates (n x replicates)."""
    low, high = np.quantile(tables, [0.05, 0.95], axis=1, method="inverted_cdf")
    return (low <= truth) & (truth <= high)


def main() -> None:
    """All statistics of all draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--replicates", type=int, default=50)
    parser.add_argument("--json", type=Path, default=RESULTS / "replicates.json")
    arguments = parser.parse_args()
    frame = pd.read_parquet(arguments.table)
    geography = td.Geography.from_table(frame, ["nation", "state", "county"])
    counts = td.Counts.from_table(frame, geography, geoid="county", cells=["employed", "unemployed"])
    tree, leaves = geography.tree, geography.tree.leaves
    offsets = tree.child_offsets - leaves.start
    states = geography.level_slice("state")
    families = [slice(int(offsets[k]), int(offsets[k + 1])) for k in range(states.start, states.stop)]
    true = counts.values[leaves]
    plan = td.Plan(epsilon=arguments.epsilon, shares=dict.fromkeys(geography.levels, "1/3"))
    statistics: dict[str, Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float64]]] = {
        "medians of states": lambda x: medians(x[:, 1], families),
        "shares of counties": lambda x: x[:, 1] / np.maximum(x.sum(axis=1), 1),
        "ranks in states": lambda x: ranks(x[:, 1], families),
    }
    found: dict[str, list[float]] = {}
    for draw in range(arguments.draws):
        measurements = td.measure(counts, plan, source=td.SeededSource((2027, draw)))
        made = td.plausible_tables(measurements, arguments.replicates, td.SeededSource((2027, draw, "tables")))
        tables = np.moveaxis(made.values[:, leaves], 0, -1)  # counties x cells x replicates
        inside = held(true.reshape(-1).astype(float), tables.reshape(-1, arguments.replicates).astype(float))
        for name, (low, high) in CLASSES.items():
            there = (true.reshape(-1) >= low) & (true.reshape(-1) <= high)
            found.setdefault(f"counts, {name}", []).append(float(inside[there].mean()))
        for name, of in statistics.items():
            found.setdefault(name, []).append(float(held(of(true), of(tables)).mean()))
        print(draw + 1, {name: round(np.mean(one), 3) for name, one in found.items()}, flush=True)
    figures = {
        name: {"held": round(float(np.mean(one)), 3), "standard error": round(float(np.std(one) / len(one) ** 0.5), 4)}
        for name, one in found.items()
    }
    known = {"benchmark": "replicates", "machine": machine(), "epsilon": arguments.epsilon, "draws": arguments.draws}
    arguments.json.write_text(json.dumps(known | {"replicates": arguments.replicates, "figures": figures}) + "\n")


if __name__ == "__main__":
    main()
