"""One HTML page of a study's summary that opens without a network: data, charts and the scripts that draw them."""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import Any

import vl_convert
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from topdown.report.charts import charts
from topdown.report.words import count, many, margin, number, percent, signed

Summary = dict[str, Any]


def render(summary: Summary) -> str:
    """The page of ``summary``, of `summary.summarise`. Names and labels are escaped wherever they stand."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"num": number, "signed": signed, "margin": margin, "percent": percent}
    environment.filters |= {"count": count, "many": many}
    template = environment.from_string((files("topdown.report") / "page.html.jinja").read_text(encoding="utf-8"))
    specifications = charts(summary)
    drawn = {key: summary[key] for key in ("nodes", "cells", "levels", "methods", "primary", "notice", "map")}
    return template.render(
        s=summary,
        charts=specifications,
        data=embedded({**drawn, "charts": specifications}),
        vega=_vega(),
    )


def embedded(value: Any) -> Markup:
    """``value`` as JSON that may stand inside a script element: no character of it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # nosec B704 # what could end the script element was escaped above


@functools.cache
def _vega() -> Markup:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")
    # In a function of its own, its names do not reach the page.
    return Markup(f"(() => {{{bundle}}})();")  # nosec B704 # vl-convert's own script, no input of ours
