"""Bounded noise in plans, the door, the simulation, the configuration and the study."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import topdown as td
from support.places import REPOSITORY
from topdown import additions
from topdown.config import load_config, load_study
from topdown.errors import BudgetError, ConfigError, PlanError
from topdown.noise import BoundaryInflatedDiscreteLaplace, DiscreteLaplace, TruncatedDiscreteLaplace, calibrate
from topdown.pipeline.run import run
from topdown.pipeline.study import study
from topdown.privacy import LaplaceEvent, PureEvent
from topdown.privacy.bounds import BOUND_KINDS, BoundKind, LevelBounds
from topdown.privacy.ledger import Ledger
from topdown.research.bounded.bounded_loss import calibrated_scale, charged_epsilon, keeps, truncated_loss
from topdown.studies.noise_comparison import NoiseVariant, best_noise, by_noise_and_size

LEVELS = ["nation", "county"]
SHARES = {"nation": Fraction(1, 4), "county": Fraction(3, 4)}
FRAME = pd.DataFrame({"nation": "US", "county": ["a", "b", "c", "d"], "n": [0, 1, 3, 40], "m": [2, 0, 7, 11]})
GEOGRAPHY = td.Geography.from_table(FRAME, levels=LEVELS)
COUNTS = td.Counts.from_table(FRAME, GEOGRAPHY, geoid="county", cells=["n", "m"])


def bounded(**changes: Any) -> td.Plan:
    return td.Plan(**({"epsilon": 1, "shares": SHARES, "bounds": {"county": "truncated"}} | changes))


# -- the registry of kinds ---------------------------------------------------------------------------------------------


def test_a_kind_that_is_added_is_taken_and_one_that_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    halved = BoundKind("halved", scale=lambda _, budget, neighbours: budget / 2, nearest=lambda _, counts: counts // 2)
    with pytest.raises(PlanError, match="unknown bounds 'halved'"):
        LevelBounds("halved")
    with pytest.raises(PlanError, match="unknown bounds 'halved'"):
        bounded(bounds="halved")
    monkeypatch.setitem(BOUND_KINDS, "halved", halved)
    plan = bounded(bounds={"county": "halved"}, upper={"county": 9})
    assert plan.bounds.at("county") == LevelBounds("halved", 9)
    assert plan.bounds.at("county").scale(Fraction(3), "add-remove") == Fraction(3, 2)
    assert plan.bounds.at("county").nearest(np.array([7])).tolist() == [3]
    assert td.Plan.from_dict(plan.to_dict()).bounds == plan.bounds


def test_what_was_not_loaded_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(additions.MODULES, "bounds")
    for kind in set(BOUND_KINDS) - {"none"}:
        monkeypatch.delitem(BOUND_KINDS, kind)
    assert LevelBounds().kind == "none"
    with pytest.raises(PlanError, match="unknown bounds 'truncated'; known: 'none'"):
        LevelBounds("truncated")


# -- what a level costs: brute force over neighbours and outputs ------------------------------------------------------


def brute_force_loss(scale: float, neighbours: str, upper: int | None) -> float:
    """The worst log ratio of the pmf of one count (a unit more) or of two (one up, one down), on a grid."""
    top = int(25 * scale) + 5 if upper is None else upper
    k = np.arange(top + int(40 * scale) + 5 if upper is None else upper + 1)
    locations = np.arange(top + 1)[:, None]
    law = TruncatedDiscreteLaplace(locations, Fraction(scale), 0, upper)
    # Logarithms, so that nothing underflows.
    weight = -np.abs(k - locations) / scale
    log = weight - np.log(np.exp(weight).sum(axis=1))[:, None]
    assert np.allclose(np.exp(log[:, :20]), np.asarray(law.pmf(k))[:, :20], rtol=1e-9, atol=1e-300)
    up = max(float((log[s] - log[s + 1]).max()) for s in range(top))
    down = max(float((log[s + 1] - log[s]).max()) for s in range(top))
    return max(up, down) if neighbours == "add-remove" else up + down


@pytest.mark.parametrize("neighbours", ["add-remove", "substitute"])
@pytest.mark.parametrize("upper", [None, 1, 2, 7, 30])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(4)])
def test_the_calibrated_scale_keeps_epsilon_and_is_tight(epsilon: Fraction, neighbours: str, upper: int | None) -> None:
    scale = calibrated_scale(epsilon, neighbours, upper)
    measured = brute_force_loss(float(scale), neighbours, upper)
    assert measured <= float(epsilon) * (1 + 1e-12)
    assert measured >= float(epsilon) * (1 - 1e-6)
    assert truncated_loss(float(scale), neighbours, upper) == pytest.approx(measured, rel=1e-9)


@pytest.mark.parametrize("neighbours", ["add-remove", "substitute"])
@pytest.mark.parametrize("upper", [None, 1, 3, 30])
def test_the_textbook_scale_is_charged_its_true_loss(neighbours: str, upper: int | None) -> None:
    plan = bounded(calibration="uncorrected", neighbours=neighbours, upper=None if upper is None else {"county": upper})
    assert plan.scale("county") == plan.sensitivity / Fraction(3, 4)
    true = brute_force_loss(float(plan.scale("county")), neighbours, upper)
    charged = plan.charged("county")
    assert isinstance(charged, Fraction)
    assert true * (1 - 1e-12) <= charged <= true * (1 + 1e-9)
    assert plan.charged_total == Fraction(1, 4) + charged
    assert plan.guarantee(LEVELS).total.epsilon == plan.charged_total


def test_two_counts_that_move_cost_less_than_one_count_of_sensitivity_two() -> None:
    assert float(calibrated_scale(Fraction(1), "substitute")) < float(calibrate(1.0, 2, 0, None, law="geometric"))


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**6), Fraction(1, 3), Fraction(2), Fraction(700)])
@pytest.mark.parametrize("upper", [None, 2, 10**9])
def test_the_scale_is_the_calibrated_one_from_above(epsilon: Fraction, upper: int | None) -> None:
    scale = calibrated_scale(epsilon, "add-remove", upper)
    assert float(scale) == pytest.approx(calibrate(float(epsilon), 1, 0, upper, law="geometric"), rel=1e-9)
    assert keeps(scale, epsilon, "add-remove", upper)
    if upper != 2 or epsilon < 100:
        assert not keeps(scale * (1 - Fraction(1, 10**11)), epsilon, "add-remove", upper)
    charged = charged_epsilon(1 / epsilon, "add-remove", upper)
    assert keeps(1 / epsilon, charged, "add-remove", upper)
    assert charged >= epsilon


def test_the_proof_refuses_what_costs_more() -> None:
    assert not keeps(Fraction(1), Fraction(1), "add-remove")
    assert not keeps(Fraction(1), Fraction(1), "substitute", 1)
    assert keeps(Fraction(1), Fraction(1), "add-remove", 1)
    assert not keeps(Fraction(1), Fraction(999, 1000), "add-remove", 1)
    # ln(e + 1 - 1/e) is the loss of scale 1 on a half-line.
    loss = Fraction(math.log(math.e + 1 - 1 / math.e))
    assert keeps(Fraction(1), loss + Fraction(1, 10**12), "add-remove")
    assert not keeps(Fraction(1), loss - Fraction(1, 10**12), "add-remove")


# -- plans ------------------------------------------------------------------------------------------------------------


def test_a_bounded_plan() -> None:
    plan = bounded()
    assert plan.scale("nation") == 4
    assert plan.budget("county") == Fraction(3, 4)
    assert plan.charged("county") == Fraction(3, 4)
    assert plan.charged_total == plan.total == 1
    assert plan.scale("county") == calibrated_scale(Fraction(3, 4), "add-remove")
    assert plan.variance("county") == DiscreteLaplace(plan.scale("county")).variance
    nation, county = plan.events(LEVELS)
    assert isinstance(nation, LaplaceEvent)
    assert isinstance(county, PureEvent)
    assert (county.mechanism, county.epsilon) == ("truncated geometric", Fraction(3, 4))
    assert plan.guarantee(LEVELS).total.epsilon == 1


def test_clipping_costs_nothing() -> None:
    plan = bounded(bounds="boundary-inflated", upper={"county": 50})
    plain = bounded(bounds="none")
    assert [plan.scale(level) for level in LEVELS] == [plain.scale(level) for level in LEVELS]
    assert [event.epsilon for event in plan.events(LEVELS)] == [event.epsilon for event in plain.events(LEVELS)]
    assert plan.bounds.at("county").upper == 50
    assert plan.bounds.at("nation").upper is None


@pytest.mark.parametrize("neighbours", ["add-remove", "substitute"])
def test_the_normalized_scale_is_twice_the_textbook_one_and_keeps_the_budget(neighbours: str) -> None:
    plan = bounded(bounds="normalized", neighbours=neighbours)
    assert plan.scale("county") == 2 * plan.sensitivity / Fraction(3, 4)
    assert plan.charged("county") == Fraction(3, 4)
    assert brute_force_loss(float(plan.scale("county")), neighbours, None) < 0.75
    assert plan.bounds.at("county").loss(Fraction(3, 4), neighbours) < 0.75


def test_an_unbounded_plan_is_as_it_was() -> None:
    plan = bounded(bounds="none")
    assert plan == td.Plan(epsilon=1, shares=SHARES)
    assert hash(plan) == hash(td.Plan(epsilon=1, shares=SHARES))
    assert "bounds" not in repr(plan)
    assert "bounds" not in json.dumps(plan.to_dict())
    assert "bounds" not in plan.describe(LEVELS)
    assert plan != bounded()
    assert "truncated" in repr(bounded())


def test_a_bounded_plan_as_json_and_in_words() -> None:
    plan = bounded(upper={"county": 1000}, calibration="uncorrected")
    entry = next(one for one in plan.to_dict()["shares"] if one["level"] == "county")
    assert (entry["bounds"], entry["upper"], entry["calibration"]) == ("truncated", 1000, "uncorrected")
    assert Fraction(entry["charged"]) == Fraction(entry["epsilon"]) == plan.charged("county") > plan.budget("county")
    assert Fraction(plan.to_dict()["epsilon"]) == plan.charged_total > plan.total
    again = td.Plan.from_dict(plan.to_dict())
    assert (again.total, again.scale("county")) == (plan.total, plan.scale("county"))
    # As manifests said it before: what was asked for, where what is charged is meant.
    before = plan.to_dict() | {"epsilon": str(plan.total)}
    assert td.Plan.from_dict(before).total == plan.total
    assert "bounds" not in next(one for one in plan.to_dict()["shares"] if one["level"] == "nation")
    words = plan.describe(LEVELS)
    assert f"Total: epsilon = {plan.charged_total}" in words
    assert "uncorrected textbook scale" in words
    assert "0 to 1,000" in words
    assert "not unbiased" in words
    assert "their true cost within bounds" in words
    assert "their true cost within bounds" not in bounded().describe(LEVELS)


def test_replace_and_equal_shares_keep_the_bounds() -> None:
    plan = td.Plan(epsilon=1, bounds="truncated", upper=9).for_levels(LEVELS)
    assert plan.bounds.at("county").kind == "truncated"
    assert dataclasses.replace(plan, epsilon=2).bounds == plan.bounds
    assert plan.bounds.at("nation").upper == 9


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bounds": "clipped"}, "unknown bounds 'clipped'"),
        ({"bounds": {"county": "trunc"}}, "truncated"),
        ({"bounds": {"tract": "truncated"}}, "tract"),
        ({"bounds": None}, "unknown bounds"),
        ({"calibration": "textbook"}, "unknown calibration"),
        ({"upper": 5, "bounds": "none"}, "not bounded|no level"),
        ({"upper": {"nation": 5}}, "nation"),
        ({"upper": {"county": 0}}, "1 to 2"),
        ({"upper": {"county": 2.5}}, "whole number"),
        ({"upper": {"county": True}}, "whole number"),
        ({"bounds": "boundary-inflated", "calibration": "uncorrected"}, "uncorrected"),
        ({"mechanism": "laplace"}, "geometric"),
        ({"mechanism": "discrete-gaussian", "epsilon": None, "rho": 1}, "geometric"),
        ({"bounds": {"nation": "truncated"}, "shares": {"county": 1}, "invariants": ["nation"]}, "invariant"),
    ],
)
def test_what_a_plan_refuses(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BudgetError, match=words):
        bounded(**changes).check_levels(LEVELS)


def test_one_word_for_all_levels_leaves_invariants_alone() -> None:
    plan = td.Plan(epsilon=1, shares={"county": 1}, invariants=["nation"], bounds="truncated")
    measured = td.measure(COUNTS, plan, td.SeededSource(1))
    assert measured.values[0].tolist() == [44, 20]
    assert plan.scale("nation") == 0


# -- the door ---------------------------------------------------------------------------------------------------------


def law_of(kind: str, location: int, scale: Fraction, upper: int | None) -> Any:
    law = BoundaryInflatedDiscreteLaplace if kind == "boundary-inflated" else TruncatedDiscreteLaplace
    return law(location, scale, 0, upper)


@pytest.mark.parametrize("kind", ["boundary-inflated", "truncated", "normalized"])
@pytest.mark.parametrize("upper", [None, 41])
def test_measured_counts_follow_the_bounded_law(kind: str, upper: int | None) -> None:
    plan = td.Plan(
        epsilon=1, shares=SHARES, bounds={"county": kind}, upper=None if upper is None else {"county": upper}
    )
    many = pd.DataFrame({"nation": "US", "county": [f"c{i}" for i in range(20_000)], "n": 2, "m": 40})
    geography = td.Geography.from_table(many, levels=LEVELS)
    counts = td.Counts.from_table(many, geography, geoid="county", cells=["n", "m"])
    measured = td.measure(counts, plan, td.SeededSource(5))
    assert measured.values.dtype == np.int64
    drawn = measured.values[1:]
    scale = plan.scale("county")
    for column, location in enumerate((2, 40)):
        for k, factor in product((0, 1, 2, 3, 39, 41), (1.0, 0.9, 1.1)):
            right = float(law_of(kind, location, scale, upper).cdf(k))
            wrong = float(law_of(kind, location, scale * Fraction(factor), upper).cdf(k))
            seen = int((drawn[:, column] <= k).sum())
            if factor == 1.0:
                assert min(binom.cdf(seen, 20_000, right), binom.sf(seen - 1, 20_000, right)) > 1e-9
            elif abs(wrong - right) > 0.025:
                assert min(binom.cdf(seen, 20_000, wrong), binom.sf(seen - 1, 20_000, wrong)) < 1e-9
    assert drawn.min() >= 0
    assert upper is None or drawn.max() <= upper
    assert np.all(measured.variance[1:] == DiscreteLaplace(scale).variance)


def test_other_levels_are_not_bounded_and_draw_as_before() -> None:
    plain = td.measure(COUNTS, bounded(bounds="none", epsilon=Fraction(1, 100)), td.SeededSource(3))
    found = td.measure(
        COUNTS, bounded(bounds={"county": "boundary-inflated"}, epsilon=Fraction(1, 100)), td.SeededSource(3)
    )
    assert plain.values[0].tolist() == found.values[0].tolist()
    assert plain.values[1:].min() < 0
    assert np.array_equal(np.maximum(plain.values[1:], 0), found.values[1:])


def test_counts_beyond_a_wrong_upper_bound_still_stay_within_it() -> None:
    for kind in ("truncated", "boundary-inflated"):
        found = td.measure(COUNTS, bounded(bounds={"county": kind}, upper={"county": 5}), td.SeededSource(3))
        assert found.values[1:].max() <= 5


def test_a_bounded_measurement_projects() -> None:
    measured = td.measure(COUNTS, bounded(bounds="truncated"))
    assert measured.fit_for_release
    release = td.round_counts(td.project(measured, "gls-top-down", nonnegative=True))
    assert (release.values >= 0).all()
    assert release.values[1:].sum(axis=0).tolist() == release.values[0].tolist()


def test_continuous_laws_are_marked_as_not_for_release() -> None:
    noise = td.noise
    for continuous in (noise.Laplace, noise.TruncatedLaplace, noise.BoundaryInflatedLaplace, noise.NormalizedLaplace):
        assert continuous.fit_for_release is False
    for kind in ("none", "boundary-inflated", "truncated", "normalized"):
        plan = bounded(bounds={"county": kind})
        assert plan.law("county").fit_for_release
        assert td.measure(COUNTS, plan, td.SecureSource()).fit_for_release
        assert not td.measure(COUNTS, plan, td.SeededSource(1)).fit_for_release


# -- the simulation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["boundary-inflated", "truncated"])
def test_simulated_bias_and_variance_are_the_laws(kind: str) -> None:
    plan = bounded(bounds={"county": kind}, upper={"county": 45})
    table = td.simulate(COUNTS, plan, ["raw", "top-down"], replicates=20_000, seed=2)
    scale = plan.scale("county")
    truth = COUNTS.values[1:]
    law = law_of(kind, truth, scale, 45)
    for name, exact in (("bias", law.bias), ("variance", law.variance)):
        error = np.abs(table["raw", name][1:] - exact) / table["raw", f"{name}_se"][1:]
        assert error.max() < 5.5
        wrong = law_of(kind, truth, scale * Fraction(11, 10), 45)
        other = np.abs(table["raw", name][1:] - getattr(wrong, name)) / table["raw", f"{name}_se"][1:]
        assert other.max() > 8
    assert table.noise_variance[1] == DiscreteLaplace(scale).variance


def test_the_simulation_of_an_unbounded_plan_is_as_it_was() -> None:
    first = td.simulate(COUNTS, bounded(bounds="none"), ["raw"], replicates=50, seed=9)
    second = td.simulate(COUNTS, td.Plan(epsilon=1, shares=SHARES), ["raw"], replicates=50, seed=9)
    assert np.array_equal(first["raw", "bias"], second["raw", "bias"])


# -- configuration, pipeline, ledger ----------------------------------------------------------------------------------

TOML = """
[input]
path = "table.csv"
cells = ["n", "m"]
[geography]
levels = ["nation", "county"]
[privacy]
epsilon = 1
shares = { nation = 0.25, county = 0.75 }
"""


def written(folder: Path, text: str) -> Path:
    FRAME.to_csv(folder / "table.csv", index=False)
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


def test_the_noise_section(tmp_path: Path) -> None:
    plain = load_config(written(tmp_path, TOML))
    assert not plain.plan().bounds.any
    config = load_config(written(tmp_path, TOML + '[noise]\nbounds = "truncated"\nupper = { county = 1e6 }\n'))
    assert config.plan().bounds.at("county").upper == 1_000_000
    assert config.plan().bounds.at("nation").kind == "truncated"
    assert config.fingerprint() != plain.fingerprint()
    same = load_config(written(tmp_path, TOML + '[noise]\nbounds = "none"\n'))
    assert same.fingerprint() == plain.fingerprint()
    with pytest.raises(ConfigError, match=r"noise\.bound.*bounds"):
        load_config(written(tmp_path, TOML + '[noise]\nbound = "none"\n'))


def test_a_bounded_release_says_what_it_cost(tmp_path: Path) -> None:
    noise = '[noise]\nbounds = { county = "truncated" }\ncalibration = "uncorrected"\n'
    ledger = '[ledger]\npath = "ledger.json"\ndataset = "made"\n'
    config = load_config(written(tmp_path, TOML + noise + ledger))
    plan = config.plan()
    account = Ledger(tmp_path / "ledger.json")
    account.open_account("made", 1)
    with pytest.raises(BudgetError):
        run(config, tmp_path / "out")
    (tmp_path / "ledger.json").unlink()
    account.open_account("made", 2)
    outcome = run(config, tmp_path / "out")
    manifest = json.loads((outcome.public / "manifest.json").read_text())
    privacy = manifest["privacy"]
    assert Fraction(privacy["total"]) == Fraction(privacy["epsilon"]) == plan.charged_total > 1
    for one in privacy["shares"]:
        assert Fraction(one["epsilon"]) == plan.charged(one["level"])
    assert sum(Fraction(one["epsilon"]) for one in privacy["shares"]) == plan.charged_total
    assert "uncorrected textbook scale" in manifest["privacy"]["statement"]
    spent = {one["level"]: Fraction(one["epsilon"]) for one in manifest["privacy"]["budget"]}
    assert spent == {"nation": Fraction(1, 4), "county": plan.charged("county")}
    assert account.account("made").left == 2 - plan.charged_total
    measured = pd.read_parquet(outcome.public / "measurements.parquet")
    assert (measured[measured["level"] == "county"]["value"] >= 0).all()
    # Least squares on bounded, and so biased, counts are not called unbiased anywhere.
    assert "unbiased" not in pd.read_parquet(outcome.public / "estimates.parquet")
    assert "least_squares" in pd.read_parquet(outcome.public / "estimates.parquet")
    assert {name: one["unbiased"] for name, one in manifest["projections"].items()} == {
        "least_squares": False,
        "non_negative": False,
    }


@pytest.mark.parametrize("name", ["us_counties_bounded", "us_counties_bounded_study"])
def test_the_pipelines_of_the_repository(name: str) -> None:
    path = REPOSITORY / "pipelines" / f"{name}.toml"
    if name.endswith("study"):
        config = load_study(path)
        plans = [config.variant_plan(variant) for variant in config.study.variant]
        assert all(plan.bounds.any for plan in plans)
        assert [plan.charged_total > Fraction(1, 10) for plan in plans] == [False, False, False, True]
    else:
        assert load_config(path).plan().bounds.at("county").kind == "truncated"


# -- the study's comparison -------------------------------------------------------------------------------------------

STUDY = (
    TOML
    + """
