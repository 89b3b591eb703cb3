"""What lies below internal/ is closed to other users, whoever made it, at every moment of a run in parts, and whatever
the mask of new files (umask) is. Of other runs: `test_secure.py`; of studies: `tests/pipeline/test_study.py`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.killed import Killing
from support.parted import AtOnce, made
from topdown.config import load_config
from topdown.machine.parallel import ProcessWorkers
from topdown.machine.progress import Silent
from topdown.pipeline import run as pipeline
from topdown.pipeline.parts import part_commands, part_steps
from topdown.release import publication


@contextmanager
def masked(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def rights(folder: Path) -> dict[str, str]:
    """The rights of ``folder`` and of everything below it."""
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder.parent)): oct(stat.S_IMODE(path.lstat().st_mode)) for path in paths}


def open_to_others(internal: Path) -> dict[str, str]:
    """What below ``internal`` has other rights than 0700 (folders) and 0600 (files)."""
    found = rights(internal)
    closed = {name: "0o700" if (internal.parent / name).is_dir() else "0o600" for name in found}
    return {name: mode for name, mode in found.items() if mode != closed[name]}


class Watching(AtOnce):
    """An executor that looks at ``internal`` before every task, ``looked`` times; what it ``found`` open."""

    def __init__(self, internal: Path) -> None:
        super().__init__(self.look)
        self.internal, self.looked = internal, 0
        self.found: dict[str, str] = {}

    def look(self, *_: Any) -> None:
        self.looked += 1
        self.found |= open_to_others(self.internal)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077], ids=oct)
def test_a_run_in_parts_and_what_it_keeps_and_publishes(
    tmp_path: Path, mask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, internal = load_config(made(tmp_path)), tmp_path / "output" / "internal"
    executor, publish = Watching(internal), publication.write_books

    def looked(*arguments: Any) -> None:
        """When every file has its name in the folder that will be public."""
        executor.look()
        publish(*arguments)

    monkeypatch.setattr(publication, "write_books", looked)
    with masked(mask):
        pipeline.run(config, part_size=3, executor=executor, keep_parts=True)
    assert executor.looked > 20
    assert executor.found == {}
    assert open_to_others(internal) == {}
    assert {"cut", "up", "top", "down", "written"} <= {path.name for path in (internal / "parts").iterdir()}
    # What is published has the rights of any new file.
    public = tmp_path / "output" / "public"
    for name, mode in rights(public).items():
        assert mode == oct((0o777 if (public.parent / name).is_dir() else 0o666) & ~mask)


def test_workers_in_processes_of_their_own(tmp_path: Path) -> None:
    config, internal = load_config(made(tmp_path)), tmp_path / "output" / "internal"
    pool = ProcessWorkers(1, fresh=True)
    try:
        with masked(0):
            pipeline.run(config, part_size=3, executor=pool, keep_parts=True)
    finally:
        pool.shutdown()
    assert open_to_others(internal) == {}


@pytest.mark.slow
def test_a_worker_that_is_killed_leaves_nothing_open(tmp_path: Path) -> None:
    config, internal = load_config(made(tmp_path)), tmp_path / "output" / "internal"
    with masked(0):
        pool = ProcessWorkers(1, fresh=True)
        try:
            killing = Killing(pool, "write", tmp_path / "flag", 0.05)
            pipeline.run(config, part_size=3, executor=killing, workers=1, keep_parts=True)
        finally:
            pool.shutdown()
    assert (tmp_path / "flag").exists()
    assert open_to_others(internal) == {}


def test_the_steps_one_by_one(tmp_path: Path) -> None:
    config, internal = load_config(made(tmp_path)), tmp_path / "output" / "internal"
    with masked(0):
        part_commands.cut(config, None, 3, Silent())
        names = [line[:4] for line in part_commands.listed_parts(config, None)]
        for name in names:
            part_commands.step(part_steps.up, config, None, name)
        part_commands.top(config, None)
        for name in names:
            part_commands.step(part_steps.down, config, None, name)
        assert open_to_others(internal) == {}
        assert len(rights(internal)) > 3 * len(names)
        part_commands.gather(config, None, Silent())
    assert open_to_others(internal) == {}


def test_folders_that_stood_open_are_closed(tmp_path: Path) -> None:
    config, internal = load_config(made(tmp_path)), tmp_path / "output" / "internal"
    for folder in (internal, internal / "parts", internal / "parts" / "public", internal / "parts" / "written"):
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    executor = Watching(internal)
    pipeline.run(config, part_size=3, executor=executor, keep_parts=True)
    assert executor.found == {}
    assert open_to_others(internal) == {}


def test_an_open_file_or_folder_would_be_found(tmp_path: Path) -> None:
    for name in ("internal", "internal/a", "internal/b"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "internal" / "a" / "c").touch(0o600)
    (tmp_path / "internal" / "a" / "d").touch()
    (tmp_path / "internal" / "a" / "d").chmod(0o640)
    (tmp_path / "internal" / "b").chmod(0o750)
    assert open_to_others(tmp_path / "internal") == {"internal/b": "0o750", "internal/a/d": "0o640"}
