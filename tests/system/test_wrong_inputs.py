"""Wrong inputs over all commands: one clear error that says what to do, and nothing is left behind."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from support.command import topdown_command
from support.places import RUN_TOML, Command

COUNTS = (1017, 2029)
"""Counts that nothing may show."""
FRAME = pd.DataFrame(
    {"nation": "US", "state": ["01", "01", "02"], "county": ["01001", "01003", "02001"], "adults": [*COUNTS, 30]}
).assign(children=[1, 2, 4])
TABLE = FRAME.to_csv(index=False)
STUDY = RUN_TOML + '[study]\nreplicates = 4\nseed = 1\nmethods = ["raw", "gls"]\n'
PROJECT = '[measurements]\npath = "output/public"\n[output]\ndirectory = "again"\n'
RUN = ("run", "run.toml", "-o", "other")


class Wrong(NamedTuple):
    """A command with what is changed before: in the configuration, and in files; and what is said."""

    words: str
    arguments: tuple[str, ...] = RUN
    change: tuple[str, str] = ("", "")
    make: Callable[[Path], object] = lambda folder: None


def setting(old: str, new: str, words: str, arguments: tuple[str, ...] = RUN) -> Wrong:
    return Wrong(words, arguments, (old, new))


def added(text: str, words: str) -> Wrong:
    """A line at the end of section [input]."""
    return Wrong(words, RUN, ("[geography]", f"{text}\n[geography]"))


def section(text: str, words: str) -> Wrong:
    return Wrong(words, RUN, ("[privacy]", f"{text}\n[privacy]"))


def table(old: str, new: str, words: str) -> Wrong:
    return Wrong(words, make=lambda folder: (folder / "table.csv").write_text(TABLE.replace(old, new)))


def bytes_of(content: bytes, words: str, name: str = "table.csv") -> Wrong:
    change = ('path = "table.csv"', f'path = "{name}"')
    return Wrong(words, RUN, change, lambda folder: (folder / name).write_bytes(content))


def replaced(folder: Path, by: Callable[[Path], object]) -> None:
    (folder / "table.csv").unlink()
    by(folder / "table.csv")


def truncated(folder: Path) -> None:
    FRAME.to_parquet(folder / "table.parquet")
    content = (folder / "table.parquet").read_bytes()
    (folder / "table.parquet").write_bytes(content[: len(content) // 2])


def cut(name: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        path = folder / "output" / "public" / name
        path.write_bytes(path.read_bytes()[:-5])

    return make


def command(words: str, *arguments: str, make: Callable[[Path], object] = lambda folder: None) -> Wrong:
    return Wrong(words, arguments, make=make)


WRONG = [
    setting("epsilon = 1.0", 'epsilon = "much"', r"epsilon is 'much'; give a finite number"),
    setting("epsilon = 1.0", "epsilon = nan", r"epsilon is 'nan'; give a finite number"),
    setting("epsilon = 1.0", "rho = 1.0", r"'geometric' spends epsilon .*; give epsilon"),
    setting("epsilon = 1.0", 'epsilon = 1.0\naccept_no_protection = "yes"', r"no_protection: give true or false"),
    setting("county = 0.5", "county = 0.6", r"the shares add up to 1.1, not to exactly 1"),
    setting('"children"]', '"kids"]', r"no column 'kids'; it has"),
    setting("{ state = 2, county = 5 }", "{ state = 2, county = 7 }", r"'01001' has 5 characters.*correct the code"),
    setting("{ state = 2, county = 5 }", '{ state = "two" }', r"geography.widths.state: give a whole number"),
    setting("[privacy]", "[privacy", r"run.toml: not TOML: .*line"),
    setting('path = "table.csv"', 'path = ""', r"input: path is empty; give the table's path"),
    setting('cells = ["adults", "children"]', 'cells = ["adults", " "]', r"input: cells has an empty name"),
    setting("epsilon = 1.0", "epsilon = 1e-320", r"scale above 1e300 is too large for draws of 64 bits.*larger budget"),
    setting("epsilon = 1.0", 'epsilon = "\u0967"', r"give a finite number or a fraction"),
    setting('path = "table.csv"', 'path = "tabel.csv"', r"tabel.csv: no such file; correct the path"),
    added("footer = -2", r"footer -2: give the number of lines below the table, 0 to 100"),
    added('footer = "two"', r"input.footer: give a whole number"),
    added("footer = 50", r"no GEOIDs; a geography needs at least one leaf"),
    added("header = 9", r"table.csv: row 9 and all below it are empty; correct input.header"),
    added('encoding = "klingon"', r"encoding 'klingon': is not known; give"),
    added("pad_zeros = { county = 2 }", r"pad_zeros of 'county' is 2, .*codes of 5 characters; give the length"),
    added("pad_zeros = { county = -5 }", r"pad_zeros of 'county' is -5; give the number of characters"),
    added('labels = { sexo = { 1 = "m" } }', r"no column 'sexo', whose values input.labels explains.*take"),
    added('where = { state = "77" }', r"no row has state = '77'; correct input.where"),
    section('root = " "', r"geography: root is empty; give the root's name"),
    section('root_level = "county"', r"two levels are called 'county'; give every level its own name"),
    section('[output]\nreplicates = "50"', r"output.replicates: give a whole number"),
    section("[output]\nreplicates = 1000000000", r"output.replicates: give a number of at most 1000"),
    section('[output]\nlanguage = "de"', r"output.language: give 'en', 'fr', 'es' or 'pt'"),
    section("[output]\nconfidence = 95", r"output.confidence: give a number below 1, such as 0.95 for 95 %"),
    section('[projection]\nsolver = "GUROBI"', r"solver = 'GUROBI' is not installed; cvxpy has"),
    section('[projection]\ncross_check = false\nsolver = "X"', r"solver = 'X' is not installed; cvxpy has"),
    section('[ledger]\npath = "none.db"\ndataset = "x"', r"none.db: there is no ledger; make one with"),
    section('[ledger]\npath = "table.csv"\ndataset = "x"', r"table.csv: the ledger cannot be used: .*restore it"),
    table(",1017,", ",-5,", r"cell 'adults' \(line 2\): the value is negative; counts are 0 or more"),
    table(",1017,", ",5.5,", r"the value is a fraction; counts are whole"),
    table(",1017,", ",99999999999999999999,", r"more than 2\^53; count in larger units"),
    table(",1017,", ",<5,", r"marks a count that is suppressed or unknown; .*give a table that has them"),
    table(",1017,", ",..,", r"marks a count that is suppressed or unknown"),
    table("01003", '"01003', r"line 3 has 3 columns, and the header 5; [^;]*quotes$"),
    table(",2029,2", "", r"line 3 has 3 columns, and the header 5; put values"),
    table("01001", "1001", r"leading zero was lost.*'01001' is meant"),
    bytes_of(b"", r"the file is empty; it needs a header line and rows"),
    bytes_of(bytes(range(256)), r"cannot be read as csv: it is not UTF-8 text"),
    bytes_of(gzip.compress(TABLE.encode())[:-9], r"table.csv.gz: cannot be read as gz: .*damaged", "table.csv.gz"),
    bytes_of(TABLE.encode(), r"table.parquet: cannot be read as parquet", "table.parquet"),
    bytes_of(b"[]", r"table.json: unknown kind of file: give", "table.json"),
    Wrong(r"cannot be read as parquet", RUN, ("table.csv", "table.parquet"), truncated),
    command(r"table.csv: no such file", *RUN, make=lambda d: replaced(d, lambda path: path.symlink_to("gone.csv"))),
    command(r"table.csv: is a pipe or a device; give a file", *RUN, make=lambda d: replaced(d, os.mkfifo)),
    command(r"\.: cannot be read: Is a directory; give the path of a TOML file", "run", "."),
    command(r"describes a study .*, not a release: use `topdown study FILE`", "run", "study.toml"),
    command(r"no column of whole numbers .*looks like a list of units", "init", "pair.csv", "-o", "new.toml"),
    command(r"row 99 and all below it are empty", "init", "table.csv", "--header", "99", "-o", "new.toml"),
    command(r"run.toml: exists already; give another --output", "init", "table.csv", "-o", "run.toml"),
    command(r"no unit '99999' in this geography; give GEOIDs as text", "query", "output/public", "--sum", "99999"),
    command(r"confidence 95.0: give a number above 0.5", "query", "output/public", "--sum=US", "--confidence=95"),
    command(r"no level 'town'; the levels are", "rank", "output/public", "--level", "town"),
    command(r"holds no summary.json of a study", "compare", "output/public", "nope", "-o", "compared"),
    command(r"output/internal/manifest.json: is missing", "verify", "output/internal"),
    command(r"release.parquet has .* bytes instead of", "verify", "output/public", make=cut("release.parquet")),
    command(r"estimates.parquet has .* bytes instead of", "project", "project.toml", make=cut("estimates.parquet")),
    command(r"table.csv: exists already", "aggregate", "output/public", "--by", "pair.csv", "-o", "table.csv"),
    command(r"table.csv: exists already", "check", "run.toml", "--errors-to", "table.csv"),
    command(r"nope/e.csv: cannot be written: No such file", "check", "run.toml", "--errors-to", "nope/e.csv"),
    command(r"a map needs outlines; name a file", "export", "output/public", "--format", "gpkg", "--output", "e"),
    command(r"order 'random': give 'sorted'", "synthesize", "run.toml", "--order", "random"),
    command(r"table.csv: the ledger cannot be used", "ledger", "show", "table.csv"),
    command(r"target 'county' cannot be read; write 'LEVEL", "plan", "run.toml", "--target", "county"),
    command(r"unknown kind of configuration 'studi'.*did you mean 'study'", "schema", "studi"),
    command(r"run.toml: names no measurements; add a section", "project", "run.toml"),
    setting(
        '"raw", "gls"',
        '"raw", "glss"',
        r"unknown method 'glss'.*did you mean 'gls'",
        ("study", "study.toml", "-o", "s"),
    ),
]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a release, and the files of all commands."""
    folder = tmp_path_factory.mktemp("released")
    (folder / "table.csv").write_text(TABLE)
    (folder / "pair.csv").write_text("geoid,area\n01001,x\n01003,y\n02001,y\n")
    for name, text in {"run.toml": RUN_TOML, "study.toml": STUDY, "project.toml": PROJECT}.items():
        (folder / name).write_text(text)
    assert topdown_command("run", folder / "run.toml", "--quiet") == 0
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """The files in a folder and what they hold; locks, which stay, left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "lock" not in path.name
    }


@pytest.mark.parametrize(
    "wrong", WRONG, ids=lambda one: " ".join(filter(None, (*one.arguments[:2], one.change[1])))[:60]
)
def test_it_is_refused_in_one_sentence_and_leaves_nothing(
    wrong: Wrong, released: Path, tmp_path: Path, topdown: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(released, folder)
    for name in ("run.toml", "study.toml"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace(*wrong.change, 1) if wrong.change[0] else text)
    wrong.make(folder)
    before = files(folder)
    monkeypatch.chdir(folder)
    said = topdown(*wrong.arguments)
    assert said.returncode in (2, 3, 5)
    message = " ".join(said.stderr.split()).removeprefix("error: ")
    assert pd.Series([message]).str.contains(wrong.words).all(), message
    assert "Traceback" not in said.stderr
    assert "internal error" not in said.stderr
    assert files(folder) == before
    assert not any(f"{count}" in said.stdout + said.stderr for count in COUNTS)
