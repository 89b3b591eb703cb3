from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import topdown as td
from support.trees import trees
from topdown.errors import ConfigError, ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import Tree

GOOD = [[30, 7], [30, 3], [0, 4], [10, 1], [20, 2], [0, 4]]


def made(geography: Geography, values: Any, exact: Any = False) -> td.Release:
    return td.Release.of_values(
        geography,
        ("adults", "children"),
        np.asarray(values),
        np.broadcast_to(exact, (6, 2)),
        method="joint",
        fit_for_release=True,
    )


def test_a_release_is_tidy(geography: Geography) -> None:
    release = made(geography, GOOD)
    frame = release.to_frame()
    assert list(frame) == ["geoid", "level", "parent", "name", "cell", "value"]
    assert frame["value"].tolist() == np.ravel(GOOD).tolist()
    assert release.variance is None
    known = made(geography, GOOD, exact=np.arange(12).reshape(6, 2) < 2)
    assert known.variance is not None
    assert known.variance[0].tolist() == [0.0, 0.0]
    assert list(known.to_frame()) == ["geoid", "level", "parent", "name", "cell", "value", "variance"]
    assert known.to_frame()["variance"].isna().tolist() == [False] * 2 + [True] * 10


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ((5, 0), -1, "county '02001', cell 'adults': -1 is negative"),
        ((3, 1), 2, "state '01', cell 'children': it has 3, and its units of level 'county' add up to 4"),
        ((0, 1), 8, "nation 'US', cell 'children': it has 8, and its units of level 'state' add up to 7"),
    ],
)
def test_what_is_no_release_is_refused(geography: Geography, place: tuple[int, int], value: int, says: str) -> None:
    values = np.array(GOOD)
    values[place] = value
    with pytest.raises(ProjectionError, match=says):
        made(geography, values)


def test_only_whole_numbers_of_the_right_shape(geography: Geography) -> None:
    for values in (np.array(GOOD, dtype=float), np.array(GOOD)[:, :1], np.array(GOOD).T):
        with pytest.raises(ProjectionError, match=r"int64 values of shape \(6, 2\)"):
            made(geography, values)


def noisy(tree: Tree, seed: int = 0, variance: Any = 25.0) -> td.Measurements:
    geography = Geography(
        tuple(f"l{k}" for k in range(tree.n_levels)), tree, td.Geography.from_edges(
            [f"n{k}" for k in range(tree.n_nodes)], [None] + ["n0"] * (tree.n_nodes - 1)
        ).identifiers,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, 8, (2, tree.n_leaves))
    values = tree.aggregate(leaves).T + np.rint(rng.normal(0, 5, (tree.n_nodes, 2)))
    return td.Measurements.from_arrays(geography, values, variance)


@given(trees())
def test_rounding_gives_the_nearest_whole_numbers_that_add_up(tree: Tree) -> None:
    estimate = td.project(noisy(tree), "gls-top-down")
    release = td.round_counts(estimate, source=td.SeededSource(1))
    # Creation has checked signs and sums; how far a root may move is checked here, families beside brute force.
    assert np.all(np.abs(release.values[0] - estimate.values[0]) <= 0.5 + 1e-9)
    assert release.method == "gls-top-down"
    assert release.cells == estimate.cells


def test_rounding_keeps_exact_values() -> None:
    tree = Tree.from_family_sizes([[3], [2, 3, 4]])
    variance = np.full(13, 25.0)
    variance[1] = 0.0
    measurements = noisy(tree, variance=variance)
    values = np.array(measurements.values)
    values[1] = 41
    exact = td.Measurements.from_arrays(measurements.geography, values, variance)
    release = td.round_counts(td.project(exact, "joint"))
    assert release.values[1].tolist() == [41, 41]
    assert release.exact[1].all()
    assert not release.exact[2:].any()
    fractional = td.Measurements.from_arrays(measurements.geography, values + 0.5, variance)
    with pytest.raises(ProjectionError, match=r"l1 'n1', cell 'cell 0': its exact value 41.5 is not whole"):
        td.round_counts(td.project(fractional, "joint"))


def test_ties_fall_either_way_by_the_source() -> None:
    geography = Geography.from_edges(["a", "b"], ["r", "r"])
    estimate = td.project(td.Measurements.from_arrays(geography, [3, 1.5, 1.5], [0, 1, 1]))
    found = [td.round_counts(estimate, source=td.SeededSource(seed)).values[1, 0] for seed in range(400)]
    # 400 fair coins: outside of 130 to 270 with probability below 1e-11.
    assert 130 < found.count(1) < 270
    assert set(found) == {1, 2}


def test_what_may_be_negative_is_not_released() -> None:
    estimate = td.project(noisy(Tree.from_family_sizes([[3]])), "gls")
    with pytest.raises(ProjectionError, match=r"'gls' may be negative.*nonnegative=True"):
        td.round_counts(estimate)


def test_an_unknown_rounding_is_refused_with_the_nearest() -> None:
    estimate = td.project(noisy(Tree.from_family_sizes([[3]])))
    with pytest.raises(ConfigError, match=r"unknown rounding 'familly'.*did you mean 'family'"):
        td.round_counts(estimate, method="familly")
    with pytest.raises(ConfigError, match=r"'unbiased' .* does not round estimates of cells; take 'family' or 'joint'"):
        td.round_counts(estimate, method="unbiased")


def test_fitness_needs_fit_measurements_and_a_fit_source(counts: td.Counts) -> None:
    plan = td.Plan(epsilon=1)
    fit = td.project(td.measure(counts, plan))
    assert td.round_counts(fit).fit_for_release is True
    assert td.round_counts(fit, source=td.SeededSource(1)).fit_for_release is False
    assert td.round_counts(td.project(td.measure(counts, plan, td.SeededSource(1)))).fit_for_release is False
