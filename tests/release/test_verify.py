"""A release that was received: whole, or the file or unit at fault by name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.places import RUN_TOML, Command
from topdown.config import load_config
from topdown.errors import DataError
from topdown.machine.files import file_digest
from topdown.microdata.leaves import read_leaves
from topdown.pipeline import run as pipeline

BY_LEVELS = RUN_TOML.replace("widths = { state = 2, county = 5 }", 'levels = ["nation", "state", "county"]')
CONFIGS = {"widths": RUN_TOML, "levels": BY_LEVELS}


def released(folder: Path, frame: pd.DataFrame, toml: str) -> Path:
    folder.mkdir()
    frame.to_csv(folder / "table.csv", index=False)
    (folder / "run.toml").write_text(toml + "[projection]\ncross_check = false\n")
    return pipeline.run(load_config(folder / "run.toml")).public


@pytest.fixture(params=CONFIGS)
def public(tmp_path: Path, frame: pd.DataFrame, request: pytest.FixtureRequest) -> Path:
    return released(tmp_path / "run", frame, CONFIGS[request.param])


def test_a_whole_release_is_found_whole_wherever_it_lies(public: Path, tmp_path: Path) -> None:
    received = tmp_path / "received"
    shutil.copytree(public, received)
    shutil.rmtree(public.parent)
    found = td.verify_release(received)
    books = ("METHODS.md", "README.md", "croissant.json", "csv-metadata.json", "datapackage.json", "dcat.jsonld")
    tables = (*books, "estimates.parquet", "geography.parquet", "measurements.parquet")
    assert found.files == (*tables, "release.csv", "release.parquet")
    assert found.sha256 == file_digest(received / "manifest.json")


@pytest.mark.parametrize("name", ["total", "level", "geoid", "parent"])
def test_cells_may_be_called_as_columns_of_tables_that_are_not_there(
    tmp_path: Path, frame: pd.DataFrame, name: str
) -> None:
    toml = RUN_TOML.replace('"adults"', f'"{name}"')
    public = released(tmp_path / "run", frame.rename(columns={"adults": name}), toml)
    assert "release.parquet" in td.verify_release(public).files


def test_the_command(public: Path, topdown: Command) -> None:
    done = topdown("verify", public)
    assert (done.returncode, done.stderr) == (0, "")
    assert "release.parquet agree with the manifest, and the counts add up" in done.stdout
    assert file_digest(public / "manifest.json") in done.stdout
    assert topdown("verify", public, "--quiet").stdout == ""
    (public / "release.csv").unlink()
    failed = topdown("verify", public)
    assert (failed.returncode, failed.stdout) == (3, "")
    assert "release.csv is missing; get the release again from whoever published it" in failed.stderr
    gone = topdown("verify", public / "gone")
    assert gone.returncode == 3
    assert "cannot be read as a release" in gone.stderr


def test_the_directory_of_a_run_is_told_from_its_release(public: Path) -> None:
    with pytest.raises(DataError, match=r"it is the output folder of a run; give the release in it, .*public$"):
        td.verify_release(public.parent)


def appended(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def as_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda p: (p / "measurements.parquet").unlink(), "measurements.parquet is missing"),
        (lambda p: os.truncate(p / "release.parquet", 8), r"release.parquet has 8 bytes instead of [\d,]+"),
        (lambda p: appended(p / "release.csv"), "release.csv has .* bytes instead of"),
        (lambda p: flipped(p / "estimates.parquet"), "estimates.parquet is not what was written"),
        (lambda p: (p / ".hidden").touch(), "'.hidden' is not of this release"),
        (lambda p: (p / "more").mkdir(), "'more' is not of this release"),
        (lambda p: as_link(p / "release.csv"), "release.csv is not a file"),
        (lambda p: (p / "manifest.json").unlink(), "manifest.json: is missing"),
        (lambda p: [f.unlink() for f in p.iterdir()], "manifest.json: is missing"),
        (lambda p: [(p / f"{k}").touch() for k in range(9)], "'4' is not of this release and 4 more"),
    ],
)
def test_what_is_not_whole_is_refused_by_name(public: Path, spoil: Callable[[Path], Any], says: str) -> None:
    spoil(public)
    with pytest.raises(DataError, match=rf"{says}.*; get the release again"):
        td.verify_release(public)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not what was written"),
        (b"\xff\xfe", "not what was written"),
        (b"[]", "not what was written"),
        (b"[" * 100_000, "not what was written"),
        (b'{"schema_version": "1.0", "files": [], "ledger": null}', "does not list|not what was written"),
        (b'{"schema_version": "1.0", "files": {}, "ledger": null}', "does not list"),
        (b'{"schema_version": "9.0", "files": {}, "ledger": null}', "is of version '9.0'"),
    ],
)
def test_a_manifest_that_is_none(public: Path, content: bytes, says: str) -> None:
    (public / "manifest.json").write_bytes(content)
    with pytest.raises(DataError, match=says):
        td.verify_release(public)


def test_a_manifest_beyond_all_size_is_not_read(public: Path) -> None:
    os.truncate(public / "manifest.json", 1 << 40)
    with pytest.raises(DataError, match="more than any manifest"):
        td.verify_release(public)


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/b", "..", "", "manifest.json"])
def test_a_manifest_lists_plain_names_only(public: Path, name: str) -> None:
    edit(public, lambda facts: facts["files"].update({name: facts["files"]["release.csv"]}))
    with pytest.raises(DataError, match="does not list the release's files"):
        td.verify_release(public)


# -- counts that do not fit, under a manifest that vouches for them ---------------------------------------------------


def edit(public: Path, change: Callable[[dict[str, Any]], object]) -> None:
    facts = json.loads((public / "manifest.json").read_text())
    change(facts)
    (public / "manifest.json").write_text(json.dumps(facts))


def rewrite(public: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """Change release.parquet and let the manifest vouch for it."""
    path = public / "release.parquet"
    frame = change(pq.read_table(path).to_pandas())
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    facts = {"sha256": file_digest(path), "bytes": path.stat().st_size}
    edit(public, lambda manifest: manifest["files"].update({"release.parquet": facts}))


def added(frame: pd.DataFrame, geoids: list[str], by: list[int]) -> pd.DataFrame:
    for geoid, value in zip(geoids, by, strict=True):
        frame.loc[(frame.geoid == geoid) & (frame.cell == "adults"), "value"] += value
    return frame


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda f: added(f, ["01001"], [1]),
            r"cell 'adults': it has \d+, and its units of level 'county' add up to \d+",
        ),
        (lambda f: added(f, ["US"], [5]), r"nation 'US', cell 'adults': .* level 'state' add up to"),
        (lambda f: added(f, ["01001", "01003", "01", "US"], [-(10**6)] * 4), "is negative|add up to"),
        (lambda f: f.iloc[:-1], "has 11 rows, and the manifest 6 units x 2 cells"),
        (lambda f: f.iloc[::-1], "its rows are not the units of every level"),
        (lambda f: f.assign(cell=f.cell.astype(str).replace("children", "x")), "its rows are not"),
        (lambda f: f.assign(value=f.value + 0.5), "its rows are not"),
        (lambda f: f.drop(columns="value"), "cannot be read as the manifest describes it"),
    ],
)
def test_counts_that_do_not_fit_are_refused(
    public: Path, change: Callable[[pd.DataFrame], pd.DataFrame], says: str
) -> None:
    rewrite(public, change)
    with pytest.raises(DataError, match=says):
        td.verify_release(public)


def test_a_family_that_does_not_add_up_is_found(tmp_path: Path, frame: pd.DataFrame) -> None:
    """Every level adds up to the root, and a state lost what another got: the table of units tells, however units are
    identified. A release of an earlier version lacks it.
    """
    larger = frame.assign(adults=[1000, 2000, 3000])
    for name, toml in CONFIGS.items():
        public = released(tmp_path / name, larger, toml)
        rewrite(public, lambda table: added(table, ["01", "02"], [7, -7]))
        with pytest.raises(DataError, match=r"state '01', cell 'adults': it has \d+, and its units of level 'county'"):
            td.verify_release(public)
        (public / "geography.parquet").unlink()
        edit(public, lambda manifest: manifest["files"].pop("geography.parquet"))
        td.verify_release(public)
        rewrite(public, lambda table: added(table, ["US"], [5]))
        with pytest.raises(DataError, match=r"nation 'US', cell 'adults': it has \d+, and its units of level 'state'"):
            td.verify_release(public)


def test_another_table_of_units_is_found(public: Path) -> None:
    path = public / "geography.parquet"
    table = pq.read_table(path)
    geoid = pc.replace_substring(table["geoid"], "02001", "02003")
    pq.write_table(table.set_column(0, "geoid", geoid), path)
    facts = {"sha256": file_digest(path), "bytes": path.stat().st_size}
    edit(public, lambda manifest: manifest["files"].update({path.name: facts}))
    with pytest.raises(DataError, match=r"geography\.parquet: its units are not those of release\.parquet"):
        td.verify_release(public)


# -- what a manifest says that is not known ---------------------------------------------------------------------------

READERS: list[Callable[[Path], object]] = [td.verify_release, td.read_release, read_leaves]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"release_rows": "cells of households"}, "the rows of its counts are 'cells of households'.*update"),
        ({"release_rows": None}, "the rows of its counts are None"),
        ({"schema_version": "9.0"}, r"is of version '9\.0', and this version of Topdown knows"),
    ],
)
def test_what_is_not_known_is_not_read_as_the_usual(
    read: Callable[[Path], object], said: dict[str, Any], says: str, public: Path
) -> None:
    edit(public, lambda manifest: manifest.update(said))
    with pytest.raises(DataError, match=says):
        read(public)


@pytest.mark.parametrize("read", READERS[:2])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shares": [{"level": "", "query": "detailed", "share": "1"}]}, "shares has the key"),
        ({"mechanism": "laplacian"}, "unknown mechanism 'laplacian'"),
        ({"neighbours": "replace"}, "unknown neighbours 'replace'"),
        ({"only_child": "move"}, "unknown only_child 'move'"),
    ],
)
def test_a_plan_that_is_not_known_measures_nothing(
    read: Callable[[Path], object], change: dict[str, Any], says: str, public: Path
) -> None:
    edit(public, lambda manifest: manifest["privacy"].update(change))
    with pytest.raises(DataError, match=says):
        read(public)


def test_a_table_that_the_manifest_does_not_name_is_compared_with_nothing(tmp_path: Path, frame: pd.DataFrame) -> None:
    public = released(tmp_path / "run", frame, RUN_TOML + '[output]\ntables = ["total"]\n')
    td.verify_release(public)
    edit(public, lambda manifest: manifest.update(tables={}))
    with pytest.raises(DataError, match=r"tables/total.*belongs to no table that the manifest names"):
        td.verify_release(public)


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (lambda privacy: privacy.update(total="1/10"), "total"),
        (lambda privacy: privacy["budget"][1].update(epsilon="1/100"), "budget"),
        (lambda privacy: privacy.update(statement=privacy["statement"].replace("= 1 ", "= 0.1 ")), "statement"),
        (lambda privacy: privacy["shares"][2].update(scale="1"), "shares"),
    ],
)
def test_a_manifest_that_says_something_else_of_its_budget_is_refused(
    public: Path, spoil: Callable[[dict[str, Any]], None], name: str
) -> None:
    manifest = json.loads((public / "manifest.json").read_text())
    before = json.dumps(manifest)
    spoil(manifest["privacy"])
    assert json.dumps(manifest) != before
    (public / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        DataError, match=rf"manifest.json: what its privacy\.{name} says does not follow from the shares"
    ):
        td.verify_release(public)
    (public / "manifest.json").write_text(json.dumps({**manifest, "software": "topdown"}))
    with pytest.raises(DataError, match=r"manifest.json: what its privacy says does not follow"):
        td.verify_release(public)
    manifest["software"]["topdown"] = "0.1.9"  # of another version nothing is known but how it drew
    (public / "manifest.json").write_text(json.dumps(manifest))
    td.verify_release(public)
