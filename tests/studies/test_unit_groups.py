"""Weighted means over groups of units, against sums written out."""

from __future__ import annotations

import numpy as np
import pytest

from topdown.errors import ConfigError
from topdown.geography.tree import Tree
from topdown.studies.decisions.rules import FundShare, GroupMean
from topdown.studies.unit_groups import Groups

LABELS = ["b", "a", "b", "c", "a", "b"]
WEIGHTS = [1.0, 0.0, 3.0, 0.0, 2.0, 0.5]


@pytest.mark.parametrize("weights", [(), WEIGHTS])
def test_means_and_their_errors_are_those_of_the_units(weights: list[float]) -> None:
    values = np.random.default_rng(0).normal(size=(4, 3, 6))
    group = Groups.of(LABELS, weights)
    assert group.labels == ("b", "a", "c")
    assert group.size.tolist() == [3, 2, 1]
    weight = np.array(weights or np.ones(6))
    for k, label in enumerate(group.labels):
        member = np.array(LABELS) == label
        total = weight[member].sum()
        part = weight[member] / total if total else np.zeros(member.sum())
        np.testing.assert_allclose(group.mean(values)[..., k], values[..., member] @ part, atol=1e-15)
        pooled = np.sqrt(((part * np.arange(1.0, 7.0)[member]) ** 2).sum())
        np.testing.assert_allclose(group.pooled(np.arange(1.0, 7.0))[k], pooled)
    np.testing.assert_array_equal(group.of_each(np.arange(6.0)), [0, 1, 3])


@pytest.mark.parametrize(
    ("weights", "units", "match"),
    [
        ([1.0], None, "1 weights for 6 units"),
        ([-1.0] * 6, None, "not all numbers of 0 or more"),
        ([np.nan] * 6, None, "not all numbers of 0 or more"),
        ((), 5, "6 group labels for 5 units"),
    ],
)
def test_what_is_no_weight_is_refused_without_its_value(weights: list[float], units: int | None, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Groups.of(LABELS, weights, units)


def test_a_group_s_mean_of_a_rule_is_that_of_its_outcome() -> None:
    tree = Tree.from_family_sizes([[2], [2, 4]])
    values = np.random.default_rng(1).integers(1, 30, (3, 2, tree.n_nodes)).astype(np.float64)
    fund = FundShare("x")
    rule = GroupMean(fund, "kind", tuple(LABELS), tuple(WEIGHTS))
    assert rule.label == "mean share of x by kind"
    assert rule.nodes(tree) == tree.leaves
    shares = fund.outcome(values, ("x", "y"), tree)
    group = Groups.of(LABELS, WEIGHTS)
    np.testing.assert_allclose(rule.outcome(values, ("x", "y"), tree), group.mean(shares)[..., group.code])
    with pytest.raises(ConfigError, match="3 group labels for 6 units"):
        GroupMean("x", "kind", ("a", "b", "c")).outcome(values, ("x", "y"), tree)
