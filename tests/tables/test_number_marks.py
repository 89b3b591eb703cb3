"""Numbers with marks: read as they are said to be, and refused where a point may be either."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from topdown.config import load_config
from topdown.errors import ConfigError, CountsError, DataError
from topdown.pipeline.input.reading import read_input
from topdown.tables.format import Format
from topdown.tables.number_marks import without_marks

TOML = """
[input]
path = "t.csv"
geoid = "town"
cells = ["men"]
delimiter = ";"
{marks}

[geography]
widths = {{ town = 2 }}

[privacy]
epsilon = 1
shares = {{ nation = "1/2", town = "1/2" }}
"""


def counted(folder: Path, marks: str, *values: str) -> list[int]:
    rows = [f"{k:02d};{value}" for k, value in enumerate(values, start=10)]
    (folder / "t.csv").write_text("\n".join(["town;men", *rows]) + "\n", encoding="utf-8")
    (folder / "run.toml").write_text(TOML.format(marks=marks), encoding="utf-8")
    return [int(x) for x in read_input(load_config(folder / "run.toml"))[1].values[1:, 0]]


def test_a_point_before_three_digits_is_never_read_silently(tmp_path: Path) -> None:
    for value in ("12.000", "1.234.567", "12.345"):
        with pytest.raises(CountsError, match=r"\(line 3\): the value has three digits after a point.*input.thousands"):
            counted(tmp_path, "", "7", value)
    assert counted(tmp_path, 'thousands = "."', "7", "12.000", "1.234.567") == [7, 12000, 1234567]
    assert counted(tmp_path, 'decimal = "."', "7", "12.000") == [7, 12]
    with pytest.raises(CountsError, match="is a fraction"):
        counted(tmp_path, 'decimal = "."', "7", "12.345")
    # What cannot be thousands needs no word.
    assert counted(tmp_path, "", "0.000", "1234.000", "12.0") == [0, 1234, 12]


def test_marks_of_other_countries(tmp_path: Path) -> None:
    assert counted(tmp_path, 'thousands = " "', "2 534", "2\u00a0534", "1\u202f000\u202f000", "5") == [
        2534,
        2534,
        10**6,
        5,
    ]
    assert counted(tmp_path, 'decimal = ","', "2534,0", "7") == [2534, 7]
    assert counted(tmp_path, 'decimal = ","\nthousands = "."', "2.534,00", "1.000") == [2534, 1000]
    assert counted(tmp_path, 'thousands = "\'"', "2'534", "2\u2019534") == [2534, 2534]
    with pytest.raises(CountsError, match="is a fraction"):
        counted(tmp_path, 'decimal = ","', "7", "2,5")
    with pytest.raises(CountsError, match="is a fraction"):  # not 1234
        counted(tmp_path, 'decimal = ","', "7", "1,234")


def test_what_is_no_number_stays_as_it_is() -> None:
    text = pa.array(["1.23.4", "a.b", "", None, "12.34"])
    assert without_marks(text, Format(thousands=".")).to_pylist() == text.to_pylist()


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        ('decimal = ";"', 'give "." or ","'),
        ('thousands = "x"', "give one of"),
        ('decimal = ","\nthousands = ","', "two different"),
        ("header = 0", "from 1"),
    ],
)
def test_marks_that_are_none_are_refused(marks: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        counted(tmp_path, marks, "1")


def test_rows_above_the_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("Population;\n\ntown;men\n10;5\n11;x\n", encoding="utf-8")
    (tmp_path / "run.toml").write_text(TOML.format(marks="header = 3"), encoding="utf-8")
    with pytest.raises(CountsError, match=r"\(line 5\)"):
        read_input(load_config(tmp_path / "run.toml"))
    (tmp_path / "t.csv").write_text("Population;\n\ntown;men\n10;5\n11;6\n", encoding="utf-8")
    assert read_input(load_config(tmp_path / "run.toml"))[1].values[:, 0].tolist() == [11, 5, 6]


def test_rows_that_are_left_out_and_labels(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("town;sex\n10;1\n10;2\nTotal;1\n9;2\n", encoding="utf-8")
    text = TOML.format(marks='rows = "records"\nleave_out = { town = "Total" }\npad_zeros = { town = 2 }')
    text = text.replace('cells = ["men"]\n', "").replace(
        "[geography]", '[input.labels]\nsex = { 1 = "men", 2 = "women" }\n[schema]\nsex = ["men", "women"]\n[geography]'
    )
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    geography, counts = read_input(load_config(tmp_path / "run.toml"))
    assert list(geography.geoid) == ["US", "09", "10"]
    assert counts.values.tolist() == [[1, 2], [0, 1], [1, 1]]


@pytest.mark.parametrize("rows", ["leaves", "records"])
def test_what_is_to_be_left_out_and_is_not_there_is_named(tmp_path: Path, rows: str) -> None:
    (tmp_path / "t.csv").write_text("town;men\n10;5\nTotal;7\n;5\n11;2\n", encoding="utf-8")
    text = TOML.format(marks=f'rows = "{rows}"\nleave_out = {{ town = ["", "Total", "Totl"] }}')
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"t.csv: no row has 'Totl' in column 'town'; correct input.leave_out"):
        read_input(load_config(tmp_path / "run.toml"))
    (tmp_path / "run.toml").write_text(text.replace(', "Totl"', ""), encoding="utf-8")
    assert list(read_input(load_config(tmp_path / "run.toml"))[0].geoid) == ["US", "10", "11"]
