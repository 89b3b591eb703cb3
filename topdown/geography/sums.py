"""Sums over families, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.machine.compiled import compiled


@compiled
def sums_of_rows(values: npt.NDArray[Any], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The sums (families x columns) of whole ``values`` (children x columns) over families that begin at ``starts``, as
    int64."""
    found = np.zeros((values.shape[1], len(starts)), np.int64)
    for column in range(values.shape[1]):
        for family in range(len(starts)):
            stop = starts[family + 1] if family + 1 < len(starts) else len(values)
            total = 0
            for child in range(starts[family], stop):
                total += values[child, column]
            found[column, family] = total
    return found.T
