"""What every node's histogram must be, whatever the noise says: limits of queries' answers, and what they imply above.

Exact answers are limits that meet. A parent's answer is at least the sum of what its children's must be at least, and
at most that of what they may be at most, where a child's limits of one query also limit its answers to finer ones:
without these a parent could get what its children cannot add up to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topdown.geography.tree import FloatArray, IntArray, Tree
from topdown.measurements.measurements import Answers
from topdown.projection.invariants import Contradiction
from topdown.workload import Query, Schema

_ROUNDING = 1e-6
"""Limits may disagree by this much, in counts; those of whole numbers that differ do by more."""


class Limits(NamedTuple):
    """Least and most of a query's answers at the nodes of a level, (nodes x answers) each; 0 and inf say nothing."""

    low: FloatArray
    high: FloatArray


class Rows(NamedTuple):
    """The conditions of one family on some cells, as `family_kernel.solve_family` takes them.

    ``allowed`` (children x cells), ``rows`` (rows x cells), ``low`` and ``high`` (children x rows).
    """

    allowed: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.bool_]
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class Conditions:
    """``limits``: level by level, root first, those of the queries that have any."""

    tree: Tree
    limits: list[dict[Query, Limits]]

    @classmethod
    def of(
        cls, tree: Tree, measured: list[dict[Query, Answers]], given: Mapping[Query, Limits] | None = None
    ) -> Conditions:
        """What exact answers and limits that are ``given`` (nodes x answers) ask for at and above their nodes.

        Raises `Contradiction` where what is asked for cannot be: of a node, or of its children together.
        """
        given = given or {}
        queries = {q for level in measured for q, (_, variance) in level.items() if (variance == 0).any()} | set(given)
        finer = {q: [p for p in queries if q.is_part_of(p) and p != q] for q in queries}
        found: list[dict[Query, Limits]] = []
        for index in range(tree.n_levels - 1, -1, -1):
            here = _from_below(tree, index, _with_parts(found[-1], finer)) if found else {}
            nodes = tree.level(index)
            for query, own in given.items():
                here[query] = _tightened(here.get(query), Limits(own.low[nodes], own.high[nodes]))
                _require_order(here[query], query, nodes.start)
            for query, (values, variance) in measured[index].items():
                exact = (variance == 0)[:, None]
                if not exact.any():
                    continue
                low, high = here.get(query, Limits(np.zeros(values.shape), np.full(values.shape, np.inf)))
                wrong = exact & ((values < low - _ROUNDING) | (values > high + _ROUNDING))
                if wrong.any():
                    node = nodes.start + int(np.flatnonzero(wrong.any(axis=1))[0])
                    row, answer = node - nodes.start, int(np.flatnonzero(wrong[node - nodes.start])[0])
                    raise Contradiction(
                        node,
                        f"query {query.name!r}, {query.labels()[answer]!r}: its exact answer is "
                        f"{values[row, answer]:.0f}, and by its limits and its children's it must be "
                        f"{_asked(low[row, answer], high[row, answer])}",
                    )
                here[query] = Limits(np.where(exact, values, low), np.where(exact, values, high))
            for query, parts in finer.items():
                for part in parts:
                    if part in here:
                        here[query] = _tightened(here.get(query), _added_up(here[part], part, query))
                        _require_order(here[query], query, nodes.start)
            found.append(here)
        return cls(tree, found[::-1])

    def rows(self, index: int, nodes: slice, cells: IntArray, total: FloatArray | None) -> Rows:
        """The conditions of ``nodes`` (numbered from the level's first) on ``cells``, of which their parent has
        ``total``. Raises `Contradiction` where no cell is left that could meet one.
        """
        count, first = nodes.stop - nodes.start, self.tree.level(index).start + nodes.start
        allowed = np.ones((count, len(cells)), np.bool_)
        rows, low, high = [], [], []
        for query, limits in self.limits[index].items():
            answers, place = np.unique(query.answers_of(cells), return_inverse=True)
            without = limits.low[nodes] > _ROUNDING
            without[:, answers] = False
            if without.any():
                node = first + int(np.flatnonzero(without.any(axis=1))[0])
                raise Contradiction(node, f"its {query.name!r} must be above 0 where its parent has nothing")
            least, most = limits.low[nodes][:, answers], limits.high[nodes][:, answers]
            inside = place.reshape(-1) == np.arange(len(answers))[:, None]
            closed = most <= 0
            allowed &= ~(closed[:, :, None] & inside).any(axis=1)
            least, most = np.where(closed | (least <= 0), -np.inf, least), np.where(closed, np.inf, most)
            if total is not None:
                most = np.where((most >= inside @ total) & (least < most), np.inf, most)
            asks = (np.isfinite(least) | np.isfinite(most)).any(axis=0)
            rows.append(inside[asks])
            low.append(least[:, asks])
            high.append(most[:, asks])
        none = np.zeros((count, 0))
        found = Rows(
            allowed,
            np.concatenate([np.zeros((0, len(cells)), np.bool_), *rows]),
            np.concatenate([none, *low], axis=1),
            np.concatenate([none, *high], axis=1),
        )
        if total is not None and not allowed.any(axis=0).all():
            raise Contradiction(first, "its parent has records that neither it nor any sibling may have")
        return found

    def exact(self, schema: Schema) -> npt.NDArray[np.bool_]:
        """Which cells (nodes x cells) are known whatever was measured: their limits meet, or they are impossible."""
        found = np.zeros((self.tree.n_nodes, schema.n_cells), np.bool_)
        found[:, schema.impossible_cells()] = True
        for index, level in enumerate(self.limits):
            nodes = self.tree.level(index)
            for query, (low, high) in level.items():
                alone = query.spread(np.asarray(query.n_answers == schema.n_cells) | (high == 0))
                found[nodes] |= alone & query.spread(low == high)
        return found


