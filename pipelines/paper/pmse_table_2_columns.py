"""The two columns of Table 2 that do not come out as printed: with which settings would they?

``python pipelines/paper/pmse_table_2_columns.py [--repeats N]``, which can be stopped and goes on where it was. Without
privacy: the mean and the variance of the pMSE by the tree's cp and by the records that a leaf must keep. The histogram:
by the number of its bins and by its noise: the smoothed one's weight of the uniform law as the paper gives it,
K/(K + n (e^(epsilon/n) - 1)), the weight K/(K + n epsilon), and Laplace noise on the counts of the bins, cut off at 0,
which Wasserman and Zhou call the perturbed histogram. Printed are the settings that come nearest to the paper's column.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from common import print_table
from pmse_common import EPSILONS, TABLE_2, bounds, judge, original, pmse_options, settings_of
from resumable import repeats_of

from topdown.noise import Laplace, SeededSource, exact_fraction
from topdown.research.pmse.cart_kernel import pruned_pmse, sorted_order
from topdown.research.pmse.comparators import FloatArray, non_private_synthesis, smooth_histogram
from topdown.research.pmse.generators import numpy_generator
from topdown.research.pmse.quality import mean_pmse

CPS = (0.01, 0.005, 0.002, 0.0015, 0.0013, 0.0012, 0.001, 0.0005)
LEAVES = (7, 20, 30, 40, 50, 70, 100)
BINS = (20, 32, 45, 64)
SMOOTHED, HEAVIER, PERTURBED = "weight as printed", "weight K/(K + n epsilon)", "Laplace noise on the counts"

arguments = pmse_options(__doc__, 20)
n = arguments.records
labels = np.repeat([0, 1], n)
limits = bounds(arguments, arguments.bounds)


def by_tree(number: int) -> list[dict[str, object]]:
    """The pMSE of one set made without privacy, by cp and smallest leaf; a node of three leaves' size is split."""
    source = SeededSource((arguments.seed, "table 2, trees", number))
    data = original(arguments, source)
    matrix = np.vstack([data, non_private_synthesis(data, source=source)])
    values = np.ascontiguousarray(matrix.T, dtype=np.float32)
    order, depths, prices = sorted_order(values), np.array([30]), n * np.array(CPS)
    return [
        {"leaf": leaf, "cp": cp, "pmse": found}
        for leaf in LEAVES
        for cp, found in zip(
            CPS, pruned_pmse(values, order.copy(), labels, depths, prices, 3 * leaf - 1, leaf)[0], strict=True
        )
    ]


def perturbed_histogram(data: FloatArray, epsilon: float, bins: int, source: SeededSource) -> FloatArray:
    """As many records from the histogram whose counts got Laplace noise of 2/epsilon, one record being substituted."""
    rng, lows, highs = numpy_generator(source), *np.array(limits).T
    inside = np.clip(data, lows, highs)
    counts = np.histogram2d(*inside.T, bins=bins, range=limits)[0].ravel()
    weights = np.maximum(counts + np.asarray(Laplace(2 / epsilon).sample(bins**2, source)), 0)
    cells = rng.choice(bins**2, len(data), p=weights / weights.sum())
    corners = np.column_stack(np.unravel_index(cells, (bins, bins)))
    drawn: FloatArray = lows + (corners + rng.random((len(data), 2))) / bins * (highs - lows)
    return drawn


def by_histogram(number: int) -> list[dict[str, object]]:
    """The pMSE of one set by kind of histogram, bins a column and epsilon."""
    source = SeededSource((arguments.seed, "table 2, histograms", number))
    data = original(arguments, source)
    rows: list[dict[str, object]] = []
    for bins in BINS:
        for epsilon in EPSILONS:
            e = float(exact_fraction(epsilon))
            made = {
                SMOOTHED: smooth_histogram(data, e, limits, bins, source=source),
                # e^(x/n) - 1 = epsilon for x = n ln(1 + epsilon)
                HEAVIER: smooth_histogram(data, n * math.log1p(e), limits, bins, source=source),
                PERTURBED: perturbed_histogram(data, e, bins, source),
            }
            for kind, new in made.items():
                pmse = mean_pmse(data, [new], judge(arguments))
                rows.append({"kind": kind, "bins": bins, "epsilon": str(epsilon), "pmse": pmse})
    return rows


trees = repeats_of("pmse_columns_trees", arguments.repeats, settings_of(arguments), by_tree, arguments.results)
mean, variance = (float(np.mean([one[k] for one in TABLE_2["non-private"]])) for k in (0, 1))
table = trees.groupby(["leaf", "cp"])["pmse"].agg(["mean", "var"])
table["apart"] = np.abs(np.log(table["mean"] / mean)) + np.abs(np.log(table["var"] / variance))
print(f"{arguments.repeats} sets without privacy; printed: mean {mean:.4g}, variance {variance:.3g}")
nearest = table.sort_values("apart").index[:4]
shown = [(leaf, cp) for leaf, cp in table.index if leaf == 7 or (leaf, cp) in nearest]
print_table(
    ["smallest leaf", "cp", "mean", "variance", ""],
    [
        (leaf, cp, table.loc[(leaf, cp), "mean"], table.loc[(leaf, cp), "var"], "near" if (leaf, cp) in nearest else "")
        for leaf, cp in shown
    ],
)
histograms = repeats_of(
    "pmse_columns_histograms",
    arguments.repeats,
    settings_of(arguments, "bounds", "cp"),
    by_histogram,
    arguments.results,
)
means = histograms.pivot_table("pmse", ["kind", "bins"], "epsilon", sort=False)
printed = pd.Series([one[0] for one in TABLE_2["smooth histogram"]], index=[str(e) for e in EPSILONS])
means["apart"] = np.sqrt((np.log(means[printed.index] / printed) ** 2).mean(axis=1))
print_table(
    ["histogram", "bins a column", *(f"epsilon {e}" for e in EPSILONS), "root mean square of the logs apart"],
    [
        *((kind, bins, *row.to_list()) for (kind, bins), row in means.iterrows()),
        ("printed", "", *printed.to_list(), ""),
    ],
)
