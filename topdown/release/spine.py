"""A geography as the spine of noisy measurement files: its units' codes, and the partitions that they lie in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.tables import noisy_measurements as layout
from topdown.wording import listed
from topdown.workload.redistricting import SPINE, spine_level

_WIDTHS = {"state": (2,), "county": (5,), "tract": (11,), "block group": (12,), "block": (15, 16)}
"""How many digits the GEOIDs of a level have; those of blocks may say the block group twice, as the spine does."""


@dataclass(frozen=True)
class Spine:
    """The spine of a geography. By the geography's names of the levels that are the spine's, root first: ``names``,
    what they are called on the spine, and ``codes``, their units'. ``run``: the one that they are of, "US" or "PR".
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


def spine_of(geography: Geography) -> Spine:
    """The spine's codes of the units of ``geography``, made of GEOIDs where they are not such.

    Counties and what lies below get running numbers, in the order of the GEOIDs, as they have in the files. Raises
    `DataError` naming the level or the unit that no such file has.
    """
    names = {level: spine_level(level) for level in geography.levels if level != layout.WHOLE_STATE}
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
    return Spine(names, codes, layout.run_of(codes[level][0][1:3]))


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
        ends = [layout.with_block_group_twice(geoid) if len(geoid) == 15 else geoid for geoid in own]
        return [begin + end for begin, end in zip(begins, ends, strict=True)]
    number = np.arange(1, len(own) + 1) - np.searchsorted(parent, parent)
    width = max(2 if name == "block group" else 1, len(str(int(number.max()))))
    return [f"{begin}{k:0{width}d}" for begin, k in zip(begins, number.tolist(), strict=True)]