def _require_order(limits: Limits, query: Query, first: int) -> None:
    """Raises `Contradiction` naming the node whose least is above its most; ``first``: the number of the first node."""
    crossed = np.argwhere(limits.low > limits.high + _ROUNDING)
    if len(crossed):
        node, answer = (int(k) for k in crossed[0])
        raise Contradiction(
            first + node,
            f"query {query.name!r}, {query.labels()[answer]!r}: it must be "
            f"{_asked(limits.low[node, answer], limits.high[node, answer])}, by its own limits and its children's",
        )


def _asked(low: float, high: float) -> str:
    """What an answer must be, in words."""
    return f"at least {low:.0f}" if np.isinf(high) else f"at least {low:.0f} and at most {high:.0f}"


def _added_up(limits: Limits, part: Query, query: Query) -> Limits:
    """Limits of ``query`` that those of ``part``, of whose answers its own are sums, imply."""
    answer = query.answers_of(part.examples())
    order = np.argsort(answer, kind="stable")
    starts = np.searchsorted(answer[order], np.arange(query.n_answers))
    return Limits(*(np.add.reduceat(one[:, order], starts, axis=1) for one in limits))


def _with_parts(limits: Mapping[Query, Limits], finer: Mapping[Query, list[Query]]) -> dict[Query, Limits]:
    """``limits`` of a level's nodes, those of the ``finer`` parts of a query as narrow as the query's own make them.

    A part is at most its sum, and at least what the sum must be at least without the other parts' most. For parents
    alone: to a node's own program it says nothing new.
    """
    found = dict(limits)
    for query, parts in finer.items():
        for part in (part for part in parts if query in found and part in found):
            own, whole = found[part], found[query]
            answer = query.answers_of(part.examples())
            open_ended = np.isinf(own.high)
            most = np.zeros((2, *whole.high.shape))
            for k, one in enumerate((np.where(open_ended, 0.0, own.high), open_ended)):
                np.add.at(most[k].T, answer, one.T)
            others = most[0][:, answer] - np.where(open_ended, 0.0, own.high)
            closed = most[1][:, answer] - open_ended == 0
            least = np.where(closed, whole.low[:, answer] - others, 0.0)
            found[part] = _tightened(own, Limits(least, whole.high[:, answer]))
    return found


def _tightened(one: Limits | None, other: Limits) -> Limits:
    return other if one is None else Limits(np.maximum(one.low, other.low), np.minimum(one.high, other.high))


def _from_below(tree: Tree, index: int, below: Mapping[Query, Limits]) -> dict[Query, Limits]:
    families = tree.families(index)
    return {
        query: Limits(families.total_rows(limits.low), families.total_rows(limits.high))
        for query, limits in below.items()
    }
