"""Densities of residuals beside the law of the noise, for a few units."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from topdown.noise import Gaussian, Law
from topdown.pages.chart_style import GREY, PALE, told
from topdown.privacy.plan import Plan
from topdown.studies.discoveries import at_least
from topdown.studies.errors_table import ErrorTable
from topdown.studies.followed import compared_law, drawn_law
from topdown.studies.report.chart_parts import DASHES, LIGHTNESS, above, shown_methods, telling_apart
from topdown.studies.report.plain_numbers import rows_of
from topdown.studies.report.results import StudyResults, primary_method
from topdown.studies.report.section import Chart, Section, Summary, fragment
from topdown.studies.residual_bins import BINS
from topdown.workload import DETAILED

_REACH = 5.0
"""Standard deviations of the noise to which densities are drawn."""


def residual_numbers(results: StudyResults) -> Summary:
    """``units``: the leaves that are shown; ``residuals``: theirs, by method and bin."""
    rows = residual_rows(results.table, results.plan, results.released)
    return {"units": shown_units(results.table, results.primary), "residuals": rows_of(rows)}


def shown_units(table: ErrorTable, primary: str) -> list[dict[str, Any]]:
    """The leaves whose residuals are shown: those with the smallest count, the median (of counts above the smallest,
    where the median is the smallest), the largest, and the most biased under ``primary`` by the lower limit of its
    interval (or the next, where that one is among them). Of studied answers those with noise of their own at the leaves
    are shown, where there are any, since their residuals can be compared with a law.
    """
    leaves = table.geography.tree.leaves
    noise = table.noise_variances[leaves]
    measured = ((noise > 0) & np.isfinite(noise)).any(axis=0)
    columns = np.flatnonzero(measured if measured.any() else ~measured)
    truth = table.truth[leaves][:, columns].reshape(-1)
    order = np.argsort(truth, kind="stable")
    certain = at_least(table[primary, "bias"][leaves][:, columns], table[primary, "bias_se"][leaves][:, columns])
    biased = np.argsort(-certain.reshape(-1), kind="stable")
    chosen: dict[int, str] = {}
    middle, above = order[len(order) // 2], order[truth[order] > truth[order[0]]]
    if len(above) and truth[middle] == truth[order[0]]:
        middle = above[len(above) // 2]
    said = "median" if middle == order[len(order) // 2] else f"median of those above {int(truth[order[0]]):,}"
    for why, row in (("smallest", order[0]), (said, middle), ("largest", order[-1])):
        chosen.setdefault(int(row), why)
    if int(biased[0]) in chosen:
        chosen[int(biased[0])] += ", most biased"
    other = next((int(row) for row in biased if int(row) not in chosen), None)
    if other is not None:
        chosen[other] = "next most biased" if int(biased[0]) in chosen else "most biased"
    names, found = table.geography.names, []
    for row, why in chosen.items():
        leaf, place = divmod(row, len(columns))
        column = int(columns[place])
        node = leaf + leaves.start
        found.append(
            {
                "why": why,
                "node": node,
                "geoid": table.geography.identifiers[node].as_py(),
                "name": None if names is None else names[node].as_py(),
                "cell": table.cells[column],
                "truth": int(table.truth[node, column]),
                "bias": float(table[primary, "bias"][node, column]),
                "bias_se": float(table[primary, "bias_se"][node, column]),
                "zeros": float(table[primary, "zeros"][node, column]),
                "zeros_se": float(table[primary, "zeros_se"][node, column]),
            }
        )
    return found


def residual_rows(table: ErrorTable, plan: Plan, released: str) -> pd.DataFrame:
    """Residuals of `shown_units` by bin: ``why, geoid, name, cell, method, residual_from, residual_to, count, share,
    noise_share``; one row per unit, method and bin within 5 standard deviations of the noise.

    ``count``: replicates whose residual fell into [from, to); ``share`` its part of all; ``noise_share`` the
    probability of the bin under the reference law (NaN for a level without noise). Empty where the study kept no
    densities.
    """
    columns = ["why", "geoid", "name", "cell", "method", "residual_from", "residual_to", "count", "share"]
    rows = []
    for unit in shown_units(table, primary_method(table, released)) if table.densities else []:
        node, column = unit["node"], table.cells.index(unit["cell"])
        law = reference_law(table, plan, node, column)
        deviation = _deviation(table, released, node, column)
        edges, together = _edges(float(table.bin_width[node, column]), deviation)
        expected = np.full(len(edges) - 1, np.nan) if law is None else _probability(law, edges)
        for method in table.methods:
            counts = np.asarray(table.densities[method][node, column]).reshape(-1, together).sum(axis=1)
            inside = np.abs((edges[:-1] + edges[1:]) / 2.0) <= _REACH * deviation
            frame = pd.DataFrame(
                {
                    **{name: unit[name] for name in ("why", "geoid", "name", "cell")},
                    "method": method,
                    "residual_from": edges[:-1],
                    "residual_to": edges[1:],
                    "count": counts,
                    "share": counts / table.replicates,
                    "noise_share": expected,
                }
            )
            rows.append(frame[inside])
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=[*columns, "noise_share"])


def reference_law(table: ErrorTable, plan: Plan, node: int, column: int) -> Law | None:
    """The law that residuals of a ``node`` in a cell are compared with; None where its level has no noise of its own,
    on a spine where it is known exactly or not at all."""
    if table.reference_sd is not None:
        deviation = float(table.reference_sd[node, column])
        return Gaussian(deviation) if deviation > 0 and math.isfinite(deviation) else None
    level = table.geography.level_name(node)
    query = table.of_query[column] if table.of_query else DETAILED
    return compared_law(drawn_law(plan, level, query), plan, level, query, table.reference)


def _deviation(table: ErrorTable, released: str, node: int, column: int) -> float:
    """The standard deviation of the noise; for a unit that has none or was not measured, of the estimate."""
    variance = float(table.noise_variances[node, column])
    if not (math.isfinite(variance) and variance > 0):
        variance = float(table[primary_method(table, released), "variance"][node, column])
    return math.sqrt(variance) if variance > 0 else 1.0


def _edges(width: float, deviation: float) -> tuple[np.ndarray[Any, np.dtype[np.float64]], int]:
    """Edges of bins about a quarter deviation wide, whole bins of the histogram together."""
    goal = max(deviation / 4.0, 1.0)
    together = 1
    while together < BINS // 8 and together * width * 2.0 <= goal:
        together *= 2
    return (np.arange(0, BINS + 1, together) - BINS // 2).astype(np.float64) * width, together


def _probability(law: Law, edges: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The law's mass of each [from, to)."""
    below = np.asarray(law.cdf(np.nextafter(edges, -np.inf)), dtype=np.float64)
    return np.diff(below)


