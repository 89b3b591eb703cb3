"""Households and persons of nodes dealt into linked records: every household with its members.

What can be dealt is told by the rows (`topdown.linked.member_groups`); how many members of every group go to every
class of households is a flow with whole bounds, and within a class members are shared out evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from topdown.errors import DataError
from topdown.geography.tree import IntArray
from topdown.linked.member_groups import Compositions
from topdown.linked.record_faults import LinkedRows
from topdown.linked.universe import NONE, Universe

_MOST_FLOW = np.iinfo(np.int32).max
"""The largest flow that scipy's maximum flow takes."""


class NodeCells(NamedTuple):
    """The whole solution of one node: ``counts`` of ``cells``."""

    cells: IntArray
    counts: IntArray


def members_by_class(compositions: Compositions, households: IntArray, members: IntArray) -> IntArray | None:
    """How many members of every group the households of every class get (classes x groups), from how many
    ``households`` (classes,) and ``members`` (groups,) there are; None where they cannot be dealt."""
    lived = np.flatnonzero(households > 0)
    count, groups = households[lived], len(members)
    least = compositions.least[lived] * count[:, None]
    room = compositions.most[lived] * count[:, None] - least
    left = members - least.sum(axis=0)
    fewest = np.maximum(compositions.total_least[lived] * count - least.sum(axis=1), 0)
    most = compositions.total_most[lived] * count - least.sum(axis=1)
    if (left < 0).any() or (room < 0).any() or (most < fewest).any():
        return None
    # No more flows than there is to be dealt.
    whole = int(left.sum())
    room, most = np.minimum(room, left), np.minimum(most, whole)
    if not int(fewest.sum()) <= whole <= int(most.sum()) or (most < fewest).any():
        return None
    flow = (_flow if whole <= _MOST_FLOW else _large_flow)(room, fewest, most, left)
    if flow is None:
        return None
    dealt = np.zeros((compositions.n_classes, groups), np.int64)
    dealt[lived] = least + flow
    return dealt


