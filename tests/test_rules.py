"""Decision rules against brute force, alone and in a study."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_simulate import counts_of, public_root

import topdown as td
from topdown.errors import ConfigError
from topdown.evaluation import simulate as simulate_module
from topdown.evaluation.methods import parse_methods
from topdown.evaluation.rules import FundShare, Threshold
from topdown.projection.problem import Problem
from topdown.tree import Tree

TREE = Tree.from_family_sizes([[2], [2, 3]])
CELLS = ("employed", "unemployed")


def tables() -> st.SearchStrategy[np.ndarray]:
    """Values (replicates, cells, nodes) at the leaves, negative ones among them."""
    return st.integers(0, 2**32 - 1).map(
        lambda seed: np.random.default_rng(seed).integers(-3, 12, (3, 2, TREE.n_nodes)).astype(np.float64)
    )


@given(tables())
def test_shares_of_a_fund(values: np.ndarray) -> None:
    for cell in (None, *CELLS):
        shares = FundShare(cell).outcome(values, CELLS, TREE)
        assert shares.shape == (3, 5)
        for replicate, found in zip(values, shares, strict=True):
            counts = [
                sum(c[leaf] for c in replicate) if cell is None else replicate[CELLS.index(cell), leaf]
                for leaf in range(3, 8)
            ]
            total = sum(counts)
            expected = [c / total if total > 0 else 1 / 5 for c in counts]
            np.testing.assert_allclose(found, expected, rtol=1e-12)
            assert found.sum() == pytest.approx(1.0)


@given(tables(), st.sampled_from([-1, 0, 3, 5.5]))
def test_counts_above_a_cutoff(values: np.ndarray, cutoff: float) -> None:
    found = Threshold("unemployed", cutoff).outcome(values, CELLS, TREE)
    expected = [[float(replicate[1, leaf] > cutoff) for leaf in range(3, 8)] for replicate in values]
    np.testing.assert_array_equal(found, expected)


@given(tables(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_rates_above_a_cutoff(values: np.ndarray, cutoff: float) -> None:
    found = Threshold("unemployed", cutoff, among=CELLS).outcome(values, CELLS, TREE)
    for replicate, decisions in zip(values, found, strict=True):
        for leaf, decision in zip(range(3, 8), decisions, strict=True):
            people = replicate[0, leaf] + replicate[1, leaf]
            assert decision == float(people > 0 and replicate[1, leaf] / people > cutoff)


def test_labels() -> None:
    assert FundShare().label == "share of all cells"
    assert FundShare("employed").label == "share of employed"
    assert Threshold("unemployed", 0.1, CELLS).label == "unemployed / (employed + unemployed) above 0.1"
    assert Threshold("unemployed", 1000).label == "unemployed above 1000"


def test_unknown_cells_are_refused() -> None:
    values = np.zeros((2, TREE.n_nodes))
    for rule in (FundShare("jobless"), Threshold("jobless", 1), Threshold("employed", 1, ("employed", "jobless"))):
        with pytest.raises(ConfigError, match=r"'jobless'.*employed, unemployed"):
            rule.outcome(values, CELLS, TREE)


def test_a_study_follows_the_rules() -> None:
    counts = counts_of([[30, 2, 1, 0, 4], [3, 5, 0, 1, 1]], [[2], [2, 3]])
    plan = public_root(below=2)
    rules = (FundShare("c0"), Threshold("c1", 2), Threshold("c1", 0.3, ("c0", "c1")))
    table = td.simulate(counts, plan, ["raw", "top-down"], 500, 9, rules=rules)
    study = simulate_module._study(counts, plan, parse_methods(["raw", "top-down"]), rules, 9, None)
    values = simulate_module._draw(study, 0)[:500]
    problem = Problem(values, study.variance, study.tree, nonnegative=False, lower=study.lower)
    for method in study.methods:
        x = method.apply(problem, td.SeededSource(1))
        for rule in rules:
            truth = rule.outcome(counts.values.T.astype(float), counts.cells, study.tree)
            wrong = rule.outcome(x, counts.cells, study.tree) - truth
            found = table.rules[method.label, rule.label]
            np.testing.assert_allclose(found["truth"], truth)
            np.testing.assert_allclose(found["mean_error"], wrong.mean(axis=0), atol=1e-12)
            np.testing.assert_allclose(found["mean_absolute_error"], np.abs(wrong).mean(axis=0), atol=1e-12)
            np.testing.assert_allclose(found["mean_error_se"], wrong.std(axis=0, ddof=1) / np.sqrt(500), atol=1e-12)
    frame = table.rules_frame()
    assert len(frame) == 2 * 3 * 5
    assert set(frame["rule"]) == {rule.label for rule in rules}


def test_a_flip_happens_as_often_as_the_noise_says() -> None:
    # A count of 2 with noise of scale 1 and a cutoff of 2: above it with P(K > 0).
    counts = counts_of([2, 100], [[2]])
    replicates = 200_000
    table = td.simulate(counts, public_root(), ["raw"], replicates, 10, rules=[Threshold("c0", 2)], distances=False)
    found = table.rules["raw", "c0 above 2"]
    expected = float(td.noise.DiscreteLaplace(1).sf(0))
    assert abs(found["mean_absolute_error"][0] - expected) < 4 * np.sqrt(expected * (1 - expected) / replicates)
    assert found["mean_absolute_error"][1] == 0
