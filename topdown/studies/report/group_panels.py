"""Biases by group as points with intervals, a panel per grouping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from topdown.studies.report.chart_parts import GREY, INK, LIGHTNESS, SHAPES, above, telling_apart


def bias_panels(
    rows: pd.DataFrame,
    methods: list[str],
    by: list[str],
    titles: Mapping[Any, str],
    x_title: str,
    *,
    of: str = "method",
) -> alt.TopLevelMixin | None:
    """Of ``rows`` with ``group, order, method, units, bias, bias_low, bias_high`` a panel for each value of ``by``,
    called by ``titles``: those of ``methods``, groups in their order. ``of``: what the legend calls the methods."""
    rows = rows[rows["method"].isin(methods)]
    panels = []
    for key, part in rows.groupby(by, sort=False):
        order = list(dict.fromkeys(part.sort_values("order")["group"]))
        y = alt.Y("group:N", title=None, sort=order, axis=alt.Axis(labelLimit=260))
        offset = alt.YOffset("method:N", sort=methods)
        points = (
            alt.Chart(part)
            .mark_point(filled=True, size=46)
            .encode(
                x=alt.X("bias:Q", title=x_title),
                y=y,
                yOffset=offset,
                color=alt.Color("method:N", title=of, scale=telling_apart(methods, LIGHTNESS), legend=above()),
                shape=alt.Shape("method:N", title=of, scale=telling_apart(methods, SHAPES)),
                tooltip=["group:N", "units:Q", "method:N", "bias:Q", "bias_low:Q", "bias_high:Q"],
            )
        )
        bars = alt.Chart(part).mark_rule(color=INK).encode(x="bias_low:Q", x2="bias_high:Q", y=y, yOffset=offset)
        zero = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(color=GREY).encode(x="zero:Q")
        panels.append(
            alt.layer(zero, bars, points).properties(
                width=330, height=alt.Step(12), title=alt.Title(titles[key], anchor="start", fontSize=12)
            )
        )
    return alt.concat(*panels, columns=2, spacing=28) if panels else None
