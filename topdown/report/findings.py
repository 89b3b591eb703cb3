"""The main finding of a study in three sentences with numbers."""

from __future__ import annotations

import math
from typing import Any

from topdown.evaluation.errors_table import ErrorTable
from topdown.report.words import many, number

_CLEAR = 4.0
"""Standard errors beyond which a difference is spoken of."""


def primary_method(table: ErrorTable, released: str) -> str:
    """The method that the findings are about: the released one, or the last non-negative one, or the last."""
    if released in table.methods:
        return released
    nonnegative = [m for m in table.methods if m not in ("raw", "gls") and not m.endswith("/equality")]
    return (nonnegative or list(table.methods))[-1]


def findings(table: ErrorTable, primary: str, summary: dict[str, Any]) -> list[str]:
    """How accurate, how biased, and who gains, for the method ``primary``; every number is one of ``summary``'s."""
    return [_accuracy(table, primary, summary), _bias(primary, summary), _who_gains(primary, summary)]


def _accuracy(table: ErrorTable, primary: str, summary: dict[str, Any]) -> str:
    level = table.geography.levels[-1]
    rows = [r for r in summary["overview"] if r["level"] == level and r["method"] == primary]
    rmse = math.sqrt(sum(r["rmse"] ** 2 for r in rows) / len(rows))
    noise = summary["run"]["noise_sd"][level]
    begin = f"Over {table.replicates:,} replicates, {primary} has a root mean squared error of {number(rmse)} for a "
    begin += f"{level}'s count"
    if not noise:
        return f"{begin}, which has no noise of its own."
    change = 100.0 * (rmse / noise - 1.0)
    if abs(change) < 0.05:
        return f"{begin}, as the noise itself has."
    return (
        f"{begin}, {abs(change):.2g} % {'less' if change < 0 else 'more'} than the {number(noise)} of the noise itself."
    )


def _bias(primary: str, summary: dict[str, Any]) -> str:
    rows = [r for r in summary["groups"] if r["method"] == primary and r["grouping"] == "size class"]
    clear = [r for r in rows if r["bias_se"] and abs(r["bias"]) > _CLEAR * r["bias_se"]]
    if not clear:
        return f"No size class of counts shows a bias beyond {_CLEAR:g} standard errors of the simulation."
    worst = max(clear, key=lambda r: abs(r["bias"]))
    gap = next(
        g
        for g in summary["gaps"]
        if g["method"] == primary and g["grouping"] == "size class" and g["cell"] == worst["cell"]
    )
    direction = "up" if worst["bias"] > 0 else "down"
    interval = f"{number(worst['bias_low'])} to {number(worst['bias_high'])}"
    return (
        f"It moves counts of {worst['cell']} in the class “{worst['group']}” {direction} by "
        f"{number(abs(worst['bias']))} on average (95 % interval {interval}; {many(worst['units'], 'unit')}); between "
        f"size classes bias differs by up to {number(gap['alpha'])} (“{gap['low']}” against “{gap['high']}”)."
    )


def _who_gains(primary: str, summary: dict[str, Any]) -> str:
    parts = []
    pairs = [p for p in summary["pairs"] if p["level"] == summary["levels"][-1] and p["measured_low"] is not None]
    if pairs:
        p = max(pairs, key=lambda one: one["measured_high"] - one["measured_low"])
        low, high = (f"{p[f'name_{side}'] or p[f'geoid_{side}']}" for side in ("low", "high"))
        noise = summary["run"]["noise_sd"][p["level"]]
        beside = f", beside {number(noise**2)} of the noise" if noise else ""
        parts.append(
            f"under {summary['pairs_method']} a {p['level']}'s variance is {number(p['measured_low'])} in {low} "
            f"({many(p['family_size_low'], p['level'])}) and {number(p['measured_high'])} in {high} "
            f"({p['family_size_high']:,}){beside}"
        )
    if summary["funds"]:
        fund = summary["funds"][0]
        row = next(r for r in fund["moved"] if r["method"] == primary)
        parts.append(
            f"of a fund of one million paid out by {fund['rule'].removeprefix('share of ')}, {number(row['moved'])} "
            "goes elsewhere than it should"
        )
    sentence = "; ".join(parts) or f"There are no families or decisions to compare for {primary}"
    return sentence[0].upper() + sentence[1:] + "."
