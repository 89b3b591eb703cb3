"""Rounds consistent fractions to consistent whole numbers, family by family, exactly.

The nearest whole numbers with the parent's rounded value as their sum are found by moving the values onto that sum
(keeping x >= 0), taking floors, and giving the remaining units to the largest remainders. Integer noise causes many
ties among remainders; they are broken at random, never by position.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import Families, FloatArray, IntArray, Tree
from topdown.machine.parallel import do_all, map_ordered
from topdown.noise.randomness import Source, read_exactly
from topdown.projection.cells.nonnegative import project_families

SNAP = 1e-6
"""Fractions closer than this to a whole number, or to each other, differ only by rounding of float64."""

_REMAINDER_BITS = 20
_RANDOM_BITS = 20
_CHILDREN_AT_ONCE = 1 << 19


def round_top_down(
    values: FloatArray,
    tree: Tree,
    source: Source,
    lower: FloatArray | None,
    exact: npt.NDArray[np.bool_] | None,
    executor: Executor | None = None,
    *,
    at_once: int = 1,
) -> IntArray:
    """Whole numbers (cells, nodes) near ``values`` with which every family adds up and none is below ``lower`` (0).

    The root is rounded to the nearest; then, family by family, argmin sum (r_c - x_c)^2 over whole r_c >= lower_c whose
    sum is the parent's. ``exact`` (cells, nodes): values that are whole already and stay as they are. ``executor``:
    threads that work on some families each; the numbers do not depend on them. ``at_once``: how many cells are rounded
    together, level by level, which is faster for small trees; their random bits then come in another order.
    """
    result = np.empty(values.shape, np.int64)
    for first in range(0, len(values), at_once):
        cells = slice(first, first + at_once)
        least, kept = None if lower is None else lower[cells], None if exact is None else exact[cells]
        result[cells, 0] = _nearest(values[cells, 0], source)
        for level in tree.families_down():
            _round_level(result[cells], values[cells], level, source, least, kept, executor)
    return result


def _round_level(
    whole: IntArray,
    x: FloatArray,
    level: Families,
    source: Source,
    lower: FloatArray | None,
    exact: npt.NDArray[np.bool_] | None,
    executor: Executor | None,
) -> None:
    """The ``whole`` numbers of the children in the families of one ``level``, in place, from those of their parents."""

    def of_children(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values[:, level.children].reshape(-1)

    below, above = of_children(whole), whole[:, level.parents].reshape(-1)
    y, floors = of_children(x), None if lower is None else of_children(lower)
    kept = None if exact is None else of_children(exact)

    def floored(families: Families) -> _Floored:
        children = families.children
        own, totals, floor = y[children], above[families.parents], None
        if floors is not None:
            floor = np.rint(floors[children]).astype(np.int64)
            own, totals = own - floor, totals - families.total(floor)
        slope = None if kept is None else np.where(kept[children], 0.0, 1.0)
        moved = project_families(own, totals.astype(np.float64), families.sizes, slope)
        return _Floored.of(families, floor, moved, totals, None if kept is None else ~kept[children])

    def given(task: tuple[_Floored, bytes]) -> None:
        found, coins = task
        found.give_units(np.frombuffer(coins, np.uint32))
        below[found.families.children] = found.base if found.floor is None else found.base + found.floor

    # Families in groups: the sort keys stay in the cache and the temporary memory stays small. Their random bits are
    # read in the order of the families, whoever works on them.
    groups = map_ordered(floored, level.repeated(len(whole)).parts(_CHILDREN_AT_ONCE), executor)
    do_all(given, ((found, read_exactly(source, 4 * found.n_coins)) for found in groups), executor)
    if len(whole) > 1:  # of one cell ``below`` is a view
        whole[:, level.children] = below.reshape(len(whole), -1)


def _nearest(x: FloatArray, source: Source) -> IntArray:
    below = np.floor(x)
    beyond = x - below - 0.5
    whole: IntArray = below.astype(np.int64) + (beyond > 0)
    tied = np.flatnonzero(np.abs(beyond) <= SNAP)
    coins = np.frombuffer(read_exactly(source, len(tied)), np.uint8) if len(tied) else np.zeros(0, np.uint8)
    whole[tied] = below[tied].astype(np.int64) + (coins & 1)
    return whole


class _Floored(NamedTuple):
    """Some families' values ``x``, the floors of these (``base``), and of how many children of each family the largest
    remainders get one more (``left``), so that it adds up. ``free``: the children that are not exact; None where all
    are. ``floor``: the lower bounds that were subtracted before, to be added again.
    """

    families: Families
    floor: IntArray | None
    x: FloatArray
    base: IntArray
    left: IntArray
    free: npt.NDArray[np.bool_] | None

    @classmethod
    def of(
        cls,
        families: Families,
        floor: IntArray | None,
        x: FloatArray,
        totals: IntArray,
        free: npt.NDArray[np.bool_] | None,
    ) -> _Floored:
        """``x`` (children,) floored, with the difference of the families from their ``totals``."""
        sizes, starts = families.sizes, families.starts
        base = np.floor(x + SNAP).astype(np.int64)
        left = totals - np.add.reduceat(base, starts)
        if (left < 0).any():
            # So many children lie just below a whole number that their differences add up to units: floors without the
            # snap.
            over = np.repeat(left < 0, sizes)
            base[over] = np.floor(x[over]).astype(np.int64)
            left = totals - np.add.reduceat(base, starts)
        # Where float64 cannot represent fractions any more, floors may be off by more units than remainders can settle.
        room = sizes if free is None else np.add.reduceat(free.astype(np.int64), starts)
        for family in np.flatnonzero((left < 0) | (left > room)):
            wanted = min(left[family], 0) + max(left[family] - room[family], 0)
            left[family] -= _settle_units(base, starts[family], sizes[family], int(wanted), free)
        return cls(families, floor, x, base, left, free)

    @property
    def n_coins(self) -> int:
        """The number of children in families in which some get one more: so many random numbers are needed."""
        return int(self.families.sizes[self.left > 0].sum())

    def give_units(self, coins: npt.NDArray[np.uint32]) -> None:
        """Add one, in place, to the ``left`` largest remainders of every family, ties broken by ``coins``."""
        chosen = np.flatnonzero(self.left > 0)
        if len(chosen) == 0:
            return
        size, units, starts = self.families.sizes[chosen], self.left[chosen], self.families.starts[chosen]
        first = np.cumsum(size) - size
        family = np.repeat(np.arange(len(chosen)), size)
        child = np.arange(len(family)) + np.repeat(starts - first, size)
        remainder = np.clip(self.x[child] - self.base[child], 0.0, 1.0)
        # One sortable number: the family, then the larger remainder, then a coin.
        key = family.astype(np.uint64) << np.uint64(_REMAINDER_BITS + 1 + _RANDOM_BITS)
        place = np.rint((1.0 - remainder) * (1 << _REMAINDER_BITS)).astype(np.uint64)
        if self.free is not None:
            place[~self.free[child]] = (1 << _REMAINDER_BITS) + 1  # exact children come last, and never get one
        key |= place << np.uint64(_RANDOM_BITS)
        key |= (coins >> np.uint32(32 - _RANDOM_BITS)).astype(np.uint64)
        order = np.argsort(key)
        rank = np.arange(len(family)) - np.repeat(first, size)
        self.base[child[order[rank < np.repeat(units, size)]]] += 1


def _settle_units(base: IntArray, start: int, size: int, wanted: int, free: npt.NDArray[np.bool_] | None) -> int:
    """Give a family ``wanted`` units, or take them, in place: from its largest children, where a unit changes least.
    Returns how many were given.
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
