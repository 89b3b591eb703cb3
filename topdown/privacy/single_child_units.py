"""Units with a single child: their common counts are measured once, at the parent.

A unit and its only child have the same counts. Under "move-up" the child is not measured, and its level's share goes to
its parent, divided among the parent's queries; in a chain of single children all shares go to the uppermost unit. The
shares on every path from the root to a leaf add up to the same as before, and a record counts on one path, or moves
from one path to another, so that the total loss is the same: in pure differential privacy the epsilons along the path
add up; in zero-concentrated privacy each of the two paths counts half. Source: the "bypass" of the 2020 production run
(`geographic_spines/optimize_spine.py` of uscensusbureau/DAS_2020_Redistricting_Production_Code).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.noise import Law
from topdown.privacy.plan import MOVE_UP, Plan
from topdown.workload import DETAILED

GIVEN = -1
"""The value of `levels_taken` at a node that gave its share to its parent."""


LevelsArray = npt.NDArray[np.int16]


def levels_taken(plan: Plan, geography: Geography) -> LevelsArray:
    """For every node the number of levels below whose shares it has beside its own, (nodes,); `GIVEN` where it gave its
    share away.

    A parent whose level is not measured, or is exact, takes no share. ``plan``: with its shares.
    """
    found = np.zeros(geography.n_nodes, np.int16)
    if plan.only_child != MOVE_UP:
        return found
    tree = geography.tree
    for index in range(tree.n_levels - 2, -1, -1):
        if not any(plan.share(geography.levels[index], query) for query in _measured(plan, geography.levels[index])):
            continue
        families = tree.families(index)
        single = np.flatnonzero(families.sizes == 1)
        below = families.children.start + families.starts[single]
        # No child here has given its share yet: it gives to this parent.
        found[families.parents.start + single] = 1 + found[below]
        found[below] = GIVEN
    return found


def groups(taken: LevelsArray, nodes: slice) -> Iterator[tuple[int, slice | IntArray]]:
    """The nodes of a level in groups that are measured alike: the number of levels whose shares they took, and the
    nodes, numbered from the level's first.
    """
    # Mostly no node takes any share, and millions of zeros need not be sorted.
    kinds = np.unique(taken[nodes]) if taken[nodes].any() else np.zeros(1, np.int16)
    for kind in kinds.tolist():
        yield kind, slice(0, nodes.stop - nodes.start) if len(kinds) == 1 else np.flatnonzero(taken[nodes] == kind)


def gain(plan: Plan, levels: Sequence[str], level: str, taken: int) -> Fraction:
    """How many times its own share a node of ``level`` has after taking those of ``taken`` levels below."""
    at = levels.index(level)
    shares = [
        sum((plan.share(one, q) for q in _measured(plan, one)), Fraction(0)) for one in levels[at : at + taken + 1]
    ]
    return sum(shares, Fraction(0)) / shares[0] if shares[0] else Fraction(1)


def law_of(plan: Plan, levels: Sequence[str], level: str, query: str, taken: int) -> Law | None:
    """The law of the noise on every count of a level's query at nodes that took ``taken`` levels' shares; None where
    they are exact or not measured.
    """
    if taken == 0 or plan.share(level, query) == 0:
        return plan.law(level, query) if taken >= 0 else None
    if taken == GIVEN:
        return None
    parameter = plan.parameter(level, query) / gain(plan, levels, level, taken)
    return plan.noise.law(parameter, plan.grid_bits, continuous=False)


def variances(plan: Plan, geography: Geography, level: str, query: str = DETAILED) -> FloatArray:
    """The variance of the noise at every node of ``level``; 0 where it is exact, inf where nothing is measured."""
    nodes = geography.level_slice(level)
    found = np.full(nodes.stop - nodes.start, plan.variance(level, query))
    if plan.is_exact(level, query):
        return found
    for taken, part in groups(levels_taken(plan, geography), nodes):
        law = law_of(plan, geography.levels, level, query, taken)
        found[part] = np.inf if law is None else law.variance
    return found


def largest_gains(plan: Plan, geography: Geography) -> dict[str, Fraction]:
    """The largest `gain` of a node, by level; 1 where no node took a share."""
    taken = levels_taken(plan, geography)
    most = {level: int(taken[geography.level_slice(level)].max()) for level in geography.levels}
    return {level: gain(plan, geography.levels, level, max(0, one)) for level, one in most.items()}


def _measured(plan: Plan, level: str) -> tuple[str, ...]:
    return tuple(query for query in plan.queries(level) if not plan.is_exact(level, query))
