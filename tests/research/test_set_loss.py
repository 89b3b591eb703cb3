"""Plans whose counts lie in sets with gaps: what they cost, by brute force, and a run from table to release."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.places import RUN_TOML
from topdown.config import load_config
from topdown.errors import PlanError
from topdown.noise import calibrate
from topdown.pipeline.run import run
from topdown.privacy import LaplaceEvent, PureEvent
from topdown.privacy.bounds import LevelBounds
from topdown.privacy.ledger import Ledger
from topdown.research.bounded.set_loss import calibrated_scale_on_set, keeps_on_set, set_loss_bound
from topdown.research.bounded.whole_sets import whole_pieces

SETS = [
    ((0, 0), (10, None)),
    ((0, 5), (9, 40)),
    ((None, 3), (20, 22), (30, None)),
    ((0, 0), (3, 3), (5, 5)),
    ((0, 0), (2, 2)),
]


def by_brute_force(scale: float, neighbours: str, pieces: Any) -> float:
    """The worst log ratio over all counts that differ by one, in the set or not, and all outputs."""
    k = np.arange(-900, 1000)
    k = k[np.any([(k >= (-900 if a is None else a)) & (k <= (1000 if b is None else b)) for a, b in pieces], axis=0)]
    counts = np.arange(-200, 300)[:, None]
    log = -np.abs(k - counts) / scale
    top = log.max(axis=1, keepdims=True)
    log = log - top - np.log(np.exp(log - top).sum(axis=1, keepdims=True))
    up, down = float((log[:-1] - log[1:]).max()), float((log[1:] - log[:-1]).max())
    return max(up, down) if neighbours == "add-remove" else up + down


@pytest.mark.parametrize("neighbours", ["add-remove", "substitute"])
@pytest.mark.parametrize("scale", [0.4, 2.0, 7.5])
@pytest.mark.parametrize("pieces", SETS)
def test_the_loss_is_that_of_brute_force(pieces: Any, scale: float, neighbours: str) -> None:
    found = math.log(set_loss_bound(Fraction(scale), neighbours, pieces))
    assert found == pytest.approx(by_brute_force(scale, neighbours, pieces), abs=1e-9)


@pytest.mark.parametrize("neighbours", ["add-remove", "substitute"])
@pytest.mark.parametrize("pieces", SETS)
def test_the_scale_is_the_smallest_that_keeps_epsilon(pieces: Any, neighbours: str) -> None:
    epsilon = Fraction(1, 2)
    scale = calibrated_scale_on_set(epsilon, neighbours, pieces)
    assert keeps_on_set(scale, epsilon, neighbours, pieces)
    assert not keeps_on_set(scale * (1 - Fraction(1, 10**9)), epsilon, neighbours, pieces)
    moved = {"add-remove": 1, "substitute": 2}[neighbours]
    assert scale <= 2 * moved / epsilon + Fraction(1, 10**9)  # twice the textbook scale always suffices


def test_intervals_and_half_lines_cost_what_they_did() -> None:
    half = Fraction(1, 2)
    for within, upper in (([(0, None)], None), ([(5, None)], None), ([(-np.inf, 7)], None), ([(3, 12)], 9)):
        one = LevelBounds("truncated", within=whole_pieces(within))
        assert one.scale(half, "add-remove") == LevelBounds("truncated", upper).scale(half, "add-remove")
    exact = LevelBounds("truncated", within=((2, 6),)).scale(half, "add-remove")
    assert float(exact) == pytest.approx(float(calibrate(0.5, 1, 2, 6, law="geometric")), rel=1e-9)


PLAN: dict[str, Any] = {"epsilon": 1, "shares": {"nation": "1/2", "county": "1/2"}}
WITHIN = {"county": [(0, 0), (10, np.inf)]}


def test_a_plan_with_gaps_is_charged_its_true_epsilon() -> None:
    plan = td.Plan(**PLAN, bounds={"county": "truncated"}, within=WITHIN)
    assert plan.charged_total == 1
    assert 2 < plan.scale("county") <= 4
    assert keeps_on_set(plan.scale("county"), Fraction(1, 2), "add-remove", ((0, 0), (10, None)))
    textbook = td.Plan(**PLAN, bounds={"county": "truncated"}, within=WITHIN, calibration="uncorrected")
    assert textbook.scale("county") == 2
    loss = by_brute_force(2.0, "add-remove", ((0, 0), (10, None)))
    assert loss <= textbook.charged("county") < loss + 1e-9
    normalized = td.Plan(**PLAN, bounds={"county": "normalized"}, within=WITHIN)
    assert normalized.scale("county") == 4
    clipped = td.Plan(**PLAN, bounds={"county": "boundary-inflated"}, within=WITHIN)
    assert clipped.scale("county") == 2
    kinds = {plan: type(plan.events(("nation", "county"))[1]) for plan in (textbook, clipped)}
    assert list(kinds.values()) == [PureEvent, LaplaceEvent]
    for one in (plan, textbook, normalized, clipped):
        again = td.Plan.from_dict(json.loads(json.dumps(one.to_dict())))
        assert (again.bounds, again.charged_total) == (one.bounds, one.charged_total)
        assert "0 or 10 or more" in one.bounds.at("county").in_words()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"within": {"county": [(3, 2)]}}, "level 'county': interval"),
        ({"within": {"county": []}}, "no interval"),
        ({"within": {"county": 7}}, "give a list of pairs"),
        ({"within": {"county": [(4, 4)]}}, "make the level invariant"),
        ({"within": [(0, 1)]}, "within is"),
        ({"within": {"nation": [(0, 1)]}}, "set bounds for it"),
        ({"within": {"county": [(0, 9)]}, "upper": {"county": 5}}, "the intervals alone"),
    ],
)
def test_sets_that_cannot_be_meant_are_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        td.Plan(**PLAN, bounds={"county": "truncated"}, **changed)


@pytest.mark.parametrize("kind", ["truncated", "boundary-inflated", "normalized"])
def test_a_run_keeps_every_measured_count_in_its_set(kind: str, tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.assign(label="x").to_csv(tmp_path / "table.csv", index=False)
    noise = f'[noise]\nbounds = {{ county = "{kind}" }}\nwithin = {{ county = [[0, 0], [5, 8], [12, inf]] }}\n'
    ledger = '[ledger]\npath = "ledger.db"\ndataset = "census"\n'
    (tmp_path / "run.toml").write_text(RUN_TOML + noise + ledger)
    Ledger(tmp_path / "ledger.db").open_account("census", 1)
    public = run(load_config(tmp_path / "run.toml")).public
    measured = pq.read_table(public / "measurements.parquet").to_pandas()
    counties = measured[measured["level"] == "county"]
    assert len(counties) > 0
    values = counties["value"].to_numpy()
    assert ((values == 0) | ((values >= 5) & (values <= 8)) | (values >= 12)).all()
    manifest = json.loads((public / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["privacy"]["epsilon"] == "1"
    share = next(one for one in manifest["privacy"]["shares"] if one["level"] == "county")
    assert share["within"] == [[0, 0], [5, 8], [12, None]]
    assert td.read_release(public).plan.bounds.at("county").within == ((0, 0), (5, 8), (12, None))
    assert Ledger(tmp_path / "ledger.db").account("census").left == 0
    assert td.verify_release(public)
