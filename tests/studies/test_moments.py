"""Sums over replicates and the statistics that they give, against numpy on the whole sample."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topdown.geography.tree import FloatArray
from topdown.noise import Laplace
from topdown.studies.moments import Accumulated, RuleSums, error_statistics, rule_statistics
from topdown.studies.residual_bins import BINS

WIDTH = np.full(4, 1 / 16)


def accumulated(errors: FloatArray, cuts: list[int], zeros: FloatArray | None = None) -> Accumulated:
    """The errors (rows, replicates) through tasks that end at ``cuts``."""
    total = Accumulated()
    bounds = [0, *sorted(cuts), errors.shape[1]]
    for task, (first, last) in enumerate(itertools.pairwise(bounds)):
        part = Accumulated()
        piece = errors[:, first:last]
        part.add_errors("m", piece, np.count_nonzero(piece == 0.0, axis=1))
        part.add_histogram("m", piece, WIDTH[: len(errors)])
        part.add_rule(("m", "r"), piece.T)
        total.merge(part.packed(), half=task % 2)
    return total


def statistics(total: Accumulated, replicates: int, rows: int = 4) -> dict[str, FloatArray]:
    return error_statistics(total, "m", replicates, [[None], [Laplace(1)]], [slice(0, 1), slice(1, rows)], (1, rows))


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 49), max_size=4))
def test_statistics_equal_those_of_the_sample(seed: int, cuts: list[int]) -> None:
    errors = np.random.default_rng(seed).laplace(size=(4, 50)) + np.arange(4)[:, None]
    errors[:, ::5] = 0.0
    found = statistics(accumulated(errors, cuts), 50)
    variance = errors.var(axis=1, ddof=1)
    np.testing.assert_allclose(found["bias"], errors.mean(axis=1), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found["bias_se"], np.sqrt(variance / 50), rtol=1e-9)
    np.testing.assert_allclose(found["variance"], variance, rtol=1e-9)
    centred = errors - errors.mean(axis=1, keepdims=True)
    m2, m4 = (centred**2).mean(axis=1), (centred**4).mean(axis=1)
    np.testing.assert_allclose(found["variance_se"], np.sqrt((m4 - m2**2 * 47 / 49) / 50), rtol=1e-7)
    squares = errors**2
    np.testing.assert_allclose(found["mse"], squares.mean(axis=1), rtol=1e-10)
    np.testing.assert_allclose(found["mse_se"], squares.std(axis=1, ddof=1) / np.sqrt(50), rtol=1e-8)
    np.testing.assert_allclose(found["zeros"], 0.2, rtol=1e-12)
    np.testing.assert_allclose(found["zeros_se"], np.sqrt(0.2 * 0.8 / 50), rtol=1e-12)


def test_variance_se_is_the_spread_of_variances() -> None:
    rng = np.random.default_rng(3)
    samples = rng.laplace(size=(4, 2000, 400))
    spread = samples.var(axis=2, ddof=1).std(axis=1)
    estimated = np.mean(
        [statistics(accumulated(samples[:, k], []), 400)["variance_se"] for k in range(0, 2000, 20)], axis=0
    )
    np.testing.assert_allclose(estimated, spread, rtol=0.09)


def test_one_replicate_has_no_variance() -> None:
    found = statistics(accumulated(np.ones((4, 1)), []), 1)
    np.testing.assert_array_equal(found["bias"], 1.0)
    for name in ("variance", *(name for name in found if name.endswith("_se"))):
        assert np.isnan(found[name]).all(), name
    assert np.isfinite(found["wasserstein"][1:]).all()
    total = Accumulated()
    total.add_rule(("m", "r"), np.ones((1, 3)))
    decided = rule_statistics(total.rules["m", "r"], 1)
    for name, values in decided.items():
        np.testing.assert_array_equal(values, np.nan if name.endswith("_se") else 1.0, err_msg=name)


def test_constant_errors_have_no_spread() -> None:
    found = statistics(accumulated(np.full((4, 30), 2.5), [10]), 30)
    np.testing.assert_array_equal(found["bias"], 2.5)
    np.testing.assert_array_equal(found["variance"], 0.0)
    np.testing.assert_array_equal(found["mse_se"], 0.0)


def test_tasks_alternate_between_the_halves() -> None:
    errors = np.random.default_rng(1).laplace(size=(4, 60))
    total = accumulated(errors, [10, 30])
    first, second = total.two_halves("m")
    assert (first.counts.sum(axis=1) == 40).all()
    assert (second.counts.sum(axis=1) == 20).all()
    assert (total.both_halves()["m"].counts.sum(axis=1) == 60).all()
    assert total.both_halves()["m"].counts.shape == (4, BINS)


def test_distances_where_there_is_a_law_only() -> None:
    errors = np.random.default_rng(1).laplace(size=(4, 60))
    found = statistics(accumulated(errors, [30]), 60)
    for name in ("wasserstein", "wasserstein_se", "wasserstein_floor", "wasserstein_corrected"):
        assert np.isnan(found[name]).tolist() == [True, False, False, False], name
    # One half alone: a distance, and nothing to correct it with.
    alone = statistics(accumulated(errors, []), 60)
    assert np.isfinite(alone["wasserstein"][1:]).all()
    assert np.isnan(alone["wasserstein_corrected"]).all()


def test_rows_of_several_cells_meet_their_level() -> None:
    rng = np.random.default_rng(2)
    # 2 cells x 2 nodes, cell by cell: node 1 of both cells has Laplace noise of scale 1, node 0 is far from it.
    errors = np.stack([5 * rng.laplace(size=4000) if row % 2 == 0 else rng.laplace(size=4000) for row in range(4)])
    total = accumulated(errors, [2000])
    laws = [[Laplace(5), Laplace(5)], [Laplace(1), Laplace(1)]]
    found = error_statistics(total, "m", 4000, laws, [slice(0, 1), slice(1, 2)], (2, 2))
    assert (found["wasserstein"][[1, 3]] < 0.1).all()
    # The bins of node 0 are those of another width, far too narrow, and what is beyond them is still measured.
    assert (found["wasserstein"][[0, 2]] < 0.5).all()


def test_rule_statistics_equal_those_of_the_sample() -> None:
    errors = np.random.default_rng(4).normal(size=(3, 70)) + 0.5
    total = accumulated(errors, [20, 40])
    found = rule_statistics(total.rules["m", "r"], 70)
    np.testing.assert_allclose(found["mean_error"], errors.mean(axis=1), rtol=1e-10)
    np.testing.assert_allclose(found["mean_error_se"], errors.std(axis=1, ddof=1) / np.sqrt(70), rtol=1e-8)
    size = np.abs(errors)
    np.testing.assert_allclose(found["mean_absolute_error"], size.mean(axis=1), rtol=1e-10)
    np.testing.assert_allclose(found["mean_absolute_error_se"], size.std(axis=1, ddof=1) / np.sqrt(70), rtol=1e-8)


@pytest.mark.parametrize("leaves", [0, 3])
def test_no_rules_give_zeros(leaves: int) -> None:
    found = rule_statistics(RuleSums.of(np.zeros((1, leaves))), 10)
    assert all(values.shape == (leaves,) and not values.any() for values in found.values())
