"""The second opinion: agrees with what is right, on whole trees and samples, and not with what is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import topdown as td
from support.trees import measurements
from topdown.geography.tree import Tree
from topdown.projection.check import cross_checks
from topdown.projection.check.cross_checks import cross_check


def noisy(tree: Tree, seed: int = 3) -> td.Measurements:
    rng = np.random.default_rng(seed)
    truth = tree.aggregate(rng.poisson(4.0, tree.n_leaves).astype(np.float64))
    return measurements(tree, truth + np.rint(rng.laplace(size=tree.n_nodes) * 5), 50.0)


SMALL = Tree.from_family_sizes([[3], [4, 1, 6]])


@pytest.mark.parametrize("method", ["top-down", "gls", "gls-top-down", "joint"])
def test_a_small_tree_is_solved_whole(method: str) -> None:
    measured = noisy(SMALL)
    check = cross_check(measured, td.project(measured, method))
    assert check.agrees
    assert check.nodes == SMALL.n_nodes
    assert check.scope == "the whole tree"
    assert check.solver == "OSQP"
    assert check.largest_difference < 1e-6


@pytest.mark.parametrize("method", ["top-down", "gls", "gls-top-down", "joint"])
def test_subtrees_of_a_large_tree_agree(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_checks, "WHOLE", 60)
    tree = Tree.from_family_sizes([[9], [5] * 9, [2, 3, 1] * 15])
    measured = noisy(tree)
    check = cross_check(measured, td.project(measured, method), rng=np.random.default_rng(1))
    assert check.agrees
    assert "sample" in check.scope
    assert 20 < check.nodes < 400


@pytest.mark.parametrize("whole", [10_000, 4])
@pytest.mark.parametrize("method", ["top-down", "gls", "gls-top-down", "joint"])
def test_a_wrong_estimate_is_told_apart(method: str, whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_checks, "WHOLE", whole)
    measured = noisy(SMALL)
    right = td.project(measured, method)
    # Consistent still: a county in every state takes from its sibling; the state with one is left alone.
    wrong = right.values.copy()
    wrong[[4, 9]] += 0.01
    wrong[[5, 10]] -= 0.01
    check = cross_check(measured, replace(right, values=wrong), rng=np.random.default_rng(2))
    assert not check.agrees
    # A sample holds its subtrees' roots, so that below the wrong state the same 0.01 is found.
    assert check.largest_difference == pytest.approx(0.01, rel=1e-3)


def test_unmeasured_leaves_agree_where_only_their_sum_is_determined() -> None:
    rng = np.random.default_rng(8)
    values = SMALL.aggregate(rng.poisson(4.0, SMALL.n_leaves).astype(float)) + rng.normal(size=SMALL.n_nodes)
    variance = np.where(np.arange(SMALL.n_nodes) < 4, 4.0, np.inf)
    variance[5] = 1.0
    measured = measurements(SMALL, values, variance)
    for method in ("top-down", "gls", "gls-top-down", "joint"):
        assert cross_check(measured, td.project(measured, method)).agrees
