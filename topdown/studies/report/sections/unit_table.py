"""The table of all units, which the page's script shows."""

from __future__ import annotations

import numpy as np

from topdown.geography.tree import FloatArray, IntArray
from topdown.studies.discoveries import at_least
from topdown.studies.errors_table import ErrorTable
from topdown.studies.one_release import PublishedExample
from topdown.studies.report.plain_numbers import whole
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Section, Summary, fragment

_MOST_ROWS = 12_000
"""The most rows (nodes x cells) of the page's table; the file errors.parquet has all."""


def node_numbers(results: StudyResults) -> Summary:
    """``nodes``: the table column by column, with one release's counts and margins where there are any
    (``published``); of a large study the inner nodes and the most biased of the leaves, by the lower limit of their
    interval."""
    table = results.table
    geography, shape = table.geography, table.truth.shape
    rows = np.arange(table.truth.size)
    if len(rows) > _MOST_ROWS:
        score = at_least(table[results.primary, "bias"], table[results.primary, "bias_se"]).reshape(-1)
        score[: geography.tree.leaves.start * shape[1]] = np.inf
        rows = np.sort(np.argsort(-score, kind="stable")[:_MOST_ROWS])
    node, cell = np.divmod(rows, shape[1])
    level = np.searchsorted(geography.level_offsets, node, side="right") - 1
    names = geography.names
    found = {
        "all_rows": int(table.truth.size),
        "geoid": geography.identifiers.take(node).to_pylist(),
        "name": None if names is None else [name or "" for name in names.take(node).to_pylist()],
        "level": level,
        "cell": cell,
        "truth": table.truth.reshape(-1)[rows],
        "noise_variance": table.noise_variances[node, cell],
        "methods": {method: _columns(table, method, rows) for method in table.methods},
        "published": None if results.published is None else _published(results.published, rows),
    }
    return {"nodes": found}


def _published(example: PublishedExample, rows: IntArray) -> Summary:
    """One release's counts with the ends of their intervals, and their coefficients of variation."""
    return {
        "count": example.values.reshape(-1)[rows],
        "lower": whole(example.lower.reshape(-1)[rows]),
        "upper": whole(example.upper.reshape(-1)[rows]),
        "cv": example.variation.reshape(-1)[rows],
    }


def _columns(table: ErrorTable, method: str, rows: IntArray) -> dict[str, FloatArray]:
    def of(name: str) -> FloatArray:
        return table[method, name].reshape(-1)[rows]

    rmse = np.sqrt(of("mse"))
    low, high = (end.reshape(-1)[rows] for end in table.distance_interval(method))
    return {
        "bias": of("bias"),
        "bias_se": of("bias_se"),
        "sd": np.sqrt(of("variance")),
        "rmse": rmse,
        "rmse_se": np.divide(of("mse_se"), 2.0 * rmse, out=np.zeros_like(rmse), where=rmse > 0),
        "wasserstein_low": low,
        "wasserstein_high": high,
        "zeros": of("zeros"),
    }


SECTION = Section(
    name="table", template=fragment("unit_table"), numbers=node_numbers, link="All units", data=("nodes",)
)
