"""A small table with structural zeros: what may be measured of it, and which cells nobody can be in."""

from __future__ import annotations

import numpy as np

import topdown as td
from support.trees import geography
from topdown.geography.tree import Tree

TREE = Tree.from_family_sizes([[3], [2, 4, 3]])
SCHEMA = td.Schema.from_mapping(
    {"age": ["0-17", "18-64", "65+"], "home": ["house", "nursing", "barracks"], "sex": ["f", "m"]},
    {"age": {"adult": {"minor": ["0-17"], "grown": ["18-64", "65+"]}}},
    [{"home": "nursing", "adult": "minor"}, {"home": ["barracks"], "age": ["0-17", "65+"]}],
)
POSSIBLE = SCHEMA.possible_cells()
IMPOSSIBLE = np.setdiff1d(np.arange(SCHEMA.n_cells), POSSIBLE)
CELLS_ALONE = {"level 0": "0.2", "level 1": "0.3", "level 2": "0.5"}
SEVERAL = {
    "level 0": {"total": "0.1", "home": "0.1", "detailed": "0.05"},
    "level 1": {"age * home": "0.1", "sex": "0.05", "detailed": "0.2"},
    "level 2": {"total": "0.1", "adult": "0.1", "detailed": "0.2"},
}


def counted(seed: int = 1) -> td.Counts:
    """Few records in half of the possible cells, none in the others."""
    rng = np.random.default_rng(seed)
    leaves = np.zeros((TREE.n_leaves, SCHEMA.n_cells), np.int64)
    leaves[:, POSSIBLE] = rng.poisson(3, (TREE.n_leaves, len(POSSIBLE))) * (rng.random((1, len(POSSIBLE))) < 0.5)
    there = geography(TREE)
    cells = list(SCHEMA.cells())
    columns = {"geoid": list(there.geoid[TREE.leaves]), **dict(zip(cells, leaves.T, strict=True))}
    return td.Counts.from_table(columns, there, geoid="geoid", cells=cells, schema=SCHEMA)


def measured(seed: int, *, several: bool = False, epsilon: str = "0.3") -> td.Measurements:
    """Under geometric noise so wide that half of the impossible cells get a number far above 0."""
    plan = td.Plan(epsilon=epsilon, shares=SEVERAL if several else CELLS_ALONE)
    return td.measure(counted(), plan, source=td.SeededSource((7, seed)))
