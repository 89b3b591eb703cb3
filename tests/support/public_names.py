"""The public names: the functions and classes that the API pages show."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

from support.places import REPOSITORY

API = REPOSITORY / "docs" / "api"


def resolved(path: str) -> Any:
    """What a dotted name means; a function may have the name of its module."""
    parts = path.split(".")
    for depth in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:depth]))
            for part in parts[depth:]:
                found = getattr(found, part)
        except (ImportError, AttributeError):
            continue
        return found
    raise AssertionError(path)


def public_names() -> dict[str, Any]:
    """The functions and classes that the API pages show, each once, by its first path."""
    found: dict[str, Any] = {}
    for page in sorted(API.glob("*.md")):
        for path in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            shown = resolved(path)
            inside = {path: shown}
            if inspect.ismodule(shown):
                own = [name for name, one in vars(shown).items() if getattr(one, "__module__", None) == shown.__name__]
                names = getattr(shown, "__all__", [name for name in own if not name.startswith("_")])
                inside = {f"{path}.{name}": getattr(shown, name) for name in names}
            for name, one in inside.items():
                is_code = inspect.isclass(one) or (callable(one) and inspect.isfunction(inspect.unwrap(one)))
                if is_code and all(one is not other for other in found.values()):
                    found[name] = one
    return found
