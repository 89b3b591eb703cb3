"""Variances after the equality projections: level by level, node by node, and the dense formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from support.places import GOLDEN
from topdown.errors import ConfigError
from topdown.research.theory import level_variances, topdown_equality_variance, tree_covariance

BINARY = [-1, 0, 0, 1, 1, 2, 2]


def test_dense_covariance_equals_the_reference() -> None:
    block = GOLDEN["S2_tree_covariance"]
    np.testing.assert_allclose(tree_covariance(BINARY, 1.0), block["root_noisy"], rtol=1e-12)
    fixed = tree_covariance(BINARY, [0, 1, 1, 1, 1, 1, 1])
    np.testing.assert_allclose(fixed[1:, 1:], block["root_fixed"], rtol=1e-12)
    np.testing.assert_allclose(fixed[0], 0.0, atol=1e-15)


@pytest.mark.parametrize("root", ["fixed", "noisy"])
def test_level_variances_equal_the_reference(root: str) -> None:
    expected = GOLDEN["S2_tree_covariance"]["topdown_per_level_variances"][f"root_{root}"]
    first = 0 if root == "fixed" else 1
    result = level_variances([first, 1, 1], [2, 2])
    assert result.tolist() == [expected.get("root", 0), expected["state"], expected["county"]]
    by_node = topdown_equality_variance(BINARY, [first] + [1] * 6)
    np.testing.assert_allclose(by_node, result[[0, 1, 1, 2, 2, 2, 2]], rtol=1e-15)


def test_a_public_total_leaves_the_family_formula() -> None:
    for n in (1, 2, 15, 254):
        assert level_variances([0.0, 200.0], [n])[1] == pytest.approx(200.0 * (1.0 - 1.0 / n), rel=1e-15)


@st.composite
def random_tree(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    parent = [-1] + [draw(st.integers(0, i)) for i in range(draw(st.integers(1, 9)))]
    variance = [draw(st.floats(0.1, 9.0)) for _ in parent]
    return parent, variance


def topdown_by_matrices(parent: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The estimator as a matrix: x_c = y_c + (v_c / V) (x_p - sum y)."""
    n = parent.size
    estimator = np.zeros((n, n))
    done = [int(np.flatnonzero(parent < 0)[0])]
    estimator[done[0], done[0]] = 1.0
    while done:
        p = done.pop()
        family = np.flatnonzero(parent == p)
        for c in family:
            share = variance[c] / variance[family].sum()
            estimator[c] = share * estimator[p]
            estimator[c, family] -= share
            estimator[c, c] += 1.0
            done.append(int(c))
    return np.einsum("ij,j,ij->i", estimator, variance, estimator)


@given(tree=random_tree())
@examples(50)
def test_node_variances_are_those_of_the_estimator(tree: tuple[list[int], list[float]]) -> None:
    parent, variance = np.array(tree[0]), np.array(tree[1])
    result = topdown_equality_variance(parent, variance)
    np.testing.assert_allclose(result, topdown_by_matrices(parent, variance), rtol=1e-12)
    # the best linear unbiased estimate is at least as good at every node
    best = np.diag(tree_covariance(parent, variance))
    assert np.all(best <= result * (1.0 + 1e-9))
    assert np.all(best <= variance * (1.0 + 1e-9))


@given(tree=random_tree())
@examples(30)
def test_dense_covariance_is_the_inverse_information(tree: tuple[list[int], list[float]]) -> None:
    parent, variance = np.array(tree[0]), np.array(tree[1])
    n = parent.size
    leaves = np.setdiff1d(np.arange(n), parent)
    reach = np.zeros((n, leaves.size))
    for j, leaf in enumerate(leaves):
        node = int(leaf)
        while node >= 0:
            reach[node, j] = 1.0
            node = int(parent[node])
    expected = reach @ np.linalg.inv(reach.T @ (reach / variance[:, None])) @ reach.T
    np.testing.assert_allclose(tree_covariance(parent, variance), expected, atol=1e-10)


def test_a_family_without_noise_stays_exact() -> None:
    assert topdown_equality_variance([-1, 0, 0, 1, 1], [0, 0, 0, 2, 2]).tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: level_variances([1, 1, 1], [2]), "family sizes"),
        (lambda: level_variances([1, 1], [0]), "at least 1"),
        (lambda: level_variances([1, -1], [2]), "at least 0"),
        (lambda: level_variances([1, np.inf], [2]), "finite"),
        (lambda: topdown_equality_variance([-1, 0], [1, 1, 1]), "shape"),
        (lambda: topdown_equality_variance([-1, 2, 1], 1), "cycle"),
        (lambda: tree_covariance([-1, -1], 1), "root"),
        (lambda: tree_covariance([-1, 7], 1), "root"),
    ],
)
def test_arguments_that_cannot_be_meant_are_named(call: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()  # type: ignore[operator]
