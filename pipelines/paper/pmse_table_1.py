"""Table 1 and Figure 1: how often one record moves the pMSE of a greedy tree by more than the sensitivity bound.

``python pipelines/paper/pmse_table_1.py [--repeats N] [--leaf K]``, which can be stopped and goes on where it was. One
record of the original data gets N(0, 25) added; the synthetic data is drawn from parameters of the prior. A tree of
depth d is the fully grown one cut off at d; its leaves have 7 records at least and what is split 20, as rpart's, or K
and twice K. Pairs of neighbours are made and counted in batches of up to 1,000, the same ones for every K; of the first
10,000 the changes themselves are kept, and drawn as Figure 1.
"""

from __future__ import annotations

import numpy as np
from common import print_table, save
from matplotlib.figure import Figure
from pmse_common import family, original, pmse_options, spread_of
from resumable import repeats_of

from topdown.noise import SeededSource
from topdown.research.pmse.cart_kernel import pruned_pmse, sorted_order
from topdown.research.pmse.classifiers import CART
from topdown.research.pmse.generators import numpy_generator
from topdown.research.pmse.trees import optimal_tree_sensitivity, paper_sensitivity

PRINTED = {0.01: ("0", ".3", ".6", ".7"), 0.001: ("0", ".5", "2.0", "2.5")}
"""The paper's percentages, by cp, for depths 1, 2, 5 and unlimited."""

DEPTHS = (1, 2, 5, 30)
NAMES = ("1", "2", "5", "unlimited")
CPS = (0.01, 0.001)
DRAWN = 10_000
"""Pairs of neighbours in Figure 1, as in the paper."""

arguments = pmse_options(__doc__, 1000)
n = arguments.records
batch = min(1000, arguments.repeats)
labels = np.repeat([0, 1], n)
rules = CART() if arguments.leaf is None else CART(min_leaf=arguments.leaf, min_split=2 * arguments.leaf)


def values(matrix: np.ndarray, order: np.ndarray) -> np.ndarray:
    """(depths x cps): the pMSE of the pruned trees; ``matrix`` (columns x records)."""
    prices = np.array(CPS) * n
    found: np.ndarray = pruned_pmse(
        matrix, order.copy(), labels, np.array(DEPTHS), prices, rules.min_split, rules.min_leaf
    )
    return found


def moved(matrix: np.ndarray, order: np.ndarray, record: int) -> np.ndarray:
    """The order after one record has changed: it is taken out of every row, and put in where it belongs."""
    rows = []
    for value, sequence in zip(matrix, order, strict=True):
        rest = sequence[sequence != record]
        rows.append(np.insert(rest, np.searchsorted(value[rest], value[record]), record))
    return np.stack(rows)


def change(source: SeededSource, rng: np.random.Generator) -> np.ndarray:
    """(depths x cps): the pMSE of one data set less that of its neighbour, with the same synthetic data."""
    law = family(arguments)
    new = law.sample(law.prior(source), n, source)
    matrix = np.ascontiguousarray(np.vstack([original(arguments, source), new]).T, dtype=np.float32)
    order = sorted_order(matrix)
    before = values(matrix, order)
    record = int(rng.integers(n))
    matrix[:, record] += rng.normal(0, spread_of(arguments, 25.0), 2).astype(np.float32)
    return before - values(matrix, moved(matrix, order, record))


def repeat(number: int) -> list[dict[str, object]]:
    """A batch of pairs of neighbours: by depth and cp, how many changes are beyond either bound, and the largest."""
    source = SeededSource((arguments.seed, "table 1", number))
    rng = numpy_generator(source)
    changes = np.array([change(source, rng) for _ in range(batch)])
    sizes = np.abs(changes)
    return [
        {
            "depth": deepest,
            "cp": cp,
            "pairs": batch,
            "beyond_paper": int((sizes[:, i, j] > float(paper_sensitivity(n))).sum()),
            "beyond_exact": int((sizes[:, i, j] > float(optimal_tree_sensitivity(n)) * (1 + 1e-9)).sum()),
            "largest": sizes[:, i, j].max(),
            "changes": changes[:, i, j].astype(np.float32) if j == 0 and number * batch < DRAWN else None,
        }
        for i, deepest in enumerate(DEPTHS)
        for j, cp in enumerate(CPS)
    ]


NAME = "pmse_table_1" if arguments.leaf is None else f"pmse_table_1_leaf_{arguments.leaf}"
settings = {"records": n, "spread": arguments.spread, "seed": arguments.seed, "batch": batch}
rows = repeats_of(NAME, -(-arguments.repeats // batch), settings, repeat, arguments.results)
found = rows.groupby(["depth", "cp"]).agg(
    {"pairs": "sum", "beyond_paper": "sum", "beyond_exact": "sum", "largest": "max"}
)
print(f"{found['pairs'].min():,} pairs of neighbours, n = {n}; changes in units of 1/n")
print_table(
    ["depth", "cp", "beyond 1/n, %", "standard error", "printed", "beyond 1/(2(n+1)), %", "largest change"],
    [
        (
            NAMES[i],
            cp,
            100 * rate,
            100 * np.sqrt(rate * (1 - rate) / one["pairs"]),
            PRINTED[cp][i],
            100 * one["beyond_exact"] / one["pairs"],
            one["largest"] * n,
        )
        for cp in CPS
        for i, deepest in enumerate(DEPTHS)
        for one in [found.loc[(deepest, cp)]]
        for rate in [one["beyond_paper"] / one["pairs"]]
    ],
)

figure = Figure(figsize=(6.4, 3.6))
axes = figure.add_subplot()
for place, deepest in enumerate(DEPTHS):
    kept = rows[(rows["depth"] == deepest) & (rows["cp"] == CPS[0])]["changes"].dropna()
    drawn = np.concatenate(kept.to_list())[:DRAWN] * n
    across = place + np.linspace(-0.38, 0.38, len(drawn))
    beyond = np.abs(drawn) > 1
    axes.plot(across[~beyond], drawn[~beyond], ".", ms=1.5, color="0.72")
    axes.plot(across[beyond], drawn[beyond], ".", ms=3, color="black")
for bound in (-1, 1):
    axes.axhline(bound, lw=0.8, color="C3")
axes.set_yscale("symlog", linthresh=1, linscale=1.5)
axes.set_xticks(range(len(DEPTHS)), [f"depth {name}" for name in NAMES])
axes.set(ylabel="change of the pMSE, in units of 1/n", title=f"{len(drawn):,} changes by depth, cp 0.01")
if arguments.leaf is None:
    save(figure, "pmse_figure_1", arguments.figures)
