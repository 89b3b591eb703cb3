"""Studies of tables with structural zeros: nobody is where nobody can be, in errors, intervals and records."""

from __future__ import annotations

import numpy as np
import pytest

import topdown as td
from support.zeros import CELLS_ALONE, IMPOSSIBLE, POSSIBLE, SCHEMA, SEVERAL, TREE, counted
from topdown.studies.one_release import one_release, published_example
from topdown.workload.schema import DETAILED

METHODS = ["raw", "gls", "top-down/equality", "top-down", "gls-top-down", "gls-top-down/rounded"]


@pytest.mark.parametrize("several", [False, True])
def test_a_study_has_nobody_there(several: bool) -> None:
    plan = td.Plan(epsilon="0.3", shares=SEVERAL if several else CELLS_ALONE)
    methods = METHODS if several else [*METHODS, "joint", "joint/equality", "joint/rounded"]
    coverage = td.CoverageOptions("gls-top-down")
    table = td.simulate(counted(), plan, methods, 12, 3, coverage=coverage)
    raw = table["raw", "mse"][:, IMPOSSIBLE]
    assert (raw > 0).any()
    for method in methods[1:]:
        assert (table[method, "mse"][:, IMPOSSIBLE] == 0).all(), method
        assert (table[method, "mse"][:, POSSIBLE] > 0).any()
        if method in table.theory:
            assert (table.theory[method][:, IMPOSSIBLE] == 0).all()
            assert (table.theory[method][:, POSSIBLE] > 0).any()
    assert table.coverage is not None
    names = np.array(SCHEMA.cells())
    assert not table.coverage["cell"].isin(names[IMPOSSIBLE]).any()  # there is no interval to judge
    assert table.coverage["cell"].isin(names[POSSIBLE]).any()


def test_intervals_of_the_cells_are_those_of_a_table_without_the_impossible() -> None:
    full = counted()
    names = [SCHEMA.cells()[k] for k in POSSIBLE]
    leaves = full.values[TREE.leaves][:, POSSIBLE]
    columns = {"geoid": list(full.geography.geoid[TREE.leaves]), **dict(zip(names, leaves.T, strict=True))}
    alone = td.Counts.from_table(columns, full.geography, geoid="geoid", cells=names)
    plan = td.Plan(epsilon="0.3", shares=CELLS_ALONE)
    coverage = td.CoverageOptions("top-down")
    one, other = (td.simulate(counts, plan, ["gls"], 600, 5, coverage=coverage) for counts in (full, alone))
    one_by, other_by = (
        t.coverage[t.coverage["by"] == "all"].set_index(["level", "cell"])
        for t in (one, other)
        if t.coverage is not None
    )
    assert list(one_by.index) == list(other_by.index)
    # Other draws of the same law.
    error = np.hypot(one_by["covered_se"], other_by["covered_se"])
    assert (np.abs(one_by["covered"] - other_by["covered"]) < 5 * error + 1e-3).all()
    np.testing.assert_allclose(one_by["moe"], other_by["moe"], rtol=0.15)


def test_records_and_examples_of_a_study_have_nobody_there() -> None:
    plan = td.Plan(epsilon="0.3", shares=CELLS_ALONE)
    releases = one_release(counted(), plan, ["top-down", "joint", "gls-top-down"], 4)
    assert list(releases) == ["top-down", "joint", "gls-top-down"]
    assert all((values[:, IMPOSSIBLE] == 0).all() for values in releases.values())
    example = published_example(counted(), plan, "top-down", 4, 0.9)
    for part in (example.values, example.sd, example.lower, example.upper):
        assert (part[:, IMPOSSIBLE] == 0).all()
        assert (part[:, POSSIBLE] > 0).any()


def test_records_of_a_study_keep_limits_also_where_the_cells_alone_are_measured() -> None:
    counts = counted()
    geoids = counts.geography.geoid[TREE.leaves]
    names = [SCHEMA.cells()[k] for k in POSSIBLE]
    empty = [(geoid, name) for geoid, row in zip(geoids, counts.values[TREE.leaves][:, POSSIBLE], strict=True)
             for name, value in zip(names, row, strict=True) if value == 0]  # fmt: skip
    rows = {"geoid": [g for g, _ in empty], "query": [DETAILED] * len(empty), "answer": [n for _, n in empty]}
    limits = td.AnswerLimits.from_table(
        {**rows, "lower": [0] * len(empty), "upper": [0] * len(empty)}, counts.geography, SCHEMA
    )
    plan = td.Plan(epsilon="0.3", shares=CELLS_ALONE)
    for values in one_release(counts, plan, ["top-down", "gls-top-down"], 4, limits).values():
        assert (values[TREE.leaves][counts.values[TREE.leaves] == 0] == 0).all()
