"""Compares two studies: which is fairer, to whom, by how much, and whether it is more than simulation error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from topdown.errors import ConfigError, DataError, require_known
from topdown.geography.tree import FloatArray
from topdown.pages.chart_style import styled
from topdown.studies.batch_means import ABSOLUTE, ALL_UNITS, BIAS, NET, SQUARE, BatchMeans, HardestHit, Of, Pairs
from topdown.studies.discoveries import RATE, discoveries
from topdown.studies.report.page import filled
from topdown.studies.report.percent_chart import percent_chart
from topdown.studies.report.plain_numbers import rounded
from topdown.studies.report.section import Summary
from topdown.studies.report.words import many, number, percent, within
from topdown.wording import listed

FILE, BATCHES_FILE = "summary.json", "batches.parquet"
"""The files of a study that a comparison reads: its numbers, and their means over batches of replicates."""

FAIRER, LESS_FAIR, NO_DIFFERENCE, UNKNOWN = "fairer", "less fair", "no clear difference", "cannot be told"

_VERSION = 3
_KEPT: Mapping[str, type] = MappingProxyType({
    "title": str,
    "notice": str,
    "public_input": bool,
    "primary": str,
    "methods": list,
    "cells": list,
    "levels": list,
    "run": dict,
    "privacy": str,
    "overview": list,
    "groups": list,
    "gaps": list,
    "weighted": dict,
    "funds": list,
    "false_discovery_rate": float,
    "tolerance": dict,
    "cards": list,
})  # fmt: skip
_ALSO: Mapping[str, type] = MappingProxyType({"thresholds": list, "batches_sha256": str})

_NEXT_TO_NOTHING = 1e-9
"""Differences up to this, in parts or counts, are rounding errors."""


class Study(NamedTuple):
    """A study as read from its files: its numbers, and their means over batches of replicates."""

    summary: Summary
    batches: BatchMeans


class _Named(NamedTuple):
    """A quantity of one study: the ``key`` of its batch means, its ``group`` there, its ``divisor``, and what it is
    ``made_of``: how many units, and their mean true count."""

    key: Of
    group: str
    divisor: float
    made_of: tuple[object, ...]


class _Row(NamedTuple):
    """A quantity of both studies: what it describes, the batch means of either, and their divisors."""

    of: list[str]
    keys: tuple[Of, Of]
    group: str
    divisors: tuple[float, float]


class _Question(NamedTuple):
    """The question that a card answers: ``reads`` and ``all_read`` describe a size of the most affected group, and of
    all units where there are no groups; ``tolerances``: the settings of either study from which a difference matters;
    ``signed``: whether a group's number has a sign.
    """

    name: str
    reads: str
    all_read: str
    tolerances: tuple[str, str]
    signed: bool


_QUESTIONS = {
    "counts": _Question("Counts", "is off by {} of its mean count", "", ("bias", "bias"), True),
    "money": _Question(
        "Money", "is paid {} more or less than it is due", "has {} of the fund going elsewhere than it should",
        ("bias", "money"), True,
    ),
    "decisions": _Question(
        "Decisions", "has {} of its decisions wrong", "has {} of its decisions wrong", ("decisions", "decisions"), False
    ),
}  # fmt: skip


def kept(summary: Summary, batches_sha256: str) -> str:
    """The part of a study's ``summary`` that comparisons need, as JSON; without single units. ``batches_sha256``: of
    the file of its batches."""
    thresholds = [{key: one[key] for key in ("rule", "units", "methods", "groups")} for one in summary["thresholds"]]
    found = {"version": _VERSION, "thresholds": thresholds, "batches_sha256": batches_sha256}
    found |= {key: summary[key] for key in _KEPT}
    return json.dumps(found, allow_nan=False, ensure_ascii=False)


def read_kept(text: str) -> Summary:
    """Read what `kept` wrote. Raises `DataError` for anything else."""
    try:
        found = json.loads(text)
        if found["version"] == _VERSION and all(type(found[key]) is kind for key, kind in {**_KEPT, **_ALSO}.items()):
            return dict(found)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise DataError(f"this {FILE} is not one of a study that this version can read; run the study again")


def compared(first: Study, second: Study, methods: tuple[str | None, str | None] = (None, None)) -> Summary:
    """Whether ``second``, B, is fairer than ``first``, A; ``methods`` of either (the released ones where None).

    A group's size is, for counts, that of its bias divided by its mean count (at least one); for money, that of its
    bias divided by what it is due; for decisions, the part of its units with a wrong decision. B is fairer to a group
    where its size is clearly smaller, and fairer on the whole where the size of the most affected group, which may
    differ between A and B, is smaller (`batch_means.Pairs.worst`).

    ``studies``: a description of each; ``paired``, ``pairing``: whether the studies share their draws, and that in
    words; ``cards``; ``counts``, ``money``, ``decisions``: rows by group and of all units, ``levels``: errors by level,
    each with ``first`` and ``second`` as (value, standard error), ``difference`` with its 95 % interval (``low``,
    ``high``), ``clear``, whether it is more than simulation error at the false discovery rate over the page,
    ``verdict`` and ``said``, that in words. Sizes are in percent.

    Raises `ConfigError` for a method that a study does not have, and for studies without a level and cell in common.
    """
    sides, chosen = (first, second), []
    for study, method in zip(sides, methods, strict=True):
        if method is not None:
            require_known(method, study.summary["methods"], "method")
        chosen.append(method or study.summary["primary"])
    why = _not_shared(first.summary["run"], second.summary["run"])
    named = {"counts": _count_rows, "money": _money_rows, "decisions": _decision_rows}
    rows, unlike = {}, {}
    for name, of_study in named.items():
        rows[name], unlike[name] = _rows(sides, chosen, of_study)
    groups = {(grouping, group) for one in unlike.values() for grouping, _, group in one}
    levels, _ = _rows(sides, chosen, _level_rows)
    if not levels:
        raise ConfigError(
            f"the studies have no level and cell in common: levels {listed(first.summary['levels'])} and "
            f"{listed(second.summary['levels'])}, cells {listed(first.summary['cells'])} and "
            f"{listed(second.summary['cells'])}"
        )
    judged: dict[str, list[dict[str, Any]]] = {}
    worst: dict[str, tuple[HardestHit, list[dict[str, Any]]] | None] = {}
    ratios: list[float] = []
    for name, of in rows.items():
        judged[name], worst[name] = [], None
        for part, signed in _by_kind(of, _QUESTIONS[name].signed):
            pairs = _pairs(sides, part, why is None, signed)
            found = _differences(part, pairs)
            judged[name] += found
            worst[name] = pairs.worst(), found
            ratios += _narrower(pairs)
    leads = {name: _lead(one) for name, one in worst.items()}
    # The most affected group comes first; all units come last.
    judged = {
        name: sorted(found, key=lambda row: (row["of"][:2] != leads[name], not row["of"][0]))
        for name, found in judged.items()
    }
    judged["levels"] = _level_differences(levels, sides, why is None)
    _judge([row for part in judged.values() for row in part], min(len(one.batches.sizes) for one in sides))
    studies = [
        {
            "name": name,
            "method": method,
            "words": _words(one.summary, method),
            **{key: one.summary[key] for key in ("title", "notice", "run", "privacy", "public_input")},
        }
        for name, method, one in zip("AB", chosen, sides, strict=True)
    ]
    notices = [one.summary["notice"] for one in sides if not one.summary["public_input"]]
    panels = [
        {**row, "study": name}
        for name, method, one in zip("AB", chosen, sides, strict=True)
        for row in one.summary["groups"]
        if row["method"] == method
    ]
    panels.sort(key=lambda row: [row["grouping"], row["cell"]] != leads["counts"])
    summed = {
        "studies": studies,
        "paired": why is None,
        "pairing": _pairing(why, first.summary["run"], ratios) + _left_out(len(groups)),
        "weighted": {**first.summary["weighted"], **second.summary["weighted"]},
        "false_discovery_rate": RATE,
        "bias_by_group": panels,
        **judged,
    }
    result: Summary = rounded(summed)
    tolerances = [one.summary["tolerance"] for one in sides]
    result["cards"] = [
        _card(name, one, tolerances, len(unlike[name])) | _clear(judged[name]) for name, one in worst.items()
    ]
    return result | {"notice": (notices or [first.summary["notice"]])[0], "public_input": not notices}


# -- whether draws are shared -----------------------------------------------------------------------------------------


def _not_shared(first: Summary, second: Summary) -> str | None:
    """Why two studies' replicates did not draw the same random numbers; None where they did."""
    if first["seed"] is None or first["seed"] != second["seed"]:
        return f"their seeds are {first['seed']} and {second['seed']}"
    if first["wanted"] != second["wanted"]:
        return f"they were asked for {first['wanted']:,} and {second['wanted']:,} replicates"
    if first["replicates"] != second["replicates"]:
        return f"they have {first['replicates']:,} and {second['replicates']:,} replicates"
    if first["draws"]["units"] != second["draws"]["units"]:
        return "they have different units"
    if first["draws"]["queries"] != second["draws"]["queries"]:
        return "they do not measure the same queries of the same cells"
    return None


