"""Conditions that every node's histogram must meet: limits of queries' answers, and what they imply for the nodes
above.

Exact answers are limits with least = most. A parent's answer lies between the sums of its children's least and most. A
child's limits of one query also limit its answers to finer queries; otherwise a parent could get an answer to which its
children cannot add up.
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
    """Least and most of a query's answers at the nodes of a level, (nodes x answers) each; 0 and inf for no limit."""

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
        """The conditions that exact answers and the limits ``given`` (nodes x answers) imply at and above their nodes.
        Raises `Contradiction` where they cannot be met by a node, or by its children together.
        """
        given = given or {}
        queries = {q for level in measured for q, (_, variance) in level.items() if (variance == 0).any()} | set(given)
        # From coarse to fine, so that what a query says of its parts reaches theirs; on the way up from fine to coarse.
        ordered = sorted(queries, key=lambda query: (query.n_answers, query.name))
        finer = {q: [p for p in ordered if q.is_part_of(p) and p != q] for q in ordered}
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
            for query, parts in reversed(finer.items()):
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
                raise Contradiction(node, f"its {query.name!r} must be above 0, but its parent has none")
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
            raise Contradiction(
                first, "its parent has records in a cell in which neither it nor any sibling may have any"
            )
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
    """The limits of ``query`` that follow from those of ``part``; the answers of ``query`` are sums of answers of
    ``part``.
    """
    answer = query.answers_of(part.examples())
    order = np.argsort(answer, kind="stable")
    starts = np.searchsorted(answer[order], np.arange(query.n_answers))
    return Limits(*(np.add.reduceat(one[:, order], starts, axis=1) for one in limits))


def _with_parts(limits: Mapping[Query, Limits], finer: Mapping[Query, list[Query]]) -> dict[Query, Limits]:
    """``limits`` of a level's nodes, with those of the ``finer`` queries (from coarse to fine) narrowed by the limits
    of their sums. A part is at most the upper limit of the sum less the lower limits of the other parts, and at least
    the lower limit of the sum less their upper limits. Only parents need this: it adds nothing to a node's own program.
    """
    found = dict(limits)
    for query, parts in finer.items():
        for part in (part for part in parts if query in found and part in found):
            own, whole = found[part], found[query]
            answer = query.answers_of(part.examples())
            open_ended = np.isinf(own.high)
            sums = np.zeros((3, *whole.high.shape))
            for k, one in enumerate((own.low, np.where(open_ended, 0.0, own.high), open_ended)):
                np.add.at(sums[k].T, answer, one.T)
            least, most, endless = sums[:, :, answer]
            most = np.where(endless > open_ended, np.inf, most - np.where(open_ended, 0.0, own.high))
            low = whole.low[:, answer] - most
            high = whole.high[:, answer] - (least - own.low)
            found[part] = _tightened(own, Limits(np.maximum(low, 0.0), high))
    return found


def _tightened(one: Limits | None, other: Limits) -> Limits:
    return other if one is None else Limits(np.maximum(one.low, other.low), np.minimum(one.high, other.high))


def _from_below(tree: Tree, index: int, below: Mapping[Query, Limits]) -> dict[Query, Limits]:
    families = tree.families(index)
    return {
        query: Limits(families.total_rows(limits.low), families.total_rows(limits.high))
        for query, limits in below.items()
    }
