"""The counts of a published release with their margins of error, as every export format states them.

From the public directory alone: margins are computed from the measurements, at any confidence, for any query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from topdown.census.layouts.noisy_layout import has_spine_codes
from topdown.census.tabulated import tabulated_release
from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.measurements.measurements import Measurements
from topdown.release.answer_files import Bounded, BoundedCounts, estimated, margin_columns, table_counts
from topdown.release.layouts import EVERY_CELL, Layout
from topdown.release.published import PublishedRelease
from topdown.release.whole_counts import Release
from topdown.tables.geography_table import geography_batches
from topdown.uncertainty.intervals import Intervals
from topdown.uncertainty.laws.answer_laws import AnswerLaws
from topdown.uncertainty.laws.known_noise import no_margins
from topdown.uncertainty.margins import linear_of, require_confidence
from topdown.workload import Schema
from topdown.workload.answer_tables import (
    MARGIN_ENDS,
    AnswerTable,
    answer_columns,
    answer_tables,
    require_distinct,
    stated_table,
)

STATED_ENDS = (*MARGIN_ENDS, "cv", "reliability")
"""The endings of the names of the columns beside a count."""

_OF_BLOCKS = (
    "its blocks are in optimized block groups and not in those of the tables; topdown aggregate --tabulation gives "
    "sums with margins"
)


def stated_columns(schema: Schema, layout: Layout, query: str | None, tables: Sequence[str]) -> list[str]:
    """What the columns are called that are stated of a release with ``tables``, before there is one.

    Raises `ConfigError` for an unknown query, and where two columns would have the same name.
    """
    cells = schema.cells() if query is None and layout is EVERY_CELL else []
    return [column.name for column in _stated(schema, cells, layout, query, tables).columns]


def _stated(
    schema: Schema, cells: Sequence[str], layout: Layout, query: str | None, tables: Sequence[str]
) -> AnswerTable:
    """The columns that are stated: the answers to ``query``; without one every cell and the total, or only the total,
    and the columns of ``tables``.
    """
    asked = answer_tables(tables, schema)
    if query is not None:
        table = AnswerTable(query, query, answer_columns(query, schema))
    else:
        table = stated_table(cells if layout is EVERY_CELL else None, schema, asked)
    require_distinct(table.columns, STATED_ENDS)
    return table


@dataclass(frozen=True, eq=False)
class StatedNumbers:
    """The columns of a ``table`` at every unit of a ``release``, with their intervals at ``confidence`` (``bounded``);
    None where there are no margins, and ``reason`` says why.
    """

    release: Release
    table: AnswerTable
    confidence: float
    bounded: Bounded | None = field(repr=False)
    reason: str = ""

    @property
    def geography(self) -> Geography:
        """The units."""
        return self.release.geography

    @property
    def names(self) -> list[str]:
        """What the columns are called."""
        return [column.name for column in self.table.columns]

    def at(self, nodes: slice) -> BoundedCounts:
        """The columns at ``nodes``; everything but the counts is missing (NaN) where there are no margins."""
        if self.bounded is not None:
            return self.bounded.at(self.release, nodes)
        return BoundedCounts.of_counts(table_counts(self.table, self.release, nodes))

    def by_unit(self) -> Iterator[tuple[pa.RecordBatch, BoundedCounts]]:
        """Batches of units (``geoid, level, parent, name``), each with its columns."""
        begin = 0
        for units in geography_batches(self.geography):
            yield units, self.at(slice(begin, begin + units.num_rows))
            begin += units.num_rows

    def wide_batches(self, places: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
        """A row per unit: ``geoid, level, parent, name``, and the columns at ``places``, by default all, each with its
        ``_lower, _upper, _moe, _cv, _reliability`` where there are margins.
        """
        chosen = range(len(self.names)) if places is None else places
        names = [self.names[k] for k in chosen]
        for units, found in self.by_unit():
            columns = dict(zip(units.schema.names, units.columns, strict=True))
            columns |= {name: pa.array(found.counts[:, k]) for k, name in zip(chosen, names, strict=True)}
            if self.bounded is not None:
                columns |= margin_columns(found, names, chosen, reliability=True)
            yield pa.RecordBatch.from_pydict(columns)

    def require_margins(self, form: str) -> None:
        """Raises `ConfigError` where there are no margins; ``form`` is the export format that needs them."""
        if self.bounded is None:
            raise ConfigError(f"{form} states margins of error, and this release has none: {self.reason}")


def stated_numbers(found: PublishedRelease, query: str | None = None, confidence: float | None = None) -> StatedNumbers:
    """The answers to ``query`` at every unit; by default every cell and their total (only the total where several
    queries were measured), and the columns of the release's tables. ``confidence``: by default the release's own.

    Raises `ConfigError` for an unknown query and a confidence outside of (0.5, 1).
    """
    said = found.manifest.get("margins", {}).get("confidence")  # since version 1.2
    level = require_confidence(confidence or said or 0.9)
    on_spine = has_spine_codes(found.geography)
    release = tabulated_release(found.release) if on_spine else found.release
    table = _stated(release.schema, release.cells, release.layout, query, list(found.manifest.get("tables", {})))
    measurements = found.measurements
    reason = measurements.reason_against(measurements.published.levels)
    reason = reason or (_OF_BLOCKS if on_spine else no_margins(measurements))
    if reason is not None:
        return StatedNumbers(release, table, level, None, reason)
    return StatedNumbers(release, table, level, bounded(measurements, table, level))


def bounded(measurements: Measurements, table: AnswerTable, confidence: float) -> Bounded:
    """The columns of ``table`` with their margins of error, at all levels of ``measurements``.

    Raises `ConfigError` as `answer_noise` does.
    """
    linear, tree = linear_of(measurements, table.queries), measurements.published.tree
    laws = AnswerLaws.of(measurements).of_columns([(column.query, column.answer) for column in table.columns])
    intervals = Intervals.of(partial(estimated, table, linear), laws, tree, 1.0 - confidence)
    return Bounded(table, linear, intervals, range(tree.n_levels))


def long_batches(
    numbers: StatedNumbers, columns: Callable[[BoundedCounts], Mapping[str, Any]], called: tuple[str, str, str]
) -> Iterator[pa.RecordBatch]:
    """A row per unit and column: the GEOID, the unit's name and the column's name, in columns that are ``called`` so,
    and then ``columns``, each (nodes x columns) or an array of as many numbers.
    """
    names, (geoid, name, variable) = pa.array(numbers.names), called
    for units, found in numbers.by_unit():
        unit = pa.array(np.repeat(np.arange(units.num_rows), len(names)))
        place = np.tile(np.arange(len(names), dtype=np.int32), units.num_rows)
        rows = {geoid: units["geoid"].take(unit), name: units["name"].take(unit)}
        rows[variable] = pa.DictionaryArray.from_arrays(pa.array(place), names)
        for title, values in columns(found).items():
            is_made = isinstance(values, pa.Array)
            rows[title] = values if is_made else pa.array(np.ascontiguousarray(values).reshape(-1), from_pandas=True)
        yield pa.RecordBatch.from_pydict(rows)
