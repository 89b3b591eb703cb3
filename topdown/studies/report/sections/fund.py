"""A fund paid out in proportion to the estimates: what goes elsewhere than it should."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from topdown.studies import fairness
from topdown.studies.discoveries import at_least
from topdown.studies.errors_table import ErrorTable
from topdown.studies.report.chart_parts import INK, shown_methods
from topdown.studies.report.group_panels import bias_panels
from topdown.studies.report.groupings import Groupings, grouped_decisions
from topdown.studies.report.plain_numbers import rows_of
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Section, Summary, fragment
from topdown.studies.report.verdicts import with_verdicts


def fund_numbers(results: StudyResults) -> Summary:
    """``funds``: of every fund what each method moves, and the errors of amounts by group."""
    found = [_fund(results.table, rule, results.groupings) for rule in results.funds]
    return {"funds": found}


def _fund(table: ErrorTable, rule: str, groupings: Groupings) -> dict[str, Any]:
    moved, groups = [], []
    for method in table.methods:
        amount = fairness.money_moved(table, method, rule)
        leaves = fairness.fund(table, method, rule)
        extreme = leaves.iloc[int(at_least(leaves["bias"], leaves["bias_se"]).argmax())]
        moved.append(
            {"method": method, "moved": amount.value, "moved_se": amount.standard_error}
            | {"alpha": fairness.alpha_fairness(leaves["bias"]) if leaves["bias"].notna().all() else None}
            | {f"extreme_{name}": extreme[name] for name in ("geoid", "name", "amount", "bias", "bias_se")}
        )
        found = pd.concat(grouped_decisions(table, method, rule, groupings, fairness.PER_MILLION), ignore_index=True)
        groups.append(with_verdicts(found, table.replicates, "amounts", "of the fund's million", 1e-6))
    return {"rule": rule, "moved": moved, "groups": rows_of(pd.concat(groups, ignore_index=True))}


def money_moved(summary: Summary) -> alt.TopLevelMixin | None:
    """Of a fund of one million, what goes elsewhere than it should, by method."""
    rows = pd.DataFrame([{**row, "rule": fund["rule"]} for fund in summary["funds"] for row in fund["moved"]])
    if rows.empty:
        return None
    margin = 1.96 * rows["moved_se"].astype(float)
    rows = rows.assign(low=rows["moved"] - margin, high=rows["moved"] + margin)
    bars = (
        alt.Chart(rows)
        .mark_bar(color="#5b6b8c", height=14)
        .encode(
            x=alt.X("moved:Q", title="money moved per million"),
            y=alt.Y("method:N", title=None, sort=summary["methods"]),
            tooltip=["method:N", "moved:Q", "moved_se:Q"],
        )
    )
    limits = bars.mark_rule(color=INK).encode(x="low:Q", x2="high:Q")
    text = bars.mark_text(align="left", dx=4, fontSize=11, color=INK).encode(
        x="high:Q" if margin.notna().all() else "moved:Q", text=alt.Text("moved:Q", format=",.4~r")
    )
    return alt.layer(bars, limits, text).properties(width=560, height=alt.Step(24))


def fund_bias_by_group(summary: Summary) -> alt.TopLevelMixin | None:
    """Mean bias of the units' amounts by group with its 95 % interval, a panel per fund and grouping."""
    rows = pd.DataFrame([{**row, "rule": fund["rule"]} for fund in summary["funds"] for row in fund["groups"]])
    if rows.empty:
        return None
    titles = {key: f"{key[0]} by {key[1]}" for key in zip(rows["rule"], rows["grouping"], strict=True)}
    return bias_panels(
        rows, shown_methods(summary), ["rule", "grouping"], titles, "bias of a unit's amount, per million"
    )


SECTION = Section(
    name="fund",
    template=fragment("fund"),
    numbers=fund_numbers,
    charts={"fund": money_moved, "fund_groups": fund_bias_by_group},
)
