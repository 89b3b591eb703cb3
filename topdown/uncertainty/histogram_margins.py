"""Margins of error where several queries were measured with Gaussian noise: every answer's error is normal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray
from topdown.measurements.measurements import Measurements
from topdown.projection.estimate import Estimate
from topdown.projection.project import project
from topdown.uncertainty.error_law import NORMAL
from topdown.uncertainty.known_noise import fourth_cumulant, require_pivot
from topdown.uncertainty.node_intervals import intervals_of_one_law
from topdown.wording import shown
from topdown.workload import Query

if TYPE_CHECKING:
    from topdown.release.histograms import HistogramRelease

_LARGEST_EXCESS = 0.02
"""Of the noise's law: a normal law then misses within .0002 of nominal."""
_EXACT = 1e-12


def require_normal(measurements: Measurements) -> None:
    """Raises `ConfigError` as `require_pivot` does, and naming level and query where noise is not as good as normal."""
    require_pivot(measurements)
    plan = measurements.plan
    assert plan is not None  # nosec B101 # narrows a type: `require_pivot` refuses
    for level in measurements.geography.levels:
        for query in plan.queries(level):
            law = plan.law(level, query)
            if law is not None and fourth_cumulant(law) > _LARGEST_EXCESS * float(law.variance) ** 2:
                raise ConfigError(
                    f"level {shown(level)}, query {shown(query)}: where several queries are measured, margins are "
                    f"known for Gaussian noise, and this is {plan.mechanism}; measure with mechanism = "
                    '"discrete-gaussian", or the cells alone'
                )


def histogram_margins(
    measurements: Measurements, release: HistogramRelease | None, alpha: float, *, simultaneous: bool
) -> pd.DataFrame:
    """The table of `margins` for every answer to every query that was measured at a level, level by level.

    Any answer's error is a combination of normal errors, and so normal, whatever the queries are.
    """
    require_normal(measurements)
    geography, estimate = measurements.geography, project(measurements, "gls")
    asked: dict[Query, list[str]] = {}
    for level in geography.levels:
        for query in measurements.at(level):
            asked.setdefault(query, []).append(level)
    answers = {query: _answers(estimate, query) for query in asked}
    if simultaneous:
        told = sum(
            int((answers[query][1][:, geography.level_slice(level)] > 0).sum())
            for query, levels in asked.items()
            for level in levels
        )
        alpha /= max(1, told)
    frames = []
    for query, levels in asked.items():
        x, variance = answers[query]
        released = None if release is None else np.concatenate(
            [release.answers(level, query.name) for level in geography.levels]
        ).T.astype(np.float64)  # fmt: skip
        bounds = intervals_of_one_law(x, variance, NORMAL, geography.tree, alpha, released)
        for level in levels:
            nodes = geography.level_slice(level)
            columns = (x, np.sqrt(variance), bounds.lower, bounds.upper)
            frames.append(
                (geography.levels.index(level), _rows(measurements, level, query, [c[:, nodes] for c in columns]))
            )
    frames.sort(key=lambda pair: pair[0])
    return pd.concat([frame for _, frame in frames], ignore_index=True)


def _answers(estimate: Estimate, query: Query) -> tuple[FloatArray, FloatArray]:
    """Estimates and variances (answers x nodes) at all levels; a variance that is rounding is 0."""
    found = [estimate.answer(level, query.name) for level in estimate.geography.levels]
    x = np.concatenate([one.values for one in found]).T
    variance = np.concatenate([np.asarray(one.variance) for one in found]).T
    largest = np.max(variance, where=np.isfinite(variance), initial=1.0)
    return x, np.where(variance < _EXACT * largest, 0.0, variance)


def _rows(measurements: Measurements, level: str, query: Query, columns: list[FloatArray]) -> pd.DataFrame:
    geography = measurements.geography
    geoids = geography.identifiers[geography.level_slice(level)].to_pylist()
    labels = query.labels()
    frame = pd.DataFrame(
        {
            "geoid": np.repeat(np.array(geoids, object), len(labels)),
            "level": level,
            "query": query.name,
            "cell": list(labels) * len(geoids),
        }
    )
    for name, values in zip(("estimate", "sd", "lower", "upper"), columns, strict=True):
        frame[name] = values.T.ravel()
    return frame
