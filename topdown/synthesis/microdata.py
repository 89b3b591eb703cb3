"""Microdata: one record per person or household of a release, in partitioned Parquet, checked against the release.

Post-processing of the release alone: nothing confidential is read, and no budget is spent.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from topdown.errors import ConfigError, DataError
from topdown.files import file_digest, sync_folder
from topdown.noise import SecureSource, Source
from topdown.progress import Silent, Stages
from topdown.release import Release
from topdown.schema import Schema
from topdown.synthesis.leaves import Leaves, leaves_of, read_leaves
from topdown.synthesis.records import (
    PART,
    Occupied,
    Order,
    arrow_schema,
    batch,
    parts_in_order,
    parts_shuffled,
    require_order,
)
from topdown.tables import write_json

# Readers of a directory of Parquet files leave out what begins with an underscore.
MANIFEST = "_manifest.json"
# Without Arrow's own schema in the file, every reader sees plain strings; dictionaries remain an encoding.
_FORMAT = {"compression": "zstd", "compression_level": 1, "store_schema": False}
STATEMENT = (
    "These records are post-processing of the release: they were made from its tables alone, and they cost no budget "
    "beyond the release's. Whoever is described by them is made up; tabulated, they give back the release exactly."
)


@dataclass(frozen=True)
class Microdata:
    """What was written: the directory with part-*.parquet, how many records, and the schema of their columns."""

    directory: Path
    records: int
    order: str
    schema: Schema
    files: tuple[Path, ...]


def synthesize(
    public: str | Path,
    directory: str | Path,
    *,
    schema: Schema | Mapping[str, Sequence[str]] | None = None,
    order: Order = "sorted",
    source: Source | None = None,
    stages: Stages | None = None,
) -> Microdata:
    """The records of the finished release in ``public``, written to ``directory`` as `write_microdata` does.

    Reads release.parquet and manifest.json, and nothing else. Raises `DataError` for a release that is not complete.
    """
    require_order(order)
    with (stages or Silent()).stage("reading the release"):
        leaves = read_leaves(Path(public))
    return write_microdata(leaves, directory, schema=schema, order=order, source=source, stages=stages)


def write_microdata(
    release: Release | Leaves,
    directory: str | Path,
    *,
    schema: Schema | Mapping[str, Sequence[str]] | None = None,
    order: Order = "sorted",
    source: Source | None = None,
    stages: Stages | None = None,
    rows_per_file: int = PART,
) -> Microdata:
    """One record per unit counted in the leaves of ``release``: its GEOID and one column per attribute.

    ``schema`` splits cells that are products of attributes (see `Schema.codes`); without one, the only attribute is
    ``cell``. ``order``: "sorted", by GEOID and then cell, or "shuffled", a uniformly random order from ``source`` (by
    default operating-system entropy). Files of about ``rows_per_file`` records in row groups of 2^20, all columns
    strings to a reader and dictionary-encoded on disk; the memory that is used depends on the release and not on how
    many records it has. The directory appears when it is complete, and when its records, read back and tabulated,
    equal the release; an earlier one of ours is replaced.

    Raises `ConfigError` for a schema that does not fit the cells, an unknown order, and a directory that holds anything
    but microdata; `DataError` when it cannot be written, or does not read back as the release.
    """
    require_order(order)
    stages = stages or Silent()
    if rows_per_file < 1:
        raise ConfigError(f"rows_per_file is {rows_per_file}; give 1 or more")
    leaves = leaves_of(release) if isinstance(release, Release) else release
    schema = _as_schema(schema, leaves.cells)
    schema.codes(leaves.cells)
    directory = Path(directory)
    if directory.exists() and not (directory / MANIFEST).is_file():
        raise ConfigError(f"{directory} exists and holds no microdata of ours; give another directory, or move it away")
    # A name that reads beside the final one, so that giving it the final name is one step.
    staging = directory.with_name(f".{directory.name}.partial")
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        with stages.stage("writing records"):
            arranged = leaves.sorted() if order == "sorted" else leaves
            _write_parts(arranged, schema, order, source or SecureSource(), staging, rows_per_file)
        with stages.stage("tabulating the records"):
            _require_equal(staging, leaves, schema)
        write_json(staging / MANIFEST, _facts(leaves, schema, order, staging))
        sync_folder(staging)
        shutil.rmtree(directory, ignore_errors=True)
        staging.rename(directory)
        sync_folder(directory.parent)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{directory}: cannot be written: {error}; free the space or correct the path") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Microdata(directory, leaves.records, order, schema, tuple(sorted(directory.glob("part-*.parquet"))))


def _as_schema(schema: Schema | Mapping[str, Sequence[str]] | None, cells: tuple[str, ...]) -> Schema:
    if schema is None:
        return Schema.of_cells(cells)
    return schema if isinstance(schema, Schema) else Schema.from_mapping(schema)


def _write_parts(leaves: Leaves, schema: Schema, order: str, source: Source, folder: Path, rows_per_file: int) -> None:
    cells = Occupied.of(leaves, schema)
    if order == "sorted":
        parts = parts_in_order(cells, rows_per_file)
    else:
        parts = parts_shuffled(cells, source, folder / ".scattered", rows_per_file)
    marks = {"statement": STATEMENT, "fit for release": str(leaves.fit_for_release)}
    # Sorted, a reader finds a unit's row groups by their bounds; shuffled, bounds say nothing and cost half the time.
    statistics = ["geoid"] if order == "sorted" else False
    for number, blocks in enumerate(parts):
        path = folder / f"part-{number:05d}.parquet"
        with pq.ParquetWriter(path, arrow_schema(schema), write_statistics=statistics, **_FORMAT) as writer:
            for block in blocks:
                writer.write_batch(batch(block, cells, leaves.geoids, schema))
            writer.add_key_value_metadata(marks)


def _facts(leaves: Leaves, schema: Schema, order: str, folder: Path) -> dict[str, Any]:
    files = sorted(folder.glob("part-*.parquet"))
    return {
        "schema_version": "1.0",
        "statement": STATEMENT,
        "release_sha256": leaves.digest or None,
        "fit_for_release": leaves.fit_for_release,
        "records": leaves.records,
        "order": order,
        "attributes": {attribute.name: list(attribute.categories) for attribute in schema.attributes},
        "cells": dict(zip(leaves.cells, cell_meanings(leaves.cells, schema), strict=True)),
        "files": {path.name: {"sha256": file_digest(path), "bytes": path.stat().st_size} for path in files},
    }


def cell_meanings(cells: Sequence[str], schema: Schema) -> list[dict[str, str]]:
    """For every cell its category in every attribute, by name."""
    return [
        {a.name: a.categories[k] for a, k in zip(schema.attributes, row, strict=True)}
        for row in schema.codes(cells).tolist()
    ]


def tabulate(
    directory: str | Path,
    geoids: Any,
    cells: Sequence[str],
    schema: Schema | Mapping[str, Sequence[str]] | None = None,
) -> npt.NDArray[np.int64]:
    """(units x cells): how many of the directory's records lie in every unit of ``geoids`` and cell of ``cells``.

    Reads one row group at a time. Raises `DataError` for a record of a unit or category that is not among them.
    """
    schema = _as_schema(schema, tuple(cells))
    units = geoids if isinstance(geoids, pa.Array) else pa.array(geoids, pa.string())
    place = np.empty(schema.shape, dtype=np.int64)
    place[tuple(schema.codes(cells).T)] = np.arange(len(cells))
    weights = [int(w) for w in np.cumprod((1, *schema.shape[:0:-1]))[::-1]]
    found = np.zeros(len(units) * len(cells), dtype=np.int64)
    paths = sorted(Path(directory).glob("part-*.parquet"))
    if not paths:
        raise DataError(f"{directory} holds no part-*.parquet; give the directory of the microdata")
    columns = ["geoid", *schema.names]
    for path in paths:
        with pq.ParquetFile(path, read_dictionary=columns) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=columns)
                leaf = _codes(table["geoid"], units, path, "geoid")
                cell = np.zeros(len(leaf), dtype=np.int64)
                for attribute, weight in zip(schema.attributes, weights, strict=True):
                    values = pa.array(attribute.categories)
                    cell += weight * _codes(table[attribute.name], values, path, attribute.name)
                _add(found, leaf * len(cells) + place.reshape(-1)[cell])
    return found.reshape(len(units), len(cells))


def _codes(column: pa.ChunkedArray, known: pa.Array, path: Path, name: str) -> npt.NDArray[np.int64]:
    """The place of every value in ``known``, found through the dictionary."""
    pieces = []
    for chunk in column.chunks:
        place = pc.index_in(chunk.dictionary, value_set=known)
        if place.null_count or chunk.null_count:
            raise DataError(f"{path}: column {name!r} has a value that the release does not know")
        pieces.append(place.to_numpy()[chunk.indices.to_numpy()].astype(np.int64))
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)


def _add(found: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]) -> None:
    """Count ``codes`` into ``found``; the cost depends on how many there are, not on how far they are spread."""
    if not len(codes):
        return
    low, high = int(codes.min()), int(codes.max()) + 1
    if high - low <= 4 * len(codes):
        found[low:high] += np.bincount(codes - low, minlength=high - low)
    else:
        which, times = np.unique(codes, return_counts=True)
        found[which] += times


def _require_equal(folder: Path, leaves: Leaves, schema: Schema) -> None:
    found = tabulate(folder, leaves.geoids, leaves.cells, schema)
    wrong = np.argwhere(found != leaves.values)
    if len(wrong):
        leaf, cell = (int(k) for k in wrong[0])
        raise DataError(
            f"unit {leaves.geoids[leaf].as_py()!r}, cell {leaves.cells[cell]!r}: the records read back are "
            f"{found[leaf, cell]}, the release has {leaves.values[leaf, cell]}; nothing was published. Run again, on "
            "another disk if it persists"
        )