def _words(study: Summary, method: str) -> str:
    """A study in one line: its title, method, noise and replicates."""
    level, run = study["levels"][-1], study["run"]
    sd = run["noise_sd"][level]
    noise = f"{run['mechanism']} noise" + (f" of standard deviation {number(sd)} at {level}" if sd is not None else "")
    return f"{study['title']}: {method}, {noise}, {many(run['replicates'], 'replicate')}"


def _pairing(why: str | None, run: Summary, ratios: list[float]) -> str:
    if why is not None:
        return (
            f"Not paired: the studies do not share their draws, because {why}. Differences are those of independent "
            "simulations."
        )
    said = f"Paired: every replicate of B has the draws of its replicate of A (seed {run['seed']})"
    if not ratios:
        return f"{said}."
    part = number(float(np.median(ratios)))
    return f"{said}, so that the median interval of a difference is {part} times as wide as it would be without."


def _left_out(unlike: int) -> str:
    """A sentence on the groups that are not the same in both studies."""
    if not unlike:
        return ""
    return f" Left out: {many(unlike, 'group')} with other units or other true counts in B than in A."


def _narrower(pairs: Pairs) -> list[float]:
    """The width of intervals of differences, divided by their width without pairing."""
    if not pairs.paired:
        return []
    apart = replace(pairs, paired=False)
    together, without = pairs.contrast(1.0, 1.0).error, apart.contrast(1.0, 1.0).error
    known = np.isfinite(together) & (without > 0)
    return [float(one) for one in together[known] / without[known]]


