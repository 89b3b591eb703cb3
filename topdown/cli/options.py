"""Shared by the commands: options, the console, logging."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from topdown.machine.terminal import Terminal, log_to_standard_error

if TYPE_CHECKING:
    from topdown.machine.progress import Stages

File = Annotated[Path, typer.Argument(metavar="FILE", help="The TOML file that describes the release.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write to this directory, instead of the file's output.directory."),
]
Areas = Annotated[
    list[Path] | None,
    typer.Option(
        "--areas",
        metavar="TABLE",
        help="A file of units and their areas (BLOCKID|DISTRICT); its name is the name of the kind of area. May "
        "be repeated.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, help="Number of threads, by default one per processor. The result does not depend on it."
    ),
]
PartSize = Annotated[
    int | None,
    typer.Option(
        "--part-size",
        min=1,
        metavar="LEAVES",
        help="Make the release in parts of so many units of the lowest level. The result does not depend on it.",
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
    """Write the package's log and the libraries' warnings to standard error, if asked for.

    Otherwise the warnings are suppressed: what a solver warns of ("may be inaccurate") is checked by certificates and
    comparisons, which end in an error or in a message of their own.
    """
    logging.captureWarnings(True)
    if verbose:
        log_to_standard_error()
        logging.getLogger("topdown").setLevel(logging.INFO)
    else:
        # Without a handler, a record would go to standard error.
        logging.getLogger("py.warnings").addHandler(logging.NullHandler())


@contextmanager
def shown_stages(quiet: bool, total: int) -> Iterator[Stages]:
    """The stages of a job, ``total`` in number, on the terminal, or nowhere."""
    from topdown.machine.progress import Shown, Silent

    with Shown(Terminal(quiet=quiet), total) as stages:
        yield Silent() if quiet else stages


def require_new(path: Path | None, option: str = "--output") -> None:
    """Refuse to overwrite an existing file, given by ``option``. Raises `ConfigError`."""
    from topdown.errors import ConfigError

    if path is not None and os.path.lexists(path):
        raise ConfigError(f"{path}: exists already; give another {option}, or remove it first")