def _flow(room: IntArray, fewest: IntArray, most: IntArray, left: IntArray) -> IntArray | None:
    """Whole numbers from 0 to ``room`` (classes x groups), of every class from ``fewest`` to ``most``, of every group
    ``left``; None where there are none.

    A maximum flow from classes to groups; lower bounds as in Ford, Fulkerson 1962, "Flows in Networks".
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    # Nodes: a source and an end of what must flow, an inner source, then classes and groups. Whatever flows at all
    # passes the groups, each of which must be full; of that the classes' least must come from the classes.
    n, groups = room.shape
    start, end, inner = 0, 1, 2
    of_class, of_group = 3 + np.arange(n), 3 + n + np.arange(groups)
    spare = int(left.sum()) - int(fewest.sum())
    tail = np.concatenate([np.full(n, start), [start], np.full(n, inner), np.repeat(of_class, groups), of_group])
    head = np.concatenate([of_class, [inner], of_class, np.tile(of_group, n), np.full(groups, end)])
    capacity = np.concatenate([fewest, [spare], most - fewest, room.reshape(-1), left])
    matrix = csr_array((capacity.astype(np.int32), (tail, head)), shape=(3 + n + groups,) * 2)
    found = maximum_flow(matrix, start, end)
    if found.flow_value != int(left.sum()):
        return None
    return np.asarray(found.flow.tocsr()[of_class][:, of_group].todense()).astype(np.int64)


def _large_flow(room: IntArray, fewest: IntArray, most: IntArray, left: IntArray) -> IntArray | None:
    """As `_flow`, of numbers beyond 32 bits, by a linear program, whose vertices are whole."""
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    n, groups = room.shape
    by_class = kron(eye_array(n), np.ones((1, groups)))
    within: Any = vstack([by_class, -by_class])  # sparse, which the types do not know
    by_group: Any = kron(np.ones((1, n)), eye_array(groups))
    solved = linprog(
        np.zeros(room.size),
        A_ub=within,
        b_ub=np.concatenate([most, -fewest]),
        A_eq=by_group,
        b_eq=left,
        bounds=list(zip(np.zeros(room.size), room.reshape(-1), strict=True)),
        method="highs-ds",
    )
    if solved.status != 0 or solved.x is None:
        return None
    flow = np.rint(solved.x).astype(np.int64).reshape(room.shape)
    own = flow.sum(axis=1)
    right = (flow >= 0).all() and (flow <= room).all() and (flow.sum(axis=0) == left).all()
    return flow if right and (own >= fewest).all() and (own <= most).all() else None


def dealt(universe: Universe, leaves: Iterator[tuple[int, NodeCells]]) -> LinkedRows:
    """The linked records of nodes: the number of each, and its cells.

    Householders and members of a household are rather alike: both are taken in the order of the attributes that say who
    they are, the last attribute first. Raises `DataError` for a node whose persons cannot be dealt.
    """
    pieces = [_of_node(universe, leaf, node) for leaf, node in leaves]
    lead = np.cumsum([0, *(len(one.leaf) for one in pieces)])
    pieces = [one._replace(of=np.where(one.of >= 0, one.of + at, NONE)) for one, at in zip(pieces, lead, strict=False)]
    nothing = LinkedRows(*(np.zeros(0, np.int64) for _ in LinkedRows._fields))
    return LinkedRows(*(np.concatenate(arrays) for arrays in zip(nothing, *pieces, strict=True)))


def _of_node(universe: Universe, leaf: int, node: NodeCells) -> LinkedRows:
    compositions, (cells, counts) = universe.compositions, node
    here = universe.is_household(cells)
    homes = np.repeat(cells[here], counts[here])
    homes = homes[_alike(universe, homes)]
    people = np.repeat(cells[universe.is_member(cells)], counts[universe.is_member(cells)])
    people = people[_alike(universe, people)]
    classes, group = compositions.class_of(homes), universe.group_of(people)
    households = np.bincount(classes, minlength=compositions.n_classes)
    members = np.bincount(group[group >= 0], minlength=len(universe.groups))
    plan = members_by_class(compositions, households, members)
    if plan is None:
        raise DataError(f"{universe.names[1]} of node {leaf} cannot be dealt into its {universe.names[0]}")
    of = np.full(len(people), NONE)
    slots = _slots(compositions, classes, plan)
    for number, own in enumerate(slots):
        of[group == number] = own
    person, heads = universe.person_of(people), universe.person_of(homes)
    whose = np.full(len(people), leaf)
    if universe.householder is None:
        return LinkedRows(np.full(len(homes), leaf), homes, whose, person, of)
    return LinkedRows(
        np.full(len(homes), leaf),
        homes,
        np.concatenate([np.full(len(homes), leaf), whose]),
        np.concatenate([heads, person]),
        np.concatenate([np.arange(len(homes)), of]),
    )


def _alike(universe: Universe, cells: IntArray) -> IntArray:
    """The order of cells by their persons' attributes, the last first."""
    person = universe.person_of(cells)
    if not len(cells) or (person < 0).any():
        return np.argsort(cells, kind="stable")
    return np.lexsort((cells, *np.unravel_index(person, universe.persons.shape)))


def _slots(compositions: Compositions, classes: IntArray, plan: IntArray) -> list[IntArray]:
    """For every group the households (their places in ``classes``), in order, one for every member that they get."""
    found: list[list[IntArray]] = [[] for _ in compositions.groups]
    for kind in np.unique(classes).tolist():
        own = np.flatnonzero(classes == kind)
        turn = 0
        for g, total in enumerate(plan[kind].tolist()):
            # Each its least; then what is left one by one, on from where the last group ended: totals stay even.
            least = int(compositions.least[kind, g])
            rest = total - least * len(own)
            found[g] += [np.repeat(own, least), own[(turn + np.arange(rest)) % len(own)]]
            turn += rest
    return [np.sort(np.concatenate(one or [np.zeros(0, np.int64)])) for one in found]
