"""Files between steps: arrays by name, whole and as they were written, or not there."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.machine.files import whole_file

_DIGEST_BYTES = 32


def put(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write ``arrays`` to ``path``, closed to others, whole or not at all. Raises `OSError`."""
    held = io.BytesIO()
    np.savez(held, **arrays)  # type: ignore[arg-type] # of the keyword allow_pickle
    content = held.getbuffer()
    with whole_file(path, private=True) as partial, partial.open("wb") as file:
        file.write(hashlib.sha256(content).digest())
        file.write(content)


def take(path: Path) -> dict[str, npt.NDArray[Any]] | None:
    """What `put` wrote to ``path``; None where there is nothing, or not what was written."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if hashlib.sha256(content[_DIGEST_BYTES:]).digest() != content[:_DIGEST_BYTES]:
        return None
    with np.load(io.BytesIO(content[_DIGEST_BYTES:]), allow_pickle=False) as found:
        return {name: found[name] for name in found.files}
