"""Fairness: groups, families and decisions, against brute force and the theorems."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.simulated import counts_of
from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray
from topdown.studies import fairness
from topdown.studies.errors_table import STATISTICS, ErrorTable

SIZES = {"A": 1, "B": 2, "C": 5, "D": 12}


def small_nation() -> tuple[td.Geography, td.Counts]:
    rows = [
        {"nation": "US", "state": s, "county": f"{s}{k:02d}", "name": f"{s}-{k}", "x": 3 * k * k + 2, "y": 40 + k}
        for s, n in SIZES.items()
        for k in range(n)
    ]
    frame = pd.DataFrame(rows)
    geography = td.Geography.from_table(frame, ["nation", "state", "county"], name={"county": "name"})
    return geography, td.Counts.from_table(frame, geography, geoid="county", cells=["x", "y"])


LABELS = ["odd" if k % 2 else "even" for k in range(sum(SIZES.values()))]
FUND = td.FundShare("x")
CUT = td.Threshold("x", 30.0)
METHODS = ["raw", "top-down/equality", "top-down", "gls", "gls-top-down"]


@pytest.fixture(scope="module")
def table() -> ErrorTable:
    _, counts = small_nation()
    plan = td.Plan(epsilon="0.5", shares={"nation": "0.2", "state": "0.3", "county": "0.5"})
    rules = [FUND, CUT, fairness.GroupMean("x", "parity", tuple(LABELS))]
    return td.simulate(counts, plan, METHODS, 4000, 3, rules=rules)


def test_alpha_fairness_is_the_largest_difference_of_any_pair() -> None:
    bias = np.random.default_rng(0).normal(size=30)
    pairs = max(abs(a - b) for a, b in itertools.combinations(bias, 2))
    assert td.fairness.alpha_fairness(bias) == pairs
    assert td.fairness.alpha_fairness([2.0]) == 0.0
    groups = ["a", "b", "a"]
    assert td.fairness.alpha_fairness([1.0, 5.0, 3.0], groups) == 3.0


@pytest.mark.parametrize("bias", [[], [1.0, np.nan]])
def test_alpha_fairness_refuses_what_is_not_there(bias: list[float]) -> None:
    with pytest.raises(ConfigError, match="finite"):
        td.fairness.alpha_fairness(bias)


def test_size_classes_begin_at_their_edges() -> None:
    found = td.fairness.size_classes([0, 9, 10, 99, 100, 1_000_000], [10, 100])
    assert found == ["below 10", "below 10", "10 to 99", "10 to 99", "100 and more", "100 and more"]
    with pytest.raises(ConfigError, match="increasing"):
        td.fairness.size_classes([1], [10, 10])


def test_predicted_variance_is_measured_by_the_simulation(table: ErrorTable) -> None:
    for method in ("raw", "top-down/equality", "gls"):
        predicted = td.fairness.predicted_variance(table, method)
        z = (table[method, "variance"] - predicted[:, None]) / table[method, "variance_se"]
        assert np.abs(z).max() < 5.0, method
        # Ten per cent off is told apart over all nodes together.
        for wrong in (0.9, 1.1):
            off = (table[method, "variance"] - wrong * predicted[:, None]) / table[method, "variance_se"]
            assert abs(off.mean()) > 5.0 / np.sqrt(off.size)
    assert np.isnan(td.fairness.predicted_variance(table, "gls-top-down")).all()


def test_family_variance_follows_the_family_size(table: ErrorTable) -> None:
    rows = td.fairness.by_family(table, "top-down/equality")
    leaves = rows[(rows["level"] == "county") & (rows["cell"] == "x")].set_index("geoid")
    assert leaves["family_size"].to_dict() == SIZES
    np.testing.assert_allclose(leaves["public_total"], leaves["noise_variance"] * (1 - 1 / leaves["family_size"]))
    node = td.fairness.predicted_variance(table, "top-down/equality")
    parent = table.geography.index_of(["C"])[0]
    children = table.geography.tree.children(int(parent))
    v, n = float(table.noise_variance[children.start]), 5
    assert leaves.loc["C", "predicted"] == pytest.approx(v * (1 - 1 / n) + node[parent] / n**2)
    assert leaves.loc["C", "measured"] == pytest.approx(table["top-down/equality", "variance"][children, 0].mean())


def test_arizona_and_texas() -> None:
    """Public totals: 186.511 and 199.047 under geometric noise at scale 10."""
    rows = [{"s": s, "c": f"{s}{k:03d}", "x": 10_000} for s, n in (("AZ", 15), ("TX", 254)) for k in range(n)]
    frame = pd.DataFrame([{"n": "US", **row} for row in rows])
    geography = td.Geography.from_table(frame, ["n", "s", "c"])
    counts = td.Counts.from_table(frame, geography, geoid="c", cells=["x"])
    plan = td.Plan(epsilon="0.1", invariants=["n", "s"], shares={"c": 1})
    found = td.simulate(counts, plan, ["top-down/equality"], 200, 1, distances=False)
    families = td.fairness.by_family(found, "top-down/equality").set_index("geoid")
    assert families.loc["AZ", "predicted"] == pytest.approx(186.511, abs=5e-4)
    assert families.loc["TX", "predicted"] == pytest.approx(199.047, abs=5e-4)
    pair = td.fairness.family_pairs(families.reset_index(), 1).set_index("level").loc["c"]
    assert (pair["geoid_low"], pair["geoid_high"]) == ("AZ", "TX")


def test_pairs_set_the_extremes_side_by_side() -> None:
    families = pd.DataFrame(
        {
            "geoid": list("abcde"),
            "name": None,
            "level": "county",
            "family_size": [2, 3, 4, 5, 6],
            "cell": "x",
            "public_total": 1.0,
            "predicted": [3.0, 1.0, 5.0, 2.0, 4.0],
            "measured": [1.0, 2.0, 3.0, 4.0, 5.0],
            "measured_se": 0.1,
        }
    )
    pairs = td.fairness.family_pairs(families, 9)
    assert list(zip(pairs["geoid_low"], pairs["geoid_high"], strict=True)) == [("b", "c"), ("d", "e")]
    assert pairs["ratio"].tolist() == [1.5, 1.25]
    unpredicted = td.fairness.family_pairs(families.assign(predicted=np.nan), 1)
    assert (unpredicted["geoid_low"][0], unpredicted["geoid_high"][0]) == ("a", "e")


def test_groups_are_means_over_their_units(table: ErrorTable) -> None:
    rows = td.fairness.by_group(table, "top-down", LABELS, cell="x", name="parity").set_index("group")
    leaves = table.geography.tree.leaves
    odd = np.array([label == "odd" for label in LABELS])
    assert rows.loc["odd", "units"] == odd.sum()
    assert rows.loc["odd", "bias"] == pytest.approx(table["top-down", "bias"][leaves, 0][odd].mean())
    assert rows.loc["odd", "variance"] == pytest.approx(table["top-down", "variance"][leaves, 0][odd].mean())
    mse = table["top-down", "mse"][leaves, 0][odd].mean()
    assert rows.loc["odd", "rmse"] == pytest.approx(np.sqrt(mse))
    truth = table.truth[leaves, 0][odd].mean()
    assert rows.loc["odd", "relative_error"] == pytest.approx(np.sqrt(mse) / truth)
    half = (rows["bias_high"] - rows["bias_low"]) / 2
    np.testing.assert_allclose(half, 1.959964 * rows["bias_se"], rtol=1e-6)
    gap = td.fairness.largest_gap(rows.reset_index())
    assert gap.alpha == pytest.approx(abs(rows.loc["odd", "bias"] - rows.loc["even", "bias"]))


def test_a_followed_group_mean_has_the_error_of_its_correlated_units(table: ErrorTable) -> None:
    """Siblings share what their parent has, so that the two halves' errors nearly cancel: not as if independent."""
    everyone = ["all"] * len(LABELS)
    geography, counts = small_nation()
    rule = fairness.GroupMean("x", "everyone", tuple(everyone))
    found = td.simulate(counts, td.Plan(epsilon=1), ["top-down/equality"], 2000, 5, rules=[rule], distances=False)
    exact = td.fairness.by_group(found, "top-down/equality", everyone, cell="x", name="everyone")["bias_se"][0]
    # The mean over all leaves is the root's error over their number.
    root = found["top-down/equality", "bias_se"][0, 0] / geography.n_leaves
    assert exact == pytest.approx(root, rel=1e-3)
    apart = td.fairness.by_group(found, "top-down/equality", everyone, cell="x")["bias_se"][0]
    assert apart > 2.0 * exact


