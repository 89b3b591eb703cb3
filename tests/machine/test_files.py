from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from topdown.machine import files
from topdown.machine.files import locked, make_folder, whole_file, whole_folder


@pytest.fixture
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("_open_umask")
def test_a_private_file_is_closed_from_its_first_byte(tmp_path: Path) -> None:
    with whole_file(tmp_path / "a", private=True) as partial:
        assert mode(partial) == 0o600
        partial.write_text("count")
    assert mode(tmp_path / "a") == 0o600
    with whole_file(tmp_path / "b") as partial:
        partial.write_text("public")
    assert mode(tmp_path / "b") == 0o666


def test_what_was_planted_under_the_temporary_name_is_not_written_to(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("untouched")
    for plant in (Path.symlink_to, Path.hardlink_to):
        plant(tmp_path / "a.partial", theirs)
        with whole_file(tmp_path / "a", private=True) as partial:
            assert not partial.is_symlink()
            partial.write_text("count")
        assert theirs.read_text() == "untouched"
        assert (tmp_path / "a").read_text() == "count"


def test_a_link_planted_in_the_moment_before_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("untouched")
    opened = os.open

    def planted(path: Path, flags: int, mode: int) -> int:
        Path(path).symlink_to(theirs)
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", planted)
    with pytest.raises(FileExistsError), whole_file(tmp_path / "a") as partial:
        partial.write_text("count")
    assert theirs.read_text() == "untouched"


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), whole_folder(tmp_path / "to" / "public") as staging:
        (staging / "sub" / "part").write_text("in a folder that is not there")
    assert list((tmp_path / "to").iterdir()) == []
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").touch()
    (tmp_path / "to" / ".public.partial").symlink_to(tmp_path / "elsewhere")
    with whole_folder(tmp_path / "to" / "public") as staging:
        (staging / "sub").mkdir()
        (staging / "sub" / "part").write_text("whole")
        assert not (tmp_path / "to" / "public").exists()
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["public"]
    assert (tmp_path / "to" / "public" / "sub" / "part").read_text() == "whole"
    assert (tmp_path / "elsewhere" / "kept").exists()


def test_a_folder_whose_name_is_not_durable_does_not_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever asks again is told that something is there already."""

    def failing(folder: Path) -> None:
        if folder == tmp_path and (tmp_path / "a").exists():
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "sync_folder", failing)
    with pytest.raises(OSError, match="Input/output error"), whole_folder(tmp_path / "a") as staging:
        (staging / "b").write_text("1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_open_umask")
def test_a_private_folder_is_closed_also_where_it_stood_open(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b", private=True)
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o777, 0o700)
    (tmp_path / "c").mkdir()
    make_folder(tmp_path / "c", private=True)
    assert mode(tmp_path / "c") == 0o700


def test_one_process_holds_a_lock_and_its_end_frees_it(tmp_path: Path) -> None:
    holding = (
        "import sys, time; from pathlib import Path; from topdown.machine.files import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", holding, str(tmp_path / "lock")], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError), locked(tmp_path / "lock"):
            pass
        other.kill()
    with locked(tmp_path / "lock"):
        assert mode(tmp_path / "lock") == 0o600
