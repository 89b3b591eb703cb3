"""Two linked tables solved apart and together, from the same noise: impossible results counted, and errors compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from topdown.geography.geography import Geography
from topdown.geography.tree import FloatArray
from topdown.linked.impossible import CountedCells, PersonFacts, counted, results_of
from topdown.linked.universe import Universe
from topdown.pages.chart_style import GREY, INK, styled, told
from topdown.studies.report.chart_parts import LIGHTNESS, SHAPES, above, telling_apart
from topdown.studies.report.page import filled
from topdown.studies.report.plain_numbers import rounded, rows_of
from topdown.studies.report.section import Summary
from topdown.studies.report.words import number, percent, percent_within, within
from topdown.workload import Query

APART, TOGETHER = "separately", "together"
SOLVED = (APART, TOGETHER)
"""How both tables are solved."""

ANY = "any impossible result"

_CLEAR, _SHORT = 2.0, 3.0
"""Standard errors from which an error is called smaller or larger, and a coverage too small."""

ByLevel = Mapping[str, Sequence[CountedCells]]
"""By table its cells that are not 0 at the nodes of every level."""


@dataclass(frozen=True)
class LinkedComparison:
    """Both tables of replicates against the true ones, results and errors of every replicate.

    Args:
        truth: the true counts.
        queries: by table what errors are told of.
        facts: which attributes tell what is improbable.
    """

    universe: Universe
    geography: Geography
    truth: ByLevel = field(repr=False)
    queries: Mapping[str, Sequence[Query]]
    facts: PersonFacts | None = None
    _results: list[dict[str, Any]] = field(default_factory=list, repr=False)
    _errors: list[dict[str, Any]] = field(default_factory=list, repr=False)
    _coverage: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def add(self, replicate: int, solved: str, tables: ByLevel) -> None:
        """Count the results, and find the errors, of ``tables`` of one replicate, solved as ``solved`` says."""
        of = {"replicate": replicate, "solved": solved}
        self._results.extend(of | row for row in self._found(tables))
        for name, queries in self.queries.items():
            for index, level in enumerate(self.geography.levels):
                nodes = self.geography.level_slice(level)
                for query in queries:
                    error = _l1(query, self.truth[name][index], tables[name][index]) / (nodes.stop - nodes.start)
                    self._errors.append(of | {"level": level, "table": name, "query": query.name, "error": error})

    def add_margins(self, replicate: int, table: str, query: Query, lower: FloatArray, upper: FloatArray) -> None:
        """Count how many intervals, ``lower`` to ``upper`` (nodes x answers), of a replicate hold the true answers."""
        for index, level in enumerate(self.geography.levels):
            nodes = self.geography.level_slice(level)
            true = query.sparse_answers(*self.truth[table][index], nodes.stop - nodes.start)
            held = (lower[nodes] <= true) & (true <= upper[nodes])
            self._coverage.append(
                {"replicate": replicate, "level": level, "table": table, "query": query.name}
                | {"intervals": held.size, "coverage": held.mean()}
            )

    def coverage(self) -> pd.DataFrame:
        """By level, table and query: how many ``intervals`` a replicate has, and the part of them that hold the true
        answers, a mean over replicates with its standard error."""
        rows = [
            {"level": level, "table": table, "query": query, "intervals": int(part["intervals"].iloc[0])}
            | {"coverage": part["coverage"].mean(), "coverage_se": _error(part["coverage"].to_numpy(np.float64))}
            for (level, table, query), part in _frame(self._coverage).groupby(["level", "table", "query"], sort=False)
        ]
        return pd.DataFrame(rows, columns=["level", "table", "query", "intervals", "coverage", "coverage_se"])

    def _found(self, tables: ByLevel) -> Iterator[dict[str, Any]]:
        """Impossible and improbable results by level, and at how many nodes any is impossible."""
        households, persons = (tables[name] for name in self.universe.names)
        for index, level in enumerate(self.geography.levels):
            nodes = self.geography.level_slice(level)
            n_nodes = nodes.stop - nodes.start
            results = results_of(self.universe, households[index], persons[index], n_nodes, self.facts)
            wrong = np.any([one.found for one in results if one.impossible], axis=0)
            every = {"result": ANY, "impossible": True, "among": n_nodes, "found": int(wrong.sum())}
            for row in (every, *counted(results)):
                yield {"level": level} | row

    def results(self) -> pd.DataFrame:
        """By level and kind of result: at how many nodes it is in the true tables, and the mean over replicates, with
        its standard error, of those solved separately and together; ``nodes`` of the level, and ``among`` how many of
        the true ones it could be."""
        names = ["level", "result", "impossible"]
        frame = _by_solved(pd.DataFrame(self._results), names, "found")
        true = pd.DataFrame(self._found(self.truth)).rename(columns={"found": "truth"})
        sizes = {level: self._size(level) for level in self.geography.levels}
        return true.assign(nodes=true["level"].map(sizes)).merge(frame.drop(columns=["ratio", "ratio_se"]), on=names)

    def errors(self) -> pd.DataFrame:
        """By level, table and query: the mean over nodes and replicates of the L1 distance of the released answers from
        the true ones, in counts, solved separately and together, each with its standard error over replicates; their
        ``ratio``, together divided by separately, with the standard error of paired replicates (the delta method)."""
        return _by_solved(pd.DataFrame(self._errors), ["level", "table", "query"], "error")

    def _size(self, level: str) -> int:
        nodes = self.geography.level_slice(level)
        return int(nodes.stop - nodes.start)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["replicate", "level", "table", "query", "intervals", "coverage"])


def _l1(query: Query, true: CountedCells, released: CountedCells) -> float:
    """The sum over nodes and answers of |released - true|."""
    keys = [one.rows * query.n_answers + query.answers_of(one.cells) for one in (released, true)]
    distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
    difference = np.zeros(len(distinct), np.int64)
    np.add.at(difference, place, np.concatenate([released.counts, -true.counts]))
    return float(np.abs(difference).sum())


def _by_solved(frame: pd.DataFrame, names: list[str], value: str) -> pd.DataFrame:
    """Means of ``value`` over replicates by ``names``, a column for either way of solving, with standard errors, and
    their ratio."""
    rows = []
    for key, part in frame.groupby(names, sort=False):
        apart, together = (part.loc[part["solved"] == one, value].to_numpy(np.float64) for one in SOLVED)
        ratio = together.mean() / apart.mean() if apart.mean() > 0 else np.nan
        rows.append(
            dict(zip(names, key, strict=True))
            | {APART: apart.mean(), f"{APART}_se": _error(apart)}
            | {TOGETHER: together.mean(), f"{TOGETHER}_se": _error(together)}
            | {"difference": (together - apart).mean(), "difference_se": _error(together - apart)}
            | {"ratio": ratio, "ratio_se": _error(together - ratio * apart) / max(apart.mean(), np.finfo(float).tiny)}
        )
    return pd.DataFrame(rows)


def _error(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """The standard error of the mean; NaN of a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def together_summary(comparison: LinkedComparison, **about: Any) -> Summary:
    """What the page shows: ``cards``, ``results``, ``errors``, ``coverage``, ``levels`` from the lowest, and ``about``
    the study: ``title, notice, public_input, replicates, seed, confidence, guarantee``."""
    results, errors, coverage = comparison.results(), comparison.errors(), comparison.coverage()
    levels = list(reversed(comparison.geography.levels))
    summary: Summary = rounded(
        {"results": rows_of(results), "errors": rows_of(errors), "coverage": rows_of(coverage)}
        | {"levels": levels, "tables": comparison.universe.names}
    )
    cards = [_results_card(results, levels[0], about["replicates"]), _errors_card(errors)]
    if len(coverage):
        cards.append(_margins_card(coverage, about["confidence"]))
    return summary | {"cards": cards} | about


