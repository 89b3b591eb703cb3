"""Microdata: one record per person or household of a release, in partitioned Parquet, checked against the release.

This is post-processing of the release: nothing confidential is read, and no budget is spent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topdown.errors import ConfigError, DataError
from topdown.machine.files import locked, make_folder, whole_folder
from topdown.machine.progress import Silent, Stages
from topdown.microdata.leaves import Leaves, leaves_of, read_leaves
from topdown.microdata.previous_output import INVENTORY, aside, discard, settle, whole_microdata
from topdown.microdata.record_blocks import (
    PART,
    Order,
    RecordLayout,
    batch,
    part_writer,
    parts_in_order,
    parts_shuffled,
    require_order,
)
from topdown.microdata.recount import as_schema, recounted
from topdown.microdata.space import require_countable, require_space
from topdown.noise import SecureSource, Source
from topdown.release.manifest import described_file
from topdown.release.whole_counts import Release
from topdown.tables.output_formats import part_name
from topdown.tables.readers import require_encodable
from topdown.tables.tidy import named_failures, write_json
from topdown.wording import FAILED, listed, reason, shown, shown_path
from topdown.workload.schema import Schema

_SCHEMA_VERSION = "1.0"
"""The version of the format of the manifest and of the files of records."""

STATEMENT = (
    "These records are post-processing of the release: they were made from its tables only, and spend no budget "
    "beyond the release's. The records describe no real people; their tabulation is exactly the release."
)


@dataclass(frozen=True)
class Microdata:
    """Microdata that were written, or existed already.

    Args:
        directory: the folder that holds them.
        records: how many records there are.
        order: "sorted" or "shuffled".
        schema: the attributes, each a column besides the GEOID.
        files: the part-*.parquet files, in order.
        already_there: whether complete microdata existed already, so that nothing was written.

    Examples:
        >>> written = td.synthesis.microdata.synthesize("public", "microdata")
        >>> len(written.files), written.schema.names
        (1, ('cell',))
    """

    directory: Path
    records: int
    order: str
    schema: Schema
    files: tuple[Path, ...]
    already_there: bool = False


def synthesize(
    public: str | Path,
    directory: str | Path,
    *,
    schema: Schema | Mapping[str, Sequence[str]] | None = None,
    order: Order = "sorted",
    source: Source | None = None,
    stages: Stages | None = None,
) -> Microdata:
    """The records of a finished release, written as `write_microdata` does.

    Reads only release.parquet and manifest.json. If ``directory`` already contains the same microdata, complete (of
    this release by its digest, in this order and schema), nothing is written, unless a ``source`` is given. Raises
    `DataError` for a release that is not complete, `ConfigError` for a schema that is not the release's.

    Args:
        public: the directory of the release.
        directory: the folder to write.
        schema: the release's own, which is the default; only of one without attributes any other, as of
            `write_microdata`.
        order: "sorted" or "shuffled", as of `write_microdata`.
        source: of the random order; by default operating-system entropy.
        stages: shows progress; by default nothing is shown.

    Examples:
        >>> written = td.synthesis.microdata.synthesize("public", "microdata")
        >>> written.records == int(td.read_release("public").release.values[0].sum())
        True
    """
    require_order(order)
    require_encodable(Path(directory))
    with (stages or Silent()).stage("reading the release"):
        leaves = read_leaves(Path(public))
    schema = _own_schema(leaves, schema)
    return write_microdata(leaves, directory, schema=schema, order=order, source=source, stages=stages)


def _own_schema(leaves: Leaves, given: Schema | Mapping[str, Sequence[str]] | None) -> Schema:
    """The schema of the release's records. Raises `ConfigError` for one that is ``given`` and is not the release's."""
    if leaves.attributes is None:
        return as_schema(given, leaves.cells)
    own = Schema.from_mapping(leaves.attributes)
    schema = own if given is None else as_schema(given, leaves.cells)
    if schema.names != own.names:
        raise ConfigError(
            f"the schema has {listed(schema.names)}, and the release {listed(own.names)}: the schema of the release is "
            "meant, in its order"
        )
    for one, other in zip(schema.attributes, own.attributes, strict=True):
        if one.categories != other.categories:
            raise ConfigError(
                f"attribute {shown(one.name)} of the schema has {listed(one.categories)}, and that of the release "
                f"{listed(other.categories)}: the schema of the release is meant, in its order"
            )
    return schema


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

    The files have row groups of 2^20 records, all columns strings to a reader and dictionary-encoded on disk; the
    memory that is used depends on the release and not on how many records it has.

    The directory appears when it is complete, synced, and when its records, read back and tabulated, equal the release.
    An earlier directory is replaced only if Topdown wrote it, and it is complete with nothing else in it: it is renamed
    to ``.NAME.old`` while the new one takes its name, and then removed. ``.NAME.lock`` remains beside it, an empty file
    that lets only one job write at a time, and, if a job is killed, ``.NAME.partial`` until the next job.

    Args:
        release: the counts; only those of the leaves are read.
        directory: the folder to write.
        schema: splits cells that are products of attributes (see `Schema.codes`); without one, the only attribute is
            "cell".
        order: "sorted", by GEOID and then cell, or "shuffled", a uniformly random order.
        source: of the random order; by default operating-system entropy.
        stages: shows progress; by default nothing is shown.
        rows_per_file: about how many records a file holds.

    Raises `ConfigError` for a schema that does not fit the cells, an unknown order, more records than fit, a directory
    that contains anything but microdata of Topdown, and while another process writes there; `DataError` for too little
    space, for incomplete earlier microdata, for microdata that cannot be written, and if their tabulation is not the
    release.

    Examples:
        >>> written = td.synthesis.microdata.write_microdata(release, "records", source=td.SeededSource(1))
        >>> written.records == int(release.values[0].sum())
        True
    """
    require_order(order)
    stages = stages or Silent()
    if rows_per_file < 1:
        raise ConfigError(f"rows_per_file is {rows_per_file}; give 1 or more")
    leaves = leaves_of(release) if isinstance(release, Release) else release
    schema = as_schema(schema, leaves.cells)
    facts = _facts(leaves, schema, order, rows_per_file)
    require_countable(leaves.records, order, rows_per_file)
    directory = Path(directory)
    layout = RecordLayout.of(leaves, schema, order, rows_per_file)

    def made(files: Sequence[Path], *, already_there: bool = False) -> Microdata:
        return Microdata(directory, leaves.records, order, schema, tuple(sorted(files)), already_there)

    is_new = not os.path.lexists(directory)
    if is_new:
        require_space(layout, directory)  # before even the lock is made
    with _alone(directory):
        earlier = whole_microdata(directory)
        if earlier is not None and leaves.digest and source is None and _same(earlier.facts, facts):
            return made(earlier.files, already_there=True)
        if not is_new:
            require_space(layout, directory)
        with named_failures(directory), whole_folder(directory, aside=aside(directory)) as staging:
            with stages.stage("writing records"):
                parts = _write_parts(layout, source or SecureSource(), staging, fit=leaves.fit_for_release)
            with stages.stage("tabulating the records"):
                _require_equal(staging, leaves, schema)
            write_json(staging / INVENTORY, facts | {"files": {part.name: described_file(part) for part in parts}})
            whole_microdata(directory)  # nothing was put into it in the meantime
        discard(aside(directory))
    return made([directory / part.name for part in parts])


