"""Impossible and improbable results of two tables of one universe, node by node: what no truth is, or hardly any.

Made together, two tables have none of the impossible. Published apart they do: the census of 2020 has people and no
household in 8 % of its blocks, and in 28 % of its tracts without group quarters more householders of a race than
persons of it (U.S. Census Bureau, detailed summary metrics of the 2010 demonstration data, April 2023, tables of
inconsistencies). The same functions count the results of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from topdown.errors import ConfigError, require_known
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.linked.record_faults import is_householder
from topdown.linked.universe import BoolArray, Universe
from topdown.wording import shown

_CROWDED = 10
_MANY_CHILDREN, _SOME, _YEARS_APART = 200, 5, 20
_OLDEST = 90
"""Where an open class of ages ends, for medians."""
_ADULT, _SMALL, _MOTHERS = 18, 5, (18, 44)


class CountedCells(NamedTuple):
    """``counts`` of ``cells`` of a schema at ``rows``, the numbers of nodes; what is absent is 0."""

    rows: IntArray
    cells: IntArray
    counts: IntArray


class Result(NamedTuple):
    """One kind of result: at which nodes it could be (``among``) and at which it is (``found``), both (nodes,).

    ``impossible``: whether it cannot be by what households and persons are; others are only improbable.
    """

    name: str
    impossible: bool
    among: BoolArray
    found: BoolArray


@dataclass(frozen=True)
class PersonFacts:
    """Which attributes of persons tell what is improbable.

    Args:
        age: an attribute whose categories are ages in years, such as "0-4", "17", "75+".
        sex: an attribute with the categories ``women`` and ``men``; None: nothing is said by sex.
        race: an attribute; None: nothing is said by race.
        women: the category of women.
        men: the category of men.
    """

    age: str
    sex: str | None = None
    race: str | None = None
    women: str = "female"
    men: str = "male"


def results_of(
    universe: Universe, households: CountedCells, persons: CountedCells, n_nodes: int, facts: PersonFacts | None = None
) -> list[Result]:
    """Every kind of result at every node, of ``households`` (those lived in, cells of their schema) and ``persons``
    (all of them, householders too, cells of theirs).

    Without ``facts`` only what follows from the universe is looked for. Raises `ConfigError` for facts of attributes
    that are not there, or whose categories are no ages.
    """
    tables = _Tables(universe, households, persons, n_nodes)
    found = [*_of_households(tables), *_of_groups(tables), *_that_cannot_be(tables)]
    found.append(
        Result(
            f"more than {_CROWDED} {universe.names[1]} for each {universe.words.household}",
            False,
            tables.lived_in > 0,
            (tables.lived_in > 0) & (tables.at_home > _CROWDED * tables.lived_in),
        )
    )
    return found if facts is None else [*found, *_improbable(tables, _Ages(universe, facts), facts)]


class _Tables:
    """Sums by node of both tables."""

    def __init__(self, universe: Universe, households: CountedCells, persons: CountedCells, n_nodes: int) -> None:
        self.universe, self.n = universe, n_nodes
        self.households, self.persons = households, persons
        compositions = universe.compositions
        self.by_class = self.table(households, compositions.class_of(households.cells), compositions.n_classes)
        tagged = universe.of_persons(persons.cells)
        group, self.facility = universe.group_of(tagged), universe.facility_of(tagged)
        self.is_head = is_householder(universe, persons.cells)
        self.members = self.table(persons, group, len(universe.groups))
        self.heads = self.total(persons, self.is_head)
        self.elsewhere = self.total(persons, self.facility >= 0)
        self.inside = self.is_head | (group >= 0)
        self.lived_in = self.by_class.sum(axis=1)
        self.at_home = self.heads + self.members.sum(axis=1)
        self.lost = self.total(persons, ~self.inside & (self.facility < 0))

    def table(self, counted: CountedCells, columns: IntArray, n_columns: int) -> IntArray:
        """Sums (nodes x columns) by a column for every entry; those of -1 are left out."""
        found = np.zeros((self.n, n_columns), np.int64)
        own = columns >= 0
        np.add.at(found, (counted.rows[own], columns[own]), counted.counts[own])
        return found

    def total(self, counted: CountedCells, chosen: BoolArray) -> IntArray:
        """Sums (nodes,) over the entries that are ``chosen``."""
        return self.table(counted, np.where(chosen, 0, -1), 1)[:, 0]

    def codes(self, attribute: str) -> IntArray:
        """The category of every entry of persons in an attribute."""
        schema = self.universe.persons
        return np.asarray(np.unravel_index(self.persons.cells, schema.shape)[schema.names.index(attribute)])


def _of_households(tables: _Tables) -> Iterator[Result]:
    universe = tables.universe
    households, persons = universe.names
    compositions = universe.compositions
    occupied: BoolArray = tables.lived_in > 0
    least = compositions.total_least + (universe.householder is not None)
    needed = tables.by_class @ least
    yield Result(
        f"{persons} in {households}, and no {households}", True, tables.at_home > 0, (tables.at_home > 0) & ~occupied
    )
    yield Result(
        f"{households}, and no {persons} in them", True, occupied, occupied & (tables.at_home == 0) & (needed > 0)
    )
    if least.min() >= 1:
        yield Result(f"fewer {persons} than {households}", True, occupied, tables.at_home < tables.lived_in)
    yield Result(f"fewer {persons} than the sizes of {households} need", True, occupied, tables.at_home < needed)
    if universe.householder is None:
        return
    yield Result(
        f"not one {universe.words.householder} for each {universe.words.household}",
        True,
        occupied | (tables.heads > 0),
        np.asarray(tables.heads != tables.lived_in),
    )
    heads = universe.person_of(universe.of_households(tables.households.cells))
    for name, _ in universe.householder.same:
        number = universe.persons.names.index(name)
        told = np.asarray(np.unravel_index(heads, universe.persons.shape)[number])
        size = universe.persons.shape[number]
        there = tables.table(tables.persons, np.where(tables.inside, tables.codes(name), -1), size)
        more = np.asarray((tables.table(tables.households, told, size) > there).any(axis=1))
        said = f"more {households} with a {universe.words.householder} of one {name} than {persons} of it"
        yield Result(said, True, occupied, more)


def _of_groups(tables: _Tables) -> Iterator[Result]:
    universe, compositions = tables.universe, tables.universe.compositions
    households, persons = universe.names
    for number, group in enumerate(universe.groups):
        least = compositions.least[:, number]
        if least.any():
            needed = tables.by_class @ least
            yield Result(
                f"more {households} with {shown(group.name)} than there are",
                True,
                needed > 0,
                tables.members[:, number] < needed,
            )
    yield Result(
        f"{persons} who cannot be dealt into the {households}",
        True,
        (tables.lived_in > 0) | (tables.at_home > 0),
        ~compositions.fits(tables.by_class, tables.members),
    )


def _that_cannot_be(tables: _Tables) -> Iterator[Result]:
    universe = tables.universe
    cells = tables.households.cells
    wrong = ~universe.possible(universe.of_households(cells))
    some = tables.lived_in > 0
    yield Result(f"{universe.names[0]} that cannot be", True, some, tables.total(tables.households, wrong) > 0)
    wrong = universe.persons.excluded(tables.persons.cells)
    lost = (tables.total(tables.persons, wrong) > 0) | (tables.lost > 0)
    there = np.asarray(tables.at_home + tables.elsewhere + tables.lost > 0)
    yield Result(f"{universe.names[1]} who cannot be", True, there, lost)


class _Ages:
    """The categories of an attribute as ages: in years the youngest, and the oldest of a category."""

    def __init__(self, universe: Universe, facts: PersonFacts) -> None:
        schema = universe.persons
        for name in (facts.age, facts.sex, facts.race):
            if name is not None:
                require_known(name, schema.names, f"attribute of {universe.names[1]}:")
        found = [_years(facts.age, category) for category in schema.attribute(facts.age).categories]
        self.low, self.high = (np.array([one[k] for one in found]) for k in (0, 1))
        if facts.sex is not None:
            for category in (facts.women, facts.men):
                require_known(category, schema.attribute(facts.sex).categories, f"category of {shown(facts.sex)}:")

    def within(self, youngest: int, oldest: int) -> BoolArray:
        """Which categories lie within these ages."""
        return (self.low >= youngest) & (self.high <= oldest)


def _years(attribute: str, category: str) -> tuple[int, int]:
    found = re.search(r"(\d+)(?:\s*(?:-|–|to|and)\s*(\d+))?", category)
    if found is None:
        raise ConfigError(
            f"attribute {shown(attribute)}, category {shown(category)}: is no age; give ages such as '0-4', '17', '75+'"
        )
    low = int(found[1])
    if re.match(r"\s*(under|below|<)", category.lower()):
        return 0, low - 1
    if found[2] is not None:
        return low, int(found[2])
    return low, low if category.strip() == found[1] else 10**6


def _improbable(tables: _Tables, ages: _Ages, facts: PersonFacts) -> Iterator[Result]:
    persons = tables.universe.names[1]
    age = tables.table(tables.persons, tables.codes(facts.age), len(ages.low))
    minors, everybody = ages.within(0, _ADULT - 1), age.sum(axis=1)
    among = (everybody > 0) & (tables.elsewhere == 0)
    yield Result(
        f"{persons}, none in a facility, all of them below {_ADULT}",
        False,
        among,
        among & (age[:, minors].sum(axis=1) == everybody),
    )
    if facts.sex is None:
        return
    sexes = tables.universe.persons.attribute(facts.sex).categories
    women, men = sexes.index(facts.women), sexes.index(facts.men)
    both = tables.codes(facts.age) * len(sexes) + tables.codes(facts.sex)
    by_sex = tables.table(tables.persons, both, len(ages.low) * len(sexes)).reshape(tables.n, -1, len(sexes))
    children = by_sex[:, minors][:, :, [women, men]]
    among = children.sum(axis=(1, 2)) >= _MANY_CHILDREN
    yield Result(
        f"{_MANY_CHILDREN} below {_ADULT}, and an age of them by sex that nobody has",
        False,
        among,
        among & (children == 0).any(axis=(1, 2)),
    )
    if facts.race is None:
        return
    races = tables.universe.persons.attribute(facts.race).categories
    all_three = tables.codes(facts.race) * (len(ages.low) * len(sexes)) + both
    by_race = tables.table(tables.persons, all_three, len(races) * len(ages.low) * len(sexes))
    by_race = by_race.reshape(tables.n, len(races), len(ages.low), len(sexes))
    small = by_race[:, :, ages.within(0, _SMALL - 1)].sum(axis=(2, 3)) >= _SOME
    mothers = by_race[:, :, ages.within(*_MOTHERS), women].sum(axis=2)
    yield Result(
        f"{_SOME} below {_SMALL} of a race, and no woman of {_MOTHERS[0]} to {_MOTHERS[1]} of it",
        False,
        small.any(axis=1),
        (small & (mothers == 0)).any(axis=1),
    )
    medians = [_medians(by_race[..., sex], ages) for sex in (women, men)]
    some = (by_race[..., women].sum(axis=2) >= _SOME) & (by_race[..., men].sum(axis=2) >= _SOME)
    apart = some & (np.abs(medians[0] - medians[1]) >= _YEARS_APART)
    yield Result(
        f"{_SOME} men and {_SOME} women of a race, whose median ages are {_YEARS_APART} years apart",
        False,
        some.any(axis=1),
        apart.any(axis=1),
    )


def _medians(counts: IntArray, ages: _Ages) -> FloatArray:
    """The median age (...,) of counts by age (..., ages), straight within a class of ages; 0 of nobody."""
    order = np.argsort(ages.low)
    counts = counts[..., order]
    ends = np.minimum(ages.high[order] + 1, np.maximum(_OLDEST, ages.low[order] + 1))
    reached = np.cumsum(counts, axis=-1)
    half = reached[..., -1:] / 2
    place = (reached < half).sum(axis=-1, keepdims=True).clip(max=counts.shape[-1] - 1)
    own = np.take_along_axis(counts, place, axis=-1)
    before = np.take_along_axis(reached, place, axis=-1) - own
    part = np.divide(half - before, own, out=np.zeros(half.shape), where=own > 0)
    low = ages.low[order][place]
    return np.asarray((low + part * (ends[place] - low))[..., 0], np.float64)


def counted(results: Sequence[Result]) -> list[dict[str, object]]:
    """``results`` as rows of a table: their name, whether impossible, at how many nodes they could be and are."""
    return [
        {
            "result": one.name,
            "impossible": one.impossible,
            "among": int(one.among.sum()),
            "found": int(one.found.sum()),
        }
        for one in results
    ]


def counted_at(
    universe: Universe,
    geography: Geography,
    index: int,
    households: CountedCells,
    persons: CountedCells,
    facts: PersonFacts | None = None,
) -> list[dict[str, object]]:
    """`counted` results of two tables at the nodes of a level (its ``index``), each row with the ``level``."""
    level = geography.levels[index]
    nodes = geography.level_slice(level)
    return [
        {"level": level} | one
        for one in counted(results_of(universe, households, persons, nodes.stop - nodes.start, facts))
    ]
