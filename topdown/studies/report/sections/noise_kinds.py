"""The part of a study's report that compares bounded noise with a projection of unbounded noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from topdown.pages.chart_style import told
from topdown.studies.methods import StudiedMethod
from topdown.studies.noise_comparison import NoiseVariant, best_noise, by_noise_and_size
from topdown.studies.report.chart_parts import by_series
from topdown.studies.report.groupings import SIZE_CLASS
from topdown.studies.report.plain_numbers import rows_of
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Chart, Section, Summary, fragment
from topdown.studies.report.words import signed_within, within


def noise_numbers(results: StudyResults) -> Summary:
    """``noise_comparison``: of `compare`; nothing where the study has one kind of noise."""
    if len(results.variants) < 2:
        return {}
    return {"noise_comparison": compare(results.variants, results.groupings[SIZE_CLASS].by_cell, results.primary)}


def compare(
    variants: Sequence[NoiseVariant], size_classes: Mapping[str, Sequence[str]], primary: str
) -> dict[str, Any]:
    """The comparison as plain values: rows by size class, the best noise in each, and the same in words. The others are
    compared with the first variant and the method ``primary``.
    """
    rows = by_noise_and_size(variants, size_classes)
    base, method = variants[0], primary
    best = best_noise(rows, (base.name, method))
    return {
        "baseline": {"noise": base.name, "method": method},
        "variants": [
            {
                "name": one.name,
                "charged": float(one.charged),
                "equal": bool(one.charged <= base.charged),
                "leaf_scale": float(one.plan.scale(one.table.measured_levels[-1])),
                "replicates": one.table.replicates,
                "words": one.plan.bounds.at(one.table.measured_levels[-1]).in_words() if one.plan.bounds.any else "",
            }
            for one in variants
        ],
        "rows": rows_of(rows),
        "best": rows_of(best),
        "sentences": [_sentence(rows, best, cell, base.name, method) for cell in best["cell"].unique()],
    }


def _sentence(rows: pd.DataFrame, best: pd.DataFrame, cell: str, noise: str, method: str) -> str:
    part = best[best["cell"] == cell].sort_values("order")
    beaten = part[part["clear"]]
    begin = f"Counts of {cell}, at equal true epsilon: "
    if beaten.empty:
        begin += f"in no size class has another noise a clearly smaller RMSE than {noise} with {method}."
    else:
        wins = [
            f"{row['rmse_noise']} with {row['rmse_method']} in “{row['group']}” (RMSE "
            f"{within(row['rmse'], row['rmse_se'])} against {within(row['baseline_rmse'], row['baseline_rmse_se'])})"
            for _, row in beaten.iterrows()
        ]
        begin += f"{noise} with {method} has a clearly larger RMSE than {'; '.join(wins)}."
    low = part.iloc[0]
    return (
        f"{begin} In “{low['group']}” its bias is "
        f"{signed_within(low['baseline_bias'], low['baseline_bias_se'])}, and the least biased is "
        f"{low['bias_noise']} with {low['bias_method']} ({signed_within(low['bias'], low['bias_se'])}). "
        f"{_most_units(rows, cell, noise, method)}"
    )


def _most_units(rows: pd.DataFrame, cell: str, noise: str, method: str) -> str:
    """The RMSE of every noise with the same projection, in the class with the most units."""
    there = [row for row in rows.to_dict("records") if row["cell"] == cell and row["method"] == method]
    most = max((row for row in there if row["noise"] == noise), key=lambda row: row["units"])
    others = [
        f"{within(row['rmse'], row['rmse_se'])} {row['noise']}"
        for row in there
        if row["noise"] != noise and row["order"] == most["order"]
    ]
    begin = f"With {method} the RMSE in “{most['group']}”, which has the most units, is "
    begin += within(most["rmse"], most["rmse_se"])
    return f"{begin}; with other noise it is {', '.join(others)}." if others else f"{begin}."


def noise_chart(summary: Summary) -> alt.TopLevelMixin | None:
    """RMSE and bias against the size class by noise, a panel per cell, for the released method and for sums alone."""
    comparison = summary.get("noise_comparison")
    if not comparison:
        return None
    rows = pd.DataFrame(comparison["rows"])
    names = [one["name"] for one in comparison["variants"]]
    methods = list(dict.fromkeys(rows["method"]))
    sums_alone = [m for m in methods if StudiedMethod.parse(m).sums_alone]
    rows = rows[rows["method"].isin([comparison["baseline"]["method"], *sums_alone[:1]])]
    root = alt.Scale(type="log", nice=False, padding=12) if (rows["rmse"] > 0).all() else alt.Scale()
    signed_scale = alt.Scale(type="symlog", constant=1.0)
    panels = []
    for (cell, method), part in rows.groupby(["cell", "method"], sort=False):
        order = list(dict.fromkeys(part.sort_values("order")["group"]))
        for measure, title, scale in (("rmse", "RMSE (counts)", root), ("bias", "bias (counts)", signed_scale)):
            marks = (
                alt.Chart(part[["group", "noise", measure, "units"]])
                .mark_line(point=alt.OverlayMarkDef(filled=True, size=42), strokeWidth=1.3)
                .encode(
                    x=alt.X("group:N", title=f"{cell}: size class", sort=order, axis=alt.Axis(labelAngle=-30)),
                    y=alt.Y(f"{measure}:Q", title=title, scale=scale),
                    **by_series("noise", "noise", names, alt.Legend(orient="top")),
                    tooltip=told("group:N", "noise:N", f"{measure}:Q", "units:Q"),
                )
            )
            panels.append(
                marks.properties(
                    width=400, height=170, title=alt.Title(f"{cell}: {method}", anchor="start", fontSize=12)
                )
            )
    return alt.concat(*panels, columns=2, spacing=28)


SECTION = Section(
    name="noise",
    template=fragment("noise_kinds"),
    numbers=noise_numbers,
    charts={"noise": Chart("RMSE and bias against the size class, by noise", noise_chart)},
    link="Other noise",
    appendix=True,
)
