"""The leaves of a release: what microdata are made of, from memory or from the files of a finished run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import DataError
from topdown.files import file_digest
from topdown.release import Release

_COLUMNS = ["geoid", "level", "cell", "value"]


@dataclass(frozen=True, eq=False)
class Leaves:
    """The released counts of the leaves: ``geoids`` (Arrow strings), ``values`` (leaves x cells) int64, not negative.

    ``digest``: SHA-256 of the file that they were read from, "" in memory. ``fit_for_release``: the release's.
    """

    geoids: pa.Array
    cells: tuple[str, ...]
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
    """The leaves of the release in the directory ``public``, from release.parquet and manifest.json and nothing else.

    Raises `DataError` for a release that is not complete: a file that is missing, that is not the one the manifest
    describes (by SHA-256), or that lacks rows.
    """
    table, manifest = public / "release.parquet", public / "manifest.json"
    for path in (manifest, table):
        if not path.is_file():
            raise DataError(f"{path} is not there, so the release is not complete; make it with `topdown run` first")
    try:
        facts = json.loads(manifest.read_text(encoding="utf-8"))
        wanted = facts["files"][table.name]["sha256"]
        cells, level = tuple(facts["cells"]), facts["levels"][-1]
        fit = bool(facts["fit_for_release"])
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, IndexError, TypeError) as error:
        raise DataError(f"{manifest}: is not a release's manifest ({error!r}); make the release again") from error
    digest = file_digest(table)
    if digest != wanted:
        raise DataError(
            f"{table} is not the file that {manifest.name} describes (SHA-256 {digest[:12]}... and {wanted[:12]}...): "
            "the release is incomplete or was changed; make it again with another --output"
        )
    geoids, values = _read(table, cells, level["level"])
    if len(values) != level["nodes"]:
        raise DataError(f"{table} has {len(values):,} units of level {level['level']!r}; it needs {level['nodes']:,}")
    return Leaves(geoids, cells, values, fit, digest)


def _read(path: Path, cells: tuple[str, ...], level: str) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    geoids, values, seen = [], [], 0
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=_COLUMNS)
                rows = rows.filter(pc.equal(rows["level"].cast(pa.string()), level)).combine_chunks()
                place = pc.index_in(rows["cell"].cast(pa.string()), value_set=pa.array(cells))
                if rows.num_rows == 0:
                    continue
                index = np.asarray(place.to_numpy(), dtype=np.float64)
                if not np.array_equal(index, (seen + np.arange(len(index))) % len(cells)) or rows["value"].null_count:
                    raise DataError(
                        f"{path}: the rows of level {level!r} are not every unit with its {len(cells)} cells"
                    )
                seen += len(index)
                first = pa.array(np.flatnonzero(index == 0))
                geoids.extend(rows["geoid"].cast(pa.string()).take(first).chunks)
                values.append(rows["value"].to_numpy())
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as a release: {error}") from error
    if not values or seen % len(cells):
        raise DataError(f"{path}: has no complete unit of level {level!r}; make the release again")
    counts = np.concatenate(values).reshape(-1, len(cells))
    if counts.min() < 0:
        raise DataError(f"{path}: has negative counts, and a release has none; make it again")
    return pa.concat_arrays(geoids), counts
