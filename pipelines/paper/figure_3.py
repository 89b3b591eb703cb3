"""Figure 3: the errors that (P) makes of a draw and of its mirror image about the truth add up to 0 (Lemma 1)."""

from __future__ import annotations

import numpy as np
from common import counties, options, print_table, save
from matplotlib.figure import Figure

import topdown as td

arguments = options(__doc__, 20)
frame = counties()
geography = td.Geography.from_table(frame, levels=["nation", "state", "county"])
counts = td.Counts.from_table(frame, geography, geoid="county", cells=["employed", "unemployed"])
plan = td.Plan("geometric", epsilon="0.3", shares=dict.fromkeys(geography.levels, "1/3"))
variance = np.array([plan.variance(level) for level in geography.levels])
variance = np.tile(variance.repeat(np.diff(geography.level_offsets))[:, None], 2)

rows, shown = [], {}
for method, nonnegative in (("top-down", False), ("gls", False), ("top-down", True)):
    largest, pairs = 0.0, []
    for replicate in range(arguments.replicates):
        drawn = td.measure(counts, plan, source=td.SeededSource((arguments.seed, replicate)))
        values = np.asarray(drawn.values)
        errors = [
            td.project(td.Measurements.from_arrays(geography, y, variance), method, nonnegative=nonnegative).values
            - counts.values
            for y in (values, 2 * counts.values - values)
        ]
        largest = max(largest, float(np.abs(errors[0] + errors[1]).max()))
        pairs.append(np.stack(errors)[:, geography.level_slice("county"), 1].reshape(2, -1))
    label = f"{method}, {'x >= 0' if nonnegative else 'sums only'}"
    shown[label] = np.concatenate(pairs, axis=1)
    rows.append((label, arguments.replicates, largest, f"{np.abs(shown[label]).max():.3f}"))

figure = Figure(figsize=(8, 2.8))
for axis, label in zip(figure.subplots(1, 2, sharey=True), ("top-down, sums only", "top-down, x >= 0"), strict=True):
    axis.plot(*shown[label][:, :20_000], ".", markersize=1, rasterized=True)
    axis.set(title=label, xlabel="error of the draw", xlim=(-120, 120), ylim=(-120, 120))
figure.axes[0].set_ylabel("error of its mirror image")
print_table(("projection", "draws", "largest |error + mirror's error|", "largest |error|"), rows)
save(figure, "figure_3", arguments.figures)
