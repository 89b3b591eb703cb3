"""What the scripts of this folder share: the folder of figures, tables and how figures look.

Each script redoes a part of Croft, Sack, Shi, "Differential Privacy Via a Truncated and Normalized Laplace Mechanism":
``python pipelines/croft/scales.py [--epsilons ...]`` prints a table and writes a figure to docs/figures/. Figures need
matplotlib (``pip install topdown[docs]``). What the results mean is written in docs/bounded_noise.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]

mpl.rcParams.update(
    {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "axes.grid": True}
)
mpl.rcParams.update({"axes.titlesize": 8, "grid.alpha": 0.3, "svg.hashsalt": "topdown", "lines.linewidth": 1.3})


def options(description: str | None, epsilons: Sequence[float]) -> argparse.Namespace:
    """The command line: which epsilons, and where the figure goes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(epsilons))
    parser.add_argument("--sensitivity", type=float, default=1.0)
    parser.add_argument("--figures", type=Path, default=ROOT / "docs" / "figures")
    return parser.parse_args()


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table of right-aligned columns."""
    cells = [[f"{c:.5g}" if isinstance(c, float | np.floating) else str(c) for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    for row in [list(titles), *cells]:
        print("  ".join(c.rjust(width) for c, width in zip(row, widths, strict=True)))


def save(figure: Figure, folder: Path, name: str) -> None:
    """``figure`` as <folder>/<name>.png."""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=90, bbox_inches="tight", metadata={"Software": None})
    print(f"written: {folder / name}.png")
