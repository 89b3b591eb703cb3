"""The files of a release in parts become one public directory."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from topdown.config import RunConfig
from topdown.machine.files import file_digest, make_folder, whole_folder
from topdown.machine.system import open_to_others
from topdown.measurements.measurements import NotKept
from topdown.noise.key import NoiseKey
from topdown.parts.filed import FiledRelease, write_starts
from topdown.parts.job import Folder, Record, held, take_bound
from topdown.pipeline.part_plan import Cut
from topdown.projection.certificate import Certificate, worst_of
from topdown.projection.cross_checks import CrossCheck
from topdown.projection.families import Programs
from topdown.projection.method import method_named
from topdown.projection.passes import order_by_level, order_of_plan
from topdown.projection.whole import WholeProjection
from topdown.release.answer_tables import paths_of
from topdown.release.catalogue import Catalogue
from topdown.release.codebook import Own, counted_table, sparse_release
from topdown.release.manifest import Origin, describe_release
from topdown.release.partition import nodes_of_files
from topdown.release.publication import GEOGRAPHY, RELEASE_CSV, named_failures, write_books
from topdown.uncertainty.words import describe_margins
from topdown.workload.answer_tables import answer_tables


def cut_is_whole(folder: Folder, record: Record, key: NoiseKey) -> bool:
    """Whether everything that the parts start from is what was written, and of one release of this ``key``."""
    streams = key.streams(record.counts)
    counts = [folder.counts_above, *(folder.counts(part) for part in range(record.n_parts))]
    geography = folder.geography.exists() and file_digest(folder.geography) == record.geography
    return geography and all(take_bound(path, streams) is not None for path in counts)


def finished(cut: Cut) -> FiledRelease:
    """The release, all of whose parts are made. Raises `Torn`."""
    write_starts(cut.folder, cut.record)
    return FiledRelease.of(cut.folder, cut.record, cut.geography)


def files_of(record: Record, release: FiledRelease) -> list[str]:
    """The paths in the public directory of what is written from the parts: the counts, and the tables of answers."""
    found = list(nodes_of_files(release)) + ([RELEASE_CSV] if record.csv else [])
    for table in answer_tables(list(record.tables), record.its_schema):
        path, _ = paths_of(table)
        found += [f"{path}.parquet", *([f"{path}.csv"] if record.csv else [])]
    return found


def publish_parts(
    config: RunConfig, cut: Cut, names: Sequence[str], public: Path, origin: Origin
) -> dict[str, CrossCheck]:
    """Give the written files ``names``, with what describes them, the name ``public``; the second solutions that it
    states. Raises `DataError`."""
    folder, record = cut.folder, cut.record
    schema, plan = record.its_schema, record.its_plan
    certificates, programs, again = zip(
        _solved(held(folder.top)), *(_solved(held(folder.down(part))) for part in range(record.n_parts)), strict=True
    )
    settled = order_of_plan(plan, record.levels, schema, method_named(record.method), record.order)
    projection = WholeProjection(
        record.method,
        "variance",
        worst_of(certificates),
        programs=Programs.together(programs),
        order=order_by_level(record.levels, settled),
    )
    projections = {"non_negative": projection}
    solved_again = [one for one in again if one is not None]
    checks = {"non_negative": CrossCheck.together(solved_again)} if solved_again else {}
    measurements = NotKept(cut.geography, schema.cells(), schema)
    tables = answer_tables(list(record.tables), schema)
    own: Own = sparse_release(schema)
    for table in tables:
        own = {**own, **counted_table(table)}
    margins = describe_margins(config.output.confidence, left_out(record))
    with named_failures(public), whole_folder(public) as staging:
        written = {name: staging / name for name in [*names, GEOGRAPHY]}
        for name in names:
            make_folder(written[name].parent)
            _link(folder.public / name, written[name])
        shutil.copyfile(folder.geography, written[GEOGRAPHY])  # of which the parts have need
        write_books(
            staging,
            written,
            lambda files: describe_release(
                config,
                measurements,
                plan,
                projections,
                checks,
                None,
                files,
                origin,
                {table.name: f"{paths_of(table)[0]}.parquet" for table in tables},
                margins,
            ),
            config.title,
            plan,
            measurements,
            cut.notices,
            Catalogue(**config.catalogue.model_dump()),
            own,
            [str(margins["statement"])],
        )
        for name in names:
            (folder.public / name).unlink()  # below internal/ nothing is open to others
            open_to_others(written[name])
    return checks


def _solved(found: Mapping[str, npt.NDArray[Any]]) -> tuple[Certificate, Programs, CrossCheck | None]:
    """The certificate of a piece's histograms, how many programs they solve, and its second solution if there is one,
    from its file."""
    again = json.loads(str(found["cross check"]))
    return (
        Certificate(**json.loads(str(found["certificate"]))),
        Programs(*found["programs"].tolist()),
        None if again is None else CrossCheck(**again),
    )


def left_out(record: Record) -> str:
    """What a release in parts has not, in words."""
    return (
        f"it was made in {record.n_parts:,} parts, cut at level {record.levels[record.level]!r}, of which no "
        "measurements and no estimates are kept, so that there is no measurements.parquet and nothing beside the "
        "tables of answers"
    )


def _link(source: Path, name: Path) -> None:
    """Give a file another name, beside the first where the system can: what is stopped here need not be made again."""
    try:
        os.link(source, name)
    except OSError:
        shutil.copyfile(source, name)
