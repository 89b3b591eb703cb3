"""The style of all charts: colours and fonts, and Vega-Lite specifications with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt

INK, GREY, PALE = "#14213d", "#8a8f98", "#d9dce1"


def styled(chart: alt.TopLevelMixin, label: str) -> dict[str, Any]:
    """The specification of ``chart`` in the common style. ``label``: a description for those who cannot see it."""
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
