"""How often published intervals hold the true count, on real tables, by size of the count; and how long they are.

``python benchmarks/interval_coverage.py CASE [--blocks TABLE] [--replicates N] [--confidence 0.9] [--json FILE]``

CASE is one of ``CASES``: counties of the United States by labour force, blocks of Rhode Island by race (of which the
repository has some; ``--blocks`` names a table of all, by GEOID, with columns pop_*). Every replicate draws, projects,
rounds and has its intervals; sums are kept every ten, and the same command goes on from there. ``show`` prints what all
cases have so far: the lowest level by true and by published count, the levels above, and in brackets the lengths beside
those of least squares.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from filelock import FileLock
from record import RESULTS, machine

import topdown as td
from topdown.machine.files import whole_file
from topdown.uncertainty.laws.error_law import NORMAL, tail
from topdown.uncertainty.margins import margins_of

DATA = Path(__file__).parents[1] / "data"
EDGES = (1, 10, 100, 1_000)
CLASSES = ("0", "1-9", "10-99", "100-999", "1000+")
KEPT_EVERY = 10


class Case(NamedTuple):
    """Where the table is, and its plan."""

    place: str
    epsilon: str


CASES = {
    "counties-0.1": Case("counties", "0.1"),
    "counties-1": Case("counties", "1"),
    "rhode-island-0.5": Case("rhode-island", "0.5"),
    "rhode-island-2": Case("rhode-island", "2"),
}


def table(case: Case, blocks: Path) -> tuple[td.Counts, td.Plan]:
    """The counts and the plan: geometric noise, shares of .2, .3, .5 or equal ones."""
    if case.place == "counties":
        frame = pd.read_parquet(DATA / "us_counties_labor_force_2009.parquet")
        geography = td.Geography.from_table(frame, ["nation", "state", "county"])
        counts = td.Counts.from_table(frame, geography, geoid="county", cells=["employed", "unemployed"])
        shares = dict(zip(geography.levels, ("0.2", "0.3", "0.5"), strict=True))
    else:
        frame = pd.read_csv(blocks, dtype={"GEOID": str})
        widths = {"county": 5, "tract": 11, "block group": 12, "block": 15}
        geography = td.Geography.from_geoids(frame["GEOID"].tolist(), widths=widths, root="44", root_level="state")
        cells = [name for name in frame.columns if name.startswith("pop_")]
        counts = td.Counts.from_table(frame, geography, geoid="GEOID", cells=cells)
        shares = dict.fromkeys(geography.levels, "1/5")
    return counts, td.Plan("geometric", epsilon=case.epsilon, shares=shares)


def replicate(counts: td.Counts, plan: td.Plan, number: int, confidence: float) -> dict[str, np.ndarray]:
    """By class of the true and of the published count of the lowest level, and of the true count of those above: how
    many units (4 x classes), how many are covered, the lengths of the intervals and of those of least squares."""
    measurements = td.measure(counts, plan, source=td.SeededSource((2026, number)))
    release = td.round_counts(td.project(measurements, "gls-top-down"), source=td.SeededSource((2026, number, "ties")))
    margins = margins_of(measurements, release, confidence=confidence)
    truth, leaves = counts.values, counts.geography.tree.leaves
    holds = (margins.lower <= truth) & (truth <= margins.upper)
    normal = float(tail(NORMAL).quantile(np.array([(1.0 - confidence) / 2.0]))[0])
    found = {}
    for by, size, nodes in (
        ("true", truth, leaves),
        ("published", release.values, leaves),
        ("true, levels above", truth, slice(0, leaves.start)),
    ):
        code = np.searchsorted(EDGES, size[nodes].reshape(-1), side="right")
        columns = (None, holds[nodes], (margins.upper - margins.lower)[nodes], 2.0 * normal * margins.sd[nodes])
        found[by] = np.array(
            [np.bincount(code, None if c is None else c.reshape(-1), len(CLASSES)) for c in columns], dtype=np.float64
        )
    return found


def run(name: str, blocks: Path, replicates: int, confidence: float, path: Path) -> None:
    """Go on with ``name`` until so many replicates are there."""
    counts, plan = table(CASES[name], blocks)
    known: dict[str, Any] = json.loads(path.read_text())["figures"] if path.exists() else {}
    key = f"{name}, {counts.geography.n_leaves:,} units, at {confidence:g}"
    done = known.get(key, {"replicates": 0, "sums": {}})
    started, begun = time.perf_counter(), done["replicates"]
    for number in range(done["replicates"], replicates):
        for by, sums in replicate(counts, plan, number, confidence).items():
            done["sums"][by] = (np.array(done["sums"].get(by, 0.0)) + sums).tolist()
        done["replicates"] = number + 1
        if (number + 1) % KEPT_EVERY == 0 or number + 1 == replicates:
            # Other cases may go on beside this one.
            with FileLock(path.with_name(f".{path.name}.lock")), whole_file(path) as partial:
                known = json.loads(path.read_text())["figures"] if path.exists() else {}
                partial.write_text(
                    json.dumps({"benchmark": "coverage", "machine": machine(), "figures": known | {key: done}}) + "\n"
                )
            each = (time.perf_counter() - started) / (number + 1 - begun)
            print(f"{key}: {number + 1} replicates, {each:.2f} s each", flush=True)


def show(path: Path) -> None:
    """Coverage and lengths of all cases."""
    for key, done in json.loads(path.read_text())["figures"].items():
        print(f"{key}, {done['replicates']} replicates")
        for by, sums in done["sums"].items():
            units, covered, lengths, least_squares = np.array(sums)
            there = units > 0
            line = [
                f"{name} {c / u:.3f} ({length / other:.2f})" if other > 0 else f"{name} {c / u:.3f}"
                for name, u, c, length, other in zip(
                    np.array(CLASSES)[there],
                    units[there],
                    covered[there],
                    lengths[there],
                    least_squares[there],
                    strict=True,
                )
            ]
            print(f"  {by:20s} " + "  ".join(line))


def main() -> None:
    """One case, or what all have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=[*CASES, "show"])
    parser.add_argument("--blocks", type=Path, default=DATA / "small" / "ri_block_race_2010.csv")
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--confidence", type=float, default=0.9)
    parser.add_argument("--json", type=Path, default=RESULTS / "coverage.json")
    arguments = parser.parse_args()
    if arguments.case == "show":
        show(arguments.json)
    else:
        run(arguments.case, arguments.blocks, arguments.replicates, arguments.confidence, arguments.json)


if __name__ == "__main__":
    main()
