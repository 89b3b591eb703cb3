"""Charts of a study's summary, as Vega-Lite specifications. Told apart by lightness, dash and shape, not by hue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import altair as alt
import pandas as pd

from topdown.report.noise_comparison import noise_chart
from topdown.report.records import records_chart

Summary = dict[str, Any]

_INK, _GREY, _PALE = "#14213d", "#8a8f98", "#d9dce1"
_LIGHTNESS = ["#14213d", "#c46a1b", "#5b8db8", "#9a9a9a", "#2f6b4f", "#c9a9d6", "#e0b64a", "#7a1f3d"]
_SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 2], [1, 3], [10, 4], [3, 6]]


def charts(summary: Summary) -> dict[str, dict[str, Any] | None]:
    """Section -> Vega-Lite specification; None for a section without data.

    The scatter of bias against count takes its rows from the page's table of nodes (data named "leaves"), and the map
    its outlines (data named "outlines"), so that they stand in the page once.
    """
    makers: dict[str, Callable[[Summary], alt.TopLevelMixin | None]] = {
        "residuals": residual_densities,
        "bias": bias_against_count,
        "predicted": measured_against_predicted,
        "families": variance_against_family_size,
        "wasserstein": wasserstein_against_dimension,
        "groups": bias_by_group,
        "fund": money_moved,
        "map": bias_map,
    }
    if "noise_comparison" in summary:
        makers["noise"] = noise_chart
    if summary.get("records"):
        makers["records"] = records_chart
    # Altair refuses more than 5,000 rows unless told otherwise; those here are a few per family.
    with alt.data_transformers.enable("default", max_rows=None):
        made = {name: make(summary) for name, make in makers.items()}
        return {name: None if chart is None else _configured(chart) for name, chart in made.items()}


def _configured(chart: alt.TopLevelMixin) -> dict[str, Any]:
    font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
    styled = (
        chart.configure(font=font, background="transparent")
        .configure_axis(
            labelFontSize=11,
            labelSeparation=8,
            titleFontSize=12,
            titleFontWeight="normal",
            gridColor="#eceef1",
            domainColor=_GREY,
            tickColor=_GREY,
            titleColor=_INK,
            labelColor=_INK,
        )
        .configure_view(stroke="#d9dce1")
        .configure_header(labelFontSize=12, titleFontSize=12, labelColor=_INK, labelFontWeight="bold", title=None)
        .configure_legend(labelFontSize=11, titleFontSize=11, titleFontWeight="normal", symbolSize=70, labelLimit=320)
    )
    spec: dict[str, Any] = styled.to_dict(context={"pre_transform": False})
    spec.pop("$schema", None)
    return spec


def residual_densities(summary: Summary) -> alt.TopLevelMixin | None:
    """Density of the residuals of a few units by method, over the noise law's."""
    rows = pd.DataFrame(summary["residuals"])
    if rows.empty:
        return None
    methods = _shown_methods(summary)
    width = rows["residual_to"] - rows["residual_from"]
    rows = rows.assign(density=rows["share"] / width, noise=rows["noise_share"].astype(float) / width)
    rows = rows[rows["method"].isin(methods)]
    captions = {
        (u["geoid"], u["cell"]): f"{u['why']}: {u['name'] or u['geoid']}|{u['cell']} {u['truth']:,}"
        for u in summary["units"]
    }
    panels = []
    peak = float(rows["noise"].max()) if rows["noise"].notna().any() else float(rows["density"].max())
    for (geoid, cell), caption in captions.items():
        part = rows[(rows["geoid"] == geoid) & (rows["cell"] == cell)]
        x = alt.X("residual_from:Q", title="residual (estimate minus true count)", axis=alt.Axis(tickCount=7))
        y = alt.Y("density:Q", title="density", scale=alt.Scale(domain=[0, 1.6 * peak], clamp=True), axis=_plain_axis())
        law = (
            alt.Chart(part[part["method"] == methods[0]][["residual_from", "noise"]])
            .mark_area(interpolate="step-after", color=_PALE, line={"color": _GREY, "strokeWidth": 1})
            .encode(x=x, y=alt.Y("noise:Q", title="density", scale=alt.Scale(domain=[0, 1.6 * peak], clamp=True)))
        )
        lines = (
            alt.Chart(part[["residual_from", "density", "method"]])
            .mark_line(interpolate="step-after", strokeWidth=1.8, clip=True)
            .encode(
                x=x,
                y=y,
                color=alt.Color("method:N", title="estimate", scale=_subset(methods, _LIGHTNESS), legend=_legend()),
                strokeDash=alt.StrokeDash("method:N", title="estimate", scale=_subset(methods, _DASHES)),
                tooltip=["method:N", "residual_from:Q", "density:Q"],
            )
        )
        layers = [law, lines] if part["noise"].notna().any() else [lines]
        panels.append(
            alt.layer(*layers).properties(
                width=440, height=190, title=alt.Title(caption.split("|"), anchor="start", fontSize=12)
            )
        )
    return alt.concat(*panels, columns=2, spacing=28)


