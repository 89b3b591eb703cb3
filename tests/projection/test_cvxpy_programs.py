"""The same programs by cvxpy: equal to the tree engine, and refused where a solver is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import topdown as td
from support.examples import examples
from support.trees import Case, cases, measurements, trees, wide_trees
from topdown.errors import ProjectionError
from topdown.geography.tree import Tree
from topdown.projection.check.cvxpy_programs import consistency_matrix

# Examples are the same in every run: what a solver cannot solve to twelve digits is no property of this package.
PROGRAMS = [
    ("top-down", True),
    ("top-down", False),
    ("gls", False),
    ("gls-top-down", True),
    ("joint", True),
]


def compare(case: Case, method: str, nonnegative: bool, solver: str) -> None:
    measured = case.measurements()
    if solver == "CLARABEL" and np.isinf(case.variance[0]).any():
        solver = "OSQP"  # what a root has from below leaves every condition of its family just met: Clarabel fails
    ours = td.project(measured, method, nonnegative=nonnegative)
    theirs = td.project(measured, method, nonnegative=nonnegative, engine="cvxpy", solver=solver)
    assert theirs.engine == "cvxpy"
    np.testing.assert_allclose(theirs.values, ours.values, atol=1e-6 * case.noise, rtol=0)
    if ours.variance is None:
        assert theirs.variance is None
    else:
        np.testing.assert_array_equal(theirs.variance, ours.variance)


@pytest.mark.parametrize(("method", "nonnegative"), PROGRAMS)
@examples(25, derandomize=True)
@given(case=cases(trees(max_leaves=30), max_cells=2, wild=False, far=False))
def test_clarabel_gives_the_same(method: str, nonnegative: bool, case: Case) -> None:
    compare(case, method, nonnegative, "CLARABEL")


@pytest.mark.parametrize(("method", "nonnegative"), PROGRAMS)
@examples(12, derandomize=True)
@given(case=cases(trees(max_levels=4, max_leaves=20), max_cells=1, wild=False, far=False, unmeasured_leaves=False))
def test_osqp_gives_the_same(method: str, nonnegative: bool, case: Case) -> None:
    compare(case, method, nonnegative, "OSQP")


@pytest.mark.parametrize(("method", "solver"), [("top-down", "CLARABEL"), ("joint", "OSQP")])
@examples(8, derandomize=True)
@given(case=cases(wide_trees(), max_cells=1, wild=False, far=False))
def test_large_families_give_the_same(method: str, solver: str, case: Case) -> None:
    compare(case, method, True, solver)


def test_uniform_weights_give_the_same() -> None:
    tree = Tree.from_family_sizes([[2], [3, 2]])
    rng = np.random.default_rng(3)
    measured = measurements(tree, rng.normal(size=tree.n_nodes) * 30, rng.uniform(1, 1e3, tree.n_nodes))
    for method in ("top-down", "joint"):
        ours = td.project(measured, method, weights="uniform")
        theirs = td.project(measured, method, weights="uniform", engine="cvxpy")
        np.testing.assert_allclose(theirs.values, ours.values, atol=1e-6)
        assert np.abs(ours.values - td.project(measured, method).values).max() > 0.1


def test_a_loose_solver_that_says_optimal_is_refused() -> None:
    rng = np.random.default_rng(1)
    tree = Tree.from_family_sizes([[6], [8] * 6])
    values = tree.aggregate(rng.poisson(3.0, tree.n_leaves).astype(float)) + rng.laplace(size=tree.n_nodes) * 10
    measured = measurements(tree, values, 200.0)
    loose = {"eps_abs": 0.1, "eps_rel": 0.1, "polishing": False}
    for method in ("joint", "top-down", "gls"):
        with pytest.raises(ProjectionError, match=r"certificate does not hold at .*'n\d+'.*take engine='tree'"):
            td.project(measured, method, engine="cvxpy", solver_options=loose)
        assert td.project(measured, method, engine="cvxpy").certificate.holds()


@pytest.mark.parametrize("solver", ["CLARABEL", "HIGHS", "SCS"])
def test_a_solver_prints_nothing(solver: str, capfd: pytest.CaptureFixture[str]) -> None:
    measured = measurements(Tree.from_family_sizes([[3]]), [10.0, 5, -2, 9], 4.0)
    td.project(measured, "top-down", engine="cvxpy", solver=solver)
    print("its own words")
    assert capfd.readouterr() == ("its own words\n", "")


def test_a_solver_that_is_not_there_or_stops_early_is_named() -> None:
    measured = measurements(Tree.from_family_sizes([[3]]), [10.0, 5, -2, 9], 4.0)
    with pytest.raises(ProjectionError, match=r"NOSUCH.*installed solvers are .*OSQP"):
        td.project(measured, "joint", engine="cvxpy", solver="NOSUCH")
    with pytest.raises(ProjectionError, match="OSQP"):
        td.project(measured, "joint", engine="cvxpy", solver_options={"max_iter": 1, "polishing": False})


def test_consistency_matrix_is_zero_on_tables_that_add_up() -> None:
    tree = Tree.from_family_sizes([[2], [1, 3]])
    a = consistency_matrix(tree)
    table = tree.aggregate(np.arange(4.0))
    np.testing.assert_array_equal(a @ table, np.zeros(3))
    table[1] += 1
    np.testing.assert_array_equal(a @ table, [1, -1, 0])


@pytest.mark.parametrize("solver", ["OSQP", "CLARABEL"])
def test_a_bound_that_is_far_away_is_kept_where_it_matters(solver: str) -> None:
    """Far bounds are left out at first; here the solution without them is below one of them."""
    measured = measurements(Tree.from_family_sizes([[2]]), [10.0, 1e6, 1e6], [0.0, 1.0, 100.0])
    for method in ("top-down", "gls-top-down", "joint"):
        x = td.project(measured, method, engine="cvxpy", solver=solver).values[:, 0]
        np.testing.assert_allclose(x, [10, 10, 0], atol=1e-4)


@pytest.mark.parametrize("method", ["top-down", "gls", "gls-top-down", "joint"])
@pytest.mark.parametrize("size", [1e3, 1e9, 4e15])
@pytest.mark.parametrize("spread", [1.0, 1e3])
def test_the_size_of_counts_does_not_matter_to_a_solver(method: str, size: float, spread: float) -> None:
    """Its answer is off by its tolerance and by rounding of numbers of that size, and certified as such."""
    rng = np.random.default_rng(7)
    tree = Tree.from_family_sizes([[3], [4, 1, 6]])
    truth = tree.aggregate(np.rint(rng.random(tree.n_leaves) * size / tree.n_leaves))
    deviation = np.where(np.arange(tree.n_nodes) % 2, 1.0, spread)
    values = np.rint(truth + deviation * rng.laplace(size=tree.n_nodes))
    measured = measurements(tree, values, deviation**2)
    ours = td.project(measured, method).values
    theirs = td.project(measured, method, engine="cvxpy")
    assert theirs.certificate.holds()
    np.testing.assert_allclose(theirs.values, ours, rtol=0, atol=1e-5 + 8 * np.finfo(float).eps * size)
