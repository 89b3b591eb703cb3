"""Finds a few identifiers among millions by a search in sorted order, without a table of all of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import DataError, near_name
from topdown.geography.tree import IntArray
from topdown.wording import joined, listed, shown

if TYPE_CHECKING:
    from topdown.geography.geography import Geography

FEW = 64
"""A search is faster than a table where there are so many times more identifiers than wanted ones."""
PART = 8
"""Restricting the table to the range from the first to the last is faster where there are so many times more
identifiers.
"""


def between(wanted: pa.Array, identifiers: pa.Array, nodes: slice) -> IntArray:
    """The place of every one of ``wanted``, which rise, among the ``nodes`` of ``identifiers``, which rise there.

    Only the range from the place of the first to that of the last is searched. -1 where there is none, and for all of
    them where that range is not much smaller than ``nodes`` (`PART`).
    """
    ends = [wanted[0].as_py(), wanted[-1].as_py()]
    places = range(nodes.stop)

    def text(place: int) -> str:
        # Few strings of Python are made; it compares them as Arrow does, by code points.
        return str(identifiers[place].as_py())

    low, high = (bisect_left(places, end, nodes.start, nodes.stop, key=text) for end in ends)
    if not 0 <= high - low < (nodes.stop - nodes.start) // PART:
        return np.full(len(wanted), -1, np.int64)
    found = pc.index_in(wanted, value_set=identifiers.slice(low, high + 1 - low))
    place = np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
    return np.where(place >= 0, place + low, -1)


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


def units_meant(texts: Sequence[str], geography: Geography) -> list[str]:
    """The GEOIDs of the units that ``texts`` name, by GEOIDs or by names (in any case), with commas between several.

    A comma may be part of a name ("Cook County, IL"), and blanks around it are ignored. Raises `DataError` for a name
    that several units have, listing them, and for an unknown one, with the nearest name.
    """
    pieces = [piece.strip() for text in texts for piece in text.split(",")]
    if "" in pieces:
        raise DataError(f"{listed(texts)}: nothing stands beside a comma; give a unit, or leave the comma out")
    found: list[str] = []
    begin = 0
    while begin < len(pieces):
        for end in range(min(len(pieces), begin + _MOST_COMMAS + 1), begin, -1):
            unit = _unit_called(", ".join(pieces[begin:end]), geography)
            if unit is not None:
                found.append(unit)
                begin = end
                break
        else:
            raise DataError(
                f"no unit {shown(pieces[begin])} in this geography; give GEOIDs as text, with their leading zeros, or "
                f"names{_near(pieces[begin], geography)}"
            )
    return found


_MOST_COMMAS = 3
"""The most commas in the name of a unit."""
_NAMES_COMPARED = 20_000


def _unit_called(text: str, geography: Geography) -> str | None:
    if int(geography.index_of([text])[0]) >= 0:
        return text
    if geography.names is None:
        return None
    names = pc.fill_null(geography.names, "")
    nodes = np.flatnonzero(np.asarray(pc.equal(pc.utf8_lower(names), text.lower())))
    if not len(nodes):  # "Cook County" of "Cook County, IL"
        nodes = np.flatnonzero(np.asarray(pc.starts_with(pc.utf8_lower(names), f"{text.lower()},")))
    exact = [node for node in nodes.tolist() if names[node].as_py() == text]
    nodes = np.array(exact) if exact else nodes
    if len(nodes) > 1:
        units = [
            f"{shown(geography.identifiers[node].as_py())} ({geography.level_name(node)} {names[node].as_py()})"
            for node in nodes.tolist()
        ]
        raise DataError(f"{len(nodes):,} units are called {shown(text)}: {joined(units, 300)}; give the GEOID of one")
    return str(geography.identifiers[int(nodes[0])].as_py()) if len(nodes) else None


def _near(text: str, geography: Geography) -> str:
    if geography.names is None or not any(map(str.isalpha, text)):
        return ""
    known = {name.lower(): name for name in geography.names.drop_null()[:_NAMES_COMPARED].to_pylist()}
    near = near_name(text, known)
    return "" if near is None else f"; did you mean {shown(known[near])}?"
