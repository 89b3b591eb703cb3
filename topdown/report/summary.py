"""The numbers of a study's report as one JSON-able value, computed from its table of errors and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from topdown import __version__
from topdown.evaluation import fairness
from topdown.evaluation.errors_table import ErrorTable
from topdown.privacy.plan import Plan
from topdown.report.findings import findings, primary_method
from topdown.report.geometry import Outlines
from topdown.report.residuals import residual_rows, shown_units
from topdown.report.wasserstein_curve import wasserstein_curve
from topdown.tree import FloatArray, IntArray

_MOST_ROWS = 12_000
"""Rows (nodes x cells) that the page's table holds; the file errors.parquet holds all."""

_TABLE_STATISTICS = ("bias", "bias_se", "variance", "mse", "wasserstein", "wasserstein_corrected", "zeros")


@dataclass(frozen=True)
class Groupings:
    """Labels of every leaf: its size class by total and by each cell's count, and the columns of the user's table."""

    total_classes: tuple[str, ...]
    cell_classes: Mapping[str, tuple[str, ...]]
    columns: Mapping[str, tuple[str, ...]]

    def for_counts(self, cells: Sequence[str]) -> dict[str, dict[str, tuple[str, ...]]]:
        """Name of the grouping -> cell -> labels, for errors of counts."""
        named = {"size class": {cell: self.cell_classes[cell] for cell in cells}}
        return named | {name: dict.fromkeys(cells, labels) for name, labels in self.columns.items()}

    def for_decisions(self) -> dict[str, tuple[str, ...]]:
        """Name of the grouping -> labels, for decisions."""
        return {"size class": self.total_classes, **self.columns}


def summarise(
    table: ErrorTable,
    plan: Plan,
    *,
    title: str,
    released: str,
    groupings: Groupings,
    funds: Sequence[str] = (),
    thresholds: Sequence[str] = (),
    outlines: Outlines | None = None,
    seed: int | None = None,
    wanted: int | None = None,
) -> dict[str, Any]:
    """Everything that the report says: plain numbers, strings and lists.

    ``released``: the projection that the release uses; `primary_method` of it is what the findings are about.
    ``funds`` and ``thresholds``: labels of rules that the study followed. Numbers are rounded to 4 significant digits.
    """
    primary = primary_method(table, released)
    families = {method: fairness.by_family(table, method) for method in table.methods}
    if plan.bounds.any:
        # The theory is of noise that has the same variance at every count.
        families = {method: frame.assign(predicted=np.nan, public_total=np.nan) for method, frame in families.items()}
    groups = _groups(table, groupings)
    summary: dict[str, Any] = {
        "title": title,
        "notice": table.notice,
        "public_input": table.public_input,
        "primary": primary,
        "methods": list(table.methods),
        "cells": list(table.cells),
        "levels": list(table.geography.levels),
        "run": _run(table, plan, seed, wanted),
        "privacy": plan.describe(table.geography.levels),
        "overview": _overview(table),
        "units": shown_units(table, primary),
        "residuals": _records(residual_rows(table, plan, released)),
        "families": _records(pd.concat([f.assign(method=m) for m, f in families.items()], ignore_index=True)),
        "without_closed_form": [m for m, f in families.items() if len(f) and f["predicted"].isna().all()],
        "pairs": _records(fairness.family_pairs(families[_closed(table, primary)])),
        "pairs_method": _closed(table, primary),
        "wasserstein": wasserstein_curve(table, plan),
        "groups": _records(groups),
        "gaps": _gaps(groups),
        "funds": [_fund(table, rule, groupings) for rule in funds],
        "thresholds": [_threshold(table, rule, groupings) for rule in thresholds],
        "nodes": _nodes(table, primary),
        "map": None if outlines is None else _map(table, primary, outlines),
    }
    result: dict[str, Any] = rounded(summary)
    return result | {"findings": findings(table, primary, result)}


def rounded(value: Any) -> Any:
    """``value`` with every number at 4 significant digits, and None for what is not finite."""
    if isinstance(value, _Verbatim):
        return dict(value)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    if isinstance(value, np.ndarray):
        return rounded(value.tolist())
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value


def _closed(table: ErrorTable, primary: str) -> str:
    """The method whose variance by family is shown: the per-family equality projection where it was studied."""
    return "top-down/equality" if "top-down/equality" in table.methods else primary


