"""Where the command `topdown` begins: an interrupt ends it in one line also while its libraries are still loading.

Imports nothing that takes time before it listens.
"""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line; before it is loaded, and when it is done, Ctrl-C and SIGTERM end the process at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end_at_once)
    from topdown.cli import main as command

    command()


def _end_at_once(number: int, _: FrameType | None) -> None:
    """Nothing was begun, and nothing is to be tidied; an exception could be swallowed by a library that is loading."""
    os.write(2, b"stopped: run again to go on\n")
    os._exit(128 + number)
