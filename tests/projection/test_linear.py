"""Projections onto any linear constraints: against brute force, solvers, trees and the theorems."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import topdown as td
from support.trees import measurements
from topdown.errors import ConfigError, ProjectionError
from topdown.geography.tree import Tree
from topdown.projection.check.cvxpy_programs import consistency_matrix
from topdown.projection.linear.project_linear import _Constraints, _Program

FORMS = [np.asarray, sp.csr_array, sp.coo_matrix]


def problem(seed: int, entries: int = 12, rows: int = 4, spread: float = 2.0) -> tuple[Any, ...]:
    """(y, A, b, variance, truth): marginals of a non-negative table, the last row the sum of two others."""
    rng = np.random.default_rng(seed)
    constraints = rng.integers(-1, 3, (rows, entries)).astype(float)
    constraints[-1] = constraints[0] + constraints[1]
    truth = np.maximum(rng.normal(0, 20, entries), 0)
    variance = 10 ** rng.uniform(-spread, spread, entries)
    return truth + rng.normal(size=entries) * 3 * np.sqrt(variance), constraints, constraints @ truth, variance, truth


def closed_form(y: Any, a: Any, b: Any, variance: Any) -> Any:
    """The paper's formula, with weights, by the pseudoinverse."""
    weighted = a * variance
    return y - weighted.T @ np.linalg.pinv(weighted @ a.T, rcond=1e-12) @ (a @ y - b)


def best_by_enumeration(y: Any, a: Any, b: Any, variance: Any) -> Any:
    """The non-negative optimum, by trying every set of entries that are 0."""
    best, least = None, np.inf
    for zeros in chain.from_iterable(combinations(range(len(y)), k) for k in range(len(y))):
        free = np.setdiff1d(np.arange(len(y)), zeros)
        x = np.zeros(len(y))
        x[free] = closed_form(y[free], a[:, free], b, variance[free])
        cost = ((x - y) ** 2 / variance).sum()
        if np.abs(a @ x - b).max() < 1e-8 and x.min() > -1e-10 and cost < least:
            best, least = x, cost
    return best


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(5))
def test_the_equality_projection_is_the_closed_form(seed: int, form: Any) -> None:
    y, a, b, variance, _ = problem(seed)
    found = td.project_linear(y, form(a), b, variance=variance)
    assert found.values == pytest.approx(closed_form(y, a, b, variance), abs=1e-9)
    assert found.certificate.holds(1e-12)
    matrix = np.eye(len(y)) - (a * variance).T @ np.linalg.pinv((a * variance) @ a.T, rcond=1e-12) @ a
    assert found.covariance == pytest.approx((matrix * variance) @ matrix.T, abs=1e-9 * variance.max())
    assert found.variance == pytest.approx(np.diag(found.covariance))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(8))
def test_the_nonnegative_projection_is_the_best_of_all_active_sets(seed: int, form: Any) -> None:
    y, a, b, variance, _ = problem(seed, entries=8, rows=3, spread=1.0)
    found = td.project_linear(y, form(a), b, variance=variance, nonnegative=True)
    assert found.values == pytest.approx(best_by_enumeration(y, a, b, variance), abs=1e-8)
    assert found.values.min() >= 0
    assert found.certificate.holds(1e-12)
    assert (found.covariance, found.variance) == (None, None)


@pytest.mark.parametrize("solver", ["OSQP", "CLARABEL"])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_solvers_find_the_same(nonnegative: bool, solver: str) -> None:
    for seed in range(3):
        y, a, b, variance, _ = problem(seed, 30, 8)
        ours = td.project_linear(y, sp.csr_array(a), b, variance=variance, nonnegative=nonnegative)
        theirs = td.project_linear(y, a, b, variance=variance, nonnegative=nonnegative, engine="cvxpy", solver=solver)
        assert (np.abs(ours.values - theirs.values) / np.sqrt(variance)).max() < 1e-8
        assert theirs.certificate.tolerance > ours.certificate.tolerance


@pytest.mark.parametrize("nonnegative", [False, True])
def test_a_tree_is_a_special_case(nonnegative: bool) -> None:
    rng = np.random.default_rng(3)
    tree = Tree.from_family_sizes([[6], [4] * 6, [3] * 24])
    variance = 10 ** rng.uniform(-1, 2, tree.n_nodes)
    noisy = rng.normal(3, 10, (tree.n_nodes, 2))
    noisy[0] += 100
    method = "joint" if nonnegative else "gls"
    expected = td.project(measurements(tree, noisy, np.tile(variance[:, None], 2)), method)
    families = consistency_matrix(tree)
    for form in (families, families.toarray()):
        found = td.project_linear(noisy, form, np.zeros(tree.n_families), variance=variance, nonnegative=nonnegative)
        assert np.abs(found.values - expected.values).max() < 1e-9
        if not nonnegative:
            assert expected.variance is not None
            assert found.variance == pytest.approx(expected.variance[:, 0], rel=1e-10)


