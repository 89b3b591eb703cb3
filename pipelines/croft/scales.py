"""Table 2, the scale by class of constraints, and the location-dependent scale (Formulae 32, 33) against the
distance."""

from __future__ import annotations

import numpy as np
from common import options, print_table, save
from matplotlib.figure import Figure
from scaling import scaling

from topdown.noise import adjacent_half_line_scale, half_line_scale, worst_log_ratio
from topdown.research.bounded.constraints import Constraints

SETS: dict[str, Constraints] = {
    "no constraint": [],
    "a gap of width 1": [(-0.5, 0.5)],
    "a gap of width 4": [(-2.0, 2.0)],
    "three gaps": [(-3.0, -1.0), (0.0, 0.5), (2.0, 2.2)],
    "x >= 0": [(None, 0.0)],
    "0 <= x <= 4": [(None, 0.0), (4.0, None)],
    "x >= 0 with a gap": [(None, 0.0), (3.0, 4.0)],
}


def main() -> None:
    arguments = options(__doc__, (0.5, 1.0, 2.0))
    sensitivity = arguments.sensitivity
    rows = []
    for epsilon in arguments.epsilons:
        for name, constraints in SETS.items():
            found = scaling(constraints, epsilon, sensitivity)
            measured = "-" if not found.pure else worst_log_ratio(found.scale, constraints, sensitivity)
            rows.append((epsilon, name, found.constraints, found.formula, found.scale, measured, found.adjacent))
    titles = (
        "epsilon",
        "constraints",
        "class",
        "formulae",
        "paper's scale",
        "its loss, measured",
        "adjacent pairs' scale",
    )
    print_table(titles, rows)

    distances = np.concatenate([np.linspace(0.0, 4.0, 161), np.linspace(4.1, 12.0, 80)])
    figure = Figure(figsize=(5.6, 3.2))
    axis = figure.subplots()
    for k, epsilon in enumerate(arguments.epsilons):
        unit = sensitivity / epsilon
        scale = np.asarray(half_line_scale(distances * sensitivity, epsilon, sensitivity))
        axis.plot(distances, scale, color=f"C{k}", label=f"Formula 33, epsilon {epsilon:g}")
        constant = float(adjacent_half_line_scale(epsilon, sensitivity))
        axis.axhline(
            constant, color=f"C{k}", linestyle="--", linewidth=0.8, label=f"constant, adjacent pairs, {epsilon:g}"
        )
        axis.axhline(unit, color=f"C{k}", linestyle=":", linewidth=0.8)
    axis.set(xlabel="distance from the border, in sensitivities", ylabel="scale")
    axis.legend(fontsize=6, ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.22))
    save(figure, arguments.figures, "bounded_croft_scales")


if __name__ == "__main__":
    main()