def _run(table: ErrorTable, plan: Plan, seed: int | None, wanted: int | None) -> dict[str, Any]:
    geography = table.geography
    sizes = [geography.level_slice(level) for level in geography.levels]
    return {
        "software": f"topdown {__version__}",
        "nodes": geography.n_nodes,
        "level_sizes": {level: s.stop - s.start for level, s in zip(geography.levels, sizes, strict=True)},
        "replicates": table.replicates,
        "wanted": wanted,
        "seed": seed,
        "reference": table.reference,
        "mechanism": plan.mechanism,
        "noise_sd": {
            level: float(np.sqrt(table.noise_variance[s].mean()))
            for level, s in zip(geography.levels, sizes, strict=True)
        },
    }


def _overview(table: ErrorTable) -> list[dict[str, Any]]:
    """Means over the nodes of every level and cell, by method; the lowest level first."""
    rows = []
    for level in reversed(table.geography.levels):
        nodes = table.geography.level_slice(level)
        for column, cell in enumerate(table.cells):
            for method in table.methods:
                mean = {name: float(table[method, name][nodes, column].mean()) for name in _TABLE_STATISTICS}
                bias = table[method, "bias"][nodes, column]
                rows.append(
                    {
                        "level": level,
                        "cell": cell,
                        "method": method,
                        "mean_bias": mean["bias"],
                        "largest_bias": float(np.abs(bias).max()),
                        "sd": math.sqrt(mean["variance"]) if mean["variance"] >= 0 else None,
                        "rmse": math.sqrt(mean["mse"]),
                        "wasserstein": _or(mean["wasserstein_corrected"], mean["wasserstein"]),
                        "zeros": mean["zeros"],
                    }
                )
    return rows


def _groups(table: ErrorTable, groupings: Groupings) -> pd.DataFrame:
    frames = []
    for name, by_cell in groupings.for_counts(table.cells).items():
        for cell, labels in by_cell.items():
            for method in table.methods:
                frame = fairness.by_group(table, method, labels, cell=cell, name=name)
                frames.append(_in_order(frame, name, ["mean_truth"]).assign(grouping=name, method=method))
    return pd.concat(frames, ignore_index=True)


def _in_order(frame: pd.DataFrame, name: str, by: list[str]) -> pd.DataFrame:
    """Size classes from small to large, other groups by their label; ``order`` keeps it for the charts."""
    ranked = frame.sort_values(by if name == "size class" else ["group"], kind="stable", ignore_index=True)
    return ranked.assign(order=np.arange(len(ranked)))


def _gaps(groups: pd.DataFrame) -> list[dict[str, Any]]:
    rows = []
    # Raw noise has no bias at a level that was not measured.
    known = groups[np.isfinite(groups["bias"])]
    for (grouping, cell, method), part in known.groupby(["grouping", "cell", "method"], sort=False):
        gap = fairness.largest_gap(part)
        rows.append(
            {"grouping": grouping, "cell": cell, "method": method, "alpha": gap.alpha, "alpha_se": gap.alpha_se}
            | {"low": gap.low, "high": gap.high}
        )
    return rows


def _fund(table: ErrorTable, rule: str, groupings: Groupings) -> dict[str, Any]:
    moved, groups = [], []
    size = {label: float(k) for k, label in enumerate(_by_size(table, groupings.total_classes))}
    for method in table.methods:
        amount = fairness.money_moved(table, method, rule)
        leaves = fairness.fund(table, method, rule)
        extreme = leaves.iloc[int(leaves["bias"].abs().to_numpy().argmax())]
        moved.append(
            {"method": method, "moved": amount.value, "moved_se": amount.standard_error}
            | {"alpha": fairness.alpha_fairness(leaves["bias"].to_numpy())}
            | {f"extreme_{name}": extreme[name] for name in ("geoid", "name", "amount", "bias", "bias_se")}
        )
        for name, labels in groupings.for_decisions().items():
            frame = fairness.decisions_by_group(table, method, rule, labels, scale=fairness.PER_MILLION)
            frame = frame.assign(position=[size.get(g, 0.0) for g in frame["group"]])
            groups.append(_in_order(frame, name, ["position"]).assign(grouping=name, method=method))
    return {"rule": rule, "moved": moved, "groups": _records(pd.concat(groups, ignore_index=True))}


