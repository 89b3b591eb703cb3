"""Files and folders that appear whole and durably, and, where they are confidential, to their owner alone.

The only module that asks the operating system for locks, modes and synced folders.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

_PRIVATE_FILE = 0o600
_PRIVATE_FOLDER = 0o700
_SHARED_FILE = 0o666
_SHARED_FOLDER = 0o777


@contextmanager
def whole_file(path: Path, *, private: bool = False) -> Iterator[Path]:
    """A path to write to that becomes ``path``, synced, when the block ends, and vanishes when it fails.

    The file is made here, exclusively and never through a link, so that nothing that was planted under its name is
    written to; ``private``: readable by its owner alone from its first byte. Raises `OSError`.
    """
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)  # what a killed run left, or a link: the link goes, and not what it leads to
    os.close(os.open(partial, _NEW_FILE, _PRIVATE_FILE if private else _SHARED_FILE))
    try:
        yield partial
        _sync_file(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


@contextmanager
def whole_folder(folder: Path, *, private: bool = False, aside: Path | None = None) -> Iterator[Path]:
    """A folder to write into that becomes ``folder``, everything in it synced, when the block ends.

    It lies beside the final one, so that giving it the name is one step, and it vanishes when the block fails.
    ``folder`` must not exist, or be empty, unless ``aside`` names a place beside it: an earlier folder is then moved
    there just before the new one takes its name, and comes back where that fails; to remove it is the caller's. The
    parents are made. Whoever calls this holds a lock: what an earlier call left under the temporary name is taken away.
    Raises `OSError`.
    """
    staging = folder.with_name(f".{folder.name}.partial")
    make_folder(folder.parent)
    _remove(staging)
    staging.mkdir(mode=_PRIVATE_FOLDER if private else _SHARED_FOLDER)
    try:
        yield staging
        for path in sorted(staging.rglob("*"), reverse=True):
            sync_folder(path) if path.is_dir() else _sync_file(path)
        sync_folder(staging)
        if aside is not None and os.path.lexists(folder):
            _exchange(folder, staging, aside)
        else:
            staging.rename(folder)
        sync_folder(folder.parent)
    finally:
        _remove(staging)


def _exchange(folder: Path, new: Path, aside: Path) -> None:
    """Give ``new`` the name of ``folder``, which moves to ``aside``: at every moment both are whole under some name."""
    sync_folder(folder.parent)
    folder.rename(aside)
    try:
        sync_folder(folder.parent)
        new.rename(folder)
    except BaseException:
        if not os.path.lexists(folder):
            aside.rename(folder)
        raise


def make_folder(folder: Path, *, private: bool = False) -> None:
    """Make ``folder`` and its parents durably; ``private``: closed to others, also where it stood open. `OSError`."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=_PRIVATE_FOLDER if private else _SHARED_FOLDER, parents=True, exist_ok=True)
    for path in made:
        sync_folder(path.parent)
    if private and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        folder.chmod(_PRIVATE_FOLDER)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at ``path`` while the block runs; it ends with the process, however that ends.

    Raises `BlockingIOError` while another process holds it, `OSError` where it cannot be made.
    """
    lock = FileLock(path, timeout=0, mode=_PRIVATE_FILE)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(f"{path} is held by another process") from None
    try:
        yield
    finally:
        lock.release()


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable, where the system can."""
    if os.name == "nt":  # pragma: no cover  # Windows opens no folders
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _remove(folder: Path) -> None:
    """Take away ``folder`` with all that is in it; a link of that name, and not what it leads to."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)
