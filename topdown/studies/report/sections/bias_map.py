"""Map of the leaves' bias."""

from __future__ import annotations

import math

import altair as alt
import numpy as np

from topdown.geography.tree import FloatArray
from topdown.pages.chart_style import told
from topdown.studies.discoveries import RATE, biased
from topdown.studies.report.plain_numbers import Verbatim
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Chart, Section, Summary, fragment
from topdown.studies.report.words import number

NO_BIAS = "no clear bias"

# Every step is darker than the one before, so that a black and white print keeps the order; the middle is `NO_BIAS`.
SHADES = ("#ffffff", "#dceefb", "#b6daf5", "#b4b7bc", "#cf7d28", "#973f12", "#4a1803")


def map_numbers(results: StudyResults) -> Summary:
    """``map``: bias by leaf for the cell in which most leaves have a clear one, in classes of size, with a separate
    class for leaves whose bias may be only simulation error; None without outlines.
    """
    table, primary, outlines = results.table, results.primary, results.outlines
    if outlines is None:
        return {"map": None}
    leaves = table.geography.tree.leaves
    clear = np.stack([biased(table, primary, leaves, column) for column in range(len(table.cells))])
    column = int(clear.sum(axis=1).argmax())
    bias, error = table[primary, "bias"][leaves, column], table[primary, "bias_se"][leaves, column]
    steps = _steps(np.abs(bias[clear[column]]))
    names = table.geography.names
    found = {
        "method": primary,
        "cell": table.cells[column],
        "projection": outlines.projection,
        "classes": _classes(steps),
        "rate": RATE,
        "biased": int(clear[column].sum()),
        "outlined": len(outlines.leaves),
        "features": [
            {
                "type": "Feature",
                "geoid": table.geography.identifiers[leaves.start + leaf].as_py(),
                "name": names[leaves.start + leaf].as_py() if names else None,
                "bias": float(bias[leaf]),
                "bias_se": float(error[leaf]),
                "class": _class(float(bias[leaf]), steps) if clear[column, leaf] else NO_BIAS,
                "geometry": Verbatim(geometry),  # coordinates were rounded before
            }
            for leaf, geometry in zip(outlines.leaves.tolist(), outlines.geometries, strict=True)
        ],
    }
    return {"map": found}


def _steps(sizes: FloatArray) -> tuple[float, float]:
    """The limits of the classes of clear biases: about a third of ``sizes`` in each, rounded to two digits."""
    if len(sizes) == 0:
        return 1.0, 3.0
    low, high = (float(f"{value:.2g}") for value in np.quantile(sizes, [1 / 3, 2 / 3]))
    return low, max(high, 2.0 * low)


def _classes(steps: tuple[float, float]) -> list[str]:
    raised = [_class(size, steps) for size in (0.0, *steps)]
    lowered = [_class(-size, steps) for size in (steps[1], steps[0])] + [_class(-0.0, steps)]
    return [*lowered, NO_BIAS, *raised]


def _class(bias: float, steps: tuple[float, float]) -> str:
    verb = "lowered" if math.copysign(1.0, bias) < 0 else "raised"
    if abs(bias) < steps[0]:
        return f"{verb} by less than {number(steps[0])}"
    if abs(bias) < steps[1]:
        return f"{verb} by {number(steps[0])} to {number(steps[1])}"
    return f"{verb} by {number(steps[1])} or more"


def bias_map(summary: Summary) -> alt.TopLevelMixin | None:
    """Every outlined leaf by the class of its bias, from light to dark; apart those without a clear one."""
    if summary["map"] is None:
        return None
    classes = summary["map"]["classes"]
    chart: alt.TopLevelMixin = (
        alt.Chart(alt.NamedData("outlines"))
        .mark_geoshape(stroke="#7d838c", strokeWidth=0.25)
        .encode(
            color=alt.Color(
                "class:N",
                title="bias (counts)",
                sort=classes,
                scale=alt.Scale(domain=classes, range=list(SHADES)),
                legend=alt.Legend(orient="bottom", columns=4, symbolStrokeColor="#7d838c", symbolType="square"),
            ),
            tooltip=told("geoid:N", "name:N", "bias:Q", "bias_se:Q", "class:N"),
        )
        .project(type=summary["map"]["projection"])
        .properties(width=760, height=460)
    )
    return chart


SECTION = Section(
    name="map",
    template=fragment("bias_map"),
    numbers=map_numbers,
    charts={"map": Chart("Map of the bias of every unit, in classes", bias_map)},
    link="Map",
    data=("map",),
)
