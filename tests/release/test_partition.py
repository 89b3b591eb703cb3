"""Releases of several queries in parts: the same rows, read, verified, described and sampled from as one table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import topdown as td
from support.places import RUN_TOML
from topdown.config import load_config
from topdown.errors import DataError
from topdown.microdata.leaves import read_leaves
from topdown.pipeline import run as pipeline
from topdown.release import partition

SHARES = "[privacy.shares]\nnation = { total = 0.2 }\nstate = { detailed = 0.3 }\ncounty = { detailed = 0.5 }\n"
SEVERAL = (
    RUN_TOML.replace("shares = { nation = 0.2, state = 0.3, county = 0.5 }\n", SHARES)
    + '[output]\ntables = ["detailed"]\n'
)


@pytest.fixture
def both(tmp_path: Path, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """One release, in a file and in parts."""
    frame.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "run.toml").write_text(SEVERAL)
    config = load_config(tmp_path / "run.toml")
    whole = pipeline.run(config, tmp_path / "a").public.rename(tmp_path / "whole")
    monkeypatch.setattr(partition, "_ROWS_OF_ONE_FILE", 3)
    return whole, pipeline.run(config, tmp_path / "a").public


def test_the_parts_hold_the_rows_of_the_whole(both: tuple[Path, Path]) -> None:
    whole, public = both
    assert sorted(path.name for path in (public / "release.parquet").iterdir()) == [
        "01.parquet",
        "02.parquet",
        "US.parquet",
    ]
    assert set(pq.read_table(public / "release.parquet" / "01.parquet")["geoid"].to_pylist()) == {
        "01",
        "01001",
        "01003",
    }
    expected = pl.read_parquet(whole / "release.parquet")
    found = pl.read_parquet(public / "release.parquet" / "*.parquet")
    assert sorted(found.rows()) == sorted(expected.rows())
    assert (whole / "release.csv").read_bytes() == (public / "release.csv").read_bytes()


def test_it_is_verified_read_and_sampled_as_the_whole_is(both: tuple[Path, Path]) -> None:
    whole, public = both
    assert "release.parquet/01.parquet" in td.verify_release(public).files
    one, other = td.read_release(whole).release, td.read_release(public).release
    np.testing.assert_array_equal(one.starts, other.starts)
    every = slice(0, one.geography.n_nodes)
    for mine, its in zip(one.entries_of(every), other.entries_of(every), strict=True):
        np.testing.assert_array_equal(mine, its)
    np.testing.assert_array_equal(read_leaves(whole).values, read_leaves(public).values)


def test_the_codebook_has_it_as_one_table_of_several_files(both: tuple[Path, Path]) -> None:
    _, public = both
    package = json.loads((public / "datapackage.json").read_text(encoding="utf-8"))
    (resource,) = (one for one in package["resources"] if one["name"] == "release-parquet")
    assert resource["path"] == [f"release.parquet/{name}.parquet" for name in ("01", "02", "US")]
    assert "| `release.parquet` |" in (public / "METHODS.md").read_text(encoding="utf-8")
    files = json.loads((public / "manifest.json").read_text(encoding="utf-8"))["files"]
    catalogue = (public / "dcat.jsonld").read_text(encoding="utf-8")
    assert all(files[path]["sha256"] in catalogue for path in resource["path"])


def test_a_part_that_is_missing_changed_or_another_s_is_named(both: tuple[Path, Path]) -> None:
    _, public = both
    part = public / "release.parquet" / "02.parquet"
    kept = part.read_bytes()
    part.unlink()
    with pytest.raises(DataError, match=r"release\.parquet/02\.parquet is missing"):
        td.verify_release(public)
    part.write_bytes(kept[:-1] + b"!")
    with pytest.raises(DataError, match=r"release\.parquet/02\.parquet is not what was written"):
        td.verify_release(public)
    part.write_bytes(kept)
    shutil.copy(part, part.with_name("03.parquet"))
    with pytest.raises(DataError, match=r"03\.parquet' is not of this release"):
        td.verify_release(public)


def test_codes_that_are_no_names_of_files_are_numbered() -> None:
    codes = {"nation": ["US"] * 3, "state": ["a/b", "a/b", "ö"], "county": ["x", "y", "z"]}
    geography = td.Geography.from_table(pa.table(codes), ["nation", "state", "county"])
    assert list(partition._parts(geography)) == [f"part-{number:05d}.parquet" for number in range(3)]
