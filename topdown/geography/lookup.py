"""Where a few identifiers stand among millions: a search in sorted order, in place of a table of all of them."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.geography.tree import IntArray

FEW = 64
"""A search pays where there are so many times more identifiers than are looked for."""
PART = 8
"""A look at what lies between the first and the last pays where there are so many times more identifiers."""


def between(wanted: pa.Array, identifiers: pa.Array, nodes: slice) -> IntArray:
    """The place of every one of ``wanted`` among the ``nodes`` of ``identifiers``, which rise there, from where the
    first belongs to where the last does; -1 where there is none, or where these are most of all nodes.
    """
    ends = [wanted[0].as_py(), wanted[-1].as_py()]
    low, high = (bisect_left(_Texts(identifiers), end, nodes.start, nodes.stop) for end in ends)
    if not 0 <= high - low < (nodes.stop - nodes.start) // PART:
        return np.full(len(wanted), -1, np.int64)
    found = pc.index_in(wanted, value_set=identifiers.slice(low, high + 1 - low))
    place = np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
    return np.where(place >= 0, place + low, -1)


class _Texts:
    """Strings of Arrow as a sequence of Python's, made one by one, as Python compares them: by code points."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def __getitem__(self, place: int) -> str:
        return str(self._values[place].as_py())

    def __len__(self) -> int:
        return len(self._values)


def place_in(wanted: pa.Array, identifiers: pa.Array) -> IntArray:
    """The place of every one of ``wanted`` in ``identifiers``, which rise in code-point order; -1 where there is none.

    Bisection of all at once: O(wanted x log identifiers).
    """
    low = np.zeros(len(wanted), np.int64)
    high = np.full(len(wanted), len(identifiers) - 1, np.int64)
    for _ in range(len(identifiers).bit_length()):
        middle = (low + high) // 2
        is_before = pc.less(identifiers.take(pa.array(middle)), wanted).to_numpy(zero_copy_only=False)
        low = np.where(is_before, np.minimum(middle + 1, high), low)
        high = np.where(is_before, high, middle)
    is_there = pc.equal(identifiers.take(pa.array(low)), wanted).to_numpy(zero_copy_only=False)
    return np.where(is_there, low, -1)
