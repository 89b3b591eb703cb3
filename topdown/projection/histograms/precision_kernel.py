"""What a query's answers say of histograms, compiled: of few cells an interpreter takes longer than the work."""

from __future__ import annotations

from typing import Any

from topdown.machine.compiled import compiled


@compiled
def add_slope(x: Any, answer: Any, sums: Any, said: Any, precision: Any, found: Any, size: Any) -> None:
    """Add one query's part of P x - g at ``x`` (nodes x cells) to ``found``, and the sizes of its terms to ``size``.

    ``answer`` (cells,): the answer in which each cell counts; ``said`` (nodes x cells): what was measured of that;
    ``precision`` (nodes,): of the query. ``sums`` (answers,) is room to work in.
    """
    nodes, cells = x.shape
    for node in range(nodes):
        for k in range(cells):
            sums[answer[k]] = 0.0
        for k in range(cells):
            sums[answer[k]] += x[node, k]
        for k in range(cells):
            summed = sums[answer[k]]
            found[node, k] += precision[node] * (summed - said[node, k])
            size[node, k] += precision[node] * (abs(summed) + abs(said[node, k]))
