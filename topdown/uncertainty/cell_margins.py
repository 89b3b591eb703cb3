"""Margins of error of every cell where several queries were measured, beside the estimates of all cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topdown.geography.tree import FloatArray
from topdown.measurements.measurements import Measurements
from topdown.projection.estimate import Estimate
from topdown.projection.several import EXACT
from topdown.uncertainty.histogram_margins import shape_of_answers
from topdown.uncertainty.margins import Margins, require_confidence
from topdown.uncertainty.node_intervals import intervals_of_one_law

if TYPE_CHECKING:
    from topdown.release.histograms import HistogramRelease


def cell_margins(
    measurements: Measurements, linear: Estimate, release: HistogramRelease | None, confidence: float
) -> Margins:
    """Margins of every cell of every node from the least-squares estimate ``linear`` of histograms, whose variances it
    has; with ``release`` they hold the released counts. Raises `ConfigError` as `shape_of_answers` does.
    """
    shape, alpha = shape_of_answers(measurements), 1.0 - require_confidence(confidence)
    geography, cells = measurements.geography, measurements.cells
    x, variance = linear.values.T, np.asarray(linear.variance).T
    largest = np.max(variance, where=np.isfinite(variance), initial=1.0)
    sd, lower, upper = (np.empty((len(cells), geography.n_nodes)) for _ in range(3))
    for block in geography.tree.blocks(len(cells)):
        spread = np.where(variance[block] < EXACT * largest, 0.0, variance[block])
        released = None if release is None else _counts(release, block)
        estimate = np.ascontiguousarray(x[block])
        sd[block] = np.sqrt(spread)
        lower[block], upper[block] = intervals_of_one_law(estimate, spread, shape, geography.tree, alpha, released)
    return Margins(geography, cells, linear.values, sd.T, lower.T, upper.T, confidence, simultaneous=False)


def _counts(release: HistogramRelease, block: slice) -> FloatArray:
    """The released counts (cells x nodes) of a block of cells."""
    n_nodes = release.geography.n_nodes
    found = np.zeros((block.stop - block.start, n_nodes))
    mine = (release.cells >= block.start) & (release.cells < block.stop)
    nodes = np.repeat(np.arange(n_nodes), np.diff(release.starts))
    found[release.cells[mine] - block.start, nodes[mine]] = release.counts[mine]
    return found
