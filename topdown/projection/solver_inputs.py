"""Measurements as input of solvers, by the shape of the workload: cells one by one, answers level by level, and the
input of the descent by families.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from topdown.errors import ConfigError, ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, Tree
from topdown.measurements.measurements import Answers, Measurements
from topdown.projection.conditions import Conditions
from topdown.projection.histograms import precision_matrices
from topdown.projection.histograms.families import Descent
from topdown.projection.histograms.least_squares import queries_of
from topdown.projection.histograms.passes import Order, order_of
from topdown.projection.histograms.patterns import Patterns
from topdown.projection.invariants import Contradiction, lower_bounds, settle
from topdown.projection.limits import AnswerLimits
from topdown.projection.method import Method, Problem
from topdown.projection.upward_start import require_determined, start_of
from topdown.wording import shown
from topdown.workload import Query


def stated(measurements: Measurements, weights: str, *, nonnegative: bool, cells: Any = slice(None)) -> Problem:
    """Measurements of some cells, a slice or their numbers, as a kernel's input: cells first, exact values settled,
    weights as asked.

    Raises `ProjectionError` naming the node when exact values contradict each other.
    """
    geography = measurements.geography
    values = np.ascontiguousarray(measurements.values.T[cells], dtype=np.float64)
    variance = weighted(of_cells(measurements.node_variance, cells), weights)
    try:
        values, variance = settle(values, variance, geography.tree, nonnegative=nonnegative)
    except Contradiction as contradiction:
        raise in_words(geography, contradiction) from None
    lower = lower_bounds(values, variance, geography.tree) if nonnegative else None
    return Problem(values, variance, geography.tree, nonnegative, lower)


def of_cells(variance: FloatArray, cells: Any) -> FloatArray:
    """An array (nodes,) as it is; of one (nodes, cells) some cells, cells first."""
    return np.ascontiguousarray(variance.T[cells]) if variance.ndim == 2 else variance


def answers_by_level(measurements: Measurements, weights: str = "variance") -> list[dict[Query, Answers]]:
    """What was measured, level by level, with a variance per node. Raises `ConfigError` for one per answer."""
    found = []
    for level in measurements.geography.levels:
        entries = {}
        for query, one in measurements.at(level).items():
            variance = one.variance
            if variance.ndim == 2:
                if (variance != variance[:, :1]).any():
                    raise ConfigError(
                        f"level {shown(level)}, query {shown(query.name)}: the answers of a node have different "
                        "variances, and several queries are combined with one variance per node and "
                        "query; give every query's own"
                    )
                variance = variance[:, 0]
            # Integers are kept: as floats they would be in memory twice.
            known = Answers(one.values, np.asarray(variance, dtype=np.float64))
            entries[query] = weighted_answers(known, weights)
        found.append(entries)
    return found


def weighted_answers(answers: Answers, weights: str) -> Answers:
    """``answers`` with the variances that ``weights`` are the inverses of."""
    return Answers(answers.values, weighted(answers.variance, weights))


def weighted(variance: FloatArray, weights: str) -> FloatArray:
    """The variances that ``weights`` are the inverses of: the measurements' own, or 1 where noise is measured."""
    return variance if weights == "variance" else np.where((variance > 0) & np.isfinite(variance), 1.0, variance)


def are_one(variances: FloatArray) -> bool:
    """Whether the variances already give uniform weights: all finite positive ones are equal."""
    noisy = variances[(variances > 0) & np.isfinite(variances)]
    return bool(noisy.size == 0 or (noisy == noisy[0]).all())


def descent_of(
    measurements: Measurements,
    method: Method,
    weights: str,
    limits: AnswerLimits | None = None,
    upward: str | None = None,
    order: Order | None = None,
) -> Descent:
    """The input of the descent by families, from measurements.

    ``upward``: where the upward pass starts (`upward_start`). ``order``: the queries that are made non-negative first
    (`passes`). Raises `Contradiction` for exact answers and limits that cannot be, `ConfigError` for an ``upward`` or
    an ``order`` that makes no sense.
    """
    levels = measurements.geography.levels
    start = start_of(levels, method, upward)
    measured = answers_by_level(measurements, weights)
    patterns = Patterns(measurements.schema, queries_of(measured))
    if upward is not None:
        require_determined(levels, measured, start)
    asked = [{q: bool((a.variance == 0).all()) for q, a in level.items()} for level in measured]
    settled = order_of(levels, asked, measurements.schema, method, order)
    return descent_of_answers(measurements.geography.tree, measured, patterns, start, limits, settled)


def descent_of_answers(
    tree: Tree,
    measured: list[dict[Query, Answers]],
    patterns: Patterns,
    start: int,
    limits: AnswerLimits | None = None,
    order: Sequence[tuple[Query, ...]] = (),
) -> Descent:
    """`descent_of` from answers level by level, with one variance per node; ``patterns``: of all their queries,
    ``start``: the number of the level where the upward pass starts."""
    known = precision_matrices.known(tree, measured, patterns, start)
    conditions = Conditions.of(tree, measured, None if limits is None else limits.by_query)
    return Descent(tree, known, conditions, patterns, patterns.schema.possible_cells(), tree.leaf_counts, order)


def in_words(geography: Geography, contradiction: Contradiction) -> ProjectionError:
    """A contradiction as an error that names its node."""
    return ProjectionError(
        f"{geography.describe(contradiction.node)}: {contradiction}; correct the exact values, or give them a variance "
        "above 0"
    )
