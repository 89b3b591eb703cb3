"""The tables that are published: every column is an answer to a query, which is a sum of cells.

A table is a query of the schema ("age * sex"), or a table with a known name (`known_tables`): of the redistricting file
or of the DHC, where the schema has their attributes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from topdown.errors import ConfigError, suggest
from topdown.wording import listed, shown
from topdown.workload.known_tables import known_table
from topdown.workload.query import Query
from topdown.workload.schema import DETAILED, TOTAL, Schema

UNIT_COLUMNS = ("geoid", "level", "name")
"""The columns that name a row's unit."""

ESTIMATED = "_estimates"
"""The ending of the name of a table's file of estimates."""

CELLS = "cells"
"""The name of the table of all cells, where tables are chosen."""


class Column(NamedTuple):
    """A column of a table: the place ``answer`` among the answers to ``query``."""

    name: str
    query: Query
    answer: int

    @property
    def meaning(self) -> str:
        """A description of who is counted."""
        if not self.query.factors:
            return "everybody"
        places = np.unravel_index(self.answer, self.query.shape)
        said = (f"{f.name} = {f.categories[int(k)]}" for f, k in zip(self.query.factors, places, strict=True))
        return ", ".join(said)


class AnswerTable(NamedTuple):
    """A table with a row per unit. ``name``: the name that was given; ``stem``: of the names of its files."""

    name: str
    stem: str
    columns: tuple[Column, ...]

    @property
    def queries(self) -> tuple[Query, ...]:
        """The queries that its columns answer, each once."""
        return tuple(dict.fromkeys(column.query for column in self.columns))


def queries_of(tables: Sequence[AnswerTable]) -> tuple[Query, ...]:
    """The queries that the columns of ``tables`` answer, each once."""
    return tuple(dict.fromkeys(query for table in tables for query in table.queries))


def answer_tables(names: Sequence[str], schema: Schema) -> tuple[AnswerTable, ...]:
    """The tables called ``names``, each a query of ``schema`` or one with a known name ("P1").

    The table of a query has a column for every answer and, where there are several, their total. Raises `ConfigError`
    for an unknown name, for a table that is named twice, and for two columns with the same name.
    """
    found: list[AnswerTable] = []
    stems: set[str] = set()
    for name in names:
        columns = _columns(name, schema)
        called = [*UNIT_COLUMNS, *(column.name for column in columns)]
        if len(set(called)) < len(called):
            twice = next(one for one, times in Counter(called).items() if times > 1)
            raise ConfigError(
                f"table {shown(name)} would have two columns {shown(twice)}; rename the category, or leave the "
                "table out"
            )
        if any(columns == one.columns for one in found):
            raise ConfigError(f"table {shown(name)} is asked for twice; name it once")
        stem = re.sub(r"[^\w-]+", "_", name).strip("_") or "table"
        while not stems.isdisjoint(_stems_of(stem)):
            stem += "_"
        stems |= _stems_of(stem)
        found.append(AnswerTable(name, stem, columns))
    return tuple(found)


def _stems_of(stem: str) -> set[str]:
    """The names of both files of a table, of which those that differ in case alone are one."""
    return {stem.casefold(), f"{stem}{ESTIMATED}".casefold()}


def total_table(schema: Schema) -> AnswerTable:
    """The table of the total alone."""
    return AnswerTable(TOTAL, TOTAL, (Column(TOTAL, Query.parse(TOTAL, schema), 0),))


def wide_table(
    cells: Sequence[str], schema: Schema, tables: Sequence[AnswerTable] = (), *, margins: bool = False
) -> AnswerTable:
    """The table with all cells, named ``cells``, in a row, the total where there are several, and the other columns of
    ``tables``.

    Raises `ConfigError` for two columns with the same name; with ``margins`` the names of their columns count too.
    """
    detailed = Query.parse(DETAILED, schema)
    columns = [Column(cell, detailed, k) for k, cell in enumerate(cells)]
    columns += total_table(schema).columns if len(cells) > 1 else ()
    known = {(column.query, column.answer) for column in columns}
    columns += [one for table in tables for one in table.columns if (one.query, one.answer) not in known]
    columns = list({(one.name, one.query, one.answer): one for one in columns}.values())
    require_distinct(columns, MARGIN_ENDS if margins else ())
    return AnswerTable("wide", "wide", tuple(columns))


