"""The expected errors of a plan's numbers, computed from the plan and the geography alone; no count is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.special import ndtri

from topdown.errors import ConfigError, require_probability
from topdown.geography.alike import Alike
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.geography.unit_sums import SpineGeography
from topdown.noise import Law
from topdown.noise.law import is_lattice_law
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import variances
from topdown.projection.histograms.components import Components
from topdown.projection.histograms.least_squares import EXACT as NEXT_TO_NOTHING
from topdown.projection.histograms.least_squares import Covariance, covariance
from topdown.projection.sum_errors import SumErrors, Weighted
from topdown.projection.upward_start import require_determined, start_named
from topdown.tables.assignments import Assignment, Files, Given, areas_of
from topdown.workload import DETAILED, Query, Schema

NORMAL, AT_MOST, OWN, EXACT, OPEN = "normal", "Laplace or normal", "its own noise", "exact", "undetermined"
UNKNOWN = "not known"
"""The law from which a margin is computed."""

_SAME = 1e-9
"""The largest relative difference of two variances that are taken to be equal."""


@dataclass(frozen=True, eq=False)
class Expected:
    """The exact covariance of the errors of least squares over all levels under ``plan``, and what follows from it.

    ``plan``: with its shares filled in and its queries named by ``schema``. ``noise``: the variance of the noise at
    every node, by level and query. ``areas``: the areas of every kind by its name, and for a spine also the published
    units. ``start``: the number of the level where the upward pass starts.
    """

    plan: Plan
    geography: Geography
    schema: Schema
    noise: Mapping[tuple[str, Query], FloatArray]
    areas: Mapping[str, Assignment]
    start: int | None

    @classmethod
    def of(
        cls,
        plan: Plan,
        geography: Geography,
        schema: Schema | None = None,
        upward: str | None = None,
        areas: Sequence[Assignment] = (),
    ) -> Expected:
        """The expected errors of a plan. ``schema``: of the cells, by default one cell. ``upward``: "from LEVEL";
        measurements below that level then only divide its counts among its units.

        Raises `BudgetError` where plan, levels and schema disagree, `ConfigError` for several queries without a schema,
        or for an ``upward`` that makes no sense.
        """
        plan = plan.for_levels(geography.levels)
        asked = {level: plan.queries(level) for level in geography.levels}
        if schema is None and any(query != DETAILED for queries in asked.values() for query in queries):
            raise ConfigError("the plan asks several queries, whose answers the schema says; give schema")
        schema = Schema.of_cells(["count"]) if schema is None else schema
        plan = plan.for_schema(schema)
        of_nodes = {
            (level, Query.parse(query, schema)): _once(variances(plan, geography, level, query))
            for level in geography.levels
            for query in plan.queries(level)
        }
        start = None
        if upward is not None:
            start = start_named(geography.levels, upward)
            named = [[query for level, query in of_nodes if level == here] for here in geography.levels]
            require_determined(geography.levels, named, start)
        told = [*_published(geography), *areas]
        return cls(plan, geography, schema, of_nodes, {one.name: one for one in told}, start)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of everything that has expected errors: the levels, and the kinds of areas."""
        return (*self.geography.levels, *self.areas)

    def units(self, kind: str) -> int:
        """The number of units of a level, or of areas of a kind."""
        return len(self.areas[kind].districts) if kind in self.areas else _size(self.geography.level_slice(kind))

    def unit(self, kind: str, place: int) -> str:
        """The GEOID of a level's unit, or the name of a kind's area, by its ``place``."""
        if kind in self.areas:
            return self.areas[kind].districts[place]
        return str(self.geography.identifiers[self.geography.level_slice(kind).start + place].as_py())

    def answer_variances(self, kind: str, query: str) -> tuple[FloatArray, FloatArray]:
        """The variances (units x classes) of the answers to a query at a level or for a kind of areas, and the number
        of answers in each class.
        """
        asked = Query.parse(query, self.schema)
        if kind in self.areas:
            found, place = self._sums.variances_by_class(members(self.areas[kind], self.alike), asked)
        else:
            found, place = self.covariance.variance_by_class(asked, self.geography.level_slice(kind))
            found = np.where(found < NEXT_TO_NOTHING * self._largest_noise, 0.0, found)
        return found, np.bincount(place, minlength=found.shape[1]).astype(np.float64)

    @cached_property
    def covariance(self) -> Covariance:
        """The covariance of the errors at every unit."""
        return planned_covariance(self.geography, self.schema, self.noise, self.start)

    @cached_property
    def alike(self) -> Alike:
        """A smaller tree, in which one leaf stands for all leaves of a family whose noise has the same variance."""
        lowest = self.geography.levels[-1]
        own = [variance for (level, _), variance in self.noise.items() if level == lowest]
        return Alike.of(self.geography.tree, *own)

    @cached_property
    def _sums(self) -> SumErrors:
        """The errors of sums, on the smaller tree `alike`."""
        levels, alike = self.geography.levels, self.alike
        by_level = [{query: v for (where, query), v in self.noise.items() if where == level} for level in levels]
        own = alike.nodes[alike.tree.leaves] - self.geography.tree.leaves.start
        by_level[-1] = {query: variance[own] for query, variance in by_level[-1].items()}
        queries = tuple(dict.fromkeys(query for _, query in self.noise))
        return SumErrors(alike.tree, Components(self.schema, queries), by_level, self.start)

    @property
    def _largest_noise(self) -> float:
        """The largest variance of the noise of any measurement."""
        asked = [(level, query) for level in self.geography.levels for query in self.plan.queries(level)]
        return max((self.plan.variance(level, query) for level, query in asked), default=0.0)

    def margin(self, kind: str, query: str, deviation: float, confidence: float) -> tuple[float, str]:
        """The margin: the error of answers with this standard deviation is within it with probability ``confidence``.
        Also the name of the law from which it is computed.

        If only the answer's own noise contributes to the error, the margin follows from the law of that noise, rounded
        up to one of its values. Otherwise, for Gaussian noise, it follows from the normal law, which is exact except
        for rounding to whole numbers. The law of sums of Laplace noise lies between a Laplace and a normal law; the
        larger of the two margins is taken, which is at most 2 % too long at 90 %, 8 % at 95 %, and 26 % at 99 %, most
        where many draws contribute. For sums of other noise it is NaN.
        """
        name = Query.parse(query, self.schema).name
        law = self.noise_law(kind, name)
        if deviation == 0:
            return 0.0, EXACT
        if not math.isfinite(deviation):
            return math.inf, OPEN
        if law is not None and abs(deviation**2 - law.variance) <= _SAME * law.variance:
            return noise_margin(law, confidence), OWN
        try:
            gaussian = self.plan.noise.is_normal()
        except ConfigError:
            return math.nan, UNKNOWN
        return deviations_within(confidence, gaussian=gaussian) * deviation, NORMAL if gaussian else AT_MOST

    def noise_law(self, kind: str, query: str) -> Law | None:
        """The law of the noise of a query's answers at a level; None where nothing is measured, as for areas."""
        measured = kind not in self.areas and query in self.plan.queries(kind)
        return self.plan.law(kind, query) if measured else None


