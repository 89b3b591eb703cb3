"""The tables of a release: a row per unit with the released counts, and beside them the estimates of each.

The columns are sums of cells (`topdown.workload.answer_tables`). They are computed from the released counts, so they
add up over units and over columns as these do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray, runs
from topdown.projection.estimate import Estimate
from topdown.projection.histograms.linear_answers import LinearAnswers
from topdown.release.whole_counts import Release
from topdown.tables.count_reliability import reliability_of
from topdown.tables.tidy import levels_of, text_of
from topdown.workload.answer_tables import ESTIMATED, MARGIN_ENDS, AnswerTable, margin_names

if TYPE_CHECKING:
    from topdown.uncertainty.intervals import Intervals
    from topdown.uncertainty.margins import Reach

FOLDER = "tables"
"""Where a release's tables are, beneath its public directory."""

AREAS = "areas"
"""Where its tables of areas are."""

_NUMBERS_AT_ONCE, _NUMBERS_OF_A_GROUP = 1 << 22, 1 << 23
"""The most estimates (of all cells) that are computed at once; and the most counts in a row group of a table. Every row
group takes readers and writers some time, and a small one is not compressed well.
"""


def paths_of(table: AnswerTable) -> tuple[str, str]:
    """The paths in the public directory of a table's counts and estimates, without the ending for the kind of file."""
    return f"{FOLDER}/{table.stem}", f"{FOLDER}/{table.stem}{ESTIMATED}"


def area_paths(kind: str) -> tuple[str, str]:
    """The paths of the files of a ``kind`` of areas, as `paths_of`."""
    return f"{AREAS}/{kind}", f"{AREAS}/{kind}{ESTIMATED}"


def table_batches(table: AnswerTable, release: Release, bounded: Bounded | None = None) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, name`` and the table's columns of counts, unit by unit from the root; with ``bounded``, then
    NAME_lower, NAME_upper and NAME_moe of each.
    """
    answers = max(query.n_answers for query in table.queries)
    at_once = max(1, _NUMBERS_OF_A_GROUP // (answers + len(table.columns)))
    for nodes in runs(slice(0, release.geography.n_nodes), at_once):
        units = _units(release.geography, nodes, 1)
        counts = table_counts(table, release, nodes)
        arrays = {column.name: pa.array(counts[:, k]) for k, column in enumerate(table.columns)}
        if bounded is not None:
            arrays |= margin_columns(bounded.at(release, nodes), [column.name for column in table.columns])
        yield pa.RecordBatch.from_pydict({**units, **arrays})


def estimate_batches(
    table: AnswerTable,
    release: Release,
    linear_name: str,
    linear: Estimate | LinearAnswers,
    reach: Reach,
    intervals: Intervals | None,
    levels: Sequence[int],
) -> Iterator[pa.RecordBatch]:
    """Rows ``geoid, level, name, column, value, LINEAR, sd[, moe[, lower, upper]]`` for every unit with estimates and
    every column of the table.

    ``value``: the released count; ``linear_name``: the column name of the estimate by least squares; ``sd``: its
    standard deviation; ``moe``: its margin of error, as many standard deviations as ``reach`` says; both missing where
    they are not known; ``lower`` and ``upper``: the interval of the true count, where ``intervals`` are known. These
    three are missing at levels whose number is not in ``levels``; without ``levels`` the columns are left out.
    """
    names = pa.array([column.name for column in table.columns])
    columns = [(column.query, column.answer) for column in table.columns]
    laws = None if intervals is None else intervals.laws
    cells = max(query.schema.n_cells for query in table.queries)
    # A very large release has estimates of its upper levels only.
    for nodes in runs(slice(0, linear.geography.n_nodes), max(1, _NUMBERS_AT_ONCE // (cells + len(names)))):
        values, variance = estimated(table, linear, nodes)
        with np.errstate(invalid="ignore"):
            deviation = np.where(np.isfinite(variance), np.sqrt(variance), np.nan)
        counts = table_counts(table, release, nodes)
        margins = {"moe": np.full(values.shape, np.nan)} if levels else {}
        for part in release.geography.tree.within(nodes, levels):
            here = slice(part.start - nodes.start, part.stop - nodes.start)
            margins["moe"][here] = reach.multiples(part, columns, laws) * deviation[here]
        if levels and intervals is not None:
            margins["lower"], margins["upper"] = bounds_at(nodes, intervals, levels, values, variance, counts)
        place = np.tile(np.arange(len(names), dtype=np.int32), nodes.stop - nodes.start)
        yield pa.RecordBatch.from_pydict(
            {
                **_units(release.geography, nodes, len(names)),
                "column": pa.DictionaryArray.from_arrays(pa.array(place), names),
                "value": pa.array(counts.reshape(-1)),
                linear_name: pa.array(values.reshape(-1)),
                "sd": pa.array(deviation.reshape(-1), from_pandas=True),
                **{name: pa.array(one.reshape(-1), from_pandas=True) for name, one in margins.items()},
            }
        )


@dataclass(frozen=True)
class Bounded:
    """A ``table`` whose columns' counts have margins of error: the ``linear`` estimates and the ``intervals`` about
    them, at the levels with these numbers.
    """

    table: AnswerTable
    linear: Estimate | LinearAnswers = field(repr=False)
    intervals: Intervals = field(repr=False)
    levels: Sequence[int]

    def at(self, release: Release, nodes: slice) -> BoundedCounts:
        """The table's columns at ``nodes``."""
        counts = table_counts(self.table, release, nodes)
        values, variance = estimated(self.table, self.linear, nodes)
        ends = bounds_at(nodes, self.intervals, self.levels, values, variance, counts)
        return BoundedCounts(counts, values, variance, *ends)


