"""The numbers of a release's page: its units, its tables with their intervals, and what margins of sums are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from topdown.analysis.page.page_errors import PageErrors
from topdown.analysis.stated_numbers import bounded
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray, runs
from topdown.release.answer_files import Bounded, BoundedCounts, table_counts
from topdown.release.published import PublishedRelease
from topdown.tables.count_reliability import CLASSES
from topdown.uncertainty.laws.known_noise import no_margins
from topdown.uncertainty.margins import require_confidence
from topdown.workload import DETAILED, TOTAL, Schema
from topdown.workload.answer_tables import AnswerTable, Column, answer_columns, known_columns

MOST_NUMBERS = 250_000
"""The most numbers on a page (units times columns, and `_OF_UNIT` for every unit); with its scripts and a map it then
stays below 5 MB.
"""
_OF_UNIT = 2
"""A unit's code, name and parent take about as much room as so many numbers."""
_MOST_COLUMNS = 1 << 12
"""A table with more columns is never shown."""
_NUMBERS_AT_ONCE = 1 << 21
_DIGITS = 7
"""Estimates are written to so many significant digits of their standard deviation."""


class Tables(NamedTuple):
    """The tables that the page of a release has ``shown``, by name, the total first, and the names of those that are
    too large for it (``left_out``).
    """

    shown: dict[str, tuple[Column, ...]]
    left_out: tuple[str, ...]

    @property
    def columns(self) -> list[Column]:
        """The columns of all tables that are shown."""
        return [column for columns in self.shown.values() for column in columns]

    def within(self, nodes: int) -> Tables:
        """The tables that a page of so many ``nodes`` has room for, the small ones first; the total always."""
        kept, left = set(), MOST_NUMBERS // max(nodes, 1) - _OF_UNIT - 1
        for name in sorted(self.shown, key=lambda name: len(self.shown[name])):
            if name == TOTAL or len(self.shown[name]) <= left:
                kept.add(name)
                left -= len(self.shown[name]) if name != TOTAL else 0
        shown = {name: columns for name, columns in self.shown.items() if name in kept}
        return Tables(shown, (*self.left_out, *(name for name in self.shown if name not in kept)))


def tables_of(found: PublishedRelease) -> Tables:
    """The total, the queries that were measured, and the tables that were published."""
    schema, measured = found.measurements.schema, found.measurements
    names = [TOTAL, *(query for _, query in measured.others), *found.manifest.get("tables", {}), DETAILED]
    shown: dict[str, tuple[Column, ...]] = {}
    left_out: list[str] = []
    for name in dict.fromkeys(names):
        columns = _columns(name, schema)
        if columns is None:
            left_out.append(name)
        elif _meanings(columns) not in map(_meanings, shown.values()):
            shown[name] = columns
    return Tables(shown, tuple(left_out))


def _meanings(columns: Sequence[Column]) -> set[str]:
    return {column.meaning for column in columns}


def _columns(name: str, schema: Schema) -> tuple[Column, ...] | None:
    """The answers to the query ``name``; None where there are too many."""
    if name == DETAILED:
        return answer_columns(name, schema) if schema.n_cells <= _MOST_COLUMNS else None
    columns = answer_columns(name, schema)
    return columns if len(columns) <= _MOST_COLUMNS else None