def _threshold(table: ErrorTable, rule: str, groupings: Groupings) -> dict[str, Any]:
    rows, groups, worst = [], [], []
    size = {label: float(k) for k, label in enumerate(_by_size(table, groupings.total_classes))}
    for method in table.methods:
        leaves = fairness.flips(table, method, rule)
        yes = leaves["decision"].to_numpy()
        p = leaves["probability"].to_numpy()
        rows.append(
            {
                "method": method,
                "flips": float(p.sum()),
                "lost": float(p[yes].sum()),
                "gained": float(p[~yes].sum()),
                "above": int(yes.sum()),
                "often": int((p > 0.05).sum()),
            }
        )
        for name, labels in groupings.for_decisions().items():
            frame = fairness.decisions_by_group(table, method, rule, labels)
            frame = frame.assign(position=[size.get(g, 0.0) for g in frame["group"]])
            groups.append(_in_order(frame, name, ["position"]).assign(grouping=name, method=method))
        top = leaves.sort_values("probability", ascending=False, kind="stable").head(5)
        worst.append({"method": method, "leaves": _records(top)})
    return {"rule": rule, "methods": rows, "groups": _records(pd.concat(groups, ignore_index=True)), "worst": worst}


def _by_size(table: ErrorTable, labels: Sequence[str]) -> list[str]:
    total = table.truth[table.geography.tree.leaves].sum(axis=1)
    return list(dict.fromkeys(labels[k] for k in np.argsort(total, kind="stable")))


def _nodes(table: ErrorTable, primary: str) -> dict[str, Any]:
    """The table of nodes, column by column; of a large study the inner nodes and the most biased of the leaves."""
    geography, shape = table.geography, table.truth.shape
    rows = np.arange(table.truth.size)
    if len(rows) > _MOST_ROWS:
        score = np.abs(table[primary, "bias"]).reshape(-1)
        score[: geography.tree.leaves.start * shape[1]] = np.inf
        rows = np.sort(np.argsort(-score, kind="stable")[:_MOST_ROWS])
    node, cell = np.divmod(rows, shape[1])
    level = np.searchsorted(geography.level_offsets, node, side="right") - 1
    names = geography.names
    return {
        "all_rows": int(table.truth.size),
        "geoid": geography.identifiers.take(node).to_pylist(),
        "name": None if names is None else [name or "" for name in names.take(node).to_pylist()],
        "level": level,
        "cell": cell,
        "truth": table.truth.reshape(-1)[rows],
        "noise_variance": table.noise_variance[node],
        "methods": {method: _columns(table, method, rows) for method in table.methods},
    }


def _columns(table: ErrorTable, method: str, rows: IntArray) -> dict[str, FloatArray]:
    def of(name: str) -> FloatArray:
        return table[method, name].reshape(-1)[rows]

    corrected = of("wasserstein_corrected")
    return {
        "bias": of("bias"),
        "bias_se": of("bias_se"),
        "sd": np.sqrt(of("variance")),
        "rmse": np.sqrt(of("mse")),
        "wasserstein": np.where(np.isfinite(corrected), corrected, of("wasserstein")),
        "zeros": of("zeros"),
    }


def _map(table: ErrorTable, primary: str, outlines: Outlines) -> dict[str, Any]:
    """Bias by leaf for the cell in which most leaves have one, in steps of what Monte Carlo error cannot explain."""
    leaves = table.geography.tree.leaves
    bias, error = table[primary, "bias"][leaves], table[primary, "bias_se"][leaves]
    column = int((np.abs(bias) > 3.0 * error).sum(axis=0).argmax())
    step = 2.0 * float(np.median(error[:, column]))
    step = step if np.isfinite(step) and step > 0 else 1.0  # one replicate has no Monte Carlo error
    return {
        "method": primary,
        "cell": table.cells[column],
        "projection": outlines.projection,
        "steps": [step, 3.0 * step, 9.0 * step],
        "outlined": len(outlines.leaves),
        "features": [
            {
                "type": "Feature",
                "geoid": table.geography.identifiers[leaves.start + leaf].as_py(),
                "name": table.geography.names[leaves.start + leaf].as_py() if table.geography.names else None,
                "bias": float(bias[leaf, column]),
                "geometry": _Verbatim(geometry),
            }
            for leaf, geometry in zip(outlines.leaves.tolist(), outlines.geometries, strict=True)
        ],
    }


class _Verbatim(dict[str, Any]):
    """A value that `rounded` leaves alone: coordinates are on their grid already."""


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]


def _or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other
