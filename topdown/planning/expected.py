"""How far from the truth a plan's numbers will be, by the plan and the geography alone: no count is looked at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtri

from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.noise import LatticeLaw, Law
from topdown.privacy.plan import Plan
from topdown.privacy.single_child_units import variances
from topdown.projection.histograms.components import Components
from topdown.projection.histograms.least_squares import EXACT as NEXT_TO_NOTHING
from topdown.projection.histograms.least_squares import Covariance, covariance
from topdown.projection.upward_start import require_determined, start_named
from topdown.wording import shown
from topdown.workload import DETAILED, Query, Schema

NORMAL, AT_MOST, OWN, EXACT, OPEN = "normal", "Laplace or normal", "its own noise", "exact", "undetermined"
UNKNOWN = "not known"
"""By which law a margin is what it is."""

_SAME = 1e-9
"""Part of a variance by which one that least squares leaves as it was may differ."""


@dataclass(frozen=True, eq=False)
class Expected:
    """The exact covariance that least squares over all levels will leave under ``plan``, with the questions to it.

    ``plan``: with its shares filled in and its queries named by ``schema``.
    """

    plan: Plan
    geography: Geography
    schema: Schema
    covariance: Covariance

    @classmethod
    def of(cls, plan: Plan, geography: Geography, schema: Schema | None = None, upward: str | None = None) -> Expected:
        """Of a plan; ``schema``: of the cells, one cell where it is left out. ``upward``: "from LEVEL", where what is
        measured below a level serves to share out its counts alone.

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
            (level, Query.parse(query, schema)): variances(plan, geography, level, query)
            for level in geography.levels
            for query in plan.queries(level)
        }
        start = None
        if upward is not None:
            start = start_named(geography.levels, upward)
            named = [[query for level, query in of_nodes if level == here] for here in geography.levels]
            require_determined(geography.levels, named, start)
        return cls(plan, geography, schema, planned_covariance(geography, schema, of_nodes, start))

    def answer_variances(self, level: str, query: str) -> tuple[FloatArray, FloatArray]:
        """The variances (nodes x classes) of a query's answers at a level, and how many answers each class has."""
        found, place = self.covariance.variance_by_class(
            Query.parse(query, self.schema), self.geography.level_slice(level)
        )
        found = np.where(found < NEXT_TO_NOTHING * self._largest_noise, 0.0, found)
        return found, np.bincount(place, minlength=found.shape[1]).astype(np.float64)

    @property
    def _largest_noise(self) -> float:
        """The largest variance of the noise on anything that is measured."""
        asked = [(level, query) for level in self.geography.levels for query in self.plan.queries(level)]
        return max((self.plan.variance(level, query) for level, query in asked), default=0.0)

    def margin(self, level: str, query: str, deviation: float, confidence: float) -> tuple[float, str]:
        """How far from the truth answers with this standard deviation are with probability ``confidence`` at most, and
        by which law that is so.

        Of an answer to which nothing but its own noise contributes, by that noise's law, rounded up to a value that it
        takes. Else, of Gaussian noise, by the normal law, which is exact but for rounding to whole numbers. Of Laplace
        noise, whose sums lie between a Laplace and a normal law, by the longer margin of these two: up to 2 % too long
        at 90 %, 8 % at 95 %, 26 % at 99 %, the most where many draws contribute. NaN of sums of other noise.
        """
        name = Query.parse(query, self.schema).name
        law = self.plan.law(level, name) if name in self.plan.queries(level) else None
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


def planned_covariance(
    geography: Geography,
    schema: Schema,
    variances: Mapping[tuple[str, Query], float | FloatArray],
    start: int | None = None,
) -> Covariance:
    """The covariance of least squares where the nodes of a level answer a query with the variance that is given, one
    for all or one for each. ``start``: the level where the upward pass starts, that of the leaves by default."""
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
) -> pd.DataFrame:
    """The errors that a release under ``plan`` will have, by level and query: exact standard deviations, and margins.

    Columns: ``level, query``; ``units``, nodes of the level, and ``answers`` of each; ``noise_sd, noise_margin``, of a
    measured answer as it is drawn (NaN where it is not measured, 0 where it is exact); ``sd_least, sd, sd_largest``: of
    the level's units and answers the least, the median and the largest standard deviation; ``margin,
    margin_largest``: what the error of the median, and of any one unit, stays within with probability ``confidence``;
    ``law``: by which law (of sums of Laplace noise the longer of two margins, see `Expected.margin`), "not known" where
    there is no margin because the noise is neither Laplace's nor Gaussian. In counts.

    Args:
        schema: of the cells; without it there is one query, "detailed", and errors are those of a cell.
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
    require_confidence(confidence)
    expected = Expected.of(plan, geography, schema, upward)
    named = [query for level in geography.levels for query in expected.plan.queries(level)]
    asked = dict.fromkeys(Query.parse(text, expected.schema).name for text in (named if queries is None else queries))
    rows = [_row(expected, level, query, confidence) for level in geography.levels for query in asked]
    return pd.DataFrame(rows)


def _row(expected: Expected, level: str, query: str, confidence: float) -> dict[str, str | int | float]:
    variances, times = expected.answer_variances(level, query)
    deviation = np.sqrt(variances)
    median = _median(deviation, np.broadcast_to(times, deviation.shape))
    largest = float(deviation.max())
    margin, law = expected.margin(level, query, median, confidence)
    noise = expected.plan.law(level, query) if query in expected.plan.queries(level) else None
    is_exact = expected.plan.is_exact(level, query)
    unmeasured = 0.0 if is_exact else math.nan
    return {
        "level": level,
        "query": query,
        "units": len(variances),
        "answers": int(times.sum()),
        "noise_sd": unmeasured if noise is None else noise.std,
        "noise_margin": unmeasured if noise is None else noise_margin(noise, confidence),
        "sd_least": float(deviation.min()),
        "sd": median,
        "sd_largest": largest,
        "margin": margin,
        "margin_largest": expected.margin(level, query, largest, confidence)[0],
        "law": law,
    }


def _median(values: FloatArray, times: FloatArray) -> float:
    """The median of ``values``, each there so many ``times``; the lower one of two."""
    order = np.argsort(values, axis=None)
    reached = np.cumsum(times.reshape(-1)[order])
    return float(values.reshape(-1)[order[np.searchsorted(reached, reached[-1] / 2.0)]])


def noise_margin(law: Law, confidence: float) -> float:
    """The least value of a law, of whole numbers or on its grid, that draws pass with probability 1 - ``confidence`` at
    most, on both sides together."""
    step = 2.0**-law.grid_bits if isinstance(law, LatticeLaw) else law.std / 4096.0
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
    """How many standard deviations a sum of noise stays within with probability ``confidence``: of a normal law, and
    where the noise is not ``gaussian`` of a Laplace law if that is more."""
    normal = float(ndtri((1.0 + confidence) / 2.0))
    return normal if gaussian else max(normal, -math.log1p(-confidence) / math.sqrt(2.0))


def require_confidence(confidence: float) -> None:
    """Raises `ConfigError` unless ``confidence`` is between 0 and 1."""
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"confidence is {shown(confidence)}; give a number between 0 and 1, such as 0.9 for 90 %")
