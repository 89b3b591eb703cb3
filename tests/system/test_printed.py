"""What is printed or written as a text table goes through one layer, by which nothing in it is obeyed."""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from support.command import topdown_command
from support.places import REPOSITORY
from topdown.tables.spreadsheet import from_csv_text

PACKAGE = REPOSITORY / "topdown"
WRITES_TEXT = {
    "write_text", "write_csv", "CSVWriter", "to_csv", "to_string", "to_json", "to_html", "to_excel", "to_markdown",
    "basicConfig", "StreamHandler", "echo", "secho", "print", "dumps", "writer", "DictWriter", "Console",
}  # fmt: skip
"""Calls by which text reaches a terminal or a file."""
STREAMS = {"sys.stdout", "sys.stderr", "os.write"}

OURS = {"write_text", "write_csv"}
"""Functions of `topdown.tables.tidy` of the same names, which are the layer."""
ROUTES = {
    "machine/terminal.py": {"Console", "sys.stdout", "sys.stderr", "StreamHandler", "basicConfig", "print"},
    "machine/streams.py": {"sys.stdout", "sys.stderr"},  # which every stream goes through, of libraries too
    "machine/interrupts.py": {"sys.stderr"},  # one line, which is always the same
    "entry.py": {"sys.stdout", "sys.stderr", "os.write"},  # as above, before anything is loaded
    "wording.py": {"dumps"},
    "tables/tidy.py": {"CSVWriter", "to_json", "dumps"},
    "census/layouts/redistricting_layout.py": {"write_csv"},  # codes, numbers and names that `require_text` let pass
    "census/ppmf_file.py": {"CSVWriter"},  # codes
    "planning/plan_toml.py": {"dumps"},
    "analysis/page/release_page.py": {"to_json"},  # outlines from a file, to be read as such
    "cli/init_command.py": {"sys.stdout"},  # asked whether it is a terminal, and not written to
    "cli/answers.py": {"to_string"},  # for `answer`
    # JSON in a page, where it is escaped for HTML, or all in ASCII, as `json.dumps` has it where nothing else is said.
    "pages/shell.py": {"dumps"},
    "studies/report/comparison.py": {"dumps"},
    "studies/report/sections/coverage.py": {"dumps"},
    "pipeline/study.py": {"write_text"},  # these, and the page
    "pipeline/compare.py": {"write_text"},  # a page
    "pipeline/linked/linked_study.py": {"write_text"},  # a page
    "research/statistic/released_statistic.py": {"write_text", "dumps"},
    "measurements/journal.py": {"write_text", "dumps"},
    "privacy/ledger_file.py": {"dumps"},
    "config/derivation.py": {"dumps"},  # of which the digest is taken
    "config/reference.py": {"dumps"},  # a page of the documentation, from the schema alone
    "research/statistic/statistic_plan.py": {"dumps"},  # of which the digest is taken
    "release/manifest.py": {"dumps"},  # of which the sizes are taken
    "noise/key.py": {"dumps"},
    "pipeline/parts/part_job.py": {"dumps"},
    "pipeline/parts/part_steps.py": {"dumps"},
    "microdata/written_records.py": {"dumps"},
    "census/noisy_write.py": {"dumps"},
}  # fmt: skip
"""Who else writes text, and why that is no way around the layer."""


