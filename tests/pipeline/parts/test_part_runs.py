"""`topdown run` in parts: the same counts as of the whole tree, whatever the cut and whoever works."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.parted import LEDGER, TOML, AtOnce, counts_of, made, place_of_the_same_noise, tables_of
from support.places import REPOSITORY
from topdown.analysis.release_query import query_release
from topdown.config import load_config
from topdown.errors import ConfigError, DataError, ProjectionError
from topdown.geography.tree import FloatArray
from topdown.machine.progress import Silent
from topdown.measurements.filed_values import FiledValues
from topdown.noise import KeyedSource
from topdown.pipeline import run as pipeline
from topdown.pipeline.parts import part_plan
from topdown.privacy.ledger import Ledger
from topdown.projection.check import cvxpy_programs
from topdown.projection.check.cross_checks import parts_again
from topdown.projection.histograms.families import Family
from topdown.projection.method import CvxpySolver
from topdown.release import read
from topdown.release.manifest import SCHEMA_VERSION
from topdown.release.read import read_measurements, require_all


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the release of the whole tree in "whole"."""
    folder = tmp_path_factory.mktemp("parts")
    pipeline.run(load_config(made(folder)), folder / "whole")
    return folder


LIMITS = """geoid,query,answer,lower,upper
00,home,nursing,0,2
00000000,home,barracks,0,
00000001,total,total,,900
01,home,house,5,
"""


def parted(folder: Path, name: str, size: int | None, executor: AtOnce | None, text: str = TOML) -> Path:
    there = place_of_the_same_noise(folder, folder / "whole", name)
    (folder / "run.toml").write_text(text)
    return pipeline.run(load_config(folder / "run.toml"), there, part_size=size, executor=executor, workers=2).public


@pytest.mark.parametrize("size", [1, 3, 8, 1000])
def test_parts_publish_what_the_whole_publishes(folder: Path, size: int) -> None:
    worked = AtOnce()
    public = parted(folder, f"of {size}", size, worked)
    assert tables_of(public) == tables_of(folder / "whole" / "public")
    assert len({at.part for name, at in worked.done if name == "up"}) == {1: 14, 3: 13, 8: 3, 1000: 1}[size]
    td.verify_release(public)


@pytest.mark.system
def test_processes_publish_what_the_whole_publishes(folder: Path) -> None:
    assert tables_of(parted(folder, "by processes", 3, None)) == tables_of(folder / "whole" / "public")


def test_large_releases_go_in_parts_by_themselves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_plan, "LARGEST_WHOLE", 1000)
    worked = AtOnce()
    assert tables_of(parted(folder, "large", None, worked)) == tables_of(folder / "whole" / "public")
    assert worked.done


