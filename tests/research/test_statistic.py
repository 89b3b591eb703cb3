"""One bounded statistic that is fit for release: exact on its grid, at its epsilon, through the ledger."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.places import Command
from topdown.errors import BudgetError, ConfigError, CountsError
from topdown.noise import TruncatedDiscreteLaplace, calibrate
from topdown.privacy.ledger import Ledger
from topdown.privacy.sensitivity import covariance_sensitivity, largest_variance, mean_sensitivity, variance_sensitivity
from topdown.research.statistic.grid_loss import calibrated_scale_on_grid, keeps_on_grid
from topdown.research.statistic.released_statistic import release_statistic
from topdown.research.statistic.statistic_plan import STATISTICS

BOUNDS: dict[str, Any] = {"mean": ((-1, 4),), "variance": ((-1, 4),), "covariance": ((-1, 4), (0, 2))}


def plan(statistic: str = "mean", **changes: Any) -> td.StatisticPlan:
    given: dict[str, Any] = {
        "statistic": statistic,
        "bounds": BOUNDS[statistic],
        "records": 8,
        "epsilon": Fraction(1, 2),
    }
    return td.StatisticPlan(**(given | changes))


def by_brute_force(scale: float, reach: int, width: int) -> float:
    k = np.arange(width + 1)
    log = np.log(np.asarray(TruncatedDiscreteLaplace(k[:, None], Fraction(scale), 0, width).pmf(k)))
    return max(float(np.abs(log[:-d] - log[d:]).max()) for d in range(1, min(reach, width) + 1))


@pytest.mark.parametrize(("reach", "width"), [(1, 1), (1, 9), (3, 9), (7, 40), (40, 40), (50, 40)])
def test_the_scale_on_a_grid_is_the_smallest_that_keeps_epsilon(reach: int, width: int) -> None:
    for epsilon in (Fraction(1, 5), Fraction(1), Fraction(3)):
        scale = calibrated_scale_on_grid(epsilon, reach, width)
        assert by_brute_force(float(scale), reach, width) <= epsilon + 1e-9
        assert by_brute_force(float(scale), reach, width) == pytest.approx(float(epsilon), rel=1e-8)
        assert not keeps_on_grid(scale * (1 - Fraction(1, 10**9)), epsilon, reach, width)
        if reach <= width:
            assert float(scale) == pytest.approx(
                float(calibrate(float(epsilon), reach, 0, width, law="geometric")), rel=1e-9
            )


@pytest.mark.parametrize("n", [2, 3, 8, 9])
def test_sensitivities_and_ranges_are_those_of_the_source(n: int) -> None:
    mean, variance, covariance = (plan(name, records=n) for name in STATISTICS)
    assert float(mean.sensitivity) == pytest.approx(mean_sensitivity(n, -1, 4))
    assert float(variance.sensitivity) == pytest.approx(variance_sensitivity(n, -1, 4, neighbours="substitute"))
    expected = covariance_sensitivity(n, (-1, 4), (0, 2), neighbours="substitute")
    assert float(covariance.sensitivity) == pytest.approx(expected)
    assert mean.range_ == (-1, 4)
    assert float(variance.range_[1]) == pytest.approx(largest_variance(n, -1, 4))
    assert variance.range_[0] == 0
    assert covariance.range_ == (-covariance.range_[1], covariance.range_[1])
    assert float(covariance.range_[1]) == pytest.approx(
        math.sqrt(largest_variance(n, -1, 4) * largest_variance(n, 0, 2))
    )


@pytest.mark.parametrize("statistic", STATISTICS)
def test_one_record_moves_the_rounded_statistic_by_its_reach_at_most(statistic: str) -> None:
    """Pairs of tables that differ in one record, on a coarse grid, where rounding matters most."""
    rng = np.random.default_rng(3)
    one = plan(statistic, records=4, grid_bits=1, epsilon=1000)
    columns = STATISTICS[statistic].columns
    moved = []
    for _ in range(400):
        table = rng.uniform(-2, 5, (4, columns)).round(1)
        other = np.array(table)
        other[0] = rng.choice([-9.0, 9.0], columns)
        released = [td.measure_statistic(x, one, td.SeededSource(0)).value for x in (table, other)]
        moved.append(abs(released[0] - released[1]))
    assert one.sensitivity / 2 < max(moved) <= Fraction(one.reach, 2)
    assert statistic == "covariance" or max(moved) > one.sensitivity  # rounding adds to it


@pytest.mark.parametrize("bounding", ["boundary-inflated", "truncated"])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_a_statistic_without_noise_is_itself(statistic: str, bounding: str) -> None:
    rng = np.random.default_rng(1)
    table = rng.uniform(-0.9, 1.9, (8, STATISTICS[statistic].columns))
    found = td.measure_statistic(table, plan(statistic, epsilon=10**7, bounding=bounding), td.SeededSource(1))
    inside = np.clip(table, *np.array(BOUNDS[statistic]).T)
    true = {
        "mean": np.mean(inside),
        "variance": np.var(inside, ddof=1),
        "covariance": np.cov(inside[:, 0], inside[:, -1])[0, 1],
    }
    assert float(found.value) == pytest.approx(float(true[statistic]), abs=2.0**-found.grid_bits + 1e-5)
    assert (found.value * 2**found.grid_bits).denominator == 1


def test_draws_have_the_law_and_stay_within_the_range() -> None:
    values = np.array([-1.0, -1, -1, 0, -1, -1, -1, 0])
    for bounding in ("boundary-inflated", "truncated"):
        one = plan(epsilon=4, bounding=bounding, grid_bits=3)
        source = td.SeededSource(9)
        drawn = np.array([float(td.measure_statistic(values, one, source).value) for _ in range(4000)])
        assert drawn.min() >= -1
        first, _ = one.steps
        law: Any = (
            td.noise.BoundaryInflatedDiscreteLaplace if bounding == "boundary-inflated" else TruncatedDiscreteLaplace
        )
        exact = law(-6 - first, one.scale, 0, one.width)  # the mean is -3/4, six steps of 1/8
        assert abs(drawn.mean() * 8 - first - exact.mean) < 6 * float(exact.variance) ** 0.5 / math.sqrt(4000)
        assert abs((drawn == -1).mean() - float(exact.pmf(0))) < 6 * 0.5 / math.sqrt(4000)


def test_it_is_fit_for_release_from_secure_entropy_alone() -> None:
    values = np.arange(8) / 4
    assert td.measure_statistic(values, plan()).fit_for_release
    assert not td.measure_statistic(values, plan(), td.SeededSource(1)).fit_for_release
    said = td.measure_statistic(values, plan()).to_dict()
    assert Fraction(said["value"]) == Fraction(said["decimal"])


def test_the_event_is_charged_what_was_asked() -> None:
    for bounding in ("boundary-inflated", "truncated"):
        event = plan(bounding=bounding).event
        assert (event.epsilon, event.neighbours) == (Fraction(1, 2), "substitute")  # type: ignore[union-attr]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    pd.DataFrame({"income": np.arange(100) * 10, "member": [0, 1] * 50}).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    "values",
    [
        ["SECRET777", 1, 2],
        {"SECRET777": 1},
        [1, 777 + 1j, 2],
        np.array([1, 777 + 1j, 2]),
        [[777, 1], [777], [1]],
        [777 * 10**400, 1, 2],
        [{"SECRET777": 1}, 1, 2],
        [],
    ],
)
def test_what_is_no_number_is_refused_and_nowhere_in_the_error(values: Any) -> None:
    with pytest.raises(CountsError) as raised:
        td.measure_statistic(values, plan(records=3), td.SeededSource(1))
    assert "777" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_infinite_values_are_clipped_as_all_beyond_the_bounds_are() -> None:
    infinite, beyond = (
        td.measure_statistic([value, 1.0, -value], plan(records=3), td.SeededSource(1)) for value in (math.inf, 9.0)
    )
    assert infinite == beyond


def test_through_the_command_and_the_ledger(table: Path, tmp_path: Path, topdown: Command) -> None:
    Ledger(tmp_path / "ledger.db").open_account("people", 1, neighbours="substitute")
    common = ["--ledger", tmp_path / "ledger.db", "--dataset", "people"]
    asked = ["statistic", table, "--column", "member", "--bounds", "0:1", "--epsilon", "0.6", *common]
    made = topdown(*asked, "--output", tmp_path / "one")
    assert made.returncode == 0, made.stderr
    written = json.loads((tmp_path / "one" / "statistic.json").read_text(encoding="utf-8"))
    assert 0 <= written["decimal"] <= 1
    assert written["fit_for_release"]
    assert Ledger(tmp_path / "ledger.db").account("people").left == Fraction(2, 5)
    # Again: the same number, and nothing more is spent.
    assert topdown(*asked, "--output", tmp_path / "one").returncode == 0
    assert json.loads((tmp_path / "one" / "statistic.json").read_text(encoding="utf-8")) == written
    assert Ledger(tmp_path / "ledger.db").account("people").left == Fraction(2, 5)
    over = topdown(*asked, "--output", tmp_path / "two")
    assert over.returncode == 5
    assert not (tmp_path / "two" / "statistic.json").exists()
    (tmp_path / "one" / "statistic.json").unlink()
    assert topdown(*asked, "--output", tmp_path / "one").returncode == 0
    assert json.loads((tmp_path / "one" / "statistic.json").read_text(encoding="utf-8")) == written
    assert Ledger(tmp_path / "ledger.db").account("people").left == Fraction(2, 5)


def test_another_plan_does_not_take_the_place_of_what_is_there(table: Path, tmp_path: Path) -> None:
    def asked(epsilon: int) -> Any:
        return release_statistic(
            table, ["income"], lambda n: td.StatisticPlan("mean", ((0, 1000),), n, epsilon), tmp_path / "a"
        )

    first = asked(1)
    assert asked(1) == first
    with pytest.raises(ConfigError, match="another configuration"):
        asked(2)


def test_bad_input_is_named(table: Path, tmp_path: Path, topdown: Command) -> None:
    for changed, words in (
        ({"statistic": "median", "bounds": ((0, 1),)}, "unknown statistic"),
        ({"bounds": ((1, 1),)}, "lower < upper"),
        ({"bounds": ((0, 1), (0, 1))}, "2 pairs of bounds"),
        ({"records": 1}, "two or more"),
        ({"bounding": "truncate"}, "did you mean 'truncated'"),
        ({"grid_bits": 60}, "too fine"),
    ):
        with pytest.raises(ConfigError, match=words):
            td.StatisticPlan(**({"statistic": "mean", "bounds": ((0, 1),), "records": 3, "epsilon": 1} | changed))
    with pytest.raises(BudgetError, match="epsilon is 0"):
        plan(epsilon=0)
    with pytest.raises(CountsError, match="8 records and 1 columns"):
        td.measure_statistic([1.0, 2.0], plan())
    with pytest.raises(CountsError, match="record 1 is missing"):
        td.measure_statistic([1.0, math.nan, *[0.0] * 6], plan())
    said = topdown(
        "statistic", table, "--column", "income", "--bounds", "0-9", "--epsilon", "1", "--output", tmp_path / "b"
    )
    assert said.returncode == 2
    assert "LOWER:UPPER" in said.stderr