[projection]
method = "top-down"
[study]
replicates = 60
methods = ["raw", "gls", "top-down"]
size_classes = [5]
public_input = true
[[study.variant]]
name = "truncated"
bounds = { county = "truncated" }
[[study.variant]]
name = "dear"
bounds = { county = "truncated" }
calibration = "uncorrected"
methods = ["top-down"]
"""
)


def test_a_study_compares_kinds_of_noise(tmp_path: Path) -> None:
    outcome = study(load_study(written(tmp_path, STUDY)), tmp_path / "out", workers=1)
    table = pd.read_parquet(outcome.directory / "errors_by_noise.parquet")
    assert list(table["noise"].unique()) == ["unbounded", "truncated", "dear"]
    assert set(table[table["noise"] == "dear"]["method"]) == {"top-down"}
    main = pd.read_parquet(outcome.directory / "errors.parquet")
    assert table[table["noise"] == "unbounded"]["mse"].tolist() == main["mse"].tolist()
    charged = table.groupby("noise")["charged"].first()
    assert charged["truncated"] == charged["unbounded"] == 1.0 < charged["dear"]
    page = outcome.report.read_text()
    assert 'id="noise"' in page
    assert "at equal true epsilon" in page
    # Of 4 counts and few replicates not every difference is clear, and the page says of which.
    assert (
        0
        < page.count("(not clearly)")
        <= page.count('<td class="t">unbounded, ') + page.count('<td class="t">truncated, ')
    )


def test_a_study_without_variants_says_nothing_of_them(tmp_path: Path) -> None:
    text = STUDY[: STUDY.index("[[study.variant]]")]
    outcome = study(load_study(written(tmp_path, text)), tmp_path / "out", workers=1)
    assert not (outcome.directory / "errors_by_noise.parquet").exists()
    assert 'id="noise"' not in outcome.report.read_text()


@pytest.mark.parametrize("name", ["truncated", "unbounded"])
def test_variants_need_names_of_their_own(tmp_path: Path, name: str) -> None:
    twice = STUDY.replace('name = "dear"', f'name = "{name}"')
    with pytest.raises(ConfigError, match="its own"):
        load_study(written(tmp_path, twice))


def test_the_comparison_by_size_class_and_who_wins() -> None:
    plans = {"unbounded": bounded(bounds="none"), "truncated": bounded(), "dear": bounded(calibration="uncorrected")}
    variants = [
        NoiseVariant(name, plan, td.simulate(COUNTS, plan, ["raw", "top-down"], replicates=400, seed=1))
        for name, plan in plans.items()
    ]
    labels = {"n": ["small", "small", "small", "large"]}
    rows = by_noise_and_size(variants, labels)
    assert len(rows) == 2 * 3 * 2
    small = rows[(rows["group"] == "small") & (rows["noise"] == "truncated") & (rows["method"] == "raw")].iloc[0]
    mse = variants[1].table["raw", "mse"][1:4, 0].mean()
    assert small["rmse"] == pytest.approx(math.sqrt(mse))
    half = 1.96 * np.sqrt((variants[1].table["raw", "wasserstein_se"][1:4, 0] ** 2).sum()) / 3
    ends = (variants[1].table["raw", name][1:4, 0].mean() for name in ("wasserstein_corrected", "wasserstein"))
    low, high = (end + sign * half for end, sign in zip(ends, (-1, 1), strict=True))
    assert small["wasserstein_low"] == pytest.approx(max(low, 0.0))
    assert small["wasserstein_high"] == pytest.approx(high)
    assert list(rows["order"].unique()) == [0, 1]
    best = best_noise(rows, ("unbounded", "top-down"))
    allowed = rows[(rows["noise"] != "dear") & (rows["method"] != "raw")]
    for _, row in best.iterrows():
        part = allowed[allowed["group"] == row["group"]]
        assert row["rmse"] == part["rmse"].min()
        assert abs(row["bias"]) == part["bias"].abs().min()
        assert row["rmse_noise"] != "dear"
    with pytest.raises(ConfigError, match="baseline"):
        best_noise(rows, ("unbounded", "joint"))
    with pytest.raises(ConfigError, match="name of its own"):
        by_noise_and_size([variants[0], variants[0]], labels)


@pytest.mark.parametrize("wrong", [{"kind": "clipped"}, {"kind": "truncated", "calibration": "true"}])
def test_bounds_of_a_kind_that_is_not_known_are_refused(wrong: dict[str, str]) -> None:
    """They would be charged as noise that is not conditioned."""
    with pytest.raises(PlanError, match=r"unknown (bounds 'clipped'|calibration 'true')"):
        LevelBounds(**wrong)
