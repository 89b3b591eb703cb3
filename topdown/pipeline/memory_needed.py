"""Estimates the memory and disk space of a run, after its units are read and before any count is.

There is one formula for each stage: for tables of nodes x cells (8 bytes a number), and for the arrays of the stage,
fitted to measurements by `benchmarks/memory.py` on trees from one wide family to chains of thirty levels, and for parts
by `benchmarks/nation_histogram.py`. A run never takes twice the estimate, and seldom half of it.

A release of several queries that would not fit is made in parts, and parts that would not fit are made smaller. This is
decided, and printed, from units, cells and configuration alone, because the number of rows of the table is
confidential.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from topdown.config import RunConfig
from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.unit_sums import SpineGeography
from topdown.machine.memory import about, available_memory, gibibytes, held_memory
from topdown.machine.progress import Stages
from topdown.machine.system import processors
from topdown.pipeline.parts.array_steps import FAMILIES_AT_ONCE
from topdown.pipeline.parts.cut_points import parts_of
from topdown.pipeline.parts.part_plan import (
    LEAVES_OF_A_PART,
    asked_in_parts,
    cut_for,
    kept_levels,
    measured_numbers,
)
from topdown.pipeline.rehearsal import load_loops
from topdown.tables.format import Extent
from topdown.tables.readers import extent_of
from topdown.wording import shown_path
from topdown.workload import Query
from topdown.workload.answer_tables import CELLS, answer_tables

_WORD = 8
"""Bytes of a count, an estimate, a variance, a code."""

_LOADED = 40 << 20
"""What a run takes besides its arrays: libraries that are loaded later, the rehearsal, solvers, buffers of files."""

_LIBRARIES, _LOOPS, _COMPILING = 256 << 20, 96 << 20, 400 << 20
"""What a process takes before it reads a table: libraries, and the compiled loops for several queries; and what
compiling these loops takes at most.
"""

_READING, _ABOVE, _WORKER = 512 << 20, 384 << 20, 320 << 20
"""What the processes of a run in parts take besides their arrays: the first one while it reads, the first one
afterwards, and a worker.
"""

_CELLS_OF_A_UNIT = 64
"""A unit of a release of several queries has records in this many cells plus one in 16 of all cells, at most."""

_AT_ONCE = 1 << 18
"""The number of nodes, or rows of a file, that are processed at once."""

_SMALLEST_PART = 1_000
"""Parts are not made smaller than this many leaves."""

_RECORDS_AT_ONCE = 1 << 21
"""The largest number of records, or long rows, in memory at once."""

_TYPICAL_WIDTH = 16.0
"""Bytes of a value in a column of counts, if the file may not be read."""

_ROW, _ROW_ON_DISK, _ROW_AS_TEXT = 28, 13, 100
"""Bytes of a row of the table in a run in parts: in memory while reading, in all files together, in a CSV file."""

_NUMBER_ON_DISK, _ESTIMATE_ON_DISK, _NUMBERS_OF_A_COLUMN = 4, 32, 8
"""Bytes of a measured number in files, between steps and published; bytes of the published estimate of a table's column
at a unit, with its margin of error; and how many numbers of each are in memory while tables are estimated.
"""

_LARGEST_SAID = 1 << 40
"""A larger estimate counts all cells, although only few can have records, and is not printed."""


class InParts(NamedTuple):
    """Sizes in bytes: the memory of the process that distributes the work, while reading, while there are workers and
    when they have ended (``gathering``); the memory of each worker, and the disk space in the output directory.
    """

    reading: int
    above: int
    gathering: int
    worker: int
    disk: int

    def memory(self, held: int, workers: int) -> int:
        """The largest memory of all processes together; ``held``: what the first one has now."""
        return held + max(self.reading, self.above + workers * self.worker, self.gathering)


def weigh(
    config: RunConfig,
    stages: Stages,
    geography: Geography,
    read: int = 0,
    *,
    workers: int | None = None,
    part_size: int | None = None,
) -> int | None:
    """The number of leaves of a part, None where the whole tree is made at once. Refuses a run that needs more memory
    than is available, and tells ``stages`` about how much a run takes.

    ``read``: bytes that are in use until the counts are read. For a study, only the memory for reading is estimated.
    Raises `DataError`.
    """
    path, form, held = config.input_path, config.input.form, held_memory() - read
    columns = [*config.counted_columns, *config.input.chosen_by]
    # A redistricting file has been read already, and its reader checked the memory.
    extent = Extent(0, 0.0) if config.input.kind.known_layout else extent_of(path, columns, form)
    refused = f"{geography.n_nodes:,} units x {len(config.input.cells)} cells takes more than there is"
    if config.is_study:
        _refuse_beyond(of_reading(config, geography, extent), config, refused)
        return None
    count = processors() if workers is None else workers
    leaves = _leaves_of_a_part(config, geography, part_size, count)
    if leaves is None:
        if config.by_family:
            # Where an allocation in the compiler fails, the process ends without a message.
            compiling = f"several queries takes, for its compiler alone, {gibibytes(_COMPILING)}"
            _refuse_beyond(_COMPILING, config, compiling)
            load_loops()
            held = held_memory() - read
        stages.say(f"memory    a run takes {_about(_held_before(config) + of_whole(config, geography))}")
        peak = held + of_whole(config, geography, extent)
    else:
        stages.say(f"memory    a run in parts takes {_said_in_parts(config, geography, leaves, count)}")
        peak = of_parts(config, geography, leaves, extent.rows).memory(held, count)
    _refuse_beyond(peak - held, config, refused)
    return leaves


def require_memory_for_units(config: RunConfig, rows: int, n_levels: int) -> None:
    """Refuse a table of so many ``rows``, one for every unit, in ``n_levels`` columns, if its units need more memory
    than is available even with the shortest names. Raises `DataError`.
    """
    least = 13  # bytes of a row in a column of units while the tree is built: a text of one letter, and its number
    _refuse_beyond(rows * least * n_levels, config, "so many rows takes more than there is")


def require_disk(directory: Path, size: int) -> None:
    """Refuse a release that needs more disk space than is free. Raises `DataError`."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if size > free:
        raise DataError(
            f"{shown_path(directory)}: a release in parts takes more disk until it is made than the "
            f"{gibibytes(free)} that are free; free some, give another --output, or leave out output.csv and "
            "output.tables"
        )


