"""One HTML page of a study's summary that opens without a network: data, charts and the scripts that draw them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import vl_convert
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from topdown.studies.report import words
from topdown.studies.report.charts import charts
from topdown.studies.report.section import Summary
from topdown.studies.report.sections import registry

_PAGE = "page.html.jinja"

INCLUDED = ("style.css", "draw.js")
"""What every page includes: its style, and the script that draws its charts."""

FILTERS = {
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
    includes.

    Names and labels are escaped wherever they stand.
    """
    own = {name: (files("topdown.studies.report") / name).read_text(encoding="utf-8") for name in (page, *INCLUDED)}
    environment = Environment(
        loader=DictLoader({**templates, **own}),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= FILTERS
    return environment.get_template(page).render(
        charts=charts, data=embedded({**data, "charts": charts}), vega=vega(), **values
    )


def embedded(value: Any) -> Markup:
    """``value`` as JSON that may stand inside a script element: no character of it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # nosec B704 # what could end the script element was escaped above


@functools.cache
def vega() -> Markup:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")
    # In a function of its own, its names do not reach the page.
    return Markup(f"(() => {{{bundle}}})();")  # nosec B704 # vl-convert's own script, no input of ours
