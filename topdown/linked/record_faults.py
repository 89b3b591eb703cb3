"""Linked records looked at one by one: households that are not as their members say, persons who live nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import IntArray
from topdown.linked.universe import BoolArray, Universe
from topdown.wording import shown


class LinkedRows(NamedTuple):
    """Two tables of records: of every household its ``leaf`` and ``cell`` of the households' schema, of every person
    where it is (``whose``), its cell (``person``) and the row of its household (``of``), -1 for none.
    """

    leaf: IntArray
    cell: IntArray
    whose: IntArray
    person: IntArray
    of: IntArray


class RecordFault(NamedTuple):
    """What is ``said`` of records that are ``wrong`` (rows of the universe's ``table``, 0 households, 1 persons), and
    what to do."""

    said: str
    remedy: str
    table: int
    wrong: BoolArray


def is_householder(universe: Universe, person: IntArray) -> BoolArray:
    """Which cells of the persons' schema are householders."""
    if universe.householder is None:
        return np.zeros(len(person), bool)
    return universe.persons.holds(person, universe.householder.persons)


def record_faults(universe: Universe, rows: LinkedRows) -> Iterator[RecordFault]:
    """Everything that records of ``universe`` may have wrong, one kind after the other, whether any has it or not."""
    leaf, cell, whose, person, of = rows
    one, head = universe.words.household, universe.words.householder
    tagged, home = universe.of_persons(person), of >= 0
    group, is_head = universe.group_of(tagged), is_householder(universe, person)
    apart = np.zeros(len(of), bool)
    apart[home] = leaf[of[home]] != whose[home]
    yield RecordFault(f"is in one {one} of another unit", "give both the same unit", 1, apart)
    yield RecordFault(
        f"is in no {one} and in no facility",
        f"give the key of one {one}, or attributes that a facility has",
        1,
        ~home & (universe.facility_of(tagged) < 0),
    )
    yield RecordFault(
        f"has the key of one {one}, and attributes that no {one} has among its members",
        "correct the attributes, or leave the key empty",
        1,
        home & ~is_head & (group < 0),
    )
    if universe.householder is not None:
        heads = np.bincount(of[home & is_head], minlength=len(leaf))
        yield RecordFault(f"one {one} has no {head}", "give it one", 0, heads == 0)
        yield RecordFault(f"one {one} has more than one {head}", "leave it one", 0, heads > 1)
        told = universe.person_of(universe.of_households(cell))
        other = np.zeros(len(of), bool)
        both = home & is_head
        other[both] = person[both] != told[of[both]]
        said = f"the {head} is not whom the attributes of the {one} describe"
        yield RecordFault(said, "make both tables agree", 1, other)
    yield from _of_members(universe, cell, of, group)


def _of_members(universe: Universe, cell: IntArray, of: IntArray, group: IntArray) -> Iterator[RecordFault]:
    compositions = universe.compositions
    members = np.zeros((len(cell), len(universe.groups)), np.int64)
    some = (of >= 0) & (group >= 0)
    np.add.at(members, (of[some], group[some]), 1)
    kind = compositions.class_of(cell)
    total, one = members.sum(axis=1), universe.words.household
    what = f"{shown(compositions.members_total.attribute)} of one {one} does not fit its members, who are"
    fewer, more = total < compositions.total_least[kind], total > compositions.total_most[kind]
    yield RecordFault(f"{what} fewer", "make both tables agree", 0, fewer)
    largest = more & (compositions.total_most[kind] == compositions.total_most.max())
    yield RecordFault(
        f"one {one} has more members than any may have",
        "state that one may have more, which the guarantee then speaks of, or divide it",
        0,
        largest,
    )
    yield RecordFault(f"{what} more", "make both tables agree", 0, more & ~largest)
    for number, named in enumerate(universe.groups):
        found = members[:, number]
        for word, wrong in (
            ("fewer", found < compositions.least[kind, number]),
            ("more", found > compositions.most[kind, number]),
        ):
            yield RecordFault(
                f"one {one} has {word} members {shown(named.name)} than its attributes allow",
                "a composition that it cannot hold: make both tables agree",
                0,
                wrong,
            )
