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

from topdown.machine.system import THREADS_OF_ALGEBRA, address_space_limit

LEAST_ADDRESSES = 640 << 20
"""Bytes of address space without which numerical libraries wait for memory, without end, while they load."""


def main() -> None:
    """Run the command line; before it is loaded, and when it is done, Ctrl-C and SIGTERM end the process at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_at_once)
    _require_addresses()
    # Threads of linear algebra would wait for those of Topdown, busily, on the same processors.
    for name in THREADS_OF_ALGEBRA:
        os.environ.setdefault(name, "1")
    from topdown.cli import main as command

    try:
        command()
    except SystemExit as end:
        _leave(end.code)


def _require_addresses() -> None:
    """Refuse a limit (``ulimit -v``) under which libraries do not load, in one line and with the code of bad data."""
    limit = address_space_limit()
    if limit is not None and limit < LEAST_ADDRESSES:
        said = f"error: the address space is limited to {limit >> 20} MiB; raise it (ulimit -v) to 640 MiB or more\n"
        os.write(2, said.encode())
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
