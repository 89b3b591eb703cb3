"""Few identifiers among many: found by a search where units stand in order, by a table where they do not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import topdown as td
from topdown.geography.lookup import place_in


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 65])
def test_every_identifier_is_found_in_its_place_and_no_other_anywhere(n: int) -> None:
    there = pa.array([f"{2 * k + 1:03d}" for k in range(n)])
    assert place_in(there, there).tolist() == list(range(n))
    absent = pa.array(["", "é", *(f"{2 * k:03d}" for k in range(n + 1))])
    assert place_in(absent, there).tolist() == [-1] * len(absent)


@pytest.mark.parametrize("is_in_order", [True, False])
def test_few_nodes_of_all_levels_are_found_among_many(is_in_order: bool) -> None:
    counties = [f"{k:02d}" for k in range(30)]
    # Tracts that begin with the last county's number are in order within their county alone.
    tracts = [(county, f"{int(county) if is_in_order else 29 - int(county):02d}{k:02d}")
              for county in counties for k in range(30)]  # fmt: skip
    table = {"nation": ["US"] * 900, "county": [c for c, _ in tracts], "tract": [t for _, t in tracts]}
    geography = td.Geography.from_table(table, ["nation", "county", "tract"])
    rng = np.random.default_rng(3)
    nodes = np.concatenate([[0, 1, 30, 930, 31], rng.integers(0, 931, 5)])
    asked = geography.identifiers.take(pa.array(nodes)).to_pylist()
    assert geography.index_of([*asked, "99999", ""]).tolist() == [*nodes.tolist(), -1, -1]
    assert len(geography.index_of([])) == 0
