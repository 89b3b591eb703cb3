"""Cuts a tree of confidential counts: writes the counts of every part, and those above, to a file of their own.

These files are as confidential as the table. They are removed when the release is complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from topdown.confidential.bound_streams import code_of_counts
from topdown.confidential.counts import Counts
from topdown.confidential.entries import Entries
from topdown.geography.tree import IntArray, Tree
from topdown.machine.arrays import narrow
from topdown.machine.files import file_digest, make_folder
from topdown.noise.key import NoiseKey
from topdown.pipeline.parts.array_steps import Arrays, limits_as_arrays
from topdown.pipeline.parts.part_job import Folder, Record, part_as_arrays, put_bound
from topdown.pipeline.parts.part_store import put
from topdown.privacy.plan import MOVE_UP
from topdown.privacy.single_child_units import levels_taken
from topdown.projection.conditions import Limits
from topdown.projection.limits import AnswerLimits
from topdown.tables.geography_table import tree_batches
from topdown.tables.tidy import named_failures, write_parquet


def cut(
    counts: Counts,
    record: Record,
    folder: Folder,
    key: NoiseKey,
    done: Callable[[int, int], None],
    limits: AnswerLimits | None = None,
) -> Record:
    """Write the input of all parts to ``folder``, with their ``limits`` if there are any. The record is written last,
    and returned.

    The noise of every part is bound to the whole counts, whose code under ``key`` is in the record. ``done`` is called
    with the number of written parts and of all parts. Raises `DataError` where something cannot be written.
    """
    geography, tree = counts.geography, counts.geography.tree
    record = replace(record, counts=code_of_counts(counts, record.its_plan, key))
    streams = key.streams(record.counts)
    with named_failures(folder.root, "free the space and run again: nothing was drawn"):
        if folder.root.exists():
            shutil.rmtree(folder.root)  # of another cut, or not whole
        for path in (folder.root, folder.root / "cut", folder.limits_above.parent, folder.public):
            make_folder(path, private=True)
        for number, (start, stop) in enumerate(record.siblings):
            siblings = slice(start, stop)
            leaves = _leaves(tree, siblings)
            if limits is not None:
                put(folder.limits(number), _limits_below(limits, tree.part(siblings)[1]))
            put_bound(folder.counts(number), {**part_as_arrays(tree, siblings), **_entries(counts, leaves)}, streams)
            done(number + 1, record.n_parts)
        above = slice(0, record.offsets[record.level + 1])
        if limits is not None:
            given = {query: Limits(one.low[above], one.high[above]) for query, one in limits.by_query.items()}
            put(folder.limits_above, limits_as_arrays(given))
        sizes = {f"families {k}": tree.families(k).sizes for k in range(record.level)}
        put_bound(folder.counts_above, {**sizes, **_entries(counts, above)}, streams)
        if record.its_plan.only_child == MOVE_UP:
            put(folder.taken, {"taken": levels_taken(record.its_plan, geography)})
        write_parquet(folder.geography, tree_batches(geography), record.marks, private=True)
        record = replace(record, geography=file_digest(folder.geography))
        record.write(folder)
    return record


def entries_of_arrays(found: Arrays, tree: Tree, n_cells: int) -> Entries:
    """The entries of all nodes of a part, from those of its leaves that `cut` wrote."""
    rows = np.repeat(np.arange(tree.n_leaves), found["sizes"])
    keys = rows * n_cells + found["cells"].astype(np.int64)
    return Entries.of_leaves(tree, n_cells, keys, found["counts"].astype(np.int64))


def _limits_below(limits: AnswerLimits, nodes: IntArray) -> Arrays:
    """The limits of a part's nodes; the first, the parent of its siblings, has none."""
    found = {query: Limits(one.low[nodes], one.high[nodes]) for query, one in limits.by_query.items()}
    for low, high in found.values():
        low[0], high[0] = 0.0, np.inf
    return limits_as_arrays(found)


def _leaves(tree: Tree, nodes: slice) -> slice:
    """The leaves below some siblings."""
    while nodes.start < tree.n_families:
        nodes = tree.children_of(nodes)
    return nodes


def _entries(counts: Counts, nodes: slice) -> Arrays:
    """The counts of some nodes that are not 0, as arrays by name."""
    return dict(zip(("sizes", "cells", "counts"), map(narrow, counts.entries(nodes)), strict=True))
