"""Margins of error of every cell where several queries were measured, beside the estimates of all cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topdown.measurements.measurements import Measurements
from topdown.projection.estimate import Estimate
from topdown.uncertainty.answer_intervals import answer_intervals
from topdown.uncertainty.answer_laws import AnswerLaws
from topdown.uncertainty.margins import Margins, require_confidence
from topdown.workload import DETAILED, Query

if TYPE_CHECKING:
    from topdown.release.whole_counts import Release


def cell_margins(measurements: Measurements, linear: Estimate, release: Release | None, confidence: float) -> Margins:
    """Margins of every cell of every node from the least-squares estimate ``linear`` of histograms, whose variances it
    has; with ``release`` they hold the released counts. Raises `ConfigError` as `answer_noise` does.
    """
    alpha = 1.0 - require_confidence(confidence)
    x, variance = linear.values, np.asarray(linear.variance)
    everywhere, detailed = slice(0, measurements.geography.n_nodes), Query.parse(DETAILED, measurements.schema)
    columns = AnswerLaws.of(measurements).of_columns([(detailed, cell) for cell in range(detailed.n_answers)])
    released = None if release is None else release.answers_of(everywhere, detailed)
    lower, upper = answer_intervals(x, variance, columns, measurements.geography.tree, alpha, released)
    sd = np.sqrt(columns.settled(variance))
    return Margins(measurements.geography, measurements.cells, x, sd, lower, upper, confidence, simultaneous=False)
