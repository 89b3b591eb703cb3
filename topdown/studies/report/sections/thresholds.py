"""Decisions by a threshold: how many are wrong, for whom, and how that depends on the distance from the cutoff."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from topdown.pages.chart_style import GREY, INK, told
from topdown.studies import fairness
from topdown.studies.decisions.expression_rules import Rule
from topdown.studies.decisions.rules import Threshold
from topdown.studies.report.chart_parts import above, picker
from topdown.studies.report.groupings import grouped_decisions
from topdown.studies.report.plain_numbers import rows_of
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Chart, Section, Summary, fragment

_MOST_UNITS = 1_500
"""The most units of a rule that the chart shows: those nearest to the cutoff."""

_MOST_AT_RISK = 5


def threshold_numbers(results: StudyResults) -> Summary:
    """``thresholds``: of every threshold how many decisions each method gets wrong; for the released one by group, the
    units most at risk, and the units nearest to the cutoff with their ``distance`` from it and their probability of a
    wrong decision."""
    return {"thresholds": [_threshold(results, rule) for rule in results.thresholds]}


def _threshold(results: StudyResults, rule: Threshold | Rule) -> dict[str, Any]:
    table, primary, rows = results.table, results.primary, []
    for method in table.methods:
        leaves = fairness.flips(table, method, rule)
        counted = fairness.flipped(table, method, rule)
        parts = {"flips": counted.all, "lost": counted.lost, "gained": counted.gained}
        rows.append(
            {"method": method}
            | {name: part.value for name, part in parts.items()}
            | {f"{name}_se": part.standard_error for name, part in parts.items()}
            | {"above": int(leaves["decision"].sum()), "often": int((leaves["probability"] > 0.05).sum())}
        )
    leaves = fairness.flips(table, primary, rule)
    groups = grouped_decisions(table, primary, rule.label, results.groupings)
    worst = leaves[leaves["probability"] > 0].sort_values("probability", ascending=False, kind="stable")
    return {
        "rule": rule.label,
        "units": len(leaves),
        "in_percent": isinstance(rule, Threshold) and bool(rule.cutoff),
        "methods": rows,
        "groups": [row for frame in groups for row in rows_of(_expected(frame))],
        "worst": rows_of(worst.head(_MOST_AT_RISK)),
        "near": _nearest(results, rule, leaves) if isinstance(rule, Threshold) else [],
    }


def _nearest(results: StudyResults, rule: Threshold, units: pd.DataFrame) -> list[dict[str, Any]]:
    """The ``units`` nearest to the cutoff with their distance from it, in % of the cutoff where that is not 0."""
    table = results.table
    compared = rule.compared(table.truth.T.astype(np.float64), table.cells, table.geography.tree)
    distance = compared - rule.cutoff
    nearest = np.argsort(np.abs(distance), kind="stable")[:_MOST_UNITS]
    shown = units.assign(distance=100.0 * distance / abs(rule.cutoff) if rule.cutoff else distance).iloc[nearest]
    return rows_of(shown[shown["distance"].notna()])


def _expected(frame: pd.DataFrame) -> pd.DataFrame:
    """How many units of every group lose and gain by a wrong decision, on average (``lost``, ``gained``)."""
    wrong, net = frame["absolute_error"], frame["bias"]
    return frame.assign(lost=frame["units"] * (wrong - net) / 2.0, gained=frame["units"] * (wrong + net) / 2.0)


def wrong_by_distance(summary: Summary) -> alt.TopLevelMixin | None:
    """The probability of a wrong decision of every unit against its distance from the cutoff; the reader selects the
    rule.
    """
    rules = [one for one in summary["thresholds"] if one["near"]]
    rows = pd.DataFrame([{"rule": one["rule"], **unit} for one in rules for unit in one["near"]])
    if rows.empty:
        return None
    names = [one["rule"] for one in rules]
    rows = rows.assign(said=np.where(rows["decision"], "yes", "no"))
    base: Any = alt.Chart(rows)
    chosen = []
    if len(names) > 1:
        chosen = [picker("rule", "decision", names)]
        base = base.transform_filter("datum.rule == rule")
    title = "distance of the true value from the cutoff, " + ("% of the cutoff" if rules[0]["in_percent"] else "counts")
    x = alt.X("distance:Q", title=f"{title} (symlog scale)", scale=alt.Scale(type="symlog", constant=1.0, nice=False))
    points = base.mark_point(filled=True, size=26, opacity=0.7).encode(
        x=x,
        y=alt.Y("probability:Q", title="probability of a wrong decision", axis=alt.Axis(format="~%")),
        color=alt.Color(
            "said:N", title="true decision", scale=alt.Scale(domain=["yes", "no"], range=[INK, "#c4661f"]),
            legend=above(),
        ),
        shape=alt.Shape("said:N", title="true decision", scale=alt.Scale(domain=["yes", "no"])),
        tooltip=told("name:N", "geoid:N", "said:N", "distance:Q", "probability:Q", "probability_se:Q"),
    )  # fmt: skip
    cutoff = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(color=GREY).encode(x="zero:Q")
    return alt.layer(cutoff, points).properties(width=620, height=220).add_params(*chosen)


SECTION = Section(
    name="decisions",
    template=fragment("thresholds"),
    numbers=threshold_numbers,
    charts={
        "distance": Chart("Probability of a wrong decision against the distance from the cutoff", wrong_by_distance)
    },
    link="Decisions",
    key="thresholds",
)
