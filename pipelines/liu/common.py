"""What the scripts of this folder share: the command line's common options, tables and figures.

Each script redoes one simulation study of Liu, "Statistical Properties of Sanitized Results from Differentially Private
Laplace Mechanism with Univariate Bounding Constraints": ``python pipelines/liu/covariance.py [--repeats N]`` prints a
table and writes a figure to docs/figures/. Figures need matplotlib, the nearest positive definite matrix statsmodels
(``pip install topdown[docs]``). What the results mean is written in docs/bounded_noise.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]

MECHANISMS = ("truncated", "truncated, true epsilon", "boundary-inflated")
"""Liu's two mechanisms at the textbook scale, and truncation at the scale that keeps epsilon."""

COLOURS = {"truncated": "tab:orange", "truncated, true epsilon": "tab:red", "boundary-inflated": "tab:blue"}

mpl.rcParams.update(
    {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "axes.grid": True}
)
mpl.rcParams.update({"axes.titlesize": 8, "grid.alpha": 0.3, "svg.hashsalt": "topdown", "lines.linewidth": 1.3})


def parser(description: str | None, repeats: int, sizes: Sequence[int]) -> argparse.ArgumentParser:
    """The options that both studies have."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--repeats", type=int, default=repeats, help="sanitisations per setting")
    options.add_argument("--sizes", type=int, nargs="+", default=list(sizes), help="numbers of records n")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--figures", type=Path, default=ROOT / "docs" / "figures", help="where the figure goes")
    return options


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table of right-aligned columns."""
    cells = [[f"{c:.4g}" if isinstance(c, float | np.floating) else str(c) for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    for row in [list(titles), *cells]:
        print("  ".join(c.rjust(width) for c, width in zip(row, widths, strict=True)))


def save(figure: Figure, folder: Path, name: str) -> None:
    """``figure`` as <folder>/<name>.png."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=90, bbox_inches="tight", metadata={"Software": None})
    print(f"written: {folder / name}.png")