def of_reading(config: RunConfig, geography: Geography, extent: Extent | None) -> int:
    """Bytes for reading: the table's columns, a number for every row, looking up units, and the counts."""
    kind = config.input.kind
    if extent is None:
        rows = _RECORDS_AT_ONCE if kind.of_leaf is None else geography.n_leaves * kind.cells_are_columns
        extent = Extent(rows, _TYPICAL_WIDTH * (len(config.counted_columns) + len(config.input.chosen_by)))
    rows = extent.rows if kind.cells_are_columns else min(extent.rows, _RECORDS_AT_ONCE)
    # Chosen rows are a copy of part of the table; for a redistricting file fields and their differences are in memory.
    row_bytes = extent.row_bytes * (1 + bool(config.input.chosen_by)) + _text(geography) / geography.n_nodes + 6 * _WORD
    tables = 4 if kind.known_layout else 1
    values = tables * _WORD * geography.n_nodes * len(config.input.cells)
    return int(values + rows * row_bytes + 72 * geography.n_nodes + _text(geography))


def _of_units(config: RunConfig, geography: Geography) -> int:
    """Bytes while units are read, besides what they take afterwards: every leaf's identifiers at all levels, or its
    code, and half as much to compare them."""
    identifier = _text(geography) / geography.n_nodes + _WORD
    return int(1.5 * geography.n_leaves * len(config.geography.levels or [""]) * identifier)


