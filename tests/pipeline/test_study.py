"""The study command: configuration, files, notices, interruption."""

from __future__ import annotations

import json
import os
import re
import stat
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from support.command import topdown_command
from support.places import REPOSITORY
from topdown.config import load_any, load_config, load_study
from topdown.errors import BudgetError, ConfigError, DataError
from topdown.machine.progress import Silent
from topdown.pages.leaf_outlines import read_outlines
from topdown.pipeline import draw
from topdown.pipeline.compare import compare_studies
from topdown.pipeline.input.group_columns import read_groupings
from topdown.pipeline.input.rule_reading import read_thresholds
from topdown.pipeline.study import study
from topdown.studies import simulate as simulate_module
from topdown.studies.errors_table import SCHEMA_VERSION
from topdown.studies.followed import Followed

TABLE = pd.DataFrame(
    [
        {
            "nation": "US",
            "state": s,
            "county": f"{s}{k:02d}",
            "kind": "rural" if k % 3 else "urban",
            "x": 5 * k,
            "y": 90,
        }
        for s, n in {"A": 2, "B": 5}.items()
        for k in range(n)
    ]
)

CONFIG = """
title = "a small study"
[input]
path = "table.csv"
cells = ["x", "y"]
[geography]
levels = ["nation", "state", "county"]
[privacy]
epsilon = 1.0
[output]
directory = "out"
"""

STUDY = """
[study]
replicates = 60
seed = 4
methods = ["raw", "top-down", "gls-top-down"]
workers = 1
"""


def write(folder: Path, study_section: str = STUDY, table: pd.DataFrame = TABLE) -> Path:
    table.to_csv(folder / "table.csv", index=False)
    path = folder / "study.toml"
    path.write_text(CONFIG + study_section)
    return path


# -- configuration ----------------------------------------------------------------------------------------------------


def test_a_run_refuses_a_study_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"section \[study\].*topdown study"):
        load_config(write(tmp_path))


