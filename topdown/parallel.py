"""Work on many tasks at once: the only place that knows of workers.

Results come back in the order of the tasks, so that what is computed from them does not depend on who computed what.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from topdown.errors import ConfigError

Task = TypeVar("Task")
Result = TypeVar("Result")


def available_workers() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def worker_pool(workers: int | None) -> Iterator[Executor | None]:
    """An executor of ``workers`` processes (None: one per processor), or None where one worker needs no executor.

    Raises `ConfigError` for fewer than one worker.
    """
    count = _checked_count(workers)
    if count == 1:
        yield None
        return
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, initializer=_leave_interrupts_to_the_parent)
    try:
        yield pool
    except BaseException:
        # What the workers are at is of no use any more, and Python would wait for it before it ends.
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def thread_pool(workers: int | None) -> Iterator[Executor | None]:
    """As `worker_pool`, of threads: for work that numpy and Arrow do outside of Python's lock."""
    count = _checked_count(workers)
    if count == 1:
        yield None
        return
    with ThreadPoolExecutor(count) as pool:
        yield pool


def _checked_count(workers: int | None) -> int:
    count = available_workers() if workers is None else workers
    if count < 1:
        raise ConfigError(f"workers is {count}; give 1 or more")
    return count


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def map_ordered(
    function: Callable[[Task], Result], tasks: Sequence[Task], executor: Executor | None
) -> Iterator[Result]:
    """``function`` of every task, in the order of ``tasks``; at most a few results wait in memory at any time."""
    if executor is None:
        yield from map(function, tasks)
        return
    waiting: deque[Future[Result]] = deque()
    ahead = available_workers()
    for task in tasks:
        waiting.append(executor.submit(function, task))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
