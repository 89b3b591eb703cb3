"""The release does not depend on how many workers made it."""

from __future__ import annotations

import shutil
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from support.places import REPOSITORY
from topdown.config import load_config
from topdown.errors import ConfigError
from topdown.machine.parallel import map_ordered
from topdown.pipeline import run as pipeline

PIPELINE = REPOSITORY / "pipelines" / "us_counties.toml"


def test_one_and_two_workers_make_the_same_files_from_the_same_measurements(tmp_path: Path) -> None:
    config = load_config(PIPELINE)
    first = pipeline.run(config, tmp_path / "one", workers=1).public
    shutil.copytree(tmp_path / "one" / "internal", tmp_path / "two" / "internal")
    second = pipeline.run(config, tmp_path / "two", workers=2).public
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    for name in names:
        if name != "manifest.json":
            assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_no_worker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="workers is 0"):
        pipeline.run(load_config(PIPELINE), tmp_path, workers=0)


class _LastFirst(Executor):
    """An executor that runs everything it was given, the last task first, when a result is asked for."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        executor = self

        class Late(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                while executor.waiting:
                    future, call = executor.waiting.pop()
                    future.set_result(call())
                return super().result(timeout)

        future: Future[Any] = Late()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future


def test_results_come_in_the_order_of_the_tasks_on_any_executor() -> None:
    ran: list[int] = []

    def square(k: int) -> int:
        ran.append(k)
        return k * k

    assert list(map_ordered(square, range(2), _LastFirst())) == [0, 1]
    assert ran == [1, 0]
