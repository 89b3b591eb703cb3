"""No reader leaves rows out without a word, whatever the file says of their number."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.places import RUN_TOML
from topdown.config import load_config
from topdown.errors import DataError
from topdown.machine.progress import Silent
from topdown.pipeline.input.reading import read_input
from topdown.tables.format import Format
from topdown.tables.readers import read_table

TABLE = {"county": [f"{k:05d}" for k in range(10)], "n": list(range(10))}
SHEET = "xl/worksheets/sheet1.xml"


def workbook(change: dict[str, str]) -> bytes:
    """A workbook of `TABLE` whose sheet was changed by hand: patterns and what stands in their place."""
    book, data = openpyxl.Workbook(), io.BytesIO()
    for row in [list(TABLE), *zip(*TABLE.values(), strict=True)]:
        book.active.append(row)
    book.save(data)
    with zipfile.ZipFile(data) as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    sheet = parts[SHEET].decode()
    for pattern, instead in change.items():
        sheet, times = re.subn(pattern, instead, sheet, count=1)
        assert times
    with zipfile.ZipFile(data := io.BytesIO(), "w") as changed:
        for name, part in {**parts, SHEET: sheet.encode()}.items():
            changed.writestr(name, part)
    return data.getvalue()


@pytest.mark.parametrize("said", ["A1", "A1:B4", "A1:A11", "A1:B2000", "C5:D6"])
def test_what_a_sheet_says_of_its_size_is_not_believed(tmp_path: Path, said: str) -> None:
    (tmp_path / "t.xlsx").write_bytes(workbook({'<dimension ref="A1:B11"': f'<dimension ref="{said}"'}))
    assert read_table(tmp_path / "t.xlsx").to_pydict() == TABLE
    assert read_table(tmp_path / "t.xlsx", ["county"]).num_rows == 10


@pytest.mark.parametrize(
    "change",
    [
        {'<row r="7"': '<row r="6"'},
        {'<row r="7"': '<row r="3"'},
        {'<row r="11"': '<row r="1000000000"'},
        {'r="B7"': 'r="A7"'},
        {'r="B7"': 'r="B8"'},
    ],
    ids=["a row twice", "a row that goes back", "a row beyond all", "a cell twice", "a cell of another row"],
)
def test_rows_and_cells_of_a_sheet_that_are_not_in_order_are_refused(tmp_path: Path, change: dict[str, str]) -> None:
    (tmp_path / "t.xlsx").write_bytes(workbook(change))
    with pytest.raises(DataError, match=r"t\.xlsx: .*not in order"):
        read_table(tmp_path / "t.xlsx")


def test_cells_of_a_sheet_are_read_where_they_say_that_they_are(tmp_path: Path) -> None:
    one, other = '<c r="A7"[^>]*>.*?</c>', '<c r="B7"[^>]*>.*?</c>'
    (tmp_path / "t.xlsx").write_bytes(workbook({f"({one})({other})": r"\2\1"}))
    assert read_table(tmp_path / "t.xlsx").to_pydict() == TABLE


@pytest.mark.parametrize("rows_per_group", [10, 5])
def test_a_parquet_file_whose_metadata_contradict_themselves_is_refused(tmp_path: Path, rows_per_group: int) -> None:
    path, table = tmp_path / "t.parquet", pa.table(TABLE)
    pq.write_table(table, path, row_group_size=rows_per_group)
    raw = path.read_bytes()
    footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    refused = 0
    # A number of rows is written as its double.
    for place in (k for k in range(footer, len(raw) - 8) if raw[k] in (20, 10)):
        path.write_bytes(raw[:place] + b"\x06" + raw[place + 1 :])
        try:
            assert read_table(path).num_rows == 10, place
        except DataError as error:
            refused += "number of rows" in str(error)
    assert refused


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("columns", [None, ["county", "n"], ["name"]])
def test_a_quote_that_is_not_closed_swallows_no_rows(tmp_path: Path, end: str, columns: list[str] | None) -> None:
    rows = ["county,n,name", "01,1,a", '02,2,"b', "03,3,c", "04,4,d"]
    for name, data in {
        "t.csv": "\n".join(rows).encode() + end.encode(),
        "t.csv.gz": gzip.compress(("\n".join(rows) + end).encode()),
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=rf"{name}: the row that begins in line 3 does not end: close the quote"):
            read_table(tmp_path / name, columns)
    (tmp_path / "t.csv").write_text(("\n".join(rows).replace("\n03", '\n03,"3') + end), encoding="utf-16")
    with pytest.raises(DataError, match=r"t\.csv: "):
        read_table(tmp_path / "t.csv", columns, form=Format(encoding="utf-16"))


def test_a_quote_that_is_not_closed_in_a_long_file(tmp_path: Path) -> None:
    rows = [f"{k:07d},{k},x" for k in range(200_000)]
    rows[1000] += '\n0,0,"x'
    (tmp_path / "t.csv").write_text("\n".join(["county,n,name", *rows]))
    with pytest.raises(DataError, match=r"t\.csv: the row that begins in line 1,003 does not end: close the quote"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n", "\r"])
@pytest.mark.parametrize("name", ["d", '5" pipe', '"d ""e"""', '"two\nlines"', '""', ""])
def test_the_end_of_a_text_file_is_no_row(tmp_path: Path, end: str, name: str) -> None:
    (tmp_path / "t.csv").write_text(f"county,n,name\n01,1,a\n02,2,{name}{end}", newline="")
    table = read_table(tmp_path / "t.csv", ["n", "county"])
    assert table.to_pydict() == {"n": ["1", "2"], "county": ["01", "02"]}
    last = read_table(tmp_path / "t.csv", ["name"])["name"][1].as_py()
    assert last == {'"d ""e"""': 'd "e"', '"two\nlines"': "two\nlines", '""': None, "": None}.get(name, name)


