"""Whole histograms of a family whose children could not have what they must, changed by as little as lets them.

A node keeps its own limits and exact answers, and what those of its children add up to query by query. That is not all
that children ask of it together: where one may have a or b alone and the next c or d, and both their totals are exact,
their parent's a and b add up to the first one's total, which no limit of one answer says. Rarely does noise break such
a sum of some answers; where it did, the children's program has no solution. Then the parent and its siblings are
changed: of all whole histograms beneath the same parent that keep everything and leave every child a histogram which
keeps everything, those with the least sum of absolute changes in the classes of cells that these conditions tell apart.
Where there are none, their parent and its siblings are changed, by what is two levels below, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from topdown.geography.tree import FloatArray, IntArray
from topdown.projection.conditions import Conditions, Rows
from topdown.projection.histograms.passes import told_apart

_MOST_COUNTS = 1 << 18
"""Counts of classes of cells, at the lowest nodes, of which a program is solved: it takes minutes."""


def mended(
    conditions: Conditions,
    index: int,
    nodes: slice,
    cells: IntArray,
    total: FloatArray | None,
    x: FloatArray,
    depth: int = 1,
) -> FloatArray | None:
    """Whole histograms ``x`` (nodes x cells) of ``nodes``, numbered from the first of level ``index``, mended beneath a
    parent that has ``total`` of ``cells``, None for the root itself; None where none are found. What is below them is
    looked at so many levels deep (``depth``).

    Raises `Contradiction` where no cell is left that could meet a condition.
    """
    here, rows = nodes, [conditions.rows(index, nodes, cells, total)]
    above: list[IntArray] = []  # of every level but the first the place of each node's parent in the level above
    for level in range(index, index + depth):
        families = conditions.tree.families(level)
        above.append(np.repeat(np.arange(here.stop - here.start), families.sizes[here]))
        begin = int(families.starts[here.start])
        here = slice(begin, begin + len(above[-1]))
        rows.append(conditions.rows(level + 1, here, cells, None))
    first, of_cell = told_apart([key for one in rows for key in (*one.rows, *one.allowed)])
    members = of_cell == np.arange(len(first))[:, None]
    on_classes = [one._replace(allowed=one.allowed[:, first], rows=one.rows[:, first]) for one in rows]
    wanted = _classes(x @ members.T, on_classes, above, None if total is None else members @ total)
    if wanted is None:
        return None
    found = np.array(x)
    for places, counts in zip(members, wanted.T, strict=True):
        found[:, places] = _shared_out(x[:, places], counts, siblings=total is not None)
    return found


def _classes(
    held: FloatArray, rows: Sequence[Rows], above: Sequence[IntArray], total: FloatArray | None
) -> FloatArray | None:
    """The counts of classes (nodes x classes) nearest to ``held`` in which all that is below can share; None if there
    are none, or if the program would be too large. By integer programming (HiGHS).

    ``rows``: the conditions on classes level by level; ``above``: of every level but the first the place of each node's
    parent in the level above.
    """
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    n, m = held.shape
    lowest = len(rows[-1].allowed)
    if lowest * m > _MOST_COUNTS:
        return None
    classes, sizes = sparse.identity(m, format="csr"), sparse.identity(n * m, format="csr")
    of, allowed = np.arange(lowest), np.ones((lowest, m), bool)
    # Of the lowest nodes' counts, and of the sizes of all changes: what multiplies them, and the limits of that.
    limited: list[tuple[Any, Any, FloatArray, FloatArray]] = []
    for one, parent in zip(reversed(rows), (*reversed(above), None), strict=True):
        allowed &= one.allowed[of]
        added = sparse.csr_array((np.ones(lowest), (of, np.arange(lowest))), (len(one.allowed), lowest))
        if len(one.rows):
            answers = sparse.kron(added, sparse.csr_array(one.rows.astype(np.float64)), "csr")
            limited.append((answers, _wide(answers, sizes), one.low.reshape(-1), one.high.reshape(-1)))
        of = of if parent is None else parent[of]
    counts, endless = sparse.kron(added, classes, "csr"), np.full(n * m, np.inf)
    limited += [(counts, -sizes, -endless, held.reshape(-1)), (counts, sizes, held.reshape(-1), endless)]
    if total is not None:
        together = sparse.kron(np.ones((1, lowest)), classes, "csr")
        limited.append((together, _wide(together, sizes), total, total))
    solved = milp(
        np.concatenate([np.zeros(lowest * m), np.ones(n * m)]),
        integrality=np.concatenate([np.ones(lowest * m), np.zeros(n * m)]),
        bounds=Bounds(0.0, np.concatenate([np.where(allowed, np.inf, 0.0).reshape(-1), endless])),
        constraints=[
            LinearConstraint(sparse.hstack([of_counts, changes]), low, high)
            for of_counts, changes, low, high in limited
        ],
    )
    return None if solved.x is None else np.asarray(np.rint(counts @ np.rint(solved.x[: lowest * m])).reshape(n, m))


def _wide(one: Any, other: Any) -> Any:
    """Zeros with the rows of ``one`` and the columns of ``other``."""
    from scipy import sparse

    return sparse.csr_array((one.shape[0], other.shape[1]))


def _shared_out(x: FloatArray, wanted: FloatArray, *, siblings: bool) -> FloatArray:
    """Whole counts ``x`` (nodes x cells of a class) changed so that they add up to what is ``wanted`` (nodes,): what
    one has too many another gets of the same cells; without ``siblings`` the first cells are filled or emptied."""
    found = np.array(x)
    if not siblings:
        lacking = wanted - found.sum(axis=1)
        found[:, 0] += np.maximum(lacking, 0.0)
        before = np.cumsum(found, axis=1) - found
        return np.asarray(found - np.clip(np.maximum(-lacking, 0.0)[:, None] - before, 0.0, found))
    for cell in found.T:
        lacking = wanted - found.sum(axis=1)
        given = np.minimum(cell, np.maximum(-lacking, 0.0))
        wants = np.maximum(lacking, 0.0)
        # What there is to give goes to the first that lack some.
        taken = np.clip(given.sum() - (np.cumsum(wants) - wants), 0.0, wants)
        cell += taken - given
    return found
