"""Combines the files of a release in parts into one public directory."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from topdown.config import RunConfig
from topdown.machine.files import file_digest
from topdown.machine.parallel import started, thread_pool
from topdown.machine.progress import Stages
from topdown.machine.system import open_to_others
from topdown.noise.key import NoiseKey
from topdown.pipeline.derive import Drawn, Projected, asked_tables, estimated, write_made
from topdown.pipeline.parts.array_steps import Job
from topdown.pipeline.parts.filed_release import filed_measurements
from topdown.pipeline.parts.part_job import Folder, Record, held, take_bound
from topdown.pipeline.parts.part_plan import CutTree
from topdown.projection.check.certificate import Certificate, worst_of
from topdown.projection.check.cross_checks import CrossCheck, say_agreement, solved_again
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.families import Programs
from topdown.projection.histograms.linear_answers import LinearAnswers, linear_answers
from topdown.projection.histograms.passes import order_by_level
from topdown.projection.histograms.whole import WholeProjection
from topdown.release.answer_files import paths_of
from topdown.release.manifest import Origin
from topdown.release.partition import RELEASE_CSV, nodes_of_files
from topdown.release.publication import begun
from topdown.release.whole_counts import Release
from topdown.tables.output_formats import names_of
from topdown.tables.tidy import named_failures
from topdown.workload.answer_tables import answer_tables, queries_of


def cut_is_whole(folder: Folder, record: Record, key: NoiseKey) -> bool:
    """Whether the files of the cut are complete and unchanged, and belong to one release with this ``key``."""
    streams = key.streams(record.counts)
    counts = [folder.counts_above, *(folder.counts(part) for part in range(record.n_parts))]
    geography = folder.geography.exists() and file_digest(folder.geography) == record.geography
    return geography and all(take_bound(path, streams) is not None for path in counts)


def files_of(record: Record, release: Release) -> list[str]:
    """The paths in the public directory of the files that are written from the parts: the counts, and the tables of
    answers.
    """
    found = [*nodes_of_files(release), *[RELEASE_CSV] * record.csv]
    for table in answer_tables(list(record.tables), record.its_schema):
        found += names_of(paths_of(table)[0], text=record.csv)
    return found


def publish_parts(
    config: RunConfig,
    cut: CutTree,
    release: Release,
    names: Sequence[str],
    public: Path,
    origin: Origin,
    stages: Stages,
    *,
    workers: int | None = None,
) -> None:
    """Publish the ``release`` of the measured units, of which the files ``names`` are written, with all that is made of
    the measurements, as ``public``.

    Raises `ProjectionError` where an estimate is not certified, `DataError` where something cannot be written.
    """
    folder, record, tables = cut.folder, cut.record, answer_tables(config.output.tables, cut.record.its_schema)
    measurements = filed_measurements(folder, record, cut.geography)
    drawn = Drawn(measurements, cut.begun.ties, record.its_plan, origin, cut.limits)
    with thread_pool(workers) as pool, ExitStack() as open_until:
        into = open_until.enter_context(begun(public, measurements, fit_for_release=True, executor=pool))
        estimates: dict[str, Estimate | LinearAnswers | WholeProjection] = {}
        whole, checks = _solved(record.job(drawn.ties), record, folder)
        again = started(lambda: checks, None)
        with stages.stage("estimating"):
            if config.output.estimates:
                all_read = measurements.in_memory()
                of_cells = estimated(config, all_read, None, cut.limits)
                again = started(lambda: solved_again(all_read, of_cells, record.solver, drawn.ties, cut.limits), pool)
                estimates |= of_cells
            elif asked := asked_tables(measurements, tables):
                estimates["unbiased"] = linear_answers(measurements.kept, queries_of(asked), pool)
        estimates.setdefault("non_negative", whole)
        made = Projected(estimates, again, release)
        written = {name: partial(_link, folder.public / name, into.staging / name) for name in names}

        def give_its_name() -> None:
            with named_failures(public):
                for name in names:
                    (folder.public / name).unlink()  # below internal/ nothing is open to others
                    open_to_others(into.staging / name)
            open_until.close()

        write_made(config, drawn, made, into, stages, give_its_name, written=written, workers=workers)
    say_agreement(stages, again.result())
    stages.say(f"wrote     {public}")


def _solved(job: Job, record: Record, folder: Folder) -> tuple[WholeProjection, dict[str, CrossCheck]]:
    """How the histograms of all parts were made, and the second solutions of some of them, from their files."""
    files = [held(folder.top), *(held(folder.down(part)) for part in range(record.n_parts))]
    certificate = worst_of([Certificate(**json.loads(str(one["certificate"]))) for one in files])
    programs = Programs.together([Programs(*one["programs"].tolist()) for one in files])
    order = order_by_level(record.levels, job.settled_first)
    again = [CrossCheck(**said) for one in files if (said := json.loads(str(one["cross check"]))) is not None]
    checks = {"non_negative": CrossCheck.together(again)} if again else {}
    return WholeProjection(record.method, record.weights, certificate, programs=programs, order=order), checks


def _link(source: Path, name: Path) -> None:
    """Give a file a second name, by a hard link where the system has them, so that a run that is stopped here need not
    write it again.
    """
    try:
        os.link(source, name)
    except OSError:
        shutil.copyfile(source, name)
