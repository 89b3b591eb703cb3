"""Shared by the bounded laws: the checks of their parameters, and the shape of what they return.

A location is a confidential statistic, so no message shows one; messages give its position instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from topdown.errors import BudgetError, ConfigError
from topdown.noise.exact_numbers import rounds_whole_numbers
from topdown.noise.randomness import Source
from topdown.noise.sampling import Size, sample_shape
from topdown.wording import shown

FloatArray = NDArray[np.float64]
FloatOrArray = float | FloatArray
IntArray = NDArray[np.int64]
IntOrArray = int | IntArray

# Squares of anything smaller or larger leave the range of a double.
SMALLEST, LARGEST = 1e-150, 1e150
# Whole locations and bounds; an absent bound is UNBOUNDED, so that sums and differences of any two fit an int64.
LARGEST_COUNT, UNBOUNDED = 2**60, 2**62


def as_given(values: FloatArray) -> FloatOrArray:
    """A float for a 0-dimensional array, the array itself otherwise."""
    return float(values) if np.ndim(values) == 0 else values


def probabilities(q: ArrayLike) -> FloatArray:
    """``q`` as an array of numbers in [0, 1]; raises ConfigError for any other."""
    array = _array(q, np.float64)
    if array is None:
        raise ConfigError(f"probability {shown(q)}: give a number in [0, 1], or an array of them")
    wrong = ~((array >= 0) & (array <= 1))
    if wrong.any():
        raise ConfigError(f"probability {float(array[wrong].flat[0])!r}: give a number in [0, 1]")
    return array


def broadcast_shape(size: Size | None, parameters: tuple[int, ...], source: Source) -> tuple[int, ...]:
    """The shape of a sample: ``size``, which the parameters must broadcast to, or theirs when it is None."""
    shape = sample_shape(parameters if size is None else size, source)
    try:
        fits = np.broadcast_shapes(shape, parameters) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(
            f"size {shape}: parameters of shape {parameters} do not broadcast to it; give a size that ends in "
            f"{parameters}, or None for one draw per location"
        )
    return shape


def real_numbers(name: str, values: object, *, shown: bool = True) -> FloatArray:
    """``values`` as a float64 array without nan; ``shown=False`` keeps the (confidential) value out of the message."""
    array = _array(values, np.float64)
    if array is None:
        what = f" {values!r}" if shown else ""
        raise ConfigError(f"{name}{what}: give a real number or an array of them")
    if np.isnan(array).any():
        raise ConfigError(f"{name}: nan at position {int(np.flatnonzero(np.isnan(array))[0])}; give a real number")
    return array


def scales(values: object) -> FloatArray:
    """``values`` as an array of usable Laplace scales; raises ConfigError for any other."""
    scale = real_numbers("scale", values)
    wrong = ~((scale >= SMALLEST) & (scale <= LARGEST))
    if wrong.any():
        value = float(scale[wrong].flat[0])
        raise ConfigError(f"scale {value!r}: give a number between {SMALLEST:g} and {LARGEST:g}")
    return scale


def bound(name: str, values: object, *, absent: float) -> FloatArray:
    """``values`` as an array of bounds, None as ``absent`` (an infinity)."""
    array = real_numbers(name, absent if values is None else values)
    wrong = (array == -absent) | (np.isfinite(array) & (np.abs(array) > LARGEST))
    if wrong.any():
        value = float(array[wrong].flat[0])
        raise ConfigError(f"{name} {value!r}: give a number up to {LARGEST:g}, or None for no bound")
    return array


def positive(name: str, value: object) -> float:
    """``value`` as a positive, finite float; raises ConfigError (for an epsilon BudgetError) for any other."""
    number = real_numbers(name, value)
    if number.ndim or not 0.0 < float(number) < np.inf:
        error = BudgetError if name == "epsilon" else ConfigError
        raise error(f"{name} {value!r}: give one positive number")
    return float(number)


def whole_as_given(array: IntArray) -> IntOrArray:
    """An int for a 0-dimensional array, the array itself otherwise."""
    return int(array) if array.ndim == 0 else array


def whole_bound(name: str, values: object, absent: int) -> IntArray:
    """``values`` as int64 bounds, None and infinities as ``absent``."""
    if values is None:
        return np.array(absent)
    given = _array(values)
    if given is not None and given.dtype.kind == "f":
        infinite = given == np.copysign(np.inf, absent)
        return np.where(infinite, absent, whole_numbers(name, np.where(infinite, 0.0, given)))
    return whole_numbers(name, values)


def whole_numbers(name: str, values: object, *, shown: bool = True) -> IntArray:
    """``values`` as int64, at most 2^60 in magnitude; ``shown=False`` keeps a value out of the message."""
    given = _array(values)
    if given is None:
        raise ConfigError(
            f"{name}: give a whole number or an array of them, in which all rows are of one length and, if one is "
            "beyond 2^53, no number is a float"
        )
    if given.dtype.kind not in "iuf":
        raise ConfigError(f"{name}: give whole numbers, not {given.dtype}")
    with np.errstate(invalid="ignore"):
        wrong = ~((given == np.floor(given)) & (np.abs(given.astype(np.float64)) <= LARGEST_COUNT))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        what = f" {given.flat[at]}" if shown else ""
        raise ConfigError(f"{name}{what} at position {at}: give whole numbers of at most 2^60 in magnitude")
    return given.astype(np.int64)


def _array(values: object, kind: type[np.float64] | None = None) -> NDArray[Any] | None:
    """``values`` as a new array, None where they make none: so that no error that shows one is kept with a refusal.
    Without a ``kind`` also where whole numbers would be rounded."""
    try:
        array = np.array(values, dtype=kind)
    except (OverflowError, TypeError, ValueError):
        return None
    return None if kind is None and rounds_whole_numbers(values, array) else array