def planned_covariance(
    geography: Geography,
    schema: Schema,
    variances: Mapping[tuple[str, Query], float | FloatArray],
    start: int | None = None,
) -> Covariance:
    """The covariance of least squares where a query at a level is measured with the given variance: one number for all
    nodes, or one for each. ``start``: the number of the level where the upward pass starts, by default that of the
    leaves.
    """
    levels: list[dict[Query, FloatArray]] = []
    for level in geography.levels:
        nodes = geography.level_slice(level)
        here = {query: variance for (where, query), variance in variances.items() if where == level}
        levels.append(
            {query: np.full(nodes.stop - nodes.start, variance, np.float64) for query, variance in here.items()}
        )
    queries = tuple(dict.fromkeys(query for _, query in variances))
    return covariance(geography.tree, Components(schema, queries), levels, upward=True, start=start)


def expected_errors(
    plan: Plan,
    geography: Geography,
    schema: Schema | None = None,
    *,
    queries: Iterable[str] | None = None,
    confidence: float = 0.90,
    upward: str | None = None,
    areas: Files | Mapping[str, Given] = (),
) -> pd.DataFrame:
    """The errors that a release under ``plan`` will have, by level and query: exact standard deviations and margins, in
    counts.

    Columns: ``level, query``; ``units``, the number of nodes of the level; ``answers``, the number of answers of each;
    ``noise_sd, noise_margin``, of a measured answer with its own noise alone (NaN where it is not measured, 0 where it
    is exact); ``sd_least, sd, sd_largest``, the smallest, the median and the largest standard deviation over the
    level's units and answers; ``margin, margin_largest``, the margins at ``confidence`` that belong to the median and
    to the largest; ``law``, the law of the margin (for sums of Laplace noise the larger of two margins, see
    `Expected.margin`), "not known" where there is no margin because the noise is neither Laplace nor Gaussian;
    ``sd_mean, sd_90``, the mean and the 90th percentile of the standard deviations; ``worst``, the unit with the
    largest.

    Args:
        plan: the mechanism, its budget and its shares.
        geography: the tree that noise is measured on.
        areas: block assignment files, units in the first column and areas in the second, or names of kinds of areas
            with such files or {GEOID: area}: of every kind, called by its name or as its file is, there are rows as of
            a level. An area is the sum of its units, and its errors are those of `region` (formula in
            docs/mathematics.md).
        schema: of the cells; without it there is one query, "detailed", and errors are those of a cell.
        confidence: of the margins, between 0 and 1.
        queries: by default every one that the plan names at some level. Every query is answered at every level,
            measured there or not, by least squares over all levels: unbiased, and what the estimates beside a
            release are. A non-negative projection is biased upwards where counts are small, which a study shows;
            within bounds the errors are those of unbounded noise.
        upward: "from LEVEL", of a release whose upward pass starts there: the errors are then those of what it is
            made from, before x >= 0, and not those of the estimates beside it, which are over all levels.

    Raises `BudgetError` where plan, levels and schema disagree; `ConfigError` for an unknown query, several queries
    without a schema, a confidence that is not between 0 and 1, or an ``upward`` that makes no sense.

    Examples:
        >>> td.expected_errors(plan, geography)[["level", "noise_sd", "sd", "margin"]].round(2)
            level  noise_sd    sd  margin
        0  nation      7.06  3.66    6.02
        1   state      4.70  2.82    4.63
        2  county      2.80  2.43    4.00
    """
    require_probability(confidence, "confidence")
    expected = Expected.of(plan, geography, schema, upward, areas_of(areas, geography))
    named = [query for level in geography.levels for query in expected.plan.queries(level)]
    asked = dict.fromkeys(Query.parse(text, expected.schema).name for text in (named if queries is None else queries))
    return pd.DataFrame([_row(expected, kind, query, confidence) for kind in expected.kinds for query in asked])


