"""Releases in parts on a spine: published units and areas are gathered from all parts, as of the whole tree."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import topdown as td
from support.command import topdown_command
from support.on_spine import KINDS, QUERIES, TOTALS, districts, folder_with
from support.parted import AtOnce, counts_of, place_of_the_same_noise, tables_of
from topdown.analysis.release_query import query_release
from topdown.config import load_config
from topdown.errors import ConfigError
from topdown.geography.unit_sums import SpineGeography
from topdown.pipeline import run as pipeline
from topdown.pipeline.draw import check
from topdown.pipeline.parts import in_parts, part_plan
from topdown.release import whole_counts

# Without a level between the root and the pieces: published counties are sums over several parts.
ACROSS = QUERIES.replace('"county", "senate x county"', '"senate"').replace(
    'county = 0\n"senate x county"', '"senate areas"'
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the release of the whole tree in "whole"."""
    folder = tmp_path_factory.mktemp("spine")
    pipeline.run(load_config(folder_with(folder, QUERIES)), folder / "whole")
    return folder


def parted(folder: Path, name: str, size: int | None, executor: AtOnce | None, text: str = QUERIES) -> Path:
    there = place_of_the_same_noise(folder, folder / "whole", name)
    (folder / "run.toml").write_text(text)
    return pipeline.run(load_config(folder / "run.toml"), there, part_size=size, executor=executor, workers=2).public


@pytest.mark.parametrize("size", [20, 1000])
def test_parts_publish_what_the_whole_publishes(folder: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(whole_counts, "_ENTRIES_AT_ONCE", 100)
    monkeypatch.setattr(whole_counts, "_READ", 300)
    monkeypatch.setattr(whole_counts, "_BETWEEN", 10)
    worked = AtOnce()
    public = parted(folder, f"of {size}", size, worked)
    assert tables_of(public) == tables_of(folder / "whole" / "public")
    added = [asked for name, asked in worked.done if name == "add_up"]
    assert {asked.tree for asked in added} == {"published", *KINDS}
    assert len(added) > 12
    td.verify_release(public)
    mine, its = (json.loads((one / "manifest.json").read_text()) for one in (public, folder / "whole" / "public"))
    assert mine["spine"] == its["spine"]
    assert mine["margins"] == its["margins"]
    assert mine["configuration_sha256"] == its["configuration_sha256"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (QUERIES, ACROSS),
        ("[output]\n", "[output]\nestimates = true\n"),
        ("[output]\ntables = [", "[output]\nwide = true\nestimates_csv = true\ntables = ["),
        ('[output]\ntables = ["votingage"]', "[output]\ncsv = false"),
        ("[output]\n", '[output]\nmargins = { levels = ["tract"], tables = ["votingage"] }\n'),
        ("[geography]\n", '[bounds]\npath = "limits.csv"\n[geography]\n'),
        ("[privacy]\n", '[privacy]\nonly_child = "move-up"\n'),
        (QUERIES, TOTALS),
        ("[output]\n", "[output]\nreplicates = 2\n"),
        (
            '[privacy.shares]\nstate = { total = "1/10" }',
            'invariants = { state = ["total"] }\n[privacy.shares]\nstate = { detailed = "1/10" }',
        ),
    ],
    ids=["across", "estimates", "wide", "no tables", "margins", "bounds", "move-up", "cells", "replicates", "exact"],
)
def test_parts_do_what_the_whole_does(folder: Path, request: pytest.FixtureRequest, old: str, new: str) -> None:
    (folder / "limits.csv").write_text("geoid,query,answer,lower,upper\n440070001011000,total,total,,900\n")
    name, text = request.node.callspec.id, QUERIES.replace(old, new)
    assert text != QUERIES
    whole = parted(folder, f"{name}, whole", None, None, text)
    public = parted(folder, f"{name}, in parts", 30, AtOnce(), text)
    assert tables_of(public) == tables_of(whole)
    td.verify_release(public)


def test_published_units_lie_in_several_parts(folder: Path) -> None:
    """Else the tests here would show little."""
    (folder / "run.toml").write_text(ACROSS)
    tree = check(load_config(folder / "run.toml")).counts.geography
    assert isinstance(tree, SpineGeography)
    top = tree.tree.parent[tree.tree.leaves]
    while tree.tree.level_of(int(top[0])) > 1:
        top = tree.tree.parent[top]
    geoids = tree.geoid[tree.tree.leaves]
    parts = {tract: set(top[[geoid[:11] == tract for geoid in geoids]].tolist()) for tract in {g[:11] for g in geoids}}
    assert max(map(len, parts.values())) > 1


@pytest.mark.system
def test_processes_and_steps_one_by_one_publish_what_the_whole_publishes(folder: Path) -> None:
    assert tables_of(parted(folder, "by processes", 60, None)) == tables_of(folder / "whole" / "public")
    there, toml = place_of_the_same_noise(folder, folder / "whole", "one by one"), folder / "run.toml"

    def part(step: str, *more: object) -> int:
        return topdown_command("part", step, toml, "-o", there, *more)

    assert part("cut", "--part-size", 200, "-q") == 0
    numbers = [f"{k:04d}" for k in range(len(list((there / "internal/parts/cut").glob("0*"))))]
    assert all(part("up", "--part", number) == 0 for number in numbers)
    assert part("top") == 0
    assert all(part("down", "--part", number) == 0 for number in numbers)
    assert part("gather", "-q") == 0
    assert tables_of(there / "public") == tables_of(folder / "whole" / "public")


