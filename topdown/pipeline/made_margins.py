"""The margins of error of a release: which there are, and what the manifest says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from topdown.measurements.measurements import Measurements
from topdown.projection.estimate import Estimate
from topdown.release.histograms import HistogramRelease
from topdown.release.release import Release
from topdown.uncertainty.error_law import NORMAL
from topdown.uncertainty.margins import Margins, node_margins
from topdown.uncertainty.reach import Reach
from topdown.uncertainty.regions import no_sums
from topdown.uncertainty.words import OF_QUERIES, describe_margins

_ELSEWHERE = (
    "several queries were measured and the estimates of all cells are not published (output.estimates); td.margins and "
    "topdown query compute margins from the measurements, and the tables' estimates have theirs"
)


class MadeMargins(NamedTuple):
    """``margins`` of every cell, if there are any; ``reach``: of the answers in tables; ``said``: the manifest's entry
    on the margins of cells."""

    margins: Margins | None
    reach: Reach
    said: dict[str, Any]


def made_margins(
    measurements: Measurements,
    estimates: Mapping[str, object],
    release: Release | HistogramRelease,
    confidence: float,
    *,
    in_tables: bool,
) -> MadeMargins:
    """The margins at ``confidence`` of what was made of ``measurements``; ``in_tables``: whether tables have any.

    There are none of cells where they cannot be known, and where several queries were measured and the estimates of all
    cells, beside which they would stand, are not published.
    """
    reach = Reach.of(measurements, confidence) if in_tables else Reach(1.0 - confidence, NORMAL)
    reason = no_sums(measurements)
    if reason is not None:
        return MadeMargins(None, reach, describe_margins(confidence, reason))
    linear = estimates.get("unbiased")
    if not measurements.others:
        # What has no row in a release of rows with records is in no table but that of the estimates.
        nothing = np.zeros((measurements.geography.n_nodes, len(measurements.cells)), bool)
        whole = release.dense(nothing) if isinstance(release, HistogramRelease) else release
        values = linear.values if isinstance(linear, Estimate) else None
        margins = node_margins(measurements, whole, confidence=confidence, linear=values)
        return MadeMargins(margins, reach, describe_margins(confidence))
    if not isinstance(linear, Estimate) or linear.variance is None or isinstance(release, Release):
        return MadeMargins(None, reach, describe_margins(confidence, _ELSEWHERE))
    from topdown.uncertainty.cell_margins import cell_margins  # with a compiler

    margins = cell_margins(measurements, linear, release, confidence)
    return MadeMargins(margins, reach, describe_margins(confidence, None, OF_QUERIES))
