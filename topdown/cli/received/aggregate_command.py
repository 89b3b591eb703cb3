"""`topdown aggregate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.answers import print_table
from topdown.cli.options import AnswerFormat
from topdown.machine.terminal import note


def aggregate(
    public: Annotated[Path, typer.Argument(metavar="PUBLIC", help="The directory public/ of a release.")],
    by: Annotated[
        list[Path] | None,
        typer.Option("--by", help="A file of units and their districts (BLOCKID|DISTRICT). May be repeated."),
    ] = None,
    tabulation: Annotated[
        list[str] | None,
        typer.Option(help="Sum by state, county, tract or block group (releases from noisy measurement files)."),
    ] = None,
    asked: Annotated[str, typer.Option("--query", help="The query, or table (P1), to sum.")] = "total",
    cell: Annotated[
        list[str] | None, typer.Option(help="A cell, or field (P0010003), to sum. May be repeated. Default: all.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals (0.5 to 1).")] = 0.9,
    district: Annotated[
        list[str] | None,
        typer.Option(help="The column of districts. May be repeated where several columns together name the district."),
    ] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out units that the release does not have.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the table to this .csv, .parquet or .json file.")
    ] = None,
    form: Annotated[
        AnswerFormat, typer.Option("--format", help="What is printed: table, csv or json.")
    ] = AnswerFormat.table,
) -> None:
    """Sum a release by areas that are not units of its geography: districts, wards, places, by block assignment files.

    Reads public files only. One row per district and answer: the released count, the unbiased estimate and its margin
    of error. Units without a district get a row of their own and a line on standard error.
    """
    from topdown.analysis.aggregation import aggregate as aggregated
    from topdown.census.layouts.noisy_layout import tabulation_units
    from topdown.cli.options import require_new
    from topdown.errors import ConfigError
    from topdown.release.places import require_outside_releases
    from topdown.release.published import read_release

    if bool(by) == bool(tabulation):
        raise ConfigError("give either files of units and their districts with --by, or levels with --tabulation")
    require_new(output)
    if output is not None:
        require_outside_releases(output)
    release = read_release(public)
    true_units = {level: tabulation_units(release.geography, level) for level in tabulation or ()}
    found = aggregated(
        release,
        by or true_units,
        query=asked,
        cells=cell or (),
        confidence=confidence,
        district=district or (),
        skip_unknown=skip_unknown,
    )
    for one in found.notes:
        note(one)
    if output is not None:
        found.write(output)
    else:
        print_table(found.table, form)