@dataclass(frozen=True, eq=False)
class PageNumbers:
    """What the pages of a release have in common: its ``tables``, and where there are margins of error their
    ``confidence`` and what they are made of; else the ``reason`` why there are none."""

    found: PublishedRelease
    tables: Tables
    confidence: float
    reason: str | None
    errors: PageErrors | None = field(repr=False)

    @classmethod
    def of(cls, found: PublishedRelease) -> PageNumbers:
        """The numbers of a release, with margins at the release's own confidence."""
        confidence = require_confidence(found.manifest.get("margins", {}).get("confidence") or 0.9)
        measured = found.measurements.kept
        reason = no_margins(measured)
        tables, geography = tables_of(found), found.geography
        if in_pieces(geography, tables):  # all pages show the tables that the largest page has room for
            units = range(*geography.tree.level_offsets[1:3].tolist())
            tables = tables.within(max(sum(map(len, nodes_of_page(geography, unit))) for unit in units))
        return cls(found, tables, confidence, reason, None if reason else PageErrors(measured))

    @property
    def geography(self) -> Geography:
        """The units."""
        return self.found.geography

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of all tables, each once."""
        return tuple(dict.fromkeys(self.tables.columns))

    @cached_property
    def _bounded(self) -> Bounded | None:
        if self.errors is None:
            return None
        return bounded(self.found.measurements.kept, AnswerTable("page", "page", self.columns), self.confidence)

    def of_page(self, nodes: Sequence[IntArray]) -> dict[str, Any]:
        """The numbers of a page: units, tables, and errors of sums. ``nodes``: its nodes by level, from the
        root down.
        """
        tables, geography = self.tables.within(sum(map(len, nodes))), self.geography
        every = np.concatenate(nodes)
        parent = geography.tree.parent[every]
        names = None if geography.names is None else geography.names.take(every).to_pylist()
        known = 0 if self.errors is None else self.errors.n_levels
        found = _joined([self._of_level(*one) for one in enumerate(nodes)])
        return {
            "levels": list(geography.levels[: len(nodes)]),
            "left_out_levels": list(geography.levels[len(nodes) :]),
            "sizes": [len(one) for one in nodes],
            "geoid": geography.identifiers.take(every).to_pylist(),
            "name": names,
            "parent": np.where(parent < 0, -1, np.searchsorted(every, parent)).tolist(),
            "tables": [
                {"name": name, "columns": [self._column(name, column, found) for column in columns]}
                for name, columns in tables.shown.items()
            ],
            "left_out_tables": list(tables.left_out),
            "classes": {name: limit for name, limit in CLASSES.items() if math.isfinite(limit)},
            "confidence": self.confidence,
            "errors": None if self.errors is None else self.errors.numbers(nodes[:known]),
        }

    def _column(self, table: str, column: Column, found: BoundedCounts) -> dict[str, Any]:
        place = self.columns.index(column)
        counts, values, variance, lower, upper = (one[:, place] for one in found)
        sd = np.sqrt(variance)
        least = sd[(sd > 0) & np.isfinite(sd)].min(initial=np.inf)
        digits = max(_DIGITS - math.floor(math.log10(least)), 0) if np.isfinite(least) else 0
        return {
            "name": column.name,
            "label": self._label(table, column),
            "meaning": column.meaning,
            **({} if self.errors is None else self.errors.form_of(column.query, column.answer)),
            "count": counts.tolist(),
            "more": _listed(np.asarray(np.round(values - counts, digits), np.float64)),
            "sd": [None if one is None else float(f"{one:.6g}") for one in _listed(sd)],
            "down": _listed(np.asarray(counts - lower)),
            "up": _listed(np.asarray(upper - counts)),
        }

    def _label(self, table: str, column: Column) -> str:
        """The name of an answer, as `topdown schema --answers` prints it."""
        fields = known_columns(table, column.query.schema) is not None
        if column.query.name == TOTAL or fields or not self.found.measurements.others:
            return column.name
        return f"{table}: {column.query.labels(' × ')[column.answer]}"

    def _of_level(self, level: int, here: IntArray) -> BoundedCounts:
        """The numbers at the nodes ``here`` of a ``level``; without margins everything but the counts is missing."""
        table, release = AnswerTable("page", "page", self.columns), self.found.release
        step = max(1, _NUMBERS_AT_ONCE // max(query.n_answers for query in table.queries))
        known = None if self.errors is None or level >= self.errors.n_levels else self._bounded
        found = []
        for part in runs(slice(int(here[0]), int(here[-1]) + 1), step):
            own = here[(here >= part.start) & (here < part.stop)] - part.start
            if known is None:
                numbers = BoundedCounts.of_counts(table_counts(table, release, part))
            else:
                numbers = known.at(release, part)
                numbers = numbers._replace(variance=known.intervals.laws.settled(numbers.variance))
            found.append(BoundedCounts(*(one[own] for one in numbers)))
        return _joined(found)


def _joined(parts: Sequence[BoundedCounts]) -> BoundedCounts:
    return BoundedCounts(*map(np.concatenate, zip(*parts, strict=True)))


def _listed(values: FloatArray | IntArray) -> list[float | int | None]:
    """Numbers for JSON: whole numbers as integers, and None for missing and infinite ones."""
    return [None if not math.isfinite(one) else int(one) if one == math.floor(one) else one for one in values.tolist()]


def nodes_of_page(geography: Geography, below: int | None = None) -> list[IntArray]:
    """The nodes of a page, by level: all of them, or the root and those in the unit ``below`` it; of as many levels as
    a page has room for.
    """
    tree = geography.tree
    if below is None:
        nodes = [np.arange(tree.level(level).start, tree.level(level).stop) for level in range(tree.n_levels)]
    else:
        nodes = [np.zeros(1, np.int64), np.array([below])]
        while len(nodes) < tree.n_levels:
            first, last = tree.children(int(nodes[-1][0])), tree.children(int(nodes[-1][-1]))
            nodes.append(np.arange(first.start, last.stop))
    while len(nodes) > 1 and sum(map(len, nodes)) * (_OF_UNIT + 1) > MOST_NUMBERS:
        nodes.pop()
    return nodes


def in_pieces(geography: Geography, tables: Tables) -> bool:
    """Whether a release is too large for one page."""
    return geography.tree.n_levels > 2 and geography.n_nodes * (_OF_UNIT + len(tables.columns)) > MOST_NUMBERS
