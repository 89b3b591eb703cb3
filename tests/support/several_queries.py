"""A small table of which several queries are measured, others at every level."""

from __future__ import annotations

import numpy as np
import pandas as pd

import topdown as td
from support.trees import geography
from topdown.geography.tree import Tree

TREE = Tree.from_family_sizes([[2], [3, 2]])
SCHEMA = td.Schema.from_mapping({"sex": ["f", "m"], "age": ["young", "old", "oldest"]})
LEAVES = np.array(
    [[40, 9, 0, 30, 2, 0], [0, 0, 0, 1, 0, 0], [5, 80, 3, 0, 0, 700], [0, 0, 0, 0, 0, 0], [9, 9, 9, 8, 8, 8]]
)
SHARES = {
    "level 0": {"total": "0.1", "sex": "0.1"},
    "level 1": {"age": "0.2", "detailed": "0.1"},
    "level 2": {"total": "0.2", "detailed": "0.3"},
}


def measured(
    seed: int, mechanism: str = "discrete-gaussian", plan: td.Plan | None = None, **budget: object
) -> td.Measurements:
    there = geography(TREE)
    frame = pd.DataFrame(LEAVES, columns=list(SCHEMA.cells()))
    frame["geoid"] = list(there.geoid[TREE.leaves])
    counts = td.Counts.from_table(frame, there, geoid="geoid", cells=list(SCHEMA.cells()), schema=SCHEMA)
    plan = plan or td.Plan(mechanism, shares=SHARES, **(budget or {"rho": "0.1"}))  # type: ignore[arg-type]
    return td.measure(counts, plan, source=td.SeededSource((5, seed)))
