"""What it costs and gains to settle the total first (`[projection] order`) where the root is noisy, on real counts.

python benchmarks/order.py    the largest tract and block group of `pipelines/pl94_rhode_island.toml` as roots
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from record import save

import topdown as td
from topdown.config import load_config
from topdown.pipeline.input.reading import read_input

WIDTHS = {"tract": 11, "block group": 12, "block": 15}
WAYS: dict[str, list[str] | None] = {
    "at once": [],
    "total first at the root": None,
    "total first everywhere": ["total"],
}
DRAWS_EVERYWHERE = 20
METHOD = "gls-top-down"


def rooted(counts: td.Counts, level: str) -> td.Counts:
    """The counts of the largest unit of ``level`` and of all below it."""
    nodes, leaves = counts.geography.level_slice(level), counts.geography.tree.leaves
    code = counts.geography.geoid[nodes.start + int(np.argmax(counts.values[nodes].sum(axis=1)))]
    codes = np.array(list(counts.geography.geoid[leaves.start :]))
    mine = np.array([one.startswith(code) for one in codes])
    widths = {name: width for name, width in WIDTHS.items() if width > len(code)}
    geography = td.Geography.from_geoids(list(codes[mine]), widths, root=code, root_level=level)
    cells = list(counts.schema.cells())
    table = {"block": list(codes[mine]), **dict(zip(cells, counts.values[leaves][mine].T, strict=True))}
    return td.Counts.from_table(table, geography, geoid="block", cells=cells, schema=counts.schema)


def compared(counts: td.Counts, draws: int, ways: list[str]) -> dict[str, float]:
    """Errors over ``draws``: of the root's total, and of totals and of all cells of a unit by level."""
    levels = counts.geography.levels
    plan = td.preset("pl94-2020-us").plan(levels)
    total = td.Query.parse("total", counts.schema)
    root: dict[str, list[float]] = {"measured total alone": []}
    units: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for seed in range(draws):
        measurements = td.measure(counts, plan, td.SeededSource(("order", seed)))
        alone = measurements.at(levels[0])[total].values[0, 0]
        root["measured total alone"].append(float(alone - counts.values[0].sum()))
        for way in ways:
            order = WAYS[way]
            if way == "total first everywhere" and seed >= DRAWS_EVERYWHERE:
                continue
            release = td.project_whole(measurements, METHOD, order=order, source=td.SeededSource(("ties", seed)))
            for level in levels:
                gap = release.answers(level, "detailed") - counts.values[counts.geography.level_slice(level)]
                errors = float(np.abs(gap.sum(axis=1)).mean()), float(np.abs(gap).sum(axis=1).mean())
                units.setdefault((way, level), []).append(errors)
            root.setdefault(way, []).append(float(release.answers(levels[0], "total")[0, 0] - counts.values[0].sum()))
    figures: dict[str, float] = {"persons": float(counts.values[0].sum())}
    for way, errors in root.items():
        one = np.array(errors)
        found = {
            "mean": one.mean(),
            "standard error": one.std(ddof=1) / np.sqrt(len(one)),
            "rmse": np.sqrt((one**2).mean()),
        }
        figures |= {f"{way}, total, {name}": float(value) for name, value in found.items()}
        print(
            f"  {levels[0]:12s} {way:24s} total: mean {found['mean']:+.2f} +- {found['standard error']:.2f}, "
            f"RMSE {found['rmse']:.2f}, {len(one)} draws"
        )
    for (way, level), pairs in units.items():
        mean, spread = np.mean(pairs, axis=0), np.std(pairs, axis=0, ddof=1) / np.sqrt(len(pairs))
        for kind, value, error in zip(("totals", "cells"), mean, spread, strict=True):
            figures |= {
                f"{way}, {level}, {kind}": float(value),
                f"{way}, {level}, {kind}, standard error": float(error),
            }
        print(
            f"  {level:12s} {way:24s} totals {mean[0]:.2f} +- {spread[0]:.2f}   cells {mean[1]:.1f} +- {spread[1]:.1f}",
            flush=True,
        )
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--root", choices=["tract", "block group"], action="append")
    parser.add_argument("--way", choices=list(WAYS), action="append")
    asked = parser.parse_args()
    _, whole = read_input(load_config(Path(__file__).parent.parent / "pipelines" / "pl94_rhode_island.toml"))
    for root in asked.root or ["tract", "block group"]:
        print(f"The largest {root} as the root, {METHOD}")
        save(
            f"order-{root.replace(' ', '-')}",
            compared(rooted(whole, root), asked.draws, asked.way or list(WAYS)) | {"draws": asked.draws},
        )