def residual_densities(summary: Summary) -> alt.TopLevelMixin | None:
    """Density of the residuals of a few units by method, over the noise law's."""
    rows = pd.DataFrame(summary["residuals"])
    if rows.empty:
        return None
    methods = shown_methods(summary)
    width = rows["residual_to"] - rows["residual_from"]
    rows = rows.assign(density=rows["share"] / width, noise=rows["noise_share"].astype(float) / width)
    rows = rows[rows["method"].isin(methods)]
    captions = {
        (u["geoid"], u["cell"]): f"{u['why']}: {u['name'] or u['geoid']}|{u['cell']} {u['truth']:,}"
        for u in summary["units"]
    }
    panels = []
    for (geoid, cell), caption in captions.items():
        part = rows[(rows["geoid"] == geoid) & (rows["cell"] == cell)]
        # Each panel has its own scale, since noise may differ much.
        peak = float((part["noise"] if part["noise"].notna().any() else part["density"]).max())
        x = alt.X("residual_from:Q", title="residual (estimate minus true count)", axis=alt.Axis(tickCount=7))
        y = alt.Y(
            "density:Q",
            title="density",
            scale=alt.Scale(domain=[0, 1.6 * peak], clamp=True),
            axis=alt.Axis(tickCount=4),
        )
        law = (
            alt.Chart(part[part["method"] == methods[0]][["residual_from", "noise"]])
            .mark_area(interpolate="step-after", color=PALE, line={"color": GREY, "strokeWidth": 1})
            .encode(x=x, y=alt.Y("noise:Q", title="density", scale=alt.Scale(domain=[0, 1.6 * peak], clamp=True)))
        )
        lines = (
            alt.Chart(part[["residual_from", "density", "method"]])
            .mark_line(interpolate="step-after", strokeWidth=1.8, clip=True)
            .encode(
                x=x,
                y=y,
                color=alt.Color("method:N", title="estimate", scale=telling_apart(methods, LIGHTNESS), legend=above()),
                strokeDash=alt.StrokeDash("method:N", title="estimate", scale=telling_apart(methods, DASHES)),
                tooltip=told("method:N", "residual_from:Q", "density:Q"),
            )
        )
        layers = [law, lines] if part["noise"].notna().any() else [lines]
        panels.append(
            alt.layer(*layers).properties(
                width=440, height=190, title=alt.Title(caption.split("|"), anchor="start", fontSize=12)
            )
        )
    return alt.concat(*panels, columns=2, spacing=28)


SECTION = Section(
    name="residuals",
    template=fragment("residuals"),
    numbers=residual_numbers,
    charts={
        "residuals": Chart("Densities of the residuals of four counts over the law of the noise", residual_densities)
    },
    link="Residuals",
    appendix=True,
)
