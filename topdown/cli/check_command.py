"""`topdown check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from topdown.cli.options import Areas, File, Quiet, Verbose, require_new, set_logging, shown_stages

if TYPE_CHECKING:
    import pandas as pd

    from topdown.config.study_settings import StudyConfig


def check(
    file: File,
    errors: Annotated[
        bool, typer.Option("--errors", help="Print the expected errors of the plan, by level and query.")
    ] = False,
    errors_to: Annotated[
        Path | None, typer.Option(metavar="TABLE", help="Write the expected errors to this .csv or .json file.")
    ] = None,
    areas: Areas = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the expected margins (0.5 to 1).")] = 0.9,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Validate FILE, its data and its plan, and try the whole run on invented counts. No noise is drawn, no release is
    written.

    With --errors: the standard deviation and the margin of error that the plan will give at every level, by query, of
    the unbiased estimates (with projection.upward: of the estimates from which the release is made). They depend on the
    plan and the units only: no count is used and no budget is spent. With --areas school.csv also for areas that are
    not units: mean, median, 90th percentile and largest standard deviation of every kind of area, besides the levels.
    """
    from topdown.config import describes_linked, load_any, load_linked
    from topdown.errors import ConfigError, require_probability
    from topdown.machine.progress import Silent
    from topdown.pipeline import draw, expected_error
    from topdown.pipeline.linked.linked_draw import check_linked_tables
    from topdown.planning.expected import expected_errors

    set_logging(verbose)
    require_probability(confidence, "confidence")
    if errors_to is not None:
        expected_error.require_format(errors_to)
        require_new(errors_to, "--errors-to")
    if describes_linked(file):
        if errors or areas or errors_to is not None:
            raise ConfigError("expected errors of two linked tables are not known; leave --errors and --areas out")
        with shown_stages(quiet, 2) as stages:
            check_linked_tables(load_linked(file), stages)
            stages.say("ok        configuration, tables and plans agree; nothing was drawn or released")
        return
    with shown_stages(quiet, 2) as stages:
        config = load_any(file)
        prepared, upward = draw.check(config, stages), config.projection.upward
        if config.is_study:
            from topdown.pipeline.study import read_study

            read_study(cast("StudyConfig", config), Silent(), prepared.counts)
        if errors or areas or errors_to is not None:
            counts = prepared.counts

            def expected(start: str | None) -> pd.DataFrame:
                return expected_errors(
                    prepared.plan,
                    counts.geography,
                    counts.schema,
                    confidence=confidence,
                    upward=start,
                    areas=areas or (),
                )

            table = expected(upward)
            if errors or areas:
                all_levels = None if upward is None else expected(None)
                for line in expected_error.error_table(table, confidence, upward, all_levels):
                    stages.say(line)
            if areas:
                for line in expected_error.area_table(table, confidence):
                    stages.say(line)
            if errors_to is not None:
                expected_error.write_errors(errors_to, table, confidence)
                stages.say(f"wrote     {errors_to}")
        written = "written" if errors_to is None else "released"
        stages.say(f"ok        configuration, data and plan agree; nothing was drawn or {written}")