def test_errors_by_group_agree_with_the_table_of_the_same_replicates() -> None:
    rng = np.random.default_rng(1)
    errors = rng.laplace(size=(500, 6)) + np.arange(6)
    truth = np.arange(6) + 1.0
    groups = ["a", "a", "b", "b", "b", "b"]
    rows = td.fairness.errors_by_group(errors, groups, truth=truth).set_index("group")
    b = errors[:, 2:]
    assert rows.loc["b", "bias"] == pytest.approx(b.mean())
    assert rows.loc["b", "bias_se"] == pytest.approx(b.mean(axis=1).std(ddof=1) / np.sqrt(500))
    assert rows.loc["b", "variance"] == pytest.approx(b.var(axis=0, ddof=1).mean())
    assert rows.loc["b", "rmse"] == pytest.approx(np.sqrt((b**2).mean()))
    assert rows.loc["b", "relative_error"] == pytest.approx(np.sqrt((b**2).mean()) / truth[2:].mean())
    with pytest.raises(ConfigError, match="two replicates"):
        td.fairness.errors_by_group(errors[:1], groups)


def test_intervals_of_groups_cover_the_truth() -> None:
    """An unbiased group's 95 % interval holds 0 in about 95 of 100 simulations; 30 % too narrow would show."""
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(1000):
        errors = rng.laplace(size=(60, 4))
        errors -= errors.mean(axis=1, keepdims=True) * 0.5
        row = td.fairness.errors_by_group(errors, ["a", "a", "b", "b"]).iloc[0]
        inside += bool(row["bias_low"] <= 0 <= row["bias_high"])
    assert 910 <= inside <= 980