class AreaCounts(NamedTuple):
    """The areas of one ``kind``: the columns of a ``table`` at the root and at every area of a ``release`` of these,
    the ``linear`` estimates of them, how far the errors of these ``reach``, what bounds the counts (``bounded``, None
    where there are no margins), and the numbers of the ``levels`` with margins of error.
    """

    kind: str
    table: AnswerTable
    release: Release
    linear: Estimate | LinearAnswers
    reach: Reach
    bounded: Bounded | None
    levels: Sequence[int]


class BoundedCounts(NamedTuple):
    """Released ``counts``, the ``values`` of their estimates by least squares with their ``variance``, and the ends of
    their intervals, missing (NaN) where there are none; all (nodes x columns).
    """

    counts: IntArray
    values: FloatArray
    variance: FloatArray
    lower: FloatArray
    upper: FloatArray

    @classmethod
    def of_counts(cls, counts: IntArray) -> BoundedCounts:
        """``counts`` without margins of error: everything else is missing."""
        return cls(counts, *(np.full(counts.shape, np.nan) for _ in range(4)))

    @property
    def sd(self) -> FloatArray:
        """The standard deviations of the estimates."""
        with np.errstate(invalid="ignore"):
            return np.sqrt(self.variance)

    @property
    def moe(self) -> FloatArray:
        """Half the length of the intervals."""
        return (self.upper - self.lower) / 2.0


def margin_columns(
    found: BoundedCounts, names: Sequence[str], places: Sequence[int] | None = None, *, reliability: bool = False
) -> dict[str, pa.Array]:
    """The columns NAME_lower, NAME_upper and NAME_moe for each of ``names``, with ``reliability`` also NAME_cv and
    NAME_reliability; ``places``: the column of ``found`` that belongs to each name, by default in order.
    """
    columns = {}
    for k, name in zip(range(len(names)) if places is None else places, names, strict=True):
        for end, called in zip(MARGIN_ENDS, margin_names(name), strict=True):
            columns[called] = pa.array(np.ascontiguousarray(getattr(found, end)[:, k]), from_pandas=True)
        if reliability:
            cv, classes = reliability_of(found.sd[:, k], found.counts[:, k])
            columns |= {f"{name}_cv": pa.array(cv, from_pandas=True), f"{name}_reliability": classes}
    return columns


def bounds_at(
    nodes: slice,
    intervals: Intervals,
    levels: Sequence[int],
    values: FloatArray,
    variance: FloatArray,
    counts: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """The ends of the ``intervals`` at ``nodes`` around the estimates ``values`` with their ``variance``, widened to
    hold the released ``counts``; missing (NaN) at levels whose number is not in ``levels``. All (nodes x columns).
    """
    lower, upper = (np.full(values.shape, np.nan) for _ in range(2))
    for part in intervals.tree.within(nodes, levels):
        here = slice(part.start - nodes.start, part.stop - nodes.start)
        lower[here], upper[here] = intervals.at(part, values[here], variance[here], counts[here])
    return lower, upper


def table_counts(table: AnswerTable, release: Release, nodes: slice) -> IntArray:
    """The released counts of the table's columns at ``nodes``; (nodes x columns)."""
    counts = np.empty((len(table.columns), nodes.stop - nodes.start), np.int64)
    for query in table.queries:
        answers = release.answers_of(nodes, query)
        for place, column in enumerate(table.columns):
            if column.query == query:
                counts[place] = answers[:, column.answer]
    return counts.T


def estimated(table: AnswerTable, linear: Estimate | LinearAnswers, nodes: slice) -> tuple[FloatArray, FloatArray]:
    """The estimate by least squares and its variance, NaN where it is not known; both (nodes x columns)."""
    values, variance = {}, {}
    for query in table.queries:
        answer = linear.answers_of(nodes, query)
        values[query] = answer.values
        variance[query] = np.full(answer.values.shape, np.nan) if answer.variance is None else answer.variance
    columns = [(column.query, column.answer) for column in table.columns]
    return (
        np.stack([values[query][:, k] for query, k in columns], axis=1),
        np.stack([variance[query][:, k] for query, k in columns], axis=1),
    )


def _units(geography: Geography, nodes: slice, times: int) -> dict[str, pa.Array]:
    """The columns that name a row's unit, each unit ``times`` times."""
    numbers = np.arange(nodes.start, nodes.stop)
    level = levels_of(geography, nodes)
    known, several = geography.names, times > 1
    return {
        "geoid": text_of(geography.identifiers, numbers, times, as_numbers=several),
        "level": pa.DictionaryArray.from_arrays(pa.array(np.repeat(level, times)), pa.array(geography.levels)),
        "name": pa.nulls(len(numbers) * times, pa.string())
        if known is None
        else text_of(known, numbers, times, as_numbers=several),
    }