def _results_card(results: pd.DataFrame, level: str, replicates: int) -> dict[str, Any]:
    every = results[results["result"] == ANY].set_index("level")
    row: Any = every.loc[level]
    none = bool((every[TOGETHER] == 0).all())
    said = "none" if row[TOGETHER] == 0 else within(row[TOGETHER], row[f"{TOGETHER}_se"])
    more = [f"{name}: {number(one[APART])} of {one['nodes']:,} separately, {number(one[TOGETHER])} together."
            for name, one in every[::-1].iterrows() if name != level]  # fmt: skip
    return {
        "name": "Impossible results",
        "status": "none together" if none else "some together",
        "matters": not none,
        "headline": f"Of {row['nodes']:,} units of level {level}, {within(row[APART], row[f'{APART}_se'])} have an "
        f"impossible result where both tables are solved separately, {said} where they are solved together.",
        "more": [*more, f"Means of {replicates:,} replicates, with 95 % intervals."],
    }


def _errors_card(errors: pd.DataFrame) -> dict[str, Any]:
    t = (errors["difference"] / errors["difference_se"]).fillna(0.0)
    smaller, larger = int((t < -_CLEAR).sum()), int((t > _CLEAR).sum())
    known = errors[errors["ratio"].notna()].sort_values("ratio")
    more = []
    if len(known):
        more.append(f"The median ratio, together divided by separately, is {number(float(known['ratio'].median()))}.")
    for which, one in zip(("Smallest", "Largest"), rows_of(known.iloc[[0, -1]] if len(known) else known), strict=False):
        of = f"{one['table']}: {one['query']} at {one['level']}"
        more.append(f"{which} ratio: {within(one['ratio'], one['ratio_se'])}, of {of}.")
    return {
        "name": "Errors",
        "status": "some larger" if larger else "not larger",
        "matters": larger > 0,
        "headline": f"Of {len(errors):,} errors (queries by level), {smaller:,} are smaller together, {larger:,} "
        "larger, by more than two standard errors.",
        "more": more,
    }


