"""Public limits of queries' answers by node, for example: at least one person in an occupied facility, none where there
is no such facility.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import ROW, ConfigError, DataError, require_known, require_type
from topdown.geography.geography import Geography
from topdown.machine.memory import gibibytes, most_at_once
from topdown.measurements.declared_constraints import Constraints
from topdown.measurements.measurements import Measurements
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.projection.conditions import Conditions, Limits
from topdown.projection.invariants import Contradiction
from topdown.tables.readers import require_file, table_batches, table_columns
from topdown.wording import shown
from topdown.workload import Query, Schema

LIMITS_COLUMNS = ("geoid", "query", "answer", "lower", "upper")
_CATEGORY = "category"
"""Another name of the column of answers."""

_ROWS_AT_ONCE = 1 << 16
_BYTES_OF_ANSWER = 17
"""Bytes for an answer at a node: both limits, and whether it is listed."""


@dataclass(frozen=True, eq=False)
class AnswerLimits:
    """Public bounds of queries' answers at nodes: the least and the most that each may be.

    Limits of children also limit their sums, so that limits at any level imply limits at the levels above.

    Args:
        geography: the units.
        schema: the cells, of which the queries are.
        by_query: the limits by query, lower and upper, (nodes x answers) each; 0 and inf where nothing is known.

    Examples:
        >>> limits = {"geoid": ["01001"], "query": ["sex"], "answer": ["female"], "lower": [0], "upper": [50]}
        >>> td.AnswerLimits.from_table(limits, geography, schema).schema is schema
        True
    """

    geography: Geography
    schema: Schema
    by_query: Mapping[Query, Limits] = field(repr=False)

    @classmethod
    def from_table(
        cls, table: Any, geography: Geography, schema: Schema, *, closed: Iterable[str] = ()
    ) -> AnswerLimits:
        """Limits from rows ``geoid, query, answer, lower, upper``.

        Args:
            table: an Arrow table, a DataFrame, a mapping of columns, or the path of a Parquet or CSV file. ``answer``,
                which may also be called ``category``: the answer's name, its categories joined by "_"
                (`Query.labels`). ``lower`` and ``upper``: whole numbers; empty where there is no limit.
            geography: the units.
            schema: the cells, of which the queries are.
            closed: queries of which the table is complete: where a unit has no row for an answer for which another unit
                of its level has one, the answer is 0.

        Raises `DataError` naming the row for a unit, query, answer or number that cannot be, for limits that cross and
        for two rows of one answer; `ConfigError` for a closed query that the table does not name.
        """
        found: dict[Query, Limits] = {}
        listed: dict[Query, npt.NDArray[np.bool_]] = {}
        answers: dict[Query, dict[str, int]] = {}
        queries: dict[str, Query] = {}
        begin = 0
        for rows in _batches(table):
            nodes = geography.index_of(pa.array(rows["geoid"], pa.string())).tolist()
            for row, (node, geoid, text, answer, lower, upper) in enumerate(
                zip(nodes, *rows.values(), strict=True), begin
            ):
                where = f"limits, {ROW}"
                if node < 0:
                    raise DataError(f"{where}: no unit {shown(geoid)} in the geography; correct the GEOID", row=row)
                if text not in queries:
                    query = queries[text] = _parsed(text, schema, row)
                    _require_room(query, geography.n_nodes)
                    shape = geography.n_nodes, query.n_answers
                    answers.setdefault(query, {name: k for k, name in enumerate(query.labels())})
                    found.setdefault(query, Limits(np.zeros(shape), np.full(shape, np.inf)))
                    listed.setdefault(query, np.zeros(shape, np.bool_))
                query = queries[text]
                if answer not in answers[query]:
                    try:
                        require_known(answer, answers[query], f"answer of query {shown(query.name)}:")
                    except ConfigError as error:
                        raise DataError(f"{where}: {error}", row=row) from None
                place = node, answers[query][answer]
                if listed[query][place]:
                    raise DataError(
                        f"{where}: {geography.describe(node)}, {shown(answer)} has two rows; give it one", row=row
                    )
                listed[query][place] = True
                low, high = _limit(lower, 0.0, row), _limit(upper, np.inf, row)
                if low > high:
                    raise DataError(
                        f"{where}: {geography.describe(node)}, {shown(answer)}: the lower limit is above the upper; "
                        "correct one of them",
                        row=row,
                    )
                found[query].low[place], found[query].high[place] = low, high
            begin += len(nodes)
        for text in closed:
            query = Query.parse(text, schema)
            if query not in found:
                raise ConfigError(f"closed names query {shown(query.name)}, of which the table of limits has no row")
            for level in geography.levels:
                part = geography.level_slice(level)
                if listed[query][part].any():
                    unlisted = ~listed[query][part] & listed[query].any(axis=0)
                    found[query].high[part] = np.where(unlisted, 0.0, found[query].high[part])
        return cls(geography, schema, found)

    def __repr__(self) -> str:
        return f"AnswerLimits({', '.join(query.name for query in self.by_query)})"

    def require_possible(self) -> None:
        """Refuse limits that no table can keep: contradictions among a unit's limits, with its children's, and with the
        schema's structural zeros. Raises `DataError` naming the unit and the query, with both sides.
        """
        cells = self.schema.possible_cells()
        for query, (low, _) in self.by_query.items():
            empty = np.setdiff1d(np.arange(query.n_answers), query.answers_of(cells))
            wrong = np.argwhere(low[:, empty] > 0)
            if len(wrong):
                node, answer = int(wrong[0, 0]), int(empty[wrong[0, 1]])
                raise DataError(
                    f"{self.geography.describe(node)}, query {query.name!r}, {query.labels()[answer]!r}: it must be at "
                    f"least {low[node, answer]:.0f}, but it is a structural zero of the schema; correct one of them"
                )
        try:
            Conditions.of(self.geography.tree, [{}] * self.geography.tree.n_levels, self.by_query)
        except Contradiction as contradiction:
            said = f"{self.geography.describe(contradiction.node)}: {contradiction}; correct the limits"
            raise DataError(said) from None

    def of_leaves(self, part: Geography) -> AnswerLimits:
        """The limits of the leaves of ``part``, a geography of some of the units down to their leaves; of the units
        above, which may have lost children, none.
        """
        nodes = pc.index_in(part.identifiers[part.tree.leaves.start :], self.geography.identifiers).to_numpy()
        found = {}
        for query, limits in self.by_query.items():
            low, high = np.zeros((part.n_nodes, query.n_answers)), np.full((part.n_nodes, query.n_answers), np.inf)
            low[part.tree.leaves], high[part.tree.leaves] = limits.low[nodes], limits.high[nodes]
            found[query] = Limits(low, high)
        return AnswerLimits(part, self.schema, found)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows ``geoid, query, answer, lower, upper`` of every limit there is, which `from_table` reads back without
        anything being closed.
        """
        for query, (low, high) in self.by_query.items():
            node, answer = np.nonzero((low > 0) | np.isfinite(high))
            names = pa.array(query.labels())
            yield pa.RecordBatch.from_pydict(
                {
                    "geoid": self.geography.identifiers.take(pa.array(node)),
                    "query": pa.repeat(query.name, len(node)),
                    "answer": names.take(pa.array(answer)),
                    "lower": pa.array(low[node, answer].astype(np.int64)),
                    "upper": pa.array(high[node, answer], from_pandas=True, mask=np.isinf(high[node, answer])).cast(
                        pa.int64()
                    ),
                }
            )


