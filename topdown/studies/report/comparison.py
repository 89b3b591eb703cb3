"""Two studies side by side: what is there in both, with how far apart they are and whether that is simulation error."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import altair as alt
import pandas as pd

from topdown.errors import ConfigError, DataError, require_known
from topdown.studies.discoveries import RATE, discoveries
from topdown.studies.report.charts import styled
from topdown.studies.report.page import filled
from topdown.studies.report.percent_chart import percent_chart
from topdown.studies.report.plain_numbers import rounded
from topdown.studies.report.section import Summary
from topdown.studies.report.words import number, within
from topdown.wording import listed

FILE = "summary.json"
"""What a study leaves of its numbers to be compared."""

_VERSION = 1
_KEPT = (
    "title",
    "notice",
    "public_input",
    "primary",
    "methods",
    "cells",
    "levels",
    "run",
    "privacy",
    "overview",
    "groups",
    "gaps",
    "weighted",
    "funds",
    "false_discovery_rate",
    "cards",
)


Measured = dict[tuple[str, ...], tuple[float | None, float | None]]
"""What a number is of -> the number, and its Monte Carlo standard error."""


def kept(summary: Summary) -> str:
    """What of a study's ``summary`` is compared later, as JSON; without the single units."""
    thresholds = [{key: one[key] for key in ("rule", "methods")} for one in summary["thresholds"]]
    found = {"version": _VERSION, "thresholds": thresholds, **{key: summary[key] for key in _KEPT}}
    return json.dumps(found, allow_nan=False, ensure_ascii=False)


def read_kept(text: str) -> Summary:
    """What `kept` wrote. Raises `DataError` where it is something else."""
    try:
        found = json.loads(text)
        if found["version"] == _VERSION and set(found) >= {*_KEPT, "thresholds"}:
            return dict(found)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise DataError(f"it is no {FILE} of a study that this version can read; make the study again")


def compared(first: Summary, second: Summary, methods: tuple[str | None, str | None] = (None, None)) -> Summary:
    """The two studies' numbers beside each other, ``methods`` of either (the one that would be released where None).

    ``studies``: what each is; ``levels``, ``groups``, ``funds``, ``thresholds``: rows of what both have, with ``first``
    and ``second`` as (value, standard error), ``clear``, whether they differ by more than simulation error at the false
    discovery rate over the page, and ``verdict``, that in words. Simulations are taken as independent; those of one
    seed are not, and differ by less than is said.

    Raises `ConfigError` for a method that a study does not have, and for studies without a level and cell in common.
    """
    chosen = []
    for study, method in zip((first, second), methods, strict=True):
        if method is not None:
            require_known(method, study["methods"], "method")
        chosen.append(method or study["primary"])
    rows = {
        "levels": _matched(first, second, chosen, _level_rows),
        "groups": _matched(first, second, chosen, _group_rows),
        "funds": _matched(first, second, chosen, _fund_rows),
        "thresholds": _matched(first, second, chosen, _threshold_rows),
    }
    if not rows["levels"]:
        raise ConfigError(
            f"the studies have no level and cell in common: levels {listed(first['levels'])} and "
            f"{listed(second['levels'])}, cells {listed(first['cells'])} and {listed(second['cells'])}"
        )
    _judge([row for part in rows.values() for row in part], min(one["run"]["replicates"] for one in (first, second)))
    studies = [
        {
            "name": name,
            "method": method,
            **{key: one[key] for key in ("title", "notice", "run", "privacy", "public_input")},
        }
        for name, method, one in zip(("A", "B"), chosen, (first, second), strict=True)
    ]
    notices = [one["notice"] for one in (first, second) if not one["public_input"]]
    weighted = {**first["weighted"], **second["weighted"]}
    panels = [
        {**row, "study": name}
        for name, method, one in zip(("A", "B"), chosen, (first, second), strict=True)
        for row in one["groups"]
        if row["method"] == method
    ]
    found = {"studies": studies, "weighted": weighted, "false_discovery_rate": RATE, "bias_by_group": panels, **rows}
    result: Summary = rounded(found)
    return result | {"notice": (notices or [first["notice"]])[0], "public_input": not notices}


