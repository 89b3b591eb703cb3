from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from topdown.errors import DataError
from topdown.readers import read_table


def test_a_csv_is_read_as_strings_whatever_its_line_ends_and_mark(tmp_path: Path) -> None:
    text = 'geoid,name,n\n01001,"Doña Ana, NM","1,234"\n02001,NA,\n'
    for data in (
        text.encode(),
        text.encode("utf-8-sig"),
        text.replace("\n", "\r\n").encode(),
        gzip.compress(text.encode()),
    ):
        path = tmp_path / ("t.csv.gz" if data[:2] == b"\x1f\x8b" else "t.csv")
        path.write_bytes(data)
        table = read_table(path)
        assert table.to_pydict() == {
            "geoid": ["01001", "02001"],
            "name": ["Doña Ana, NM", None],
            "n": ["1,234", None],
        }
        assert read_table(path, ["n", "geoid"]).column_names == ["n", "geoid"]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("t.csv", b"", "the file is empty"),
        ("t.csv", b"a,a\n1,2\n", "two columns are called 'a'"),
        ("t.csv", b"a,b\n1,2,3\n", "row 2 has 3 columns, and the header .row 1. 2; .*quotes"),
        ("t.csv", b"a,b\n1,\xff\xfe\n", "cannot be read as csv"),
        ("t.csv.gz", b"a,b\n", "cannot be read as gz"),
        ("t.parquet", b"a,b\n", "cannot be read as parquet"),
        ("t.xlsx", b"PK", "unknown kind of file; give .parquet, .csv or .csv.gz"),
        ("t.csv", b"a,b\n1,2\n", "no column 'c'; it has 'a', 'b'"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=rf"{name}: .*{says}"):
        read_table(tmp_path / name, ["c"] if "'c'" in says else None)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.csv: no such file; correct the path"):
        read_table(tmp_path / "gone.csv")
    with pytest.raises(DataError, match="it is a directory"):
        read_table(tmp_path)
