"""Reads the geography and the confidential counts of a redistricting file (P.L. 94-171) that a configuration names."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.census.layouts import redistricting_layout
from topdown.census.redistricting_counts import Redistricting, read_pl94
from topdown.confidential.counts import Counts
from topdown.confidential.records import count_records
from topdown.config import RunConfig
from topdown.errors import ConfigError, CountsError, DataError
from topdown.machine.progress import Stages
from topdown.pipeline.input.unit_reading import InputShape, Units
from topdown.wording import listed, shown, shown_path
from topdown.workload import Schema
from topdown.workload.redistricting import PERSONS, VOTERS

_COUNT = "count"


def file_of(config: RunConfig, stages: Stages) -> Redistricting:
    """The redistricting file of ``config``; ``stages`` is told if it has only a part of its units.

    Raises `ConfigError` for attributes that the file does not have, `DataError` and `GeographyError` as `read_pl94`
    does.
    """
    _histogram_of(config.schema_of_cells)
    file = read_pl94(config.input_path)
    if file.partial:
        stages.say("warning   the file holds a part of its units: what is above is the sum of those that are there")
    return file


def units_of(config: RunConfig, file: Redistricting) -> Units:
    """The file's own units. Raises `DataError` where they have other levels than the configuration says."""
    levels = config.geography.level_names
    if list(file.geography.levels) != levels:
        raise DataError(
            f"{shown_path(config.input_path)}: it has the levels {listed(file.geography.levels)}, and geography "
            f"{listed(levels)}; give geography.widths without the levels that the file does not have"
        )
    return Units(file.geography, levels[-1:], pa.table({}))


def counts_of(config: RunConfig, units: Units, file: Redistricting, _: Stages) -> Counts:
    """The file's counts for ``units``, which are its own or a public list's, where it may lack some.

    With all attributes these are the 2,016 cells of `Redistricting.persons`; with voting age, Hispanic origin and race
    the 252 cells of `Redistricting.histogram`. Raises `CountsError` for a file that contradicts itself, or a unit that
    is not listed.
    """
    schema, cells, geography = config.schema_of_cells, tuple(config.input.cells), units.geography
    counts = _histogram_of(schema)(file)
    if geography is file.geography:
        return Counts(geography, cells, counts.values, schema)
    rows, lowest = _rows(counts, schema), file.geography.levels[-1]
    unlisted = pc.filter(rows[lowest], pc.invert(pc.is_in(rows[lowest], geography.identifiers)))
    if len(unlisted):
        raise CountsError(
            f"{shown_path(config.input_path)}: {lowest} {shown(unlisted[0].as_py())} has persons and is not in "
            "geography.units; give the list all units, whatever the file holds"
        )
    held = count_records(iter([rows]), geography, geoid=[lowest], cells=cells, schema=schema, count=_COUNT)
    return Counts(geography, cells, held, schema)


def _histogram_of(schema: Schema) -> Callable[[Redistricting], Counts]:
    known: dict[Any, Callable[[Redistricting], Counts]] = {
        PERSONS.attributes: Redistricting.persons,
        VOTERS.attributes: attrgetter("counts"),
    }
    if schema.attributes not in known:
        raise ConfigError(
            f'input.rows = "pl94" has the attributes {listed(PERSONS.names)}, or the last three of them, with the '
            "categories of the redistricting file; leave [schema] out, or give it one of these"
        )
    return known[schema.attributes]


def _rows(counts: Counts, schema: Schema) -> pa.RecordBatch:
    """The cells with records of the leaves, one in each row."""
    leaves = counts.geography.tree.leaves
    unit, cell = np.nonzero(counts.values[leaves])
    columns = {counts.geography.levels[-1]: counts.geography.identifiers.take(pa.array(leaves.start + unit))}
    for attribute, place in zip(schema.attributes, np.unravel_index(cell, schema.shape), strict=True):
        columns[attribute.name] = pa.array(list(attribute.categories)).take(pa.array(place))
    columns[_COUNT] = pa.array(counts.values[leaves][unit, cell])
    return pa.RecordBatch.from_pydict(columns)


REDISTRICTING = InputShape(file_of, units_of, counts_of, redistricting_layout.digest)
"""A redistricting file, which has its own units and attributes."""
