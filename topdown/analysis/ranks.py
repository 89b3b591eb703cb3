"""Ranks of units with their uncertainty: a joint confidence region of the true ranks.

The intervals of the level's counts are simultaneous: each misses with probability alpha / m at most, so that all m hold
together with probability 1 - alpha at least, however their errors are correlated. Then unit k ranks below every unit
whose interval lies above its own, and above every unit whose interval lies below.

Source: Klein, Wright and Wieczorek, "A joint confidence region for an overall ranking of populations", Journal of the
Royal Statistical Society C 69 (2020) 589-606. Sets from intervals of all differences (Mogstad, Romano, Shaikh and
Wilhelm, Review of Economic Studies 91 (2024) 476-518) are smaller, but need the covariances of all pairs.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from topdown.errors import DataError
from topdown.geography.geography import Geography
from topdown.geography.tree import IntArray
from topdown.measurements.measurements import Measurements
from topdown.release.answer_files import Bounded, estimated
from topdown.release.whole_counts import Release
from topdown.uncertainty.intervals import Intervals
from topdown.uncertainty.laws.answer_laws import AnswerLaws
from topdown.uncertainty.margins import linear_of, require_confidence
from topdown.wording import shown
from topdown.workload.answer_tables import AnswerTable, answer_column

RANK_COLUMNS = ("rank", "rank_lower", "rank_upper", "geoid", "name", "value", "estimate", "lower", "upper")


def rank(
    measurements: Measurements,
    release: Release,
    level: str,
    *,
    query: str = "total",
    cell: str | None = None,
    within: str | None = None,
    smallest: bool = False,
    confidence: float = 0.9,
) -> pd.DataFrame:
    """The units of ``level`` by their released count, the largest first, or the ``smallest``: `RANK_COLUMNS`.

    ``rank``: 1 + the number of units with a larger released count. ``rank_lower`` and ``rank_upper``: the interval of
    the unit's true rank. With probability ``confidence`` at least, all these intervals hold the true ranks at once, and
    all true counts lie between ``lower`` and ``upper``. ``estimate``: by least squares.

    Args:
        measurements: of the release.
        release: the released counts, which decide the order.
        level: the level whose units are ranked.
        query: the query whose answer is ranked, by default the total, as `topdown.region` takes it.
        cell: which answer of the query, where it has several.
        within: the GEOID of a unit; only units below it are ranked. By default all units of the level.
        smallest: put the smallest count first, in place of the largest.
        confidence: probability with which all rank intervals, and all intervals of counts, hold at once; above 0.5 and
            below 1.

    Raises `ConfigError` as `topdown.margins` does, `GeographyError` for an unknown level, `DataError` for an unknown
    unit and for one that has no units of the level.

    Examples:
        >>> ranks = td.rank(measurements, release, "county", cell="employed")
        >>> ranks[["geoid", "rank", "rank_lower", "rank_upper"]].head(2)
           geoid  rank  rank_lower  rank_upper
        0  01003     1           1           1
        1  01001     2           2           2
    """
    alpha = 1.0 - require_confidence(confidence)
    geography, column = measurements.published, answer_column(query, cell, measurements.schema)
    nodes = geography.level_slice(level)
    ranked = _below(geography, nodes, level, within)
    table = AnswerTable(column.name, column.name, (column,))
    laws, linear = AnswerLaws.of(measurements), linear_of(measurements, [column.query])
    noisy = int((estimated(table, linear, nodes)[1][ranked - nodes.start] > 0).sum())
    number = geography.levels.index(level)
    of_columns = laws.of_columns([(column.query, column.answer)])
    find = partial(estimated, table, linear)
    intervals = Intervals.of(find, of_columns, geography.tree, alpha / max(1, noisy), [number])
    found = Bounded(table, linear, intervals, [number]).at(release, nodes)
    here = ranked - nodes.start
    counts, estimate, _, lower, upper = (one[here, 0] for one in found)
    sign = 1.0 if smallest else -1.0
    low, high = (lower, upper) if smallest else (-upper, -lower)
    frame = pd.DataFrame(
        {
            "rank": 1 + np.searchsorted(np.sort(sign * counts), sign * counts, side="left"),
            "rank_lower": 1 + np.searchsorted(np.sort(high), low, side="left"),
            "rank_upper": np.searchsorted(np.sort(low), high, side="right"),
            "geoid": geography.identifiers.take(ranked).to_pylist(),
            "name": [None] * len(ranked) if geography.names is None else geography.names.take(ranked).to_pylist(),
            "value": counts,
            "estimate": estimate,
            "lower": lower,
            "upper": upper,
        }
    )
    return frame.sort_values(["rank", "geoid"], ignore_index=True)


def _below(geography: Geography, nodes: slice, level: str, within: str | None) -> IntArray:
    """Which ``nodes`` of a level are ranked: those below a unit, or all."""
    found: IntArray = np.arange(nodes.start, nodes.stop)
    if within is None:
        return found
    unit = int(geography.index_of([within])[0])
    if unit < 0:
        raise DataError(f"no unit {shown(within)} in this geography; give GEOIDs as text, with their leading zeros")
    above = found
    while (above > unit).any():
        above = np.where(above > unit, geography.tree.parent[above], above)
    ranked: IntArray = found[(above == unit) & (found != unit)]
    if not len(ranked):
        raise DataError(f"{geography.describe(unit)} has no units of level {shown(level)} below it; give one above")
    return ranked
