"""Figures 1 and 2 of the paper: a set of constraints of each class, and a Laplace density before and after normalising.

``python pipelines/croft/figures_1_2.py`` writes both and prints what Figure 2 keeps. Figure 1: the line of real numbers
with constraints as red blocks, a) one infinite constraint, b) finite ones, c) both. Figure 2: location 0 and scale 1,
with an infinite and a finite constraint on either side of the location; the paper does not print where they end.
"""

from __future__ import annotations

import numpy as np
from common import options, print_table, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from topdown.noise import Laplace, NormalizedLaplace
from topdown.research.bounded.constraints import Constraints, forbidden_spans

CLASSES: dict[str, Constraints] = {
    "a) a single infinite constraint": [(1.5, None)],
    "b) arbitrary finite constraints": [(-3.0, -2.0), (-0.5, 1.0), (2.2, 2.8)],
    "c) arbitrary constraints": [(None, -3.0), (-1.2, 0.2), (2.5, None)],
}
LOCATION, SCALE, REACH = 0.0, 1.0, 4.0
CONSTRAINTS: Constraints = [(None, -3.0), (-2.0, -1.0), (0.5, 1.25), (2.5, None)]


def main() -> None:
    arguments = options(__doc__, (1.0,))
    save(constraint_sets(), arguments.figures, "croft_figure_1")
    law, plain = NormalizedLaplace(LOCATION, SCALE, CONSTRAINTS), Laplace(SCALE)
    save(two_densities(law, plain), arguments.figures, "croft_figure_2")
    at_location = float(np.asarray(law.pdf(LOCATION)))
    print_table(
        ("location", "scale", "mass kept", "density at the location", "without constraints"),
        [(LOCATION, SCALE, float(np.asarray(law.kept_mass)), at_location, float(plain.pdf(0.0)))],
    )


def constraint_sets() -> Figure:
    """Figure 1: a line for each class."""
    figure = Figure(figsize=(5.6, 2.4))
    axes = figure.subplots(len(CLASSES), 1)
    for axis, (name, constraints) in zip(axes, CLASSES.items(), strict=True):
        axis.axhline(0.0, color="black", lw=1.2)
        blocks(axis, constraints, -0.5, 0.5)
        axis.set(xlim=(-REACH, REACH), ylim=(-1, 1))
        axis.set_title(name, loc="left", fontsize=8)
        axis.set_axis_off()
    figure.tight_layout()
    return figure


def two_densities(law: NormalizedLaplace, plain: Laplace) -> Figure:
    """Figure 2: the original density in red, the truncated and normalised one in blue, constraints shaded."""
    figure = Figure(figsize=(5.6, 3.0))
    axis = figure.subplots()
    x = np.linspace(-REACH, REACH, 3201)
    density = np.asarray(law.pdf(x))
    blocks(axis, CONSTRAINTS, 0.0, 1.05 * density.max(), color="0.8")
    axis.plot(x, plain.pdf(x - LOCATION), color="tab:red", label="Laplace")
    axis.plot(x, np.where(density > 0, density, np.nan), color="tab:blue", label="truncated and normalised")
    axis.set(xlabel="output", ylabel="density", xlim=(-REACH, REACH), ylim=(0, 1.05 * density.max()))
    axis.legend(loc="upper right")
    return figure


def blocks(axis: Axes, constraints: Constraints, bottom: float, top: float, color: str = "tab:red") -> None:
    """The constraints as blocks; one that has no end reaches the edge of the picture."""
    for low, high in forbidden_spans(constraints):
        axis.fill_between([max(low, -REACH), min(high, REACH)], bottom, top, color=color, alpha=0.6, lw=0)


if __name__ == "__main__":
    main()