def _level_rows(study: Summary, method: str) -> Measured:
    found: Measured = {}
    for row in study["overview"]:
        if row["method"] == method:
            for name, value in (("RMSE", "rmse"), ("mean bias", "mean_bias"), ("standard deviation", "sd")):
                found[row["level"], row["cell"], name] = (row[value], row[f"{value}_se"])
    return found


def _group_rows(study: Summary, method: str) -> Measured:
    return {
        (row["grouping"], row["cell"], row["group"], name): (row[value], row[f"{value}_se"])
        for row in study["groups"]
        if row["method"] == method
        for name, value in (("bias", "bias"), ("RMSE", "rmse"))
    }


def _fund_rows(study: Summary, method: str) -> Measured:
    return {
        (fund["rule"],): (row["moved"], row["moved_se"])
        for fund in study["funds"]
        for row in fund["moved"]
        if row["method"] == method
    }


def _threshold_rows(study: Summary, method: str) -> Measured:
    return {
        (one["rule"],): (row["flips"], row["flips_se"])
        for one in study["thresholds"]
        for row in one["methods"]
        if row["method"] == method
    }


_Rows = Callable[[Summary, str], Measured]


def _matched(first: Summary, second: Summary, methods: list[str], rows: _Rows) -> list[dict[str, Any]]:
    """What both studies have, in the first one's order."""
    one, two = rows(first, methods[0]), rows(second, methods[1])
    return [
        {"of": list(key), "first": list(value), "second": list(two[key])} for key, value in one.items() if key in two
    ]


def _judge(rows: list[dict[str, Any]], replicates: int) -> None:
    """Give every row ``difference`` (second minus first), ``difference_se``, ``clear`` and ``verdict``."""
    for row in rows:
        (a, a_se), (b, b_se) = row["first"], row["second"]
        known = None not in (a, b)
        row["difference"] = b - a if known else None
        row["difference_se"] = float((a_se**2 + b_se**2) ** 0.5) if known and None not in (a_se, b_se) else None
    values = pd.DataFrame(rows)[["difference", "difference_se"]].astype(float)
    for row, clear in zip(
        rows, discoveries(values["difference"], values["difference_se"], replicates).tolist(), strict=True
    ):
        row["clear"] = clear
        row["verdict"] = _verdict(row)


def _verdict(row: dict[str, Any]) -> str:
    if row["difference"] is None or row["difference_se"] is None:
        return "cannot be told"
    if not row["clear"]:
        return "no clear difference"
    amount = within(abs(row["difference"]), row["difference_se"])
    # A part of a bias says nothing: it may be next to none.
    sized = row["of"][-1] not in ("bias", "mean bias") and row["first"][0] > 0
    part = f" ({number(round(100.0 * abs(row['difference']) / row['first'][0], 1))} %)" if sized else ""
    return f"B is {'higher' if row['difference'] > 0 else 'lower'} by {amount}{part}"


def comparison_chart(comparison: Summary) -> alt.TopLevelMixin | None:
    """Bias by group in % of the mean count with its 95 % interval, the studies beside each other; the reader picks the
    grouping and the cell."""
    rows = comparison["bias_by_group"]
    both = [{(row["grouping"], row["cell"]) for row in rows if row["study"] == name} for name in ("A", "B")]
    common = set.intersection(*both)
    there = [
        {**row, "grouping": f"{row['grouping']}, {row['cell']}", "cell": row["study"]}
        for row in rows
        if (row["grouping"], row["cell"]) in common
    ]
    return percent_chart(there, ["A", "B"], "bias, % of the mean count")


def render_comparison(comparison: Summary) -> str:
    """The page of ``comparison``, of `compared`. Names and labels are escaped wherever they stand."""
    chart = comparison_chart(comparison)
    drawn = (
        {}
        if chart is None
        else {
            "groups": styled(
                chart, "Bias of every group in both studies, in percent of its mean count, with 95 % intervals"
            )
        }
    )
    return filled("comparison.html.jinja", {}, drawn, c=comparison)
