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


def test_a_part_of_the_leaves_is_found_in_any_order_and_what_is_elsewhere_too() -> None:
    geography = td.Geography.from_geoids([f"{k:06d}" for k in range(0, 4000, 2)], {"county": 2, "tract": 6})
    leaves, identifiers = geography.tree.leaves, geography.identifiers
    nodes = np.arange(leaves.start + 500, leaves.start + 600)
    asked = identifiers.take(pa.array(nodes)).to_pylist()
    assert geography.index_of(asked).tolist() == nodes.tolist()
    middle = np.random.default_rng(5).permutation(nodes[1:-1])
    mixed = [asked[0], *identifiers.take(pa.array(middle)).to_pylist(), "01", "000001", "003998", "US", asked[-1]]
    expected = [nodes[0], *middle, 2, -1, leaves.stop - 1, 0, nodes[-1]]
    assert geography.index_of(mixed).tolist() == [int(node) if code != "01" else geography.index_of(["01"])[0]
                                                  for code, node in zip(mixed, expected, strict=True)]  # fmt: skip
    assert geography.index_of(["9", *asked[:3]]).tolist() == [-1, *nodes[:3]]
    assert geography.index_of(asked[::-1]).tolist() == nodes[::-1].tolist()
    assert geography.index_of([*asked[:50], "", "é"]).tolist() == [*nodes[:50], -1, -1]
