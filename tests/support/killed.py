"""Tasks whose worker is killed in their middle, once, whoever the worker is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


def die_once(flag: Path, seconds: float, work: Callable[[Any], Any], task: Any) -> Any:
    """``work`` of ``task``; the process that does it first is killed after so many seconds, or when it is done."""
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return work(task)
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
    work(task)
    os.kill(os.getpid(), signal.SIGKILL)
    return None


class Killing:
    """An executor of which a worker is killed in the step called ``name``, by ``flag``."""

    def __init__(self, executor: Any, name: str, flag: Path, seconds: float) -> None:
        self.executor, self.name, self.flag, self.seconds = executor, name, flag, seconds

    def submit(self, fn: Callable[..., Any], /, *arguments: Any) -> Any:
        """As of the executor."""
        if fn.__name__ == self.name:
            return self.executor.submit(die_once, self.flag, self.seconds, fn, *arguments)
        return self.executor.submit(fn, *arguments)
