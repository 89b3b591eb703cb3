"""The second opinion: agrees with what is right, on whole trees and samples, and not with what is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import topdown as td
from support.trees import measurements
from topdown.errors import ProjectionError
from topdown.geography.tree import FloatArray, Tree
from topdown.projection.check import cross_checks, cvxpy_programs
from topdown.projection.check.cross_checks import cross_check
from topdown.projection.method import CvxpySolver, Problem, Program


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


def test_exact_units_of_0_stay_so_where_others_are_not_measured() -> None:
    rng = np.random.default_rng(8)
    tree = Tree.from_family_sizes([[2], [40, 40], [1, *[3] * 79]])
    values = rng.normal(size=tree.n_nodes) * 30.0
    variance = np.full(tree.n_nodes, 900.0)
    values[:3] = variance[:3] = 0.0
    variance[tree.leaves.start] = np.inf  # an only child, whose share its parent has
    measured = measurements(tree, values, variance)
    assert cross_check(measured, td.project(measured, "gls", nonnegative=False)).agrees


MANY = Tree.from_family_sizes([[5_598]])
"""A family of the size of Brazil's municipalities, of which 132 cells are counted."""


@pytest.fixture(scope="module")
def many_cells() -> tuple[td.Measurements, td.Estimate]:
    rng = np.random.default_rng(5)
    truth = MANY.aggregate(rng.poisson(rng.lognormal(1.0, 1.5, (132, MANY.n_leaves))).astype(np.float64))
    measured = measurements(MANY, (truth + np.rint(rng.laplace(size=truth.shape) * 5)).T, 50.0)
    return measured, td.project(measured, "gls-top-down")


def test_of_many_cells_a_sample_is_solved_again(
    many_cells: tuple[td.Measurements, td.Estimate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chosen by the sizes and the stream: on every computer the same, however long it takes there."""
    solved: list[bytes] = []
    right = cvxpy_programs.solve_cells

    def listed(program: Program[Problem], solver: CvxpySolver) -> FloatArray:
        solved.append(program.given.values.tobytes())
        return right(program, solver)

    monkeypatch.setattr(cvxpy_programs, "solve_cells", listed)
    checks = [cross_check(*many_cells, rng=np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert [check.agrees for check in checks] == [True] * 3
    assert {check.scope for check in checks} == {"the whole tree for 7 of 132 cells"}
    assert checks[0] == checks[1]
    assert len(solved) == 21
    assert solved[:7] == solved[7:14]
    assert set(solved[:7]) != set(solved[14:])


def test_a_tenth_of_a_large_release_is_more_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, rng = np.arange(7), np.random.default_rng(1)
    assert len(cross_checks._some_cells(cells, [SMALL] * 20, 100_000, rng)) == 1
    assert len(cross_checks._some_cells(cells, [SMALL] * 20, 8_000_000, rng)) == 7
    assert cross_checks._some_cells(cells, [SMALL], 20, rng).tolist() == cells.tolist()


def test_a_solver_takes_no_more_steps_than_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then OSQP would go on for 200,000."""
    given: list[dict[str, object]] = []
    right = cvxpy_programs._DIRECT["OSQP"]

    def listed(statement: cvxpy_programs.Statement, options: dict[str, object]) -> FloatArray:
        given.append(options)
        return right(statement, options)

    monkeypatch.setitem(cvxpy_programs._DIRECT, "OSQP", listed)
    measured = noisy(SMALL)
    assert cross_check(measured, td.project(measured, "gls")).agrees
    assert [options["max_iter"] for options in given] == [2_000]


def test_where_a_solver_fails_at_a_cell_another_is_asked_for_that_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    values = SMALL.aggregate(rng.poisson(4.0, (3, SMALL.n_leaves)).astype(np.float64)) + rng.normal(size=(3, 15))
    measured = measurements(SMALL, values.T, 2.0)
    asked: list[str] = []
    right = cvxpy_programs.solve_cells

    def moody(program: Program[Problem], solver: CvxpySolver) -> FloatArray:
        asked.append(solver.name)
        if solver.name == "OSQP" and program.given.values[0, 0] == values[1, 0]:
            raise ProjectionError("gave up")
        return right(program, solver)

    monkeypatch.setattr(cvxpy_programs, "solve_cells", moody)
    check = cross_check(measured, td.project(measured, "gls"))
    assert check.agrees
    assert asked == ["OSQP", "OSQP", "CLARABEL", "OSQP"]
    assert check.solver == "OSQP, CLARABEL"


def statement(seed: int) -> cvxpy_programs.Statement:
    """Least squares of ten unknowns: one equation, three bounds, and two rows within limits."""
    rng = np.random.default_rng(seed)
    low = np.where(np.arange(10) < 3, 0.5, -np.inf)
    rows, ends = rng.normal(size=(3, 10)), np.array([0.1, np.inf, 0.1])
    equation = np.ones((1, 10))
    return cvxpy_programs.Statement(
        rng.normal(size=(12, 10)), rng.normal(size=12), equation, np.ones(1), low, rows, -ends, ends
    )


@pytest.mark.parametrize("seed", range(5))
def test_osqp_itself_gives_what_it_gives_by_cvxpy(seed: int) -> None:
    itself, by_cvxpy = (statement(seed).solved(CvxpySolver("OSQP", {}, direct)) for direct in (True, False))
    np.testing.assert_allclose(itself, by_cvxpy, atol=1e-7)
    assert (itself[:3] >= 0.5 - 1e-7).all()
    assert itself.sum() == pytest.approx(1)


def test_osqp_itself_says_where_it_finds_nothing() -> None:
    contradictory = statement(1)._replace(equations=np.ones((2, 10)), totals=np.array([1.0, 2.0]))
    with pytest.raises(ProjectionError, match="OSQP ended as 'primal infeasible'; try another solver"):
        contradictory.solved(CvxpySolver("OSQP", {}, direct=True))
    with pytest.raises(ProjectionError, match="OSQP failed"):
        statement(1).solved(CvxpySolver("OSQP", {"max_iter": -1}, direct=True))


def test_of_the_checks_of_pieces_every_solver_is_named_once() -> None:
    pieces = [cross_checks.CrossCheck(name, "a part", 1, 0.0, 1.0) for name in ("CLARABEL, OSQP", "OSQP")]
    assert cross_checks.CrossCheck.together(pieces).solver == "CLARABEL, OSQP"
