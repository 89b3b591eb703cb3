"""Mechanisms as values: one that is added is drawn, charged, stated and simulated as itself, without another line."""

from __future__ import annotations

import dataclasses
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
from support.places import RUN_TOML, SEVERAL_TOML
from topdown.config import load_config
from topdown.errors import BudgetError, ConfigError
from topdown.noise import DiscreteLaplace, Law
from topdown.noise.randomness import Source
from topdown.pipeline import run as pipeline
from topdown.privacy.accounting import Event, GaussianEvent, PureEvent
from topdown.privacy.mechanism import EPSILON, MECHANISMS, RHO, Mechanism
from topdown.uncertainty.margins import Reach


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


def _event_in_rho(sigma2: Fraction, l1: Fraction, l2_squared: Fraction, **labels: Any) -> Event:
    return GaussianEvent(sigma2=sigma2, sensitivity_squared=l2_squared, **labels)


EVEN_IN_RHO = dataclasses.replace(
    EVEN,
    name="even-rho",
    currency=RHO,
    parameter="sigma2",
    scaled=MECHANISMS["gaussian"].scaled,
    exact=lambda sigma2, bits: Even(DiscreteLaplace(Fraction(float(sigma2) ** 0.5).limit_denominator(100))),
    smooth=MECHANISMS["gaussian"].smooth,
    event=_event_in_rho,
)
"""A budget in rho is no sign of Gaussian noise."""


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, "even", EVEN)
    monkeypatch.setitem(MECHANISMS, "even-rho", EVEN_IN_RHO)


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


def test_replicates_refuse_it_before_anything_is_drawn(toy_run: Path) -> None:
    toy_run.write_text(
        RUN_TOML.replace("epsilon = 1.0", 'mechanism = "even"\nepsilon = 1.0') + "[output]\nreplicates=2"
    )
    with pytest.raises(ConfigError, match=r"output\.replicates: the fourth cumulant of Even is not known"):
        pipeline.run(load_config(toy_run))
    assert not list(toy_run.parent.rglob("*.key"))


def test_workers_that_do_not_have_it_are_refused_before_anything_is_drawn(toy_run: Path) -> None:
    toy_run.write_text(SEVERAL_TOML.replace('"discrete-gaussian"\nrho = 1', '"even"\nepsilon = 1.0'))
    before = sorted(toy_run.parent.rglob("*"))
    with pytest.raises(ConfigError, match=r"mechanism 'even' was added to topdown, and the workers .* do not have it"):
        pipeline.run(load_config(toy_run), part_size=2)
    assert [path for path in sorted(toy_run.parent.rglob("*")) if path.is_file()] == [p for p in before if p.is_file()]


def test_a_study_simulates_it(counts: td.Counts) -> None:
    plan = td.Plan("even", epsilon=1, shares={"nation": "1/5", "state": "2/5", "county": "2/5"})
    table = td.simulate(counts, plan, ["raw", "gls"], replicates=2_000, seed=1)
    measured, error = table["raw", "variance"], table["raw", "variance_se"]
    expected = np.array([plan.variance(level) for level in ["nation", "state", "state", *["county"] * 3]])
    assert (np.abs(measured - expected[:, None]) < 5 * error).all()


# -- how far its noise reaches nobody said ----------------------------------------------------------------------------

BUDGETS = [("even", {"epsilon": 1}), ("even-rho", {"rho": "1/2"})]
SHARES = {"nation": "1/5", "state": "2/5", "county": "2/5"}


@pytest.mark.parametrize(("name", "budget"), BUDGETS)
def test_margins_of_a_law_that_is_not_known_are_not_those_of_another(
    name: str, budget: dict[str, Any], counts: td.Counts
) -> None:
    measurements = td.measure(counts, td.Plan(name, shares=SHARES, **budget))
    with pytest.raises(ConfigError, match="fourth cumulant of Even is not known"):
        td.margins(measurements)
    for confidence in (0.9, 0.99):
        found = Reach.of(measurements, confidence)
        assert np.isnan(found.multiples(slice(0, 1), [(td.Query.parse("detailed", measurements.schema), 0)])).all()
        assert "not known" in found.in_words


@pytest.mark.parametrize(("name", "budget"), BUDGETS)
@pytest.mark.parametrize("template", [RUN_TOML + "[schema]\nage = ['adults', 'children']\n", SEVERAL_TOML])
def test_a_release_by_a_law_that_is_not_known_has_no_margins(
    template: str, name: str, budget: dict[str, Any], toy_run: Path
) -> None:
    currency, amount = next(iter(budget.items()))
    text = template.replace('mechanism = "discrete-gaussian"\nrho = 1', "epsilon = 1.0")
    text = text.replace("epsilon = 1.0", f'mechanism = "{name}"\n{currency} = "{amount}"')
    toy_run.write_text(f'{text}[output]\ntables = ["total", "age"]\n')
    public = pipeline.run(load_config(toy_run)).public
    td.verify_release(public)
    estimates = pd.read_parquet(public / "tables" / "total_estimates.parquet")
    assert estimates["moe"].isna().all()
    assert estimates["sd"].notna().all()
    assert "lower" not in estimates
    assert "not known" in (public / "METHODS.md").read_text()


@pytest.mark.parametrize(("name", "budget"), BUDGETS)
def test_what_a_plan_will_give_states_no_margin_that_is_not_known(
    name: str, budget: dict[str, Any], geography: td.Geography
) -> None:
    plan = td.Plan(name, shares=SHARES, **budget)
    errors = plan.errors(geography)
    assert (errors["law"] == "not known").all()
    assert errors["margin"].isna().all()
    assert errors["sd"].notna().all()
    assert (errors["noise_margin"] > 0).all()
    with pytest.raises(ConfigError, match="is neither Laplace nor Gaussian"):
        td.smallest_budget(plan, geography, ["county: 25 at 90 %"])


@pytest.mark.parametrize(("change", "says"), [
    ({"currency": "gdp"}, "currency 'gdp'; known: 'epsilon', 'rho'"),
    ({"parameter": "width"}, "parameter 'width'; known: 'scale', 'sigma2'"),
])  # fmt: skip
def test_a_mechanism_in_a_currency_that_is_not_known_is_refused(change: dict[str, str], says: str) -> None:
    """It would be charged as one in rho."""
    with pytest.raises(BudgetError, match=says):
        dataclasses.replace(EVEN, **change)
