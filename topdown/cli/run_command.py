"""`topdown run`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from topdown.cli.options import File, KeepParts, Output, PartSize, Quiet, Threads, Verbose, set_logging
from topdown.machine.streams import OUTLIVES_OUTPUT
from topdown.machine.terminal import Terminal


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
    engine: Annotated[Engine, typer.Option(help="Execution engine for parts.")] = Engine.processes,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of the Dask scheduler, such as tcp://10.0.0.1:8786.")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> object:
    """Make the release that FILE describes: read, draw noise, project, round, write.

    Leaves a directory public/ with measurements.parquet (signed noisy numbers), estimates.parquet (least squares, and
    non-negative), release.parquet and release.csv (whole counts that add up), geography.parquet (every unit and its
    parent) and manifest.json. Noise is drawn once: if a run was stopped, the same command continues it.

    A large release of several queries is made in parts, with little memory, on one computer or several: see
    docs/cluster.md.
    """
    from topdown.config import load_config
    from topdown.machine.engines import executor_of
    from topdown.machine.progress import Shown, Silent
    from topdown.pipeline import run as pipeline

    set_logging(verbose)
    config = load_config(file)
    more = pipeline.RECORDS_STAGES * config.output.microdata + (
        pipeline.EXPORTS_STAGES * bool(config.output.forms) + bool(config.output.replicates)
    )
    with Shown(Terminal(quiet=quiet), pipeline.STAGES + more) as stages, executor_of(engine, scheduler) as executor:
        pipeline.run(
            config,
            output,
            Silent() if quiet else stages,
            workers=workers,
            part_size=part_size,
            executor=executor,
            keep_parts=keep_parts,
        )
    return OUTLIVES_OUTPUT