def settled(
    measurements: Measurements, constraints: Constraints | AnswerLimits | None
) -> tuple[Measurements, AnswerLimits | None]:
    """The measurements, of a schema that has the zeros of ``constraints``, and their limits. Raises `ConfigError` and
    `DataError` as `Constraints.added_to` and `AnswerLimits.from_table` do.
    """
    if constraints is None or isinstance(constraints, AnswerLimits):
        return measurements, constraints
    require_type(Constraints, constraints, "constraints")
    schema = constraints.added_to(measurements.schema)
    if schema != measurements.schema:
        measurements = replace(measurements, attributes=schema)
    if constraints.bounds is None:
        return measurements, None
    geography = measurements.geography
    return measurements, AnswerLimits.from_table(constraints.bounds, geography, schema, closed=constraints.closed)


class OpenAnswers(NamedTuple):
    """Answers to a ``query`` that are open: ``there`` (nodes x answers), whether a node can have records in them."""

    query: Query
    there: npt.NDArray[np.bool_]

    @classmethod
    def of_limits(cls, limits: AnswerLimits) -> OpenAnswers:
        """The answers that no limit of 0 closes: at a leaf its own and those of the units above it, at a unit above
        those of all of its leaves. Raises `ConfigError` for limits of several queries, and for a limit other than 0."""
        if len(limits.by_query) != 1:
            raise ConfigError(
                f"the limits are of {', '.join(shown(query.name) for query in limits.by_query)}, and in a schema of so "
                "many cells they are of one query; keep one"
            )
        ((query, (low, high)),) = limits.by_query.items()
        geography, tree = limits.geography, limits.geography.tree
        wrong = np.argwhere((low > 0) | (np.isfinite(high) & (high > 0)))
        if len(wrong):
            node, answer = (int(k) for k in wrong[0])
            raise ConfigError(
                f"{geography.describe(node)}, {shown(query.labels()[answer])}: in a schema of so many cells a limit "
                "says only where there are no records: leave lower 0 or empty, and upper 0 or empty"
            )
        there = high > 0
        families = [tree.families(index) for index in range(tree.n_levels - 1)]
        for one in families:
            there[one.children] &= np.repeat(there[one.parents], one.sizes, axis=0)
        for one in reversed(families):
            there[one.parents] = np.logical_or.reduceat(there[one.children], one.starts, axis=0)
        return cls(query, there)