def require_replaceable(directory: Path) -> None:
    """Raise the errors of `write_microdata` about the present contents of ``directory``, and finish the replacement by
    a job that was killed.

    Args:
        directory: the folder that is to be written.

    Examples:
        >>> from pathlib import Path
        >>> td.synthesis.microdata.require_replaceable(Path("records"))  # nothing there, or an earlier output
    """
    with _alone(directory):
        whole_microdata(directory)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold the lock beside ``directory``, after finishing the replacement by a job that was killed. Raises
    `ConfigError`.
    """
    if not directory.name or directory.name == "..":
        raise ConfigError(
            f"{shown_path(directory)}: give a directory with a name; microdata are written to a directory of their own"
        )
    lock = directory.with_name(f".{directory.name}.lock")
    with ExitStack() as held:
        try:
            make_folder(directory.parent)
            held.enter_context(locked(lock))
        except BlockingIOError:
            raise ConfigError(
                f"{shown_path(directory)}: another process is writing these microdata ({shown_path(lock.name)} beside "
                "it is held); wait for it"
            ) from None
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{shown_path(directory)}: cannot be written: {reason(error, FAILED)}; correct the path or the "
                f"permissions of {shown_path(directory.parent)}"
            ) from None
        settle(directory)
        yield


def _write_parts(layout: RecordLayout, source: Source, folder: Path, *, fit: bool) -> list[Path]:
    if layout.order == "sorted":
        parts = parts_in_order(layout.cells, layout.rows_per_file)
    else:
        parts = parts_shuffled(layout.cells, source, folder / ".scattered", layout.rows_per_file)
    marks = {"statement": STATEMENT, "fit for release": str(fit), "schema version": _SCHEMA_VERSION}
    paths = []
    for number, blocks in enumerate(parts):
        paths.append(folder / part_name(number))
        with part_writer(paths[-1], layout) as writer:
            for block in blocks:
                writer.write_batch(batch(block, layout))
            writer.add_key_value_metadata(marks)
    return paths


def _facts(leaves: Leaves, schema: Schema, order: str, rows_per_file: int) -> dict[str, Any]:
    """The manifest without its files: everything that determines the records."""
    return {
        "schema_version": _SCHEMA_VERSION,
        "statement": STATEMENT,
        "release_sha256": leaves.digest or None,
        "fit_for_release": leaves.fit_for_release,
        "records": leaves.records,
        "order": order,
        "records_per_file": rows_per_file,
        "attributes": {attribute.name: list(attribute.categories) for attribute in schema.attributes},
        "cells": dict(zip(leaves.cells, cell_meanings(leaves.cells, schema), strict=True)),
    }


def _same(earlier: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether two manifests agree on everything except their files, including the order of the attributes."""
    return json.dumps({name: value for name, value in earlier.items() if name != "files"}) == json.dumps(facts)