def of_whole(config: RunConfig, geography: Geography, extent: Extent | None = None) -> int:
    """Bytes for a run of the whole tree at once; ``extent``: of its table, None: estimated from public sizes."""
    tree, cells, text = geography.tree, len(config.input.cells), _text(geography)
    nodes, table = tree.n_nodes, _WORD * tree.n_nodes * cells
    block = _WORD * nodes * int(next(tree.blocks(cells)).stop)
    largest_family = int(np.diff(tree.child_offsets).max(initial=1))
    columns = sum(len(one.columns) for one in answer_tables(config.output.tables, config.schema_of_cells))
    margins = not config.by_family and bool(config.output.with_margins("tables", [CELLS]))
    projecting = 3 * table + 6 * block + 25 * _WORD * (min(nodes, _AT_ONCE) + largest_family + tree.n_families)
    if config.by_family:
        children = int(tree.families(0).sizes.max(initial=0)) if tree.n_levels > 1 else 0
        projecting += _program(len(config.schema_of_cells.possible_cells()), children, 2) + 2 * _WORD * nodes * columns
    entries = nodes * min(cells, _CELLS_OF_A_UNIT + cells // 16)
    replicate = 2 * _WORD * entries if config.by_family else table
    writing = (4 + 2 * margins) * table + config.output.replicates * replicate + 40 * nodes + 4 * min(text, 1 << 24)
    writing += 200 * min(nodes * max(cells, columns), _AT_ONCE)
    reading = max(_of_units(config, geography), of_reading(config, geography, extent))
    return _LOADED + max(reading, int(1.1 * projecting), int(1.1 * writing))


def of_parts(config: RunConfig, geography: Geography, leaves: int, rows: int | None = None) -> InParts:
    """Memory and disk space of a run in parts of so many ``leaves``; ``rows``: of the table, None: estimated from
    public sizes.
    """
    schema, tree, levels = config.schema_of_cells, geography.tree, geography.levels
    plan = config.plan().for_levels(levels).for_schema(schema)
    level, _ = cut = cut_for(tree, leaves, plan)
    if rows is None or config.input.kind.known_layout:
        rows = (config.input.kind.of_leaf or 0) * tree.n_leaves
    answers = [
        sum(Query.parse(name, schema).n_answers for name in plan.queries(name_of_level)) or schema.n_cells
        for name_of_level in levels
    ]
    largest = 0
    for siblings in parts_of(tree, *cut):
        nodes, numbers = siblings, 0
        for index in range(level, tree.n_levels):
            numbers += (nodes.stop - nodes.start) * answers[index]
            if index < tree.n_levels - 1:
                nodes = tree.children_of(nodes)
        largest = max(largest, numbers)
    possible, csv = len(schema.possible_cells()), config.output.csv
    uppermost = _WORD * schema.n_cells * int(tree.level_offsets[level + 1])
    families = [int(np.sort(tree.families(k).sizes)[-FAMILIES_AT_ONCE:].sum()) for k in range(tree.n_levels - 1)]
    # One cell in so many has records in a child of the root, of another family above the parts, and anywhere, at most.
    above = max(_program(possible, families[k], 4 if k else 2) for k in range(level))
    below = max((_program(possible, families[k], 16) for k in range(level, tree.n_levels - 1)), default=0)
    beside = []
    if isinstance(geography, SpineGeography):
        beside = [one.tree for one in (geography.published, *geography.areas.values())]
    trees = (tree, *beside)
    entries = sum(rows + int((np.diff(one.level_offsets)[:-1] * (possible // 16 + 1)).sum()) for one in trees)
    columns = sum(len(one.columns) for one in answer_tables(config.output.tables, schema))
    disk = rows * 5 + 2 * uppermost + entries * (8 + csv * _ROW_AS_TEXT) + (1 << 20)
    disk += sum(one.n_nodes for one in trees) * (12 + columns * (1 + 2 * csv))
    by_node = 60 * sum(one.n_nodes for one in trees)
    kept = kept_levels(config, plan, geography, schema)
    estimated = columns * (int(tree.level_offsets[kept]) + sum(one.n_nodes for one in beside))
    disk += _NUMBER_ON_DISK * sum(measured_numbers(plan, geography, schema)[:kept]) + _ESTIMATE_ON_DISK * estimated
    gathering = _NUMBERS_OF_A_COLUMN * _WORD * estimated
    if config.output.estimates or config.output.replicates or not config.asks_queries:
        gathering = of_whole(config, geography)
    projecting = 6 * uppermost + FAMILIES_AT_ONCE * _program(possible, 0, 1) + above
    return InParts(
        reading=_READING + rows * _ROW + by_node,
        above=_ABOVE + projecting + by_node,
        gathering=_ABOVE + gathering + by_node,
        worker=_WORKER + int(6.5 * largest) + below,
        disk=disk,
    )


def _program(possible: int, children: int, one_in: int) -> int:
    """Bytes of a family's program with ``possible`` cells: tables of cells x cells, and for every child two of the
    cells in which it has records, one in ``one_in``.
    """
    return _WORD * (3 * possible**2 + 2 * children * (possible // one_in + 1) ** 2)


def _text(geography: Geography) -> int:
    """Bytes of the identifiers and names of all nodes."""
    return int(geography.identifiers.nbytes + (0 if geography.names is None else geography.names.nbytes))


def _leaves_of_a_part(config: RunConfig, geography: Geography, part_size: int | None, workers: int) -> int | None:
    """As `weigh`, from public sizes alone."""
    free, before = available_memory(), _held_before(config)
    room = math.inf if free is None else free + held_memory()
    if not asked_in_parts(config, geography.n_nodes, part_size):
        if before + of_whole(config, geography) <= room:
            return None
        if not config.asks_queries:
            return None
    if part_size is not None:
        return part_size
    leaves = LEAVES_OF_A_PART
    while leaves > _SMALLEST_PART and of_parts(config, geography, leaves).memory(before, workers) > room:
        leaves //= 2
    return leaves


def _held_before(config: RunConfig) -> int:
    """The memory of a process before it reads a table."""
    return _LIBRARIES + config.by_family * _LOOPS


def _said_in_parts(config: RunConfig, geography: Geography, leaves: int, workers: int) -> str:
    """How much memory and disk space a run in parts takes, and how much more for every row of the table, in words."""
    found = of_parts(config, geography, leaves)
    memory = _about(found.memory(_held_before(config), workers))
    said = f"{memory}, {_about(found.worker)} a worker, and {_about(found.disk)} of disk"
    if config.input.kind.of_leaf is not None:
        return said
    on_disk = _ROW_ON_DISK + config.output.csv * _ROW_AS_TEXT
    return f"{said}; beside that every row of the table takes {_ROW} bytes of memory and {on_disk} of disk"


def _about(size: int) -> str:
    return f"about {about(size)}" if size < _LARGEST_SAID else "as much as the number of cells with records asks for"


def _refuse_beyond(needed: int, config: RunConfig, what: str) -> None:
    """Refuse a run on ``what`` that needs more memory than is available. The error does not state how much it needs,
    which would reveal the number of rows.
    """
    available = available_memory()
    if available is not None and needed > available:
        raise DataError(
            f"{shown_path(config.input_path)}: a run on {what} of memory, and {gibibytes(available)} are free; free "
            "some, use a larger machine, or publish fewer cells at once"
        )
