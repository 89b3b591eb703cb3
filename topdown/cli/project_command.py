"""`topdown project`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import Output, Quiet, Threads, Verbose, set_logging, shown_stages
from topdown.machine.streams import OUTLIVES_OUTPUT


def project(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The TOML file that names measurements.")],
    output: Output = None,
    workers: Threads = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> object:
    """Make a release from the measurements of another release: project, round, write. Draws no noise and spends no
    budget.

    FILE names the public/ directory of the other release in \\[measurements], and may have its own \\[projection].
    Writes a directory public/ as `run` does. Its manifest states the release from which it was derived.
    """
    from topdown.config import load_project
    from topdown.pipeline import project_measurements as pipeline

    set_logging(verbose)
    config = load_project(file)
    with shown_stages(quiet, pipeline.STAGES + bool(config.output.forms) + bool(config.output.replicates)) as stages:
        pipeline.project_measurements(config, output, stages, workers=workers)
    return OUTLIVES_OUTPUT
