"""The command line: run, check."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from topdown import __version__, pipeline
from topdown.config import load_config
from topdown.errors import TopdownError
from topdown.progress import Shown, Silent

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=(
        "Publish a hierarchy of counts with differential privacy.\n\n"
        "A TOML file names the table of counts, how its units nest, the privacy budget and the projection. "
        "[bold]topdown check FILE[/bold] validates it all and draws nothing; [bold]topdown run FILE[/bold] makes the "
        "release.\n\n"
        "Exit codes: 0 ok, 2 configuration, 3 data, 4 projection, 5 budget."
    ),
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The TOML file that describes the release.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say what every stage does, on standard error.")]


@app.command()
def run(
    file: File,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here in place of the file's output.directory.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Threads, by default one per processor; same result for any.")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Make the release that FILE describes: read, draw noise, project, round, write.

    Leaves a directory public/ with measurements.parquet (signed noisy numbers), estimates.parquet (unbiased and
    non-negative), release.parquet and release.csv (whole counts that add up) and manifest.json. Noise is drawn once:
    the same command again goes on where it was stopped.
    """
    _set_logging(verbose)
    with Shown(_console(quiet), pipeline.STAGES) as stages:
        pipeline.run(load_config(file), output, Silent() if quiet else stages, workers=workers)


@app.command()
def check(file: File, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Validate FILE, its data and its plan; draw nothing, write nothing."""
    _set_logging(verbose)
    with Shown(_console(quiet), 1) as stages:
        pipeline.check(load_config(file), Silent() if quiet else stages)
        stages.say("ok        configuration, data and plan agree; nothing was drawn or written")


@app.command()
def version() -> None:
    """Print the version."""
    Console().print(__version__, highlight=False)


def _console(quiet: bool) -> Console:
    return Console(quiet=quiet)


def _set_logging(verbose: bool) -> None:
    if verbose:
        logging.basicConfig(format="%(relativeCreated)8.0f ms  %(message)s")
        logging.getLogger("topdown").setLevel(logging.INFO)


def main() -> None:
    """Run the command line; an error of Topdown's own becomes one message and its exit code."""
    try:
        app(standalone_mode=True)
    except TopdownError as error:
        Console(stderr=True).print(f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise SystemExit(error.exit_code) from None
