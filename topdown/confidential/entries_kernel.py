"""Compiled sums over siblings of counts that are stored as only those cells that have records."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.machine.compiled import compiled

Ints = npt.NDArray[np.int64]


@compiled
def distinct(starts: Ints, cells: npt.NDArray[Any], families: Ints, n_cells: int) -> Ints:
    """How many cells with records each of ``families`` has (given by their first children, and the end); children as in
    `merged`.
    """
    found = np.zeros(len(families) - 1, np.int64)
    seen = np.full(n_cells, -1, np.int64)
    for family in range(len(found)):
        for place in range(starts[families[family]], starts[families[family + 1]]):
            if seen[cells[place]] != family:
                seen[cells[place]] = family
                found[family] += 1
    return found


@compiled
def merged(
    starts: Ints,
    cells: npt.NDArray[Any],
    counts: npt.NDArray[Any],
    families: Ints,
    into: Ints,
    own_cells: npt.NDArray[Any],
    own_counts: npt.NDArray[Any],
    n_cells: int,
) -> None:
    """Write every family's cells, in rising order, and the sums of their ``counts`` from ``into`` on. Child k has
    ``counts[starts[k]:starts[k + 1]]`` in the ``cells`` of the same places.
    """
    total = np.zeros(n_cells, np.int64)
    seen = np.full(n_cells, -1, np.int64)
    for family in range(len(families) - 1):
        first = stop = into[family]
        for place in range(starts[families[family]], starts[families[family + 1]]):
            cell = cells[place]
            if seen[cell] != family:
                seen[cell] = family
                total[cell] = 0
                own_cells[stop] = cell
                stop += 1
            total[cell] += counts[place]
        own_cells[first:stop].sort()
        for place in range(first, stop):
            own_counts[place] = total[own_cells[place]]
