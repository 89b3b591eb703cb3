"""Standard output and standard error that never stop a command: when they are closed, on a full disk, or in an encoding
without some characters. A release is never lost because its progress cannot be printed. A failure is remembered for the
exit code.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from topdown.wording import FAILED, reason

UNWRITABLE = 74
"""The exit code of a command whose result is what it prints, where that cannot be written; EX_IOERR of sysexits.h."""

OUTLIVES_OUTPUT = object()
"""The return value of a command whose results are on disk, so that nothing is lost where its output cannot be written.
"""


class Lasting:
    """``stream`` for text that is written if it can be; the first failure is kept and the rest is dropped.

    ``failure``: what went wrong, in words; None while nothing has. ``unwanted``: whether what reads it has ended, as
    `head` does when it has its lines.
    """

    def __init__(self, stream: TextIO | None) -> None:
        # Python has none where a command is started with its output closed.
        self._is_closed = stream is None
        self._stream = stream or io.StringIO()
        self.failure: str | None = None
        self.unwanted = False
        # A character that the encoding lacks is written as \\xe9 or \\u2500, where Python would fail.
        with suppress(AttributeError, ValueError, OSError):
            self._stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]

    def write(self, text: str) -> int:
        """Write ``text`` unless the stream has failed; how long it is, either way."""
        if self.failure is None:
            try:
                if text and self._is_closed:
                    raise OSError(errno.EBADF, "closed")
                self._stream.write(text)
            except (OSError, ValueError) as error:
                self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Hand over what was written."""
        if self.failure is None:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.failure = reason(error, FAILED)
        self.unwanted = isinstance(error, BrokenPipeError)
        # The rest of the buffer would fail again when Python ends, with another message and exit code.
        with suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def lasting_streams() -> Iterator[Lasting]:
    """Standard output and standard error as `Lasting` streams while the block runs; gives the former."""
    _open_what_is_closed()
    before = sys.stdout, sys.stderr
    output, errors = (Lasting(stream) for stream in before)
    sys.stdout, sys.stderr = cast(TextIO, output), cast(TextIO, errors)
    try:
        yield output
    finally:
        output.flush()
        errors.flush()
        sys.stdout, sys.stderr = before


def _open_what_is_closed() -> None:
    """Open closed standard streams. Otherwise the first file that is opened would get the number of a closed stream,
    and output of libraries would go into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
