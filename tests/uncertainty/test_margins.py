"""td.margins: coverage at every truth, what parents and releases do to intervals, refusals."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.trees import geography
from topdown.errors import ConfigError, DataError
from topdown.geography.tree import Tree
from topdown.machine.parallel import thread_pool
from topdown.release.whole_counts import DenseCounts
from topdown.uncertainty import intervals
from topdown.uncertainty.interval import interval, tail_share
from topdown.uncertainty.laws.error_law import Shape
from topdown.uncertainty.margins import margins_of

TREE = Tree.from_family_sizes([[3], [4, 2, 6]])
# Leaves from empty to large, and a family of empty units but one.
LEAVES = np.array([0, 1, 2, 500, 7, 30, 0, 0, 0, 60, 0, 0])
SHARES = {"level 0": "0.2", "level 1": "0.3", "level 2": "0.5"}
PLAN = td.Plan(epsilon="0.6", shares=SHARES)


def measured(seed: int, plan: td.Plan = PLAN, leaves: np.ndarray = LEAVES) -> td.Measurements:
    return td.measure(counts(leaves), plan, source=td.SeededSource((11, seed)))


def counts(leaves: np.ndarray = LEAVES) -> td.Counts:
    there = geography(TREE)
    frame = pd.DataFrame({"geoid": list(there.geoid[TREE.leaves]), "people": leaves})
    return td.Counts.from_table(frame, there, geoid="geoid", cells=["people"])


@pytest.mark.parametrize(
    ("mechanism", "confidence"), [("geometric", 0.9), ("geometric", 0.95), ("discrete-gaussian", 0.9), ("laplace", 0.9)]
)
def test_every_node_is_covered_as_often_as_stated(mechanism: str, confidence: float) -> None:
    budget = {"rho": "0.05"} if mechanism == "discrete-gaussian" else {"epsilon": "0.6"}
    plan = td.Plan(mechanism, shares={"level 0": "0.2", "level 1": "0.3", "level 2": "0.5"}, **budget)
    truth, hits, times = TREE.aggregate(LEAVES), np.zeros(TREE.n_nodes), 250
    for seed in range(times):
        found = margins_of(measured(seed, plan), confidence=confidence)
        hits += (found.lower[:, 0] <= truth) & (truth <= found.upper[:, 0])
    # Five deviations below nominal, each node: a false alarm in 2e6 nodes.
    least = confidence - 5.0 * np.sqrt(confidence * (1 - confidence) / times)
    assert (hits / times >= least).all(), hits / times
    # The power of it: no node is covered for certain but where the truth is 0 and stays in.
    assert (hits[truth > 20] < times).all()


def test_together_they_cover_as_often_as_stated() -> None:
    truth, joint, each = TREE.aggregate(LEAVES), 0, 0
    for seed in range(120):
        found = td.margins(measured(seed), simultaneous=True)
        joint += bool(((found["lower"] <= truth) & (truth <= found["upper"])).all())
        single = margins_of(measured(seed))
        each += bool(((single.lower[:, 0] <= truth) & (truth <= single.upper[:, 0])).all())
    assert joint >= 0.9 * 120 - 5 * np.sqrt(120 * 0.09)
    assert each < joint


def test_intervals_do_not_depend_on_who_works_on_which_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    tree = Tree.from_family_sizes([[30], rng.integers(1, 25, 30)])
    there = geography(tree)
    frame = pd.DataFrame({"geoid": list(there.geoid[tree.leaves])})
    cells = {name: rng.integers(0, 40, tree.n_leaves) * rng.integers(0, 2, tree.n_leaves) for name in ("a", "b")}
    counted = td.Counts.from_table(frame.assign(**cells), there, geoid="geoid", cells=list(cells))
    measurements = td.measure(counted, PLAN, source=td.SeededSource(5))
    release = td.round_counts(td.project(measurements), source=td.SeededSource(6))
    alone = margins_of(measurements, release)
    assert (alone.lower > 0).any()  # the guard let some zeros go
    monkeypatch.setattr(intervals, "_NUMBERS_AT_ONCE", 48)
    with thread_pool(3) as pool:
        found = margins_of(measurements, release, executor=pool)
    np.testing.assert_array_equal(found.lower, alone.lower)
    np.testing.assert_array_equal(found.upper, alone.upper)


def test_the_table_has_the_released_count_within() -> None:
    measurements = measured(3)
    release = td.round_counts(td.project(measurements, "gls-top-down"), source=td.SeededSource(1))
    frame = td.margins(measurements, release)
    assert list(frame.columns) == ["geoid", "level", "query", "cell", "estimate", "sd", "lower", "upper"]
    values = release.values[:, 0]
    assert (frame["lower"] <= values).all()
    assert (values <= frame["upper"]).all()
    whole = frame[["lower", "upper"]].to_numpy()
    assert (whole == np.rint(whole)).all()
    assert whole.min() >= 0
    gls = td.project(measurements, "gls")
    np.testing.assert_allclose(frame["estimate"], gls.values[:, 0], rtol=1e-12)
    np.testing.assert_allclose(frame["sd"] ** 2, gls.variance[:, 0], rtol=1e-9)


def test_a_release_far_from_the_estimate_widens_the_interval_up_to_it() -> None:
    measurements = measured(3)
    release = td.round_counts(td.project(measurements, "gls-top-down"), source=td.SeededSource(1))
    far = dataclasses.replace(release, held=DenseCounts(release.values * 1000))
    frame, plain = td.margins(measurements, far), td.margins(measurements)
    np.testing.assert_array_equal(frame["upper"], np.maximum(plain["upper"], far.values[:, 0]))
    np.testing.assert_array_equal(frame["lower"], np.minimum(plain["lower"], far.values[:, 0]))


def test_a_certain_parent_limits_its_children() -> None:
    plan = td.Plan(epsilon="1", shares={"level 0": "0.5", "level 1": "0.49", "level 2": "0.01"})
    leaves = np.where(np.arange(12) == 9, 5, 0)
    found = margins_of(measured(0, plan, leaves))
    assert found.sd[TREE.leaves].min() > 20
    assert found.upper[TREE.leaves].max() <= 5 + 4 * 10
    alone = interval(Shape((), 0.0), 0.1)
    assert alone.upper(np.array([0.0]))[0] * found.sd[TREE.leaves].min() > 20


def test_few_empty_units_are_among_those_that_are_not_empty_for_certain() -> None:
    """The guard: of the units whose interval starts above 0 a tenth at most is empty, on average."""
    tree = Tree.from_family_sizes([[200]])
    there, leaves = geography(tree), np.where(np.arange(200) < 150, 0, 40)
    frame = pd.DataFrame({"geoid": list(there.geoid[tree.leaves]), "people": leaves})
    counted = td.Counts.from_table(frame, there, geoid="geoid", cells=["people"])
    plan = td.Plan(epsilon="0.4", shares={"level 0": "0.5", "level 1": "0.5"})
    parts, found_large = [], 0
    for seed in range(60):
        lower = margins_of(td.measure(counted, plan, source=td.SeededSource((9, seed)))).lower[tree.leaves, 0]
        parts.append((lower[leaves == 0] > 0).sum() / max(1, (lower > 0).sum()))
        found_large += (lower[leaves > 0] > 0).sum()
    # Each part lies in [0, 1] with a mean of .1 at most and a deviation of .06: five deviations of the mean.
    assert np.mean(parts) <= 0.1 + 5 * 0.06 / np.sqrt(60)
    assert np.mean(parts) > 0.02
    assert found_large > 0.9 * 60 * 50


def test_what_is_exact_has_no_margin() -> None:
    plan = td.Plan(epsilon="1", shares={"level 0": "0.5", "level 2": "0.5"}, invariants=["level 1"])
    found = margins_of(measured(0, plan))
    truth = TREE.aggregate(LEAVES)
    for nodes in (slice(0, 1), TREE.level(1)):
        assert found.lower[nodes, 0].tolist() == found.upper[nodes, 0].tolist() == truth[nodes].tolist()
        assert (found.sd[nodes] == 0).all()
    assert (found.upper[TREE.leaves, 0] <= np.repeat(truth[TREE.level(1)], [4, 2, 6])).all()


def test_leaves_that_were_not_measured_lie_between_0_and_their_parents_limit() -> None:
    plan = td.Plan(epsilon="1", shares={"level 0": "0.5", "level 1": "0.5", "level 2": "0"})
    found = margins_of(measured(0, plan))
    assert np.isinf(found.sd[TREE.leaves]).all()
    assert (found.lower[TREE.leaves] == 0).all()
    assert np.isfinite(found.upper[TREE.leaves]).all()
    assert found.upper[1 + 3 + 3, 0] >= 503


def test_an_only_child_and_its_parent_have_one_interval() -> None:
    tree = Tree.from_family_sizes([[2], [1, 3]])
    there = geography(tree)
    frame = pd.DataFrame({"geoid": list(there.geoid[tree.leaves]), "people": [3, 0, 90, 4]})
    counted = td.Counts.from_table(frame, there, geoid="geoid", cells=["people"])
    plan = td.Plan(epsilon="1", shares={"level 0": "0.1", "level 1": "0.8", "level 2": "0.1"})
    found = td.margins(td.measure(counted, plan, source=td.SeededSource(2))).set_index("geoid")
    assert found.loc["n1", "sd"] == pytest.approx(found.loc["n3", "sd"])
    assert found.loc["n1", "upper"] == found.loc["n3", "upper"]


def test_only_children_that_gave_their_share_have_their_parents_intervals() -> None:
    tree = Tree.from_family_sizes([[2], [1, 3]])
    there = geography(tree)
    frame = pd.DataFrame({"geoid": list(there.geoid[tree.leaves]), "people": [300, 0, 90, 4]})
    counted = td.Counts.from_table(frame, there, geoid="geoid", cells=["people"])
    plan = td.Plan(epsilon="1", shares=SHARES, only_child="move-up")
    truth, hits = tree.aggregate(np.array([300, 0, 90, 4])), np.zeros(tree.n_nodes)
    for seed in range(150):
        found = margins_of(td.measure(counted, plan, source=td.SeededSource((8, seed))))
        hits += (found.lower[:, 0] <= truth) & (truth <= found.upper[:, 0])
        assert found.upper[1, 0] == found.upper[3, 0]
        assert found.sd[1, 0] == pytest.approx(found.sd[3, 0])
    assert (hits / 150 >= 0.9 - 5 * np.sqrt(0.09 / 150)).all()
    assert hits[1] < 150
    # The share of its child makes the parent's noise smaller than its level's.
    assert found.sd[1, 0] < 0.8 * found.sd[2, 0]
    region = td.region(td.measure(counted, plan, source=td.SeededSource(1)), {"n3": 1, "n4": 1})
    assert np.isfinite(region.sd)


# -- the test that is inverted ----------------------------------------------------------------------------------------


def test_the_share_below_is_the_one_with_the_shortest_intervals() -> None:
    # An independent computation for the same prior and alpha, by another quadrature.
    known = {0.0: 0.0, 0.2: 0.0, 0.6: 0.4504, 1.0: 0.6772, 2.0: 0.7998, 4.0: 0.7398, 6.0: 0.7223, 8.0: 0.6981,
             9.0: 0.6392, 10.0: 0.5869, 11.0: 0.5406, 12.0: 0.5, 14.0: 0.5}  # fmt: skip
    found = tail_share()
    np.testing.assert_allclose(np.interp(list(known), found.theta, found.below), list(known.values()), atol=6e-3)


@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_every_truth_is_kept_by_as_many_estimates_as_stated(alpha: float) -> None:
    from scipy.stats import norm

    rule = interval(Shape((), 0.0), alpha)
    x = np.linspace(-12, 40, 200_001)
    lower, upper = rule.lower(x), rule.upper(x)
    for theta in (0.0, 0.1, 0.33, 0.5, 1.0, 3.7, 8.0, 11.0, 13.0, 20.0):
        kept = (lower <= theta) & (theta <= upper)
        covered = float((norm.pdf(x - theta) * kept).sum() * (x[1] - x[0]))
        assert covered >= 1 - alpha - 2e-4, theta
        if theta > 1:
            assert covered <= 1 - alpha + 2e-3, theta


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [0.5, 1.0, 95, -1, float("nan"), True, "0.9"])
def test_a_confidence_that_is_none_is_refused(confidence: object) -> None:
    with pytest.raises(ConfigError, match=r"confidence .*above 0\.5 and below 1"):
        td.margins(measured(0), confidence=confidence)  # type: ignore[arg-type]


def test_bounded_noise_is_refused() -> None:
    plan = td.Plan(epsilon="1", shares={"level 0": "0.2", "level 1": "0.3", "level 2": "0.5"},
                   bounds={"level 2": "boundary-inflated"})  # fmt: skip
    with pytest.raises(ConfigError, match=r"level 'level 2' has bounded noise.*noise\.bounds = \"none\""):
        td.margins(measured(0, plan))


def test_measurements_without_a_law_are_refused() -> None:
    bare = td.Measurements.from_arrays(geography(TREE), np.zeros(TREE.n_nodes), 4.0)
    with pytest.raises(ConfigError, match=r"without a plan.*mechanism and its parameter \(scale or sigma2\)"):
        td.margins(bare)
    other = dataclasses.replace(
        measured(0), plan=td.Plan(epsilon="7", shares={"level 0": "0.5", "level 1": "0.4", "level 2": "0.1"})
    )
    with pytest.raises(ConfigError, match=r"level 'level 0': measurements of variance .*give the plan"):
        td.margins(other)


def test_a_release_of_other_units_is_refused() -> None:
    release = td.round_counts(td.project(measured(0), "gls-top-down"), source=td.SeededSource(1))
    other = dataclasses.replace(release, schema=td.Schema.of_cells(["houses"]), names=("houses",))
    with pytest.raises(DataError, match="other units or cells"):
        td.margins(measured(0), other)


EXTREME = """
import resource
from fractions import Fraction
import numpy as np
import topdown as td
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
widths = {"area": 2, "place": 4}
wide = td.Geography.from_geoids(["0101", "0102", "0201", "0202", "0203"], widths, root="all")
chain = td.Geography.from_geoids(["0101"], widths, root="all")
laws = [("geometric", "epsilon"), ("laplace", "epsilon"), ("discrete-gaussian", "rho")]
for geography, (mechanism, currency) in [(one, law) for one in (wide, chain) for law in laws]:
    leaves = np.arange(geography.n_leaves)[None] * 2**38
    counts = td.Counts(geography, ("n",), geography.tree.aggregate(leaves).T)
    for budget in ("1e-6", "1/3", "7", "100", "1000"):
        for shares in (("1/5", "3/10", "1/2"), ("1/100", "49/100", "1/2")):
            plan = td.Plan(mechanism, shares=dict(zip(geography.levels, shares)), **{currency: budget})
            found = td.margins(td.measure(counts, plan, td.SeededSource(1)), confidence=0.99)
            assert (found["lower"] <= found["upper"]).all()
from topdown.uncertainty.laws.error_law import Shape, Term, tail
for scales in ((40, 30), (30, 40), (40, 5), (5, 40)):
    terms = tuple(Term(td.noise.DiscreteLaplace(Fraction(1, k)), 1, p) for k, p in zip(scales, (0.9, 0.1)))
    quantile = float(tail(Shape(terms, 0.0)).quantile(np.array([0.05]))[0])
    assert 0 <= quantile < 5, (scales, quantile)
"""


def test_budgets_of_any_size_have_intervals_in_little_memory() -> None:
    # Noise of one level is hardly ever there and that of another always: their laws have no common scale.
    done = subprocess.run([sys.executable, "-W", "error", "-c", EXTREME], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
