"""The single steps of a release in parts, for array jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from topdown.config import RunConfig
from topdown.errors import ConfigError
from topdown.machine.progress import Stages
from topdown.machine.tasks import workers_of
from topdown.pipeline.draw import draw
from topdown.pipeline.parts import part_steps
from topdown.pipeline.parts.in_parts import derive_in_parts, missing, remove_parts
from topdown.pipeline.parts.part_job import Folder, Record, named
from topdown.pipeline.parts.part_plan import LEAVES_OF_A_PART, CutTree, folder_of
from topdown.pipeline.parts.part_steps import At
from topdown.wording import shown, shown_path


def cut(config: RunConfig, output: Path | None, part_size: int | None, stages: Stages) -> None:
    """Cut the tree of ``config``'s release into parts. Raises as `topdown.pipeline.run.run`."""
    directory = config.output_path if output is None else output
    with ExitStack() as held:
        found = draw(config, directory, held, stages, part_size=part_size or LEAVES_OF_A_PART)
        if isinstance(found, CutTree):
            last = named(found.record.n_parts - 1)
            stages.say(f"cut       into {found.record.n_parts:,} parts, {named(0)} to {last}: topdown part up is next")
        else:
            stages.say(f"{directory / 'public'} holds this release already, complete")


def listed_parts(config: RunConfig, output: Path | None) -> Iterator[str]:
    """A line for every part: its number, and the finished steps."""
    folder, record = _cut(config, output)
    for part in range(record.n_parts):
        up, down = part_steps.is_up(folder, record, part), part_steps.is_down(folder, record, part)
        yield " ".join([named(part), *["up"] * up, *["down"] * down])


def step(work: Callable[[At], Any], config: RunConfig, output: Path | None, part: str) -> None:
    """Do a step of one part. Raises `ConfigError` for a part that does not exist, and as the step does."""
    folder, record = _cut(config, output)
    if not part.isdecimal() or int(part) >= record.n_parts:
        last = named(record.n_parts - 1)
        raise ConfigError(f"--part {shown(part)}: there is no such part; give one from {named(0)} to {last}")
    work(At(folder.root, int(part)))


def top(config: RunConfig, output: Path | None) -> None:
    """Project the levels above the parts. Raises `ConfigError` where a part has not done the step up, and as the step
    does.
    """
    folder, record = _cut(config, output)
    _require_up(folder, record)
    with part_steps.journal(folder, record).locked():
        part_steps.top(folder.root)


def gather(config: RunConfig, output: Path | None, stages: Stages) -> None:
    """Write and publish the release. Raises `ConfigError` where a part is not done, and as a run does."""
    folder, record = _cut(config, output)
    _require_up(folder, record)
    _require_done("down", record, partial(part_steps.is_down, folder, record))
    directory = folder.root.parent.parent
    with ExitStack() as held:
        found = draw(config, directory, held, stages)
        if not isinstance(found, CutTree):
            raise ConfigError(f"{shown_path(directory)}: its parts are not whole any more; run topdown part cut again")
        executor, count = held.enter_context(workers_of(None, None))
        derive_in_parts(config, found, directory / "public", stages, executor, count)
        remove_parts(folder)


def _cut(config: RunConfig, output: Path | None) -> tuple[Folder, Record]:
    folder = folder_of(config.output_path if output is None else output)
    folder = Folder(folder.root.absolute())
    record = Record.read(folder)
    if record is None:
        raise ConfigError(f"{shown_path(folder.root)}: there are no parts; topdown part cut makes them")
    return folder, record


def _require_up(folder: Folder, record: Record) -> None:
    _require_done("up", record, partial(part_steps.is_up, folder, record))


def _require_done(name: str, record: Record, done: Callable[[int], bool]) -> None:
    left = missing(record, done)
    if left:
        raise ConfigError(
            f"{len(left):,} of {record.n_parts:,} parts have not done topdown part {name}, {named(left[0])} first"
        )
