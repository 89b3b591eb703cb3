"""What a household looks like with a member less, from which follows what a person's move costs its table."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from topdown.linked.universe import LinkedQuery, Universe
from topdown.privacy.linked_units import MOST_OF_A_MOVE, move_squared

_MOST_CLASSES = 1 << 9
"""Kinds of households of which all pairs are looked at; of more, nothing is said of their moves."""


def moved_squared(queries: Iterable[LinkedQuery]) -> int:
    """How far the answers to one of ``queries`` of households are apart at most, as squared L2 distance, where a person
    moves from one household to another; `MOST_OF_A_MOVE` where there are too many kinds of households to look at.

    What the composition does not tell of a household (its tenure, its householder) stays as it is.
    """
    found = 0
    for query in queries:
        if query.of_persons:
            continue
        if query.universe.compositions.n_classes > _MOST_CLASSES:
            return MOST_OF_A_MOVE
        found = max(found, move_squared(_losses(query)))
    return found


def _losses(query: LinkedQuery) -> set[tuple[int | None, int | None]]:
    """The answers in which a household counts before and after it loses a member, for every that there may be."""
    universe = query.universe
    answers = [_answer(query, cell) for cell in _examples(universe)]
    vacant = _answer(query, universe.vacant)
    before, after = np.nonzero(_loses_one(universe))
    found = {(answers[a], answers[b]) for a, b in zip(before.tolist(), after.tolist(), strict=True)}
    if universe.householder is not None:
        alone = np.flatnonzero(universe.compositions.possible & (universe.compositions.total_least == 0))
        found |= {(answers[a], vacant) for a in alone.tolist()}
    return found


def _answer(query: LinkedQuery, cell: int) -> int | None:
    answer = int(query.answers_of(np.array([cell]))[0])
    return None if answer < 0 else answer


def _examples(universe: Universe) -> list[int]:
    """A cell of every class of households, all of the same other attributes."""
    classes = universe.compositions.class_of(np.arange(universe.n_household_cells))
    return [int(k) for k in np.unique(classes, return_index=True)[1]]


def _loses_one(universe: Universe) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """(classes x classes): whether a household of one has, with a member less, the composition of the other."""
    known = universe.compositions
    possible = known.possible[:, None] & known.possible[None]
    # Members before and after, by sets that are boxes between two totals: they meet where the larger least number is no
    # more than the smaller most, of every group and of the total.
    low_total = np.maximum(known.total_least[:, None] - 1, known.total_least[None])
    high_total = np.minimum(known.total_most[:, None] - 1, known.total_most[None])
    found = np.zeros(possible.shape, np.bool_)
    for group in range(known.least.shape[1]):
        less = np.zeros(known.least.shape[1], np.int64)
        less[group] = 1
        # The one who leaves is there before: at least one of the group.
        low = np.maximum(np.maximum(known.least - less, 0)[:, None], known.least[None])
        high = np.minimum((known.most - less)[:, None], known.most[None])
        meet = (low <= high).all(axis=2)
        reached = np.maximum(low.sum(axis=2), low_total) <= np.minimum(high.sum(axis=2), high_total)
        found |= meet & reached
    return found & possible