def _row(expected: Expected, kind: str, query: str, confidence: float) -> dict[str, str | int | float]:
    variances, times = expected.answer_variances(kind, query)
    deviation, noise = np.sqrt(variances), expected.noise_law(kind, query)
    median, high = _quantiles(deviation, np.broadcast_to(times, deviation.shape), (0.5, 0.9))
    worst = np.unravel_index(int(np.argmax(deviation)), deviation.shape)
    largest = float(deviation[worst])
    margin, law = expected.margin(kind, query, median, confidence)
    is_exact = kind not in expected.areas and expected.plan.is_exact(kind, query)
    unmeasured = 0.0 if is_exact else math.nan
    return {
        "level": kind,
        "query": query,
        "units": len(variances),
        "answers": int(times.sum()),
        "noise_sd": unmeasured if noise is None else noise.std,
        "noise_margin": unmeasured if noise is None else noise_margin(noise, confidence),
        "sd_least": float(deviation.min()),
        "sd": median,
        "sd_largest": largest,
        "margin": margin,
        "margin_largest": expected.margin(kind, query, largest, confidence)[0],
        "law": law,
        "sd_mean": float((deviation @ times).mean() / times.sum()),
        "sd_90": high,
        "worst": expected.unit(kind, int(worst[0])),
    }


