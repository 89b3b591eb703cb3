"""The spine of noisy measurement files for a geography: the codes of its units, and their partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.census.layouts import noisy_layout as layout
from topdown.census.layouts.redistricting_layout import WIDTHS
from topdown.errors import DataError
from topdown.geography.geography import DEFAULT_ROOT, Geography
from topdown.geography.tree import IntArray, Tree
from topdown.wording import listed, shown
from topdown.workload.redistricting import SPINE, WHOLE_STATE, spine_level

_WIDTHS = {level: (width, width + 1) if level == "block" else (width,) for level, width in WIDTHS.items()}
"""How many digits the GEOIDs of a level have; those of blocks may have the block group twice, as on the spine."""

_BLOCK_DIGITS = 16


@dataclass(frozen=True)
class SpineCodes:
    """The spine of a geography. For the geography's levels that are on the spine, root first: ``names``, their names on
    the spine, and ``codes``, those of their units. ``run``: the one that they are of, "US" or "PR".
    """

    names: Mapping[str, str]
    codes: Mapping[str, list[str]]
    run: str

    def partitions(self, level: str) -> Iterator[tuple[str, slice]]:
        """The partitions of a level and their units, numbered from the level's first: one per part of a state."""
        codes = self.codes[level]
        if self.names[level] == "us":
            yield "", slice(0, 1)
            return
        starts = [k for k, code in enumerate(codes) if k == 0 or code[:3] != codes[k - 1][:3]]
        for begin, end in zip(starts, [*starts[1:], len(codes)], strict=True):
            yield layout.partition(codes[begin][:3]), slice(begin, end)


def spine_of(geography: Geography) -> SpineCodes:
    """The spine's codes of the units of ``geography``, made from GEOIDs where they are not such codes.

    Counties and lower units are numbered in the order of their GEOIDs, as in the files. Raises `DataError` naming a
    level or a unit that such files do not have.
    """
    names = {level: spine_level(level) for level in geography.levels if level != WHOLE_STATE}
    given = tuple(names.values())
    if not any(given == SPINE[start : start + len(given)] for start in (0, 1)):
        raise DataError(
            f"the levels are {listed(geography.levels)}; a noisy measurement file has {listed(SPINE)}, from the nation "
            "or a state down and none left out"
        )
    states = [geography.level_slice(level).start for level, name in names.items() if name == "state"]
    # On the spine states have three digits, and what lies below begins with its parent's code.
    is_coded = bool(states) and len(geography.identifiers[states[0]].as_py()) == 3
    codes: dict[str, list[str]] = {}
    above: list[str] = []
    for level, name in names.items():
        nodes = geography.level_slice(level)
        own = geography.identifiers.slice(nodes.start, nodes.stop - nodes.start).to_pylist()
        above = [""] if name == "us" else own if is_coded else _coded(geography, level, name, own, above)
        codes[level] = above
    return SpineCodes(names, codes, layout.run_of(codes[level][0][1:3]))


def _coded(geography: Geography, level: str, name: str, own: list[str], above: list[str]) -> list[str]:
    """The codes of a level's units, of their ``own`` GEOIDs and the codes of the level ``above``."""
    nodes = geography.level_slice(level)
    for row, geoid in enumerate(own):
        if len(geoid) not in _WIDTHS[name] or not geoid.isdecimal():
            raise DataError(
                f"{geography.describe(nodes.start + row)}: a {name} has a GEOID of "
                f"{' or '.join(map(str, _WIDTHS[name]))} digits"
            )
    if name == "state":
        return [f"0{geoid}" for geoid in own]
    parent = geography.parent[nodes]
    begins = [above[k] for k in (parent - parent[0]).tolist()]
    if name == "county":
        return [f"{begin}10{geoid[2:]}1" for begin, geoid in zip(begins, own, strict=True)]
    if name == "block":
        ends = [layout.with_block_group_twice(geoid) if len(geoid) == WIDTHS["block"] else geoid for geoid in own]
        return [begin + end for begin, end in zip(begins, ends, strict=True)]
    number = np.arange(1, len(own) + 1) - np.searchsorted(parent, parent)
    width = max(2 if name == "block group" else 1, len(str(int(number.max()))))
    return [f"{begin}{k:0{width}d}" for begin, k in zip(begins, number.tolist(), strict=True)]


