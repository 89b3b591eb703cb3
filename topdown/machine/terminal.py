"""Printing to standard output and standard error, without characters that control a terminal.

Names of units, districts and files may hold anything. Everything that a command prints goes through this module, and
every line of it through `escaped`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from topdown.wording import escaped, escaped_lines


class Terminal:
    """Standard output, or with ``errors`` standard error; silent where that is asked for (``quiet``)."""

    def __init__(self, *, quiet: bool = False, errors: bool = False) -> None:
        self.console = Console(quiet=quiet, stderr=errors, emoji=False, markup=False, highlight=False)

    def say(self, text: str, style: str | None = None) -> None:
        """Print ``text``, of one line or several, as it stands, and a line end."""
        self.console.print(escaped_lines(text), style=style, soft_wrap=True)

    def table(self, title: str, headings: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
        """Print a table with a frame; ``headings``: of every column its name, and whether it holds numbers."""
        table = Table(title=escape(escaped(title)), title_justify="left")
        for name, numbers in headings:
            table.add_column(escaped(name), overflow="fold", justify="right" if numbers else "left")
        for row in rows:
            table.add_row(*(escape(escaped(text)) for text in row))
        self.console.print(table, markup=True)


def answer(text: str) -> None:
    """Write ``text``, and a line end after it, to standard output, never wrapped, so that programs can read it."""
    sys.stdout.write(escaped_lines(text.removesuffix("\n")) + "\n")


def note(text: str) -> None:
    """Print a note on an answer (which is on standard output) to standard error."""
    sys.stderr.write(f"note: {escaped(text)}\n")


class _Lines(logging.Formatter):
    """Formats log records, also of libraries, as escaped lines."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped_lines(super().format(record))


def log_to_standard_error() -> None:
    """Print the log of the process, with the time since its start."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(relativeCreated)8.0f ms  %(message)s"))
    logging.basicConfig(handlers=[handler])
