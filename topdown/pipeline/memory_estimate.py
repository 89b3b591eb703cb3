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
from topdown.machine.allocation import LARGE
from topdown.noise.key import nodes_of_chunk
from topdown.pipeline.part_estimate import of_the_uppermost_family
from topdown.projection.method import GLS, Method, method_named

_WORD = 8
"""Bytes of a count, an estimate, a variance, a code."""

_LOADED = 28 << 20
"""What a run takes beside its arrays: libraries that are still to load, the rehearsal, solvers, files' buffers."""

_FRAGMENTS = 1.12
"""What the heap holds beside what is in use: pages of which a part is free. An array that is `LARGE` is not in it."""

_BATCH_ROWS = 1 << 18
_BATCH_TEXT = 1 << 24
_CSV_ROWS = 1 << 16
_DICTIONARY_ENTRY = 190
"""Bytes of an entry in the table by which Arrow finds a text in a dictionary, whose size is a power of two."""

_INTERVAL_OF_ROW = 30.0
"""What the three columns of an interval take in a row that is written."""

_OF_FIELDS = 3.0
"""Tables beside the counts' own that are held while they are made of a redistricting file's."""

_WRITES_MEANWHILE = ("projecting", "rounding", "margins of error")
"""Stages beside which is written what is known from the start."""

_ANSWERS_AT_ONCE = 1 << 22
_ANSWER_IN_FILE = 170.0
"""Numbers of a table of answers that are written at once, and bytes of each: estimate, deviation, margins and count, as
arrays, as Arrow's, and encoded."""

_SORTED_AT_ONCE = 1 << 19
_FAMILY_GROUP = 1 << 17
_LARGE_FAMILY = 1 << 18
_LARGE_TREE = 1 << 22
_NODES_AT_ONCE = 1 << 18
_CELLS_OF_NODES = 1 << 17


_NOISE_ARRAYS = {"none": 1.6, "boundary-inflated": 5.2, "truncated": 12.0, "normalized": 12.0}
_GRID_ARRAYS = 4.6
"""Arrays of a chunk's draws that are held while noise is drawn, by how it is bounded; on a grid."""


