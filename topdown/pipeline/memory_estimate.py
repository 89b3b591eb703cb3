"""How much memory a run takes at its peak, stage by stage, from the shape of its tree and from what is asked of it.

A stage holds whole tables (8 bytes a node and cell) and works on temporary arrays: of a block of cells
(`Tree.blocks`), of the nodes in one cell, of the nodes of the largest level, of a group of families. How
many of each a kernel holds at once was counted by ``tracemalloc`` on trees from one wide family to chains of thirty
levels, and is rounded up; the slow tests compare the whole with what processes really took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from topdown.geography.tree import Tree
from topdown.noise.key import nodes_of_chunk
from topdown.projection.method import GLS, METHODS, Method

_WORD = 8
"""Bytes of a count, an estimate, a variance, a code."""

_LOADED = 28 << 20
"""What a run takes beside its arrays: libraries that are still to load, the rehearsal, solvers, files' buffers."""

_FRAGMENTS = 1.12
"""What the heap holds beside what is in use: pages of which a part is free."""

_BATCH_ROWS = 1 << 18
_BATCH_TEXT = 1 << 24
_FILE_BUFFERS, _FILE_BUFFERS_PER_ROW = 14 << 20, 120
"""Pages of a Parquet file's columns, and dictionaries of those that have one: so much at most, less in a short file."""

_INTERVAL_OF_ROW = 45.0
"""What the three columns of an interval take in a row that is written."""

_OF_FIELDS = 3.0
"""Tables beside the counts' own that are held while they are made of a redistricting file's."""

_SORTED_AT_ONCE = 1 << 20
_FAMILY_GROUP = 1 << 17
_LARGE_FAMILY = 1 << 18


_NOISE_ARRAYS = {"none": 1.6, "boundary-inflated": 5.2, "truncated": 12.0, "normalized": 12.0}
_GRID_ARRAYS = 3.8
"""Arrays of a chunk's draws that are held while noise is drawn, by how it is bounded; on a grid."""


@dataclass(frozen=True)
class Work:
    """What is asked of a run, as far as its memory depends on it.

    ``rows``: of the confidential table. ``row_bytes``: what the columns of a row take that its counts are read from.
    ``redistricting``: whether they are made of a redistricting file's tables instead.
    ``units_text``: bytes of the identifiers of all nodes, ``names_text``: of their names. ``bounds``: kinds of bounded
    noise. ``on_grid``: whether noise is continuous, on a grid. ``invariants``: whether a level is exact,
    ``unmeasured``: whether one is not measured. ``margins``: whether there are intervals. ``threads``: how many work at
    the same time.
    """

    rows: int
    row_bytes: float
    cells: int
    units_text: int
    names_text: int
    method: str
    csv: bool
    bounds: Sequence[str]
    on_grid: bool
    invariants: bool
    unmeasured: bool
    margins: bool
    threads: int
    redistricting: bool = False


