"""The main job: makes a consistent, publishable release from a table of counts."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from topdown.config import RunConfig
from topdown.errors import ConfigError
from topdown.machine.progress import Silent, Stages
from topdown.machine.tasks import Submits, workers_of
from topdown.measurements.journal import Journal
from topdown.microdata import written_records as microdata
from topdown.microdata.record_blocks import Order
from topdown.microdata.written_records import Microdata
from topdown.pipeline.already_released import require_no_other
from topdown.pipeline.derive import Outcome, derive
from topdown.pipeline.draw import draw
from topdown.pipeline.exports import require_exports, write_exports
from topdown.pipeline.on_supports import SupportDrawn, derive_on_supports
from topdown.pipeline.parts.in_parts import derive_in_parts, remove_parts
from topdown.pipeline.parts.part_plan import LEAVES_OF_A_PART, CutTree, folder_of
from topdown.tables.readers import require_encodable

STAGES = 9
"""The number of stages of `run`, for a progress bar; in parts there is one less."""
_MOST_MEANINGS = 40
"""The largest number of cells whose meaning is printed."""
RECORDS_STAGES = 3
"""The number of stages of `synthesize`, which `run` has in addition if it writes microdata."""
EXPORTS_STAGES = 1
"""The number of stages that `run` has in addition for exports."""


def run(
    config: RunConfig,
    output: Path | None = None,
    stages: Stages | None = None,
    *,
    workers: int | None = None,
    part_size: int | None = None,
    executor: Submits | None = None,
    keep_parts: bool = False,
) -> Outcome:
    """Read, measure, project, round and write the release that ``config`` describes to ``output``/public.

    Noise is drawn once: if a run is started again with the same configuration and input, it draws the same noise from
    its key. With a ledger the budget is reserved before the first draw. The public directory appears complete or not at
    all. If ``config.output`` asks for them, exports in other formats (``exports``) and the release's records
    (``microdata``) follow, as `synthesize` writes them. ``workers``: threads, by default one per processor; the release
    does not depend on it.

    A large release of several queries is made in parts, and so is one with a ``part_size``, the number of leaves of a
    part: ``workers`` are then processes, or, with an ``executor`` (any object with ``submit`` whose results have
    ``result``), the number of tasks that it works on at once; it has to reach the output directory under the same path.
    ``keep_parts``: whether internal/parts, which is as confidential as the table, is kept when the release is complete.
    Raises `ConfigError`, `DataError`, `ProjectionError` or `BudgetError`; no partial output is left.
    """
    stages = stages or Silent()
    directory = require_encodable(config.output_path if output is None else output)
    public = directory / "public"
    require_exports(config, directory)
    if config.output.microdata:
        microdata.require_replaceable(directory / "microdata")
    if config.on_supports and part_size is not None:
        raise ConfigError(
            f"a schema of {config.schema_of_cells.n_cells:,} cells is solved family by family, and not in parts: leave "
            "the part size out"
        )
    if executor is not None and part_size is None and not config.on_supports:
        part_size = LEAVES_OF_A_PART  # whoever gives an executor wants it to work
    with ExitStack() as held:
        drawn = draw(config, directory, held, stages, workers=workers, part_size=part_size, executor=executor)
        already_there = drawn is None
        if drawn is None:
            stages.say(f"{public} holds this release already, complete; nothing was drawn or written")
        elif isinstance(drawn, CutTree):
            pool, count = held.enter_context(workers_of(executor, workers))
            derive_in_parts(config, drawn, public, stages, pool, count)
        elif isinstance(drawn, SupportDrawn):
            derive_on_supports(config, drawn, public, stages, workers=workers)
        else:
            derive(config, drawn, public, stages, workers=workers)
        del drawn
        if not keep_parts:
            remove_parts(folder_of(directory))
        write_exports(config, directory, stages)
        order = config.output.microdata_order
        records = _records(config, directory, order, stages) if config.output.microdata else None
    return Outcome(public, already_there, records)


def synthesize(
    config: RunConfig, output: Path | None = None, order: Order | None = None, stages: Stages | None = None
) -> Microdata:
    """The records of the release that `run` made of ``config``, in ``order`` (by default the configuration's).

    They are written to microdata/ beside public/, and are post-processing of it alone. Meanwhile no `run` works in the
    same directory. Raises `ConfigError` and `DataError` as `topdown.microdata.written_records.synthesize` does.
    """
    directory = require_encodable(config.output_path if output is None else output)
    with ExitStack() as held:
        # A release that was passed on without its internal/ cannot be in use by a run.
        if os.path.isdir(directory / "internal"):  # no error where the directory cannot be read: that comes later
            journal = Journal(directory / "internal", config.fingerprint(), "")
            held.enter_context(journal.locked())
            require_no_other(directory / "public", journal)
        return _records(config, directory, order or config.output.microdata_order, stages or Silent())


def _records(config: RunConfig, directory: Path, order: Order, stages: Stages) -> Microdata:
    schema = config.schema_of_cells
    made = microdata.synthesize(
        directory / "public", directory / "microdata", schema=schema, order=order, stages=stages
    )
    if made.already_there:
        stages.say(f"{made.directory} holds these microdata already, complete; nothing was written")
        return made
    meanings = list(zip(config.input.cells, microdata.cell_meanings(config.input.cells, schema), strict=True))
    for cell, meaning in meanings[:_MOST_MEANINGS]:
        stages.say(f"schema    {cell}: " + ", ".join(f"{name} = {category}" for name, category in meaning.items()))
    stages.say("checked   the records, read back and tabulated, equal the release")
    stages.say(f"wrote     {made.directory} ({made.records:,} records, {made.order}, in {len(made.files)} files)")
    return made
