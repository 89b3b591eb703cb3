"""`topdown export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import Quiet
from topdown.machine.streams import OUTLIVES_OUTPUT
from topdown.machine.terminal import Terminal, note


def export(
    public: Annotated[Path, typer.Argument(metavar="PUBLIC", help="The directory public/ of a release.")],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="nmf: measurements as the Census Bureau's noisy measurement files; pl94: a redistricting file; "
            "ppmf: privacy-protected microdata; with margins of error: acs (as the American Community Survey), sdmx, "
            "xlsx, geoparquet, gpkg (a GeoPackage; with outlines); zip: the directory in one file.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The new folder to write to.")],
    units: Annotated[
        Path | None, typer.Option(help="pl94, ppmf: the directory public/ of the release of the housing units.")
    ] = None,
    header: Annotated[
        Path | None,
        typer.Option(help="pl94: a redistricting file whose geographic header is used (names, areas, codes)."),
    ] = None,
    geometry: Annotated[
        Path | None,
        typer.Option(help="geoparquet, gpkg: outlines (.geojson, .gpkg, .shp, .parquet) with a column of GEOIDs."),
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="Formats with margins of error: the query whose answers are written.")
    ] = None,
    state: Annotated[str | None, typer.Option(help="pl94: the state, where the release has several.")] = None,
    quiet: Quiet = False,
) -> object:
    """Write a release in a format that other tools read. Reads public files only and spends no budget."""
    from topdown.analysis.export_formats import ExportOptions, export_release

    written, notes = export_release(public, form, output, ExportOptions(units, header, geometry, query, state))
    for one in notes:
        note(one)
    Terminal(quiet=quiet).say(f"wrote {len(written):,} {'file' if len(written) == 1 else 'files'} into {output}")
    return OUTLIVES_OUTPUT
