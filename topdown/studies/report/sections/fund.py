"""A fund paid out by the estimates: how much money goes to other units than it should, and to which."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from topdown.studies import fairness
from topdown.studies.discoveries import at_least
from topdown.studies.errors_table import ErrorTable
from topdown.studies.report.groupings import Groupings, grouped_decisions
from topdown.studies.report.percent_chart import percent_chart
from topdown.studies.report.plain_numbers import rows_of
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Chart, Section, Summary, fragment
from topdown.studies.report.verdicts import ON_AMOUNTS, with_verdicts


def fund_numbers(results: StudyResults) -> Summary:
    """``funds``: of every fund what each method moves, and by group what its units are due and what they are paid; a
    fund above the leaves has no groups."""
    return {"funds": [_fund(results, rule) for rule in results.funds]}


def _fund(results: StudyResults, rule: str) -> dict[str, Any]:
    table, moved, groups = results.table, [], []
    for method in table.methods:
        amount = fairness.money_moved(table, method, rule)
        leaves = fairness.fund(table, method, rule)
        extreme = leaves.iloc[int(at_least(leaves["bias"], leaves["bias_se"]).argmax())]
        moved.append(
            {"method": method, "moved": amount.value, "moved_se": amount.standard_error}
            | {"alpha": fairness.alpha_fairness(leaves["bias"]) if leaves["bias"].notna().all() else None}
            | {f"extreme_{name}": extreme[name] for name in ("geoid", "name", "amount", "bias", "bias_se")}
        )
        found = _groups(table, method, rule, results.groupings)
        if found:
            whole = pd.concat(found, ignore_index=True)
            groups += rows_of(with_verdicts(whole, table.replicates, ON_AMOUNTS, results.tolerance, 1e-6))
    units = len(table.rule_units(rule)[0])
    return {"rule": rule, "units": units, "moved": moved, "groups": groups}


def _groups(table: ErrorTable, method: str, rule: str, groupings: Groupings) -> list[pd.DataFrame]:
    """Errors of amounts by group, a frame per grouping, and, where units are not weighted, the groups' totals: ``due``,
    ``paid`` and ``paid_se``. None for a fund above the leaves.
    """
    frames = []
    for frame in grouped_decisions(table, method, rule, groupings, fairness.PER_MILLION):
        alike = not groupings[frame["grouping"].iloc[0]].weights
        units = frame["units"].where(pd.Series(alike, frame.index))
        due = units * frame["mean_truth"]
        frames.append(frame.assign(due=due, paid=due + units * frame["bias"], paid_se=units * frame["bias_se"]))
    return frames


def fund_bias_by_group(summary: Summary) -> alt.TopLevelMixin | None:
    """Bias of what every group is paid in % of what it is due, under the released method."""
    rows = [
        {**row, "cell": fund["rule"]}
        for fund in summary["funds"]
        for row in fund["groups"]
        if row["method"] == summary["primary"]
    ]
    return percent_chart(
        rows, [fund["rule"] for fund in summary["funds"]], "paid too much or too little, % of what is due"
    )


SECTION = Section(
    name="money",
    template=fragment("fund"),
    numbers=fund_numbers,
    charts={
        "fund_groups": Chart(
            "What every group is paid too much or too little, in percent of what it is due, with 95 % intervals",
            fund_bias_by_group,
        )
    },
    link="Money",
    key="funds",
)
