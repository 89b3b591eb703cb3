"""Counts of two linked tables: of every leaf the households and persons by tagged cell. Its repr shows no value."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from topdown.confidential.counts import Counts
from topdown.confidential.entries import Entries
from topdown.errors import CountsError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.linked.universe import BoolArray, LinkedQuery, PublicFigures, Universe
from topdown.noise.exact_numbers import LARGEST_WHOLE
from topdown.wording import shown

_NUMBERS_AT_ONCE = 1 << 22
"""Of tables of leaves x kinds of households."""


@dataclass(frozen=True, eq=False)
class LinkedCounts:
    """Confidential counts of households, vacant units and persons who are no householders, at every node.

    Args:
        held: by the universe's tagged cells, those that are not 0.
        public: what is published exactly of the leaves.
    """

    universe: Universe
    geography: Geography
    held: Entries = field(repr=False)
    public: PublicFigures = field(repr=False)

    @classmethod
    def of_leaves(
        cls,
        universe: Universe,
        geography: Geography,
        leaf: IntArray,
        cells: IntArray,
        times: IntArray,
        public: PublicFigures,
    ) -> LinkedCounts:
        """The counts of all nodes from rows of leaves (counted from the first): ``times`` of tagged ``cells``; several
        rows of one leaf and cell are added up, and vacant units follow from the ``public`` ones.

        Raises `CountsError` with the leaf for a cell that cannot occur, for members who cannot be dealt into the leaf's
        households, and for counts that contradict what is public.
        """
        held = times != 0
        leaf, cells, times = leaf[held], cells[held], times[held]
        _require_possible(universe, geography, leaf, cells)
        units, dwellings = np.bincount(leaf, times * universe.is_unit(cells), geography.n_leaves).astype(np.int64), None
        if public.units is not None:
            dwellings = public.units - units
            refuse_at(
                geography, dwellings < 0, f"has more {universe.names[0]} than units in the table of what is public"
            )
            vacant = np.flatnonzero(dwellings)
            leaf = np.concatenate([leaf, vacant])
            cells = np.concatenate([cells, np.full(len(vacant), universe.vacant)])
            times = np.concatenate([times, dwellings[vacant]])
        _require_facilities(universe, geography, leaf, cells, times, public)
        require_dealt(universe, geography, leaf, cells, times)
        if int(times.sum(dtype=np.float64)) > LARGEST_WHOLE:
            raise CountsError(f"{geography.describe(0)}: the total is more than 2^53; split the tables")
        entries = Entries.of_leaves(geography.tree, universe.n_cells, leaf * universe.n_cells + cells, times)
        return cls(universe, geography, entries, public)

    @property
    def figures(self) -> PublicFigures:
        """What is public of all nodes."""
        return self.public.added_up(self.geography.tree)

    def answers(self, query: LinkedQuery, nodes: slice) -> IntArray:
        """The answers to ``query`` at ``nodes``; (nodes x answers)."""
        rows, cells, counts = self.held.part(nodes)
        return query.sparse_answers(rows, cells, counts, nodes.stop - nodes.start)

    def of_table(self, name: str) -> Counts:
        """One of both tables as counts of its own schema: households that are lived in, or all persons, householders
        too."""
        universe, tree = self.universe, self.geography.tree
        rows, cells, counts = self.held.part(tree.leaves)
        is_persons = name == universe.names[1]
        schema = universe.persons if is_persons else universe.households
        own = universe.person_of(cells) if is_persons else universe.household_of(cells)
        there = own >= 0
        keys = rows[there] * schema.n_cells + own[there]
        held = Entries.of_leaves(tree, schema.n_cells, keys, counts[there])
        return Counts(self.geography, schema.cells(), held, schema)

    def __repr__(self) -> str:
        names = " and ".join(self.universe.names)
        return f"LinkedCounts({names}, {self.geography.n_nodes:,} nodes, confidential)"


def require_countable(universe: Universe, geography: Geography) -> None:
    """Refuse more leaves x cells than the numbers that tell them apart. Raises `CountsError`."""
    if geography.n_leaves * universe.n_cells >= 1 << 63:
        raise CountsError(
            f"{geography.n_leaves:,} leaves x {universe.n_cells:,} cells are more than 2^63, the numbers that tell "
            "them apart; leave an attribute out"
        )


def refuse_at(geography: Geography, wrong: BoolArray, said: str) -> None:
    """Raises `CountsError` naming the first of the leaves that are ``wrong``, of which ``said`` holds."""
    found = np.flatnonzero(wrong)
    if len(found):
        raise CountsError(f"{geography.describe(geography.tree.leaves.start + int(found[0]))}: {said}")


def _require_possible(universe: Universe, geography: Geography, leaf: IntArray, cells: IntArray) -> None:
    distinct, first = np.unique(cells, return_index=True)
    wrong = first[~universe.possible(distinct)]
    if len(wrong):
        row = int(wrong.min())
        raise CountsError(
            f"{geography.describe(geography.tree.leaves.start + int(leaf[row]))}: has records in "
            f"{shown(universe.describe(int(cells[row])), 120)}, which cannot be: by a zero, by members that such "
            f"a {universe.words.household} cannot have, or as one {universe.words.person} in none of them and in no "
            "facility; correct the table, or the schema"
        )


def _require_facilities(
    universe: Universe, geography: Geography, leaf: IntArray, cells: IntArray, times: IntArray, public: PublicFigures
) -> None:
    kinds = universe.facility_of(cells)
    counted = [k for k, facility in enumerate(universe.facilities) if facility.counted]
    for column, k in enumerate(counted):
        name, facilities = universe.facilities[k].name, public.facilities[:, column]
        own = kinds == k
        persons = np.bincount(leaf[own], times[own], geography.n_leaves).astype(np.int64)
        what = f"in the table of what is public it has no {shown(name)}"
        refuse_at(geography, (facilities == 0) & (persons > 0), f"has {universe.names[1]} in {shown(name)}, and {what}")
        refuse_at(
            geography,
            persons < facilities,
            f"has fewer {universe.names[1]} in {shown(name)} than facilities of it in the table of what is public",
        )


def require_dealt(universe: Universe, geography: Geography, leaf: IntArray, cells: IntArray, times: IntArray) -> None:
    """Refuse a leaf whose members cannot be dealt into its households, each with members that it can have. Raises
    `CountsError`."""
    compositions = universe.compositions
    group = universe.group_of(cells)
    lived_in = universe.is_household(cells)
    kind = np.full(len(cells), -1)
    kind[lived_in] = compositions.class_of(universe.household_of(cells[lived_in]))
    order = np.argsort(leaf, kind="stable")
    at_once = max(1, _NUMBERS_AT_ONCE // compositions.n_classes)
    for first in range(0, geography.n_leaves, at_once):
        stop = min(first + at_once, geography.n_leaves)
        rows = order[slice(*np.searchsorted(leaf[order], [first, stop]))]
        households = np.zeros((stop - first, compositions.n_classes), np.int64)
        members = np.zeros((stop - first, len(universe.groups)), np.int64)
        for table, column in ((households, kind), (members, group)):
            some = rows[column[rows] >= 0]
            np.add.at(table, (leaf[some] - first, column[some]), times[some])
        wrong = np.zeros(geography.n_leaves, bool)
        wrong[first:stop] = ~compositions.fits(households, members)
        refuse_at(
            geography,
            wrong,
            f"its {universe.names[1]} cannot be dealt into its {universe.names[0]}: of some groups of members they "
            "are too few or too many for what those can hold; correct one of the tables",
        )
