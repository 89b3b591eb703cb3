"""Draw docs/figures/growth.svg from the last results of `nation.py growth`, docs/figures/growth_histograms.svg from
those of `histograms.py growth` and `nation_histogram.py growth`, and docs/figures/scaling.svg from `scaling.py`.

pip install -e ".[docs]" && python benchmarks/plots.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from record import RESULTS

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FIGURES = Path(__file__).parents[1] / "docs" / "figures"


def main() -> None:
    """All figures."""
    mpl.rcParams["svg.hashsalt"] = "topdown"
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name, figure in (("growth", one_cell()), ("growth_histograms", histograms()), ("scaling", scaling())):
        path = FIGURES / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        print(path)


def one_cell() -> Figure:
    """Nanoseconds per leaf and cell against the number of leaves, and against the number of cells."""
    points = [
        (int(found[1]), int(found[2]), value) for found, value in _told("nation-growth", r"(\d+) leaves x (\d+) cells")
    ]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.2), sharey=True, layout="constrained")
    by_leaves = sorted((leaves, value) for leaves, cells, value in points if cells == 1)
    by_cells = sorted((cells, value) for leaves, cells, value in points if leaves == 100_000)
    _draw(left, by_leaves, "leaves, one cell")
    _draw(right, by_cells, "cells, 100,000 leaves")
    left.set_ylim(bottom=0)
    left.set_ylabel("nanoseconds per leaf and cell")
    figure.suptitle("Noise, gls with variances, top-down, joint and rounding together")
    return figure


def histograms() -> Figure:
    """Of whole runs with production's queries the seconds against blocks, by one worker and by two, and milliseconds of
    a processor per block against cells; of projecting and rounding alone milliseconds per block against cells."""
    runs = _told("nation-histogram-growth", r"(\d+) blocks, 2016 cells, (\d) workers, seconds")
    nation = json.loads((RESULTS / "nation-histogram.json").read_text())["figures"]
    whole = _told("nation-histogram-growth", r"100000 blocks, (\d+) cells, 2 queries, processor ms a block")
    alone = _told("histograms-growth", r"ms a block, (\d+) cells")
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.2), layout="constrained")
    for workers, style in ((1, "o:"), (2, "o-")):
        by_blocks = sorted((int(found[1]), value) for found, value in runs if int(found[2]) == workers)
        by_blocks += [(nation["blocks"], nation["seconds"])] if workers == 2 else []
        _draw(left, by_blocks, "blocks, 2,016 cells", style, f"{workers} worker{'s' * (workers > 1)}")
    left.set_ylabel("seconds of a run, 11 queries")
    _draw(
        right, sorted((int(found[1]), v) for found, v in whole), "cells", "o-", "whole run, 100,000 blocks, 2 queries"
    )
    _draw(right, sorted((int(found[1]), v) for found, v in alone), "cells", "s:", "projecting and rounding, 3 queries")
    right.set_ylabel("milliseconds a block")
    for axis in (left, right):
        axis.set_yscale("log")
        axis.legend(frameon=False, fontsize="small")
    return figure


def scaling() -> Figure:
    """Seconds of the nation of histograms against workers, as the replay of recorded tasks has them, what of them is
    serial, and the recorded runs by two."""
    nation = json.loads((RESULTS / "nation-histogram.json").read_text())["figures"]
    figure, axis = plt.subplots(figsize=(6.0, 3.4), layout="constrained")
    for name, upward, style in (
        ("from block", "", "o-"),
        ("from block group", "upward from block group, ", "s:"),
    ):
        points = _told("scaling", rf"nation {name}, (\d+) workers, seconds")
        _draw(axis, sorted((int(found[1]), v) for found, v in points), "workers", style, f"upward pass {name}")
        serial = next(value for _, value in _told("scaling", f"nation {name}, serial seconds"))
        axis.axhline(serial, color="black", linewidth=0.6, linestyle=style[1:])
        axis.plot([2], [nation[f"{upward}seconds"]], "x", color="black", markersize=9)
    axis.set_yscale("log")
    axis.set_ylabel("seconds of the nation")
    axis.legend(
        frameon=False, fontsize="small", title="lines: the serial part; crosses: recorded", title_fontsize="small"
    )
    return figure


def _told(name: str, pattern: str) -> list[tuple[re.Match[str], float]]:
    """The figures of the benchmark's last result whose titles are of a pattern."""
    figures = json.loads((RESULTS / f"{name}.json").read_text())["figures"]
    return [(found, value) for title, value in figures.items() if (found := re.match(pattern, title))]


def _draw(axis: Axes, points: Sequence[tuple[int, float]], title: str, style: str = "o-", label: str = "") -> None:
    axis.plot(*zip(*points, strict=True), style, color="black", label=label)
    axis.set_xscale("log")
    axis.set_xlabel(title)
    axis.grid(alpha=0.3)


if __name__ == "__main__":
    main()
