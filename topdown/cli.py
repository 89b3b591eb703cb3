"""The command line: run, synthesize, study, check, verify, ledger.

What a command works with is imported inside it, so that --help does not wait for it.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from topdown import cli_ledger
from topdown.errors import ConfigError, DataError, TopdownError
from topdown.interrupts import INTERRUPTED, one_line
from topdown.streams import OUTLIVES_OUTPUT, UNWRITABLE, lasting_streams
from topdown.wording import LONGEST_MESSAGE, escaped, unquoted

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=(
        "Publish a hierarchy of counts with differential privacy.\n\n"
        "A TOML file names the table of counts, how its units nest, the privacy budget and the projection. "
        "[bold]topdown check FILE[/bold] validates it all and draws nothing; [bold]topdown run FILE[/bold] makes the "
        "release, [bold]topdown synthesize FILE[/bold] writes it as records, "
        "[bold]topdown study FILE[/bold] simulates what its projection does to the noise. "
        "[bold]topdown verify PUBLIC[/bold] checks a release that was received.\n\n"
        "Exit codes: 0 ok, 2 configuration, 3 data, 4 projection, 5 budget, 130 stopped by Ctrl-C (143 by SIGTERM), "
        "74 standard output cannot be written, 70 a fault of topdown."
    ),
)

FAULT = 70
"""The exit code of what no message was written for; EX_SOFTWARE of sysexits.h."""

# Typer has a copy of click of its own in some versions, and says of neither where its exceptions are.
_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

app.add_typer(cli_ledger.app, name="ledger")

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
) -> object:
    """Make the release that FILE describes: read, draw noise, project, round, write.

    Leaves a directory public/ with measurements.parquet (signed noisy numbers), estimates.parquet (least squares, and
    non-negative), release.parquet and release.csv (whole counts that add up) and manifest.json. Noise is drawn once:
    the same command again goes on where it was stopped.
    """
    from topdown import pipeline
    from topdown.config import load_config
    from topdown.progress import Shown, Silent

    _set_logging(verbose)
    config = load_config(file)
    with Shown(_console(quiet), pipeline.STAGES + pipeline.RECORDS_STAGES * config.output.microdata) as stages:
        pipeline.run(config, output, Silent() if quiet else stages, workers=workers)
    return OUTLIVES_OUTPUT


@app.command()
def synthesize(
    file: File,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The release's directory, if `run` was given one.")
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="sorted or shuffled, in place of the file's output.microdata_order.")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> object:
    """Write the release that `run` made from FILE as records, one per person or household.

    Reads public/release.parquet and its manifest alone: post-processing, which costs no budget. Leaves a directory
    microdata/ beside public/ with Parquet files of the unit's GEOID and one column per attribute of \\[schema], whose
    tabulation was checked to be the release.
    """
    from topdown import pipeline
    from topdown.config import load_config
    from topdown.progress import Shown, Silent
    from topdown.synthesis.records import require_order

    _set_logging(verbose)
    config = load_config(file)
    with Shown(_console(quiet), pipeline.RECORDS_STAGES) as stages:
        chosen = None if order is None else require_order(order)
        pipeline.synthesize(config, output, chosen, Silent() if quiet else stages)
    return OUTLIVES_OUTPUT


@app.command("study")
def study_errors(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The TOML file that describes the study.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here in place of the file's output.directory.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes, in place of the file's study.workers.")] = None,
    replicates: Annotated[int | None, typer.Option(min=1, help="In place of the file's study.replicates.")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> object:
    """Simulate the errors of the release that FILE describes, against the true counts.

    FILE is one that `run` takes, with a section \\[study]. Leaves a directory internal/ with report.html,
    errors.parquet, rules.parquet and densities.parquet, which are as confidential as the table. Ctrl-C keeps the
    replicates that are finished, and ends with code 130.
    """
    from topdown import study
    from topdown.config import load_study
    from topdown.progress import Shown, Silent

    _set_logging(verbose)
    with Shown(_console(quiet), study.STAGES) as stages:
        chosen = Silent() if quiet else stages
        outcome = study.study(load_study(file), output, chosen, workers=workers, replicates=replicates)
    if outcome.stopped:
        raise typer.Exit(INTERRUPTED)
    return OUTLIVES_OUTPUT


@app.command()
def check(file: File, quiet: Quiet = False, verbose: Verbose = False) -> None:
    """Validate FILE, its data and its plan, and rehearse on stand-in counts; draw nothing, write nothing."""
    from topdown import pipeline
    from topdown.config import load_any
    from topdown.progress import Shown, Silent

    _set_logging(verbose)
    with Shown(_console(quiet), 2) as stages:
        pipeline.check(load_any(file), Silent() if quiet else stages)
        stages.say("ok        configuration, data and plan agree; nothing was drawn or written")


@app.command()
def verify(
    public: Annotated[Path, typer.Argument(metavar="PUBLIC", help="The directory public/ of a release.")],
    quiet: Quiet = False,
) -> None:
    """Check that a release is whole and nothing but what was written, for whoever receives it.

    Every file against its manifest, and the counts against each other. Ends with code 3, naming the files at fault.
    """
    from topdown.verify import verify_release

    found = verify_release(public)
    console = _console(quiet)
    for line in (
        f"ok        {', '.join(found.files)} are what the manifest lists, and the counts add up",
        f"next      compare with the publisher's: SHA-256 of manifest.json is {found.sha256}",
    ):
        console.print(escaped(line), highlight=False, markup=False, soft_wrap=True)


@app.command()
def version() -> None:
    """Print the version."""
    from topdown import __version__

    Console().print(__version__, highlight=False)


def _console(quiet: bool) -> Console:
    return Console(quiet=quiet)


def _set_logging(verbose: bool) -> None:
    if verbose:
        logging.basicConfig(format="%(relativeCreated)8.0f ms  %(message)s")
        logging.getLogger("topdown").setLevel(logging.INFO)


def main() -> None:
    """Run the command line: one message and an exit code, whatever goes wrong, and never a traceback by itself."""
    with lasting_streams() as output, one_line():
        code, is_whole = _outcome()
        output.flush()
        if output.failure is not None and is_whole:
            _say_error(
                f"standard output cannot be written ({output.failure}); what the command makes is whole", "warning"
            )
        elif output.failure is not None and code == 0:
            _say_error(f"standard output cannot be written: {output.failure}")
            code = UNWRITABLE
        raise SystemExit(code)


def _outcome() -> tuple[int, bool]:
    """The exit code of the command in ``sys.argv``, and whether it made what outlives its output."""
    try:
        found = app(standalone_mode=False)
        return (found, False) if isinstance(found, int) else (0, found is OUTLIVES_OUTPUT)
    except TopdownError as error:
        _say_error(str(error))
        return error.exit_code, False
    except MemoryError:
        _say_error("the memory is full; free some, use a larger machine, or publish fewer cells at once")
        return DataError.exit_code, False
    except _UsageError as error:
        said = unquoted(error.format_message(), 200)
        _say_error(f"{said} (topdown --help, or topdown COMMAND --help, says what there is)")
        return ConfigError.exit_code, False
    except typer.Abort:
        return INTERRUPTED, False
    except Exception as error:
        _report_fault(error)
        return FAULT, False


def _report_fault(error: Exception) -> None:
    """What no message was written for: its kind alone, since its text and its variables may be confidential."""
    from topdown import __version__

    _say_error(
        f"{type(error).__name__}: a fault of topdown {__version__}, not of yours; please report it with the command. "
        "TOPDOWN_TRACEBACK=1 shows where it arose, without any value"
    )
    if os.environ.get("TOPDOWN_TRACEBACK"):
        sys.stderr.write("".join(traceback.format_tb(error.__traceback__)))


def _say_error(message: str, kind: str = "error") -> None:
    text = escaped(message)
    if len(text) > LONGEST_MESSAGE:
        text = f"{text[:LONGEST_MESSAGE]}..."
    Console(stderr=True).print(f"{kind}: {text}", style="red", highlight=False, markup=False, soft_wrap=True)
