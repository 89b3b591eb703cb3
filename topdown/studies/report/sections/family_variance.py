"""Variance by family: measured against theory, and against the family's size."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from topdown.pages.chart_style import GREY, INK, told
from topdown.studies import fairness
from topdown.studies.errors_table import ErrorTable
from topdown.studies.methods import StudiedMethod
from topdown.studies.report.chart_parts import (
    LIGHTNESS,
    SHAPES,
    above,
    by_series,
    leaf_families,
    log,
    shown_methods,
    telling_apart,
)
from topdown.studies.report.plain_numbers import rows_of
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Chart, Section, Summary, fragment


def family_numbers(results: StudyResults) -> Summary:
    """``families``: variance of every family, measured and predicted, by method; ``without_closed_form``: the methods
    for which theory predicts none; ``pairs``: the families treated most differently, under the method of the findings,
    and under the method on sums alone for which there is a theory (``pairs_methods``).
    """
    table = results.table
    shown = list(dict.fromkeys([results.primary, _closed(results.table, results.primary)]))
    families = {method: fairness.by_family(table, method) for method in table.methods}
    if results.plan.bounds.any:
        # The theory assumes noise with the same variance at every count.
        unknown = dict.fromkeys(["predicted", "public_total"], np.nan)
        families = {method: frame.assign(**unknown) for method, frame in families.items()}
    return {
        "families": rows_of(pd.concat([f.assign(method=m) for m, f in families.items()], ignore_index=True)),
        "without_closed_form": [m for m, f in families.items() if len(f) and f["predicted"].isna().all()],
        "pairs": [row for m in shown for row in rows_of(fairness.family_pairs(families[m]).assign(method=m))],
        "pairs_methods": shown,
    }


def _closed(table: ErrorTable, primary: str) -> str:
    """The per-family equality projection, whose variance is known in closed form, where it was studied."""
    parsed = {method: StudiedMethod.parse(method) for method in table.methods}
    return next((name for name, method in parsed.items() if method.sums_alone and not method.upward), primary)


def measured_against_predicted(summary: Summary) -> alt.TopLevelMixin | None:
    """Variance of the leaves' families, measured against predicted, where theory has a closed form."""
    rows = leaf_families(summary)
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
    points = base.mark_point(filled=True, size=36, opacity=0.85, color=INK).encode(
        x=alt.X("predicted:Q", title="predicted variance (log scale)", scale=scale),
        y=alt.Y("measured:Q", title="measured, mean over the family", scale=scale),
        shape=alt.Shape(
            "cell:N",
            title="cell",
            legend=above(),
            scale=telling_apart(summary["cells"], SHAPES),
        ),
        color=alt.Color(
            "cell:N",
            title="cell",
            scale=telling_apart(summary["cells"], LIGHTNESS),
        ),
        tooltip=told("name:N", "geoid:N", "cell:N", "family_size:Q", "predicted:Q", "measured:Q", "measured_se:Q"),
    )
    bars = base.mark_rule(color=GREY).encode(x="predicted:Q", y="low:Q", y2="high:Q")
    diagonal = (
        alt.Chart(rows)
        .mark_line(color=INK, strokeDash=[4, 3], strokeWidth=1)
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
    rows = leaf_families(summary)
    if rows.empty:
        return None
    methods = list(
        dict.fromkeys([m for m in ("raw", "top-down/equality") if m in summary["methods"]] + shown_methods(summary))
    )[:4]
    rows = (
        rows[rows["method"].isin(methods)]
        .groupby(["method", "geoid", "name", "family_size"], dropna=False, as_index=False)[
            ["measured", "public_total", "noise_variance"]
        ]
        .mean()
    )
    x = alt.X("family_size:Q", title="family size: leaves under one parent (log scale)", scale=log())
    points = (
        alt.Chart(rows)
        .mark_point(filled=True, size=42, opacity=0.9)
        .encode(
            x=x,
            y=alt.Y("measured:Q", title="variance, mean over cells (log scale)", scale=log()),
            **by_series("method", "method", methods),
            tooltip=told("name:N", "geoid:N", "family_size:Q", "method:N", "measured:Q", "public_total:Q"),
        )
    )
    theory = (
        alt.Chart(rows[(rows["method"] == methods[0]) & (rows["public_total"] > 0)].sort_values("family_size"))
        .mark_line(color=INK, strokeDash=[4, 3], strokeWidth=1.2)
        .encode(x=x, y=alt.Y("public_total:Q", scale=log()))
    )
    return alt.layer(theory, points).properties(width=720, height=280)


SECTION = Section(
    name="variance",
    template=fragment("family_variance"),
    numbers=family_numbers,
    charts={
        "predicted": Chart("Measured variance of families against the predicted one", measured_against_predicted),
        "families": Chart("Variance against family size, by method", variance_against_family_size),
    },
    link="Variance",
    appendix=True,
)
