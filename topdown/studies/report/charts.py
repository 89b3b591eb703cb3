"""The charts of a study's summary, as Vega-Lite specifications in one style."""

from __future__ import annotations

from typing import Any

import altair as alt

from topdown.pages.chart_style import styled
from topdown.studies.report.section import Summary
from topdown.studies.report.sections import registry


def charts(summary: Summary) -> dict[str, dict[str, Any]]:
    """Chart -> Vega-Lite specification, of the charts that ``summary`` has data for.

    The scatter of bias against count takes its rows from the page's table of nodes (data named "leaves"), and the map
    its outlines (data named "outlines"), so that the page has them once.
    """
    # Altair refuses more than 5,000 rows unless told otherwise; those here are a few per family.
    with alt.data_transformers.enable("default", max_rows=None):
        all_charts = {name: chart for section in registry.sections() for name, chart in section.charts.items()}
        made = {name: chart.make(summary) for name, chart in all_charts.items()}
        return {name: styled(one, all_charts[name].label) for name, one in made.items() if one is not None}
