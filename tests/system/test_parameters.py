"""Every public function, class and method says what each of its parameters is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from support.public_names import public_names


def callables() -> Iterator[tuple[str, Any, bool]]:
    """The public functions, classes and methods of these, by name, and whether each is a method."""
    for name, shown in public_names().items():
        yield name, shown, False
        if inspect.isclass(shown):
            for method, one in vars(shown).items():
                code = getattr(one, "__func__", one)
                if not method.startswith("_") and inspect.isfunction(code):
                    yield f"{name}.{method}", code, True


def parameters(shown: Any) -> list[str]:
    """What is given to a function, or to a class to make a value; a class without an ``__init__`` of its own has its
    base's, and a protocol has none."""
    inherits = inspect.isclass(shown) and issubclass(shown, Exception) and "__init__" not in vars(shown)
    if inherits or getattr(shown, "_is_protocol", False):
        return []
    return [name for name in inspect.signature(shown).parameters if name not in ("self", "cls") and name[0] != "_"]


def described(text: str) -> set[str]:
    """The parameters that the section ``Args:`` of a docstring describes; of a named tuple ``Attributes:``."""
    section = re.search(r"^(?:Args|Attributes):\n((?: {4}.*\n?)+)", text, re.MULTILINE)
    return set(re.findall(r"^ {4}(\w+): \S", section[1], re.MULTILINE)) if section else set()


def undescribed(shown: Any, is_method: bool) -> list[str]:
    """The parameters that the docstring leaves out. The text of a method may name them, in place of a section; what
    has no docstring is not on the API pages."""
    text = inspect.getdoc(shown)
    if text is None:
        return []
    known = described(text) | (set(re.findall(r"\w+", text)) if is_method else set())
    return [name for name in parameters(shown) if name not in known]


def test_a_parameter_that_is_left_out_is_found() -> None:
    def counted(table: list[int], level: str) -> int:
        """How many.

        Args:
            table: of
                level: counts.

        Examples:
            level: 1
        """
        return table.count(len(level))

    assert undescribed(counted, is_method=False) == ["level"]
    assert undescribed(counted, is_method=True) == []


def test_every_parameter_of_a_public_name_is_described() -> None:
    found = list(callables())
    assert sum(len(parameters(shown)) for _, shown, _ in found) > 1000
    lacking = {name: left for name, shown, is_method in found if (left := undescribed(shown, is_method))}
    assert not lacking
