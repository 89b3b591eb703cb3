"""Certificates node by node: variances over 12 orders of magnitude, values up to 2^52, one small error anywhere."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import topdown as td
from support.examples import examples
from support.trees import extreme, measurements
from topdown.geography.tree import FloatArray, Tree
from topdown.projection.check.certificate import Certificate
from topdown.projection.method import METHODS as BY_NAME
from topdown.projection.method import Problem
from topdown.projection.project import certified
from topdown.projection.solver_inputs import stated

METHODS = [("top-down", True), ("top-down", False), ("gls", False), ("gls-top-down", True), ("joint", True)]
SEEDS = st.integers(0, 2**32 - 1)
RESOLVED = 256 * float(np.finfo(np.float64).eps)
"""Part of the largest number in a problem that float64 is sure to tell apart anywhere in it."""


def solved(seed: int, method: str, nonnegative: bool) -> tuple[Problem, FloatArray, FloatArray]:
    """The program, its solution, and every node's own standard deviation (0 where it has none)."""
    problem = stated(extreme(seed).measurements(), "variance", nonnegative=nonnegative)
    variance = np.broadcast_to(problem.variance, problem.values.shape)[0]
    return problem, BY_NAME[method].for_cells().solve(problem), np.sqrt(np.where(np.isfinite(variance), variance, 0.0))


def largest(problem: Problem, x: FloatArray) -> float:
    return max(float(np.abs(x).max()), float(np.abs(np.nan_to_num(problem.values)).max()))


@pytest.mark.parametrize(("method", "nonnegative"), METHODS)
@examples(250)
@given(seed=SEEDS)
def test_every_correct_solution_is_accepted(method: str, nonnegative: bool, seed: int) -> None:
    assert td.project(extreme(seed).measurements(), method, nonnegative=nonnegative).certificate.holds()


def path(tree: Tree, node: int, may: Callable[[int], bool], rng: np.random.Generator) -> list[int]:
    """``node`` and one node of every level below it, all of which ``may`` change; empty if there are none."""
    chosen = [node]
    while chosen[-1] < tree.n_families:
        children = tree.children(chosen[-1])
        able = [k for k in range(children.start, children.stop) if may(k)]
        if not able:
            return []
        chosen.append(int(rng.choice(able)))
    return chosen if may(node) else []


def moved(
    problem: Problem, x: FloatArray, deviation: FloatArray, nonnegative: bool, rng: np.random.Generator
) -> tuple[list[int], list[int], float] | None:
    """Nodes that may gain, nodes that may lose as much, and how much: 1e-3 of their least deviation. None: none may."""
    tree = problem.tree
    floor = np.zeros(tree.n_nodes) if problem.lower is None else problem.lower[0]
    for family in rng.permutation(tree.n_families):
        children = tree.children(int(family))
        for first, second in islice(permutations(rng.permutation(np.arange(children.start, children.stop)), 2), 12):
            up = path(tree, int(first), lambda k: bool(deviation[k] > 0), rng)
            down = path(
                tree, int(second), lambda k: bool(deviation[k] > 0 and (not nonnegative or x[0, k] > floor[k])), rng
            )
            if not up or not down:
                continue
            step = 1e-3 * float(deviation[up + down].min())
            if step > RESOLVED * largest(problem, x) and (not nonnegative or (x[0] - floor)[down].min() >= step):
                return up, down, step
    return None


@pytest.mark.parametrize(("method", "nonnegative"), METHODS)
@examples(250)
@given(seed=SEEDS)
def test_a_thousandth_of_a_deviation_at_one_node_is_refused(method: str, nonnegative: bool, seed: int) -> None:
    """Consistent and non-negative still: something moved from below one child of a family to below another.

    By 1e-3 of the least deviation of all nodes that change; where all of them were measured, none exactly.
    """
    rng = np.random.default_rng(seed)
    problem, x, deviation = solved(seed, method, nonnegative)
    found = moved(problem, x, deviation, nonnegative, rng)
    assume(found is not None)
    assert found is not None
    up, down, step = found
    wrong = x.copy()
    wrong[0, up] += step
    wrong[0, down] -= step
    assert certified(problem, x, BY_NAME[method].for_cells()).holds()
    assert not certified(problem, wrong, BY_NAME[method].for_cells()).holds()


