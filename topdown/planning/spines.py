"""A spine: the tree on which noise is measured, chosen so that areas which are not units of the geography have small
errors.

Its leaves are those of the published geography. Every level divides the units of the level above by public facts: the
unit of a published level, or the area of a kind, in which a leaf lies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import ConfigError, DataError, require_known
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray, Tree
from topdown.geography.unit_sums import PUBLISHED, SPINE
from topdown.tables.assignments import Assignment, areas_of
from topdown.wording import shown
from topdown.workload.answer_tables import ESTIMATED

PIECES = "pieces"
SQRT = "sqrt"
AND = " x "
_BEYOND_ROOT = 12
"""The number that the Bureau adds to the square root of the number of leaves (`fanout_cutoff`)."""


class Facts(NamedTuple):
    """Public facts of leaves. For each published level between the root and the leaves, upper ones first, and for each
    kind of areas: the number (leaves,) of the unit or area in which every leaf lies, -1 for none, and the names of
    these units and areas. ``levels``: how many of the entries are levels; ``root``: the name of the root's level.
    """

    root: str
    codes: dict[str, IntArray]
    names: dict[str, Sequence[str]]
    levels: int

    @property
    def level_names(self) -> list[str]:
        """The names of the levels, upper ones first."""
        return [*self.codes][: self.levels]

    @property
    def kinds(self) -> list[str]:
        """The kinds of areas."""
        return [*self.codes][self.levels :]


def require_kinds(kinds: Sequence[str]) -> None:
    """Refuse kinds of areas whose names no file, or no level of a spine, can have. Raises `ConfigError`."""
    for number, kind in enumerate(kinds):
        if re.fullmatch(r"\w([\w -]*[\w-])?", kind) is None or kind in (PUBLISHED, SPINE):
            raise ConfigError(
                f"areas {shown(kind)}: give the kind a name of letters, digits, blanks, - and _ (their table is "
                f"called so), and not {PUBLISHED!r} or {SPINE!r}"
            )
        _require_kind(kind)
        others = [other for other in kinds[:number] if other != kind]
        if kind.casefold() in {other.casefold() for other in others}:
            raise ConfigError(
                f"areas {shown(kind)}: two kinds have one name but for upper and lower case; give each its own"
            )
    called = {kind.casefold(): kind for kind in kinds}
    for kind in kinds:
        other = called.get(f"{kind}{ESTIMATED}".casefold())
        if other is not None:
            raise ConfigError(
                f"areas {shown(other)}: the file of the estimates of areas {shown(kind)} is called so; give them "
                "another name"
            )


def _require_kind(kind: str) -> None:
    """Refuse a kind that has a name by which the levels of a spine are told apart. Raises `ConfigError`."""
    if kind == PIECES:
        raise ConfigError(f"areas {shown(PIECES)} are called as pieces of all areas are; give their table another name")
    if AND in f"{kind} ":
        raise ConfigError(
            f"areas {shown(kind)}: {AND!r} joins what divides a level of a spine; give their table a name without it"
        )


def facts_of(geography: Geography, areas: Sequence[Assignment]) -> Facts:
    """The facts of a geography's leaves and of areas of several kinds.

    Raises `ConfigError` for a kind that is called "pieces" or has " x " in its name, `DataError` for one whose table is
    not of leaves.
    """
    tree = geography.tree
    codes: dict[str, IntArray] = {}
    names: dict[str, Sequence[str]] = {}
    above = np.arange(tree.leaves.start, tree.n_nodes)
    for level in range(tree.n_levels - 2, 0, -1):
        above = tree.parent[above]
        nodes = tree.level(level)
        codes[geography.levels[level]] = above - nodes.start
        names[geography.levels[level]] = geography.identifiers.slice(nodes.start, nodes.stop - nodes.start).to_pylist()
    codes = dict(reversed(codes.items()))
    levels = len(codes)
    for one in areas:
        _require_kind(one.name)
        if one.level != geography.levels[-1]:
            raise DataError(
                f"areas {shown(one.name)}: their units are of level {shown(one.level)}; give those of the lowest, "
                f"{shown(geography.levels[-1])}"
            )
        codes[one.name] = np.full(geography.n_leaves, -1, np.int64)
        for number, nodes_of_area in enumerate(one.nodes):
            codes[one.name][nodes_of_area - tree.leaves.start] = number
        names[one.name] = one.districts
    return Facts(geography.levels[0], codes, names, levels)


class Grown(NamedTuple):
    """A tree, and the given number of each of its leaves (``order``); for every level but the last, the unit (leaves,)
    in which each of the given leaves lies, numbered from 0 in the tree's order (``units``).
    """

    tree: Tree
    order: IntArray
    units: list[IntArray]


def grown(keys: Sequence[IntArray], n: int) -> Grown:
    """The tree of ``n`` leaves, in which the level below the root and every further level divide the units above by
    ``keys`` (leaves,).
    """
    unit, units, sizes = np.zeros(n, np.int64), [np.zeros(n, np.int64)], []
    for key in keys:
        own = np.unique(key, return_inverse=True)[1].reshape(-1)
        both, below = np.unique(unit * (own.max() + 1) + own, return_inverse=True)
        sizes.append(np.bincount(both // (own.max() + 1)))
        unit = below.reshape(-1)
        units.append(unit)
    order = np.argsort(unit, kind="stable")
    sizes.append(np.bincount(unit))
    return Grown(Tree.from_family_sizes(sizes), order, units)


@dataclass(frozen=True)
class Spine:
    """The levels of a spine between the root and the leaves.

    Each of ``levels`` is a published level, a kind of areas, "pieces" (leaves that lie in the same area of every kind),
    or several of these joined by " x ": leaves that lie in the same of all of them. Every level divides the units above
    it; one that is named alone has to nest within them.

    Args:
        levels: the levels, from below the root down to above the leaves.
        cap: the largest number of leaves of a group, into which the units of the last level are cut; "sqrt": the root
            of the number of leaves of the unit above, plus 12, as in the 2020 production run; None: they are not cut.
        least: before they are cut, units of the last level with fewer leaves are joined with small ones that come next
            in the unit above, until about so many leaves are together.

    Source of "sqrt": `geographic_spines` of uscensusbureau/DAS_2020_Redistricting_Production_Code.

    Examples:
        >>> spine = td.Spine(["region", "region x state"], cap=None)
        >>> tree = spine.geography(geography, areas={"region": {"01001": "east", "01003": "west", "02013": "east"}})
        >>> tree.levels
        ('nation', 'region areas', 'region x state', 'county')
    """

    levels: tuple[str, ...]
    cap: int | str | None = SQRT
    least: int = 1

    def __init__(self, levels: Sequence[str], cap: int | str | None = SQRT, least: int = 1) -> None:
        """Raises `ConfigError` for levels without a name, or two with the same name, and for a cap or a least size that
        is not valid.
        """
        object.__setattr__(self, "levels", tuple(AND.join(_parts(one)) for one in levels))
        object.__setattr__(self, "cap", cap)
        object.__setattr__(self, "least", least)
        twice = next((one for k, one in enumerate(self.levels) if one in self.levels[:k]), None)
        if twice is not None or any(not all(_parts(one)) for one in self.levels):
            raise ConfigError(
                f"a spine names level {shown(twice)} twice; name every level once"
                if twice is not None
                else "a level of a spine has no name; give a published level, a kind of areas, or 'pieces'"
            )
        if not (cap is None or cap == SQRT or _is_number(cap)):
            raise ConfigError(f"cap is {shown(cap)}; give a number of leaves above 0, or {SQRT!r}, or nothing")
        if not _is_number(least):
            raise ConfigError(f"least is {shown(least)}; give a number of leaves above 0")

    @property
    def is_sized(self) -> bool:
        """Whether the units of the last level are cut or joined."""
        return bool(self.levels) and (self.cap is not None or self.least > 1)

    @property
    def size_words(self) -> str:
        """How `cap` and `least` change the units of the last level, in words; empty where they do not."""
        most = f"at most {self.cap}" if isinstance(self.cap, int) else "at most the root of those above, and 12,"
        joined = [f"units with fewer than {self.least} of the lowest are joined"] if self.least > 1 else []
        cut = [] if self.cap is None else [f"groups have {most} of the lowest units"]
        return ", ".join([*joined, *cut]) if self.levels else ""

    def level_names(self, kinds: Collection[str]) -> list[str]:
        """The names of the levels, where there are these ``kinds`` of areas. A level of one kind alone is called "KIND
        areas"; the areas keep their own name.
        """
        return [f"{level} areas" if level in kinds else level for level in self.levels]

    def keys(self, facts: Facts) -> list[IntArray]:
        """For every level the numbers (leaves,) by which it divides the units above.

        Args:
            facts: the published units and the areas of every leaf.

        Raises `ConfigError` for a name that is neither level nor kind, for a level that does not nest, and for one that
        is the root's, or pieces of no areas.
        """
        found: list[IntArray] = []
        unit = np.zeros(len(next(iter(facts.codes.values()), np.empty(0))), np.int64)
        for level in self.levels:
            named = [part for part in _parts(level) if part != facts.root]
            parts = [one for part in named for one in (facts.kinds if part == PIECES else [part])]
            for part in parts:
                require_known(
                    part, [facts.root, *facts.codes, PIECES], f"spine: level {shown(level)}: published level or areas"
                )
            if not parts:
                raise ConfigError(f"spine: level {shown(level)} tells nothing apart; name a published level or areas")
            key = together([facts.codes[part] for part in parts])
            if level in facts.codes:
                _require_nested(level, facts, unit, self.levels[len(found) - 1] if found else None)
            found.append(key)
            unit = together([unit, key])
        if self.least > 1 and found:
            found[-1] = _joined(found, min(self.least, len(unit) + 1))  # all that are more join all
        if self.cap is not None and found:
            found[-1] = capped(found, self.cap)
        return found

    def table(self, geography: Geography, areas: Sequence[Assignment]) -> pa.Table:
        """The public list of units: a row for each leaf of ``geography``, in its order, with its unit at every level of
        the spine and at every published level, and its area of every kind.

        A unit of a published level that is named alone keeps its GEOID; others have that of the unit above, "~" and a
        number. A level that is a kind of areas alone is called "KIND areas". Raises `ConfigError` and `DataError` as
        `keys` and `facts_of`.
        """
        facts = facts_of(geography, areas)
        units = grown(self.keys(facts), geography.n_leaves).units
        leaves = geography.tree.leaves
        found = {geography.levels[-1]: geography.identifiers.slice(leaves.start)}
        above = pa.repeat(geography.identifiers[0], geography.n_leaves)
        names = self.level_names(facts.kinds)
        for number, level in enumerate(self.levels, 1):
            if level in facts.level_names and not (self.is_sized and number == len(self.levels)):
                above = pa.array(facts.names[level], pa.string()).take(pa.array(facts.codes[level]))
            else:
                first = np.unique(units[number], return_index=True)[1]
                parent = units[number - 1][first]
                place = np.arange(len(first)) - np.searchsorted(parent, parent) + 1
                ends = pa.array(place[units[number]]).cast(pa.string())
                ends = pc.utf8_lpad(ends, len(str(int(place.max()))), "0")
                above = pc.binary_join_element_wise(above, ends, "~")
            found[names[number - 1]] = above
        for name, code in facts.codes.items():
            if name not in found:
                texts = pa.array(facts.names[name], pa.string())
                found[name] = texts.take(pa.array(np.where(code >= 0, code, 0), mask=code < 0))
        return pa.table(found)

    def geography(
        self, geography: Geography, areas: Sequence[Assignment] | Mapping[str, Mapping[str, str]]
    ) -> Geography:
        """The spine as a geography, with the leaves of ``geography``.

        Args:
            areas: of every kind, its name with {GEOID: area}.

        Raises `ConfigError` and `DataError` as `table`, and for areas of units that are not there.
        """
        given = areas_of(areas, geography) if isinstance(areas, Mapping) else areas
        facts = facts_of(geography, given)
        levels = [facts.root, *self.level_names(facts.kinds), geography.levels[-1]]
        return Geography.from_table(self.table(geography, given), levels, root=str(geography.identifiers[0].as_py()))


def _parts(level: str) -> list[str]:
    """The names by which a level of a spine divides."""
    return [part.strip() for part in level.split(AND)]


def _require_nested(level: str, facts: Facts, unit: IntArray, above: str | None) -> None:
    """Refuse a level that has a unit, or an area, which lies in two units of the level above."""
    code = facts.codes[level]
    inside = code >= 0
    low, high = np.full(code.max() + 1, np.iinfo(np.int64).max), np.full(code.max() + 1, -1)
    np.minimum.at(low, code[inside], unit[inside])
    np.maximum.at(high, code[inside], unit[inside])
    torn = np.flatnonzero(low < high)
    if len(torn):
        raise ConfigError(
            f"spine: level {shown(level)} does not nest in {shown(above)}: {shown(facts.names[level][int(torn[0])])} "
            f"lies in several of its units; write {shown(f'{level}{AND}{above}')} for its pieces, or name it above"
        )


def _is_number(one: object) -> bool:
    return isinstance(one, int) and not isinstance(one, bool) and one > 0


def _joined(keys: list[IntArray], least: int) -> IntArray:
    """The last of ``keys``, where units with fewer than ``least`` leaves are joined with others in the same unit above:
    those before which the small units have the same multiple of ``least`` leaves.
    """
    upper = grown(keys, len(keys[0])).units
    last, above = upper[-1], upper[-2]
    size, first = np.bincount(last), np.unique(last, return_index=True)[1]
    small = np.flatnonzero(size < least)
    before = np.cumsum(size[small]) - size[small]
    # Units are in the order of the units above them.
    of_above = above[first[small]]
    parent = np.searchsorted(of_above, of_above)
    place = (before - before[parent]) // least
    number = np.arange(len(size))
    together_with = np.flatnonzero(np.diff(of_above, prepend=-1) | np.diff(place, prepend=-1))
    number[small] = small[together_with][np.searchsorted(together_with, np.arange(len(small)), side="right") - 1]
    return np.asarray(number[last])


def capped(keys: list[IntArray], cap: int | str) -> IntArray:
    """The last of ``keys``, where every unit is cut into the smallest number of groups that have at most ``cap``
    leaves; their sizes differ by at most one leaf.
    """
    upper = grown(keys, len(keys[0])).units
    last, above = upper[-1], upper[-2]
    size, of_above = np.bincount(last), np.bincount(above)
    most = np.full(len(size), cap) if isinstance(cap, int) else None
    if most is None:
        first = np.unique(last, return_index=True)[1]
        most = np.array([math.isqrt(int(n)) + _BEYOND_ROOT for n in of_above[above[first]]])
    parts = -(-size // most)
    order = np.argsort(last, kind="stable")
    place = np.empty(len(last), np.int64)
    place[order] = np.arange(len(last)) - np.repeat(np.cumsum(size) - size, size)
    return np.asarray(last * int(parts.max()) + place * parts[last] // size[last])


def together(keys: Sequence[IntArray]) -> IntArray:
    """One number (leaves,) for each combination of ``keys``."""
    found = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        both = found * (int(key.max()) + 2) + key + 1
        found = np.unique(both, return_inverse=True)[1].reshape(-1)
    return found
