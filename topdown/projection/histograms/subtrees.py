"""A tree of histograms in pieces: the upward passes of subtrees, then everything above them, then the descent in
subtrees.

Least squares needs from a subtree only its information on its root, and the families of a subtree need from above only
its root's histogram. So a piece can be computed anywhere by itself, and the result equals that of one pass over the
whole tree, except for rounding in the last digit. A piece has any number of sibling subtrees, so that small ones are
processed together, and their parent as a root without information.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import IntArray, Tree
from topdown.measurements.measurements import Answers
from topdown.projection.conditions import Conditions, Limits
from topdown.projection.histograms import precision_matrices
from topdown.projection.histograms.families import Descent
from topdown.projection.histograms.patterns import Patterns
from topdown.projection.histograms.vector_least_squares import Known
from topdown.workload import Query


class Roots(NamedTuple):
    """The information of subtrees on their roots, side by side. ``known``: block by block from what was measured at and
    below them, where there is an upward pass. ``answers``: their own answers, where there is none. ``limits``: of their
    answers, with what those below them imply. ``leaves``: how many there are.
    """

    known: list[Known]
    answers: dict[Query, Answers]
    limits: dict[Query, Limits]
    leaves: IntArray

    @classmethod
    def side_by_side(cls, pieces: Sequence[Roots]) -> Roots:
        """The roots of several pieces, in the order of their nodes."""
        known = [Known.together([piece.known[k] for piece in pieces]) for k in range(len(pieces[0].known))]
        answers = {
            query: Answers(
                np.concatenate([p.answers[query].values for p in pieces]),
                np.concatenate([p.answers[query].variance for p in pieces]),
            )
            for query in pieces[0].answers
        }
        limits = {}
        for query in dict.fromkeys(q for p in pieces for q in p.limits):
            each = [p.limits.get(query) or _without_limits(query, len(p.leaves)) for p in pieces]
            limits[query] = Limits(*(np.concatenate([getattr(one, side) for one in each]) for side in Limits._fields))
        return cls(known, answers, limits, np.concatenate([p.leaves for p in pieces]))


def roots_of(
    tree: Tree,
    measured: list[dict[Query, Answers]],
    patterns: Patterns,
    start: int,
    limits: Mapping[Query, Limits] | None = None,
) -> Roots:
    """The information of a piece on its subtrees' roots; the root of ``tree`` is their parent, without information.

    ``measured``: level by level, the parent's first, which is empty, with one variance per node; ``patterns``: of all
    queries that are measured anywhere in the whole tree; ``start``: the level of the piece where the upward pass
    starts, 1 or less where there is none to their roots; ``limits`` (nodes x answers) of its nodes. Raises
    `Contradiction` for exact answers and limits that cannot be, with the number of the piece's node.
    """
    own_limits = Conditions.of(tree, measured, limits).limits[1]
    known, answers = list[Known](), measured[1]
    if start > 1:
        for state in precision_matrices.known_above(tree.above(start), measured[: start + 1], patterns, highest=1):
            known, answers = state, {}
    return Roots(known, answers, own_limits, tree.leaf_counts[tree.level(1)])


def below(
    tree: Tree,
    measured: list[dict[Query, Answers]],
    patterns: Patterns,
    start: int,
    limits: Mapping[Query, Limits] | None = None,
    order: Sequence[tuple[Query, ...]] = (),
) -> Descent:
    """The input of the descent for a piece below its subtrees' roots. Arguments and errors as of `roots_of`."""
    conditions = Conditions.of(tree, measured, limits)
    if start > 1:
        levels: list[precision_matrices.Information] = [precision_matrices.Own.of(measured[0], 1, patterns)]
        levels += precision_matrices.climb(tree.above(start), measured[: start + 1], patterns, highest=1)
        levels += precision_matrices.own(tree, measured, patterns, start + 1)
    else:
        levels = precision_matrices.own(tree, measured, patterns)
    return Descent(tree, levels, conditions, patterns, patterns.schema.possible_cells(), tree.leaf_counts, order)


def above(
    tree: Tree,
    measured: list[dict[Query, Answers]],
    roots: Roots,
    patterns: Patterns,
    start: int,
    limits: Mapping[Query, Limits] | None = None,
    order: Sequence[tuple[Query, ...]] = (),
) -> Descent:
    """The input of the descent above and at the subtrees' ``roots``, which are the leaves of ``tree``.

    ``measured``: of the levels above the roots alone. ``start``: the level of the whole tree where the upward pass
    starts. Raises `Contradiction` as `roots_of` does.
    """
    own = [*measured, roots.answers]
    given = {query: Limits(one.low.copy(), one.high.copy()) for query, one in (limits or {}).items()}
    for query, one in roots.limits.items():
        within = given.setdefault(query, _without_limits(query, tree.n_nodes))
        within.low[tree.leaves], within.high[tree.leaves] = one
    if start > tree.n_levels - 1:
        levels = precision_matrices.climb(tree, own, patterns, roots.known)
    else:
        levels = precision_matrices.known(tree, own, patterns, start)
    cells, leaves = patterns.schema.possible_cells(), tree.aggregate(roots.leaves)
    return Descent(tree, levels, Conditions.of(tree, own, given), patterns, cells, leaves, order)


def _without_limits(query: Query, nodes: int) -> Limits:
    """Limits of 0 and infinity."""
    shape = (nodes, query.n_answers)
    return Limits(np.zeros(shape), np.full(shape, np.inf))
