"""Computed before a study draws: the exact variances of linear methods, and the widths of bins for errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.measurements.measurements import Measurements
from topdown.privacy.plan import Plan
from topdown.projection.published_estimates import ONE_CELL, error_sums
from topdown.projection.sum_errors import Weighted
from topdown.studies.draws import DrawnQuery
from topdown.studies.followed import Followed, Reported, followed_noise
from topdown.studies.methods import StudiedMethod
from topdown.studies.replicates import Simulation
from topdown.studies.residual_bins import bin_width
from topdown.workload import DETAILED, Query


def linear_variances(study: Simulation, plan: Plan, geography: Geography, noise: FloatArray) -> dict[str, FloatArray]:
    """The exact variances (rows x answers) of the methods that are linear and have a closed form, by label; NaN where
    they are undetermined. Of rows that are sums of several nodes those of least squares, and of the noise, are known.

    None for noise within bounds, whose variance depends on the count. ``noise``: of the measurements, (answers, rows).
    """
    found: dict[str, FloatArray] = {}
    if plan.bounds.any:
        return found
    levels: list[dict[Query, FloatArray]] = [{} for _ in geography.levels]
    for one in study.queries:
        nodes = geography.level_slice(geography.levels[one.level])
        levels[one.level][one.query] = np.full(nodes.stop - nodes.start, one.variance)
    for method in study.methods:
        variance: FloatArray | None = None
        if method.is_raw:
            variance = noise.T
        elif method.sums_alone and study.components is not None:
            closed = method.its_method.for_histograms().covariance
            if closed is not None:
                exact, everywhere = closed(study.tree, study.components, levels), slice(0, study.tree.n_nodes)
                parts = [exact.variance(query, everywhere) for query in study.followed.queries]
                variance = np.concatenate(parts, axis=1)
        elif method.sums_alone:
            of_cell = method.variance(study.variance, study.tree)
            # Cells are independent, so that variances add up.
            variance = None if of_cell is None else of_cell[:, None] * _cells_of_answers(study.followed.queries)
        if variance is not None and not method.is_raw:
            variance = _at_rows(study, variance, method)
        if variance is not None:
            found[method.label] = np.where(np.isfinite(variance), variance, np.nan)
    return found


def _at_rows(study: Simulation, variance: FloatArray, method: StudiedMethod) -> FloatArray:
    """The variances (rows x answers) at what is reported of those at the nodes (nodes x answers)."""
    reported = study.reported
    if reported.node is None or reported.starts is None:
        return variance
    found = variance[reported.node[reported.starts]]
    several = reported.sizes > 1
    # What goes up without x >= 0 is least squares.
    found[several] = study.least_squares[several] if method.upward else np.nan
    return found


def summed_variances(reported: Reported, planned: Measurements, queries: Sequence[Query]) -> FloatArray:
    """The exact variances (rows x answers) of the answers to ``queries`` by least squares of what is ``planned``; not
    finite where they are not determined."""
    errors, everywhere = error_sums(planned), np.arange(reported.n_rows)
    node = everywhere if reported.node is None else reported.node
    sums = Weighted(np.repeat(everywhere, reported.sizes), node, np.ones(len(node)), len(everywhere))
    if planned.others:
        return np.concatenate([errors.variances(sums, query) for query in queries], axis=1)
    # Cells are independent, so that variances add up.
    return errors.variances(sums, Query.parse(DETAILED, ONE_CELL)) * _cells_of_answers(queries)


def _cells_of_answers(queries: Sequence[Query]) -> FloatArray:
    """The number of possible cells that every answer is the sum of; (answers,)."""
    cells = queries[0].schema.possible_cells()
    parts = [np.bincount(query.answers_of(cells), minlength=query.n_answers) for query in queries]
    return np.concatenate(parts).astype(np.float64)


def widths_by_deviation(deviation: FloatArray, noise: FloatArray) -> FloatArray:
    """The widths of bins of errors with this standard ``deviation``; where it is 0 or not known as of the widest
    ``noise`` (variances)."""
    known = np.isfinite(deviation) & (deviation > 0)
    widest = math.sqrt(float(noise.max(where=np.isfinite(noise), initial=0.0)))
    widths = {one: bin_width(one) for one in np.unique(deviation[known]).tolist()}
    found = np.full(deviation.shape, bin_width(widest))
    found[known] = [widths[one] for one in deviation[known].tolist()]
    return found


def bin_widths(geography: Geography, plan: Plan, followed: Followed, asked: Sequence[DrawnQuery]) -> FloatArray:
    """The widths of bins (answers, nodes): from the noise on every answer, and where it has none of its own from the
    widest noise at and above it, since a non-negative projection may pass a parent's whole error to one child.
    """
    laws, _ = followed_noise(plan, geography, followed)
    found, widest = np.empty((len(followed.labels), geography.n_nodes)), 0.0
    for number, level in enumerate(geography.levels):
        of_level = [one.variance for one in asked if one.level == number and np.isfinite(one.variance)]
        of_level += [law.variance for law in laws[number] if law is not None]
        widest = max([widest, *(math.sqrt(one) for one in of_level)])
        for column, law in enumerate(laws[number]):
            found[column, geography.level_slice(level)] = bin_width(widest if law is None else math.sqrt(law.variance))
    return found
