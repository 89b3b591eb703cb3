"""Figure 4 as in the paper: the laws of the residuals of (P+) as all counts are shifted up.

``python pipelines/paper/figure_4_residuals.py [--replicates N]``: the population of New Mexico's 33 counties, shifted
so that the smallest count is s. The smallest county's residuals pile up at -s while s is small, and have the law of the
projection on the sums alone, which is drawn beside them, from a few scales on. `figure_4.py` has the bias itself,
exactly.
"""

from __future__ import annotations

import numpy as np
from common import SCALE, family, options, population, print_table, save
from matplotlib.figure import Figure

import topdown as td

SHIFTS = (0, 10, 30, 100)

arguments = options(__doc__, 40_000)
frame = population("New Mexico")
lowest = int(frame["count"].min())
noise = td.noise.DiscreteLaplace(SCALE).sample((len(frame), arguments.replicates), td.SeededSource(arguments.seed))
figure = Figure(figsize=(9, 2.5))
axes = figure.subplots(1, len(SHIFTS), sharey=True)
rows = []
for axis, shift in zip(axes, SHIFTS, strict=True):
    values = (frame["count"] - lowest + shift).to_numpy(np.float64)
    counts = family(frame.assign(count=values.astype(int)), "count")
    true = counts.values[1:, 0].astype(np.float64)
    drawn = td.project_linear(true[:, None] + noise, np.ones((1, len(true))), [true.sum()], nonnegative=True)
    least = int(np.argmin(true))
    residual = drawn.values[least] - true[least]
    exact = td.theory.nonnegative_sum_projection(true, 1 / SCALE)
    law = td.theory.projected_laplace(len(true), SCALE)
    at = np.linspace(-60, 60, 601)
    axis.hist(residual, bins=np.arange(-60.5, 61.5, 3), density=True, color="tab:orange", alpha=0.6)
    axis.plot(at, law.pdf(at), color="tab:blue")
    axis.set(title=f"smallest count {shift}", xlabel="residual, persons", ylim=(0, 0.06))
    rows.append(
        (
            shift,
            float(residual.mean()),
            float(residual.std() / np.sqrt(arguments.replicates)),
            float(exact.bias[least]),
            float((drawn.values[least] == 0).mean()),
            float(residual.var()),
        )
    )
axes[0].set_ylabel("density")
print_table(("smallest", "mean residual", "standard error", "exact bias", "at 0", "variance"), rows)
figure.tight_layout()
save(figure, "figure_4_residuals")
