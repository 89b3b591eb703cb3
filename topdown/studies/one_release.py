"""One release of whole counts by every method of a study, all from the same draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from topdown.confidential.counts import Counts
from topdown.confidential.measure import measure
from topdown.geography.tree import FloatArray, IntArray
from topdown.geography.unit_sums import published_sums
from topdown.measurements.measurements import Measurements
from topdown.noise import SeededSource
from topdown.privacy.plan import Plan
from topdown.projection.limits import AnswerLimits
from topdown.projection.project import project
from topdown.release.making import project_whole, round_counts
from topdown.release.whole_counts import Release
from topdown.studies.errors_table import ErrorTable
from topdown.studies.followed import Followed
from topdown.studies.methods import StudiedMethod
from topdown.uncertainty.margins import margins
from topdown.workload import DETAILED, Query


@dataclass(frozen=True, eq=False)
class PublishedExample:
    """One release with its margins of error, each (nodes x answers): whole ``values``, the standard deviation ``sd`` of
    the unbiased estimates, and the interval from ``lower`` to ``upper``.
    """

    values: IntArray = field(repr=False)
    sd: FloatArray = field(repr=False)
    lower: FloatArray = field(repr=False)
    upper: FloatArray = field(repr=False)

    @property
    def variation(self) -> FloatArray:
        """The coefficient of variation (nodes x answers): sd divided by the released count; 0 for exact values,
        infinite where 0 is published for an uncertain one.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.sd > 0, self.sd / self.values, 0.0)


def one_release(
    counts: Counts, plan: Plan, methods: Sequence[str], seed: int, limits: AnswerLimits | None = None
) -> dict[str, IntArray]:
    """Whole, non-negative counts (nodes x cells) by every projection among ``methods``, all from one seeded draw.

    ``methods``: labels of a study (see `methods.names`); those without x >= 0 give no records and are left out, and a
    method with and without rounding counts once. ``limits``: of answers, which histograms keep. Not for release: the
    draw is seeded.
    """
    parsed = [StudiedMethod.parse(label) for label in methods]
    projections = dict.fromkeys(m.projection for m in parsed if m.nonnegative)
    measurements = measure(counts, plan, SeededSource((seed, "one release")))
    return {name: _released(measurements, name, seed, limits).values for name in projections}


def _released(measurements: Measurements, projection: str, seed: int, limits: AnswerLimits | None) -> Release:
    """The release by ``projection``, of the units that are published."""
    ties = SeededSource((seed, "ties", projection))
    if measurements.others or limits is not None:
        release = project_whole(measurements, projection, constraints=limits, source=ties)
    else:
        release = round_counts(project(measurements, projection), source=ties)
    units = published_sums(measurements.geography)
    return release if units is None else release.at(units)


def published_example(
    counts: Counts,
    plan: Plan,
    projection: str,
    seed: int,
    confidence: float,
    followed: Followed | None = None,
    limits: AnswerLimits | None = None,
) -> PublishedExample:
    """The release of `one_release` by ``projection``, from the same draw, with its margins of error: of the cells, or
    the answers that are ``followed``.

    Not for release: the draw is seeded. Raises `ConfigError` as `margins` does.
    """
    measurements = measure(counts, plan, SeededSource((seed, "one release")))
    release = _released(measurements, projection, seed, limits)
    queries = [Query.parse(DETAILED, measurements.schema)] if followed is None else list(followed.queries)
    found = margins(measurements, release, confidence=confidence, queries=[query.name for query in queries])
    everywhere = slice(0, release.geography.n_nodes)

    def of(column: str) -> FloatArray:
        # A query's rows are in the order of nodes and answers.
        parts = [
            found.loc[found["query"] == query.name, column].to_numpy().reshape(-1, query.n_answers) for query in queries
        ]
        return np.concatenate(parts, axis=1)

    values = np.concatenate([release.answers_of(everywhere, query) for query in queries], axis=1)
    return PublishedExample(values, of("sd"), of("lower"), of("upper"))


def records_frame(table: ErrorTable, releases: Mapping[str, IntArray]) -> pd.DataFrame:
    """One row per leaf, cell and method: ``geoid, name, cell, method, truth, released, notice``."""
    leaves = table.geography.tree.leaves
    geoids = table.geography.identifiers[leaves.start :].to_pylist()
    names = table.geography.names[leaves.start :].to_pylist() if table.geography.names is not None else geoids
    frames = [
        pd.DataFrame(
            {
                "geoid": np.repeat(geoids, len(table.cells)),
                "name": np.repeat([name or geoid for name, geoid in zip(names, geoids, strict=True)], len(table.cells)),
                "cell": list(table.cells) * len(geoids),
                "method": method,
                "truth": table.truth[leaves].reshape(-1),
                "released": released[leaves].reshape(-1),
                "notice": table.notice,
            }
        )
        for method, released in releases.items()
    ]
    return pd.concat(frames, ignore_index=True)
