"""Figure 1: residuals of two small counties before and after the projection with x >= 0."""

from __future__ import annotations

import numpy as np
from common import SCALE, counties, draw_residuals, family, options, print_table, public_total, save
from matplotlib.figure import Figure

import topdown as td

arguments = options(__doc__, 100_000)
frame = counties("Texas")
counts = family(frame, "unemployed")
table = td.simulate(
    counts, public_total(), ["raw", "top-down"], arguments.replicates, arguments.seed, workers=arguments.workers
)
exact = td.theory.nonnegative_sum_projection(counts.values[1:, 0], 1 / SCALE)
smallest = 1 + np.argsort(counts.values[1:, 0])[:2]
name = dict(zip(frame["county"], frame["county_name"], strict=True))

figure = Figure(figsize=(8, 2.8))
rows = []
for axis, node in zip(figure.subplots(1, 2, sharey=True), smallest, strict=True):
    title = f"{name[counts.geography.geoid[node]]}: {counts.values[node, 0]} unemployed"
    draw_residuals(axis, table, node)
    axis.set_title(title)
    for method, label in (("raw", "noise"), ("top-down", "after (P+)")):
        measured, error, variance, zeros = (
            table[method, statistic][node, 0] for statistic in ("bias", "bias_se", "variance", "zeros")
        )
        truth = exact.bias[node - 1] if method == "top-down" else 0.0
        rows.append((title, label, measured, error, float(truth), variance, zeros))
figure.axes[0].set_ylabel("share of replicates")
figure.axes[1].legend()
print_table(("county", "", "bias", "standard error", "exact bias", "variance", "at 0"), rows)
save(figure, "figure_1", arguments.figures)
