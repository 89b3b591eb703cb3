"""`topdown study`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import Output, Quiet, Verbose, set_logging, shown_stages
from topdown.machine.interrupts import INTERRUPTED
from topdown.machine.streams import OUTLIVES_OUTPUT


def study(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The TOML file that describes the study.")],
    output: Output = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes, instead of the file's study.workers.")] = None,
    replicates: Annotated[
        int | None, typer.Option(min=1, help="Replicates, instead of the file's study.replicates.")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> object:
    """Simulate the errors of the release that FILE describes, against the true counts.

    FILE is a file for `run` with a section \\[study]. Writes a directory internal/ with report.html,
    errors.parquet, rules.parquet, coverage.parquet, densities.parquet, batches.parquet and summary.json, which are as
    confidential as the table. Ctrl-C keeps the finished replicates and ends with exit code 130.

    Of two linked tables (a section \\[link]), which need no section \\[study], it writes what solving both together
    changes: report.html, results.parquet, errors.parquet and coverage.parquet; see docs/households.md.
    """
    from topdown.config import describes_linked, load_linked, load_study
    from topdown.pipeline import study as job

    set_logging(verbose)
    if describes_linked(file):
        from topdown.pipeline.linked import linked_study

        with shown_stages(quiet, linked_study.LINKED_STUDY_STAGES) as stages:
            linked = load_linked(file)
            outcome = linked_study.study_linked(linked, output, stages, workers=workers, replicates=replicates)
    else:
        with shown_stages(quiet, job.STAGES) as stages:
            outcome = job.study(load_study(file), output, stages, workers=workers, replicates=replicates)
    if outcome.stopped:
        raise typer.Exit(INTERRUPTED)
    return OUTLIVES_OUTPUT
