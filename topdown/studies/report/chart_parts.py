"""Colours, shapes and scales of several charts. Series differ in lightness, dash and shape, not only in hue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from topdown.studies.methods import without_bounds

LIGHTNESS = ["#14213d", "#df7721", "#244f79", "#34896c", "#65193f", "#72559a"]
"""Colours that differ in lightness, the first ones most, so that they can be distinguished in grey, too, with a
contrast of at least 3 on white.
"""

SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 2], [1, 3], [10, 4], [3, 6]]


def symlog() -> alt.Scale:
    """The scale of a distance, which may be 0."""
    return alt.Scale(type="symlog", constant=1.0, nice=False, padding=10)


def log() -> alt.Scale:
    """The scale of positive values."""
    return alt.Scale(type="log", nice=False, padding=12)


def above() -> alt.Legend:
    """A legend above the panels."""
    return alt.Legend(orient="top", columns=4)


def picker(name: str, label: str, values: Sequence[str], first: str | None = None) -> alt.Parameter:
    """A selection among ``values`` below a chart, called ``label``; ``first`` is selected at first. A filter of the
    chart refers to it by its ``name``.
    """
    return alt.param(
        name=name,
        value=values[0] if first is None else first,
        bind=alt.binding_select(options=list(values), name=f"{label} "),
    )


def telling_apart(values: Sequence[str], marks: Sequence[Any]) -> alt.Scale:
    """The scale that gives each of ``values`` one of ``marks``; they repeat where there are more values."""
    return alt.Scale(domain=list(values), range=[marks[k % len(marks)] for k in range(len(values))])


def by_series(
    field: str, title: str | None, values: Sequence[str], legend: alt.Legend | None = None
) -> dict[str, alt.Color | alt.Shape]:
    """The encodings by which points of the series ``values`` of a ``field`` are told apart, by colour and by shape;
    with a ``legend``, by default above the panels."""
    colours, shapes = telling_apart(values, LIGHTNESS), telling_apart(values, SHAPES)
    return {
        "color": alt.Color(f"{field}:N", title=title, scale=colours, legend=legend or above()),
        "shape": alt.Shape(f"{field}:N", title=title, scale=shapes),
    }


def shown_methods(summary: dict[str, Any]) -> list[str]:
    """The primary method and its counterpart without non-negativity; more lines would be hard to distinguish."""
    primary, methods = summary["primary"], summary["methods"]
    return [primary, *without_bounds(primary, methods)[:1]]


def leaf_families(summary: dict[str, Any]) -> pd.DataFrame:
    """The rows of ``summary["families"]`` whose members are leaves; empty where a geography has one level."""
    rows = pd.DataFrame(summary["families"])
    if rows.empty:
        return rows
    measured = [
        "predicted",
        "measured",
        "measured_se",
        "public_total",
        "noise_variance",
        "wasserstein_low",
        "wasserstein_high",
    ]
    # A column with only None is not numeric.
    leaves: pd.DataFrame = rows[rows["level"] == summary["levels"][-1]].astype(dict.fromkeys(measured, float))
    return leaves
