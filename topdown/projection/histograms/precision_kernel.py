"""The precision and mean that a query's answers give for histograms, compiled: for few cells an interpreter would take
longer than the computation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from topdown.machine.compiled import compiled


@compiled
def add_slope(x: Any, answer: Any, sums: Any, said: Any, precision: Any, found: Any, size: Any) -> None:
    """Add one query's part of P x - g at ``x`` (nodes x cells) to ``found``, and the sizes of its terms to ``size``.

    ``answer`` (cells,): the answer in which each cell counts, below 0 where it counts in none; ``said`` (nodes x
    cells): the measured value of that answer; ``precision`` (nodes,): of the query. ``sums`` (answers,) is room to work
    in.
    """
    nodes, cells = x.shape
    for node in range(nodes):
        for k in range(cells):
            if answer[k] >= 0:
                sums[answer[k]] = 0.0
        for k in range(cells):
            if answer[k] >= 0:
                sums[answer[k]] += x[node, k]
        for k in range(cells):
            if answer[k] < 0:
                continue
            summed = sums[answer[k]]
            found[node, k] += precision[node] * (summed - said[node, k])
            size[node, k] += precision[node] * (abs(summed) + abs(said[node, k]))


@compiled
def add_said(precision: Any, said: Any, g: Any) -> None:
    """Add ``precision`` (nodes,) times what was measured, ``said`` (nodes x cells), to ``g``."""
    nodes, cells = g.shape
    for node in range(nodes):
        for k in range(cells):
            g[node, k] += precision[node] * said[node, k]


@compiled
def patterns_of(places: Any, groups: Any, classes: Any) -> Any:
    """The pattern (cells x cells) of every pair of cells, whose categories are ``places`` (attributes x cells) and
    whose classes of categories are ``groups``; ``classes`` (attributes,): how many there are."""
    attributes, cells = places.shape
    found = np.zeros((cells, cells), np.int32)
    for one in range(attributes):
        count = classes[one]
        for k in range(cells):
            for j in range(cells):
                if places[one, k] == places[one, j]:
                    mine = count * count + groups[one, k]
                else:
                    mine = groups[one, k] * count + groups[one, j]
                found[k, j] = found[k, j] * (count * (count + 1)) + mine
    return found
