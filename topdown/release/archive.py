"""A release as one ZIP file: written to be sent on, and unpacked before it is verified."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from topdown.errors import DataError
from topdown.machine.files import whole_file
from topdown.release.places import LINK, MANIFEST
from topdown.tables.output_formats import PARQUET
from topdown.wording import FETCH, reason, shown_path, unquoted

ARCHIVE = "release.zip"

_FOLDER = "public"
_MOST_FILES, _LARGEST_NAME = 1 << 20, 400
_BEGINNING = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a ZIP file can state. All entries have it, so that the same release gives the same bytes."""
_PACKED = (PARQUET.ending,)
"""Endings of files that are compressed already."""

STRAY = (".DS_Store", "Thumbs.db", "desktop.ini")
"""Files that file managers leave in folders and archives; archives of macOS have `_STRAY_FOLDER` too."""
_STRAY_FOLDER = "__MACOSX"


def write_archive(public: Path, path: Path) -> Path:
    """Write the files of the release in ``public`` into a ZIP file at ``path``, beneath a folder public/."""
    with (
        whole_file(path) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive,
    ):
        for one in sorted(public.rglob("*")):
            if one.is_file() and one.name not in STRAY:
                name = PurePosixPath(_FOLDER, one.relative_to(public).as_posix())
                entry = zipfile.ZipInfo(str(name), _BEGINNING)
                entry.external_attr = 0o100644 << 16
                entry.compress_type = zipfile.ZIP_STORED if one.suffix in _PACKED else zipfile.ZIP_DEFLATED
                entry.file_size = one.stat().st_size  # entries beyond 2^31 bytes have another header
                with one.open("rb") as source, archive.open(entry, "w") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
    return path


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The release in the ZIP file at ``path``, unpacked into a temporary directory for as long as the block runs; a
    ``path`` that is no ZIP file is given as it is.

    The release is the folder of the one manifest in the archive, or of the one link.json, which two linked tables have
    beside both; files that file managers add are left out. Raises `DataError` for a file that is no archive of a
    release, for names that lead out of the folder, and for more bytes than there is room for; one that the block raises
    names ``path`` in place of the temporary directory.
    """
    if path.suffix.lower() != ".zip" or not path.is_file():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="topdown-") as place:
        inside = Path(place, _FOLDER)
        try:
            with zipfile.ZipFile(path) as archive:
                _unpack(path, archive, inside)
            yield inside
        except DataError as error:
            raise type(error)(str(error).replace(str(inside), str(path))) from None
        except zipfile.BadZipFile as error:
            raise DataError(f"{shown_path(path)}: cannot be read as a ZIP file: {reason(error)}; {FETCH}") from None


def _unpack(path: Path, archive: zipfile.ZipFile, place: Path) -> None:
    """Unpack the release into the directory ``place``, which is made."""
    entries = [one for one in archive.infolist() if not one.is_dir() and not _is_stray(one.filename)]
    paths = [PurePosixPath(one.filename) for one in entries]
    # Of two linked tables each has a manifest, in a folder of its own.
    homes, of_tables = ([one.parent for one in paths if one.name == name] for name in (LINK, MANIFEST))
    homes = homes or of_tables
    if len(homes) != 1:
        raise DataError(f"{shown_path(path)}: holds {len(homes)} files {MANIFEST}, and a release has one; {FETCH}")
    size, room = sum(one.file_size for one in entries), shutil.disk_usage(place.parent).free
    if len(entries) > _MOST_FILES or size > room:
        raise DataError(
            f"{shown_path(path)}: holds {len(entries):,} files of {size:,} bytes, and {shown_path(place.parent)} has "
            f"room for {room:,}; free the space, or unpack it elsewhere"
        )
    for entry in entries:
        name = PurePosixPath(entry.filename)
        inside = name.is_relative_to(homes[0]) and ".." not in name.parts and not name.is_absolute()
        if not inside or len(entry.filename) > _LARGEST_NAME or entry.flag_bits & 0x1:
            raise DataError(f"{shown_path(path)}: {unquoted(entry.filename)} is not of a release; {FETCH}")
        target = place / name.relative_to(homes[0])
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, target.open("xb") as file:
                _copy(source, file, entry.file_size)
        except (OSError, EOFError, ValueError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(
                f"{shown_path(path)}: {unquoted(entry.filename)} cannot be unpacked: {reason(error)}; {FETCH}"
            ) from None


def _copy(source: IO[bytes], file: IO[bytes], size: int) -> None:
    """Copy at most ``size`` bytes; an entry may unpack to more than its header says."""
    left = size
    while left > 0:
        piece = source.read(min(left, 1 << 20))
        if not piece:
            raise EOFError("it ends too early")
        file.write(piece)
        left -= len(piece)
    if source.read(1):
        raise ValueError("it is longer than it says")


def _is_stray(name: str) -> bool:
    path = PurePosixPath(name)
    return path.name in STRAY or path.parts[:1] == (_STRAY_FOLDER,)
