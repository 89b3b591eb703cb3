"""The false discovery rate of biases, and how the most biased are picked."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import topdown as td
from support.simulated import counts_of
from topdown.studies.discoveries import RATE, at_least, biased, discoveries


def test_the_steps_are_those_of_benjamini_and_hochberg() -> None:
    """The sorted p-values of their paper's example (1995, section 3.3): 4 of 15 are found at 5 %."""
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528]
    p += [0.7590, 1.0]
    replicates = 1_000_000
    values = stats.t.isf(np.array(p) / 2.0, replicates - 1)
    found = discoveries(values * 3.0, np.full(15, 3.0), replicates)
    assert found.tolist() == [True] * 4 + [False] * 11


def test_of_what_is_found_few_are_false() -> None:
    """300 of 2,000 means are not 0; the part of false findings is at most 5 % on average, single tests have 25 %."""
    rng = np.random.default_rng(7)
    truth = np.zeros(2000)
    truth[:300] = rng.uniform(0.3, 1.0, 300)
    false, single, power = [], [], []
    for _ in range(40):
        sample = rng.laplace(size=(100, 2000)) + truth
        mean, error = sample.mean(axis=0), sample.std(axis=0, ddof=1) / 10.0
        found = discoveries(mean, error, 100)
        alone = np.abs(mean) > 1.96 * error
        false.append(found[300:].sum() / max(found.sum(), 1))
        single.append(alone[300:].sum() / alone.sum())
        power.append(found[:300].mean())
    assert np.mean(false) < RATE
    assert np.mean(single) > 0.2
    assert np.mean(power) > 0.6


def test_raw_noise_has_no_bias_to_find() -> None:
    counts = counts_of([5] * 900, [[30], [30] * 30])
    table = td.simulate(counts, td.Plan(epsilon=1), ["raw", "top-down"], 300, 8, distances=False)
    leaves = table.geography.tree.leaves
    alone = np.abs(table["raw", "bias"][leaves, 0]) > 1.96 * table["raw", "bias_se"][leaves, 0]
    assert alone.sum() > 20
    assert not biased(table, "raw", leaves, 0).any()
    assert biased(table, "raw", leaves, slice(None)).shape == (900, 1)


def test_what_float64_leaves_is_no_bias() -> None:
    assert not discoveries([1e-9], [1e-12], 100, resolution=1e-6).any()
    assert discoveries([1e-3], [0.0], 100, resolution=1e-6).all()


@pytest.mark.parametrize(("error", "replicates"), [(np.nan, 1), (np.nan, 100)])
def test_without_a_standard_error_nothing_is_found(error: float, replicates: int) -> None:
    assert not discoveries([5.0], [error], replicates).any()


def test_the_most_biased_is_not_the_one_with_the_largest_error() -> None:
    np.testing.assert_allclose(at_least([-3.0, 5.0, 0.1], [0.1, 4.0, 0.1]), [3 - 0.196, 0, 0], atol=1e-3)
    np.testing.assert_allclose(at_least([-3.0], [np.nan]), [3.0])
