"""What MkDocs is told beside mkdocs.yml: pages made of other files, samples, and formulas as MathML.

The changelog stands at the top of the repository, notebooks are JSON, and commands describe themselves; all become
pages when the site is built, so that nothing is written twice. The sample release and the sample report are made by the
commands that a user types, from the public table in data/. Browsers draw MathML themselves, without a script.
"""

from __future__ import annotations

import functools
import html
import io
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import typer.cli
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from topdown.analysis.page.release_page import write_page
from topdown.cli.app import app

_REPOSITORY = Path(__file__).resolve().parents[1]
_NOTEBOOK = re.compile(r"\]\(([\w./]*notebooks/\w+)\.ipynb\)")
_WORK = re.compile(r"^\| ([^|]+) \| .* \| \[\S+\]\((https://doi\.org/\S+)\) \|$", re.MULTILINE)
_TAG = re.compile(r"(<[^>]*>)")
# What pymdownx.arithmatex makes of $...$ (a span) and $$...$$ (a div), in its generic mode.
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


_SAMPLE_COMMANDS = {
    "release": ["run", "pipelines/us_counties.toml"],
    "report": ["study", "pipelines/us_counties_study.toml", "--replicates", "200"],
}
"""What makes the samples; `docs/samples.md` names these commands."""
_COMMAND = "from topdown.cli import main; main()"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the changelog, the commands, a page of every notebook, and the samples."""
    pages = {"changelog.md": (_REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"), "commands.md": commands()}
    for path in sorted((_REPOSITORY / "docs" / "notebooks").glob("*.ipynb")):
        pages[f"notebooks/{path.stem}.md"] = page_of(json.loads(path.read_text(encoding="utf-8")), path.name)
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for name, content in sample_files().items():
        files.append(File.generated(config, name, content=content))
    return files


@functools.cache  # `mkdocs serve` builds the site again after every change
def sample_files() -> dict[str, bytes]:
    """The files of the sample release, its page and the sample report, by their places on the site, as commands make
    them."""
    found: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in _SAMPLE_COMMANDS.items():
            done = subprocess.run(
                [sys.executable, "-c", _COMMAND, *arguments, "--output", f"{folder}/{name}", "--quiet"],
                cwd=_REPOSITORY,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                raise PluginError(f"topdown {' '.join(arguments)}: {done.stderr}")
        public = Path(folder, "release", "public")
        write_page(public, Path(folder, "page.html"))
        found["samples/page.html"] = Path(folder, "page.html").read_bytes()
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(public.iterdir()):
                archive.write(path, f"public/{path.name}")
                found[f"samples/public/{path.name}"] = path.read_bytes()
        found["samples/us_counties.zip"] = packed.getvalue()
        found["samples/report.html"] = Path(folder, "report", "internal", "report.html").read_bytes()
    return found


def sample_rows(state: str) -> str:
    """A table in Markdown of the sample release: a state and its counties, with margins of error."""
    rows = pd.read_parquet(io.BytesIO(sample_files()["samples/public/release.parquet"]))
    shown = rows[(rows["geoid"] == state) | (rows["parent"] == state)]
    names, numbers = ["geoid", "name", "cell"], ["value", "lower", "upper"]
    lines = [" | ".join([*names, *numbers]), "---|" * len(names) + "---:|" * (len(numbers) - 1) + "---:"]
    lines += [" | ".join([*row[names], *(f"{n:,.0f}" for n in row[numbers])]) for _, row in shown.iterrows()]
    return "\n".join(f"| {line} |" for line in lines)


def sample_list() -> str:
    """A list in Markdown of the files of the sample release, each with a link and its size."""
    return "\n".join(
        f"- [`{Path(name).name}`]({name}) ({len(content):,} bytes)"
        for name, content in sample_files().items()
        if name.startswith("samples/public/")
    )


def commands() -> str:
    """The Markdown of every command's help."""
    group = typer.main.get_command(app)
    context: Any = group.make_context("topdown", [], resilient_parsing=True)
    text = typer.cli.get_docs_for_click(obj=group, ctx=context, name="topdown")
    return re.sub(r"\[/?bold\]", "**", text).replace("# `topdown`", "# Commands", 1)


def page_of(notebook: dict[str, Any], name: str) -> str:
    """The Markdown of a notebook: its text, its code, and what the code printed."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts += ["```text\n" + "".join(one["text"]).rstrip("\n") + "\n```" for one in cell.get("outputs", ())]
    parts.append(f"*This page is the notebook `docs/notebooks/{name}`, which the tests run.*")
    return "\n\n".join(parts)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links to notebooks, which are right where the files lie, to their pages; puts the samples in their page."""
    if page.file.src_uri == "samples.md":
        markdown = markdown.replace("<!-- sample: rows -->", sample_rows("10"))
        markdown = markdown.replace("<!-- sample: files -->", sample_list())
        markdown = markdown.replace("<!-- sample: report -->", "[Open the sample report](samples/report.html).")
        markdown = markdown.replace("<!-- sample: page -->", "[Open the page](samples/page.html).")
        markdown = markdown.replace("<!-- sample: archive -->", "[Download the folder](samples/us_counties.zip).")
    return _NOTEBOOK.sub(r"](\1.md)", markdown)


@functools.cache
def citations() -> tuple[re.Pattern[str], dict[str, str]]:
    """A pattern of the citations of `docs/literature.md`, and the DOI of each by its group.

    A single name is a citation where a year follows; several names are one without a year too.
    """
    page = (_REPOSITORY / "docs" / "literature.md").read_text(encoding="utf-8")
    patterns, links = [], {}
    for cited, link in _WORK.findall(page):
        found = re.fullmatch(r"(.*?)(?: et al\.)? (\d{4})", cited)
        if found is None:
            continue
        names, year = found[1].split(", "), rf"(?: \({found[2]}\)|,?\s{found[2]}\b)"
        group = f"w{len(links)}"
        joined = r"(?:,|,? and)\s+".join(re.escape(name).replace(r"\ ", r"\s+") for name in names)
        patterns.append(rf"(?P<{group}>\b{joined}{f'(?:{year})?' if len(names) > 1 else year})")
        links[group] = link
    return re.compile("|".join(sorted(patterns, key=len, reverse=True))), links


def linked(content: str) -> str:
    """HTML with the citations in its text as links, those in titles, code and links apart."""
    pattern, links = citations()
    parts, inside = _TAG.split(content), 0
    for place, part in enumerate(parts):
        if place % 2:
            name = re.match(r"</?(\w+)", part)
            if name is not None and name[1] in ("a", "code", "pre", "h1", "h2", "h3", "h4", "math"):
                inside += -1 if part.startswith("</") else 1
        elif not inside:
            parts[place] = pattern.sub(lambda one: f'<a href="{links[str(one.lastgroup)]}">{one[0]}</a>', part)
    return "".join(parts)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns formulas into MathML and citations into links. A command that is not understood stops the build."""

    def drawn(found: re.Match[str]) -> str:
        formula = html.unescape(found[2]).strip()
        made = convert(formula, display="block" if found[1] == "div" else "inline")
        if "\\" in re.sub(r"<annotation.*?</annotation>", "", made):
            raise PluginError(f"{page.file.src_uri}: latex2mathml does not know all of the formula {formula}")
        return f'<{found[1]} class="formula">{made}</{found[1]}>'

    return linked(_FORMULA.sub(drawn, content))
