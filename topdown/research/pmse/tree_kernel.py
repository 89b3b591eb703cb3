"""The best second cuts of trees of depth 2, compiled: every pair of cuts is compared once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from topdown.machine.compiled import compiled

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@compiled
def improve(
    below: FloatArray,
    above: FloatArray,
    first: IntArray,
    second: IntArray,
    labels: IntArray,
    n_second: int,
    share: float,
) -> None:
    """Raise ``below`` and ``above``, by cut of the first feature, to the best stump in the second on either side.

    ``first``, ``second``: codes of the rows' values of both features, in the order of ``first``; ``labels`` 0 or 1;
    ``share`` of 1 among them. A gain is what a partition adds to N pMSE. No second cut is a stump too.
    """
    rows, synthetic = np.zeros(n_second), np.zeros(n_second)
    rows_above, synthetic_above = np.zeros(n_second), np.zeros(n_second)
    for k in range(len(first)):
        rows_above[second[k]] += 1
        synthetic_above[second[k]] += labels[k]
    at = 0
    for cut in range(len(below)):
        while first[at] == cut:
            rows[second[at]] += 1
            synthetic[second[at]] += labels[at]
            rows_above[second[at]] -= 1
            synthetic_above[second[at]] -= labels[at]
            at += 1
        below[cut] = max(below[cut], _best_stump(rows, synthetic, share))
        above[cut] = max(above[cut], _best_stump(rows_above, synthetic_above, share))


@compiled
def _best_stump(rows: FloatArray, synthetic: FloatArray, share: float) -> float:
    total, total_synthetic = rows.sum(), synthetic.sum()
    best = m = a = 0.0
    for value in range(len(rows)):
        m += rows[value]
        a += synthetic[value]
        rest, rest_synthetic = total - m, total_synthetic - a
        gain = (a - share * m) ** 2 / max(m, 1.0) + (rest_synthetic - share * rest) ** 2 / max(rest, 1.0)
        if gain > best:
            best = gain
    return best