def _batches(table: Any) -> Iterator[dict[str, list[Any]]]:
    """The columns by name, in batches; the first three as text."""
    if isinstance(table, str | Path):
        path = require_file(table)
        for batch in table_batches(path, list(_named(table_columns(path)).values()), kept=False):
            yield from _batches(pa.Table.from_batches([batch]))
        return
    known = list(table.column_names) if isinstance(table, pa.Table) else list(table)
    columns = _named(known)
    missing = [name for name in columns.values() if name not in known]
    if missing:
        raise DataError(f"limits: no column {shown(missing[0])}; give {', '.join(LIMITS_COLUMNS)}")
    if isinstance(table, pa.Table):
        for first in range(0, table.num_rows, _ROWS_AT_ONCE):
            part = table.slice(first, _ROWS_AT_ONCE)
            yield _as_texts({name: part[own].to_pylist() for name, own in columns.items()})
        return
    yield _as_texts({name: list(table[own]) for name, own in columns.items()})


def _named(known: Sequence[str]) -> dict[str, str]:
    """What a table with the columns ``known`` calls each of `LIMITS_COLUMNS`."""
    found = {name: name for name in LIMITS_COLUMNS}
    if "answer" not in known and _CATEGORY in known:
        found["answer"] = _CATEGORY
    return found


def _as_texts(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {
        name: [str(v) for v in values] if name in LIMITS_COLUMNS[:3] else values for name, values in columns.items()
    }


def _parsed(text: str, schema: Schema, row: int) -> Query:
    try:
        return Query.parse(text, schema)
    except ConfigError as error:
        raise DataError(f"limits, {ROW}: {error}", row=row) from None


def _require_room(query: Query, n_nodes: int) -> None:
    """Refuse limits of a query of which a table does not fit in memory. Raises `DataError`."""
    size, most = _BYTES_OF_ANSWER * n_nodes * query.n_answers, most_at_once()
    if most is not None and size > most:
        raise DataError(
            f"limits of query {shown(query.name)} at {n_nodes:,} units take {gibibytes(size)} of memory, more than the "
            f"{gibibytes(most)} that can be given to them here; limit a query of fewer answers, or use a larger machine"
        )


def _limit(value: Any, absent: float, row: int) -> float:
    """A limit as it is written: a whole number or nothing."""
    if value is None or value == "" or (isinstance(value, float) and np.isnan(value)):
        return absent
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not (0 <= number <= LARGEST_WHOLE and number == int(number)):
        raise DataError(
            f"limits, {ROW}: {shown(str(value))} is no whole number from 0 to 2^53; correct it, or leave it empty",
            row=row,
        )
    return number
