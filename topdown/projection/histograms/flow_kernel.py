"""A family's network, compiled: its arcs; pushing flow along cycles until every arc is whole; cancelling cycles of
negative cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from topdown.machine.compiled import compiled
from topdown.projection.cells.rounding import SNAP


@compiled
def _floor(x: float) -> int:
    return int(np.floor(x + SNAP))


@compiled
def _is_fractional(x: float) -> bool:
    return bool(abs(x - np.rint(x)) > SNAP)


@compiled
def _places(labels: Any, place: Any, first: Any) -> int:
    """The groups of cells with equal ``labels`` (cells,): their number, the ``place`` of each cell's group among them,
    and the ``first`` cell of each.
    """
    order = np.argsort(labels, kind="mergesort")
    groups = 0
    for k in range(len(order)):
        if k == 0 or labels[order[k]] != labels[order[k - 1]]:
            first[groups] = order[k]
            groups += 1
        place[order[k]] = groups - 1
    return groups


@compiled
def arcs_of(x: Any, groups: Any, total: Any, tied: bool) -> tuple[Any, Any, Any, Any, Any, Any]:
    """The network of histograms ``x`` (children x cells): for every arc its tail and head, its least and most flow and
    its flow; and the floors of the cells (children x cells).

    ``groups`` (queries x cells): the group of each cell, the coarsest first; ``total`` (cells,): where the children are
    ``tied``, what they add up to. Node 0 is source and sink. The arcs are those of every query, child by child and
    group by group; the cells', child by child; and those that go from the cells' own nodes to node 0.
    """
    (children, cells), depth = x.shape, len(groups)
    place, first = np.empty((depth, cells), np.int64), np.empty((depth, cells), np.int64)
    counts = np.empty(depth, np.int64)
    for query in range(depth):
        counts[query] = _places(groups[query], place[query], first[query])
    arcs = children * counts.sum() + children * cells + cells
    tail, head, flow = np.empty(arcs, np.int32), np.empty(arcs, np.int32), np.empty(arcs)
    low, high = np.empty(arcs, np.int32), np.empty(arcs, np.int32)
    base = np.empty((children, cells), np.int64)
    for c in range(children):
        for k in range(cells):
            base[c, k] = _floor(x[c, k])
    above = np.zeros((children, cells), np.int32)  # the node from which each cell's next arc leads
    sums, floors = np.empty(cells), np.empty(cells, np.int64)
    arc, nodes = 0, 1
    for query in range(depth):
        for c in range(children):
            sums[:] = 0.0
            floors[:] = 0
            for k in range(cells):
                sums[place[query, k]] += x[c, k]
                floors[place[query, k]] += base[c, k]
            for group in range(counts[query]):
                tail[arc], head[arc] = above[c, first[query, group]], nodes + group
                flow[arc], low[arc] = sums[group] - floors[group], _floor(sums[group]) - floors[group]
                high[arc] = low[arc] + _is_fractional(flow[arc])
                arc += 1
            for k in range(cells):
                above[c, k] = nodes + place[query, k]
            nodes += counts[query]
    # The last query's arcs are the cells'; they go on to the cell's own node, where children meet.
    for c in range(children):
        for k in range(cells):
            tail[arc], head[arc], flow[arc] = above[c, k], nodes + k, x[c, k] - base[c, k]
            low[arc] = 0
            high[arc] = _is_fractional(flow[arc])
            arc += 1
    for k in range(cells):
        tail[arc], head[arc] = nodes + k, 0
        last, column = 0.0, int(np.rint(total[k]))
        for c in range(children):
            last += x[c, k] - base[c, k]
            column -= base[c, k]
        flow[arc] = last
        low[arc] = column if tied else 0
        high[arc] = low[arc] + (not tied)
        arc += 1
    return tail, head, low, high, flow, base


@compiled
def costs(flow: Any, first: int, coins: Any, unit: int, coin: int) -> Any:
    """The cost of one more unit on every arc (arcs,): on the cells' arcs, from ``first`` on, 1 - 2 x the fraction in
    ``unit`` steps, with ties broken by ``coins`` of ``coin`` values; 0 on other arcs.
    """
    found = np.zeros(len(flow), np.int64)
    for k in range(len(coins)):
        fraction = min(max(flow[first + k], 0.0), 1.0)
        found[first + k] = int(np.rint((1.0 - 2.0 * fraction) * unit)) * coin + coins[k]
    return found


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
    """Chains of arcs that must have the same flow: where exactly two arcs meet, the flow of one is that of the other.

    Returns for every arc its ``chain`` (arcs,) and whether it leads ``along`` it, for every chain its tail and head in
    new numbers, and the number of nodes that are left.
    """
    arcs = len(tail)
    starts, at = _arcs_of_nodes(tail, head, nodes)
    chain, along = np.full(arcs, -1), np.empty(arcs, np.bool_)
    first, last, number = np.empty(arcs, np.int64), np.empty(arcs, np.int64), np.full(nodes, -1)
    chains, ends = 0, 0
    for loops in range(2):  # the arcs left after all other chains are loops, which may begin anywhere
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

    Cycles are found in the predecessors of the shortest paths of Bellman and Ford, after every pass.
    """
    arcs = len(tail)
    distance, before, mark = np.zeros(nodes, np.int64), np.full(nodes, -1), np.zeros(nodes, np.int64)
    changed = True
    while changed:
        # Distances and predecessors are kept after a push, as a starting point for the next pass.
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
                    # The walk has closed a cycle, along which flow is pushed.
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

    Each is pushed in the cheaper direction, or, where there are ``coins``, in a random one. By conservation no node has
    a single fractional arc, so that every walk along fractional arcs closes a cycle.
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
            up, down = np.inf, np.inf  # how far the cycle may be pushed forwards and backwards
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


@compiled
def made_whole(tail: Any, head: Any, low: Any, high: Any, flow: Any, cost: Any, coins: Any, nodes: int) -> Any:
    """Whole flows (arcs,) between ``low`` and ``high`` near the fractional ``flow``: random ones where ``coins`` are
    given, else those of least ``cost``.
    """
    found = np.empty(len(flow), np.int64)
    count = 0
    for arc in range(len(flow)):
        found[arc] = min(max(int(np.rint(flow[arc])), low[arc]), high[arc])
        count += _is_fractional(flow[arc]) and high[arc] > low[arc]
    if count == 0:
        return found
    open_arcs, count = np.empty(count, np.int64), 0
    for arc in range(len(flow)):
        if _is_fractional(flow[arc]) and high[arc] > low[arc]:
            open_arcs[count] = arc
            count += 1
    chain, along, chain_tail, chain_head, ends = straighten(tail[open_arcs], head[open_arcs], nodes)
    part, of_chain = np.empty(len(chain_tail)), np.zeros(len(chain_tail), np.int64)
    for k in range(count):
        arc = open_arcs[k]
        fraction = flow[arc] - np.floor(flow[arc])
        part[chain[k]] = fraction if along[k] else 1.0 - fraction
        of_chain[chain[k]] += cost[arc] if along[k] else -cost[arc]
    round_cycles(chain_tail, chain_head, part, of_chain, coins, ends)
    up = np.empty(len(part), np.int64)
    for k in range(len(part)):
        up[k] = int(np.rint(part[k]))
    if not len(coins):
        cancel_cycles(chain_tail, chain_head, np.zeros_like(up), of_chain, up, ends)
    for k in range(count):
        arc = open_arcs[k]
        found[arc] = int(np.floor(flow[arc])) + (up[chain[k]] if along[k] else 1 - up[chain[k]])
    return found
