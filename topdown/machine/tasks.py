"""Tasks that may be done twice: a few at a time on any executor, and once more where whoever did one died."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from topdown.errors import DataError, TopdownError
from topdown.machine.parallel import WorkerLost
from topdown.wording import reason

TRIES = 4
"""How often a task is given to a worker before it is given up."""

_LOG = logging.getLogger(__name__)

Task = TypeVar("Task")


class Submits(Protocol):
    """What takes calls: an executor of this computer, or of a cluster."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Something whose ``result()`` waits for that of the call, and raises what it raised."""


def each_done(
    function: Callable[..., Any],
    tasks: Sequence[Task],
    executor: Submits | None,
    ahead: int,
    called: Callable[[Task], str],
) -> Iterator[tuple[Task, Any]]:
    """Every task with ``function`` of it, in the order of ``tasks``; at most ``ahead`` are with the ``executor``.

    Nothing but ``submit`` and ``result`` is asked of it: waiting for whichever ends first is another protocol in every
    library. A task whose worker is lost, or of which the executor itself fails, is submitted again, up to four times;
    what the task raises on purpose (`TopdownError`) is raised. Raises `DataError` with what the task is ``called``.
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
