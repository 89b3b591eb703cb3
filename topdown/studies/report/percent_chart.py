"""A chart of biases of groups in percent, as points with intervals, for the grouping and the cell that the reader
selects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from topdown.pages.chart_style import GREY, INK, told
from topdown.studies.discoveries import at_least
from topdown.studies.report.chart_parts import by_series, picker

MOST_GROUPS = 40
"""The most groups of a grouping that a chart shows: those with the largest lower limits of the bias."""

_MOST_TOLD = 3
"""The most groupings that the note on left-out groups names."""

_MOST_TOGETHER = 4
"""The most cells side by side in one chart; of more, the reader selects one."""


def percent_chart(rows: Sequence[dict[str, Any]], cells: Sequence[str], title: str) -> alt.TopLevelMixin | None:
    """A chart of ``rows`` with ``grouping, group, order, cell, mean_truth, bias, bias_se, bias_low, bias_high, units``
    and ``verdict``, for the tooltip; None where no group has a count.

    ``cells``: in their order; ``title``: of the axis that all groups share, in percent of ``mean_truth``. Size classes
    are in their order, other groups by their bias.
    """
    frame = pd.DataFrame(rows)
    if frame.empty:
        return None
    frame = frame[(frame["mean_truth"].astype(float) > 0) & frame["bias"].notna()]
    if frame.empty:
        return None
    part = 100.0 / frame["mean_truth"].astype(float)
    shown = frame.assign(
        **{f"relative{end}": frame[f"bias{end}"].astype(float) * part for end in ("", "_low", "_high")}
    )
    error = frame["bias_se"].astype(float).fillna(0.0) * part
    shown = shown.assign(certain=at_least(shown["relative"], error))
    together = len(cells) <= _MOST_TOGETHER
    kept, left_out = [], []
    for (grouping, of), one in shown.groupby(["grouping", "grouping" if together else "cell"], sort=False):
        largest = one.groupby("group")["certain"].max().sort_values(ascending=False).index
        if len(largest) > MOST_GROUPS:
            left_out.append(f"“{grouping}”" + ("" if together else f" of {of}") + f" {len(largest):,}")
        one = one[one["group"].isin(largest[:MOST_GROUPS])]
        ordered = one.groupby("group", sort=False)["order"].first()
        mean = one.groupby("group", sort=False)["relative"].mean()
        rank = ordered if one["grouping"].iloc[0].startswith("size") else mean.rank(method="first")
        kept.append(one.assign(rank=one["group"].map(rank).astype(float)))
    shown = pd.concat(kept)[
        ["grouping", "cell", "group", "rank", "units", "relative", "relative_low", "relative_high", "verdict"]
    ]
    groupings = list(dict.fromkeys(shown["grouping"]))
    chosen = [picker("grouping", "group by", groupings)] if len(groupings) > 1 else []
    base: Any = alt.Chart(shown)
    if chosen:
        base = base.transform_filter("datum.grouping == grouping")
    if not together:
        chosen.append(picker("cell", "count", cells))
        base = base.transform_filter("datum.cell == cell")
    y = alt.Y(
        "group:N",
        title=None,
        sort=alt.EncodingSortField("rank", op="min", order="ascending"),
        axis=alt.Axis(labelLimit=220),
    )
    offset = {"yOffset": alt.YOffset("cell:N", sort=list(cells))} if together and len(cells) > 1 else {}
    colour = by_series("cell", None, cells) if together else {}
    points = base.mark_point(filled=True, size=46, color=INK).encode(
        x=alt.X("relative:Q", title=title),
        y=y,
        **offset,
        **colour,
        tooltip=told("group:N", "cell:N", "units:Q", "relative:Q", "relative_low:Q", "relative_high:Q", "verdict:N"),
    )
    bars = base.mark_rule(color=INK).encode(x="relative_low:Q", x2="relative_high:Q", y=y, **offset)
    zero = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(color=GREY).encode(x="zero:Q")
    step = 12 if together and len(cells) > 1 else 18
    # The note below the chart.
    meta = {"left_out": _left_out(left_out)} if left_out else {}
    chart = alt.layer(zero, bars, points).properties(width=620, height=alt.Step(step), usermeta=meta)
    return chart.add_params(*chosen)


def _left_out(groupings: Sequence[str]) -> str:
    """A note that a chart leaves out groups of these ``groupings``, with how many groups they have."""
    told = "; ".join(groupings[:_MOST_TOLD])
    more = f"; and {len(groupings) - _MOST_TOLD:,} more" if len(groupings) > _MOST_TOLD else ""
    return (
        f"Where there are more than {MOST_GROUPS} groups the chart shows {MOST_GROUPS}, those whose intervals begin "
        f"at the largest biases: of {told}{more}. The table has all."
    )