def test_a_study_needs_its_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not a study: use `topdown run .*add a section \[study\]"):
        load_study(write(tmp_path, ""))


def test_either_is_told_by_its_section(tmp_path: Path) -> None:
    assert type(load_any(write(tmp_path))).__name__ == "StudyConfig"
    assert type(load_any(write(tmp_path, ""))).__name__ == "RunConfig"


def test_defaults_are_whole(tmp_path: Path) -> None:
    options = load_study(write(tmp_path, "[study]\n")).study
    assert options.replicates == 1000
    assert not options.public_input
    assert options.reference == "noise"


def test_by_default_the_released_method_is_studied(tmp_path: Path) -> None:
    def methods(projection: str, section: str) -> list[str]:
        path = write(tmp_path, section)
        path.write_text(path.read_text() + f'[projection]\nmethod = "{projection}"\n')
        return load_study(path).methods

    default = methods("gls-top-down", "[study]\n")
    assert default[-1] == "gls-top-down/rounded"
    assert methods("joint", "[study]\n") == [*default, "joint/rounded"]
    assert methods("joint", '[study]\nmethods = ["raw"]\n') == ["raw"]


@pytest.mark.parametrize(
    ("section", "match"),
    [
        ("[study]\nreplicate = 3", r"study.replicate; did you mean 'replicates'"),
        ("[study]\nreplicates = 0", "study.replicates"),
        ('[study]\nmethods = ["topdown"]', "did you mean 'top-down'"),
        ('[study]\nmethods = ["raw", "raw"]', "each only once"),
        ("[study]\nsize_classes = [10, 5]", "increasing"),
        ('[study]\nreference = "normal"', "study.reference"),
        ('[study]\nthresholds = [{ cell = "x" }]', "cutoff is missing"),
        ('[study]\nthresholds = [{ cell = "x", cutof = 1 }]', "cutof"),
        ('[study]\nthresholds = [{ cell = "x", among = ["x", "y"], cutoff = 10 }]', "cutoff 10.*from 0 to below 1"),
        ('[study]\nthresholds = [{ cell = "x", among = ["y"], cutoff = 0.1 }]', "which it is not one of"),
        ('[study]\ngroups = ["size class"]', "every study has the group 'size class'"),
        ('[study]\ngroups = [["kind", "kind"]]', "name each column once"),
        (
            '[study]\ngroups = [{ columns = ["kind", "state"], order = ["A"] }]',
            "labels and order are for a single column",
        ),
        ('[study]\ngroups = ["kind", "kind"]', "once"),
        ("[study]\nseeds = 3", "did you mean 'seed'|study.seed"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(tmp_path: Path, section: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        load_study(write(tmp_path, section))


def test_a_seed_belongs_to_the_study(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace("[privacy]", "[privacy]\nseed = 3"))
    with pytest.raises(ConfigError, match=r"a study's seed is study\.seed"):
        load_study(path)


# -- what it writes ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study with groups and decisions; the table's rows in another order than the geography's."""
    here = tmp_path_factory.mktemp("study")
    more = 'groups = ["kind"]\nfund = "x"\nthresholds = [{ cell = "x", among = ["x", "y"], cutoff = 0.1 }]\n'
    config = load_study(write(here, STUDY + more, TABLE.sample(frac=1, random_state=1)))
    found = study(config)
    assert found.directory == here / "out" / "internal"
    assert (found.replicates, found.wanted) == (60, 60)
    return here / "out"


def test_all_files_are_internal(folder: Path) -> None:
    assert [p.name for p in folder.iterdir()] == ["internal"]
    names = sorted(p.name for p in (folder / "internal").iterdir())
    assert names == [
        "batches.parquet",
        "coverage.parquet",
        "densities.parquet",
        "errors.parquet",
        "records.parquet",
        "report.html",
        "rules.parquet",
        "summary.json",
    ]


def test_every_file_says_that_it_is_confidential(folder: Path) -> None:
    for path in (folder / "internal").glob("*.parquet"):
        assert (pd.read_parquet(path)["notice"] == "confidential comparison with the true counts").all()
        marks = pq.read_schema(path).metadata
        assert b"confidential" in marks[b"notice"]
        assert marks[b"schema version"] == SCHEMA_VERSION.encode()
        assert marks[b"software"].startswith(b"topdown ")
    assert "Confidential comparison with the true counts" in (folder / "internal" / "report.html").read_text()


def test_groups_go_to_their_units_whatever_the_order_of_rows(folder: Path) -> None:
    rules = pd.read_parquet(folder / "internal" / "rules.parquet")
    rows = rules[(rules.rule == "mean x by kind") & (rules.method == "raw")].set_index("geoid")
    expected = TABLE.groupby("kind")["x"].mean()
    for _, unit in TABLE.iterrows():
        assert rows.loc[unit["county"], "truth"] == pytest.approx(expected[unit["kind"]])


def test_the_report_s_numbers_are_those_of_the_files(folder: Path) -> None:
    page = (folder / "internal" / "report.html").read_text()
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    nodes = json.loads(found.group(1))["nodes"]
    errors = pd.read_parquet(folder / "internal" / "errors.parquet")
    for method, columns in nodes["methods"].items():
        part = errors[errors.method == method]
        assert part.geoid.tolist() == nodes["geoid"]
        np.testing.assert_allclose(columns["bias"], part.bias, rtol=1e-3, atol=1e-12)
        np.testing.assert_allclose(np.square(columns["rmse"]), part.mse, rtol=1e-3)
    rules = pd.read_parquet(folder / "internal" / "rules.parquet")
    moved = rules[(rules.rule == "share of x") & (rules.method == "gls-top-down")].mean_absolute_error.sum() / 2 * 1e6
    told = re.search(r"Of each million that is paid out by x, ([0-9,.]+)\s±\s[0-9,.]+ goes elsewhere", page)
    assert told is not None
    assert float(told[1].replace(",", "")) == pytest.approx(moved, rel=1e-3)
    densities = pd.read_parquet(folder / "internal" / "densities.parquet")
    np.testing.assert_allclose(densities["share"], densities["count"] / 60)


def test_the_coverage_of_the_published_intervals_is_in_a_table_and_on_the_page(folder: Path) -> None:
    coverage = pd.read_parquet(folder / "internal" / "coverage.parquet")
    assert set(coverage["by"]) == {"all", "true count", "published count", "kind"}
    by_kind = coverage[(coverage["by"] == "kind") & (coverage["cell"] == "x")].set_index("group")["units"]
    assert by_kind.to_dict() == TABLE["kind"].value_counts().to_dict()
    assert (coverage["nominal"] == 0.9).all()
    page = (folder / "internal" / "report.html").read_text()
    assert '<h2 id="coverage">' in page
    assert "The intervals that the release would publish hold the true count" in page


def test_a_later_study_in_the_same_directory_leaves_nothing_of_an_earlier_one(tmp_path: Path) -> None:
    more = 'metrics = "census"\n[[study.variant]]\nname = "truncated"\nbounds = "truncated"\n'
    said: list[str] = []

    class Said(Silent):
        def say(self, line: str) -> None:
            said.append(line)

    here = study(load_study(write(tmp_path, STUDY + more))).directory
    assert (here / "census_metrics.xlsx").exists()
    assert (here / "errors_by_noise.parquet").exists()
    (here / "note.txt").write_text("not a study's")
    study(load_study(write(tmp_path)), stages=Said())
    names = {one.name for one in here.iterdir()}
    assert not names & {"census_metrics.xlsx", "errors_by_noise.parquet"}
    assert "note.txt" in names
    assert {Path(line.split()[-1]).name for line in said if line.startswith("wrote ")} == names - {"note.txt"}


def test_a_study_that_could_not_be_written_whole_is_no_study_to_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_study(write(tmp_path))
    here = study(config).directory
    monkeypatch.setattr("topdown.pipeline.study.render", mock.Mock(side_effect=OSError("no space left on device")))
    with pytest.raises(DataError, match="cannot be written"):
        study(config, replicates=61)
    with pytest.raises(DataError, match="holds no summary"):
        compare_studies(here, here, tmp_path / "compared")


def test_a_public_input_is_said_to_be_public(tmp_path: Path) -> None:
    found = study(load_study(write(tmp_path, STUDY + "public_input = true\n")))
    assert "Comparison with public counts" in found.report.read_text()
    assert set(pd.read_parquet(found.directory / "errors.parquet").notice) == {"comparison with public counts"}


def test_the_same_seed_gives_the_same_study(tmp_path: Path) -> None:
    config = load_study(write(tmp_path))
    first, second = study(config, tmp_path / "1"), study(config, tmp_path / "2", replicates=60)
    frames = [pd.read_parquet(one.directory / "errors.parquet") for one in (first, second)]
    pd.testing.assert_frame_equal(*frames)
    third = study(config, tmp_path / "3", replicates=61)
    assert third.replicates == 61


@pytest.mark.parametrize("output", ["public", "Public/x", "a/public/b"])
def test_nothing_goes_to_a_public_directory(tmp_path: Path, output: str) -> None:
    config = load_study(write(tmp_path))
    with pytest.raises(ConfigError, match="not written under a directory called public"):
        study(config, tmp_path / output)
    (tmp_path / "public").mkdir(exist_ok=True)
    (tmp_path / "elsewhere").symlink_to(tmp_path / "public")
    with pytest.raises(ConfigError, match="called public"):
        study(config, tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ('groups = ["colour"]', "study.groups names 'colour'"),
        ('fund = "z"', "study.fund names 'z'; there are 'x', 'y'"),
        (
            'thresholds = [{ cell = "x", among = ["x", "z"], cutoff = 0.5 }]',
            "study.thresholds names 'z'; there are 'x', 'y'",
        ),
        (
            'thresholds = [{ cell = "x", cutoff = 5, level = "stat" }]',
            "study.thresholds: unknown level 'stat'.*'state'",
        ),
        ('groups = [{ columns = "kind", order = ["town"] }]', "order of column 'kind' names 'town'"),
        ('groups = [{ columns = "kind", labels = { town = "Town" } }]', "labels of column 'kind' names 'town'"),
        ('groups = [{ columns = "kind", weight = "state" }]', "weights in column 'state' are not all numbers"),
        ('groups = [["kind", "colour"]]', "study.groups names 'colour'"),
        ('rules = [{ name = "r", eligible = "z > 3" }]', "expression 'z > 3' asks for 'z'; there are 'x', 'y'"),
        ('rules = [{ name = "r", eligible = "x > 3", sums = { y = ["x"] } }]', "sum 'y' is called as a cell is"),
        ('rules = [{ name = "r", eligible = "x > 3", sums = { s = [] } }]', "sum 's' is of nothing; give it cells"),
        ('queries = ["nope"]', "unknown part of query 'nope'"),
    ],
)
def test_what_is_not_in_the_table_is_refused_before_anything_is_drawn(
    tmp_path: Path, more: str, match: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, STUDY + more + "\n")
    with pytest.raises(ConfigError, match=match):
        study(load_study(path))
    assert not (tmp_path / "out").exists()
    assert topdown_command("check", path) == 2
    assert re.search(match, capsys.readouterr().err)


@pytest.mark.parametrize("edges", ["[nan]", "[10, inf]", "[10, 10]", "[0, 5]"])
def test_size_classes_that_are_none_are_refused(tmp_path: Path, edges: str) -> None:
    with pytest.raises(ConfigError, match="give increasing counts above 0, such as 10, 100, 1000"):
        load_study(write(tmp_path, f"{STUDY}size_classes = {edges}\n"))


def test_a_column_with_a_label_per_unit_is_no_grouping(tmp_path: Path) -> None:
    table = pd.DataFrame({"nation": "US", "state": "A", "county": [f"A{k:03d}" for k in range(80)], "x": 3, "y": 4})
    with pytest.raises(ConfigError, match="80 distinct values"):
        study(load_study(write(tmp_path, STUDY + 'groups = ["county"]\n', table)))


GROUPS = """groups = [
  { columns = "kind", order = ["urban"], labels = { urban = "a town", rural = "the country" } },
  ["kind", "state"],
  ["size class", "kind"],
  { columns = "state", weight = "people" },
]
size_classes = [10, 25]
"""


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study by labelled, crossed and weighted groups, its rows in another order than the geography's."""
    here = tmp_path_factory.mktemp("grouped")
    table = TABLE.assign(people=[0, 3, 1, 0, 4, 0, 2]).sample(frac=1, random_state=2)
    study(load_study(write(here, STUDY + GROUPS, table)))
    return here / "out" / "internal"


def verdicts(folder: Path) -> dict[tuple[str, str], list[str]]:
    """(grouping, cell) -> groups in the order in which the page's table of verdicts has them."""
    page = (folder / "report.html").read_text()
    rows = re.findall(
        r'<td class="t">([^<]*)</td><td class="t">([xy])</td><td class="t">([^<]*)</td>(?=.*t words)', page
    )
    found: dict[tuple[str, str], list[str]] = {}
    for grouping, cell, group in rows:
        found.setdefault((grouping, cell), []).append(group)
    return found


def test_groups_keep_the_order_and_labels_that_they_are_given(grouped: Path) -> None:
    found = verdicts(grouped)
    assert found["kind", "x"] == ["a town", "the country"]
    crossed = ["a town × A", "a town × B", "the country × A", "the country × B"]
    assert [group for group in crossed if group in found["kind × state", "x"]] == found["kind × state", "x"]
    assert found["size class × kind", "x"] == [
        "below 10 × a town", "below 10 × the country", "10 to 24 × a town", "10 to 24 × the country"
    ]  # fmt: skip
    assert found["size class × kind", "y"] == ["25 and more × a town", "25 and more × the country"]


def test_the_means_of_a_weighted_group_count_its_people(grouped: Path) -> None:
    rules = pd.read_parquet(grouped / "rules.parquet")
    rows = rules[(rules.rule == "mean x by state, weighted by people") & (rules.method == "raw")].set_index("geoid")
    assert rows.loc["A00", "truth"] == pytest.approx((0 * 0 + 3 * 5) / 3)
    assert rows.loc["B04", "truth"] == pytest.approx((1 * 0 + 0 * 5 + 4 * 10 + 0 * 15 + 2 * 20) / 7)
    page = (grouped / "report.html").read_text()
    assert "In “state, weighted by people” a unit counts as often as its people says" in page
    errors = pd.read_parquet(grouped / "errors.parquet")
    part = errors[(errors.method == "raw") & (errors.cell == "x")].set_index("geoid").bias
    expected = (1 * part["B00"] + 4 * part["B02"] + 2 * part["B04"]) / 7
    assert rows.loc["B01", "mean_error"] == pytest.approx(expected)


def test_the_groups_of_the_documentation_are_taken(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "studies.md").read_text()
    (section,) = re.findall(r"```toml\n(\[study\].*?)```", text, re.DOTALL)
    groups = load_study(write(tmp_path, section)).study.groups
    assert [one.title for one in groups] == [
        "urban_rural", "size class × urban_rural", "quarter", "region, weighted by people_in_poverty"
    ]  # fmt: skip
    thresholds = re.findall(r"^\| `(\{ cell = .*?\})` \|", text, re.MULTILINE)
    assert len(thresholds) == 3
    load_study(write(tmp_path, f"[study]\nthresholds = [{', '.join(thresholds)}]\n"))


def test_groups_without_an_order_go_by_number_and_letter(tmp_path: Path) -> None:
    table = TABLE.assign(kind=["10", "2", None, "b", "1", "a", "2"])
    found = study(load_study(write(tmp_path, STUDY + 'groups = ["kind"]\n', table)))
    assert verdicts(found.directory)["kind", "x"] == ["1", "2", "10", "a", "b", "missing"]


def test_thresholds_at_an_inner_level_and_of_a_ratio(tmp_path: Path) -> None:
    rules = """thresholds = [
  { cell = "x", per = ["y"], cutoff = 0.1, level = "state" },
  { cell = "x", cutoff = 12 },
]
"""
    found = study(load_study(write(tmp_path, STUDY + rules)))
    frame = pd.read_parquet(found.directory / "rules.parquet")
    states = frame[(frame.rule == "x / (y) above 0.1, by state") & (frame.method == "raw")].set_index("geoid")
    assert states["truth"].to_dict() == {"A": 0.0, "B": 1.0}  # 5 / 180 and 50 / 450
    page = found.report.read_text()
    assert "<h3>x / (y) above 0.1, by state</h3>" in page
    told = re.search(r"<h3>[^<]*above 0.1, by state.*?<td class=\"t\">raw</td><td>([0-9.]+) ± ", page, re.DOTALL)
    assert told is not None
    assert float(told[1]) == pytest.approx(states["mean_absolute_error"].sum(), rel=0.05)


def test_a_missing_label_is_a_group_of_its_own(tmp_path: Path) -> None:
    table = TABLE.assign(kind=[None, *TABLE["kind"][1:]])
    found = study(load_study(write(tmp_path, STUDY + 'groups = ["kind"]\n', table)))
    assert ">missing<" in found.report.read_text()


def test_units_named_by_their_path_and_rows_chosen(tmp_path: Path) -> None:
    table = TABLE.assign(county=[f"c{i}" for i in (0, 1, 0, 1, 2, 3, 4)], year="2020")
    path = write(tmp_path, STUDY + 'groups = ["kind"]\n', pd.concat([table, table.assign(year="2010", kind="rural")]))
    text = path.read_text().replace('"county"]', '"county"]\nseparator = "/"')
    path.write_text(text.replace("[geography]", '[input.where]\nyear = "2020"\n[geography]'))
    rules = pd.read_parquet(study(load_study(path)).directory / "rules.parquet")
    rows = rules[(rules.rule == "mean x by kind") & (rules.method == "raw")].set_index("geoid")
    expected = TABLE.groupby("kind")["x"].mean()
    assert rows.loc["A/c0", "truth"] == pytest.approx(expected["urban"])
    assert rows.loc["B/c1", "truth"] == pytest.approx(expected["rural"])


class _Interrupting(Silent):
    """Ctrl-C after the first block of replicates."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def count(self, done: int, total: int) -> None:
        raise KeyboardInterrupt

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_an_interrupt_keeps_what_is_finished_and_says_how_much(tmp_path: Path) -> None:
    stages = _Interrupting()
    found = study(load_study(write(tmp_path)), replicates=5000, stages=stages)
    assert 0 < found.replicates < 5000
    assert any(f"after {found.replicates:,} of 5,000 replicates" in line for line in stages.lines)
    assert set(pd.read_parquet(found.directory / "errors.parquet").replicates) == {found.replicates}
    assert f"{found.replicates:,} (of 5,000 that were asked for)" in found.report.read_text()


@pytest.mark.parametrize("shares", ["nation = 0.5, state = 0.5, county = 0", "nation = 0, state = 0, county = 1"])
def test_a_level_that_is_not_measured_warns_of_nothing(tmp_path: Path, shares: str) -> None:
    path = write(tmp_path, STUDY + 'groups = ["kind"]\nfund = "x"\nthresholds = [{ cell = "x", cutoff = 7 }]\n')
    path.write_text(path.read_text().replace("epsilon = 1.0", f"epsilon = 1.0\nshares = {{ {shares} }}"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert study(load_study(path)).replicates == 60


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(DataError, match="cannot be written"):
        study(load_study(write(tmp_path)))


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    class Counting(Silent):
        def count(self, done: int, total: int) -> None:
            seen.append((done, total))

    study(load_study(write(tmp_path)), replicates=3000, stages=Counting())
    assert seen[-1] == (3000, 3000)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert len(seen) > 1


# -- command line -----------------------------------------------------------------------------------------------------


def test_the_command_leaves_a_report(tmp_path: Path, capsys: Any) -> None:
    path = write(tmp_path)
    code = topdown_command("study", path, "--output", tmp_path / "o", "--replicates", 50, "--workers", 1)
    assert code == 0
    assert (tmp_path / "o" / "internal" / "report.html").exists()
    assert set(pd.read_parquet(tmp_path / "o" / "internal" / "errors.parquet").replicates) == {50}
    said = capsys.readouterr().out
    assert "report.html" in said
    assert "confidential comparison" in said
    assert topdown_command("study", path, "--output", tmp_path / "q", "--replicates", 50, "--quiet") == 0
    assert capsys.readouterr().out == ""


def test_check_takes_a_study(tmp_path: Path) -> None:
    assert topdown_command("check", write(tmp_path)) == 0
    assert not (tmp_path / "out").exists()


def test_a_study_given_to_run_exits_2_and_leaves_nothing(tmp_path: Path, capsys: Any) -> None:
    assert topdown_command("run", write(tmp_path)) == 2
    assert "topdown study" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_example_reads_its_own_table() -> None:
    config = load_study(REPOSITORY / "pipelines" / "us_counties_study.toml")
    geography, _ = draw.read_input(config)
    assert geography.n_leaves == 3140
    assert config.study.public_input


def test_what_the_example_suggests_works(tmp_path: Path) -> None:
    """Its commented lines, with outlines at the place that the script for them writes to."""
    text = (REPOSITORY / "pipelines" / "us_counties_study.toml").read_text()
    text, uncommented = re.subn(r"(?m)^# (?=\w+ = )", "", text)
    assert uncommented == 2
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "data").mkdir()
    table = "us_counties_labor_force_2009.parquet"
    (tmp_path / "data" / table).write_bytes((REPOSITORY / "data" / table).read_bytes())
    ring = [[0, 0], [0, 1], [1, 1], [1, 0], [0, 0]]
    one = {"type": "Feature", "id": "01001", "geometry": {"type": "Polygon", "coordinates": [ring]}}
    shapes = {"type": "FeatureCollection", "features": [one]}
    (tmp_path / "data" / "us_counties.geojson").write_text(json.dumps(shapes))
    path = tmp_path / "pipelines" / "study.toml"
    path.write_text(text)
    config = load_study(path)
    geography, counts = draw.read_input(config)
    groupings = read_groupings(config, geography, counts.cells, counts.values[geography.tree.leaves])
    assert list(groupings) == ["size class", "state_name, weighted by unemployed"]
    assert config.geometry_path is not None
    assert len(read_outlines(config.geometry_path, geography).leaves) == 1
    followed = Followed.of(counts.schema, counts.cells, None)
    labels = [rule.label for rule in read_thresholds(config, geography, followed)]
    assert labels == ["unemployed / (employed + unemployed) above 0.1", "unemployed / (employed) above 0.1, by state"]


def test_an_interrupt_before_the_first_block_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("topdown.pipeline.study.simulate", interrupted)
    stages = _Interrupting()
    with pytest.raises(KeyboardInterrupt):
        study(load_study(write(tmp_path)), stages=stages)
    assert "nothing was written" in stages.lines[-1]
    assert not (tmp_path / "out").exists()


def test_only_the_owner_reads_what_a_study_writes(tmp_path: Path) -> None:
    """Also with an umask that opens everything, and where the folder stood open before."""
    config = load_study(write(tmp_path))
    (tmp_path / "out" / "internal").mkdir(parents=True, mode=0o755)
    before = os.umask(0)
    try:
        directory = study(config).directory
    finally:
        os.umask(before)
    modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in (directory, *directory.iterdir())}
    assert {name: mode for name, mode in modes.items() if mode != "0o600"} == {"internal": "0o700"}
    assert len(modes) > 5


# -- what a release would be refused for is refused before the first replicate ----------------------------------------


@pytest.mark.parametrize(
    ("shares", "variant", "match"),
    [
        (
            "shares = { nation = 0.2, state = 0.3, county = { detailed = 0.25, age = 0.25 } }",
            "",
            "query 'age'",
        ),
        (
            'shares = { nation = 0, state = "1e-14", county = "0.99999999999999" }',
            "",
            "level 'state'.*does not fit",
        ),
        ("", '[[study.variant]]\nname = "bounded"\nbounds = { town = "truncated" }\n', "names level 'town'"),
    ],
)
def test_a_plan_that_cannot_be_measured_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares: str, variant: str, match: str
) -> None:
    path = write(tmp_path, STUDY + variant)
    path.write_text(path.read_text().replace("epsilon = 1.0", f"epsilon = 1.0\n{shares}"))

    def simulated(task: object) -> None:
        raise AssertionError("the study was begun")

    monkeypatch.setattr(simulate_module, "run_task", simulated)
    with pytest.raises(BudgetError, match=match):
        study(load_study(path))
    assert not (tmp_path / "out").exists()
