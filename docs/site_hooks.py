"""What MkDocs is told beside mkdocs.yml: pages made of other files, and formulas as MathML.

The changelog stands at the top of the repository, notebooks are JSON, and commands say themselves what they do; all
become pages when the site is built, so that nothing is written twice. Browsers draw MathML themselves,
without a script.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import typer.cli
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from topdown.cli.app import app

_REPOSITORY = Path(__file__).resolve().parents[1]
_NOTEBOOK = re.compile(r"\]\(([\w./]*notebooks/\w+)\.ipynb\)")
# What pymdownx.arithmatex makes of $...$ (a span) and $$...$$ (a div), in its generic mode.
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the changelog, the commands and a page of every notebook."""
    pages = {"changelog.md": (_REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"), "commands.md": commands()}
    for path in sorted((_REPOSITORY / "docs" / "notebooks").glob("*.ipynb")):
        pages[f"notebooks/{path.stem}.md"] = page_of(json.loads(path.read_text(encoding="utf-8")), path.name)
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


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
    """Leads links to notebooks, which are right where the files lie, to their pages."""
    return _NOTEBOOK.sub(r"](\1.md)", markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns formulas into MathML. A command that is not understood stops the build."""

    def drawn(found: re.Match[str]) -> str:
        formula = html.unescape(found[2]).strip()
        made = convert(formula, display="block" if found[1] == "div" else "inline")
        if "\\" in re.sub(r"<annotation.*?</annotation>", "", made):
            raise PluginError(f"{page.file.src_uri}: latex2mathml does not know all of the formula {formula}")
        return f'<{found[1]} class="formula">{made}</{found[1]}>'

    return _FORMULA.sub(drawn, content)
