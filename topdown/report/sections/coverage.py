"""How often the intervals that the release would publish hold the true count, beside what they state."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from topdown.report.chart_parts import GREY, INK, LIGHTNESS, SHAPES, above, telling_apart
from topdown.report.numbers import rows_of
from topdown.report.results import StudyResults
from topdown.report.section import Section, Summary, fragment
from topdown.report.words import number, percent, percent_within
from topdown.simulation.coverage import BY_PUBLISHED, BY_TRUTH, EVERY
from topdown.simulation.discoveries import discoveries

LAW_ERROR = 0.001
"""By how much a release says that the approximation of its errors' law may miss."""

_CELLS_SHOWN = 6


def coverage_numbers(results: StudyResults) -> Summary:
    """``coverage``: the ``rows`` of the table of coverage, level by level, with whether each is ``below`` what is
    stated by more than chance, and ``verdict``, that in words; nothing where intervals were not followed."""
    table = results.table
    if table.coverage is None or table.coverage.empty:
        return {"coverage": None}
    nominal = float(table.coverage["nominal"].iloc[0])
    rows = with_verdicts(table.coverage, table.replicates)
    places = {name: k for k, name in enumerate([*table.geography.levels, *table.cells])}
    kinds = {name: k for k, name in enumerate(dict.fromkeys([EVERY, BY_TRUTH, BY_PUBLISHED, *rows["by"]]))}
    rank = [(places[r["level"]], places[r["cell"]], kinds[r["by"]]) for r in rows_of(rows)]
    order = sorted(range(len(rank)), key=lambda k: rank[k])
    shown = min(len(table.cells), _CELLS_SHOWN)
    return {"coverage": {"nominal": nominal, "cells_shown": shown, "rows": rows_of(rows.iloc[order])}}


def with_verdicts(coverage: pd.DataFrame, replicates: int) -> pd.DataFrame:
    """``coverage`` with ``below``: covered less often than stated, by more than the error of the law that a release
    speaks of, at the false discovery rate over all rows; and ``verdict``.

    A class that was always covered alike has no error between replicates: the error is taken to be that of
    independent intervals at least.
    """
    nominal, units = coverage["nominal"], coverage["units"] * replicates
    shortfall = np.minimum(coverage["covered"] - nominal, 0.0)
    error = np.maximum(coverage["covered_se"], np.sqrt(nominal * (1.0 - nominal) / units))
    below = discoveries(shortfall, error, replicates, resolution=LAW_ERROR)
    return coverage.assign(below=below, verdict=np.where(below, "below what is stated", "as stated or above"))


def coverage_findings(summary: Summary) -> list[str]:
    """In a sentence whether the published intervals do what they state; none where they were not followed."""
    found = summary["coverage"]
    if found is None:
        return []
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
        # Where most intervals miss that should not, and not a class that hardly ever has a unit.
        most = max(picked, key=lambda row: float((found["nominal"] - row["covered"]) * row["units"]))
        text += (
            " Of units picked by their published count fewer are covered, above all in "
            f"{named(most)}, with {number(most['units'])} of them in a release; nothing is promised there."
        )
    return [text]


def coverage_chart(summary: Summary) -> alt.TopLevelMixin | None:
    """Coverage by class of the lowest level's units with its 95 % interval, a panel a cell; the line is nominal."""
    found = summary["coverage"]
    if found is None:
        return None
    rows = pd.DataFrame(found["rows"])
    # A class that has hardly ever a unit would take the scale.
    there = (rows["level"] == rows["level"].iloc[-1]) & (rows["units"] >= 1)
    rows = rows[there].astype({"covered_se": float})
    half = 1.96 * rows["covered_se"].fillna(0.0)
    rows = rows.assign(
        low=np.maximum(rows["covered"] - half, 0.0), high=np.minimum(rows["covered"] + half, 1.0),
    )[["cell", "by", "group", "units", "covered", "low", "high", "moe"]]  # fmt: skip
    kinds = list(dict.fromkeys(rows["by"]))
    panels = []
    for cell in summary["cells"][: found["cells_shown"]]:
        part = rows[rows["cell"] == cell]
        if part.empty:
            continue
        y = alt.Y("group:N", title=None, sort=_in_order(part), axis=alt.Axis(labelLimit=260))
        offset = alt.YOffset("by:N", sort=kinds)
        points = (
            alt.Chart(part)
            .mark_point(filled=True, size=46)
            .encode(
                x=alt.X(
                    "covered:Q",
                    title="intervals that hold the true count",
                    scale=alt.Scale(zero=False),
                    axis=alt.Axis(format=".0%", tickCount=5),
                ),
                y=y,
                yOffset=offset,
                color=alt.Color("by:N", title="units by", scale=telling_apart(kinds, LIGHTNESS), legend=above()),
                shape=alt.Shape("by:N", title="units by", scale=telling_apart(kinds, SHAPES)),
                tooltip=["group:N", "by:N", "units:Q", "covered:Q", "low:Q", "high:Q", "moe:Q"],
            )
        )
        bars = alt.Chart(part).mark_rule(color=INK).encode(x="low:Q", x2="high:Q", y=y, yOffset=offset)
        stated = pd.DataFrame([{"nominal": found["nominal"]}])
        line = alt.Chart(stated).mark_rule(color=GREY).encode(x="nominal:Q")
        panels.append(
            alt.layer(line, bars, points).properties(
                width=330, height=alt.Step(12), title=alt.Title(cell, anchor="start", fontSize=12)
            )
        )
    return alt.concat(*panels, columns=2, spacing=28) if panels else None


def _in_order(part: pd.DataFrame) -> list[str]:
    """All units first, then the size classes from small to large, whichever kind of count has them, then groups."""
    sized = part[part["by"].isin([BY_TRUTH, BY_PUBLISHED])]["group"]
    sizes = sorted(dict.fromkeys(sized), key=_first_number)
    return list(dict.fromkeys([*part[part["by"] == EVERY]["group"], *sizes, *part["group"]]))


def _first_number(name: str) -> float:
    """Where a size class begins: of "below 10" 0."""
    first = name.split(" ")[0].replace(",", "")
    return float(first) if first.replace(".", "", 1).isdigit() else 0.0


SECTION = Section(
    name="coverage",
    template=fragment("coverage"),
    numbers=coverage_numbers,
    charts={"coverage": coverage_chart},
    link="Margins",
)
