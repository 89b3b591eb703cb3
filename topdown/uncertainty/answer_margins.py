"""The table of margins of answers to queries: those that were measured, or any others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from topdown.errors import ConfigError, DataError
from topdown.geography.tree import FloatArray
from topdown.measurements.measurements import Measurements
from topdown.projection.estimate import Estimate
from topdown.projection.linear_answers import LinearAnswers, linear_answers
from topdown.projection.project import project
from topdown.uncertainty.answer_intervals import answer_intervals
from topdown.uncertainty.answer_laws import AnswerLaws
from topdown.workload import Query

if TYPE_CHECKING:
    from topdown.release.whole_counts import Release


def answer_margins(
    measurements: Measurements,
    release: Release | None,
    alpha: float,
    *,
    simultaneous: bool,
    queries: Sequence[str] | None = None,
) -> pd.DataFrame:
    """The table of `margins`, level by level: for every answer to ``queries``, or to every query where it was measured.

    Raises `ConfigError` as `AnswerLaws.of`, and for no query or an unknown one; `DataError` for a release of other
    units or cells.
    """
    laws, geography = AnswerLaws.of(measurements), measurements.geography
    _require_alike(measurements, release)
    asked: dict[Query, list[str]] = {}
    if queries is not None:
        if not queries:
            raise ConfigError("no query is asked; name at least one, or leave queries out for what was measured")
        asked = {Query.parse(name, measurements.schema): list(geography.levels) for name in queries}
    else:
        for level in geography.levels:
            for query in measurements.at(level):
                asked.setdefault(query, []).append(level)
    linear = linear_answers(measurements, asked) if measurements.others else project(measurements, "gls")
    known = {query: (laws.of_columns([(query, k) for k in range(query.n_answers)]), *_answers(linear, query))
             for query in asked}  # fmt: skip
    if simultaneous:
        nodes = {level: geography.level_slice(level) for level in geography.levels}
        told = (
            int((columns.settled(variance)[nodes[level]] > 0).sum())
            for query, (columns, _, variance) in known.items()
            for level in asked[query]
        )
        alpha /= max(1, sum(told))
    frames, everywhere = [], slice(0, geography.n_nodes)
    for query, (columns, x, variance) in known.items():
        variance = columns.settled(variance)
        released = None if release is None else release.answers_of(everywhere, query)
        lower, upper = answer_intervals(x, variance, columns, geography.tree, alpha, released)
        for level in asked[query]:
            part = geography.level_slice(level)
            rows = _rows(measurements, level, query, [c[part] for c in (x, np.sqrt(variance), lower, upper)])
            frames.append((geography.levels.index(level), rows))
    frames.sort(key=lambda pair: pair[0])
    return pd.concat([frame for _, frame in frames], ignore_index=True)


def _require_alike(measurements: Measurements, release: Release | None) -> None:
    if release is None:
        return
    if release.geography != measurements.geography or tuple(release.cells) != tuple(measurements.cells):
        raise DataError("the release has other units or cells than the measurements; give the one made of them")


def _answers(linear: Estimate | LinearAnswers, query: Query) -> tuple[FloatArray, FloatArray]:
    """Estimates and variances (nodes x answers) at all levels."""
    found = linear.answers_of(slice(0, linear.geography.n_nodes), query)
    return found.values, np.asarray(found.variance)


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
        frame[name] = values.ravel()
    return frame
