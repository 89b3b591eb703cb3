"""Runs many tasks in processes or threads. Results come back in the order of the tasks, so that they do not depend on
which worker did what.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

from topdown.errors import ConfigError, DataError
from topdown.machine.allocation import settle_process
from topdown.machine.interrupts import held_back
from topdown.machine.system import THREADS_OF_ALGEBRA, processors

Task = TypeVar("Task")
Result = TypeVar("Result")


ONE_THREAD = dict.fromkeys((*THREADS_OF_ALGEBRA, "NUMBA_NUM_THREADS", "OMP_NUM_THREADS"), "1")
"""The environment of a worker process: one thread for each library."""


@contextmanager
def worker_pool(workers: int | None, tasks: int | None = None) -> Iterator[Executor | None]:
    """An executor of up to ``workers`` processes (None: one per processor), or None where one process is enough. There
    are never more processes than ``tasks``, and all have ended when the block ends, however it ends. Raises
    `ConfigError` for fewer than one worker.
    """
    count = checked_count(workers)
    count = count if tasks is None else min(count, max(1, tasks))
    if count == 1:
        yield None
        return
    pool = ProcessWorkers(count)
    try:
        yield pool
    finally:
        pool.shutdown()


@contextmanager
def thread_pool(workers: int | None) -> Iterator[Executor | None]:
    """As `worker_pool`, of threads: for work that numpy and Arrow do outside of Python's lock."""
    count = checked_count(workers)
    if count == 1:
        yield None
        return
    with _Threads(count) as pool:
        yield pool


class _Threads(ThreadPoolExecutor):
    """So many threads."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


def checked_count(workers: int | None) -> int:
    """``workers``, by default one per processor. Raises `ConfigError` for fewer than one."""
    count = processors() if workers is None else workers
    if count < 1:
        raise ConfigError(f"workers is {count}; give 1 or more")
    return count


class WorkerLost(DataError):
    """A worker process ended during its task; the task may not be the cause."""

    def __init__(self) -> None:
        super().__init__("a worker process was killed, probably for lack of memory; free some, or give fewer --workers")

    def __reduce__(self) -> tuple[type[WorkerLost], tuple[()]]:
        return WorkerLost, ()


class ProcessWorkers(Executor):
    """Up to ``count`` processes with a pipe each, started when there is work for them; a process that died is replaced.

    ``fresh``: started as new programs, with one thread each for linear algebra and compiled loops, and not as copies of
    this process, so that they do not have its memory and threads. Asking for a result receives what workers have sent.
    There is no waiting thread and no shared queue, so that a worker may be killed at any moment, even in the middle of
    a message, without anybody waiting for the rest of it. (`concurrent.futures.ProcessPoolExecutor` does, for ever.)
    """

    def __init__(self, count: int, *, fresh: bool = False) -> None:
        self.count = count
        self._fresh = fresh
        self._processes: dict[Connection, BaseProcess] = {}
        self._idle: list[Connection] = []
        self._at_work: dict[Connection, Future[Any]] = {}
        self._waiting: deque[tuple[Future[Any], Any]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call ``fn`` with the arguments in the next free process; the future's `result` ignores a timeout."""
        future = _Awaited(self._take_in)
        self._waiting.append((future, (fn, args, kwargs)))
        self._hand_out()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Kill the processes; the results of running tasks are not needed any more."""
        for process in self._processes.values():
            process.kill()
        for pipe, process in self._processes.items():
            process.join()
            pipe.close()
        self._processes, self._idle, self._at_work = {}, [], {}

    def _hand_out(self) -> None:
        while self._waiting and (self._idle or len(self._processes) < self.count):
            future, call = self._waiting.popleft()
            pipe = self._idle.pop() if self._idle else self._start()
            self._at_work[pipe] = future
            try:
                pipe.send(call)
            except OSError:
                self._lost(pipe)

    def _take_in(self) -> None:
        """Wait for at least one result, and give its worker the next task."""
        for pipe in cast(list[Connection], wait(list(self._at_work))):
            try:
                failed, value = pipe.recv()
            except (EOFError, OSError):
                self._lost(pipe)
                continue
            future = self._at_work.pop(pipe)
            self._idle.append(pipe)
            if failed:
                future.set_exception(value)
            else:
                future.set_result(value)
        self._hand_out()

    def _lost(self, pipe: Connection) -> None:
        pipe.close()
        process = self._processes.pop(pipe)
        process.kill()  # where only its pipe is gone
        process.join()
        self._at_work.pop(pipe).set_exception(WorkerLost())

    def _start(self) -> Connection:
        ours, theirs = multiprocessing.Pipe()
        start = multiprocessing.get_context("spawn" if self._fresh else None)
        # A fresh process has no copy of our end of the pipe, which it would have to close.
        arguments = (theirs, None if self._fresh else ours)
        process = start.Process(target=_serve, args=arguments, daemon=True)
        # A child that begins with an interrupt prints a traceback.
        with held_back(), _environment(ONE_THREAD if self._fresh else {}):
            process.start()
            self._processes[ours] = process
        theirs.close()
        return ours


class _Awaited(Future[Any]):
    """A future whose result is fetched when it is asked for."""

    def __init__(self, take_in: Callable[[], None]) -> None:
        super().__init__()
        self._take_in = take_in

    def result(self, timeout: float | None = None) -> Any:
        while not self.done():
            self._take_in()
        return super().result(timeout)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The environment with these ``variables``, for processes that are started in the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(calls: Connection, parents: Connection | None) -> None:
    """A worker: answer calls until the other end of the pipe is closed, by the parent or because it ended."""
    if parents is None:
        settle_process()
    else:
        parents.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        try:
            function, args, kwargs = calls.recv()
        except (EOFError, OSError):
            return
        try:
            answer = False, function(*args, **kwargs)
        except Exception as error:
            error.add_note(f"In a worker:\n{traceback.format_exc()}")
            answer = True, error
        try:
            calls.send(answer)
        except OSError:
            return


def started(job: Callable[[], Result], executor: Executor | None) -> Future[Result]:
    """Submit ``job`` to ``executor``; without one it runs immediately and raises its errors here."""
    if executor is not None:
        return executor.submit(job)
    done: Future[Result] = Future()
    done.set_result(job())
    return done


def do_all(function: Callable[[Task], None], tasks: Iterable[Task], executor: Executor | None) -> None:
    """Call ``function`` with every task; results are discarded."""
    deque(map_ordered(function, tasks, executor), maxlen=0)


def map_ordered(
    function: Callable[[Task], Result], tasks: Iterable[Task], executor: Executor | None, *, at_once: bool = False
) -> Iterator[Result]:
    """``function`` of every task, in the order of ``tasks``; at most a few results wait in memory at any time.

    ``at_once``: submit all tasks before the first result is needed. With small results no worker then waits for a long
    task before it begins the next one. Where this ends early, by a failure or an interrupt, running threads finish
    first, since they may be writing where the caller will clean up.
    """
    if executor is None:
        yield from map(function, tasks)
        return
    waiting: deque[Future[Result]] = deque()
    ahead = executor.count if isinstance(executor, ProcessWorkers | _Threads) else processors()
    try:
        for task in tasks:
            waiting.append(executor.submit(function, task))
            if len(waiting) > ahead and not at_once:
                result = waiting[0].result()
                waiting.popleft()
                yield result
        while waiting:
            result = waiting[0].result()
            waiting.popleft()
            yield result
    finally:
        if waiting and isinstance(executor, ThreadPoolExecutor):
            for future in waiting:
                future.cancel()
            futures.wait(waiting)
