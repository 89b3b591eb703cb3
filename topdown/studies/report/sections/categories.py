"""Who is favoured by category: of every studied query the bias of each answer."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from topdown.studies.errors_table import ErrorTable
from topdown.studies.report.percent_chart import percent_chart
from topdown.studies.report.plain_numbers import rows_of
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Chart, Section, Summary, fragment
from topdown.studies.report.verdicts import on_counts, with_verdicts
from topdown.studies.report.words import many_of


def category_numbers(results: StudyResults) -> Summary:
    """``categories``: the mean bias over the lowest level's units by query, answer and method, with a verdict on each;
    empty where the cells themselves are studied."""
    table, frames = results.table, []
    if not table.follows_queries:
        return {"categories": []}
    effect = on_counts(many_of(results.plan.unit), results.tolerance, "answers")
    for method in table.methods:
        # A query with one answer, the total, has nothing to compare: it does not come first.
        alone = [table.of_query.count(query) == 1 for query in table.of_query]
        columns = sorted(range(len(table.cells)), key=lambda column: alone[column])
        rows = pd.DataFrame([_bias(table, method, column) for column in columns])
        near = float(table.resolution.max())
        frames.append(with_verdicts(rows, table.replicates, effect, results.tolerance, near))
    return {"categories": rows_of(pd.concat(frames, ignore_index=True))}


def named(table: ErrorTable, method: str, column: int) -> dict[str, Any]:
    query = table.of_query[column]
    return {"query": query, "answer": table.cells[column].removeprefix(f"{query}: "), "method": method}


def _bias(table: ErrorTable, method: str, column: int) -> dict[str, Any]:
    """The mean bias over the lowest level's units."""
    means = table.level_means[method]
    bias, error = (float(means[name][-1, column]) for name in ("bias", "bias_se"))
    truth = float(table.truth[table.geography.tree.leaves, column].mean())
    interval = {"bias": bias, "bias_se": error, "bias_low": bias - 1.96 * error, "bias_high": bias + 1.96 * error}
    units = table.geography.n_leaves
    return {**named(table, method, column), "units": units, "mean_truth": truth, **interval}


def bias_by_category(summary: Summary) -> alt.TopLevelMixin | None:
    """Bias of every answer in % of its mean with its 95 % interval, under the released method; the reader picks the
    query."""
    rows = [
        {**row, "grouping": row["query"], "group": row["answer"], "order": k, "cell": "all units"}
        for k, row in enumerate(summary["categories"])
        if row["method"] == summary["primary"]
    ]
    return percent_chart(rows, ["all units"], "bias, % of the mean count")


SECTION = Section(
    name="categories",
    template=fragment("categories"),
    numbers=category_numbers,
    charts={"categories": Chart("Bias of every answer, in percent of its mean, with 95 % intervals", bias_by_category)},
    link="By category",
)
