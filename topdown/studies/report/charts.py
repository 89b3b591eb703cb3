"""The charts of a study's summary, as Vega-Lite specifications in one style."""

from __future__ import annotations

from typing import Any

import altair as alt

from topdown.studies.report.chart_parts import GREY, INK
from topdown.studies.report.section import Summary
from topdown.studies.report.sections import registry


def charts(summary: Summary) -> dict[str, dict[str, Any]]:
    """Chart -> Vega-Lite specification, of the charts that ``summary`` has data for.

    The scatter of bias against count takes its rows from the page's table of nodes (data named "leaves"), and the map
    its outlines (data named "outlines"), so that they stand in the page once.
    """
    # Altair refuses more than 5,000 rows unless told otherwise; those here are a few per family.
    with alt.data_transformers.enable("default", max_rows=None):
        all_charts = {name: chart for section in registry.sections() for name, chart in section.charts.items()}
        made = {name: chart.make(summary) for name, chart in all_charts.items()}
        return {name: styled(one, all_charts[name].label) for name, one in made.items() if one is not None}


def styled(chart: alt.TopLevelMixin, label: str) -> dict[str, Any]:
    """The specification of ``chart`` in the style of all. ``label``: what it shows, for who cannot see it."""
    font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
    configured = (
        chart.configure(font=font, background="transparent")
        .configure_axis(
            labelFontSize=11,
            labelSeparation=8,
            titleFontSize=12,
            titleFontWeight="normal",
            gridColor="#eceef1",
            domainColor=GREY,
            tickColor=GREY,
            titleColor=INK,
            labelColor=INK,
        )
        .configure_title(limit=440)
        .configure_view(stroke="#d9dce1")
        .configure_header(labelFontSize=12, titleFontSize=12, labelColor=INK, labelFontWeight="bold", title=None)
        .configure_legend(labelFontSize=11, titleFontSize=11, titleFontWeight="normal", symbolSize=70, labelLimit=320)
    )
    spec: dict[str, Any] = configured.to_dict(context={"pre_transform": False})
    spec.pop("$schema", None)
    return {"description": label, **spec}
