"""What a study computes errors of, at every node: the cells, or the answers to queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from topdown.errors import ConfigError, nearest
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
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
            law = plan.law(level, query.name, continuous=True) if query.name in measured else None
            columns = followed.columns(query.name)
            if any(query.is_part_of(one) for one in exact):
                variance[columns, nodes] = 0.0
            elif law is not None:
                variance[columns, nodes] = law.variance
            here += [law] * (columns.stop - columns.start)
        laws.append(tuple(here))
    return tuple(laws), variance
