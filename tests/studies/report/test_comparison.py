"""Two studies side by side: their numbers, their differences, and what is refused."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import topdown as td
from support.command import topdown_command
from support.reported import EVIL, studied
from topdown.errors import ConfigError, DataError
from topdown.machine.files import file_digest
from topdown.pipeline.compare import compare_studies
from topdown.studies.batch_means import BatchMeans
from topdown.studies.report.comparison import Study, compared, kept, read_kept, render_comparison
from topdown.studies.report.words import unbroken

RELEASED = "gls-top-down/rounded"


DEARER = td.Plan(epsilon=2, shares={"nation": "0.2", "state": "0.3", "county": "0.5"})
"""At four times the budget."""


def left(made: Mapping[str, Any]) -> Study:
    """What a study leaves to be compared, as it is read again."""
    return Study(read_kept(kept(made["summary"], "")), BatchMeans.of_frame(made["table"].batch_means.frame()))


@pytest.fixture(scope="module")
def first() -> dict[str, Any]:
    return studied(replicates=1000)


@pytest.fixture(scope="module")
def dearer() -> dict[str, Any]:
    """The same study at four times the budget, with the same draws."""
    return studied(plan=DEARER, replicates=1000)


@pytest.fixture(scope="module")
def again() -> dict[str, Any]:
    """The first study with other draws."""
    return studied(replicates=1000, seed=12)


@pytest.fixture
def folders(first: Mapping[str, Any], dearer: Mapping[str, Any], tmp_path: Path) -> tuple[Path, Path]:
    """What either study leaves of its numbers, one of them directly in its internal/."""
    for name, one in (("a", first), ("b/internal", dearer)):
        (tmp_path / name).mkdir(parents=True)
        batches = tmp_path / name / "batches.parquet"
        one["table"].batch_means.frame().to_parquet(batches)
        (tmp_path / name / "summary.json").write_text(kept(one["summary"], file_digest(batches)), encoding="utf-8")
    return tmp_path / "a", tmp_path / "b"


def rows_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row for part in ("counts", "money", "decisions", "levels") for row in found[part]]


def verdicts(found: Mapping[str, Any]) -> dict[str, str]:
    return {card["name"]: card["status"] for card in found["cards"]}


def test_every_pair_of_numbers_is_that_of_the_studies_tables(first: Any, dearer: Any) -> None:
    found = compared(left(first), left(dearer))
    rows = {tuple(row["of"]): row for row in found["levels"]}
    assert len(rows) == 3 * 2 * 2
    for (level, cell, what), row in rows.items():
        for side, one in (("first", first), ("second", dearer)):
            number = one["table"].geography.levels.index(level), one["table"].cells.index(cell)
            means = one["table"].level_means[RELEASED]
            value = means["bias"][number] if what == "mean bias" else np.sqrt(means["mse"][number])
            assert row[side][0] == pytest.approx(value, rel=1e-3)
    for grouping, cell, group in (tuple(row["of"]) for row in found["counts"]):
        row = next(row for row in found["counts"] if row["of"] == [grouping, cell, group])
        for side, one in (("first", first), ("second", dearer)):
            told = next(
                g for g in one["summary"]["groups"]
                if (g["grouping"], g["cell"], g["group"], g["method"]) == (grouping, cell, group, RELEASED)
            )  # fmt: skip
            assert row[side][0] == pytest.approx(100 * told["bias"] / told["mean_truth"], rel=1e-3, abs=1e-6)
    moved = next(row for row in found["money"] if row["of"] == ["", "share of x", "all units"])
    wrong = next(row for row in found["decisions"] if row["of"] == ["", "x above 10", "all units"])
    for side, one in (("first", first), ("second", dearer)):
        fund, cut = one["summary"]["funds"][0], one["summary"]["thresholds"][0]
        told = [next(row for row in part if row["method"] == RELEASED) for part in (fund["moved"], cut["methods"])]
        assert moved[side][0] == pytest.approx(told[0]["moved"] / 1e4, rel=1e-3)
        assert wrong[side][0] == pytest.approx(100 * told[1]["flips"] / cut["units"], rel=1e-3)
    county = rows["county", "x", "RMSE"]
    told = re.fullmatch(r"B is lower by ([0-9.]+) ± ([0-9.]+) \(([0-9.]+) %\)", county["said"])
    assert county["clear"]
    assert told is not None
    assert float(told[1]) == pytest.approx(-county["difference"], rel=0.02)


def test_the_paired_interval_of_a_group_by_numpy(first: Any, dearer: Any) -> None:
    found = compared(left(first), left(dearer))
    assert found["paired"]
    assert found["pairing"].startswith("Paired: every replicate of B has the draws of its replicate of A (seed 3), so")
    row = next(row for row in found["decisions"] if row["of"] == ["size class", "x above 10", "10 to 99"])
    frames = [one["table"].batch_means.frame() for one in (first, dearer)]
    of = {"method": RELEASED, "measure": "absolute error", "of": "x above 10", "grouping": "size class"}
    chosen = [
        frame[(frame[list(of)] == pd.Series(of)).all(axis=1) & (frame["group"] == "10 to 99")] for frame in frames
    ]
    difference = 100 * (chosen[1]["mean"].to_numpy() - chosen[0]["mean"].to_numpy())
    half = stats.t.ppf(0.975, 49) * difference.std(ddof=1) / np.sqrt(50)
    expected = [difference.mean(), difference.mean() - half, difference.mean() + half]
    assert [row["difference"], row["low"], row["high"]] == pytest.approx(expected, rel=2e-3)


def test_verdicts_flip_with_the_order(first: Any, dearer: Any) -> None:
    one, other = compared(left(first), left(dearer)), compared(left(dearer), left(first))
    assert verdicts(one) == {"Counts": "fairer", "Money": "fairer", "Decisions": "fairer"}
    assert verdicts(other) == {"Counts": "less fair", "Money": "less fair", "Decisions": "less fair"}
    flipped = {"fairer": "less fair", "less fair": "fairer"}
    for part in ("counts", "money", "decisions"):
        for row, back in zip(one[part], other[part], strict=True):
            assert back["verdict"] == flipped.get(row["verdict"], row["verdict"])
            assert [back["low"], back["high"]] == pytest.approx([-row["high"], -row["low"]])
    assert any(row["verdict"] == "fairer" for row in one["counts"])
    assert one["cards"][0]["headline"].startswith("B is fairer: the most affected group is off by ")


def test_the_same_law_with_other_draws_shows_no_difference(first: Any, again: Any) -> None:
    found = compared(left(first), left(again))
    assert not found["paired"]
    assert "because their seeds are 3 and 12" in found["pairing"]
    assert set(verdicts(found).values()) == {"no clear difference"}
    assert len(rows_of(found)) > 25
    assert {row["verdict"] for row in rows_of(found)} == {"no clear difference"}


def test_a_study_is_as_fair_as_itself(first: Any) -> None:
    found = compared(left(first), left(first))
    assert found["paired"]
    assert {row["verdict"] for row in rows_of(found)} == {"no clear difference"}
    assert {card["difference"] for card in found["cards"]} == {0.0}


def test_why_draws_are_not_shared_is_said(first: Any) -> None:
    shorter = studied(replicates=400)
    found = compared(left(first), left(shorter))
    assert "because they were asked for 1,000 and 400 replicates" in found["pairing"]
    summary, batches = left(first)
    for part, said in (("units", "they have different units"), ("queries", "do not measure the same queries")):
        run = summary["run"] | {"draws": summary["run"]["draws"] | {part: "other"}}
        found = compared(left(first), Study(summary | {"run": run}, batches))
        assert said in found["pairing"]
        assert not found["paired"]


def test_a_difference_smaller_than_what_matters_says_so(first: Any, dearer: Any) -> None:
    summary, batches = left(first)
    one = Study(summary | {"tolerance": dict.fromkeys(summary["tolerance"], 0.5)}, batches)
    other = Study(left(dearer).summary | {"tolerance": one.summary["tolerance"]}, left(dearer).batches)
    for card in compared(one, other)["cards"]:
        assert card["status"] == "fairer"
        assert not card["matters"]
        assert "That is less than what matters (50 %)." in card["more"]


def test_two_methods_of_one_study(first: Any) -> None:
    found = compared(left(first), left(first), ("raw", "gls"))
    assert [one["method"] for one in found["studies"]] == ["raw", "gls"]
    assert found["paired"]
    row = next(row for row in found["levels"] if row["of"] == ["county", "x", "RMSE"])
    assert row["verdict"].startswith("B is lower by")
    with pytest.raises(ConfigError, match=r"unknown method .gsl.*did you mean .gls."):
        compared(left(first), left(first), ("gsl", None))


def test_studies_of_other_things_are_refused(first: Any) -> None:
    summary, batches = left(first)
    other = {**summary, "overview": [{**row, "cell": "z"} for row in summary["overview"]]}
    with pytest.raises(ConfigError, match="no level and cell in common"):
        compared(left(first), Study(other, batches))


def test_one_replicate_tells_no_difference(first: Any) -> None:
    one = left(studied(replicates=1))
    for found in (compared(one, left(first)), compared(one, left(studied(plan=DEARER, replicates=1)))):
        assert {row["verdict"] for row in rows_of(found)} == {"cannot be told"}
        assert set(verdicts(found).values()) == {"cannot be told"}
        assert "cannot be told" in render_comparison(found)
        assert found["studies"][0]["words"].endswith(", 1 replicate")


@pytest.mark.parametrize("what", ["units", "mean_truth"])
def test_groups_of_other_units_or_counts_are_left_out(first: Any, dearer: Any, what: str) -> None:
    """Their errors differ with what they are made of."""
    a, b = left(first), left(dearer)
    groups = {row["group"] for row in b.summary["groups"] if row["grouping"] != "size class"}
    name = min(groups)
    for rows in (b.summary["groups"], *(one["groups"] for part in ("funds", "thresholds") for one in b.summary[part])):
        for row in rows:
            row[what] += row["group"] == name
    before, found = compared(a, left(dearer)), compared(a, b)
    gone = [row["of"] for row in rows_of(before) if row["of"] not in [other["of"] for other in rows_of(found)]]
    # What is decided on all units differs with what any of them has.
    assert {of[2] for of in gone} == {name, "all units"}
    assert name not in {row["of"][2] for row in rows_of(found)}
    left_out = len({(of[0], of[2]) for of in gone})
    said = f" Left out: {left_out} groups with other units or other true counts in B than in A."
    assert found["pairing"].endswith(said)
    for rows in (b.summary["groups"], *(one["groups"] for part in ("funds", "thresholds") for one in b.summary[part])):
        for row in rows:
            row[what] += 1
    none = compared(a, b)
    assert none["cards"][0]["headline"] == "No group has the same units and true counts in both studies."
    assert none["counts"] == []


def test_the_page_answers_first_is_escaped_and_says_what_it_is(first: Any, dearer: Any) -> None:
    found = compared(left(first), left(dearer))
    page = render_comparison(found)
    assert EVIL not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "<i>coast" not in page
    assert page.count("onfidential comparison with the true counts") == 2
    assert "default-src 'none'" in page
    assert page.index('class="card matters"') < page.index("<main>") < page.index('id="counts"')
    assert (
        page.index('id="counts"') < page.index('id="money"') < page.index('id="decisions"') < page.index('id="levels"')
    )
    for card in found["cards"]:
        assert unbroken(card["headline"]) in page
    # The most affected group comes first; all units come last.
    assert [found[part][0]["of"][:2] for part in ("counts", "money", "decisions")] == [
        ["size class", "x"], ["size class", "share of x"], ["size class", "x above 10"]
    ]  # fmt: skip
    assert found["money"][-1]["of"][0] == found["decisions"][-1]["of"][0] == ""
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    points = [
        row for rows in json.loads(data[1])["charts"]["groups"]["datasets"].values() for row in rows if "cell" in row
    ]
    assert {row["cell"] for row in points} == {"A", "B"}


def test_a_public_study_beside_a_confidential_one_is_confidential(first: Any) -> None:
    summary, batches = left(first)
    public = Study({**summary, "public_input": True, "notice": "comparison with public counts"}, batches)
    for pair in ((public, left(first)), (left(first), public)):
        found = compared(*pair)
        assert (found["public_input"], found["notice"]) == (False, "confidential comparison with the true counts")
    assert compared(public, public)["public_input"]


def test_the_command_compares_and_keeps_it_to_its_owner(
    folders: tuple[Path, Path], tmp_path: Path, capsys: Any
) -> None:
    command = partial(topdown_command, "compare")
    assert command(*folders, "-o", tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "draws     Paired: every replicate of B has the draws" in said
    assert "counts    B is fairer: the most affected group is off by" in said
    assert "size class “below 10” of x: fairer, by" in said
    assert "money     B is fairer: the most affected group is paid" in said
    assert "decisions B is fairer: the most affected group has" in said
    assert "errors    county, x, RMSE: B is lower by" in said
    assert "keep" in said or "confidential" in said
    page = tmp_path / "out" / "internal" / "comparison.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
    assert command(folders[0], folders[0], "--method", "raw", "--method", "gls", "-q", "-o", tmp_path / "two") == 0
    assert capsys.readouterr().out == ""
    assert command(*folders, "--method", "a", "--method", "b", "--method", "c") == 2
    assert command(*folders, "-o", tmp_path / "public") == 2
    assert not (tmp_path / "public").exists()
    assert command(folders[0], tmp_path, "-o", tmp_path / "x") == 3
    assert "holds no summary.json of a study" in capsys.readouterr().err
    batches, other = (folder / "batches.parquet" for folder in (folders[0], folders[1] / "internal"))
    for damage in (b"PAR1", other.read_bytes(), None):
        batches.unlink() if damage is None else batches.write_bytes(damage)
        assert command(*folders, "-o", tmp_path / "x") == 3
        said = "cannot be read" if damage is None else "is not the file of this study's summary.json"
        assert f"batches.parquet: {said}" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("text", ["", "[]", "3", '{"version": 1}', '{"version": 2}', "[" * 100_000, "\x00"])
def test_what_is_no_summary_is_refused(folders: tuple[Path, Path], tmp_path: Path, text: str) -> None:
    (folders[0] / "summary.json").write_text(text)
    with pytest.raises(DataError, match=r"summary\.json is not one of a study that this version can read"):
        compare_studies(*folders, tmp_path / "out")
    assert not (tmp_path / "out").exists()
