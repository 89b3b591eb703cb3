"""The names of the files of a release. A large release of several queries has many files of counts: one for every unit
of the first level below the root, and one for the root.

`release.parquet` is then a folder of Parquet files with the same columns, which programs read as one table. A part has
the rows of its unit and of all units in it, level by level; the root's own rows are in a part by themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from topdown.geography.geography import Geography
from topdown.release.whole_counts import Release
from topdown.tables.output_formats import PARQUET, names_of

RELEASE, RELEASE_CSV = names_of("release")
WIDE, WIDE_CSV = names_of("release_wide")
ESTIMATES, ESTIMATES_CSV = names_of("estimates")
REPLICATES, REPLICATES_CSV = names_of("replicates")
GEOGRAPHY, MEASUREMENTS, LIMITS = (f"{stem}{PARQUET.ending}" for stem in ("geography", "measurements", "limits"))
"""The names of a release's tables."""

_ROWS_OF_ONE_FILE = 1 << 24


def nodes_of_files(release: Release) -> dict[str, list[slice] | None]:
    """The files of ``release`` by path, each with the nodes whose rows it has: one file of all nodes (None), or, where
    the layout divides many rows, a file per part.
    """
    undivided = not release.layout.divides or release.starts[-1] <= _ROWS_OF_ONE_FILE
    if undivided or len(release.geography.levels) == 1:
        return {RELEASE: None}
    return {f"{RELEASE}/{name}": nodes for name, nodes in _parts(release.geography).items()}


def _parts(geography: Geography) -> dict[str, list[slice]]:
    """The nodes of every part, level by level, by the part's file."""
    tree = geography.tree
    first = tree.level(1)
    codes = geography.identifiers.slice(0, first.stop).to_pylist()
    # Identifiers may be any text: where one cannot be a file's name everywhere, or two would have the same, parts are
    # numbered.
    plain = all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}", code) for code in codes)
    if not plain or len({code.lower() for code in codes}) < len(codes):
        codes = [f"part-{number:05d}" for number in range(len(codes))]
    found = {f"{codes[0]}{PARQUET.ending}": [slice(0, 1)]}
    for unit in range(first.start, first.stop):
        nodes, below = [slice(unit, unit + 1)], slice(unit, unit + 1)
        for _ in range(tree.n_levels - 2):
            below = tree.children_of(below)
            nodes.append(below)
        found[f"{codes[unit]}{PARQUET.ending}"] = nodes
    return found


def whole_tables(files: Mapping[str, Path]) -> dict[str, Path]:
    """``files`` by name, with one folder in place of the parts of a release."""
    return {_table_of(name): path.parent if _table_of(name) != name else path for name, path in files.items()}


def _table_of(name: str) -> str:
    return RELEASE if is_part(name) else name


def is_part(name: str) -> bool:
    """Whether ``name``, a path in the public directory, is that of a part of a release."""
    return name.startswith(f"{RELEASE}/")


def release_digest(files: Mapping[str, Any]) -> str:
    """SHA-256 of the release's counts, from a manifest's ``files``; of counts in parts as `parquet_folder.table_digest`
    computes it. Raises `KeyError` where there are none.
    """
    parts = sorted(name for name in files if is_part(name))
    if not parts:
        return str(files[RELEASE]["sha256"])
    told = "".join(f"{name.removeprefix(f'{RELEASE}/')}\0{files[name]['sha256']}\n" for name in parts)
    return hashlib.sha256(told.encode()).hexdigest()
