"""Draw docs/figures/how_it_works.svg: three counties of Delaware, counted, measured with noise, and released.

pip install -e ".[docs]" && python pipelines/figures/how_it_works.py

A seed makes the picture repeatable, one whose intervals all hold the counts, as nine of ten do. A budget of
0.004 makes the noise large enough to see.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import pandas as pd
from diagrams import INK, LINE, save
from matplotlib.axes import Axes

import topdown as td

ROOT = Path(__file__).parents[2]
BOX = f"{LINE}22"


def main() -> None:
    """The figure: a panel for every step."""
    mpl.rcParams |= {"svg.hashsalt": "topdown", "text.color": INK, "svg.fonttype": "path"}
    table = pd.read_parquet(ROOT / "data" / "us_counties_labor_force_2009.parquet").query("state == '10'")
    short = table.county_name.str.replace(r"( County)?, DE", "", regex=True)
    names = {"10": "Delaware"} | dict(zip(table.county, short, strict=True))
    geography = td.Geography.from_table(table, levels=["state", "county"])
    counts = td.Counts.from_table(table, geography, geoid="county", cells=["unemployed"])
    plan = td.Plan(mechanism="geometric", epsilon="1/250")
    measurements = td.measure(counts, plan, source=td.SeededSource(17))
    estimate = td.project(measurements, "gls-top-down", nonnegative=True)
    release = td.round_counts(estimate, source=td.SeededSource(18))
    margins = td.margins(measurements, release).set_index("geoid").loc[list(geography.geoid)]
    true, noisy = (one.values[:, 0] for one in (counts, measurements))
    figure, panels = plt.subplots(1, 3, figsize=(11.0, 2.9), layout="constrained")
    geoids = [names[geoid] for geoid in geography.geoid]
    intervals = [f"{low:,.0f} to {high:,.0f}" for low, high in zip(margins.lower, margins.upper, strict=True)]
    released = release.values[:, 0]
    tree(panels[0], "1  Counts: confidential", geoids, true, [""] * 4, adds_up(true))
    tree(panels[1], "2  Noise is added to each", geoids, noisy, [""] * 4, adds_up(noisy))
    tree(panels[2], "3  Release, with margins of 90 %", geoids, released, intervals, adds_up(released))
    save(figure, "how_it_works")


def adds_up(values: list[float]) -> str:
    """What the sum of the counties is beside the state, in words."""
    off = int(sum(values[1:]) - values[0])
    if off == 0:
        return "the counties add up to the state"
    return f"the counties add up to {abs(off):,} too {'many' if off > 0 else 'few'}"


def tree(panel: Axes, title: str, names: list[str], values: list[float], below: list[str], said: str) -> None:
    """A state above its counties, a box each."""
    panel.set_axis_off()
    panel.set_xlim(0, 3)
    panel.set_ylim(0, 3.2)
    panel.text(1.5, 3.0, title, ha="center", size=13, weight="bold")
    places = [(1.5, 2.15), (0.5, 0.85), (1.5, 0.85), (2.5, 0.85)]
    for x, y in places[1:]:
        panel.plot([1.5, 1.5, x, x], [1.77, 1.5, 1.5, y + 0.38], color=LINE, lw=1.2)
    for (x, y), name, value, interval in zip(places, names, values, below, strict=True):
        panel.add_patch(plt.Rectangle((x - 0.46, y - 0.38), 0.92, 0.76, facecolor=BOX, edgecolor=LINE, lw=1.2))
        panel.text(x, y + 0.2, name, ha="center", va="center", size=9)
        panel.text(x, y - 0.03, f"{value:,.0f}", ha="center", va="center", size=12, weight="bold")
        panel.text(x, y - 0.25, interval, ha="center", va="center", size=8)
    panel.text(1.5, 0.08, said, ha="center", size=10, style="italic")


if __name__ == "__main__":
    main()