def _margins_card(coverage: pd.DataFrame, confidence: float) -> dict[str, Any]:
    short = coverage[coverage["coverage"] + _SHORT * coverage["coverage_se"].fillna(0.0) < confidence]
    (least,) = rows_of(coverage.sort_values("coverage").iloc[[0]])
    mean = float(np.average(coverage["coverage"], weights=coverage["intervals"]))
    of = f"{least['table']}: {least['query']} at {least['level']}"
    return {
        "name": "Margins of error",
        "status": "some too short" if len(short) else "as stated",
        "matters": len(short) > 0,
        "headline": f"Of both releases' intervals at {percent(confidence)}, {percent(mean)} hold the true answer.",
        "more": [f"Least: {percent_within(least['coverage'], least['coverage_se'])}, of {of}."],
    }


def results_chart(summary: Summary) -> alt.TopLevelMixin:
    """By level the part of units that have each impossible result, solved separately and together."""
    frame = pd.DataFrame([row for row in summary["results"] if row["impossible"]])
    shown = frame.melt(["level", "result", "nodes"], list(SOLVED), "solved", "found")
    shown["percent"] = 100.0 * shown["found"] / shown["nodes"]

    def marked(marks: Sequence[Any]) -> dict[str, Any]:
        return {"title": None, "sort": list(SOLVED), "scale": telling_apart(SOLVED, marks), "legend": above()}

    points = alt.Chart(shown).encode(
        x=alt.X("percent:Q", title="% of units", scale=alt.Scale(domainMin=0)),
        y=_listed("result", shown),
        color=alt.Color("solved:N", **marked(LIGHTNESS)),
        shape=alt.Shape("solved:N", **marked(SHAPES)),
        tooltip=told("level:N", "result:N", "solved:N", "found:Q", "nodes:Q"),
    )
    return _by_level(points.mark_point(filled=True, size=50), summary)


def ratios_chart(summary: Summary) -> alt.TopLevelMixin:
    """By level the ratio of errors of every query, together divided by separately, with 95 % intervals."""
    frame = pd.DataFrame(summary["errors"])
    frame = frame[frame["ratio"].notna()]
    half = 1.96 * frame["ratio_se"].astype(float).fillna(0.0)
    ends: dict[str, Any] = {"low": frame["ratio"] - half, "high": frame["ratio"] + half, "one": 1.0}
    frame = frame.assign(answer=frame["table"] + ": " + frame["query"], **ends)
    base = alt.Chart(frame[["level", "answer", *SOLVED, "ratio", *ends]])
    x, y = alt.X("ratio:Q", title="ratio of errors", scale=alt.Scale(zero=False)), _listed("answer", frame)
    tooltip = told("level:N", "answer:N", *(f"{one}:Q" for one in (*SOLVED, "ratio", "low", "high")))
    layers = alt.layer(
        base.mark_rule(color=GREY).encode(x="one:Q"),
        base.mark_rule(color=INK).encode(x="low:Q", x2="high:Q", y=y),
        base.mark_point(filled=True, size=50, color=INK).encode(x=x, y=y, tooltip=tooltip),
    )
    return _by_level(layers, summary)


def _listed(column: str, frame: pd.DataFrame) -> alt.Y:
    """The axis of a ``column`` of names, in their order."""
    order = list(dict.fromkeys(frame[column]))
    return alt.Y(f"{column}:N", title=None, sort=order, axis=alt.Axis(labelLimit=400, grid=True))


def _by_level(panel: Any, summary: Summary) -> alt.TopLevelMixin:
    """A panel for every level, the lowest last."""
    columns = alt.Column("level:N", title=None, sort=list(reversed(summary["levels"])))
    panels: alt.TopLevelMixin = panel.properties(width=110, height=alt.Step(15)).facet(column=columns)
    return panels


def render_together(summary: Summary) -> str:
    """The page of ``summary``, of `together_summary`. Names and labels are escaped wherever they stand."""
    charts = {
        "results": styled(results_chart(summary), "Percent of units with impossible results, separately and together"),
        "ratios": styled(ratios_chart(summary), "Errors together divided by errors separately, with 95 % intervals"),
    }
    return filled("together.html.jinja", {}, charts, s=summary, apart=APART, together=TOGETHER)