def _symlog() -> alt.Scale:
    return alt.Scale(type="symlog", constant=1.0, nice=False, padding=10)


def _log() -> alt.Scale:
    return alt.Scale(type="log", nice=False, padding=12)


def _plain_axis() -> alt.Axis:
    return alt.Axis(tickCount=4)


def _legend() -> alt.Legend:
    return alt.Legend(orient="top")


def _subset(values: list[str], range_: list[Any]) -> alt.Scale:
    return alt.Scale(domain=values, range=range_[: len(values)])


def _shown_methods(summary: Summary) -> list[str]:
    """The primary method and its counterpart without the non-negativity: more lines cannot be told apart."""
    primary, methods = summary["primary"], summary["methods"]
    base = primary.split("/")[0]
    other = [m for m in (f"{base}/equality", "gls", "top-down/equality", "raw") if m in methods and m != primary]
    return [primary, *other[:1]]


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
            color=alt.Color(
                "cell:N",
                title="cell",
                scale=alt.Scale(
                    domain=summary["cells"], range=[_LIGHTNESS[k % 8] for k in range(len(summary["cells"]))]
                ),
                legend=_legend(),
            ),
            shape=alt.Shape(
                "cell:N",
                title="cell",
                scale=alt.Scale(domain=summary["cells"], range=[_SHAPES[k % 8] for k in range(len(summary["cells"]))]),
            ),
            tooltip=["geoid:N", "name:N", "cell:N", "truth:Q", "bias:Q", "bias_se:Q"],
        )
    )
    band = alt.Chart().mark_rect(color=_PALE, opacity=0.75).encode(y=alt.Y("mean(low):Q"), y2=alt.Y2("mean(high):Q"))
    return (
        alt.layer(band, points)
        .properties(width=280, height=190)
        .facet(facet=alt.Facet("method:N", sort=methods, title=None), columns=3, data=alt.NamedData("leaves"))
    )


def measured_against_predicted(summary: Summary) -> alt.TopLevelMixin | None:
    """Variance of the leaves' families, measured against predicted, where theory has a closed form."""
    rows = _leaf_families(summary)
    rows = rows[rows["predicted"].notna()] if not rows.empty else rows
    if rows.empty:
        return None
    rows = rows.assign(
        low=rows["measured"] - 1.96 * rows["measured_se"], high=rows["measured"] + 1.96 * rows["measured_se"]
    )
    methods = [m for m in summary["methods"] if (rows["method"] == m).any()]
    rows = rows[(rows["predicted"] > 0) & (rows["low"] > 0)]
    if rows.empty:
        return None
    ends = [
        float(min(rows["predicted"].min(), rows["low"].min())),
        float(max(rows["predicted"].max(), rows["high"].max())),
    ]
    scale = alt.Scale(type="log", domain=ends, nice=False, padding=6)
    base = alt.Chart(rows)
    points = base.mark_point(filled=True, size=36, opacity=0.85, color=_INK).encode(
        x=alt.X("predicted:Q", title="predicted variance (log scale)", scale=scale),
        y=alt.Y("measured:Q", title="measured, mean over the family", scale=scale),
        shape=alt.Shape(
            "cell:N",
            title="cell",
            legend=_legend(),
            scale=alt.Scale(domain=summary["cells"], range=[_SHAPES[k % 8] for k in range(len(summary["cells"]))]),
        ),
        color=alt.Color(
            "cell:N",
            title="cell",
            scale=alt.Scale(domain=summary["cells"], range=[_LIGHTNESS[k % 8] for k in range(len(summary["cells"]))]),
        ),
        tooltip=["name:N", "geoid:N", "cell:N", "family_size:Q", "predicted:Q", "measured:Q", "measured_se:Q"],
    )
    bars = base.mark_rule(color=_GREY).encode(x="predicted:Q", y="low:Q", y2="high:Q")
    diagonal = (
        alt.Chart(rows)
        .mark_line(color=_INK, strokeDash=[4, 3], strokeWidth=1)
        .transform_aggregate(n="count()")
        .transform_calculate(ends=str(ends))
        .transform_flatten(["ends"])
        .encode(x=alt.X("ends:Q", scale=scale), y=alt.Y("ends:Q", scale=scale))
    )
    return (
        alt.layer(diagonal, bars, points)
        .properties(width=280, height=280)
        .facet(facet=alt.Facet("method:N", sort=methods, title=None), columns=3)
    )