@pytest.mark.parametrize("rows", [0, 1, 3, 200_000])
def test_every_row_of_a_text_file_of_one_column_is_read(tmp_path: Path, rows: int) -> None:
    text = "code\n" + "".join(f"{k:010d}\n" for k in range(rows))
    (tmp_path / "t.csv").write_text(text)
    assert read_table(tmp_path / "t.csv")["code"].to_pylist() == [f"{k:010d}" for k in range(rows)]


class Heard(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


LEAVES = 'rows = "leaves"\ncells = ["adults", "children"]\n'
LONG = 'rows = "long"\ncount = "adults"\n[schema]\npart = ["a", "b"]\n'
RECORDS = 'rows = "records"\ncells = ["people"]\n'


@pytest.mark.parametrize(
    ("table", "more", "says"),
    [
        (LEAVES, "", ["rows      3 of table.csv"]),
        (LEAVES + 'where = { part = "a" }\n', "", ["rows      2 of table.csv, as input.where chooses"]),
        (LEAVES, 'units = "units.csv"\n', ["rows      4 of units.csv"]),
        (LONG, 'units = "units.csv"\n', ["rows      4 of units.csv"]),
        (LONG, "", []),
        (RECORDS, "", []),
        (RECORDS + 'where = { part = "a" }\n', "", []),
    ],
)
def test_how_many_rows_were_read_is_said_where_it_is_no_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, more: str, says: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").write_text("county,adults,children,part\n01001,1,2,a\n01003,3,4,a\n02001,5,6,b\n")
    Path("units.csv").write_text("county\n01001\n01003\n02001\n02003\n")
    before, after = RUN_TOML.split("cells = ")
    toml = f"{before}{table}{after.split(']', 1)[1]}"
    Path("run.toml").write_text(toml.replace("[geography]\n", f"[geography]\n{more}"))
    heard = Heard()
    read_input(load_config(Path("run.toml")), heard)
    assert [line for line in heard.lines if not line.startswith("memory")] == says
    confidential = "3" if "leaves" not in table else "no such number"
    assert not any(f" {confidential} " in line for line in heard.lines)


def test_whole_numbers_with_decimals_are_the_categories_and_rows_that_are_meant(tmp_path: Path) -> None:
    """As programs write a column of whole numbers that lacks some."""
    rows = ["county,rooms,year", "01001,1.0,2019.0", "01001,2.0,2020.0", "01003,2.0,2020.0", "01003,1.0,"]
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    text = RUN_TOML.replace('cells = ["adults", "children"]', 'rows = "records"\nwhere = { year = "2020" }')
    (tmp_path / "run.toml").write_text(text + '[schema]\nrooms = ["1", "2"]\n')
    geography, counts = read_input(load_config(tmp_path / "run.toml"))
    assert geography.identifiers.to_pylist()[-2:] == ["01001", "01003"]
    assert counts.values[0].tolist() == [0, 2]