@pytest.fixture(scope="module")
def not_measured(folder: Path) -> Path:
    """The public directory of the release in parts with the nation's measurements alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_plan, "LARGEST_KEPT", 20)
        return parted(folder, "not measured", 8, AtOnce())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[output]\n", "[output]\nestimates = true\n"),
        ("[output]\n", "[output]\nwide = true\nestimates_csv = true\n"),
        ("[output]\n", '[output]\nmargins = { levels = ["state"], tables = ["total"] }\n'),
        ("[output]\n", '[projection]\nweights = "uniform"\n[output]\n'),
        ("[output]\n", '[projection]\nweights = "uniform"\nmethod = "top-down"\n[output]\n'),
        ("[geography]\n", '[bounds]\npath = "limits.csv"\n[geography]\n'),
        ('nation = ["total"]', 'nation = ["race"]'),
        ('"discrete-gaussian"', '"gaussian"'),
    ],
    ids=["estimates", "wide", "margins", "weights", "weights of top-down", "bounds", "exact above the cut", "grid"],
)
def test_parts_do_what_the_whole_does(folder: Path, request: pytest.FixtureRequest, old: str, new: str) -> None:
    (folder / "limits.csv").write_text(LIMITS)
    name, text = request.node.callspec.id, TOML.replace(old, new)
    assert text != TOML
    whole = parted(folder, f"{name}, whole", None, None, text)
    public = parted(folder, f"{name}, in parts", 3, AtOnce(), text)
    assert tables_of(public) == tables_of(whole)
    td.verify_release(public)


def test_the_manifest_says_what_is_left_out(folder: Path, not_measured: Path) -> None:
    public = not_measured
    assert counts_of(public) == counts_of(folder / "whole" / "public")
    manifest = json.loads((public / "manifest.json").read_text())
    described = REPOSITORY / "docs" / "schemas" / f"manifest-{SCHEMA_VERSION}.json"
    jsonschema.validate(manifest, json.loads(described.read_text(encoding="utf-8")))
    assert "Of state, county, tract, block no measurements were kept" in manifest["margins"]["statement"]
    assert manifest["fit_for_release"]
    projection = manifest["projections"]["non_negative"]
    programs = projection["programs"]
    assert 0 < programs["families"] < programs["variables"]
    assert programs["families"] <= programs["rounds"] <= programs["families"] * programs["most_rounds"]
    assert projection["certificate"]["deviations"] <= projection["certificate"]["tolerance"]
    of_parts = "; ".join(f"every family of part {part:04}" for part in range(3))
    assert projection["cross_check"]["scope"] == f"every family of nation, state; {of_parts}"
    assert projection["cross_check"]["nodes"] == sum(level["nodes"] for level in manifest["levels"])
    assert "no measurements were kept" in (public / "METHODS.md").read_text()


def test_margins_of_parts_are_described_as_those_of_the_whole(folder: Path) -> None:
    public = parted(folder, "with margins", 8, AtOnce())
    mine, its = (json.loads((one / "manifest.json").read_text()) for one in (public, folder / "whole" / "public"))
    assert mine["margins"] == its["margins"]
    assert mine["margins"]["confidence"] == 0.9
    assert mine["projections"]["unbiased"] == its["projections"]["unbiased"]
    assert set(mine["files"]) == set(its["files"])
    query = {"units": ["00"], "query": "age", "cells": ["adult"]}
    assert query_release(public, **query).equals(query_release(folder / "whole" / "public", **query))


@pytest.mark.parametrize(("most", "kept"), [(20, 1), (73, 2), (250, 3)])  # the nation, states, counties
def test_upper_levels_have_margins_where_all_measurements_are_too_many(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: int, kept: int
) -> None:
    monkeypatch.setattr(part_plan, "LARGEST_KEPT", most)
    public = parted(folder, f"most {most}", 8, AtOnce())
    found, levels = td.read_release(public), ["nation", "state", "county"][:kept]
    assert counts_of(public) == counts_of(folder / "whole" / "public")
    assert list(dict.fromkeys(level for level, _ in found.measurements.keys)) == levels
    table = pq.read_table(public / "tables" / "age_race_estimates.parquet").to_pandas()
    assert set(table["level"]) == set(levels)
    assert ((table["lower"] <= table["value"]) & (table["value"] <= table["upper"])).all()
    # By least squares of these levels alone, and with the released count inside.
    own = td.margins(found.measurements, found.release, queries=["age * race"])
    answers = table[~table["column"].isin(["total"])]
    assert answers["unbiased"].to_numpy() == pytest.approx(own["estimate"].to_numpy())
    assert (answers[["lower", "upper"]].to_numpy() == own[["lower", "upper"]].to_numpy()).all()
    said = json.loads((public / "manifest.json").read_text())["margins"]["statement"]
    assert f"Of {', '.join(found.geography.levels[len(levels) :])} no measurements were kept" in said
    asked = query_release(public, units=["00"], query="age", cells=["adult"])
    assert asked["sd"].item() > 0 or kept == 1
    with pytest.raises(DataError, match="were not kept"):
        require_all(read_measurements(public))
    td.verify_release(public)


def test_measurements_that_stay_in_their_file_say_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = folder / "whole" / "public"
    held = read_measurements(public).measurements
    monkeypatch.setattr(read, "_MOST_HELD", 100)
    filed = read_measurements(public).measurements
    assert all(isinstance(one.values, FiledValues) for one in filed.others.values())
    assert filed.to_frame().equals(held.to_frame())
    assert filed["block", "detailed"].values[3:9].tolist() == held["block", "detailed"].values[3:9].tolist()
    assert td.margins(filed, queries=["age * race"]).equals(td.margins(held, queries=["age * race"]))
    asked = {"units": ["00"], "query": "age", "cells": ["adult"]}
    in_file = query_release(public, **asked)
    monkeypatch.undo()
    assert in_file.equals(query_release(public, **asked))
    assert filed.in_memory().to_frame().equals(held.to_frame())


def test_counts_that_are_read_and_asked_are_those_of_the_whole(folder: Path, not_measured: Path) -> None:
    public, whole = not_measured, folder / "whole" / "public"
    found, expected = td.read_release(public), td.read_release(whole)
    why = found.measurements.reason_against(["block"])
    assert found.release.to_frame().equals(expected.release.to_frame())
    assert (found.release.exact == expected.release.exact).all()
    assert found.plan is not None
    assert found.plan.to_dict() == expected.plan.to_dict()
    blocks = found.geography.identifiers[found.geography.tree.leaves].to_pylist()
    districts = {"ward": {block: str(k % 3) for k, block in enumerate(blocks)}}
    mine, its = (td.aggregate(one, districts, query="age * race").table for one in (found, expected))
    assert mine[["region", "units", "cell", "value"]].equals(its[["region", "units", "cell", "value"]])
    assert mine[["estimate", "sd", "lower", "upper"]].isna().all(axis=None)
    assert set(mine["note"]) == {f"no margin: {why}"}
    counts = expected.table("block", "age")["adult"].to_numpy()
    query = partial(query_release, public, query="age", cells=["adult"])
    table = query(units=blocks[:4], minus=blocks[4:5])
    assert table["estimate"].tolist() == [counts[:4].sum() - counts[4]]
    assert table[["sd", "lower", "upper"]].isna().all(axis=None)
    assert table["note"].item() == f"released count, no margin: {why}"
    assert query(units=blocks[:2], share_of="total")["estimate"].item() == pytest.approx(
        counts[:2].sum() / expected.table("block", "total")["total"][:2].sum()
    )
    assert query(units=blocks[:2], share_of=",".join(blocks[:5]))["estimate"].item() == pytest.approx(
        counts[:2].sum() / counts[:5].sum()
    )
    with pytest.raises(DataError, match="counts more in the part than in the whole"):
        query(units=blocks[:2], share_of=blocks[1])
    assert "is counted twice" in query(units=[blocks[0], blocks[0][:2]])["note"].item()
    with pytest.raises(DataError, match="no unit '9' in this geography"):
        query(units=["9"])


def test_records_of_parts_are_those_of_the_whole(folder: Path) -> None:
    text = TOML.replace("[output]\n", "[output]\nmicrodata = true\n")
    records = []
    for name, size in (("records whole", None), ("records in parts", 8)):
        public = parted(folder, name, size, None if size is None else AtOnce(), text)
        files = sorted((public.parent / "microdata").glob("*.parquet"))
        assert files
        records.append([path.read_bytes() for path in files])
    assert records[0] == records[1]


def test_nothing_confidential_stays_and_nothing_is_open_to_others(folder: Path) -> None:
    seen: list[int] = []

    def look(name: str, _: object) -> None:
        root = folder / "closed" / "internal" / "parts"
        found = [path for path in root.rglob("*") if path.is_relative_to(root / "cut")]
        seen.extend(stat.S_IMODE(path.stat().st_mode) & 0o077 for path in [root, *found])

    parted(folder, "closed", 8, AtOnce(look))
    assert len(seen) > 20
    assert not any(seen)
    assert sorted(path.name for path in (folder / "closed" / "internal").iterdir()) == ["draw.json", "key", "lock"]


def test_one_reservation_and_the_same_release_again(folder: Path) -> None:
    public = parted(folder, "again", 8, AtOnce(), TOML + LEDGER)
    first = counts_of(public)
    public.rename(folder / "moved")
    config = load_config(folder / "run.toml")
    # Without a size too, and with another: it was measured in parts of 8.
    assert counts_of(pipeline.run(config, folder / "again", part_size=3, executor=AtOnce()).public) == first
    assert pipeline.run(config, folder / "again").already_there
    account = Ledger(folder / "ledger.db").account("census")
    assert (len(account.releases), len(account.confirmed), account.left) == (1, 1, 0)


def test_what_was_measured_as_a_whole_is_not_measured_in_parts(folder: Path) -> None:
    (folder / "run.toml").write_text(TOML)
    config = load_config(folder / "run.toml")
    public = folder / "whole" / "public"
    public.rename(folder / "whole" / "kept")
    try:
        with pytest.raises(ConfigError, match="was measured of the whole tree at once"):
            pipeline.run(config, folder / "whole", part_size=3, executor=AtOnce())
    finally:
        (folder / "whole" / "kept").rename(public)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[output]\n", "[output]\nestimates = true\n", "output.estimates asks"),
        ("[output]\n", '[output]\nmargins = { levels = ["state"] }\n', "output.margins chooses"),
        ("[output]\n", "[output]\nreplicates = 2\n", "output.replicates asks"),
    ],
    ids=["estimates", "margins", "replicates"],
)  # fmt: skip
def test_what_parts_cannot_do_is_refused_before_a_draw(
    folder: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    monkeypatch.setattr(part_plan, "LARGEST_KEPT", 20)
    text = TOML.replace(old, new)
    (folder / "run.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        pipeline.run(load_config(folder / "run.toml"), folder / "refused", part_size=3, executor=AtOnce())
    assert not (folder / "refused" / "internal").exists()


class Counted(Silent):
    """What was counted."""

    def __init__(self) -> None:
        self.counts: dict[str, list[tuple[int, int]]] = {}
        self.now = ""

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        self.now = title
        yield

    def count(self, done: int, total: int) -> None:
        self.counts.setdefault(self.now, []).append((done, total))


def test_progress_counts_parts(folder: Path) -> None:
    (folder / "run.toml").write_text(TOML)
    stages = Counted()
    config = load_config(folder / "run.toml")
    pipeline.run(config, folder / "counted", stages, part_size=8, executor=AtOnce())
    for stage in ("cutting the tree", "measuring and going up", "projecting and rounding"):
        assert stages.counts[stage] == [(k, 3) for k in range(1, 4)]


def cross_check_of(public: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((public / "manifest.json").read_text())["projections"]["non_negative"]
    return found["cross_check"]


@pytest.mark.system
def test_families_of_some_parts_are_solved_again_whoever_works(folder: Path) -> None:
    """Of 14 parts in four."""
    public = parted(folder, "four of many", 1, AtOnce())
    scopes = cross_check_of(public)["scope"].split("; ")
    named = [int(scope.split(" of part ")[1]) for scope in scopes[1:]]
    assert len(set(named)) == 4
    assert named == sorted(named)
    assert cross_check_of(parted(folder, "four again", 1, None)) == cross_check_of(public)


def test_the_key_chooses_the_parts_that_are_solved_again() -> None:
    chosen = [parts_again(14, KeyedSource(bytes([k]) * 32)) for k in range(50)]
    assert all(len(parts) == 4 for parts in chosen)
    assert len(set(chosen)) > 40
    assert frozenset().union(*chosen) == set(range(14))
    assert parts_again(14, KeyedSource(bytes(32))) == chosen[0]
    assert parts_again(3, KeyedSource(bytes(32))) == {0, 1, 2}


def test_a_part_whose_second_solution_differs_is_not_published(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going down alone: above the parts both solutions are the same."""
    going_down = False
    right = cvxpy_programs.family_solution

    def look(name: str, _: object) -> None:
        nonlocal going_down
        going_down = name == "down"

    def wrong(program: Family, solver: CvxpySolver) -> FloatArray:
        return right(program, solver) + 0.05 * going_down

    monkeypatch.setattr(cvxpy_programs, "family_solution", wrong)
    with pytest.raises(ProjectionError, match=r"differ by 0\.05 on every family of part 0000.*nothing was released"):
        parted(folder, "other", 8, AtOnce(look))
    assert not (folder / "other" / "public").exists()
    text = TOML + "[projection]\ncross_check = false\n"
    (folder / "run.toml").write_text(text)
    public = pipeline.run(load_config(folder / "run.toml"), folder / "unchecked", part_size=8, executor=AtOnce()).public
    assert cross_check_of(public) is None


def test_a_file_of_the_parts_that_cannot_be_removed_is_said_in_words_and_nothing_is_published(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release's files lie among the parts' until the release gets its name."""
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.match("parts/public/release.parquet"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        with pytest.raises(DataError, match=r"public: cannot be written: Input/output error; free the space"):
            parted(folder, "unremovable", 8, AtOnce())
    assert not (folder / "unremovable" / "public").exists()
    again = pipeline.run(load_config(folder / "run.toml"), folder / "unremovable", part_size=8, executor=AtOnce())
    assert counts_of(again.public) == counts_of(folder / "whole" / "public")
