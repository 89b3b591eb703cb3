"""`topdown study` of two linked tables: solved separately and together, from the same noise."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.linked import configured, schools
from support.places import Command
from topdown.config import load_linked
from topdown.errors import ConfigError
from topdown.linked.impossible import CountedCells
from topdown.machine.progress import Silent
from topdown.pipeline.linked import linked_study
from topdown.pipeline.linked.linked_draw import prepare_linked
from topdown.pipeline.linked.linked_study import public_limits, study_linked
from topdown.studies.report.together import ANY, APART, TOGETHER, LinkedComparison

RESULTS, ERRORS, COVERAGE, REPORT = "results.parquet", "errors.parquet", "coverage.parquet", "report.html"


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of the small tables, two replicates."""
    folder = tmp_path_factory.mktemp("study")
    study_linked(load_linked(configured(folder)), folder / "out", replicates=2)
    return folder / "out" / "internal"


def test_together_nothing_is_impossible_and_separately_nearly_every_block(studied: Path) -> None:
    found = pd.read_parquet(studied / RESULTS)
    assert (found.loc[found["impossible"], "truth"] == 0).all()
    assert (found.loc[found["impossible"], TOGETHER] == 0).all()
    block = found[found["level"] == "block"].set_index("result")
    assert block.loc[ANY, "nodes"] == 103
    assert block.loc[ANY, APART] > 80
    # As in 8 % of the blocks of 2020.
    assert 4 < block.loc["persons in households, and no households", APART] < 20
    assert block.loc[ANY, APART] >= block.loc[block["impossible"], APART].max()


def test_errors_are_of_every_query_of_both_tables(studied: Path) -> None:
    found = pd.read_parquet(studied / ERRORS)
    assert len(found) == 5 * 9
    assert set(zip(found["table"], found["query"], strict=True)) == {
        *(("households", query) for query in ("total", "size", "type", "hhispanic * hrace", "detailed")),
        *(("persons", query) for query in ("total", "relationship", "hispanic * race", "detailed")),
    }
    assert np.allclose(found["ratio"], found[TOGETHER] / found[APART])
    assert (found["replicates"] == 2).all()
    block = found[found["level"] == "block"].set_index(["table", "query"])
    assert block.loc[("persons", "relationship"), "ratio"] < 0.9
    assert block.loc[("households", "total"), "ratio"] < 0.8


def test_margins_of_both_releases_hold_the_truth(studied: Path) -> None:
    """Beyond what chance explains: of 2 x 721 intervals at least, 90 % each."""
    found = pd.read_parquet(studied / COVERAGE)
    assert set(zip(found["table"], found["query"], strict=True)) == {
        *(("persons", query) for query in ("hispanic * race", "relationship")),
        *(("households", query) for query in ("size", "type")),
    }
    block = found[found["level"] == "block"]
    assert block["intervals"].tolist() == [103 * answers for answers in (7, 6, 14, 12)]
    assert ((block["coverage"] > 0.88) & (block["coverage"] < 1.0)).all()


def test_intervals_that_hold_the_truth_by_hand() -> None:
    comparison, _ = _toy()
    query = comparison.queries["schools"][0]
    # One primary school: at the root 1 and 0, at towns 1 and 0, and none.
    lower = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    comparison.add_margins(0, "schools", query, lower, lower + np.array([0.0, 1.0]))
    found = comparison.coverage().set_index("level")
    assert found.loc["land", ["intervals", "coverage"]].tolist() == [2, 1.0]
    assert found.loc["town", ["intervals", "coverage"]].tolist() == [4, 0.5]


def test_what_is_written_is_its_owners_and_says_what_it_is(studied: Path) -> None:
    for name in (RESULTS, ERRORS, COVERAGE, REPORT):
        assert stat.S_IMODE((studied / name).stat().st_mode) == 0o600
    page = (studied / REPORT).read_text()
    for said in ("Comparison with public counts", "Impossible results", "One household with at most 10 persons"):
        assert said in page


def _toy() -> tuple[LinkedComparison, dict[str, list[CountedCells]]]:
    """One school with a pupil in one of two towns; its comparison, and the true tables."""
    universe = schools()
    table = pd.DataFrame({"land": ["x", "x"], "town": ["a", "b"]})
    geography = td.Geography.from_table(table, levels=["land", "town"])
    one = np.array([0])
    # A primary school of size 1; a pupil of a low grade.
    true = {
        "schools": [CountedCells(one, one + 1, one + 1)] * 2,
        "pupils": [CountedCells(one, one, one + 1)] * 2,
    }
    queries = {
        "schools": [td.Query.parse("kind", universe.households)],
        "pupils": [td.Query.parse("total", universe.persons)],
    }
    return LinkedComparison(universe, geography, true, queries), true


