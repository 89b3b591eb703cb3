"""Where the command `topdown` begins: an interrupt ends it in one line also while its libraries are still loading.

Imports nothing that takes time before it listens.
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
"""Bytes of address space without which numerical libraries wait for memory, without end, while they load."""

LEAST_STACK = 1 << 20
"""Bytes of stack for every thread: what brackets within brackets may take, and compiled loops."""


def main() -> None:
    """Run the command line; before it is loaded, and when it is done, Ctrl-C and SIGTERM end the process at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_at_once)
    _require_limits()
    # Threads of linear algebra would wait for those of Topdown, busily, on the same processors.
    for name in THREADS_OF_ALGEBRA:
        os.environ.setdefault(name, "1")
    from topdown.cli import main as command

    try:
        command()
    except SystemExit as end:
        _leave(end.code)


def _require_limits() -> None:
    """Refuse limits (``ulimit -v``, ``ulimit -s``) under which libraries do not load, or end the process where nobody
    can say so, in one line and with the code of bad data.
    """
    for what, limit, least, raised in (
        ("the address space", address_space_limit(), LEAST_ADDRESSES, "(ulimit -v) to 640 MiB"),
        ("the stack", stack_limit(), LEAST_STACK, "(ulimit -s) to 1 MiB"),
    ):
        if limit is not None and limit < least:
            os.write(2, f"error: {what} is limited to {limit >> 10:,} KiB; raise it {raised} or more\n".encode())
            os._exit(3)


def _leave(code: str | int | None) -> None:
    """End with ``code``, all that is open being closed: without Python's own end, which takes apart what hundreds of
    libraries hold, object by object, for half a second."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):
            stream.flush()
    os._exit(code if isinstance(code, int) else code is not None)


def _end_at_once(number: int, _: FrameType | None) -> None:
    """Nothing was begun, and nothing is to be tidied; an exception could be swallowed by a library that is loading."""
    os.write(2, b"stopped: run again to go on\n")
    os._exit(128 + number)
