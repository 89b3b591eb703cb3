"""Table 1: how often one record moves the pMSE of a greedily grown tree by more than the sensitivity bound.

``python pipelines/paper/pmse_table_1.py [--repeats N]``, which can be stopped and goes on where it was. One record of
the original data gets N(0, 25) added; the synthetic data is drawn from parameters of the prior. A tree of depth d is
the fully grown one cut off at d.
"""

from __future__ import annotations

import numpy as np
from common import print_table
from pmse_common import family, original, pmse_options, spread_of
from resumable import repeats_of
from sklearn.tree import DecisionTreeClassifier

from topdown.noise import SeededSource
from topdown.research.pmse.classifiers import CART, prune_tree
from topdown.research.pmse.trees import optimal_tree_sensitivity, paper_sensitivity

PRINTED = {0.01: ("0", ".3", ".6", ".7"), 0.001: ("0", ".5", "2.0", "2.5")}
"""The paper's percentages, by cp, for depths 1, 2, 5 and unlimited."""

DEPTHS = (1, 2, 5, 30)
CPS = (0.01, 0.001)

arguments = pmse_options(__doc__, 200)
labels = np.repeat([0, 1], arguments.records)


def values(matrix: np.ndarray) -> np.ndarray:
    """(depths x cps): the pMSE of the pruned trees."""
    rules = CART()
    grown = DecisionTreeClassifier(
        max_depth=30, min_samples_split=rules.min_split, min_samples_leaf=rules.min_leaf, random_state=0
    ).fit(matrix, labels)
    tree = grown.tree_
    end = grown.apply(matrix)
    rows = tree.n_node_samples.astype(float)
    synthetic = np.rint(tree.value[:, 0, 1] * rows)
    depth = np.zeros(tree.node_count, dtype=int)
    above = np.zeros(tree.node_count, dtype=int)
    for node in range(tree.node_count):
        for child in (tree.children_left[node], tree.children_right[node]):
            if child >= 0:
                depth[child], above[child] = depth[node] + 1, node
    found = np.empty((len(DEPTHS), len(CPS)))
    for i, deepest in enumerate(DEPTHS):
        left = np.where(depth >= deepest, -1, tree.children_left)
        cut = np.arange(tree.node_count)
        for node in range(1, tree.node_count):
            cut[node] = cut[above[node]] if depth[node] > deepest else node
        risk = np.minimum(synthetic, rows - synthetic)
        for j, cp in enumerate(CPS):
            leaf = prune_tree(left, tree.children_right, risk, cp * risk[0])[cut[end]]
            found[i, j] = ((synthetic[leaf] / rows[leaf] - 0.5) ** 2).mean()
    return found


def repeat(number: int) -> list[dict[str, object]]:
    """The change of one pair of neighbours, by depth and cp."""
    source = SeededSource((arguments.seed, "table 1", number))
    data = original(arguments, source)
    neighbour = data.copy()
    rng = np.random.default_rng(int.from_bytes(source.read(8), "little"))
    neighbour[rng.integers(len(data))] += rng.normal(0, spread_of(arguments, 25.0), 2)
    new = family(arguments).sample(family(arguments).prior(source), arguments.records, source)
    change = np.abs(values(np.vstack([data, new])) - values(np.vstack([neighbour, new])))
    return [
        {"depth": deepest, "cp": cp, "change": change[i, j]}
        for i, deepest in enumerate(DEPTHS)
        for j, cp in enumerate(CPS)
    ]


settings = {"records": arguments.records, "spread": arguments.spread, "seed": arguments.seed}
rows = repeats_of("pmse_table_1", arguments.repeats, settings, repeat)
change = rows["change"].to_numpy().reshape(-1, len(DEPTHS), len(CPS))
n = arguments.records
paper, exact = float(paper_sensitivity(n)), float(optimal_tree_sensitivity(n))
print(f"{arguments.repeats} pairs of neighbours, n = {n}; changes in units of 1/n")
print_table(
    ["depth", "cp", "beyond 1/n, %", "standard error", "printed", "beyond 1/(2(n+1)), %", "largest change"],
    [
        (
            "unlimited" if deepest == 30 else deepest,
            cp,
            100 * rate,
            100 * np.sqrt(rate * (1 - rate) / arguments.repeats),
            PRINTED[cp][i],
            100 * (change[:, i, j] > exact * (1 + 1e-9)).mean(),
            change[:, i, j].max() * n,
        )
        for j, cp in enumerate(CPS)
        for i, deepest in enumerate(DEPTHS)
        for rate in [(change[:, i, j] > paper).mean()]
    ],
)
