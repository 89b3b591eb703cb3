"""The main finding of a study in sentences with numbers, about the method that would be released; others apart."""

from __future__ import annotations

import math
from typing import Any

from topdown.studies.discoveries import at_least
from topdown.studies.errors_table import ErrorTable
from topdown.studies.methods import StudiedMethod
from topdown.studies.report.groupings import SIZE_CLASS
from topdown.studies.report.sections.coverage import coverage_findings
from topdown.studies.report.words import many, number, percent, within

_MOST_TOLD = 3
"""Cells that a sentence names."""


def findings(table: ErrorTable, primary: str, released: str, summary: dict[str, Any]) -> list[str]:
    """What is found of the method ``primary`` and of no other: how accurate it is, how biased, who gains, and
    whether published intervals cover what they state, where they were followed.

    Every number is one of ``summary``'s, with half of its 95 % interval. ``released``: the projection of the release;
    the first sentence says so where the study does not have it as it would be released.
    """
    return [
        _subject(primary, released) + _accuracy(table, primary, summary),
        _bias(primary, summary),
        _who_gains(primary, summary),
        *coverage_findings(summary),
    ]


def comparisons(primary: str, summary: dict[str, Any]) -> list[str]:
    """One sentence on each other method of the study, by its name."""
    level = summary["levels"][-1]
    found = []
    for method in summary["methods"]:
        if method == primary:
            continue
        parts = []
        value, error = _rmse(summary, level, method)
        if value is not None:
            parts.append(f"a root mean squared error of {within(value, error)} for a {level}'s {summary['counted']}")
        biased = [r["biased"] for r in summary["overview"] if r["level"] == level and r["method"] == method]
        if biased and None not in biased:
            parts.append(f"a clear bias in {many(sum(biased), 'count')}")
        for fund in summary["funds"][:1]:
            row = next(r for r in fund["moved"] if r["method"] == method)
            if row["moved"] is not None:
                parts.append(f"{within(row['moved'], row['moved_se'])} of a million going elsewhere than it should")
        if parts:
            found.append(f"{method}: {', '.join(parts)}.")
    return found


def _subject(primary: str, released: str) -> str:
    """Where what is spoken of is not what would be released, that."""
    method = StudiedMethod.parse(primary)
    if method.projection != released:
        return (
            f"The release would be made by {released}, which was not studied; what follows is about {primary}. Add "
            f"{StudiedMethod(released, True, True).label} to the study's methods. "
        )
    return (
        "" if method.rounded else f"The release would be {primary}, rounded to whole numbers; this is before rounding. "
    )


def _rmse(summary: dict[str, Any], level: str, method: str) -> tuple[float | None, float | None]:
    """Of a level's counts in all cells of the headline, with its simulation error; cells have noise of their own."""
    rows = [
        r
        for r in summary["overview"]
        if r["level"] == level and r["method"] == method and r["cell"] in summary["headline"]
    ]
    if any(r["rmse"] is None for r in rows):
        return None, None
    value = math.sqrt(sum(r["rmse"] ** 2 for r in rows) / len(rows))
    if any(r["rmse_se"] is None for r in rows) or value == 0:
        return value, None
    # d sqrt(mean of r^2) = sum of r dr / (n sqrt(mean of r^2)).
    return value, math.sqrt(sum((r["rmse"] * r["rmse_se"]) ** 2 for r in rows)) / (len(rows) * value)


def _accuracy(table: ErrorTable, primary: str, summary: dict[str, Any]) -> str:
    level = table.geography.levels[-1]
    rmse, error = _rmse(summary, level, primary)
    noise = summary["run"]["noise_sd"][level]
    begin = (
        f"Over {table.replicates:,} replicates, {primary} has a root mean squared error of {within(rmse, error)} for "
    )
    begin += f"a {level}'s {summary['counted']}"
    if noise is None:
        return f"{begin}, which was not measured itself."
    if not noise:
        return f"{begin}, which has no noise of its own."
    change = 100.0 * ((rmse or 0.0) / noise - 1.0)
    if abs(change) < max(0.05, 196.0 * (error or 0.0) / noise):
        return f"{begin}, as the noise itself has ({number(noise)})."
    return (
        f"{begin}, {abs(change):.2g} % {'less' if change < 0 else 'more'} than the {number(noise)} of the noise itself."
    )


