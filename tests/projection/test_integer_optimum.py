"""The whole-tree integer optimum: brute force, windows that grow, ties, exact values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from support.examples import examples
from support.trees import Case, cases, measurements, membership, trees, wide_trees
from topdown.geography.tree import FloatArray, Tree
from topdown.noise import SecureSource, SeededSource
from topdown.projection.cells.integer_optimum import round_whole_tree
from topdown.projection.cells.rounding import round_top_down


def cost(r: np.ndarray, x: FloatArray) -> float:
    return float(((r - x) ** 2).sum())


def brute_force(x: FloatArray, exact: np.ndarray, tree: Tree) -> float:
    leaves = tree.leaves
    choices = [
        [round(value)] if known else range(max(0, int(value) - 2), int(value) + 4)
        for value, known in zip(x[leaves], exact[leaves], strict=True)
    ]
    tables = np.array(list(itertools.product(*choices))) @ membership(tree).T
    kept = tables[(tables[:, exact] == np.rint(x[exact])).all(axis=1)]
    return float(((kept - x) ** 2).sum(axis=1).min())


@examples(200)
@given(
    trees(max_levels=5, max_leaves=5),
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    st.sampled_from([None, 1, 2, 8]),
)
def test_equals_brute_force(tree: Tree, seed: int, window: int, grid: int | None) -> None:
    rng = np.random.default_rng(seed)
    leaves = rng.exponential(1.0, tree.n_leaves) * (rng.random(tree.n_leaves) < 0.7)
    known = rng.random(tree.n_leaves) < 0.2
    leaves = np.where(known, np.rint(leaves), leaves if grid is None else np.rint(leaves * grid) / grid)
    x = tree.aggregate(leaves)
    exact = (x == np.rint(x)) & (rng.random(tree.n_nodes) < 0.4)
    exact[tree.leaves] |= known
    whole = round_whole_tree(x[None], tree, SecureSource(), exact[None], window=window)[0]
    assert whole.min() >= 0
    np.testing.assert_array_equal(tree.aggregate(whole[tree.leaves]), whole)
    np.testing.assert_array_equal(whole[exact], x[exact])
    assert cost(whole, x) <= brute_force(x, exact, tree) + 1e-5 * tree.n_nodes


@examples(60)
@given(cases(st.one_of(trees(), wide_trees()), wild=False))
def test_never_worse_than_family_by_family(case: Case) -> None:
    estimate = td.project(case.measurements(), "joint")
    joint, family = (td.round_counts(estimate, method=method) for method in ("joint", "family"))
    for cell in range(case.truth.shape[1]):
        x = estimate.values[:, cell]
        assert cost(joint.values[:, cell], x) <= cost(family.values[:, cell], x) + 1e-5 * case.tree.n_nodes
    exact = case.variance == 0
    np.testing.assert_array_equal(joint.values[exact], case.truth[exact])


def test_a_window_that_the_optimum_touches_grows() -> None:
    # Ten chains of a hundred nodes of 0.4 hold out against one root of 4: it goes to 0, four units away.
    tree = Tree.from_family_sizes([[10], *[[1] * 10] * 99])
    x = tree.aggregate(np.full(10, 0.4))
    for window in (1, 3, 6):
        whole = round_whole_tree(x[None], tree, SeededSource(1), window=window)[0]
        np.testing.assert_array_equal(whole, np.zeros(tree.n_nodes))


def test_the_whole_tree_pays_at_leaves_for_what_the_levels_above_gain() -> None:
    """Nation 2.4 = 3 x 0.8: family by family gives (2; 1, 1, 0), which is also best; deeper chains decide otherwise."""
    tree = Tree.from_family_sizes([[3], [1, 1, 1], [1, 1, 1], [1, 1, 1]])
    x = tree.aggregate(np.full(3, 0.8))
    family = round_top_down(x[None], tree, SeededSource(1), None, None)[0]
    joint = round_whole_tree(x[None], tree, SeededSource(1))[0]
    assert family[0] == 2
    assert joint[0] == 3
    assert cost(joint, x) == pytest.approx(0.36 + 12 * 0.04)
    assert cost(joint, x) < cost(family, x)


@pytest.mark.parametrize("units", [1, 3])
def test_ties_are_broken_evenly_and_not_by_position(units: int) -> None:
    families, n = 20_000, 8
    tree = Tree.from_family_sizes([[families], [n] * families])
    x = tree.aggregate(np.full(families * n, units / n))
    whole = round_whole_tree(x[None], tree, SeededSource(11))[0]
    assert (whole[1 : families + 1] == units).all()
    shares = whole[tree.leaves].reshape(families, n).mean(axis=0)
    p = units / n
    deviation = np.sqrt(p * (1 - p) / families)
    assert (np.abs(shares - p) < 6 * deviation).all()
    assert (np.abs(shares - 0.9 * p) > 3 * deviation).all()
    assert (np.abs(shares - 1.1 * p) > 3 * deviation).all()


def test_a_single_node_halfway_goes_both_ways() -> None:
    tree, source = Tree.from_family_sizes([]), SeededSource(2)
    roots = [int(round_whole_tree(np.array([[0.5]]), tree, source)[0, 0]) for _ in range(400)]
    assert set(roots) == {0, 1}
    assert 140 < sum(roots) < 260


def test_through_the_public_name() -> None:
    tree = Tree.from_family_sizes([[2], [2, 2]])
    estimate = td.project(measurements(tree, [7.4, 3, 4, 1, 2, 2, 2], 4.0), "joint")
    release = td.round_counts(estimate, method="joint", source=SeededSource(1))
    assert release.values.dtype == np.int64
    assert release.values[0, 0] == 7
