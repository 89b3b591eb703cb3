"""Bias of every leaf against its true count."""

from __future__ import annotations

import altair as alt

from topdown.pages.chart_style import PALE, told
from topdown.studies.report.chart_parts import by_series
from topdown.studies.report.section import Chart, Section, Summary, fragment


def bias_against_count(summary: Summary) -> alt.TopLevelMixin | None:
    """Bias of every leaf against its true count, on a log scale, a panel a method; the band is Monte Carlo error."""
    methods = summary["methods"]
    points = (
        alt.Chart()
        .mark_point(filled=True, size=14, opacity=0.55)
        .encode(
            x=alt.X(
                "truth:Q",
                title="true count (log scale; 0 at the left)",
                scale=alt.Scale(type="symlog", constant=1),
                axis=alt.Axis(
                    values=[0, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000],
                    labelExpr="format(datum.value, '~s')",
                ),
            ),
            y=alt.Y("bias:Q", title="bias (counts)"),
            **by_series("cell", "cell", summary["cells"]),
            tooltip=told("geoid:N", "name:N", "cell:N", "truth:Q", "bias:Q", "bias_se:Q"),
        )
    )
    band = alt.Chart().mark_rect(color=PALE, opacity=0.75).encode(y=alt.Y("mean(low):Q"), y2=alt.Y2("mean(high):Q"))
    return (
        alt.layer(band, points)
        .properties(width=280, height=190)
        .facet(facet=alt.Facet("method:N", sort=methods, title=None), columns=3, data=alt.NamedData("leaves"))
    )


SECTION = Section(
    name="bias",
    template=fragment("bias_by_count"),
    charts={"bias": Chart("Bias of every unit against its true count, by method", bias_against_count)},
    link="Bias",
    appendix=True,
)
