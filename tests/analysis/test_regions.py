"""td.region: sums, differences, shares, at mixed levels, and what they refuse."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.trees import geography
from topdown.analysis.regions import Regions
from topdown.analysis.sum_intervals import UNDETERMINED, Ratio, fieller, sum_margin
from topdown.errors import ConfigError, DataError
from topdown.geography.tree import Tree
from topdown.uncertainty.laws.error_law import NORMAL
from topdown.uncertainty.margins import margins_of

TREE = Tree.from_family_sizes([[3], [4, 2, 6]])
TRUTH = np.stack([[0, 1, 2, 500, 7, 30, 0, 0, 0, 60, 0, 0], [90, 40, 0, 9, 3, 30, 1, 5, 0, 20, 8, 2]], axis=1)
SHARES = {"level 0": "0.2", "level 1": "0.3", "level 2": "0.5"}
PLAN = td.Plan(epsilon="1", shares=SHARES)


def measured(seed: int, plan: td.Plan = PLAN) -> td.Measurements:
    there = geography(TREE)
    frame = pd.DataFrame({"geoid": list(there.geoid[TREE.leaves]), "men": TRUTH[:, 0], "women": TRUTH[:, 1]})
    counts = td.Counts.from_table(frame, there, geoid="geoid", cells=["men", "women"])
    return td.measure(counts, plan, source=td.SeededSource((3, seed)))


WHOLE = TREE.aggregate(TRUTH.T)


def covered(times: int, confidence: float, truth: float, **asked: object) -> float:
    hits = 0
    for seed in range(times):
        found = td.region(measured(seed), confidence=confidence, **asked)  # type: ignore[arg-type]
        hits += found.lower <= truth <= found.upper
    return hits / times


TIMES = 150
LEAST = 0.9 - 5 * np.sqrt(0.09 / TIMES)


@pytest.mark.parametrize(
    ("asked", "truth"),
    [
        ({"weights": {"n04": 1, "n05": 1, "n02": 1}, "cell": "men"}, WHOLE[0, [4, 5, 2]].sum()),
        ({"weights": {"n04": 1, "n13": 1}}, WHOLE[:, [4, 13]].sum()),
        ({"weights": {"n01": 1}, "minus": {"n07": 1}, "cell": "men"}, WHOLE[0, 1] - WHOLE[0, 7]),
        ({"weights": {"n13": 0.5, "n07": 0.25}, "cell": "men"}, 0.5 * WHOLE[0, 13] + 0.25 * WHOLE[0, 7]),
        ({"weights": {"n01": 1}, "cell": "men", "share_of": {"n00": 1}}, WHOLE[0, 1] / WHOLE[0, 0]),
        ({"weights": {"n02": 1, "n13": 1}, "cell": "men", "share_of": "total"},
         WHOLE[0, [2, 13]].sum() / WHOLE[:, [2, 13]].sum()),
    ],
    ids=["mixed levels", "all cells", "difference", "weights", "share of the root", "share of all cells"],
)  # fmt: skip
def test_what_is_asked_is_covered_as_often_as_stated(asked: dict[str, object], truth: float) -> None:
    assert covered(TIMES, 0.9, truth, **asked) >= LEAST
    # The power of it: the intervals are not so long that nothing is missed.
    assert covered(60, 0.6, truth, **asked) < 0.85


def test_estimate_and_variance_of_a_node_are_those_of_the_whole_tree() -> None:
    measurements = measured(1)
    margins = margins_of(measurements)
    regions = Regions(measurements)
    for node, geoid in enumerate(measurements.geography.geoid):
        found = regions.region({str(geoid): 1}, cell="women")
        assert found.estimate == pytest.approx(margins.estimate[node, 1], abs=1e-9)
        assert found.sd == pytest.approx(margins.sd[node, 1], rel=1e-9)
        # The same law, without the guard and the parent's limit.
        assert found.upper >= margins.upper[node, 1] - 1
    both = regions.region({"n05": 1})
    assert both.sd == pytest.approx(np.sqrt(2) * margins.sd[5, 0])


def test_neighbours_have_shorter_margins_than_independent_ones_would() -> None:
    measurements = measured(1)
    family = {f"n{k:02d}": 1.0 for k in range(10, 16)}
    regions = Regions(measurements)
    together = regions.region(family, cell="men")
    apart = np.sqrt(sum(regions.region({geoid: 1}, cell="men").sd ** 2 for geoid in family))
    assert together.sd < 0.6 * apart
    assert together.sd == pytest.approx(regions.region({"n03": 1}, cell="men").sd)
    assert together.estimate == pytest.approx(regions.region({"n03": 1}, cell="men").estimate)


def test_sums_are_whole_and_not_negative_and_differences_may_be() -> None:
    measurements = measured(2)
    found = td.region(measurements, {"n10": 1, "n11": 1}, cell="men")
    assert found.lower == int(found.lower) >= 0
    assert found.upper == int(found.upper)
    # The least count is 0, and never printed with a sign.
    small = td.region(measurements, {"n04": 1}, cell="men", confidence=0.99)
    assert (small.lower, np.signbit(small.lower)) == (0, False)
    assert td.region(measurements, {"n02": 1}, minus={"n01": 1}, cell="men").upper < 0


def test_a_share_that_says_nothing_is_called_undetermined() -> None:
    found = td.region(measured(4), {"n10": 1}, cell="men", share_of={"n10": 1, "n12": 1})
    assert (found.lower, found.upper, found.note) == (0.0, 1.0, UNDETERMINED)


def test_a_share_of_much_is_as_sharp_as_its_parts() -> None:
    tree = Tree.from_family_sizes([[3]])
    there = geography(tree)
    frame = pd.DataFrame({"geoid": list(there.geoid[tree.leaves]), "men": [10**6, 4 * 10**6, 5 * 10**6]})
    counts = td.Counts.from_table(frame, there, geoid="geoid", cells=["men"])
    plan = td.Plan(epsilon="1", shares={"level 0": "0.5", "level 1": "0.5"})
    found = td.region(td.measure(counts, plan, source=td.SeededSource(1)), {"n3": 1}, share_of={"n0": 1})
    assert 0 < found.upper - found.lower < 3e-6
    assert found.lower < found.estimate < found.upper
    assert found.upper - found.lower == pytest.approx(3.2 * found.sd, rel=0.1)


def test_what_is_exact_is_said_to_be() -> None:
    plan = td.Plan(epsilon="1", shares={"level 0": "0.5", "level 2": "0.5"}, invariants=["level 1"])
    found = td.region(measured(0, plan), {"n01": 1, "n02": 1}, cell="men")
    assert found == (WHOLE[0, [1, 2]].sum(), 0.0, WHOLE[0, [1, 2]].sum(), WHOLE[0, [1, 2]].sum(), "exact")


def test_what_was_not_measured_is_not_determined() -> None:
    plan = td.Plan(epsilon="1", shares={"level 0": "0.5", "level 1": "0.5", "level 2": "0"})
    found = td.region(measured(0, plan), {"n04": 1})
    assert np.isinf(found.upper)
    assert "not determined" in found.note
    assert np.isfinite(td.region(measured(0, plan), {"n08": 1, "n09": 1}).sd)


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"weights": {"n99": 1}}, DataError, "no unit 'n99'"),
        ({"weights": {}}, DataError, "without units"),
        ({"weights": {"n01": float("nan")}}, DataError, "unit 'n01': weight nan; give every unit a number"),
        ({"weights": {"n01": "2"}}, DataError, "unit 'n01': weight '2'; give every unit a number"),
        ({"weights": {"n01": None}}, DataError, "unit 'n01': weight None"),
        ({"weights": {"n01": 1e200}}, DataError, "from 1e-50 to 1e50"),
        ({"weights": {"n01": 10**400}}, DataError, "from 1e-50 to 1e50"),
        ({"weights": {"n01": 1e-200}}, DataError, "from 1e-50 to 1e50"),
        ({"weights": {"n01": 1}, "minus": {"n02": "x"}}, DataError, "unit 'n02': weight 'x'"),
        ({"weights": {"n01": 1}, "share_of": {"n00": -1}}, DataError, "weights of 0 or more"),
        ({"weights": {"n01": 1}, "share_of": {"n00": 0}}, DataError, "not all of them 0"),
        ({"weights": {"n01": 1}, "share_of": {"n02": 1}}, DataError, "counts more in the part than in the whole"),
        ({"weights": {"n00": 1, "n01": 1}, "share_of": {"n00": 1}}, DataError, "counts more in the part"),
        ({"weights": {"n00": 1}, "share_of": {"n01": 1, "n02": 1}}, DataError, "counts more in the part"),
        ({"weights": {"n01": 1}, "minus": {"n02": 1}, "share_of": "total"}, DataError, "or less than 0"),
        ({"weights": {"n01": 1}, "cell": "mem"}, ConfigError, "did you mean 'men'"),
        ({"weights": {"n01": 1}, "query": "detailed"}, ConfigError, "2 answers; name one"),
        ({"weights": {"n01": 1}, "query": "sexes"}, ConfigError, "sexes"),
        ({"weights": {"n01": 1}, "confidence": 95}, ConfigError, "confidence 95"),
    ],
)
def test_what_cannot_be_meant_is_refused(asked: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        td.region(measured(0), **asked)  # type: ignore[arg-type]


def test_a_whole_may_be_given_by_its_parts() -> None:
    found = td.region(measured(0), {"n00": 1}, cell="men", share_of={"n01": 1, "n02": 1, "n03": 1})
    assert found.upper == 1.0


def test_what_is_not_determined_may_be_below_0_with_a_negative_weight() -> None:
    found = sum_margin(-1.0, np.inf, NORMAL, -np.ones(1), 0.1, signed=False)
    assert (found.lower, found.upper) == (-np.inf, np.inf)


def test_no_number_is_minus_zero() -> None:
    ones = np.ones(2)
    for estimate, variance in ((-1e-12, 0.0), (-0.0, 4.0), (-0.0, np.inf)):
        found = sum_margin(estimate, variance, NORMAL, ones, 0.1, signed=True)
        assert not np.signbit(found[0]), (estimate, variance)
    assert not np.signbit(fieller(Ratio(-0.0, 5.0, 1.0, 1.0, 0.0), lambda shares: [1.6] * len(shares))[0])


def test_weights_of_any_size_give_the_same_interval_in_their_unit() -> None:
    measurements = measured(1)
    for scale in (1e-45, 1e-12, 0.5, 1e45):
        found = td.region(measurements, {"n01": scale, "n02": scale / 2}, cell="men")
        expected = td.region(measurements, {"n01": 1.5, "n02": 0.75}, cell="men")
        for name in ("estimate", "sd", "lower", "upper"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name) * scale / 1.5, rel=1e-8), (scale, name)
        assert found.note == ""


def test_a_part_of_what_may_be_nothing_is_nearest_to_all_of_it() -> None:
    assert fieller(Ratio(50.0, -5.0, 1.0, 1.0, 0.0), lambda shares: [1.6] * len(shares))[2:4] == (1.0, 1.0)
    assert fieller(Ratio(-50.0, -5.0, 1.0, 1.0, 0.0), lambda shares: [1.6] * len(shares))[2:4] == (0.0, 0.0)
