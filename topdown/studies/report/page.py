"""One HTML page of a study's summary that opens without a network: data, charts and the scripts that draw them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from topdown.pages import shell
from topdown.studies.report import words
from topdown.studies.report.charts import charts
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