def test_one_sum_is_the_projection_of_a_family() -> None:
    y, total = np.array([5.0, -3.0, 1.0, 0.5]), 4.0
    found = td.project_linear(y, np.ones((1, 4)), [total], nonnegative=True)
    assert found.values == pytest.approx([4.25 - 0.25, 0.0, 0.0, 0.0])  # threshold 1: 5 - 1 = 4
    assert td.project_linear(y, np.ones((1, 4)), [total]).values == pytest.approx(y + (total - y.sum()) / 4)


def test_a_draw_and_its_mirror_image_make_opposite_errors() -> None:
    y, a, b, variance, truth = problem(1)
    both = td.project_linear(np.stack([y, 2 * truth - y], axis=1), a, b, variance=variance).values
    assert both.sum(axis=1) == pytest.approx(2 * truth, abs=1e-9)
    with_signs = td.project_linear(
        np.stack([y, 2 * truth - y], axis=1), a, b, variance=variance, nonnegative=True
    ).values
    assert np.abs(with_signs.sum(axis=1) - 2 * truth).max() > 0.1


def test_a_projection_comes_nearer_to_whatever_meets_the_constraints() -> None:
    y, a, b, variance, truth = problem(2)
    for nonnegative in (False, True):
        x = td.project_linear(y, a, b, variance=variance, nonnegative=nonnegative).values
        # Obtuse angle (a right one without signs) between y - x and the way from x to any feasible point.
        angle = ((y - x) * (truth - x) / variance).sum()
        assert angle < 1e-8 if nonnegative else abs(angle) < 1e-8
        assert ((x - truth) ** 2 / variance).sum() <= ((y - truth) ** 2 / variance).sum()


def test_each_table_may_have_its_own_totals() -> None:
    y, a, b, variance, _ = problem(6)
    found = td.project_linear(np.stack([y, y], axis=1), a, np.stack([b, 2 * b], axis=1), variance=variance)
    assert a @ found.values == pytest.approx(np.stack([b, 2 * b], axis=1), abs=1e-9)
    assert found.multipliers.shape == (len(b), 2)


def test_exact_entries_stay_as_they_are() -> None:
    y, a, b, variance, truth = problem(4)
    y[2], variance[2] = truth[2], 0.0
    for nonnegative in (False, True):
        found = td.project_linear(y, sp.csr_array(a), b, variance=variance, nonnegative=nonnegative)
        assert found.values[2] == truth[2]
    assert found.certificate.holds()


def test_large_values_beside_small_noise_are_met_to_rounding() -> None:
    rng = np.random.default_rng(5)
    truth = np.concatenate([rng.integers(0, 3, 40), rng.integers(0, 2**35, 10)]).astype(float)
    a = rng.integers(0, 2, (12, 50)).astype(float)
    found = td.project_linear(truth + rng.laplace(0, 1, 50).round(), a, a @ truth, nonnegative=True)
    assert np.abs(a @ found.values - a @ truth).max() < 2.0**-10
    assert found.values.min() >= 0


def test_a_wrong_answer_has_no_certificate() -> None:
    y, a, b, variance, _ = problem(1)
    program = _Program(_Constraints(a, variance), y, b, True)
    x, multipliers = program.solved()
    assert program.certificate(x, multipliers, "active-set").holds()
    null = np.linalg.svd(a)[2][-1]
    assert not program.certificate(x + 1e-6 * null, multipliers, "active-set").holds()
    assert not program.certificate(x + 1e-6, multipliers, "active-set").holds()
    assert not program.certificate(x, multipliers + 1e-6, "active-set").holds()


def test_what_cannot_be_met_is_refused_by_row() -> None:
    with pytest.raises(ProjectionError, match=r"contradict each other.*row [01]"):
        td.project_linear(np.ones(3), [[1, 1, 1], [2, 2, 2]], [1, 3])
    with pytest.raises(ProjectionError, match="no x >= 0 meets the constraints"):
        td.project_linear(np.ones(3), [[1, 1, 1], [1, 1, 0]], [1, 3], nonnegative=True)
    assert td.project_linear(np.ones(3), [[1, 1, 1], [1, 1, 0]], [1, 3]).values == pytest.approx([1.5, 1.5, -2])
    with pytest.raises(ProjectionError, match="entry 1 is exact"):
        td.project_linear([1.0, -2.0], [[1, 1]], [1], variance=[1, 0], nonnegative=True)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"A": [1.0, 2.0]}, "A has shape"),
        ({"A": [[1.0, np.nan]]}, "finite numbers"),
        ({"A": sp.csr_array([[1.0, np.inf]])}, "not finite"),
        ({"y": [1.0]}, "y has shape"),
        ({"y": [1.0, np.nan]}, "y is not finite at position 1"),
        ({"b": [[1.0, 2.0]]}, "b has 2 columns"),
        ({"variance": [1.0, -1.0]}, "variance of entry 1"),
        ({"variance": np.inf}, "variance of entry 0"),
        ({"engine": "cvx"}, "did you mean 'cvxpy'"),
    ],
)
def test_bad_input_is_named(changed: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"y": [1.0, 2.0], "A": [[1.0, 1.0]], "b": [3.0]} | changed
    with pytest.raises(ConfigError, match=words):
        td.project_linear(given.pop("y"), given.pop("A"), given.pop("b"), **given)