def test_numbers_of_a_comparison_by_hand() -> None:
    comparison, true = _toy()
    one = np.array([0])
    # Separately the school is a secondary one in the other town, and has no pupil in the first replicate.
    moved = [CountedCells(one, one + 4, one + 1), CountedCells(one + 1, one + 4, one + 1)]
    nobody = [CountedCells(one[:0], one[:0], one[:0])] * 2
    comparison.add(0, APART, {"schools": moved, "pupils": nobody})
    comparison.add(0, TOGETHER, true)
    comparison.add(1, APART, {"schools": moved, "pupils": [true["pupils"][0], CountedCells(one + 1, one, one + 1)]})
    comparison.add(1, TOGETHER, {"schools": moved, "pupils": [true["pupils"][0], CountedCells(one + 1, one, one + 1)]})
    errors = comparison.errors().set_index(["level", "table"])
    # A school of another kind is 2; at towns one is missed and one too many, which is 2 over 2 towns.
    assert errors.loc[("land", "schools"), [APART, TOGETHER]].tolist() == [2.0, 1.0]
    assert errors.loc[("town", "schools"), [APART, TOGETHER]].tolist() == [1.0, 0.5]
    assert errors.loc[("town", "pupils"), [APART, TOGETHER]].tolist() == [0.75, 0.5]
    assert errors.loc[("land", "schools"), f"{TOGETHER}_se"] == 1.0
    assert errors.loc[("land", "schools"), f"{APART}_se"] == 0.0
    # The ratio's residuals are 0 - .5 * 2 and 2 - .5 * 2: their standard error is 1, divided by 2.
    assert errors.loc[("land", "schools"), ["ratio", "ratio_se"]].tolist() == [0.5, 0.5]
    results = comparison.results().set_index(["level", "result"])
    # No secondary school has the pupil.
    assert results.loc[("land", ANY), [APART, TOGETHER, "truth", "nodes"]].tolist() == [1.0, 0.5, 0, 1]
    assert results.loc[("town", "schools, and no pupils in them"), APART] == 0.5


def test_separately_each_table_keeps_what_is_public(tmp_path: Path) -> None:
    config = load_linked(configured(tmp_path))
    prepared = prepare_linked(config, Silent())
    figures = prepared.counts.figures
    _, solved = linked_study._solved(config, prepared, 0, 1)
    for name, release in solved[APART].items():
        limits = public_limits(config.universe, release, figures)
        assert limits is not None
        for query, (low, high) in limits.by_query.items():
            answers = release.answers_of(slice(0, release.geography.n_nodes), query)
            assert ((low <= answers) & (answers <= high)).all()
            assert np.isfinite(high).any(), name


def test_of_confidential_tables_no_number_is_printed(tmp_path: Path, topdown: Command) -> None:
    path = configured(tmp_path, ("public_input = true", "public_input = false"))
    done = topdown("study", path, "--replicates", "1", "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "found " not in done.stdout
    assert "keep it, it is a confidential comparison with the true counts" in done.stdout
    assert "not for release" in (tmp_path / "out" / "internal" / REPORT).read_text()
    path.write_text(path.read_text().replace("public_input = false", "public_input = true"))
    done = topdown("study", path, "--replicates", "1", "--output", tmp_path / "out")
    assert "found     Of 103 units of level block, " in done.stdout
    assert "none where they are solved together" in done.stdout
    assert not (tmp_path / "out" / "public").exists()


TABLES = 'tables = ["persons: hispanic * race", "persons: relationship", "households: size", "households: type"]'


@pytest.mark.parametrize("change", [("tables = [", "margins = false\ntables = ["), (TABLES, "")])
def test_without_intervals_there_is_no_table_of_them(change: tuple[str, str], tmp_path: Path) -> None:
    study_linked(load_linked(configured(tmp_path)), tmp_path / "out", replicates=1)
    assert (tmp_path / "out" / "internal" / COVERAGE).exists()
    study_linked(load_linked(configured(tmp_path, change)), tmp_path / "out", replicates=1)
    assert sorted(path.name for path in (tmp_path / "out" / "internal").iterdir()) == sorted([RESULTS, ERRORS, REPORT])
    assert "Margins of error" not in (tmp_path / "out" / "internal" / REPORT).read_text()


def test_a_study_is_not_written_where_it_would_be_public(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not written under a directory called public"):
        study_linked(load_linked(configured(tmp_path)), tmp_path / "public")


def test_an_interrupt_keeps_finished_replicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    solved, calls = linked_study._solved, []

    def interrupted(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return solved(*given)

    monkeypatch.setattr(linked_study, "_solved", interrupted)
    outcome = study_linked(load_linked(configured(tmp_path)), tmp_path / "out")
    assert (outcome.replicates, outcome.wanted, outcome.stopped) == (1, 20, True)
    assert (pd.read_parquet(tmp_path / "out" / "internal" / ERRORS)["replicates"] == 1).all()
    calls.append(())
    monkeypatch.setattr(linked_study, "_solved", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        study_linked(load_linked(configured(tmp_path)), tmp_path / "none")
    assert not (tmp_path / "none").exists()