def peak_memory(tree: Tree, work: Work, held: int, most: int) -> int:
    """Bytes that a process holds at most until the run is done, whose geography is read.

    ``held``: what it holds now, ``most``: the most that it has held so far.
    """
    # The system counts pages by the batch, so that the most of now may turn out to be a little more.
    needed = _FRAGMENTS * max(needed_by_stage(tree, work).values())
    return max(most + most // 32, held + _LOADED + int(needed))


def projects_one_by_one(tree: Tree) -> bool:
    """Whether a family is so large that the two projections are better made one after the other.

    A family is certified in one piece, with some twenty arrays of its children; two at once would take twice as much,
    or not, as it happens.
    """
    return _largest_family(tree) > _LARGE_FAMILY


def needed_by_stage(tree: Tree, work: Work) -> dict[str, int]:
    """Bytes that every stage takes beside the geography."""
    table = _WORD * tree.n_nodes * work.cells
    kept = _WORD * 1.3 * tree.n_nodes
    needed = {
        "reading": table + _reading(tree, work),
        "drawing noise": 2 * table + _drawing(tree, work),
        "projecting": 3 * table + kept + _projecting(tree, work),
        "rounding": 4 * table + 2 * kept + _rounding(tree, work),
        "writing": (4 + 2 * work.margins) * table + 2 * kept + _writing(tree, work),
    }
    if work.margins:
        needed["margins of error"] = 6 * table + 2 * kept + _finding_margins(tree, work)
    return {stage: int(size) for stage, size in needed.items()}


def _widest(tree: Tree) -> int:
    return int(np.diff(tree.level_offsets).max())


def _largest_family(tree: Tree) -> int:
    return int(np.diff(tree.child_offsets).max(initial=1))


def _block_cells(tree: Tree, work: Work) -> int:
    """How many cells are worked on at once."""
    first = next(tree.blocks(work.cells))
    return int(first.stop)


def _reading(tree: Tree, work: Work) -> float:
    """The table's columns, a number for every row, what one column takes while it is read, units looked up."""
    lookup = 64 * tree.n_nodes + work.units_text
    # Fields as numbers, their differences, and these turned around before they are summed.
    made = _OF_FIELDS * _WORD * tree.n_nodes * work.cells if work.redistricting else 0.0
    return made + work.rows * (work.row_bytes + 6 * _WORD) + _WORD * tree.n_nodes + lookup


def _drawing(tree: Tree, work: Work) -> float:
    """Chunk by chunk, each of nodes with all their cells; beside it who took whose share, and the variances."""
    arrays = max([_NOISE_ARRAYS[kind] for kind in work.bounds] + [_GRID_ARRAYS] * work.on_grid)
    chunk = min(_widest(tree), nodes_of_chunk(work.cells)) * work.cells
    return _WORD * (arrays * chunk + 3 * tree.n_nodes)


def _projecting(tree: Tree, work: Work) -> float:
    both = [_projection(tree, work, method) for method in (GLS, METHODS[work.method])]
    return sum(both) if work.threads > 1 and not projects_one_by_one(tree) else max(both)


def _projection(tree: Tree, work: Work, method: Method) -> float:
    kernel, nonnegative = method.footprint, method.nonnegative
    nodes, inner, cells = tree.n_nodes, tree.n_families, _block_cells(tree, work)
    group = min(_widest(tree), max(_FAMILY_GROUP, _largest_family(tree)))
    by_cell = kernel.block * nodes + kernel.block_group * group + kernel.block_inner * inner
    held = (1 if work.on_grid else 2) * nodes
    if work.invariants:
        by_cell += (2.2 if nonnegative else 0.6) * nodes
        held += nodes
    if work.unmeasured:
        by_cell += kernel.unmeasured * nodes
    solving = cells * by_cell + 2.2 * nodes
    certifying = cells * held + kernel.nodes * nodes + kernel.inner * inner + kernel.group * group
    extra = work.invariants * (3.2 if nonnegative else 1.2) + work.unmeasured * 3.0
    return _WORD * (max(solving, certifying) + extra * nodes)


def _rounding(tree: Tree, work: Work) -> float:
    """One cell at a time, the remainders of a group of families sorted at once."""
    widest = _widest(tree)
    sorted_at_once = min(widest, max(_SORTED_AT_ONCE, _largest_family(tree)))
    words = 4.2 * tree.n_nodes + tree.n_families + 8.5 * sorted_at_once
    return _WORD * (words + work.invariants * (2.1 * tree.n_nodes + 3.0 * widest))


def _finding_margins(tree: Tree, work: Work) -> float:
    """The laws of all errors, a block of cells, and in it some nodes at once."""
    cells, nodes = _block_cells(tree, work), tree.n_nodes
    at_once = min(nodes, max(_LARGE_FAMILY, _largest_family(tree)))
    words = (3.6 + 4.4 * cells + 5.0 * work.on_grid) * nodes + 4.6 * cells * at_once + 28.0 * tree.n_families
    return _WORD * words


def _writing(tree: Tree, work: Work) -> float:
    """Files at the same time, each with a batch of rows: as arrays, as Arrow's, and encoded."""
    text = work.units_text + work.names_text
    nodes = min(_BATCH_ROWS, _BATCH_TEXT * tree.n_nodes // max(1, text)) // work.cells
    rows = min(max(1, nodes), tree.n_nodes) * work.cells
    letters = text / tree.n_nodes
    if work.cells == 1 and not work.unmeasured:  # texts are taken as they are, without a copy
        files = [60.0, 30.0, 30.0] + [35.0] * work.csv
    else:
        files = [85 + 1.9 * letters, 75 + 1.9 * letters, 75 + 1.9 * letters] + [75 + 2.8 * letters] * work.csv
    # The measurements, which come second, have no intervals.
    files = [one + _INTERVAL_OF_ROW * (work.margins and place != 1) for place, one in enumerate(files)]
    files.append((45.0 + 1.9 * letters) / work.cells)  # the table of units, a row a node
    at_once = min(work.threads, len(files))
    return rows * sum(sorted(files)[-at_once:]) + at_once * min(_FILE_BUFFERS, _FILE_BUFFERS_PER_ROW * rows)
