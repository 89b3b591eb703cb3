"""From consistent fractions to consistent whole numbers, family by family, exactly.

The integer nearest to a family's fractional values with the sum that its parent got is: move the values onto the sum
(x >= 0 kept), take the floors, and give the units that are left to the largest remainders. Integer noise makes many
remainders tie, so fresh randomness breaks ties, never position.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.noise.randomness import Source, read_exactly
from topdown.projection.nonnegative import project_families

SNAP = 1e-6
"""Fractions closer than this to a whole number, or to each other, differ by rounding of float64 and by nothing else."""

_REMAINDER_BITS = 20
_RANDOM_BITS = 20
_CHILDREN_AT_ONCE = 1 << 20


def round_top_down(
    values: FloatArray, tree: Tree, source: Source, lower: FloatArray | None, exact: npt.NDArray[np.bool_] | None
) -> IntArray:
    """Whole numbers (cells, nodes) near ``values`` with which every family adds up and none is below ``lower`` (0).

    The root is rounded to the nearest; then, family by family, argmin sum (r_c - x_c)^2 over whole r_c >= lower_c whose
    sum is the parent's. ``exact`` (cells, nodes): values that are whole already and stay as they are.
    """
    result = np.empty(values.shape, np.int64)
    for cell in range(len(values)):
        result[cell] = _round_cell(
            values[cell],
            tree,
            source,
            None if lower is None else lower[cell],
            None if exact is None else exact[cell],
        )
    return result


def _round_cell(
    x: FloatArray, tree: Tree, source: Source, lower: FloatArray | None, exact: npt.NDArray[np.bool_] | None
) -> IntArray:
    whole = np.empty(len(x), np.int64)
    whole[0] = _nearest(float(x[0]), source)
    for families in tree.families_down():
        children = families.children
        y, totals = x[children], whole[families.parents]
        floor = None if lower is None else np.rint(lower[children]).astype(np.int64)
        if floor is not None:
            y, totals = y - floor, totals - families.total(floor)
        slope = None if exact is None else np.where(exact[children], 0.0, 1.0)
        moved = project_families(y, totals.astype(np.float64), families.sizes, slope)
        free = None if exact is None else ~exact[children]
        rounded = _apportion(moved, totals, families.sizes, source, free)
        whole[children] = rounded if floor is None else rounded + floor
    return whole


def _nearest(x: float, source: Source) -> int:
    below = int(np.floor(x))
    beyond = x - below - 0.5
    if abs(beyond) > SNAP:
        return below + (beyond > 0)
    return below + (read_exactly(source, 1)[0] & 1)


def _apportion(
    x: FloatArray, totals: IntArray, sizes: IntArray, source: Source, free: npt.NDArray[np.bool_] | None
) -> IntArray:
    """Floors of ``x`` (children,), and one more for the largest remainders, so that families add up to ``totals``.

    ``free``: the children that are not exact; None where all are.
    """
    base = np.floor(x + SNAP).astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    left = totals - np.add.reduceat(base, starts)
    if (left < 0).any():
        # So many children a hair below a whole number that their hairs add up to units: floors without the snap.
        over = np.repeat(left < 0, sizes)
        base[over] = np.floor(x[over]).astype(np.int64)
        left = totals - np.add.reduceat(base, starts)
    # Where float64 tells no fractions apart any more, floors may be more units off than remainders can settle.
    room = sizes if free is None else np.add.reduceat(free.astype(np.int64), starts)
    for family in np.flatnonzero((left < 0) | (left > room)):
        wanted = min(left[family], 0) + max(left[family] - room[family], 0)
        left[family] -= _settle_units(base, starts[family], sizes[family], int(wanted), free)
    # Families in groups: the sort keys stay in the cache and the temporary memory stays small.
    bounds = np.searchsorted(starts, np.arange(0, len(x) + _CHILDREN_AT_ONCE, _CHILDREN_AT_ONCE))
    bounds[-1] = len(sizes)
    for first, last in itertools.pairwise(bounds):
        chosen = first + np.flatnonzero(left[first:last] > 0)
        if len(chosen):
            _give_units(base, x, left, starts, sizes, chosen, source, free)
    return base


def _settle_units(base: IntArray, start: int, size: int, wanted: int, free: npt.NDArray[np.bool_] | None) -> int:
    """Give a family ``wanted`` units, or take them, in place: to the largest of its children, by which units are least
    felt. Returns how many were given.
    """
    missing = wanted
    family = base[start : start + size]
    for child in np.argsort(-family, kind="stable"):
        if free is None or free[start + child]:
            change = max(missing, -int(family[child]))
            family[child] += change
            missing -= change
        if missing == 0:
            break
    return wanted - missing


def _give_units(
    base: IntArray,
    x: FloatArray,
    left: IntArray,
    starts: IntArray,
    sizes: IntArray,
    chosen: IntArray,
    source: Source,
    free: npt.NDArray[np.bool_] | None,
) -> None:
    """Add one, in place, to the ``left`` largest remainders of every ``chosen`` family, ties broken at random."""
    size, units = sizes[chosen], left[chosen]
    first = np.cumsum(size) - size
    family = np.repeat(np.arange(len(chosen)), size)
    child = np.arange(len(family)) + np.repeat(starts[chosen] - first, size)
    remainder = np.clip(x[child] - base[child], 0.0, 1.0)
    # One sortable number: the family, then the larger remainder, then a coin.
    key = family.astype(np.uint64) << np.uint64(_REMAINDER_BITS + 1 + _RANDOM_BITS)
    place = np.rint((1.0 - remainder) * (1 << _REMAINDER_BITS)).astype(np.uint64)
    if free is not None:
        place[~free[child]] = (1 << _REMAINDER_BITS) + 1  # what is exact comes last, and never gets one
    key |= place << np.uint64(_RANDOM_BITS)
    coins = np.frombuffer(read_exactly(source, 4 * len(family)), np.uint32) >> np.uint32(32 - _RANDOM_BITS)
    key |= coins.astype(np.uint64)
    order = np.argsort(key)
    rank = np.arange(len(family)) - np.repeat(first, size)
    base[child[order[rank < np.repeat(units, size)]]] += 1