# -- what both studies have -------------------------------------------------------------------------------------------

_Quantities = dict[tuple[str, ...], _Named]
"""What a number describes -> where it is."""


def _rows(
    sides: tuple[Study, Study], methods: list[str], named: Callable[[Summary, str], _Quantities]
) -> tuple[list[_Row], list[tuple[str, ...]]]:
    """The quantities that both studies have, in the first one's order, and what is left out: what is of units that are
    not the same in both, whose errors differ with that."""
    one, two = (named(study.summary, method) for study, method in zip(sides, methods, strict=True))
    both = [of for of in one if of in two]
    rows = [
        _Row(list(of), (one[of].key, two[of].key), one[of].group, (one[of].divisor, two[of].divisor))
        for of in both
        if one[of].made_of == two[of].made_of
    ]
    return rows, [of for of in both if one[of].made_of != two[of].made_of]


def _count_rows(study: Summary, method: str) -> _Quantities:
    return {
        (row["grouping"], row["cell"], row["group"]): _Named(
            Of(method, BIAS, row["cell"], row["grouping"]), row["group"], max(row["mean_truth"], 1.0), _made_of(row)
        )
        for row in study["groups"]
        if row["method"] == method
    }  # fmt: skip


def _made_of(group: Mapping[str, Any]) -> tuple[object, ...]:
    return group["units"], group["mean_truth"]


def _all_made_of(decided: Mapping[str, Any]) -> tuple[object, ...]:
    """What all units of a fund or a threshold are made of: how many they are, and what their groups are, by whichever
    method these were studied."""
    groups = {(row["grouping"], row["group"], *_made_of(row)) for row in decided["groups"]}
    return decided["units"], *sorted(groups)


def _money_rows(study: Summary, method: str) -> _Quantities:
    found: _Quantities = {}
    for fund in study["funds"]:
        # Half of what is moved is paid elsewhere; it is a mean over units.
        of = Of(method, ABSOLUTE, fund["rule"], "")
        made_of = _all_made_of(fund)
        found["", fund["rule"], ALL_UNITS] = _Named(of, ALL_UNITS, 2.0 / fund["units"], made_of)
        found |= {
            (row["grouping"], fund["rule"], row["group"]): _Named(
                Of(method, NET, fund["rule"], row["grouping"]), row["group"], row["mean_truth"] / 1e6, _made_of(row)
            )
            for row in fund["groups"]
            if row["method"] == method and row["mean_truth"]
        }  # fmt: skip
    return found


def _decision_rows(study: Summary, method: str) -> _Quantities:
    found: _Quantities = {}
    for one in study["thresholds"]:
        of = Of(method, ABSOLUTE, one["rule"], "")
        found["", one["rule"], ALL_UNITS] = _Named(of, ALL_UNITS, 1.0, _all_made_of(one))
        found |= {
            (row["grouping"], one["rule"], row["group"]): _Named(
                of._replace(grouping=row["grouping"]), row["group"], 1.0, _made_of(row)
            )
            for row in one["groups"]
        }
    return found


