from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import hypothesis.strategies as st
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given

from support.places import RUN_TOML
from topdown.config import load_config
from topdown.pipeline import run as pipeline
from topdown.tables.readers import read_table
from topdown.tables.spreadsheet import CSV_TEXT_RULE, as_csv_text, from_csv_text
from topdown.tables.tidy import csv_text, frame_batches, write_csv

FORMULAS = ["=1+cmd|'/C calc'!A0", "+1", "-1", "@SUM(A1)", " =1", "\u00a0=1", "\ufeff=1", "'=1", "''=1", "＝1", "=",
            "-", "' =1"]  # fmt: skip
CONTROLS = {
    "\t=1": "\\t=1",
    "\r=1": "\\r=1",
    "a\nb": "a\\nb",
    "\x1b[31mred": "\\x1b[31mred",
    "\x1b]0;title\x07": "\\x1b]0;title\\x07",
    "\x00": "\\x00",
    "\x7f": "\\x7f",
    "Do\xf1a \x9b2J": "Doña \\x9b2J",
    "C:\\new": "C:\\\\new",
    "\\x1b": "\\\\x1b",
    "=\x1b": "'=\\x1b",
    "'\t=": "'\\t=",
}
HARMLESS = [
    "",
    "a",
    "'Aiea",
    "01001",
    "1-1",
    "a=b",
    "O'Brien",
    "''",
    "'",
    "Doña Ana",
    "北京",
    "\u202eabc",
    "(x)",
    '"=1"',
]


@pytest.mark.parametrize("text", FORMULAS)
def test_what_may_be_a_formula_begins_with_an_apostrophe(text: str) -> None:
    written = as_csv_text(pa.array([text])).to_pylist()
    assert written == ["'" + text]
    # Also far behind sound rows, in a slice, and beside what is missing.
    many = pa.array(["", None, *["01001"] * 1000, text, None, "b"]).slice(2)
    assert as_csv_text(many).to_pylist() == [*["01001"] * 1000, "'" + text, None, "b"]
    assert from_csv_text(pa.array(written)).to_pylist() == [text]


@pytest.mark.parametrize("text", HARMLESS)
def test_other_text_stays(text: str) -> None:
    assert as_csv_text(pa.array([text])).to_pylist() == [text]
    assert from_csv_text(pa.array([text])).to_pylist() == [text]


@pytest.mark.parametrize("text", CONTROLS)
def test_control_characters_are_written_as_python_writes_them(text: str) -> None:
    wanted = CONTROLS[text]
    many = pa.array(["\x1b", None, *["01001"] * 1000, "°é", text, None, "b"]).slice(2)
    assert as_csv_text(many).to_pylist() == [*["01001"] * 1000, "°é", wanted, None, "b"]
    assert from_csv_text(as_csv_text(many)).to_pylist() == many.to_pylist()


@given(st.text(st.sampled_from("'=+-@\t\n\r a1x\u200b＝\u3000\\\x1b\x85\x00°ntu"), max_size=6))
@example("'\n'=")
@example("'\\t=")
def test_the_way_back(text: str) -> None:
    written = as_csv_text(pa.array([text, None]))
    assert from_csv_text(written).to_pylist() == [text, None]
    assert not set(written[0].as_py()[:1]) & set("=+-@＝")
    assert not re.search("[\x00-\x1f\x7f-\x9f]", written[0].as_py())


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())]
)
def test_text_of_every_kind_and_the_names_of_columns_are_written_so(kind: pa.DataType, tmp_path: Path) -> None:
    texts = ["=1", "\x1b", None, "a"]
    table = pa.table({"=n": pa.array(texts).cast(kind), "m\x1b\n": [1, 2, 3, 4]})
    write_csv(tmp_path / "t.csv", iter(table.to_batches()))
    assert (tmp_path / "t.csv").read_text() == '"\'=n","m\\x1b\\n"\n"\'=1",1\n"\\x1b",2\n,3\n"a",4\n'
    back = read_table(tmp_path / "t.csv")
    assert from_csv_text(pa.array(back.column_names)).to_pylist() == table.column_names
    assert from_csv_text(back.column(0).combine_chunks()).to_pylist() == texts


def test_a_frame_is_written_as_a_file_is(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": ["=1", None, "\x1b"], "b": [1.5, float("nan"), 1e-7], "c": [1, 2, 3]}, index=[5, 6, 7])
    for one in (frame, frame.iloc[:0]):
        write_csv(tmp_path / "t.csv", frame_batches(one))
        assert (tmp_path / "t.csv").read_text() == csv_text(one)
    assert csv_text(frame) == '"a","b","c"\n"\'=1",1.5,1\n,,2\n"\\x1b",1e-7,3\n'


def test_a_release_holds_no_formula_and_says_how_it_is_written(tmp_path: Path) -> None:
    names = ['=HYPERLINK("http://x")', "\tb", "'Aiea"]
    table = pd.DataFrame(
        {"state": ["-1", "-1", "+2"], "county": ["=a", "@b", "c"], "name": names, "=n": [1, 2, 3], "n": [4, 5, 6]}
    )
    table.to_csv(tmp_path / "table.csv", index=False)
    config = RUN_TOML.replace('geoid = "county"\n', "").replace("adults", "=n").replace("children", "n")
    config = config.replace(
        "widths = { state = 2, county = 5 }", 'levels = ["@nation", "state", "county"]\nroot = "=US"\nnames = "name"'
    )
    config = config.replace("nation =", '"@nation" =') + "[output]\nwide = true\n"
    (tmp_path / "run.toml").write_text(config)
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    with (public / "release.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0][:9] == ["geoid", "level", "parent", "name", "cell", "value", "lower", "upper", "moe"]
    texts = {text for row in rows[1:] for text in row[:5]}
    assert not [text for text in texts if text[:1] in set("=+-@\t\r\n")]
    assert {"'=US", "'-1", "'+2", "'=a", "\\tb", "c", "'@nation", "'=n", "n", "'@b", "'Aiea"} <= texts
    assert all(row[5].isdigit() for row in rows[1:])
    true = pq.read_table(public / "release.parquet")
    strings = {name: pa.string() for name in ("geoid", "level", "parent", "name", "cell", "reliability")}
    options = pacsv.ConvertOptions(column_types=strings, strings_can_be_null=True)
    parsing = pacsv.ParseOptions(newlines_in_values=True)
    back = pacsv.read_csv(public / "release.csv", parse_options=parsing, convert_options=options)
    for name in true.column_names:
        read = from_csv_text(back[name].combine_chunks()) if name in strings else back[name]
        assert read.to_pylist() == true[name].to_pylist()
    assert set(names) <= set(true["name"].to_pylist())
    with (public / "release_wide.csv").open(newline="") as file:
        header = next(csv.reader(file))
    assert header[:9] == ["geoid", "level", "parent", "name", "'=n", "n", "total", "'=n_lower", "'=n_upper"]
    assert pq.read_schema(public / "release_wide.parquet").names == from_csv_text(pa.array(header)).to_pylist()
    package = json.loads((public / "datapackage.json").read_text())["resources"]
    fields = {one["name"]: [field["name"] for field in one["schema"]["fields"]] for one in package}
    assert fields["release-wide-csv"] == header
    assert fields["release-wide-parquet"][4] == "=n"
    files = json.loads((public / "manifest.json").read_text())["files"]
    assert files["release.csv"]["text"] == CSV_TEXT_RULE
    assert "text" not in files["release.parquet"]
