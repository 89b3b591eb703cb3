"""Who is favoured: bias by group as a part of the mean count, and the largest gap between groups."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from topdown.studies import fairness
from topdown.studies.report.percent_chart import percent_chart
from topdown.studies.report.plain_numbers import rows_of
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Chart, Section, Summary, fragment
from topdown.studies.report.verdicts import on_counts, with_verdicts
from topdown.studies.report.words import many_of


def group_numbers(results: StudyResults) -> Summary:
    """``groups``: errors by grouping, cell, group and method, with a verdict on each; ``gaps``: the largest difference
    of bias in each grouping, cell and method; ``weighted``: what the means of a grouping are weighted by."""
    groups = _groups(results)
    weighted = {name: one.weighted_by for name, one in results.groupings.items() if one.weighted_by}
    return {"groups": rows_of(groups), "gaps": _gaps(groups), "weighted": weighted}


def _groups(results: StudyResults) -> pd.DataFrame:
    table, frames = results.table, []
    near = float(table.resolution[table.geography.tree.leaves].max())
    effect = on_counts(many_of(results.plan.unit), results.tolerance)
    for method in table.methods:
        found = []
        for name, grouping in results.groupings.items():
            for cell in table.cells:
                frame = fairness.by_group(
                    table, method, grouping.of(cell), cell=cell, name=name, weights=grouping.weights
                )
                found.append(grouping.in_order(frame).assign(grouping=name, method=method))
        rows = pd.concat(found, ignore_index=True)
        frames.append(with_verdicts(rows, table.replicates, effect, results.tolerance, near))
    every = pd.concat(frames, ignore_index=True)
    # By grouping, then cell, then method, as they are shown.
    keys = {name: k for k, name in enumerate([*results.groupings, *table.cells])}
    rank = every["grouping"].map(keys) * len(keys) + every["cell"].map(keys)
    return every.assign(rank=rank).sort_values("rank", kind="stable", ignore_index=True).drop(columns="rank")


def _gaps(groups: pd.DataFrame) -> list[dict[str, Any]]:
    rows = []
    # Raw noise has no bias at a level that was not measured.
    known = groups[np.isfinite(groups["bias"])]
    for (grouping, cell, method), part in known.groupby(["grouping", "cell", "method"], sort=False):
        gap = fairness.largest_gap(part)
        rows.append(
            {"grouping": grouping, "cell": cell, "method": method, "alpha": gap.alpha, "alpha_se": gap.alpha_se}
            | {"low": gap.low, "high": gap.high}
        )
    return rows


def bias_by_group(summary: Summary) -> alt.TopLevelMixin | None:
    """Bias by group in % of the mean count with its 95 % interval, under the released method; the reader picks the
    grouping and the cell."""
    rows = [row for row in summary["groups"] if row["method"] == summary["primary"]]
    return percent_chart(rows, summary["cells"], "bias, % of the mean count")


SECTION = Section(
    name="favoured",
    template=fragment("favoured"),
    numbers=group_numbers,
    charts={
        "groups": Chart(
            "Bias of every group's counts, in percent of its mean count, with 95 % intervals", bias_by_group
        )
    },
    link="Who is favoured",
    key="groups",
)
