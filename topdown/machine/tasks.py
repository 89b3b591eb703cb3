"""Runs tasks that may be repeated: a few at a time on any executor, and again where a worker was lost."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from topdown.errors import DataError, TopdownError
from topdown.machine.parallel import ProcessWorkers, WorkerLost, checked_count
from topdown.wording import reason

TRIES = 4
"""How often a task is submitted before it fails."""

_LOG = logging.getLogger(__name__)

Task = TypeVar("Task")
Result = TypeVar("Result")


class Submits(Protocol):
    """The interface of executors, local ones and those of a cluster."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Something whose ``result()`` waits for that of the call, and raises what it raised."""


def count_of(executor: Submits | None, workers: int | None) -> int:
    """How many ``workers`` there are: where that is not said as many as the ``executor`` says that it has (``count``),
    or one per processor of this computer."""
    known = getattr(executor, "count", None) if workers is None else None
    return checked_count(workers if known is None else known)


@contextmanager
def workers_of(executor: Submits | None, workers: int | None) -> Iterator[tuple[Submits, int]]:
    """``executor``, or without one processes of this computer, and how many ``workers`` there are (`count_of`)."""
    count = count_of(executor, workers)
    if executor is not None:
        yield executor, count
        return
    pool = ProcessWorkers(count, fresh=True)
    try:
        yield pool, count
    finally:
        pool.shutdown()


def each_done(
    function: Callable[..., Any],
    tasks: Sequence[Task],
    executor: Submits | None,
    ahead: int,
    called: Callable[[Task], str],
) -> Iterator[tuple[Task, Any]]:
    """Every task with ``function`` of it, in the order of ``tasks``; at most ``ahead`` are with the ``executor``.

    Only ``submit`` and ``result`` are used, since every library has another protocol for waiting on several futures. A
    task whose worker is lost, or for which the executor fails, is submitted up to four times; a `TopdownError` of the
    task is raised. Raises `DataError` with the name of the task (``called``).
    """
    if executor is None:
        for task in tasks:
            yield task, function(task)
        return
    left, waiting = deque(tasks), deque[tuple[Task, Any]]()
    while left or waiting:
        while left and len(waiting) < ahead:
            task = left.popleft()
            waiting.append((task, executor.submit(function, task)))
        task, future = waiting.popleft()
        yield task, _result(function, task, future, executor, called)


def elsewhere(
    function: Callable[[Task], Result], task: Task, executor: Submits | None, called: Callable[[Task], str]
) -> Result:
    """The ``function`` of a ``task`` by the ``executor``, as `each_done` has it; without one here."""
    if executor is None:
        return function(task)
    found: Result = _result(function, task, executor.submit(function, task), executor, called)
    return found


def _result(
    function: Callable[..., Any], task: Task, future: Any, executor: Submits, called: Callable[[Task], str]
) -> Any:
    for more in range(TRIES - 1, -1, -1):
        try:
            return future.result()
        except Exception as error:
            if isinstance(error, TopdownError) and not isinstance(error, WorkerLost):
                raise
            kind = "its worker was killed" if isinstance(error, WorkerLost) else reason(error)
            if not more:
                raise DataError(
                    f"{called(task)}: failed {TRIES} times: {kind}; give it more memory, fewer --workers or a smaller "
                    "--part-size, and run again: what is done is kept"
                ) from error
            _LOG.info("%s: %s; once more", called(task), kind)
            future = executor.submit(function, task)
    raise AssertionError  # the last try returns or raises
