"""The cells of two linked tables as one universe, and the queries that are asked of it.

A *household* is a record that has other records in it, its *members*: a dwelling with its inhabitants, a school with
its pupils, a firm with its jobs. Where one of the members is described by the household's own attributes (the
householder, by age, sex and race), a household's cell *is* this person too: queries about persons count it.

Cells are tagged int64 numbers. With H cells of the households' schema:

    0 .. H - 1    households, by their cell in the households' schema
    H             a vacant unit
    H + 1 + k     a person that is no householder, by its cell k in the persons' schema

No table over all cells is made: there may be billions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, require_known
from topdown.geography.tree import IntArray, Tree
from topdown.linked.member_groups import Compositions, MemberGroup, MembersTotal
from topdown.wording import CENSUS_WORDS, LinkedWords, passes_as_name, shown
from topdown.workload import Query, Schema
from topdown.workload.schema import Zero

BoolArray = npt.NDArray[np.bool_]

_MOST_TOLD_APART = 1 << 20

NONE = -1
"""What a function of cells gives where a cell has no answer, no group or no person."""


@dataclass(frozen=True)
class Householder:
    """The member that a household's own attributes describe.

    Args:
        persons: which cells of the persons' schema are householders: attributes with one category each.
        same: pairs of an attribute of persons and the attribute of households that says it of the householder; every
            category of the second is one of the first, by name.
    """

    persons: Zero
    same: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Facility:
    """Persons outside households, such as those in one kind of group quarters.

    Args:
        name: what messages call it.
        persons: which cells of the persons' schema it has: those of any of these conditions.
        counted: whether the number of such facilities is public at every node: there are at least as many persons, and
            none where there is no facility.
    """

    name: str
    persons: tuple[Zero, ...]
    counted: bool = True


@dataclass(frozen=True, eq=False)
class PublicFigures:
    """What is public of some nodes: ``units`` (nodes,), lived in or vacant, None where they are not public; and
    ``facilities`` (nodes x counted kinds of facilities, in the universe's order)."""

    units: IntArray | None
    facilities: IntArray

    def at(self, nodes: slice | IntArray) -> PublicFigures:
        """Those of some of the nodes."""
        return PublicFigures(None if self.units is None else self.units[nodes], self.facilities[nodes])

    def added_up(self, tree: Tree) -> PublicFigures:
        """Those of all nodes of ``tree``, from these of its leaves."""
        units = None if self.units is None else tree.aggregate(self.units)
        return PublicFigures(units, np.ascontiguousarray(tree.aggregate(np.ascontiguousarray(self.facilities.T)).T))


@dataclass(frozen=True)
class Universe:
    """Households and persons together.

    Args:
        households: the schema of households; structural zeros included.
        persons: the schema of all persons, householders and those outside households included.
        groups: the groups of a household's members (its householder left out), and how many of each it has.
        members_total: how many members a household has.
        householder: the member that a household's attributes describe; None where there is none (schools, firms).
        facilities: who lives outside households; every person is a householder, in one group or in one facility.
        names: what messages and names of queries call households and persons.
        singular: what messages call one record of a table, by the table's name; "entry of" the table without it.
        depending: attributes of a household, besides those of groups and of `members_total`, that may change when a
            member comes or goes (whether all are of one sex); what a person's move costs is found with them.

    Raises `ConfigError` for conditions of unknown names, for persons in two groups, and where no household can have the
    members that it must have.

    Examples:
        >>> from topdown.linked.member_groups import MemberGroup, MembersTotal
        >>> schools = td.Schema.from_mapping({"kind": ["primary", "secondary"], "size": ["0", "1", "2+"]})
        >>> pupils = td.Schema.from_mapping({"sex": ["female", "male"]})
        >>> groups = (MemberGroup("pupil", ((),), (((), 0, None),)),)
        >>> universe = Universe(schools, pupils, groups, MembersTotal("size", (0, 1, 2), (0, 1, 900)))
        >>> universe.n_cells, universe.describe(universe.vacant + 1)
        (9, 'persons: female')
    """

    households: Schema
    persons: Schema
    groups: tuple[MemberGroup, ...]
    members_total: MembersTotal
    householder: Householder | None = None
    facilities: tuple[Facility, ...] = ()
    names: tuple[str, str] = ("households", "persons")
    singular: tuple[tuple[str, str], ...] = ()
    depending: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.n_cells >= 2**63:
            raise ConfigError(f"{self.n_cells} cells of {' and '.join(self.names)}, and a cell's number has 63 bits")
        if self.names[0] == self.names[1]:
            raise ConfigError(f"both tables are called {shown(self.names[0])}; give each a name of its own")
        if not self.compositions.possible.any():
            raise ConfigError(f"no {self.names[0]} can have the members that they must have; look at sizes and groups")
        if self.householder is not None:
            _ = self._householder_codes
        for _, conditions in self._told:
            self._any_of(np.zeros(1, np.int64), conditions)
        self._require_apart()
        for name in self.depending:
            if self.households.attribute(name).name in {*self.compositions.attributes, *self._of_the_householder}:
                raise ConfigError(
                    f"{shown(name)} of {self.names[0]} is said to depend on members besides what link.members, "
                    "link.members_total and link.householder say of it; leave it out of link.depend_on_members"
                )

    @property
    def _of_the_householder(self) -> set[str]:
        """The attributes of a household that are its householder's."""
        return set() if self.householder is None else {own for _, own in self.householder.same}

    @cached_property
    def changed_by_moves(self) -> tuple[str, ...]:
        """The attributes of a household, besides those that tell compositions apart, that may change when a member
        comes or goes: ``depending``, and those that a structural zero ties to what changes."""
        of_members, schema = set(self.compositions.attributes), self.households
        zeros = [{schema.names[place] for place in schema.named([zero])} for zero in schema.zeros]
        changed = of_members | set(self.depending)
        for _ in zeros:  # one may tie to what another one ties
            changed = changed.union(*(zero - self._of_the_householder for zero in zeros if zero & changed))
        return tuple(name for name in schema.names if name in changed - of_members)

    @property
    def kept_by_moves(self) -> tuple[str, ...]:
        """The attributes of a household that stay the same whoever comes or goes, such as its tenure; those that are
        its householder's left out."""
        told = {*self.compositions.attributes, *self._of_the_householder, *self.changed_by_moves}
        return tuple(name for name in self.households.names if name not in told)

    @cached_property
    def words(self) -> LinkedWords:
        """What messages call the records of both tables, and a householder: what it is, where that is a name."""
        usual = CENSUS_WORDS
        known = {usual.households: usual.household, usual.persons: usual.person} | dict(self.singular)
        one, other = (known.get(name, f"entry of {name}") for name in self.names)
        if self.householder is None:
            return LinkedWords(*self.names, one, other, None)
        told = ", ".join(category for _, chosen in self.householder.persons for category in chosen)
        return LinkedWords(*self.names, one, other, told if passes_as_name(told) else usual.householder)

    @property
    def n_household_cells(self) -> int:
        """Number of cells of households."""
        return self.households.n_cells

    @property
    def vacant(self) -> int:
        """The cell of a vacant unit."""
        return self.households.n_cells

    @property
    def n_cells(self) -> int:
        """Number of cells, possible or not."""
        return self.households.n_cells + 1 + self.persons.n_cells

    @cached_property
    def compositions(self) -> Compositions:
        """How many members of every group a household has, by its class; see `Compositions`."""
        return Compositions(self.households, self.groups, self.members_total)

    def is_household(self, cells: npt.ArrayLike) -> BoolArray:
        """Which of ``cells`` are households."""
        given = np.asarray(cells, np.int64)
        return (given >= 0) & (given < self.vacant)

    def is_unit(self, cells: npt.ArrayLike) -> BoolArray:
        """Which of ``cells`` are units, lived in or vacant."""
        given = np.asarray(cells, np.int64)
        return (given >= 0) & (given <= self.vacant)

    def is_member(self, cells: npt.ArrayLike) -> BoolArray:
        """Which of ``cells`` are persons that are no householders: members of households, and those outside."""
        return np.asarray(cells, np.int64) > self.vacant

    def of_households(self, cells: npt.ArrayLike) -> IntArray:
        """The cells here of cells of the households' schema."""
        return np.array(cells, np.int64)

    def of_persons(self, cells: npt.ArrayLike) -> IntArray:
        """The cells here of cells of the persons' schema, none of them a householder's."""
        return np.asarray(cells, np.int64) + (self.vacant + 1)

    def household_of(self, cells: npt.ArrayLike) -> IntArray:
        """The cells of the households' schema of ``cells``; -1 where a cell is no household."""
        given = np.asarray(cells, np.int64)
        return np.where(self.is_household(given), given, NONE)

    def person_of(self, cells: npt.ArrayLike) -> IntArray:
        """The cells of the persons' schema of ``cells``: of a household that of its householder; -1 where a cell is no
        person."""
        given = np.asarray(cells, np.int64)
        found = np.where(self.is_member(given), given - (self.vacant + 1), NONE)
        if self.householder is not None:
            lived_in = self.is_household(given)
            found[lived_in] = self._householders(given[lived_in])
        return found

    def _householders(self, cells: IntArray) -> IntArray:
        places = np.unravel_index(cells, self.households.shape)
        found = np.zeros(cells.shape, np.int64)
        for size, (number, codes) in zip(self.persons.shape, self._householder_codes, strict=True):
            found = found * size + (codes[0] if number is None else codes[places[number]])
        return found

    @cached_property
    def _householder_codes(self) -> list[tuple[int | None, IntArray]]:
        """For every attribute of persons the place of the attribute of households that says it of the householder, and
        its categories there; no place, and the one category, where the householder is told by it."""
        if self.householder is None:
            return []
        same, fixed = dict(self.householder.same), dict(self.householder.persons)
        for name in (*same, *fixed):
            require_known(name, self.persons.names, f"link.householder, attribute of {self.names[1]}:")
        found: list[tuple[int | None, IntArray]] = []
        for attribute in self.persons.attributes:
            if (attribute.name in same) == (attribute.name in fixed):
                raise ConfigError(
                    f"link.householder: {shown(attribute.name)} of {self.names[1]} must be said once: by 'same', with "
                    f"an attribute of {self.names[0]}, or by 'persons'"
                )
            place = {category: k for k, category in enumerate(attribute.categories)}
            if attribute.name in fixed:
                if len(fixed[attribute.name]) != 1:
                    raise ConfigError(f"link.householder.persons: give one category of {shown(attribute.name)}")
                require_known(
                    fixed[attribute.name][0], place, f"link.householder, category of {shown(attribute.name)}:"
                )
                found.append((None, np.array([place[fixed[attribute.name][0]]])))
                continue
            theirs = self.households.attribute(same[attribute.name])
            for category in theirs.categories:
                require_known(
                    category,
                    place,
                    f"link.householder.same: {shown(theirs.name)} of {self.names[0]} has a category that "
                    f"{shown(attribute.name)} of {self.names[1]} has not:",
                )
            number = self.households.names.index(theirs.name)
            found.append((number, np.array([place[category] for category in theirs.categories])))
        return found

    def group_of(self, cells: npt.ArrayLike) -> IntArray:
        """The number of the group of members in which each of ``cells`` is; -1 for others."""
        return self._numbered(cells, [group.persons for group in self.groups])

    def facility_of(self, cells: npt.ArrayLike) -> IntArray:
        """The number of the facility in which each of ``cells`` is; -1 for others."""
        return self._numbered(cells, [facility.persons for facility in self.facilities])

    def _any_of(self, persons: IntArray, conditions: Sequence[Zero]) -> BoolArray:
        """Which cells of the persons' schema hold one of ``conditions``."""
        found = np.zeros(persons.shape, np.bool_)
        for condition in conditions:
            found |= self.persons.holds(persons, condition)
        return found

    def _numbered(self, cells: npt.ArrayLike, several: Sequence[Sequence[Zero]]) -> IntArray:
        given = np.asarray(cells, np.int64)
        members = self.is_member(given)
        own = given[members] - (self.vacant + 1)
        number = np.full(own.shape, NONE)
        for k, conditions in enumerate(several):
            number[self._any_of(own, conditions)] = k
        found = np.full(given.shape, NONE)
        found[members] = number
        return found

    def possible(self, cells: npt.ArrayLike) -> BoolArray:
        """Which of ``cells`` can occur: no structural zero, and of households none that has an impossible householder
        or members that it cannot have; of other persons none who is in no group and no facility."""
        given = np.asarray(cells, np.int64)
        person, household = self.person_of(given), self.household_of(given)
        found = self.is_unit(given) | (self.group_of(given) >= 0) | (self.facility_of(given) >= 0)
        found[person >= 0] &= ~self.persons.excluded(person[person >= 0])
        own = household[household >= 0]
        found[household >= 0] &= (
            ~self.households.excluded(own) & self.compositions.possible[self.compositions.class_of(own)]
        )
        return found

    def describe(self, cell: int) -> str:
        """A cell in words, for messages: the table and the categories."""
        if cell == self.vacant:
            return "a vacant unit"
        schema, number = (self.households, cell) if cell < self.vacant else (self.persons, cell - self.vacant - 1)
        return f"{self.names[cell > self.vacant]}: {schema.cells(', ')[number]}"

    @property
    def _told(self) -> list[tuple[str, tuple[Zero, ...]]]:
        """Groups, facilities and the householder: their names and conditions."""
        found = [(group.name, group.persons) for group in self.groups]
        found += [(facility.name, facility.persons) for facility in self.facilities]
        if self.householder is not None:
            found.append((self.words.householder or "", (self.householder.persons,)))
        return found

    def _require_apart(self) -> None:
        """Refuse persons in two groups, who would be counted twice; looked at by the attributes that tell."""
        names = [name for name, _ in self._told]
        if len(set(names)) < len(names):
            raise ConfigError(f"two groups of {self.names[1]} have one name; rename one")
        shape = self.persons.shape
        places = self.persons.named([condition for _, conditions in self._told for condition in conditions])
        told = tuple(shape[place] for place in places)
        if math.prod(told) > _MOST_TOLD_APART:
            raise ConfigError(
                f"the groups tell {math.prod(told):,} kinds of {self.names[1]} apart, and at most "
                f"{_MOST_TOLD_APART:,} can be; name fewer attributes in them"
            )
        at = [np.zeros(math.prod(told), np.int64) for _ in shape]
        for place, own in zip(places, np.unravel_index(np.arange(math.prod(told)), told or (1,)), strict=False):
            at[place] = np.asarray(own)
        cells = np.asarray(np.ravel_multi_index(at, shape), np.int64)
        of_each = np.stack([self._any_of(cells, conditions) for _, conditions in self._told])
        twice = of_each.sum(axis=0) > 1
        if twice.any():
            one, other = np.flatnonzero(of_each[:, np.argmax(twice)])[:2]
            raise ConfigError(
                f"some {self.names[1]} are in {shown(names[one])} and in {shown(names[other])}; every one is in one "
                "group: narrow one of them"
            )


@dataclass(frozen=True)
class LinkedQuery:
    """A query of one of the two tables, asked of the universe: every cell counts in one answer or in none.

    Args:
        universe: of which it is asked.
        query: a query of the households' or of the persons' schema, which of both says ``of_persons``.
        of_persons: whether persons are asked about. Households then count as their householders.
        vacant: whether a query of households has one answer more, the last, in which vacant units count.

    Examples:
        >>> LinkedQuery.parse("persons: sex", linked).n_answers  # doctest: +SKIP
        2
    """

    universe: Universe
    query: Query
    of_persons: bool
    vacant: bool = False

    def __post_init__(self) -> None:
        schema = self.universe.persons if self.of_persons else self.universe.households
        if self.query.schema != schema:
            raise ConfigError(f"query {shown(self.query.name)} is of another schema than the {self._table}")
        if self.vacant and self.of_persons:
            raise ConfigError(f"query {shown(self.query.name)}: no vacant unit is among the {self._table}")

    @classmethod
    def parse(cls, text: str, universe: Universe) -> LinkedQuery:
        """The query that ``text`` names: the table's name, a colon, and a query of its schema; at the end "+ vacant",
        where vacant units have an answer. Raises `ConfigError` for a table that is none of both and as `Query.parse`.
        """
        table, colon, asked = text.partition(":")
        require_known(table.strip(), universe.names, f"table of query {shown(text)}:")
        if not colon:
            raise ConfigError(
                f"query {shown(text)}: give the table, a colon and what is asked, as '{universe.names[1]}: total'"
            )
        of_persons = table.strip() == universe.names[1]
        wanted, plus, last = asked.rpartition("+")
        vacant = bool(plus) and last.strip() == "vacant"
        schema = universe.persons if of_persons else universe.households
        return cls(universe, Query.parse(wanted if vacant else asked, schema), of_persons, vacant)

    @property
    def _table(self) -> str:
        return self.universe.names[self.of_persons]

    @property
    def name(self) -> str:
        """How the query is written: `parse` reads it back."""
        return f"{self._table}: {self.query.name}{' + vacant' if self.vacant else ''}"

    def __hash__(self) -> int:
        return hash((self.query, self.of_persons, self.vacant))  # those that are asked together are of one universe

    @property
    def n_answers(self) -> int:
        """Number of answers."""
        return self.query.n_answers + self.vacant

    def answers_of(self, cells: npt.ArrayLike) -> IntArray:
        """The answer in which each of ``cells`` counts; -1 where it counts in none."""
        given = np.asarray(cells, np.int64)
        own = self.universe.person_of(given) if self.of_persons else self.universe.household_of(given)
        found = np.full(given.shape, NONE)
        found[own >= 0] = self.query.answers_of(own[own >= 0])
        if self.vacant:
            found[given == self.universe.vacant] = self.query.n_answers
        return found

    def sparse_answers(self, rows: IntArray, cells: IntArray, counts: npt.NDArray[np.generic], n_rows: int) -> IntArray:
        """The answers (rows x answers) of a sparse table: ``counts`` of ``cells`` in ``rows``; what is absent is 0."""
        found = np.zeros((n_rows, self.n_answers), counts.dtype)
        answers = self.answers_of(cells)
        asked = answers >= 0
        np.add.at(found.reshape(-1), rows[asked] * self.n_answers + answers[asked], counts[asked])
        return found
