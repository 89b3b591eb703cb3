from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from topdown.machine import compiled as module


def twice(x: Any) -> Any:
    return 2 * x


def test_a_compiled_loop_does_what_it_says_and_is_kept() -> None:
    loop: Any = module.compiled(twice)
    assert loop(np.arange(3)).tolist() == [0, 2, 4]
    assert loop.signatures  # compiled, and not only called


def test_where_nothing_can_be_kept_it_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    right = module.njit

    def without_room(**options: Any) -> Callable[..., Any]:
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'twice': no locator available for file")
        return right(**options)  # type: ignore[no-any-return]

    monkeypatch.setattr(module, "njit", without_room)
    loop: Any = module.compiled(twice)
    assert loop(3) == 6
    assert loop.signatures


@pytest.mark.parametrize(("limit", "expected"), [(650 << 20, MemoryError), (None, ImportError)])
def test_a_compiler_that_does_not_fit_is_a_want_of_memory(
    limit: int | None, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under ``ulimit -v`` its library is found and cannot be loaded."""
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr("topdown.machine.system.address_space_limit", lambda: limit)
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    again: ModuleType = importlib.util.module_from_spec(spec)
    with pytest.raises(expected):
        spec.loader.exec_module(again)
