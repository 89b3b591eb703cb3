"""`topdown page`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import Areas, Quiet
from topdown.machine.streams import OUTLIVES_OUTPUT
from topdown.machine.terminal import Terminal, note


def page(
    public: Annotated[Path, typer.Argument(metavar="PUBLIC", help="The directory public/ of a release.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The HTML file to write. Default: page.html beside PUBLIC.")
    ] = None,
    geometry: Annotated[
        Path | None,
        typer.Option(help="Outlines of the smallest units, for a map (.geojson, .json, .gpkg, .shp, .parquet)."),
    ] = None,
    areas: Areas = None,
    quiet: Quiet = False,
) -> object:
    """Write one HTML page of a release: map, table, and sums of chosen units with their margins of error.

    It needs no network. Reads public files only and spends no budget. A release that is too large for one page becomes
    a folder with an index.
    """
    from topdown.analysis.page.release_page import PageOptions, write_page

    made = write_page(public, output, PageOptions(geometry, tuple(areas or ())))
    for one in made.notes:
        note(one)
    if made.already_there:
        Terminal(quiet=quiet).say(f"{made.output} contains this page already; nothing was written")
    else:
        Terminal(quiet=quiet).say(f"wrote {made.output} ({made.size})")
    return OUTLIVES_OUTPUT
