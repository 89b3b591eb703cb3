"""td.region(): a sum over any nodes, a difference, a share, each with its margin of error.

The error of an answer to a query is a sum of ``copies`` independent errors of one law: one copy, or, where the cells
alone were measured, one for every cell that is summed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from topdown.analysis.sum_intervals import OF_ITSELF, Ratio, Region, fieller, sum_margin
from topdown.errors import ConfigError, DataError, require_type
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray, runs
from topdown.geography.unit_sums import published_sums
from topdown.measurements.measurements import Measurements
from topdown.projection.cells.equality import least_squares
from topdown.projection.histograms.linear_answers import LinearAnswers, linear_answers
from topdown.projection.solver_inputs import stated
from topdown.projection.sum_errors import Weighted
from topdown.uncertainty.laws.answer_errors import AnswerErrors, ErrorParts, Mix
from topdown.uncertainty.laws.answer_forms import answer_rows
from topdown.uncertainty.laws.error_law import NORMAL, Shape, quantile
from topdown.uncertainty.laws.known_noise import KnownNoise, answer_noise
from topdown.uncertainty.laws.main_parts import shapes_of
from topdown.uncertainty.margins import require_confidence
from topdown.wording import shown
from topdown.workload import Query, Schema
from topdown.workload.answer_tables import Column, answer_column

Weights = Mapping[str, float]
Sum = tuple[IntArray, FloatArray]
"""Nodes, each once, and their weights."""

_LEAST_WEIGHT, _SAME = 1e-50, 1e-9
_NUMBERS_AT_ONCE = 1 << 22


def region(
    measurements: Measurements,
    weights: Weights,
    *,
    query: str = "total",
    cell: str | None = None,
    minus: Weights | None = None,
    share_of: Weights | str | None = None,
    before: Measurements | None = None,
    confidence: float = 0.9,
) -> Region:
    """A weighted sum over any nodes, at mixed levels, with a margin of error: {GEOID: weight}.

    The variance and the fourth cumulant of the error are exact, with the correlations of all nodes. Where all weights
    are 0 or more, ``lower`` and ``upper`` are 0 or more; with whole weights they are whole. The whole of a share is the
    same answer at other units, or, at the same units, an answer of which this one is a part. Raises `ConfigError` as
    `margins` does, and for another share, `DataError` for units that are not there.

    Args:
        measurements: of a release, drawn under a plan.
        weights: {GEOID: weight}; units may be of different levels and may overlap.
        query: the query whose answer is summed, by default the total; also a field of the redistricting file
            ("P0010003"), or a table ("P1") with a field of it as the ``cell``.
        cell: which answer of the query, where it has several.
        minus: {GEOID: weight} of a sum that is subtracted.
        share_of: {GEOID: weight}, or a query of one answer, of which the sum is a part; the result is then the share.
            Its margin is Fieller's set: the shares rho for which |A - rho B| is within the margin of A - rho B.
        before: measurements of an earlier release, with noise of its own; the result is then the change of the sum
            since that release.
        confidence: probability with which the interval covers the true value, above 0.5 and below 1.

    Source: docs/margins.md; Fieller 1954 for shares.

    Examples:
        >>> east = td.region(measurements, {"01001": 1, "02013": 1}, cell="employed")
        >>> round(east.estimate, 1), east.lower, east.upper
        (49.4, 44.0, 54.0)
        >>> share = td.region(measurements, {"01001": 1}, cell="employed", share_of={"01": 1})
        >>> round(share.estimate, 2)
        0.25
    """
    require_type(Measurements, measurements, "measurements")
    regions = Regions(measurements.kept)
    if before is None:
        return regions.region(weights, query=query, cell=cell, minus=minus, share_of=share_of, confidence=confidence)
    if share_of is not None:
        raise ConfigError("the change of a share has no margin here; ask for the change, or for the two shares")
    require_type(Measurements, before, "before")
    if before is measurements or before.noise_names & measurements.noise_names:
        raise ConfigError(
            "before has the same measurements: a change needs two releases with independent noise; give those of "
            "another time"
        )
    return regions.change(Regions(before.kept), weights, query=query, cell=cell, minus=minus, confidence=confidence)


class AnswerSum(NamedTuple):
    """The sum of one answer to a query over nodes: ``sum``, its nodes and weights."""

    sum: Sum
    query: Query
    answer: int


class _Kind(NamedTuple):
    """The error of an answer: a sum of ``copies`` independent errors of ``answer`` to ``query`` in `AnswerErrors`."""

    query: Query
    answer: int
    copies: int


class _Error(NamedTuple):
    """A sum: its ``value`` by least squares, the ``variance`` of its error, and the sums that the error is
    ``made`` of.
    """

    value: float
    variance: float
    made: ErrorParts


class Sums(NamedTuple):
    """Several sums of one answer: the ``values`` by least squares and the ``variance`` of their errors, inf where a sum
    is not determined, both (sums,); and the ``shapes`` of the laws of the errors.
    """

    values: FloatArray
    variance: FloatArray
    shapes: list[Shape]

    def row(self, number: int) -> tuple[float, float, Shape]:
        """Value, variance and shape of one sum."""
        return float(self.values[number]), float(self.variance[number]), self.shapes[number]


@dataclass(frozen=True, eq=False)
class Regions:
    """Regions of the same measurements; what they have in common is computed once.

    Raises `ConfigError` as `answer_noise` does.
    """

    measurements: Measurements
    _columns: dict[tuple[str, str | None], Column] = field(default_factory=dict, repr=False)
    _of_cells: dict[tuple[int, ...], FloatArray] = field(default_factory=dict, repr=False)
    _of_queries: dict[Query, LinearAnswers] = field(default_factory=dict, repr=False)

    @property
    def geography(self) -> Geography:
        """The units."""
        return self.measurements.published

    @property
    def schema(self) -> Schema:
        """The schema of the cells."""
        return self.measurements.schema

    @cached_property
    def errors(self) -> AnswerErrors:
        """The errors of least squares."""
        return AnswerErrors(answer_noise(self.measurements))

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
        column = self.column(query, cell)
        asked = self._nodes(less(weights, minus))
        if share_of is None:
            found = self.answers([asked], column.query, [column.answer])[column.answer]
            return sum_margin(*found.row(0), asked[1], alpha, signed=minus is not None)
        own = AnswerSum(asked, column.query, column.answer)
        if isinstance(share_of, str):
            of = self.column(share_of, None)
            other = AnswerSum(asked, of.query, of.answer)
        else:
            other = own._replace(sum=self._whole_of(share_of))
        require_part(asked, other.sum, self.geography)
        ratio, shapes = self.share(own, other)
        margin = fieller(ratio, lambda shares: [quantile(shape, alpha / 2.0) for shape in shapes(shares)])
        if own[1:] == other[1:] and not _combined(own.sum, other.sum, -1.0)[1].any():
            margin = margin._replace(note="; ".join(filter(None, (margin.note, OF_ITSELF))))
        return margin

    def change(
        self,
        before: Regions,
        weights: Weights,
        *,
        query: str = "total",
        cell: str | None = None,
        minus: Weights | None = None,
        confidence: float = 0.9,
    ) -> Region:
        """The change of a sum since ``before``, a release with noise of its own: the variances add up, and the law is
        that of all parts of both errors. The interval is symmetric.
        """
        alpha, whole = 1.0 - require_confidence(confidence), less(weights, minus)
        now, then = (one._error_of(whole, query, cell) for one in (self, before))
        mine, theirs = (one.errors.noise.laws for one in (self, before))
        # In the laws of both together those of the earlier release come last.
        kinds = np.where(then.made.parts.kind < 0, -1, then.made.parts.kind + len(mine))
        made = now.made.and_also(then.made._replace(parts=then.made.parts._replace(kind=kinds)))
        variance = now.variance + then.variance
        laws = shapes_of(made.parts, np.array([variance]), KnownNoise((*mine, *theirs, None)), made.cumulant)
        shape = laws.shapes[laws.group[0]] if laws.group[0] >= 0 else NORMAL
        amounts = np.array(list(whole.values()))
        return sum_margin(now.value - then.value, variance, shape, amounts, alpha, signed=True)

    def _error_of(self, weights: Weights, query: str, cell: str | None) -> _Error:
        """A sum with the parts of its error."""
        column, asked = self.column(query, cell), self._nodes(weights)
        kind = self._kind(column.query, column.answer)
        one = self._over([asked])
        value = float(self._values(one, column.query, [column.answer])[0, 0])
        made = next(self.errors.made(one, [Mix.of(kind.query, kind.answer)])).times(kind.copies)
        return _Error(value, self._variance(asked, kind), made)

    def sums(
        self,
        sums: Sequence[Sum],
        *,
        query: str = "total",
        cells: Sequence[str | None] = (None,),
        confidence: float = 0.9,
    ) -> list[list[Region]]:
        """The `region` of every cell, for every one of ``sums``, each of them nodes with their weights."""
        alpha = 1.0 - require_confidence(confidence)
        columns = [self.column(query, cell) for cell in cells]
        known = {
            asked: self.answers(sums, asked, [column.answer for column in columns if column.query == asked])
            for asked in dict.fromkeys(column.query for column in columns)
        }
        return [
            [sum_margin(*known[one.query][one.answer].row(row), amounts, alpha, signed=False) for one in columns]
            for row, (_, amounts) in enumerate(sums)
        ]

    def answers(self, sums: Sequence[Sum], query: Query, answers: Sequence[int]) -> dict[int, Sums]:
        """Some ``answers`` to ``query`` of all ``sums``."""
        asked, errors = self._over(sums), self.errors
        kinds = {answer: self._kind(query, answer) for answer in answers}
        values, variances = self._values(asked, query, [*kinds]), self._variances(asked, [*kinds.values()])
        alike: dict[tuple[int, int], int] = {}
        of_class = [
            alike.setdefault((int(errors.components.classes(kind.query).place[kind.answer]), kind.copies), place)
            for place, kind in enumerate(kinds.values())
        ]
        first = [[*kinds.values()][place] for place in alike.values()]
        mixes = [Mix.of(kind.query, kind.answer) for kind in first]
        shapes = errors.shapes(asked, mixes, variances[:, [*alike.values()]].T, [kind.copies for kind in first])
        known = dict(zip(alike.values(), shapes, strict=True))
        return {
            answer: Sums(values[:, place], variances[:, place], known[of_class[place]])
            for place, answer in enumerate(kinds)
        }

    def share(self, part: AnswerSum, whole: AnswerSum) -> tuple[Ratio, Callable[[FloatArray], list[Shape]]]:
        """Two sums of answers, by least squares, with their variances and covariance; and a function from shares to the
        shapes of the laws of the errors of the part less these shares of the whole.

        Raises `ConfigError` unless both are of one answer of one query, or over the same nodes with the part's answer
        within the whole's.
        """
        same = (part.query, part.answer) == (whole.query, whole.answer)
        if not same and not (np.array_equal(whole.sum[0], part.sum[0]) and self._is_within(part, whole)):
            raise ConfigError(
                f"query {shown(part.query.name)}: a share is of the same answer at other units, or, at the same "
                f"units, of the total or another answer that this one is a part of; ask for the two sums"
            )
        errors, mine, theirs = self.errors, *(self._kind(one.query, one.answer) for one in (part, whole))
        a, b = (float(self._values(self._over([one.sum]), one.query, [one.answer])[0, 0]) for one in (part, whole))
        of_a, of_b = (self._variance(one.sum, kind) for one, kind in ((part, mine), (whole, theirs)))
        if same:
            more, less = (self._variance(_combined(part.sum, whole.sum, sign), mine) for sign in (1.0, -1.0))
            of_both = 0.25 * (more - less)
        else:
            of_both = mine.copies * errors.covariance(self._over([part.sum]), mine[:2], theirs[:2])

        def shapes(shares: FloatArray) -> list[Shape]:
            variance, mix = of_a - 2.0 * shares * of_both + shares**2 * of_b, Mix.of(*mine[:2])
            if not same and mine[:2] != theirs[:2]:
                mixes = [Mix([*mix.answers, theirs[:2]], np.array([1.0, -share])) for share in shares]
                found = errors.made(self._over([part.sum]), mixes)
                return [errors.shapes_of(one, variance[k : k + 1])[0] for k, one in enumerate(found)]
            # The copies that the part and the whole have in common enter less the share; the other copies of the whole
            # enter as the share.
            nodes, amounts = part.sum
            less = [_combined(part.sum, whole.sum, -s) if same else (nodes, (1.0 - s) * amounts) for s in shares]
            made = next(errors.made(self._over(less), [mix])).times(mine.copies)
            if not same:
                beside = next(errors.made(self._over([(nodes, share * amounts) for share in shares]), [mix]))
                made = made.and_also(beside.times(theirs.copies - mine.copies))
            return errors.shapes_of(made, variance)

        return Ratio(a, b, of_a, of_b, of_both), shapes

    def _is_within(self, part: AnswerSum, whole: AnswerSum) -> bool:
        """Whether everybody who is counted in the part's answer is counted in the whole's."""
        if not self.measurements.others:
            cells = [self._cells(one.query, one.answer) for one in (part, whole)]
            return bool(np.isin(cells[0], cells[1]).all())
        mine, theirs = (answer_rows(self.errors.components, one.query, one.answer) for one in (part, whole))
        return all((a <= b).all() for a, b in zip(mine, theirs, strict=True))

    def column(self, query: str, cell: str | None) -> Column:
        """The answer that ``query`` and ``cell`` mean. Raises `ConfigError` as `answer_column` does."""
        if (query, cell) not in self._columns:
            self._columns[query, cell] = answer_column(query, cell, self.measurements.schema)
        return self._columns[query, cell]

    def _cells(self, query: Query, answer: int) -> IntArray:
        """The cells that an answer is the sum of, without structural zeros."""
        possible = self.measurements.schema.possible_cells()
        return np.asarray(possible[query.answers_of(possible) == answer])

    def _kind(self, query: Query, answer: int) -> _Kind:
        if self.measurements.others:
            return _Kind(query, answer, 1)
        return _Kind(self.errors.noise.queries[0], 0, len(self._cells(query, answer)))

    def _variance(self, one: Sum, kind: _Kind) -> float:
        """The variance of a sum."""
        return float(self._variances(self._over([one]), [kind])[0, 0])

    def _variances(self, asked: Weighted, kinds: Sequence[_Kind]) -> FloatArray:
        """The variances of sums (sums x kinds); 0 for a sum of no cells, even where its nodes are not determined."""
        known = {
            query: self.errors.sums.variances(asked, query) for query in dict.fromkeys(kind.query for kind in kinds)
        }
        found = np.zeros((asked.number, len(kinds)))
        for k, kind in enumerate(kinds):
            if kind.copies:
                found[:, k] = kind.copies * known[kind.query][:, kind.answer]
        return found

    def _values(self, asked: Weighted, query: Query, answers: Sequence[int]) -> FloatArray:
        """The sums of some answers to a query by least squares; (sums x answers)."""
        self.errors  # noqa: B018 # refuses what has no margin
        found = np.zeros((asked.number, len(answers)))
        if not self.measurements.others:
            for k, answer in enumerate(answers):
                x = self._of_one(self._cells(query, answer))
                found[:, k] = np.bincount(asked.of, asked.amount * x[asked.node], asked.number)
            return found
        if query not in self._of_queries:
            self._of_queries[query] = linear_answers(self.measurements, [query])
        order = np.argsort(asked.node, kind="stable")
        nodes = asked.node[order]
        step = max(1, _NUMBERS_AT_ONCE // query.n_answers)
        for here in runs(slice(0, self.measurements.geography.n_nodes), step):
            part = order[slice(*np.searchsorted(nodes, [here.start, here.stop]))]
            if len(part):
                values = self._of_queries[query].answers_of(here, query).values[asked.node[part] - here.start]
                np.add.at(found, asked.of[part], asked.amount[part, None] * values[:, list(answers)])
        return found

    def _of_one(self, cells: IntArray) -> FloatArray:
        """The sum over ``cells`` by least squares at every node, where the cells alone were measured; (nodes,)."""
        key = tuple(cells.tolist())
        if key not in self._of_cells:
            problem = stated(self.measurements, "variance", nonnegative=False, cells=cells)
            self._of_cells[key] = least_squares(problem.values.sum(axis=0), problem.variance, problem.tree)
        return self._of_cells[key]

    def _over(self, sums: Sequence[Sum]) -> Weighted:
        """Sums over published units as such over the measured nodes."""
        units, asked = published_sums(self.measurements.geography), Weighted.many(sums)
        return asked if units is None else asked.over_nodes(units)

    def _nodes(self, weights: Weights) -> Sum:
        """The nodes of ``weights``, and these. Raises `DataError` as `nodes_of` and `_number` do."""
        return nodes_of(weights, self.geography), np.array([_number(*one) for one in weights.items()])

    def _whole_of(self, weights: Weights) -> Sum:
        """The nodes and weights of the whole of a share."""
        nodes, amounts = self._nodes(weights)
        if (amounts < 0).any() or not amounts.any():
            raise DataError(
                "the whole of a share is a sum of counts; give its units weights of 0 or more, not all of them 0"
            )
        return nodes, amounts


def require_part(part: Sum, whole: Sum, geography: Geography) -> None:
    """Refuse a share of a sum in one that does not hold it: the margin is of shares from 0 to 1. Raises `DataError`."""
    tree, lo = geography.tree, np.concatenate([part[0], whole[0]])
    hi = lo + 1
    for _ in range(tree.n_levels - 1):  # to the leaves below every node
        inner = lo < tree.n_families
        lo[inner], hi[inner] = tree.child_offsets[lo[inner]], tree.child_offsets[hi[inner]]
    beside = np.zeros((2, len(lo)))  # of every leaf what the part counts, and what the whole counts beside it
    beside[:, : len(part[0])] = part[1], -part[1]
    beside[1, len(part[0]) :] = whole[1]
    points, place = np.unique(np.concatenate([lo, hi]), return_inverse=True)
    changes = np.zeros((2, len(points)))
    for row in range(2):
        np.add.at(changes[row], place.reshape(-1), np.concatenate([beside[row], -beside[row]]))
    found, most = np.cumsum(changes, axis=1)[:, :-1], float(np.abs(beside).max())
    wrong = np.flatnonzero((found < -_SAME * most).any(axis=0))
    if len(wrong):
        unit = str(geography.identifiers[int(points[wrong[0]])])
        raise DataError(
            f"unit {shown(unit)} counts more in the part than in the whole, or less than 0: a share is of a part in a "
            "whole that holds it; give such a whole, or ask for the two sums"
        )


def nodes_of(weights: Weights, geography: Geography) -> IntArray:
    """The nodes of the units that have ``weights``. Raises `DataError` for a unit that is not there, or for none."""
    nodes = geography.index_of(list(weights))
    missing = [unit for unit, node in zip(weights, nodes.tolist(), strict=True) if node < 0]
    if missing or not len(nodes):
        raise DataError(
            f"no unit {shown(missing[0])} in this geography; give GEOIDs as text, with their leading zeros"
            if missing
            else "a region without units; give at least one GEOID"
        )
    return nodes


def less(weights: Weights, minus: Weights | None) -> dict[str, float]:
    """``weights`` less those of ``minus``. Raises `DataError` as `_number` does, and for what is no mapping."""
    for given in (weights, {} if minus is None else minus):
        if not isinstance(given, Mapping):
            raise DataError(f"weights are {shown(given)}; give a mapping from GEOID to weight, such as {{'01001': 1}}")
    whole = dict(weights)
    for geoid, weight in ({} if minus is None else minus).items():
        whole[geoid] = _number(geoid, whole.get(geoid, 0.0)) - _number(geoid, weight)
    return whole


def _combined(one: Sum, other: Sum, sign: float) -> Sum:
    """One sum and ``sign`` times the other, each node once."""
    nodes, place = np.unique(np.concatenate([one[0], other[0]]), return_inverse=True)
    amounts = np.zeros(len(nodes))
    np.add.at(amounts, place.reshape(-1), np.concatenate([one[1], sign * other[1]]))
    return nodes, amounts


def _number(geoid: str, weight: object) -> float:
    """A weight; raises `DataError` for what is no number, and for one whose fourth power is beyond float64."""
    known = isinstance(weight, int | float | np.integer | np.floating)
    if not known or not (weight == 0 or _LEAST_WEIGHT <= abs(weight) <= 1.0 / _LEAST_WEIGHT):  # type: ignore[arg-type]
        raise DataError(
            f"unit {shown(geoid)}: weight {shown(weight)}; give every unit a number, 0 or from 1e-50 to 1e50 in size"
        )
    return float(weight)  # type: ignore[arg-type]
