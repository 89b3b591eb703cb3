"""The look-up in a table of thresholds, compiled: as numpy's `take`, with the undecided places in the same pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topdown.machine.compiled import compiled


@compiled
def look_up(
    guide: NDArray[np.int16],
    top: NDArray[np.uint16],
    undecided_entry: int,
    short: NDArray[np.int16],
    undecided: NDArray[np.intp],
) -> int:
    """``short`` = ``guide[top]``; the places of ``undecided_entry`` in it first in ``undecided``, and how many."""
    count = 0
    for place in range(top.size):
        entry = guide[top[place]]
        short[place] = entry
        if entry == undecided_entry:
            undecided[count] = place
            count += 1
    return count
