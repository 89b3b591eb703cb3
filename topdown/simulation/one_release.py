"""One whole release by every method of a study, from the same draw: what records made from it would say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from topdown.confidential.counts import Counts
from topdown.confidential.measure import measure
from topdown.geography.tree import IntArray
from topdown.noise import SeededSource
from topdown.privacy.plan import Plan
from topdown.projection.limits import AnswerLimits
from topdown.projection.project import project
from topdown.release.histograms import project_whole
from topdown.release.release import round_counts
from topdown.simulation.methods import StudiedMethod


def one_release(
    counts: Counts, plan: Plan, methods: Sequence[str], seed: int, limits: AnswerLimits | None = None
) -> dict[str, IntArray]:
    """Whole, non-negative counts (nodes x cells) by every projection among ``methods``, all from one seeded draw.

    ``methods``: labels of a study (see `methods.NAMES`); those without x >= 0 make no records and are left out, and one
    that is there rounded and not rounded counts once. ``limits``: of answers, which histograms keep.
    Not for release: the draw is seeded.
    """
    parsed = [StudiedMethod.parse(label) for label in methods]
    projections = dict.fromkeys(m.projection for m in parsed if m.nonnegative)
    measurements = measure(counts, plan, SeededSource((seed, "one release")))
    if measurements.others:
        nothing = np.zeros(counts.values.shape, np.bool_)
        return {
            name: project_whole(measurements, name, limits=limits, source=SeededSource((seed, "ties", name)))
            .dense(nothing)
            .values
            for name in projections
        }
    return {
        name: round_counts(project(measurements, name), source=SeededSource((seed, "ties", name))).values
        for name in projections
    }
