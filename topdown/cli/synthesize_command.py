"""`topdown synthesize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import File, Quiet, Verbose, set_logging, shown_stages
from topdown.machine.streams import OUTLIVES_OUTPUT


def synthesize(
    file: File,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The directory of the release, if `run` was given --output.")
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="sorted or shuffled, instead of output.microdata_order of the file.")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> object:
    """Write the release that `run` made from FILE as records, one per person or household.

    Reads public/release.parquet and its manifest alone: post-processing, which costs no budget. Writes a directory
    microdata/ beside public/ of Parquet files with the unit's GEOID and one column per attribute of \\[schema], whose
    tabulation was checked to equal the release.
    """
    from topdown.config import load_config
    from topdown.microdata.record_blocks import require_order
    from topdown.pipeline import run as pipeline

    set_logging(verbose)
    config = load_config(file)
    with shown_stages(quiet, pipeline.RECORDS_STAGES) as stages:
        chosen = None if order is None else require_order(order)
        pipeline.synthesize(config, output, chosen, stages)
    return OUTLIVES_OUTPUT
