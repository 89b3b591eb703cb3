"""How this process takes memory and gives it back, and how its threads take turns, settled before its libraries are
loaded.

Arrow's own allocators reserve address space by the gigabyte, which ``ulimit -v`` counts, and keep what they were given
once. The system's, left to itself, moves the size from which it gives memory back as it goes, and keeps a heap for
every thread. With both settled a process holds what is in use and little more, which is what can be estimated.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import cache

_MMAP_THRESHOLD, _TRIM_THRESHOLD, _ARENA_MAX = -3, -1, -8
"""Names of parameters in malloc.h of the GNU C library."""

LARGE = 1 << 24
"""Bytes from which an array has pages of its own, which go back to the system when it is let go.

Twice what kernels work with at once (`Tree.blocks`): fresh pages for these cost a fifth of the time.
"""

_OBJECTS_BETWEEN_SEARCHES = 50_000
"""New objects after which Python looks for those that only refer to each other; 700, as it comes.

Libraries make some hundred thousand while they load, of which none goes; each search takes them all, and all threads
wait for it.
"""

_LONGEST_TURN = 0.0002
"""Seconds after which a thread that is in Python lets another go on that waits; 0.005, as it comes.

Threads work in numpy and Arrow, outside of Python's lock, and come back every tenth of a millisecond or so for a
moment; to wait for five, while another is in Python (a library is loading, a program is stated), leaves a processor
idle.
"""


def settle_process() -> None:
    """Let Arrow use the system's allocator unless ARROW_DEFAULT_MEMORY_POOL names another, settle that one, let Python
    look for cycles less often, and let threads wait less for each other."""
    gc.set_threshold(_OBJECTS_BETWEEN_SEARCHES)
    sys.setswitchinterval(_LONGEST_TURN)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    set_parameter = _of_the_c_library("mallopt")
    if set_parameter is not None:
        for name, value in ((_MMAP_THRESHOLD, LARGE), (_TRIM_THRESHOLD, LARGE), (_ARENA_MAX, 1)):
            set_parameter(name, value)


def give_back() -> None:
    """Give memory that is free in this process back to the system.

    Asked of the C library itself: Arrow's `release_unused` of its system pool gives nothing back where its wheel was
    built for another C library.
    """
    trim = _of_the_c_library("malloc_trim")
    if trim is not None:
        trim(0)


@cache
def _of_the_c_library(name: str) -> Callable[..., int] | None:
    """A function of the C library that this process uses; None where there is none, as elsewhere than on Linux."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return found
