"""Whatever it is given, a run ends in a release or in one of our errors, and leaves no half-written file."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from support.examples import FIXED
from topdown.config import load_config
from topdown.errors import DataError, TopdownError
from topdown.machine.files import file_digest
from topdown.pipeline import derive
from topdown.pipeline import run as pipeline

QUICK, LONG = 60, 2_500
"""Examples of each of the four families of cases, in the quick suite and in the long one."""

BY_LEVELS = """
[input]
path = "table.csv"
cells = ["adults", "children"]
[geography]
levels = ["nation", "state", "county"]
names = "name"
[privacy]
epsilon = 1.0
[projection]
cross_check = false
"""
BY_WIDTHS = """
[input]
path = "table.csv"
geoid = "county"
cells = ["adults", "children"]
[geography]
widths = { state = 2, county = 5 }
[privacy]
epsilon = 1.0
shares = { nation = 0.2, state = 0.3, county = 0.5 }
[projection]
cross_check = false
"""
HEADER = "nation,state,county,name,adults,children"
ROWS = ["US,01,01001,Autauga,10,1", "US,01,01003,Baldwin,20,2", "US,02,02001,Anchorage,0,4"]
TABLE = "\n".join([HEADER, *ROWS, ""])


def outcome(folder: Path, config: str | bytes, name: str = "run.toml") -> str:
    """ "released", or the message of the refusal; anything else is a failure, and so is a file left half-written."""
    path = folder / name
    path.write_bytes(config if isinstance(config, bytes) else config.encode())
    said = "released"
    try:
        public = pipeline.run(load_config(path), folder / "out", workers=1).public
    except TopdownError as error:
        said = str(error)
    if said != "released":
        assert 0 < len(said) < 20_000
        assert not (folder / "out" / "public").exists()
    else:
        manifest = json.loads((public / "manifest.json").read_text(encoding="utf-8"))
        assert {entry.name for entry in public.iterdir()} == {*manifest["files"], "manifest.json"}
        for file, known in manifest["files"].items():
            assert file_digest(public / file) == known["sha256"]
        values = pq.read_table(public / "release.parquet")["value"].to_numpy()
        assert values.min() >= 0
        assert values.max() < 2**54
    assert not [left for left in folder.rglob("*") if ".partial" in left.name]
    return said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "table.csv").write_text(TABLE)
    return tmp_path


def test_the_table_that_is_mangled_below_is_sound(folder: Path) -> None:
    assert outcome(folder, BY_LEVELS) == "released"
    shutil.rmtree(folder / "out")
    assert outcome(folder, BY_WIDTHS) == "released"


# -- a corpus of files that were met, or that somebody will send ----------------------------------------------------


def changed(old: str, new: str) -> bytes:
    assert old in TABLE
    return TABLE.replace(old, new).encode()


RELEASED = {
    "byte order mark": b"\xef\xbb\xbf" + TABLE.encode(),
    "CRLF": TABLE.replace("\n", "\r\n").encode(),
    "carriage returns alone": TABLE.replace("\n", "\r").encode(),
    "an empty line first": b"\n" + TABLE.encode(),
    "a name over two lines": changed("children", 'children,"other\nname"')
    .replace(b",1\n", b",1,\n")
    .replace(b",2\n", b",2,\n")
    .replace(b",4\n", b",4,\n"),
    "no end of line": TABLE.rstrip().encode(),
    "empty lines at the end": TABLE.encode() + b"\n\n\n",
    "quotes": changed("Autauga", '"Autauga, ""A"" county"'),
    "a line break in a name": changed("Autauga", '"Autauga\ncounty"'),
    "thousands separators": changed("20,2", '"1,234,567",2'),
    "decimals of zero": changed("20,2", "20.0,2.00"),
    "negative zero": changed(",0,4", ",-0,4"),
    "blanks around counts": changed(",20,2", ", 20 ,2 "),
    "HTML in a name": changed("Autauga", "<script>alert(1)</script>"),
    "unicode in a name": changed("Autauga", "Ñandú \U0001f984 \u202e x"),
    "a missing name": changed("Autauga", ""),
    "leading zeros": changed(",20,", ",00020,"),
    "all zero": changed("10,1", "0,0").replace(b"20,2", b"0,0").replace(b"0,4", b"0,0"),
    "a large total": changed(",10,1", f",{2**50},1"),
}
REFUSED = {
    "empty": (b"", "empty"),
    "blank": (b" \n\t\n", "empty"),
    "a byte order mark alone": (b"\xef\xbb\xbf", "empty|no column|no rows"),
    "a header alone": (HEADER.encode() + b"\n", "no rows|no GEOIDs"),
    "latin-1": (TABLE.replace("Autauga", "Doña Ana").encode("latin-1"), "UTF-?8"),
    "latin-1 in the header": (TABLE.replace("nation", "naciòn").encode("latin-1"), "utf-8.*input.encoding"),
    "UTF-16": (TABLE.encode("utf-16"), "input.encoding = .utf-16"),
    "UTF-16 without a mark": (TABLE.encode("utf-16-le"), "input.encoding = .utf-16"),
    "nothing but zeros": (bytes(1000), "no column|NUL|cannot be read|UTF-16"),
    "random bytes": (np.random.default_rng(1).bytes(5000), "utf-8|cannot be read"),
    "Parquet in disguise": (b"PAR1" + bytes(50), "is a Parquet file"),
    "scientific notation": (changed(",20,", ",2e1,"), "the value is not a whole number"),
    "NaN": (changed(",20,", ",NaN,"), "is missing"),
    "infinite": (changed(",20,", ",inf,"), "is infinite"),
    "minus infinite": (changed(",20,", ",-Infinity,"), "is infinite"),
    "negative": (changed(",20,", ",-20,"), "is negative"),
    "a fraction": (changed(",20,", ",20.5,"), "is a fraction"),
    "2^63": (changed(",20,", f",{2**63},"), "more than 2\\^53"),
    "2^64": (changed(",20,", f",{2**64},"), "more than 2\\^53"),
    "a hundred digits": (changed(",20,", f",{10**100},"), "more than 2\\^53"),
    "a total beyond 2^53": (changed(",20,", f",{2**53},"), "more than 2\\^53"),
    "hexadecimal": (changed(",20,", ",0x14,"), "is not a whole number"),
    "other digits": (changed(",20,", ",٢٠,"), "is not a whole number"),
    "an underscore": (changed(",20,", ",2_0,"), "is not a whole number"),
    "separators in wrong places": (changed(",20,", ',"1,23",'), "is not a whole number"),
    "text": (changed(",20,", ",many,"), "is not a whole number"),
    "a missing count": (changed(",20,", ",,"), "is missing"),
    "duplicate headers": (changed("adults", "children"), "two columns are called 'children'"),
    "a column that is not there": (changed("adults", "adult"), "adults"),
    "other case": (changed("adults", "Adults"), "adults"),
    "blanks in the header": (changed("adults", " adults"), "adults"),
    "a lost zero": (changed("01001", "1001"), "zero|characters|two parents|duplicate|GEOID|1001"),
    "a trailing blank": (changed("01001", "01001 "), "blanks|strip|characters|01001"),
    "mixed vintages": (TABLE.encode() + b"US,01,01001,Autauga,11,1\n", "duplicate"),
    "a missing unit": (changed("US,01,01003", "US,,01003"), "missing|two parents"),
    "two parents": (TABLE.encode() + b"US,02,01001,Autauga,1,1\n", "two parents|duplicate"),
    "two roots": (changed("US,02", "CA,02"), "more than one root|is of the root's level and has 2 values"),
    "a row too long": (changed("20,2", "20,2,3"), "line 3 has 7 columns, and the header 6; put values"),
    "a row too short": (changed(",20,2", ",20"), "line 3 has 5 columns"),
    "a row too long that is no text": (changed("20,2", "20,2,é").decode().encode("latin-1"), "line 3 has 7|utf-8"),
    "semicolons": (TABLE.replace(",", ";").encode(), "no column.*input.delimiter"),
    "a quote that is not closed": (changed("Baldwin", '"Baldwin'), "columns|cannot be read|missing|row"),
    "a field without an end": (b'"' + b"x" * 300_000, "cannot be read|no column|field"),
    "a header in quotes over two lines": (changed("county", '"coun\nty"'), "no column 'county'"),
    "a comment first": (b"# made by hand\n" + TABLE.encode(), "column"),
}


@pytest.mark.parametrize("name", RELEASED)
def test_a_table_that_can_be_meant_is_released(folder: Path, name: str) -> None:
    (folder / "table.csv").write_bytes(RELEASED[name])
    assert outcome(folder, BY_LEVELS) == "released"


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("config", [BY_LEVELS, BY_WIDTHS], ids=["levels", "widths"])
def test_a_table_that_cannot_be_meant_is_refused_in_words(folder: Path, name: str, config: str) -> None:
    data, says = REFUSED[name]
    (folder / "table.csv").write_bytes(data)
    said = outcome(folder, config)
    if said == "released":
        # Where codes tell how units lie, the columns of their parents and names are not read.
        by_codes = {"latin-1", "a missing unit"}
        # Units that have columns of their own may be called anything.
        by_columns = {"a lost zero", "a trailing blank"}
        assert name in (by_codes if config == BY_WIDTHS else by_columns), name
        return
    assert pd.Series([said]).str.contains(f"(?i:{says})", regex=True).item(), said
    assert not (folder / "out").exists()


def test_gzip(folder: Path) -> None:
    config = BY_LEVELS.replace("table.csv", "table.csv.gz")
    whole = gzip.compress(TABLE.encode())
    for data in (b"", b"\x1f\x8b", whole[:-10], whole[:30], whole[:12] + b"\xff" * 20 + whole[32:], TABLE.encode()):
        (folder / "table.csv.gz").write_bytes(data)
        assert outcome(folder, config) != "released"
    (folder / "table.csv.gz").write_bytes(whole)
    assert outcome(folder, config) == "released"


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    "make",
    [Path.mkdir, _link_to_itself, lambda path: path.symlink_to("gone"), os.mkfifo, lambda _: None],
    ids=["a directory", "a loop of links", "a link to nothing", "a pipe", "nothing"],
)
@pytest.mark.parametrize("name", ["table.csv", "run.toml"])
def test_what_is_not_a_file(folder: Path, make: Callable[[Path], None], name: str) -> None:
    if name == "run.toml":
        if make is os.mkfifo:
            pytest.skip("a pipe may be a configuration: somebody writes into it")
        make(folder / name)
        with pytest.raises(TopdownError, match="cannot be read"):
            load_config(folder / name)
        return
    (folder / "table.csv").unlink()
    make(folder / "table.csv")
    assert "table.csv" in outcome(folder, BY_LEVELS)


@pytest.mark.parametrize(
    "name", ["with blanks", "ünïcödé 北京", "100%", "state=99", "#1", "quote'\"", "back\\slash", "-o"]
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_paths_are_taken_as_they_are(tmp_path: Path, name: str, suffix: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    frame = pd.DataFrame([row.split(",") for row in ROWS], columns=HEADER.split(","))
    if suffix == "csv":
        frame.to_csv(folder / f"{name}.csv", index=False)
    else:
        pq.write_table(pa.Table.from_pandas(frame), folder / f"{name}.parquet")
    said = outcome(folder, BY_LEVELS.replace('"table.csv"', json.dumps(f"{name}.{suffix}", ensure_ascii=False)))
    assert said == "released"


@pytest.mark.parametrize(
    "path", ["\0.csv", "x" * 5000 + ".csv", "x/" * 3000 + "t.csv", ".", "", "..", "/dev/null", "/"]
)
def test_paths_that_cannot_be(folder: Path, path: str) -> None:
    quoted = json.dumps(path)
    assert outcome(folder, BY_LEVELS.replace('"table.csv"', quoted)) != "released"
    with_output = BY_LEVELS + f"[output]\ndirectory = {quoted}\n"
    (folder / "run.toml").write_text(with_output)
    if path not in {".", "", "..", "/"}:
        with pytest.raises(TopdownError):
            pipeline.run(load_config(folder / "run.toml"))
    with_ledger = BY_LEVELS + f"[ledger]\npath = {quoted}\ndataset = 'x'\n"
    assert outcome(folder, with_ledger) != "released"


TOMLS = {
    "not TOML": "[input",
    "a number beyond what is written out": BY_LEVELS.replace("1.0", "1" * 5000),
    "a large number": BY_LEVELS.replace("1.0", "1" + "0" * 1000),
    "infinite": BY_LEVELS.replace("1.0", "inf"),
    "not a number": BY_LEVELS.replace("1.0", "nan"),
    "a float beyond all": BY_LEVELS.replace("1.0", "1e999"),
    "an exponent beyond all": BY_LEVELS.replace("1.0", '"1e999999999"'),
    "an exponent of 4000": BY_LEVELS.replace("1.0", '"1e4000"'),
    "tiny": BY_LEVELS.replace("1.0", "5e-324"),
    "a date": BY_LEVELS.replace("1.0", "2020-01-01"),
    "true": BY_LEVELS.replace("1.0", "true"),
    "a list": BY_LEVELS.replace("1.0", "[1.0]"),
    "a table": BY_LEVELS.replace("1.0", "{ x = 1 }"),
    "zero below a line": BY_LEVELS.replace("1.0", '"1/0"'),
    "deep": "x = " + "[" * 20_000 + "]" * 20_000,
    "deep tables": "[" + ".".join(["a"] * 5_000) + "]\n",
    "a key twice": BY_LEVELS + "[input]\n",
    "a section as a value": "input = 3\n",
    "sections as lists": "[[input]]\npath = 'x'\n",
    "widths beyond all": BY_WIDTHS.replace("county = 5", f"county = {10**30}"),
    "widths below zero": BY_WIDTHS.replace("state = 2", "state = -2"),
    "widths of text": BY_WIDTHS.replace("state = 2", 'state = "two"'),
    "widths of truth": BY_WIDTHS.replace("state = 2", "state = true"),
    "no levels": BY_LEVELS.replace('["nation", "state", "county"]', "[]"),
    "a level twice": BY_LEVELS.replace('["nation", "state", "county"]', '["nation", "county", "county"]'),
    "a cell twice": BY_LEVELS.replace('"adults", "children"', '"adults", "adults"'),
    "no cells": BY_LEVELS.replace('"adults", "children"', ""),
    "an identifier as a cell": BY_LEVELS.replace('"adults"', '"name"'),
    "a delta beyond all": BY_LEVELS.replace("1.0", '1.0\nmechanism = "gaussian"\ndelta = "1e400"'),
    "a delta of nothing": BY_LEVELS.replace("1.0", '1.0\nmechanism = "gaussian"\ndelta = "1e-4000"'),
    "a grid beyond all": BY_LEVELS.replace("1.0", '1.0\nmechanism = "laplace"\ngrid_bits = 1000000000000'),
    "shares of everything": BY_WIDTHS.replace("nation = 0.2", 'nation = "1e300"'),
    "shares below zero": BY_WIDTHS.replace("nation = 0.2, state = 0.3", "nation = -0.2, state = 0.7"),
    "an invariant that is not there": BY_LEVELS.replace("1.0", '1.0\ninvariants = ["x"]'),
    "every level invariant": BY_LEVELS.replace("1.0", '1.0\ninvariants = ["nation", "state", "county"]'),
    "an empty unit": BY_LEVELS.replace("1.0", '1.0\nunit = ""'),
    "a solver that is not there": BY_LEVELS.replace("cross_check = false", 'solver = "NOPE"'),
    "a seed": BY_LEVELS.replace("1.0", "1.0\nseed = 1"),
    "a seed at the top": "seed = 1\n" + BY_LEVELS,
    "a folder": "folder = '/'\n" + BY_LEVELS,
    "a choice of rows by number": BY_LEVELS.replace('path = "table.csv"', 'path = "table.csv"\nwhere = { state = 1 }'),
    "a choice of no rows": BY_LEVELS.replace('path = "table.csv"', 'path = "table.csv"\nwhere = { state = "9" }'),
    "latin-1": BY_LEVELS.replace("[input]", '[input]\nx = "é"').encode("latin-1"),
    "UTF-16": BY_LEVELS.encode("utf-16"),
    "zeros": bytes(100),
    "empty": "",
}


@pytest.mark.parametrize("name", TOMLS)
def test_a_configuration_that_cannot_be_meant_is_refused_in_words(folder: Path, name: str) -> None:
    said = outcome(folder, TOMLS[name])
    assert said != "released"
    assert not (folder / "out" / "public").exists()


# -- at random ------------------------------------------------------------------------------------------------------

NASTY = st.sampled_from(
    ["", " ", "0", "-0", "-1", "1e3", "1.0", "1.5", "NaN", "nan", "inf", "-inf", "NA", "null", "None", "1,234", "1,23",
     "0x10", "٣", "½", str(2**53), str(2**53 + 1), str(2**63), str(-(2**63)), str(2**64), "9" * 400, "1001", "01001 ",
     "001001", "01", "US", '"', '""', "'", "\\", "\t", "\0", "\r", "\n", "\ufeff", "\u202e", "<b>&amp;", "{{ 7*7 }}",
     "=1+1", "true", "2020-01-01", "🦄", "e\u0301", "/", "a/b", "[red]", "%s", "{0}"]
)  # fmt: skip
TEXT = st.one_of(NASTY, st.text(max_size=6))


def quick_and_long(strategy: st.SearchStrategy[Any]) -> Callable[[Callable[[Any], None]], Any]:
    """Two tests of one function: ``QUICK`` examples, and ``LONG`` in the slow suite."""

    def decorate(function: Callable[[Any], None]) -> Any:
        @pytest.mark.parametrize("examples", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)], ids=["quick", "long"])
        def test(examples: int) -> None:
            @settings(
                max_examples=examples,
                deadline=None,
                database=None,
                derandomize=FIXED and examples == QUICK,
                suppress_health_check=list(HealthCheck),
            )
            @given(strategy)
            def each(case: Any) -> None:
                function(case)

            each()

        test.__name__ = function.__name__
        return test

    return decorate


@st.composite
def mangled_text(draw: Any) -> bytes:
    """The table with some fields replaced, some bytes changed, rows lost or repeated, in some encoding."""
    rows = [row.split(",") for row in [HEADER, *ROWS]]
    for _ in range(draw(st.integers(0, 3))):
        row = draw(st.integers(0, len(rows) - 1))
        rows[row][draw(st.integers(0, len(rows[row]) - 1))] = draw(TEXT)
    order = draw(st.one_of(st.just(list(range(len(rows)))), st.lists(st.integers(0, len(rows) - 1), max_size=6)))
    text = draw(st.sampled_from(["\n", "\r\n", "\r", "\n\n"])).join(
        draw(st.sampled_from([",", ",", ",", ";", "\t"])).join(rows[k]) for k in order
    )
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-32", "cp1252"]))
    data = bytearray(text.encode(encoding, errors="replace"))
    for _ in range(draw(st.integers(0, 2))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.one_of(st.just(len(data)), st.integers(0, len(data))))])


@quick_and_long(st.tuples(mangled_text(), st.booleans()))
def test_mangled_csv(case: tuple[bytes, bool]) -> None:
    data, by_levels = case
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "table.csv").write_bytes(data)
        outcome(Path(name), BY_LEVELS if by_levels else BY_WIDTHS)


COLUMNS = st.one_of(
    st.lists(TEXT, min_size=3, max_size=3).map(pa.array),
    st.lists(st.integers(-5, 2**53), min_size=3, max_size=3).map(lambda v: pa.array(v, pa.int64())),
    st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3).map(lambda v: pa.array(v, pa.uint64())),
    st.lists(st.floats(), min_size=3, max_size=3).map(lambda v: pa.array(v, pa.float64())),
    st.lists(st.floats(width=16), min_size=3, max_size=3).map(lambda v: pa.array(np.array(v, np.float16))),
    st.lists(st.one_of(st.none(), st.booleans()), min_size=3, max_size=3).map(lambda v: pa.array(v, pa.bool_())),
    st.lists(st.decimals(-1000, 10**15, places=2), min_size=3, max_size=3).map(
        lambda v: pa.array(v, pa.decimal128(38, 2))
    ),
    st.lists(st.binary(max_size=4), min_size=3, max_size=3).map(pa.array),
    st.lists(st.binary(max_size=4), min_size=3, max_size=3).map(
        # Strings that are not UTF-8: Parquet takes them, and nobody checks.
        lambda v: pa.array(v, pa.binary()).view(pa.string())
    ),
    st.lists(st.one_of(st.none(), st.sampled_from(["01", "02", "01001"])), min_size=3, max_size=3).map(
        lambda v: pa.array(v, pa.string()).dictionary_encode()
    ),
    st.lists(st.datetimes(), min_size=3, max_size=3).map(pa.array),
    st.lists(st.lists(st.integers(0, 3), max_size=2), min_size=3, max_size=3).map(
        lambda v: pa.array(v, pa.list_(pa.int64()))
    ),
    st.just(pa.nulls(3)),
    st.just(pa.array([{"a": 1}] * 3)),
    st.just(pa.array(["01001", "01003", "02001"], pa.large_string())),
)


@quick_and_long(
    st.tuples(
        st.dictionaries(st.sampled_from(HEADER.split(",")), COLUMNS, max_size=3),
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=2),
        st.booleans(),
    )
)
def test_mangled_parquet(case: tuple[dict[str, pa.Array], list[tuple[int, int]], bool]) -> None:
    columns, bytes_changed, by_levels = case
    table = {
        title: pa.array([row.split(",")[k] for row in ROWS]) for k, title in enumerate(HEADER.split(","))
    } | columns
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "table.parquet"
        pq.write_table(pa.table(table), path)
        data = bytearray(path.read_bytes())
        for position, value in bytes_changed:
            data[position % len(data)] = value
        path.write_bytes(data)
        outcome(Path(name), (BY_LEVELS if by_levels else BY_WIDTHS).replace("table.csv", "table.parquet"))


VALUES = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(),
        st.integers(-(10**400), 10**400),
        st.floats(),
        TEXT,
        st.sampled_from(
            ["geometric", "gaussian", "county", "1/3", "1e-300", "substitute", "joint", "OSQP", "table.csv"]
        ),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=4,
)
KEYS = {
    "input": ["path", "cells", "geoid", "where"],
    "geography": ["levels", "widths", "separator", "root", "root_level", "names"],
    "privacy": ["epsilon", "rho", "delta", "mechanism", "shares", "neighbours", "invariants", "unit", "grid_bits"],
    "projection": ["method", "weights", "solver", "cross_check"],
    "output": ["directory", "csv"],
    "ledger": ["path", "dataset"],
    "seed": [""],
    "title": [""],
}


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_toml(str(k))} = {as_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        return "".join(c if not 0xD800 <= ord(c) < 0xE000 else "?" for c in text)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        text = repr(value)
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    return str(value)


@st.composite
def mangled_toml(draw: Any) -> str:
    import tomllib

    settings_ = tomllib.loads(draw(st.sampled_from([BY_LEVELS, BY_WIDTHS])))
    for _ in range(draw(st.integers(1, 3))):
        section = draw(st.sampled_from(sorted(KEYS)))
        key = draw(st.one_of(st.sampled_from(KEYS[section]), TEXT))
        how = draw(st.sampled_from(["set", "set", "set", "drop", "section"]))
        value = draw(VALUES)
        if how == "section" or not key:
            settings_[section] = value
        elif isinstance(settings_.setdefault(section, {}), dict):
            settings_[section].pop(key, None)
            if how == "set":
                settings_[section][key] = value
    # The output stays in the case's own folder.
    settings_.pop("output", None) if isinstance(settings_.get("output"), dict) else None
    return "\n".join(f"{as_toml(k)} = {as_toml(v)}" for k, v in settings_.items())


@quick_and_long(mangled_toml())
def test_mangled_toml(case: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "table.csv").write_text(TABLE)
        outcome(Path(name), case)


@st.composite
def tables_of_counts(draw: Any) -> tuple[str, str]:
    """Sound tables of odd shapes and sizes, under odd plans."""
    states = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    count = st.one_of(st.integers(0, 5), st.integers(0, 2**49))
    rows = [
        f"US,{s:02},{s:02}{c:03},{draw(st.sampled_from(['x', '<i>', '']))},{draw(count)},{draw(count)}"
        for s, size in enumerate(states)
        for c in range(size)
    ]
    mechanism = draw(st.sampled_from(["geometric", "laplace", "discrete-gaussian", "gaussian"]))
    budget = draw(st.sampled_from(["1e-9", "0.001", "0.3", "1/3", "1", "7", "100"]))
    currency = "epsilon" if mechanism in {"geometric", "laplace"} else "rho"
    plan = {
        "mechanism": mechanism,
        currency: budget,
        "neighbours": draw(st.sampled_from(["add-remove", "substitute"])),
        "invariants": draw(st.sampled_from([[], ["nation"], ["nation", "state"]])),
    }
    options = f'method = "{draw(st.sampled_from(["top-down", "gls-top-down", "joint"]))}"'
    config = BY_LEVELS.replace("epsilon = 1.0", "\n".join(f"{k} = {as_toml(v)}" for k, v in plan.items()))
    # Budgets up to any size, and counts that agree by chance, are sound here; elsewhere they are refused by name.
    config = config.replace("[privacy]", "[privacy]\naccept_no_protection = true")
    config = config.replace("[input]", "[input]\nassume_disjoint = true")
    return "\n".join([HEADER, *rows, ""]), config.replace("cross_check = false", f"cross_check = false\n{options}")


@quick_and_long(tables_of_counts())
def test_sound_tables(case: tuple[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "table.csv").write_text(case[0])
        said = outcome(Path(name), case[1])
        assert said == "released" or "2^53" in said or "does not fit" in said, said


# -- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_a_run_that_does_not_fit_says_so_before_it_begins(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame([row.split(",") for row in ROWS] * 100, columns=HEADER.split(","))
    if kind == "parquet":
        pq.write_table(pa.Table.from_pandas(frame), folder / "table.parquet")
    else:
        frame.to_csv(folder / f"table.{kind}", index=False)
    config = BY_LEVELS.replace("table.csv", f"table.{kind}")
    with monkeypatch.context() as patch:
        patch.setattr("topdown.pipeline.memory_needed.available_memory", lambda: 10_000)
        patch.setattr("topdown.pipeline.input.unit_reading.read_table", None)
        said = outcome(folder, config)
    assert "of memory, and 9.77 KiB are free" in said
    assert "use a larger machine, or publish fewer cells" in said
    assert not (folder / "out").exists()
    with monkeypatch.context() as patch:
        patch.setattr("topdown.pipeline.memory_needed.available_memory", lambda: None)
        assert "duplicate" in outcome(folder, config)


def test_the_free_memory_is_known_here() -> None:
    from topdown.machine.memory import available_memory

    found = available_memory()
    assert found is not None
    assert 2**20 < found < 2**50


def test_a_full_memory_is_an_error_of_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from support.command import topdown_command

    def full(*_: object) -> None:
        raise MemoryError

    (folder / "run.toml").write_text(BY_LEVELS)
    monkeypatch.setattr(derive, "project", full)
    assert topdown_command("run", folder / "run.toml") == DataError.exit_code
    assert "error: out of memory" in capsys.readouterr().err
    assert not (folder / "output" / "public").exists()
