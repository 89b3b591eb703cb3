"""Figures 2 and 4: errors of the regression of X2 on X1 from synthetic data, by method, depth or bounds, and epsilon.

``python pipelines/paper/pmse_figure_2.py [--repeats N] [--choices N] [--steps S --walks W --depth 1 2 5 30]``. The
error is that of the coefficients against those from the original data. The noisy posterior and the pMSE mechanism make
l synthetic sets (``--sets``), each for epsilon/l, and the mean of their coefficients is taken; the smoothed histogram
makes one for all of epsilon; methods that release coefficients and no data have all of epsilon for them. Bounds are of
2, 4, 5 and 10 standard deviations; the pMSE mechanism takes none, and its trees have cp 0.01 and four depths. Figure 2
has the means, of the better depths and bounds, Figure 4 boxplots of all. It can be stopped and goes on where it was.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from common import print_table, save
from matplotlib.figure import Figure
from pmse_candidates import chosen
from pmse_common import COEFFICIENTS, DEPTHS, EPSILONS, bounds, depth_name, original, pmse_options, settings_of
from pmse_walks import WALKS, walked
from resumable import repeats_of

from topdown.noise import SeededSource, exact_fraction
from topdown.research.pmse.comparators import (
    functional_regression,
    noisy_posterior_predictive,
    non_private_synthesis,
    regression_coefficients,
    smooth_histogram,
)
from topdown.research.pmse.k_norm import NORMS, k_norm_regression

FACTORS = (2, 4, 5, 10)
"""Bounds in standard deviations, as in the paper."""

OURS = EPSILONS[:3]
BETTER = ("", "2", "depth 5", "depth unlimited")
"""What Figure 2 shows of every method: the paper leaves out the worse bounds and depths."""

arguments = pmse_options(__doc__, 10, cp=0.01, depth=DEPTHS)


def repeat(number: int) -> list[dict[str, object]]:
    """The absolute error of both coefficients by method, bounds and epsilon, on one confidential data set."""
    source = SeededSource((arguments.seed, "figure 2", number))
    data, sets = original(arguments, source), arguments.sets
    exact = regression_coefficients(data)
    rows: list[dict[str, object]] = []
    for epsilon in OURS:
        part = exact_fraction(epsilon) / sets

        def mean_of(make, count: int = sets) -> np.ndarray:
            found: np.ndarray = np.mean([regression_coefficients(make()) for _ in range(count)], axis=0)
            return found

        found = {("non-private", ""): mean_of(lambda: non_private_synthesis(data, source=source))}
        for times in FACTORS:
            limits = bounds(arguments, times)
            found["noisy posterior", str(times)] = mean_of(
                lambda limits=limits, part=part: noisy_posterior_predictive(data, part, limits, source=source)
            )
            found["smooth histogram", str(times)] = mean_of(
                lambda limits=limits, epsilon=epsilon: smooth_histogram(
                    data, float(exact_fraction(epsilon)), limits, 20, source=source
                ),
                1,
            )
            columns = (data[:, 0], data[:, 1], epsilon, limits)
            found["functional", str(times)] = functional_regression(*columns, source=source)
            for norm in NORMS:
                found[f"K-norm, {norm}", str(times)] = k_norm_regression(*columns, norm=norm, source=source)
        for (method, variant), value in found.items():
            error = dict(zip(COEFFICIENTS, np.abs(value - exact).tolist(), strict=True))
            rows.append({"method": method, "variant": variant, "epsilon": str(epsilon), **error})
    return rows


comparators = repeats_of("pmse_figure_2", arguments.repeats, settings_of(arguments), repeat, arguments.results)
candidates = chosen(arguments)
walks = walked(arguments)
frame = pd.concat(
    [
        comparators,
        candidates.assign(method="pMSE, candidates", variant="depth 2"),
        walks.assign(
            method="pMSE, " + walks["kind"].map(WALKS), variant=["depth " + depth_name(d) for d in walks["depth"]]
        ),
    ]
)
frame = frame[frame["epsilon"].isin([str(e) for e in OURS])]
print(
    f"{arguments.repeats} repeats, {arguments.choices} of the candidates, {arguments.walks} walks of {arguments.steps}"
)
parts = dict(list(frame.groupby(["method", "variant", "epsilon"], sort=False)))
pairs = list(dict.fromkeys((method, variant) for method, variant, _ in parts))
methods = list(dict.fromkeys(method for method, _ in pairs))
pairs.sort(key=lambda pair: methods.index(pair[0]))  # by method, within it by bounds or depth as they come
for statistic in ("mean", "median"):
    for name in COEFFICIENTS:
        print_table(
            [f"{name}, {statistic} error", "bounds or depth", *(f"epsilon {e}" for e in OURS)],
            [
                (method, variant, *(float(parts[method, variant, str(e)][name].agg(statistic)) for e in OURS))
                for method, variant in pairs
            ],
        )
if len(walks):
    print_table(
        ["walk", "depth", "epsilon", "walks", "largest R-hat", "smallest effective sample"],
        [
            (WALKS[kind], depth_name(depth), e, part["repeat"].nunique(), part["rhat"].max(), part["effective"].min())
            for (kind, depth, e), part in walks.groupby(["kind", "depth", "epsilon"], sort=False)
        ],
    )
if len(candidates):
    print_table(
        ["epsilon", "candidates in 10 sets", "error of one set's slope", "of their mean's", "of the best candidate's"],
        [
            (e, *(part[name].mean() for name in ("candidates", "one slope", "slope", "best slope")))
            for e, part in candidates.groupby("epsilon", sort=False)
        ],
    )

figure = Figure(figsize=(7.8, 4.2))
for place, name in enumerate(COEFFICIENTS):
    axes = figure.add_subplot(1, 2, place + 1)
    for method, variant in pairs:
        if variant in BETTER or method.startswith("pMSE, candidates"):
            errors = [parts[method, variant, str(e)][name].mean() for e in OURS]
            style = "o-" if method.startswith("pMSE") else "o--"
            axes.plot(
                [float(exact_fraction(e)) for e in OURS], errors, style, ms=3, label=f"{method} {variant}".strip()
            )
    axes.set(xscale="log", yscale="log", xlabel="epsilon", title=name)
    axes.set_xticks([float(exact_fraction(e)) for e in OURS], [str(e) for e in OURS])
    axes.minorticks_off()
figure.axes[0].set_ylabel("mean absolute error")
figure.legend(*axes.get_legend_handles_labels(), fontsize=7, ncols=3, loc="upper center")  # no room among the lines
figure.subplots_adjust(top=0.74)
save(figure, "pmse_figure_2", arguments.figures)

figure = Figure(figsize=(11, 7))
grid = figure.subplots(len(COEFFICIENTS), len(OURS), sharey="row", sharex=True)
colours = {method: f"C{k}" for k, method in enumerate(methods)}
for row, name in enumerate(COEFFICIENTS):
    for column, epsilon in enumerate(OURS):
        axes = grid[row][column]
        boxes = axes.boxplot(
            [parts[method, variant, str(epsilon)][name] for method, variant in pairs],
            widths=0.7,
            patch_artist=True,
            flierprops={"marker": ".", "markersize": 2},
            medianprops={"color": "black"},
        )
        for box, (method, _) in zip(boxes["boxes"], pairs, strict=True):
            box.set(facecolor=colours[method], alpha=0.6, lw=0.6)
        axes.set_yscale("log")
        axes.set_xticks(range(1, len(pairs) + 1), [variant.removeprefix("depth ") for _, variant in pairs], fontsize=6)
        axes.tick_params(axis="x", rotation=90)
        if row == 0:
            axes.set_title(f"epsilon {epsilon}")
    grid[row][0].set_ylabel(f"absolute error of the {name}")
for method, colour in colours.items():
    grid[0][0].plot([], [], "s", color=colour, alpha=0.6, label=method)
figure.legend(*grid[0][0].get_legend_handles_labels(), fontsize=8, ncols=4, loc="upper center")
figure.supxlabel("depth of the tree, or bounds in standard deviations", fontsize=9, y=0.02)
figure.subplots_adjust(top=0.88, bottom=0.15, wspace=0.05, hspace=0.08)
save(figure, "pmse_figure_4", arguments.figures)
