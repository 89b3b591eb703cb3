"""Linked tables read: records with the household's key, or two long tables.

Whatever is wrong is found here, before a budget is touched, and said in one sentence with the unit. Nothing of a record
is shown but the unit, the row and the names of attributes: a key of a household is as confidential as a count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.confidential.count_values import whole_numbers
from topdown.confidential.linked_counts import LinkedCounts, refuse_at, require_countable
from topdown.confidential.records import batches_of_frame, cells_of_rows, nodes_of_rows
from topdown.errors import ROW, ConfigError, CountsError, GeographyError
from topdown.geography.geography import Geography
from topdown.geography.labels import as_strings, column, without_decimals
from topdown.geography.tree import IntArray
from topdown.linked.record_faults import LinkedRows, is_householder, record_faults
from topdown.linked.universe import PublicFigures, Universe
from topdown.tables.readers import require_file, separated, table_batches
from topdown.wording import shown
from topdown.workload.schema import Schema


@dataclass(frozen=True)
class CodedAttribute:
    """An attribute whose table has codes: their ``column``, and by category its ``codes``."""

    column: str
    codes: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class LinkedColumns:
    """Which columns of the tables say what; attributes are columns of their own names, but for those that are coded.

    Args:
        geoid: those whose path, joined by ``separator``, is the leaf; the same in every table.
        household: of records, the key of the household; empty in the table of persons for who lives in a facility.
        count: of long tables, how many a row stands for; None: each row is one.
        units: of the table of what is public, how many units a leaf has; None where no units are told.
        facilities: of that table, by the name of a facility how many there are; one that is not named has its own name.
        coded: by table and attribute those that have codes.
        where: by table and column the values of the rows that are counted, "" for none; others are left out.
    """

    geoid: tuple[str, ...] = ("geoid",)
    separator: str = "/"
    household: str = "household"
    count: str | None = None
    units: str | None = "units"
    facilities: Mapping[str, str] = field(default_factory=dict)
    coded: Mapping[str, Mapping[str, CodedAttribute]] = field(default_factory=dict)
    where: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)

    def read(self, given: Any, name: str, schema: Schema, wanted: Sequence[str]) -> pa.Table:
        """The ``wanted`` columns and the attributes of ``schema`` of the table called ``name``, a frame or the path of
        a table, of the rows that are counted. Raises `CountsError` for a code that no category has and where no row is
        counted, `ConfigError` for an attribute that is called as one of the ``wanted``."""
        coded, where = self.coded.get(name, {}), self.where.get(name, {})
        for one in schema.names:
            if one in wanted:
                raise ConfigError(
                    f"{name}: {shown(one)} is an attribute, and a column of counts, keys or GEOIDs; call one of them "
                    "otherwise"
                )
        attributes = [coded[one].column if one in coded else one for one in schema.names]
        table = _table(given, [*wanted, *attributes, *where])
        for key, values in where.items():
            own = pc.fill_null(_codes(table, key), "")
            chosen = table.filter(pc.is_in(own, pa.array(values, pa.string())))
            if len(table) and not len(chosen):
                raise CountsError(
                    f"{name}: no row of those that are looked at has a value in column {shown(key)} that is counted; "
                    "correct the condition on it"
                )
            table = chosen
        found = {one: table[one] for one in (*wanted, *(one for one in schema.names if one not in coded))}
        for one, own in coded.items():
            found[one] = _decoded(_codes(table, own.column), one, own)
        return pa.table(found)


def count_linked_records(
    universe: Universe,
    geography: Geography,
    households: Any,
    persons: Any,
    public: Any = None,
    columns: LinkedColumns = LinkedColumns(),
) -> LinkedCounts:
    """The counts of linked records: ``households``, a row each with its key, leaf and attributes, and ``persons``, a
    row each with the key of the household, leaf and attributes; frames, or paths of tables.

    ``public``: see `read_public_units`. Raises `CountsError` with the unit and the row: what `count_records` refuses, a
    key that is missing, twice or unknown, a person elsewhere than the household, a household without a householder or
    with two, one whose householder is another person than it says, one whose size or members are not those of its
    attributes, a person in no household and no facility; and as `LinkedCounts.of_leaves`.
    """
    require_countable(universe, geography)
    with _rows_of(universe.names[0], columns):
        table = columns.read(households, universe.names[0], universe.households, [columns.household, *columns.geoid])
        key = _keys(table, columns.household)
        _require_each_once(key.text)
        leaf, cell = _located(table, universe.households, geography, columns)
    with _rows_of(universe.names[1], columns):
        table = columns.read(persons, universe.names[1], universe.persons, [columns.household, *columns.geoid])
        of = _households_of(_keys(table, columns.household, some_missing=True), key, universe)
        whose, person = _located(table, universe.persons, geography, columns)
    _refuse_faults(universe, geography, LinkedRows(leaf, cell, whose, person, of))
    member = ~is_householder(universe, person)
    return LinkedCounts.of_leaves(
        universe,
        geography,
        np.concatenate([leaf, whose[member]]),
        np.concatenate([universe.of_households(cell), universe.of_persons(person[member])]),
        np.ones(len(leaf) + int(member.sum()), np.int64),
        read_public_units(public, universe, geography, columns),
    )


def _refuse_faults(universe: Universe, geography: Geography, rows: LinkedRows) -> None:
    """Refuse records with a fault, the first of its kind. Raises `CountsError`."""
    for fault in record_faults(universe, rows):
        found = np.flatnonzero(fault.wrong)
        if len(found):
            row = int(found[0])
            leaf = int((rows.whose if fault.table else rows.leaf)[row])
            unit = geography.describe(geography.tree.leaves.start + leaf)
            error = CountsError(f"{unit}: {fault.said} ({ROW}); {fault.remedy}", row=row)
            raise error.at(f"row {row} of {universe.names[fault.table]}")


def count_linked_tables(
    universe: Universe,
    geography: Geography,
    households: Any,
    persons: Any,
    public: Any = None,
    columns: LinkedColumns = LinkedColumns(),
) -> LinkedCounts:
    """The counts of two tables without keys: ``households`` (lived in alone) and ``persons`` (all, householders too),
    with a row for every leaf and cell that has a count (``columns.count``), or a row each.

    That a way exists in which the persons of a leaf live in its households is what is asked, and all that can be.
    Raises `CountsError` as `count_linked_records` does, and for householders who are not those of the households.
    """
    require_countable(universe, geography)
    found = []
    for name, table, schema in (
        (universe.names[0], households, universe.households),
        (universe.names[1], persons, universe.persons),
    ):
        with _rows_of(name, columns):
            counted = [] if columns.count is None else [columns.count]
            read = columns.read(table, name, schema, [*columns.geoid, *counted])
            leaf, cell = _located(read, schema, geography, columns)
            times = np.ones(len(leaf), np.int64)
            if columns.count is not None:
                nodes = leaf + geography.tree.leaves.start
                times = whole_numbers(column(read, columns.count), columns.count, nodes, geography)
            found.append((leaf, cell, times))
    figures = read_public_units(public, universe, geography, columns)
    (leaf, cell, times), (whose, person, many) = found
    is_head = is_householder(universe, person)
    if universe.householder is not None:
        _require_same_householders(
            universe,
            geography,
            (leaf, universe.person_of(universe.of_households(cell)), times),
            (whose[is_head], person[is_head], many[is_head]),
        )
    return LinkedCounts.of_leaves(
        universe,
        geography,
        np.concatenate([leaf, whose[~is_head]]),
        np.concatenate([universe.of_households(cell), universe.of_persons(person[~is_head])]),
        np.concatenate([times, many[~is_head]]),
        figures,
    )


_Counted = tuple[IntArray, IntArray, IntArray]
"""Leaves (counted from the first), cells of one table's schema, and how many of each."""


