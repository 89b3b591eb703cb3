"""`topdown aggregate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.answers import print_table
from topdown.cli.options import Format
from topdown.machine.terminal import note


def aggregate(
    public: Annotated[Path, typer.Argument(metavar="PUBLIC", help="The directory public/ of a release.")],
    by: Annotated[
        list[Path] | None,
        typer.Option("--by", help="A file of units and their districts (BLOCKID|DISTRICT); again for more."),
    ] = None,
    tabulation: Annotated[
        list[str] | None,
        typer.Option(help="state, county, tract or block group by GEOID, of a release from noisy measurement files."),
    ] = None,
    asked: Annotated[str, typer.Option("--query", help="The query, or table (P1), that is summed.")] = "total",
    cell: Annotated[
        list[str] | None, typer.Option(help="The cell, or field (P0010003), to sum; again for more. By default all.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of every interval, above 0.5 and below 1.")] = 0.9,
    district: Annotated[
        list[str] | None,
        typer.Option(help="The column of districts, where a file has several; again for those that name it together."),
    ] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out units that the release does not have.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write this .csv, .parquet or .json file.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="What is printed: table, csv or json.")] = Format.table,
) -> None:
    """Sum a release by areas off its spine: districts, wards, places, by block assignment files.

    Reads public files alone. A row per district and answer: the released count, the unbiased estimate and its margin of
    error. Units without a district make a row of their own, and are said on standard error.
    """
    from topdown.errors import ConfigError
    from topdown.pipeline.aggregation import aggregate as aggregated
    from topdown.release.published import read_release
    from topdown.tables.noisy_measurements import tabulation_units

    if bool(by) == bool(tabulation):
        raise ConfigError("give files of units and their districts with --by, or levels with --tabulation, one of both")
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
