"""Figure 1: residuals of two small counties before and after the projection with x >= 0."""

from __future__ import annotations

import numpy as np
from common import SCALE, counties, family, options, print_table, public_total, save
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
    for method, label, style in (("raw", "noise", "0.6"), ("top-down", "after (P+)", "tab:blue")):
        density, width = table.densities[method][node, 0], table.bin_width[node, 0]
        bins = (np.arange(len(density) + 1) - len(density) // 2) * width
        # Bins of one person: the noise is whole.
        per = int(1 / width)
        share = density.reshape(-1, per).sum(axis=1) / table.replicates
        below = method == "raw"
        axis.stairs(share, bins[::per], label=label, color=style, fill=below, alpha=0.5 if below else 1)
        measured, error = (table[method, statistic][node, 0] for statistic in ("bias", "bias_se"))
        truth = exact.bias[node - 1] if method == "top-down" else 0.0
        variance, zeros = (table[method, statistic][node, 0] for statistic in ("variance", "zeros"))
        rows.append((title, label, measured, error, float(truth), variance, zeros))
    axis.set(title=title, xlabel="released - true count", xlim=(-50, 50))
    axis.set_yscale("log")
    axis.set_ylim(1e-4, 1)
figure.axes[0].set_ylabel("share of replicates")
figure.axes[1].legend()
print_table(("county", "", "bias", "standard error", "exact bias", "variance", "at 0"), rows)
save(figure, "figure_1")
