"""`topdown export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from topdown.cli.options import Quiet, console
from topdown.machine.streams import OUTLIVES_OUTPUT


def export(
    public: Annotated[Path, typer.Argument(metavar="PUBLIC", help="The directory public/ of a release.")],
    form: Annotated[
        str, typer.Option("--format", help="nmf: measurements as the Census Bureau's noisy measurement files.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write into, which is made.")],
    quiet: Quiet = False,
) -> object:
    """Write a release in a form that other people's tools read. Reads public files alone and costs no budget."""
    from topdown.pipeline.export import export_release

    written = export_release(public, form, output)
    console(quiet).print(f"wrote {len(written):,} files into {output}", highlight=False, markup=False, soft_wrap=True)
    return OUTLIVES_OUTPUT
