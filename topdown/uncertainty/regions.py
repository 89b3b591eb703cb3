"""td.region(): a sum over any nodes, a difference, a share, each with its margin of error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topdown.errors import ConfigError, DataError, ProjectionError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.measurements.measurements import Measurements
from topdown.projection.equality import least_squares
from topdown.projection.invariants import Contradiction, settle
from topdown.uncertainty.combination import Pivots, combination, law_of
from topdown.uncertainty.error_law import quantile
from topdown.uncertainty.fieller import fieller, ratio_of
from topdown.uncertainty.known_noise import known_noise
from topdown.uncertainty.laws import pivots
from topdown.uncertainty.margins import require_confidence
from topdown.uncertainty.sums import sum_margin
from topdown.wording import shown
from topdown.workload import Schema
from topdown.workload.answer_tables import Column, answer_column

if TYPE_CHECKING:
    from topdown.uncertainty.histogram_regions import HistogramSums

Weights = Mapping[str, float]

_LEAST_WEIGHT = 1e-50


class Region(NamedTuple):
    """A number with its margin: the unbiased ``estimate``, its standard deviation ``sd``, ``lower`` and ``upper``, and
    in words what has to be known of it (``note``, empty where nothing has).
    """

    estimate: float
    sd: float
    lower: float
    upper: float
    note: str = ""


def region(
    measurements: Measurements,
    weights: Weights,
    *,
    query: str = "total",
    cell: str | None = None,
    minus: Weights | None = None,
    share_of: Weights | str | None = None,
    confidence: float = 0.9,
) -> Region:
    """A weighted sum over any nodes, at mixed levels, with a margin of error: {GEOID: weight}.

    ``query`` and ``cell``: which answer is summed, by default all that is counted; also a field of the redistricting
    file by its name ("P0010003"), or a table ("P1") with its field as the cell. ``minus``: nodes whose sum is taken
    away. ``share_of``: nodes, or a query of one answer, of which the sum is a part; the share's margin is Fieller's
    set: a share rho is kept where |A - rho B| is within the margin of A - rho B. Variance and fourth cumulant are
    exact, so that regions of neighbours have the short margins that they deserve. Of counts with weights of 0 or more
    ``lower`` and ``upper`` are 0 or more; with whole weights they are whole. The interval covers with probability
    ``confidence``. Where several queries were measured a share is of the same answer at other units, or of the total at
    the same units. Raises `ConfigError` as `margins` does, and `DataError` for units that are not there.

    Source: docs/margins.md; Fieller 1954 for shares.
    """
    return Regions(measurements).region(
        weights, query=query, cell=cell, minus=minus, share_of=share_of, confidence=confidence
    )


def no_sums(measurements: Measurements) -> str | None:
    """Why margins of sums of ``measurements`` cannot be known; None where they can."""
    try:
        if measurements.others:
            from topdown.uncertainty.answer_noise import answer_noise  # with a compiler

            answer_noise(measurements)
        else:
            known_noise(measurements)
    except ConfigError as error:
        return str(error)
    return None


@dataclass(frozen=True, eq=False)
class Regions:
    """Many regions of the same measurements: what all have in common is computed once."""

    measurements: Measurements

    @property
    def geography(self) -> Geography:
        """The units."""
        return self.measurements.geography

    @property
    def schema(self) -> Schema:
        """The schema of the cells."""
        return self.measurements.schema

    @cached_property
    def pivots(self) -> Pivots:
        """The moments of every node's error."""
        noise = known_noise(self.measurements)
        found, variance = pivots(self.measurements, noise)
        return Pivots.of(self.measurements.geography.tree, noise, variance, found)

    @cached_property
    def _estimates(self) -> dict[tuple[int, ...], FloatArray]:
        return {}

    def estimates(self, cells: IntArray) -> FloatArray:
        """Least squares of the sum over ``cells`` at every node (nodes,)."""
        key = tuple(cells.tolist())
        if key not in self._estimates:
            tree = self.measurements.geography.tree
            values = self.measurements.values[:, cells].sum(axis=1).astype(np.float64)
            node_variance = self.measurements.node_variance
            try:
                values, variance = settle(values, node_variance, tree, nonnegative=False)
            except Contradiction as contradiction:
                place = self.measurements.geography.describe(contradiction.node)
                raise ProjectionError(f"{place}: {contradiction}; correct the exact values") from None
            self._estimates[key] = least_squares(values, variance, tree)
        return self._estimates[key]

    def region(
        self,
        weights: Weights,
        *,
        query: str = "total",
        cell: str | None = None,
        minus: Weights | None = None,
        share_of: Weights | str | None = None,
        confidence: float = 0.9,
    ) -> Region:
        """As the function `region`."""
        alpha = 1.0 - require_confidence(confidence)
        self.column(query, cell)
        whole = dict(weights)
        for geoid, weight in ({} if minus is None else minus).items():
            whole[geoid] = _number(geoid, whole.get(geoid, 0.0)) - _number(geoid, weight)
        nodes, amounts = self._nodes(whole)
        if self.measurements.others:
            if share_of is not None:
                return self._share_of_answers((nodes, amounts), query, cell, share_of, alpha)
            (row,) = self._sums_of_answers([(nodes, amounts)], query, [cell], alpha, signed=minus is not None)
            return row[0]
        cells = self.cells(query, cell)
        if share_of is not None:
            return self._share(nodes, amounts, cells, share_of, alpha)
        found = combination(nodes, amounts[None], self.pivots)
        law = law_of(found, self.pivots, np.ones(1), len(cells))
        value = float(amounts @ self.estimates(cells)[nodes])
        return Region(*sum_margin(value, *law, amounts, alpha, signed=minus is not None))

    def sums(
        self,
        sums: Sequence[tuple[IntArray, FloatArray]],
        *,
        query: str = "total",
        cells: Sequence[str | None] = (None,),
        confidence: float = 0.9,
    ) -> list[list[Region]]:
        """Of every one of ``sums``, each over some nodes with their amounts, the `region` of every cell."""
        alpha = 1.0 - require_confidence(confidence)
        if self.measurements.others:
            return self._sums_of_answers(sums, query, cells, alpha)
        summed = [self.cells(query, cell) for cell in cells]
        found = []
        for nodes, amounts in sums:
            together = combination(nodes, amounts[None], self.pivots)
            laws = {n: law_of(together, self.pivots, np.ones(1), n) for n in {len(one) for one in summed}}
            found.append(
                [
                    Region(*sum_margin(float(amounts @ x[nodes]), *laws[len(one)], amounts, alpha, signed=False))
                    for one, x in zip(summed, map(self.estimates, summed), strict=True)
                ]
            )
        return found

    def _sums_of_answers(
        self,
        sums: Sequence[tuple[IntArray, FloatArray]],
        query: str,
        cells: Sequence[str | None],
        alpha: float,
        *,
        signed: bool = False,
    ) -> list[list[Region]]:
        """`sums` where several queries were measured."""
        columns = [self.column(query, cell) for cell in cells]
        known = {
            asked: self._histograms.sums(sums, asked, [column.answer for column in columns if column.query == asked])
            for asked in dict.fromkeys(column.query for column in columns)
        }
        found: list[list[Region]] = []
        for row, (_, amounts) in enumerate(sums):
            found.append([])
            for column in columns:
                of_sum = known[column.query][column.answer].row(row)
                found[-1].append(Region(*sum_margin(*of_sum, amounts, alpha, signed=signed)))
        return found

    def _share_of_answers(
        self,
        part: tuple[IntArray, FloatArray],
        query: str,
        cell: str | None,
        share_of: Weights | str,
        alpha: float,
    ) -> Region:
        """As `_share`, where several queries were measured."""
        from topdown.uncertainty.histogram_regions import Part  # with a compiler

        column = self.column(query, cell)
        own = Part(part, column.query, column.answer)
        if isinstance(share_of, str):
            of = self.column(share_of, None)
            whole = Part(part, of.query, of.answer)
        else:
            whole = own._replace(sum=self._whole_of(share_of))
        ratio, shape = self._histograms.share(own, whole)
        return Region(*fieller(ratio, lambda share: quantile(shape(share), alpha / 2.0)))

    def cells(self, query: str, cell: str | None) -> IntArray:
        """The possible cells that the answer ``cell`` of ``query`` is the sum of. Raises `ConfigError` as `column`
        does."""
        column, possible = self.column(query, cell), self.measurements.schema.possible_cells()
        return np.asarray(possible[column.query.answers_of(possible) == column.answer])

    def column(self, query: str, cell: str | None) -> Column:
        """The answer that ``query`` and ``cell`` mean. Raises `ConfigError` as `answer_column` does."""
        if (query, cell) not in self._columns:
            self._columns[query, cell] = answer_column(query, cell, self.measurements.schema)
        return self._columns[query, cell]

    @cached_property
    def _columns(self) -> dict[tuple[str, str | None], Column]:
        return {}

    @cached_property
    def _histograms(self) -> HistogramSums:
        from topdown.uncertainty.histogram_regions import HistogramSums  # with a compiler

        return HistogramSums(self.measurements)

    def _nodes(self, weights: Mapping[str, float]) -> tuple[IntArray, FloatArray]:
        geography = self.measurements.geography
        nodes = geography.index_of(list(weights))
        missing = [geoid for geoid, node in zip(weights, nodes.tolist(), strict=True) if node < 0]
        if missing or not len(nodes):
            raise DataError(
                f"no unit {shown(missing[0])} in this geography; give GEOIDs as text, with their leading zeros"
                if missing
                else "a region without units; give at least one GEOID"
            )
        amounts = np.array([_number(geoid, weight) for geoid, weight in weights.items()])
        return nodes, amounts

    def _whole_of(self, weights: Weights) -> tuple[IntArray, FloatArray]:
        """The nodes and amounts of what a share is of."""
        nodes, amounts = self._nodes(weights)
        if (amounts < 0).any() or not amounts.any():
            raise DataError("a share is of a sum of counts; give its units weights of 0 or more, not all of them 0")
        return nodes, amounts

    def _share(
        self, nodes: IntArray, amounts: FloatArray, cells: IntArray, share_of: Weights | str, alpha: float
    ) -> Region:
        """Fieller's set of the share A / B, cut to [0, 1].

        Errors of different cells are independent with the same law, so that A - rho B splits into the cells of both,
        of A alone and of B alone.
        """
        other, others = (nodes, amounts) if isinstance(share_of, str) else self._whole_of(share_of)
        of_whole = self.cells(share_of, None) if isinstance(share_of, str) else cells
        union = np.union1d(nodes, other)
        both = np.zeros((2, len(union)))
        both[0, np.searchsorted(union, nodes)] = amounts
        both[1, np.searchsorted(union, other)] = others
        found = combination(union, both, self.pivots)
        part = float(amounts @ self.estimates(cells)[nodes])
        whole = float(others @ self.estimates(of_whole)[other])
        common = len(np.intersect1d(cells, of_whole))
        numbers = (common, len(cells) - common, len(of_whole) - common)
        return Region(*ratio_of(found, self.pivots, part, whole, numbers, alpha))


def _number(geoid: str, weight: object) -> float:
    """A weight; raises `DataError` for what is none, and for one whose fourth power float64 does not hold."""
    known = isinstance(weight, int | float | np.integer | np.floating)
    if not known or not (weight == 0 or _LEAST_WEIGHT <= abs(weight) <= 1.0 / _LEAST_WEIGHT):  # type: ignore[arg-type]
        raise DataError(
            f"unit {shown(geoid)}: weight {shown(weight)}; give every unit a number, 0 or from 1e-50 to 1e50 in size"
        )
    return float(weight)  # type: ignore[arg-type]
