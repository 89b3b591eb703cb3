"""Targets: how close to the truth the numbers of a level have to be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from topdown.errors import ConfigError, require_known
from topdown.wording import shown
from topdown.workload import DETAILED, Query, Schema

_NUMBERS = re.compile(r"^\s*([0-9.]+)\s+at\s+([0-9.]+)\s*%\s*$")
_LEAST_MARGIN = 0.5
_LARGEST_CONFIDENCE = 1.0 - 1e-9
_FORM = "write 'LEVEL: MARGIN at PERCENT %' or 'LEVEL, QUERY: MARGIN at PERCENT %', such as 'county: 25 at 90 %'"


@dataclass(frozen=True)
class Target:
    """Every answer to ``query`` at every unit of ``level``, or at every area of that kind, has to be within ``margin``
    of the truth with probability ``confidence``. Raises `ConfigError` for a margin that is not above 0 or a confidence
    that is not in (0, 1).
    """

    level: str
    query: str
    margin: float
    confidence: float

    def __post_init__(self) -> None:
        if not 0.0 < self.margin < float("inf"):
            raise ConfigError(
                f"target {shown(str(self))}: the margin is above 0; publish exactly what may have no error"
            )
        if self.margin < _LEAST_MARGIN:
            raise ConfigError(
                f"target {shown(str(self))}: counts are whole, and whoever knows one to less than {_LEAST_MARGIN:g} "
                f"knows it; give a margin of {_LEAST_MARGIN:g} or more, or publish exactly what may have no error"
            )
        if not 0.0 < self.confidence <= _LARGEST_CONFIDENCE:
            raise ConfigError(
                f"target {shown(str(self))}: give a probability above 0 and up to {100.0 * _LARGEST_CONFIDENCE:.10g} %"
            )

    @classmethod
    def parse(cls, text: str, levels: Sequence[str], schema: Schema) -> Target:
        """Reads a target: "county: 25 at 90 %", or "county, total: 25 at 90 %" for a query; without a query the target
        is for the cells, "detailed". ``levels``: the known levels and kinds of areas. Raises `ConfigError` for other
        text and unknown names.
        """
        where, _, numbers = text.rpartition(":")
        found = _NUMBERS.match(numbers)
        try:
            margin, percent = (float(part) for part in (found.groups() if found else ("", "")))
        except ValueError:
            raise ConfigError(f"target {shown(text)} cannot be read; {_FORM}") from None
        level, query = where.strip(), DETAILED
        if level not in levels:
            level, _, asked = (part.strip() for part in where.partition(","))
            require_known(level, list(levels), f"target {shown(text)}: level")
            if not asked:
                raise ConfigError(f"target {shown(text)} cannot be read; {_FORM}")
            query = asked
        return cls(level, Query.parse(query, schema).name, margin, percent / 100.0)

    def __str__(self) -> str:
        asked = "" if self.query == DETAILED else f", {self.query}"
        return f"{self.level}{asked}: {self.margin:.10g} at {100 * self.confidence:.10g} %"
