"""docs/sources.md has a row for every item of the five papers, and what a row names is there."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.places import REPOSITORY
from topdown.cli.app import app

ITEMS = {"Liu": 38, "Croft": 28, "Zhu": 25, "Snoke": 22, "Course": 27}
COLUMNS = ["Item", "What it says", "Function", "Test", "Command"]


def rows_of(text: str) -> dict[str, list[list[str]]]:
    """By paper the cells of every row of its table."""
    found: dict[str, list[list[str]]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        lines = [line for line in section.splitlines() if line.startswith("|")]
        cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
        if cells:
            assert cells[0] == COLUMNS, section.splitlines()[0]
            found[re.split(r"[:\s]", section, maxsplit=1)[0]] = cells[2:]
    return found


PAPERS = rows_of((REPOSITORY / "docs" / "sources.md").read_text(encoding="utf-8"))
ROWS = [pytest.param(row, id=f"{paper}, {row[0]}") for paper, rows in PAPERS.items() for row in rows]


def named(cell: str) -> list[str]:
    """What a cell has in backticks; outside of them are commas and a dash only."""
    assert not re.sub(r"`[^`]+`", "", cell).strip(" ,-"), cell
    return re.findall(r"`([^`]+)`", cell)


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or can be reached from one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for attribute in parts[length:]:
            if attribute in getattr(found, "__dataclass_fields__", {}):
                return attribute == parts[-1]
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


@cache
def defined_in(path: Path) -> set[str]:
    """The names of a file's tests, those of a class as Class::name."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
    return found


@cache
def options_of(script: Path) -> set[str]:
    """The options that a script or a module of its own folder adds to a parser, so far as it imports the module."""
    text = script.read_text(encoding="utf-8")
    found = set(re.findall(r'add_argument\(\s*"(--[\w-]+)"', text))
    for name in re.findall(r"^from (\w+) import", text, re.MULTILINE):
        if (script.parent / f"{name}.py").exists():
            found |= options_of(script.parent / f"{name}.py")
    return found


def fault(command: str) -> str:
    """What of a command is not there; empty where all of it is."""
    words = shlex.split(command)
    options = {word.split("=")[0] for word in words if word.startswith("--")}
    if words[0] == "python":
        script = REPOSITORY / words[1]
        if not script.is_file():
            return f"no {words[1]}"
        return " ".join(sorted(options - options_of(script)))
    if words[0] != "topdown":
        return f"{words[0]} is not known"
    for file in [word for word in words if "/" in word and word.endswith((".toml", ".parquet", ".csv"))]:
        if not (REPOSITORY / file).exists():
            return f"no {file}"
    shown = CliRunner().invoke(app, [words[1], "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    if shown.exit_code:
        return f"no command {words[1]}"
    return " ".join(sorted(option for option in options if option not in shown.output))


def test_there_is_a_row_for_every_item() -> None:
    assert {paper: len(rows) for paper, rows in PAPERS.items()} == ITEMS
    assert sum(ITEMS.values()) == 140
    for paper, rows in PAPERS.items():
        names = [row[0] for row in rows]
        assert len(set(names)) == len(names), paper


@pytest.mark.parametrize("row", ROWS)
def test_what_a_row_names_is_there(row: list[str]) -> None:
    assert len(row) == len(COLUMNS)
    item, says, functions, tests, commands = row
    assert item
    assert len(says) > 10
    assert named(functions)
    assert named(tests)
    assert [name for name in named(functions) if not name.startswith("topdown") or not is_there(name)] == []
    for name in named(tests):
        file, _, test = name.partition("::")
        path = REPOSITORY / file
        assert path.is_file(), name
        assert test.partition("[")[0] in defined_in(path), name
    assert commands == "-" or named(commands)
    assert [found for command in named(commands) if (found := fault(command))] == []


def test_what_is_not_there_is_found() -> None:
    assert is_there("topdown.noise.Laplace.pdf")
    assert not is_there("topdown.noise.Laplacian")
    assert not is_there("topdown.nothing")
    assert fault("python pipelines/paper/pmse_table_1.py --repeats 3") == ""
    assert fault("python pipelines/paper/pmse_table_1.py --repeat 3") == "--repeat"
    assert fault("python pipelines/paper/table_9.py") == "no pipelines/paper/table_9.py"
    assert fault("topdown run pipelines/us_counties.toml") == ""
    assert fault("topdown run pipelines/us_states.toml") == "no pipelines/us_states.toml"
    assert fault("topdown walk x") == "no command walk"
    assert fault("topdown run x --sideways") == "--sideways"
