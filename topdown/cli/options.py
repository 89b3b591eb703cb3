"""What the commands share: their options, the console, logging."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from topdown.machine.terminal import log_to_standard_error

File = Annotated[Path, typer.Argument(metavar="FILE", help="The TOML file that describes the release.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write to this directory, instead of the file's output.directory."),
]
Threads = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Number of threads, by default one per processor; same result for any."),
]
PartSize = Annotated[
    int | None,
    typer.Option(
        "--part-size",
        min=1,
        metavar="LEAVES",
        help="Make the release in parts of so many units of the lowest level; same result for any.",
    ),
]
KeepParts = Annotated[
    bool, typer.Option("--keep-parts", help="Keep internal/parts at the end. It is as confidential as the table.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Report every stage on standard error.")]


class AnswerFormat(StrEnum):
    """How answers are printed."""

    table = "table"
    csv = "csv"
    json = "json"


def set_logging(verbose: bool) -> None:
    """Let the package say what it does on standard error, where that is asked for, and libraries what they warn of.

    Otherwise their warnings go nowhere: a solver's "may be inaccurate" is judged by certificates and comparisons, which
    end in an error or in a line of their own.
    """
    logging.captureWarnings(True)
    if verbose:
        log_to_standard_error()
        logging.getLogger("topdown").setLevel(logging.INFO)
    else:
        # Without a handler of its own a record goes to standard error.
        logging.getLogger("py.warnings").addHandler(logging.NullHandler())