@dataclass(frozen=True)
class Work:
    """What is asked of a run, as far as its memory depends on it.

    ``rows``: of the confidential table. ``row_bytes``: what the columns of a row take that its counts are read from.
    ``redistricting``: whether they are made of a redistricting file's tables instead.
    ``units_text``: bytes of the identifiers of all nodes, ``names_text``: of their names. ``bounds``: kinds of bounded
    noise. ``on_grid``: whether noise is continuous, on a grid. ``invariants``: whether a level is exact,
    ``unmeasured``: whether some nodes are not measured, ``open_leaves``: whether some of these are leaves.
    ``margins``: whether there are intervals. ``threads``: how many work at the same time. ``by_family``: whether it
    goes family by family, as several queries do. ``columns``: of every table of answers.
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
    open_leaves: bool = False
    by_family: bool = False
    columns: Sequence[int] = ()
    redistricting: bool = False


def peak_memory(tree: Tree, work: Work, held: int, most: int) -> int:
    """Bytes that a process holds at most until the run is done, whose geography is read.

    ``held``: what it holds now, with the loops that the run needs (`load_loops`), ``most``: the most that it has held
    so far.
    """
    # The system counts pages by the batch, so that the most of now may turn out to be a little more.
    beside = _FRAGMENTS * _written_meanwhile(tree, work)
    needed = max(
        _fragments(tree, stage) * size + beside * (stage in _WRITES_MEANWHILE)
        for stage, size in needed_by_stage(tree, work).items()
    )
    return max(most + most // 32, held + _LOADED + int(needed))


def projects_one_by_one(tree: Tree) -> bool:
    """Whether a family, or the whole tree, is so large that the two projections are better made one after the other.

    A family is certified in one piece, with some twenty arrays of its children; two at once would take twice as much,
    or not, as it happens. Of a large tree two at once would be the most that the run ever holds, for little: what was
    measured is being written meanwhile, and wants a processor of its own.
    """
    return _largest_family(tree) > _LARGE_FAMILY or tree.n_nodes > _LARGE_TREE


def finds_laws_early(tree: Tree) -> bool:
    """Whether the laws of errors are better found beside the projection: where one projection is made after the other,
    which leaves a processor idle, and one leaf stands for many, so that laws take little memory."""
    return projects_one_by_one(tree) and 4 * _kinds(tree) <= tree.n_nodes


def needed_by_stage(tree: Tree, work: Work) -> dict[str, int]:
    """Bytes that every stage takes beside the geography, and beside what is written meanwhile."""
    table = _WORD * tree.n_nodes * work.cells
    kept = _WORD * 1.3 * tree.n_nodes
    laws = _laws(tree) if work.margins else 0.0
    early = work.threads > 1 and finds_laws_early(tree)
    beside, found = (laws, _WORD * 1.5 * tree.n_nodes * work.margins) if early else (0.0, 0.0)
    needed = {
        "reading": table + _reading(tree, work),
        "drawing noise": 2 * table + _drawing(tree, work),
        "projecting": 3 * table + kept + _projecting(tree, work) + _answers(tree, work) + beside,
        "rounding": 4 * table + 2 * kept + _rounding(tree, work) + max(beside, found),
        "writing": (4 + 2 * work.margins) * table + 2 * kept + _writing(tree, work) + _answers(tree, work),
    }
    if work.margins:
        needed["margins of error"] = 4 * table + 2 * kept + max(laws, 2 * table + _intervals(tree, work))
    return {stage: int(size) for stage, size in needed.items()}


def _fragments(tree: Tree, stage: str) -> float:
    """What a stage holds, to what is in use. Projections work on arrays of all nodes; where each has pages of its own,
    which go back when it is let go, nothing lies between those in use."""
    return 1.0 if stage == "projecting" and _WORD * tree.n_nodes >= LARGE else _FRAGMENTS


def _widest(tree: Tree) -> int:
    return int(np.diff(tree.level_offsets).max())


def _most_families(tree: Tree) -> int:
    """How many families a level has at most."""
    return int(np.diff(tree.level_offsets[:-1]).max(initial=1))


def _largest_family(tree: Tree) -> int:
    return int(np.diff(tree.child_offsets).max(initial=1))


def _parents_in_group(tree: Tree, group: int) -> float:
    """How many parents a group of families has at most that has so many children."""
    sizes = np.diff(tree.level_offsets)
    return float((np.minimum(sizes[1:], group) * sizes[:-1] / sizes[1:]).max(initial=0.0))


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
    """Chunks of nodes with all their cells, one for every thread; who took whose share, and the variances."""
    arrays = max([_NOISE_ARRAYS[kind] for kind in work.bounds] + [_GRID_ARRAYS] * work.on_grid)
    drawn = min(_widest(tree), work.threads * nodes_of_chunk(work.cells)) * work.cells
    return _WORD * (arrays * drawn + 3 * tree.n_nodes)


def _projecting(tree: Tree, work: Work) -> float:
    both = [_projection(tree, work, method) for method in (GLS, method_named(work.method))]
    if work.by_family:
        both[1] += of_the_uppermost_family(tree, work.cells, work.rows)
    return sum(both) if work.threads > 1 and not projects_one_by_one(tree) else max(both)


def _projection(tree: Tree, work: Work, method: Method) -> float:
    kernel, nonnegative = method.footprint, method.nonnegative
    nodes, inner, cells = tree.n_nodes, tree.n_families, _block_cells(tree, work)
    group = min(_widest(tree), max(_FAMILY_GROUP, _largest_family(tree)))
    by_cell = kernel.block * nodes + kernel.block_inner * inner
    parents = _parents_in_group(tree, group)
    by_cell += kernel.block_group * group + kernel.block_parents * parents
    # What was measured, as fractions; what is on a grid is so already, but where exact values are settled in it.
    stated = (not work.on_grid or work.invariants) * nodes
    bounds = (work.invariants and nonnegative) * nodes
    if work.open_leaves:
        by_cell += kernel.block_open * tree.n_leaves
    solving = cells * (stated + 2 * bounds + by_cell) + kernel.gains * nodes
    one_cell = kernel.nodes * nodes + kernel.inner * inner + kernel.group * group + kernel.parents * parents
    certifying = cells * (stated + bounds + nodes) + one_cell
    extra = work.invariants * 1.2 + work.unmeasured * (3.0 if work.open_leaves else 1.2)
    return _WORD * (max(solving, certifying) + extra * nodes)


def _rounding(tree: Tree, work: Work) -> float:
    """One cell at a time, level by level; of groups of families a few are floored, and every thread sorts one's
    remainders."""
    widest, group = _widest(tree), max(_SORTED_AT_ONCE, _largest_family(tree))
    floored, being_sorted = min(widest, 2 * (work.threads + 1) * group), min(widest, work.threads * group)
    words = 1.0 * tree.n_nodes + 2.2 * floored + 8.5 * being_sorted + 4.0 * _most_families(tree)
    return _WORD * (words + work.invariants * (2.1 * tree.n_nodes + 3.0 * widest))


def _laws(tree: Tree) -> float:
    """The laws of all errors."""
    kinds = _kinds(tree)
    at_once = min(kinds, _NODES_AT_ONCE)
    return _WORD * max(1.6 * tree.n_nodes, tree.n_nodes + 26.3 * kinds + 6.0 * at_once)


def _kinds(tree: Tree) -> int:
    """Nodes whose errors may have laws of their own: of leaves that are alike one for a family."""
    return tree.n_families + (tree.n_families - int(tree.level_offsets[-3]) if tree.n_levels > 1 else 1)


def _intervals(tree: Tree, work: Work) -> float:
    """A block of cells at all nodes, and in it some nodes at once for every thread, or the children of one that has
    many."""
    cells, nodes = _block_cells(tree, work), tree.n_nodes
    at_once = 6.4 * min(nodes, work.threads * _NODES_AT_ONCE) + 6.6 * cells * min(nodes, work.threads * _CELLS_OF_NODES)
    at_once = max(at_once, 1.2 * cells * _largest_family(tree))
    return _WORD * ((1.9 + 2.0 * cells) * nodes + cells * tree.n_families + at_once)


def _writing(tree: Tree, work: Work) -> float:
    """Files at the same time."""
    files = [size for sizes in _files(tree, work) for size in sizes]
    return sum(sorted(files)[-min(work.threads, len(files)) :])


def _answers(tree: Tree, work: Work) -> float:
    """The estimates of answers in tables with their variances, at all nodes, where there are none of all cells."""
    return 2.0 * _WORD * tree.n_nodes * sum(work.columns) * work.by_family


def _written_meanwhile(tree: Tree, work: Work) -> float:
    """What is known from the start, one file after the other, by a thread that the solution leaves idle."""
    return max(_files(tree, work)[0]) if work.threads > 1 else 0.0


def _files(tree: Tree, work: Work) -> tuple[list[float], list[float]]:
    """Bytes of every file's batch of rows, as arrays, as Arrow's, and encoded: of those that are written from the
    start, measurements and the table of units, and of the others."""
    text, nodes = work.units_text + work.names_text, tree.n_nodes
    batch = min(nodes, max(1, min(_BATCH_ROWS, _BATCH_TEXT * nodes // max(1, text)) // work.cells))
    rows, letters, names = batch * work.cells, work.units_text / nodes, work.names_text / nodes
    parents = _dictionary(_parents_of(tree, batch), letters)
    if work.cells == 1 and not work.unmeasured:  # texts are taken as they are, without a copy
        estimates, measured, released = (one + 0.7 * letters for one in (32.0, 23.0, 24.0))
        interval, repeated, csv_text = 0.5 * _INTERVAL_OF_ROW, 0.0, 1.6
        csv = 25.0
    else:
        estimates, measured, released, csv = 75.0, 50.0, 48.0, 45.0
        interval, repeated, csv_text = _INTERVAL_OF_ROW, _dictionary(batch, max(letters, names)), 2.8
    # The measurements have no intervals, and no parents.
    files = [rows * (one + interval * work.margins) + max(repeated, parents) for one in (estimates, released)]
    if work.csv:
        texts = min(rows, _CSV_ROWS) * (50 + csv_text * (2 * letters + names))
        files.append(rows * (csv + interval * work.margins) + texts)
    files += [_ANSWER_IN_FILE * min(nodes * columns, _ANSWERS_AT_ONCE) for columns in work.columns]
    # The table of units has a row a node, and of each parent what identifies it.
    units = min(nodes, _BATCH_ROWS)
    from_the_start = [rows * measured + repeated, 25.0 * units + _dictionary(_parents_of(tree, units), letters)]
    return from_the_start, files


def _dictionary(texts: int, letters: float) -> float:
    """Bytes by which so many texts of so many letters are found, and in which they are written."""
    return _DICTIONARY_ENTRY * (1 << (texts + 1).bit_length() - 1) + 2.5 * letters * texts


def _parents_of(tree: Tree, nodes: int) -> int:
    """How many parents so many nodes in a row have at most."""
    first = np.searchsorted(tree.child_offsets, np.arange(1, tree.n_nodes + nodes, nodes))
    return min(nodes, int(np.diff(first).max(initial=1)) + 1)
