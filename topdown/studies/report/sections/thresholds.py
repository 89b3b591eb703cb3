"""Decisions by a threshold: which flip, and for whom."""

from __future__ import annotations

from typing import Any

import pandas as pd

from topdown.studies import fairness
from topdown.studies.errors_table import ErrorTable
from topdown.studies.report.groupings import Groupings, grouped_decisions
from topdown.studies.report.plain_numbers import rows_of
from topdown.studies.report.results import StudyResults
from topdown.studies.report.section import Section, Summary, fragment


def threshold_numbers(results: StudyResults) -> Summary:
    """``thresholds``: of every threshold how many decisions each method flips, by group, and the units most at risk."""
    found = [_threshold(results.table, rule, results.groupings) for rule in results.thresholds]
    return {"thresholds": found}


def _threshold(table: ErrorTable, rule: str, groupings: Groupings) -> dict[str, Any]:
    rows, groups, worst = [], [], []
    for method in table.methods:
        leaves = fairness.flips(table, method, rule)
        yes = leaves["decision"].to_numpy()
        p = leaves["probability"].to_numpy()
        counted = fairness.flipped(table, method, rule)
        parts = {"flips": counted.all, "lost": counted.lost, "gained": counted.gained}
        rows.append(
            {"method": method}
            | {name: part.value for name, part in parts.items()}
            | {f"{name}_se": part.standard_error for name, part in parts.items()}
            | {
                "above": int(yes.sum()),
                "often": int((p > 0.05).sum()),
            }
        )
        groups += grouped_decisions(table, method, rule, groupings)
        top = leaves.sort_values("probability", ascending=False, kind="stable").head(5)
        worst.append({"method": method, "leaves": rows_of(top)})
    found = rows_of(pd.concat(groups, ignore_index=True)) if groups else []
    return {"rule": rule, "methods": rows, "groups": found, "worst": worst}


SECTION = Section(name="thresholds", template=fragment("thresholds"), numbers=threshold_numbers)
