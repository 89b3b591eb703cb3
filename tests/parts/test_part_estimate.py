"""What a release in parts takes, by the shape of its tree."""

from __future__ import annotations

import numpy as np

import topdown as td
from topdown.geography.tree import Tree
from topdown.pipeline.part_estimate import Needed, needed

LEVELS = ("nation", "state", "county", "tract", "block")
SCHEMA = td.Schema.from_mapping({"sex": ["f", "m"], "age": [str(k) for k in range(20)], "race": list("abcdefgh")})
CELLS = 320


def estimate(counties: list[int], tracts: int) -> Needed:
    """Of states of so many ``counties``, each of so many ``tracts`` of one block, cut at the counties, a part each."""
    n_counties = sum(counties)
    sizes = [[len(counties)], counties, [tracts] * n_counties, [1] * (tracts * n_counties)]
    plan = td.Plan("discrete-gaussian", rho="1", shares={level: {"detailed": "1/5"} for level in LEVELS})
    return needed(
        Tree.from_family_sizes([np.array(one) for one in sizes]),
        SCHEMA,
        plan.for_levels(LEVELS).for_schema(SCHEMA),
        LEVELS,
        (2, tracts),
        10**6,
        csv=False,
        columns=0,
    )


def test_what_a_worker_holds_of_every_child_of_a_large_family_is_counted() -> None:
    few, many = (estimate([1, 1], tracts) for tracts in (100, 1_100))
    answers = 6.5 * (2 * 1_000) * CELLS
    there = CELLS // 16 + 1
    assert many.worker - few.worker >= answers + 1_000 * 2 * 8 * there**2


def test_families_above_the_parts_that_are_solved_at_once_are_counted() -> None:
    alone, two = estimate([2, 200], 5), estimate([101, 101], 5)
    assert two.above == alone.above
    assert two.above > estimate([67, 67, 68], 5).above