@pytest.mark.parametrize(("method", "nonnegative"), METHODS)
@examples(150)
@given(seed=SEEDS, add=st.sampled_from([1.0, -1.0]))
def test_one_unit_too_much_at_one_node_is_refused(method: str, nonnegative: bool, seed: int, add: float) -> None:
    problem, x, _ = solved(seed, method, nonnegative)
    assume(problem.tree.n_families > 0)
    assume(RESOLVED * largest(problem, x) < 1)
    node = seed % problem.tree.n_nodes
    wrong = x.copy()
    wrong[0, node] += add
    certificate = certified(problem, wrong, BY_NAME[method].for_cells())
    assert certificate.consistency > 0.9
    assert not certificate.holds()


def certificate_of(tree: Tree, x: FloatArray, values: FloatArray, variance: FloatArray, method: str) -> Certificate:
    problem = stated(measurements(tree, values, variance), "variance", nonnegative=True)
    return certified(problem, x[None], BY_NAME[method].for_cells())


@pytest.mark.parametrize("ratio", [1e8, 3e10, 1e13, 1e16])
@pytest.mark.parametrize("precise", ["leaves", "inner", "mixed"])
def test_joint_is_certified_at_any_ratio_of_variances(precise: str, ratio: float) -> None:
    tree = Tree.from_family_sizes([[6], [5, 1, 9, 3, 7, 4]])
    rng = np.random.default_rng(int(np.log10(ratio)))
    truth = tree.aggregate(rng.poisson(20.0, tree.n_leaves).astype(np.float64))
    small = {
        "leaves": np.arange(tree.n_nodes) >= 7,
        "inner": np.arange(tree.n_nodes) < 7,
        "mixed": rng.random(36) < 0.5,
    }
    variance = np.where(small[precise], 1e-2, 1e-2 * ratio)
    values = truth + rng.laplace(size=tree.n_nodes) * np.sqrt(variance)
    estimate = td.project(measurements(tree, values, variance), "joint")
    assert estimate.certificate.holds()
    assert estimate.certificate.deviations <= 1e-10


@pytest.mark.parametrize("method", ["top-down", "gls-top-down", "joint"])
def test_precise_counties_are_judged_by_their_own_noise(method: str) -> None:
    """Beside deviations of 1e5, two thirds of one of 0.1 used to pass."""
    tree = Tree.from_family_sizes([[2], [3, 3]])
    deviation = np.array([0.1, 1e5, 1e5, 0.1, 0.1, 1e5, 0.1, 0.1, 1e5])
    values = np.array([60_000.0, 29_000, 31_500, 10_000, 9_000, 10_500, 9_800, 10_200, 11_000])
    x = td.project(measurements(tree, values, deviation**2), method).values[:, 0]
    assert certificate_of(tree, x, values, deviation**2, method).holds()
    for step in (0.067, 1e-4):
        wrong = x.copy()
        wrong[[3, 4]] += [step, -step]
        found = certificate_of(tree, wrong, values, deviation**2, method)
        assert not found.holds()
        assert found.worst_node in (1, 3, 4, 5)
        assert found.deviations > step


def test_a_wrong_solution_that_hides_in_many_vague_leaves_is_refused() -> None:
    """A thousand leaves with next to nothing each, below a parent that is known: they are not all as good as 0."""
    tree = Tree.from_family_sizes([[1], [1000]])
    variance = np.concatenate([[0.01, 0.01], np.full(1000, 1e10)])
    values = np.concatenate([[10.0, 10.0], np.full(1000, -3e4)])
    x = td.project(measurements(tree, values, variance), "joint").values[:, 0]
    assert certificate_of(tree, x, values, variance, "joint").holds()
    for factor in (1.001, 0.999, 2.0):
        assert not certificate_of(tree, x * factor, values, variance, "joint").holds()
