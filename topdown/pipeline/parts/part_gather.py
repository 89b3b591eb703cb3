"""The files of a release in parts become one public directory."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy.typing as npt

from topdown.config import RunConfig
from topdown.machine.files import file_digest
from topdown.machine.system import open_to_others
from topdown.measurements.measurements import NotKept
from topdown.noise.key import NoiseKey
from topdown.pipeline.parts.filed_release import filed_release, write_starts
from topdown.pipeline.parts.part_job import Folder, Record, held, take_bound
from topdown.pipeline.parts.part_plan import CutTree
from topdown.projection.check.certificate import Certificate, worst_of
from topdown.projection.check.cross_checks import CrossCheck
from topdown.projection.histograms.families import Programs
from topdown.projection.histograms.passes import order_by_level, order_of_plan
from topdown.projection.histograms.whole import WholeProjection
from topdown.projection.method import method_named
from topdown.release.answer_files import paths_of
from topdown.release.layouts import WITH_RECORDS
from topdown.release.manifest import Description, Origin
from topdown.release.partition import GEOGRAPHY, RELEASE_CSV, nodes_of_files
from topdown.release.publication import begun, publish
from topdown.release.whole_counts import Release
from topdown.uncertainty.margin_words import describe_margins
from topdown.workload.answer_tables import answer_tables


def cut_is_whole(folder: Folder, record: Record, key: NoiseKey) -> bool:
    """Whether everything that the parts start from is what was written, and of one release of this ``key``."""
    streams = key.streams(record.counts)
    counts = [folder.counts_above, *(folder.counts(part) for part in range(record.n_parts))]
    geography = folder.geography.exists() and file_digest(folder.geography) == record.geography
    return geography and all(take_bound(path, streams) is not None for path in counts)


def finished(cut: CutTree) -> Release:
    """The release, all of whose parts are made. Raises `Torn`."""
    write_starts(cut.folder, cut.record)
    return filed_release(cut.folder, cut.record, cut.geography)


def files_of(record: Record, release: Release) -> list[str]:
    """The paths in the public directory of what is written from the parts: the counts, and the tables of answers."""
    found = list(nodes_of_files(release)) + ([RELEASE_CSV] if record.csv else [])
    for table in answer_tables(list(record.tables), record.its_schema):
        path, _ = paths_of(table)
        found += [f"{path}.parquet", *([f"{path}.csv"] if record.csv else [])]
    return found


def publish_parts(
    config: RunConfig, cut: CutTree, names: Sequence[str], public: Path, origin: Origin
) -> dict[str, CrossCheck]:
    """Give the written files ``names``, with what describes them, the name ``public``; the second solutions that it
    states. Raises `DataError`."""
    folder, record, schema = cut.folder, cut.record, cut.record.its_schema
    certificates, programs, again = zip(
        _solved(held(folder.top)), *(_solved(held(folder.down(part))) for part in range(record.n_parts)), strict=True
    )
    settled = order_of_plan(record.its_plan, record.levels, schema, method_named(record.method), record.order)
    projection = WholeProjection(
        record.method,
        "variance",
        worst_of(certificates),
        programs=Programs.together(programs),
        order=order_by_level(record.levels, settled),
    )
    solved_again = [one for one in again if one is not None]
    checks = {"non_negative": CrossCheck.together(solved_again)} if solved_again else {}
    about = Description(
        config,
        NotKept(cut.geography, schema.cells(), schema),
        record.its_plan,
        origin,
        {"non_negative": projection},
        WITH_RECORDS,
        fit_for_release=True,  # parts draw by key
        checks=lambda: checks,
        tables=answer_tables(list(record.tables), schema),
        margins=describe_margins(config.output.confidence, left_out(record)),
    )
    with begun(public, None, fit_for_release=True) as begins:
        files: dict[str, Callable[[], object]] = {
            name: partial(_link, folder.public / name, begins.staging / name) for name in names
        }
        # Of the table of units the parts have need.
        files[GEOGRAPHY] = partial(shutil.copyfile, folder.geography, begins.staging / GEOGRAPHY)
        publish(begins, files, about)
        for name in names:
            (folder.public / name).unlink()  # below internal/ nothing is open to others
            open_to_others(begins.staging / name)
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
