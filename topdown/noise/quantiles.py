"""Quantiles of an integer law by bisection on its cdf, and the shape of what scalar arguments return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def integer_quantile(cdf: Callable[[FloatArray], FloatArray], q: ArrayLike, reach: float, spacing: float = 1.0) -> Any:
    """The least multiple x of ``spacing`` with cdf(x) >= q; -inf at q = 0, inf at q = 1, nan elsewhere.

    ``cdf`` takes whole numbers of ``spacing`` and must be non-decreasing; [-reach, reach] must hold every
    other quantile, in the same units.
    """
    levels = np.asarray(q, dtype=np.float64)
    lower = np.full(levels.shape, -np.ceil(reach) - 1.0)
    upper = -lower
    while np.any(upper - lower > 1.0):
        middle = np.floor((lower + upper) / 2)
        # Beyond 2^53 neighbouring integers may round to one float; the bracket is then as close as it gets.
        if np.all((middle <= lower) | (middle >= upper)):
            break
        enough = cdf(middle) >= levels
        upper = np.where(enough, middle, upper)
        lower = np.where(enough, lower, middle)
    found = upper * spacing
    found = np.where(levels == 0, -np.inf, np.where(levels == 1, np.inf, found))
    return scalar_or_array(np.where((levels >= 0) & (levels <= 1), found, np.nan))


def scalar_or_array(values: ArrayLike) -> Any:
    """A float for a zero-dimensional result, the array otherwise, as numpy's own functions do."""
    array = np.asarray(values, dtype=np.float64)
    return float(array) if array.ndim == 0 else array