def _require_same_householders(universe: Universe, geography: Geography, told: _Counted, there: _Counted) -> None:
    keys = [leaf * universe.persons.n_cells + person for leaf, person, _ in (told, there)]
    distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
    more = np.zeros(len(distinct), np.int64)
    np.add.at(more, place, np.concatenate([told[2], -there[2]]))
    wrong = np.zeros(geography.n_leaves, bool)
    wrong[distinct[more != 0] // universe.persons.n_cells] = True
    one, other = universe.names
    refuse_at(
        geography,
        wrong,
        f"among its {other}, each {universe.words.householder} is not that of one of its {one}, with the same "
        "attributes; make both tables agree",
    )


def read_public_units(
    table: Any, universe: Universe, geography: Geography, columns: LinkedColumns = LinkedColumns()
) -> PublicFigures:
    """What is public of every leaf, from a table with a row per leaf: its units, and its facilities by kind; a leaf
    without a row has none. Without a ``table`` units are not told. Raises `CountsError` with the unit and the row, and
    `ConfigError` where facilities are counted and there is no table."""
    counted = [facility.name for facility in universe.facilities if facility.counted]
    if table is None:
        if counted:
            raise ConfigError(
                f"the number of facilities such as {shown(counted[0])} is public, and no table has it; give the table "
                "of what is public, with a column for each kind"
            )
        return PublicFigures(None, np.zeros((geography.n_leaves, 0), np.int64))
    names = [*([] if columns.units is None else [columns.units]), *(columns.facilities.get(k, k) for k in counted)]
    found = np.zeros((geography.n_leaves, len(names)), np.int64)
    with _rows_of("the table of what is public", columns):
        read = _table(table, [*columns.geoid, *names])
        nodes = nodes_of_rows(read, geography, columns.geoid, columns.separator)
        again = np.ones(len(nodes), bool)
        again[np.unique(nodes, return_index=True)[1]] = False
        if again.any():
            row = int(np.flatnonzero(again)[0])
            raise CountsError(f"{geography.describe(int(nodes[row]))}: a second row ({ROW}); leave it one", row=row)
        for number, name in enumerate(names):
            values = whole_numbers(column(read, name), name, nodes, geography)
            found[nodes - geography.tree.leaves.start, number] = values
    if columns.units is None:
        return PublicFigures(None, found)
    return PublicFigures(found[:, 0], found[:, 1:])


@contextmanager
def _rows_of(table: str, columns: LinkedColumns) -> Iterator[None]:
    """Errors in here say of which table their row is."""
    table = f"the counted rows of {table}" if table in columns.where else table
    try:
        yield
    except GeographyError as error:
        raise CountsError(f"{table}: {error}") from None
    except CountsError as error:
        raise (
            CountsError(f"{table}: {error}") if error.row is None else error.at(f"row {error.row} of {table}")
        ) from None


def _table(given: Any, wanted: Sequence[str]) -> pa.Table:
    """The ``wanted`` columns of a frame, or of the table at a path."""
    names = list(dict.fromkeys(wanted))
    if isinstance(given, str | Path):
        batches = table_batches(require_file(given), names, form=separated(given), kept=False)
    else:
        batches = batches_of_frame(given, names)
    kept = list(batches)
    return pa.Table.from_batches(kept) if kept else pa.table({name: pa.array([], pa.string()) for name in names})


def _codes(table: pa.Table, name: str) -> pa.Array:
    return as_strings(column(table, name), f"column {shown(name)}", allow_integers=True)


def _decoded(codes: pa.Array, attribute: str, coded: CodedAttribute) -> pa.Array:
    """The categories of ``codes``."""
    pairs = [(code, category) for category, own in coded.codes.items() for code in own]
    place = pc.index_in(codes, value_set=pa.array([code for code, _ in pairs]))
    if place.null_count:
        row = int(np.flatnonzero(np.asarray(pc.is_null(place)))[0])
        raise CountsError(
            f"{ROW}: column {shown(coded.column)} has a code that no category of {shown(attribute)} has; give it "
            "to one, or leave the row out by a condition",
            row=row,
        )
    return pa.array([category for _, category in pairs], pa.string()).take(place)


def _located(
    table: pa.Table, schema: Schema, geography: Geography, columns: LinkedColumns
) -> tuple[IntArray, IntArray]:
    """The leaf, counted from the first, and the cell of every row."""
    nodes = nodes_of_rows(table, geography, columns.geoid, columns.separator)
    return nodes - geography.tree.leaves.start, cells_of_rows(table, schema)


class _Keys(NamedTuple):
    """Keys of households as ``text``, null where there is none, and whether they are given as ``numbers``."""

    text: pa.Array
    numbers: bool


def _keys(table: pa.Table, name: str, *, some_missing: bool = False) -> _Keys:
    """The keys of households: texts, or whole numbers."""
    given = column(table, name)
    numbers = pa.types.is_integer(given.type) or pa.types.is_floating(given.type)
    if pa.types.is_floating(given.type):
        given = _whole_keys(given, name)
    text = as_strings(given, f"column {shown(name)}", allow_integers=True)
    text = pc.if_else(pc.equal(pc.utf8_trim_whitespace(text), ""), pa.scalar(None, text.type), text)
    if text.null_count and not some_missing:
        row = int(np.flatnonzero(np.asarray(pc.is_null(text)))[0])
        raise CountsError(f"{ROW}: the key in column {shown(name)} is missing; give every one its own", row=row)
    return _Keys(text, numbers)


def _whole_keys(given: pa.ChunkedArray, name: str) -> pa.Array:
    """Keys that are whole numbers in a column of floats, as those are that lack some; null where there is none."""
    values = np.asarray(given.to_numpy())
    missing = np.isnan(values)
    # Of larger numbers two different ones may be one float.
    exact = np.abs(values) < 2.0 ** (np.finfo(values.dtype).nmant + 1)
    wrong = ~missing & ~(exact & (values == np.floor(values)))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise CountsError(
            f"{ROW}: the key in column {shown(name)} is a number with decimals, or one so large that it may stand for "
            "several; write keys as text or as whole numbers, in both tables",
            row=row,
        )
    return pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing)


