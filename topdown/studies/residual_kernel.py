"""Residuals counted by bin, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from topdown.machine.compiled import compiled


@compiled
def add_residuals(residuals: Any, width: Any, unit: float, counts: Any, offsets: Any) -> None:
    """Count ``residuals`` (rows, replicates) in ``counts`` and ``offsets`` (rows, bins), as a `Histogram` has them, in
    place. ``width`` (rows,): of the bins, which are centred on 0; ``unit``: into so many parts of a bin offsets are
    rounded.
    """
    rows, replicates = residuals.shape
    bins = counts.shape[1]
    for row in range(rows):
        for replicate in range(replicates):
            position = residuals[row, replicate] / width[row] + bins // 2
            place = int(min(max(position, 0.0), bins - 1.0))
            offset = (position - place) * unit
            counts[row, place] += 1
            offsets[row, place] += int(np.rint(unit - offset if place == 0 else offset))
