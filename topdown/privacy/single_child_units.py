"""Units with a single child: what one could measure twice is measured once, at the upper of the two.

A unit and its only child have the same counts. Under "move-up" the child is not measured, and its level's share goes to
its parent, whose queries each get their part of it; along a chain of single children all goes to the uppermost. On
every way from the root to a leaf the shares add up to what they were, and a record is on one way, or moves from one to
another of the same budget, so that the total loss is the same: of pure privacy the epsilons add up along the way, of
zero-concentrated privacy each way counts half. Source: the "bypass" of the 2020 production run
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
"""What `levels_taken` says of a node that gave its share to its parent."""


LevelsArray = npt.NDArray[np.int16]


def levels_taken(plan: Plan, geography: Geography) -> LevelsArray:
    """Of how many levels below it every node (nodes,) has the share beside its own; `GIVEN` where it has none.

    A parent whose level is not measured, or exact, takes nothing. ``plan``: with its shares.
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
        # A child that has given cannot be here: it gives to this very parent.
        found[families.parents.start + single] = 1 + found[below]
        found[below] = GIVEN
    return found


def groups(taken: LevelsArray, nodes: slice) -> Iterator[tuple[int, slice | IntArray]]:
    """The nodes of a level, counted from its first, that are measured alike: how many levels' shares they have."""
    # Mostly no node takes anything, and millions of zeros need not be sorted.
    kinds = np.unique(taken[nodes]) if taken[nodes].any() else np.zeros(1, np.int16)
    for kind in kinds.tolist():
        yield kind, slice(0, nodes.stop - nodes.start) if len(kinds) == 1 else np.flatnonzero(taken[nodes] == kind)


def gain(plan: Plan, levels: Sequence[str], level: str, taken: int) -> Fraction:
    """How many times its own share a node of ``level`` has that took those of ``taken`` levels below."""
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
    """By level the largest `gain` of a node; 1 where none took anything."""
    taken = levels_taken(plan, geography)
    most = {level: int(taken[geography.level_slice(level)].max()) for level in geography.levels}
    return {level: gain(plan, geography.levels, level, max(0, one)) for level, one in most.items()}


def _measured(plan: Plan, level: str) -> tuple[str, ...]:
    return tuple(query for query in plan.queries(level) if not plan.is_exact(level, query))
