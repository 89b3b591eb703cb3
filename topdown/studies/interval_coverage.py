"""The coverage of the intervals that a release would publish, by size of the count, level and group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.geography.unit_sums import published as published_units
from topdown.geography.unit_sums import published_sums
from topdown.measurements.measurements import Answers, Measurements
from topdown.planning.expected import Expected
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import variances
from topdown.projection.published_estimates import error_sums
from topdown.projection.sum_errors import Weighted
from topdown.studies.decisions.rules import GroupMean
from topdown.studies.fairness import SIZE_EDGES, size_class_names
from topdown.studies.followed import Followed
from topdown.studies.methods import StudiedMethod
from topdown.studies.unit_groups import Groups
from topdown.uncertainty.intervals import IntervalEnds, intervals
from topdown.uncertainty.laws.answer_laws import AnswerLaws, ColumnLaws
from topdown.uncertainty.laws.known_noise import no_margins
from topdown.uncertainty.margins import require_confidence
from topdown.workload import DETAILED, Query, Schema

EVERY, BY_TRUTH, BY_PUBLISHED = "all", "true count", "published count"
"""The classifications of units, beside the groupings of a study."""

COLUMNS = ("level", "cell", "by", "group", "units", "covered", "covered_se", "nominal", "moe")


@dataclass(frozen=True)
class CoverageOptions:
    """Which intervals a study follows: those that a release publishes.

    Args:
        released: the method of the release.
        confidence: of the intervals, above 0.5 and below 1.
        size_classes: counts at which a class ends and the next begins.
        groups: groups of leaves, by the count of a cell; coverage is reported for each.

    Examples:
        >>> options = td.CoverageOptions("gls-top-down", confidence=0.9)
        >>> covered = td.simulate(counts, plan, ["gls-top-down"], 100, seed=1, coverage=options)
        >>> covered.coverage.columns[:4].tolist()
        ['level', 'cell', 'by', 'group']
    """

    released: str
    confidence: float = 0.9
    size_classes: Sequence[float] = SIZE_EDGES
    groups: Sequence[GroupMean] = field(default=(), repr=False)

    @property
    def method(self) -> StudiedMethod:
        """The method of the release as a method of the study."""
        return StudiedMethod(self.released, nonnegative=True, rounded=True)


class _Class(NamedTuple):
    """A class of units of a level and cell: the classification (``by``) and the name of the class."""

    level: str
    cell: str
    by: str
    group: str


@dataclass(frozen=True, eq=False)
class FollowedIntervals:
    """What the intervals of every replicate need, and the classes of units in which covering intervals are counted.

    ``method``: the one that is released. ``variance`` (answers x nodes) and ``laws``: of the errors of least squares of
    the answers, or cells, that are studied. ``rows``: places in (answers x nodes), class after class, each class from
    ``starts`` on, with their ``weight`` in it; they stay the same in all replicates. ``noisy``: the places that have an
    interval to judge, and ``first`` the number of the first published size class of each.
    """

    tree: Tree
    method: StudiedMethod
    confidence: float
    variance: FloatArray
    laws: ColumnLaws
    edges: FloatArray
    rows: IntArray
    starts: IntArray
    weight: FloatArray
    noisy: IntArray
    first: IntArray
    classes: tuple[_Class, ...]

    @classmethod
    def of(
        cls, options: CoverageOptions, plan: Plan, geography: Geography, followed: Followed, truth: FloatArray
    ) -> FollowedIntervals:
        """For a study of ``truth`` (answers, units), the answers ``followed``, under ``plan``; on a spine of the units
        that are published.

        Raises `ConfigError` where the release would have no margins, and for a confidence outside of (0.5, 1).
        """
        variance, laws = _laws(plan, geography, followed)
        geography = published_units(geography)
        edges = np.asarray(options.size_classes, dtype=np.float64)
        edges = edges if edges[0] <= 1 else np.concatenate([[1.0], edges])
        names = size_class_names(edges.tolist())
        names[0] = "0" if edges[0] == 1 else names[0]
        has_interval = variance > 0
        parts: list[tuple[_Class, IntArray, FloatArray]] = []
        published: list[_Class] = []
        first = np.zeros(truth.shape, np.int64)
        for level in geography.levels:
            nodes = geography.level_slice(level)
            for k, cell in enumerate(followed.labels):
                here = np.arange(nodes.start, nodes.stop)[has_interval[k, nodes]]
                if not len(here):
                    continue
                first[k, here] = len(published)
                published += [_Class(level, cell, BY_PUBLISHED, name) for name in names]
                size = np.searchsorted(edges, truth[k, here], side="right")
                parts.append((_Class(level, cell, EVERY, EVERY), k * truth.shape[1] + here, np.ones(len(here))))
                for number in np.unique(size).tolist():
                    there = k * truth.shape[1] + here[size == number]
                    parts.append((_Class(level, cell, BY_TRUTH, names[number]), there, np.ones(len(there))))
        leaves = geography.tree.leaves
        for mean in options.groups:
            group, k = Groups.of(mean.groups, mean.weights, geography.n_leaves), followed.labels.index(str(mean.of))
            for number, label in enumerate(group.labels):
                there = np.flatnonzero((group.code == number) & has_interval[k, leaves])
                weight = group.part[there] * len(there)
                if weight.sum() > 0:
                    place = k * truth.shape[1] + leaves.start + there
                    parts.append((_Class(geography.levels[-1], str(mean.of), mean.name, label), place, weight))
        lengths = [len(rows) for _, rows, _ in parts]
        noisy = np.flatnonzero(has_interval)
        return cls(
            tree=geography.tree,
            method=options.method,
            confidence=require_confidence(options.confidence),
            variance=variance,
            laws=laws,
            edges=edges,
            rows=np.concatenate([rows for _, rows, _ in parts]) if parts else np.zeros(0, np.int64),
            starts=np.cumsum([0, *lengths[:-1]]) if parts else np.zeros(0, np.int64),
            weight=np.concatenate([weight for _, _, weight in parts]) if parts else np.zeros(0),
            noisy=noisy,
            first=first.reshape(-1)[noisy],
            classes=(*(one for one, _, _ in parts), *published),
        )

    def bounds(self, x: FloatArray, released: FloatArray) -> IntervalEnds:
        """The intervals from the estimates ``x`` by least squares and what was ``released``; all (replicates, answers,
        nodes).
        """
        flat = (-1, x.shape[-1])
        columns, variance = self.laws.tiled(len(x)), np.broadcast_to(self.variance, x.shape).reshape(flat).T
        inside = released.reshape(flat).T
        found = intervals(
            x.reshape(flat).T, variance, columns, self.tree, 1.0 - self.confidence, lambda nodes: inside[nodes]
        )
        return IntervalEnds(found.lower.T.reshape(x.shape), found.upper.T.reshape(x.shape))

    def counted(self, x: FloatArray, released: FloatArray, truth: FloatArray) -> FloatArray:
        """Sums (6, classes) over replicates: of the units c that are covered and the units n of a class, of c^2, c n
        and n^2, and of half-lengths. From the estimates ``x`` by least squares, and what was ``released``, both
        (replicates, answers, nodes).
        """
        n, shape = len(x), (len(x), truth.size)
        lower, upper = self.bounds(x, released)
        holds = ((lower <= truth) & (truth <= upper)).reshape(shape).astype(np.float64)
        half = ((upper - lower) / 2.0).reshape(shape)
        kept = np.zeros((3, n, len(self.classes)))
        fixed = len(self.starts)
        if fixed:
            for place, of_rows in ((0, holds), (2, half)):
                weighted = of_rows[:, self.rows] * self.weight
                kept[place, :, :fixed] = np.add.reduceat(weighted, self.starts, axis=1)
            kept[1, :, :fixed] = np.add.reduceat(self.weight, self.starts)
            size = np.searchsorted(self.edges, released.reshape(shape)[:, self.noisy], side="right")
            n_published = len(self.classes) - fixed
            code = (np.arange(n)[:, None] * n_published + self.first + size).reshape(-1)
            for place, weights in ((0, holds), (1, None), (2, half)):
                given = None if weights is None else weights[:, self.noisy].reshape(-1)
                kept[place, :, fixed:] = np.bincount(code, given, n * n_published).reshape(n, n_published)
        covered, units, lengths = kept
        return np.stack(
            [
                covered.sum(axis=0),
                units.sum(axis=0),
                (covered**2).sum(axis=0),
                (covered * units).sum(axis=0),
                (units**2).sum(axis=0),
                lengths.sum(axis=0),
            ]
        )

    def frame(self, sums: FloatArray, replicates: int) -> pd.DataFrame:
        """The columns `COLUMNS` from the sums of `counted`, a row per class that had a unit.

        ``units``: mean over replicates. ``covered``: the part of the intervals that hold the truth; ``covered_se``: its
        Monte Carlo error as a ratio of two sums over replicates, which includes correlations between units. ``moe``:
        half of the mean length.
        """
        there = np.flatnonzero(sums[1] > 0)
        covered, units, squares, products, of_units, lengths = sums[:, there]
        part = covered / units
        residual = np.maximum(squares - 2.0 * part * products + part**2 * of_units, 0.0)
        many = replicates > 1
        error = np.sqrt(residual * replicates / (replicates - 1.0)) / units if many else np.full_like(part, np.nan)
        frame = pd.DataFrame([self.classes[k] for k in there], columns=list(_Class._fields))
        return frame.assign(
            units=units / replicates,
            covered=part,
            covered_se=error,
            nominal=self.confidence,
            moe=lengths / units,
        )


def no_coverage(plan: Plan, geography: Geography, schema: Schema) -> str | None:
    """Why a release under ``plan`` would have no margins; None where it would have some."""
    return no_margins(planned(plan, geography, schema))


def _laws(plan: Plan, geography: Geography, followed: Followed) -> tuple[FloatArray, ColumnLaws]:
    """The variances (answers, nodes) of what is followed by least squares, and the laws of its errors."""
    measurements = planned(plan, geography, followed.queries[0].schema)
    laws, of_answers = AnswerLaws.of(measurements), followed.columns_of_queries
    columns, variance = laws.of_columns(of_answers), laws.variances(of_answers)
    if variance is not None:
        return np.ascontiguousarray(variance.T), columns
    units = published_sums(geography)
    if units is not None:
        errors, every = error_sums(measurements), Weighted.over(units, np.arange(units.geography.n_nodes))
        parts = [errors.variances(every, query) for query in followed.queries]
    else:
        known, everywhere = Expected.of(plan, geography, measurements.schema).covariance, slice(0, geography.n_nodes)
        parts = [known.variance(query, everywhere) for query in followed.queries]
    return np.ascontiguousarray(columns.settled(np.concatenate(parts, axis=1)).T), columns


def planned(plan: Plan, geography: Geography, schema: Schema) -> Measurements:
    """Measurements with the variances of ``plan`` and without values, on which laws do not depend."""
    found: dict[tuple[str, str], Answers] = {}
    spread = np.full(geography.n_nodes, np.inf)
    for level in geography.levels:
        for name in plan.queries(level):
            query, variance = Query.parse(name, schema), variances(plan, geography, level, name)
            if query.name == DETAILED:
                spread[geography.level_slice(level)] = variance
            else:
                nothing = np.broadcast_to(np.zeros((), np.int8), (len(variance), query.n_answers))
                found[level, query.name] = Answers(nothing, variance)
    values = np.broadcast_to(np.zeros((), np.int8), (geography.n_nodes, schema.n_cells))
    return Measurements(geography, schema.cells(), values, spread, plan, attributes=schema, others=found)
