from __future__ import annotations

import csv
import json
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
from topdown.tables.spreadsheet import CSV_TEXT_RULE, as_csv_text, from_csv_text

FORMULAS = ["=1+cmd|'/C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\u00a0=1", "\ufeff=1", "'=1",
            "''=1", "＝1", "=", "-", "' =1"]  # fmt: skip
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


@given(st.text(st.sampled_from("'=+-@\t\n\r a1\u200b＝\u3000"), max_size=6))
@example("'\n'=")
def test_the_way_back(text: str) -> None:
    written = as_csv_text(pa.array([text, None]))
    assert from_csv_text(written).to_pylist() == [text, None]
    assert written[0].as_py()[:1] not in set("=+-@\t\r\n＝")


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
    config = config.replace("nation =", '"@nation" =')
    (tmp_path / "run.toml").write_text(config)
    public = pipeline.run(load_config(tmp_path / "run.toml")).public
    with (public / "release.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["geoid", "level", "parent", "name", "cell", "value", "lower", "upper", "moe"]
    texts = {text for row in rows[1:] for text in row[:5]}
    assert not [text for text in texts if text[:1] in set("=+-@\t\r\n")]
    assert {"'=US", "'-1", "'+2", "'=a", "'\tb", "c", "'@nation", "'=n", "n", "'@b", "'Aiea"} <= texts
    assert all(row[5].isdigit() for row in rows[1:])
    true = pq.read_table(public / "release.parquet")
    strings = {name: pa.string() for name in ("geoid", "level", "parent", "name", "cell")}
    options = pacsv.ConvertOptions(column_types=strings, strings_can_be_null=True)
    parsing = pacsv.ParseOptions(newlines_in_values=True)
    back = pacsv.read_csv(public / "release.csv", parse_options=parsing, convert_options=options)
    for name in true.column_names:
        read = from_csv_text(back[name].combine_chunks()) if name in strings else back[name]
        assert read.to_pylist() == true[name].to_pylist()
    assert set(names) <= set(true["name"].to_pylist())
    files = json.loads((public / "manifest.json").read_text())["files"]
    assert files["release.csv"]["text"] == CSV_TEXT_RULE
    assert "text" not in files["release.parquet"]
