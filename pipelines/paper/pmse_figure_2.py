"""Figures 1 and 2: errors of the regression of X2 on X1 from synthetic data, by method, bounds and epsilon.

``python pipelines/paper/pmse_figure_2.py [--repeats N] [--candidates K] [--steps S --walks W]``. The error is that of
the coefficients, the mean over l synthetic sets (``--sets``), each for epsilon/l, against those from the original data;
methods that release coefficients and no data have all of epsilon for them. Bounds are of 2, 4, 5 and 10 standard
deviations; the pMSE mechanism and its random walk take none. It can be stopped and goes on where it was.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from common import print_table, save
from matplotlib.figure import Figure
from pmse_common import EPSILONS, bounds, family, original, pmse_options, settings_of
from pmse_walks import walked
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
from topdown.research.pmse.pmse_mechanism import ExpectedPMSE, PMSEMechanism
from topdown.research.pmse.selection import draw_exponential
from topdown.research.pmse.trees import OptimalTree

FACTORS = (2, 4, 5, 10)
"""Bounds in standard deviations, as in the paper."""

COEFFICIENTS = ("intercept", "slope")

arguments = pmse_options(__doc__, 10)
law = family(arguments)


def repeat(number: int) -> list[dict[str, object]]:
    """The absolute error of both coefficients by method, bounds and epsilon, on one confidential data set."""
    source = SeededSource((arguments.seed, "figure 2", number))
    data, sets = original(arguments, source), arguments.sets
    exact = regression_coefficients(data)
    mechanism = PMSEMechanism(
        law, 1, ExpectedPMSE(OptimalTree(2, resolution=0.5), sets=1), candidates=arguments.candidates
    )
    candidates = mechanism.propose(len(data), source)
    exponents = mechanism.exponents(data, candidates)  # in proportion to epsilon
    rows: list[dict[str, object]] = []
    for epsilon in EPSILONS:
        part = exact_fraction(epsilon) / sets

        def candidate(part=part):
            return candidates.parameters[draw_exponential([part * x for x in exponents], source)]

        made = {
            ("non-private", 0): lambda: non_private_synthesis(data, source=source),
            ("pMSE mechanism", 0): lambda: law.sample(candidate(), len(data), source),
        }
        found = {}
        for times in FACTORS:
            limits = bounds(arguments, times)
            made["noisy posterior", times] = lambda limits=limits, part=part: noisy_posterior_predictive(
                data, part, limits, source=source
            )
            made["smooth histogram", times] = lambda limits=limits, part=part: smooth_histogram(
                data, float(part), limits, 20, source=source
            )
            columns = (data[:, 0], data[:, 1], epsilon, limits)
            found["functional", times] = functional_regression(*columns, source=source)
            for norm in NORMS:
                found[f"K-norm, {norm}", times] = k_norm_regression(*columns, norm=norm, source=source)
        for key, make in made.items():
            found[key] = np.mean([regression_coefficients(make()) for _ in range(sets)], axis=0)
        for (method, times), value in found.items():
            error = dict(zip(COEFFICIENTS, np.abs(value - exact).tolist(), strict=True))
            rows.append({"method": method, "deviations": times, "epsilon": str(epsilon), **error})
    return rows


frame = repeats_of("pmse_figure_2", arguments.repeats, settings_of(arguments), repeat)
frame = pd.concat([frame, walked(arguments).assign(deviations=0)])
print(f"{arguments.repeats} repeats, n = {arguments.records}, {arguments.candidates} candidates; mean absolute errors")
means = frame.groupby(["method", "deviations", "epsilon"])[list(COEFFICIENTS)].mean()
pairs = sorted({(method, times) for method, times, _ in means.index})
figure = Figure(figsize=(7.6, 3.8))
for place, name in enumerate(COEFFICIENTS):
    table = means[name]
    print_table(
        [name, "deviations", *(f"epsilon {e}" for e in EPSILONS)],
        [
            (method, times or "none", *(float(table.get((method, times, str(e)), np.nan)) for e in EPSILONS))
            for method, times in pairs
        ],
    )
    axes = figure.add_subplot(1, 2, place + 1)
    for method, times in pairs:
        if times in (0, 4):
            values = [table.get((method, times, str(e)), np.nan) for e in EPSILONS]
            axes.plot([float(exact_fraction(e)) for e in EPSILONS], values, "o-", ms=3, label=method)
    axes.set(xscale="log", yscale="log", xlabel="epsilon", title=f"{name}, bounds of 4 deviations")
    axes.set_xticks([float(exact_fraction(e)) for e in EPSILONS], [str(e) for e in EPSILONS])
    axes.minorticks_off()
figure.axes[0].set_ylabel("mean absolute error")
figure.legend(*axes.get_legend_handles_labels(), fontsize=7, ncols=4, loc="upper center")  # no room among the lines
figure.subplots_adjust(top=0.78)
save(figure, "pmse_figure_2")
