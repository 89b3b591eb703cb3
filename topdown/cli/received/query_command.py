"""`topdown query`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.answers import print_table
from topdown.cli.options import AnswerFormat
from topdown.machine.terminal import note


def query(
    public: Annotated[Path, typer.Argument(metavar="PUBLIC", help="The directory public/ of a release.")],
    units: Annotated[
        str | None, typer.Option("--sum", help="Units to sum, at any level: GEOIDs or names, with commas.")
    ] = None,
    cell: Annotated[
        list[str] | None,
        typer.Option(help="A cell, or field (P0010003), to sum. May be repeated. Default: every one of --query."),
    ] = None,
    asked: Annotated[
        str, typer.Option("--query", help="The query, or table (P1), to sum, or that --cell belongs to.")
    ] = "total",
    minus: Annotated[
        str | None, typer.Option(help="Units to subtract, with commas; or the directory of an earlier release.")
    ] = None,
    minus_release: Annotated[
        Path | None, typer.Option(help="The directory public/ of an earlier release: print the change since then.")
    ] = None,
    share_of: Annotated[
        str | None, typer.Option(help="Units, or a query such as total: print the share of it.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals (0.5 to 1).")] = 0.9,
    regions: Annotated[
        Path | None, typer.Option(help="A table of units and their districts. Prints one row per district.")
    ] = None,
    output: Annotated[AnswerFormat, typer.Option("--format", help="table, csv or json.")] = AnswerFormat.table,
) -> None:
    """Print sums, differences, shares and changes of units of a release, or of districts, with margins of error.

    Reads public files only. Each interval covers the true count with the given confidence. Margins of units must not be
    added up by hand: use this command instead.
    """
    from topdown.analysis.release_query import is_release, query_release
    from topdown.errors import ConfigError

    if minus and is_release(Path(minus)):
        if minus_release is not None:
            raise ConfigError("--minus and --minus-release both name a release; give one")
        minus_release, minus = Path(minus), None
    found = query_release(
        public,
        units=() if units is None else [units],
        districts=regions,
        query=asked,
        cells=cell or (),
        minus=() if minus is None else [minus],
        share_of=share_of,
        before=minus_release,
        confidence=confidence,
    )
    if found.attrs["outside"]:
        note(found.attrs["outside"])
    if share_of is None:
        print_table(found, output)
    else:
        print_table(found, output, f"{{:z.{digits_of_shares(found['sd'])}f}}")


def digits_of_shares(deviations: Iterable[float]) -> int:
    """The number of decimals, 4 to 12, that gives the smallest of the shares' standard ``deviations`` two digits."""
    least = min((one for one in deviations if 0 < one < math.inf), default=1.0)
    return min(max(4, 1 - math.floor(math.log10(least))), 12)
