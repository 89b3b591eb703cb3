"""What a study computes errors of: the cells, or the answers to queries; at the measured nodes, or on a spine at what
is published of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, nearest
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.geography.unit_sums import area_sums, published, published_sums
from topdown.noise import Law
from topdown.privacy.plan import Plan
from topdown.projection.histograms.families import Sparse
from topdown.wording import listed, shown
from topdown.workload import DETAILED, TOTAL, Query, Schema


@dataclass(frozen=True)
class Followed:
    """The answers to ``queries``, one query after the other, with their ``labels``.

    ``of_query`` (answers,): to which query every one belongs. ``are_cells``: whether they are the histogram's cells.
    """

    queries: tuple[Query, ...]
    labels: tuple[str, ...]
    of_query: tuple[str, ...]
    are_cells: bool

    @classmethod
    def of(cls, schema: Schema, cells: Sequence[str], names: Iterable[str] | None) -> Followed:
        """The queries that ``names`` names, each once; without any the ``cells``, by their names. An answer's label has
        its query and its categories, "sex * age: female × child"; the total is "total". Raises `ConfigError` for an
        unknown query, one that is named twice, and for none.
        """
        if names is None:
            return cls((Query.parse(DETAILED, schema),), tuple(cells), (DETAILED,) * len(cells), True)
        queries = tuple(Query.parse(name, schema) for name in names)
        named = [query.name for query in queries]
        if not queries or len(set(named)) != len(named):
            raise ConfigError(f"queries {listed(named)}: name at least one, and each only once")
        labels, of_query = [], []
        for query in queries:
            labels += [TOTAL] if query.name == TOTAL else [f"{query.name}: {one}" for one in query.labels(" × ")]
            of_query += [query.name] * query.n_answers
        return cls(queries, tuple(labels), tuple(of_query), False)

    def answer(self, typed: str, where: str) -> str:
        """The label that ``typed`` means: the label itself, or, where that is unique, the label without its query; "*"
        may replace "×". Raises `ConfigError`, for the setting ``where``, if there is none or more than one.
        """
        if typed in self.labels:
            return typed

        def plain(text: str) -> str:
            return " ".join(text.replace("×", " * ").replace("*", " * ").split())

        meant = [
            label for label in self.labels if plain(typed) in (plain(label), plain(label.partition(": ")[2] or label))
        ]
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise ConfigError(f"{where}: {shown(typed)} may be {listed(meant)}; name the query too")
        raise ConfigError(
            f"{where} names {shown(typed)}; there are {listed(self.labels, 400)}{nearest(typed, self.labels)} (topdown "
            "schema --answers lists them all)"
        )

    @property
    def columns_of_queries(self) -> list[tuple[Query, int]]:
        """For every answer its query and its number among the query's answers."""
        return [(query, k) for query in self.queries for k in range(query.n_answers)]

    def columns(self, query: str) -> slice:
        """The answers of a query that is followed."""
        if query not in self.of_query:
            raise ConfigError(f"query {shown(query)} is not followed; {listed(list(dict.fromkeys(self.of_query)))} are")
        first = self.of_query.index(query)
        return slice(first, first + self.of_query.count(query))

    def answers(self, histograms: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The answers (..., answers, nodes) of dense histograms (..., cells, nodes)."""
        if self.are_cells:
            return histograms
        turned = histograms.swapaxes(-1, -2)
        return np.concatenate([query.answers(turned).swapaxes(-1, -2) for query in self.queries], axis=-2)

    def sparse_answers(self, histograms: Sequence[Sparse]) -> FloatArray:
        """The answers (answers, nodes) of histograms that are kept as entries, the cells that are not 0."""
        nodes = np.repeat(np.arange(len(histograms)), [len(one.cells) for one in histograms])
        cells = np.concatenate([one.cells for one in histograms])
        values = np.concatenate([np.asarray(one.values, dtype=np.float64) for one in histograms])
        found = [query.sparse_answers(nodes, cells, values, len(histograms)) for query in self.queries]
        return np.asarray(np.concatenate(found, axis=1).T)


@dataclass(frozen=True, eq=False)
class Reported:
    """The ``units`` that a study reports on and, by the names of their kinds, trees of ``areas`` (the root and the
    areas): the rows of its table, units first, then the areas kind by kind.

    ``node`` (entries,), ``starts`` (rows,): on a spine the measured nodes that the rows are sums of, row by row, and
    the place of each row's first; None where the rows are the measured nodes.
    """

    units: Geography
    areas: Mapping[str, Geography] = field(default_factory=dict)
    node: IntArray | None = field(default=None, repr=False)
    starts: IntArray | None = field(default=None, repr=False)

    @classmethod
    def of(cls, geography: Geography) -> Reported:
        """Of a study in which the nodes of ``geography`` are measured."""
        units, kinds = published_sums(geography), area_sums(geography)
        if units is None:
            return cls(geography)
        # Of every kind without the root, which is among the units.
        pieces = [(units.node, np.diff(units.starts))]
        pieces += [(one.node[one.starts[1] :], np.diff(one.starts[1:])) for one in kinds.values()]
        node, sizes = (np.concatenate(one) for one in zip(*pieces, strict=True))
        areas = {kind: one.geography for kind, one in kinds.items()}
        return cls(published(geography), areas, node, np.cumsum(sizes) - sizes)

    @cached_property
    def levels(self) -> dict[str, slice]:
        """The rows of every level of the units, and of every kind of areas."""
        found = {level: self.units.level_slice(level) for level in self.units.levels}
        ends = np.cumsum([self.units.n_nodes, *(one.n_leaves for one in self.areas.values())]).tolist()
        return found | {kind: slice(*two) for kind, two in zip(self.areas, itertools.pairwise(ends), strict=True)}

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self.units.n_nodes if self.starts is None else len(self.starts)

    def at(self, values: npt.NDArray[Any]) -> FloatArray:
        """The sums (..., rows) of ``values`` (..., nodes)."""
        if self.node is None or self.starts is None:
            return values
        return np.asarray(np.add.reduceat(values[..., self.node], self.starts, axis=-1))

    @property
    def sizes(self) -> IntArray:
        """Of how many nodes every row is the sum (rows,)."""
        if self.node is None or self.starts is None:
            return np.ones(self.n_rows, np.int64)
        return np.diff(self.starts, append=len(self.node))


def drawn_law(plan: Plan, level: str, query: str) -> Law | None:
    """The law of a study's noise on a level's query; None where it is exact or not measured."""
    return plan.law(level, query, continuous=True) if query in plan.queries(level) else None


def compared_law(law: Law | None, plan: Plan, level: str, query: str, reference: str) -> Law | None:
    """The law that residuals are compared with where noise of ``law`` was drawn: that itself, or where ``reference`` is
    not "noise" the continuous one of the same parameter."""
    return law if law is None or reference == "noise" else plan.smooth_law(level, query)


def followed_noise(
    plan: Plan, geography: Geography, followed: Followed
) -> tuple[tuple[tuple[Law | None, ...], ...], FloatArray]:
    """By level and answer the law of a study's noise on it, None where it is exact or not measured itself; and its
    variance (answers, nodes), 0 where it is exact and infinite where it is not measured."""
    laws, variance = [], np.full((len(followed.labels), geography.n_nodes), np.inf)
    for level in geography.levels:
        nodes, measured, here = geography.level_slice(level), plan.queries(level), []
        exact = [Query.parse(q, followed.queries[0].schema) for q in measured if plan.is_exact(level, q)]
        for query in followed.queries:
            law = drawn_law(plan, level, query.name)
            columns = followed.columns(query.name)
            if any(query.is_part_of(one) for one in exact):
                variance[columns, nodes] = 0.0
            elif law is not None:
                variance[columns, nodes] = law.variance
            here += [law] * (columns.stop - columns.start)
        laws.append(tuple(here))
    return tuple(laws), variance
