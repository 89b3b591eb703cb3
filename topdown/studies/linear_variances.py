"""Computed before a study draws: the exact variances of linear methods, and the widths of bins for errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.privacy.plan import Plan
from topdown.studies.draws import DrawnQuery
from topdown.studies.followed import Followed, followed_noise
from topdown.studies.replicates import Simulation
from topdown.studies.residual_bins import bin_width
from topdown.workload import Query


def linear_variances(study: Simulation, plan: Plan, geography: Geography, noise: FloatArray) -> dict[str, FloatArray]:
    """The exact variances (nodes x answers) of the methods that are linear and have a closed form, by label; NaN where
    they are undetermined.

    None for noise within bounds, whose variance depends on the count.
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
            variance = None if of_cell is None else of_cell[:, None] * _cells_of_answers(study.followed)
        if variance is not None:
            found[method.label] = np.where(np.isfinite(variance), variance, np.nan)
    return found


def _cells_of_answers(followed: Followed) -> FloatArray:
    """The number of possible cells that every answer is the sum of; (answers,)."""
    cells = followed.queries[0].schema.possible_cells()
    parts = [np.bincount(query.answers_of(cells), minlength=query.n_answers) for query in followed.queries]
    return np.concatenate(parts).astype(np.float64)


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
