"""A release as a ZIP file: written the same every time, verified as a directory is, and refused where it is none."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import topdown as td
from support.places import Command
from topdown.analysis.export_formats import export_release
from topdown.config import load_config
from topdown.errors import DataError
from topdown.pipeline import run as pipeline
from topdown.release.archive import write_archive


@pytest.fixture
def public(toy_run: Path) -> Path:
    return pipeline.run(load_config(toy_run)).public


def test_a_zip_file_is_verified_as_its_directory_is(public: Path, tmp_path: Path, topdown: Command) -> None:
    (path,) = export_release(public, "zip", tmp_path / "zip").files
    found, there = td.verify_release(path), td.verify_release(public)
    assert (found.sha256, found.files, found.public) == (there.sha256, there.files, path)
    assert topdown("verify", path).returncode == 0
    assert write_archive(public, tmp_path / "again.zip").read_bytes() == path.read_bytes()


def test_what_file_managers_leave_is_no_defect(public: Path, tmp_path: Path) -> None:
    (public / ".DS_Store").write_text("x")
    (public / "Thumbs.db").write_text("x")
    td.verify_release(public)
    assert td.read_release(public).release is not None
    path = write_archive(public, tmp_path / "a.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("public/.DS_Store", "x")
        archive.writestr("__MACOSX/public/._manifest.json", "x")
        archive.writestr("__MACOSX/public/manifest.json", "x")
    td.verify_release(path)
    (public / "other.txt").write_text("x")
    with pytest.raises(DataError, match=r"'other.txt' is not of this release"):
        td.verify_release(public)


def test_an_archive_whose_files_lie_at_its_top_is_read(public: Path, tmp_path: Path) -> None:
    shutil.make_archive(str(tmp_path / "flat"), "zip", public)
    assert td.verify_release(tmp_path / "flat.zip").sha256 == td.verify_release(public).sha256


def _empty(path: Path) -> None:
    with zipfile.ZipFile(path, "w"):
        pass


def _text(path: Path) -> None:
    path.write_text("no archive")


def _outside(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("public/../../evil.txt", "x")


def _beside(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("elsewhere/a.txt", "x")


def _twice(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("copy/manifest.json", "x")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2000])


def _damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[300:320] = bytes(20)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_empty, "holds 0 files manifest.json"),
        (_text, "cannot be read as a ZIP file"),
        (_outside, r"evil.txt is not of a release"),
        (_beside, r"a.txt is not of a release"),
        (_twice, "holds 2 files manifest.json"),
        (_cut, "cannot be read as a ZIP file"),
        (_damaged, "METHODS.md cannot be unpacked"),
    ],
)
def test_what_is_no_archive_of_a_release_is_refused(
    public: Path, tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    path = write_archive(public, tmp_path / "release.zip")
    spoil(path)
    with pytest.raises(DataError, match=words):
        td.verify_release(path)
    assert not list(tmp_path.rglob("evil.txt"))
