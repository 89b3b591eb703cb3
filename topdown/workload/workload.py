"""Workload: which queries are measured at which level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from topdown.errors import ConfigError, require_known
from topdown.wording import shown
from topdown.workload.query import Query
from topdown.workload.schema import Schema

PRESETS: dict[str, Any] = {}
"""Workloads that were used in practice, by name, with their budgets: `topdown.privacy.presets` adds them."""


@dataclass(frozen=True, slots=True)
class Workload(Mapping[str, tuple[Query, ...]]):
    """Queries by level: a mapping from a level's name to its queries, each once, in the order given.

    Args:
        schema: the cells, of which the queries are.
        queries: (level, queries) for every level.

    Examples:
        >>> queries = {"nation": ["total"], "state": ["sex", "detailed"]}
        >>> workload = td.Workload.parse(queries, schema, levels=["nation", "state"])
        >>> [query.name for query in workload["state"]]
        ['sex', 'detailed']
    """

    schema: Schema
    queries: tuple[tuple[str, tuple[Query, ...]], ...]

    @classmethod
    def parse(cls, queries: Mapping[str, Iterable[str | Query]], schema: Schema, levels: Iterable[str]) -> Workload:
        """The workload of queries that are given by name.

        Args:
            queries: {level: queries}, each a `Query` or the text of one ("sex * age", "total", "detailed").
            schema: the cells, of which the queries are.
            levels: the levels of the geography.

        Raises `ConfigError` naming the level for an unknown level, what `Query.parse` refuses, and for a query that a
        level names twice, also where it is written in two ways.
        """
        known = list(levels)
        found = []
        for level, named in queries.items():
            require_known(level, known, "level")
            try:
                parsed = [query if isinstance(query, Query) else Query.parse(query, schema) for query in named]
            except ConfigError as error:
                raise ConfigError(f"level {shown(level)}: {error}") from None
            for query in parsed:
                if parsed.count(query) > 1:
                    raise ConfigError(f"level {shown(level)} names query {shown(query.name)} twice; name it once")
            found.append((level, tuple(parsed)))
        return cls(schema, tuple(found))

    def __getitem__(self, level: str) -> tuple[Query, ...]:
        for known, queries in self.queries:
            if known == level:
                return queries
        raise KeyError(level)

    def __iter__(self) -> Iterator[str]:
        return (level for level, _ in self.queries)

    def __len__(self) -> int:
        return len(self.queries)

    @staticmethod
    def preset(name: str) -> Any:
        """A workload of an earlier production run with its budget: ``shares`` by level and query, ``rho``, ``schema``.

        Args:
            name: such as "pl94-2020-us".

        Raises `ConfigError` with the nearest name for any other.

        Examples:
            >>> td.Workload.preset("pl94-2020-us").rho
            Fraction(293764, 114921)
        """
        require_known(name, PRESETS, "preset")
        return PRESETS[name]

    @property
    def distinct(self) -> tuple[Query, ...]:
        """Every query of some level, once."""
        return tuple(dict.fromkeys(query for _, queries in self.queries for query in queries))
