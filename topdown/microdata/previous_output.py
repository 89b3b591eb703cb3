"""Existing microdata: checks that they are complete, and removes them without removing anything else.

A folder is one of Topdown's if its manifest lists every file in it. Only listed files are ever removed, and nothing
through a link. While a folder is replaced, it is kept beside as ``.NAME.old`` until the new one has its name.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topdown.errors import ConfigError, DataError, TopdownError
from topdown.machine.files import file_digest
from topdown.machine.system import sync_folder
from topdown.tables.output_formats import ANY_PART
from topdown.wording import reason, shown, shown_path

# Readers of a directory of Parquet files skip files whose names begin with an underscore.
INVENTORY = "_manifest.json"
_PART = re.compile(re.escape(ANY_PART).replace(r"\*", r"\d{5}"))
_LEFT_BY_A_KILL = re.compile(rf"{_PART.pattern}|{re.escape(INVENTORY)}(\.partial)?|\.scattered(/\d+)?")
_LARGEST_MANIFEST = 1 << 26
_MOVE_IT = "move it away, or give another directory"


@dataclass(frozen=True)
class Earlier:
    """The contents of ``folder``: its manifest's ``facts``, and which of the listed files are missing or changed."""

    folder: Path
    facts: dict[str, Any]
    missing: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """The Parquet files that the manifest lists."""
        return tuple(self.folder / name for name in sorted(self.facts["files"]))


def aside(folder: Path) -> Path:
    """The path to which ``folder`` is moved while a new one takes its name, until it is removed."""
    return folder.with_name(f".{folder.name}.old")


def whole_microdata(folder: Path) -> Earlier | None:
    """The microdata in ``folder``; None if there are none.

    Raises `ConfigError` for anything that is not completely Topdown's (a file, a link, a folder without a manifest of
    Topdown or with a file that it does not list), `DataError` for a listed file that is missing or was changed.
    """
    found = _found(folder)
    for name in () if found is None else (*found.missing, *found.changed):
        raise DataError(
            f"{shown_path(folder / name)} is not the file that {INVENTORY} lists: the microdata are incomplete or were "
            f"changed; remove {shown_path(folder)}, and they are made again from the release"
        )
    return found


def settle(folder: Path) -> None:
    """Finish the replacement of a folder by a job that was killed: the old folder gets its name back if there is no new
    one, and is removed otherwise. The caller holds the folder's lock. Raises `ConfigError` if the old folder has a file
    that is not Topdown's.
    """
    _require_leftovers(folder.with_name(f".{folder.name}.partial"))
    old = aside(folder)
    with _readable(old):
        if old.is_dir() and not old.is_symlink() and not any(old.iterdir()):
            old.rmdir()  # the job was killed after removing its last file
        found = _found(old)
        if found is None:
            return
        if found.changed:
            raise ConfigError(
                f"{shown_path(old / found.changed[0])} was changed after it was written; nothing was deleted: move "
                f"{shown_path(old)} away"
            )
        if found.missing or os.path.lexists(folder):
            discard(old)
        else:
            old.rename(folder)
            sync_folder(folder.parent)


def discard(folder: Path) -> None:
    """Remove the microdata in ``folder``, the manifest last, so that after a kill the rest is still recognised. Raises
    `ConfigError` if something else is in it, which is kept.
    """
    found = _found(folder, digests=False)
    if found is None:
        return
    with _readable(folder):
        for path in (*found.files, folder / INVENTORY):
            path.unlink(missing_ok=True)
        folder.rmdir()
        sync_folder(folder.parent)


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except TopdownError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{shown_path(folder)}: cannot be used: {reason(error)}; correct the permissions, or {_MOVE_IT}"
        ) from None


def _found(folder: Path, *, digests: bool = True) -> Earlier | None:
    with _readable(folder):
        try:
            kind = folder.lstat().st_mode
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(kind):
            raise ConfigError(
                f"{shown_path(folder)} is a link, and microdata do not replace a folder through a link; {_MOVE_IT}"
            )
        if not stat.S_ISDIR(kind):
            raise ConfigError(f"{shown_path(folder)} exists and is not a folder; {_MOVE_IT}")
        with os.scandir(folder) as entries:
            present = {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
        facts = _facts(folder, present)
        for name, is_file in sorted(present.items()):
            if name != INVENTORY and not (is_file and name in facts["files"]):
                raise ConfigError(
                    f"{shown_path(folder)} contains {shown(name)}, which its {INVENTORY} does not list; nothing was "
                    f"deleted: {_MOVE_IT}"
                )
        listed = sorted(facts["files"].items())
        missing = tuple(name for name, _ in listed if name not in present)
        changed = (n for n, file in listed if n in present and digests and file_digest(folder / n) != file["sha256"])
        return Earlier(folder, facts, missing, tuple(changed))


def _facts(folder: Path, present: dict[str, bool]) -> dict[str, Any]:
    """The manifest of ``folder``, in which ``present`` are the names and whether they are files."""
    manifest = folder / INVENTORY
    if not present.get(INVENTORY, False):
        raise ConfigError(
            f"{shown_path(folder)} exists and contains no microdata of Topdown (no file {INVENTORY}); {_MOVE_IT}"
        )
    if manifest.stat().st_size > _LARGEST_MANIFEST:
        raise ConfigError(f"{shown_path(manifest)} is larger than any manifest of Topdown; {_MOVE_IT}")
    try:
        facts = json.loads(manifest.read_text(encoding="utf-8"))
        listed = {name: file["sha256"] for name, file in facts["files"].items()}
        ours = "release_sha256" in facts and all(_PART.fullmatch(name) for name in listed)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        ours = False
    if not ours:
        raise ConfigError(
            f"{shown_path(folder)} contains no microdata of Topdown ({INVENTORY} is of another program, or "
            f"incomplete); {_MOVE_IT}"
        )
    return dict(facts)


def _require_leftovers(staging: Path) -> None:
    """Raises `ConfigError` if the folder of the temporary name has a file that Topdown does not write."""
    with _readable(staging):
        if staging.is_symlink() or not staging.exists():
            return
        if not staging.is_dir():
            raise ConfigError(
                f"{shown_path(staging)} is a file, and a folder of that name is needed temporarily; move it away"
            )
        for path in sorted(staging.rglob("*")):
            name = path.relative_to(staging).as_posix()
            if not _LEFT_BY_A_KILL.fullmatch(name):
                raise ConfigError(
                    f"{shown_path(staging)} contains {shown(name)}, which is not a temporary file of Topdown; "
                    "nothing was deleted: move it away"
                )
