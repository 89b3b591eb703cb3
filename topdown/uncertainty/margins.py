"""td.margins(): an interval for every count, from measurements alone, with a stated coverage.

`Margins` are those of the answers to one query at all nodes, measured or not; the cells are the answers to the query
"detailed". `margins_of` makes those of the cells for releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from topdown.errors import ConfigError, DataError, require_type
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.geography.unit_sums import published_sums
from topdown.measurements.measurements import Measurements
from topdown.privacy.plan import Plan
from topdown.projection.cells.equality import least_squares
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.linear_answers import LinearAnswers, linear_answers
from topdown.projection.project import project
from topdown.projection.published_estimates import error_sums, estimates_at
from topdown.projection.solver_inputs import stated
from topdown.tables.tidy import levels_of, tidy_batches, to_frame
from topdown.uncertainty.intervals import intervals
from topdown.uncertainty.laws.answer_laws import AnswerLaws, ColumnLaws
from topdown.uncertainty.laws.error_law import NORMAL, Shape, quantile
from topdown.uncertainty.laws.known_noise import no_margins
from topdown.wording import shown
from topdown.workload import DETAILED, Query

if TYPE_CHECKING:
    from topdown.release.whole_counts import Release


_NORMAL = "by the normal law"
_GAUSSIAN = f"{_NORMAL}; by the law of its error where that falls in steps, as sums of few draws of narrow noise do"
_UNKNOWN = "not known, and missing, as the law of the noise is not known"
_OWN = "by the law of its error, which has a number of its own for every unit and column"


@dataclass(frozen=True, eq=False)
class Margins:
    """Intervals of the answers to ``query`` at every node, each (nodes x answers): the least-squares ``estimate``, its
    standard deviation ``sd``, and ``lower`` and ``upper``, whole numbers. ``at``: the numbers of the levels that have
    intervals, None for all; the arrays end with the last of these levels.
    """

    geography: Geography
    query: Query
    estimate: FloatArray = field(repr=False)
    sd: FloatArray = field(repr=False)
    lower: FloatArray = field(repr=False)
    upper: FloatArray = field(repr=False)
    at: Sequence[int] | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """``lower``, ``upper`` and ``moe``, half the length, as a release has them, for `tidy_batches`: the last is
        computed row by row as it is written."""
        lower, upper = self.everywhere(self.lower), self.everywhere(self.upper)
        moe = partial(self._at, lambda nodes: (self.upper[nodes] - self.lower[nodes]) / 2.0)
        return {"lower": lower, "upper": upper, "moe": moe}

    def everywhere(self, values: FloatArray) -> Any:
        """``values`` for `tidy_batches`, missing at levels without intervals."""
        return values if self.at is None else partial(self._at, values.__getitem__)

    def _at(self, values: Callable[[Any], FloatArray], nodes: Any) -> FloatArray:
        if self.at is None:
            return values(nodes)
        chosen = np.arange(nodes.start, nodes.stop) if isinstance(nodes, slice) else nodes
        found = np.full((len(chosen), self.lower.shape[1]), np.nan)
        known = np.isin(levels_of(self.geography, nodes), self.at)
        found[known] = values(chosen[known])
        return found

    def batches(self, level: str | None = None) -> Iterator[pa.RecordBatch]:
        """The tidy table ``geoid, level, query, cell, estimate, sd, lower, upper`` in Arrow batches; of the nodes of
        ``level``, or of all."""
        columns: dict[str, Any] = {"query": self.query.name, "estimate": self.estimate, "sd": self.sd}
        rows = np.full(self.geography.n_nodes, level is None)
        rows[slice(None) if level is None else self.geography.level_slice(level)] = True
        columns |= {"lower": self.lower, "upper": self.upper}
        return tidy_batches(self.geography, self.query.labels(), columns, rows=rows)


def margins(
    measurements: Measurements,
    release: Release | None = None,
    *,
    confidence: float = 0.9,
    simultaneous: bool = False,
    queries: Sequence[str] | None = None,
) -> pd.DataFrame:
    """An interval for the true count of every node and cell: ``geoid, level, query, cell, estimate, sd, lower, upper``.

    ``estimate``: by least squares over the whole tree, unbiased, with its standard deviation ``sd``. ``lower`` and
    ``upper`` are whole numbers, 0 or more: for every truth, each interval covers it with probability ``confidence``
    at least, up to the error of the law's approximation, whatever is projected or rounded later. With ``release``
    they hold the released count as well.

    Args:
        measurements: drawn under a plan.
        release: the counts made from them; the intervals then hold these too.
        confidence: probability with which each interval covers the true count, above 0.5 and below 1.
        simultaneous: all intervals together cover with that probability, in place of each by itself.
        queries: whose answers get intervals, at all levels, measured or not ("sex * age", "total"). By default the
            cells or, where several queries were measured, every query at the levels where it was. A very large release
            in parts has rows for the levels whose measurements were kept.

    Source of the test: Pratt 1961; Yu and Hoff, Biometrika 105:319; see docs/margins.md. Raises `ConfigError` for a
    confidence outside of (0.5, 1), for measurements without a plan, for bounded noise, and for an unknown query;
    `DataError` for a release of other units or cells.

    Examples:
        >>> intervals = td.margins(measurements, release)
        >>> intervals[["geoid", "cell", "estimate", "lower", "upper"]].head(2).round(1)
          geoid        cell  estimate  lower  upper
        0    US    employed     197.7  192.0  203.0
        1    US  unemployed      16.4    9.0   21.0
    """
    require_type(Measurements, measurements, "measurements")
    if isinstance(release, Estimate):
        raise ConfigError("release: give a Release, as td.round_counts makes one of the estimate")
    require_confidence(confidence)
    _require_alike(measurements, release)
    measurements = measurements.kept
    laws, geography = AnswerLaws.of(measurements), measurements.published
    asked = _asked(measurements, [queries] if isinstance(queries, str) else queries)
    linear, together = least_squares_of(measurements, asked), 1
    known = {query: _estimated(laws, linear, query) for query in asked}
    if simultaneous:
        nodes = {level: geography.level_slice(level) for level in geography.levels}
        together = max(1, sum(one.noisy(nodes[level]) for query, one in known.items() for level in asked[query]))
    found = {query: one.margins(geography, (1.0 - confidence) / together, release) for query, one in known.items()}
    if len(found) == 1 and all(asked[query] == list(geography.levels) for query in found):
        return to_frame(batch for one in found.values() for batch in one.batches())
    frames = [
        to_frame(one.batches(level)) for level in geography.levels for query, one in found.items()
        if level in asked[query]
    ]  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def _asked(measurements: Measurements, queries: Sequence[str] | None) -> dict[Query, list[str]]:
    """The queries whose margins are asked for, with the levels where they are."""
    levels, found = measurements.published.levels, dict[Query, list[str]]()
    if queries is not None and not queries:
        raise ConfigError("queries is empty; name at least one, or leave queries out for those that were measured")
    if queries is None and not measurements.others:
        queries = [DETAILED]
    for name in queries or ():
        found[Query.parse(name, measurements.schema)] = list(levels)
    if queries is None and measurements.published is not measurements.geography:
        # What was measured at a spine's levels is told at all that are published.
        return found | {Query.parse(name, measurements.schema): list(levels) for _, name in measurements.keys}
    for level in levels if queries is None else ():
        for query in measurements.at(level):
            found.setdefault(query, []).append(level)
    return found


def _require_alike(measurements: Measurements, release: Release | None) -> None:
    if release is None:
        return
    if release.geography != measurements.published or tuple(release.cells) != tuple(measurements.cells):
        raise DataError("the release has other units or cells than the measurements; give the one made of them")


Linear: TypeAlias = Estimate | LinearAnswers | FloatArray
"""Least squares over the whole tree; where the cells alone were measured also as a table (nodes x cells)."""


def least_squares_of(measurements: Measurements, queries: Iterable[Query]) -> Linear:
    """Least squares over the whole tree of the answers to ``queries``, at the published units."""
    if measurements.others:
        return linear_of(measurements, queries)
    tree = measurements.geography.tree
    found = np.zeros((len(measurements.cells), tree.n_nodes))
    for block in measurements.blocks():  # an impossible cell is 0 everywhere
        problem = stated(measurements, "variance", nonnegative=False, cells=block)
        found[block] = least_squares(problem.values, problem.variance, tree)
    units = published_sums(measurements.geography)
    return found.T if units is None else units.summed(found.T)


def linear_of(measurements: Measurements, queries: Iterable[Query]) -> Estimate | LinearAnswers:
    """Least squares over the whole tree, which gives the answers to ``queries`` at any published unit."""
    found = linear_answers(measurements, queries) if measurements.others else project(measurements, "gls")
    units = published_sums(measurements.geography)
    return found if units is None else estimates_at(units, found, error_sums(measurements))


class _Estimated(NamedTuple):
    """The answers to ``query`` by least squares at all nodes: their values ``x`` and the ``variance`` of their errors,
    both (nodes x answers), and the ``laws`` of these."""

    query: Query
    laws: ColumnLaws
    x: FloatArray
    variance: FloatArray

    def noisy(self, nodes: slice) -> int:
        """How many values at ``nodes`` are not exact."""
        return int((self.variance[nodes] > 0).sum())

    def margins(
        self,
        geography: Geography,
        alpha: float,
        release: Release | None = None,
        executor: Executor | None = None,
        levels: Sequence[int] | None = None,
    ) -> Margins:
        """The margins, each of which misses with probability ``alpha`` at most; with ``release`` they hold the released
        counts. ``levels``: the numbers of the levels that get margins, None for all.
        """
        released = None if release is None else lambda nodes: release.answers_of(nodes, self.query)
        bounds = intervals(self.x, self.variance, self.laws, geography.tree, alpha, released, executor, levels)
        of_all = self.variance.strides[-1] == 0  # a view of one number
        sd = np.broadcast_to(np.sqrt(self.variance[:, :1] if of_all else self.variance), self.x.shape)
        return Margins(geography, self.query, self.x, sd, *bounds, levels)


def _estimated(laws: AnswerLaws, linear: Linear, query: Query) -> _Estimated:
    """The answers to ``query`` of ``linear``, whose errors have ``laws``, at the nodes of which these are."""
    nodes = slice(0, len(laws.group))
    columns = [(query, k) for k in range(query.n_answers)]
    of_columns, variance = laws.of_columns(columns), laws.variances(columns)
    if isinstance(linear, LinearAnswers) or variance is None:
        assert not isinstance(linear, np.ndarray)  # nosec B101 # narrows a type: a table is of cells alone
        found = linear.answers_of(nodes, query)
        return _Estimated(query, of_columns, found.values, of_columns.settled(np.asarray(found.variance)))
    cells = (linear.values if isinstance(linear, Estimate) else linear)[nodes]
    return _Estimated(query, of_columns, cells if query.name == DETAILED else query.answers(cells), variance)


def margins_of(
    measurements: Measurements,
    release: Release | None = None,
    *,
    confidence: float = 0.9,
    linear: Linear | None = None,
    laws: AnswerLaws | None = None,
    executor: Executor | None = None,
    levels: Sequence[int] | None = None,
) -> Margins:
    """The margins of the cells, as arrays. ``linear``: least squares, ``laws``: of its errors, both
    where they are known. ``executor``: threads that may work on it. ``levels``: the numbers of those at which there are
    margins, None for all; ``laws`` may then be of the nodes down to the last of them alone.
    """
    require_confidence(confidence)
    laws, geography = AnswerLaws.of(measurements) if laws is None else laws, measurements.published
    _require_alike(measurements, release)
    asked = Query.parse(DETAILED, measurements.schema)
    known = _estimated(laws, least_squares_of(measurements, [asked]) if linear is None else linear, asked)
    return known.margins(geography, 1.0 - confidence, release, executor, levels)


@dataclass(frozen=True, eq=False)
class Reach:
    """How many standard deviations a margin has: errors exceed it with probability ``alpha``. ``laws``: of the errors;
    None where they are assumed normal, or are not known (``is_known``).

    For noise within bounds the normal law is only an assumption, since the law depends on the true count; no coverage
    is stated.
    """

    alpha: float
    laws: AnswerLaws | None = None
    is_gaussian: bool = False
    is_known: bool = True

    @classmethod
    def of(cls, measurements: Measurements, confidence: float, laws: AnswerLaws | None = None) -> Reach:
        """The reach of least squares of ``measurements``, with the ``laws`` of its errors where they were computed
        before; normal where noise is within bounds, or comes without a plan.
        """
        alpha, plan = 1.0 - confidence, measurements.plan
        if laws is None and no_margins(measurements) is not None:
            return cls(alpha, is_known=plan is None or plan.bounds.any or _is_normal(plan))
        return cls(alpha, laws or AnswerLaws.of(measurements), is_gaussian=plan is None or not plan.is_pure)

    def multiples(self, nodes: slice, columns: list[tuple[Query, int]], laws: ColumnLaws | None = None) -> FloatArray:
        """Standard deviations (nodes x columns) of the errors at ``nodes`` of these answers to queries; ``laws``: of
        these errors, where they are known."""
        found = np.full((nodes.stop - nodes.start, len(columns)), self._quantile(NORMAL))
        if self.laws is not None:
            known = np.broadcast_to(self.laws.group[nodes, None] >= 0, found.shape)
            for shape, places in (laws or self.laws.of_columns(columns)).places(nodes, known):
                found.reshape(-1)[places] = self._quantile(shape)
        return found

    @property
    def in_words(self) -> str:
        """By which law the margin is computed."""
        if self.laws is not None and not self.is_gaussian:
            return _OWN
        if not self.is_known:
            return _UNKNOWN
        return f"{self._quantile(NORMAL):.4g} sd, {_NORMAL if self.laws is None else _GAUSSIAN}"

    def _quantile(self, shape: Shape) -> float:
        return quantile(shape, self.alpha / 2.0) if self.is_known else float("nan")


def _is_normal(plan: Plan) -> bool:
    """Whether the noise of a plan is Gaussian; False where its law is not known."""
    try:
        return bool(plan.noise.is_normal())
    except ConfigError:
        return False


def require_confidence(confidence: float) -> float:
    """``confidence``; raises `ConfigError` unless it is above 1/2 and below 1."""
    is_number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
    if not is_number or not 0.5 < confidence < 1.0:
        raise ConfigError(f"confidence {shown(confidence)}: give a number above 0.5 and below 1, such as 0.9")
    return float(confidence)
