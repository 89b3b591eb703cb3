"""Ctrl-C and SIGTERM: delayed where work must not be interrupted, and turned into one line and an exit code."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

INTERRUPTED = 128 + int(signal.SIGINT)
"""The exit code of a command that Ctrl-C stopped; of one that was told to terminate it is 143, by the same rule."""

_IMPORTING = "<frozen importlib._bootstrap>"
_A_MOMENT = 0.01
"""Seconds after which a signal that arrived while a library was loading is sent again."""

LINE = "stopped: nothing is half-written; run the command again"


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the end of the block, in the main thread; elsewhere they never interrupt it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = {number: signal.signal(number, lambda n, _: waiting.append(n)) for number in SIGNALS}
    try:
        yield
    finally:
        _restore(before)
        for number in dict.fromkeys(waiting):
            signal.raise_signal(number)


@contextmanager
def one_line() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt in the block; if it ends the block, print one line and exit.

    Raises SystemExit: 130 after Ctrl-C, 143 after SIGTERM. A command that ends with code 130 by itself, since it kept
    what was finished, is treated in the same way.
    """
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if _is_loading(frame):
            # An exception there could leave Python's lock on imports taken, for which every other thread that loads a
            # library waits, or be swallowed by the library.
            again = threading.Timer(_A_MOMENT, _send, [number])
            again.daemon = True
            again.start()
            return
        received.append(number)
        raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, stop) for number in SIGNALS} if in_main else {}
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        with suppress(OSError, ValueError):
            # In one write: a thread that loads libraries may print something in between.
            sys.stderr.write(f"{LINE}\n")
            sys.stderr.flush()
        raise SystemExit(128 + received[0] if received else INTERRUPTED) from None
    finally:
        _restore(before)


def _is_loading(frame: FrameType | None) -> bool:
    """Whether ``frame``, or one that called it, is Python's own code that loads a module."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


def _send(number: int) -> None:
    """``number`` to the main thread, which on Windows waits in no call that a signal would end."""
    if sys.platform == "win32":
        signal.raise_signal(number)
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, number)


def _restore(handlers: dict[signal.Signals, signal._HANDLER]) -> None:
    for number, handler in handlers.items():
        # None: one that was not set from Python, which Python cannot give back.
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
