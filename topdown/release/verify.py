"""Whether a release is the one that was written: its files against its manifest, and its counts against each other.

Reads the public directory alone, so that whoever receives a release can do it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from topdown.errors import DataError
from topdown.machine.files import file_digest
from topdown.release.answer_tables import FOLDER
from topdown.release.manifest import MALFORMED, MANIFEST, manifest_at, require_version
from topdown.release.partition import RELEASE, is_part
from topdown.release.verify_counts import require_counts
from topdown.wording import FETCH, reason, shown, shown_path, unquoted

_MOST_DEFECTS = 5


@dataclass(frozen=True)
class Verified:
    """A release that is whole: its directory, its ``files``, and the SHA-256 of its manifest.

    The manifest vouches for the files, and nothing in the directory for the manifest: ``sha256`` is to be compared with
    what the publisher states elsewhere.
    """

    public: Path
    files: tuple[str, ...]
    sha256: str


def verify_release(public: str | Path) -> Verified:
    """Make sure that the directory ``public`` holds a whole release and nothing else.

    Every file that the manifest lists is there, with its size and its SHA-256, and no other. The whole, non-negative
    counts of release.parquet have a row for every unit and cell, and every family of geography.parquet adds up to its
    parent (in a release of an earlier version, which lacks it: every level to the root). Of several queries there is a
    row for every cell that has records. No cell that the schema's zeros exclude has any. Every table is what the counts
    add up to. Raises `DataError` that names the files, or the unit, at fault.
    """
    folder = Path(public)
    manifest = verify_files(folder)
    try:
        require_counts(folder, manifest)
    except DataError:
        raise
    except (pa.ArrowException, OSError, *MALFORMED) as error:
        raise DataError(
            f"{shown_path(folder / RELEASE)}: cannot be read as the manifest describes it: {reason(error)}; {FETCH}"
        ) from None
    return Verified(folder, tuple(sorted(manifest["files"])), file_digest(folder / MANIFEST))


def verify_files(public: Path, remedy: str = FETCH) -> dict[str, Any]:
    """The manifest of the release in ``public``, of which every file is what was written, and no other is there.

    Raises `DataError` that names the files at fault and ends in ``remedy``.
    """
    try:
        there = _present(public)
        manifest = _read_manifest(there.get(MANIFEST))
        defects = [] if isinstance(manifest, str) else _defects(there, manifest["files"])
    except OSError as error:
        raise DataError(
            f"{shown_path(public)}: cannot be read as a release: {reason(error)}; correct the path or the permissions"
        ) from None
    if isinstance(manifest, str):
        inside = public / "public"
        if (inside / MANIFEST).is_file():
            raise DataError(
                f"{shown_path(public)}: it is what a run wrote; give the release in it, {shown_path(inside)}"
            )
        raise DataError(f"{shown_path(public / MANIFEST)}: {manifest}; {remedy}")
    if defects:
        more = f" and {len(defects) - _MOST_DEFECTS} more" if len(defects) > _MOST_DEFECTS else ""
        raise DataError(f"{shown_path(public)}: {', '.join(defects[:_MOST_DEFECTS])}{more}; {remedy}")
    return manifest


def _read_manifest(path: Path | None) -> dict[str, Any] | str:
    """The manifest at ``path``, or what is wrong with it."""
    if path is None or not path.is_file():
        return "is missing"
    try:
        manifest = manifest_at(path)
        files = manifest["files"]
        require_version(manifest)
        entry = manifest["ledger"]
        released = any(name == RELEASE or is_part(name) for name in files)
        whole = released and (entry is None or isinstance(entry["record"], str)) and all(
            _is_named(name)
            and isinstance(file["sha256"], str) and isinstance(file["bytes"], int)
            for name, file in files.items()
        )  # fmt: skip
    except DataError as error:
        return str(error)
    except MALFORMED:
        return "is not what was written"
    return manifest if whole else "does not list the release's files"


def _is_named(name: str) -> bool:
    """Whether a release may have a file of this name: in its directory, in that of its tables or of its parts."""
    within = name.removeprefix(f"{RELEASE if is_part(name) else FOLDER}/")
    return Path(within).name == within and within not in ("", ".", "..") and name not in (MANIFEST, FOLDER)


def _present(public: Path) -> dict[str, Path]:
    """What is in the directory by its path there: of its tables' and its parts' what is in them, others themselves."""
    found = {path.name: path for path in public.iterdir()}
    for name in (FOLDER, RELEASE):
        within = found.get(name)
        if within is not None and within.is_dir() and not within.is_symlink():
            del found[name]
            found |= {f"{name}/{path.name}": path for path in within.iterdir()}
    return found


def _defects(there: dict[str, Path], files: dict[str, dict[str, Any]]) -> list[str]:
    """What is wrong with the files, one by one."""
    found = [f"{unquoted(name)} is missing" for name in sorted(files) if name not in there]
    for name in sorted(set(files) & set(there)):
        path, known = there[name], files[name]
        if path.is_symlink() or not path.is_file():
            found.append(f"{unquoted(name)} is not a file")
        elif path.stat().st_size != known["bytes"]:
            found.append(f"{unquoted(name)} has {path.stat().st_size:,} bytes and not {known['bytes']:,}")
        elif file_digest(path) != known["sha256"]:
            found.append(f"{unquoted(name)} is not what was written (its SHA-256 is another)")
    return found + [f"{shown(name)} is not of this release" for name in sorted(set(there) - set(files) - {MANIFEST})]
