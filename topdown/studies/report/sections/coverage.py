"""The coverage of the intervals that the release would publish, beside the stated one."""

from __future__ import annotations

import json
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from topdown.pages.chart_style import GREY, INK, told
from topdown.studies.discoveries import discoveries
from topdown.studies.interval_coverage import BY_PUBLISHED, BY_TRUTH, EVERY
from topdown.studies.report.chart_parts import LIGHTNESS, above, picker
from topdown.studies.report.plain_numbers import rows_of, whole
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Chart, Section, Summary, fragment
from topdown.studies.report.words import number, percent, percent_within

LAW_ERROR = 0.001
"""The error of the miss rate that a release states for the approximation of its errors' law."""

_CELLS_SHOWN = 6
_UNITS_SHOWN = 20


def coverage_numbers(results: StudyResults) -> Summary:
    """``coverage``: the ``rows`` of the table of coverage, level by level, with whether each is ``below`` the stated
    one by more than chance, and ``verdict``, that in words; ``one_release``: some units of one release with their
    margins; None where intervals were not followed. ``trust``: a sentence on whether intervals cover as stated.
    """
    table = results.table
    if table.coverage is None or table.coverage.empty:
        return {"coverage": None, "trust": [], "one_release": None}
    nominal = float(table.coverage["nominal"].iloc[0])
    rows = with_verdicts(table.coverage, table.replicates)
    places = {name: k for k, name in enumerate([*table.geography.levels, *table.cells])}
    kinds = {name: k for k, name in enumerate(dict.fromkeys([EVERY, BY_TRUTH, BY_PUBLISHED, *rows["by"]]))}
    rank = [(places[r["level"]], places[r["cell"]], kinds[r["by"]]) for r in rows_of(rows)]
    order = sorted(range(len(rank)), key=lambda k: rank[k])
    found = {"nominal": nominal, "rows": rows_of(rows.iloc[order])}
    return {"coverage": found, "trust": coverage_findings(found), "one_release": _one_release(results)}


def with_verdicts(coverage: pd.DataFrame, replicates: int) -> pd.DataFrame:
    """``coverage`` with ``below``: covered less often than stated, by more than the error of the law that a release
    speaks of, at the false discovery rate over all rows; and ``verdict``.

    A class with the same coverage in all replicates would have no error: at least the error of independent intervals is
    used.
    """
    nominal, units = coverage["nominal"], coverage["units"] * replicates
    shortfall = np.minimum(coverage["covered"] - nominal, 0.0)
    error = np.maximum(coverage["covered_se"], np.sqrt(nominal * (1.0 - nominal) / units))
    below = discoveries(shortfall, error, replicates, resolution=LAW_ERROR)
    return coverage.assign(below=below, verdict=np.where(below, "below what is stated", "as stated or above"))


def coverage_findings(found: Summary) -> list[str]:
    """A sentence on whether the published intervals cover as stated."""
    stated = percent(found["nominal"])

    def named(row: dict[str, Any]) -> str:
        size = "" if row["by"] == EVERY else f" in the class “{row['group']}” by {row['by']}"
        return f"{row['level']}, {row['cell']}{size} ({percent_within(row['covered'], row['covered_se'])})"

    promised = [row for row in found["rows"] if row["by"] != BY_PUBLISHED]
    picked = [row for row in found["rows"] if row["by"] == BY_PUBLISHED and row["below"]]
    short = [row for row in promised if row["below"]]
    if short:
        worst = min(short, key=lambda row: float(row["covered"]))
        text = (
            f"The intervals that the release would publish hold the true count less often than the {stated} that they "
            f"state, beyond simulation error, in {len(short):,} of {len(promised):,} classes; least in "
            f"{named(worst)}."
        )
    else:
        text = (
            f"The intervals that the release would publish hold the true count in the {stated} that they state, at "
            "every level, true size and group, as far as the simulation can tell."
        )
    if picked:
        # Classes that hardly ever have a unit are left out.
        worst = min(picked, key=lambda row: (row["units"] < 1, float(row["covered"])))
        text += (
            f" Of units selected by their published count fewer are covered, least in {named(worst)}, with "
            f"{number(worst['units'])} of them in a release; no coverage is stated for such a selection."
        )
    return [text]


def coverage_chart(summary: Summary) -> alt.TopLevelMixin | None:
    """Coverage by class of the lowest level's units with its 95 % interval; the line is nominal. The reader picks the
    kind of class and the cell."""
    found = summary["coverage"]
    if found is None:
        return None
    rows = pd.DataFrame(found["rows"])
    # A class that hardly ever has a unit would dominate the scale.
    there = (rows["level"] == rows["level"].iloc[-1]) & (rows["units"] >= 1)
    if not there.any():
        return None
    rows = rows[there].astype({"covered_se": float})
    half = 1.96 * rows["covered_se"].fillna(0.0)
    rows = rows.assign(
        low=np.maximum(rows["covered"] - half, 0.0), high=np.minimum(rows["covered"] + half, 1.0),
    )[["cell", "by", "group", "units", "covered", "low", "high", "moe"]]  # fmt: skip
    kinds, cells = list(dict.fromkeys(rows["by"])), list(dict.fromkeys(rows["cell"]))
    first = BY_TRUTH if BY_TRUTH in kinds else kinds[0]
    picked = [picker("by", "units by", kinds, first), picker("cell", "count", cells)]
    rows = rows.assign(rank=rows["group"].map({name: k for k, name in enumerate(_in_order(rows))}))
    base = alt.Chart(rows).transform_filter("datum.by == by && datum.cell == cell")
    y = alt.Y("group:N", title=None, sort=alt.EncodingSortField("rank", op="min"), axis=alt.Axis(labelLimit=260))
    points = base.mark_point(filled=True, size=46, color=INK).encode(
        x=alt.X(
            "covered:Q",
            title="intervals that hold the true count",
            scale=alt.Scale(zero=False),
            axis=alt.Axis(format="~%", tickCount=5),
        ),
        y=y,
        tooltip=told("group:N", "by:N", "units:Q", "covered:Q", "low:Q", "high:Q", "moe:Q"),
    )
    bars = base.mark_rule(color=INK).encode(x="low:Q", x2="high:Q", y=y)
    stated = pd.DataFrame([{"nominal": found["nominal"]}])
    line = alt.Chart(stated).mark_rule(color=GREY).encode(x="nominal:Q")
    return alt.layer(line, bars, points).properties(width=620, height=alt.Step(18)).add_params(*picked)


