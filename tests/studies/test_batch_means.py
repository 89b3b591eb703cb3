"""Means over batches of replicates, and differences of two simulations by them, in pairs where draws are shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import topdown as td
from support.simulated import counts_of
from topdown.studies.batch_means import ABSOLUTE, BATCHES, BIAS, NET, SQUARE, BatchMeans, Of, Pairs, batch_of, estimate
from topdown.studies.draws import aligned_draws

GROUPS = ("a", "b", "a", "b", "b")
LEAVES = [0, 3, 11, 40, 90]


def simulated(seed: int, epsilon: float, replicates: int = 130, rules: Any = (), mechanism: str = "geometric") -> Any:
    plan = td.Plan(mechanism, epsilon=epsilon, shares={"0": "1/4", "1": "3/4"})
    given = [*rules, td.fairness.GroupMean("c0", "g", GROUPS)]
    return td.simulate(counts_of(LEAVES, [[5]]), plan, ["gls-top-down", "raw"], replicates, seed, rules=given)


def test_batches_are_runs_of_replicates_as_equal_as_can_be() -> None:
    sizes = np.bincount(batch_of(np.arange(130), 130))
    assert len(sizes) == BATCHES
    assert set(sizes.tolist()) == {2, 3}
    assert batch_of(np.arange(7), 7).tolist() == list(range(7))


def test_the_means_of_batches_are_those_of_the_table() -> None:
    rule, cut = td.FundShare("c0"), td.Threshold("c0", 10.0)
    rules = [rule, cut, td.fairness.GroupMean(cut, "g", GROUPS), td.fairness.GroupMean(rule, "g", GROUPS)]
    table = simulated(4, 0.7, rules=rules)
    means, method = table.batch_means, "gls-top-down"
    assert means.sizes.sum() == table.replicates

    def whole(measure: str, of: str, grouping: str) -> Any:
        return estimate(means.means[Of(method, measure, of, grouping)], means.sizes).value

    np.testing.assert_allclose(whole(BIAS, "c0", ""), table.level_means[method]["bias"][:, 0], atol=1e-12)
    np.testing.assert_allclose(whole(SQUARE, "c0", ""), table.level_means[method]["mse"][:, 0], rtol=1e-12)
    leaves, of_a = table[method, "bias"][1:, 0], np.array(GROUPS) == "a"
    by_group = [leaves[of_a].mean(), leaves[~of_a].mean()]
    np.testing.assert_allclose(whole(BIAS, "c0", "g"), by_group, atol=1e-12)
    for one in (rule, cut):
        decided = table.rules[method, one.label]
        np.testing.assert_allclose(
            whole(ABSOLUTE, one.label, ""), [decided["mean_absolute_error"].mean()], atol=1e-12
        )  # fmt: skip
        for measure, statistic in ((NET, "mean_error"), (ABSOLUTE, "mean_absolute_error")):
            expected = [decided[statistic][of_a].mean(), decided[statistic][~of_a].mean()]
            np.testing.assert_allclose(whole(measure, one.label, "g"), expected, atol=1e-12)


def test_any_number_of_workers_has_the_same_means_and_the_file_keeps_them() -> None:
    plan = td.Plan(epsilon=1, shares={"0": "1/4", "1": "3/4"})
    made = [
        td.simulate(counts_of(LEAVES, [[5]]), plan, ["gls"], 20_000, 3, workers=workers).batch_means
        for workers in (1, 2)
    ]
    again = BatchMeans.of_frame(made[0].frame())
    for other in (made[1], again):
        assert made[0].groups == other.groups
        np.testing.assert_array_equal(made[0].sizes, other.sizes)
        for key, values in made[0].means.items():
            np.testing.assert_array_equal(values, other.means[key])


def test_a_batch_that_is_not_finished_is_left_out() -> None:
    key = Of("m", BIAS, "x", "")
    sums = {key: np.full((50, 1), 4.0)}
    found = BatchMeans.of_sums(sums, {key: ("county",)}, done=90, wanted=200)
    assert found.sizes.tolist() == [4.0] * 22
    assert found.means[key].tolist() == [[1.0]] * 22


def test_a_rule_is_applied_to_the_truth_once() -> None:
    asked = []

    class Counted(td.Rule):
        def outcome(self, values: Any, cells: Any, tree: Any) -> Any:
            asked.append(values.ndim)
            return super().outcome(values, cells, tree)

    rule = Counted("large", eligible="c0 > 10")
    rules = [rule, td.fairness.GroupMean(rule, "g", GROUPS)]
    simulated(4, 0.7, replicates=40, rules=rules)
    blocks, methods = 2, 2
    assert asked.count(3) == blocks * methods
    assert asked.count(2) <= 3  # of the rule, and of the means of groups


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (td.noise.DiscreteLaplace(2), td.noise.DiscreteLaplace(9)),
        (td.noise.DiscreteGaussian(3), td.noise.DiscreteGaussian(40)),
        (td.noise.Laplace(2), td.noise.Laplace(9)),
        (td.noise.DiscreteLaplace(2), td.noise.DiscreteGaussian(5)),
    ],
)
def test_draws_of_two_laws_agree_place_by_place_to_the_end(one: Any, other: Any) -> None:
    # Without a stream for every block they part: the last tenth of these is uncorrelated then.
    a, b = (aligned_draws(law, (2, 150_000), (5, 0)).ravel()[-30_000:] for law in (one, other))
    assert np.corrcoef(a, b)[0, 1] > 0.9


def test_the_paired_interval_by_hand() -> None:
    rng = np.random.default_rng(2)
    first = rng.normal(3.0, 1.0, (50, 2))
    second = first + rng.normal([0.1, -0.4], 0.1, (50, 2))
    sizes = np.array([3.0] * 20 + [4.0] * 30)
    found = Pairs(first, second, sizes, sizes, paired=True).interval(0.9)
    for k in range(2):
        difference = second[:, k] - first[:, k]
        mean = np.average(difference, weights=sizes)
        error = np.sqrt(np.average((difference - mean) ** 2, weights=sizes) / 49)
        half = stats.t.ppf(0.95, 49) * error
        np.testing.assert_allclose([found.value[k], found.low[k], found.high[k]], [mean, mean - half, mean + half])
    equal = np.ones(50)
    expected = stats.ttest_rel(second, first)
    np.testing.assert_allclose(Pairs(first, second, equal, equal, paired=True).interval().t, expected.statistic)
    welch = stats.ttest_ind(second, first, equal_var=False).confidence_interval(0.95)
    apart = Pairs(first, second, equal, equal, paired=False).interval()
    np.testing.assert_allclose([apart.low, apart.high], [welch.low, welch.high])


def test_pairs_tell_apart_what_independent_simulations_do_not() -> None:
    one, other = (simulated(6, epsilon, replicates=1500).batch_means for epsilon in (0.8, 0.9))
    key = Of("gls-top-down", BIAS, "c0", "g")
    both = one.means[key], other.means[key], one.sizes, other.sizes
    pairs, apart = (Pairs(*both, paired=paired) for paired in (True, False))
    errors = pairs.contrast(1.0, 1.0).error, apart.contrast(1.0, 1.0).error
    assert (errors[0] < 0.35 * errors[1]).all()
    assert (np.abs(pairs.interval().t) > 4).any()
    assert (np.abs(apart.interval().t) < 2).all()


def test_a_size_next_to_nothing_is_told_apart_from_none_by_nobody() -> None:
    rng = np.random.default_rng(3)
    first = rng.normal(0.0, 1.0, (50, 1))
    second = first + 0.001  # exactly: but whether that makes the size larger depends on a sign that is not known
    sizes = np.ones(50)
    found = Pairs(first, second, sizes, sizes, paired=True).interval()
    assert found.t == 0
    assert found.low < 0 < found.high
    large = Pairs(first - 9, second - 9, sizes, sizes, paired=True).interval()
    np.testing.assert_allclose([large.value, large.low, large.high], -0.001, rtol=1e-6)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([0.5, 0.1, -0.2], [0.3, 0.1, -0.2]),
        ([0.5, 0.5, -0.5, 0.49], [0.5, 0.5, -0.5, 0.49]),  # many that may be the largest
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ([0.9, -0.1], [-0.1, 0.6]),
    ],
)
def test_the_interval_of_the_hardest_hit_holds_the_truth(first: Any, second: Any, paired: bool) -> None:
    rng, held, sizes, trials = np.random.default_rng(8), 0, np.ones(50), 400
    truth = np.abs(second).max() - np.abs(first).max()
    for _ in range(trials):
        shared = rng.normal(0.0, 1.0, (50, len(first)))
        own = [0.2 * rng.normal(0.0, 1.0, (50, len(first))) for _ in range(2)]
        other = shared if paired else rng.normal(0.0, 1.0, shared.shape)
        pairs = Pairs(np.array(first) + shared + own[0], np.array(second) + other + own[1], sizes, sizes, paired)
        found = pairs.worst()
        held += found.low <= truth <= found.high
    assert held >= stats.binom.ppf(0.001, trials, 0.95)


def test_the_interval_of_the_hardest_hit_is_no_wider_than_need_be() -> None:
    rng, sizes = np.random.default_rng(9), np.ones(50)
    shared = rng.normal(0.0, 1.0, (50, 3))
    first, second = shared + np.array([4.0, 0.0, -1.0]), shared * 1.05 + np.array([3.9, 0.0, -1.0])
    found = Pairs(first, second, sizes, sizes, paired=True).worst()
    difference = second[:, 0] - first[:, 0]
    half = stats.t.ppf(0.98, 49) * difference.std(ddof=1) / np.sqrt(50)
    assert (found.first, found.second) == (0, 0)
    np.testing.assert_allclose([found.low, found.high], difference.mean() + np.array([-half, half]))


def test_differences_of_studies_are_covered_as_often_as_is_said() -> None:
    seeds, key = range(100, 180), Of("gls-top-down", BIAS, "c0", "g")
    made = [[simulated(seed, epsilon, replicates=100).batch_means for epsilon in (0.5, 0.8)] for seed in seeds]
    pairs = [Pairs(a.means[key], b.means[key], a.sizes, b.sizes, paired=True) for a, b in made]
    found = [one.contrast(1.0, 1.0) for one in pairs]
    truth = np.mean([one.value for one in found], axis=0)
    held = np.sum([np.abs(one.value - truth) <= one.half(0.95) for one in found], axis=0)
    assert (held >= stats.binom.ppf(0.001, len(made), 0.95)).all()
    assert (held < len(made)).any()
