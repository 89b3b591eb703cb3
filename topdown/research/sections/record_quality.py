"""The section on records of a study's report: how well a classifier distinguishes the records of a release from the
true ones.
"""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from topdown.geography.tree import FloatArray
from topdown.pages.chart_style import INK, told
from topdown.research.pmse.quality import PMSE, pmse_of_counts
from topdown.studies.errors_table import ErrorTable
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Chart, Section, Summary, fragment

SHOWN = 10
"""The number of cells with the largest contributions that are drawn for each method."""

_SUSPICIOUS = 0.25
"""A release that is closer to the truth than its noise allows by this factor was not made with that noise."""


def record_numbers(results: StudyResults) -> Summary:
    """``records``: of `records_summary`; ``unit``: the unit of a record; empty where no release was made."""
    if results.records is None:
        return {}
    return {"records": records_summary(results.table, results.records)}


def records_summary(table: ErrorTable, frame: pd.DataFrame) -> dict[str, Any] | None:
    """The pMSE of every method's release with the cells that contribute most; None where there is nothing to compare.

    ``expected``: what the simulated errors of the method give, mean over draws; a release far below it is nearer to the
    truth than its noise allows. ``null``: two independent samples of one law.
    """
    rows, contributions = [], []
    for method, part in frame.groupby("method", sort=False):
        if not part["truth"].sum() or not part["released"].sum():
            continue
        names = (part["name"] + ", " + part["cell"]).tolist()
        found = pmse_of_counts(part["truth"].to_numpy(), part["released"].to_numpy(), names)
        expected = _expected(table, str(method), found)
        rows.append(
            {
                "method": method,
                "records": found.n_synthetic,
                "pmse": found.value,
                "expected": expected,
                "null": found.null_expectation,
                "ratio": found.ratio,
                "too_good": bool(expected > 0 and found.value < _SUSPICIOUS * expected),
            }
        )
        largest = found.contributions.sort_values("contribution", ascending=False).head(SHOWN)
        contributions += [{"method": method, **one} for one in largest.to_dict("records")]
    return {"rows": rows, "contributions": contributions} if rows else None


def _expected(table: ErrorTable, method: str, found: PMSE) -> float:
    """E pMSE by the simulated errors: a cell of t true and t + e released records adds e^2 / (4 N (2t + e)).

    To first order in e / t; cells without a true record are taken at their mean release.
    """
    leaves = table.geography.tree.leaves
    label = method if method in table.methods else f"{method}/rounded"
    mse: FloatArray = table[label, "mse"][leaves]
    mean = 2.0 * table.truth[leaves] + table[label, "bias"][leaves]
    each = np.divide(mse, 4.0 * mean, out=np.zeros_like(mse), where=mean > 0)
    return float(each.sum() / (found.n_original + found.n_synthetic))


def records_chart(summary: Summary) -> alt.TopLevelMixin | None:
    """The largest contributions to the pMSE as bars, a panel per method."""
    found = summary.get("records")
    if not found:
        return None
    panels = [
        alt.Chart(part)
        .mark_bar(color=INK, height=9)
        .encode(
            x=alt.X("contribution:Q", title="contribution to the pMSE", axis=alt.Axis(format="~e", tickCount=4)),
            y=alt.Y("part:N", title=None, sort="-x", axis=alt.Axis(labelLimit=280)),
            tooltip=told("part:N", "records:Q", "synthetic:Q", "contribution:Q"),
        )
        .properties(width=260, height=170, title=alt.Title(str(method), anchor="start", fontSize=12))
        for method, part in pd.DataFrame(found["contributions"]).groupby("method", sort=False)
    ]
    return alt.concat(*panels, columns=2, spacing=28)


SECTION = Section(
    name="records",
    template=fragment("record_quality", __package__),
    numbers=record_numbers,
    charts={"records": Chart("Largest contributions to the pMSE, by method", records_chart)},
    appendix=True,
    link="Records",
)
