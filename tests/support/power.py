"""What a disk may hold when the power goes: what was synced, and of the rest as little as a file system may keep.

A file's content is on the disk when the file was synced, its name when its folder was. Of SQLite's own files what is
there counts as synced: it syncs them itself.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from support.faults import Operation

Way = Literal["nothing more", "names alone", "half of it"]
WAYS: tuple[Way, ...] = ("nothing more", "names alone", "half of it")
"""What is on the disk beside what was synced: nothing; all names, of files that are empty; or that are cut off."""

_open, _close = os.open, os.close


@dataclass(frozen=True)
class _Node:
    """A file or a folder by its number: names in a folder, content of a file."""

    number: int
    mode: int
    content: bytes = b""
    names: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Cut:
    """The folder's state after ``operation``: every node as it is ``now``, and as it was when it was last synced.

    ``modes``: of all nodes that there ever were: a removal may be lost, too.
    """

    operation: Operation
    root: int
    now: dict[int, _Node]
    synced: dict[int, _Node]
    modes: dict[int, int]
    ledgers: dict[str, bytes]

    def restore(self, folder: Path, way: Way) -> None:
        """Make ``folder`` what is found when the power is back."""
        self._restore(self.root, folder, way)
        for name, content in self.ledgers.items():
            path = folder / name
            if path.parent.is_dir():
                path.write_bytes(content)

    def _restore(self, number: int, path: Path, way: Way) -> None:
        now, synced = self.now.get(number), self.synced.get(number)
        mode = self.modes[number]
        if stat.S_ISDIR(mode):
            path.mkdir(mode=0o700)
            held = synced if way == "nothing more" or now is None else now
            for name, inside in () if held is None else held.names:
                self._restore(inside, path / name, way)
            path.chmod(stat.S_IMODE(mode))
            return
        content = b"" if synced is None else synced.content
        if way == "half of it" and now is not None and now.content != content:
            content = now.content[: len(now.content) // 2]
        path.write_bytes(content)
        path.chmod(stat.S_IMODE(mode))

    def has(self, name: str) -> bool:
        """Whether there is something called ``name`` at this moment."""
        number = self.root
        for part in Path(name).parts:
            inside = dict(self.now[number].names).get(part)
            if inside is None:
                return False
            number = inside
        return True


@dataclass
class Recorder:
    """Told of every operation below ``folder`` (`support.faults.Disk`), it keeps a `Cut` after each."""

    folder: Path
    cuts: list[Cut] = field(default_factory=list)
    _synced: dict[int, _Node] = field(default_factory=dict)
    _modes: dict[int, int] = field(default_factory=dict)
    _held: dict[int, int] = field(default_factory=dict)
    _texts: dict[bytes, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _, self._synced = self._nodes()

    def __call__(self, when: str, operation: Operation) -> None:
        if when != "after":
            return
        name, path = operation
        root, now = self._nodes()
        if name == "fsync":
            number = os.stat(self.folder / path).st_ino
            self._synced = {**self._synced, number: now[number]}
        self.cuts.append(Cut(operation, root, now, self._synced, self._modes, self._ledgers()))

    def close(self) -> None:
        """Let go of the files."""
        for handle in self._held.values():
            _close(handle)

    def _nodes(self) -> tuple[int, dict[int, _Node]]:
        found: dict[int, _Node] = {}
        return self._node(self.folder, found), found

    def _node(self, path: Path, found: dict[int, _Node]) -> int:
        about = path.lstat()
        number = about.st_ino
        self._modes[number] = about.st_mode
        if number not in self._held:  # while it is open, no other file gets its number
            self._held[number] = _open(path, os.O_RDONLY)
        if stat.S_ISDIR(about.st_mode):
            inside = sorted(one for one in os.listdir(path) if not one.startswith("ledger.db"))
            names = tuple((one, self._node(path / one, found)) for one in inside)
            found[number] = _Node(number, about.st_mode, names=names)
        else:
            handle = self._held[number]
            content = os.pread(handle, about.st_size, 0)
            found[number] = _Node(number, about.st_mode, self._texts.setdefault(content, content))
        return number

    def _ledgers(self) -> dict[str, bytes]:
        paths = [path for path in self.folder.rglob("ledger.db*") if not path.name.endswith("-shm")]
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths}
