"""How a household changes when one member leaves it; from this follows the sensitivity of the households' table to a
person's move.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

import numpy as np

from topdown.geography.tree import IntArray
from topdown.linked.universe import LinkedQuery, Universe
from topdown.privacy.linked_units import MOST_OF_A_MOVE, LinkedGuarantee, move_squared
from topdown.privacy.plan import Plan

_MOST_KINDS = 1 << 9
"""The largest number of kinds of households for which all pairs are examined; with more, the general bound is used."""


def linked_guarantee(universe: Universe, plans: Mapping[str, Plan], most: int | None) -> LinkedGuarantee:
    """What measuring both tables of a ``universe`` under ``plans`` guarantees, to households of at most ``most``
    persons; what a person's move costs is found from the queries."""
    households, persons = (plans[name] for name in universe.names)
    asked = dict.fromkeys(query for level in households.levels for query in households.queries(level))
    moved = moved_squared(LinkedQuery.parse(f"{universe.names[0]}: {query}", universe) for query in asked)
    # The sum of 1/sigma^2 over all queries: under "substitute" two counts of a query move, which cost 1/sigma^2.
    rho = persons.charged_total, households.charged_total
    return LinkedGuarantee(
        *rho,
        most,
        moved=max(moved, 2),
        kept=universe.kept_by_moves,
        vacant=False,
        delta=persons.delta,
        words=universe.words,
    )


def moved_squared(queries: Iterable[LinkedQuery]) -> int:
    """The largest squared L2 distance between the answers to one of ``queries`` of households when a person moves from
    one household to another; `MOST_OF_A_MOVE` where there are too many kinds of households to examine.

    What a household's members are, and what `Universe.changed_by_moves` names, may change with it in every way that its
    conditions allow; `Universe.kept_by_moves` and what is said of the householder stay the same.
    """
    found = 0
    for query in queries:
        if query.of_persons:
            continue
        universe = query.universe
        depending = (universe.households.attribute(name).categories for name in universe.changed_by_moves)
        if universe.compositions.n_classes * math.prod(map(len, depending)) > _MOST_KINDS:
            return MOST_OF_A_MOVE
        found = max(found, move_squared(_losses(query)))
    return found


def _losses(query: LinkedQuery) -> set[tuple[int | None, int | None]]:
    """The answers in which a household is counted before and after it loses a member, for all possible households."""
    universe = query.universe
    known = universe.compositions
    answers = [_answers(query, kind) for kind in _kinds(universe)]
    before, after = np.nonzero(_loses_one(universe))
    pairs = [(answers[a], answers[b]) for a, b in zip(before.tolist(), after.tolist(), strict=True)]
    # Whoever is the only one of its household leaves a vacant place: a householder, who is no member, or one member.
    last = 0 if universe.householder is not None else 1
    alone = np.flatnonzero(known.possible & (known.total_least <= last) & (last <= known.total_most))
    pairs += [(answers[a], _answers(query, np.array([universe.vacant]))) for a in alone.tolist()]
    return {loss for pair in pairs for loss in itertools.product(*pair)}


def _answers(query: LinkedQuery, cells: IntArray) -> set[int | None]:
    """The answers that count any of ``cells``; None where one of them is counted in none."""
    return {None if answer < 0 else answer for answer in query.answers_of(cells).tolist()}


def _kinds(universe: Universe) -> IntArray:
    """(classes x values of what depends on members): cells of households; their other attributes are equal."""
    households = universe.households
    depending = [households.names.index(name) for name in universe.changed_by_moves]
    values = np.array(list(itertools.product(*(range(households.shape[place]) for place in depending))), np.int64)
    first = np.unravel_index(universe.compositions.examples, households.shape)
    places = [np.repeat(place[:, None], len(values), axis=1) for place in first]
    for place, own in zip(depending, values.T, strict=True):
        places[place][:] = own
    return np.asarray(np.ravel_multi_index(places, households.shape), np.int64)


def _loses_one(universe: Universe) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """(classes x classes): whether a household of the first class can have the composition of the second class when one
    member leaves.
    """
    known = universe.compositions
    possible = known.possible[:, None] & known.possible[None]
    # The sets of possible members before and after are boxes cut between two totals. They intersect where, for every
    # group and for the total, the larger minimum is not above the smaller maximum.
    low_total = np.maximum(known.total_least[:, None] - 1, known.total_least[None])
    high_total = np.minimum(known.total_most[:, None] - 1, known.total_most[None])
    found = np.zeros(possible.shape, np.bool_)
    for group in range(known.least.shape[1]):
        less = np.zeros(known.least.shape[1], np.int64)
        less[group] = 1
        # The person who leaves is a member before: the group has at least one.
        low = np.maximum(np.maximum(known.least - less, 0)[:, None], known.least[None])
        high = np.minimum((known.most - less)[:, None], known.most[None])
        meet = (low <= high).all(axis=2)
        reached = np.maximum(low.sum(axis=2), low_total) <= np.minimum(high.sum(axis=2), high_total)
        found |= meet & reached
    return found & possible
