"""Mechanisms as values: one that is added is drawn, charged, stated and simulated as itself, without another line."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.places import RUN_TOML
from topdown.config import load_config
from topdown.noise import DiscreteLaplace, Law
from topdown.noise.randomness import Source
from topdown.pipeline import run as pipeline
from topdown.privacy import plan as plans
from topdown.privacy.accounting import Event, PureEvent
from topdown.privacy.mechanism import EPSILON, MECHANISMS, Mechanism


@dataclass(frozen=True)
class Even:
    """Twice a discrete Laplace variable: nothing else here draws even numbers alone."""

    half: DiscreteLaplace
    grid_bits: int = 0

    @property
    def variance(self) -> float:
        return 4.0 * self.half.variance

    @property
    def std(self) -> float:
        return math.sqrt(self.variance)

    def sample(self, size: Any, source: Source) -> Any:
        return 2 * self.half.sample(size, source)

    def pmf(self, k: Any) -> Any:
        return np.where(np.asarray(k) % 2 == 0, self.half.pmf(np.asarray(k) // 2), 0.0)

    def cdf(self, x: Any) -> Any:
        return self.half.cdf(np.floor(np.asarray(x) / 2))

    def sf(self, x: Any) -> Any:
        return self.half.sf(np.floor(np.asarray(x) / 2))


def _even(scale: Fraction, bits: int) -> Law:
    return Even(DiscreteLaplace(scale / 2))


def _event(scale: Fraction, l1: Fraction, l2_squared: Fraction, **labels: Any) -> Event:
    return PureEvent(epsilon=l1 / scale, **{name: value for name, value in labels.items() if name != "grid_bits"})


EVEN = Mechanism(
    name="even",
    currency=EPSILON,
    parameter="scale",
    scaled=lambda epsilon, l1, l2_squared: l1 / epsilon,
    exact=_even,
    smooth=MECHANISMS["laplace"].smooth,
    on_grid=False,
    bounded=False,
    event=_event,
    words="even noise on whole numbers",
)


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MECHANISMS", {**MECHANISMS, "even": EVEN})


def test_its_law_is_drawn_and_no_other(counts: td.Counts) -> None:
    plan = td.Plan("even", epsilon="1/2", shares={"nation": "1/5", "state": "2/5", "county": "2/5"})
    measurements = td.measure(counts, plan)
    assert ((measurements.values - counts.values) % 2 == 0).all()
    assert (measurements.values != counts.values).any()
    expected = 4 * DiscreteLaplace(Fraction(5, 2)).variance
    assert measurements["county", "detailed"].variance == pytest.approx(expected)
    assert td.project(measurements, "gls").variance is not None


def test_it_is_charged_and_stated_as_itself() -> None:
    plan = td.Plan("even", epsilon=1, shares={"nation": "1/4", "county": "3/4"})
    assert [(event.mechanism, event.epsilon) for event in plan.events()] == [("even", 0.25), ("even", 0.75)]
    assert "Mechanism: even, even noise on whole numbers" in plan.describe(["nation", "county"])
    with pytest.raises(td.errors.BudgetError, match="spends epsilon"):
        td.Plan("even", rho=1)
    with pytest.raises(td.errors.BudgetError, match="cannot be bounded"):
        td.Plan("even", epsilon=1, bounds="truncated")


def test_a_run_publishes_it(toy_run: Path) -> None:
    toy_run.write_text(RUN_TOML.replace("epsilon = 1.0", 'mechanism = "even"\nepsilon = 1.0'))
    public = pipeline.run(load_config(toy_run)).public
    manifest = json.loads((public / "manifest.json").read_text())
    assert manifest["privacy"]["mechanism"] == "even"
    measured = pd.read_parquet(public / "measurements.parquet")
    truth = {"adults": [30, 30, 0, 10, 20, 0], "children": [7, 3, 4, 1, 2, 4]}
    for cell, true in truth.items():
        assert ((measured.loc[measured["cell"] == cell, "value"].to_numpy() - true) % 2 == 0).all()


def test_a_study_simulates_it(counts: td.Counts) -> None:
    plan = td.Plan("even", epsilon=1, shares={"nation": "1/5", "state": "2/5", "county": "2/5"})
    table = td.simulate(counts, plan, ["raw", "gls"], replicates=2_000, seed=1)
    measured, error = table["raw", "variance"], table["raw", "variance_se"]
    expected = np.array([plan.variance(level) for level in ["nation", "state", "state", *["county"] * 3]])
    assert (np.abs(measured - expected[:, None]) < 5 * error).all()
