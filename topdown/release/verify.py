"""Whether a release is the one that was written: its files against its manifest, and its counts against each other.

Reads the public directory alone, so that whoever receives a release can do it.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.geography.tree import IntArray
from topdown.machine.files import file_digest
from topdown.release.manifest import SCHEMA_VERSION
from topdown.release.publication import GEOGRAPHY, RELEASE
from topdown.tables.geography_table import read_geography
from topdown.wording import reason, shown, shown_path, unquoted

MANIFEST = "manifest.json"

_LARGEST_MANIFEST = 1 << 26
_MOST_DEFECTS = 5
_FETCH = "get the release again from whoever published it"


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
    parent (in a release of an earlier version, which lacks it: every level to the root). Raises `DataError` that names
    the files, or the unit, at fault.
    """
    folder = Path(public)
    manifest = verify_files(folder)
    try:
        _require_sums(folder, manifest)
    except DataError:
        raise
    except (pa.ArrowException, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{shown_path(folder / RELEASE)}: cannot be read as the manifest describes it: {reason(error)}; {_FETCH}"
        ) from None
    return Verified(folder, tuple(sorted(manifest["files"])), file_digest(folder / MANIFEST))


def verify_files(public: Path, remedy: str = _FETCH) -> dict[str, Any]:
    """The manifest of the release in ``public``, of which every file is what was written, and no other is there.

    Raises `DataError` that names the files at fault and ends in ``remedy``.
    """
    try:
        there = {path.name: path for path in public.iterdir()}
        manifest = _read_manifest(there.get(MANIFEST))
        defects = [] if isinstance(manifest, str) else _defects(there, manifest["files"])
    except OSError as error:
        raise DataError(
            f"{shown_path(public)}: cannot be read as a release: {reason(error)}; correct the path or the permissions"
        ) from None
    if isinstance(manifest, str):
        raise DataError(f"{shown_path(public / MANIFEST)}: {manifest}; {remedy}")
    if defects:
        more = f" and {len(defects) - _MOST_DEFECTS} more" if len(defects) > _MOST_DEFECTS else ""
        raise DataError(f"{shown_path(public)}: {', '.join(defects[:_MOST_DEFECTS])}{more}; {remedy}")
    return manifest


def _read_manifest(path: Path | None) -> dict[str, Any] | str:
    """The manifest at ``path``, or what is wrong with it."""
    if path is None or not path.is_file():
        return "is missing"
    if path.stat().st_size > _LARGEST_MANIFEST:
        return f"has {path.stat().st_size:,} bytes, more than any manifest"
    try:
        manifest: Any = json.loads(path.read_text(encoding="utf-8"))
        files = manifest["files"]
        version = str(manifest["schema_version"])
        entry = manifest["ledger"]
        whole = RELEASE in files and (entry is None or isinstance(entry["record"], str)) and all(
            Path(name).name == name and name not in ("", ".", "..", MANIFEST)
            and isinstance(file["sha256"], str) and isinstance(file["bytes"], int)
            for name, file in files.items()
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "is not what was written"
    if version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        return f"is of version {shown(version[:20])}, and this version of Topdown knows {SCHEMA_VERSION}"
    return manifest if whole else "does not list the release's files"


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


def _require_sums(folder: Path, manifest: dict[str, Any]) -> None:
    """Refuse counts that do not add up, as far as the tables tell who belongs to whom."""
    path = folder / RELEASE
    sizes = {str(level["level"]): int(level["nodes"]) for level in manifest["levels"]}
    cells = [str(cell) for cell in manifest["cells"]]
    units, values = _read_counts(path, sizes, cells)
    ends = np.cumsum(list(sizes.values()))
    nodes = {level: slice(int(end) - size, int(end)) for (level, size), end in zip(sizes.items(), ends, strict=True)}
    parent = _parents(folder, manifest, nodes, units)
    for level, children in itertools.islice(nodes.items(), 1, None):
        above = parent[children]
        first, last = int(above.min()), int(above.max()) + 1
        sums = np.zeros_like(values[first:last])
        np.add.at(sums, above - first, values[children])
        wrong = np.argwhere(sums != values[first:last])
        if len(wrong):
            node, cell = (int(k) for k in wrong[0])
            raise DataError(
                f"{shown_path(path)}: unit {shown(units[first + node].as_py())}, cell {shown(cells[cell])}: it has "
                f"{values[first + node, cell]}, and its units of level {shown(level)} add up to {sums[node, cell]}; "
                f"{_FETCH}"
            )


def _parents(folder: Path, manifest: dict[str, Any], nodes: dict[str, slice], units: pa.Array) -> IntArray:
    """The number of every unit's parent; without a table of units this much is known: all of a level are the root."""
    if GEOGRAPHY not in manifest["files"]:
        return np.zeros(len(units), np.int64)
    geography = read_geography(folder / GEOGRAPHY)
    if list(geography.levels) != list(nodes) or not geography.identifiers.equals(units):
        raise DataError(f"{shown_path(folder / GEOGRAPHY)}: its units are not those of {RELEASE}; {_FETCH}")
    return geography.tree.parent


def _read_counts(path: Path, sizes: dict[str, int], cells: list[str]) -> tuple[pa.Array, IntArray]:
    """The units, and their counts (units x cells), after making sure that there is every unit with every cell."""
    n_nodes, n_cells = sum(sizes.values()), len(cells)
    with pq.ParquetFile(path) as file:
        if file.metadata.num_rows != n_nodes * n_cells:
            raise DataError(
                f"{shown_path(path)}: has {file.metadata.num_rows:,} rows, and the manifest {n_nodes:,} units x "
                f"{n_cells} cells; {_FETCH}"
            )
        table = file.read(columns=["geoid", "level", "cell", "value"]).combine_chunks()
    level, cell = (
        pc.index_in(table[name].cast(pa.string()), value_set=pa.array(titles)).to_numpy()
        for name, titles in (("level", list(sizes)), ("cell", cells))
    )
    geoids = table["geoid"].cast(pa.string()).combine_chunks()
    units = geoids.take(pa.array(np.arange(n_nodes) * n_cells))
    per_level = np.array(list(sizes.values())) * n_cells
    if not (
        pa.types.is_integer(table["value"].type)
        and table["value"].null_count == 0
        and np.array_equal(level, np.repeat(np.arange(len(sizes)), per_level))
        and np.array_equal(cell, np.tile(np.arange(n_cells), n_nodes))
        and units.take(pa.array(np.repeat(np.arange(n_nodes), n_cells))).equals(geoids)
    ):
        raise DataError(
            f"{shown_path(path)}: its rows are not the units of every level with their cells, in whole numbers; "
            f"{_FETCH}"
        )
    values: IntArray = table["value"].to_numpy().astype(np.int64).reshape(n_nodes, n_cells)
    negative = np.argwhere(values < 0)
    if len(negative):
        node, k = (int(j) for j in negative[0])
        raise DataError(
            f"{shown_path(path)}: unit {shown(units[node].as_py())}, cell {shown(cells[k])}: {values[node, k]} is "
            f"negative; {_FETCH}"
        )
    return units, values
