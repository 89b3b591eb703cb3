"""Random families and trees of histograms, half of them nasty."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import topdown as td
from topdown.geography.tree import Tree
from topdown.measurements.measurements import Answers
from topdown.workload import Query, Schema

FloatArray = npt.NDArray[np.float64]


class RandomFamily(NamedTuple):
    """What `family_kernel.solve_family` takes, without rows."""

    table: FloatArray
    pattern: npt.NDArray[np.int32]
    g: FloatArray
    total: FloatArray
    allowed: npt.NDArray[np.bool_]


def random_family(rng: np.random.Generator, children: int = 12, cells: int = 30) -> RandomFamily | None:
    """A family of noisy marginals of a schema of up to 3 attributes; None where the parent is empty.

    Weights over up to 8 orders of magnitude, alike or one for every child; some cells closed to some children, few
    records or many, a parent that is not what its children have.
    """
    shape = [int(rng.integers(2, 5)) for _ in range(rng.integers(1, 4))]
    size = int(rng.integers(1, min(int(np.prod(shape)), cells) + 1))
    n = int(rng.integers(1, children + 1))
    place = np.array(np.unravel_index(np.sort(rng.choice(int(np.prod(shape)), size, replace=False)), shape)).T
    marginals = range(2 ** len(shape))
    pattern = np.zeros((size, size), np.int32)
    for k in range(len(shape)):
        pattern += (place[:, None, k] == place[None, :, k]).astype(np.int32) << k
    span = rng.choice([0, 2, 8])
    weight = 10.0 ** rng.uniform(-span / 2, span / 2, (1 if rng.random() < 0.5 else n, len(marginals)))
    weight = np.array(np.broadcast_to(weight, (n, len(marginals))))
    measured = rng.random(len(marginals)) < 0.6
    measured[-1] = True
    weight[:, ~measured] = 0
    table = np.stack([sum(weight[:, q] for q in marginals if q & p == q) for p in marginals], axis=1)
    allowed = rng.random((n, size)) > rng.choice([0, 0.2])
    for k in np.flatnonzero(~allowed.any(axis=0)):
        allowed[rng.integers(n), k] = True
    truth = rng.poisson(rng.choice([0.1, 1, 10, 1000]), (n, size)) * allowed
    g = np.zeros((n, size))
    for q in np.flatnonzero(measured):
        key = np.zeros(size, int)
        for k in range(len(shape)):
            if q >> k & 1:
                key = key * shape[k] + place[:, k]
        _, answer = np.unique(key, return_inverse=True)
        for c in range(n):
            noise = rng.normal(size=answer.max() + 1) / np.sqrt(weight[c, q])
            g[c] += weight[c, q] * (np.bincount(answer, truth[c]) + noise)[answer]
    total = truth.sum(axis=0) + float(rng.choice([0, 1])) * rng.integers(0, 3, size)
    has = total > 0
    if not has.any():
        return None
    return RandomFamily(
        table, np.ascontiguousarray(pattern[np.ix_(has, has)]), g[:, has].copy(), total[has], allowed[:, has].copy()
    )


SCHEMA = Schema.from_mapping(
    {"a": list("pqrs"), "b": ["0", "1"], "c": list("xyz")}, {"a": {"g": {"G1": ["p"], "G2": ["q", "r", "s"]}}}
)
QUERIES = ("total", "g", "a", "g * b", "b * c", "detailed", "a * c")


class RandomTree(NamedTuple):
    """A tree with what was measured at its levels, and the truth (nodes x cells)."""

    tree: Tree
    measured: list[dict[Query, Answers]]
    truth: FloatArray

    def measurements(self) -> td.Measurements:
        """As the product takes them."""
        tree = self.tree
        levels = [f"level {k}" for k in range(tree.n_levels)]
        child, parent = np.arange(1, tree.n_nodes), tree.parent[1:]
        geography = td.Geography.from_edges([f"n{k:03d}" for k in child], [f"n{k:03d}" for k in parent], levels=levels)
        answers = {
            (levels[index], query.name): (one.values, one.variance)
            for index, level in enumerate(self.measured)
            for query, one in level.items()
        }
        return td.Measurements.from_answers(geography, SCHEMA, answers)


def random_tree(rng: np.random.Generator, *, exact: bool, orders: float = 5.0, levels: int = 3) -> RandomTree:
    """A tree of so many ``levels``, any queries at each, variances over ``orders`` of magnitude; unmeasured nodes,
    levels without the detailed query, and with ``exact`` answers that are known.
    """
    sizes = [[int(rng.integers(1, 5))]]
    for _ in range(2, levels):
        sizes.append([int(k) for k in rng.integers(1, 6, sum(sizes[-1]))])
    tree = Tree.from_family_sizes(sizes)
    leaves = rng.poisson(rng.choice([0.2, 2, 50]), (SCHEMA.n_cells, tree.n_leaves))
    truth = tree.aggregate(leaves * (rng.random(leaves.shape) < 0.6)).T.astype(np.float64)
    measured = []
    for index in range(tree.n_levels):
        nodes = tree.level(index)
        chosen = [name for name in QUERIES if rng.random() < 0.5]
        if index == 0 or (rng.random() < 0.8 and "detailed" not in chosen):
            chosen = list(dict.fromkeys([*chosen, "detailed"]))
        level = {}
        for name in chosen:
            query = Query.parse(name, SCHEMA)
            variance = np.full(nodes.stop - nodes.start, 10.0 ** rng.uniform(-orders / 2, orders / 2))
            if rng.random() < 0.3:
                variance *= 10.0 ** rng.uniform(-1, 1, len(variance))
            if exact and name in ("total", "g") and rng.random() < 0.3:
                variance[:] = 0
            if index and rng.random() < 0.1:
                variance[rng.random(len(variance)) < 0.3] = np.inf
            spread = np.sqrt(np.where(np.isfinite(variance), variance, 0.0))
            values = query.answers(truth[nodes]) + spread[:, None] * rng.normal(size=(len(variance), query.n_answers))
            level[query] = Answers(np.where(np.isinf(variance)[:, None], 0.0, values), variance)
        measured.append(level)
    return RandomTree(tree, measured, truth)
