"""What is said, on the terminal, in the log and in refusals, does not depend on how many records a table has.

Two tables of the same public shape (units, cells, configuration), one with a few records and one with very many, give
the same lines, but for the seconds that stages take (of which `--verbose` alone speaks).
"""

from __future__ import annotations

import gzip
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from support.parted import TOML, AtOnce
from topdown.config import load_config
from topdown.errors import TopdownError
from topdown.machine.progress import Silent
from topdown.pipeline import memory_needed
from topdown.pipeline import run as pipeline
from topdown.pipeline.draw import check
from topdown.pipeline.parts import in_parts
from topdown.tables import readers

UNITS = [f"{s:02d}{s:02d}{t:02d}{b:02d}" for s in range(1, 4) for t in range(1, 3) for b in range(1, 7)]
RECORDS = TOML.replace('rows = "long"', 'rows = "records"').replace('count = "n"\n', "")
ONE_CELL = """
[input]
path = "table.csv"
geoid = "block"
cells = ["n"]
[geography]
units = "units.csv"
widths = { state = 2, county = 4, tract = 6, block = 8 }
[privacy]
epsilon = 1
"""
SIZES = (40, 60_000)


def persons(records: int) -> pd.DataFrame:
    """So many persons; with few of them most cells have no record."""
    rng = np.random.default_rng(records)
    homes = ["house", "barracks", "nursing"] if records > 1000 else ["house"]
    frame = pd.DataFrame({"block": rng.choice(UNITS, records), "home": rng.choice(homes, records), "age": "adult"})
    return frame.assign(race=rng.choice(list("abc") if records > 1000 else ["a"], records))


def table_of(form: str, records: int) -> pd.DataFrame:
    """The table of so many persons: a row a person, a category ("long") or a unit ("leaves")."""
    frame = persons(records)
    if form == "records":
        return frame
    by = ["block"] if form == "leaves" else ["block", "home", "age", "race"]
    return frame.groupby(by, as_index=False).size().rename(columns={"size": "n"})


def place(folder: Path, form: str, records: int, text: str) -> Path:
    folder.mkdir()
    frame = table_of(form, records)
    if "table.csv" in text:
        frame.to_csv(folder / "table.csv", index=False)
    else:
        frame.to_parquet(folder / "table.parquet")
    pd.DataFrame({"block": UNITS}).to_csv(folder / "units.csv", index=False)
    (folder / "run.toml").write_text(text)
    return folder / "run.toml"


