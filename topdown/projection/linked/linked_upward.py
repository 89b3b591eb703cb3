"""What was measured of linked tables at and below every node, for families that are solved from the root down.

A parent's counts are its children's sums, so that what was measured of the children says something of the parent: the
sum of a query's answers at the children, with the sum of their variances. The best combination of both, from the leaves
up, weighs them by their precisions. Queries are combined one by one. Where every level divides its budget among the
same queries in the same shares, the information matrices of a query's nodes are multiples of each other, and this is
generalised least squares of all queries together; elsewhere it is that of every query alone, which is unbiased too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from topdown.geography.tree import Tree
from topdown.linked.universe import LinkedQuery
from topdown.measurements.measurements import Answers
from topdown.projection.cells.equality import combine


def from_below(
    tree: Tree, measured: Sequence[Mapping[LinkedQuery, Answers]], start: int
) -> list[dict[LinkedQuery, Answers]]:
    """By level, the root's first, the estimates of all answers from what was ``measured`` at and below every node, with
    their variances.

    ``measured``: by level, query to `Answers` (values: nodes x answers; variance: nodes, inf where there is
    none). ``start``: the number of the level whose nodes, and those below, use only
    their own answers; the root's, 0, leaves everything as it was measured.
    """
    found = [dict(level) for level in measured]
    for index in range(start - 1, -1, -1):
        families, own, below = tree.families(index), found[index], found[index + 1]
        for query, (values, variance) in below.items():
            sums = Answers(families.total_rows(np.asarray(values)), families.total_rows(np.asarray(variance)))
            own[query] = _combined(own[query], sums) if query in own else sums
    return found


def _combined(own: Answers, below: Answers) -> Answers:
    """A node's own answers and its children's sums, weighted by their precisions."""
    weight, variance = combine(below.variance, own.variance)
    alone = np.isinf(below.variance)
    weight = np.where(alone, 1.0, weight)[:, None]
    values = np.asarray(below.values) + weight * (np.asarray(own.values) - np.asarray(below.values))
    return Answers(values, np.where(alone, own.variance, variance))
