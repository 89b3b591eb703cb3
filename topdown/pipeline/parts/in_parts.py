"""The second half of a release in parts: distributes every step to workers, and publishes the release.

Finished steps are not repeated: a run that was stopped continues when it is started again, with the same bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from topdown.config import RunConfig
from topdown.errors import DataError
from topdown.machine.parallel import ProcessWorkers
from topdown.machine.progress import Stages
from topdown.machine.tasks import TRIES, Submits, each_done
from topdown.pipeline.charging import charged_to, confirm
from topdown.pipeline.derive import Drawn, derive
from topdown.pipeline.parts import part_steps
from topdown.pipeline.parts.filed_release import (
    add_up,
    asked_sums,
    filed_measurements,
    filed_release,
    published_release,
    write_starts,
    write_sum_starts,
)
from topdown.pipeline.parts.part_files import Written, write
from topdown.pipeline.parts.part_gather import cut_is_whole, files_of, publish_parts
from topdown.pipeline.parts.part_job import Folder, Record, Torn, named
from topdown.pipeline.parts.part_plan import CutTree
from topdown.pipeline.parts.part_steps import At
from topdown.release.partition import is_part
from topdown.wording import FAILED, reason, shown_path

Task = TypeVar("Task")

_SAID_EVERY = 60.0
"""The number of seconds between two lines that report progress."""

_MORE = 2
"""The number of tasks per worker that are submitted at once, so that a worker always has a next task."""


def derive_in_parts(
    config: RunConfig, cut: CutTree, public: Path, stages: Stages, executor: Submits, count: int
) -> None:
    """Measure, project, round and write the parts of a release, and publish them in ``public``, complete or not at all.

    ``executor``: has ``count`` workers. The files of the parts remain (`remove_parts`). Raises `ProjectionError`, and
    `DataError` where something cannot be written or a worker is lost repeatedly.
    """
    for left in range(TRIES - 1, -1, -1):
        try:
            _derive(config, cut, public, stages, executor, count)
            break
        except Torn:
            # Every step writes again what is damaged of the steps before it, except for the cut, which only `draw`
            # makes.
            if not left or not cut_is_whole(cut.folder, cut.record, cut.begun.key):
                raise


def remove_parts(folder: Folder) -> None:
    """Remove the files of a release's parts, which are as confidential as the table, when the release is complete; also
    those of a run that was killed. Raises `DataError`.
    """
    try:
        if os.path.lexists(folder.root):
            shutil.rmtree(folder.root)
    except OSError as error:
        raise DataError(
            f"{shown_path(folder.root)}: cannot be removed: {reason(error, FAILED)}; it holds confidential counts: "
            "correct the permissions and run again, which removes it: the release is made"
        ) from None


def _derive(config: RunConfig, cut: CutTree, public: Path, stages: Stages, executor: Submits, count: int) -> None:
    folder, record = cut.folder, cut.record
    work = Work(executor, count, stages)
    up = missing(record, partial(part_steps.is_up, folder, record))
    down = missing(record, partial(part_steps.is_down, folder, record))
    with stages.stage("measuring and going up"):
        work.all(part_steps.up, [At(folder.root, part) for part in up], len(up), _part)
    with stages.stage("projecting above the parts"):
        measured = part_steps.top(folder.root)
    origin = replace(cut.origin, ledger=confirm(charged_to(config), cut.journal, measured))
    if record.at_once:
        measurements = filed_measurements(folder, record, cut.geography)
        drawn = Drawn(measurements, cut.begun.ties, record.its_plan, origin, cut.limits)
        derive(config, drawn, public, stages, workers=count)
        return
    with stages.stage("projecting and rounding"):
        work.all(part_steps.down, [At(folder.root, part) for part in down], len(down), _part)
    part_steps.keep_below(folder.root)
    write_starts(folder, record)
    release = filed_release(folder, record, cut.geography)
    sums = asked_sums(folder, release)
    if sums:
        with stages.stage("adding up published units"):
            work.all(add_up, sums, len(sums), lambda one: f"{one.tree}, units from {one.first:,}")
            write_sum_starts(folder, sums)
    with stages.stage("writing the parts"):
        names = files_of(record, published_release(release))
        # Files of all units take longest; if they came last, one worker would work on them while the others wait.
        longest_first = sorted(names, key=is_part)
        work.all(write, [Written(folder.root, name) for name in longest_first], len(names), lambda one: one.name)
    work.give_memory_back()
    publish_parts(config, cut, release, names, public, origin, stages, workers=count)


def missing(record: Record, done: Callable[[int], bool]) -> list[int]:
    """The parts that are not ``done``."""
    return [part for part in range(record.n_parts) if not done(part)]


def _part(at: At) -> str:
    return f"part {named(at.part)}"


class Work:
    """Tasks on an executor, whose progress is shown."""

    def __init__(self, executor: Submits, count: int, stages: Stages) -> None:
        self._executor, self._count, self._stages = executor, count, stages

    def all(
        self, step: Callable[[Task], Any], tasks: Sequence[Task], total: int, called: Callable[[Task], str]
    ) -> None:
        """Do ``step`` for all ``tasks``."""
        began = said = perf_counter()
        for done, _ in enumerate(each_done(step, tasks, self._executor, _MORE * self._count, called), 1):
            self._stages.count(done, total)
            now = perf_counter()
            if now - said > _SAID_EVERY and done < total:
                said = now
                minutes = (now - began) / done * (total - done) / 60
                self._stages.say(f"parts     {done:,} of {total:,}, about {minutes:.0f} min left")

    def give_memory_back(self) -> None:
        """End processes of this command, which would keep hundreds of megabytes each; new work would start others."""
        if isinstance(self._executor, ProcessWorkers):
            self._executor.shutdown()
