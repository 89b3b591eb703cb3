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
import pytest

import topdown as td
from support.command import topdown_command
from support.reported import EVIL, studied
from topdown.errors import ConfigError, DataError
from topdown.pipeline.compare import compare_studies
from topdown.studies.report.comparison import compared, kept, read_kept, render_comparison

RELEASED = "gls-top-down/rounded"


@pytest.fixture(scope="module")
def dearer() -> dict[str, Any]:
    """The same study at four times the budget, with other draws."""
    plan = td.Plan(epsilon=2, shares={"nation": "0.2", "state": "0.3", "county": "0.5"})
    return studied(plan=plan, replicates=1000, seed=11)


@pytest.fixture
def folders(study: Mapping[str, Any], dearer: Mapping[str, Any], tmp_path: Path) -> tuple[Path, Path]:
    """What either study leaves of its numbers, one of them directly in its internal/."""
    for name, one in (("a", study), ("b/internal", dearer)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "summary.json").write_text(kept(one["summary"]), encoding="utf-8")
    return tmp_path / "a", tmp_path / "b"


def test_both_numbers_stand_beside_each_other(study: Mapping[str, Any], dearer: Mapping[str, Any]) -> None:
    found = compared(read_kept(kept(study["summary"])), read_kept(kept(dearer["summary"])))
    rows = {tuple(row["of"]): row for row in found["levels"]}
    assert len(rows) == 3 * 2 * 3
    for (level, cell, what), row in rows.items():
        for side, one in (("first", study), ("second", dearer)):
            number = one["table"].geography.levels.index(level), one["table"].cells.index(cell)
            means = one["table"].level_means[RELEASED]
            if what == "mean bias":
                assert row[side] == pytest.approx([means["bias"][number], means["bias_se"][number]], rel=1e-3)
            if what == "RMSE":
                assert row[side][0] == pytest.approx(np.sqrt(means["mse"][number]), rel=1e-3)
    county = rows["county", "x", "RMSE"]
    assert county["clear"]
    difference = county["first"][0] - county["second"][0]
    told = re.fullmatch(r"B is lower by ([0-9.]+) ± ([0-9.]+) \(([0-9.]+) %\)", county["verdict"])
    assert told is not None
    assert float(told[1]) == pytest.approx(difference, rel=0.02)
    assert float(told[2]) == pytest.approx(1.96 * np.hypot(county["first"][1], county["second"][1]), rel=0.05)
    assert float(told[3]) == pytest.approx(100 * difference / county["first"][0], rel=0.01)
    assert [row["of"] for row in found["funds"]] == [["share of x"]]
    assert found["funds"][0]["verdict"].startswith("B is lower by")
    assert [row["of"] for row in found["thresholds"]] == [["x above 10"]]
    assert {tuple(row["of"])[:3] for row in found["groups"]} == {
        (g["grouping"], g["cell"], g["group"]) for g in study["summary"]["groups"]
    }


def test_the_same_law_with_other_draws_shows_no_difference(study: Mapping[str, Any]) -> None:
    again = studied(replicates=1000, seed=12)
    found = compared(study["summary"], again["summary"])
    rows = [row for part in ("levels", "groups", "funds", "thresholds") for row in found[part]]
    assert len(rows) > 30
    assert {row["verdict"] for row in rows} == {"no clear difference"}


def test_two_methods_of_one_study(study: Mapping[str, Any]) -> None:
    found = compared(study["summary"], study["summary"], ("raw", "gls"))
    assert [one["method"] for one in found["studies"]] == ["raw", "gls"]
    row = next(row for row in found["levels"] if row["of"] == ["county", "x", "RMSE"])
    assert row["verdict"].startswith("B is lower by")
    with pytest.raises(ConfigError, match=r"unknown method .gsl.*did you mean .gls."):
        compared(study["summary"], study["summary"], ("gsl", None))


def test_studies_of_other_things_are_refused(study: Mapping[str, Any]) -> None:
    other = {**study["summary"], "overview": [{**row, "cell": "z"} for row in study["summary"]["overview"]]}
    with pytest.raises(ConfigError, match="no level and cell in common"):
        compared(study["summary"], other)


def test_one_replicate_tells_no_difference(study: Mapping[str, Any]) -> None:
    one = studied(replicates=1)["summary"]
    found = compared(read_kept(kept(one)), read_kept(kept(study["summary"])))
    assert {row["verdict"] for row in found["levels"]} == {"cannot be told"}
    assert "cannot be told" in render_comparison(found)


def test_the_page_is_escaped_and_says_what_it_is(study: Mapping[str, Any], dearer: Mapping[str, Any]) -> None:
    found = compared(study["summary"], dearer["summary"])
    page = render_comparison(found)
    assert EVIL not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "<i>coast" not in page
    assert page.count("onfidential comparison with the true counts") == 2
    assert "default-src 'none'" in page
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    points = [
        row for rows in json.loads(data[1])["charts"]["groups"]["datasets"].values() for row in rows if "cell" in row
    ]
    assert {row["cell"] for row in points} == {"A", "B"}


def test_a_public_study_beside_a_confidential_one_is_confidential(study: Mapping[str, Any]) -> None:
    public = {**study["summary"], "public_input": True, "notice": "comparison with public counts"}
    for pair in ((public, study["summary"]), (study["summary"], public)):
        found = compared(*pair)
        assert (found["public_input"], found["notice"]) == (False, "confidential comparison with the true counts")
    assert compared(public, public)["public_input"]


def test_the_command_compares_and_keeps_it_to_its_owner(
    folders: tuple[Path, Path], tmp_path: Path, capsys: Any
) -> None:
    command = partial(topdown_command, "compare")
    assert command(*folders, "-o", tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "compared  county, x, RMSE: B is lower by" in said
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


@pytest.mark.parametrize("text", ["", "[]", "3", '{"version": 2}', '{"version": 1}', "[" * 100_000, "\x00"])
def test_what_is_no_summary_is_refused(folders: tuple[Path, Path], tmp_path: Path, text: str) -> None:
    (folders[0] / "summary.json").write_text(text)
    with pytest.raises(DataError, match=r"no summary\.json of a study that this version can read"):
        compare_studies(*folders, tmp_path / "out")
    assert not (tmp_path / "out").exists()
