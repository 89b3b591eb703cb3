"""What a process does to the files below a folder, one operation after the other: counted, told, or made to fail.

Python's files and folders, the files that pyarrow writes, and the statements of SQLite, which fails as a whole: how it
keeps its own file is its own affair.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

Operation = tuple[str, str]
"""What is done, and to which path below the folder."""

WRITES = ("write", "sendfile", "open", "mkdir", "link", "sql")
"""What takes room on a disk."""

_PATHS = ("unlink", "rmdir", "mkdir", "chmod")
_PAIRS = ("rename", "replace", "link")
_NO_ROOM = {errno.ENOSPC: "database or disk is full", errno.EIO: "disk I/O error"}
_CHANGES = ("PRAGMA journal_mode", "PRAGMA wal_checkpoint", "BEGIN", "CREATE", "INSERT", "COMMIT")


class Disk:
    """The operations below ``folder``, in ``done``, of which number ``fails`` fails with ``error``.

    ``lasting``: so do all after it that take room, as on a full disk. ``seen``: is told of each before it is done, and
    after it.
    """

    def __init__(
        self,
        folder: Path,
        fails: int | None = None,
        error: int = errno.EIO,
        *,
        lasting: bool = False,
        seen: Callable[[str, Operation], None] = lambda *_: None,
    ) -> None:
        self.folder, self.fails, self.error, self.lasting, self.seen = (
            os.path.realpath(folder),
            fails,
            error,
            lasting,
            seen,
        )
        self.done: list[Operation] = []
        self._lock = threading.RLock()

    def __call__(
        self, name: str, path: str | None, work: Callable[[], Any], torn: Callable[[], Any] = lambda: None
    ) -> Any:
        """Do ``work``, or what is left of it where it fails (``torn``)."""
        if path is None:
            return work()
        with self._lock:
            operation = (name, path)
            self.done.append(operation)
            number = len(self.done)
            if self.fails is not None and (
                number == self.fails or (self.lasting and number > self.fails and name in WRITES)
            ):
                torn()
                if name == "sql":
                    raise sqlite3.OperationalError(_NO_ROOM[self.error])
                raise OSError(self.error, os.strerror(self.error), path)
            self.seen("before", operation)
            found = work()
            self.seen("after", operation)
            return found

    def below(self, path: Any, dir_fd: int | None = None) -> str | None:
        """``path`` from the folder on; None where it lies elsewhere."""
        if isinstance(path, int):
            try:
                whole = os.readlink(f"/proc/self/fd/{path}")
            except OSError:
                return None
        else:
            above = os.getcwd() if dir_fd is None else os.readlink(f"/proc/self/fd/{dir_fd}")
            parent, name = os.path.split(os.path.join(above, os.fspath(path)))
            whole = os.path.join(os.path.realpath(parent), name)
        inside = whole == self.folder or whole.startswith(self.folder + os.sep)
        return os.path.relpath(whole, self.folder) if inside else None


@contextmanager
def watched(disk: Disk) -> Iterator[Disk]:
    """While the block runs, every operation goes through ``disk``."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _PATHS:
            patch.setattr(os, name, _of_path(disk, name, getattr(os, name)))
        for name in _PAIRS:
            patch.setattr(os, name, _of_pair(disk, name, getattr(os, name)))
        patch.setattr(os, "fsync", _of_handle(disk, "fsync", os.fsync))
        patch.setattr(os, "sendfile", _of_handle(disk, "sendfile", os.sendfile))
        patch.setattr(os, "open", _opened(disk, os.open))
        usual = io.open
        patch.setattr(io, "open", _files(disk, usual))
        patch.setattr(builtins, "open", _files(disk, usual))
        patch.setattr(pq, "ParquetWriter", _parquet(disk))
        patch.setattr(sqlite3, "connect", _sqlite(disk, sqlite3.connect))
        yield disk


def _of_path(disk: Disk, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def operation(path: Any, *arguments: Any, dir_fd: int | None = None, **options: Any) -> Any:
        given = {} if dir_fd is None else {"dir_fd": dir_fd}
        return disk(name, disk.below(path, dir_fd), lambda: function(path, *arguments, **given, **options))

    return operation


def _of_pair(disk: Disk, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def operation(source: Any, target: Any, **options: Any) -> Any:
        return disk(name, disk.below(target), lambda: function(source, target, **options))

    return operation


def _of_handle(disk: Disk, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def operation(handle: Any, *arguments: Any) -> Any:
        number = handle if isinstance(handle, int) else handle.fileno()
        return disk(name, disk.below(number), lambda: function(handle, *arguments))

    return operation


def _opened(disk: Disk, function: Callable[..., Any]) -> Callable[..., Any]:
    def operation(path: Any, flags: int, *arguments: Any, dir_fd: int | None = None, **options: Any) -> Any:
        given = {} if dir_fd is None else {"dir_fd": dir_fd}
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        where = disk.below(path, dir_fd) if writes else None
        return disk("open", where, lambda: function(path, flags, *arguments, **given, **options))

    return operation


class _File(io.FileIO):
    """A file of which every write is an operation; of one that fails half is written."""

    disk: Disk
    where: str

    def write(self, data: Any) -> int:
        content = bytes(data)
        usual = super().write
        return int(self.disk("write", self.where, lambda: usual(content), lambda: usual(content[: len(content) // 2])))


def _files(disk: Disk, usual: Callable[..., Any]) -> Callable[..., Any]:
    def opened(
        file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None, newline: Any = None,
        closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        path = None if isinstance(file, int) else disk.below(file)
        if path is None or not set(mode) & set("wax+"):
            return usual(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = disk("open", path, lambda: _File(file, mode.replace("b", "").replace("t", "")))
        raw.disk, raw.where = disk, path
        held = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return held if "b" in mode else io.TextIOWrapper(held, encoding, errors, newline)

    return opened


def _parquet(disk: Disk) -> type[pq.ParquetWriter]:
    usual = pq.ParquetWriter

    class Writer(usual):  # type: ignore[misc, valid-type]
        own: Any = None

        def __init__(self, where: Any, *arguments: Any, **options: Any) -> None:
            if isinstance(where, (str, Path)) and disk.below(where) is not None:
                where = self.own = open(where, "wb")  # noqa: SIM115 # closed when the table is
            super().__init__(where, *arguments, **options)

        def close(self) -> None:
            super().close()
            if self.own is not None:
                self.own.close()

    return Writer


def _sqlite(disk: Disk, connect: Callable[..., Any]) -> Callable[..., Any]:
    def connected(path: Any, *arguments: Any, **options: Any) -> Any:
        where = None if options.get("uri") else disk.below(path)

        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *values: Any) -> Any:
                if not statement.strip().startswith(_CHANGES):
                    return super().execute(statement, *values)
                found = disk("sql", where, lambda: super(Connection, self).execute(statement, *values))
                if statement == "COMMIT":
                    disk("sql", where, lambda: None)  # it is done, and is said to have failed
                return found

        return disk("open", where, lambda: connect(path, *arguments, factory=Connection, **options))

    return connected
