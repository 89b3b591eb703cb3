"""Figure 4: the residuals of Figure 1's two counties as all true counts are shifted up by a positive number.

``python pipelines/paper/figure_4_residuals.py [--replicates N]``: the unemployed of Texas, the shift added to every
county. What was piled up at minus the true count while counts are small is spread again as they grow, and the bias
goes. `figure_4.py` has the bias against the shift, exactly.
"""

from __future__ import annotations

import numpy as np
from common import SCALE, counties, draw_residuals, family, options, print_table, public_total, save
from matplotlib.figure import Figure

import topdown as td

SHIFTS = (0, 10, 30, 100)

arguments = options(__doc__, 100_000)
frame = counties("Texas")
name = dict(zip(frame["county"], frame["county_name"], strict=True))
figure = Figure(figsize=(11, 5))
axes = figure.subplots(2, len(SHIFTS), sharex=True, sharey=True)
rows = []
for column, shift in enumerate(SHIFTS):
    counts = family(frame.assign(unemployed=frame["unemployed"] + shift), "unemployed")
    table = td.simulate(
        counts, public_total(), ["raw", "top-down"], arguments.replicates, arguments.seed, workers=arguments.workers
    )
    exact = td.theory.nonnegative_sum_projection(counts.values[1:, 0], 1 / SCALE)
    for row, node in enumerate(1 + np.argsort(counts.values[1:, 0])[:2]):
        axis = axes[row, column]
        draw_residuals(axis, table, node)
        axis.set(
            title=f"{name[counts.geography.geoid[node]]}: {counts.values[node, 0]}",
            xlabel=axis.get_xlabel() if row else None,
            ylabel=None if column else "share of replicates",
        )
        measured, error, variance, zeros = (
            table["top-down", statistic][node, 0] for statistic in ("bias", "bias_se", "variance", "zeros")
        )
        rows.append((shift, axis.get_title(), measured, error, float(exact.bias[node - 1]), zeros, variance))
axes[0, -1].legend()
print_table(("shift", "county", "bias", "standard error", "exact bias", "at 0", "variance"), sorted(rows))
figure.tight_layout()
save(figure, "figure_4_residuals", arguments.figures)
