"""A folder of Parquet files is one table: read, digested, and refused where its files are not of one table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import topdown as td
from topdown.config import load_config
from topdown.errors import CountsError, DataError
from topdown.pipeline import run as pipeline
from topdown.pipeline.input.reading import read_input
from topdown.tables.parquet_folder import parts_of, table_digest
from topdown.tables.readers import read_table, row_named

PARTS = {
    "b.parquet": {"block": ["02"], "age": ["old"], "n": [4]},
    "a.parquet": {"block": ["01", "02"], "age": ["old", "young"], "n": [1, 2]},
    "more/c.parquet": {"block": ["03"], "age": ["young"], "n": [5]},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, rows in PARTS.items():
        path = tmp_path / "persons" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_parquet(path)
    (tmp_path / "persons" / "_SUCCESS").write_text("")
    (tmp_path / "persons" / "._a.parquet").write_text("no table")
    return tmp_path / "persons"


def test_the_files_are_read_one_after_the_other_by_name(folder: Path) -> None:
    assert [part.name for part in parts_of(folder)] == ["a.parquet", "b.parquet", "c.parquet"]
    table = read_table(folder)
    assert table.column_names == ["block", "age", "n"]
    assert table["n"].to_pylist() == [1, 2, 4, 5]
    assert read_table(folder, ["n", "block"]).column_names == ["n", "block"]
    assert row_named(folder, 3) == "row 1 (counted from 1) of more/c.parquet"


def test_the_digest_is_of_all_files_and_their_names(folder: Path) -> None:
    before = table_digest(folder)
    (folder / "b.parquet").rename(folder / "d.parquet")
    renamed = table_digest(folder)
    pd.DataFrame({"block": ["02"], "age": ["old"], "n": [5]}).to_parquet(folder / "d.parquet")
    changed = table_digest(folder)
    (folder / "d.parquet").rename(folder / os.fsdecode(b"\xff.parquet"))  # a name that is no text
    assert len({before, renamed, changed, table_digest(folder)}) == 4


def test_files_of_other_columns_or_kinds_are_refused_by_name(folder: Path) -> None:
    pd.DataFrame({"block": ["02"], "n": [5]}).to_parquet(folder / "b.parquet")
    with pytest.raises(DataError, match=r"'a\.parquet' has a column 'age', and 'b\.parquet' has none"):
        read_table(folder)
    pd.DataFrame({"block": ["02"], "age": ["old"], "n": ["5"]}).to_parquet(folder / "b.parquet")
    with pytest.raises(DataError, match=r"column 'n' of 'b\.parquet' has another type"):
        read_table(folder)
    (folder / "none").mkdir()
    with pytest.raises(DataError, match="it is a directory without Parquet files"):
        read_table(folder / "none")


RUN = """
[input]
path = "persons"
rows = "long"
count = "n"
geoid = "block"
[geography]
widths = { block = 2 }
[schema]
age = ["young", "old"]
[privacy]
epsilon = 1
"""


def test_a_run_reads_a_folder_as_one_table(folder: Path) -> None:
    (folder.parent / "run.toml").write_text(RUN)
    config = load_config(folder.parent / "run.toml")
    geography, counts = read_input(config)
    assert geography.identifiers.to_pylist() == ["US", "01", "02", "03"]
    assert counts.values.tolist() == [[7, 5], [0, 1], [2, 4], [5, 0]]
    td.verify_release(pipeline.run(config).public)
    pd.DataFrame({"block": ["02"], "age": ["odd"], "n": [5]}).to_parquet(folder / "b.parquet")
    with pytest.raises(CountsError, match=r"row 1 \(counted from 1\) of '?b\.parquet'?.*'age' has a value"):
        read_input(config)


def test_a_folder_that_holds_more_than_a_table_is_not_walked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topdown.tables.parquet_folder._MOST_ENTRIES", 5)
    with pytest.raises(DataError, match="has over 5 files; give the folder of one table"):
        read_table(folder)


def test_a_folder_within_that_cannot_be_looked_into_is_not_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scandir(path: str, known: Any = os.scandir) -> Any:
        if Path(path).name == "more":
            raise PermissionError(13, "Permission denied", path)
        return known(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DataError, match="cannot be read: Permission denied"):
        read_table(folder)
