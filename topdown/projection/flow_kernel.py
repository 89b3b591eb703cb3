"""Cycles in a family's network, compiled: pushed until every arc is whole, and while they have a negative cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from topdown.machine.compiled import compiled
from topdown.projection.rounding import SNAP


@compiled
def _arcs_of_nodes(tail: Any, head: Any, nodes: int) -> tuple[Any, Any]:
    """The arcs at every node: those of node k are ``at[starts[k]:starts[k + 1]]``."""
    arcs = len(tail)
    starts = np.zeros(nodes + 1, np.int64)
    for arc in range(arcs):
        starts[tail[arc] + 1] += 1
        starts[head[arc] + 1] += 1
    for node in range(nodes):
        starts[node + 1] += starts[node]
    filled, at = starts[:-1].copy(), np.empty(2 * arcs, np.int64)
    for arc in range(arcs):
        at[filled[tail[arc]]] = arc
        filled[tail[arc]] += 1
        at[filled[head[arc]]] = arc
        filled[head[arc]] += 1
    return starts, at


@compiled
def straighten(tail: Any, head: Any, nodes: int) -> tuple[Any, Any, Any, Any, int]:
    """Chains of arcs on which one number decides: where two arcs meet and no third, what one brings the other takes.

    Of every arc its ``chain`` (arcs,) and whether it leads ``along`` it; of every chain the nodes, numbered anew, from
    which and to which it leads; how many nodes are left.
    """
    arcs = len(tail)
    starts, at = _arcs_of_nodes(tail, head, nodes)
    chain, along = np.full(arcs, -1), np.empty(arcs, np.bool_)
    first, last, number = np.empty(arcs, np.int64), np.empty(arcs, np.int64), np.full(nodes, -1)
    chains, ends = 0, 0
    for loops in range(2):  # what is left when all other chains are found are loops, which begin anywhere
        for node in range(nodes):
            if starts[node + 1] - starts[node] == 2 and not loops:
                continue
            for place in range(starts[node], starts[node + 1]):
                arc = at[place]
                if chain[arc] >= 0:
                    continue
                if number[node] < 0:
                    number[node], ends = ends, ends + 1
                here = node
                while True:
                    chain[arc] = chains
                    along[arc] = tail[arc] == here
                    here = head[arc] if along[arc] else tail[arc]
                    if number[here] >= 0 or starts[here + 1] - starts[here] != 2:
                        break
                    arc = at[starts[here]] if at[starts[here]] != arc else at[starts[here] + 1]
                if number[here] < 0:
                    number[here], ends = ends, ends + 1
                first[chains], last[chains] = number[node], number[here]
                chains += 1
    return chain, along, first[:chains], last[:chains], ends


@compiled
def cancel_cycles(tail: Any, head: Any, low: Any, cost: Any, flow: Any, nodes: int) -> None:
    """Make whole ``flow``, between ``low`` and one more, of least cost, in place: by pushing along cycles of negative
    cost until there is none (Klein 1967).

    Which cycles there are is read off the predecessors of the shortest paths of Bellman and Ford, after every pass.
    """
    arcs = len(tail)
    distance, before, mark = np.zeros(nodes, np.int64), np.full(nodes, -1), np.zeros(nodes, np.int64)
    changed = True
    while changed:
        # Distances and predecessors stay: what a pushed cycle leaves of them is as good a beginning as any.
        changed, found = True, False
        while changed and not found:
            changed = False
            for arc in range(arcs):
                # A unit more leads from tail to head, a unit less the other way.
                up = flow[arc] == low[arc]
                start, end = (tail[arc], head[arc]) if up else (head[arc], tail[arc])
                length = distance[start] + (cost[arc] if up else -cost[arc])
                if length < distance[end]:
                    distance[end] = length
                    before[end] = arc
                    changed = True
            if not changed:
                break
            mark[:] = 0
            for first in range(nodes):
                node, walk = first, first + 1
                while node >= 0 and mark[node] == 0:
                    mark[node] = walk
                    arc = before[node]
                    node = -1 if arc < 0 else tail[arc] if flow[arc] == low[arc] else head[arc]
                if node >= 0 and mark[node] == walk:
                    # The walk came back to itself: the cycle that it closed is pushed.
                    last = node
                    while True:
                        arc = before[node]
                        up = flow[arc] == low[arc]
                        start = tail[arc] if up else head[arc]
                        flow[arc] += 1 if up else -1
                        before[node] = -1
                        node = start
                        if node == last:
                            break
                    found = True
        changed = found


@compiled
def round_cycles(tail: Any, head: Any, flow: Any, cost: Any, coins: Any, nodes: int) -> None:
    """Make every arc's ``flow`` whole, in place, along cycles of arcs that are not.

    Each is pushed the way that costs less, or, where there are ``coins``, one of both by chance. Conservation leaves no
    node with one fractional arc, so that whoever walks along them comes back to where he was.
    """
    arcs = len(tail)
    starts, at = _arcs_of_nodes(tail, head, nodes)
    done = np.zeros(arcs, np.bool_)
    seen = np.full(nodes, -1)
    walk, way = np.empty(nodes + 1, np.int64), np.empty(nodes + 1, np.int64)
    used = 0
    for first in range(arcs):
        while not done[first]:
            # A walk of fractional arcs from one end of the first, until a node comes again.
            length, node, last = 0, tail[first], -1
            closed = -1
            while closed < 0:
                seen[node] = length
                way[length] = node
                following = -1
                while starts[node] < starts[node + 1] and done[at[starts[node]]]:
                    starts[node] += 1
                for place in range(starts[node], starts[node + 1]):
                    if not done[at[place]] and at[place] != last:
                        following = at[place]
                        break
                if following < 0:
                    break  # rounding of float64 left one arc alone
                walk[length] = following
                length += 1
                last = following
                node = head[following] if tail[following] == node else tail[following]
                closed = seen[node]
            for step in range(length):
                seen[way[step]] = -1
            if closed < 0:
                seen[node] = -1
                alone = last if last >= 0 else first
                flow[alone] = np.rint(flow[alone])
                done[alone] = True
                continue
            up, down = np.inf, np.inf  # how far the cycle may be pushed its own way, and the other
            for step in range(closed, length):
                arc = walk[step]
                above, below = np.ceil(flow[arc]) - flow[arc], flow[arc] - np.floor(flow[arc])
                with_it = tail[arc] == way[step]
                up = min(up, above if with_it else below)
                down = min(down, below if with_it else above)
            if len(coins):
                push = up if coins[used] * (up + down) < down else -down
                used += 1
            else:
                total = 0
                for step in range(closed, length):
                    total += cost[walk[step]] if tail[walk[step]] == way[step] else -cost[walk[step]]
                push = up if total <= 0 else -down
            for step in range(closed, length):
                arc = walk[step]
                flow[arc] += push if tail[arc] == way[step] else -push
                if abs(flow[arc] - np.rint(flow[arc])) < SNAP:
                    flow[arc] = np.rint(flow[arc])
                    done[arc] = True
