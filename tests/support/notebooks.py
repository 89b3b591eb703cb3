"""Notebooks of docs/notebooks, run as plain Python: cells print what they show, and need no kernel.

    PYTHONPATH=tests python -m support.notebooks

writes what they print now into them. A cell with the tag "random" keeps none: it prints another draw every time.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

from support.places import REPOSITORY

NOTEBOOKS = sorted((REPOSITORY / "docs" / "notebooks").glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    """The notebook in ``path``."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Its cells of code, in their order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def is_random(cell: dict[str, Any]) -> bool:
    """Whether the cell prints something else every time."""
    return "random" in cell["metadata"].get("tags", ())


def printed(path: Path) -> tuple[list[str], dict[str, Any]]:
    """What every cell of code prints, run one after the other in the notebook's folder, and the names that are left."""
    names: dict[str, Any] = {"__name__": "__main__"}
    texts = []
    with contextlib.chdir(path.parent):
        for number, cell in enumerate(code_cells(read(path))):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
            texts.append(said.getvalue())
    return texts, names


def outputs(text: str) -> list[dict[str, Any]]:
    """The outputs of a cell that printed ``text``."""
    lines = text.splitlines(keepends=True)
    return [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []


def refresh(path: Path) -> None:
    """Writes what the cells print into the notebook in ``path``."""
    notebook = read(path)
    for cell, text in zip(code_cells(notebook), printed(path)[0], strict=True):
        cell["outputs"] = [] if is_random(cell) else outputs(text)
        cell["execution_count"] = None
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for one in NOTEBOOKS:
        print(os.path.relpath(one, REPOSITORY))
        refresh(one)
