"""The course's plots of densities: Laplace's and the Gaussian's, by epsilon and by sensitivity.

``python pipelines/course/densities.py`` writes docs/figures/course_densities.png. Every legend says what is drawn: the
scale is sensitivity/epsilon, and the Gaussian's sigma the smallest for (epsilon, 1e-7), by the analytic calibration.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import topdown as td
from topdown.privacy import analytic_gaussian_sigma

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
DELTA = 1e-7

mpl.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})


def law(kind: str, epsilon: float, sensitivity: float) -> td.noise.Laplace | td.noise.Gaussian:
    """The noise of a statistic of this sensitivity at this epsilon."""
    if kind == "Laplace":
        return td.noise.Laplace(sensitivity / epsilon)
    return td.noise.Gaussian(analytic_gaussian_sigma(epsilon, DELTA, sensitivity))


def main() -> None:
    figure = Figure(figsize=(7, 6.2))
    axes = figure.subplots(2, 2)
    for row, (kind, reach) in enumerate((("Laplace", 8.0), ("Gaussian", 40.0))):
        x = np.linspace(-reach, reach, 1201)
        for epsilon in (0.1, 0.5, 1.0):
            axes[row][0].plot(x, law(kind, epsilon, 1.0).pdf(x), label=f"epsilon {epsilon:g}, sensitivity 1")
        for sensitivity in (1.0, 2.0, 3.0):
            axes[row][1].plot(x, law(kind, 1.0, sensitivity).pdf(x), label=f"epsilon 1, sensitivity {sensitivity:g}")
        axes[row][0].set_ylabel(f"{kind} density")
        for axis in axes[row]:
            axis.set_xlabel("noise")
            axis.set_ylim(0, 1.4 * axis.get_ylim()[1])  # room for the legend
            axis.legend(fontsize=7, loc="upper left")
    figure.tight_layout()
    figure.savefig(FIGURES / "course_densities.png", dpi=90, bbox_inches="tight", metadata={"Software": None})
    print("written: docs/figures/course_densities.png")


main()
