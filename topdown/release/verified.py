"""Verifies a release: its files against its manifest, and its counts against each other.

Reads the public directory alone, so that everybody who receives a release can verify it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import Tree
from topdown.geography.unit_sums import SpineGeography, published
from topdown.machine.files import file_digest
from topdown.machine.software import version_of
from topdown.privacy.plan import Plan
from topdown.release.answer_files import AREAS, FOLDER, area_paths, paths_of, table_counts
from topdown.release.archive import STRAY, unpacked
from topdown.release.drawing import drawing_of
from topdown.release.layouts import EVERY_CELL
from topdown.release.manifest import MALFORMED, manifest_at, privacy_of, require_version
from topdown.release.partition import GEOGRAPHY, LIMITS, RELEASE, is_part
from topdown.release.places import MANIFEST
from topdown.release.released_counts import (
    areas_of_release,
    as_described,
    as_release,
    level_sizes,
    read_cells,
    read_counts,
    released_limits,
    schema_of,
    units_of,
)
from topdown.release.whole_counts import Release
from topdown.tables.output_formats import names_of
from topdown.tables.parquet import longest_text, require_texts
from topdown.wording import FETCH, listed, reason, shown, shown_path, unquoted
from topdown.workload import Query, Schema
from topdown.workload.answer_tables import AnswerTable, answer_tables, known_columns, stated_table

_ROWS_AT_ONCE, _ENTRIES_AT_ONCE = 1 << 16, 1 << 22
"""So many rows of a table, and cells with records, are compared at once."""

_READ = {"cells", "configuration", "levels", "privacy", "projections", "schema", "title", "units"}
"""The fields of a manifest, of any version, without which nothing of a release can be read."""

_MOST_DEFECTS = 5


@dataclass(frozen=True)
class Verified:
    """A release that was verified: its directory, its ``files``, and the SHA-256 of its manifest.

    The manifest has the digests of the files, but nothing in the directory shows that the manifest is the publisher's:
    compare ``sha256`` with what the publisher states elsewhere.
    """

    public: Path
    files: tuple[str, ...]
    sha256: str


def verify_release(public: str | Path) -> Verified:
    """Make sure that a directory, or a ZIP file of it, holds a complete release and nothing else; files that file
    managers leave there (.DS_Store) are ignored.

    Every file that the manifest lists is there, with its size and its SHA-256, and no other. The whole, non-negative
    counts of release.parquet have a row for every unit and cell, and every family of geography.parquet adds up to its
    parent (in a release of an earlier version, which lacks it: every level to the root). If the measurements were made
    on a spine, all trees of geography.parquet have the same leaves, and the counts of areas are the sums of their
    leaves. In a release of several queries there is a row for every cell that has records, and no cell that the
    schema's zeros exclude has any. Every table is the sum of the counts. The manifest describes how the measurements
    were drawn, and what it says of the budget and of what is protected follows from that. Raises `DataError` that names
    the files, or the unit, at fault.

    Args:
        public: the directory, or a ZIP file of it.

    Examples:
        >>> "release.parquet" in td.verify_release("public").files
        True
    """
    with unpacked(Path(public)) as folder:
        manifest = verify_files(folder)
        plan = drawing_of(folder, manifest).plan
        if plan is not None:
            _require_privacy(folder, manifest, plan)
        with as_described(folder / RELEASE):
            _require_counts(folder, manifest)
        return Verified(Path(public), tuple(sorted(manifest["files"])), file_digest(folder / MANIFEST))


def _require_privacy(folder: Path, manifest: Mapping[str, Any], plan: Plan) -> None:
    """Refuse a manifest whose budget, or what it says is protected, does not follow from its ``plan``, where this
    version wrote it: another one may word it differently."""
    try:
        if manifest["software"]["topdown"] != version_of():
            return
        of_levels = manifest if manifest["spine"] is None else manifest["spine"]
        follows = privacy_of(plan, [one["level"] for one in of_levels["levels"]])
        wrong = [f"privacy.{name}" for name, own in follows.items() if manifest["privacy"][name] != own]
    except MALFORMED:
        wrong = ["privacy"]
    if wrong:
        raise DataError(
            f"{shown_path(folder / MANIFEST)}: what its {wrong[0]} says does not follow from the shares of the "
            f"budget; {FETCH}"
        )


def verify_files(public: Path, remedy: str = FETCH) -> dict[str, Any]:
    """The manifest of the release in ``public``, after making sure that its files are those that the manifest lists.

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
                f"{shown_path(public)}: it is the output folder of a run; give the release in it, {shown_path(inside)}"
            )
        tables = sorted(path.parent.name for path in public.glob(f"*/{MANIFEST}"))
        if len(tables) > 1:
            raise DataError(
                f"{shown_path(public)}: it holds a release of {len(tables)} tables; give the folder of one of them: "
                f"{listed(tables)}"
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
    if not whole:
        return "does not list the release's files"
    return manifest if set(manifest) >= _READ else "is not what was written"


def _is_named(name: str) -> bool:
    """Whether a release may have a file of this name: in its directory, in that of its tables, areas or parts."""
    folder = RELEASE if is_part(name) else AREAS if name.startswith(f"{AREAS}/") else FOLDER
    within = name.removeprefix(f"{folder}/")
    return Path(within).name == within and within not in ("", ".", "..") and name not in (MANIFEST, FOLDER, AREAS)


def _present(public: Path) -> dict[str, Path]:
    """The files in the directory by their paths in it, those of its tables, areas and parts included; other folders as
    they are.
    """
    found = {path.name: path for path in public.iterdir()}
    for name in (FOLDER, AREAS, RELEASE):
        within = found.get(name)
        if within is not None and within.is_dir() and not within.is_symlink():
            del found[name]
            found |= {f"{name}/{path.name}": path for path in within.iterdir()}
    return {name: path for name, path in found.items() if path.name not in STRAY}


def _defects(there: dict[str, Path], files: dict[str, dict[str, Any]]) -> list[str]:
    """What is wrong with the files, one by one."""
    found = [f"{unquoted(name)} is missing" for name in sorted(files) if name not in there]
    for name in sorted(set(files) & set(there)):
        path, known = there[name], files[name]
        if path.is_symlink() or not path.is_file():
            found.append(f"{unquoted(name)} is not a file")
        elif path.stat().st_size != known["bytes"]:
            found.append(f"{unquoted(name)} has {path.stat().st_size:,} bytes instead of {known['bytes']:,}")
        elif file_digest(path) != known["sha256"]:
            found.append(f"{unquoted(name)} is not what was written (its SHA-256 is not the manifest's)")
    return found + [f"{shown(name)} is not of this release" for name in sorted(set(there) - set(files) - {MANIFEST})]


def _require_counts(folder: Path, manifest: dict[str, Any]) -> None:
    """Refuse counts that do not add up, and tables that are not their sums; `DataError` names the unit at fault."""
    tables, limited = list(manifest.get("tables", {})), LIMITS in manifest["files"]  # since version 1.5
    schema = schema_of(folder, manifest)
    _require_columns(folder, manifest, tables, schema)
    if GEOGRAPHY not in manifest["files"] and not (tables or limited):
        for release in _levels_alone(folder, manifest, schema):
            _require_possible(folder / RELEASE, release)
        _require_named(folder, manifest, ())
        return
    geography = units_of(folder, manifest)
    release = read_counts(folder, manifest, published(geography))
    _require_possible(folder / RELEASE, release)
    if limited:
        measured = release.at(geography.turned.units) if isinstance(geography, SpineGeography) else release
        _require_limits(folder / LIMITS, measured, schema)
    asked = answer_tables(tables, schema)
    _require_named(folder, manifest, asked)
    for table in asked:
        _require_tables(folder, manifest, paths_of(table), table, release)
    for kind, counts in areas_of_release(release, geography).items():
        cells = release.cells if release.layout is EVERY_CELL else None
        table = stated_table(cells, schema, asked, margins=False)
        _require_tables(folder, manifest, area_paths(kind), table, counts)


def _require_tables(
    folder: Path, manifest: Mapping[str, Any], paths: Sequence[str], table: AnswerTable, release: Release
) -> None:
    """Refuse a table, or its estimates, at ``paths`` that does not agree with the counts of ``release``."""
    for path, column in zip(paths, (None, "value"), strict=True):
        name, _ = names_of(path)
        if column is not None and name not in manifest["files"]:
            continue  # a release in parts has no estimates of its tables
        _require_table(folder / name, table, release, column)


def _levels_alone(folder: Path, manifest: Mapping[str, Any], schema: Schema) -> Iterator[Release]:
    """A release without a table of units, as earlier versions wrote them, as one release per level: its units beneath
    the root. No more is known than that all units of a level are in the root.
    """
    path, sizes, cells = folder / RELEASE, level_sizes(folder, manifest), [str(cell) for cell in manifest["cells"]]
    units, columns = read_cells(path, sizes, cells, None, ["value"])
    ends = np.cumsum(list(sizes.values())).tolist()
    root, *levels = sizes
    for level, begin, end in zip(levels, ends, ends[1:], strict=False):
        # Siblings are in the order of their GEOIDs.
        order = begin + pc.array_sort_indices(units[begin:end]).to_numpy().astype(np.int64)
        there = np.concatenate([[0], order])
        geography = Geography((root, level), Tree.from_family_sizes([[end - begin]]), units.take(pa.array(there)))
        values = columns["value"][there]
        with as_release(path):
            yield Release.of_values(geography, cells, values, method="", fit_for_release=False, schema=schema)


def _require_possible(path: Path, release: Release) -> None:
    """Refuse records in a cell that the schema's zeros exclude."""
    if not release.schema.zeros:
        return
    for begin in range(0, int(release.starts[-1]), _ENTRIES_AT_ONCE):
        cells, counts = release.entries(slice(begin, min(begin + _ENTRIES_AT_ONCE, int(release.starts[-1]))))
        seen = np.unique(cells)
        wrong = np.flatnonzero(np.isin(cells, seen[release.schema.excluded(seen)]))
        if len(wrong):
            entry = int(wrong[0])
            node = int(np.searchsorted(release.starts, begin + entry, side="right")) - 1
            raise DataError(
                f"{shown_path(path)}: {release.described(node, int(cells[entry]))}: it has {counts[entry]}, and no "
                f"record can be in this cell (structural zero); {FETCH}"
            )


def _require_named(folder: Path, manifest: Mapping[str, Any], asked: Sequence[AnswerTable]) -> None:
    """Refuse files of tables that the manifest does not name, since they are not compared with the counts."""
    kinds = (manifest.get("spine") or {}).get("areas", {})
    named = {path for table in asked for path in paths_of(table)} | {path for k in kinds for path in area_paths(k)}
    tables = [name for name in manifest["files"] if name.startswith((f"{FOLDER}/", f"{AREAS}/"))]
    others = [name for name in tables if name.rpartition(".")[0] not in named]
    if others:
        raise DataError(
            f"{shown_path(folder)}: {unquoted(others[0])} belongs to no table that the manifest names; {FETCH}"
        )


def _require_columns(folder: Path, manifest: Mapping[str, Any], tables: Sequence[str], schema: Schema) -> None:
    """Refuse tables of more columns than their files can have, before the columns are named."""
    size = sum(facts["bytes"] for name, facts in manifest["files"].items() if name.startswith(f"{FOLDER}/"))
    queries = [Query.parse(name, schema) for name in tables if known_columns(name, schema) is None]
    if sum(query.n_answers for query in queries) > size:
        raise DataError(f"{shown_path(folder / MANIFEST)}: names tables of more columns than {FOLDER}/ has; {FETCH}")


def _require_limits(path: Path, release: Release, schema: Schema) -> None:
    """Refuse counts outside of their limits."""
    limits = released_limits(path, release.geography, schema)
    for query, (low, high) in limits.by_query.items():
        answers = release.answers_of(slice(0, release.geography.n_nodes), query)
        wrong = np.argwhere((answers < low) | (answers > high))
        if len(wrong):
            node, answer = (int(k) for k in wrong[0])
            raise DataError(
                f"{shown_path(path)}: {release.geography.describe(node)}, query {shown(query.name)}, answer "
                f"{shown(query.labels()[answer])}: {RELEASE} has {answers[node, answer]}, outside its limits; {FETCH}"
            )


def _require_table(path: Path, table: AnswerTable, release: Release, column: str | None) -> None:
    """Refuse a table whose counts are not those of the release; ``column``: the one that names the table's column, None
    where each has its own.
    """
    geography, names = release.geography, [one.name for one in table.columns]
    times = 1 if column is None else len(names)
    longest = {"geoid": longest_text(geography.identifiers)}
    require_texts(path, longest | ({} if column is None else {"column": longest_text(names)}))
    with pq.ParquetFile(path) as file:
        # A very large release has estimates of its upper levels only.
        ends = geography.level_offsets[1:] if column is not None else geography.level_offsets[-1:]
        same = file.metadata.num_rows in (times * ends).tolist()
        begin, wanted = 0, ["geoid", *(names if column is None else ["column", column])]
        # In batches: the answers of every unit of a nation would fill the memory.
        for rows in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted) if same else ():
            numbers = np.arange(begin, begin + len(rows))
            units = geography.identifiers.take(pa.array(numbers // times))
            same = rows["geoid"].cast(pa.string()).equals(units.cast(pa.string()))
            if column is not None:
                told = rows["column"].cast(pa.string())
                same = same and told.equals(pa.array(names).take(pa.array(numbers % times)))
            if not same:
                break
            first = begin // times
            expected = table_counts(table, release, slice(first, -(-(begin + len(rows)) // times)))
            if column is None:
                given = np.stack([rows[name].to_numpy(zero_copy_only=False) for name in names], axis=1)
            else:
                given = rows[column].to_numpy(zero_copy_only=False)
                expected = expected.reshape(-1)[numbers - first * times]
            wrong = np.argwhere(given != expected)
            if len(wrong):
                place = tuple(int(one) for one in wrong[0])
                row, k = begin + place[0], place[1] if column is None else (begin + place[0]) % times
                raise DataError(
                    f"{shown_path(path)}: {geography.describe(row // times)}, column {shown(names[k])}: it has "
                    f"{given[place]}, and the cells of {RELEASE} add up to {expected[place]}; {FETCH}"
                )
            begin += len(rows)
    if not same:
        raise DataError(f"{shown_path(path)}: its rows are not the units of {RELEASE}; {FETCH}")
