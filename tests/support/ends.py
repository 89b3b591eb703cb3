"""Whether something that may wait without end ends."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

SECONDS = 30
"""What no command on a small table takes, however busy the machine is."""


@contextlib.contextmanager
def must_end() -> Iterator[None]:
    """Fails after `SECONDS`; for the main thread."""

    def hangs(*_: object) -> None:
        raise AssertionError(f"takes more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
