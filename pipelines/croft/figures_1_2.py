"""Figures 1 and 2 of the paper: sets of constraints on a line, and the plain and the normalised Laplace density on one.

``python pipelines/croft/figures_1_2.py``. The sets of Figure 1 are one of each class that the paper treats; the
densities of Figure 2 are around one location beside a gap and a border, at one scale.
"""

from __future__ import annotations

import numpy as np
from common import options, print_table, save
from matplotlib.figure import Figure

from topdown.noise import Laplace, NormalizedLaplace
from topdown.research.bounded.constraints import Constraints, feasible_pieces

CLASSES: dict[str, Constraints] = {
    "one finite constraint": [(1.0, 2.5)],
    "several finite constraints": [(-2.5, -1.0), (1.0, 2.5)],
    "one infinite constraint": [(None, -2.0)],
    "infinite and finite ones": [(None, -2.0), (0.5, 1.5), (3.0, None)],
}
LOCATION, SCALE, REACH = 0.25, 1.0, 4.0


def main() -> None:
    arguments = options(__doc__, (1.0,))
    figure = Figure(figsize=(5.6, 2.2))
    axis = figure.subplots()
    for row, (name, constraints) in enumerate(reversed(CLASSES.items())):
        axis.plot([-REACH, REACH], [row, row], color="0.8", lw=5, solid_capstyle="butt")
        for low, high in feasible_pieces(constraints):
            axis.plot([max(low, -REACH), min(high, REACH)], [row, row], color="C0", lw=5, solid_capstyle="butt")
        axis.text(-REACH, row + 0.25, name, fontsize=8)
    axis.set(xlabel="feasible (blue) and constrained (grey)", xlim=(-REACH, REACH), ylim=(-0.5, len(CLASSES) - 0.2))
    axis.set_yticks([])
    axis.grid(visible=False)
    axis.spines["left"].set_visible(False)
    save(figure, arguments.figures, "croft_figure_1")

    constraints = CLASSES["infinite and finite ones"]
    law, plain = NormalizedLaplace(LOCATION, SCALE, constraints), Laplace(SCALE)
    x = np.linspace(-REACH, REACH, 1601)
    figure = Figure(figsize=(5.6, 2.6))
    axis = figure.subplots()
    axis.plot(x, plain.pdf(x - LOCATION), color="0.5", ls="--", label="Laplace")
    density = np.asarray(law.pdf(x))
    axis.plot(x, np.where(density > 0, density, np.nan), color="C0", label="truncated and normalised")
    axis.fill_between(x, 0, density, color="C0", alpha=0.15, lw=0)
    axis.set(xlabel="output", ylabel="density", xlim=(-REACH, REACH))
    axis.legend()
    save(figure, arguments.figures, "croft_figure_2")
    print_table(
        ("location", "scale", "mass kept", "density at the location", "without constraints"),
        [
            (
                LOCATION,
                SCALE,
                float(np.asarray(law.kept_mass)),
                float(np.asarray(law.pdf(LOCATION))),
                float(plain.pdf(0.0)),
            )
        ],
    )


main()
