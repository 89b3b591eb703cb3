"""What the documents name exists: commands and their options, Python names, files, settings of the TOML file."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import typer.main

import topdown as td
from support import notebooks
from support.places import REPOSITORY
from topdown.cli.app import app
from topdown.config.json_schema import KINDS, json_schema

DOCS = REPOSITORY / "docs"
PAGES = sorted(
    [
        *DOCS.rglob("*.md"),
        *DOCS.rglob("*.ipynb"),
        *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        *(REPOSITORY / "pipelines").rglob("*.toml"),
    ]
)
EVERY_PAGE = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(REPOSITORY).as_posix())


def text_of(path: Path) -> str:
    if path.suffix == ".ipynb":
        return "\n".join("".join(cell["source"]) for cell in notebooks.read(path)["cells"])
    return path.read_text(encoding="utf-8")


# -- commands ---------------------------------------------------------------------------------------------------------


def command_lines(text: str) -> Iterator[str]:
    """What a page shows as calls of topdown: inline code, and lines of blocks and comments, continued ones joined."""
    text = re.sub(r"\\\n", " ", text)
    yield from re.findall(r"`(topdown [^`]+)`", text)
    for line in text.splitlines():
        for found in re.findall(r"(?:^|&&|\$\(|--wrap '|\d |\{\} |#   )\s*(topdown (?:-|[a-z]).*)$", line):
            if "`" not in found and re.match(r"topdown (-|[a-z]+( |$))", found):
                yield re.split(r"  +#| [|>] |'\)?$|\) - |&& ", found)[0]


def unknown_in(line: str) -> list[str]:
    """The command and the options in a ``line`` that topdown does not have."""
    command: Any = typer.main.get_command(app)
    words = shlex.split(line.replace("'", ""), comments=True)[1:]
    while words and hasattr(command, "commands"):
        if words[0].startswith("-") or words[0].isupper():
            break
        if words[0].rstrip(",.") not in command.commands:
            return [words[0]]
        command = command.commands[words.pop(0).rstrip(",.")]
    known = {name for one in command.params for name in [*one.opts, *one.secondary_opts]}
    given = {re.split(r"[=\]]", word.lstrip("["))[0] for word in words if re.match(r"\[?--?[a-z]", word)}
    return sorted(given - known - {"--help"})


def test_an_unknown_command_or_option_is_found() -> None:
    assert unknown_in("topdown rum FILE") == ["rum"]
    assert unknown_in("topdown run FILE --part-sise 3 --help") == ["--part-sise"]
    assert unknown_in("topdown part cut FILE --part-size 3") == []
    assert unknown_in("topdown ledger start x") == ["start"]
    page = "```\npip install x && topdown rum a\n    topdown run \\\n  --nothing  # a comment\n```\nby `topdown chek`"
    assert [unknown_in(line) for line in command_lines(page)] == [["chek"], ["rum"], ["--nothing"]]


@EVERY_PAGE
def test_every_command_line_is_one_that_topdown_has(path: Path) -> None:
    lines = list(command_lines(text_of(path)))
    assert {line: found for line in lines if (found := unknown_in(line))} == {}


def test_pages_have_command_lines() -> None:
    lines = [line for path in PAGES for line in command_lines(text_of(path))]
    assert len(lines) > 120
    assert sum("--" in line for line in lines) > 40


def test_every_command_is_in_the_table_of_commands() -> None:
    page = (DOCS / "what_a_run_leaves.md").read_text(encoding="utf-8")
    group: Any = typer.main.get_command(app)
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| `topdown "))
    assert [name for name, one in group.commands.items() if not one.hidden and f"`topdown {name}" not in rows] == []


# -- Python names -----------------------------------------------------------------------------------------------------


def is_there(name: str) -> bool:
    """Whether a dotted name, from td or topdown on, is a module or an attribute."""
    parts = re.sub(r"^td\b", "topdown", name).split(".")
    for depth in range(len(parts), 0, -1):  # a function may have the name of its module
        try:
            found: Any = importlib.import_module(".".join(parts[:depth]))
        except ImportError:
            continue
        for part in parts[depth:]:
            if not hasattr(found, part):
                return part in getattr(found, "__annotations__", {})  # a field of a dataclass
            found = getattr(found, part)
        return True
    return False


def python_names(text: str) -> set[str]:
    """The dotted names from td or topdown on that a page shows as code."""
    code = "\n".join(re.findall(r"```python\n.*?```|`[^`\n]+`|^::: \S+$", text, flags=re.DOTALL | re.MULTILINE))
    return {name.rstrip(".") for name in re.findall(r"(?<![\w./\-])((?:td|topdown)\.[A-Za-z_][\w.]*)", code)}


def test_an_unknown_name_is_found() -> None:
    names = python_names("`td.Counts.from_tabel` and\n```python\ntd.measure(x)\n```\n::: topdown.projection.nothing\n")
    assert {name for name in names if not is_there(name)} == {"td.Counts.from_tabel", "topdown.projection.nothing"}
    assert "td.measure" in names


@EVERY_PAGE
def test_every_python_name_is_there(path: Path) -> None:
    files = {"topdown.toml", "topdown.git"}
    assert {name for name in python_names(text_of(path)) - files if not is_there(name)} == set()


def test_every_public_name_is_in_the_table_of_the_api() -> None:
    page = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    table = set(re.findall(r"`([\w.]+)`", "\n".join(line for line in page.splitlines() if line.startswith("| ["))))
    assert [name for name in td.__all__ if not {name, f"td.{name}"} & table and name != "__version__"] == []
    assert [name for name in table if not is_there(f"td.{name.removeprefix('td.')}")] == []


def test_type_checkers_and_the_site_see_every_public_name() -> None:
    """They read the imports under TYPE_CHECKING; at run time names are found by another table."""
    text = (REPOSITORY / "topdown" / "__init__.py").read_text(encoding="utf-8")
    block = text[text.index("if TYPE_CHECKING:") : text.index("__all__ = [")]
    assert [name for name in td.__all__ if not re.search(rf"\b{name}\b", block)] == []


# -- files ------------------------------------------------------------------------------------------------------------

FOLDERS = ("benchmarks", "data", "docs", "pipelines", "tests", "topdown", ".ci")


def files_named(text: str) -> set[str]:
    """The files and folders of the repository that a page names as code: from the top, or from topdown/ on."""
    rooms = "|".join(path.name for path in (REPOSITORY / "topdown").iterdir() if path.is_dir())
    code = "\n".join(re.findall(r"`[^`\n]+`", text))
    found = re.findall(rf"(?<![\w./])((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./\-]*\w)(?![\w*])", code)
    found += re.findall(rf"(?<![\w./])((?:{rooms})/(?:[\w./]*\.py\b|(?=`)))", code)
    return {name for name in found if "NAME" not in name}


def exists(name: str) -> bool:
    return (REPOSITORY / name).exists() or (REPOSITORY / "topdown" / name).exists()


@EVERY_PAGE
def test_every_file_that_is_named_is_there(path: Path) -> None:
    made = {"data/us_counties.geojson"}
    assert {name for name in files_named(text_of(path)) - made if not exists(name)} == set()


# -- settings ---------------------------------------------------------------------------------------------------------


def without_required(schema: Any) -> Any:
    """A JSON Schema that asks for no setting: a page shows parts of a file."""
    if isinstance(schema, dict):
        return {name: without_required(one) for name, one in schema.items() if name != "required"}
    return [without_required(one) for one in schema] if isinstance(schema, list) else schema


SCHEMAS = {kind: without_required(json_schema(kind)) for kind in KINDS}


def accepted(block: str) -> bool:
    """Whether a block of TOML is part of some file: of sections, or of settings of one section."""
    settings = json.loads(json.dumps(tomllib.loads(block), default=str))
    for schema in SCHEMAS.values():
        check = jsonschema.Draft202012Validator(schema)
        sections = set(schema["properties"]) - {"schema", "schemas", "recodes", "zeros", "link"}  # which take any name
        if any(check.is_valid(one) for one in [settings, *({name: settings} for name in sections)]):
            return True
    return False


def test_an_unknown_setting_is_found() -> None:
    assert accepted("[privacy]\nepsilon = 1")
    assert accepted('levels = ["nation", "state"]')
    assert not accepted("[privacy]\nepsilom = 1")
    assert not accepted('level = ["nation", "state"]')
    assert not accepted("[output]\ncsv = 3")


@EVERY_PAGE
def test_every_block_of_toml_is_part_of_a_file(path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", text_of(path), re.DOTALL)
    assert [block for block in blocks if not accepted(block)] == []


def settings_named(text: str) -> set[tuple[str, str]]:
    """Sections with a setting each that a page names as code: `[output] margins`, `output.margins`."""
    sections = "|".join({name for schema in SCHEMAS.values() for name in schema["properties"]} - {"title", "schema"})
    found = set(re.findall(rf"`\[({sections})\] ([a-z_]+)", text))
    return found | set(re.findall(rf"`({sections})\.([a-z_]+)(?= = |`)", text))


def has_setting(section: str, setting: str) -> bool:
    for schema in SCHEMAS.values():
        for found in re.findall(r'"\$ref": "#/\$defs/(\w+)"', json.dumps(schema["properties"].get(section, {}))):
            if setting in schema["$defs"][found].get("properties", {}):
                return True
    return False


@EVERY_PAGE
def test_every_setting_that_is_named_is_there(path: Path) -> None:
    files = {
        (section, ending)
        for section in SCHEMAS["study"]["properties"] | SCHEMAS["project"]["properties"]
        for ending in ("parquet", "html", "py")
    }
    others = files | {("ledger", "record")} | {("geography", name) for name in dir(td.Geography)}
    assert {one for one in settings_named(text_of(path)) - others if not has_setting(*one)} == set()


# -- literature -------------------------------------------------------------------------------------------------------

NAME = r"(?:Van |San )?[A-Z][a-zéíøá]+(?:-[A-Z][a-z]+)?"
CITED = re.compile(rf"({NAME}(?:,\s+{NAME})*(?: and {NAME})?),?\s+\(?((?:19|20)\d\d)\b")
MONTHS = {"April", "August", "December"}


def citations(text: str) -> set[tuple[str, ...]]:
    """The names and the year of every citation in a text."""
    found = [(re.split(r",\s+| and ", names), year) for names, year in CITED.findall(text)]
    return {(*names, year) for names, year in found if names[-1] not in MONTHS}


def test_citations_are_found() -> None:
    text = "by Bun, Steinke 2016, Zhu, Van Hentenryck,\nFioretto 2021 and Benjamini and Hochberg (1995), of April 2020"
    names = ("Zhu", "Van Hentenryck", "Fioretto", "2021")
    assert citations(text) == {("Bun", "Steinke", "2016"), names, ("Benjamini", "Hochberg", "1995")}


def test_every_citation_is_in_the_list_of_literature() -> None:
    listed = citations((DOCS / "literature.md").read_text(encoding="utf-8"))
    assert len(listed) > 45
    others = {("Census", "2020"), ("Schema", "2020"), ("Hestenes", "Powell", "1969")}
    for path in [*DOCS.glob("*.md"), *(REPOSITORY / "topdown").rglob("*.py")]:
        lost = citations(path.read_text(encoding="utf-8")) - others
        lost = {one for one in lost if not any(set(one) <= set(work) for work in listed)}
        assert lost == set(), path