def test_a_run_that_was_stopped_goes_on_with_the_same_release(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(in_parts, "write_sum_starts", stop)
    with pytest.raises(KeyboardInterrupt):
        parted(folder, "stopped", 60, AtOnce())
    monkeypatch.undo()
    worked = AtOnce()
    config = load_config(folder / "run.toml")
    public = pipeline.run(config, folder / "stopped", part_size=60, executor=worked).public
    assert tables_of(public) == tables_of(folder / "whole" / "public")
    assert not {name for name, _ in worked.done} & {"up", "down"}
    # Another table of areas is another release.
    (folder / "house.csv").rename(folder / "house.kept")
    lines = (folder / "house.kept").read_text().splitlines()
    try:
        (folder / "house.csv").write_text("\n".join(lines[:-1]) + "\n")
        with pytest.raises(ConfigError, match="another"):
            pipeline.run(config, folder / "stopped", part_size=60, executor=AtOnce())
    finally:
        (folder / "house.kept").rename(folder / "house.csv")


# -- a release that does not keep all that was measured ----------------------------------------------------------------


# What was measured of the upper levels tells it.
HISPANIC = QUERIES.replace('tables = ["votingage"]', 'tables = ["hispanic"]')


@pytest.fixture(scope="module")
def whole(folder: Path) -> Path:
    """The public directory of the same release of the whole tree."""
    return parted(folder, "upper, whole", None, None, HISPANIC)


@pytest.fixture(scope="module")
def upper(folder: Path, whole: Path) -> Path:
    """That of the release in parts with the measurements down to "senate x county" alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_plan, "LARGEST_KEPT", 80)
        return parted(folder, "upper", 100, AtOnce(), HISPANIC)


def test_units_that_are_sums_of_what_was_kept_have_margins(whole: Path, upper: Path) -> None:
    assert {name: one for name, one in counts_of(upper).items() if not name.startswith("areas/")} == {
        name: one for name, one in counts_of(whole).items() if not name.startswith("areas/")
    }
    td.verify_release(upper)
    found, expected = td.read_release(upper), td.read_release(whole)
    assert found.measurements.not_kept == ("pieces x tract", "block")
    # Counties and senate districts are sums of the pieces "senate x county"; tracts and house districts are not.
    assert found.measurements.kept.published.levels == ("state", "county")
    table = pd.read_parquet(upper / "tables/hispanic_estimates.parquet")
    assert set(table["level"]) == {"state", "county"}
    kept = found.measurements.kept
    own = td.margins(kept, queries=["hispanic"])
    total = table[table["column"] != "total"]
    np.testing.assert_allclose(total["unbiased"], own["estimate"])
    np.testing.assert_allclose(total["sd"], own["sd"])
    for kind in KINDS:
        counts = pd.read_parquet(upper / f"areas/{kind}.parquet")
        assert (counts["total"] == expected.areas[kind].values.sum(axis=1)).all()
        estimates = pd.read_parquet(upper / f"areas/{kind}_estimates.parquet")
        assert set(estimates["level"]) == ({"state", "senate"} if kind == "senate" else {"state"}), kind
        assert estimates["sd"].gt(0).all()
        assert ("total_lower" in counts) == (kind == "senate")
    said = json.loads((upper / "manifest.json").read_text())["margins"]["statement"]
    assert "Of pieces x tract, block no measurements were kept" in said


def test_questions_of_what_was_not_kept_have_counts_and_no_margins(whole: Path, upper: Path) -> None:
    expected = td.read_release(whole)
    counties = query_release(upper, units=["44007"], query="hispanic", cells=["not hispanic"])
    assert counties["sd"].gt(0).all()
    tract = query_release(upper, units=["44007000101"], query="hispanic", cells=["not hispanic"])
    tracts = expected.geography.geoid[expected.geography.level_slice("tract")]
    wanted = expected.release.answers("tract", "hispanic")[tracts == "44007000101"]
    assert tract["estimate"].tolist() == wanted[0, 1:].tolist()
    assert tract["sd"].isna().all()
    assert "measurements of 'tract' were not kept" in tract["note"].iloc[0]
    table = td.aggregate(td.read_release(upper), districts()).table
    assert table["value"].tolist() == td.aggregate(expected, districts()).table["value"].tolist()


def test_the_page_exports_and_ranks_of_it_are_made(
    upper: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ("xlsx", "sdmx", "zip"):
        assert topdown_command("export", upper, "--format", form, "--output", tmp_path / form) == 0, form
    assert topdown_command("page", upper, "--output", tmp_path / "page.html") == 0
    assert topdown_command("rank", upper, "--level", "county") == 0
    assert topdown_command("rank", upper, "--level", "tract") == 2
    assert "its measurements of 'tract' were not kept" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("estimates = true\n", "output.estimates asks"),
        ('margins = { levels = ["tract"] }\n', "output.margins chooses"),
    ],
)
def test_what_is_made_of_measurements_that_are_not_kept_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, new: str, said: str
) -> None:
    monkeypatch.setattr(part_plan, "LARGEST_KEPT", 80)
    (folder / "run.toml").write_text(QUERIES.replace("[output]\n", f"[output]\n{new}"))
    with pytest.raises(ConfigError, match=said):
        pipeline.run(load_config(folder / "run.toml"), folder / "refused", part_size=60, executor=AtOnce())
    assert not (folder / "refused" / "internal").exists()