def _level_rows(study: Summary, method: str) -> _Quantities:
    return {
        (row["level"], row["cell"], name): _Named(Of(method, measure, row["cell"], ""), row["level"], 1.0, ())
        for row in study["overview"]
        if row["method"] == method
        for name, measure in (("RMSE", SQUARE), ("mean bias", BIAS))
    }


def _by_kind(rows: list[_Row], signed: bool) -> list[tuple[list[_Row], bool]]:
    """The rows by kind, those of the card last, with whether their numbers have a sign: the money that a fund moves has
    none, the biases of its groups have one.
    """
    if not signed:
        return [(rows, False)] if rows else []
    units, groups = ([row for row in rows if bool(row.of[0]) is grouped] for grouped in (False, True))
    return [(part, grouped) for part, grouped in ((units, False), (groups, True)) if part]


def _pairs(sides: tuple[Study, Study], rows: Sequence[_Row], paired: bool, signed: bool) -> Pairs:
    columns: list[FloatArray] = []
    for side, study in enumerate(sides):
        found = np.stack([study.batches.columns(row.keys[side], [row.group])[:, 0] for row in rows], axis=1)
        columns.append(found / np.array([row.divisors[side] for row in rows]))
    return Pairs(columns[0], columns[1], sides[0].batches.sizes, sides[1].batches.sizes, paired, signed)


# -- differences and verdicts -----------------------------------------------------------------------------------------


def _differences(rows: Sequence[_Row], pairs: Pairs) -> list[dict[str, Any]]:
    """For every row both numbers and the difference of their sizes, in percent."""
    a, b = pairs.each
    found = pairs.interval()
    t = np.where(np.abs(found.value) <= _NEXT_TO_NOTHING, 0.0, found.t)
    return [
        {
            "of": row.of,
            "first": [100.0 * float(a.value[k]), 100.0 * float(a.error[k])],
            "second": [100.0 * float(b.value[k]), 100.0 * float(b.error[k])],
            "difference": 100.0 * float(found.value[k]),
            "low": 100.0 * float(found.low[k]),
            "high": 100.0 * float(found.high[k]),
            "t": float(t[k]),
        }
        for k, row in enumerate(rows)
    ]


def _level_differences(rows: Sequence[_Row], sides: tuple[Study, Study], paired: bool) -> list[dict[str, Any]]:
    """For every level's RMSE and mean bias both numbers and their difference."""
    pairs, judged = _pairs(sides, rows, paired, False), []
    a, b = pairs.each
    roots = np.array([row.of[-1] == "RMSE" for row in rows])
    # d sqrt(m) = dm / (2 sqrt(m)).
    slopes, values = [], []
    for one in (a, b):
        root = np.sqrt(np.maximum(one.value, 0.0))
        slopes.append(np.where(roots, np.divide(0.5, root, out=np.zeros_like(root), where=root > 0), 1.0))
        values.append(np.where(roots, root, one.value))
    found, value = pairs.contrast(*slopes), values[1] - values[0]
    half, t = found.half(0.95), np.where(np.abs(value) <= _NEXT_TO_NOTHING, 0.0, found.t)
    for k, row in enumerate(rows):
        judged.append({
            "of": row.of,
            "first": [float(values[0][k]), float(a.error[k] * slopes[0][k])],
            "second": [float(values[1][k]), float(b.error[k] * slopes[1][k])],
            "difference": float(value[k]),
            "error": float(found.error[k]),
            "low": float(value[k] - half[k]),
            "high": float(value[k] + half[k]),
            "t": float(t[k]),
        })  # fmt: skip
    return judged


def _judge(rows: list[dict[str, Any]], batches: int) -> None:
    """Give every row ``clear``, ``verdict`` and ``said``."""
    t = np.clip([row.pop("t") for row in rows], -1e300, 1e300)
    none = np.isnan(t) | ~np.isfinite([row["low"] for row in rows])
    for row, clear, unknown in zip(rows, discoveries(t, 1.0, batches).tolist(), none.tolist(), strict=True):
        row["clear"] = clear
        if unknown:
            row["verdict"] = row["said"] = UNKNOWN
        elif "error" in row:
            row["verdict"] = row["said"] = _of_level(row)
        else:
            row["verdict"] = NO_DIFFERENCE if not clear else FAIRER if row["difference"] < 0 else LESS_FAIR
            low, high = sorted((abs(row["low"]), abs(row["high"])))
            row["said"] = f"{row['verdict']}, by {number(low)} to {number(high)} points" if clear else NO_DIFFERENCE


