"""The package as a whole: nothing in it is unused."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "topdown").rglob("*.py"))


def top_level_names(module: Path) -> set[str]:
    """The functions, classes and constants that a module defines, dunders apart."""
    found = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.decorator_list:
            found.add(node.name)
    return {name for name in found if not name.startswith("__")}


def test_every_private_name_and_constant_is_used() -> None:
    words: Counter[str] = Counter()
    for module in MODULES:
        words.update(re.findall(r"\w+", module.read_text(encoding="utf-8")))
    named = {(module.stem, name) for module in MODULES for name in top_level_names(module)}
    inner = {(module, name) for module, name in named if name.startswith("_") or name.isupper()}
    assert len(inner) > 200
    assert {f"{module}.{name}" for module, name in inner if words[name] < 2} == set()
