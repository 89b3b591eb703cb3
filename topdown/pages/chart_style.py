"""The style of all charts: colours and fonts, and Vega-Lite specifications with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt

INK, GREY, PALE = "#14213d", "#8a8f98", "#d9dce1"


_STYLE: dict[str, Any] = {
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
    "background": "transparent",
    "axis": {
        "labelFontSize": 11,
        "labelSeparation": 8,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gridColor": "#eceef1",
        "domainColor": GREY,
        "tickColor": GREY,
        "titleColor": INK,
        "labelColor": INK,
    },
    "title": {"limit": 440},
    "view": {"stroke": "#d9dce1"},
    "header": {"labelFontSize": 12, "titleFontSize": 12, "labelColor": INK, "labelFontWeight": "bold", "title": None},
    "legend": {
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "symbolSize": 70,
        "labelLimit": 320,
    },
}
"""The configuration of Vega-Lite."""


def told(*fields: str) -> list[alt.Tooltip]:
    """The ``fields``, such as "bias:Q", that are told of a mark that is pointed at.

    As objects: where Altair makes them of texts by itself, each takes 10 ms.
    """
    import altair as alt

    return [alt.Tooltip(field) for field in fields]


def styled(chart: alt.TopLevelMixin, label: str) -> dict[str, Any]:
    """The specification of ``chart`` in the common style. ``label``: a description for those who cannot see it.

    It is not compared with Vega-Lite's schema, which takes as long as to make it: the tests do that for every chart.
    """
    spec: dict[str, Any] = chart.to_dict(validate=False, context={"pre_transform": False})
    spec.pop("$schema", None)
    # Here and not by Altair's own methods, each of which copies the chart with all its rows.
    own = spec.setdefault("config", {})
    for part, style in _STYLE.items():
        own[part] = {**own.get(part, {}), **style} if isinstance(style, dict) else style
    return {"description": label, **spec}
