"""td.tabulate(): tabulation units, such as counties and tracts, from measurements of the spine: sums of its blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from topdown.analysis.regions import Regions
from topdown.census.layouts.noisy_layout import tabulation_units
from topdown.geography.unit_sums import cover
from topdown.measurements.measurements import Measurements
from topdown.workload.answer_tables import answer_columns

TABULATION_COLUMNS = ("geoid", "blocks", "spine", "query", "cell", "estimate", "sd", "lower", "upper", "note")


def tabulate(
    measurements: Measurements,
    level: str,
    *,
    query: str = "total",
    cells: Sequence[str] = (),
    confidence: float = 0.9,
) -> pd.DataFrame:
    """States, counties, tracts or block groups by GEOID, of measurements of noisy measurement files' units.

    A row per unit and answer, units by GEOID: how many ``blocks`` it has; the code of the ``spine``'s unit with the
    same blocks, empty where the unit is a sum of several; the ``estimate`` by least squares over the whole tree, with
    its exact standard deviation and its margin as `region` has them, in counts. Raises `ConfigError` and `DataError` as
    `region` does, and for a geography that does not end with the spine's blocks.

    Args:
        measurements: of noisy measurement files, as `topdown.read_noisy_measurements` gives them.
        level: "state", "county", "tract", "block group" or "block".
        query: the query whose answers are tabulated, by default the total.
        cells: which of its answers, by default all.
        confidence: probability with which each interval covers the true count, above 0.5 and below 1.

    Examples:
        >>> noisy = td.read_noisy_measurements("nmf", state="44")
        >>> td.tabulate(noisy.measurements, "county")[["geoid", "cell", "sd"]].round(1)
           geoid   cell   sd
        0  44001  total  1.1
        1  44003  total  1.3
    """
    geography = measurements.geography
    lies_in = tabulation_units(geography, level)
    names, place = np.unique(np.array(list(lies_in.values())), return_inverse=True)
    of_unit, chosen = cover(geography.tree, place)
    covers = np.split(chosen, np.searchsorted(of_unit, np.arange(1, len(names))))
    answers = answer_columns(query, measurements.schema)
    wanted: list[str | None] = list(cells) or ([one.name for one in answers] if len(answers) > 1 else [None])
    sums = [(nodes, np.ones(len(nodes))) for nodes in covers]
    found = Regions(measurements).sums(sums, query=query, cells=wanted, confidence=confidence)
    blocks = np.bincount(place, minlength=len(names))
    rows = []
    for unit, regions in enumerate(found):
        nodes = covers[unit]
        same = geography.identifiers[int(nodes[0])].as_py() if len(nodes) == 1 else ""
        for cell, region in zip(wanted, regions, strict=True):
            answer = cell if cell is not None else query
            rows.append((str(names[unit]), int(blocks[unit]), same, query, answer, *region))
    return pd.DataFrame(rows, columns=list(TABULATION_COLUMNS))
