"""Table 2 and Figure 3: the pMSE of synthetic data by method and epsilon, beside the printed means and variances.

``python pipelines/paper/pmse_table_2.py [--repeats N --measured 1] [--choices N] [--steps S --walks W --kinds near]``.

pMSE is by a tree with cp 0.001. Of the l synthetic sets (``--sets``) that the noisy posterior and the mechanism make,
each for epsilon/l, ``--measured`` are judged and their mean taken; so many are made without privacy too, once for all
epsilons; the smoothed histogram makes one, for all of epsilon, as in the paper. The mean is the same for any number of
sets, the variance is not. Bounds are of ``--bounds`` standard deviations. The mechanism draws from candidates of the
prior (``--choices`` times), or walks (pmse_walks.py). All of it can be stopped and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from common import print_table, save
from matplotlib.figure import Figure
from pmse_candidates import chosen
from pmse_common import EPSILONS, TABLE_2, bounds, judge, original, pmse_options, settings_of
from pmse_walks import WALKS, walked
from resumable import repeats_of

from topdown.noise import SeededSource, exact_fraction
from topdown.research.pmse.comparators import noisy_posterior_predictive, non_private_synthesis, smooth_histogram
from topdown.research.pmse.quality import mean_pmse

arguments = pmse_options(__doc__, 5)
tree = judge(arguments)


def repeat(number: int) -> list[dict[str, object]]:
    """The pMSE of synthetic sets by every comparator and epsilon."""
    source = SeededSource((arguments.seed, "table 2", number))
    data = original(arguments, source)
    limits = bounds(arguments, arguments.bounds)

    def row(method: str, epsilon: object, sets: int, make: Callable[[], np.ndarray]) -> dict[str, object]:
        pmse = [mean_pmse(data, [make()], tree) for _ in range(sets)]
        return {"method": method, "epsilon": str(epsilon), "pmse": np.mean(pmse)}

    sets, measured = arguments.sets, arguments.measured
    apart = row("non-private", "any", measured, lambda: non_private_synthesis(data, source=source))
    rows = [apart | {"epsilon": str(epsilon)} for epsilon in EPSILONS]
    for epsilon in EPSILONS:
        whole = exact_fraction(epsilon)
        rows += [
            row(
                "noisy posterior",
                epsilon,
                measured,
                lambda part=whole / sets: noisy_posterior_predictive(data, part, limits, source=source),
            ),
            row(
                "smooth histogram",
                epsilon,
                1,
                lambda whole=whole: smooth_histogram(data, float(whole), limits, 20, source=source),
            ),
        ]
    return rows


comparators = repeats_of(
    "pmse_table_2", arguments.repeats, settings_of(arguments, "bounds", "cp", "measured"), repeat, arguments.results
)
walks = walked(arguments)
frame = pd.concat(
    [
        comparators,
        chosen(arguments).assign(method="pMSE mechanism, candidates"),
        walks.assign(method="pMSE mechanism, " + walks["kind"].map(WALKS)),
    ]
)
print(
    f"{arguments.repeats} repeats, {arguments.choices} of the candidates, {arguments.walks} walks of {arguments.steps}"
)
print(f"n = {arguments.records}, {arguments.candidates} candidates, cp {arguments.cp}, {arguments.spread}s")
groups = {(method, e): part for (method, e), part in frame.groupby(["method", "epsilon"], sort=False)}
methods = list(dict.fromkeys(frame["method"]))


def over(method: str, statistic: Callable[[pd.DataFrame], float]) -> list[float]:
    """By epsilon; NaN where there is nothing."""
    return [statistic(groups[method, str(e)]) if (method, str(e)) in groups else np.nan for e in EPSILONS]


rows = []
for method in methods:
    printed = TABLE_2.get(method.split(",")[0])
    rows.append((method, *over(method, lambda part: part["pmse"].mean()), "mean"))
    rows.append(("", *(one[0] for one in printed or []), "printed"))
    rows.append(("", *over(method, lambda part: part["pmse"].var()), "variance"))
    if "single" in frame and frame[frame["method"] == method]["single"].notna().any():
        rows.append(("", *over(method, lambda part: part["single"].var()), "variance, one set"))
    rows.append(("", *(one[1] for one in printed or []), "printed"))
    if "rhat" in frame and frame[frame["method"] == method]["rhat"].notna().any():
        rows.append(("", *over(method, lambda part: part["rhat"].max()), "largest R-hat"))
print_table(["method", *(f"epsilon {e}" for e in EPSILONS), "which"], rows)

figure = Figure(figsize=(5.2, 3.4))
axes = figure.add_subplot()
at = [float(exact_fraction(e)) for e in EPSILONS]
drawn: dict[str, str] = {}
for method in methods:
    (line,) = axes.plot(at, over(method, lambda part: part["pmse"].mean()), "o-", ms=4, label=method)
    drawn.setdefault(method.split(",")[0], line.get_color())
for method, colour in drawn.items():
    axes.plot(at, [one[0] for one in TABLE_2[method]], "x:", color=colour)
axes.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="mean pMSE (dotted: printed in the paper)")
axes.set_xticks(at, [str(e) for e in EPSILONS])
axes.minorticks_off()
axes.legend(fontsize=7, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))  # above the data, which is everywhere
save(figure, "pmse_table_2" if arguments.spread == "deviation" else "pmse_table_2_variance", arguments.figures)