def variance_against_family_size(summary: Summary) -> alt.TopLevelMixin | None:
    """Mean variance of the leaves of a family against how many they are, beside noise variance times (1 - 1/n)."""
    rows = _leaf_families(summary)
    if rows.empty:
        return None
    methods = list(
        dict.fromkeys([m for m in ("raw", "top-down/equality") if m in summary["methods"]] + _shown_methods(summary))
    )[:4]
    rows = (
        rows[rows["method"].isin(methods)]
        .groupby(["method", "geoid", "name", "family_size"], dropna=False, as_index=False)[
            ["measured", "public_total", "noise_variance"]
        ]
        .mean()
    )
    x = alt.X("family_size:Q", title="family size: leaves under one parent (log scale)", scale=_log())
    points = (
        alt.Chart(rows)
        .mark_point(filled=True, size=42, opacity=0.9)
        .encode(
            x=x,
            y=alt.Y("measured:Q", title="variance, mean over cells (log scale)", scale=_log()),
            color=alt.Color(
                "method:N", title="method", scale=_subset(methods, _LIGHTNESS), legend=alt.Legend(orient="right")
            ),
            shape=alt.Shape("method:N", title="method", scale=_subset(methods, _SHAPES)),
            tooltip=["name:N", "geoid:N", "family_size:Q", "method:N", "measured:Q", "public_total:Q"],
        )
    )
    theory = (
        alt.Chart(rows[(rows["method"] == methods[0]) & (rows["public_total"] > 0)].sort_values("family_size"))
        .mark_line(color=_INK, strokeDash=[4, 3], strokeWidth=1.2)
        .encode(x=x, y=alt.Y("public_total:Q", scale=_log()))
    )
    return alt.layer(theory, points).properties(width=720, height=280)


def wasserstein_against_dimension(summary: Summary) -> alt.TopLevelMixin | None:
    """Distance of the leaves' residuals from the noise law against family size; floor and theory beside it."""
    rows = _leaf_families(summary)
    curve = summary["wasserstein"]
    if rows.empty or rows["wasserstein"].isna().all():
        return None
    methods = list(
        dict.fromkeys([m for m in ("top-down/equality",) if m in summary["methods"]] + _shown_methods(summary))
    )[:3]
    rows = (
        rows[rows["method"].isin(methods)]
        .groupby(["method", "geoid", "name", "family_size"], dropna=False, as_index=False)[["wasserstein"]]
        .mean()
    )
    x = alt.X("family_size:Q", title="family size n (log scale)", scale=_log())
    layers: list[Any] = [
        alt.Chart(rows)
        .mark_point(filled=True, size=42, opacity=0.9)
        .encode(
            x=x,
            y=alt.Y("wasserstein:Q", title="distance to the noise (counts, symlog scale)", scale=_symlog()),
            color=alt.Color(
                "method:N", title="method", scale=_subset(methods, _LIGHTNESS), legend=alt.Legend(orient="right")
            ),
            shape=alt.Shape("method:N", title="method", scale=_subset(methods, _SHAPES)),
            tooltip=["name:N", "geoid:N", "family_size:Q", "method:N", "wasserstein:Q"],
        )
    ]
    if curve["theory"]:
        theory = pd.DataFrame([point for point in curve["theory"] if point["family_size"] > 1])
        layers.append(
            alt.Chart(theory)
            .mark_line(color=_INK, strokeDash=[4, 3], strokeWidth=1.2)
            .encode(x=x, y=alt.Y("distance:Q", scale=_symlog()))
        )
    if curve["floor"] is not None:
        floor = pd.DataFrame([{"floor": curve["floor"], "what": "floor of a sample of this size"}])
        layers.append(alt.Chart(floor).mark_rule(color=_GREY, strokeDash=[1, 2], strokeWidth=1.5).encode(y="floor:Q"))
        layers.append(
            alt.Chart(floor)
            .mark_text(align="right", dx=-4, dy=-6, fontSize=10, color="#5a5f68")
            .encode(y="floor:Q", x=alt.value(720), text="what:N")
        )
    return alt.layer(*layers).properties(width=720, height=280)


