"""Margins of error where several queries were measured: every answer's error is a sum of much noise, with one bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray
from topdown.measurements.measurements import Measurements
from topdown.noise import DiscreteGaussian, Law
from topdown.privacy.mechanism import EPSILON, MECHANISMS
from topdown.projection.estimate import Estimate
from topdown.projection.project import project
from topdown.uncertainty.error_law import NORMAL, AnyShape, Envelope, Shape, Term
from topdown.uncertainty.known_noise import fourth_cumulant, require_pivot
from topdown.uncertainty.node_intervals import intervals_of_one_law
from topdown.wording import shown
from topdown.workload import Query

if TYPE_CHECKING:
    from topdown.release.histograms import HistogramRelease

_NORMAL_EXCESS = 0.02
"""Of the noise's law: a normal law then misses within .0002 of nominal."""
_LARGEST_EXCESS = 3.6
"""Of the noise's law: that of geometric noise of a deviation of 1.3. Narrower noise falls in large steps."""
_LAPLACE_EXCESS = 3.0
_EXACT = 1e-12


def shape_of_answers(measurements: Measurements) -> AnyShape:
    """The shape of the law of every answer's error, as `bounding_shape` has it.

    Raises `ConfigError` as `require_pivot` does, and for noise that falls in steps which no such law covers, naming
    level and query.
    """
    require_pivot(measurements)
    for level, query, law in _laws(measurements):
        if _excess(law) > _LARGEST_EXCESS:
            raise ConfigError(
                f"level {shown(level)}, query {shown(query)}: noise of a standard deviation of {float(law.std):.3g} "
                "counts falls in steps, and where several queries are measured no margin is known for it; measure with "
                "less budget, or the cells alone"
            )
    return bounding_shape(measurements)


def bounding_shape(measurements: Measurements) -> AnyShape:
    """A shape that reaches as far as any sum of the noise of ``measurements``, whose mechanism is known.

    Of Gaussian noise the normal one. Of Laplace and geometric noise the law lies between a normal law, a Laplace law
    and the noise's own: at every point the largest of their tails is taken.
    """
    others = {law: _excess(law) for _, _, law in _laws(measurements) if _excess(law) > _NORMAL_EXCESS}
    if not others:
        return NORMAL
    laplace = Shape((), max(_LAPLACE_EXCESS, *others.values()))
    return Envelope((NORMAL, laplace, *(Shape((Term(law, 1, 1.0),), 0.0) for law in others)))


def _laws(measurements: Measurements) -> Iterator[tuple[str, str, Law]]:
    """The law of every level's query that is noisy; where a mechanism is known and no plan, of its narrowest noise,
    which is the least normal."""
    plan, mechanism = measurements.plan, measurements.mechanism
    if plan is None and MECHANISMS[str(mechanism)].currency == EPSILON:
        raise ConfigError(
            f"the noise is {mechanism}, and its plan is not known: where several queries are measured, margins are "
            "then known for Gaussian noise"
        )
    for level in measurements.geography.levels:
        for query, (_, variance) in measurements.at(level).items():
            if plan is not None:
                law = plan.law(level, query.name)
                if law is not None:
                    yield level, query.name, law
                continue
            narrowest = float(variance[variance > 0].min(initial=np.inf))
            if np.isfinite(narrowest):
                yield level, query.name, DiscreteGaussian.from_variance(narrowest)


def _excess(law: Law) -> float:
    return fourth_cumulant(law) / float(law.variance) ** 2 if law.variance > 0 else 0.0


def histogram_margins(
    measurements: Measurements, release: HistogramRelease | None, alpha: float, *, simultaneous: bool
) -> pd.DataFrame:
    """The table of `margins` for every answer to every query that was measured at a level, level by level.

    Raises `ConfigError` as `shape_of_answers` does.
    """
    shape = shape_of_answers(measurements)
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
        bounds = intervals_of_one_law(x, variance, shape, geography.tree, alpha, released)
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