def said(path: Path, work: Callable[[Any, Any], object], caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines that ``work`` says and logs, or its error, without paths and seconds."""
    lines: list[str] = []

    class Heard(Silent):
        def say(self, line: str) -> None:
            lines.append(line)

    caplog.clear()
    with caplog.at_level(logging.INFO, "topdown"):
        try:
            work(load_config(path), Heard())
        except TopdownError as error:
            lines.append(f"{type(error).__name__}: {error}")
    lines += [record.getMessage() for record in caplog.records]
    # Sizes of what is published, which solver solved again, and how nearly it agrees, follow from the measurements.
    public = re.compile(
        r"(?<=public/).*\([0-9,]+ bytes\)|(?<=solved again by )[A-Z, ]+(?=, apart)|(?<=apart by )\S+|[0-9.]+ s\b"
    )
    return [public.sub("", line.replace(str(path.parent), "")) for line in lines]


def both(
    tmp_path: Path, form: str, text: str, work: Callable[[Any, Any], object], caplog: pytest.LogCaptureFixture
) -> list[str]:
    """What is said of the table with few records, after making sure that it is what is said of that with many."""
    few, many = (said(place(tmp_path / f"{n}", form, n, text), work, caplog) for n in SIZES)
    assert few == many
    return few


KINDS = [("records", RECORDS), ("long", TOML), ("leaves", ONE_CELL)]
KINDS += [(form, text.replace("table.parquet", "table.csv")) for form, text in KINDS[:2]]
EVERY = pytest.mark.parametrize(("form", "text"), KINDS, ids=["records", "long", "leaves", "records csv", "long csv"])


@EVERY
def test_a_check(form: str, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = both(tmp_path, form, text, check, caplog)
    assert any(re.fullmatch(r"memory +a run takes about (\d\.\d|\d\d0?) [GM]iB", line) for line in lines), lines


@pytest.mark.parametrize(("form", "text"), [KINDS[0], KINDS[3]], ids=["parquet", "csv"])
def test_a_run_in_parts(
    form: str, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_parts, "_SAID_EVERY", 0.0)  # of how far it is
    lines = both(tmp_path, form, text, lambda c, s: pipeline.run(c, stages=s, part_size=3, executor=AtOnce()), caplog)
    assert sum(line.startswith("parts ") for line in lines) > 5
    assert any(line.startswith("memory ") for line in lines)


def short_of_memory(config: Any, stages: Any) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_needed, "available_memory", lambda: 1 << 20)
        patch.setattr(memory_needed, "load_loops", lambda: None)
        patch.setattr(memory_needed, "_COMPILING", 0)
        return check(config, stages)


def short_of_memory_in_parts(config: Any, stages: Any) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_needed, "available_memory", lambda: 1 << 20)
        return pipeline.run(config, stages=stages, part_size=3)


def short_of_memory_while_reading(config: Any, stages: Any) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "most_at_once", lambda: 100)
        patch.setattr("topdown.tables.parquet.most_at_once", lambda: 100)
        return check(config, stages)


def short_of_disk(config: Any, stages: Any) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("topdown.pipeline.memory_needed.shutil.disk_usage", lambda _: type("U", (), {"free": 1 << 10}))
        return pipeline.run(config, stages=stages, part_size=3)


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (short_of_memory, "and 1.00 MiB are free"),
        (short_of_memory_in_parts, "and 1.00 MiB are free"),
        (short_of_memory_while_reading, "more than the 100 bytes that can be given to it"),
        (short_of_disk, "than the 1.00 KiB that are free"),
    ],
)
@pytest.mark.parametrize(("form", "text"), [KINDS[0], KINDS[3]], ids=["parquet", "csv"])
def test_a_refusal(
    form: str, text: str, work: Any, says: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = both(tmp_path, form, text, work, caplog)
    assert sum(says in line for line in lines) == 1, lines


def test_a_packed_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = KINDS[3][1].replace("table.csv", "table.csv.gz")

    def packed(config: Any, stages: Any) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("topdown.tables.text.available_memory", lambda: 50)
            return check(config, stages)

    found = []
    for n in SIZES:
        path = place(tmp_path / f"{n}", "records", n, text.replace(".gz", ""))
        (path.parent / "table.csv.gz").write_bytes(gzip.compress((path.parent / "table.csv").read_bytes()))
        path.write_text(text)
        found.append(said(path, packed, caplog))
    assert found[0] == found[1]
    assert "when it is unpacked" in found[0][-1]


def spoiled(frame: pd.DataFrame, column: str, value: str) -> pd.DataFrame:
    """With a wrong ``value`` in two rows of few, or in thousands of many."""
    rows = len(frame) // 20
    return frame.assign(**{column: [value] * rows + list(frame[column][rows:])})


@pytest.mark.parametrize(
    ("column", "value"), [("race", "z"), ("block", "99999999"), ("block", "1"), ("block", " 01010101")]
)
@pytest.mark.parametrize("listed", [True, False], ids=["listed units", "units of the table"])
def test_how_many_rows_are_wrong(
    column: str, value: str, listed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first is named; how many there are is a number of records."""
    text = RECORDS if listed else RECORDS.replace('units = "units.csv"\n', "")
    found = []
    for n in SIZES:
        path = place(tmp_path / f"{n}", "records", n, text)
        spoiled(table_of("records", n), column, value).to_parquet(path.parent / "table.parquet")
        found.append([line for line in said(path, check, caplog) if "Error:" in line])
    assert found[0] == found[1]
    assert listed is False or len(found[0]) == 1


def test_how_many_rows_a_unit_has_that_may_have_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As where records are taken for units with a count: their number is what no message may tell."""
    found = []
    for rows in (2, 20_000):
        path = place(tmp_path / f"{rows}", "leaves", 40, ONE_CELL)
        pd.DataFrame({"block": [UNITS[0]] * rows, "n": 1}).to_csv(path.parent / "table.csv", index=False)
        found.append(said(path, check, caplog)[-1:])
    assert found[0] == found[1]
    assert "duplicate GEOID" in found[0][0]
