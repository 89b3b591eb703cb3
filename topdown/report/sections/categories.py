"""Who is favoured by category: of every query that is studied the bias of each answer, level by level."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from topdown.report.chart_parts import GREY, INK, LIGHTNESS, SHAPES, above, shown_methods, telling_apart
from topdown.report.numbers import rows_of
from topdown.report.results import StudyResults
from topdown.report.section import Section, Summary, fragment
from topdown.report.verdicts import with_verdicts
from topdown.report.words import many_of
from topdown.simulation.errors_table import ErrorTable

_WITHIN = 1.96


def category_numbers(results: StudyResults) -> Summary:
    """``categories``: mean errors over a level's units by query, answer and method, with a verdict on each; empty where
    the cells themselves are studied."""
    table = results.table
    if not table.follows_queries:
        return {"categories": []}
    frames = []
    for method in table.methods:
        rows = pd.DataFrame(
            [
                _means(table, method, number, column)
                for number in reversed(range(len(table.geography.levels)))
                for column in range(len(table.cells))
            ]
        )
        near = float(table.resolution.max())
        frames.append(with_verdicts(rows, table.replicates, "answers", many_of(results.plan.unit), near))
    return {"categories": rows_of(pd.concat(frames, ignore_index=True))}


def _means(table: ErrorTable, method: str, number: int, column: int) -> dict[str, Any]:
    """Means over the units of a level of one answer's errors; as a part of the mean answer ``relative``."""
    level = table.geography.levels[number]
    nodes, query = table.geography.level_slice(level), table.of_query[column]
    means = {name: float(values[number, column]) for name, values in table.level_means[method].items()}
    truth = float(table.truth[nodes, column].mean())
    bias, error = means["bias"], means["bias_se"]
    predicted = table.theory.get(method)
    deviation = float(np.sqrt(table[method, "variance"][nodes, column].mean()))
    per_cent = 100.0 / truth if truth > 0 else np.nan
    return {
        "level": level,
        "query": query,
        "answer": table.cells[column].removeprefix(f"{query}: "),
        "cell": table.cells[column],
        "method": method,
        "units": nodes.stop - nodes.start,
        "mean_truth": truth,
        "bias": bias,
        "bias_se": error,
        "bias_low": bias - _WITHIN * error,
        "bias_high": bias + _WITHIN * error,
        "relative": bias * per_cent,
        "relative_low": (bias - _WITHIN * error) * per_cent,
        "relative_high": (bias + _WITHIN * error) * per_cent,
        "rmse": float(np.sqrt(means["mse"])),
        "sd": deviation,
        "predicted_sd": np.nan if predicted is None else float(np.sqrt(predicted[nodes, column].mean())),
    }


def bias_by_category(summary: Summary) -> alt.TopLevelMixin | None:
    """Mean bias of every answer as a part of its mean, with its 95 % interval, a panel per query and level."""
    rows = pd.DataFrame(summary["categories"])
    if rows.empty:
        return None
    methods = shown_methods(summary)
    rows = rows[rows["method"].isin(methods)]
    rows = rows[rows["relative"].notna()]
    if rows.empty:
        return None
    numbers = ["relative", "relative_low", "relative_high"]
    rows = rows.astype(dict.fromkeys(numbers, float))
    panels = []
    for (level, query), part in rows.groupby(["level", "query"], sort=False):
        order = list(dict.fromkeys(part["answer"]))
        y = alt.Y("answer:N", title=None, sort=order, axis=alt.Axis(labelLimit=240))
        offset = alt.YOffset("method:N", sort=methods)
        points = (
            alt.Chart(part)
            .mark_point(filled=True, size=46)
            .encode(
                x=alt.X("relative:Q", title="mean bias, % of the mean count"),
                y=y,
                yOffset=offset,
                color=alt.Color("method:N", title="method", scale=telling_apart(methods, LIGHTNESS), legend=above()),
                shape=alt.Shape("method:N", title="method", scale=telling_apart(methods, SHAPES)),
                tooltip=["answer:N", "method:N", "mean_truth:Q", "bias:Q", "bias_se:Q", "relative:Q"],
            )
        )
        bars = (
            alt.Chart(part).mark_rule(color=INK).encode(x="relative_low:Q", x2="relative_high:Q", y=y, yOffset=offset)
        )
        zero = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(color=GREY).encode(x="zero:Q")
        title = alt.Title(f"{query} by {level}", anchor="start", fontSize=12)
        panels.append(alt.layer(zero, bars, points).properties(width=330, height=alt.Step(12), title=title))
    return alt.concat(*panels, columns=2, spacing=28)


SECTION = Section(
    name="categories",
    template=fragment("categories"),
    numbers=category_numbers,
    charts={"categories": bias_by_category},
    link="Who is favoured",
)
