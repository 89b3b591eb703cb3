"""The entry point of the command `topdown`: an interrupt ends it with one line, even while libraries are loading.

It imports nothing slow before signals are handled.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

from topdown.machine.system import THREADS_OF_ALGEBRA, address_space_limit, stack_limit

LEAST_ADDRESSES = 640 << 20
"""With fewer bytes of address space, numerical libraries wait for memory forever while they load."""

LEAST_STACK = 1 << 20
"""Bytes of stack for every thread, which nested brackets in a file and compiled loops may need."""


def main() -> None:
    """Run the command line; before it is loaded, and when it is done, Ctrl-C and SIGTERM end the process at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_at_once)
    _require_limits()
    # Threads of the linear-algebra libraries would busy-wait on the processors that Topdown's threads use.
    for name in THREADS_OF_ALGEBRA:
        os.environ.setdefault(name, "1")
    from topdown.cli import main as command

    try:
        command()
    except SystemExit as end:
        _leave(end.code)


def _require_limits() -> None:
    """Refuse limits (``ulimit -v``, ``ulimit -s``) under which libraries do not load, or end the process without a
    message. Ends with one line and the exit code of bad data.
    """
    for what, limit, least, raised in (
        ("the address space", address_space_limit(), LEAST_ADDRESSES, "(ulimit -v) to 640 MiB"),
        ("the stack", stack_limit(), LEAST_STACK, "(ulimit -s) to 1 MiB"),
    ):
        if limit is not None and limit < least:
            os.write(2, f"error: {what} is limited to {limit >> 10:,} KiB; raise it {raised} or more\n".encode())
            os._exit(3)


def _leave(code: str | int | None) -> None:
    """End with ``code`` after closing everything that is open, without Python's own shutdown, which takes half a second
    to release the objects of hundreds of libraries.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):
            stream.flush()
    os._exit(code if isinstance(code, int) else code is not None)


def _end_at_once(number: int, _: FrameType | None) -> None:
    """End the process at once: nothing has begun, so nothing is to be cleaned up, and a library that is loading might
    suppress an exception.
    """
    os.write(2, b"stopped: run the command again\n")
    os._exit(128 + number)
