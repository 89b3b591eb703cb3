"""The leaves of a release: what microdata are made of, from memory or from the files of a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from topdown.errors import DataError
from topdown.geography.geography import LONGEST_TEXT
from topdown.release.layouts import WITH_RECORDS
from topdown.release.manifest import layout_of, manifest_at, require_version
from topdown.release.partition import release_digest
from topdown.release.released_counts import read_counts
from topdown.release.verified import verify_files
from topdown.release.whole_counts import Release
from topdown.tables.parquet import longest_text, require_distinct, require_texts
from topdown.tables.parquet_folder import table_digest
from topdown.wording import reason, shown, shown_path, unquoted
from topdown.workload import DETAILED, Query

_COLUMNS = ["geoid", "level", "cell", "value"]


@dataclass(frozen=True, eq=False)
class Leaves:
    """The released counts of the leaves: ``geoids`` (Arrow strings), ``values`` (leaves x cells) int64, not negative.

    ``digest``: SHA-256 of the file that they were read from, "" in memory. ``fit_for_release``: the release's.
    """

    geoids: pa.Array
    cells: Sequence[str]
    values: npt.NDArray[np.int64] = field(repr=False)
    fit_for_release: bool
    digest: str = ""

    @property
    def records(self) -> int:
        """How many records the counts stand for, exactly, also beyond 64 bits."""
        return (int((self.values >> 32).sum()) << 32) + int((self.values & 0xFFFFFFFF).sum())

    def sorted(self) -> Leaves:
        """The same with the GEOIDs in ascending order of their bytes."""
        order = pc.array_sort_indices(self.geoids).to_numpy()
        if np.array_equal(order, np.arange(len(order))):
            return self
        return Leaves(
            self.geoids.take(pa.array(order)), self.cells, self.values[order], self.fit_for_release, self.digest
        )


def leaves_of(release: Release) -> Leaves:
    """The leaves of a release in memory."""
    start = release.geography.tree.leaves.start
    return Leaves(release.geography.identifiers[start:], release.cells, release.values[start:], release.fit_for_release)


def read_leaves(public: Path) -> Leaves:
    """The leaves of the release in the directory ``public``, from release.parquet and manifest.json and nothing else;
    of several queries, whose rows are no list of units, from geography.parquet too.

    Raises `DataError` for a release that is not complete: a file that is missing, that cannot be read, that is not the
    one that the manifest describes (by SHA-256), or that lacks rows.
    """
    table, manifest = public / "release.parquet", public / "manifest.json"
    try:
        for path in (manifest, table):
            if not path.is_file() and not (path == table and path.is_dir()):
                raise DataError(
                    f"{shown_path(path)} is not there, so the release is not complete; make it with `topdown run` first"
                )
        facts = _facts(manifest)
        digest = table_digest(table)
    except OSError as error:
        raise DataError(
            f"{shown_path(public)}: the release cannot be read: {reason(error)}; correct the path or the permissions"
        ) from None
    if digest != facts.digest:
        raise DataError(
            f"{shown_path(table)} is not the file that {manifest.name} describes (SHA-256 {digest[:12]}... and "
            f"{unquoted(facts.digest, 12)}): the release is incomplete or was changed; make it again with another "
            "--output"
        )
    if facts.with_records:
        geoids, values = _read_histograms(public)
    else:
        geoids, values = _read(table, facts)
    if len(values) != facts.nodes:
        raise DataError(
            f"{shown_path(table)} has {len(values):,} units of level {shown(facts.level)}; it needs {facts.nodes:,}"
        )
    return Leaves(geoids, facts.cells, values, facts.fit_for_release, digest)


class _Facts(BaseModel):
    """What a manifest says of the leaves: the only part of it that is read."""

    model_config = ConfigDict(strict=True)

    digest: str
    cells: tuple[str, ...] = Field(min_length=1)
    level: str
    nodes: int = Field(ge=1)
    rows: int
    fit_for_release: bool
    with_records: bool


def _facts(manifest: Path) -> _Facts:
    try:
        found = manifest_at(manifest)
        require_version(found)
        leaf = found["levels"][-1]
        facts = _Facts(
            digest=release_digest(found["files"]),
            cells=tuple(found["cells"]),
            level=leaf["level"],
            nodes=leaf["nodes"],
            rows=sum(level["nodes"] for level in found["levels"]) * len(found["cells"]),
            fit_for_release=found["fit_for_release"],
            with_records=layout_of(found) is WITH_RECORDS,
        )
        if len(set(facts.cells)) == len(facts.cells):
            return facts
    except DataError as error:
        raise DataError(f"{shown_path(manifest)}: {error}; make the release again") from None
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    raise DataError(f"{shown_path(manifest)}: is not a release's manifest; make the release again")


def _read_histograms(public: Path) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    release = read_counts(public, verify_files(public))
    leaves = release.geography.tree.leaves
    values = release.answers_of(leaves, Query.parse(DETAILED, release.schema))
    return release.geography.identifiers[leaves.start :], values


def _read(path: Path, facts: _Facts) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    cells, level = facts.cells, facts.level
    geoids: list[pa.Array] = []
    values, seen = [], 0
    torn = f"{shown_path(path)}: the rows of level {shown(level)} are not every unit with its {len(cells)} cells"
    try:
        require_distinct(path, facts.nodes)
        require_texts(path, {"geoid": LONGEST_TEXT, "level": LONGEST_TEXT, "cell": longest_text(cells)})
        with pq.ParquetFile(path) as file:
            if file.metadata.num_rows > facts.rows:
                raise DataError(f"{shown_path(path)}: has more rows than units and cells; make the release again")
            if file.schema_arrow.field("value").type != pa.int64():
                raise DataError(f"{shown_path(path)}: its values are no whole numbers; make the release again")
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=_COLUMNS)
                rows = rows.filter(pc.equal(rows["level"].cast(pa.string()), level)).combine_chunks()
                place = pc.index_in(rows["cell"].cast(pa.string()), value_set=pa.array(cells))
                if rows.num_rows == 0:
                    continue
                index = np.asarray(place.to_numpy(), dtype=np.float64)
                if not np.array_equal(index, (seen + np.arange(len(index))) % len(cells)) or rows["value"].null_count:
                    raise DataError(torn)
                seen += len(index)
                first = pa.array(np.flatnonzero(index == 0))
                geoids.extend(rows["geoid"].cast(pa.string()).take(first).chunks)
                values.append(rows["value"].to_numpy())
    except (pa.ArrowException, OSError, KeyError, UnicodeError) as error:
        raise DataError(f"{shown_path(path)}: cannot be read as a release: {reason(error)}") from None
    if not values or seen % len(cells):
        raise DataError(f"{shown_path(path)}: has no complete unit of level {shown(level)}; make the release again")
    counts = np.concatenate(values).reshape(-1, len(cells))
    units = pa.concat_arrays(geoids)
    if counts.min() < 0:
        raise DataError(f"{shown_path(path)}: has negative counts, and a release has none; make it again")
    if units.null_count or len(pc.unique(units)) != len(counts):
        raise DataError(torn)
    return units, counts
