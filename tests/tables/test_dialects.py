"""Tables as agencies have them: semicolons, other encodings, Excel, names in capitals; and what is wrong is said."""

from __future__ import annotations

import gzip
import io
import re
from pathlib import Path

import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.places import RUN_TOML
from topdown.config import load_config
from topdown.errors import ConfigError, DataError
from topdown.pipeline.input.reading import read_input
from topdown.tables.format import Format
from topdown.tables.readers import read_table, require_file, row_named, table_columns

TABLE = "county,adults,children,town\n01001,10,1,Doña Ana\n01003,20,2,Böblingen\n02001,0,4,x\n"


def read(tmp_path: Path, name: str, data: bytes, options: str = "") -> dict[str, int]:
    """What each county has in all, of the release's table called ``name``."""
    (tmp_path / name).write_bytes(data)
    toml = RUN_TOML.replace("table.csv", name).replace("[input]", f"[input]\n{options}")
    (tmp_path / "run.toml").write_text(toml)
    geography, counts = read_input(load_config(tmp_path / "run.toml"))
    leaves = geography.tree.leaves
    return dict(
        zip(geography.identifiers[leaves.start :].to_pylist(), counts.values[leaves].sum(1).tolist(), strict=True)
    )


def workbook(rows: list[list[object]], **sheets: list[list[object]]) -> bytes:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for title, others in sheets.items():
        sheet = book.create_sheet(title)
        for row in others:
            sheet.append(row)
    data = io.BytesIO()
    book.save(data)
    return data.getvalue()


def parquet(rows: list[list[object]]) -> bytes:
    data = io.BytesIO()
    pq.write_table(pa.table({str(name): values for name, *values in zip(*rows, strict=True)}), data)
    return data.getvalue()


def zipped(text: str, encoding: str = "utf-8") -> bytes:
    """Without the time of day: these bytes name tests, and every worker must find the same names."""
    return gzip.compress(text.encode(encoding), mtime=0)


ROWS: list[list[object]] = [
    ["county", "adults", "children"], ["01001", 10, 1], ["01003", 20, 2], ["02001", 0, 4], [None, None, None]
]  # fmt: skip
PARQUET = parquet(ROWS[:-1])
WANTED = {"01001": 11, "01003": 22, "02001": 4}


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("t.CSV", TABLE.encode(), ""),
        ("t.Csv.GZ", zipped(TABLE), ""),
        ("t.csv", TABLE.replace(",", ";").encode(), 'delimiter = ";"'),
        ("t.tsv", TABLE.replace(",", "\t").encode(), ""),
        ("t.csv", TABLE.replace(",", "\t").encode("utf-16"), 'delimiter = "\\t"\nencoding = "utf-16"'),
        ("t.csv.gz", zipped(TABLE, "latin-1"), 'encoding = "latin-1"'),
        ("t.csv", TABLE.encode("cp1252"), 'encoding = "windows-1252"'),
        ("t.csv", TABLE.encode("utf-8-sig"), 'encoding = "UTF8"'),
        ("t.XLSX", workbook(ROWS), ""),
        ("t.xlsx", workbook([], counts=ROWS), 'sheet = "counts"'),
        ("t.xlsx", workbook([[str(x) if x is not None else x for x in row] for row in ROWS]), ""),
    ],
)
def test_a_table_is_read_as_it_is_said_to_be_written(tmp_path: Path, name: str, data: bytes, options: str) -> None:
    assert read(tmp_path, name, data, options) == WANTED


def test_text_of_other_encodings_arrives_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(TABLE.encode("latin-1"))
    towns = read_table(tmp_path / "t.csv", ["town"], form=Format(encoding="latin-1"))["town"].to_pylist()
    assert towns == ["Doña Ana", "Böblingen", "x"]
    # Longer than what is recoded at once, so that letters of two and more bytes fall on its ends.
    (tmp_path / "long.csv").write_bytes(("a,b\n" + "é🦄é,1\n" * 200_000).encode("utf-16"))
    long = read_table(tmp_path / "long.csv", form=Format(encoding="utf-16"))
    assert long["a"].unique().to_pylist() == ["é🦄é"]
    assert long.num_rows == 200_000


