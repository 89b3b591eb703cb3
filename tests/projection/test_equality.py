"""Weighted least squares in two passes: against fractions, the dense formula, the published covariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from support.places import GOLDEN
from support.trees import Case, cases, exact_least_squares, exact_variance, trees, wide_trees
from topdown.geography.tree import FloatArray, Tree
from topdown.noise import SeededSource
from topdown.noise.exact.discrete import DiscreteLaplace
from topdown.projection.cells.equality import (
    downward,
    downward_variance,
    family_gains,
    least_squares,
    least_squares_variance,
    open_leaves,
    upward,
    upward_gains,
)
from topdown.projection.check.cvxpy_programs import consistency_matrix
from topdown.projection.invariants import settle

BINARY = Tree.from_family_sizes([[2], [2, 2]])


def settled(case: Case) -> tuple[FloatArray, FloatArray]:
    """(cells, nodes): what kernels take."""
    return settle(np.nan_to_num(case.values.T), np.array(case.variance.T), case.tree, nonnegative=False)


@examples(60)
@given(cases(trees(max_leaves=10), max_cells=2))
def test_equals_the_solution_in_fractions(case: Case) -> None:
    values, variance = settled(case)
    x = least_squares(values, variance, case.tree)
    for row in range(len(x)):
        expected = np.array([float(k) for k in exact_least_squares(values[row], variance[row], case.tree)])
        scale = max(1.0, float(np.abs(expected).max()), float(np.abs(values[row]).max()))
        assert np.abs(x[row] - expected).max() <= 1e-12 * scale


@examples(40)
@given(cases(trees(max_levels=4, max_leaves=6), max_cells=1, unmeasured_leaves=False))
def test_variance_equals_the_solution_in_fractions(case: Case) -> None:
    _, variance = settled(case)
    expected = [float(k) for k in exact_variance(variance[0], case.tree)]
    # Rounding of the largest variance reaches the others.
    rounding = 1e-15 * float(variance.max(where=np.isfinite(variance), initial=0.0))
    np.testing.assert_allclose(least_squares_variance(variance, case.tree)[0], expected, rtol=1e-11, atol=rounding)


@examples(50)
@given(st.one_of(trees(max_leaves=40), wide_trees()), st.integers(0, 2**32 - 1))
def test_equals_the_dense_formula(tree: Tree, seed: int) -> None:
    rng = np.random.default_rng(seed)
    variance = 10.0 ** rng.uniform(-1, 2, tree.n_nodes)
    values = rng.normal(size=tree.n_nodes) * 100
    a = consistency_matrix(tree).toarray()
    gain = (
        (variance[:, None] * a.T) @ np.linalg.pinv(a * variance @ a.T, hermitian=True) if len(a) else np.zeros((1, 0))
    )
    covariance = np.diag(variance) - gain @ a * variance
    np.testing.assert_allclose(least_squares(values, variance, tree), values - gain @ (a @ values), atol=1e-9)
    np.testing.assert_allclose(least_squares_variance(variance, tree), np.diag(covariance), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(("block", "root"), [("root_fixed", 0.0), ("root_noisy", 1.0)])
def test_published_covariance_of_the_binary_tree(block: str, root: float) -> None:
    expected = np.array(GOLDEN["S2_tree_covariance"][block])
    tolerance = GOLDEN["S2_tree_covariance"]["rel_tol"]
    variance = np.array([root, *[1.0] * 6])
    # The map's columns, one unit measurement each, give the whole covariance and not only its diagonal.
    columns = least_squares(np.eye(7), np.broadcast_to(variance, (7, 7)), BINARY).T * np.sqrt(variance)
    skip = 7 - len(expected)
    np.testing.assert_allclose((columns @ columns.T)[skip:, skip:], expected, rtol=tolerance, atol=1e-15)
    np.testing.assert_allclose(least_squares_variance(variance, BINARY)[skip:], np.diag(expected), rtol=tolerance)


def test_variance_of_the_family_by_family_projection() -> None:
    # Var_l = var_l (1 - 1/n) + Var_{l-1} / n^2 for equal variances within a family.
    tree = Tree.from_family_sizes([[5], [3, 1, 2, 7, 4]])
    variance = np.repeat([2.0, 3.0, 11.0], np.diff(tree.level_offsets))
    result = downward_variance(variance, family_gains(variance, tree), tree)
    states = 3.0 * (1 - 1 / 5) + 2.0 / 25
    np.testing.assert_allclose(result[1:6], states)
    for families in [tree.families(1)]:
        n = families.spread(families.sizes)
        np.testing.assert_allclose(result[families.children], 11.0 * (1 - 1 / n) + states / n**2)


@examples(60)
@given(cases(unmeasured=False))
def test_reflecting_the_measurements_in_the_truth_reflects_the_estimate(case: Case) -> None:
    """Lemma 1 of Zhu, Van Hentenryck, Fioretto: P(2 x - y) = 2 x - P(y)."""
    values, variance = settled(case)
    truth = case.truth.T
    there = least_squares(2 * truth - values, variance, case.tree)
    back = 2 * truth - least_squares(values, variance, case.tree)
    np.testing.assert_allclose(there, back, atol=1e-9 * case.noise, rtol=1e-12)


def test_a_family_with_two_unmeasured_leaves_shares_and_has_no_variance() -> None:
    tree = Tree.from_family_sizes([[4]])
    variance = np.array([4.0, 1.0, np.inf, np.inf, 2.0])
    x = least_squares(np.array([100.0, 10, np.nan, 7, 30]), variance, tree)
    np.testing.assert_allclose(x, [100, 10, 30, 30, 30])
    np.testing.assert_array_equal(least_squares_variance(variance, tree), [4, 1, np.inf, np.inf, 2])
    np.testing.assert_array_equal(open_leaves(variance, tree), [0, 0, 1, 1, 0])


def test_one_unmeasured_leaf_is_what_the_others_leave() -> None:
    variance = np.array([4.0, 1.0, np.inf, 2.0])
    tree = Tree.from_family_sizes([[3]])
    np.testing.assert_allclose(least_squares(np.array([100.0, 10, 0, 30]), variance, tree), [100, 10, 60, 30])
    np.testing.assert_allclose(least_squares_variance(variance, tree), [4, 1, 7, 2])


def test_unmeasured_leaves_share_by_number_across_an_unmeasured_level() -> None:
    # A measured root, unmeasured states: 3 + 1 open leaves beside one measured leaf of 20 share 100 - 20.
    tree = Tree.from_family_sizes([[2], [3, 2]])
    variance = np.array([1.0, np.inf, np.inf, np.inf, np.inf, np.inf, 1.0, np.inf])
    values = np.array([100.0, 0, 0, 0, 0, 0, 20, 0])
    np.testing.assert_allclose(least_squares(values, variance, tree), [100, 60, 40, 20, 20, 20, 20, 20])


@examples(30)
@given(cases())
def test_gains_serve_many_replicates_at_once(case: Case) -> None:
    _, variance = settled(case)
    gains = upward_gains(variance[0], case.tree)
    replicates = np.random.default_rng(1).normal(size=(3, 2, case.tree.n_nodes))
    together = downward(upward(replicates.copy(), gains, case.tree), gains.shares, case.tree)
    for index in np.ndindex(3, 2):
        alone = downward(upward(replicates[index].copy(), gains, case.tree), gains.shares, case.tree)
        np.testing.assert_array_equal(together[index], alone)


def _projected_draws(noise: FloatArray) -> FloatArray:
    """Noise (replicates, n) projected on a public total: one root that is exact, n counties."""
    replicates, n = noise.shape
    tree = Tree.from_family_sizes([[n]])
    values = np.concatenate([np.zeros((replicates, 1)), noise], axis=1)
    variance = np.array([0.0, *[1.0] * n])
    return downward(values, family_gains(variance, tree), tree)[:, 1:]


@pytest.mark.parametrize("law", ["laplace", "geometric"])
@pytest.mark.parametrize("n", [15, 254], ids=["Arizona", "Texas"])
def test_variance_of_counties_below_a_public_state(n: int, law: str) -> None:
    """2 lambda^2 (1 - 1/n) for Laplace, 2 a / (1 - a)^2 (1 - 1/n) for the geometric law, from 80,000 draws."""
    rows = {row["n"]: row for row in GOLDEN["S2_marginal_variance"]["rows"]}
    expected = rows[n][f"var_{law}"]
    source, rng = SeededSource((n, law)), np.random.default_rng(n)
    squares = np.zeros(n)
    for _ in range(10):
        size = (8000, n)
        noise = rng.laplace(scale=10, size=size) if law == "laplace" else DiscreteLaplace(10).sample(size, source)
        squares += (_projected_draws(np.asarray(noise, np.float64)) ** 2).sum(axis=0)
    # All counties have the same law: their mean has the deviation of one, less by nearly the root of n.
    observed = squares.mean() / 80_000
    deviation = expected * np.sqrt(5.0 / (80_000 * (n - 1)))
    assert abs(observed - expected) < 5 * deviation
    for wrong in (expected / (1 - 1 / n), expected * (1 - 1 / n)):
        assert abs(observed - wrong) > 5 * deviation


def test_an_only_child_of_an_exact_unit_has_no_variance_at_all_however_large_its_noise() -> None:
    tree = Tree.from_family_sizes([[1], [1]])
    for noise in 10.0 ** np.random.default_rng(1).uniform(-3, 20, 500):
        assert least_squares_variance(np.array([0.0, 0.0, noise]), tree)[2] == 0
