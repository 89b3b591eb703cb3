"""Table 2 and Figure 3: the pMSE of synthetic data by method and epsilon, beside the paper's printed means.

``python pipelines/paper/pmse_table_2.py [--repeats N] [--candidates K] [--steps S] [--spread deviation]``. pMSE is by a
tree with cp 0.001. The mechanism draws from candidates of the prior; with ``--steps`` the paper's random walk, started
at the true parameters, is there too.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from common import print_table, save
from matplotlib.figure import Figure
from pmse_common import EPSILONS, TRUTH, bounds, family, original, pmse_options

from topdown.noise import SeededSource, exact_fraction
from topdown.pmse.chains import metropolis
from topdown.pmse.classifiers import CART
from topdown.pmse.comparators import noisy_posterior_predictive, non_private_synthesis, smooth_histogram
from topdown.pmse.mechanism import ExpectedPMSE, PMSEMechanism
from topdown.pmse.quality import mean_pmse
from topdown.pmse.selection import draw_exponential
from topdown.pmse.trees import OptimalTree

PRINTED = {
    "non-private": [0.0066, 0.00663, 0.00661, 0.0066, 0.0066],
    "pMSE mechanism": [0.09281, 0.0361, 0.02107, 0.01459, 0.01161],
    "noisy posterior": [0.20509, 0.17876, 0.14372, 0.11177, 0.07919],
    "smooth histogram": [0.08206, 0.05398, 0.03278, 0.01892, 0.01129],
}

arguments = pmse_options(__doc__, 5)
source = SeededSource((arguments.seed, "table 2"))
law = family(arguments)
found: dict[tuple[str, object], list[float]] = defaultdict(list)
tree = CART(cp=0.001)
for _ in range(arguments.repeats):
    data = original(arguments, source)
    mechanism = PMSEMechanism(
        law, 1, ExpectedPMSE(OptimalTree(2, resolution=0.5), sets=1), candidates=arguments.candidates
    )
    candidates = mechanism.propose(len(data), source)
    exponents = mechanism.exponents(data, candidates)  # in proportion to epsilon
    for epsilon in EPSILONS:
        factor = exact_fraction(epsilon)
        chosen = candidates.parameters[draw_exponential([factor * x for x in exponents], source)]
        made = {
            "non-private": non_private_synthesis(data, source=source),
            "pMSE mechanism": law.sample(chosen, len(data), source),
            "noisy posterior": noisy_posterior_predictive(data, epsilon, bounds(1), source=source),
            "smooth histogram": smooth_histogram(data, float(factor), bounds(1), 20, source=source),
        }
        if arguments.steps:
            walk = metropolis(
                law,
                data,
                epsilon,
                source=source,
                quality=ExpectedPMSE(tree, sets=1, bound="paper"),
                steps=arguments.steps,
                starts=TRUTH,
                step=0.2,
            )
            made["random walk"] = law.sample(walk.draw(source), len(data), source)
            print(f"epsilon {epsilon}: accepted {walk.accepted:.2f}, R-hat up to {walk.rhat.max():.2f}")
        for method, synthetic in made.items():
            found[method, epsilon].append(mean_pmse(data, [synthetic], tree))

methods = list(dict.fromkeys(method for method, _ in found))
print(f"{arguments.repeats} repeats, n = {arguments.records}, {arguments.candidates} candidates, {arguments.spread}s")
print_table(
    ["method", *(f"epsilon {e}" for e in EPSILONS), "which"],
    [
        row
        for method in methods
        for row in (
            (method, *(float(np.mean(found[method, e])) for e in EPSILONS), "mean"),
            ("", *(float(np.std(found[method, e])) for e in EPSILONS), "deviation"),
            ("", *PRINTED.get(method, ["-"] * 5), "printed"),
        )
    ],
)
figure = Figure(figsize=(5.2, 3.4))
axes = figure.add_subplot()
for method in methods:
    line = axes.plot(
        [float(exact_fraction(e)) for e in EPSILONS], [np.mean(found[method, e]) for e in EPSILONS], "o-", label=method
    )
    if method in PRINTED:
        axes.plot([0.25, 0.5, 1, 2, 4], PRINTED[method], "x:", color=line[0].get_color())
axes.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="pMSE (dotted: printed in the paper)")
axes.set_xticks([float(exact_fraction(e)) for e in EPSILONS], [str(e) for e in EPSILONS])
axes.minorticks_off()
axes.legend(fontsize=7, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))  # above the data, which is everywhere
save(figure, "pmse_table_2" if arguments.spread == "variance" else "pmse_table_2_deviation")
