"""The draws of a study in which several queries are measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, Tree
from topdown.measurements.measurements import Answers
from topdown.noise import Law, SeededSource
from topdown.noise.exact.threshold_tables import DRAWS_PER_CHUNK
from topdown.privacy.bounds import NONE, LevelBounds
from topdown.privacy.plan import Plan
from topdown.studies.followed import Followed, drawn_law
from topdown.workload import DETAILED, Query, Schema


class DrawnQuery(NamedTuple):
    """One query of a level (its number): what is drawn for it, how far within bounds, and with which variance."""

    level: int
    query: Query
    law: Law | None
    bounds: LevelBounds
    variance: float


def asked_queries(geography: Geography, schema: Schema, plan: Plan, *, limited: bool = False) -> tuple[DrawnQuery, ...]:
    """Everything that is measured, where that is more than the cells themselves, or ``limited`` (where answers have
    limits); else nothing.
    """
    named = [(level, query) for level in geography.levels for query in plan.queries(level)]
    if all(query == DETAILED for _, query in named) and not limited:
        return ()
    return tuple(
        DrawnQuery(
            geography.levels.index(level),
            Query.parse(query, schema),
            drawn_law(plan, level, query),
            plan.bounds.at(level),
            plan.variance(level, query, continuous=True),
        )
        for level, query in named
    )


def aligned_draws(law: Law, size: tuple[int, ...], key: tuple[int | str, ...]) -> FloatArray:
    """Draws of ``law`` of shape ``size`` by the streams of ``key``, so that those of another law by the same key come
    from the same random numbers, place by place: the common random numbers of two studies.

    Laws use different numbers of bits for a draw, so that one stream would get out of step. So each block has a stream
    of its own. Laws that reject proposals (a discrete Gaussian with sigma above 128) still get out of step inside a
    block.
    """
    count = math.prod(size)
    drawn = np.empty(count)
    for number, first in enumerate(range(0, count, DRAWS_PER_CHUNK)):
        block = drawn[first : first + DRAWS_PER_CHUNK]
        block[:] = law.sample(len(block), SeededSource((*key, number) if number else key))
    return drawn.reshape(size)


def draw_answers(
    asked: Sequence[DrawnQuery], tree: Tree, truth: FloatArray, replicates: int, seed: tuple[int, int], rows: slice
) -> list[dict[Query, Answers]]:
    """By level the measured answers (replicates, nodes, answers), of which ``rows`` are kept.

    ``truth`` (cells, nodes). Every query of a level has a stream of its own, for all ``replicates`` together.
    """
    found: list[dict[Query, Answers]] = [{} for _ in range(tree.n_levels)]
    for number, one in enumerate(asked):
        exact = np.rint(one.query.answers(truth[:, tree.level(one.level)].T)).astype(np.int64)
        values = np.broadcast_to(exact.astype(np.float64), (replicates, *exact.shape))
        key = (*seed, "query", number)
        if one.law is not None and one.bounds.kind == NONE:
            values = values + aligned_draws(one.law, values.shape, key)
        elif one.law is not None:
            drawn = one.bounds.sample(exact, one.law, values.shape, SeededSource(key))
            values = np.asarray(drawn, dtype=np.float64)
        found[one.level][one.query] = Answers(values[rows], np.full(len(exact), one.variance))
    return found


def measured_answers(
    measured: Sequence[dict[Query, Answers]], tree: Tree, followed: Followed, replicates: int
) -> FloatArray:
    """The measured values of the answers that are followed (replicates, answers, nodes); sums of an exact finer query
    where there is one; 0 where they were not measured.
    """
    found = np.zeros((replicates, len(followed.labels), tree.n_nodes))
    for index, level in enumerate(measured):
        exact = [query for query, one in level.items() if (one.variance == 0).all()]
        for query in followed.queries:
            columns = followed.columns(query.name)
            finer = next((one for one in exact if query.is_part_of(one)), None)
            if query in level:
                values = level[query].values
            elif finer is not None:
                values = _coarsened(query, finer, level[finer].values)
            else:
                continue
            found[:, columns, tree.level(index)] = values.swapaxes(1, 2)
    return found


def _coarsened(query: Query, finer: Query, answers: FloatArray) -> FloatArray:
    """The answers (..., answers) to ``query`` from those to a finer one."""
    place = query.answers_of(finer.examples())
    order = np.argsort(place, kind="stable")
    return np.asarray(
        np.add.reduceat(answers[..., order], np.searchsorted(place[order], np.arange(query.n_answers)), axis=-1)
    )
