"""Persons and households protected side by side, where both are counted from the same records.

A person is counted in the table of persons and moves the table of households as well; a household is counted once in
the table of households and with every member in that of persons. So one release has a guarantee for each, and the one
for households depends on how many persons a household may have.

With rho_P and rho_H, the sums of 1/sigma^2 over all queries of persons and of households at all levels, two
neighbouring data sets cost (D_P rho_P + D_H rho_H) / 2, where D_P and D_H bound the squared L2 distance between their
answers to one query of persons, and of households (Bun, Steinke 2016, Proposition 1.6 and Lemma 1.7). The bounds below
were derived for this project; tests/privacy/test_linked_units.py enumerates the neighbours of every row.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from topdown.errors import BudgetError
from topdown.neighbours import MOST_MEMBERS
from topdown.privacy.accounting import ApproxDP, Event, ExactEvent, GaussianEvent, require_events
from topdown.privacy.conversions import zcdp_to_epsilon
from topdown.privacy.guarantees import Loss
from topdown.privacy.statement import amount_in_words, number_in_words
from topdown.wording import CENSUS_WORDS, LinkedWords, figure, shown, unquoted

PERSON, HOUSEHOLD = "person", "household"

MOST_OF_A_MOVE, USUAL_OF_A_MOVE = 8, 6
"""Squared L2 distance of households' answers where a person moves from one dwelling to another: in any case, and where
no query puts a household that loses a member and one that gains a member through the same change of answers."""

_TOLD_SIZES = (*range(1, 21), 50, 100, 200, 500)
"""The sizes of households of which the guarantee is told in words; `LinkedGuarantee.profile` has it of all."""


@dataclass(frozen=True, slots=True)
class LinkedNeighbours:
    """Two neighbouring data sets: what differs (``words``), in whose ``unit``, and at most how far the answers to one
    query are apart, as squared L2 distance (``persons``, ``households``)."""

    name: str
    unit: str
    words: str
    persons: int
    households: int

    def rho(self, rho_persons: Fraction, rho_households: Fraction) -> Fraction:
        """What telling the two apart costs, in rho of zCDP, exactly."""
        return (self.persons * rho_persons + self.households * rho_households) / 2


def linked_neighbours(
    most: int | None,
    *,
    moved: int = MOST_OF_A_MOVE,
    kept: tuple[str, ...] = (),
    vacant: bool = True,
    words: LinkedWords = CENSUS_WORDS,
) -> list[LinkedNeighbours]:
    """All kinds of neighbours that are spoken of: those of a person, and with ``most`` those of a household.

    Args:
        most: how many persons a household may have; None: no bound is stated, and nothing is said of households.
        moved: `move_squared` of the queries of households, the largest.
        kept: attributes of a household that stay the same whoever comes or goes: with them ``moved`` was found.
        vacant: whether some query of households counts vacant places (dwellings).
        words: what the records of both tables are called.

    How many places for households a unit has is public and the same in neighbours, so that a household that goes leaves
    a vacant place. Raises `BudgetError` for a ``most`` that is no whole number from 1 to 1,000.
    """
    household, person = words.household, words.person
    alone = "" if words.householder is None else f" (not a {words.householder}, or the only one of its {household})"
    same = f", and the {words.households} the same {', '.join(map(shown, kept))}" if kept else ""
    found = [
        LinkedNeighbours(
            "attributes",
            PERSON,
            f"one {person} has other attributes; all belong where they did, and the others have the same attributes",
            2,
            2,
        ),
        LinkedNeighbours(
            "move",
            PERSON,
            f"one {person}{alone} belongs elsewhere, with any attributes; the others have the same attributes{same}",
            2,
            moved,
        ),
        LinkedNeighbours("add-remove", PERSON, f"one {person}{alone} is in one data set and not in the other", 1, 2),
    ]
    if most is None:
        return found
    m = require_most(most)
    one = 2 if vacant else 1
    one_of_many = f"one {household} with {_persons(m, words)}"
    another = "" if words.householder is None else f"; a change of {words.householder} is one"
    return [
        *found,
        LinkedNeighbours(
            "household add-remove",
            HOUSEHOLD,
            f"{one_of_many} is in one data set, and its place is vacant in the other",
            m * m,
            one,
        ),
        LinkedNeighbours(
            "household replaced",
            HOUSEHOLD,
            f"{one_of_many} is another {household} with {_persons(m, words)}, in the same place{another}",
            2 * m * m,
            2,
        ),
        LinkedNeighbours(
            "household moved",
            HOUSEHOLD,
            f"{one_of_many}, or another one, is in another place, which was vacant",
            2 * m * m,
            2 * one,
        ),
    ]


def _persons(m: int, words: LinkedWords) -> str:
    return f"one {words.person}" if m == 1 else f"at most {m} {words.persons}"


def move_squared(losses: Iterable[tuple[Hashable, Hashable]]) -> int:
    """How far answers to a query of households are apart at most, as squared L2 distance, where a person leaves one
    household and joins another, in the same place or in two: an exact maximum.

    ``losses``: the answer that a household is counted in before and after it loses a member, for every household that
    there may be; None where it is counted in none. Whoever joins runs one of them backwards.
    """
    known = set(losses)
    together = (_distance(one, (two[1], two[0])) for one, two in itertools.product(known, repeat=2))
    return max(*together, 2 * max(map(_distance, known))) if known else 0


def _distance(*changes: tuple[Hashable, Hashable]) -> int:
    """The squared length of ``changes`` together, each from an answer to another."""
    change: dict[Hashable, int] = {}
    for answer, times in ((pair[k], 2 * k - 1) for pair in changes for k in (0, 1)):
        if answer is not None:
            change[answer] = change.get(answer, 0) + times
    return sum(times * times for times in change.values())


def require_most(most: object) -> int:
    """``most`` as the number of persons that a household may have. Raises `BudgetError` for what is none, and beyond
    1,000."""
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise BudgetError(
            f"household = {figure(most) if isinstance(most, int) else shown(most)}; give a whole number of 1 or more: "
            "how many persons the largest household may have"
        )
    if most > MOST_MEMBERS:
        raise BudgetError(
            f"household = {figure(most)}; guarantees are stated for households of at most {MOST_MEMBERS:,} persons: "
            "give a smaller number"
        )
    return most


@dataclass(frozen=True, slots=True)
class LinkedGuarantee:
    """What measuring persons and households together guarantees to a person, and to a household of at most m persons.

    Args:
        rho_persons: the sum of 1/sigma^2 over the queries of persons at all levels.
        rho_households: that over the queries of households.
        most: how many persons a household may have, and the guarantee for households speaks of; None: there is no
            guarantee for households.
        moved, kept: as of `linked_neighbours`.
        vacant: as of `linked_neighbours`.
        delta: at which epsilon is quoted beside rho.
        words: what the records of both tables are called.

    Examples:
        >>> from topdown.privacy.linked_units import LinkedGuarantee
        >>> found = LinkedGuarantee(Fraction(64, 25), Fraction(64, 25), most=7, moved=6)
        >>> found.rho("attributes"), found.rho("household replaced")
        (Fraction(128, 25), Fraction(128, 1))
        >>> found.total("person"), found.total("household")
        (Fraction(256, 25), Fraction(3264, 25))
    """

    rho_persons: Fraction
    rho_households: Fraction
    most: int | None
    moved: int = MOST_OF_A_MOVE
    kept: tuple[str, ...] = ()
    vacant: bool = True
    delta: float | None = None
    words: LinkedWords = CENSUS_WORDS

    def __post_init__(self) -> None:
        for what in ("rho_persons", "rho_households"):
            if getattr(self, what) < 0:
                raise BudgetError(f"{what} is {figure(str(getattr(self, what)))}; give 0 or more")
        self.rows()  # refuses a most that is none

    def rows(self, most: int | None = None) -> list[LinkedNeighbours]:
        """The kinds of neighbours that are spoken of; ``most``: another size of household than the largest."""
        largest = self.most if most is None else most
        return linked_neighbours(largest, moved=self.moved, kept=self.kept, vacant=self.vacant, words=self.words)

    def rho(self, name: str, most: int | None = None) -> Fraction:
        """What the kind of neighbours called ``name`` costs. Raises `BudgetError` for one that is not spoken of."""
        for row in self.rows(most):
            if row.name == name:
                return row.rho(self.rho_persons, self.rho_households)
        known = ", ".join(row.name for row in self.rows(most))
        raise BudgetError(f"nothing is said of {shown(name)}; there are {known}")

    def total(self, unit: str, most: int | None = None) -> Fraction:
        """The guarantee for one ``unit``, "person" or "household": the largest rho of its kinds of neighbours.

        Raises `BudgetError` for another unit, and for households where the largest is not stated.
        """
        return max(row.rho(self.rho_persons, self.rho_households) for row in self._of(unit, most))

    def profile(self) -> list[tuple[int, Fraction]]:
        """rho(m), the guarantee for a household of at most m persons, for m from 1 to the largest; none without one."""
        return [(m, self.total(HOUSEHOLD, m)) for m in range(1, (self.most or 0) + 1)]

    def loss(self, rho: Fraction) -> Loss:
        """``rho``, with the epsilon that it implies at ``delta``."""
        implied = None if self.delta is None else ApproxDP(zcdp_to_epsilon(rho, self.delta), self.delta)
        return Loss(None, rho, implied)

    def events(self, unit: str, persons: Iterable[Event], households: Iterable[Event]) -> list[Event]:
        """The events of a release as one ``unit`` is charged for them, for an accountant or a ledger's account.

        ``persons``, ``households``: Gaussian events of the two tables, whatever they say of units. An account of
        persons has the unit "person", one of households `unit_name`; both are under "substitute". They do not add: each
        bounds the same release. Their total is at least `total`, and equal where one kind of neighbours is the worst
        for both tables. Raises `BudgetError` for other noise.
        """
        rows = self._of(unit)
        name, under = self.unit_name(unit), "substitute"
        squared = max(row.persons for row in rows), max(row.households for row in rows)
        found: list[Event] = []
        for events, moved in zip((persons, households), squared, strict=True):
            for event in require_events(events):
                if isinstance(event, ExactEvent):
                    found.append(replace(event, unit=name, neighbours=under))
                elif isinstance(event, GaussianEvent):
                    squared_of = Fraction(moved)
                    found.append(replace(event, sensitivity_squared=squared_of, unit=name, neighbours=under))
                else:
                    raise BudgetError(
                        f"level {shown(event.level)}: two linked tables are accounted for together with Gaussian "
                        f"noise, and this is {unquoted(event.mechanism)}; take the mechanism 'discrete-gaussian'"
                    )
        return found

    def unit_name(self, unit: str) -> str:
        """The ``unit`` as an account names it: "person", or "household of at most 7 persons"."""
        return PERSON if self._of(unit)[0].unit == PERSON else f"household of at most {self.most} persons"

    def _of(self, unit: str, most: int | None = None) -> list[LinkedNeighbours]:
        rows = [row for row in self.rows(most) if row.unit == unit]
        if rows:
            return rows
        if unit != HOUSEHOLD:
            raise BudgetError(f"unknown unit {shown(unit)}; give 'person' or 'household'")
        raise BudgetError(
            f"there is no guarantee for {self.words.households}: how many {self.words.persons} one may have is not "
            "stated; state it, such as units = ['person', { household = 7 }]"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; exact numbers as texts like "1/2"."""
        return {
            "rho_persons": str(self.rho_persons),
            "rho_households": str(self.rho_households),
            "largest_household": self.most,
            "neighbours": [
                {
                    "name": row.name,
                    "unit": row.unit,
                    "differ": row.words,
                    "persons_squared": row.persons,
                    "households_squared": row.households,
                    "loss": self._loss(row).to_dict(),
                }
                for row in self.rows()
            ],
            "profile": [
                {"largest_household": m} | {row.name: self._loss(row).to_dict() for row in self._of(HOUSEHOLD, m)}
                for m in range(1, (self.most or 0) + 1)
            ],
        }

    def describe(self) -> list[str]:
        """The guarantee in words, a line each: every kind of neighbours, and the profile at some sizes."""
        households, persons = self.words.households, self.words.persons
        lines = [
            f"The tables of {persons} and of {households} are counted from the same records: "
            f"rho_P = {number_in_words(self.rho_persons)} over all queries of {persons}, "
            f"rho_H = {number_in_words(self.rho_households)} over those of {households}.",
            *self._in_words(PERSON),
        ]
        if self.most is None:
            return [
                *lines,
                f"One {self.words.household}: no guarantee. How many {persons} one may have is not stated, and no "
                "finite bound holds without it.",
            ]
        return [
            *lines,
            *self._in_words(HOUSEHOLD),
            *([f"With fewer {persons}:"] if self.most > 1 else []),
            *[
                f"  at most {m}: {amount_in_words(self.loss(self.total(HOUSEHOLD, m)))}"
                for m in _TOLD_SIZES
                if m < self.most
            ],
        ]

    def _in_words(self, unit: str) -> list[str]:
        words = self.words
        name = words.person if unit == PERSON else f"{words.household} with {_persons(self.most or 0, words)}"
        title = f"One {name}: {amount_in_words(self.loss(self.total(unit)))}. By what differs:"
        return [title, *[f"  {row.words}: {amount_in_words(self._loss(row))}" for row in self._of(unit)]]

    def _loss(self, row: LinkedNeighbours) -> Loss:
        return self.loss(row.rho(self.rho_persons, self.rho_households))