def stated_table(
    cells: Sequence[str] | None, schema: Schema, tables: Sequence[AnswerTable], *, margins: bool = True
) -> AnswerTable:
    """What is stated of a unit in a row: all ``cells`` and their total, or without ``cells`` the total, and what else
    is in ``tables``. Raises `ConfigError` as `wide_table` does."""
    if cells is not None:
        return wide_table(cells, schema, tables, margins=margins)
    columns = [*total_table(schema).columns, *(column for one in tables for column in one.columns)]
    table = AnswerTable("all", "all", tuple(dict.fromkeys(columns)))
    require_distinct(table.columns, MARGIN_ENDS if margins else ())
    return table


def require_distinct(columns: Sequence[Column], ends: Sequence[str] = ()) -> None:
    """Refuse two columns with the same name in a table with a row per unit; each column takes its own name and this
    name with every one of ``ends``. Raises `ConfigError`.
    """
    called = Counter([*UNIT_COLUMNS, "parent", *(one.name for one in columns)])
    called.update(f"{one.name}_{end}" for one in columns for end in ends)
    for one in columns:
        if any(called[name] > 1 for name in (one.name, *(f"{one.name}_{end}" for end in ends))):
            raise ConfigError(
                f"cell {shown(one.name)} has the same name as another column of the wide table; rename it, or leave "
                "that table out"
            )


MARGIN_ENDS = ("lower", "upper", "moe")
"""The endings of the columns of a margin of error: the ends of the interval, and half its length."""


def margin_names(column: str) -> tuple[str, ...]:
    """The names of the columns of margins of error beside ``column``."""
    return tuple(f"{column}_{end}" for end in MARGIN_ENDS)


def _columns(name: str, schema: Schema) -> tuple[Column, ...]:
    known = known_columns(name, schema)
    if known is not None and name not in (one.name for one in known):
        return known
    query = Query.parse(name, schema)
    labels = query.labels()
    answers = tuple(Column(label, query, k) for k, label in enumerate(labels))
    if len(answers) == 1:
        return answers
    return (*answers, Column(TOTAL, Query.parse(TOTAL, schema), 0))


def answer_columns(query: str, schema: Schema) -> tuple[Column, ...]:
    """The answers to ``query``, or the fields of a table with a known name.

    Raises `ConfigError` as `Query.parse` does.
    """
    known = known_columns(query, schema)
    if known is not None:
        return known
    asked = Query.parse(query, schema)
    return tuple(Column(label, asked, k) for k, label in enumerate(asked.labels()))


def answer_column(query: str, cell: str | None, schema: Schema) -> Column:
    """The answer ``cell`` of ``query``; where ``cell`` is None, the only answer of the query.

    ``query``: a query, or a table with a known name, whose cells are its fields, or one of these fields ("P0010003").
    ``cell``: with the query "total" any cell of the schema or any field of such a table, too. Raises
    `ConfigError` for an unknown query or cell, and for a query of several answers without a cell.
    """
    columns = answer_columns(query, schema)
    if cell is not None and query == TOTAL:
        if cell in schema.cells():
            return Column(cell, Query.parse(DETAILED, schema), schema.cells().index(cell))
        field = known_columns(cell, schema) or ()
        columns = field if cell in (one.name for one in field) else columns
    if cell is None and len(columns) > 1:
        raise ConfigError(
            f"query {shown(query)} has {len(columns)} answers; name one of them as the cell: "
            f"{listed(column.name for column in columns)}"
        )
    found = next((one for one in columns if cell in (None, one.name)), None)
    if found is None:
        names = (*schema.names, *(one.name for one in schema.recodes))
        others = [name for name in names if cell in Query.parse(name, schema).labels()]
        among = [one.name for one in columns] if len(columns) > 1 else schema.cells()
        remedy = f"it is an answer of {listed(others)}: ask that query" if others else suggest(str(cell), among)
        raise ConfigError(f"query {shown(query)} has no cell {shown(cell)}; {remedy}")
    return found


def known_columns(name: str, schema: Schema) -> tuple[Column, ...] | None:
    """The columns of a table with a known name ("P1"), or one of its fields alone ("P0010003").

    None where ``name`` is neither, or ``schema`` does not have its attributes.
    """
    found = known_table(name, schema)
    if found is None:
        return None
    own = Schema(schema.attributes, found.recodes)
    columns = []
    for title, field in found.fields.items():
        if name in (title, found.name):
            query = Query.parse(" * ".join(field) or TOTAL, own)
            place = [field[factor.name] for factor in query.factors]
            columns.append(Column(title, query, int(np.ravel_multi_index(place, query.shape)) if place else 0))
    return tuple(columns)
