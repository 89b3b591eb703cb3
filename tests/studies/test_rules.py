"""Decision rules against brute force, alone and in a study."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topdown as td
from support.simulated import counts_of, public_root
from topdown.errors import ConfigError
from topdown.geography.tree import Tree
from topdown.projection.method import Problem
from topdown.studies import replicates
from topdown.studies import simulate as simulate_module
from topdown.studies.decisions.rules import FundShare, Level, Threshold
from topdown.studies.methods import parse_methods

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


@given(tables(), st.sampled_from([0.0, 0.25, 0.5, 0.99]))
def test_rates_above_a_cutoff(values: np.ndarray, cutoff: float) -> None:
    found = Threshold("unemployed", cutoff, among=CELLS).outcome(values, CELLS, TREE)
    for replicate, decisions in zip(values, found, strict=True):
        for leaf, decision in zip(range(3, 8), decisions, strict=True):
            people = replicate[0, leaf] + replicate[1, leaf]
            assert decision == float(people > 0 and replicate[1, leaf] / people > cutoff)


@given(tables(), st.sampled_from([0.0, 0.5, 2.0]))
def test_ratios_above_a_cutoff_at_an_inner_level(values: np.ndarray, cutoff: float) -> None:
    rule = Threshold("unemployed", cutoff, per=("employed",), level=Level("state", 1))
    assert rule.nodes(TREE) == slice(1, 3)
    for replicate, decisions in zip(values, rule.outcome(values, CELLS, TREE), strict=True):
        for state, decision in zip((1, 2), decisions, strict=True):
            workers, unemployed = replicate[0, state], replicate[1, state]
            assert decision == float(workers > 0 and unemployed / workers > cutoff)


def test_a_part_that_is_exactly_the_cutoff_is_not_above_it() -> None:
    tree = Tree.from_family_sizes([[3]])
    for cutoff in range(1, 100):
        u = 10_000 * cutoff + np.array([0, 0, 1, -1])  # the first is the root
        values = np.stack([1_000_000 - u, u]).astype(np.float64)
        for rule in (
            Threshold("unemployed", cutoff / 100, among=CELLS),
            Threshold("unemployed", cutoff / (100 - cutoff), per=("employed",)),
            Threshold("unemployed", 10_000 * cutoff),
        ):
            np.testing.assert_array_equal(rule.outcome(values, CELLS, tree), [0, 1, 0], err_msg=rule.label)


def test_a_level_is_found_by_its_name() -> None:
    geography = counts_of([30, 2, 1, 0, 4], [[2], [2, 3]]).geography
    assert Level.of(geography, geography.levels[1]) == (geography.levels[1], 1)
    with pytest.raises(ConfigError, match="unknown level 'stat'"):
        Level.of(geography, "stat")


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"cutoff": 10, "among": CELLS}, "cutoff 10.*from 0 to below 1, such as 0.1 for 10 %"),
        ({"cutoff": 1, "among": CELLS}, "from 0 to below 1"),
        ({"cutoff": -0.1, "among": CELLS}, "from 0 to below 1"),
        ({"cutoff": 0.5, "among": ("employed",)}, "'unemployed' among 'employed', which it is not one of"),
        ({"cutoff": 0.5, "per": CELLS}, "which it is one of; give among"),
        ({"cutoff": 0.5, "among": CELLS, "per": ("employed",)}, "has among and per"),
    ],
)
def test_a_part_that_no_unit_can_have_is_refused(more: dict, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Threshold("unemployed", **more)
    Threshold("unemployed", 10.0, per=("employed",))  # a ratio may be above 1


def test_labels() -> None:
    assert FundShare().label == "share of all cells"
    assert FundShare("employed").label == "share of employed"
    assert Threshold("unemployed", 0.1, CELLS).label == "unemployed / (employed + unemployed) above 0.1"
    assert Threshold("unemployed", 1000).label == "unemployed above 1000"
    assert Threshold("a", 2, per=("b", "c")).label == "a / (b + c) above 2"
    assert Threshold("a", 2, level=Level("state", 1)).label == "a above 2, by state"


def test_unknown_cells_are_refused() -> None:
    values = np.zeros((2, TREE.n_nodes))
    for rule in (FundShare("jobless"), Threshold("jobless", 1), Threshold("employed", 0.5, ("employed", "jobless"))):
        with pytest.raises(ConfigError, match=r"'jobless'.*employed, unemployed"):
            rule.outcome(values, CELLS, TREE)


def test_a_study_follows_the_rules() -> None:
    counts = counts_of([[30, 2, 1, 0, 4], [3, 5, 0, 1, 1]], [[2], [2, 3]])
    plan = public_root(below=2)
    state = Level(counts.geography.levels[1], 1)
    rules = (FundShare("c0"), Threshold("c1", 2), Threshold("c1", 0.3, ("c0", "c1")), Threshold("c0", 5, level=state))
    table = td.simulate(counts, plan, ["raw", "top-down"], 500, 9, rules=rules)
    study = simulate_module._study(counts, plan, parse_methods(["raw", "top-down"]), rules, 9, 1, None)
    values = replicates.draw(study, 0)[:500]
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
            totals = table.rule_totals[method.label, rule.label]
            parts = {"moved": np.abs(wrong), "lost": np.maximum(-wrong, 0), "gained": np.maximum(wrong, 0)}
            for name, part in parts.items():
                sums = part.sum(axis=1)
                assert totals[name] == pytest.approx(sums.mean(), abs=1e-12)
                # As the replicates' own sums vary: errors of units that rise and fall together are in it.
                assert totals[f"{name}_se"] == pytest.approx(sums.std(ddof=1) / np.sqrt(500), rel=1e-6, abs=1e-12)
    frame = table.rules_frame()
    assert len(frame) == 2 * (3 * 5 + 2)
    assert set(frame.geoid[frame.rule == rules[3].label]) == set(counts.geography.identifiers[1:3].to_pylist())
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
