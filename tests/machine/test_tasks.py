"""Tasks that are given again where whoever did them is lost."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from topdown.errors import ConfigError, DataError
from topdown.machine.engines import executor_of
from topdown.machine.parallel import ProcessWorkers
from topdown.machine.progress import Silent
from topdown.machine.tasks import TRIES, each_done
from topdown.pipeline.parts.in_parts import Work


class Failing:
    """Gives what has a result alone; the first ``times`` calls of a task fail with ``error``."""

    def __init__(self, times: int, error: Exception) -> None:
        self.times, self.error = times, error
        self.calls: list[int] = []
        self.most = self.waiting = 0

    def submit(self, fn: Callable[..., Any], /, *arguments: Any) -> Any:
        self.calls.append(arguments[0])
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        fails = self.calls.count(arguments[0]) <= self.times

        class Result:
            def result(_: Any) -> Any:
                self.waiting -= 1
                if fails:
                    raise self.error
                return fn(*arguments)

        return Result()


def done(executor: Failing, tasks: int = 10, ahead: int = 3) -> list[tuple[int, int]]:
    return list(each_done(lambda task: task * task, range(tasks), executor, ahead, lambda task: f"task {task}"))


def test_results_come_in_order_and_few_tasks_are_out() -> None:
    executor = Failing(0, RuntimeError())
    assert done(executor) == [(k, k * k) for k in range(10)]
    assert executor.most == 3


def test_a_task_that_is_lost_is_given_again() -> None:
    executor = Failing(TRIES - 1, OSError("the worker is gone"))
    assert done(executor, 3) == [(0, 0), (1, 1), (2, 4)]
    assert all(executor.calls.count(task) == TRIES for task in range(3))


def test_a_task_that_is_lost_again_and_again_is_given_up_by_name() -> None:
    with pytest.raises(DataError, match="task 0: failed 4 times"):
        done(Failing(TRIES, RuntimeError("987654 of something")))


def test_what_is_raised_on_purpose_is_not_tried_again() -> None:
    executor = Failing(1, ConfigError("no"))
    with pytest.raises(ConfigError, match="no"):
        done(executor)
    assert executor.calls.count(0) == 1


def killed_twice(folder: str) -> int:
    """Kills its process the first two times."""
    tries = len(list(Path(folder).iterdir()))
    if tries < 2:
        (Path(folder) / str(tries)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return tries


@pytest.mark.parametrize("fresh", [False, True], ids=["copies", "fresh"])
def test_in_the_place_of_a_killed_process_comes_another(tmp_path: Path, fresh: bool) -> None:
    pool = ProcessWorkers(1, fresh=fresh)
    try:
        assert list(each_done(killed_twice, [str(tmp_path)] * 2, pool, 2, str)) == [(str(tmp_path), 2)] * 2
    finally:
        pool.shutdown()


def test_workers_that_gave_their_memory_back_are_gone_and_others_come() -> None:
    pool = ProcessWorkers(2, fresh=True)
    work = Work(pool, 2, Silent())
    try:
        first = {pool.submit(os.getpid).result() for _ in range(4)}
        work.give_memory_back()
        assert not any(Path(f"/proc/{one}").exists() for one in first)
        assert pool.submit(os.getpid).result() not in first
    finally:
        pool.shutdown()


def threads(_: int) -> tuple[str | None, ...]:
    return tuple(os.environ.get(name) for name in ("OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"))


def test_a_fresh_process_has_one_thread_and_leaves_the_environment_as_it_is() -> None:
    before = dict(os.environ)
    pool = ProcessWorkers(1, fresh=True)
    try:
        assert pool.submit(threads, 0).result() == ("1", "1")
    finally:
        pool.shutdown()
    assert dict(os.environ) == before


def test_engines_ask_for_what_they_need() -> None:
    with (
        pytest.raises(ConfigError, match="unknown engine 'ray': give 'processes', 'dask'"),
        executor_of("ray", "tcp://x"),
    ):
        pass
    with pytest.raises(ConfigError, match="--scheduler is for --engine dask"), executor_of("processes", "tcp://x:1"):
        pass
    with pytest.raises(ConfigError, match="needs the address of a scheduler"), executor_of("dask", None):
        pass


@pytest.mark.parametrize(
    ("address", "settings"),
    [("tls://127.0.0.1:9", {}), ("tcp://127.0.0.1:9", {"distributed.comm.require-encryption": True})],
    ids=["no certificate", "no encryption"],
)
def test_an_address_that_does_not_fit_the_settings_of_a_cluster_is_refused(
    address: str, settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    monkeypatch.setattr("topdown.machine.engines._SECONDS", 1)
    with (
        dask.config.set(settings),
        pytest.raises(ConfigError, match=r"Dask's own settings do not allow it: .* distributed\.comm\.tls"),
        executor_of("dask", address),
    ):
        pass


def test_a_scheduler_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("topdown.machine.engines._SECONDS", 1)
    with pytest.raises(DataError, match="does not answer"), executor_of("dask", "tcp://127.0.0.1:9"):
        pass


@pytest.mark.parametrize("address", ["tls://127.0.0.1:9", "tcp://127.0.0.1:9"])
def test_a_client_that_did_not_connect_is_closed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("distributed").Client
    monkeypatch.setattr("topdown.machine.engines._SECONDS", 1)
    left: list[str] = []
    monkeypatch.setattr(client, "__del__", lambda self: left.append(self.status))
    with pytest.raises((ConfigError, DataError)), executor_of("dask", address):
        pass
    gc.collect()
    assert set(left) == {"closed"}  # earlier ones are collected too


# -- a scheduler that is lost behind a proxy --------------------------------------------------------------------------


class Proxy:
    """A port of this computer that leads to ``target``; when that ends, connections end too, or stay open, silent."""

    def __init__(self, target: tuple[str, int], *, silent: bool) -> None:
        self._target, self._silent = target, silent
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._held: list[socket.socket] = []
        self.address = f"tcp://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                self._held.append(client)
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    if not self._silent:
                        client.close()
                    continue
                self._held.append(server)
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        if not self._silent:
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for one in (self._socket, *self._held):
            one.close()


@contextlib.contextmanager
def scheduler_and_worker(folder: Path) -> Iterator[tuple[tuple[str, int], subprocess.Popen[bytes]]]:
    """The address of a scheduler with one worker, both processes of their own, and the scheduler's process."""
    file, programs = folder / "scheduler.json", []
    for command in (["dask_scheduler", "--port", "0"], ["dask_worker", "--nthreads", "1", "--no-nanny"]):
        asked = [sys.executable, "-m", f"distributed.cli.{command[0]}", *command[1:], "--no-dashboard"]
        programs.append(
            subprocess.Popen(
                [*asked, "--host", "127.0.0.1", "--scheduler-file", str(file)],
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        )
        while not file.exists() or not file.read_text():
            time.sleep(0.1)
    host, _, port = json.loads(file.read_text())["address"].removeprefix("tcp://").rpartition(":")
    try:
        yield (host, int(port)), programs[0]
    finally:
        for program in programs:
            program.kill()
            program.wait()


@pytest.mark.slow
@pytest.mark.parametrize("silent", [False, True], ids=["the proxy closes", "the proxy stays open"])
def test_a_scheduler_that_is_lost_behind_a_proxy_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("topdown.machine.engines._ASKED_EVERY", 3.0)
    monkeypatch.setattr("topdown.machine.engines._ANSWERED_WITHIN", 5.0)
    done = []

    def work(address: str, scheduler: subprocess.Popen[bytes]) -> None:
        with executor_of("dask", address) as executor:
            for task, _ in each_done(time.sleep, [0.2] * 3 + [1.0] * 100, executor, 2, str):
                done.append(task)
                if len(done) == 3:
                    scheduler.kill()

    with scheduler_and_worker(tmp_path) as (target, scheduler):
        proxy = Proxy(target, silent=silent)
        with pytest.raises(DataError, match="the scheduler of the cluster is lost"):
            work(proxy.address, scheduler)
        proxy.close()
    assert 3 <= len(done) < 10
