"""The findings of a study in three cards, for counts, money and decisions: who is affected, by how much, whether it is
clear, and whether it matters.
"""

from __future__ import annotations

import math
from typing import Any, TypedDict

from topdown.config.study_settings import ToleranceOptions
from topdown.studies.discoveries import at_least
from topdown.studies.errors_table import ErrorTable
from topdown.studies.methods import StudiedMethod
from topdown.studies.report.verdicts import MATTERS, NONE, ON_AMOUNTS, SMALL, UNKNOWN, Effect, in_words, on_counts
from topdown.studies.report.words import many, many_of, number, percent, shortened, within

_MOST_TOLD = 3
"""The most cells that a sentence names."""


class Card(TypedDict):
    """``name``: counts, money or decisions; ``status``: one of `verdicts`; ``headline``: the finding in a sentence;
    ``more``: further sentences; ``matters``: whether the effect matters.
    """

    name: str
    status: str
    headline: str
    more: list[str]
    matters: bool


def _card(name: str, status: str, headline: str, more: list[str]) -> Card:
    return Card(name=name, status=status, headline=headline, more=more, matters=status == MATTERS)


def cards(table: ErrorTable, primary: str, released: str, summary: dict[str, Any]) -> list[Card]:
    """The findings about the method ``primary`` only. Every number is from ``summary``, with half of its 95 % interval.
    ``released``: the projection of the release; the first card says so where the study does not have this method.
    """
    tolerance = ToleranceOptions(**summary["tolerance"])
    return [
        _counts(table, primary, released, summary, tolerance),
        _money(primary, summary, tolerance),
        _decisions(primary, summary, tolerance),
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


# -- counts -----------------------------------------------------------------------------------------------------------


def _counts(
    table: ErrorTable, primary: str, released: str, summary: dict[str, Any], tolerance: ToleranceOptions
) -> Card:
    rows = [r for r in summary["groups"] if r["method"] == primary and r["bias"] is not None]
    effect = on_counts(many_of(summary["unit"]), tolerance)
    status, headline, more = _most_affected(rows, effect, "counts", tolerance)
    single = _single_units(primary, summary)
    return _card(
        name="Counts",
        status=status,
        headline=headline,
        more=[*more, *single, _subject(primary, released) + _accuracy(table, primary, summary)],
    )


def _most_affected(
    rows: list[dict[str, Any]], effect: Effect, what: str, tolerance: ToleranceOptions
) -> tuple[str, str, list[str]]:
    """The status, the headline and further sentences on groups, from the bias of each."""
    clear = [r for r in rows if r["clear"]]
    if not rows or all(r["bias_se"] is None for r in rows):
        return UNKNOWN, "There is one replicate, or nothing was measured: bias cannot be estimated.", []
    if not clear:
        most = max(max(abs(r["bias_low"]), abs(r["bias_high"])) for r in rows)
        return NONE, f"No group's {what} show a bias that simulation error does not explain.", [
            f"If there is one, it is at most {number(most)} {effect.unit}."
        ]  # fmt: skip
    matters = [r for r in clear if r["matters"]]
    if not matters:
        largest = max(clear, key=_relative)
        return SMALL, f"No group's {what} are changed by as much as matters.", [
            f"The largest clear bias: {_told(largest, effect)}."
        ]  # fmt: skip
    worst = max(matters, key=_relative)
    other = [r for r in matters if (r["bias"] > 0) != (worst["bias"] > 0)]
    more = [f"The other way: {_told(max(other, key=_relative), effect)}."] if other else []
    more.append(f"It matters in {many(len(matters), 'group')} of {len(rows):,} (from {percent(tolerance.bias)} on).")
    told = _told(worst, effect)
    return MATTERS, f"{told[:1].upper()}{told[1:]}.", more


def _relative(row: dict[str, Any]) -> float:
    """The lower end of a bias's size, as a part of the mean count where there is one."""
    size = float(at_least(row["bias"], row["bias_se"]))
    return size / row["mean_truth"] if row["mean_truth"] else size


def _told(row: dict[str, Any], effect: Effect) -> str:
    cell = f" of {row['cell']}" if "cell" in row else ""
    share = f" ({number(100.0 * abs(row['bias']) / row['mean_truth'])} %)" if row["mean_truth"] else ""
    return f"{row['grouping']} “{row['group']}”{cell}: {in_words(row, effect)}{share}"


def _single_units(primary: str, summary: dict[str, Any]) -> list[str]:
    """How many units have a clear bias in each cell, the cells with most of them first; of many cells the first three,
    and the most in any other.
    """
    level = summary["levels"][-1]
    units = [r for r in summary["overview"] if r["level"] == level and r["method"] == primary]
    found = sorted((r for r in units if r["biased"]), key=lambda r: -int(r["biased"]))
    if not found:
        return []
    told = found if len(found) <= _MOST_TOLD + 1 else found[:_MOST_TOLD]
    said = [f"{r['biased']:,} of {many(r['units'], level)} in {r['cell']}" for r in told]
    if len(told) < len(found):
        said.append(f"at most {found[len(told)]['biased']:,} in each of {len(found) - len(told)} others")
    return [f"Of single units, {'; '.join(said)} have a clear bias."]


def _subject(primary: str, released: str) -> str:
    """A sentence where the findings are about another method than the released one."""
    method = StudiedMethod.parse(primary)
    if method.projection != released:
        return (
            f"The release would be made by {released}, which was not studied; these findings are about {primary}. Add "
            f"{StudiedMethod(released, True, True).label} to the study's methods. "
        )
    return (
        "" if method.rounded else f"The release would be {primary}, rounded to whole numbers; this is before rounding. "
    )


def _rmse(summary: dict[str, Any], level: str, method: str) -> tuple[float | None, float | None]:
    """The RMSE of a level's counts in all summary cells, with its simulation error; cells have independent noise."""
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


# -- money and decisions ----------------------------------------------------------------------------------------------


def _money(primary: str, summary: dict[str, Any], tolerance: ToleranceOptions) -> Card:
    if not summary["funds"]:
        return _card(name="Money", status=UNKNOWN, headline="No fund was studied.", more=[])
    fund = summary["funds"][0]
    row = next(r for r in fund["moved"] if r["method"] == primary)
    if row["moved"] is None:
        return _card(
            name="Money", status=UNKNOWN, headline="The counts by which it is paid were not measured.", more=[]
        )
    moved, error = row["moved"], row["moved_se"] or 0.0
    groups = [r for r in fund["groups"] if r["method"] == primary and r["bias"] is not None]
    status, said, more = _most_affected(groups, ON_AMOUNTS, "amounts", tolerance)
    seen = moved > 1.96 * error
    status = MATTERS if MATTERS in (status, seen and moved >= 1e6 * tolerance.money and MATTERS) else (
        SMALL if seen else NONE
    )  # fmt: skip
    by = fund["rule"].removeprefix("share of ")
    headline = f"Of each million that is paid out by {by}, {within(moved, error)} goes elsewhere than it should."
    return _card(name="Money", status=status, headline=headline, more=[said, *more])


def _decisions(primary: str, summary: dict[str, Any], tolerance: ToleranceOptions) -> Card:
    if not summary["thresholds"]:
        return _card(
            name="Decisions",
            status=UNKNOWN,
            headline="No decision was named.",
            more=["Name one in study.thresholds, such as a share above 10 %."],
        )
    told, statuses = [], []
    for one in sorted(summary["thresholds"], key=lambda one: -_wrong(one, primary)):
        row = next(r for r in one["methods"] if r["method"] == primary)
        if row["flips"] is None:
            continue
        seen = row["flips"] > 1.96 * (row["flips_se"] or 0.0)
        large = _wrong(one, primary) >= tolerance.decisions
        statuses.append(MATTERS if seen and large else SMALL if seen else NONE)
        wrong = within(row["flips"], row["flips_se"])
        told.append(
            f"“{shortened(one['rule'])}”: {wrong} of {one['units']:,} decisions are wrong on average "
            f"({number(row['lost'])} lost, {number(row['gained'])} gained)."
        )
    if not told:
        return _card(name="Decisions", status=UNKNOWN, headline="The counts that decide were not measured.", more=[])
    status = next(one for one in (MATTERS, SMALL, NONE) if one in statuses)
    return _card(name="Decisions", status=status, headline=told[0], more=told[1:])


def _wrong(rule: dict[str, Any], method: str) -> float:
    """The part of a rule's decisions that are wrong, on average."""
    row = next(r for r in rule["methods"] if r["method"] == method)
    return float((row["flips"] or 0.0) / max(rule["units"], 1))
