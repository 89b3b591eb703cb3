"""The course's counts: Adelie penguins counted a hundred times, with Laplace and Gaussian noise, and diamonds by size.

``python pipelines/course/counts.py`` writes docs/figures/course_counts.png. Epsilon is 0.1 throughout, and delta 10^-7
for the Gaussian, by the classical scale of the course. A hundred counts show the law; a release is one of them.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import topdown as td
from topdown.privacy.sanitizers import gaussian_sanitizer, laplace_sanitizer

ROOT = Path(__file__).resolve().parents[2]
EPSILON, DELTA = 0.1, 1e-7
TRUTH, DRAW = "C2", "C6"

mpl.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})


def counted(kind: str, true: np.ndarray, source: td.SeededSource) -> np.ndarray:
    """Every element of ``true`` with noise of its own for all of epsilon."""
    if kind == "Laplace":
        return np.asarray(laplace_sanitizer(true, 1.0, EPSILON, source).value)
    return np.asarray(gaussian_sanitizer(true, 1.0, EPSILON, DELTA, source, calibration="classical").value)


def main() -> None:
    penguins = pd.read_csv(ROOT / "data" / "course_penguins.csv")
    adelie = int((penguins["species"] == "Adelie").sum())
    figure = Figure(figsize=(10.5, 3.2))
    axes = figure.subplots(1, 3, width_ratios=(1, 1, 1.2))
    for axis, kind in zip(axes, ("Laplace", "Gaussian"), strict=False):
        axis.hist(counted(kind, np.full(100, adelie), td.SeededSource((1, kind))), bins=30, color="0.75")
        axis.axvline(adelie, color=TRUTH, lw=2, label=f"truth, {adelie}")
        one = counted(kind, np.array([adelie]), td.SeededSource((2, kind)))[0]
        axis.axvline(one, color=DRAW, lw=2, label=f"one draw, {one:.1f}")
        axis.set(title=f"Adelie penguins counted 100 times, {kind}", xlabel="count with noise", ylabel="times")
        axis.set_ylim(0, 1.3 * axis.get_ylim()[1])  # room for the legend
        axis.legend(loc="upper left")
    diamonds = pd.read_csv(ROOT / "data" / "course_diamonds.csv")
    sizes = diamonds.groupby(np.ceil(diamonds["carat"]).astype(int))["diamonds"].sum()
    split = td.noise.DiscreteLaplace(6 / EPSILON).sample((6,), td.SeededSource(10))
    whole = td.noise.DiscreteLaplace(1 / EPSILON).sample((6,), td.SeededSource(11))
    bars = {"truth": sizes, "epsilon/6 for each of six questions": sizes + split, "epsilon for each bin": sizes + whole}
    for place, (name, values) in enumerate(bars.items()):
        axes[2].bar(sizes.index + 0.27 * (place - 1), values, 0.25, label=name, color=(TRUTH, "C1", "C0")[place])
    axes[2].set_yscale("symlog", linthresh=100)
    axes[2].set_ylim(-100, 1e7)  # room for the legend
    axes[2].axhline(0, color="black", lw=0.6)
    axes[2].set_xticks(sizes.index, [f"({k - 1}, {k}]" if k > 1 else "[0, 1]" for k in sizes.index])
    axes[2].set(title="Diamonds by size, epsilon 0.1", xlabel="carats", ylabel="diamonds")
    axes[2].legend(loc="upper right")
    figure.tight_layout()
    path = ROOT / "docs" / "figures" / "course_counts.png"
    figure.savefig(path, dpi=100, bbox_inches="tight", metadata={"Software": None})
    print(f"written: {path.relative_to(ROOT)}")


main()
