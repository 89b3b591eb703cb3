"""`topdown query`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.answers import print_table
from topdown.cli.options import Format


def query(
    public: Annotated[Path, typer.Argument(metavar="PUBLIC", help="The directory public/ of a release.")],
    units: Annotated[str | None, typer.Option("--sum", help="GEOIDs of any levels, separated by commas.")] = None,
    cell: Annotated[
        list[str] | None, typer.Option(help="The cell, or field (P0010003), to sum; again for more. By default all.")
    ] = None,
    asked: Annotated[str, typer.Option("--query", help="The query, or table (P1), of which --cell is one.")] = "total",
    minus: Annotated[str | None, typer.Option(help="GEOIDs whose sum is taken away.")] = None,
    share_of: Annotated[str | None, typer.Option(help="GEOIDs, or a query such as total, that it is part of.")] = None,
    confidence: Annotated[float, typer.Option(help="Of every interval, above 0.5 and below 1.")] = 0.9,
    regions: Annotated[
        Path | None, typer.Option(help="A table of units and their districts: a row per district.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="table, csv or json.")] = Format.table,
) -> None:
    """Sums, differences and shares of units of a release, or of districts, each with its margin of error.

    Reads public files alone. Intervals cover the true count with the given confidence; margins of units must not be
    added up, which this does rightly.
    """
    from topdown.pipeline.release_query import query_release

    found = query_release(
        public,
        units=units.split(",") if units else (),
        districts=regions,
        query=asked,
        cells=cell or (),
        minus=minus.split(",") if minus else (),
        share_of=share_of,
        confidence=confidence,
    )
    if share_of is None:
        print_table(found, output)
    else:
        print_table(found, output, f"{{:z.{digits_of_shares(found['sd'])}f}}")


def digits_of_shares(deviations: Iterable[float]) -> int:
    """So many decimals that the smallest of the shares' standard ``deviations`` has two digits: 4 to 12."""
    least = min((one for one in deviations if 0 < one < math.inf), default=1.0)
    return min(max(4, 1 - math.floor(math.log10(least))), 12)
