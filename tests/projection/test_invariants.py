"""Exact values: what they imply, where they contradict each other, and the bounds that they set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import topdown as td
from support.examples import examples
from support.trees import Case, cases, measurements
from topdown.errors import ProjectionError
from topdown.geography.tree import Tree
from topdown.projection.invariants import Contradiction, lower_bounds, settle

TREE = Tree.from_family_sizes([[2], [2, 2]])


def test_without_exact_values_nothing_is_copied() -> None:
    values, variance = np.ones(7), np.ones(7)
    assert settle(values, variance, TREE, nonnegative=True) == (values, variance)


def test_parents_of_exact_children_become_exact_all_the_way_up() -> None:
    values = np.array([1.0, 1, 1, 3, 4, 5, 6])
    variance = np.array([9.0, 9, 9, 0, 0, 0, 0])
    y, v = settle(values, variance, TREE, nonnegative=True)
    np.testing.assert_array_equal(y, [18, 7, 11, 3, 4, 5, 6])
    np.testing.assert_array_equal(v, np.zeros(7))


def test_an_exact_parent_of_one_noisy_child_leaves_it_noisy() -> None:
    y, v = settle(np.array([20.0, 1, 1, 3, 4, 5, 6]), np.array([0.0, 9, 9, 0, 9, 0, 0]), TREE, nonnegative=True)
    np.testing.assert_array_equal(v, [0, 9, 0, 0, 9, 0, 0])
    assert y[2] == 11


@pytest.mark.parametrize(
    ("values", "exact", "node", "reason"),
    [
        ([0, 8, 0, 3, 4, 0, 0], [1, 3, 4], 1, "not the sum"),
        ([9, 0, 0, 3, 4, 5, 6], [0, 3, 4, 5, 6], 0, "not the sum"),
        ([0, 0, 0, 0, -1, 0, 0], [4], 4, "negative"),
        ([0, 2, 0, 3, 0, 0, 0], [1, 3], 1, "less than"),
        ([4, 0, 0, 3, 0, 2, 0], [0, 3, 5], 0, "less than"),
    ],
)
def test_contradictions_name_the_node(values: list[float], exact: list[int], node: int, reason: str) -> None:
    variance = np.ones(7)
    variance[exact] = 0.0
    with pytest.raises(Contradiction, match=reason) as caught:
        settle(np.array(values, float), variance, TREE, nonnegative=True)
    assert caught.value.node == node
    with pytest.raises(ProjectionError, match=rf"'n{node}'.*{reason}.*correct the exact values"):
        td.project(measurements(TREE, np.array(values, float), variance), "joint")


@pytest.mark.parametrize(("values", "exact"), [([0, 0, 0, 0, -1, 0, 0], [4]), ([0, 2, 0, 3, 0, 0, 0], [1, 3])])
def test_without_nonnegativity_these_are_no_contradictions(values: list[float], exact: list[int]) -> None:
    variance = np.ones(7)
    variance[exact] = 0.0
    x = td.project(measurements(TREE, np.array(values, float), variance), "gls").values[:, 0]
    np.testing.assert_allclose(x[exact], np.array(values)[exact], atol=1e-12)


def test_lower_bounds_are_what_exact_values_below_add_up_to() -> None:
    values = np.array([50.0, 1, 20, 3, 1, 5, 1])
    variance = np.array([1.0, 1, 0, 0, 1, 0, 1])
    np.testing.assert_array_equal(lower_bounds(values, variance, TREE), [23, 3, 20, 3, 0, 5, 0])
    assert lower_bounds(values, np.ones(7), TREE) is None


@pytest.mark.parametrize("method", ["top-down", "gls-top-down", "joint"])
@examples(60)
@given(case=cases())
def test_exact_values_stay(method: str, case: Case) -> None:
    estimate = td.project(case.measurements(), method)
    exact = case.variance == 0
    assert estimate.exact[exact].all()
    np.testing.assert_allclose(estimate.values[exact], case.truth[exact], atol=1e-9 * case.noise, rtol=1e-12)


def test_a_small_total_above_exact_values_is_lifted() -> None:
    # The noisy root and state are below the exact county of 30 under them.
    variance = np.array([1.0, 1, 1, 0, 1, 1, 1])
    values = np.array([5.0, 2, 3, 30, 4, 3, 1])
    for method in ("top-down", "gls-top-down", "joint"):
        x = td.project(measurements(TREE, values, variance), method).values[:, 0]
        assert x[3] == 30
        assert x.min() >= 0
        assert x[0] >= x[1] >= 30
    np.testing.assert_allclose(td.project(measurements(TREE, values, variance)).values[:3, 0], [30, 30, 0])


@pytest.mark.parametrize("total", [2.0**20, 2.0**45, 2.0**52])
def test_exact_values_that_differ_by_one_contradict_each_other_at_any_size(total: float) -> None:
    tree = Tree.from_family_sizes([[2]])
    half = total / 2
    td.project(measurements(tree, [total, half, half], 0.0), "joint")
    for wrong in (total + 1, total - 1):
        with pytest.raises(ProjectionError, match="not the sum of its children's"):
            td.project(measurements(tree, [wrong, half, half], 0.0), "joint")
        with pytest.raises(ProjectionError, match=r"exact value is (less than|not the sum)"):
            td.project(measurements(tree, [half - 1, half, half - total / 4], [0, 0, 1]), "joint")
