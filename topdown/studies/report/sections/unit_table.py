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
    (``published``); of a large study the inner nodes and the most biased of the leaves, and of areas, by the lower
    limit of their interval."""
    of_units, areas = results.table, [*results.table.areas.values()]
    n_cells, n_levels = len(of_units.cells), len(of_units.geography.levels)
    # Of areas without the root.
    tables = [(of_units, 0, np.arange(of_units.truth.size))]
    tables += [(one, n_levels + k - 1, np.arange(n_cells, one.truth.size)) for k, one in enumerate(areas)]
    number = sum(len(rows) for _, _, rows in tables)
    if number > _MOST_ROWS:
        tables = _most_biased(tables, results.primary)
    parts = [_columns_of(one, first, rows) for one, first, rows in tables]
    found: Summary = {
        "all_rows": number,
        "against": "noise" if of_units.reference_sd is None else "expected",
        "levels": [*of_units.geography.levels, *of_units.areas],
        **{name: [value for part in parts for value in part[name]] for name in _OF_UNITS},
        "methods": {
            method: {
                name: np.concatenate([part["methods"][method][name] for part in parts])
                for name in parts[0]["methods"][method]
            }
            for method in of_units.methods
        },
        "published": None,
    }
    if of_units.geography.names is None:
        found["name"] = None
    if results.published is not None:
        none = [None] * sum(len(rows) for _, _, rows in tables[1:])
        own = _published(results.published, tables[0][2])
        found["published"] = {name: [*values, *none] for name, values in own.items()}
    return {"nodes": found}


_OF_UNITS = ("geoid", "name", "level", "cell", "truth", "noise_variance")
_Rows = tuple[ErrorTable, int, IntArray]


def _most_biased(tables: list[_Rows], primary: str) -> list[_Rows]:
    """Of rows of tables those that are shown where there is no room for all."""
    scores = []
    for table, first, rows in tables:
        score = at_least(table[primary, "bias"], table[primary, "bias_se"]).reshape(-1)
        if not first:
            score[: table.geography.tree.leaves.start * len(table.cells)] = np.inf
        scores.append(score[rows])
    kept = np.zeros(sum(map(len, scores)), np.bool_)
    kept[np.argsort(-np.concatenate(scores), kind="stable")[:_MOST_ROWS]] = True
    ends = np.cumsum([len(one) for one in scores])[:-1]
    return [(table, first, rows[here]) for (table, first, rows), here in zip(tables, np.split(kept, ends), strict=True)]


def _columns_of(table: ErrorTable, first: int, rows: IntArray) -> Summary:
    """The columns of some rows (nodes x cells) of a table, whose root's level has the number ``first``."""
    geography = table.geography
    node, cell = np.divmod(rows, len(table.cells))
    names = geography.names
    return {
        "geoid": geography.identifiers.take(node).to_pylist(),
        "name": [""] * len(node) if names is None else [name or "" for name in names.take(node).to_pylist()],
        "level": (first + np.searchsorted(geography.level_offsets, node, side="right") - 1).tolist(),
        "cell": cell.tolist(),
        "truth": table.truth.reshape(-1)[rows].tolist(),
        "noise_variance": table.noise_variances[node, cell].tolist(),
        "methods": {method: _columns(table, method, rows) for method in table.methods},
    }


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
