"""Loops that numba compiles when they are first called, and caches on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from topdown.machine.system import address_space_limit

try:
    from numba import njit
except (ImportError, OSError) as error:
    if address_space_limit() is None:
        raise
    raise MemoryError("the compiler's library does not fit into the address space") from error  # as ulimit -v leaves it

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled(loop: Loop) -> Loop:
    """``loop``, compiled; it runs without the interpreter's lock, so that threads share the work.

    Its machine code is kept beside its module or in the user's cache, so that it is compiled once; where neither can be
    written (a read-only image without a home) every process compiles it anew.
    """
    try:
        found: Any = njit(cache=True, nogil=True)(loop)
    except RuntimeError:  # no place to keep it
        found = njit(nogil=True)(loop)
    return found  # type: ignore[no-any-return]