def _in_order(part: pd.DataFrame) -> list[str]:
    """All units first, then the size classes from small to large, whichever kind of count has them, then groups."""
    sized = part[part["by"].isin([BY_TRUTH, BY_PUBLISHED])]["group"]
    sizes = sorted(dict.fromkeys(sized), key=_first_number)
    return list(dict.fromkeys([*part[part["by"] == EVERY]["group"], *sizes, *part["group"]]))


def _first_number(name: str) -> float:
    """Where a size class begins; 0 for "below 10"."""
    first = name.split(" ")[0].replace(",", "")
    return float(first) if first.replace(".", "", 1).isdigit() else 0.0


def _one_release(results: StudyResults) -> Summary | None:
    """``units``: some of the lowest level, from the smallest to the largest, with their published counts and margins;
    ``doubtful`` and ``unreliable``: the coefficients of variation above which they are called so.
    """
    example, table = results.published, results.table
    doubtful, unreliable = results.shaded_above
    if example is None:
        return None
    leaves, names = table.geography.tree.leaves, table.geography.names
    found = []
    for k, cell in enumerate(table.cells[:_CELLS_SHOWN]):
        order = np.argsort(table.truth[leaves, k], kind="stable")
        for place in np.unique(np.linspace(0, len(order) - 1, _UNITS_SHOWN).astype(np.int64)).tolist():
            node = leaves.start + int(order[place])
            geoid = str(table.geography.identifiers[node])
            cv = float(example.variation[node, k])
            found.append(
                {"unit": (str(names[node]) if names is not None and names[node].is_valid else "") or geoid}
                | {"geoid": geoid, "cell": cell, "truth": table.truth[node, k], "published": example.values[node, k]}
                | dict(
                    zip(
                        ("lower", "upper"),
                        whole(np.array([example.lower[node, k], example.upper[node, k]])),
                        strict=True,
                    )
                )
                | {"cv": cv}
                | {"reliability": reliability(doubtful, unreliable)[int(cv > doubtful) + int(cv > unreliable)]}
            )
    return {"doubtful": doubtful, "unreliable": unreliable, "units": found}


def reliability(doubtful: float, unreliable: float) -> tuple[str, str, str]:
    """The labels of numbers whose coefficient of variation is small, above the first limit, and above the second."""
    return f"at most {percent(doubtful)}", f"above {percent(doubtful)}", f"above {percent(unreliable)}"


def one_release_chart(summary: Summary) -> alt.TopLevelMixin | None:
    """Published counts with their intervals as bars and the true counts as crosses; hollow where the coefficient of
    variation is large. The reader picks the cell."""
    found = summary["one_release"]
    if found is None:
        return None
    units = pd.DataFrame(found["units"])
    cells = list(dict.fromkeys(units["cell"]))
    words = list(reliability(found["doubtful"], found["unreliable"]))
    shades = alt.Scale(domain=words, range=[INK, "#5b6b8c", GREY])
    colour = alt.Color("reliability:N", title="coefficient of variation", scale=shades, legend=above())
    # Numbers with a large coefficient of variation are hollow.
    hollow = alt.FillOpacity("reliability:O", sort=words, legend=None, scale=alt.Scale(range=[1.0, 0.5, 0.0]))
    base = alt.Chart(units).transform_filter("datum.cell == count")
    # Two units may have the same name.
    axis = alt.Axis(labelLimit=200, labelExpr=_labels(units))
    y = alt.Y("geoid:N", title=None, sort=alt.EncodingSortField("truth", op="min"), axis=axis)
    x = alt.X("published:Q", title="count", scale=alt.Scale(type="symlog", constant=1), axis=alt.Axis(
        values=[0, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000], labelExpr="format(datum.value, '~s')"
    ))  # fmt: skip
    tooltip = told("unit:N", "geoid:N", "published:Q", "lower:Q", "upper:Q", "cv:Q", "truth:Q")
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("lower:Q"), x2="upper:Q", y=y, color=colour, tooltip=tooltip)
    points = base.mark_point(size=46, opacity=1, fill=INK).encode(
        x=x, y=y, color=colour, fillOpacity=hollow, tooltip=tooltip
    )
    truth = base.mark_point(shape="cross", size=30, color=LIGHTNESS[1], filled=True).encode(x="truth:Q", y=y)
    return (
        alt.layer(bars, points, truth)
        .properties(width=560, height=alt.Step(15))
        .add_params(picker("count", "count", cells))
    )


def _labels(part: pd.DataFrame) -> str:
    """A Vega expression from a unit's GEOID to its name."""
    names = json.dumps(dict(zip(part["geoid"], part["unit"], strict=True)))
    return f"({names})[datum.value]"


SECTION = Section(
    name="coverage",
    template=fragment("coverage"),
    numbers=coverage_numbers,
    charts={
        "coverage": Chart(
            "Part of the published intervals that hold the true count, by class of units", coverage_chart
        ),
        "one_release": Chart(
            "One release: published counts with their intervals beside the true counts", one_release_chart
        ),
    },
    link="Margins",
)
