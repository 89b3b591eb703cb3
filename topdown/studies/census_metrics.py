"""The Census Bureau's accuracy metrics of one release, by level and size class, beside the Bureau's own figures."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from topdown.errors import ConfigError
from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray, IntArray
from topdown.studies.decisions.expressions import Expression
from topdown.studies.fairness import size_class_names, size_classes
from topdown.wording import listed, shown

_USUAL = (1_000, 5_000, 10_000, 50_000, 100_000)
SIZES: Mapping[str, tuple[int, ...]] = {"county": _USUAL, "minor civil division": _USUAL, "place": (500, *_USUAL)}
"""Level -> the counts at which a size class begins; other levels have one class."""

ALL = "all"
TOTAL, ADULTS = "total", "18 and over"
"""The statistics for which the production run's figures are known."""

COUNTED = ("2 to 5 %", "above 5 %", "above 10 %", "above 200")
_PERCENTILES = ("median |d|", "90 % |d|", "95 % |d|", "max |d|")
METRICS = ("ME", "MAE", "RMSE", "MAPE", "MALPE", "CV", "TAES", *COUNTED, *_PERCENTILES)
"""The names of the metrics of `metrics_of`, in order."""


def metrics_of(truth: IntArray, released: IntArray) -> dict[str, float]:
    """The metrics of ``released`` (units,) against ``truth`` (units,), with d = released - truth and the percent
    difference p: 100 d / truth; 0 where both are 0, and 200 where only the truth is.

    ME, MAE and RMSE in counts; MAPE = mean |p|, MALPE = mean p; CV = 100 RMSE / mean truth; TAES = the sum of |share of
    the released total - share of the true total|; `COUNTED`: how many units have |p| in that range, or |d| above 200;
    the median, the 90th and 95th percentile and the largest |d|. NaN where there is nothing to divide by.

    Source: U.S. Census Bureau, detailed summary metrics of the 2010 demonstration data (April 2023).
    """
    t, r = np.asarray(truth, dtype=np.float64), np.asarray(released, dtype=np.float64)
    d = r - t
    size, mean = np.abs(d), float(t.mean())
    p = np.divide(100.0 * d, t, out=np.where(r > 0, 200.0, 0.0), where=t > 0)
    part = np.abs(p)
    rmse = float(np.sqrt((d * d).mean()))
    sums = t.sum(), r.sum()
    found = {
        "ME": d.mean(),
        "MAE": size.mean(),
        "RMSE": rmse,
        "MAPE": part.mean(),
        "MALPE": p.mean(),
        "CV": 100.0 * rmse / mean if mean > 0 else np.nan,
        "TAES": np.abs(r / sums[1] - t / sums[0]).sum() if min(sums) > 0 else np.nan,
        "2 to 5 %": ((part >= 2) & (part <= 5)).sum(),
        "above 5 %": (part > 5).sum(),
        "above 10 %": (part > 10).sum(),
        "above 200": (size > 200).sum(),
        **dict(zip(_PERCENTILES, np.quantile(size, [0.5, 0.9, 0.95, 1.0]), strict=True)),
    }
    return {name: float(found[name]) for name in METRICS}


def census_metrics(geography: Geography, cells: Sequence[str], truth: IntArray, released: IntArray) -> pd.DataFrame:
    """`metrics_of` for every level, cell and size class of the true counts (`SIZES`; "all" first): ``level, cell, size,
    units, <METRICS>``, and ``production MAE``, ``production RMSE``: the Bureau's own for the same level, statistic and
    class, from its run on the 2010 data under the settings of 2020; NaN where there is none.

    ``truth``, ``released`` (nodes x cells).
    """
    rows = []
    for level in geography.levels:
        nodes = geography.level_slice(level)
        kind = _kind(level)
        for column, cell in enumerate(cells):
            t, r = truth[nodes, column], released[nodes, column]
            classes = [(ALL, np.ones(len(t), dtype=bool))]
            if kind in SIZES:
                labels = np.array(size_classes(t, SIZES[kind]))
                classes += [(name, labels == name) for name in size_class_names(SIZES[kind])]
            known = production().get((kind, _statistic(cell)), {})
            for name, members in classes:
                if members.any():
                    row = {"level": level, "cell": cell, "size": name, "units": int(members.sum())}
                    own = {f"production {m}": known.get((name, m), np.nan) for m in ("MAE", "RMSE")}
                    rows.append({**row, **metrics_of(t[members], r[members]), **own})
    return pd.DataFrame(rows)


def impossible_results(
    geography: Geography,
    cells: Sequence[str],
    truth: IntArray,
    released: IntArray,
    conditions: Mapping[str, str],
) -> pd.DataFrame:
    """How many units of every level meet each of ``conditions`` (name -> an expression over cells), in the truth and in
    the release: ``level, condition, units, truth, released``. Raises `ConfigError` for a condition that names no cell.
    """
    rows: list[dict[str, Any]] = []
    for name, expression in conditions_on(cells, conditions).items():
        for level in geography.levels:
            nodes = geography.level_slice(level)

            def count(values: IntArray, nodes: slice = nodes, expression: Expression = expression) -> int:
                columns: dict[str, FloatArray] = {
                    cell: values[nodes, k].astype(np.float64) for k, cell in enumerate(cells)
                }
                return int((np.broadcast_to(expression.of(columns), nodes.stop - nodes.start) > 0).sum())

            rows.append(
                {"level": level, "condition": name, "units": nodes.stop - nodes.start}
                | {"truth": count(truth), "released": count(released)}
            )
    return pd.DataFrame(rows, columns=["level", "condition", "units", "truth", "released"])


def conditions_on(cells: Sequence[str], conditions: Mapping[str, str]) -> dict[str, Expression]:
    """``conditions`` as expressions over ``cells``. Raises `ConfigError` for one that names no cell."""
    found = {name: Expression.parse(text) for name, text in conditions.items()}
    for name, expression in found.items():
        unknown = [one for one in expression.names if one not in cells]
        if unknown:
            raise ConfigError(f"study.impossible, {shown(name)}: names {shown(unknown[0])}; there are {listed(cells)}")
    return found


@functools.cache
def production() -> Mapping[tuple[str, str], Mapping[tuple[str, str], float]]:
    """(level, statistic) -> (size class, metric) -> the Bureau's figure."""
    text = (files("topdown.studies") / "production_accuracy_2010.csv").read_text(encoding="utf-8")
    found: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for row in csv.DictReader(text.splitlines()):
        found.setdefault((row["level"], row["statistic"]), {})[row["size"], row["metric"]] = float(row["value"])
    return found


def _kind(level: str) -> str:
    """The level by the Bureau's name; plurals and punctuation are ignored."""
    plain = level.lower().replace("_", " ").strip()
    return {"counties": "county", "tracts": "tract", "places": "place", "blocks": "block"}.get(plain, plain)


def _statistic(cell: str) -> str:
    """The Bureau's statistic that an answer is, by its name; the name itself where it is none."""
    plain = cell.lower().partition(": ")[2] or cell.lower()
    return (
        ADULTS
        if plain in ("18+", "18over", "18 and over", "18 years and over")
        else TOTAL
        if plain == "total"
        else cell
    )
