"""Trees of more levels than a byte tells apart: every table says of every unit its own level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import topdown as td
from support.trees import geography
from topdown.geography.tree import Tree
from topdown.release.answer_files import table_batches
from topdown.release.layouts import WITH_RECORDS
from topdown.tables.geography_table import geography_batches
from topdown.tables.tidy import levels_of, to_frame
from topdown.workload.answer_tables import answer_tables


@pytest.mark.parametrize("levels", [127, 128, 129, 300])
def test_every_row_says_its_level(levels: int) -> None:
    tree = Tree.from_family_sizes([[2], *[[1, 1]] * (levels - 2)])
    there = geography(tree)
    names = [there.levels[0], *np.repeat(there.levels[1:], 2)]
    for nodes in (slice(0, tree.n_nodes), np.arange(tree.n_nodes), slice(5, tree.n_nodes - 1)):
        chosen = np.arange(tree.n_nodes)[nodes]
        np.testing.assert_array_equal(levels_of(there, nodes), (chosen + 1) // 2)
    table = {"geoid": list(there.geoid[tree.leaves]), "x": [3, 5], "y": [0, 7]}
    schema = td.Schema.from_mapping({"cell": ["x", "y"]})
    counts = td.Counts.from_table(table, there, geoid="geoid", cells=["x", "y"], schema=schema)
    measured = td.measure(counts, td.Plan(epsilon=1), td.SeededSource(1))
    release = td.round_counts(td.project(measured))
    whole = replace(release, layout=WITH_RECORDS)
    (answers,) = answer_tables(["total"], schema)
    assert release.to_frame()["level"].tolist() == list(np.repeat(names, 2))
    assert measured.to_frame()["level"].tolist() == list(np.repeat(names, 2))
    assert to_frame(geography_batches(there))["level"].tolist() == names
    assert whole.to_frame()["level"].tolist() == [
        names[node] for node, _ in zip(*np.nonzero(release.values), strict=True)
    ]
    assert to_frame(table_batches(answers, whole))["level"].tolist() == names
