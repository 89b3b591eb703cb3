"""Settings of memory allocation and thread switching for this process, made before its libraries are loaded.

Arrow's own allocators reserve gigabytes of address space, which ``ulimit -v`` counts, and do not return memory. The
system's allocator by default changes the size from which it returns memory, and keeps a heap for every thread. With
these settings a process holds little more memory than is in use, which can be estimated.
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
"""Arrays of at least so many bytes have pages of their own, which are returned to the system when the array is deleted.
It is twice the size that kernels work with at once (`Tree.blocks`), for which new pages would take a fifth of the time.
"""

_OBJECTS_BETWEEN_SEARCHES = 50_000
"""New objects between two searches of Python for reference cycles; the default is 700. Libraries make hundreds of
thousands of objects while they load, which all stay; each search visits all of them while all threads wait.
"""

_LONGEST_TURN = 0.0002
"""Seconds after which a thread that holds Python's lock lets a waiting one continue; the default is 0.005. Threads work
in numpy and Arrow without the lock, and need it for a moment about every tenth of a millisecond; waiting 5 ms for it,
while another thread is in Python, leaves a processor idle.
"""


def settle_process() -> None:
    """Let Arrow use the system's allocator unless ARROW_DEFAULT_MEMORY_POOL names another, set the allocator's
    parameters, let Python search for cycles less often, and let threads wait less for each other.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_SEARCHES)
    sys.setswitchinterval(_LONGEST_TURN)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    set_parameter = _of_the_c_library("mallopt")
    if set_parameter is not None:
        for name, value in ((_MMAP_THRESHOLD, LARGE), (_TRIM_THRESHOLD, LARGE), (_ARENA_MAX, 1)):
            set_parameter(name, value)


def give_back() -> None:
    """Give memory that is free in this process back to the system.

    This calls the C library directly: Arrow's `release_unused` has no effect where its wheel was built for another C
    library.
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
