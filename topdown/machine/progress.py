"""Progress of a long job: named stages, shown as they pass."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Protocol

from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from topdown.machine.terminal import Terminal

_LOG = logging.getLogger(__name__)


class Stages(Protocol):
    """The interface by which a job reports its stages and results. No confidential value is ever passed to it."""

    def stage(self, title: str) -> AbstractContextManager[None]:
        """A context that lasts as long as the stage called ``title``."""
        ...

    def count(self, done: int, total: int) -> None:
        """How much of the running stage is done."""
        ...

    def say(self, line: str) -> None:
        """One line for the user."""
        ...


class Silent:
    """Shows nothing."""

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Nothing."""
        yield

    def count(self, done: int, total: int) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""


class Shown:
    """Stages on a terminal: a bar with the elapsed time while a job of ``total`` stages runs, and its lines."""

    def __init__(self, terminal: Terminal, total: int) -> None:
        self._terminal = terminal
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=terminal.console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=total)
        self._counted: TaskID | None = None

    def __enter__(self) -> Shown:
        self._progress.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._progress.stop()

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Show ``title`` until the stage ends."""
        self._progress.update(self._task, description=title)
        _LOG.info("%s", title)
        begin = perf_counter()
        yield
        _LOG.info("%s: done in %.2f s", title, perf_counter() - begin)
        self._progress.advance(self._task)

    def count(self, done: int, total: int) -> None:
        """Show a bar of the running stage's own, with its time left, until ``done`` reaches ``total``."""
        if self._counted is None:
            self._counted = self._progress.add_task("", total=total)
        self._progress.update(
            self._counted, completed=done, total=total, description=f"{done:,} of {total:,}", visible=done < total
        )

    def say(self, line: str) -> None:
        """Print ``line`` above the bar."""
        self._terminal.say(line)
