"""What the scripts of this folder share: the counties of a state, the paper's noise, tables and figures.

Each script redoes one result of Zhu, Van Hentenryck, Fioretto, "Bias and Variance of Post-processing in Differential
Privacy", on the labour force of the US counties in 2009: ``python pipelines/paper/figure_5.py [--replicates N]`` prints
a table and writes a figure to docs/figures/. Figures need matplotlib (``pip install topdown[docs]``). What the results
mean is written in docs/bias_and_variance.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import topdown as td

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data" / "us_counties_labor_force_2009.parquet"
FIGURES = ROOT / "docs" / "figures"

SCALE = 10
"""Scale of the paper's noise, epsilon = 0.1 for counts of sensitivity 1."""

mpl.rcParams.update(
    {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "axes.grid": True}
)
mpl.rcParams.update({"grid.alpha": 0.3, "svg.hashsalt": "topdown", "lines.linewidth": 1.4})


def options(description: str | None, replicates: int) -> argparse.Namespace:
    """The command line: how many replicates, on how many workers."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--replicates", type=int, default=replicates)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--figures", type=Path, default=FIGURES, help="where the figure goes")
    return parser.parse_args()


def counties(state: str | None = None) -> pd.DataFrame:
    """The counties of a state, or of all, with the column ``labour_force``."""
    frame = pd.read_parquet(DATA)
    frame["labour_force"] = frame["employed"] + frame["unemployed"]
    return frame if state is None else frame[frame["state_name"] == state].reset_index(drop=True)


def population(state: str) -> pd.DataFrame:
    """The counties of Arizona, New Mexico or Texas with their population in the census of 2010 as ``count``."""
    people = pd.read_csv(ROOT / "data" / "small" / "us_county2010_pop_of_the_paper.csv", dtype=str)
    people = people[people["STNAME"] == state]
    return pd.DataFrame(
        {
            "state": people["STATEFP"].to_numpy(),
            "county": people["geoid"].to_numpy(),
            "county_name": people["COUNAME"].to_numpy(),
            "count": people["POPULATION"].astype(int).to_numpy(),
        }
    )


def family(frame: pd.DataFrame, cell: str) -> td.Counts:
    """One cell of a state's counties: a family of two levels."""
    geography = td.Geography.from_table(frame, levels=["state", "county"])
    return td.Counts.from_table(frame, geography, geoid="county", cells=[cell])


def public_total(mechanism: str = "geometric", scale: int = SCALE) -> td.Plan:
    """Noise of ``scale`` at every county; the levels above are exact."""
    return td.Plan(mechanism, epsilon=Fraction(1, scale), shares={"county": 1}, invariants=("state",))


def draw_residuals(axis: Axes, table: td.ErrorTable, node: int) -> None:
    """The residuals of one county before and after (P+), as in Figures 1 and 4: shares of the replicates."""
    for method, label, style in (("raw", "noise", "0.6"), ("top-down", "after (P+)", "tab:blue")):
        density, width = table.densities[method][node, 0], table.bin_width[node, 0]
        bins = (np.arange(len(density) + 1) - len(density) // 2) * width
        # Bins of one person: the noise is whole.
        per = int(1 / width)
        share = density.reshape(-1, per).sum(axis=1) / table.replicates
        below = method == "raw"
        axis.stairs(share, bins[::per], label=label, color=style, fill=below, alpha=0.5 if below else 1)
    axis.set(xlabel="released - true count", xlim=(-50, 50))
    axis.set_yscale("log")
    axis.set_ylim(1e-4, 1)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table of right-aligned columns."""
    cells = [[f"{c:.4g}" if isinstance(c, float | np.floating) else str(c) for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    for row in [list(titles), *cells]:
        print("  ".join(c.rjust(width) for c, width in zip(row, widths, strict=True)))


def save(figure: Figure, name: str, folder: Path = FIGURES) -> None:
    """``figure`` as <folder>/<name>.png."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=110, bbox_inches="tight", metadata={"Software": None})
    print(f"written: {folder / name}.png")
