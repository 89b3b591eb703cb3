"""Calls of the operating system that differ between systems: rights, syncs, limits, processors. Only this module
imports modules that some systems lack. It imports quickly.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import ModuleType

resource: ModuleType | None
fcntl: ModuleType | None
try:
    import resource
except ImportError:  # Windows
    resource = None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
SHARED_FILE, SHARED_FOLDER = 0o666, 0o777
"""Rights of what is made; Windows takes those of the folder around it instead."""

NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
"""How a file is opened that must not be there yet, not even as a link."""

_HAS_RIGHTS = os.name == "posix"


THREADS_OF_ALGEBRA = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""The environment's variables that say, before it is loaded, how many threads a library of linear algebra starts."""


def weaker_promises() -> tuple[str, ...]:
    """Sentences on promises that do not hold on this system; none on Linux and macOS."""
    if _HAS_RIGHTS:
        return ()
    return (
        "on this system Topdown cannot protect files from other users: internal/ is as confidential as the table; give "
        "--output a folder that only you may open",
        "on this system folders cannot be synced: after a power failure, run again, and check the release with "
        "topdown verify before it is published",
    )


def close_to_others(folder: Path) -> None:
    """Make ``folder`` accessible to its owner alone, where the system has such rights. Raises `OSError`."""
    if _HAS_RIGHTS and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        folder.chmod(PRIVATE_FOLDER)


def open_to_others(path: Path) -> None:
    """Give the file at ``path`` the rights of the folder that it is in, as a new file has them. Raises `OSError`."""
    if _HAS_RIGHTS:
        path.chmod(stat.S_IMODE(path.parent.stat().st_mode) & SHARED_FILE)


def sync_file(path: Path) -> None:
    """Make the content of the file at ``path`` durable. Raises `OSError`."""
    # Windows syncs only what may be written to.
    with path.open("rb" if _HAS_RIGHTS else "r+b") as file:
        _sync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable, where the system can. Raises `OSError`."""
    if not _HAS_RIGHTS:
        return  # Windows opens no folders
    handle = os.open(folder, os.O_RDONLY)
    try:
        _sync(handle)
    finally:
        os.close(handle)


def _sync(handle: int) -> None:
    """fsync; on macOS, where that leaves data in the drive's own cache, the call that empties it, if any."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None and fcntl is not None:
        try:
            fcntl.fcntl(handle, full)
            return
        except OSError:
            pass  # file systems over a network have none
    os.fsync(handle)


def give_name(folder: Path, name: Path) -> None:
    """Rename ``folder`` to ``name``, which must not exist, or be an empty folder. Raises `OSError`."""
    if not _HAS_RIGHTS and name.is_dir() and not any(name.iterdir()):
        name.rmdir()  # Windows puts nothing in an empty folder's place
    folder.rename(name)


def address_space_limit() -> int | None:
    """Bytes of address space that this process may have (``ulimit -v``); None where there is no limit."""
    return _limit("RLIMIT_AS")


def stack_limit() -> int | None:
    """Bytes of stack that a thread of this process may have (``ulimit -s``); None where there is no limit."""
    return _limit("RLIMIT_STACK")


def _limit(name: str) -> int | None:
    if resource is None or not hasattr(resource, name):
        return None
    limit, _ = resource.getrlimit(getattr(resource, name))
    return None if limit == resource.RLIM_INFINITY else int(limit)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
