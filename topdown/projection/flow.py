"""Whole numbers for a family of histograms, by a network flow.

The parent's histogram is whole. Of the children's, whole numbers r are wanted whose sum over children is the parent's
in every cell, and of which not only the cells but every child's sums along a *chain* of nested queries (its total, then
finer and finer groups of cells) are the floor or the ceiling of what they are in the fractional histograms x. Chains
branch like a tree, and every cell's sum over children is one equation: a network with whole bounds, so that the
fractional solution proves that a whole one exists.

"nearest": of these the r with the least sum of (r - x)^2 over all cells, by minimum cost flow: an arc's unit costs
1 - 2 (x - floor x). Integer noise makes many costs equal, so fresh random bits come after the cost's own. It starts
from the fractional solution, made whole along cycles the way that costs less, and cancels what cycles of negative cost
are left. (OR-tools, which has such flows, cannot be loaded beside cvxpy's solvers: both bring a HiGHS of their own.)
"unbiased": a random one whose expectation is x, cycle by cycle: along a cycle of fractional arcs as much is moved to
one side or to the other until an arc is whole, with the probabilities that keep the mean (dependent rounding: Gandhi,
Khuller, Parthasarathy, Srinivasan 2006).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, IntArray
from topdown.noise.randomness import Source, read_exactly
from topdown.projection.grouping import grouped
from topdown.projection.rounding import SNAP
from topdown.wording import shown
from topdown.workload import DETAILED, Query, Schema
from topdown.workload.schema import TIMES, TOTAL

_COST_BITS = 20
_COIN_BITS = 20


def chain(schema: Schema, held: Sequence[Query] = ()) -> list[Query]:
    """Nested queries from the total to the cells: ``held``, which must be among them, and else attribute by attribute.

    The total, then the recodes and the categories of the first attribute, then these by the second, and so on: the
    attributes come in the schema's order. Raises `ConfigError` for two held queries of which neither is a part of the
    other.
    """
    found = sorted(dict.fromkeys(held), key=lambda query: query.n_answers)
    for one, other in itertools.pairwise(found):
        if not one.is_part_of(other):
            raise ConfigError(
                f"queries {shown(one.name)} and {shown(other.name)} are exact or have limits, and neither is a sum of "
                f"the other's answers; whole numbers are made along one chain of nested queries: keep one of them, or "
                f"hold {shown(one.name + f' {TIMES} ' + other.name)}"
            )
    kept: list[str] = []
    candidates = [TOTAL]
    for attribute in schema.attributes:
        recodes = sorted((r for r in schema.recodes if r.attribute == attribute.name), key=lambda r: len(r.groups))
        candidates += [f" {TIMES} ".join([*kept, recode.name]) for recode in recodes]
        kept.append(attribute.name)
        candidates.append(f" {TIMES} ".join(kept))
    for text in [*candidates[:-1], DETAILED]:
        query = Query.parse(text, schema)
        fits = all(query.is_part_of(other) or other.is_part_of(query) for other in found)
        if fits and query not in found and not any(_same_groups(query, other) for other in found):
            found.append(query)
    return sorted(found, key=lambda query: query.n_answers)


def _same_groups(one: Query, other: Query) -> bool:
    return one.n_answers == other.n_answers and one.is_part_of(other) and other.is_part_of(one)


@dataclass(frozen=True, eq=False)
class Network:
    """The network of one family: circulations between ``low`` and ``high`` near ``flow``, which is one.

    Arcs lead from ``tail`` to ``head``. ``cells`` (children x cells): the arc of each cell, whose ``flow`` is its
    fraction, beside the floors ``base``.
    """

    tail: IntArray
    head: IntArray
    low: IntArray
    high: IntArray
    flow: FloatArray
    cells: IntArray
    base: IntArray

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(max(self.tail.max(), self.head.max())) + 1


class _Arcs(NamedTuple):
    tail: IntArray
    head: IntArray
    flow: FloatArray
    floor: IntArray


def network(x: FloatArray, total: FloatArray | None, groups: Sequence[IntArray]) -> Network:
    """The network of children's histograms ``x`` (children x cells), which add up to the whole ``total`` (cells,).

    ``groups``: for every query of the chain, the coarsest first, the group of each cell (cells,); the last has every
    cell in a group of its own. Without ``total`` there is one child and no sums: a root.
    """
    count, n_cells = x.shape
    base = _floor(x)
    arcs: list[_Arcs] = []
    above = np.zeros((count, n_cells), np.int64)  # the node from which each cell's next arc leads
    nodes = 1  # node 0 is where everything begins and ends
    for group in groups:
        names, place, order, starts = grouped(group)
        sums = np.add.reduceat(x[:, order], starts, axis=1)
        floors = np.add.reduceat(base[:, order], starts, axis=1)
        tail = above[:, order[starts]]
        head = nodes + np.arange(count * len(names)).reshape(count, -1)
        nodes += count * len(names)
        arcs.append(_Arcs(tail.ravel(), head.ravel(), (sums - floors).ravel(), (_floor(sums) - floors).ravel()))
        above = head[:, place]
    sinks = nodes + np.arange(n_cells)
    every = np.broadcast_to(sinks, (count, n_cells))
    # The last query's arcs are the cells'; they go on to the cell's own node, where children meet.
    arcs.append(_Arcs(above.ravel(), every.ravel(), arcs[-1].flow, arcs[-1].floor))
    column = np.rint(x.sum(axis=0) if total is None else total).astype(np.int64) - base.sum(axis=0)
    last = (x - base).sum(axis=0)
    closing = _Arcs(sinks, np.zeros(n_cells, np.int64), last, column)
    low = np.concatenate([*(arc.floor for arc in arcs), np.zeros_like(column) if total is None else column])
    fractional = np.concatenate([_is_fractional(arc.flow) for arc in arcs])
    high = low + np.concatenate([fractional, np.full(n_cells, total is None)])
    first = sum(len(arc.tail) for arc in arcs[:-1])
    return Network(
        np.concatenate([*(arc.tail for arc in arcs), closing.tail]),
        np.concatenate([*(arc.head for arc in arcs), closing.head]),
        low,
        high,
        np.concatenate([*(arc.flow for arc in arcs), closing.flow]),
        first + np.arange(count * n_cells).reshape(count, n_cells),
        base,
    )


def _floor(x: FloatArray) -> IntArray:
    return np.floor(x + SNAP).astype(np.int64)


def _is_fractional(x: FloatArray) -> npt.NDArray[np.bool_]:
    return np.asarray(np.abs(x - np.rint(x)) > SNAP)


def nearest(given: Network, source: Source) -> IntArray:
    """The whole histograms (children x cells) nearest to the fractional ones; ``source`` breaks ties."""
    cost = np.zeros(len(given.tail), np.int64)
    cells = given.cells.ravel()
    fraction = np.clip(given.flow[cells], 0.0, 1.0)
    cost[cells] = np.rint((1.0 - 2.0 * fraction) * (1 << _COST_BITS)).astype(np.int64) << _COIN_BITS
    coins = np.frombuffer(read_exactly(source, 4 * len(cells)), np.uint32) >> np.uint32(32 - _COIN_BITS)
    cost[cells] += coins.astype(np.int64)
    return _made_whole(given, cost, np.zeros(0))


def unbiased(given: Network, source: Source) -> IntArray:
    """Random whole histograms (children x cells) between floors and ceilings whose expectation is the fractional ones.

    Probabilities are exact to 2^-52.
    """
    # Every cycle that is pushed makes an arc whole.
    words = np.frombuffer(read_exactly(source, 8 * len(given.tail)), np.uint64) >> np.uint64(11)
    return _made_whole(given, np.zeros(len(given.tail), np.int64), words.astype(np.float64) * 2.0**-53)


def _made_whole(given: Network, cost: IntArray, coins: FloatArray) -> IntArray:
    """Whole histograms: by ``coins`` where there are any, else those of least ``cost``."""
    from topdown.projection.flow_kernel import cancel_cycles, round_cycles, straighten

    fractional = np.flatnonzero(_is_fractional(given.flow) & (given.high > given.low))
    flow = np.clip(np.rint(given.flow).astype(np.int64), given.low, given.high)
    if len(fractional):
        chain, along, tail, head, count = straighten(given.tail[fractional], given.head[fractional], given.nodes)
        low = np.floor(given.flow[fractional])
        fraction = given.flow[fractional] - low
        part, of_chain = np.empty(len(tail)), np.zeros(len(tail), np.int64)
        part[chain] = np.where(along, fraction, 1.0 - fraction)
        np.add.at(of_chain, chain, np.where(along, cost[fractional], -cost[fractional]))
        round_cycles(tail, head, part, of_chain, coins, count)
        up = np.rint(part).astype(np.int64)
        if not len(coins):
            cancel_cycles(tail, head, np.zeros_like(up), of_chain, up, count)
        flow[fractional] = low.astype(np.int64) + np.where(along, up[chain], 1 - up[chain])
    return np.asarray(given.base + flow[given.cells])
