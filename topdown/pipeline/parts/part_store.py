"""Files between steps: arrays by name, whole and as they were written, or not there."""

from __future__ import annotations

import hashlib
import io
import secrets
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.machine.files import make_folder, whole_file
from topdown.tables.tidy import named_failures

KEPT = "free the space and run again: what is done is kept, and the noise will be the same"
"""The remedy where a step cannot write a file."""

_DIGEST_BYTES = 32

_READING = threading.Lock()
"""Held while NumPy reads an array. It parses the header as Python does, and before Python 3.12.2 two threads that parse
at the same time may end in `SystemError` (python/cpython#106905)."""


def put(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write ``arrays`` to ``path``, closed to others, whole or not at all, also where another does the same.

    Raises `OSError`.
    """
    held = io.BytesIO()
    np.savez(held, **arrays)  # type: ignore[arg-type] # of the keyword allow_pickle
    content = held.getbuffer()
    # Two may be at the same part: each writes under a name of its own, and the later takes the place of the earlier.
    own = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with whole_file(own, private=True) as partial, partial.open("wb") as file:
            file.write(hashlib.sha256(content).digest())
            file.write(content)
        own.replace(path)
    finally:
        own.unlink(missing_ok=True)


def put_durably(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """`put` in a folder that is made where it is not there. Raises `DataError` where that cannot be."""
    with named_failures(path, KEPT):
        make_folder(path.parent, private=True)
        put(path, arrays)


def part_of(path: Path, name: str) -> npt.NDArray[Any]:
    """One array of those that `put` wrote to ``path``, without reading the others; of it alone the checksum is looked
    at. Raises `OSError`, `KeyError`, `ValueError` or `zipfile.BadZipFile` where it is not there or not whole."""
    with zipfile.ZipFile(path) as found, _READING, found.open(f"{name}.npy") as member:
        array: npt.NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        return array


def take(path: Path) -> dict[str, npt.NDArray[Any]] | None:
    """What `put` wrote to ``path``; None where there is nothing, or not what was written."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    held = memoryview(content)[_DIGEST_BYTES:]
    if hashlib.sha256(held).digest() != content[:_DIGEST_BYTES]:
        return None
    with _READING, np.load(io.BytesIO(held), allow_pickle=False) as found:
        return {name: found[name] for name in found.files}
