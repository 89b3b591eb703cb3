"""The counts of the leaves of a release, from which microdata are made: from memory or from the files of a finished
run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field

from topdown.errors import DataError
from topdown.release.layouts import WITH_RECORDS
from topdown.release.manifest import layout_of, manifest_at, require_version
from topdown.release.partition import release_digest
from topdown.release.released_counts import as_described, read_cells, read_counts
from topdown.release.verified import verify_files
from topdown.release.whole_counts import Release
from topdown.tables.parquet_folder import table_digest
from topdown.wording import reason, shown_path, unquoted


@dataclass(frozen=True, eq=False)
class Leaves:
    """The released counts of the leaves: ``geoids`` (Arrow strings), and of every cell that has records the ``leaf``,
    the ``cell`` and the ``count``, (entries,) each, by leaf and then cell.

    ``digest``: SHA-256 of the file that they were read from, "" in memory. ``fit_for_release``: the release's.
    ``attributes``: those whose product the cells are, with their categories, where the release has them.
    """

    geoids: pa.Array
    cells: Sequence[str]
    leaf: npt.NDArray[np.int32] = field(repr=False)
    cell: npt.NDArray[np.int32] = field(repr=False)
    count: npt.NDArray[np.int64] = field(repr=False)
    fit_for_release: bool
    digest: str = ""
    attributes: Mapping[str, Sequence[str]] | None = None

    @classmethod
    def of_values(
        cls,
        geoids: pa.Array,
        cells: Sequence[str],
        values: npt.NDArray[np.int64],
        fit_for_release: bool,
        digest: str = "",
    ) -> Leaves:
        """The leaves with the counts ``values`` (leaves x cells), which are not negative."""
        leaf, cell = np.nonzero(values)
        count = values[leaf, cell]
        return cls(geoids, cells, leaf.astype(np.int32), cell.astype(np.int32), count, fit_for_release, digest)

    @property
    def values(self) -> npt.NDArray[np.int64]:
        """The counts of every cell, (leaves x cells)."""
        found = np.zeros((len(self.geoids), len(self.cells)), np.int64)
        found[self.leaf, self.cell] = self.count
        return found

    @property
    def records(self) -> int:
        """The number of records, exactly, even beyond 64 bits."""
        return (int((self.count >> 32).sum()) << 32) + int((self.count & 0xFFFFFFFF).sum())

    def sorted(self) -> Leaves:
        """The same with the GEOIDs in ascending order of their bytes."""
        order = pc.array_sort_indices(self.geoids).to_numpy().astype(np.int32)
        if np.array_equal(order, np.arange(len(order))):
            return self
        place = np.empty_like(order)
        place[order] = np.arange(len(order), dtype=np.int32)
        entries = np.argsort(place[self.leaf], kind="stable")
        leaf, cell, count = place[self.leaf][entries], self.cell[entries], self.count[entries]
        return replace(self, geoids=self.geoids.take(pa.array(order)), leaf=leaf, cell=cell, count=count)


def leaves_of(release: Release) -> Leaves:
    """The leaves of a release in memory."""
    leaves = release.geography.tree.leaves
    leaf, cell, count = release.entries_of(leaves)
    geoids = release.geography.identifiers[leaves.start :]
    return Leaves(geoids, release.cells, leaf.astype(np.int32), cell.astype(np.int32), count, release.fit_for_release)


def read_leaves(public: Path) -> Leaves:
    """The leaves of the release in the directory ``public``, from release.parquet and manifest.json only; for several
    queries, whose rows are not a list of units, also from geography.parquet.

    Raises `DataError` for a release that is not complete: a file that is missing, cannot be read, differs from the
    manifest's (by SHA-256), or lacks rows.
    """
    table, manifest = public / "release.parquet", public / "manifest.json"
    try:
        for path in (manifest, table):
            if not path.is_file() and not (path == table and path.is_dir()):
                raise DataError(
                    f"{shown_path(path)} is missing, so the release is not complete; make it with `topdown run` first"
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
    with as_described(table):
        if facts.with_records:
            leaves = leaves_of(read_counts(public, verify_files(public)))
            return replace(leaves, digest=digest, attributes=facts.attributes)
        units, columns = read_cells(table, facts.levels, facts.cells, None, ["value"])
    first = len(units) - list(facts.levels.values())[-1]
    values = columns["value"][first:]
    if values.min() < 0:
        raise DataError(f"{shown_path(table)}: has negative counts, which a release cannot have; make it again")
    leaves = Leaves.of_values(units[first:], facts.cells, values, facts.fit_for_release, digest)
    return replace(leaves, attributes=facts.attributes)


class _Facts(BaseModel):
    """The part of a manifest that is read: what it says about the leaves."""

    model_config = ConfigDict(strict=True)

    digest: str
    cells: tuple[str, ...] = Field(min_length=1)
    levels: dict[str, Annotated[int, Field(ge=1)]] = Field(min_length=1)
    fit_for_release: bool
    with_records: bool
    attributes: dict[str, tuple[str, ...]] | None


def _facts(manifest: Path) -> _Facts:
    try:
        found = manifest_at(manifest)
        require_version(found)
        if found["cells"] is None:
            raise DataError("has too many cells for records to be made of them here")
        facts = _Facts(
            digest=release_digest(found["files"]),
            cells=tuple(found["cells"]),
            levels={level["level"]: level["nodes"] for level in found["levels"]},
            fit_for_release=found["fit_for_release"],
            with_records=layout_of(found) is WITH_RECORDS,
            attributes=found["schema"] and {name: tuple(own) for name, own in found["schema"]["attributes"].items()},
        )
        if len(set(facts.cells)) == len(facts.cells):
            return facts
    except DataError as error:
        raise DataError(f"{shown_path(manifest)}: {error}; give another release") from None
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    raise DataError(f"{shown_path(manifest)}: is not a release's manifest; make the release again")
