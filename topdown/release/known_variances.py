"""The statements of a release whose plan is not known: the variances of its measurements, and no guarantee."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from topdown.measurements.measurements import Measurements

STATEMENT = (
    "The plan under which these measurements were drawn is not known here, only their variances. Whoever drew them "
    "has to state what they protect, and by how much. Nothing else was computed from confidential counts."
)


class MeasuredQuery(NamedTuple):
    """A query at a level: how many ``units`` have an answer, how many of these have ``exact`` answers, and the least
    and the largest variance.
    """

    level: str
    query: str
    units: int
    exact: int
    least_variance: float
    largest_variance: float


def measured_queries(measurements: Measurements) -> Iterator[MeasuredQuery]:
    """Every query that has an answer, level by level, in the order of the measurements' table."""
    for level in measurements.geography.levels:
        for query, (_, variance) in measurements.at(level).items():
            spread = variance.reshape(len(variance), -1)
            there = spread[np.isfinite(spread).any(axis=1)]
            if len(there):
                exact = int((there == 0).all(axis=1).sum())
                yield MeasuredQuery(level, query.name, len(there), exact, float(there.min()), float(there.max()))


def privacy_record(measurements: Measurements) -> dict[str, Any]:
    """The manifest's entry on privacy."""
    return {
        "mechanism": measurements.mechanism,
        "measured": [one._asdict() for one in measured_queries(measurements)],
        "statement": STATEMENT,
    }


def exact_in_words(measurements: Measurements) -> list[str]:
    """One sentence per query with exact answers."""
    return [
        f"The answers to query {one.query!r} at {one.exact:,} of {one.units:,} units of level {one.level!r} are exact "
        "and are not protected."
        for one in measured_queries(measurements)
        if one.exact
    ] or ["None is known: no answer is exact."]
