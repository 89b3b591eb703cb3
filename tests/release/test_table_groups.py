"""Tables of answers in groups of rows."""

from __future__ import annotations

import numpy as np

import topdown as td
from topdown.geography.tree import IntArray
from topdown.release.answer_files import table_batches
from topdown.workload import Query
from topdown.workload.answer_tables import answer_tables
from topdown.workload.redistricting import PERSONS


class Numbered:
    """A release whose answers say of which unit they are, and the number of which answer."""

    def __init__(self, leaves: int) -> None:
        codes = [f"{k % 20:02}{k:05}" for k in range(leaves)]
        self.geography = td.Geography.from_geoids(codes, {"state": 2, "block": 7}, root_level="nation")

    def answers_of(self, nodes: slice, asked: Query) -> IntArray:
        """A thousand for every unit, and one for every answer."""
        return 1000 * np.arange(nodes.start, nodes.stop)[:, None] + np.arange(asked.n_answers)


def test_groups_of_rows_are_large_whatever_the_number_of_cells() -> None:
    release = Numbered(20_000)
    (table,) = answer_tables(["P1"], PERSONS)
    batches = list(table_batches(table, release))
    assert len(batches) == 1
    assert batches[0]["geoid"].to_pylist() == release.geography.identifiers.to_pylist()
    for column in table.columns:
        assert (batches[0][column.name].to_numpy() == 1000 * np.arange(release.geography.n_nodes) + column.answer).all()
