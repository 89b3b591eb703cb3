"""The errors of every answer of a studied query, level by level."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from topdown.noise import DiscreteGaussian, Gaussian
from topdown.studies.discoveries import biased
from topdown.studies.errors_table import ErrorTable
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Section, Summary, fragment
from topdown.studies.report.sections.categories import named
from topdown.studies.report.sections.overview import level_distance
from topdown.studies.report.sections.residuals import reference_law


def category_error_numbers(results: StudyResults) -> Summary:
    """``category_levels``: the errors of each answer at every level, with the theory of linear methods; empty where the
    cells themselves are studied.
    """
    table = results.table
    if not table.follows_queries:
        return {"category_levels": []}
    found = [
        _errors(results, own, level, number, method, column)
        for level, own, number in reversed(list(table.by_level))
        for column in range(len(table.cells))
        for method in table.methods
    ]
    return {"category_levels": found}


def _errors(
    results: StudyResults, table: ErrorTable, level: str, number: int, method: str, column: int
) -> dict[str, Any]:
    """An answer's errors over the units of a level, and what theory predicts. For a linear method the variance is
    exact; with Gaussian noise the error is normal, too, and its distance from the noise is the difference of the
    standard deviations times E|N(0, 1)|.
    """
    nodes = table.geography.tree.level(number)
    mse = float(table.level_means[method]["mse"][number, column])
    truth = float(table.truth[nodes, column].mean())
    low, high = level_distance(table, method, nodes, column)
    is_known = bool(np.isfinite(table[method, "bias"][nodes, column]).all())
    found = {
        "level": level,
        **named(table, method, column),
        "units": nodes.stop - nodes.start,
        "biased": int(biased(table, method, nodes, column).sum()) if is_known else None,
        "mean_truth": truth,
        "rmse": math.sqrt(mse) if mse >= 0 else math.nan,
        "relative_rmse": math.sqrt(mse) / truth if mse >= 0 and truth > 0 else math.nan,
        "sd": float(np.sqrt(table[method, "variance"][nodes, column].mean())),
        "wasserstein_low": low,
        "wasserstein_high": high,
        "predicted_sd": math.nan,
        "predicted_wasserstein": math.nan,
    }
    theory = table.theory.get(method)
    if theory is not None:
        found["predicted_sd"] = float(np.sqrt(theory[nodes, column].mean()))
        law = reference_law(table, results.plan, nodes.start, column)
        if isinstance(law, Gaussian | DiscreteGaussian):
            expected = law.std if table.reference_sd is None else table.reference_sd[nodes, column]
            apart = np.abs(np.sqrt(theory[nodes, column]) - expected)
            found["predicted_wasserstein"] = float(apart.mean() * math.sqrt(2.0 / math.pi))
    return found


SECTION = Section(
    name="category_errors",
    template=fragment("category_errors"),
    numbers=category_error_numbers,
    link="Errors by category",
    appendix=True,
    key="category_levels",
)