@pytest.mark.parametrize(
    ("name", "data", "options", "says"),
    [
        ("t.csv", TABLE.replace(",", ";").encode(), "", r'seem to be separated by ";": say input.delimiter = ";"'),
        ("t.csv", TABLE.replace(",", "\t").encode(), "", r'separated by "\\t": say input.delimiter = "\\t"'),
        ("t.csv", bytes([0, 1, 2, 3]), "", "begins with bytes of 0, as binary or damaged files do"),
        ("t.csv", b"a\0b", "", "begins with bytes of 0, as binary or damaged files do"),
        ("t.csv", TABLE.encode("utf-16"), "", r'UTF-16 \("Unicode" in Excel\); say input.encoding = "utf-16"'),
        ("t.csv", TABLE.encode("utf-16-le"), "", 'say input.encoding = "utf-16"'),
        ("t.csv", TABLE.replace("county", "código").encode("latin-1"), "", 'input.encoding = "windows-1252"'),
        ("t.csv", TABLE.encode(), 'encoding = "ascii"\ngeoid = "county"', "not text in ascii; correct input.encoding"),
        ("t.csv", workbook(ROWS), "", "is an Excel workbook .*name it .xlsx, or save it as CSV"),
        ("t.csv", b"\xd0\xcf\x11\xe0" + bytes(99), "", "an old Excel .*save it as .xlsx"),
        ("t.csv", zipped(TABLE), "", r"compressed by gzip; name it t\.csv\.gz"),
        ("t.xls", b"", "", "an old Excel's; save it as .xlsx"),
        ("t.xlsx", TABLE.encode(), "", "cannot be read as xlsx"),
        ("t.xlsx", workbook(ROWS, more=ROWS), "", "has 2 sheets; say which in input.sheet: 'Sheet', 'more'"),
        ("t.xlsx", workbook(ROWS), 'sheet = "x"', "no sheet 'x'; it has 'Sheet'"),
        ("t.xlsx", workbook([]), "", "the first row of the sheet is empty"),
        ("t.xlsx", workbook(ROWS), 'delimiter = ";"', "input.delimiter does not apply to a .*xlsx.*leave it out"),
        ("t.xlsx", workbook(ROWS), 'encoding = "latin-1"', "input.encoding does not apply to"),
        ("t.csv", TABLE.encode(), 'sheet = "counts"', "input.sheet does not apply to"),
        ("t.parquet", PARQUET, 'delimiter = ";"', "input.delimiter does not apply to"),
        ("t.parquet", PARQUET, 'encoding = "latin-1"', "input.encoding does not apply to"),
        ("t.parquet", PARQUET, 'sheet = "counts"', "input.sheet does not apply to"),
        (
            "t.xlsx",
            workbook([["county", "adults", "children"], [1001, 1, 2]]),
            "",
            "holds numbers .*zero-padded strings",
        ),
    ],
)
def test_what_is_written_otherwise_is_named_with_its_remedy(
    tmp_path: Path, name: str, data: bytes, options: str, says: str
) -> None:
    options = options.replace('geoid = "county"', "")
    with pytest.raises(DataError, match=says):
        read(tmp_path, name, data, options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ('delimiter = ";;"', "input: delimiter ';;': give one character"),
        ('encoding = "utf-88"', "input: encoding 'utf-88': is not known; give"),
        ('encoding = "base64"', "input: encoding 'base64'"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(tmp_path: Path, options: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read(tmp_path, "t.csv", TABLE.encode(), options)


def test_a_path_with_backslashes_is_explained(tmp_path: Path) -> None:
    for path in (r"data\new\table.csv", "data\\table.csv"):
        with pytest.raises(DataError, match=r"no such file.*write C:/data/table\.csv, or 'C:.data.table\.csv'"):
            require_file(Path(path.replace("\\n", "\n")))
    (tmp_path / "run.toml").write_text(RUN_TOML.replace("table.csv", r"C:\Users\data.csv"))
    with pytest.raises(ConfigError, match=r"not TOML.*a backslash begins an escape: write paths as C:/data"):
        load_config(tmp_path / "run.toml")
    with pytest.raises(DataError, match=r"correct the path$"):
        require_file(tmp_path / "gone.csv")


def test_a_workbook_that_would_fill_the_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.xlsx").write_bytes(workbook([*ROWS, *([["x" * 30_000, 1, 1]] * 200)]))
    monkeypatch.setattr("topdown.tables.excel.most_at_once", lambda: 100_000)
    monkeypatch.setattr("openpyxl.load_workbook", None)
    with pytest.raises(DataError, match=r"takes more than .* when it is unpacked"):
        read_table(tmp_path / "t.xlsx")


# -- which row ------------------------------------------------------------------------------------------------------


def test_namibia_is_a_country(tmp_path: Path, frame: pd.DataFrame) -> None:
    (tmp_path / "t.csv").write_text("nation,state,county,adults,children\nNA,01,01001,10,NA\nNA,01,01003,20,2\n")
    toml = RUN_TOML.replace("table.csv", "t.csv").replace('geoid = "county"\n', "")
    (tmp_path / "run.toml").write_text(
        toml.replace("widths = { state = 2, county = 5 }", 'levels = ["nation", "state", "county"]')
    )
    with pytest.raises(DataError, match=r"county '01001', cell 'children' \(line 2\): the value 'NA' is missing"):
        read_input(load_config(tmp_path / "run.toml"))
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace(",NA\n", ",1\n"))
    assert read_input(load_config(tmp_path / "run.toml"))[0].identifiers[0].as_py() == "NA"


BROKEN = 'county,adults,children,part\n\n"01001",1,1,a\n"01\n003",1,1,b\n01003,1,-1,a\n'


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_rows_are_named_by_their_line_in_the_file_whichever_rows_are_chosen(tmp_path: Path, ending: str) -> None:
    data = BROKEN.replace("\n", ending).encode()
    with pytest.raises(DataError, match=r"^line 4: GEOID"):
        read(tmp_path, "t.csv", data)
    with pytest.raises(DataError, match=r"county '01003', cell 'children' \(line 6\): the value is negative"):
        read(tmp_path, "t.csv", data, 'where = { part = "a" }')
    with pytest.raises(DataError, match=r"line 6 has 5 columns, and the header 4"):
        read(tmp_path, "t.csv", data.replace(b"-1,a", b"1,a,b"))


def test_rows_of_other_files_are_named_as_these_number_them(tmp_path: Path) -> None:
    table = pd.DataFrame({"county": ["01001", "01003"], "adults": [1, -1], "children": [1, 1]})
    table.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"\(row 2 \(counted from 1\)\): the value is negative"):
        read(tmp_path, "t.parquet", (tmp_path / "t.parquet").read_bytes())
    with pytest.raises(DataError, match=r"\(row 3 of the sheet\): the value is negative"):
        read(tmp_path, "t.xlsx", workbook([list(table), *table.to_numpy().tolist()]))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a\n1\n2\n"))
    assert row_named(tmp_path / "t.csv.gz", 1) == "line 3"
    assert table_columns(tmp_path / "t.csv.gz") == ["a"]


def test_an_inner_row_does_not_shift_the_number_of_a_leafs(tmp_path: Path) -> None:
    data = b"county,adults,children\n01,2,2\n01001,1,1\n01001,1,1\n"
    with pytest.raises(DataError, match=r"duplicate GEOID \(line 4\)"):
        read(tmp_path, "t.csv", data)


def test_columns_of_a_workbook_are_text_or_numbers_and_mixtures_text(tmp_path: Path) -> None:
    rows = [["a", "b", "c"], [1, 1.5, "01"], [None, 2, 3], [4, 1, 2.0]]
    (tmp_path / "t.xlsx").write_bytes(workbook(rows))
    table = read_table(tmp_path / "t.xlsx")
    assert table.schema.types == [pa.int64(), pa.float64(), pa.string()]
    assert table.to_pydict() == {"a": [1, None, 4], "b": [1.5, 2.0, 1.0], "c": ["01", "3", "2"]}
    assert re.match("a", read_table(tmp_path / "t.xlsx", ["a"]).column_names[0])
