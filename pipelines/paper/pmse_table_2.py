"""Table 2 and Figure 3: the pMSE of synthetic data by method and epsilon, beside the paper's printed means.

``python pipelines/paper/pmse_table_2.py [--repeats N] [--candidates K] [--steps S --walks W] [--spread deviation]``.

pMSE is by a tree with cp 0.001, the mean over l synthetic sets (``--sets``), each for epsilon/l, within bounds of
``--bounds`` standard deviations. The mechanism draws from candidates of the prior; with ``--steps`` the random walks of
pmse_walks.py are there too, ``--walks`` times. It can be stopped and goes on where it was.
"""

from __future__ import annotations

import pandas as pd
from common import print_table, save
from matplotlib.figure import Figure
from pmse_common import EPSILONS, bounds, family, judge, original, pmse_options, settings_of
from pmse_walks import WALKS, walked
from resumable import repeats_of

from topdown.noise import SeededSource, exact_fraction
from topdown.research.pmse.comparators import noisy_posterior_predictive, non_private_synthesis, smooth_histogram
from topdown.research.pmse.pmse_mechanism import ExpectedPMSE, PMSEMechanism
from topdown.research.pmse.quality import mean_pmse
from topdown.research.pmse.selection import draw_exponential
from topdown.research.pmse.trees import OptimalTree

PRINTED = {
    "non-private": [0.0066, 0.00663, 0.00661, 0.0066, 0.0066],
    "pMSE mechanism": [0.09281, 0.0361, 0.02107, 0.01459, 0.01161],
    "noisy posterior": [0.20509, 0.17876, 0.14372, 0.11177, 0.07919],
    "smooth histogram": [0.08206, 0.05398, 0.03278, 0.01892, 0.01129],
}

PRINTED |= dict.fromkeys(WALKS.values(), PRINTED["pMSE mechanism"])

RHAT = "R-hat of the "
"""Before a walk's name: a row of the table that is no method; how far its chains are from each other."""

arguments = pmse_options(__doc__, 5)
law = family(arguments)
tree = judge(arguments)


def repeat(number: int) -> list[dict[str, object]]:
    """The pMSE of ``--sets`` synthetic sets by every method and epsilon, each set for its part of epsilon, and their
    mean slope."""
    source = SeededSource((arguments.seed, "table 2", number))
    data, sets = original(arguments, source), arguments.sets
    limits = bounds(arguments, arguments.bounds)
    mechanism = PMSEMechanism(
        law, 1, ExpectedPMSE(OptimalTree(2, resolution=0.5), sets=1), candidates=arguments.candidates
    )
    candidates = mechanism.propose(len(data), source)
    exponents = mechanism.exponents(data, candidates)  # in proportion to epsilon
    rows: list[dict[str, object]] = []
    for epsilon in EPSILONS:
        part = exact_fraction(epsilon) / sets
        made = {
            "non-private": lambda: non_private_synthesis(data, source=source),
            "pMSE mechanism": lambda part=part: law.sample(
                candidates.parameters[draw_exponential([part * x for x in exponents], source)], len(data), source
            ),
            "noisy posterior": lambda part=part: noisy_posterior_predictive(data, part, limits, source=source),
            "smooth histogram": lambda part=part: smooth_histogram(data, float(part), limits, 20, source=source),
        }
        for method, make in made.items():
            synthetic = [make() for _ in range(sets)]
            rows.append({"method": method, "epsilon": str(epsilon), "pmse": mean_pmse(data, synthetic, tree)})
    return rows


frame = repeats_of("pmse_table_2", arguments.repeats, settings_of(arguments), repeat)
walk = walked(arguments)
frame = pd.concat([frame, walk, walk.assign(method=RHAT + walk["method"], pmse=walk["rhat"])])
found = {
    (method, epsilon): part["pmse"].to_numpy()
    for method in dict.fromkeys(frame["method"])
    for epsilon in EPSILONS
    for part in [frame[(frame["method"] == method) & (frame["epsilon"] == str(epsilon))]]
}

methods = list(dict.fromkeys(method for method, _ in found))
print(f"{arguments.repeats} repeats, n = {arguments.records}, {arguments.candidates} candidates, {arguments.spread}s")
print_table(
    ["method", *(f"epsilon {e}" for e in EPSILONS), "which"],
    [
        row
        for method in methods
        for row in (
            (method, *(pd.Series(found[method, e], dtype=float).mean() for e in EPSILONS), "mean"),
            ("", *(pd.Series(found[method, e], dtype=float).std(ddof=0) for e in EPSILONS), "deviation"),
            ("", *PRINTED.get(method, ["-"] * 5), "printed"),
        )
    ],
)
figure = Figure(figsize=(5.2, 3.4))
axes = figure.add_subplot()
for method in (one for one in methods if not one.startswith(RHAT)):
    means = [pd.Series(found[method, e], dtype=float).mean() for e in EPSILONS]
    line = axes.plot([float(exact_fraction(e)) for e in EPSILONS], means, "o-", label=method)
    if method in PRINTED and method not in WALKS.values():
        axes.plot([0.25, 0.5, 1, 2, 4], PRINTED[method], "x:", color=line[0].get_color())
axes.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="pMSE (dotted: printed in the paper)")
axes.set_xticks([float(exact_fraction(e)) for e in EPSILONS], [str(e) for e in EPSILONS])
axes.minorticks_off()
axes.legend(fontsize=7, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))  # above the data, which is everywhere
save(figure, "pmse_table_2" if arguments.spread == "deviation" else "pmse_table_2_variance")
