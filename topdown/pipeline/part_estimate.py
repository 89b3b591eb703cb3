"""How much memory and disk a release in parts takes, from the shape of its tree and what is asked of it.

What a worker takes was measured on parts of 6,000 and 25,000 blocks with 2,016 cells and the production run's queries
(0.36 and 0.56 GB), and is rounded up; what is above the parts on a nation's counties (4.2 GiB).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from topdown.errors import DataError
from topdown.geography.tree import Tree
from topdown.machine.memory import gibibytes
from topdown.parts.cut import parts_of
from topdown.privacy.plan import Plan
from topdown.wording import shown_path
from topdown.workload import Query, Schema

_WORD = 8
_WORKER = 320 << 20
"""What a worker takes beside its arrays: libraries, and loops that are compiled."""

_BYTES_OF_ANSWER = 6.5
"""Of every answer that is measured in a part, at the most that is held."""

_ROOT_ARRAYS = 6
"""Tables of the parts' uppermost nodes x cells that are held above the parts."""

_BYTES_OF_PAIR = 4
"""Of every child and pair of cells in a family above the parts: siblings whose subtrees differ have matrices of their
own, on the cells that their parent has, which are some two thirds of them."""

_BYTES_OF_ROW = 48
"""Of a row of the input, when its counts are read and summed."""

_BYTES_OF_NODE = 60
"""Of a node: where its entries are, when units are looked up and tables of units are written."""

_ENTRY, _ENTRY_AS_ROW, _ENTRY_AS_TEXT = 6, 5, 100
"""Bytes of a cell that has records on disk: between steps, in the release, in its CSV."""

_BYTES_OF_UNIT_IN_TABLE = 2
"""Of a number in a table of answers."""


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
    rows: int,
    *,
    csv: bool,
    columns: int,
) -> Needed:
    """What a release takes whose tree is ``cut`` at a level into parts of so many leaves.

    ``rows``: of the table, ``columns``: of all tables of answers. ``plan``: with its shares.
    """
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
    largest = max(int(tree.families(index).sizes.max()) for index in range(level))
    upper = int(tree.level_offsets[level + 1])
    roots = upper * schema.n_cells * _WORD
    entries = min(rows, tree.n_leaves * schema.n_cells) * tree.n_levels
    disk = rows * _ENTRY + 2 * roots + entries * (_ENTRY + _ENTRY_AS_ROW + csv * _ENTRY_AS_TEXT)
    disk += tree.n_nodes * (_BYTES_OF_NODE + columns * _BYTES_OF_UNIT_IN_TABLE * (1 + csv))
    by_node = _BYTES_OF_NODE * tree.n_nodes
    return Needed(
        reading=rows * _BYTES_OF_ROW + by_node,
        above=_ROOT_ARRAYS * roots + _BYTES_OF_PAIR * largest * schema.n_cells**2 + by_node,
        worker=_WORKER + int(_BYTES_OF_ANSWER * most),
        disk=int(disk),
    )


def require_disk(directory: Path, size: int) -> None:
    """Refuse a release that does not fit where it is written. Raises `DataError` with the numbers."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if size > free:
        raise DataError(
            f"{shown_path(directory)}: a release in parts takes about {gibibytes(size)} of disk until it is made, and "
            f"{gibibytes(free)} are free; free some, give another --output, or leave out output.csv and output.tables"
        )