def _require_each_once(key: pa.Array) -> None:
    counts = pc.value_counts(key)
    repeated = pc.struct_field(counts.filter(pc.greater(pc.struct_field(counts, 1), 1)), 0)
    if len(repeated):
        row = int(np.flatnonzero(np.asarray(pc.equal(key, repeated[0])))[1])
        raise CountsError(f"{ROW}: a second one with the same key; give every one a key of its own", row=row)


def _households_of(own: _Keys, key: _Keys, universe: Universe) -> IntArray:
    """The row of every person's household, -1 in none. Raises `CountsError` for a key that no household has, and for
    numbers that could be those of two households."""
    own, key = _as_numbers(own, key.text), _as_numbers(key, own.text)
    households = universe.names[0]
    if own.numbers and not key.numbers:
        bare = pc.replace_substring_regex(key.text, r"^0+([0-9])", r"\1")
        if len(bare.unique()) < len(bare):
            raise CountsError(
                f"keys are numbers, and two of the table of {households} differ in leading zeros alone; write them as "
                "text in both tables"
            )
    found = np.asarray(pc.fill_null(pc.index_in(own.text, value_set=key.text), -1), np.int64)
    lost = (found < 0) & np.asarray(pc.is_valid(own.text))
    if lost.any():
        row = int(np.flatnonzero(lost)[0])
        remedy = "add it there, or leave the key empty"
        if own.numbers != key.numbers:
            remedy = "keys are numbers in one table and text in the other: write them alike"
        raise CountsError(f"{ROW}: a key that is not in the table of {households}; {remedy}", row=row)
    return found


def _as_numbers(own: _Keys, others: pa.Array) -> _Keys:
    """Keys of one table without ".0", if all have it and none of the ``others`` does, the keys of the other table: so
    programs write whole numbers in a column that lacks some. Of up to 15 digits, since two longer ones may have become
    one."""
    written = own.text.drop_null()
    if own.numbers or not len(written) or not pc.all(pc.match_substring_regex(written, r"^[0-9]{1,15}\.0$")).as_py():
        return own
    if pc.any(pc.ends_with(others, ".0")).as_py():
        return own
    return _Keys(without_decimals(own.text), True)