def _of_level(row: dict[str, Any]) -> str:
    error = row.pop("error")
    if not row["clear"]:
        return NO_DIFFERENCE
    amount = within(abs(row["difference"]), error)
    # A relative change of a bias means nothing, since it may be nearly 0.
    sized = row["of"][-1] == "RMSE" and row["first"][0] > 0
    part = f" ({number(round(100.0 * abs(row['difference']) / row['first'][0], 1))} %)" if sized else ""
    return f"B is {'higher' if row['difference'] > 0 else 'lower'} by {amount}{part}"


def _card(
    name: str,
    found: tuple[HardestHit, list[dict[str, Any]]] | None,
    tolerances: Sequence[dict[str, float]],
    unlike: int,
) -> dict[str, Any]:
    """The answer to one question: ``name, verdict, matters, headline, more``; ``unlike``: how many groups are not the
    same in both studies."""
    question = _QUESTIONS[name]
    if found is None and unlike:
        return _no_card(question, "No group has the same units and true counts in both studies.")
    if found is None:
        return _no_card(question, "No fund or decision is in both studies." if name != "counts" else "")
    worst, rows = found
    if not np.isfinite(worst.difference):
        return _no_card(question, "One replicate is not enough.")
    grouped = bool(rows[worst.first]["of"][0])
    least = min(one[question.tolerances[0 if grouped else 1]] for one in tolerances)
    verdict = FAIRER if worst.high < 0 else LESS_FAIR if worst.low > 0 else NO_DIFFERENCE
    matters = verdict != NO_DIFFERENCE and abs(worst.difference) >= least
    a, b = (percent(size) for size in (worst.first_size, worst.second_size))
    subject = "the most affected group" if grouped else "what is decided on"
    reads = question.reads if grouped else question.all_read
    begin = {FAIRER: "B is fairer", LESS_FAIR: "B is less fair", NO_DIFFERENCE: "No clear difference"}[verdict]
    headline = f"{begin}: {subject} {reads.format(b)} in B, {a} in A."
    low, high = (number(100.0 * one) for one in (worst.low, worst.high))
    more = [f"The difference, B less A, is {low} to {high} percentage points (95 %)."]
    if verdict != NO_DIFFERENCE and not matters:
        more.append(f"That is less than what matters ({percent(least)}).")
    if grouped:
        hit = [called(rows[one]["of"]) for one in (worst.first, worst.second)]
        more.append(f"Most affected: {hit[0]}" + (", in both." if hit[0] == hit[1] else f" in A, {hit[1]} in B."))
    by_verdict = [sum(row["verdict"] == one for row in rows) for one in (FAIRER, LESS_FAIR, NO_DIFFERENCE)]
    if grouped:
        more.append(
            f"B is fairer to {many(by_verdict[0], 'group')} and less fair to {by_verdict[1]:,}, without a clear "
            f"difference in {by_verdict[2]:,}."
        )
    return {
        "name": question.name, "status": verdict, "matters": matters, "headline": headline, "more": more,
        "difference": 100.0 * worst.difference, "low": 100.0 * worst.low, "high": 100.0 * worst.high,
    }  # fmt: skip


def _lead(found: tuple[HardestHit, list[dict[str, Any]]] | None) -> list[str]:
    """The grouping and the cell, or rule, of the most affected group in A; none where it is not known."""
    return [] if found is None or found[0].first < 0 else list(found[1][found[0].first]["of"][:2])


def _clear(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """``clear``: a sentence on every group that B is clearly fairer or less fair to, the largest difference first."""
    clear = sorted((row for row in rows if row["clear"]), key=lambda row: -abs(float(row["difference"])))
    return {"clear": [f"{called(row['of'])}: {row['said']}" for row in clear]}


def _no_card(question: _Question, headline: str) -> dict[str, Any]:
    return {"name": question.name, "status": UNKNOWN, "matters": False, "headline": headline, "more": []}


def called(of: Sequence[str]) -> str:
    """What a row describes: "size class “below 10” of x"."""
    grouping, cell, group = of
    return f"{grouping} “{group}” of {cell}" if grouping else f"{group} of {cell}"


# -- the page ---------------------------------------------------------------------------------------------------------


def comparison_chart(comparison: Summary) -> alt.TopLevelMixin | None:
    """Bias by group in % of the mean count with its 95 % interval, the studies side by side; the reader selects the
    grouping and the cell.
    """
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
