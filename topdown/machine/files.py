"""Files and folders that appear only when they are complete and synced, and, where they are confidential, are readable
by their owner alone. The calls of the operating system are in `topdown.machine.system`; locks are here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from topdown.machine.system import (
    NEW_FILE,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    SHARED_FILE,
    SHARED_FOLDER,
    close_to_others,
    give_name,
    sync_file,
    sync_folder,
)


@contextmanager
def whole_file(path: Path, *, private: bool = False) -> Iterator[Path]:
    """A path to write to, which becomes ``path``, synced, when the block ends, and is removed when it fails.

    The file is created exclusively and never through a link, so that nothing that somebody placed under its name is
    written to; ``private``: readable by its owner alone from its first byte. Raises `OSError`.
    """
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)  # the file of a killed run, or a link, of which only the link is removed
    os.close(os.open(partial, NEW_FILE, PRIVATE_FILE if private else SHARED_FILE))
    try:
        yield partial
        sync_file(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_folder(folder: Path, *, aside: Path | None = None) -> Iterator[Path]:
    """A folder to write into that becomes ``folder``, everything in it synced, when the block ends.

    It is made beside the final folder, so that renaming it is one step, and is removed when the block fails. ``folder``
    must not exist, or be empty, unless ``aside`` names a place beside it: an earlier folder is then moved there just
    before the new one gets its name, and moved back where that fails; the caller removes it. Parents are made. The
    caller must hold a lock, since anything under the temporary name is removed. Raises `OSError`.
    """
    staging = folder.with_name(f".{folder.name}.partial")
    make_folder(folder.parent)
    _remove(staging)
    staging.mkdir(mode=SHARED_FOLDER)
    try:
        yield staging
        for path in sorted(staging.rglob("*"), reverse=True):
            sync_folder(path) if path.is_dir() else sync_file(path)
        sync_folder(staging)
        if aside is not None and os.path.lexists(folder):
            _exchange(folder, staging, aside)
            sync_folder(folder.parent)
        else:
            _give_durably(staging, folder)
    finally:
        _remove(staging)


def _give_durably(new: Path, folder: Path) -> None:
    """Rename ``new`` to ``folder``; renamed back where that cannot be made durable."""
    give_name(new, folder)
    try:
        sync_folder(folder.parent)
    except BaseException:
        folder.rename(new)
        raise


def _exchange(folder: Path, new: Path, aside: Path) -> None:
    """Rename ``folder`` to ``aside`` and ``new`` to ``folder``; both are complete under some name at every moment."""
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
    folder.mkdir(mode=PRIVATE_FOLDER if private else SHARED_FOLDER, parents=True, exist_ok=True)
    for path in made:
        sync_folder(path.parent)
    if private:
        close_to_others(folder)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at ``path`` while the block runs; the lock ends with the process, however that ends.

    Raises `BlockingIOError` while another process holds it, `OSError` where it cannot be made.
    """
    lock = FileLock(path, timeout=0, mode=PRIVATE_FILE)
    try:
        lock.acquire()
    except Timeout:
        raise BlockingIOError(f"{path} is held by another process") from None
    try:
        yield
    finally:
        lock.release()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove(folder: Path) -> None:
    """Remove ``folder`` with everything in it; of a link only the link."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)
