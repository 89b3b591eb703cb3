"""A release of two linked tables, from records to what is published of both."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from topdown.config.linked_settings import LinkedConfig
from topdown.machine.parallel import thread_pool
from topdown.machine.progress import Silent, Stages
from topdown.machine.tasks import Submits
from topdown.microdata.linked_microdata import require_replaceable_linked
from topdown.microdata.previous_output import INVENTORY
from topdown.pipeline.derive import Outcome
from topdown.pipeline.linked.linked_derive import begun_linked, publish_linked, solved_together, write_records
from topdown.pipeline.linked.linked_draw import draw_linked
from topdown.tables.readers import require_encodable

LINKED_STAGES = 7
"""How many stages `run_linked` has, for a progress bar, about."""


def run_linked(
    config: LinkedConfig,
    output: Path | None = None,
    stages: Stages | None = None,
    *,
    workers: int | None = None,
    executor: Submits | None = None,
) -> Outcome:
    """Read, measure, solve both tables together, and write what ``config`` describes to ``output``/public, and linked
    records to ``output``/microdata where it says so. ``workers``: threads, by default one per processor, or, with an
    ``executor`` (as `topdown.pipeline.run.run` takes it), families that it solves at once, by default as many as it
    says.

    Noise is drawn once, as of `topdown.pipeline.run.run`: started again, a run draws the same, and makes the same of
    it. Raises `ConfigError`, `DataError`, `ProjectionError` or `BudgetError`; nothing is then left half-written.
    """
    stages = stages or Silent()
    directory = require_encodable(config.output_path if output is None else output)
    public, records = directory / "public", directory / "microdata"
    if config.output.linked_microdata:
        require_replaceable_linked(records)
    with ExitStack() as held:
        drawn, there = draw_linked(config, directory, held, stages)
        wanted = config.output.linked_microdata and not (there and os.path.lexists(records / INVENTORY))
        if there:
            stages.say(f"{public} holds this release already, complete; nothing was drawn or written")
        if not there:
            with thread_pool(workers) as threads, begun_linked(drawn, public, threads) as folder:
                solved = solved_together(config, drawn, stages, workers=workers, executor=executor)
                publish_linked(config, drawn, solved, folder, stages)
            for name in sorted(path.relative_to(public).as_posix() for path in public.rglob("*") if path.is_file()):
                stages.say(f"wrote     {public / name}")
        elif wanted:
            solved = solved_together(config, drawn, stages, workers=workers, executor=executor)
        if wanted:
            write_records(config, drawn, solved, directory, stages)
    return Outcome(public, there)
