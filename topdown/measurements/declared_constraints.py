"""What is publicly known of counts, before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from topdown.workload import Schema


@dataclass(frozen=True, eq=False)
class Constraints:
    """Public facts that counts keep: combinations of categories that no record has, and bounds of answers.

    `topdown.measure` refuses counts with records in the zeros; `topdown.project` keeps zeros and bounds.

    Args:
        zeros: structural zeros: for each, attributes or recodes to the category or categories that do not occur
            together.
        bounds: rows ``geoid, query, category, lower, upper``, as `AnswerLimits.from_table` takes them; None for none.
        closed: queries of which the bounds are complete, as there.

    Examples:
        >>> known = td.Constraints(zeros=[{"sex": "female", "age": "child"}])
        >>> known.added_to(schema).zeros
        ((('sex', ('female',)), ('age', ('child',))),)
    """

    zeros: Sequence[Mapping[str, str | Sequence[str]]] = ()
    bounds: Any = field(default=None, repr=False)
    closed: Sequence[str] = ()

    def added_to(self, schema: Schema) -> Schema:
        """``schema`` with these zeros. Raises `ConfigError` for an unknown attribute or category, and where no cell is
        left.
        """
        given = Schema.zeros_of(self.zeros)
        return replace(schema, zeros=tuple(dict.fromkeys([*schema.zeros, *given])))
