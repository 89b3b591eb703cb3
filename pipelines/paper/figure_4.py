"""Figure 4: the bias of the projection with x >= 0 vanishes as all counts are shifted up; with Theorem 4's bound."""

from __future__ import annotations

import numpy as np
from common import SCALE, counties, family, options, print_table, public_total, save
from matplotlib.figure import Figure

import topdown as td

arguments = options(__doc__, 100_000)
frame = counties("New Mexico")
lowest = int(frame["unemployed"].min())
shifts = [*range(0, 101, 10), 125, 150, 200, 300, 400, 500, 600, 700, 800]
rows = []
for shift in shifts:
    moved = frame.assign(unemployed=frame["unemployed"] - lowest + shift)
    counts = family(moved, "unemployed")
    values = counts.values[1:, 0]
    table = td.simulate(
        counts,
        public_total(),
        ["top-down"],
        arguments.replicates,
        arguments.seed,
        workers=arguments.workers,
        distances=False,
    )
    exact = td.theory.nonnegative_sum_projection(values, 1 / SCALE)
    worst = int(np.abs(exact.bias).argmax())
    rows.append(
        (
            shift,
            float(np.abs(exact.bias[worst])),
            float(np.abs(table["top-down", "bias"][1 + worst, 0])),
            float(table["top-down", "bias_se"][1 + worst, 0]),
            float(np.abs(table["top-down", "bias"][1:, 0]).max()),
            td.theory.sharp_bias_bound(values, SCALE, "geometric"),
            td.theory.bias_bound(values, SCALE, "geometric"),
        )
    )

titles = ("smallest", "exact", "measured there", "standard error", "largest measured", "sharper bound", "Theorem 4")
print_table(titles, rows)
columns = dict(zip(titles, np.array(rows, dtype=float).T, strict=True))
# The exact sums are right to about 1e-13, and smaller figures are rounding.
exact = np.where(columns["exact"] > 1e-12, columns["exact"], np.nan)
figure = Figure(figsize=(5.5, 3.2))
axis = figure.subplots()
axis.semilogy(shifts, columns["Theorem 4"], "--", color="0.5", label="bound of Theorem 4")
axis.semilogy(shifts, columns["sharper bound"], ":", color="0.3", label="bound by marginal tails")
axis.semilogy(shifts, exact, color="tab:blue", label="largest |bias|, exact")
axis.semilogy(shifts, columns["largest measured"], "o", color="tab:orange", markersize=4, label="largest, measured")
axis.axhline(columns["standard error"].mean(), color="tab:orange", linewidth=0.8, label="standard error")
axis.set(xlabel="smallest count of the family", ylabel="persons", ylim=(1e-13, 1e7))
axis.legend(fontsize=7)
save(figure, "figure_4", arguments.figures)
