"""A small release of persons or units of the redistricting file: five blocks, in two counties of one state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import topdown as td
from topdown.projection.check.certificate import Certificate
from topdown.release.whole_counts import SparseCounts

BLOCKS = ["440070001011000", "440070001011001", "440070001021000", "440070002001000", "440090001001000"]
FINE = Certificate(0, 0, 0, 1, 1, 0, 0)

UNITS_TOML = """
[input]
path = "table.csv"
geoid = "block"
cells = ["vacant", "occupied"]

[geography]
root = "44"
root_level = "state"
widths = { county = 5, tract = 11, "block group" = 12, block = 15 }

[schema]
h1 = ["vacant", "occupied"]

[privacy]
preset = "pl94-2020-units"

[projection]
cross_check = false
"""
"""A release of housing units, from `table.csv`."""


def geography() -> td.Geography:
    levels = {"state": 2, "county": 5, "tract": 11, "block group": 12, "block": 15}
    tree = td.Geography.from_table({level: [b[:width] for b in BLOCKS] for level, width in levels.items()}, [*levels])
    names = pa.array([f"Unit {code}" for code in tree.identifiers.to_pylist()])
    return td.Geography(tree.levels, tree.tree, tree.identifiers, names)


def released(schema: td.Schema, leaves: np.ndarray) -> td.Release:
    tree = geography()
    values = tree.tree.aggregate(leaves.T.copy()).T
    nodes, cells = np.nonzero(values)
    starts = np.searchsorted(nodes, np.arange(tree.n_nodes + 1))
    entries = SparseCounts(starts, cells, values[nodes, cells])
    return td.Release.of_entries(tree, schema, entries, method="top-down", fit_for_release=False, certificate=FINE)


def histograms(schema: td.Schema, size: float) -> np.ndarray:
    leaves = np.zeros((len(BLOCKS), schema.n_cells), np.int64)
    possible = schema.possible_cells()
    leaves[:, possible] = np.random.default_rng(1).poisson(size, (len(BLOCKS), len(possible)))
    return leaves