def test_money_moved_is_half_the_sum_of_absolute_errors(table: ErrorTable) -> None:
    amounts = td.fairness.fund(table, "top-down", FUND)
    assert amounts["amount"].sum() == pytest.approx(1e6)
    assert abs(amounts["bias"].sum()) < 1e-3
    moved = td.fairness.money_moved(table, "top-down", FUND)
    assert moved.value == pytest.approx(amounts["mean_absolute_error"].sum() / 2)
    # Loving's share of an eleventh too much is what another has too little.
    errors = td.fairness.share_errors([[1.0, 1.0, 2.0], [2.0, 2.0, 4.0]], [2.0, 1.0, 1.0])
    np.testing.assert_allclose(errors.bias, [-250_000, 0, 250_000])
    assert errors.moved.value == 250_000


def test_a_fund_of_nothing_is_shared_equally() -> None:
    errors = td.fairness.share_errors([[0.0, 0.0]], [1.0, 0.0])
    np.testing.assert_allclose(errors.bias, [-500_000, 500_000])


def test_flips_are_counted_both_ways(table: ErrorTable) -> None:
    rows = td.fairness.flips(table, "top-down", CUT)
    leaves = table.geography.tree.leaves
    np.testing.assert_array_equal(rows["decision"], table.truth[leaves, 0] > 30)
    assert ((rows["probability"] >= 0) & (rows["probability"] <= 1)).all()
    assert rows["probability"].max() > 0.05
    p = td.fairness.flip_probability([[1.0, 5.0], [3.0, 1.0], [4.0, 9.0]], [4.0, 1.0], 2.0)
    np.testing.assert_allclose(p, [1 / 3, 2 / 3])
    with pytest.raises(ConfigError, match="yes-or-no"):
        td.fairness.flips(table, "top-down", FUND)


def test_decisions_by_group_are_means_over_leaves(table: ErrorTable) -> None:
    rows = td.fairness.decisions_by_group(table, "top-down", CUT, LABELS).set_index("group")
    flips = td.fairness.flips(table, "top-down", CUT)
    odd = np.array([label == "odd" for label in LABELS])
    assert rows.loc["odd", "absolute_error"] == pytest.approx(flips["probability"][odd].mean())


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda t: td.fairness.fund(t, "top-down", "share of z"), "did not follow 'share of z'"),
        (lambda t: td.fairness.by_group(t, "top-down", ["a"]), "1 group labels for 20 units"),
        (lambda t: td.fairness.by_group(t, "top-down", LABELS, cell="z"), "no cell 'z'"),
        (lambda t: td.fairness.by_group(t, "nonsense", LABELS), "no method 'nonsense'"),
        (lambda t: td.fairness.by_group(t, "top-down", LABELS, confidence=2.0), "between 0 and 1"),
        (lambda t: td.fairness.decisions_by_group(t, "raw", CUT, ["a"]), "1 group labels"),
        (lambda t: td.fairness.decisions_by_group(t, "raw", CUT, LABELS, confidence=95), "between 0 and 1"),
        (lambda t: td.fairness.share_errors([1.0], [1.0]), "replicates, units"),
    ],
)
def test_refusals_say_what_is_wrong(table: ErrorTable, call: object, match: str) -> None:
    assert callable(call)
    with pytest.raises(ConfigError, match=match):
        call(table)


def test_nothing_is_changed(table: ErrorTable) -> None:
    before = {name: table["top-down", name].copy() for name in STATISTICS}
    td.fairness.by_family(table, "top-down")
    td.fairness.by_group(table, "top-down", LABELS)
    for name, values in before.items():
        np.testing.assert_array_equal(table["top-down", name], values)


def test_a_group_mean_is_the_mean_of_its_leaves() -> None:
    geography, counts = small_nation()
    rule = fairness.GroupMean("y", "parity", tuple(LABELS))
    values: FloatArray = np.ascontiguousarray(counts.values.T, dtype=float)[None]
    cells: Sequence[str] = counts.cells
    outcome = rule.outcome(values, cells, geography.tree)[0]
    leaves = counts.values[geography.tree.leaves, 1]
    expected = {g: leaves[[label == g for label in LABELS]].mean() for g in ("odd", "even")}
    np.testing.assert_allclose(outcome, [expected[g] for g in LABELS])


def test_an_only_child_that_is_not_measured_has_nothing_left_beside_a_public_total() -> None:
    plan = td.Plan(epsilon=1, shares={"0": "1/2", "1": "1/2", "2": "0"})
    table = td.simulate(counts_of([4, 5, 6], [[2], [1, 2]]), plan, ["gls"], 20, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # infinite times 0
        families = td.fairness.by_family(table, "gls")
    last = families[families["level"] == "2"].set_index("family_size")["public_total"]
    assert last.to_dict() == {1: 0.0, 2: np.inf}
