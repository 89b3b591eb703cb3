"""The documentation: every public name has its entry, every link leads somewhere, every notebook runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

import pytest

import topdown as td
from support import notebooks
from support.places import REPOSITORY
from topdown.cli.app import app

DOCS = REPOSITORY / "docs"
TEXTS = sorted(
    [*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb"), REPOSITORY / "data" / "README.md"]
)
MODULES = {name: getattr(td, name) for name in ("fairness", "noise", "privacy", "synthesis", "theory")}


# -- the site ---------------------------------------------------------------------------------------------------------


def entries(site: Path) -> set[str]:
    """The Python names that ``site`` has an entry for, each by every path on which it is known."""
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    return {line.split()[0] for line in zlib.decompress(inventory).decode().splitlines()}


def home(module: str, name: str) -> str:
    """Where ``name`` of ``module`` is defined, as far as it knows; else where it is found."""
    found = getattr(MODULES[module], name)
    if isinstance(found, type(td)):
        return found.__name__
    return f"{getattr(found, '__module__', '')}.{name}"


@pytest.mark.system
def test_the_site_builds_without_a_warning_and_has_every_public_name(tmp_path: Path) -> None:
    built = subprocess.run(
        [REPOSITORY / ".ci" / "docs", tmp_path / "site"],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    there = entries(tmp_path / "site")
    assert [name for name in td.__all__ if f"topdown.{name}" not in there] == []
    for module, found in MODULES.items():
        names = [name for name in found.__all__ if not {f"{found.__name__}.{name}", home(module, name)} & there]
        assert names == [], f"td.{module}"

    samples = tmp_path / "site" / "samples"
    with zipfile.ZipFile(samples / "us_counties.zip") as archive:
        archive.extractall(tmp_path / "sample")
    assert td.verify_release(tmp_path / "sample" / "public")
    page = (tmp_path / "site" / "samples.html").read_text(encoding="utf-8")
    linked = {samples / name for name in re.findall(r'href="samples/([^"#]+)"', page)}
    assert {samples / "report.html", samples / "us_counties.zip", samples / "public" / "release.csv"} <= linked
    assert all(path.exists() for path in linked)
    assert "New Castle County" in page
    assert "<!-- sample" not in page

    commands = (tmp_path / "site" / "commands.html").read_text(encoding="utf-8")
    told = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert {name for name in told if f'<h2 id="topdown-{name}"' not in commands} == set()
    assert "[bold]" not in commands

    pages = {path: path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html")}
    assert len(pages) > 30
    fetched = re.compile(r"<(?:script|img|iframe)[^>]*src=\"?(?:https?:)?//|<link[^>]*href=\"?(?:https?:)?//|@import")
    assert [path.name for path, page in pages.items() if fetched.search(page)] == []
    assert [path.name for path, page in pages.items() if "arithmatex" in page] == [], "a formula that is no MathML"
    assert sum(page.count("<math") for page in pages.values()) > 300
    cited = re.compile(r'<a href="https://doi\.org/[^"]+">[A-Z]')
    assert sum(len(cited.findall(page)) for page in pages.values()) > 80, "citations that are no links"
    assert [path.name for path, page in pages.items() if re.search(r"<h\d[^>]*><a href=.https://doi", page)] == []


# -- links ------------------------------------------------------------------------------------------------------------


def headings(path: Path) -> set[str]:
    """The anchors of a file's headings, by the rule that code forges and Python-Markdown have in common."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def lost_links(path: Path, root: Path = REPOSITORY) -> list[str]:
    """The relative links of a file that lead nowhere, or out of ``root``."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = notebooks.read(path)["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        inside = target.is_relative_to(root) and target.exists()
        if not inside or (anchor and anchor not in headings(target)):
            lost.append(link)
    return lost


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    assert lost_links(path) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# Two words\n[1](b.md) [2](#two-words) [3](#three) [4](https://example.org) [5](a.md#two-words) [6](..)"
    )
    assert lost_links(page, tmp_path) == ["b.md", "#three", ".."]


# -- notebooks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_prints_what_it_shows(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("notebook")))
    texts, names = notebooks.printed(path)
    cells = notebooks.code_cells(notebooks.read(path))
    assert any(text for text in texts)
    for number, (cell, text) in enumerate(zip(cells, texts, strict=True)):
        if notebooks.is_random(cell):
            assert text, number
            assert cell["outputs"] == [], number
        else:
            assert cell["outputs"] == notebooks.outputs(text), f"{number}: python -m support.notebooks"
    if "covered" in names:  # of 6,280 intervals of 95 %
        assert 0.93 < names["covered"] < 0.97


def test_there_are_notebooks_for_an_analyst_and_an_auditor() -> None:
    assert {path.stem for path in notebooks.NOTEBOOKS} >= {"margin_of_error", "small_study"}
