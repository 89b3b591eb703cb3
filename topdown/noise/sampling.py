"""Shapes of samples, and filling them chunk by chunk so that temporary memory stays small."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from topdown.errors import ConfigError
from topdown.noise.exact.threshold_tables import DRAWS_PER_CHUNK, announce
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.noise.randomness import Source, require_source
from topdown.wording import shown

Size: TypeAlias = int | Sequence[int]

_MOST_DRAWS = np.iinfo(np.intp).max // 8
"""Of 8 bytes each, in an array."""


def sample_shape(size: Size, source: Source) -> tuple[int, ...]:
    """``size`` as a shape; raises `ConfigError` for what is not a shape, and for a ``source`` without random bytes."""
    require_source(source)
    try:
        shape = tuple(operator.index(n) for n in size) if isinstance(size, Sequence) else (operator.index(size),)
    except TypeError:
        raise ConfigError(f"size {size!r}: give a number of draws or a shape") from None
    if any(n < 0 for n in shape):
        raise ConfigError(f"size {size!r}: a shape has no negative extent")
    if math.prod(n or 1 for n in shape) > _MOST_DRAWS:
        raise ConfigError(f"size {shown(size)}: these are more draws than an array can have; draw fewer at a time")
    return shape


def fill(
    size: Size, source: Source, kind: np.dtype[Any], grid_bits: int, draw: Callable[[NDArray[Any]], None]
) -> NDArray[Any]:
    """An array of shape ``size`` from ``draw``, which fills arrays of integers of ``kind``; float64 multiples of
    2^-grid_bits on a grid.

    Raises OverflowError for a grid draw that a float64 cannot hold exactly.
    """
    shape = sample_shape(size, source)
    drawn: NDArray[Any] = np.empty(shape, dtype=np.float64 if grid_bits else kind)
    flat = drawn.reshape(-1)
    announce(flat.size)
    for start in range(0, flat.size, DRAWS_PER_CHUNK):
        chunk = flat[start : start + DRAWS_PER_CHUNK]
        if not grid_bits:
            draw(chunk)
            continue
        integers = np.empty(chunk.size, np.int64)
        draw(integers)
        if np.abs(integers).max() > LARGEST_WHOLE:
            raise OverflowError("a draw on the grid does not fit into a float64: choose a smaller scale or grid")
        np.multiply(integers, 2.0**-grid_bits, out=chunk)
    return drawn