def cell_meanings(cells: Sequence[str], schema: Schema) -> list[dict[str, str]]:
    """For every cell its category in every attribute, {attribute: category}.

    Args:
        cells: the names of the cells.
        schema: the attributes whose product they are.

    Examples:
        >>> td.synthesis.microdata.cell_meanings(schema.cells(), schema)[0]
        {'sex': 'female', 'age': 'child'}
    """
    return [
        {a.name: a.categories[k] for a, k in zip(schema.attributes, row, strict=True)}
        for row in schema.codes(cells).tolist()
    ]


def _require_equal(folder: Path, leaves: Leaves, schema: Schema) -> None:
    """Refuse records whose tabulation differs from ``leaves``."""
    own = leaves.leaf.astype(np.int64) * len(leaves.cells) + leaves.cell
    found = np.zeros(len(own), np.int64)
    for keys, times in recounted(folder, leaves.geoids, leaves.cells, schema):
        place = np.minimum(np.searchsorted(own, keys), max(0, len(own) - 1))
        strange = np.flatnonzero(own[place] != keys) if len(own) else np.arange(len(keys))
        if len(strange):
            raise _others(leaves, int(keys[strange[0]]), int(times[strange[0]]), 0)
        found[place] += times
    wrong = np.flatnonzero(found != leaves.count)
    if len(wrong):
        entry = int(wrong[0])
        raise _others(leaves, int(own[entry]), int(found[entry]), int(leaves.count[entry]))


def _others(leaves: Leaves, key: int, found: int, count: int) -> DataError:
    leaf, cell = divmod(key, len(leaves.cells))
    return DataError(
        f"unit {shown(leaves.geoids[leaf].as_py())}, cell {shown(leaves.cells[cell])}: the records read back are "
        f"{found}, the release has {count}; nothing was published. Run again, on another disk if it persists"
    )
