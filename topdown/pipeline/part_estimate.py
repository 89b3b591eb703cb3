"""How much memory and disk a release in parts takes, from the shape of its tree and what is asked of it.

Measured by what the processes held of a state of 25,000 blocks in parts of 5,000, and of nations of 81,330 and (reading
and above the parts) 8,132,968 blocks in parts of 25,000, with 2,016 cells and the production run's queries; rounded up.
What programs hold of a family's children is counted: two tables of the cells in which each has records.
How many cells have records follows from the counts, and is assumed to be as in these.

What is said to anybody is computed without the table's number of records, which is confidential.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from topdown.errors import DataError
from topdown.geography.tree import Tree
from topdown.machine.memory import gibibytes
from topdown.parts.cut import parts_of
from topdown.parts.steps import FAMILIES_AT_ONCE
from topdown.privacy.plan import Plan
from topdown.wording import shown_path
from topdown.workload import Query, Schema

_WORD = 8
_FIRST, _ABOVE, _WORKER = 512 << 20, 384 << 20, 320 << 20
"""What processes take beside their arrays, libraries and loops: the first while it reads and rehearses, where loops are
compiled that were not yet, and then; a worker."""

_BYTES_OF_ANSWER = 6.5
"""Of every answer that is measured in a part, at the most that is held."""

_ROOT_ARRAYS = 6
"""Tables of the parts' uppermost nodes x cells that are held above the parts."""

_SQUARE_ARRAYS, _ARRAYS_OF_CHILD = 3, 2
"""Tables of cells x cells that a family's program takes: of cells with records, and of every child's that have some."""

_PATTERN = 13
"""Bytes of a pair of cells, of all that are possible, while the patterns are found in which they agree."""

_OF_ROOTS_CHILD, _OF_CHILD, _OF_NODE = 2, 4, 16
"""One cell in so many has records in a child of the root, in one of another family above the parts, and in a node
anywhere, at most."""

_BYTES_OF_ROW = 28
"""Of a row of the input, when its counts are read and summed."""

_BYTES_OF_NODE, _NODE_ON_DISK = 60, 12
"""Of a node: where its entries are, when units are looked up and tables of units are written; in files."""

_ENTRY, _ENTRY_AS_ROW, _ENTRY_AS_TEXT = 4.5, 3.3, 100.0
"""Bytes of a cell that has records on disk: between steps, in the release, in its CSV."""

_NUMBER, _NUMBER_AS_TEXT = 0.32, 2.2
"""Of a number in a table of answers: most are 0."""

_BOOKS = 1 << 20
"""Of what describes a release."""


class Needed(NamedTuple):
    """Bytes: what the process takes that gives out the work, before and then, what each worker takes, and what the
    output directory takes on disk."""

    reading: int
    above: int
    worker: int
    disk: int

    def memory(self, held: int, workers: int) -> int:
        """The most that all processes hold, of which the first holds so much now."""
        return held + max(self.reading, self.above + workers * self.worker)


def needed(
    tree: Tree,
    schema: Schema,
    plan: Plan,
    levels: Sequence[str],
    cut: tuple[int, int],
    rows: int | None,
    *,
    csv: bool,
    columns: int,
) -> Needed:
    """What a release takes whose tree is ``cut`` at a level into parts of so many leaves.

    ``rows``: of the table; None: what a release of the same units takes with any number of rows, beside `of_a_row` for
    each of them. ``columns``: of all tables of answers. ``plan``: with its shares.
    """

    def with_records(cells: int) -> int:
        return cells if rows is None else min(cells, rows)

    answers = [
        sum(Query.parse(name, schema).n_answers for name in plan.queries(level)) or schema.n_cells for level in levels
    ]
    level, _ = cut
    most = 0
    for siblings in parts_of(tree, *cut):
        lo, hi, numbers = siblings.start, siblings.stop, 0
        for index in range(level, tree.n_levels):
            numbers += (hi - lo) * answers[index]
            if index < tree.n_levels - 1:
                lo, hi = int(tree.child_offsets[lo]), int(tree.child_offsets[hi])
        most = max(most, numbers)
    upper = int(tree.level_offsets[level + 1])
    roots = upper * schema.n_cells * _WORD
    possible, sizes = len(schema.possible_cells()), np.diff(tree.level_offsets)[:-1]
    read = 0 if rows is None else rows
    above = sizes * (possible // _OF_NODE + 1)
    entries = read + int((above if rows is None else np.minimum(above, rows)).sum())
    disk = read * _ENTRY + 2 * roots + entries * (_ENTRY + _ENTRY_AS_ROW + csv * _ENTRY_AS_TEXT)
    disk += tree.n_nodes * (_NODE_ON_DISK + columns * (_NUMBER + csv * _NUMBER_AS_TEXT)) + _BOOKS
    by_node = _BYTES_OF_NODE * tree.n_nodes
    squares = FAMILIES_AT_ONCE * _squares(possible, with_records(possible))
    there = [with_records(possible // (_OF_CHILD if index else _OF_ROOTS_CHILD) + 1) for index in range(level)]
    families = max(_of_children(tree, index, FAMILIES_AT_ONCE, cells) for index, cells in enumerate(there))
    of_node = with_records(possible // _OF_NODE + 1)
    below = [_of_children(tree, k, 1, of_node) for k in range(level, tree.n_levels - 1)]
    return Needed(
        reading=_FIRST + read * _BYTES_OF_ROW + by_node,
        above=_ABOVE + _ROOT_ARRAYS * roots + squares + families + by_node,
        worker=_WORKER + int(_BYTES_OF_ANSWER * most) + max(below),
        disk=int(disk),
    )


def of_a_row(*, csv: bool) -> tuple[int, int]:
    """Bytes of memory and of disk that every row of the table takes beside."""
    return _BYTES_OF_ROW, math.ceil(2 * _ENTRY + _ENTRY_AS_ROW + csv * _ENTRY_AS_TEXT)


def of_the_uppermost_family(tree: Tree, possible: int, rows: int) -> int:
    """Bytes of the program of the root's children, of ``possible`` cells and so many ``rows`` of the table."""
    squares = _squares(possible, min(possible, rows))
    if tree.n_levels == 1:
        return squares
    return squares + _of_children(tree, 0, 1, min(possible // _OF_ROOTS_CHILD + 1, rows))


def _squares(possible: int, there: int) -> int:
    """Bytes of the tables of cells x cells in a program of ``possible`` cells, ``there`` of which have records."""
    return max(_WORD * _SQUARE_ARRAYS * there**2, _PATTERN * possible**2)


def _of_children(tree: Tree, index: int, at_once: int, there: int) -> int:
    """Bytes of what the programs of the largest families below a level hold of every child, which has records in so
    many cells (``there``), where so many families are solved at once."""
    children = int(np.sort(tree.families(index).sizes)[-at_once:].sum())
    return _WORD * _ARRAYS_OF_CHILD * children * there**2


def require_disk(directory: Path, size: int) -> None:
    """Refuse a release that does not fit where it is written. Raises `DataError`."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if size > free:
        raise DataError(
            f"{shown_path(directory)}: a release in parts takes more disk until it is made than the "
            f"{gibibytes(free)} that are free; free some, give another --output, or leave out output.csv and "
            "output.tables"
        )
