"""Draw docs/figures/growth.svg from the last results of `nation.py growth`.

pip install -e ".[docs]" && python benchmarks/plots.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib as mpl
from record import RESULTS

mpl.use("svg")

import matplotlib.pyplot as plt

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "growth.svg"


def main() -> None:
    """Nanoseconds per leaf and cell against the number of leaves, and against the number of cells."""
    figures = json.loads((RESULTS / "nation-growth.json").read_text())["figures"]
    points = [
        (int(found[1]), int(found[2]), value)
        for title, value in figures.items()
        if (found := re.match(r"(\d+) leaves x (\d+) cells", title))
    ]
    mpl.rcParams["svg.hashsalt"] = "topdown"
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.2), sharey=True, layout="constrained")
    by_leaves = sorted((leaves, value) for leaves, cells, value in points if cells == 1)
    by_cells = sorted((cells, value) for leaves, cells, value in points if leaves == 100_000)
    for axis, series, label in ((left, by_leaves, "leaves, one cell"), (right, by_cells, "cells, 100,000 leaves")):
        axis.plot(*zip(*series, strict=True), color="black", marker="o")
        axis.set_xscale("log")
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
    left.set_ylim(bottom=0)
    left.set_ylabel("nanoseconds per leaf and cell")
    figure.suptitle("Noise, gls with variances, top-down, joint and rounding together")
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})
    print(FIGURE)


if __name__ == "__main__":
    main()