def spine_geography(codes: Mapping[str, pa.Array], state: str | None) -> Geography:
    """The geography of the spine's ``codes``, each level's in code-point order: a unit's begins with its parent's.

    The nation, whose code is empty, is called "US". Where the first level has two units, the parts of ``state``, a
    level "whole state" stands above. Raises `DataError` naming a unit without a parent or without children.
    """
    levels, known = list(codes), [_checked(level, found) for level, found in codes.items()]
    if len(known[0]) > 1:
        levels, known = [WHOLE_STATE, *levels], [pa.array([""]), *known]
    sizes: list[IntArray] = []
    for index in range(1, len(levels)):
        parent = _parents(levels[index], known[index], levels[index - 1], known[index - 1])
        size = np.bincount(parent, minlength=len(known[index - 1]))
        if not size.all():
            code = known[index - 1][int(np.argmin(size))].as_py()
            raise DataError(
                f"{levels[index - 1]} {shown(code)} has no {levels[index]}; the constraints of level "
                f"{shown(levels[index])} are incomplete: fetch them again"
            )
        sizes.append(size)
        # Stable: siblings stay in the order of their codes.
        known[index] = known[index].take(pa.array(np.argsort(parent, kind="stable")))
    names = [name for level, found in zip(levels, known, strict=True) for name in _names(level, found, state)]
    root = [DEFAULT_ROOT if levels[0] == "us" else state] if known[0][0].as_py() == "" else known[0]
    known[0] = pa.array(root, pa.string())
    return Geography(
        tuple(levels), Tree.from_family_sizes(sizes), pa.concat_arrays(known), pa.array(names, pa.string())
    )


def _checked(level: str, codes: pa.Array) -> pa.Array:
    """The codes of a level, after making sure that those of blocks end with a block's digits."""
    if level == "block":
        wrong = pc.invert(pc.match_substring_regex(codes, r"^[0-9A-Z]{3,}[0-9]{16}$"))
        if pc.any(wrong).as_py():
            code = codes.filter(wrong)[0].as_py()
            raise DataError(f"block {shown(code)}: a block's code ends with 16 digits; fetch its partitions again")
    return codes


def _parents(level: str, codes: pa.Array, above_level: str, above: pa.Array) -> IntArray:
    """The place of every unit's parent among the codes ``above``: the longest that its own begins with."""
    found = np.full(len(codes), -1, np.int64)
    # A block's code is its block group's followed by 16 digits; for other levels the parent is the longest prefix.
    lengths = [-_BLOCK_DIGITS] if level == "block" else sorted(set(pc.utf8_length(above).to_pylist()))
    for length in lengths:
        place = pc.index_in(pc.utf8_slice_codeunits(codes, 0, length), value_set=above)
        place = pc.fill_null(place, -1).to_numpy(zero_copy_only=False)
        found = np.where(place >= 0, place, found)
    if (found < 0).any():
        code = codes[int(np.argmin(found))].as_py()
        raise DataError(
            f"{level} {shown(code)} lies in no {above_level}; the constraints of level {shown(above_level)} are "
            "incomplete: fetch them again"
        )
    return found


def _names(level: str, codes: pa.Array, state: str | None) -> list[str | None]:
    """The GEOIDs of the units, or of what they are parts of; None where the spine has units of its own."""
    found = codes.to_pylist()
    if level == "state":
        return [code[1:3] for code in found]
    if level == "county":
        return [layout.county_geoid(code) for code in found]
    if level == "block":
        return [layout.block_geoid(code) for code in found]
    return [state if level == WHOLE_STATE else None for _ in found]