def routes(source: str) -> Iterator[str]:
    """The ways by which ``source`` writes text."""
    tree = ast.parse(source)
    from_tidy = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "topdown.tables.tidy"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in STREAMS:
            yield ast.unparse(node)
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            is_ours = isinstance(node.func, ast.Name) and called in from_tidy & OURS
            if called in WRITES_TEXT and not is_ours:
                yield called


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_text_leaves_by_the_known_routes_alone(path: Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    defined = OURS if name == "tables/tidy.py" else set()
    assert set(routes(path.read_text(encoding="utf-8"))) - defined <= ROUTES.get(name, set())


@pytest.mark.parametrize(
    "source",
    ["print(1)", "import sys\nsys.stderr.write('a')", "frame.to_csv(p)", "import csv\ncsv.writer(f)",
     "path.write_text(x)", "from rich.console import Console\nConsole().print(1)", "import typer\ntyper.echo(1)",
     "import pyarrow.csv as pacsv\npacsv.write_csv(t, p)"],
)  # fmt: skip
def test_other_routes_are_found(source: str) -> None:
    assert set(routes(source))


def test_every_known_route_is_taken() -> None:
    for name, known in ROUTES.items():
        assert known <= set(routes((PACKAGE / name).read_text(encoding="utf-8"))), name


# -- by value ---------------------------------------------------------------------------------------------------------

OBEYED = "=1+1 \x1b]0;taken\x07 \x9b2J \x7f \r \u202e[bold]:bomb:"
"""What a terminal, a spreadsheet or the markup of a library would do something with."""


def name(text: str) -> str:
    return f"{OBEYED} {text}"


CONFIG = f"""
title = {json.dumps(name("title"))}
[input]
path = "table.csv"
cells = [{json.dumps(name("adults"))}, "children"]
[geography]
levels = ["nation", {json.dumps(name("state"))}, "county"]
names = "name"
[privacy]
epsilon = 1
unit = {json.dumps(name("person"))}
[output]
wide = true
[ledger]
path = "ledger.db"
dataset = {json.dumps(name("data"))}
""".replace("\x7f", "\\u007f")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table whose every text is hostile; with it a release, in a folder that is called so too."""
    monkeypatch.chdir(tmp_path)
    columns = ["nation", name("state"), "county", "name", name("adults"), "children"]
    rows = [["US", name("1"), "01001", name("A"), 10, 1], ["US", name("1"), name("01003"), "B", 20, 2]]
    frame = pd.DataFrame([*rows, ["US", "2", "02001", name("C"), 0, 4]], columns=columns)
    frame.to_csv("table.csv", index=False, quoting=csv.QUOTE_ALL)
    Path("run.toml").write_text(CONFIG, encoding="utf-8")
    districts = [["01001", name("East")], [name("01003"), name("West")], ["02001", ""]]
    pd.DataFrame(districts, columns=["unit", name("district")]).to_csv(
        "districts.csv", index=False, quoting=csv.QUOTE_ALL
    )
    return tmp_path


def says(*arguments: object, code: int = 0) -> str:
    """What `topdown ARGUMENTS` prints, which no terminal obeys."""
    out, err = io.StringIO(newline=""), io.StringIO(newline="")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert topdown_command(*arguments) == code, err.getvalue()
    for said in (out.getvalue(), err.getvalue()):
        assert all(c.isprintable() or c == "\n" for c in said), arguments
        assert ":bomb:" in said or "\N{BOMB}" not in said
    return out.getvalue()


def require_harmless(text: str) -> list[list[str]]:
    """The rows of a CSV text in which nothing is obeyed, read back."""
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    rows = list(csv.reader(io.StringIO(text)))
    for row in rows:
        for cell in row:
            number = re.fullmatch(r"-?[\d.]+(e[-+]\d+)?", cell)
            assert number or cell[:1] not in tuple("=+-@"), cell
    return [from_csv_text(pa.array(row)).to_pylist() for row in rows]


def test_nothing_that_a_command_prints_is_obeyed(folder: Path) -> None:
    out = Path(name("out"))
    says("init", "table.csv", "-o", "first.toml")
    says("ledger", "init", "ledger.db", "--dataset", name("data"), "--total", "9", "--unit", name("person"))
    assert "\\x1b]0;taken\\x07" in says("check", "run.toml", "--errors", "--errors-to", "errors.csv", "-v")
    assert require_harmless(Path("errors.csv").read_text())[2][0] == name("state")
    says("plan", "run.toml", "--target", "county: 25 at 90 %")
    says("run", "run.toml", "-o", out)
    says("run", "run.toml", "-o", out)
    says("verify", out / "public")
    assert "\\x1b" in says("ledger", "show", "ledger.db")
    for form in ("table", "csv", "json"):
        found = says("query", out / "public", "--sum", name("01003"), "--cell", name("adults"), "--format", form)
        summed = says("aggregate", out / "public", "--by", "districts.csv", "--format", form)
        for said, region in ((found, name("01003")), (summed, name("East"))):
            if form == "csv":
                assert region in require_harmless(said)[1]
            if form == "json":
                assert region in json.loads(said)[0].values()
    for kind in ("csv", "json"):
        says("aggregate", out / "public", "--by", "districts.csv", "-o", f"sums.{kind}")
    assert name("East") in require_harmless(Path("sums.csv").read_text())[1]
    assert json.loads(Path("sums.json").read_text(encoding="utf-8"))[0]["region"] == name("East")
    says("export", out / "public", "--format", "pl94", "-o", name("there"), code=2)
    says("query", out / "public", "--sum", name("gone"), code=3)
    says("check", name("gone.toml"), code=2)
    says(name("command"), code=2)
    says("run", "--" + name("option"), code=2)
    texts = [one for one in (out / "public").iterdir() if one.suffix in (".csv", ".json", ".md", ".jsonld")]
    assert len(texts) >= 7
    for one in texts:
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", one.read_text(encoding="utf-8")), one
    header = require_harmless((out / "public" / "release_wide.csv").read_text(encoding="utf-8"))[0]
    counts = [one for one in header[4:] if not one.endswith(("_lower", "_upper", "_moe"))]
    assert counts == [name("adults"), "children", "total"]
    assert f"{name('adults')}_moe" in header


def test_nothing_that_a_study_prints_is_obeyed(folder: Path) -> None:
    text = CONFIG.split("[output]", maxsplit=1)[0] + "[study]\nreplicates = 2\nworkers = 1\n"
    Path("study.toml").write_text(text, encoding="utf-8")
    for which in ("one", "other"):
        says("study", "study.toml", "-o", name(which))
    says("compare", name("one"), name("other"), "-o", name("both"))
