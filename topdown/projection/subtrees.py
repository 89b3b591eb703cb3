"""A tree of histograms in pieces: subtrees first go up to their roots, then what is above, then the subtrees go down.

Least squares needs of a subtree what it says of its root, and families need of what is above a root its histogram. So a
piece can be computed anywhere, alone, and the whole is what one pass over the whole tree gives, but for rounding in the
last digit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from topdown.geography.tree import IntArray, Tree
from topdown.measurements.measurements import Answers
from topdown.projection import diffuse, information
from topdown.projection.conditions import Conditions, Limits
from topdown.projection.families import Descent
from topdown.projection.method import Method
from topdown.projection.patterns import Patterns
from topdown.workload import Query


class Root(NamedTuple):
    """What a subtree says of its root, of one node or of many side by side.

    ``known``: block by block what was measured at and below it says, for methods that go upward. ``answers``: its own
    answers, for the others. ``limits``: of its answers, with what those below it imply. ``leaves``: how many there are.
    """

    known: list[diffuse.Known]
    answers: dict[Query, Answers]
    limits: dict[Query, Limits]
    leaves: IntArray

    @classmethod
    def side_by_side(cls, roots: Sequence[Root]) -> Root:
        """The roots of several subtrees, in the order of their nodes."""
        blocks = range(len(roots[0].known))
        known = [
            diffuse.Known(*(np.concatenate([getattr(r.known[k], part) for r in roots]) for part in diffuse.PARTS))
            for k in blocks
        ]
        answers = {
            query: Answers(
                np.concatenate([r.answers[query].values for r in roots]),
                np.concatenate([r.answers[query].variance for r in roots]),
            )
            for query in roots[0].answers
        }
        limits = {
            query: Limits(
                np.concatenate([_limits(r, query).low for r in roots]),
                np.concatenate([_limits(r, query).high for r in roots]),
            )
            for query in dict.fromkeys(q for r in roots for q in r.limits)
        }
        return cls(known, answers, limits, np.concatenate([r.leaves for r in roots]))


class Climbed(NamedTuple):
    """A subtree that went up: what its way down needs, and what it says of its root."""

    descent: Descent
    root: Root


def climb(
    tree: Tree,
    measured: list[dict[Query, Answers]],
    patterns: Patterns,
    method: Method,
    limits: Mapping[Query, Limits] | None = None,
) -> Climbed:
    """A subtree's way up; ``measured`` level by level, its root's first, with one variance per node; ``patterns``: of
    all queries that are measured anywhere in the whole tree; ``limits`` (nodes x answers) of its nodes.

    Raises `Contradiction` for exact answers and limits that cannot be, with the number of the subtree's node.
    """
    conditions = Conditions.of(tree, measured, limits)
    known, answers, root = information.own(tree, measured, patterns), measured[0], list[diffuse.Known]()
    if method.upward:
        (known, root), answers = information.climb(tree, measured, patterns), {}
    cells, leaves = patterns.components.schema.possible_cells(), tree.leaf_counts
    return Climbed(
        Descent(tree, known, conditions, patterns, cells, leaves), Root(root, answers, conditions.limits[0], leaves[:1])
    )


def above(
    tree: Tree,
    measured: list[dict[Query, Answers]],
    roots: Root,
    patterns: Patterns,
    method: Method,
    limits: Mapping[Query, Limits] | None = None,
) -> Descent:
    """What the way down needs above and at the subtrees' ``roots``, which are the leaves of ``tree``.

    ``measured``: of the levels above the roots alone. Raises `Contradiction` as `climb` does.
    """
    own = [*measured, roots.answers]
    given = {query: Limits(one.low.copy(), one.high.copy()) for query, one in (limits or {}).items()}
    for query, one in roots.limits.items():
        if query not in given:
            shape = (tree.n_nodes, query.n_answers)
            given[query] = Limits(np.zeros(shape), np.full(shape, np.inf))
        given[query].low[tree.leaves], given[query].high[tree.leaves] = one
    if method.upward:
        known = information.climb(tree, own, patterns, roots.known).levels
    else:
        known = information.own(tree, own, patterns)
    cells = patterns.components.schema.possible_cells()
    return Descent(tree, known, Conditions.of(tree, own, given), patterns, cells, tree.aggregate(roots.leaves))


def _limits(root: Root, query: Query) -> Limits:
    """A root's limits of a query's answers, which say nothing where there are none."""
    if query in root.limits:
        return root.limits[query]
    return Limits(np.zeros((1, query.n_answers)), np.full((1, query.n_answers), np.inf))
