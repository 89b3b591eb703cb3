"""Means over the nodes of every level and cell, by method."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from topdown.studies.discoveries import RATE, at_least, biased
from topdown.studies.errors_table import ErrorTable
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Section, Summary, fragment


def overview_numbers(results: StudyResults) -> Summary:
    """``overview``: means over the nodes of every level and cell, by method; the lowest level first."""
    table = results.table
    rows = []
    for level, own, number in reversed(list(table.by_level)):
        nodes = own.geography.tree.level(number)
        for column, cell in enumerate(table.cells):
            for method in table.methods:
                rows.append({"level": level, "cell": cell, "method": method} | _means(own, method, number, column))
                rows[-1] |= _largest(own, method, nodes, column)
    return {"overview": rows, "false_discovery_rate": RATE}


def _means(table: ErrorTable, method: str, number: int, column: int) -> dict[str, Any]:
    """Means over a level's nodes, with their simulation errors (``_se``)."""
    nodes = table.geography.level_slice(table.geography.levels[number])
    mean = {name: float(values[number, column]) for name, values in table.level_means[method].items()}
    variance = float(table[method, "variance"][nodes, column].mean())
    # The error of a mean variance is nearly that of the mean square.
    spread = math.sqrt(variance) if variance >= 0 else math.nan
    root = math.sqrt(mean["mse"]) if mean["mse"] >= 0 else math.nan
    low, high = level_distance(table, method, nodes, column)
    expected = None if table.reference_sd is None else float(np.sqrt((table.reference_sd[nodes, column] ** 2).mean()))
    return {
        "mean_bias": mean["bias"],
        "mean_bias_se": mean["bias_se"],
        "sd": spread,
        "sd_se": _of_root(mean["mse_se"], spread),
        "least_squares_sd": expected,
        "rmse": root,
        "rmse_se": _of_root(mean["mse_se"], root),
        "wasserstein_low": low,
        "wasserstein_high": high,
        "zeros": mean["zeros"],
        "zeros_se": mean["zeros_se"],
    }


def level_distance(table: ErrorTable, method: str, nodes: slice, column: int) -> tuple[float, float]:
    """The 95 % interval of the mean distance to the noise over ``nodes`` in a cell (`ErrorTable.distance_interval`)."""
    low, high = table.distance_interval(
        method,
        lambda values: values[nodes, column].mean(),
        # Siblings' distances are almost uncorrelated: they depend on the sizes of errors, not on their signs.
        lambda errors: np.sqrt((errors[nodes, column] ** 2).sum()) / (nodes.stop - nodes.start),
    )
    return float(low), float(high)


def _largest(table: ErrorTable, method: str, nodes: slice, column: int) -> dict[str, Any]:
    """The bias of the unit with the largest lower limit of bias, and how many units have a clear bias."""
    bias, error = (table[method, name][nodes, column] for name in ("bias", "bias_se"))
    if not np.isfinite(bias).all():
        return {"largest_bias": None, "largest_bias_se": None, "biased": None, "units": len(bias)}
    most = int(at_least(bias, error).argmax())
    found = int(biased(table, method, nodes, column).sum())
    return {"largest_bias": bias[most], "largest_bias_se": error[most], "biased": found, "units": len(bias)}


def _of_root(standard_error: float, root: float) -> float:
    """d sqrt(m) = dm / (2 sqrt(m))."""
    return standard_error / (2.0 * root) if root > 0 else 0.0


SECTION = Section(
    name="overview", template=fragment("overview"), numbers=overview_numbers, link="By level", appendix=True
)