def _bias(primary: str, summary: dict[str, Any]) -> str:
    level = summary["levels"][-1]
    units = [r for r in summary["overview"] if r["level"] == level and r["method"] == primary]
    counted = _counted(units, level)
    rate = f"false discovery rate {percent(summary['false_discovery_rate'])}"
    rows = [r for r in summary["groups"] if r["method"] == primary and r["grouping"] == SIZE_CLASS]
    clear = [r for r in rows if r["clear"]]
    if not clear:
        begin = f"No size class of counts shows a bias that simulation error does not explain ({rate})"
        return f"{begin}; of single units, {counted} do." if counted else f"{begin}."
    worst = max(clear, key=lambda r: float(at_least(r["bias"], r["bias_se"])))
    gap = next(
        g
        for g in summary["gaps"]
        if g["method"] == primary and g["grouping"] == SIZE_CLASS and g["cell"] == worst["cell"]
    )
    direction = "up" if worst["bias"] > 0 else "down"
    single = (
        f" Of single units, {counted} have a clear bias ({rate}: of these, on average at most one in "
        f"{number(1.0 / summary['false_discovery_rate'])} has none)."
        if counted
        else ""
    )
    return (
        f"It moves counts of {worst['cell']} in the class “{worst['group']}” {direction} by "
        f"{within(abs(worst['bias']), worst['bias_se'])} on average ({many(worst['units'], 'unit')}); between "
        f"size classes bias differs by up to {within(gap['alpha'], gap['alpha_se'])} (“{gap['low']}” against "
        f"“{gap['high']}”).{single}"
    )


def _counted(units: list[dict[str, Any]], level: str) -> str:
    """How many units have a clear bias in each cell, the cells with most of them first; of many cells the first three,
    and what the others do not pass."""
    found = sorted((r for r in units if r["biased"]), key=lambda r: -int(r["biased"]))
    told = found if len(found) <= _MOST_TOLD + 1 else found[:_MOST_TOLD]
    said = [f"{r['biased']:,} of {many(r['units'], level)} in {r['cell']}" for r in told]
    if len(told) < len(found):
        said.append(f"at most {found[len(told)]['biased']:,} in each of {len(found) - len(told)} others")
    return "; ".join(said)


def _who_gains(primary: str, summary: dict[str, Any]) -> str:
    parts = []
    pairs = [
        p
        for p in summary["pairs"]
        if p["method"] == primary and p["level"] == summary["levels"][-1] and p["measured_low"] is not None
    ]
    if pairs:
        # The first of a cell is the pair that theory sets farthest apart; of the cells, the one with the larger ratio.
        p = max((next(q for q in pairs if q["cell"] == cell) for cell in dict.fromkeys(q["cell"] for q in pairs)),
                key=lambda one: one["measured_high"] - one["measured_low"])  # fmt: skip
        low, high = (f"{p[f'name_{side}'] or p[f'geoid_{side}']}" for side in ("low", "high"))
        noise = summary["run"]["noise_sd"][p["level"]] if p["cell"] in summary["headline"] else None
        beside = f", beside {number(noise**2)} of the noise" if noise else ""
        parts.append(
            f"a {p['level']}'s variance in {p['cell']} is {within(p['measured_low'], p['measured_se_low'])} in {low} "
            f"({many(p['family_size_low'], p['level'])}) and {within(p['measured_high'], p['measured_se_high'])} in "
            f"{high} ({p['family_size_high']:,}){beside}"
        )
    if summary["funds"]:
        fund = summary["funds"][0]
        row = next(r for r in fund["moved"] if r["method"] == primary)
        parts.append(
            f"of a fund of one million paid out by {fund['rule'].removeprefix('share of ')}, "
            f"{within(row['moved'], row['moved_se'])} goes elsewhere than it should"
        )
    sentence = "; ".join(parts) or f"There are no families or decisions to compare for {primary}"
    return sentence[0].upper() + sentence[1:] + "."
