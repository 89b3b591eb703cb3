"""How often the intervals that a release would publish hold the true count, by size of the count, level and group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.measurements.measurements import Measurements
from topdown.privacy.only_child import variances
from topdown.privacy.plan import Plan
from topdown.projection.equality import least_squares
from topdown.projection.problem import Problem
from topdown.simulation.fairness import SIZE_EDGES, size_class_names
from topdown.simulation.groups import Groups
from topdown.simulation.methods import StudiedMethod
from topdown.simulation.rules import GroupMean
from topdown.uncertainty.groups import Groups as Laws
from topdown.uncertainty.known_noise import known_noise, no_margins
from topdown.uncertainty.laws import laws_of_nodes
from topdown.uncertainty.margins import require_confidence
from topdown.uncertainty.node_intervals import node_intervals
from topdown.workload import DETAILED

EVERY, BY_TRUTH, BY_PUBLISHED = "all", "true count", "published count"
"""By what units are told apart, beside the groupings of a study."""

COLUMNS = ("level", "cell", "by", "group", "units", "covered", "covered_se", "nominal", "moe")


@dataclass(frozen=True)
class CoverageOptions:
    """Whose intervals a study follows: those that a release by the projection ``released`` publishes at ``confidence``.

    ``size_classes``: counts at which a class ends and the next begins. ``groups``: of leaves, by the count of a cell.
    """

    released: str
    confidence: float = 0.9
    size_classes: Sequence[float] = SIZE_EDGES
    groups: Sequence[GroupMean] = field(default=(), repr=False)


class _Class(NamedTuple):
    """A class of units of a level and cell: ``by`` what they are told apart, and what theirs is called."""

    level: str
    cell: str
    by: str
    group: str


@dataclass(frozen=True, eq=False)
class FollowedIntervals:
    """What every replicate's intervals need, and the classes of units in which those that hold the truth are counted.

    ``method``: the one that is released. ``variance`` (nodes,) and ``laws``: of the errors of least squares. ``rows``:
    places in (cells x nodes), class after class, each class from ``starts`` on, with their ``weight`` in it; they stay
    the same in all replicates. ``noisy``: the places that have an interval to judge, and ``first`` the number of the
    first published size class of each.
    """

    method: StudiedMethod
    confidence: float
    variance: FloatArray
    laws: Laws
    edges: FloatArray
    rows: IntArray
    starts: IntArray
    weight: FloatArray
    noisy: IntArray
    first: IntArray
    classes: tuple[_Class, ...]

    @classmethod
    def of(
        cls, options: CoverageOptions, plan: Plan, geography: Geography, cells: tuple[str, ...], truth: FloatArray
    ) -> FollowedIntervals:
        """For a study of ``truth`` (cells, nodes) under ``plan``.

        Raises `ConfigError` where the release would have no margins, and for a confidence outside of (0.5, 1).
        """
        measurements = _planned(plan, geography, cells)
        variance, laws = laws_of_nodes(measurements, known_noise(measurements))
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
            here = np.arange(nodes.start, nodes.stop)[has_interval[nodes]]
            if not len(here):
                continue
            for k, cell in enumerate(cells):
                first[k, here] = len(published)
                published += [_Class(level, cell, BY_PUBLISHED, name) for name in names]
                size = np.searchsorted(edges, truth[k, here], side="right")
                parts.append((_Class(level, cell, EVERY, EVERY), k * truth.shape[1] + here, np.ones(len(here))))
                for number in np.unique(size).tolist():
                    there = k * truth.shape[1] + here[size == number]
                    parts.append((_Class(level, cell, BY_TRUTH, names[number]), there, np.ones(len(there))))
        leaves = geography.tree.leaves
        for mean in options.groups:
            group, k = Groups.of(mean.groups, mean.weights, geography.n_leaves), cells.index(str(mean.of))
            for number, label in enumerate(group.labels):
                there = np.flatnonzero((group.code == number) & has_interval[leaves])
                weight = group.part[there] * len(there)
                if weight.sum() > 0:
                    place = k * truth.shape[1] + leaves.start + there
                    parts.append((_Class(geography.levels[-1], str(mean.of), mean.name, label), place, weight))
        lengths = [len(rows) for _, rows, _ in parts]
        noisy = np.flatnonzero(np.broadcast_to(has_interval, truth.shape))
        return cls(
            method=StudiedMethod(options.released, nonnegative=True, rounded=True),
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

    def counted(self, problem: Problem, released: FloatArray, truth: FloatArray) -> FloatArray:
        """Sums (6, classes) over replicates: of the units c that are covered and the units n of a class, of c^2, c n
        and n^2, and of half-lengths. From the measurements in ``problem``, and what was ``released`` of them, both
        (replicates, cells, nodes).
        """
        tree = problem.tree
        x = least_squares(problem.values, problem.variance, tree)
        n, shape = len(x), (len(x), truth.size)
        flat = (-1, truth.shape[1])
        found = node_intervals(
            x.reshape(flat), self.variance, self.laws, tree, 1.0 - self.confidence, released.reshape(flat)
        )
        lower, upper = found.lower.reshape(x.shape), found.upper.reshape(x.shape)
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

        ``units``: in a replicate on average. ``covered``: the part of the intervals that hold the truth, ``covered_se``
        its Monte Carlo error, of a ratio of two sums over replicates, so that correlations between units are in it.
        ``moe``: half of the mean length.
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


def no_coverage(plan: Plan, geography: Geography, cells: tuple[str, ...]) -> str | None:
    """Why a release of the ``cells`` under ``plan`` would have no margins whose coverage can be asked for, if so."""
    if any(query != DETAILED for level in geography.levels for query in plan.queries(level)):
        return "several queries are measured"
    return no_margins(_planned(plan, geography, cells))


def _planned(plan: Plan, geography: Geography, cells: tuple[str, ...]) -> Measurements:
    """Measurements of the variances that ``plan`` has, without values: a law does not depend on them."""
    spread = np.concatenate([variances(plan, geography, level, DETAILED) for level in geography.levels])
    return Measurements(geography, cells, np.zeros((geography.n_nodes, len(cells)), np.int8), spread, plan)
