"""Detects double counting: columns that are sums of other columns, and units that are sums of their siblings.

The privacy loss of a plan is computed for counts of which one record changes only one (or two, where records are
replaced). With ``pop`` beside ``male`` and ``female``, or a row "Total" among the counties, a record changes more of
them, and the stated privacy loss is too small. The meaning of columns cannot be read from the data, but sums that hold
in every unit can be detected.

A sum is distinguished from a coincidence by its probability. Two independent counts near v agree with a probability of
about 1/sqrt(v) (Poisson); a unit's count and the sum of its siblings, which differ by about their own size, agree with
a probability of about 1/v. The logarithms (bits) are added up over units and cells, and those of the number of sums
that could have held are subtracted; the result must exceed 15 bits: one table in 30,000.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from topdown.confidential.cell_columns import CellColumns, columns_of
from topdown.confidential.counts import Counts
from topdown.errors import CountsError
from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.wording import listed, unquoted

MOST_COMPARED = 2_000
"""With more cells than this, only a cell that is the sum of all others is searched for: other sums would take too long.
"""

_BITS = 15.0
_SPARE_ROWS = 64
_DEPENDENT = 1e-9
_WHOLE = 1e-3
_UNITS_AT_ONCE = 1 << 16

_REMEDY = (
    "the budget is for counts in which a record is counted once: leave out sums of others ([schema] and shares by "
    "query measure sums of cells), or, if these are different records nevertheless, set input.assume_disjoint = "
    "true, which the manifest then states"
)


def require_disjoint(counts: Counts) -> None:
    """Refuse cells that are sums of other cells, and units that are sums of their siblings, unless this may be a
    coincidence. The search is for equations between cells that hold in every unit, in which every cell occurs at most
    once, and for units whose count is half of their parent's in every cell. Columns of zeros are never sums. Raises
    `CountsError` with the names of the cells, or of the units; no message depends on how large a count is.
    """
    found = summed_cells(counts)
    if found is not None:
        left, right = found
        raise CountsError(
            f"cell{'s' if len(left) > 1 else ''} {_plus(left)} equal{'' if len(left) > 1 else 's'} {_plus(right)} in "
            f"every unit, as if they overlapped: {_REMEDY}"
        )
    units = _summed_units(counts.geography.tree, columns_of(counts))
    if len(units):
        geography = counts.geography
        some = ", ".join(geography.describe(int(node)) for node in units[:2])
        raise CountsError(
            f"{some}{' and others' if len(units) > 2 else ''}: equal to the sum of the other units of the same "
            "parent in every cell, as a row of totals among the units would be: leave such rows out (input.where "
            "chooses rows), or, if they are units, set input.assume_disjoint = true, which the manifest then states"
        )


def _plus(cells: tuple[str, ...]) -> str:
    return unquoted(cells[0]) if len(cells) == 1 else f"the sum of {listed(cells)}"


# -- cells ----------------------------------------------------------------------------------------------------------


def summed_cells(counts: Counts) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Two sets of cells whose sums are equal in every unit, the first with one cell if a cell is a sum of others; None
    if there are none.

    Columns are taken in the order of their totals, so that a sum comes after its terms. A column that depends linearly
    on those before it is expressed by them, with orthogonal factors of the columns summed over groups of leaves. Each
    candidate is then compared exactly, in every leaf.
    """
    columns = columns_of(counts)
    totals = columns.totals
    order = np.flatnonzero(totals)[np.argsort(totals[totals > 0], kind="stable")]
    # Of too many columns: the last, and all others.
    many = len(order) > MOST_COMPARED
    for left, right in [(order[-1:], order[:-1])] if many else _dependent(columns, order):
        total = columns.sum(left)
        if np.array_equal(total, columns.sum(right)) and _unlikely(total, len(order)):
            one, other = (tuple(counts.cells[cell] for cell in columns.cells[side]) for side in (left, right))
            return one, other
    return None


def _unlikely(side: IntArray, cells: int) -> bool:
    """Whether the equality of the sums of some of so many ``cells`` is too unlikely to be a coincidence."""
    return 0.5 * float(np.log2(1.0 + side).sum()) - cells * math.log2(3) > _BITS


def _dependent(held: CellColumns, order: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Candidates: sets of columns whose sums are equal to floating-point precision."""
    if len(order) < 2:
        return
    # Sums of the columns over about so many groups of leaves; (groups x columns).
    groups = min(len(order) + _SPARE_ROWS, held.n_leaves)
    starts = np.unique(np.linspace(0, held.n_leaves, groups, endpoint=False).astype(np.int64))
    columns = held.in_groups(order, starts).T.astype(np.float64)
    norms = np.linalg.norm(columns, axis=0)
    columns /= norms
    left_over = np.zeros(len(order))
    diagonal = np.abs(np.diag(np.linalg.qr(columns, mode="r")))
    left_over[: len(diagonal)] = diagonal
    free = left_over < _DEPENDENT
    if not free.any():
        return
    solved = np.linalg.lstsq(columns[:, ~free], columns[:, free], rcond=None)[0]
    weights = solved * norms[free] / norms[~free][:, None]
    for column, weight in zip(order[free], weights.T, strict=True):
        whole = np.rint(weight)
        if np.abs(weight - whole).max() < _WHOLE and np.abs(whole).max() == 1:
            yield np.concatenate([[column], order[~free][whole < 0]]), order[~free][whole > 0]


# -- units ----------------------------------------------------------------------------------------------------------


def _summed_units(tree: Tree, columns: CellColumns) -> IntArray:
    """Units of the highest level at which units are the sums of their siblings in every cell; empty if none is."""
    for families in tree.families_down():
        found = [columns.halves(part) for part in families.parts(_UNITS_AT_ONCE)]
        nodes, bits = (np.concatenate(one) for one in zip(*found, strict=True))
        if len(nodes) and _more_than_chance(bits, len(families.sizes)):
            return nodes
    return np.empty(0, np.int64)


def _more_than_chance(bits: FloatArray, families: int) -> bool:
    """Whether the evidence ``bits`` of some of the ``families`` exceeds the bits of choosing these among all."""
    said = np.cumsum(np.sort(bits)[::-1])
    chosen = np.arange(1, len(said) + 1)
    log_factorial = np.vectorize(math.lgamma)
    choice = (math.lgamma(families + 1) - log_factorial(chosen + 1) - log_factorial(families - chosen + 1)) / math.log(
        2
    )
    return bool((said - choice > _BITS).any())
