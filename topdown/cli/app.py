"""The command-line application: its commands, and the message and exit code of every error.

A command imports what it needs inside its function, so that --help is fast.
"""

from __future__ import annotations

import os
import traceback
from typing import Annotated, Any

import typer

from topdown.cli import ledger_command as cli_ledger
from topdown.cli import part_command as cli_part
from topdown.cli.check_command import check
from topdown.cli.compare_command import compare
from topdown.cli.init_command import init
from topdown.cli.plan_command import plan, spine
from topdown.cli.project_command import project
from topdown.cli.received.aggregate_command import aggregate
from topdown.cli.received.export_command import export
from topdown.cli.received.page_command import page
from topdown.cli.received.query_command import query
from topdown.cli.received.rank_command import rank
from topdown.cli.received.verify_command import verify
from topdown.cli.run_command import run
from topdown.cli.schema_command import schema
from topdown.cli.statistic_command import statistic
from topdown.cli.study_command import study
from topdown.cli.synthesize_command import synthesize
from topdown.errors import ConfigError, DataError, InternalError, TopdownError
from topdown.machine.allocation import settle_process
from topdown.machine.interrupts import INTERRUPTED, one_line
from topdown.machine.software import version_of
from topdown.machine.streams import OUTLIVES_OUTPUT, UNWRITABLE, lasting_streams
from topdown.machine.terminal import Terminal
from topdown.wording import LONGEST_MESSAGE, unquoted

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=(
        "Publish a hierarchy of counts with differential privacy.\n\n"
        "[bold]topdown init TABLE[/bold] writes a first TOML file: it names the table of counts, how its units nest, "
        "the privacy budget and the projection. [bold]topdown check FILE[/bold] validates it and draws no noise. "
        "[bold]topdown run FILE[/bold] makes the release. [bold]topdown study FILE[/bold] simulates its errors. "
        "[bold]topdown verify PUBLIC[/bold] and [bold]topdown query PUBLIC[/bold] are for those who receive it.\n\n"
        "Exit codes: 0 ok, 2 configuration, 3 data, 4 projection, 5 budget, 130 stopped by Ctrl-C (143 by SIGTERM), "
        "74 standard output cannot be written, 70 an internal error."
    ),
)

# Some versions of Typer have their own copy of click, and Typer does not export its exceptions in any version.
_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

app.add_typer(cli_ledger.app, name="ledger")
app.add_typer(cli_part.app, name="part")

for command in (
    init,
    run,
    project,
    synthesize,
    statistic,
    study,
    compare,
    check,
    plan,
    spine,
    verify,
    query,
    rank,
    aggregate,
    export,
    page,
    schema,
):
    app.command()(command)


def _say_version(asked: bool) -> None:
    if asked:
        Terminal().say(version_of())
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    """The options before a command."""


@app.command()
def version() -> None:
    """Print the version."""
    Terminal().say(version_of())


def main() -> None:
    """Run the command line. Every error ends in one message and an exit code; a traceback is printed only if
    asked for.
    """
    settle_process()
    with lasting_streams() as output, one_line():
        code, is_whole = _outcome()
        output.flush()
        if output.unwanted:
            pass  # the reader closed the pipe
        elif output.failure is not None and is_whole:
            _say_error(
                f"standard output cannot be written ({output.failure}); what the command wrote is complete", "warning"
            )
        elif output.failure is not None and code == 0:
            _say_error(f"standard output cannot be written: {output.failure}")
            code = UNWRITABLE
        raise SystemExit(code)


def _outcome() -> tuple[int, bool]:
    """The exit code of the command in ``sys.argv``, and whether it wrote files, which remain when its output is
    lost.
    """
    try:
        found = app(standalone_mode=False)
        return (found, False) if isinstance(found, int) else (0, found is OUTLIVES_OUTPUT)
    except TopdownError as error:
        _say_error(str(error))
        return error.exit_code, False
    except MemoryError:
        _say_error("out of memory; free some, use a larger machine, or publish fewer cells at once")
        return DataError.exit_code, False
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help was printed
            return 0, False
        said = unquoted(error.format_message(), 200)
        _say_error(f"{said} (see topdown --help, or topdown COMMAND --help)")
        return ConfigError.exit_code, False
    except typer.Abort as stop:
        if isinstance(stop.__cause__, EOFError):  # Typer reports the end of standard input as an abort
            _report_fault(stop.__cause__)
            return InternalError.exit_code, False
        return INTERRUPTED, False
    except Exception as error:
        _report_fault(error)
        return InternalError.exit_code, False


def _report_fault(error: Exception) -> None:
    """Report an unexpected error: only its type, since its text and its variables may be confidential."""
    _say_error(
        f"{type(error).__name__}: internal error of topdown {version_of()}; please report it with the command. "
        "TOPDOWN_TRACEBACK=1 shows where it occurred, without any value"
    )
    if os.environ.get("TOPDOWN_TRACEBACK"):
        Terminal(errors=True).say("".join(traceback.format_tb(error.__traceback__)))


def _say_error(message: str, kind: str = "error") -> None:
    Terminal(errors=True).say(f"{kind}: {unquoted(message, LONGEST_MESSAGE)}", "red")
