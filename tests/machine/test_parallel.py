"""Work on many tasks: the results in the tasks' order, few of them waiting, whoever computes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

from topdown.errors import ConfigError, DataError
from topdown.machine.parallel import map_ordered, worker_pool
from topdown.machine.system import processors


def slow_when_early(task: int) -> tuple[int, int]:
    """The square of a task; the first ones finish last."""
    time.sleep(0.05 if task < 2 else 0.0)
    return task * task, os.getpid()


def failing(task: int) -> int:
    if task == 3:
        raise ValueError("task 3 fails")
    return task


def test_one_worker_needs_no_executor() -> None:
    with worker_pool(1) as pool:
        assert pool is None
        results = list(map_ordered(slow_when_early, range(5), pool))
    assert [value for value, _ in results] == [0, 1, 4, 9, 16]
    assert {process for _, process in results} == {os.getpid()}


def test_results_come_in_the_order_of_the_tasks() -> None:
    with worker_pool(2) as pool:
        assert pool is not None
        results = list(map_ordered(slow_when_early, range(30), pool))
    assert [value for value, _ in results] == [task * task for task in range(30)]
    assert os.getpid() not in {process for _, process in results}


def test_none_is_one_worker_per_processor() -> None:
    assert processors() >= 1
    with worker_pool(None) as pool:
        assert (pool is None) == (processors() == 1)


@pytest.mark.parametrize("workers", [0, -2])
def test_no_workers_are_refused(workers: int) -> None:
    with pytest.raises(ConfigError, match=f"workers is {workers}"), worker_pool(workers):
        pass


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_reaches_the_caller(workers: int) -> None:
    with pytest.raises(ValueError, match="task 3 fails"), worker_pool(workers) as pool:
        list(map_ordered(failing, range(10), pool))


class Counting(Executor):
    """Runs a task at once, and knows how many results nobody has taken yet."""

    def __init__(self) -> None:
        self.submitted = 0
        self.taken = 0
        self.most_waiting = 0

    def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Future[object]:
        self.submitted += 1
        self.most_waiting = max(self.most_waiting, self.submitted - self.taken)
        future: Future[object] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_few_results_wait() -> None:
    executor = Counting()
    for _ in map_ordered(abs, range(1000), executor):
        executor.taken += 1
    assert executor.taken == executor.submitted == 1000
    assert executor.most_waiting <= 2 * processors() + 1


def test_a_long_task_keeps_nobody_waiting_where_all_are_given_at_once() -> None:
    ended = threading.Event()

    def of_task(task: int) -> bool:
        if task == 0:
            return ended.wait(20)
        if task == 9:
            ended.set()
        return True

    with ThreadPoolExecutor(2) as pool:
        assert list(map_ordered(of_task, range(10), pool, at_once=True)) == [True] * 10


def one_by_one(task: int) -> int:
    time.sleep(0.01)
    return os.getpid()


def test_there_are_never_more_processes_than_tasks() -> None:
    with worker_pool(300, 3) as pool:
        assert pool is not None
        found = set(map_ordered(one_by_one, range(3), pool))
        assert len(multiprocessing.active_children()) == len(found) <= 3
    with worker_pool(300, 1) as pool:
        assert pool is None
    with worker_pool(300) as pool:
        assert len(set(map_ordered(one_by_one, range(40), pool))) <= 40


def test_more_workers_than_processors_are_all_at_work() -> None:
    count = 2 * processors() + 1
    with worker_pool(count, 100) as pool:
        assert len(set(map_ordered(one_by_one, range(100), pool))) == count


def killed(task: int) -> int:
    if task == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_a_worker_that_is_killed_is_an_error_and_not_a_hang() -> None:
    with pytest.raises(DataError, match="a worker process was killed"), worker_pool(2) as pool:
        list(map_ordered(killed, range(10), pool))
    assert multiprocessing.active_children() == []


def much(task: int) -> bytes:
    return bytes(50_000_000)


def interrupted_after(moment: float) -> None:
    with worker_pool(2) as pool:
        assert pool is not None
        for _ in range(8):
            pool.submit(much, 0)
        time.sleep(moment)
        raise KeyboardInterrupt


def test_workers_that_are_killed_while_they_send_leave_nobody_waiting() -> None:
    for moment in (0.0, 0.02, 0.05, 0.1):
        with pytest.raises(KeyboardInterrupt):
            interrupted_after(moment)
        assert multiprocessing.active_children() == []


def test_what_threads_have_begun_ends_before_a_failure_is_passed_on() -> None:
    ended, begun = threading.Event(), threading.Event()

    def work(task: int) -> None:
        if task == 0:
            begun.wait(60)
            raise KeyboardInterrupt
        begun.set()
        time.sleep(0.3)
        ended.set()

    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(KeyboardInterrupt):
            list(map_ordered(work, range(2), pool))
        assert ended.is_set()


def test_a_failure_says_where_it_was() -> None:
    with pytest.raises(ValueError, match="task 3 fails") as caught, worker_pool(2) as pool:
        list(map_ordered(failing, range(10), pool))
    assert "in failing" in "".join(caught.value.__notes__)
