"""Budgets that protect nobody are told from those that do, by exact probabilities."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import topdown as td
from support.places import RUN_TOML
from topdown.config import load_config, load_project
from topdown.errors import BudgetError
from topdown.pipeline import draw
from topdown.pipeline import run as pipeline
from topdown.pipeline.project_measurements import project_measurements
from topdown.privacy import strength

LEVELS = ["nation", "state"]


def plan(mechanism: str = "geometric", **budget: object) -> td.Plan:
    return td.Plan(mechanism, shares={"nation": "1/2", "state": "1/2"}, **budget)


@pytest.mark.parametrize(("epsilon", "bare"), [(1, False), (10, False), (11, True), (1000, True)])
def test_noise_that_is_always_0_by_the_law_of_the_double_geometric(epsilon: int, bare: bool) -> None:
    """P(0) = (1 - a)/(1 + a), a = e^-epsilon of the level (Ghosh, Roughgarden, Sundararajan 2009)."""
    a = math.exp(-epsilon / 2)
    for level in LEVELS:
        assert strength.untouched(plan(epsilon=epsilon), level, "detailed") == pytest.approx((1 - a) / (1 + a))
    assert (set(strength.unprotected(plan(epsilon=epsilon), LEVELS)) == set(LEVELS)) is bare


def test_noise_on_a_grid_is_none_where_rounding_takes_it_away() -> None:
    found = strength.untouched(plan("laplace", epsilon=20, grid_bits=10), "state", "detailed")
    assert found == pytest.approx(1 - math.exp(-5), rel=1e-2)
    assert strength.untouched(plan("discrete-gaussian", rho=1_000_000), "state", "detailed") == pytest.approx(1)


def test_what_is_not_measured_or_invariant_is_not_called_unprotected() -> None:
    exact = td.Plan(epsilon=1, shares={"state": 1}, invariants=["nation"])
    assert strength.unprotected(exact, LEVELS) == {}
    unmeasured = td.Plan(epsilon=1, shares={"state": 1, "nation": 0})
    assert strength.unprotected(unmeasured, LEVELS) == {}


def test_a_large_budget_is_said_in_words_from_20_up() -> None:
    assert strength.large_budget(plan(epsilon="19.99"), 19.99) is None
    said = strength.large_budget(plan(epsilon=20), 20.0)
    assert said is not None
    assert "be wrong only once in 485,165,195" in said
    assert "delta" not in said
    said = strength.large_budget(plan("gaussian", rho=10, delta="1e-6"), 100.0)
    assert said is not None
    assert "less than once in 10^15, beside delta = 1e-06" in said


def said_by(config: object) -> list[str]:
    from topdown.machine.progress import Silent

    lines: list[str] = []
    stages = Silent()
    stages.say = lines.append  # type: ignore[method-assign]
    draw.check(config, stages)  # type: ignore[arg-type]
    return lines


@pytest.mark.parametrize("budget", ['epsilon = "1000"', "epsilon = 1e6", 'mechanism = "discrete-gaussian"\nrho = 1e6'])
def test_a_release_of_true_counts_is_refused_unless_it_is_asked_for(toy_run: Path, budget: str) -> None:
    text = RUN_TOML.replace("epsilon = 1.0", budget)
    toy_run.write_text(text)
    for job in (draw.check, pipeline.run):
        with pytest.raises(
            BudgetError, match=r"level 'nation': .* noise is 0 for (100|99)\.\d+%.*accept_no_protection"
        ):
            job(load_config(toy_run))
    assert not (toy_run.parent / "output").exists()
    toy_run.write_text(text.replace("[privacy]", "[privacy]\naccept_no_protection = true"))
    assert any(line.startswith("warning   NOT PROTECTED: at level 'nation'") for line in said_by(load_config(toy_run)))
    public = pipeline.run(load_config(toy_run)).public
    manifest = json.loads((public / "manifest.json").read_text())
    assert next(iter(manifest)) == "notices"
    assert manifest["notices"][0].startswith("NOT PROTECTED: at level 'nation' the noise is 0")
    assert len(manifest["notices"]) == 4  # three levels, and the budget
    again = toy_run.with_name("again.toml")
    again.write_text('[measurements]\npath = "output/public"\n[output]\ndirectory = "again"\n')
    derived = project_measurements(load_project(again)).public
    assert json.loads((derived / "manifest.json").read_text())["notices"] == manifest["notices"]


def test_a_large_budget_over_many_levels_is_warned_of(toy_run: Path) -> None:
    text = RUN_TOML.replace("epsilon = 1.0", "epsilon = 15").replace("0.2", "1/3").replace("0.3", "1/3")
    toy_run.write_text(text.replace("1/3", '"1/3"').replace("0.5", '"1/3"'))
    assert not any("a total epsilon of 15" in line for line in said_by(load_config(toy_run)))
    toy_run.write_text(toy_run.read_text().replace("epsilon = 15", "epsilon = 20\naccept_no_protection = true"))
    assert any("warning   a total epsilon of 20 protects nobody" in line for line in said_by(load_config(toy_run)))


def test_a_level_that_is_not_measured_is_not_called_exact() -> None:
    left_out = td.Plan("geometric", epsilon=1, shares={"nation": "1/2", "state": 0, "county": "1/2"})
    assert strength.spent_on_sums(left_out, ["nation", "state", "county"]) == []
    exact = td.Plan("geometric", epsilon=1, shares={"nation": 1}, invariants=["state", "county"])
    (said,) = strength.spent_on_sums(exact, ["nation", "state", "county"])
    assert "level 'nation' lies above level 'county'" in said
