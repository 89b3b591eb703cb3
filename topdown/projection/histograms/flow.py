"""Rounds a family of histograms to whole numbers by a network flow.

The parent's histogram is whole. The result r has whole numbers whose sum over children is the parent's in every cell.
Not only the cells, but every child's sums along a *chain* of nested queries (its total, then finer and finer groups of
cells) are the floor or the ceiling of their values in the fractional histograms x. The sums along a chain form a tree,
and every cell's sum over children is one equation, so that r is a flow in a network with whole bounds; such a flow
exists because the fractional one does.

"nearest": of these the r with the least sum of (r - x)^2 over all cells, by minimum cost flow: an arc's unit costs 1 -
2 (x - floor x). Integer noise makes many costs equal, so random bits break ties. It starts from the fractional
solution, makes it whole along cycles in the cheaper direction, and cancels the remaining cycles of negative cost.
(OR-tools, which has such flows, cannot be loaded beside cvxpy's solvers: both bring a HiGHS of their own.) "unbiased":
a random r whose expectation is x: along a cycle of fractional arcs flow is moved in one direction or the other until an
arc is whole, with the probabilities that keep the mean (dependent rounding: Gandhi, Khuller, Parthasarathy, Srinivasan
2006).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError
from topdown.geography.tree import FloatArray, IntArray
from topdown.noise.randomness import Source, read_exactly
from topdown.wording import shown
from topdown.workload import DETAILED, Query, Schema
from topdown.workload.schema import TIMES, TOTAL

_COST_BITS = 20
_COIN_BITS = 20


def chain(schema: Schema, held: Sequence[Query] = ()) -> list[Query]:
    """A chain of nested queries from the total to the cells, which includes ``held`` and otherwise goes attribute by
    attribute.

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

    tail: npt.NDArray[np.int32]
    head: npt.NDArray[np.int32]
    low: npt.NDArray[np.int32]
    high: npt.NDArray[np.int32]
    flow: FloatArray
    cells: npt.NDArray[np.int32]
    base: IntArray

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(max(self.tail.max(), self.head.max())) + 1


def network(x: FloatArray, total: FloatArray | None, groups: Sequence[IntArray]) -> Network:
    """The network of children's histograms ``x`` (children x cells), which add up to the whole ``total`` (cells,).

    ``groups``: for every query of the chain, the coarsest first, the group of each cell (cells,); the last has every
    cell in a group of its own. Without ``total`` there is one child and no sums: a root.
    """
    from topdown.projection.histograms.flow_kernel import arcs_of

    given = x.sum(axis=0) if total is None else total
    tied = total is not None
    tail, head, low, high, flow, base = arcs_of(np.ascontiguousarray(x), np.stack(groups), given, tied)
    first = len(tail) - x.size - x.shape[1]  # after the groups' arcs, before those that close the circulation
    return Network(tail, head, low, high, flow, first + np.arange(x.size, dtype=np.int32).reshape(x.shape), base)


def nearest(given: Network, source: Source) -> IntArray:
    """The whole histograms (children x cells) nearest to the fractional ones; ``source`` breaks ties."""
    from topdown.projection.histograms.flow_kernel import costs

    coins = np.frombuffer(read_exactly(source, 4 * given.cells.size), np.uint32) >> np.uint32(32 - _COIN_BITS)
    scales = 1 << _COST_BITS, 1 << _COIN_BITS
    return _made_whole(given, costs(given.flow, int(given.cells[0, 0]), coins, *scales), np.zeros(0))


def unbiased(given: Network, source: Source) -> IntArray:
    """Random whole histograms (children x cells) between floors and ceilings whose expectation is the fractional ones.

    Probabilities are exact to 2^-52.
    """
    # Every cycle that is pushed makes an arc whole.
    words = np.frombuffer(read_exactly(source, 8 * len(given.tail)), np.uint64) >> np.uint64(11)
    return _made_whole(given, np.zeros(len(given.tail), np.int64), words.astype(np.float64) * 2.0**-53)


def _made_whole(given: Network, cost: IntArray, coins: FloatArray) -> IntArray:
    """Whole histograms: random ones where ``coins`` are given, else those of least ``cost``."""
    from topdown.projection.histograms.flow_kernel import made_whole

    flow = made_whole(given.tail, given.head, given.low, given.high, given.flow, cost, coins, given.nodes)
    return np.asarray(given.base + flow[given.cells])