def _leaf_families(summary: Summary) -> pd.DataFrame:
    rows = pd.DataFrame(summary["families"])
    if rows.empty:
        return rows
    measured = ["predicted", "measured", "measured_se", "public_total", "noise_variance", "wasserstein"]
    # A column of nothing but None is no column of numbers yet.
    leaves: pd.DataFrame = rows[rows["level"] == summary["levels"][-1]].astype(dict.fromkeys(measured, float))
    return leaves


def bias_by_group(summary: Summary) -> alt.TopLevelMixin | None:
    """Mean bias by group with its 95 % interval, a panel per grouping and cell."""
    rows = pd.DataFrame(summary["groups"])
    methods = list(
        dict.fromkeys([*_shown_methods(summary), *(m for m in summary["methods"] if m.endswith("/rounded"))])
    )[:3]
    rows = rows[rows["method"].isin(methods)]
    panels = []
    for (grouping, cell), part in rows.groupby(["grouping", "cell"], sort=False):
        order = list(dict.fromkeys(part.sort_values("order")["group"]))
        y = alt.Y("group:N", title=None, sort=order)
        offset = alt.YOffset("method:N", sort=methods)
        x = alt.X("bias:Q", title=f"bias of {cell} (counts)")
        points = (
            alt.Chart(part)
            .mark_point(filled=True, size=46)
            .encode(
                x=x,
                y=y,
                yOffset=offset,
                color=alt.Color("method:N", title="method", scale=_subset(methods, _LIGHTNESS), legend=_legend()),
                shape=alt.Shape("method:N", title="method", scale=_subset(methods, _SHAPES)),
                tooltip=["group:N", "units:Q", "method:N", "bias:Q", "bias_low:Q", "bias_high:Q"],
            )
        )
        bars = alt.Chart(part).mark_rule(color=_INK).encode(x="bias_low:Q", x2="bias_high:Q", y=y, yOffset=offset)
        zero = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(color=_GREY).encode(x="zero:Q")
        panels.append(
            alt.layer(zero, bars, points).properties(
                width=330, height=alt.Step(12), title=alt.Title(f"{cell} by {grouping}", anchor="start", fontSize=12)
            )
        )
    return alt.concat(*panels, columns=2, spacing=28)


def money_moved(summary: Summary) -> alt.TopLevelMixin | None:
    """Of a fund of one million, what goes elsewhere than it should, by method."""
    rows = pd.DataFrame([{**row, "rule": fund["rule"]} for fund in summary["funds"] for row in fund["moved"]])
    if rows.empty:
        return None
    bars = (
        alt.Chart(rows)
        .mark_bar(color="#5b6b8c", height=14)
        .encode(
            x=alt.X("moved:Q", title="money moved per million"),
            y=alt.Y("method:N", title=None, sort=summary["methods"]),
            tooltip=["method:N", "moved:Q", "moved_se:Q"],
        )
    )
    text = bars.mark_text(align="left", dx=4, fontSize=11, color=_INK).encode(text=alt.Text("moved:Q", format=",.4~r"))
    return alt.layer(bars, text).properties(width=560, height=alt.Step(24))


def bias_map(summary: Summary) -> alt.TopLevelMixin | None:
    """Bias of every outlined leaf in seven steps of lightness; the middle one is within Monte Carlo error."""
    if summary["map"] is None:
        return None
    steps = summary["map"]["steps"]
    domain = [-steps[2], -steps[1], -steps[0], steps[0], steps[1], steps[2]]
    # From light to dark in every step, so that the order survives a black and white print.
    shades = ["#ffffff", "#dcf1fd", "#bfe3fb", "#c3c7cd", "#e39a4b", "#b4541a", "#5a1f05"]
    chart: alt.TopLevelMixin = (
        alt.Chart(alt.NamedData("outlines"))
        .mark_geoshape(stroke="#7d838c", strokeWidth=0.25)
        .encode(
            color=alt.Color(
                "bias:Q",
                title="bias (counts)",
                scale=alt.Scale(type="threshold", domain=domain, range=shades),
                legend=alt.Legend(orient="right", format=".2~f"),
            ),
            tooltip=["geoid:N", "name:N", "bias:Q"],
        )
        .project(type=summary["map"]["projection"])
        .properties(width=760, height=460)
    )
    return chart
