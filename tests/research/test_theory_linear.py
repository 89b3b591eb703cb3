"""The theorems under any linear constraints: the projection's matrix, covariance, and the bound on the bias."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from support.examples import examples
from support.places import GOLDEN
from topdown.errors import ConfigError

A = np.array([[1.0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1], [1, 0, 0, 0, 0, 1], [1, 1, 2, 2, 1, 1]])


def test_the_matrix_is_the_orthogonal_projection_of_the_weights() -> None:
    variance = np.array([1.0, 4.0, 0.25, 9.0, 2.0, 1.0])
    m = td.theory.linear_projection_matrix(sp.csr_array(A), variance)
    assert m @ m == pytest.approx(m, abs=1e-12)
    assert A @ m == pytest.approx(np.zeros((4, 6)), abs=1e-12)
    symmetric = m / variance[:, None]
    assert symmetric == pytest.approx(symmetric.T, abs=1e-12)
    assert np.trace(m) == pytest.approx(6 - 3)  # the last row is the sum of the first two


def test_what_is_exact_has_no_error() -> None:
    m = td.theory.linear_projection_matrix(A, [0.0, 1, 1, 1, 1, 1])
    assert m[0] == pytest.approx(np.eye(6)[0])
    assert td.theory.linear_projection_covariance(A, [0.0, 1, 1, 1, 1, 1])[0] == pytest.approx(np.zeros(6))


def test_the_covariance_of_a_sum_is_the_papers() -> None:
    n, variance = 7, 200.0
    covariance = td.theory.linear_projection_covariance(np.ones((1, n)), variance)
    assert covariance == pytest.approx(variance * (np.eye(n) - 1 / n))
    assert covariance[0, 0] == pytest.approx(td.theory.projected_variance(n, 10.0))


def test_unit_weights_for_noise_of_other_variances_are_never_better() -> None:
    noise = np.array([1.0, 4.0, 0.25, 9.0, 2.0, 1.0])
    best = td.theory.linear_projection_covariance(A, noise)
    unit = td.theory.linear_projection_covariance(A, 1.0, noise_variance=noise)
    assert np.linalg.eigvalsh(unit - best).min() > -1e-12
    assert np.trace(unit) > np.trace(best) + 0.1


def test_the_bound_on_a_sum_is_that_of_a_family() -> None:
    for row in GOLDEN["S2_theorem4_bound"]["rows"][:3]:
        rest = (row["total"] - row["x_min"]) / (row["n"] - 1)
        values = [row["x_min"], *[rest] * (row["n"] - 1)]
        found = td.theory.linear_bias_bound(values, np.ones((1, row["n"])), row["lam"])
        assert float(found) == pytest.approx(td.theory.bias_bound(values, row["lam"]), rel=1e-9)
        assert not found.void


def test_the_bound_on_a_tree_is_that_of_the_tree() -> None:
    values, parent = [100.0, 60, 40, 25, 35, 30, 10], [-1, 0, 0, 1, 1, 2, 2]
    families = [[1.0, -1, -1, 0, 0, 0, 0], [0, 1, 0, -1, -1, 0, 0], [0, 0, 1, 0, 0, -1, -1], [1, 0, 0, 0, 0, 0, 0]]
    found = td.theory.linear_bias_bound(values, families, 2.0)
    expected = td.theory.tree_bias_bound(values, parent, 2.0, root_fixed=True)
    assert (found.constant, found.dimension, found.radius) == (expected.constant, expected.dimension, expected.radius)
    assert float(found) == pytest.approx(float(expected))


def test_the_bound_holds_where_constraints_cross() -> None:
    truth = np.array([3.0, 5, 4, 6, 7, 5])
    crossed = np.kron(np.eye(2), np.ones(3)), np.kron(np.ones(2), np.eye(3))
    a = np.concatenate(crossed)
    noise = td.noise.Laplace(1.0).sample((6, 4000), td.SeededSource(3))
    errors = td.project_linear(truth[:, None] + noise, a, a @ truth, nonnegative=True).values - truth[:, None]
    bound = td.theory.linear_bias_bound(truth, a, 1.0)
    assert np.abs(errors.mean(axis=1)).max() < float(bound)
    assert bound.constant == pytest.approx(7.0)  # the second entry may hold all of its row, 12, and is 5
    assert np.abs(errors).max() <= bound.constant


@given(seed=st.integers(0, 2**32 - 1), entries=st.integers(2, 9), rows=st.integers(1, 4), part=st.floats(0, 1))
@examples(100)
def test_lemma_3_within_the_ball_signs_change_nothing(seed: int, entries: int, rows: int, part: float) -> None:
    """Over random programs A v = A x, 20 tables in each: (P+) is (P) wherever the noise is within the ball."""
    rng = np.random.default_rng(seed)
    truth = rng.exponential(10.0, entries) + rng.choice([0.0, 5.0])
    a = rng.integers(-1, 3, (rows, entries)).astype(float)
    noise = rng.laplace(size=(entries, 20)) * rng.choice([0.02, 1.0], (entries, 20))
    # Half of the tables at the given part of the ball's radius, the others wherever they fall.
    noise[:, :10] *= part * truth.min() / np.abs(noise[:, :10]).sum(axis=0)
    noisy = truth[:, None] + noise
    safe = td.theory.in_safe_ball(truth, noisy)
    assert safe[:10].all() or part > 0.999999
    found = [td.project_linear(noisy, a, a @ truth, nonnegative=signs).values for signs in (False, True)]
    assert np.abs(found[0] - found[1])[:, safe].max(initial=0.0) < 1e-9 * (1 + truth.max())
    assert found[0][:, safe].min(initial=0.0) > -1e-9


def test_lemma_3_beyond_the_ball_signs_matter_and_the_mean_within_is_the_truth() -> None:
    truth, a = np.array([1.0, 4.0, 7.0]), np.ones((1, 3))
    noisy = truth[:, None] + td.noise.Laplace(1.0).sample((3, 10_000), td.SeededSource(2))
    safe = td.theory.in_safe_ball(truth, noisy)
    assert safe.mean() == pytest.approx(td.theory.l1_ball_probability(3, 1.0, 1.0), abs=0.012)
    errors = td.project_linear(noisy, a, [12.0], nonnegative=True).values - truth[:, None]
    error = errors[:, safe].std(axis=1) / np.sqrt(safe.sum())
    assert (np.abs(errors[:, safe].mean(axis=1)) < 5 * error).all()
    assert errors[0, ~safe].mean() > 0.05
    assert td.theory.in_safe_ball(truth, [1.5, 4.5, 7.0])
    assert not td.theory.in_safe_ball(truth, [1.5, 4.5, 7.01])
    for wrong in ([-1.0, 4.0, 7.0], [np.inf, 1.0, 1.0], [1.0, 2.0]):
        with pytest.raises(ConfigError, match="finite true values"):
            td.theory.in_safe_ball(wrong, [1.0, 4.0, 7.0])


def test_a_set_without_an_upper_bound_makes_it_void() -> None:
    found = td.theory.linear_bias_bound([1.0, 2.0, 3.0], [[1.0, -1.0, 0.0], [0.0, 0.0, 1.0]], 1.0)
    assert found.void
    assert float(found) == np.inf
    assert float(td.theory.linear_bias_bound([1.0, 2.0], np.eye(2), 1.0)) == 0.0


def test_what_is_no_matrix_is_refused() -> None:
    with pytest.raises(ConfigError, match="A has shape"):
        td.theory.linear_projection_matrix([1.0, 2.0])
    with pytest.raises(ConfigError, match="A is not a matrix of numbers"):
        td.theory.linear_projection_matrix([["a"]])
    with pytest.raises(ConfigError, match="values must be 2"):
        td.theory.linear_bias_bound([1.0], [[1.0, 1.0]], 1.0)
