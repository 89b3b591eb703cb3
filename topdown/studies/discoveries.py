"""Which of many biases are more than simulation error: the false discovery rate, and conservative extremes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from topdown.geography.tree import FloatArray
from topdown.studies.errors_table import ErrorTable

RATE = 0.05
"""The largest expected part of values called biased that are not."""

CONFIDENCE = 0.95


def discoveries(
    values: npt.ArrayLike, standard_errors: npt.ArrayLike, replicates: int, *, resolution: npt.ArrayLike = 0.0
) -> npt.NDArray[np.bool_]:
    """Which of ``values`` are not 0, at a false discovery rate of `RATE` over all of them.

    By the two-sided t-test of every value with its Monte Carlo ``standard_errors`` from ``replicates``. On average at
    most the part `RATE` of the found values is truly 0, where tests are independent or positively dependent. A value
    within ``resolution`` of 0, or without a standard error (NaN, from one replicate), is never found.

    Source: Benjamini and Hochberg, "Controlling the False Discovery Rate" (1995);
    `scipy.stats.false_discovery_control`.
    """
    value, error, smallest = np.broadcast_arrays(
        np.asarray(values, dtype=np.float64), np.asarray(standard_errors, dtype=np.float64), resolution
    )
    found = np.zeros(value.shape, dtype=np.bool_)
    tested = np.isfinite(value) & np.isfinite(error)
    if replicates < 2 or not tested.any():
        return found
    from scipy.stats import false_discovery_control

    size = np.abs(value[tested])
    small = size <= smallest[tested]
    t = np.divide(size, error[tested], out=np.full_like(size, np.inf), where=error[tested] > 0)
    p = np.where(small, 1.0, 2.0 * special.stdtr(replicates - 1, -t))
    found[tested] = false_discovery_control(p, method="bh") <= RATE
    return found


def at_least(values: npt.ArrayLike, standard_errors: npt.ArrayLike) -> FloatArray:
    """The lower limit of the 95 % interval of every value's size, 0 where the interval holds 0. The most biased are
    chosen by it, because the largest of many values also have large simulation errors.

    A value without a standard error (NaN) counts as it is.
    """
    error = np.nan_to_num(np.asarray(standard_errors, dtype=np.float64), nan=0.0)
    z = float(special.ndtri((1.0 + CONFIDENCE) / 2.0))
    return np.asarray(np.maximum(np.abs(np.asarray(values, dtype=np.float64)) - z * error, 0.0))


def biased(table: ErrorTable, method: str, nodes: slice, column: int | slice) -> npt.NDArray[np.bool_]:
    """Which of ``nodes`` have a bias under ``method``, in the cell (or cells) ``column``, by `discoveries` over
    them."""
    near: Any = table.resolution[nodes] if isinstance(column, int) else table.resolution[nodes, None]
    return discoveries(
        table[method, "bias"][nodes, column],
        table[method, "bias_se"][nodes, column],
        table.replicates,
        resolution=near,
    )
