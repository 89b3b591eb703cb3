"""Who is favoured by category: of every studied query the bias of each answer, and its errors level by level."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from topdown.noise import DiscreteGaussian, Gaussian
from topdown.studies.discoveries import biased
from topdown.studies.errors_table import ErrorTable
from topdown.studies.report.chart_parts import GREY, INK, LIGHTNESS, SHAPES, above, shown_methods, telling_apart
from topdown.studies.report.plain_numbers import rows_of
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Section, Summary, fragment
from topdown.studies.report.sections.residuals import reference_law
from topdown.studies.report.verdicts import with_verdicts
from topdown.studies.report.words import many_of

_WITHIN = 1.96


def category_numbers(results: StudyResults) -> Summary:
    """``categories``: the mean bias over the lowest level's units by query, answer and method, with a verdict on each;
    ``category_levels``: the other errors of each answer at every level, with what theory says of linear methods. Both
    empty where the cells themselves are studied."""
    table = results.table
    if not table.follows_queries:
        return {"categories": [], "category_levels": []}
    levels, frames = range(len(table.geography.levels)), []
    for method in table.methods:
        rows = pd.DataFrame([_bias(table, method, column) for column in range(len(table.cells))])
        near = float(table.resolution.max())
        frames.append(with_verdicts(rows, table.replicates, "answers", many_of(results.plan.unit), near))
    errors = [
        _errors(results, method, number, column)
        for number in reversed(levels)
        for column in range(len(table.cells))
        for method in table.methods
    ]
    return {"categories": rows_of(pd.concat(frames, ignore_index=True)), "category_levels": errors}


def _named(table: ErrorTable, method: str, column: int) -> dict[str, Any]:
    query = table.of_query[column]
    return {"query": query, "answer": table.cells[column].removeprefix(f"{query}: "), "method": method}


def _bias(table: ErrorTable, method: str, column: int) -> dict[str, Any]:
    """The mean bias over the lowest level's units, also as a part of the mean answer (``relative``)."""
    means = table.level_means[method]
    bias, error = (float(means[name][-1, column]) for name in ("bias", "bias_se"))
    truth = float(table.truth[table.geography.tree.leaves, column].mean())
    interval = {"bias": bias, "bias_low": bias - _WITHIN * error, "bias_high": bias + _WITHIN * error}
    per_cent = 100.0 / truth if truth > 0 else math.nan
    relative = {name.replace("bias", "relative"): value * per_cent for name, value in interval.items()}
    return {**_named(table, method, column), "mean_truth": truth, **interval, "bias_se": error, **relative}


def _errors(results: StudyResults, method: str, number: int, column: int) -> dict[str, Any]:
    """An answer's errors over the units of a level, and what is known of them without a simulation.

    Of a linear method the variance is exact; of Gaussian noise the error is normal too, and its distance from the noise
    is the difference of the standard deviations times E|N(0, 1)|.
    """
    table = results.table
    level = table.geography.levels[number]
    nodes = table.geography.level_slice(level)
    mse = float(table.level_means[method]["mse"][number, column])
    truth = float(table.truth[nodes, column].mean())
    corrected, plain = (table[method, name][nodes, column] for name in ("wasserstein_corrected", "wasserstein"))
    error = table[method, "wasserstein_se"][nodes, column]
    is_known = bool(np.isfinite(table[method, "bias"][nodes, column]).all())
    found = {
        "level": level,
        **_named(table, method, column),
        "units": nodes.stop - nodes.start,
        "biased": int(biased(table, method, nodes, column).sum()) if is_known else None,
        "mean_truth": truth,
        "rmse": math.sqrt(mse) if mse >= 0 else math.nan,
        "relative_rmse": math.sqrt(mse) / truth if mse >= 0 and truth > 0 else math.nan,
        "sd": float(np.sqrt(table[method, "variance"][nodes, column].mean())),
        "wasserstein": float(np.where(np.isfinite(corrected), corrected, plain).mean()),
        "wasserstein_se": float(np.sqrt((error**2).sum()) / len(error)),
        "predicted_sd": math.nan,
        "predicted_wasserstein": math.nan,
    }
    theory = table.theory.get(method)
    if theory is not None:
        found["predicted_sd"] = float(np.sqrt(theory[nodes, column].mean()))
        law = reference_law(table, results.plan, level, column)
        if isinstance(law, Gaussian | DiscreteGaussian):
            apart = np.abs(np.sqrt(theory[nodes, column]) - law.std)
            found["predicted_wasserstein"] = float(apart.mean() * math.sqrt(2.0 / math.pi))
    return found


def bias_by_category(summary: Summary) -> alt.TopLevelMixin | None:
    """Mean bias of every answer as a part of its mean, with its 95 % interval, a panel per query."""
    rows = pd.DataFrame(summary["categories"])
    if rows.empty:
        return None
    methods = shown_methods(summary)
    rows = rows[rows["method"].isin(methods) & rows["relative"].notna()]
    if rows.empty:
        return None
    rows = rows.astype(dict.fromkeys(["relative", "relative_low", "relative_high"], float))
    panels = []
    for query, part in rows.groupby("query", sort=False):
        order = list(dict.fromkeys(part["answer"]))
        y = alt.Y("answer:N", title=None, sort=order, axis=alt.Axis(labelLimit=240))
        offset = alt.YOffset("method:N", sort=methods)
        base = alt.Chart(part)
        points = base.mark_point(filled=True, size=46).encode(
            x=alt.X("relative:Q", title="mean bias, % of the mean count"),
            y=y,
            yOffset=offset,
            color=alt.Color("method:N", title="method", scale=telling_apart(methods, LIGHTNESS), legend=above()),
            shape=alt.Shape("method:N", title="method", scale=telling_apart(methods, SHAPES)),
            tooltip=["answer:N", "method:N", "mean_truth:Q", "bias:Q", "bias_se:Q", "relative:Q"],
        )
        bars = base.mark_rule(color=INK).encode(x="relative_low:Q", x2="relative_high:Q", y=y, yOffset=offset)
        zero = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(color=GREY).encode(x="zero:Q")
        title = alt.Title(str(query), anchor="start", fontSize=12)
        panels.append(alt.layer(zero, bars, points).properties(width=330, height=alt.Step(12), title=title))
    return alt.concat(*panels, columns=2, spacing=28)


SECTION = Section(
    name="categories",
    template=fragment("categories"),
    numbers=category_numbers,
    charts={"categories": bias_by_category},
    link="Who is favoured",
)
