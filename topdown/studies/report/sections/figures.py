"""Figures that rules compute from counts, such as the range of districts: the errors of the released ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from topdown.studies.report.plain_numbers import rows_of
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Section, Summary, fragment

_MOST_UNITS = 20
"""Units of a figure that the page shows: those with the largest errors."""


def figure_numbers(results: StudyResults) -> Summary:
    """``figures``: of every rule with a figure its true value by unit and how the released one differs, on average,
    under the released method; one row where it is the same for all units."""
    return {"figures": [_figure(results, rule) for rule in results.figures]}


def _figure(results: StudyResults, rule: str) -> dict[str, Any]:
    table = results.table
    found = table.rules[results.primary, rule]
    geoids, names = table.rule_units(rule)
    frame = pd.DataFrame({"geoid": geoids, "name": names, **found})
    if len(frame) > 1 and np.ptp(found["truth"]) == 0 and np.ptp(found["mean_error"]) == 0:
        frame = frame.head(1).assign(geoid="all units", name=None)
    largest = frame.sort_values("mean_absolute_error", ascending=False, kind="stable").head(_MOST_UNITS)
    return {"rule": rule, "units": len(frame), "rows": rows_of(largest)}


SECTION = Section(name="figures", template=fragment("figures"), numbers=figure_numbers, key="figures")
