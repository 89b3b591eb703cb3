"""One HTML page of a study's summary that opens without a network: data, charts and the scripts that draw them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import altair as alt

from topdown.pages import shell
from topdown.pages.chart_style import styled
from topdown.studies.report import words
from topdown.studies.report.section import Summary
from topdown.studies.report.sections import registry

_PAGE, _CARDS = "page.html.jinja", "cards.html.jinja"

FILTERS: dict[str, Callable[..., Any]] = {
    "num": words.number,
    "signed": words.signed,
    "within": words.within,
    "signed_within": words.signed_within,
    "percent": words.percent,
    "percent_within": words.percent_within,
    "distance": words.distance,
    "count": words.count,
    "many": words.many,
    "plural": words.many_of,
    "unbroken": words.unbroken,
}


def render(summary: Summary) -> str:
    """The page of ``summary``, of `summary.summarise`. Names and labels are escaped wherever they stand."""
    drawn = charts(summary)
    shown = [section for section in registry.sections() if section.shown(summary, drawn)]
    templates = {section.name: section.template.read_text(encoding="utf-8") for section in shown}
    read = ["cells", "levels", "methods", "primary", "notice"]
    read += [key for section in registry.sections() for key in section.data]
    data = {key: summary[key] for key in read}
    return filled(_PAGE, data, drawn, templates, s=summary, sections=shown)


def filled(
    page: str, data: dict[str, Any], charts: Mapping[str, Any], templates: Mapping[str, str] = {}, **values: Any
) -> str:
    """The template ``page`` with ``values``: ``data`` and ``charts`` for its scripts, and ``templates`` that it
    includes."""
    return shell.filled(
        page,
        "topdown.studies.report",
        own=(_CARDS,),
        templates=templates,
        filters=FILTERS,
        charts=charts,
        data=shell.embedded({**data, "charts": charts}),
        **values,
    )


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