def _quantiles(values: FloatArray, times: FloatArray, parts: Sequence[float]) -> list[float]:
    """Weighted quantiles of ``values``, each of which counts ``times``; the lower one where a quantile lies between two
    values.
    """
    order = np.argsort(values, axis=None)
    reached = np.cumsum(times.reshape(-1)[order])
    places = np.searchsorted(reached, [reached[-1] * part for part in parts])
    return [float(values.reshape(-1)[order[place]]) for place in places.tolist()]


def _published(geography: Geography) -> Iterator[Assignment]:
    """What is published of a spine ``geography``, as sums of its nodes: the units of every published level between the
    root and the leaves (called "published LEVEL" where the spine has a level with the same name), and the areas of
    every kind.
    """
    if not isinstance(geography, SpineGeography):
        return
    levels = [(level, level, geography.units) for level in geography.published.levels[1:-1]]
    for name, level, units in [*levels, *((kind, kind, units) for kind, units in geography.area_units.items())]:
        here = units.geography.level_slice(level)
        if name in geography.levels and (units.alone[here] >= 0).all():
            # The spine has exactly these units.
            continue
        names = tuple(units.geography.identifiers.slice(here.start, here.stop - here.start).to_pylist())
        nodes = tuple(units.nodes_of(np.arange(here.start, here.stop)))
        called = f"published {name}" if name in geography.levels else name
        yield Assignment(called, geography.levels[-1], names, nodes, np.empty(0, np.int64), 0)


def members(areas: Assignment, alike: Alike) -> Weighted:
    """The sums over each of ``areas``, on the smaller tree ``alike``, in which one leaf stands for several."""
    of = np.repeat(np.arange(len(areas.nodes)), [len(nodes) for nodes in areas.nodes])
    node = np.concatenate([np.empty(0, np.int64), *areas.nodes])
    # For every area the nodes of the smaller tree, with the number of leaves that each stands for there.
    stands = alike.everywhere(np.arange(alike.tree.n_nodes))
    key, times = np.unique(of * alike.tree.n_nodes + stands[node], return_counts=True)
    of, node = np.divmod(key, alike.tree.n_nodes)
    return Weighted(of, node, np.ones(len(key)), len(areas.nodes), times)


def _once(variance: FloatArray) -> FloatArray:
    """``variance`` (nodes,), stored as one number where all are equal, which saves memory for millions of leaves."""
    return np.broadcast_to(variance[:1], variance.shape) if (variance == variance[0]).all() else variance


def _size(nodes: slice) -> int:
    return int(nodes.stop - nodes.start)


def noise_margin(law: Law, confidence: float) -> float:
    """The smallest value of a law on whole numbers, or on its grid, that the magnitude of a draw exceeds with
    probability 1 - ``confidence`` at most.
    """
    step = 2.0**-law.grid_bits if is_lattice_law(law) else law.std / 4096.0
    tail = 1.0 - confidence
    most = 1
    while 2 * float(law.sf(most * step)) > tail:
        most *= 2
    least = 0
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if 2 * float(law.sf(middle * step)) <= tail else (middle + 1, most)
    return least * step


def deviations_within(confidence: float, *, gaussian: bool) -> float:
    """The margin of a sum of noise at ``confidence``, in standard deviations: that of the normal law, or, where the
    noise is not ``gaussian``, the larger of that and that of the Laplace law.
    """
    normal = float(ndtri((1.0 + confidence) / 2.0))
    return normal if gaussian else max(normal, -math.log1p(-confidence) / math.sqrt(2.0))
