"""`topdown run`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from topdown.cli.options import File, KeepParts, Output, PartSize, Quiet, Threads, Verbose, set_logging, shown_stages
from topdown.machine.streams import OUTLIVES_OUTPUT


class Engine(StrEnum):
    """The execution engine for the parts of a release."""

    processes = "processes"
    dask = "dask"


def run(
    file: File,
    output: Output = None,
    workers: Threads = None,
    part_size: PartSize = None,
    keep_parts: KeepParts = False,
    engine: Annotated[Engine, typer.Option(help="Execution engine for parts and families.")] = Engine.processes,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of the Dask scheduler, such as tcp://10.0.0.1:8786.")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> object:
    """Make the release that FILE describes: read, draw noise, project, round, write.

    Leaves a directory public/ with measurements.parquet (signed noisy numbers), estimates.parquet (least squares, and
    non-negative), release.parquet and release.csv (whole counts that add up), geography.parquet (every unit and its
    parent) and manifest.json. Noise is drawn once: after an interruption, the same command continues the run.

    Of two linked tables (a section \\[link]) public/ has a folder for each, and link.json: see docs/households.md.

    A large release of several queries is made in parts, with little memory, on one computer or several, and two linked
    tables family by family: see docs/cluster.md.
    """
    from topdown.config import describes_linked, load_config, load_linked
    from topdown.errors import ConfigError
    from topdown.machine.engines import executor_of
    from topdown.pipeline import run as pipeline

    set_logging(verbose)
    if describes_linked(file):
        from topdown.pipeline.linked import linked_run

        if part_size is not None or keep_parts:
            raise ConfigError(
                "two linked tables are solved family by family, not in parts: leave --part-size and --keep-parts out"
            )
        linked = load_linked(file)
        with shown_stages(quiet, linked_run.LINKED_STAGES) as stages, executor_of(engine, scheduler) as executor:
            linked_run.run_linked(linked, output, stages, workers=workers, executor=executor)
        return OUTLIVES_OUTPUT
    config = load_config(file)
    more = pipeline.RECORDS_STAGES * config.output.microdata + (
        pipeline.EXPORTS_STAGES * (bool(config.output.forms) + config.output.page) + bool(config.output.replicates)
    )
    with shown_stages(quiet, pipeline.STAGES + more) as stages, executor_of(engine, scheduler) as executor:
        pipeline.run(
            config,
            output,
            stages,
            workers=workers,
            part_size=part_size,
            executor=executor,
            keep_parts=keep_parts,
        )
    return OUTLIVES_OUTPUT
