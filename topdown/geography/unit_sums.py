"""Units as sums of the nodes of another tree with the same leaves: what is published where noise is measured on a
spine.

The tree that noise is measured on (the *spine*) is a geography that knows what is published instead of it: the units of
another tree, and areas of several kinds. All of these are unions of its leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from topdown.errors import ConfigError, GeographyError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray, Tree
from topdown.wording import shown

PUBLISHED, SPINE = "published", "spine"
"""What the trees are called, beside those of the kinds of areas."""

NOWHERE = "none"
"""The GEOID of what lies in no area of a kind."""

_NUMBERS_AT_ONCE = 1 << 24


def cover(tree: Tree, place: IntArray) -> tuple[IntArray, IntArray]:
    """The fewest nodes of ``tree`` whose leaves are those of every place, ``place`` (leaves,) being that of each leaf:
    the place and the number of each node, place by place and in the order of the nodes."""
    found = np.full(tree.n_nodes, -1, np.int64)
    found[tree.leaves] = place
    for families in tree.families_up():
        below = found[families.children]
        low = families.smallest(below)
        found[families.parents] = np.where(low == families.largest(below), low, -1)
    alone = found >= 0
    alone[1:] &= found[tree.parent[1:]] < 0  # the uppermost of these
    nodes = np.flatnonzero(alone)
    nodes = nodes[np.argsort(found[nodes], kind="stable")]
    return found[nodes], nodes


@dataclass(frozen=True, eq=False)
class UnitSums:
    """The units of ``geography`` as sums over nodes of another tree: unit ``of`` (entries,) has ``node`` (entries,),
    unit by unit; in each the fewest that make it up."""

    geography: Geography
    of: IntArray = field(repr=False)
    node: IntArray = field(repr=False)

    @classmethod
    def of_leaves(cls, geography: Geography, place: IntArray, tree: Tree) -> UnitSums:
        """Of the leaves of ``tree``, each in the leaf ``place`` (leaves of ``tree``,) of ``geography``."""
        own, of, node = geography.tree, list[IntArray](), list[IntArray]()
        above = own.leaves.start + place
        for index in range(own.n_levels - 1, -1, -1):
            unit, nodes = cover(tree, above - own.level(index).start)
            of.append(own.level(index).start + unit)
            node.append(nodes)
            above = own.parent[above]
        return cls(geography, np.concatenate(of[::-1]), np.concatenate(node[::-1]))

    @cached_property
    def starts(self) -> IntArray:
        """The number of every unit's first entry, and how many entries there are; (units + 1,)."""
        return np.searchsorted(self.of, np.arange(self.geography.n_nodes + 1))

    @cached_property
    def alone(self) -> IntArray:
        """The node that is every unit (units,), by its leaves; -1 where the unit is a sum of several."""
        starts = self.starts
        return np.where(np.diff(starts) == 1, self.node[starts[:-1]], -1)

    def summed(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The sums of ``values`` (nodes, ...) over every unit, (units, ...)."""
        flat = values.reshape(len(values), -1)
        found = np.empty((flat.shape[1], self.geography.n_nodes), values.dtype)
        step = max(1, _NUMBERS_AT_ONCE // max(1, len(self.node)))
        for begin in range(0, flat.shape[1], step):
            part = slice(begin, begin + step)
            found[part] = np.add.reduceat(flat[self.node, part].T, self.starts[:-1], axis=1)
        return found.T.reshape(self.geography.n_nodes, *values.shape[1:])

    def all_of(self, values: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Whether ``values`` (nodes x columns) holds of all that makes up every unit, (units x columns)."""
        return np.logical_and.reduceat(values[self.node], self.starts[:-1], axis=0)

    def top(self, level: str) -> UnitSums:
        """The units down to ``level``."""
        geography = self.geography.top(level)
        entries = slice(0, int(self.starts[geography.n_nodes]))
        return replace(self, geography=geography, of=self.of[entries], node=self.node[entries])

    def of_first(self, nodes: int) -> UnitSums:
        """The units down to the lowest level at which all are sums of the first ``nodes``; the root is one of these."""
        beyond = self.of[self.node >= nodes]
        if not len(beyond):
            return self
        return self.top(self.geography.levels[self.geography.tree.level_of(int(beyond[0])) - 1])

    def nodes_of(self, units: IntArray) -> Iterator[IntArray]:
        """The nodes of every one of ``units``."""
        starts = self.starts
        for unit in units.tolist():
            yield self.node[starts[unit] : starts[unit + 1]]


@dataclass(frozen=True, eq=False, repr=False)
class SpineGeography(Geography):
    """The tree that noise is measured on, where another one is ``published``, with ``areas`` of several kinds beside:
    by the name of the kind a tree of the root, the areas and the leaves. All have the same leaves.

    Raises `GeographyError` where they have not.
    """

    published: Geography = field(kw_only=True)
    areas: Mapping[str, Geography] = field(kw_only=True)
    whole: SpineGeography | None = field(kw_only=True, default=None)
    """That of which this one has the upper levels, with what is published of sums of these."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.whole is not None:
            return
        for other in (self.published, *self.areas.values()):
            places = np.sort(self._place_in(other))
            if other.n_leaves != self.n_leaves or not np.array_equal(places, np.arange(self.n_leaves)):
                raise GeographyError(
                    f"the units of level {shown(self.levels[-1])} are not those of level {shown(other.levels[-1])} "
                    "in a tree that is published"
                )

    @classmethod
    def of(
        cls, spine: Geography, published: Geography, kinds: Mapping[str, tuple[Sequence[str], IntArray]]
    ) -> SpineGeography:
        """The ``spine`` of a ``published`` geography; ``kinds``: by name the areas, by their names in code-point order,
        and the number (leaves of ``published``,) of each leaf's, -1 where it is in none.

        Raises `ConfigError` for an area that is called as what lies in none is.
        """
        areas = {kind: _of_areas(kind, *one, published) for kind, one in kinds.items()}
        return cls(spine.levels, spine.tree, spine.identifiers, spine.names, published=published, areas=areas)

    @cached_property
    def units(self) -> UnitSums:
        """The published units as sums of nodes."""
        if self.whole is not None:
            return self.whole.units.of_first(self.n_nodes)
        return UnitSums.of_leaves(self.published, self._place_in(self.published), self.tree)

    @cached_property
    def area_units(self) -> dict[str, UnitSums]:
        """The root and the areas of every kind as sums of nodes; the root alone, where not all areas are such sums."""
        if self.whole is not None:
            return {kind: units.of_first(self.n_nodes) for kind, units in self.whole.area_units.items()}
        found = {}
        for kind, whole in self.areas.items():
            area = whole.tree.parent[whole.tree.leaves] - whole.tree.level(1).start
            found[kind] = UnitSums.of_leaves(whole.top(whole.levels[1]), area[self._place_in(whole)], self.tree)
        return found

    @property
    def every_sum(self) -> dict[str, UnitSums]:
        """All that is published as sums of nodes, by the names of the trees."""
        return {PUBLISHED: self.units, **self.area_units}

    def top(self, level: str) -> SpineGeography:
        """The spine down to ``level``, with the published levels and the areas that are sums of its nodes."""
        upper, whole = super().top(level), self if self.whole is None else self.whole
        published = whole.units.of_first(upper.n_nodes).geography
        return SpineGeography(
            upper.levels, upper.tree, upper.identifiers, upper.names, published=published, areas=self.areas, whole=whole
        )

    @cached_property
    def turned(self) -> SpineGeography:
        """The published tree with this one in its place: of which the spine's units, and areas, are sums of published
        ones."""
        spine = Geography(self.levels, self.tree, self.identifiers, self.names)
        own = self.published
        return SpineGeography(own.levels, own.tree, own.identifiers, own.names, published=spine, areas=self.areas)

    def _place_in(self, other: Geography) -> IntArray:
        """The place (leaves,) of every leaf among the leaves of ``other``; -1 where there is none."""
        own, others = (one.identifiers.slice(one.tree.leaves.start) for one in (self, other))
        found = pc.index_in(own, value_set=others)
        return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)


def published(geography: Geography) -> Geography:
    """The units that are published of what is measured on ``geography``: its own, unless it is a spine."""
    return geography.published if isinstance(geography, SpineGeography) else geography


def published_sums(geography: Geography) -> UnitSums | None:
    """The published units as sums of the nodes of ``geography``; None where they are these."""
    return geography.units if isinstance(geography, SpineGeography) else None


def area_sums(geography: Geography) -> dict[str, UnitSums]:
    """The areas that are published of what is measured on ``geography``, by kind; none where it is no spine."""
    return geography.area_units if isinstance(geography, SpineGeography) else {}


def require_areas(kind: str, names: Sequence[str]) -> None:
    """Refuse an area, of those of a ``kind`` by their ``names``, that is called as what lies in none is. Raises
    `ConfigError`.
    """
    if NOWHERE in names:
        raise ConfigError(
            f"areas {shown(kind)}: an area is called {NOWHERE!r}, as what lies in none is; give it another name"
        )


def _of_areas(kind: str, names: Sequence[str], code: IntArray, geography: Geography) -> Geography:
    """The tree of the areas of a ``kind``: the root, the areas, the leaves; leaves in none are in one of their own."""
    require_areas(kind, names)
    known = sorted([*names, NOWHERE])
    rank = {name: place for place, name in enumerate(known)}
    of_code = np.array([*(rank[name] for name in names), rank[NOWHERE]])
    leaves = geography.identifiers.slice(geography.tree.leaves.start)
    by_geoid = np.asarray(pc.sort_indices(leaves), np.int64)
    area, order = np.unique(of_code[code][by_geoid], return_inverse=True)
    order = np.argsort(order.reshape(-1), kind="stable")
    sizes = np.bincount(of_code[code], minlength=len(known))[area]
    identifiers = [geography.identifiers.slice(0, 1), pa.array([known[k] for k in area.tolist()], pa.string())]
    identifiers.append(leaves.take(pa.array(by_geoid[order])))
    tree = Tree.from_family_sizes([[len(area)], sizes])
    levels = (geography.levels[0], kind, geography.levels[-1])
    return Geography(levels, tree, pa.concat_arrays(identifiers))
